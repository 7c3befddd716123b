"""Properties of modules and functions, for the passes in Rust."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as _module

from corsac import _core
from corsac.fx.node import _side_effectful_functions

_SEEDED = torch.Tag.nondeterministic_seeded

#: Functions declared to have no side effects: their calls may be removed when unused.
pure_functions: set[Callable[..., Any]] = set()


def side_effects() -> set[Callable[..., Any]]:
    """The functions registered as having side effects, with PyTorch or here: one set."""
    return _side_effectful_functions


def impure_random() -> bool:
    """Whether unused operators that use random numbers are kept.

    As in torch.fx: always, unless inductor is compiling with its own generator.
    """
    if torch._guards.TracingContext.try_get():
        return torch._inductor.config.fallback_random
    return True


def describe_operator(operator: Any) -> tuple[bool, bool, str | None]:
    """Effects of an operator of ``torch.ops``: whether it was registered as effectful, whether it uses random
    numbers, and its schema as text (None for packets of overloads)."""
    from torch._higher_order_ops.effects import _get_effect

    if isinstance(operator, torch._ops.OpOverload):
        effect = _get_effect(operator) is not None
        return effect, _SEEDED in operator.tags, str(operator._schema)
    if isinstance(operator, torch._ops.HigherOrderOperator):
        return _get_effect(operator) is not None, False, None
    return False, False, None


def describe_modules(
    root: torch.nn.Module, paths: list[str]
) -> list[
    tuple[str, int, bool, bool, bool, bool | None, float, bool, float, bool, int, bool] | None
]:
    """Properties of the submodules with these paths, for the passes; None where there is no module.

    The fields are those of ``ModuleInfo`` in corsac-ops.
    """
    hooked_globally = bool(
        _module._global_forward_hooks
        or _module._global_forward_pre_hooks
        or _module._global_backward_hooks
        or _module._global_backward_pre_hooks
    )
    return [_describe(_submodule(root, path), hooked_globally) for path in paths]


def tensor_attributes(root: torch.nn.Module, paths: set[str]) -> set[str]:
    """Those of the attributes that are tensors of PyTorch's own classes."""
    found = set()
    for path in paths:
        parent, _, name = path.rpartition(".")
        owner = _submodule(root, parent) if parent else root
        if owner is not None and type(_attribute(owner, name)) in (
            torch.Tensor,
            torch.nn.Parameter,
        ):
            found.add(path)
    return found


def _attribute(owner: torch.nn.Module, name: str) -> Any:
    """Read an attribute without running user code."""
    own = owner.__dict__
    places = own.get("_parameters", {}), own.get("_buffers", {}), own
    return next((place[name] for place in places if name in place), None)


def _submodule(root: torch.nn.Module, path: str) -> torch.nn.Module | None:
    module: Any = root
    for name in path.split("."):
        children = getattr(module, "_modules", {})
        module = children[name] if name in children else getattr(module, name, None)
        if module is None:
            return None
    return module if isinstance(module, torch.nn.Module) else None


def _describe(
    module: torch.nn.Module | None, hooked_globally: bool
) -> tuple[str, int, bool, bool, bool, bool | None, float, bool, float, bool, int, bool] | None:
    if module is None:
        return None
    cls, own = type(module), module.__dict__
    hooked = (
        hooked_globally
        # A forward set on the instance has the same effect as a hook.
        or "forward" in own
        or own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
    )
    impure = own.get("_is_impure", getattr(cls, "_is_impure", None))
    graph = own.get("_graph")
    if impure is None and isinstance(graph, _core.Graph) and not hooked:
        # A graph module has the effects of its graph.
        impure = False if not _core.has_effects(graph) else None
    # Without these buffers, each batch's statistics are used, whatever the flag.
    tracked = own.get("track_running_stats", False) and (
        own["_buffers"].get("running_mean") is not None
        and own["_buffers"].get("running_var") is not None
    )
    drop = own.get("dropout", own.get("p", 0.0))
    return (
        f"{cls.__module__}.{cls.__qualname__}",
        id(module),
        module.training,
        bool(own.get("inplace", False)),
        bool(hooked),
        None if impure is None else bool(impure),
        drop if isinstance(drop, float) else float(bool(drop)),
        tracked,
        float(own.get("eps", 0.0)) if isinstance(own.get("eps", 0.0), (int, float)) else 0.0,
        own.get("max_norm") is not None,
        groups if isinstance(groups := own.get("groups", 1), int) and groups >= 0 else 1,
        own.get("padding_mode", "zeros") == "zeros" and not _is_zero(own.get("padding", 0)),
    )


def _is_zero(padding: Any) -> bool:
    """Whether a convolution with this padding does not pad its input."""
    if isinstance(padding, str):
        return padding == "valid"
    sizes = padding if isinstance(padding, (tuple, list)) else (padding,)
    return all(isinstance(size, int) and size == 0 for size in sizes)


def describe_value(value: Any) -> str:
    """A text that is equal for interchangeable values: by content for plain values, by identity otherwise."""
    # ``__qualname__`` of a torch function is where it is implemented, ``__name__`` where it can be imported.
    for name in (getattr(value, "__qualname__", None), getattr(value, "__name__", None)):
        module = getattr(value, "__module__", None)
        if not isinstance(name, str) or not isinstance(module, str) or "<" in name:
            continue
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value:
            return f"{module}.{name}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(value)
    return f"{type(value).__module__}.{type(value).__qualname__} at {id(value)}"


def clean_children(graph: _core.Graph) -> bool:
    """Eliminate dead code in the graph modules that are attributes used by ``graph``.

    Returns whether any of them changed.
    """
    owner = graph.owning_module
    if owner is None:
        return False
    from corsac.fx.graph_module import GraphModule

    children = {n: m for n, m in owner.named_children() if isinstance(m, GraphModule)}
    if not children:
        return False
    named = {node.target for node in graph.find_nodes(op="get_attr")}
    changed = False
    for name, child in children.items():
        if name in named:
            changed |= child.graph.eliminate_dead_code()
            child.recompile()
    return changed
