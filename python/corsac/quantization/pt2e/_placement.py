"""Operators that quantise and dequantise: one for each user, with the metadata of the node that they belong to."""

from __future__ import annotations

from typing import Any

from corsac.quantization.pt2e._annotations import annotation_of
from corsac.quantization.pt2e._constants import QUANTISE
from corsac.quantization.pt2e._conversion import CHOOSE, DEQUANTISE
from corsac.quantization.pt2e._nodes import aten, calls, mapped
from corsac.quantization.quantizer.utils import is_valid_annotation

_SIZES = frozenset([aten.sym_size.default, aten.sym_size.int])
_PORTED = ("stack_trace", "nn_module_stack", "quantization_tag")


def _users(node: Any) -> list[Any]:
    return [user for user in node.users if not calls(user, *_SIZES)]


def _is_dynamic(dequantised: Any) -> bool:
    """Whether a value is quantised with parameters that are computed from it."""
    quantised = dequantised.args[0]
    scale = quantised.args[1] if calls(quantised, *QUANTISE) else None
    return bool(getattr(scale, "args", ())) and calls(scale.args[0], *CHOOSE)


def separate_dequantised(graph: Any) -> None:
    """Give each annotated user a dequantise operator of its own, so that each can be computed with integers."""
    for node in [*graph.nodes]:
        if not calls(node, *DEQUANTISE):
            continue
        users = _users(node)
        if len(users) < 2 or _is_dynamic(node):
            continue
        for user in users:
            if is_valid_annotation(annotation_of(user)):
                with graph.inserting_after(node):
                    own = graph.node_copy(node)
                change = {node: own}.get
                user.args = mapped(user.args, lambda one, change=change: change(one, one))
                user.kwargs = mapped(dict(user.kwargs), lambda one, change=change: change(one, one))
    graph.eliminate_dead_code()


def _port(to: Any, source: Any) -> None:
    for key in _PORTED:
        if key in source.meta:
            to.meta[key] = source.meta[key]


def copy_metadata(graph: Any) -> None:
    """Copy lines and modules of annotated nodes to the operators around them.

    What dequantises an input, and what chooses its parameters at each call, belongs to the node that reads it; what
    quantises an output to the node that computes it.
    """
    for node in graph.nodes:
        annotation = annotation_of(node)
        if not is_valid_annotation(annotation):
            continue
        for own in node.all_input_nodes:
            if calls(own, *DEQUANTISE):
                _port(own, node)
                if _is_dynamic(own):
                    _port(own.args[0], node)
                    _port(own.args[0].args[1].args[0], node)
        if annotation.output_qspec is not None:
            for user in _users(node):
                if calls(user, *QUANTISE):
                    _port(user, node)
