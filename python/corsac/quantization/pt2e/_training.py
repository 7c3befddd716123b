"""Convolutions with batch norms while a model is trained with rounded weights.

A weight is rounded as it will be after the batch norm has been folded into it: times the running scale of the norm. The
convolution's result is divided by that scale, so that the norm sees the values it would see without rounding. See
section 3.2 of https://arxiv.org/abs/1806.08342.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from corsac.quantization.pt2e._annotations import annotation_of, is_derived, is_shared
from corsac.quantization.pt2e._batch_norms import fold_into
from corsac.quantization.pt2e._constants import remove_unread
from corsac.quantization.pt2e._nodes import (
    BATCH_NORMS,
    TRANSPOSED,
    argument,
    aten,
    attribute,
    calls,
    is_node,
    set_parameter,
)
from corsac.quantization.quantizer.quantizer import Q_ANNOTATION_KEY

_KINDS = {
    aten.conv1d.default: 3,
    aten.conv1d.padding: 3,
    aten.conv2d.default: 4,
    aten.conv2d.padding: 4,
    aten.conv_transpose1d.default: 3,
    aten.conv_transpose2d.input: 4,
}


def has_batch_norms(graph: Any) -> bool:
    """Whether a graph normalises batches."""
    return any(calls(node, *BATCH_NORMS) for node in graph.nodes)


def _bias(conv: Any) -> Any:
    return conv.args[2] if len(conv.args) > 2 else None


def _first_user(node: Any) -> Any:
    return min(node.users) if node.users else node.next


@dataclass
class _Fused:
    """The nodes that take the places of others."""

    convolution: tuple[Any, Any]
    norm: tuple[Any, Any]
    weight: tuple[Any, Any]
    bias: tuple[Any, Any] | None

    def renamed(self, place: Any) -> Any:
        """A value, or an edge, after the change."""
        if isinstance(place, tuple):
            value, user = place
            if user is self.convolution[0]:
                inputs = [self.weight] if self.bias is None else [self.weight, self.bias]
                value = next((new for old, new in inputs if old is value), self._node(value))
                return value, self.convolution[1]
            return self._node(value), self._node(user)
        return self._node(place)

    def _node(self, node: Any) -> Any:
        return next((new for old, new in (self.convolution, self.norm) if old is node), node)


def fuse(model: Any) -> None:
    """Scale the weights of convolutions by the batch norms behind them, and divide what comes out."""
    graph = model.graph
    if not has_batch_norms(graph):
        return
    graph.eliminate_dead_code()
    fused = []
    for target, rank in _KINDS.items():
        for has_bias in (True, False):
            for norm in [*graph.nodes]:
                if not calls(norm, *BATCH_NORMS) or not calls(norm.args[0], target):
                    continue
                conv = norm.args[0]
                is_affine = all(is_node(own) for own in norm.args[1:5])
                if (_bias(conv) is not None) == has_bias and len(conv.users) == 1 and is_affine:
                    fused.append(_fuse(graph, conv, norm, rank))
                    _rename(graph, fused[-1])
    model.recompile()


def _fuse(graph: Any, conv: Any, norm: Any, rank: int) -> _Fused:
    source, weight, bias = conv.args[0], conv.args[1], _bias(conv)
    _, scale, _, _, variance, *_ = norm.args
    channels, ones = [-1, *[1] * (rank - 1)], [1] * (rank - 2)
    along_weight = [1, -1, *ones] if conv.target in TRANSPOSED else channels
    name = conv.target._schema.name.partition("::")[2]

    def call(target: Any, args: tuple[Any, ...], name: str, **kwargs: Any) -> Any:
        return graph.create_node("call_function", target, args, kwargs, name)

    with graph.inserting_before(_first_user(norm)):
        add = call(aten.add.Tensor, (variance, argument(norm, "eps")), "add")
        root = call(aten.sqrt.default, (add,), "sqrt")
        factor = call(aten.div.Tensor, (scale, root), "div")
        shaped = call(aten.reshape.default, (factor, along_weight), "reshape")
        scaled = call(aten.mul.Tensor, (weight, shaped), "mul")
        zero = None
        if bias is not None:
            value = source.meta.get("val")
            kind = {} if value is None else {"dtype": value.dtype}
            zero = call(aten.zeros_like.default, (bias,), "zeros_like", **kind, pin_memory=False)
        made = call(conv.target, (source, scaled, zero, *conv.args[3:]), name, **conv.kwargs)
        shape = call(aten.reshape.default, (factor, [1, -1, *ones]), "reshape_1")
        result = call(aten.div.Tensor, (made, shape), "div_1")
        if bias is not None:
            shape = call(aten.reshape.default, (bias, [1, -1, *ones]), "reshape_2")
            result = call(aten.add.Tensor, (result, shape), "add_1")
        normed = call(norm.target, (result, *norm.args[1:]), "batch_norm", **norm.kwargs)
    for old, new in ((conv, made), (norm, normed), (weight, scaled), (bias, zero)):
        if old is not None:
            new.meta = dict(old.meta)
    if "nn_module_stack" in conv.meta:
        scaled.meta.setdefault("nn_module_stack", conv.meta["nn_module_stack"])
    norm.replace_all_uses_with(normed)
    graph.erase_node(norm)
    graph.erase_node(conv)
    return _Fused(
        (conv, made), (norm, normed), (weight, scaled), None if bias is None else (bias, zero)
    )


def _rename(graph: Any, fused: _Fused) -> None:
    """Write the new nodes into the annotations."""
    for node in graph.nodes:
        annotation = annotation_of(node)
        if annotation is None:
            continue
        inputs: dict[Any, Any] = {}
        for own, spec in annotation.input_qspec_map.items():
            user = fused.convolution[0] if node is fused.convolution[1] else node
            inputs[fused.renamed((own, user))[0]] = _renamed(spec, fused)
        output = _renamed(annotation.output_qspec, fused)
        changed = dataclasses.replace(annotation, input_qspec_map=inputs, output_qspec=output)
        node.meta[Q_ANNOTATION_KEY] = changed


def _renamed(spec: Any, fused: _Fused) -> Any:
    if is_shared(spec):
        return dataclasses.replace(spec, edge_or_node=fused.renamed(spec.edge_or_node))
    if is_derived(spec):
        others = [fused.renamed(own) for own in spec.derived_from]
        return dataclasses.replace(spec, derived_from=others)
    return spec


class _Chain:
    """The nodes of a fused convolution, from its batch norm back; ``found`` tells whether they are there."""

    def __init__(self, norm: Any, quantise: Any, dequantise: Any) -> None:
        self.norm, self.found = norm, False
        self._quantise, self._dequantise = quantise, dequantise
        result, self.bias = norm.args[0], None
        #: Nodes that read the weight and the bias.
        self.readers: set[Any] = set()
        if calls(result, aten.add.Tensor) and calls(result.args[1], aten.reshape.default):
            result, shape = result.args
            self.bias = shape.args[0]
            self.readers.add(shape)
        if not calls(result, aten.div.Tensor) or not calls(result.args[0], *_KINDS):
            return
        self.conv, shape = result.args
        self.scaled, self.weight_pair = self._rounded(self.conv.args[1])
        zero = _bias(self.conv)
        self.readers.add(self.scaled)
        self.bias_pair = None
        if zero is not None:
            zeros, self.bias_pair = self._rounded(zero)
            self.readers.add(zeros)
        factor = shape.args[0] if calls(shape, aten.reshape.default) else None
        if factor is None or not calls(self.scaled, aten.mul.Tensor):
            return
        self.weight, other = self.scaled.args
        self.found = (
            calls(other, aten.reshape.default)
            and other.args[0] is factor
            and calls(factor, aten.div.Tensor)
            and factor.args[0] is norm.args[1]
            and self.weight.op == "get_attr"
            and (self.bias is None or self.bias.op == "get_attr")
            and len(self.conv.users) == 1
        )

    def _rounded(self, node: Any) -> tuple[Any, Any]:
        """The value that is quantised and dequantised, and these two operators."""
        if calls(node, *self._dequantise) and calls(node.args[0], *self._quantise):
            return node.args[0].args[0], (node.args[0], node)
        return node, None


def fold(model: Any, quantise: Any, dequantise: Any) -> None:
    """Fold batch norms into convolutions that :func:`fuse` has scaled, after observers have become operators."""
    graph = model.graph
    if not has_batch_norms(graph):
        return
    graph.eliminate_dead_code()
    for target in _KINDS:
        for has_bias in (True, False):
            for norm in [*graph.nodes]:
                if not calls(norm, *BATCH_NORMS):
                    continue
                chain = _Chain(norm, quantise, dequantise)
                fits = chain.found and chain.conv.target is target
                if fits and (chain.bias is not None) == has_bias:
                    _fold(model, chain)
    for node in [*graph.nodes]:
        if calls(node, aten.add_.Tensor) and not node.users and _counts_batches(node.args[0]):
            graph.erase_node(node)
    remove_unread(graph)
    model.recompile()


def _counts_batches(node: Any) -> bool:
    return node.op == "get_attr" and node.target.endswith("num_batches_tracked")


def _own(model: Any, node: Any, readers: set[Any]) -> Any:
    """``node``, which reads a parameter, or a node that reads a copy of it if others than ``readers`` read it, too."""
    graph = model.graph
    nodes = graph.find_nodes(op="get_attr", target=node.target)
    if all(user in readers for one in nodes for user in one.users):
        return node
    number = 0
    while hasattr(model, f"_folded_param{number}"):
        number += 1
    set_parameter(model, f"_folded_param{number}", attribute(model, node.target))
    own = graph.get_attr(f"_folded_param{number}")
    own.meta = dict(node.meta)
    return own


def _fold(model: Any, chain: _Chain) -> None:
    graph, conv = model.graph, chain.conv
    name = conv.target._schema.name.partition("::")[2]

    def moved(pair: Any, value: Any) -> Any:
        """A value, quantised and dequantised by operators like these."""
        if pair is None:
            return value
        for old in pair:
            own = old.target._schema.name.partition("::")[2]
            new = graph.create_node("call_function", old.target, (value, *old.args[1:]), {}, own)
            new.meta = dict(old.meta)
            value = new
        return value

    with graph.inserting_before(_first_user(chain.norm)):
        own_weight = _own(model, chain.weight, chain.readers)
        own_bias = None if chain.bias is None else _own(model, chain.bias, chain.readers)
        weight = moved(chain.weight_pair, own_weight)
        bias = None if own_bias is None else moved(chain.bias_pair, own_bias)
        made = graph.create_node(
            "call_function", conv.target, (conv.args[0], weight, bias, *conv.args[3:]), {}, name
        )
    made.meta = dict(conv.meta)
    chain.norm.args = (made, *chain.norm.args[1:])
    fold_into(model, chain.norm, made, own_weight, own_bias)
    # The last user of its input: what is copied for each user is numbered in the order of users.
    made.args = tuple(made.args)
    graph.eliminate_dead_code()
