"""``corsac quantize``."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import corsac
from corsac._messages.report_text import duration
from corsac.cli.calibration import read_batches
from corsac.cli.failure import Failure, check_file, first_line, written
from corsac.cli.inputs import Input, random_inputs
from corsac.cli.json_output import print_json
from corsac.cli.model import look_up
from corsac.cli.progress import working
from corsac.cli.subject import original
from corsac.cli.timing import Comparison, compare
from corsac.quantization.one_call._data import sqnr, tensors_of

#: Timed calls of each model, and the time limit for them.
CALLS, PATIENCE_SECONDS = 20, 10.0
#: The signal-to-noise ratio, in decibels, below which a file does not compute what the model does. Numbers between two
#: levels may be rounded to either.
AGREEMENT = 20.0


def run(options: argparse.Namespace) -> bool:
    """Quantise the model, print the report, and write it."""
    check_file(options.out, (".safetensors",))
    if options.report is not None:
        check_file(options.report, (".html", ".htm", ".json"), "--report")
    model = original(options.model, options)
    data = _batches(options, model)
    inputs = random_inputs(options.input) if options.input else data[0] if data else None
    if inputs is None:
        raise Failure("writing a model needs the shape of each input; give --input SHAPE")
    with working("quantising"), warnings.catch_warnings():
        # They are in the report.
        warnings.simplefilter("ignore", UserWarning)
        made: Any = _quantised(options, model, data)
    report = made.quantization_report
    with working("timing"), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        calls = _timed(model, made, inputs)
    with working("writing"):
        _save(made, options.out, inputs)
        agreement = _agreement(made, options.out, inputs)
    size = Path(options.out).stat().st_size
    if options.report is not None:
        with written(f"--report {options.report}"):
            if Path(options.report).suffix.lower() == ".json":
                Path(options.report).write_text(report.to_json() + "\n", encoding="utf-8")
            else:
                report.save_html(options.report, model)
    if options.json:
        before, after = calls.medians
        print_json(
            {
                "file": options.out,
                "bytes": size,
                "seconds_before": before,
                "seconds_after": after,
                "ratio": calls.ratio,
                "file_sqnr": agreement if agreement != float("inf") else None,
                "report": json.loads(report.to_json()),
            }
        )
    else:
        print(report)
        before, after = calls.medians
        threads = torch.get_num_threads()
        where = "one thread" if threads == 1 else f"{threads} threads"
        if threads > 1 or report.seconds is None:
            print(f"a call on {where}: {duration(before)} -> {duration(after)}, {calls.said}")
        agrees = "exactly" if agreement == float("inf") else f"to {agreement:.0f} dB"
        print(f"{options.out}: {size:,} bytes, agrees with the model {agrees}")
    if agreement < AGREEMENT:
        print("corsac: error: the file does not compute what the model does", file=sys.stderr)
    return agreement >= AGREEMENT


def _batches(options: argparse.Namespace, model: torch.nn.Module) -> list[tuple[Any, ...]]:
    if options.calibration is None:
        return []
    size = 1
    if options.input:
        first = Input.parse(options.input[0])
        size = first.shape[0] if isinstance(first, Input) and first.shape else 1
    return read_batches(options.calibration, model, max(size, 1))


def _quantised(
    options: argparse.Namespace, model: torch.nn.Module, data: list[tuple[Any, ...]]
) -> torch.nn.Module:
    metric = _metric(options, model, data)
    try:
        return corsac.quantize(
            model,
            data or None,
            dtype=options.dtype,
            dynamic=options.dynamic,
            weights=options.form,
            metric=metric,
            max_drop=options.max_drop,
            exclude=options.exclude,
            method=options.method,
            measure=options.measure,
        )
    except ValueError as error:
        said = str(error)
        if said.startswith("calibration_data is missing"):
            said = (
                "static quantisation measures ranges of inputs: give --calibration FILE, or --dynamic, or "
                "--weights int8"
            )
        raise Failure(said) from error


def _metric(
    options: argparse.Namespace, model: torch.nn.Module, data: list[tuple[Any, ...]]
) -> Callable[[torch.nn.Module], float] | None:
    """The metric that was asked for, or how often the largest output is that of the float model, in percent."""
    if options.metric is not None:
        found = look_up(options.metric)
        if not callable(found):
            raise Failure(f"--metric {options.metric}: expected a function of a model")
        return found
    if options.max_drop is None:
        return None
    if not data:
        raise Failure("--max-drop needs --metric, or --calibration to compare predictions on")
    with torch.no_grad():
        expected = [_predictions(model, batch) for batch in data]

    def agreement(own: torch.nn.Module) -> float:
        same = torch.cat(
            [
                (_predictions(own, batch) == known).flatten()
                for batch, known in zip(data, expected, strict=True)
            ]
        )
        return 100.0 * float(same.double().mean())

    return agreement


def _predictions(model: torch.nn.Module, batch: tuple[Any, ...]) -> torch.Tensor:
    try:
        result = model(*batch)
    except Exception as error:
        raise Failure(f"the model does not accept the samples: {first_line(error)}") from error
    tensors = tensors_of(result)
    if not tensors:
        raise Failure("--max-drop: the model returns no tensor: give --metric")
    return tensors[0].argmax(-1)


def _timed(model: torch.nn.Module, made: torch.nn.Module, inputs: tuple[Any, ...]) -> Comparison:
    before, after = corsac.compile(model), corsac.compile(made)
    for fast in (before, after):
        for _ in range(3):
            try:
                fast(*inputs)
            except Exception as error:
                raise Failure(
                    f"the model does not accept the input: {first_line(error)}"
                ) from error
    return compare(lambda: before(*inputs), lambda: after(*inputs), CALLS, PATIENCE_SECONDS)


def _save(made: torch.nn.Module, path: str, inputs: tuple[Any, ...]) -> None:
    try:
        corsac.save(made, path, inputs)
    except corsac.CompileError as error:
        raise Failure(f"the quantised model cannot be saved: {error}") from error
    except Exception as error:
        # The model is run, and may raise any exception.
        raise Failure(f"the quantised model cannot be saved: {first_line(error, 1500)}") from error


def _agreement(made: torch.nn.Module, path: str, inputs: tuple[Any, ...]) -> float:
    """The signal-to-noise ratio of the file's result to the model's, in decibels."""
    with torch.no_grad():
        expected = tensors_of(made(*inputs))
        got = tensors_of(corsac.load(path, framework="torch")(*inputs))
    return sqnr(expected, got)
