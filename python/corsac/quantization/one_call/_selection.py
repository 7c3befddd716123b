"""Choice of the layers to quantise by what a metric loses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from corsac.quantization.one_call._calibration import run
from corsac.quantization.one_call._data import Batch, sqnr
from corsac.quantization.one_call._forms import Form, bytes_of
from corsac.quantization.one_call._layers import Layer, replace
from corsac.quantization.one_call._report import Point

#: Batches on which sensitivity is measured.
_BATCHES = 2

Metric = Callable[[nn.Module], float]


@dataclass
class Option:
    """A quantised form of a layer.

    Attributes:
        form: the form.
        module: the layer in this form.
        sqnr: the signal-to-noise ratio of its output in decibels, if it is known.
        seconds: the time of a call, if it was measured.
    """

    form: Form
    module: nn.Module
    sqnr: float | None = None
    seconds: float | None = None


@dataclass
class Chosen:
    """The result of a selection.

    Attributes:
        options: the taken forms, by names of layers.
        float_metric: of the float model.
        metric: of the model with the taken forms.
        points: the choices that were tried and kept.
    """

    options: dict[str, Option]
    float_metric: float
    metric: float
    points: list[Point]


def sensitivities(
    model: nn.Module,
    layers: Sequence[Layer],
    options: dict[str, list[Option]],
    data: Sequence[Batch],
) -> dict[str, float]:
    """The signal-to-noise ratio of the model's output if only one layer has its first form, by names of layers."""
    found = {}
    with torch.no_grad():
        tried = data[:_BATCHES]
        expected = [run(model, batch, number) for number, batch in enumerate(tried)]
        for layer in layers:
            if not options.get(layer.name):
                continue
            changed = replace(model, layer, options[layer.name][0].module)
            got = [run(changed, batch, number) for number, batch in enumerate(tried)]
            replace(model, layer, layer.module)
            found[layer.name] = min(map(sqnr, expected, got))
    return found


def evaluated(metric: Metric, model: nn.Module) -> float:
    """The metric of a model.

    Raises:
        ValueError: it is no finite number.
    """
    with torch.no_grad():
        value: Any = metric(model)
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise ValueError(f"metric: expected a finite number, got a tensor of {[*value.shape]}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"metric: expected a finite number, got {number}")
    return number


def select(
    model: nn.Module,
    layers: Sequence[Layer],
    options: dict[str, list[Option]],
    order: Sequence[str],
    metric: Metric,
    max_drop: float | None,
) -> Chosen:
    """Take forms, in the order of names, as long as the metric drops by no more than ``max_drop``.

    First all layers have their first forms; if the metric drops too far, they start as floats, and each gets the first
    of its forms with which it does not. The model is float again at the end.
    """
    by_name = {layer.name: layer for layer in layers}
    before = evaluated(metric, model)
    points = [Point(0, bytes_of(model), before)]

    def tried(chosen: dict[str, Option]) -> float:
        changed = model
        for name, option in chosen.items():
            changed = replace(changed, by_name[name], option.module)
        try:
            value = evaluated(metric, changed)
            points.append(Point(len(chosen), bytes_of(changed), value))
            return value
        finally:
            for name in chosen:
                changed = replace(changed, by_name[name], by_name[name].module)

    everything = {name: options[name][0] for name in order if options[name]}
    value = tried(everything)
    if max_drop is None or before - value <= max_drop:
        return Chosen(everything, before, value, pareto(points))
    chosen: dict[str, Option] = {}
    reached = before
    for name in order:
        for option in options[name]:
            value = tried({**chosen, name: option})
            if before - value <= max_drop:
                chosen[name], reached = option, value
                break
    return Chosen(chosen, before, reached, pareto(points))


def pareto(points: Sequence[Point]) -> list[Point]:
    """The points of which no other is at least as good in bytes and metric, from the largest."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda own: (own.bytes, -own.metric)):
        if not kept or point.metric > kept[-1].metric:
            kept.append(point)
    return kept[::-1]
