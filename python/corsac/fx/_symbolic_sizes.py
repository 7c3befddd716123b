"""Symbolic sizes as nodes: programs that compute a ``SymInt`` from the inputs of a graph.

A shape that is only known as a formula (``4*s0 + 1``) cannot be an argument of a node, but a node that
computes it can: this module finds a source of each symbol in the formula (a ``SymInt`` input, a dimension of
an input tensor, the result of an operator with a data-dependent shape) and records the formula over these.
After ``Graph.materialize_symints`` of PyTorch 2.15.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from corsac.fx.node import Node
from corsac.fx.proxy import GraphAppendingTracer, Proxy

if TYPE_CHECKING:
    import sympy

    from corsac.fx.graph import Graph


def value_of(node: Node) -> Any:
    """The example value in the metadata of ``node``, from export (``val``) or Dynamo (``example_value``)."""
    value = node.meta.get("val")
    return node.meta.get("example_value") if value is None else value


def note_value(node: Node, value: Any) -> None:
    """Set the example value of a new node, under the keys that its inputs use."""
    node.meta["val"] = value
    if any("example_value" in source.meta for source in node.all_input_nodes):
        node.meta["example_value"] = value


def example_of(node: Node) -> tuple[Any, str]:
    """The example value of a tensor's node, and its ``meta`` key."""
    for key in ("val", "example_value"):
        if key in node.meta:
            return node.meta[key], key
    return None, "val"


class Materializer:
    """Records formulas over symbols in one graph; repeated sub-formulas are recorded once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tracer = GraphAppendingTracer(graph)
        self._known: dict[sympy.Expr, Proxy] = {}
        # Symbol -> tensor node, dimension, and the factor of the symbol in that dimension.
        self._dimensions: dict[sympy.Symbol, tuple[Node, int, int]] = {}
        # Symbol -> node with a data-dependent shape, and the path to the symbol in its result.
        self._bindings: dict[sympy.Symbol, tuple[Node, tuple[Any, ...]]] = {}
        for node in graph.nodes:
            self._note_sources(node)

    def materialize(self, value: torch.SymInt | int) -> Node | int:
        """The node that computes ``value``, or ``value`` as an integer if it is constant.

        Raises:
            TypeError: ``value`` is not an integer.
            AssertionError: a symbol has no source in any node.
        """
        if isinstance(value, int):
            return value
        if not isinstance(value, torch.SymInt):
            raise TypeError(
                f"materialize_symints: expected SymInt or int, got {type(value).__name__} "
                f"({value!r})"
            )
        formula = value.node.expr
        if formula.is_number:
            return int(value)
        for symbol in sorted(formula.free_symbols, key=str):
            self._produce(symbol)
        result = self._record(formula)
        if not isinstance(result, Proxy):
            return int(result)
        note_value(result.node, value)
        return result.node

    def _note_sources(self, node: Node) -> None:
        import sympy

        if node.op != "placeholder":
            for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
                self._bindings.setdefault(symbol, (node, tuple(path)))
            return
        value = value_of(node)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            if isinstance(value.node.expr, sympy.Symbol):
                self._known.setdefault(value.node.expr, self._proxy(node))
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    symbol, factor = _symbol_and_factor(size.node.expr)
                    if symbol is not None:
                        self._dimensions[symbol] = (node, dim, factor)

    def _proxy(self, node: Node) -> Proxy:
        return Proxy(node, self._tracer)

    def _produce(self, symbol: sympy.Symbol) -> None:
        """Ensure that ``symbol`` is the value of some node."""
        if symbol in self._known:
            return
        if symbol in self._dimensions:
            tensor_node, dim, factor = self._dimensions[symbol]
            node = self._graph.call_function(torch.ops.aten.sym_size.int, (tensor_node, dim))
            tensor = value_of(tensor_node)
            note_value(node, tensor.shape[dim])
            if factor != 1:
                node = self._graph.call_function(operator.floordiv, (node, factor))
                note_value(node, tensor.shape[dim] // factor)
        elif symbol in self._bindings:
            node = self._follow(*self._bindings[symbol])
        else:
            raise AssertionError(f"materialize_symints: no node produces {symbol}")
        self._known[symbol] = self._proxy(node)

    def _follow(self, producer: Node, path: tuple[Any, ...]) -> Node:
        from torch.fx.experimental.symbolic_shapes import DivideByKey

        for key in path:
            if isinstance(key, DivideByKey) and isinstance(key.divisor, torch.SymInt):
                for symbol in sorted(key.divisor.node.expr.free_symbols, key=str):
                    self._produce(symbol)
        return follow_binding(self._graph, producer, path, self.materialize)

    def _record(self, formula: sympy.Expr) -> Any:
        from sympy import Integer, Number, Symbol
        from sympy.logic.boolalg import BooleanAtom
        from torch.utils._sympy.interp import _run_sympy_handler, sympy_interp
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        if formula in self._known:
            return self._known[formula]
        if isinstance(formula, (Integer, Number, Symbol, BooleanAtom)):
            return sympy_interp(PythonReferenceAnalysis, self._known, formula)
        parts = [self._record(part) for part in formula.args]
        result = _run_sympy_handler(PythonReferenceAnalysis, parts, formula)
        if isinstance(result, Proxy):
            self._known[formula] = result
            self._note_result(result.node)
        return result

    def _note_result(self, node: Node) -> None:
        """Compute the example value of a recorded step from those of its arguments."""

        def value(arg: Any) -> Any:
            return value_of(arg) if isinstance(arg, Node) else arg

        if not callable(node.target):
            return
        try:
            result = node.target(
                *map(value, node.args), **{key: value(arg) for key, arg in node.kwargs.items()}
            )
        except (TypeError, ValueError, AttributeError):
            return  # An argument has no example value: neither has the result.
        note_value(node, result)


def _symbol_and_factor(formula: sympy.Expr) -> tuple[sympy.Symbol | None, int]:
    """``s0`` as ``(s0, 1)`` and ``4*s0`` as ``(s0, 4)``; no symbol for other formulas, which cannot be solved
    for one."""
    import sympy

    if isinstance(formula, sympy.Symbol):
        return formula, 1
    if isinstance(formula, sympy.Mul) and len(formula.args) == 2:
        factor, symbol = sorted(formula.args, key=lambda part: isinstance(part, sympy.Symbol))
        if isinstance(symbol, sympy.Symbol) and isinstance(factor, sympy.Integer) and factor > 0:
            return symbol, int(factor)
    return None, 1


def follow_binding(graph: Graph, producer: Node, path: Sequence[Any], lower_symint: Any) -> Node:
    """Record the path from the result of ``producer`` to a symbol."""
    from torch.fx.experimental import symbolic_shapes as shapes
    from torch.utils._pytree import SequenceKey

    node, keys = producer, list(path)
    while keys:
        key = keys.pop(0)
        if isinstance(key, shapes.CallMethodKey):
            if key.name in ("size", "stride") and keys and isinstance(keys[0], SequenceKey):
                create = graph.create_size_node if key.name == "size" else graph.create_stride_node
                node = create(node, keys.pop(0).idx)
            elif keys and isinstance(keys[0], SequenceKey):
                node = graph.call_method(key.name, (node, keys.pop(0).idx))
            elif key.name == "storage_offset":
                node = graph.create_storage_offset_node(node)
            else:
                node = graph.call_method(key.name, (node,))
        elif isinstance(key, SequenceKey):
            node = graph.call_function(operator.getitem, (node, key.idx))
        elif isinstance(key, shapes.ConvertIntKey):
            node = graph.call_function(torch.sym_ite, (node, 1, 0))
        elif isinstance(key, shapes.DivideByKey):
            divisor = key.divisor
            if isinstance(divisor, torch.SymInt):
                divisor = lower_symint(divisor)
            node = graph.call_function(operator.floordiv, (node, divisor))
        elif isinstance(key, shapes.InnerTensorKey):
            node = graph.call_function(getattr, (node, key.inner_name))
        else:
            raise AssertionError(f"unknown step {key} on the way to a symbolic size")
    return node
