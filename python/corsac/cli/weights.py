"""Reads ``--weights``, and detects whether a model's weights are random."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from corsac._files.safetensors import read_safetensors
from corsac.cli.failure import Failure, file_error, first_line, kind

#: Suffixes of files with weights.
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
#: Names under which checkpoints store the state dict.
NESTED = ("state_dict", "model_state_dict", "model")
#: Number of names listed in an error.
NAMED = 4


@contextmanager
def weights_of(options: argparse.Namespace, reference: str) -> Iterator[list[torch.nn.Module]]:
    """Context in which a model is made and added to the list: loads the weights of ``--weights`` into it, or
    prints a note if its weights are random."""
    made: list[torch.nn.Module] = []
    option = weights_option(options)
    loads = 0
    load_state_dict = torch.nn.Module.load_state_dict

    def counted(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal loads
        loads += 1
        return load_state_dict(self, *args, **kwargs)

    before = torch.get_rng_state()
    torch.nn.Module.load_state_dict = counted
    try:
        yield made
    finally:
        torch.nn.Module.load_state_dict = load_state_dict
    if options.weights is not None:
        for model in made:
            load_weights(model, options.weights, option)
        return
    has_weights = any(True for model in made for _ in model.parameters())
    if has_weights and not loads and not torch.equal(before, torch.get_rng_state()):
        print(
            f"corsac: note: the weights of {reference} are random (--seed {options.seed}); "
            f"{option} FILE reads others",
            file=sys.stderr,
        )


def weights_option(options: argparse.Namespace) -> str:
    """The name of the option for a file with weights."""
    return getattr(options, "weights_option", "--weights")


def load_weights(model: torch.nn.Module, path: str, option: str = "--weights") -> None:
    """Load the weights in the file at ``path``, which ``option`` names, into ``model``; the names must be the same."""
    state = read_weights(path, option)
    own = model.state_dict()
    if not set(state) & set(own) and all(name.startswith("module.") for name in state):
        # Names as torch.nn.DataParallel writes them.
        state = {name.removeprefix("module."): value for name, value in state.items()}
    faults = [
        *_listed("has none of", [name for name in own if name not in state]),
        *_listed("has, and the model does not,", [name for name in state if name not in own]),
        *_listed(
            "has in another shape",
            [
                f"{name} ({list(state[name].shape)}, not {list(value.shape)})"
                for name, value in own.items()
                if name in state and state[name].shape != value.shape
            ],
        ),
    ]
    if faults:
        raise Failure(f"{option} {path}: the file {'; it '.join(faults)}")
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise Failure(f"{option} {path}: {first_line(error)}") from error


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    return [f"{what} {', '.join(names[:NAMED])}{others}"]


def read_weights(path: str, option: str = "--weights") -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, or of a state dict written by torch.save. No code in the file is
    run."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise Failure(f"{option} {path}: expected a file {known}")
    try:
        if suffix == ".safetensors":
            return read_safetensors(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Failure(f"{option} {path}: {file_error(error)}") from error
    except Exception as error:
        if suffix == ".safetensors":
            raise Failure(f"{option} {path}: {error}") from error
        # For a damaged file torch.load may raise any exception.
        raise Failure(
            f"{option} {path}: the file holds more than tensors, or is damaged, and nothing of it is "
            "run: write it with torch.save(model.state_dict(), FILE)"
        ) from error
    nested = [state[name] for name in NESTED if isinstance(state, dict) and name in state]
    if nested and isinstance(nested[0], dict):
        state = nested[0]
    if not isinstance(state, dict) or not state:
        raise Failure(f"{option} {path}: expected a state dict, got {kind(state)}")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise Failure(f"{option} {path}: expected a state dict, and {name!r} is {kind(value)}")
    return state
