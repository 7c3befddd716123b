"""Moves factors of channels between linked modules, so that inputs, or weights, lose less when they are quantised.

Reference: Xiao et al., SmoothQuant, 2022 (section 4); Nagel et al., Data-free quantization through weight equalization
and bias correction, 2019 (section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from corsac.quantization.one_call._layers import Layer, is_transposed
from corsac.quantization.one_call._links import Link, Producer

#: Bounds of factors: larger ones would only move the trouble.
_LEAST, _MOST = 1e-3, 1e3


#: Notes by names of layers: what was done, and why nothing was.
Notes = tuple[dict[str, str], dict[str, str]]


def smooth(links: Iterable[Link], alpha: float, tied: Iterable[int]) -> Notes:
    """Move the spread of inputs into weights: channel by channel by ``|x| ** alpha / |w| ** (1 - alpha)``.

    Only links with linear layers alone are changed.
    """

    def factors(link: Link) -> Tensor:
        weights = torch.stack([_columns(layer) for layer in link.layers]).amax(0)
        return _ratio(link.largest**alpha, weights ** (1.0 - alpha))

    linear = [link for link in links if all(layer.is_matrix for layer in link.layers)]
    return _moved(linear, factors, tied, f"smoothed with {{}} (alpha {alpha:g})")


def equalise(links: Iterable[Link], tied: Iterable[int]) -> Notes:
    """Make the weights of two layers in a row as large, channel by channel."""

    def factors(link: Link) -> Tensor:
        weights = torch.stack([_columns(layer) for layer in link.layers]).amax(0)
        return _ratio(_rows(link.producer).sqrt(), weights.sqrt())

    return _moved(links, factors, tied, "equalised with {}")


def _moved(
    links: Iterable[Link], factors: Callable[[Link], Tensor], tied: Iterable[int], note: str
) -> Notes:
    tied = set(tied)
    notes: Notes = {}, {}
    for link in links:
        problem = _problem(link, tied)
        if not problem:
            by = factors(link)
            with torch.no_grad():
                for tensor, scaled in _scaled(link.producer, by).items():
                    getattr(link.producer.module, tensor).copy_(scaled)
                for layer in link.layers:
                    _scale_columns(layer, by)
        for layer in link.layers:
            name = link.producer.name
            notes[bool(problem)][layer.name] = (
                f"{name}: {problem}" if problem else note.format(name)
            )
    return notes


def _problem(link: Link, tied: set[int]) -> str:
    """Why factors cannot move."""
    producer = link.producer
    own: Any = producer.module
    parameters = [*own.parameters(recurse=False)]
    parameters += [layer.module.weight for layer in link.layers]
    if any(id(parameter) in tied for parameter in parameters):
        return "a weight is tied"
    if any(_groups(layer) is None for layer in link.layers):
        return "a convolution in groups mixes channels"
    if any(len(_columns(layer)) != producer.channels for layer in link.layers):
        return "its channels are not those of the layer"
    if own._forward_hooks or own._forward_pre_hooks:
        return "it has hooks"
    by = torch.linspace(0.5, 2.0, producer.channels)
    with torch.no_grad():
        expected = own(producer.sample)
        is_image = hasattr(link.layers[0].module, "kernel_size") and expected.dim() > 2
        axis = 1 if is_image else -1
        if expected.shape[axis] != producer.channels:
            return "its channels are not those of the layer"
        got = functional_call(own, _scaled(producer, by), (producer.sample,))
        shape = [1] * expected.dim()
        shape[axis] = -1
        # Of norms that are not PyTorch's it is not known how they use their weight.
        if not torch.allclose(got * by.reshape(shape), expected, rtol=1e-3, atol=1e-4):
            return "its output is not proportional to its weight"
    return ""


def _scaled(producer: Producer, by: Tensor) -> dict[str, Tensor]:
    """The weight and the bias of a producer whose results are divided by factors."""
    own: Any = producer.module
    weight = own.weight
    shape = [1, -1] if is_transposed(own) else [-1] + [1] * (weight.dim() - 1)
    found = {"weight": weight / by.reshape(shape)}
    if getattr(own, "bias", None) is not None:
        found["bias"] = own.bias / by
    return found


def _rows(producer: Producer) -> Tensor:
    """The largest weight of each channel that a producer makes; for norms about the largest output."""
    own: Any = producer.module
    weight = own.weight.detach()
    if weight.dim() == 1:
        # Normalised numbers are seldom above 3.
        bias = getattr(own, "bias", None)
        return 3.0 * weight.abs() + (0.0 if bias is None else bias.detach().abs())
    return (weight.t() if is_transposed(own) else weight).abs().flatten(1).amax(1)


def _groups(layer: Layer) -> int | None:
    """The number of outputs that each channel has of its own, for convolutions of single channels; 0 if channels are summed up,
    None if some are."""
    own: Any = layer.module
    groups = getattr(own, "groups", 1)
    if groups == 1:
        return 0
    return own.out_channels // groups if groups == own.in_channels else None


def _columns(layer: Layer) -> Tensor:
    """The largest weight of each input channel."""
    weight = layer.weight().detach().abs()
    each = _groups(layer)
    if each:
        return weight.flatten(1).amax(1).reshape(-1, each).amax(1)
    return weight.transpose(0, 1).flatten(1).amax(1)


def _scale_columns(layer: Layer, by: Tensor) -> None:
    weight = layer.weight()
    each = _groups(layer)
    if each:
        weight.mul_(by.repeat_interleave(each).reshape([-1] + [1] * (weight.dim() - 1)))
    else:
        weight.mul_(by.reshape([1, -1] + [1] * (weight.dim() - 2)))


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Factors; 1 for channels that are always 0."""
    usual = (above > 0) & (below > 0)
    return torch.where(usual, above / below.clamp(min=1e-30), 1.0).clamp(_LEAST, _MOST)
