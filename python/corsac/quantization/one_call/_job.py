"""One quantisation: a copy of a model, and what is known of its layers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import nn

from corsac._messages.report_text import duration
from corsac.quantization.one_call._calibration import (
    MEASURED,
    Seen,
    measure_errors,
    observe,
    range_warnings,
    run,
)
from corsac.quantization.one_call._data import Batch, noise_ratio, sqnr
from corsac.quantization.one_call._forms import (
    HALF,
    Form,
    Tables,
    add_to_bias,
    bytes_of,
    quantised,
)
from corsac.quantization.one_call._layers import (
    Layer,
    copy_around,
    find_layers,
    merge_attentions,
    own_parameters,
    replace,
    split_attentions,
    tied,
)
from corsac.quantization.one_call._links import find_links
from corsac.quantization.one_call._page import NOISY
from corsac.quantization.one_call._race import fastest
from corsac.quantization.one_call._ranges import steps
from corsac.quantization.one_call._report import Report, Row
from corsac.quantization.one_call._request import Request
from corsac.quantization.one_call._selection import Option, select, sensitivities
from corsac.quantization.one_call._smoothing import equalise, smooth
from corsac.quantization.one_call._timing import GAIN, Stopwatch, Times, kind_of, time_models

#: Signal-to-noise ratio, in decibels, of results that differ by rounding only.
_SAME = 80.0


class Job:
    """One quantisation: a copy of the model and what is known of its layers."""

    def __init__(self, model: nn.Module, data: Sequence[Batch], request: Request) -> None:
        self.model, self.original = split_attentions(copy_around(model)), model
        self.data, self.request = data, request
        self.layers = find_layers(self.model)
        self.float_bytes = bytes_of(self.model)
        self.rows: dict[str, Row] = {}
        self.options: dict[str, list[Option]] = {}
        self.seen: dict[str, Seen] = {}
        self.corrected: dict[str, list[str]] = {}
        self.warnings: list[str] = []
        self.expected: list[Any] = []
        self.is_measured = False
        self._faster_together: frozenset[str] = frozenset()
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
                self.options[name][at].sqnr = own.sqnr
                if at == 0:
                    self.rows[name].sqnr = own.sqnr
                    if correction is not None:
                        self.corrected[name] = ["bias corrected"]

    def measure(self) -> None:
        """Time the layers, and drop forms that are not faster, alone or in the model."""
        self.is_measured = True
        stopwatch = Stopwatch()
        found: dict[str, tuple[Layer, Times, Hashable]] = {}
        for layer in self.layers:
            sample = self.seen[layer.name].sample if layer.name in self.seen else None
            if sample is None or not self.options[layer.name]:
                continue
            option = self.options[layer.name][0]
            times = stopwatch.times(layer, option.form, option.module, sample)
            row = self.rows[layer.name]
            row.float_seconds, row.seconds = times.float_seconds, times.seconds
            found[layer.name] = layer, times, kind_of(layer, option.form, sample)
        if self.request.saves_bytes:
            return
        faster = self._faster(found) if found else frozenset()
        for name, (_, times, _) in found.items():
            if name not in faster:
                self.rows[name].reason = _slower(self.options[name][0].form, times)
                self.options[name] = []
        if self.data and not self.request.is_half:
            self._add_faster_halves(stopwatch)

    def _add_faster_halves(self, stopwatch: Stopwatch) -> None:
        """Add bfloat16 for layers that are faster in it and have no other form, or, if a metric decides, may lose it."""
        decides = self.request.max_drop is not None
        found: dict[str, tuple[Layer, Option]] = {}
        kinds: dict[Hashable, set[str]] = {}
        for layer in self.active():
            sample = self.seen[layer.name].sample
            if layer.is_table or sample is None or (self.options[layer.name] and not decides):
                continue
            option = Option(HALF, quantised(layer, HALF))
            times = stopwatch.times(layer, HALF, option.module, sample)
            if times.is_faster:
                option.seconds = times.seconds
                row = self.rows[layer.name]
                row.float_seconds = row.float_seconds or times.float_seconds
                found[layer.name] = layer, option
                kinds.setdefault(kind_of(layer, HALF, sample), set()).add(layer.name)
        if not found:
            return
        layers, made = [own for own, _ in found.values()], {}
        for name, (_, option) in found.items():
            made[name] = option.module
        for name, own in measure_errors(self.model, made, layers, self.data).items():
            found[name][1].sqnr = own.sqnr
        names = frozenset(found)
        if not decides:
            others = [layer for layer in self.layers if self.options[layer.name]]
            whole = self.model
            for layer in others:
                whole = replace(whole, layer, self.options[layer.name][0].module)
            groups = {kind: frozenset(own) for kind, own in kinds.items()}
            names = fastest(whole, layers, made, frozenset(), groups, self.data[0])
            for layer in others:
                whole = replace(whole, layer, layer.module)
        for name in names:
            self.options[name].append(found[name][1])

    def _add_all_halves(self) -> None:
        """Add bfloat16 for layers whose other forms may cost too much of the metric."""
        tables = Tables()
        for layer in self.active():
            if self.options[layer.name] and self.options[layer.name][-1].form != HALF:
                made = quantised(layer, HALF, tables=tables)
                self.options[layer.name].append(Option(HALF, made))

    def _faster(self, found: dict[str, tuple[Layer, Times, Hashable]]) -> frozenset[str]:
        """The layers to quantise for speed."""
        sure = frozenset(name for name, (_, times, _) in found.items() if times.is_faster)
        kinds: dict[Hashable, set[str]] = {}
        losses: dict[Hashable, float] = {}
        for name, (_, times, kind) in found.items():
            if name not in sure and not times.error:
                kinds.setdefault(kind, set()).add(name)
                losses[kind] = losses.get(kind, 0.0) + times.seconds - times.float_seconds
        if not kinds:
            return sure
        # Those that cost most are tried first.
        order = sorted(kinds, key=lambda kind: -losses[kind])
        groups = {kind: frozenset(kinds[kind]) for kind in order}
        layers = [layer for layer, _, _ in found.values()]
        made = {name: self.options[name][0].module for name in found}
        names = fastest(self.model, layers, made, sure, groups, self.data[0])
        self._faster_together = names - sure
        return names

    def choose(self) -> None:
        """Take a form for each layer."""
        request = self.request
        if request.max_drop is not None and (request.saves_bytes or not self.is_measured):
            self._add_all_halves()
        ready = [layer for layer in self.layers if self.options[layer.name]]
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
            row.sqnr = row.sqnr if option.sqnr is None else option.sqnr
            row.seconds = option.seconds or row.seconds
            if option is not self.options[layer.name][0]:
                first = self.options[layer.name][0].form
                row.reason = f"{first}: the metric would drop by more than {request.max_drop:g}"
            row.notes += self.corrected.get(layer.name, [])
            self.model = replace(self.model, layer, option.module)

    def finish(self, measure: bool) -> nn.Module:
        """The quantised model; the report has all its figures."""
        self.model = merge_attentions(self.model)
        own_parameters(self.model, self.original)
        report = self.report
        report.rows = [self.rows[layer.name] for layer in self.layers]
        report.bytes = bytes_of(self.model)
        for row in report.rows:
            if row.is_quantised and row.layer in self._faster_together:
                row.notes.insert(0, "faster between quantised layers only")
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
    ratio = times.seconds / times.float_seconds
    return f"{form} is not faster: {ratio:.2f} of the time alone, and no gain in the model"
