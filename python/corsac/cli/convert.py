"""``corsac convert``, and ``corsac run`` of models in other formats."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import corsac
from corsac import _core, fx
from corsac.cli.commands import CONVERTED
from corsac.cli.failure import Failure, check_file, file_error, first_line
from corsac.cli.inputs import given_inputs
from corsac.cli.progress import working
from corsac.cli.save import report
from corsac.cli.sizes import declared_sizes, sized_inputs

_WHY = "converting"


def run(options: argparse.Namespace) -> bool:
    """Read a model and write a file that runs without Python."""
    check_file(options.out, (".safetensors",))
    if Path(options.model).suffix not in CONVERTED:
        raise Failure(
            f"{options.model}: expected a file *.onnx or *.pt2; corsac save writes other models"
        )
    module = read(options.model)
    texts, dynamic = options.input, options.dynamic
    if not texts:
        texts, dynamic = declared_sizes(module, dynamic)
    texts, shapes = sized_inputs(texts, dynamic)
    inputs = given_inputs(texts, module, _WHY)
    _write(module, options.out, inputs, shapes)
    report(options.out, inputs, as_json=options.json)
    return True


def read(path: str) -> fx.GraphModule:
    """The graph of an ONNX model, or of a program of ``torch.export``."""
    try:
        with working(f"reading {path}"):
            if path.endswith(".pt2"):
                return corsac.from_pt2(path, plain_inputs=True)
            return corsac.from_onnx(path)
    except OSError as error:
        raise Failure(f"{path}: {file_error(error)}") from error
    except (ValueError, ImportError) as error:
        raise Failure(f"{path}: {first_line(error, 1500)}") from error


def _write(
    module: fx.GraphModule,
    out: str,
    inputs: tuple[Any, ...],
    shapes: Mapping[int, Mapping[int, Any]] | None = None,
) -> None:
    try:
        with working("saving"):
            corsac.save(module, out, inputs, dynamic_shapes=shapes or None)
    except Exception as error:
        # The model is run, and may raise any exception.
        raise Failure(f"the model cannot be saved: {first_line(error, 1500)}") from error


def run_model(words: Sequence[str]) -> int:
    """``corsac run`` or ``corsac bench`` of a model in another format: of a file that is made of it for this call."""
    at = next(at for at, word in enumerate(words) if word.endswith(CONVERTED))
    module = read(words[at])
    inputs = _inputs_of_arrays(words, module) or given_inputs([], module, "running it")
    with tempfile.TemporaryDirectory() as folder:
        made = str(Path(folder) / "model.safetensors")
        _write(module, made, inputs)
        return _core.run_program(["corsac", *words[:at], made, *words[at + 1 :]])


def _inputs_of_arrays(words: Sequence[str], module: fx.GraphModule) -> tuple[Any, ...] | None:
    """The arrays that the command line names, in the order of the inputs; None unless there is one for each."""
    import numpy
    import torch

    given = [
        word.removeprefix("--input=") if word != "--input" else following
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word == "--input" or word.startswith("--input=")
    ]
    names = [str(node.target) for node in module.graph.find_nodes(op="placeholder")]
    by_name: dict[str, Any] = {}
    for at, text in enumerate(given):
        name, equals, path = text.rpartition("=")
        name = name if equals else (names[at] if at < len(names) else "")
        try:
            by_name[name] = torch.from_numpy(numpy.load(path, allow_pickle=False))
        except (OSError, ValueError, TypeError):
            return None  # The native program reports it.
    return tuple(by_name[name] for name in names) if set(by_name) == set(names) else None
