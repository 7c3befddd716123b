"""Replacement of operators by a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules import module as _module

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.passes import _signatures
from corsac.passes._budget import Budget, current_budget
from corsac.passes._derive import OF_VALUE, unique_attribute
from corsac.passes._effects import Effects, effects
from corsac.passes._registry import registered
from corsac.passes._report import Report, Site
from corsac.passes._target import drop_unused, graph_of
from corsac.passes._weights import install

#: A function, the name of a method, a class of modules, or a module.
Operator = Callable[..., Any] | str | type[nn.Module] | nn.Module


@registered
def replace_op(
    target: GraphModule, table: Mapping[Any, Operator], *, budget: Budget | None = None
) -> Report:
    """Replace operators by others that are called with the same arguments.

    Args:
        target: the module to change.
        table: the replacement of each operator. A key is a function, the name of a method, or a class
            of modules (subclasses are not included). A value is a function, the name of a method, a
            class of modules, or a module, which all calls then share. For a class, one module is
            made for each module replaced, with those arguments of the constructor that the old
            module has as attributes; it takes over the weights.
        budget: largest number of calls to change; see :class:`Budget`.

    A call stays, with the reason in the report, if the new operator does not take its arguments
    (those that only repeat a default are left out if need be), if only one of the two operators
    writes to an argument, if a module has hooks, or if weights or settings of a module have no place
    in the new one. Names, source lines and metadata stay; metadata of values that may have changed
    is removed.

    Example::

        replace_op(gm, {nn.ReLU: nn.GELU, F.relu: F.gelu, operator.add: torch.add})
    """
    graph, sites = graph_of(target), []
    before = len(graph.nodes)
    budget = current_budget(budget)
    swaps = _Swaps(target)
    for node in list(graph.nodes):
        key = swaps.key_of(node)
        try:
            wanted = table.get(key)
        except TypeError:  # A target that cannot be looked up.
            continue
        if wanted is None:
            continue
        label = node._pretty_print_target(node.target)
        reason = swaps.apply(node, wanted, budget)
        sites.append(Site(node.name, label, None if reason else _text(wanted), reason))
    swaps.finish()
    report = Report("operators", tuple(sites), before, len(graph.nodes))
    if report.changed:
        target.recompile()
    return report


def _text(operator: Operator) -> str:
    if isinstance(operator, nn.Module):
        return type(operator).__name__
    return operator if isinstance(operator, str) else getattr(operator, "__name__", str(operator))


@dataclass(slots=True)
class _Call:
    """Operation, target and arguments of a node."""

    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Swaps:
    """The changes made to one module."""

    def __init__(self, gm: GraphModule) -> None:
        self._gm = gm
        self._changed: set[Node] = set()
        #: Attribute that holds the new module, by path of the old module and its replacement in the table.
        self._made: dict[tuple[str, Operator], str] = {}
        self._shared: dict[nn.Module, str] = {}

    def key_of(self, node: Node) -> Any:
        if node.op == "call_module":
            return type(self._gm.get_submodule(node.target))
        return node.target if node.op in ("call_function", "call_method") else None

    def apply(self, node: Node, wanted: Operator, budget: Budget | None) -> str | None:
        """Make ``node`` call ``wanted``; return the reason if that is not possible."""
        if node.op == "call_module" and _has_hooks(self._gm.get_submodule(node.target)):
            return "it has hooks"
        call = self._call(node, wanted)
        if isinstance(call, str):
            return call
        old = _Call(node.op, node.target, node.args, dict(node.kwargs))
        does = effects(node)
        _set(node, call)
        reason = _other_writes(does, effects(node))
        if reason is None and budget is not None and not budget.take():
            reason = "the budget of changes is used up"
        if reason is not None:
            _set(node, old)
            return reason
        self._changed.add(node)
        return None

    def finish(self) -> None:
        """Put new modules in the places of old ones that are no longer called, and remove metadata of
        values that may have changed."""
        graph = self._gm.graph
        called = {node.target for node in graph.find_nodes(op="call_module")}
        read = {node.target for node in graph.find_nodes(op="get_attr")}
        for (path, _), name in self._made.items():
            in_use = path in called or any(t.startswith(f"{path}.") for t in called | read)
            if path and name in called and not in_use and name not in self._shared.values():
                install(self._gm, path, self._gm.get_submodule(name))
                for node in graph.find_nodes(op="call_module", target=name):
                    node.target = path
                called.add(path)
        paths = {path for (path, _), name in self._made.items() for path in (path, name)}
        drop_unused(self._gm, paths - {""})
        stale = set(self._changed)
        for node in graph.nodes if stale else ():
            if node in stale or not stale.isdisjoint(node.all_input_nodes):
                stale.add(node)
                for key in OF_VALUE:
                    node.meta.pop(key, None)

    def _call(self, node: Node, wanted: Operator) -> _Call | str:
        args, kwargs = node.args, dict(node.kwargs)
        module = self._gm.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(wanted, nn.Module) or (
            inspect.isclass(wanted) and issubclass(wanted, nn.Module)
        ):
            return self._module_call(node, wanted, module)
        if module is not None and any(True for _ in module.state_dict()):
            return "its weights would be lost"
        if module is not None:
            lost = _settings(module)
            if lost:
                return f"its setting {lost} would be lost"
        method = isinstance(wanted, str)
        takes = _signatures.of_method(wanted) if method else _signatures.of_function(wanted)
        return _fitted(
            _Call("call_method" if method else "call_function", wanted, args, kwargs),
            node,
            module,
            takes,
        )

    def _module_call(self, node: Node, wanted: Any, module: nn.Module | None) -> _Call | str:
        forward = wanted.forward if isinstance(wanted, nn.Module) else _bound_forward(wanted)
        call = _fitted(
            _Call("call_module", "", node.args, dict(node.kwargs)), node, module, forward
        )
        if isinstance(call, str):
            return call
        key = (node.target if module is not None else "", wanted)
        name = self._made.get(key)
        if name is None:
            if isinstance(wanted, nn.Module):
                if module is not None and any(True for _ in module.state_dict()):
                    return "its weights would be lost"
                made: nn.Module | str = wanted
                name = self._shared.get(wanted)
            else:
                made = _made_of(wanted, module, self._gm.training)
            if isinstance(made, str):
                return made
            if name is None:
                name = unique_attribute(self._gm, node.name)
                self._gm.add_submodule(name, made)
                if isinstance(wanted, nn.Module):
                    self._shared[wanted] = name
            self._made[key] = name
        call.target = name
        return call


def _has_hooks(module: nn.Module) -> bool:
    """Whether calling a module runs anything besides the ``forward`` of its class."""
    own = module.__dict__
    return bool(
        "forward" in own
        or own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or _module._global_forward_hooks
        or _module._global_forward_pre_hooks
    )


def _set(node: Node, call: _Call) -> None:
    node.op, node.target = call.op, call.target
    node.args, node.kwargs = call.args, call.kwargs


def _bound_forward(cls: type[nn.Module]) -> list[inspect.Signature] | None:
    signature = inspect.signature(cls.forward)
    parameters = list(signature.parameters.values())
    return [signature.replace(parameters=parameters[1:])]


def _fitted(call: _Call, node: Node, module: nn.Module | None, takes: Any) -> _Call | str:
    """The call with arguments that the new operator takes, or the reason why it takes none."""
    if callable(takes):
        takes = _signatures.of_function(takes)
    if _signatures.accepts(takes, call.args, call.kwargs):
        return call
    if module is not None:
        known = _signatures.of_function(module.forward)
    elif node.op == "call_method":
        known = _signatures.of_method(node.target)
    else:
        known = _signatures.of_function(node.target)
    args, kwargs = _signatures.without_defaults(known, call.args, call.kwargs)
    if _signatures.accepts(takes, args, kwargs):
        return _Call(call.op, call.target, args, kwargs)
    given = [f"{len(args)} by position"] if args else []
    given += [f"{key}={value}" for key, value in kwargs.items()]
    known_text = "it is not known which arguments it takes" if takes is None else "it takes others"
    return f"the new operator does not take these arguments ({', '.join(given)}): {known_text}"


def _other_writes(old: Effects, new: Effects) -> str | None:
    """Description of a write that only one of two calls makes; None if they write to the same."""
    if old.opaque or new.opaque:
        return None
    for only, other, text in (
        (new.mutates, old.mutates, "the new operator writes to {}, which the old one does not"),
        (old.mutates, new.mutates, "the old operator writes to {}, which the new one does not"),
    ):
        for value in only:
            if value not in other:
                return text.format(value.name)
    return None


def _settings(module: nn.Module) -> str | None:
    """The first constructor argument of ``module`` with a value other than the default: a function
    would lose it."""
    for name, parameter in inspect.signature(type(module).__init__).parameters.items():
        value = getattr(module, name, parameter.default)
        if name != "self" and not _is_default(value, parameter.default):
            return f"{name}={value!r}"
    return None


def _is_default(value: Any, default: Any) -> bool:
    return value is default or _signatures.is_same_literal(value, default)


def _made_of(cls: type[nn.Module], old: nn.Module | None, training: bool) -> nn.Module | str:
    """A module of ``cls`` with the settings and weights of ``old``, or the reason why it cannot be made."""
    wanted = inspect.signature(cls.__init__).parameters
    given = {}
    for name, parameter in wanted.items():
        if name in ("self", "device", "dtype") or parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            continue
        if old is not None and hasattr(old, name):
            value = getattr(old, name)
            # A layer's `bias` is a flag in its constructor, a parameter afterwards.
            is_weight = name in old._parameters or name in old._buffers
            given[name] = value is not None if is_weight else value
        elif parameter.default is parameter.empty:
            return f"{cls.__name__} needs {name}, which nothing is known of"
    if old is not None:
        for name, parameter in inspect.signature(type(old).__init__).parameters.items():
            value = getattr(old, name, parameter.default)
            if name not in wanted and name != "self" and not _is_default(value, parameter.default):
                return f"its setting {name}={value!r} would be lost"
    try:
        made = cls(**given)
    except Exception as error:  # The constructor may raise anything.
        return f"{cls.__name__} cannot be made: {error}"
    if old is not None:
        has, needs = old.state_dict(keep_vars=True), made.state_dict(keep_vars=True)
        if {k: v.shape for k, v in has.items()} != {k: v.shape for k, v in needs.items()}:
            return f"{cls.__name__} has other weights"
        for name, value in has.items():
            path, _, own = name.rpartition(".")
            owner = made.get_submodule(path)
            (owner._parameters if own in owner._parameters else owner._buffers)[own] = value
    return made.train(old.training if old is not None else training)


__all__ = ["Operator", "replace_op"]
