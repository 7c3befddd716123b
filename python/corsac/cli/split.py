"""``corsac split``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from corsac import fx
from corsac.cli.failure import Failure, first_line
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.result import check_folder, write
from corsac.cli.subject import Subject, captured
from corsac.fx.passes.split_module import split_module


def run(options: argparse.Namespace) -> bool:
    """Split the model into parts of about as many calls each."""
    subject = captured(options.model, options)
    folder = Path(options.out) if options.out else None
    # The graph alone determines the parts: without ``--out``, placeholders for missing modules are enough.
    module = subject.runnable(f"--out {folder}") if folder else _with_fake_weights(subject)
    if folder is not None:
        check_folder(folder)
    calls = [n for n in module.graph.nodes if n.op.startswith("call_")]
    if options.parts > len(calls):
        number = f"{len(calls)} call{'' if len(calls) == 1 else 's'}"
        raise Failure(f"--parts {options.parts}: the model has {number}")
    part_of = {node: at * options.parts // len(calls) for at, node in enumerate(calls)}
    with working("splitting"):
        try:
            parent = split_module(module, module, lambda node: part_of.get(node, 0))
            parent.train(module.training)
        except Exception as error:
            raise Failure(f"the model cannot be split: {first_line(error)}") from error
    parts = [_describe(parent, node) for node in parent.graph.find_nodes(op="call_module")]
    if options.json:
        print_json(parts)
    else:
        width = max(len(part["name"]) for part in parts)
        print(f"{'part':{width}}  calls  inputs -> outputs")
        for part in parts:
            arrow = f"{', '.join(part['inputs'])} -> {', '.join(part['outputs'])}"
            print(f"{part['name']:{width}}  {part['calls']:>5}  {arrow}")
    if folder is not None:
        with working(f"writing {folder}"):
            write(parent, folder, type(module).__name__)
        print(f"written to {folder}: module.py ({type(module).__name__}), its weights, graph.txt")
    return True


def _with_fake_weights(subject: Subject) -> fx.GraphModule:
    """The module of ``subject``; for the text of a graph, with empty modules and tensors for the missing ones."""
    if subject.module is not None:
        return subject.module
    calls = {node.target for node in subject.graph.find_nodes(op="call_module")}
    fakes = {path: nn.Module() if path in calls else torch.empty(0) for path in subject.missing()}
    return fx.GraphModule(fakes, subject.graph)


def _describe(parent: fx.GraphModule, node: fx.Node) -> dict[str, object]:
    """The inputs, calls and outputs of a part."""
    part = parent.get_submodule(node.target)
    result = part.graph.output_node().args[0]
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return {
        "name": node.target,
        "calls": sum(n.op.startswith("call_") for n in part.graph.nodes),
        "inputs": [n.name for n in part.graph.find_nodes(op="placeholder")],
        "outputs": [str(value) for value in outputs],
    }
