"""Choice of the layers that make the whole model fast.

A layer alone has to quantise its input, and to give floats; between two quantised layers there are only integers. So
layers that are not faster alone are tried in the model.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import nn

from corsac._compile.compiled_module import compile
from corsac.quantization.one_call._data import Batch
from corsac.quantization.one_call._layers import Layer, replace
from corsac.quantization.one_call._timing import interleaved, one_thread

#: Seconds after which no other choice is tried.
BUDGET_SECONDS = 20.0
#: A choice has to save this part of the time of the model: less is noise.
_GAIN = 0.01
#: Rounds of two choices, and the time after which the least number is enough.
_PATIENCE_SECONDS = 0.6

Names = frozenset[str]


def fastest(
    model: nn.Module,
    layers: Sequence[Layer],
    made: dict[str, nn.Module],
    sure: Names,
    groups: dict[Hashable, Names],
    batch: Batch,
) -> Names:
    """The names of the layers to quantise, so that the model is fast on a batch.

    Args:
        model: the float model, which stays as it is.
        layers: its layers.
        made: quantised layers by name.
        sure: those that are faster alone.
        groups: the others, those of the same kind and sizes together, in the order in which they are tried.
        batch: arguments of the model.
    """
    by_name = {layer.name: layer for layer in layers}

    def compiled(names: Names) -> Callable[[], Any]:
        whole = _with_same_tensors(model)
        for name in names:
            whole = replace(whole, by_name[name], made[name])
        fast = compile(whole, options={"inference": "native"})
        return lambda: fast(*batch.args, **batch.kwargs)

    start = time.perf_counter()
    with one_thread(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best, others = sure, sure.union(*groups.values())
        call, other = compiled(best), compiled(others)
        first, second = interleaved(call, other, _PATIENCE_SECONDS)
        if second < first * (1.0 - _GAIN):
            best, call = others, other
        for names in groups.values():
            if time.perf_counter() - start > BUDGET_SECONDS:
                break
            others = best ^ names
            if others in (sure, sure.union(*groups.values())):
                continue
            other = compiled(others)
            first, second = interleaved(call, other, _PATIENCE_SECONDS)
            if second < first * (1.0 - _GAIN):
                best, call = others, other
    return best


def _with_same_tensors(model: nn.Module) -> nn.Module:
    """A copy of a model that has the same parameters and buffers."""
    return copy.deepcopy(model, {id(own): own for own in (*model.parameters(), *model.buffers())})
