"""``corsac lower``."""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import torch

from corsac import fx, lowering
from corsac._messages.report_text import duration
from corsac.cli.failure import Failure, check_file, first_line, written
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.subject import captured
from corsac.cli.timing import Comparison, compare
from corsac.passes._agreement import Agreement, compare_outputs


def run(options: argparse.Namespace) -> bool:
    """Lower the model and check it, or report the plan, or write it as ONNX."""
    if options.out:
        check_file(options.out, (".onnx",))
    module = captured(options.model, options).runnable("lowering")
    inputs = given_inputs(options.input, module, "lowering")
    if options.out:
        _write(module, inputs, options)
        return True
    settings: dict[str, Any] = {"min_nodes": options.min_nodes}
    with accepted(), torch.no_grad():
        expected = module(*copy.deepcopy(inputs))
    try:
        if options.preview:
            with working("looking at the model"):
                preview = lowering.preview(module, options.to, inputs, **settings)
            print_json(preview.to_dict()) if options.json else print(preview)
            return True
        with working(f"lowering to {options.to}"):
            lowered = lowering.lower(module, options.to, inputs, strict=options.strict, **settings)
    except lowering.LoweringError as error:
        raise Failure(first_line(error)) from error
    except ValueError as error:
        raise Failure(str(error)) from error
    with torch.no_grad():
        agreement = compare_outputs(expected, lowered(*copy.deepcopy(inputs)))
        with working(f"timing {options.repeat} calls of each"):
            calls = compare(lambda: module(*inputs), lambda: lowered(*inputs), options.repeat)
    agrees = not isinstance(agreement, str) and agreement.within(options.tolerance)
    preview = lowered.meta["lowering"]
    if options.json:
        print_json(_summary(preview, agreement, calls))
    else:
        _print(preview, agreement, calls)
    if not agrees:
        print("corsac: error: the result differs from the original", file=sys.stderr)
    return agrees


def _print(preview: lowering.Preview, agreement: Agreement | str, calls: Comparison) -> None:
    print(preview.summary())
    for row in preview.host:
        print(f"    host: {row.node} ({row.target}): {row.reason}")
    if isinstance(agreement, str):
        print(f"maximum absolute error   none can be given: {agreement}")
    else:
        error, scale = agreement.error, agreement.scale
        print(f"maximum absolute error   {error:.2e}  (largest output {scale:.3g})")
    before, after = (duration(seconds) for seconds in calls.medians)
    print(f"time per call            {before} -> {after}, {calls.said}")


def _summary(
    preview: lowering.Preview, agreement: Agreement | str, calls: Comparison
) -> dict[str, Any]:
    before, after = calls.medians
    return {
        "preview": preview.to_dict(),
        "error": None if isinstance(agreement, str) else agreement.error,
        "seconds_before": before,
        "seconds_after": after,
        "ratio": calls.ratio,
    }


def _write(module: fx.GraphModule, inputs: tuple[Any, ...], options: argparse.Namespace) -> None:
    """Write the whole model as an ONNX file."""
    from corsac.onnx import ExportError, save, to_onnx

    path = Path(options.out)
    try:
        with working("writing the model as ONNX"), accepted(ExportError, ImportError):
            proto = to_onnx(module, inputs)
    except (ExportError, ImportError) as error:
        raise Failure(first_line(error, 1000)) from error
    with written(f"--out {path}"):
        save(proto, path)
    nodes = len(proto.graph.node)
    print(f"written to {path}: {nodes} nodes, {len(proto.graph.initializer)} weights and constants")
