"""``corsac build``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import corsac
from corsac import fx
from corsac.cli.failure import Failure, first_line
from corsac.cli.inputs import Input
from corsac.cli.progress import working
from corsac.cli.result import check_folder, write

#: The size that a dimension gets where the configuration allows any.
ANY = 2


def run(options: argparse.Namespace) -> bool:
    """Build the model and say what it is."""
    folder = Path(options.out) if options.out else None
    if folder is not None:
        check_folder(folder)
    torch.manual_seed(options.seed)
    try:
        with working(f"building {options.file}"):
            module = corsac.build(options.file).eval()
    except (ValueError, OSError) as error:
        raise Failure(str(error)) from error
    calls = sum(node.op not in ("placeholder", "output") for node in module.graph.nodes)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    print(f"{type(module).__name__}: {calls} calls, {parameters:,} parameters")
    _try(module)
    if folder is not None:
        with working(f"writing {folder}"):
            write(module, folder, type(module).__name__)
        print(f"written to {folder}: module.py ({type(module).__name__}), its weights, graph.txt")
    return True


def _try(module: fx.GraphModule) -> None:
    """Run the model on inputs of the declared shapes, if it declares all that it needs."""
    inputs = []
    for node in module.graph.find_nodes(op="placeholder"):
        declared = node.meta.get("declared_input")
        if declared is None:
            if node.args:
                break
            return
        sizes = tuple(ANY if size is None else size for size in declared["shape"])
        inputs.append(Input(sizes, declared["dtype"]))
    with torch.no_grad():
        try:
            result = module(*(given.random() for given in inputs))
        except Exception as error:
            described = ", ".join(map(str, inputs)) or "no input"
            raise Failure(f"the model does not accept {described}: {first_line(error)}") from error
    if isinstance(result, torch.Tensor):
        print(f"{', '.join(map(str, inputs))} -> {Input(tuple(result.shape), result.dtype)}")
