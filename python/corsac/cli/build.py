"""``corsac build``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import corsac
from corsac import fx
from corsac.cli.failure import Failure, file_error, first_line
from corsac.cli.inputs import Input, declared_inputs
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.result import check_folder, write
from corsac.cli.rows import described_tensor
from corsac.cli.weights import weights_of
from corsac.config import Limits
from corsac.config._limits import described_size


def run(options: argparse.Namespace) -> bool:
    """Build the model and report its properties."""
    if Path(options.file).suffix.lower() not in (".graph", ".toml", ".json"):
        raise Failure(f"{options.file}: expected a file *.graph, *.toml or *.json")
    folder = Path(options.out) if options.out else None
    if folder is not None:
        check_folder(folder)
    torch.manual_seed(options.seed)
    try:
        with working(f"building {options.file}"):
            limits = Limits(size_bytes=int(options.max_gib * 2**30))
            with weights_of(options, options.file) as made:
                module = corsac.build(options.file, limits=limits).eval()
                made.append(module)
    except OSError as error:
        raise Failure(f"{error.filename or options.file}: {file_error(error)}") from error
    except ValueError as error:
        raise Failure(str(error)) from error
    made: dict[str, Any] = {
        "name": type(module).__name__,
        "calls": sum(node.op.startswith("call_") for node in module.graph.nodes),
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
    }
    if not options.json:
        print(f"{made['name']}: {made['calls']} calls, {made['parameters']:,} parameters")
    tried = _try(module, limits.size_bytes)
    if tried is not None:
        inputs, output = tried
        if not options.json and isinstance(output, torch.Tensor):
            given = ", ".join(map(str, inputs))
            print(f"{given} -> {Input(tuple(output.shape), output.dtype)}")
        made["inputs"] = [described_tensor(given.random()) for given in inputs]
        is_tensor = isinstance(output, torch.Tensor)
        made["output"] = described_tensor(output) if is_tensor else type(output).__name__
    if folder is not None:
        made["folder"] = str(folder)
        with working(f"writing {folder}"):
            write(module, folder, made["name"])
    if options.json:
        print_json(made)
    elif folder is not None:
        print(f"written to {folder}: module.py ({made['name']}), its weights, graph.txt")
    return True


def _try(module: fx.GraphModule, max_bytes: int) -> tuple[list[Input], Any] | None:
    """Run the model on inputs of the declared shapes; return the inputs and the result, or None if a required
    shape is not declared."""
    inputs = declared_inputs(module)
    size_bytes = sum(given.size_bytes for given in inputs)
    if size_bytes > max_bytes:
        raise Failure(
            f"the inputs that the file declares take {described_size(size_bytes)}, and may take "
            f"{described_size(max_bytes)} (--max-gib)"
        )
    rest = module.graph.find_nodes(op="placeholder")[len(inputs) :]
    if any(not node.args for node in rest):
        return None
    with torch.no_grad():
        try:
            return inputs, module(*(given.random() for given in inputs))
        except Exception as error:
            described = ", ".join(map(str, inputs)) or "no input"
            raise Failure(f"the model does not accept {described}: {first_line(error)}") from error
