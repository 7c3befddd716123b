"""Subclasses of layers: whether they compute what the layer does."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from corsac.fx import Graph, Node, symbolic_trace

#: Attributes that call a layer's forward, and find it and all else.
_CALLS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__", "__getattribute__")


def computes_as(module: nn.Module, base: type[nn.Module]) -> bool:
    """Whether ``module``, of a subclass of the layer ``base``, computes for all inputs what ``base`` does.

    Its forward is traced, and has to make the same calls with the same arguments. Forwards that read an attribute, of
    the module or its class, that ``base`` does not have, or a variable, count as different: these may change.
    """
    kind = type(module)
    if kind is base:
        return True
    if any(getattr(kind, name) is not getattr(base, name, None) for name in _CALLS):
        return False
    forward = kind.forward
    if not isinstance(forward, FunctionType) or _reads_variables(forward):
        return False
    plain = _like(module, base)
    known = {*vars(plain), *plain._parameters} - _of_subclass(module, base)
    read: set[str] = set()

    class Watched(kind):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    try:
        own, other = symbolic_trace(_like(module, Watched)), symbolic_trace(plain)
    except Exception:
        # Programs may raise anything when called with proxies.
        return False
    if any(not _is_fixed(name, kind, base, known) for name in read):
        return False
    return _same(own.graph, other.graph)


def _reads_variables(function: FunctionType) -> bool:
    """Whether a function reads global or outer variables that are no functions, classes or modules."""
    outer = [own.cell_contents for own in function.__closure__ or ()]
    found = [
        function.__globals__[name]
        for name in function.__code__.co_names
        if name in function.__globals__
    ]
    return not all(callable(own) or isinstance(own, ModuleType) for own in (*outer, *found))


def _like(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """An object of another class with the attributes of a module."""
    made: nn.Module = kind.__new__(kind)
    made.__dict__.update(vars(module))
    return made


def _of_subclass(module: nn.Module, base: type[nn.Module]) -> set[str]:
    """The names of attributes of a module that an object of ``base`` does not have."""
    if base is nn.Linear or base is nn.Embedding:
        fresh = base(1, 1, device="meta")
    else:
        fresh = base(1, 1, 1, device="meta")
    return {*vars(module), *module._parameters} - {*vars(fresh), *fresh._parameters}


def _is_fixed(name: str, kind: type, base: type, known: set[str]) -> bool:
    """Whether an attribute is one of the layer's own, or a method."""
    return name in known or hasattr(base, name) or callable(getattr(kind, name, None))


def _same(left: Graph, right: Graph) -> bool:
    """Whether two graphs make the same calls in the same order."""
    nodes, others = [*left.nodes], [*right.nodes]
    if len(nodes) != len(others):
        return False
    places = {node: at for at, node in enumerate(nodes)}
    other_places = {node: at for at, node in enumerate(others)}

    def described(node: Node, at: dict[Node, int]) -> Any:
        target = node.op if node.op in ("placeholder", "output") else node.target
        return node.op, target, _numbered(node.args, at), _numbered(node.kwargs, at)

    return all(
        described(one, places) == described(other, other_places)
        for one, other in zip(nodes, others, strict=True)
    )


def _numbered(value: Any, places: dict[Node, int]) -> Any:
    """Arguments with the places of nodes for nodes."""
    if isinstance(value, Node):
        return "node", places[value]
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [_numbered(own, places) for own in value]
    if isinstance(value, dict):
        return {key: _numbered(own, places) for key, own in value.items()}
    return value
