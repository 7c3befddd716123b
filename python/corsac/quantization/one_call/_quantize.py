"""``corsac.quantize``: a quantised model in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from corsac._engine.module import EngineModule
from corsac._messages.report_text import duration
from corsac.quantization.one_call._calibration import (
    MEASURED,
    Seen,
    measure_errors,
    observe,
    range_warnings,
    run,
)
from corsac.quantization.one_call._data import Batch, batches, noise_ratio, sqnr
from corsac.quantization.one_call._dequantizer import Dequantizer
from corsac.quantization.one_call._forms import Form, Tables, add_to_bias, bytes_of, quantised
from corsac.quantization.one_call._layers import (
    Layer,
    check_weights,
    copy_around,
    exclude_layers,
    find_layers,
    own_parameters,
    replace,
    tied,
)
from corsac.quantization.one_call._links import find_links
from corsac.quantization.one_call._page import NOISY
from corsac.quantization.one_call._ranges import METHODS, Method, steps
from corsac.quantization.one_call._report import Report, Row
from corsac.quantization.one_call._selection import Metric, Option, select, sensitivities
from corsac.quantization.one_call._smoothing import equalise, smooth
from corsac.quantization.one_call._timing import GAIN, Stopwatch, Times, time_models
from corsac.quantization.one_call._weights import WeightForm

#: Classes of compiled models, whose layers cannot be replaced.
_COMPILED = (EngineModule, torch.jit.ScriptModule)
#: Signal-to-noise ratio, in decibels, of results that differ by rounding only.
_SAME = 80.0

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
        dtype: ``"int8"``.
        dynamic: find ranges of inputs in each call.
        weights: ``"int8"`` (a scale for each output channel), or ``"int4:32"``, ``"int4:64"`` or ``"int4:128"`` (one for
            each group of so many numbers). Layers are quantised even where that is not faster.
        metric: a function of a model, such as its accuracy; larger is better.
        max_drop: how far ``metric`` may drop. The layers to which the output is least sensitive are quantised first.
        exclude: names or patterns (``"layer4.*"``) of modules that stay float with all inside, or classes.
        method: how ranges are chosen: ``"minmax"``, ``"percentile"``, ``"entropy"`` or ``"mse"``.
        percentile: for the method of this name: the share of the numbers inside, in percent.
        bias_correction: add the mean errors of layers on the calibration data to their biases.
        smooth_quant: move the spread of linear layers' inputs into their weights, by this exponent from 0 to 1 (0.5 is
            usual), where a norm or a layer is known to be the only source; the report has the reasons where it is not.
        equalize: make the weights of two layers in a row as large, channel by channel, where the first goes to the second
            only.
        measure: time layers in both forms, and leave those float that are not faster (unless ``weights`` is given).
        keep_float: keep the float model for ``dequantize()``.

    Returns:
        A module of the class of ``model``, with ``quantization_report``, a table of the layers and of the reasons why
        some stay float, and ``dequantize()``, which returns the float model.

    Raises:
        TypeError: ``model`` is no module, or ``calibration_data`` holds no inputs.
        ValueError: an argument is none of the above, a weight or a batch has NaN or infinity, the model does not accept
            a batch, or has no layer to quantise.
    """
    request = _Request(dtype, dynamic, weights, method, percentile, max_drop, metric)
    request.smooth_quant, request.equalize = smooth_quant, equalize
    request.check(model, calibration_data)
    data = [] if calibration_data is None else batches(calibration_data)
    job = _Job(model, data, request)
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


class _Request:
    """The checked arguments."""

    smooth_quant: float | None = None
    equalize: bool = False

    def __init__(
        self,
        dtype: str,
        dynamic: bool,
        weights: str | None,
        method: str,
        percentile: float,
        max_drop: float | None,
        metric: Metric | None,
    ) -> None:
        if dtype != "int8":
            raise ValueError(
                f"dtype: expected 'int8', got {dtype!r} (weights='int4:32' has 4 bits)"
            )
        if method not in METHODS:
            raise ValueError(
                f"method: expected one of {', '.join(map(repr, METHODS))}, got {method!r}"
            )
        if not 50.0 < percentile <= 100.0:
            raise ValueError(f"percentile: expected a number above 50, up to 100, got {percentile}")
        if max_drop is not None and metric is None:
            raise ValueError("max_drop is given without metric: expected a function of the model")
        if max_drop is not None and not max_drop >= 0.0:
            raise ValueError(f"max_drop: expected at least 0, got {max_drop}")
        self.saves_bytes = weights is not None
        form = WeightForm.parse(weights) if weights is not None else WeightForm()
        self.form = Form("dynamic" if dynamic else "float" if self.saves_bytes else "static", form)
        self.method, self.percentile = method, percentile
        self.metric, self.max_drop = metric, max_drop

    def check(self, model: Any, calibration_data: Any) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        if isinstance(model, _COMPILED) or type(model).__module__.startswith("torch._dynamo"):
            raise TypeError(
                f"{type(model).__name__} is compiled: quantise the model that it was made of, and compile the result"
            )
        if model.training:
            raise ValueError(
                "the model is in training mode: call model.eval() before it is quantised"
            )
        if calibration_data is None and self.form.inputs == "static":
            raise ValueError(
                "calibration_data is missing: static quantisation measures ranges on it; dynamic=True or weights='int8' "
                "need none"
            )
        if self.smooth_quant is not None and not 0.0 <= self.smooth_quant <= 1.0:
            raise ValueError(f"smooth_quant: expected 0 to 1, got {self.smooth_quant}")
        if calibration_data is None and (self.smooth_quant is not None or self.equalize):
            option = "equalize" if self.equalize else "smooth_quant"
            raise ValueError(f"{option} is given without calibration_data")

    def forms(self, layer: Layer) -> tuple[list[Form], str]:
        """Forms for a layer, the wanted one first; and why that is another than was asked for, or none."""
        form = self.form
        if layer.is_table and self.saves_bytes:
            form = Form("float", WeightForm())
        first, why = form.fitting(layer)
        if first is None:
            return [], why
        if first.weights.bits == 4:
            return [first, Form(first.inputs, WeightForm())], why
        return [first], why


class _Job:
    """One quantisation: a copy of the model and what is known of its layers."""

    def __init__(self, model: nn.Module, data: Sequence[Batch], request: _Request) -> None:
        self.model, self.original = copy_around(model), model
        self.data, self.request = data, request
        self.layers = find_layers(self.model)
        self.float_bytes = bytes_of(self.model)
        self.rows: dict[str, Row] = {}
        self.options: dict[str, list[Option]] = {}
        self.seen: dict[str, Seen] = {}
        self.corrected: dict[str, list[str]] = {}
        self.warnings: list[str] = []
        self.expected: list[Any] = []
        self.report = Report([], self.float_bytes, self.float_bytes)

    def active(self) -> list[Layer]:
        """The layers that nothing speaks against yet."""
        return [layer for layer in self.layers if not layer.reason]

    def calibrate(self) -> None:
        """Run the model on the data."""
        _use_called_layers(self.model)
        with torch.no_grad():
            self.expected = [
                run(self.model, batch, number) for number, batch in enumerate(self.data[:MEASURED])
            ]
        if self.request.smooth_quant is not None or self.request.equalize:
            self._move_factors()
        if self.data:
            self.seen = observe(self.model, self.active(), self.data)

    def _move_factors(self) -> None:
        """Move factors between layers of the copy, which computes the same then."""
        own_parameters(self.model, self.original)
        before = {
            own: own.detach().clone() for own in self.model.parameters() if own.is_floating_point()
        }
        links, problems = find_links(self.model, self.active(), self.data)
        ties, alpha = tied(self.model), self.request.smooth_quant
        notes: dict[str, str] = {}
        if self.request.equalize:
            notes, others = equalise(links, ties)
            problems |= others
        if alpha is not None:
            if notes:
                # The largest inputs have changed.
                links, _ = find_links(self.model, self.active(), self.data)
            done, others = smooth(links, alpha, ties)
            notes, problems = notes | done, problems | others
        with torch.no_grad():
            got = run(self.model, self.data[0], 0)
            if sqnr(self.expected[0], got) < _SAME:
                for own, numbers in before.items():
                    own.copy_(numbers)
                problems |= dict.fromkeys(notes, "the result would change")
                notes = {}
        for layer in self.active():
            if not layer.is_table and (alpha is None or self.request.equalize or layer.is_matrix):
                word = "equalised" if alpha is None else "smoothed"
                why = problems.get(layer.name, "its source is not seen")
                layer.notes.append(notes.get(layer.name) or f"not {word}: {why}")

    def make(self, bias_correction: bool) -> None:
        """Quantise the layers, in all forms that may be chosen."""
        ties = tied(self.model)
        tables = Tables()
        for layer in self.layers:
            own: Any = layer.module
            size = bytes_of(own)
            row = Row(layer.name, type(own).__name__, "float", size, size, notes=layer.notes)
            self.rows[layer.name] = row
            forms, why = ([], layer.reason) if layer.reason else self.request.forms(layer)
            row.reason = why
            others = [path for path in ties.get(id(own.weight), []) if path not in _paths(layer)]
            if forms and others:
                row.notes.append(f"tied with {', '.join(others)}")
            range_ = (
                self._range(layer, row) if forms and self.request.form.inputs == "static" else None
            )
            if row.reason and not why:
                forms = []
            self.options[layer.name] = [
                Option(form, quantised(layer, form, range_, tables)) for form in forms
            ]
        if self.data:
            self._find_errors(bias_correction)
        else:
            for layer in self.layers:
                if self.options[layer.name]:
                    self.rows[layer.name].sqnr = _weight_sqnr(layer, self.options[layer.name][0])

    def _range(self, layer: Layer, row: Row) -> tuple[float, int] | None:
        """Scale and zero point of a layer's input."""
        histogram = self.seen[layer.name].histogram
        self.warnings += range_warnings(layer.name, histogram)
        if histogram.low == histogram.high == 0.0:
            row.reason = "its input is always 0"
            return None
        low, high = histogram.range(self.request.method, self.request.percentile)
        row.clipped = histogram.share_outside(low, high)
        inside = min(histogram.high, high) - max(histogram.low, low)
        row.use = max(inside, 0.0) / (high - low)
        return steps(low, high)

    def _find_errors(self, bias_correction: bool) -> None:
        layers = [layer for layer in self.layers if self.options[layer.name]]
        depth = max((len(own) for own in self.options.values()), default=0)
        for at in range(depth):
            made = {name: own[at].module for name, own in self.options.items() if len(own) > at}
            errors = measure_errors(self.model, made, layers, self.data)
            for name, own in errors.items():
                correction = own.correction() if bias_correction else None
                if correction is not None and not isinstance(made[name], nn.Embedding):
                    add_to_bias(made[name], correction)
                if at == 0:
                    row = self.rows[name]
                    row.sqnr = own.sqnr
                    if correction is not None:
                        self.corrected[name] = ["bias corrected"]

    def measure(self) -> None:
        """Time the layers, and drop forms that are not faster."""
        stopwatch = Stopwatch()
        for layer in self.layers:
            sample = self.seen[layer.name].sample if layer.name in self.seen else None
            if sample is None or not self.options[layer.name]:
                continue
            row = self.rows[layer.name]
            kept: list[Option] = []
            for option in self.options[layer.name]:
                times = stopwatch.times(layer, option.form, option.module, sample)
                if row.seconds is None:
                    row.float_seconds, row.seconds = times.float_seconds, times.seconds
                if self.request.saves_bytes or times.is_faster:
                    kept.append(option)
                else:
                    row.reason = _slower(option.form, times)
            self.options[layer.name] = kept

    def choose(self) -> None:
        """Take a form for each layer."""
        ready = [layer for layer in self.layers if self.options[layer.name]]
        request = self.request
        if request.metric is None:
            chosen = {layer.name: self.options[layer.name][0] for layer in ready}
        else:
            noise = {layer.name: self.rows[layer.name].sqnr or 0.0 for layer in ready}
            if self.data and request.max_drop is not None:
                noise = sensitivities(self.model, ready, self.options, self.data)
                for name, own in noise.items():
                    self.rows[name].sensitivity = own
            order = sorted(noise, key=lambda name: -noise[name])
            selected = select(
                self.model, ready, self.options, order, request.metric, request.max_drop
            )
            chosen = selected.options
            self.report.float_metric, self.report.metric = selected.float_metric, selected.metric
            self.report.pareto = selected.points
        for layer in ready:
            row = self.rows[layer.name]
            option = chosen.get(layer.name)
            if option is None:
                row.reason = f"the metric would drop by more than {request.max_drop:g}"
                continue
            row.form, row.bytes = str(option.form), bytes_of(option.module)
            if option is not self.options[layer.name][0]:
                first = self.options[layer.name][0].form
                row.reason = f"{first}: the metric would drop by more than {request.max_drop:g}"
            row.notes += self.corrected.get(layer.name, [])
            self.model = replace(self.model, layer, option.module)

    def finish(self, measure: bool) -> nn.Module:
        """The quantised model; the report has all its figures."""
        own_parameters(self.model, self.original)
        report = self.report
        report.rows = [self.rows[layer.name] for layer in self.layers]
        report.bytes = bytes_of(self.model)
        if not any(row.is_quantised for row in report.rows):
            self.warnings.append("no layer is quantised: quantization_report has the reasons")
        for row in report.rows:
            if row.is_quantised and row.sqnr is not None and row.sqnr < NOISY:
                self.warnings.append(f"{row.layer}: SQNR is {row.sqnr:.1f} dB, less than {NOISY:g}")
        if self.expected:
            with torch.no_grad():
                got = [
                    run(self.model, batch, number)
                    for number, batch in enumerate(self.data[:MEASURED])
                ]
            report.sqnr = min(map(sqnr, self.expected, got))
        if measure and self.data and any(row.is_quantised for row in report.rows):
            self._time_models()
        report.warnings = self.warnings
        return self.model

    def _time_models(self) -> None:
        """Time the float and the quantised model on the first batch."""
        report, batch = self.report, self.data[0]
        times = time_models(self.original, self.model, batch.args, batch.kwargs)
        report.float_seconds, report.seconds = times
        if not self.request.saves_bytes and report.seconds > report.float_seconds * (1.0 + GAIN):
            self.warnings.append(
                f"the quantised model is slower than the float one: {duration(report.seconds)}, {duration(report.float_seconds)}"
            )


def _paths(layer: Layer) -> set[str]:
    return {f"{name}.weight" if name else "weight" for name in layer.names}


def _use_called_layers(model: nn.Module) -> None:
    """Make encoder layers of PyTorch call their layers, instead of reading their weights in a kernel of their own."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0


def _weight_sqnr(layer: Layer, option: Option) -> float:
    """The signal-to-noise ratio of a quantised weight in decibels."""
    weight = layer.weight().detach()
    made: Any = option.module
    signal, noise = (weight**2).sum(), ((made.dequantised() - weight) ** 2).sum()
    return noise_ratio(float(signal), float(noise))


def _slower(form: Form, times: Times) -> str:
    """Why a form is not taken."""
    if times.error:
        return f"{form} is not native: {times.error}"
    return f"{form} is not faster: {times.seconds / times.float_seconds:.2f} of the time"
