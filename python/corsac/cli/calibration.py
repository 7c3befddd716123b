"""Reads ``--calibration``: files with arrays of samples."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy
import torch

from corsac._files.safetensors import read_safetensors
from corsac.cli.failure import Failure, file_error, first_line

#: Suffixes of files with samples.
SUFFIXES = (".npz", ".npy", ".safetensors")


def read_batches(path: str, model: torch.nn.Module, size: int) -> list[tuple[torch.Tensor, ...]]:
    """The samples in a file, in batches of ``size`` (what is left over is not used).

    Arrays are inputs: those with the names of the model's parameters in its order, others in the order of the file.
    Their first dimension counts samples.
    """
    arrays = _arrays(path)
    names = [
        name
        for name, own in inspect.signature(model.forward).parameters.items()
        if own.kind is not own.VAR_KEYWORD
    ]
    if set(arrays) <= set(names):
        missing = [name for name in names[: len(arrays)] if name not in arrays]
        if missing:
            raise Failure(f"--calibration {path}: the file has no {', '.join(missing)}")
        arrays = {name: arrays[name] for name in names if name in arrays}
    lengths = {name: len(own) if own.dim() else 0 for name, own in arrays.items()}
    if len(set(lengths.values())) != 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise Failure(f"--calibration {path}: arrays have different numbers of samples: {listed}")
    samples = next(iter(lengths.values()))
    if samples < size:
        raise Failure(f"--calibration {path}: {samples} samples, expected at least {size}")
    return [
        tuple(own[at : at + size] for own in arrays.values())
        for at in range(0, samples - size + 1, size)
    ]


def _arrays(path: str) -> dict[str, torch.Tensor]:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise Failure(f"--calibration {path}: expected a file {known}")
    try:
        if suffix == ".safetensors":
            found = read_safetensors(path)
        else:
            read: Any = numpy.load(path, allow_pickle=False)
            arrays = {name: read[name] for name in read} if suffix == ".npz" else {"": read}
            found = {name: torch.from_numpy(own) for name, own in arrays.items()}
    except OSError as error:
        raise Failure(f"--calibration {path}: {file_error(error)}") from error
    except Exception as error:
        # Of damaged files, and arrays of objects, which are not read.
        raise Failure(f"--calibration {path}: {first_line(error)}") from error
    if not found:
        raise Failure(f"--calibration {path}: the file has no arrays")
    return {
        name: own.to(torch.float32) if own.dtype == torch.float64 else own
        for name, own in found.items()
    }
