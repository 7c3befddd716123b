"""Refines types with unknown sizes by the equalities that operators require."""

from __future__ import annotations

from typing import Any

from corsac.fx.experimental.graph_gradual_typechecker import Refine
from corsac.fx.experimental.refinement_types import Equality
from corsac.fx.experimental.unification import Var, unify
from corsac.fx.experimental.unification.utils import hashable
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.tensor_type import TensorType

__all__ = [
    "check_for_type_equality",
    "convert_eq",
    "infer_symbolic_types",
    "infer_symbolic_types_single_pass",
    "substitute_all_types",
    "substitute_solution_one_type",
    "unify_eq",
]


def infer_symbolic_types_single_pass(traced: GraphModule) -> None:
    """Give every unknown size a variable, and equal sizes the same one."""
    refine = Refine(traced)
    refine.refine()
    substitute_all_types(traced.graph, unify_eq(refine.constraints))


def infer_symbolic_types(traced: GraphModule) -> None:
    """Do that twice, since broadcasting depends on known operands; then turn sizes into expressions of the
    variables where possible."""
    infer_symbolic_types_single_pass(traced)
    infer_symbolic_types_single_pass(traced)
    Refine(traced).symbolic_relations()


def convert_eq(list_of_eq: list[Equality]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The left and the right sides of equalities."""
    return tuple(eq.lhs for eq in list_of_eq), tuple(eq.rhs for eq in list_of_eq)


def unify_eq(list_of_eq: list[Equality]) -> Any:
    """The values of variables that satisfy all equalities."""
    return unify(*convert_eq(list_of_eq))


def substitute_solution_one_type(mapping: dict[Any, Any], t: Any) -> Any:
    """A type with its variables replaced by their values in ``mapping``."""
    if isinstance(t, Var):
        return mapping.get(t, t)
    if isinstance(t, TensorType):
        return TensorType(tuple(_looked_up(mapping, size) for size in t.dims))
    if isinstance(t, list | tuple):
        return type(t)(substitute_solution_one_type(mapping, item) for item in t)
    return t


def _looked_up(mapping: dict[Any, Any], size: Any) -> Any:
    return mapping.get(size, size) if hashable(size) else size


def substitute_all_types(graph: Graph, mapping: dict[Any, Any]) -> None:
    """Replace variables in the types of all nodes by their values in ``mapping``, which may be other
    variables; afterwards it maps directly."""
    for variable in list(mapping):
        path, end = [variable], mapping[variable]
        while hashable(end) and end in mapping and end not in path:
            path.append(end)
            end = mapping[end]
        for passed in path:
            mapping[passed] = end
    for node in graph.nodes:
        node.type = substitute_solution_one_type(mapping, node.type)


def check_for_type_equality(g1: Graph, g2: Graph) -> bool:
    """Whether the nodes of two graphs have the same types."""
    return all(a.type == b.type for a, b in zip(g1.nodes, g2.nodes, strict=False))
