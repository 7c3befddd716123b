"""``corsac optimize``."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from corsac import __version__
from corsac._capture.result_template import RETURNED, ResultTemplate, is_plain
from corsac._messages.report_text import duration
from corsac.cli import batch_norm
from corsac.cli.failure import Failure, first_line
from corsac.cli.inputs import Input, declared_inputs
from corsac.cli.json_output import print_json
from corsac.cli.peer import compare_with_torch_fx
from corsac.cli.pipeline import Step, capture_and_optimize
from corsac.cli.progress import working
from corsac.cli.result import check_folder, write
from corsac.cli.rows import described_tensor
from corsac.cli.subject import original
from corsac.cli.timing import Comparison, compare
from corsac.fx import GraphModule
from corsac.passes._agreement import Agreement, compare_outputs

#: Default number of timed calls, and the time limit for them.
CALLS, PATIENCE_SECONDS = 20, 20.0


def run(options: argparse.Namespace) -> bool:
    """Carry out the command; return whether the result agrees with the original."""
    wanted = [Input.parse(text) for text in options.input]
    folder = Path(options.out) if options.out else None
    if folder is not None:
        check_folder(folder)
    model = original(options.model, options)
    wanted = wanted or (declared_inputs(model) if isinstance(model, GraphModule) else [])
    inputs = [given.random() for given in wanted]

    say = _silent if options.json else print
    described = ", ".join(str(given) for given in wanted) or "none"
    say(f"corsac {__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    say(f"model {options.model}, input {described}, seed {options.seed}")
    with torch.inference_mode(), working("running the original"):
        call(model, inputs, described)
    randomized = randomize_batch_norms(options, model, wanted, say)
    with torch.inference_mode():
        expected = call(model, inputs, described)

    module, steps = capture_and_optimize(
        model, inputs, verify=options.verify, tolerance=options.tolerance
    )
    if not options.json:
        print_steps(steps)
        if options.report:
            print_sites(steps)

    with torch.inference_mode():
        try:
            actual = module(*copy.deepcopy(inputs))
        except Exception as error:
            raise Failure(f"the optimized model fails: {first_line(error)}") from error
        if type(actual) is tuple and not is_plain(expected, constants=RETURNED):
            # For results in classes, graphs captured for their inputs return just the tensors.
            expected = tuple(ResultTemplate(expected, lambda own: False).tensors)
        agreement = compare_outputs(expected, actual)
        rounds = options.repeat or CALLS
        patience = PATIENCE_SECONDS if options.repeat is None else float("inf")
        with working(f"timing {rounds} calls of each"):
            calls = compare(lambda: model(*inputs), lambda: module(*inputs), rounds, patience)
    with working("capturing and fusing with torch.fx"):
        peer = compare_with_torch_fx(model)

    if not options.json:
        print_agreement(agreement)
        print_calls(calls)
        print_peer(peer)
    if folder is not None:
        class_name = type(model).__name__
        with working(f"writing {folder}"):
            write(module, folder, class_name)
        say(f"\nwritten to {folder}: module.py ({class_name}), its weights, graph.txt")
    agrees = not isinstance(agreement, str) and agreement.within(options.tolerance)
    if options.json:
        print_json(
            {
                "model": options.model,
                "inputs": [described_tensor(tensor) for tensor in inputs],
                "seed": options.seed,
                "threads": torch.get_num_threads(),
                "batch_norms_randomized": randomized,
                "passes": [asdict(step) for step in steps],
                "agrees": agrees,
                "error": None if isinstance(agreement, str) else agreement.error,
                "largest_output": None if isinstance(agreement, str) else agreement.scale,
                "seconds_before": calls.medians[0],
                "seconds_after": calls.medians[1],
                "ratio": calls.ratio,
                "torch_fx": _peer(peer),
                "folder": None if folder is None else str(folder),
            }
        )
    if not agrees:
        print("corsac: error: the result differs from the original", file=sys.stderr)
    return agrees


def _silent(*_: object) -> None:
    """Print nothing, since only JSON is to be printed."""


def _peer(peer: Comparison | str) -> dict[str, Any] | None:
    """Seconds of capture and fusion; None if torch.fx cannot do it."""
    if isinstance(peer, str):
        return None
    theirs, ours = peer.medians
    return {"seconds": theirs, "corsac_seconds": ours}


def call(model: torch.nn.Module, inputs: list[torch.Tensor], described: str) -> Any:
    """The model's result on copies of ``inputs``."""
    try:
        return model(*copy.deepcopy(inputs))
    except Exception as error:
        hint = "" if inputs else "; --input SHAPE gives one, such as --input 1,3,224,224"
        raise Failure(
            f"the model does not accept the input ({described}): {first_line(error)}{hint}"
        ) from error


def randomize_batch_norms(
    options: argparse.Namespace,
    model: torch.nn.Module,
    wanted: list[Input],
    say: Callable[[str], None],
) -> int:
    """Randomise batch norms if asked to or if they are untrained, and report it; return their number."""
    chosen = options.randomize_stats
    if not (chosen or (chosen is None and batch_norm.untrained(model))):
        return 0
    with working("measuring batch norm statistics"):
        number = batch_norm.randomize(model, [given.random() for given in wanted])
    reason = "as asked" if chosen else "untrained, so that folding would prove nothing"
    plural = "" if number == 1 else "s"
    say(f"{number} batch norm{plural} ({reason}): random weights, statistics from random input")
    return number


def print_steps(steps: list[Step]) -> None:
    """Print a table of the passes: name, nodes before and after, time."""
    width = max(len(step.name) for step in steps)
    verified = any(step.error is not None for step in steps)
    head = f"\n{'pass':{width}}  {'nodes':>15}  {'time':>10}"
    print(head + (f"  {'error':>8}" if verified else ""))
    for step in steps:
        before, after = step.nodes_before, step.nodes_after
        nodes = f"{before} -> {after}" if before != after else f"{after}"
        error = "" if step.error is None else f"  {step.error:>8.1e}"
        print(f"{step.name:{width}}  {nodes:>15}  {duration(step.seconds):>10}{error}")
    total = sum(step.seconds for step in steps)
    nodes = f"{steps[0].nodes_before} -> {steps[-1].nodes_after}"
    print(f"{'in all':{width}}  {nodes:>15}  {duration(total):>10}")


def print_sites(steps: list[Step]) -> None:
    """Print every site where a pass changed something, or could have, with the reason if it did not."""
    for step in steps:
        if step.sites:
            print(f"\n{step.name}")
        width = max((len(site.node) for site in step.sites), default=0)
        for site in step.sites:
            other = f", {site.other} takes its place" if site.other else ""
            done = f"done{other}" if site.applied else f"kept: {site.reason}"
            print(f"  {site.node:{width}}  {done}")


def print_agreement(agreement: Agreement | str) -> None:
    """Print the difference of the result from the original."""
    if isinstance(agreement, str):
        print(f"\nmaximum absolute error   none can be given: {agreement}")
    else:
        print(
            f"\nmaximum absolute error   {agreement.error:.2e}"
            f"  (largest output {agreement.scale:.3g})"
        )


def print_calls(calls: Comparison) -> None:
    """Print the time per call before and after."""
    before, after = (duration(seconds) for seconds in calls.medians)
    least_before, least_after = (duration(seconds) for seconds in calls.minima)
    print(
        f"time per call            {before} -> {after}, {calls.said}"
        f"  (medians of {len(calls.first)}; minima {least_before} -> {least_after})"
    )


def print_peer(peer: Comparison | str) -> None:
    """Print the time of capture and fusion, by torch.fx and by corsac."""
    if isinstance(peer, str):
        print(f"capture and fusion       torch.fx cannot: {peer}")
        return
    theirs, ours = (duration(seconds) for seconds in peer.medians)
    print(
        f"capture and fusion       torch.fx {theirs}, corsac {ours}, {peer.said}"
        f"  (medians of {len(peer.first)})"
    )
