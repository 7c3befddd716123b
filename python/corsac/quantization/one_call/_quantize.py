"""``corsac.quantize``: a quantised model in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, TypeVar

from torch import nn

from corsac.quantization.one_call._data import batches
from corsac.quantization.one_call._dequantizer import Dequantizer
from corsac.quantization.one_call._job import Job
from corsac.quantization.one_call._layers import (
    check_weights,
    exclude_layers,
)
from corsac.quantization.one_call._ranges import Method
from corsac.quantization.one_call._request import Request
from corsac.quantization.one_call._selection import Metric

_Model = TypeVar("_Model", bound=nn.Module)


def quantize(
    model: _Model,
    calibration_data: Any = None,
    *,
    dtype: str = "int8",
    dynamic: bool = False,
    weights: str | None = None,
    metric: Metric | None = None,
    max_drop: float | None = None,
    exclude: str | type | Iterable[str | type] = (),
    method: Method = "mse",
    percentile: float = 99.99,
    bias_correction: bool = True,
    smooth_quant: float | None = None,
    equalize: bool = False,
    measure: bool = True,
    keep_float: bool = True,
) -> _Model:
    """A copy of ``model`` whose layers compute with integers, for inference by :func:`corsac.compile`.

    Linear layers, convolutions, and with ``weights`` embeddings, are replaced by layers of
    :mod:`corsac.quantization.quantized`; everything else stays as it is, so that models need not be traceable.

    - ``quantize(model, data)``: weights and inputs of layers are 8-bit integers; the ranges of inputs are measured on
      the data, and fixed.
    - ``quantize(model, dynamic=True)``: the range of each row is found in each call; for linear layers.
    - ``quantize(model, weights="int4:32")``: only weights are integers, to save bytes.

    Args:
        model: a module in evaluation mode; it stays as it is.
        calibration_data: typical inputs: a tensor, tuple or dict of arguments, or an iterable of these. With ``dynamic``
            or ``weights``, it is optional, and used to measure and to correct.
        dtype: ``"int8"``; layers that are not faster in it get bfloat16 if that is. ``"bfloat16"``: that alone.
        dynamic: find ranges of inputs in each call.
        weights: ``"int8"`` (a scale for each output channel), or ``"int4:32"``, ``"int4:64"`` or ``"int4:128"`` (one for
            each group of so many numbers). Layers are quantised even where that is not faster.
        metric: a function of a model, such as its accuracy; larger is better.
        max_drop: how far ``metric`` may drop. The layers to which the output is least sensitive are quantised first; those
            whose integers cost too much get more bits, or bfloat16, or stay float.
        exclude: names or patterns (``"layer4.*"``) of modules that stay float with all inside, or classes.
        method: how ranges are chosen: ``"minmax"``, ``"percentile"``, ``"entropy"`` or ``"mse"``.
        percentile: for the method of this name: the share of the numbers inside, in percent.
        bias_correction: add the mean errors of layers on the calibration data to their biases.
        smooth_quant: move the spread of linear layers' inputs into their weights, by this exponent from 0 to 1 (0.5 is
            usual), where a norm or a layer is known to be the only source; the report has the reasons where it is not.
        equalize: make the weights of two layers in a row as large, channel by channel, where the first goes to the second
            only.
        measure: time layers in both forms, and leave those float that are not faster, alone or in the model (unless
            ``weights`` is given); it takes up to half a minute, and needs data.
        keep_float: keep the float model for ``dequantize()``.

    Returns:
        A module of the class of ``model``, with ``quantization_report``, a table of the layers and of the reasons why
        some stay float, and ``dequantize()``, which returns the float model.

    Raises:
        TypeError: ``model`` is no module, or ``calibration_data`` holds no inputs.
        ValueError: an argument is none of the above, a weight or a batch has NaN or infinity, the model does not accept
            a batch, or has no layer to quantise.
    """
    request = Request(dtype, dynamic, weights, method, percentile, max_drop, metric)
    request.smooth_quant, request.equalize = smooth_quant, equalize
    request.check(model, calibration_data)
    data = [] if calibration_data is None else batches(calibration_data)
    job = Job(model, data, request)
    exclude_layers(job.model, job.layers, exclude)
    check_weights(job.layers)
    if not job.layers:
        raise ValueError(
            f"{type(model).__name__} has nothing to quantise: no nn.Linear, convolution or nn.Embedding"
        )
    job.calibrate()
    job.make(bias_correction)
    if measure:
        job.measure()
    job.choose()
    made: Any = job.finish(measure)
    made.quantization_report = job.report
    made.dequantize = Dequantizer(made, model if keep_float else None)
    for text in job.report.warnings:
        warnings.warn(text, stacklevel=2)
    return made
