"""The report on a quantised model."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corsac._messages.report_text import duration
from corsac._messages.table import table


@dataclass
class Row:
    """One layer.

    Attributes:
        layer: its path; of a layer at several places, the first one.
        kind: the class of the float layer.
        form: ``"float"``, ``"bfloat16"``, ``"int8"``, ``"int8 static"``, ``"int8 dynamic"``, ``"int4:32"``, ….
        float_bytes: size of its parameters.
        bytes: size of its parameters now.
        reason: why it is float, or another form than was asked for.
        sqnr: the signal-to-noise ratio of its quantised output on the calibration data, in decibels.
        clipped: the part of the numbers of its input that is outside the range.
        use: the part of the range in which its inputs are.
        float_seconds: time of a call in float, on one thread.
        seconds: time of a call if it is quantised.
        sensitivity: the signal-to-noise ratio of the model's output if only this layer is quantised, in decibels.
        notes: what else was done or found.
    """

    layer: str
    kind: str
    form: str
    float_bytes: int
    bytes: int
    reason: str = ""
    sqnr: float | None = None
    clipped: float | None = None
    use: float | None = None
    float_seconds: float | None = None
    seconds: float | None = None
    sensitivity: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_quantised(self) -> bool:
        return self.form != "float"

    @property
    def remark(self) -> str:
        """The reason and the notes."""
        return "; ".join(filter(None, [self.reason, *self.notes]))


@dataclass
class Point:
    """A choice of layers: how many are quantised, the bytes of the model, and the metric."""

    layers: int
    bytes: int
    metric: float


@dataclass
class Report:
    """Report of quantised layers, and why others were not.

    Attributes:
        rows: the layers.
        float_bytes: size of the parameters and buffers of the float model.
        bytes: their size in the quantised model.
        sqnr: the signal-to-noise ratio of the model's output on the calibration data, in decibels.
        float_seconds: time of a call of the compiled float model on the first batch, on one thread.
        seconds: time of the compiled quantised model.
        float_metric: the metric of the float model.
        metric: the metric of the quantised model.
        pareto: choices of layers of which none is better than another in bytes and metric, from the largest.
        warnings: what was warned of.
    """

    rows: list[Row]
    float_bytes: int
    bytes: int
    sqnr: float | None = None
    float_seconds: float | None = None
    seconds: float | None = None
    float_metric: float | None = None
    metric: float | None = None
    pareto: list[Point] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __getitem__(self, layer: str) -> Row:
        """The row of a layer, by its path."""
        for row in self.rows:
            if row.layer == layer:
                return row
        raise KeyError(layer)

    def cells(self) -> list[list[str]]:
        """The table as texts, its head first."""
        head = [
            "layer",
            "form",
            "SQNR dB",
            "clipped",
            "use",
            "float time",
            "time",
            "bytes",
            "ratio",
            "remarks",
        ]
        return [head, *([*_cells(row)] for row in self.rows)]

    def totals(self) -> list[str]:
        """Lines about the whole model."""
        layers = sum(row.is_quantised for row in self.rows)
        halves = sum(row.form == "bfloat16" for row in self.rows)
        some = f" ({halves} in bfloat16)" if halves else ""
        lines = [
            f"{layers} of {len(self.rows)} layers quantised{some}, {self.float_bytes:,} bytes -> {self.bytes:,} "
            f"({self.bytes / max(self.float_bytes, 1):.3f})"
        ]
        if self.sqnr is not None:
            lines.append(f"output: SQNR {_decibels(self.sqnr)} dB")
        if self.float_seconds is not None and self.seconds is not None:
            ratio = self.float_seconds / self.seconds
            lines.append(
                f"a call on one thread: {duration(self.float_seconds)} -> {duration(self.seconds)}, "
                f"{ratio:.2f} times as fast"
            )
        if self.float_metric is not None and self.metric is not None:
            lines.append(f"metric: {self.float_metric:.6g} -> {self.metric:.6g}")
        lines += [
            f"  {point.layers} layers, {point.bytes:,} bytes: {point.metric:.6g}"
            for point in self.pareto
        ]
        return lines

    def __str__(self) -> str:
        lines = [*table(self.cells(), {0, 1, 9}), "", *self.totals()]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    def to_json(self) -> str:
        """The report as JSON; infinite ratios are null."""
        return json.dumps(_finite(asdict(self)), indent=2, allow_nan=False)

    def save_html(self, path: str | os.PathLike[str], model: Any = None) -> Path:
        """Write the report as one page that opens offline.

        Args:
            path: the file.
            model: the float model or a graph module; if it can be traced, its graph is drawn below the table, coloured
                by the time of quantised layers.
        """
        # Only pages need drawing.
        from corsac.quantization.one_call._page import page

        target = Path(path)
        target.write_text(page(self, model), encoding="utf-8")
        return target


def _cells(row: Row) -> list[str]:
    def time(seconds: float | None) -> str:
        return "" if seconds is None or math.isinf(seconds) else duration(seconds)

    return [
        row.layer or f"({row.kind})",
        row.form,
        "" if row.sqnr is None else _decibels(row.sqnr),
        "" if row.clipped is None else f"{row.clipped:.2%}",
        "" if row.use is None else f"{row.use:.0%}",
        time(row.float_seconds),
        time(row.seconds),
        f"{row.bytes:,}",
        f"{row.bytes / max(row.float_bytes, 1):.3f}",
        row.remark,
    ]


def _decibels(ratio: float) -> str:
    return f"{ratio:.1f}"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
