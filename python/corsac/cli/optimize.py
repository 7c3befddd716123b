"""``corsac optimize``."""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import torch

from corsac import __version__
from corsac.cli import batch_norm
from corsac.cli.failure import Failure, first_line
from corsac.cli.inputs import Input
from corsac.cli.model import keywords, load
from corsac.cli.peer import compare_with_torch_fx
from corsac.cli.pipeline import Step, capture_and_optimize
from corsac.cli.progress import working
from corsac.cli.result import check_folder, write
from corsac.cli.timing import Comparison, compare, milliseconds
from corsac.passes._agreement import Agreement, compare_outputs

#: How often the model is timed, unless the command line says, and how long that may take.
CALLS, PATIENCE_SECONDS = 20, 20.0


def run(options: argparse.Namespace) -> bool:
    """Do what the command line asks for; answers whether the result agrees with the original."""
    wanted = [Input.parse(text) for text in options.input]
    arguments = keywords(options.kwargs)
    folder = Path(options.out) if options.out else None
    if folder is not None:
        check_folder(folder)
    torch.manual_seed(options.seed)
    with working(f"loading {options.model}"):
        model = load(options.model, arguments)
    inputs = [given.random() for given in wanted]

    described = ", ".join(str(given) for given in wanted) or "none"
    print(f"corsac {__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"model {options.model}, input {described}, seed {options.seed}")
    with torch.inference_mode(), working("running the original"):
        call(model, inputs, described)
    randomize_batch_norms(options, model, wanted)
    with torch.inference_mode():
        expected = call(model, inputs, described)

    verify = inputs if options.verify else None
    module, steps = capture_and_optimize(model, verify, options.tolerance)
    print_steps(steps)

    with torch.inference_mode():
        try:
            actual = module(*copy.deepcopy(inputs))
        except Exception as error:
            raise Failure(f"the optimized model fails: {first_line(error)}") from error
        agreement = compare_outputs(expected, actual)
        rounds = options.repeat or CALLS
        patience = PATIENCE_SECONDS if options.repeat is None else float("inf")
        with working(f"timing {rounds} calls of each"):
            calls = compare(lambda: model(*inputs), lambda: module(*inputs), rounds, patience)
    with working("capturing and fusing with torch.fx"):
        peer = compare_with_torch_fx(model)

    print_agreement(agreement)
    print_calls(calls)
    print_peer(peer)
    if folder is not None:
        class_name = type(model).__name__
        with working(f"writing {folder}"):
            write(module, folder, class_name)
        print(f"\nwritten to {folder}: module.py ({class_name}), its weights, graph.txt")
    if isinstance(agreement, str) or not agreement.within(options.tolerance):
        print("corsac: error: the result differs from the original", file=sys.stderr)
        return False
    return True


def call(model: torch.nn.Module, inputs: list[torch.Tensor], described: str) -> Any:
    """The model's result on copies of ``inputs``."""
    try:
        return model(*copy.deepcopy(inputs))
    except Exception as error:
        raise Failure(
            f"the model does not accept the input ({described}): {first_line(error)}"
        ) from error


def randomize_batch_norms(
    options: argparse.Namespace, model: torch.nn.Module, wanted: list[Input]
) -> None:
    """Make batch norms worth folding, if asked to or if they are untrained, and say so."""
    chosen = options.randomize_stats
    if chosen or (chosen is None and batch_norm.untrained(model)):
        with working("measuring batch norm statistics"):
            number = batch_norm.randomize(model, [given.random() for given in wanted])
        reason = "as asked" if chosen else "untrained, so that folding would prove nothing"
        plural = "" if number == 1 else "s"
        print(
            f"{number} batch norm{plural} ({reason}): random weights, statistics from random input"
        )


def print_steps(steps: list[Step]) -> None:
    """The table: pass, nodes before and after, time."""
    width = max(len(step.name) for step in steps)
    verified = any(step.error is not None for step in steps)
    head = f"\n{'pass':{width}}  {'nodes':>15}  {'time':>10}"
    print(head + (f"  {'error':>8}" if verified else ""))
    for step in steps:
        before, after = step.nodes_before, step.nodes_after
        nodes = f"{before} -> {after}" if before != after else f"{after}"
        error = "" if step.error is None else f"  {step.error:>8.1e}"
        print(f"{step.name:{width}}  {nodes:>15}  {milliseconds(step.seconds):>10}{error}")
    total = sum(step.seconds for step in steps)
    nodes = f"{steps[0].nodes_before} -> {steps[-1].nodes_after}"
    print(f"{'in all':{width}}  {nodes:>15}  {milliseconds(total):>10}")


def print_agreement(agreement: Agreement | str) -> None:
    """How far the result is from the original."""
    if isinstance(agreement, str):
        print(f"\nmaximum absolute error   none can be given: {agreement}")
    else:
        print(
            f"\nmaximum absolute error   {agreement.error:.2e}"
            f"  (largest output {agreement.scale:.3g})"
        )


def print_calls(calls: Comparison) -> None:
    """Time per call before and after."""
    before, after = (milliseconds(seconds) for seconds in calls.medians)
    least_before, least_after = (milliseconds(seconds) for seconds in calls.minima)
    print(
        f"time per call            {before} -> {after}, {calls.ratio:.2f} times as fast"
        f"  (medians of {len(calls.first)}; minima {least_before} -> {least_after})"
    )


def print_peer(peer: Comparison | str) -> None:
    """Time of capture and fusion, by torch.fx and by corsac."""
    if isinstance(peer, str):
        print(f"capture and fusion       torch.fx cannot: {peer}")
        return
    theirs, ours = (milliseconds(seconds) for seconds in peer.medians)
    print(
        f"capture and fusion       torch.fx {theirs}, corsac {ours}, {peer.ratio:.1f} times as fast"
        f"  (medians of {len(peer.first)})"
    )
