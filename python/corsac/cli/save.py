"""``corsac save``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corsac
from corsac.cli.failure import Failure, check_file, first_line
from corsac.cli.inputs import given_inputs, random_inputs
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.rows import described_tensor
from corsac.cli.sizes import sized_inputs
from corsac.cli.subject import captured, original
from corsac.generation._tokenizer import write_tokenizer


def run(options: argparse.Namespace) -> bool:
    """Write the model to a file that runs without Python."""
    check_file(options.out, (".safetensors",))
    if options.generate:
        _save_language_model(options)
        return True
    for name in ("batch", "length"):
        if getattr(options, name) is not None:
            raise Failure(f"--{name} is about language models: --generate saves one")
    texts, shapes = sized_inputs(options.input, options.dynamic)
    if options.dynamic:
        options.input = texts
        # The graph of a call may be for its sizes only.
        module = original(options.model, options)
        inputs = random_inputs(texts)
    else:
        module, shapes = captured(options.model, options).runnable("saving"), {}
        inputs = given_inputs(texts, module, "saving")
    with working("saving"):
        try:
            corsac.save(module, options.out, inputs, dynamic_shapes=shapes or None)
        except corsac.CompileError as error:
            raise Failure(
                f"the model cannot be saved: {error}. corsac.compile runs the model, and what the engine does not "
                "know by PyTorch"
            ) from error
        except Exception as error:
            # The model is run, and may raise any exception.
            raise Failure(f"the model cannot be saved: {first_line(error, 1500)}") from error
    report(options.out, inputs, as_json=options.json)
    return True


def _save_language_model(options: argparse.Namespace) -> None:
    if options.input or options.dynamic:
        raise Failure(
            "--generate finds the inputs itself: --input and --dynamic are for other models"
        )
    folder = Path(options.model)
    tokenizer = folder / "tokenizer.json"
    model = _of_folder(folder) if folder.is_dir() else original(options.model, options)
    batch = 64 if options.batch is None else options.batch
    with working("saving"):
        try:
            if tokenizer.is_file():
                write_tokenizer(tokenizer.read_text("utf-8"), Path(options.out))
            corsac.generation.save(model, options.out, batch=batch, length=options.length)
        except Exception as error:
            # The model is run, and may raise any exception.
            raise Failure(f"the model cannot be saved: {first_line(error, 1500)}") from error
    report(options.out, (), as_json=options.json)


def _of_folder(folder: Path) -> Any:
    """The language model in a folder of transformers."""
    if not (folder / "config.json").is_file():
        raise Failure(f"{folder}: a folder with a model of transformers has a config.json")
    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        raise Failure("transformers is missing: pip install transformers") from error
    logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    except Exception as error:
        raise Failure(f"{folder}: {first_line(error)}") from error


def report(file: str, inputs: Sequence[Any], *, as_json: bool) -> None:
    """Print the size of a file that was written, and in JSON the inputs that it takes."""
    size = Path(file).stat().st_size
    if as_json:
        described = [described_tensor(tensor) for tensor in inputs]
        print_json({"file": file, "bytes": size, "inputs": described})
    else:
        print(f"{file}: {size:,} bytes")
