"""Arguments of a call in the order of a graph's placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils import _pytree

from corsac.fx.graph import Graph


def is_flat(graph: Graph) -> bool:
    """Whether the inputs of the graph are the flattened leaves of the arguments."""
    return getattr(graph._codegen, "pytree_info", None) is not None


def leaves(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The flattened leaves of arguments, in the order of the parameters with these ``names``."""
    given = dict(zip(names, args, strict=False))
    if set(kwargs) <= set(names) - set(given):
        given |= kwargs
        args, kwargs = [given[name] for name in names if name in given], {}
    return tuple(_pytree.tree_leaves((tuple(args), dict(kwargs))))


def parameters(graph: Graph) -> list[str]:
    """The names of the parameters of a flat graph."""
    names = list(graph._codegen.pytree_info.orig_args)  # type: ignore[attr-defined]
    return names[1:] if names[:1] == ["self"] else names


def placed(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of the placeholders of ``graph`` in a call, their defaults among them.

    Raises:
        TypeError: one has no value, or there is none for a value.
    """
    given = list(args)
    if is_flat(graph):
        given, kwargs = list(leaves(parameters(graph), args, kwargs)), {}
    placeholders = graph.find_nodes(op="placeholder")
    names = [str(node.target) for node in placeholders]
    starred = next((name for name in names if name.startswith("*")), None)
    if starred is not None:
        raise TypeError(f"{starred}: the graph takes a variable number of inputs")
    unknown = next((name for name in kwargs if name not in names), None)
    if unknown is not None:
        raise TypeError(f"there is no input {unknown}; there are {', '.join(names)}")
    if len(given) > len(names):
        raise TypeError(f"{len(given)} inputs are given, and the model has {len(names)}")
    twice = next((name for name in names[: len(given)] if name in kwargs), None)
    if twice is not None:
        raise TypeError(f"the input {twice} is given twice")
    for node in placeholders[len(given) :]:
        if str(node.target) in kwargs:
            given.append(kwargs[str(node.target)])
        elif node.args:
            given.append(node.args[0])
        else:
            raise TypeError(f"no example of the input {node.target} is given")
    return tuple(given)


__all__ = ["is_flat", "leaves", "parameters", "placed"]
