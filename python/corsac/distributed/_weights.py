"""Weights of a program that are read from files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.utils import _sync_params_and_buffers

from corsac._files.safetensors import read_safetensors
from corsac.distributed._buckets import BYTES
from corsac.distributed._program import Program
from corsac.distributed._values import described
from corsac.fx import Graph

#: The ranges along a dimension that are read of a tensor with a name in the program and a shape in the file.
Ranges = Callable[[str, Sequence[int]], tuple[int, Sequence[tuple[int, int]]] | None]


def read_weights(
    program: Program,
    names: Iterable[str],
    path: str | os.PathLike[str],
    refuse: Callable[[str, str], Exception],
    ranges: Ranges | None = None,
) -> dict[str, torch.Tensor]:
    """The weights ``names`` that are in a safetensors file, or in those of a folder, under one of their names.

    Args:
        refuse: makes the error for a weight, of which it says what is wrong: a parameter that is missing, though it is
            not on ``meta``.
        ranges: what is read of a weight; by default the whole.
    """
    names = list(names)
    found: dict[str, torch.Tensor] = {}
    #: The names of weights by those in a file.
    wanted: dict[str, list[str]] = {}

    def choose(held: Collection[str]) -> Collection[str]:
        wanted.clear()
        for name in names:
            aliases = (name, *program.weights[name].aliases)
            own = next((other for other in aliases if other in held), None)
            if own is not None and name not in found:
                wanted.setdefault(own, []).append(name)
        return wanted.keys()

    def ranges_of(own: str, shape: Sequence[int]) -> tuple[int, Sequence[tuple[int, int]]] | None:
        return None if ranges is None else ranges(wanted[own][0], shape)

    files = sorted(Path(path).glob("*.safetensors")) if os.path.isdir(path) else [path]
    for file in files:
        for own, value in read_safetensors(file, choose, ranges_of).items():
            found.update(dict.fromkeys(wanted[own], value))
    for name in names:
        is_there = name in found or program.weights[name].kind != "parameter"
        if not is_there and not program.tensors[name].is_meta:
            raise refuse(name, f"{path} has no tensor {name}")
    return found


def on_meta(program: Program, name: str, path: str | os.PathLike[str] | None) -> str:
    """What is wrong with a weight that has no value."""
    place = "no file of weights was given" if path is None else f"{path} lacks it"
    return f"the {program.weights[name].kind} {name} is on meta, and {place}"


def other_shape(
    program: Program, name: str, shape: Sequence[int], path: str | os.PathLike[str] | None
) -> str:
    """What is wrong with a weight of another shape."""
    expected = list(program.weights[name].shape)
    return f"expected {name} of shape {expected}, got {list(shape)} in {path}"


def reader_of(graph: Graph, name: str) -> str:
    """The first node that reads a weight, as text."""
    for node in graph.find_nodes(op="get_attr"):
        if node.target == name:
            return described(next(iter(node.users), node))
    return f"weight {name}"


def start_equal(group: Any, tensors: Iterable[torch.Tensor]) -> None:
    """Give all ranks of a group the values that the first one has."""
    own = [one.detach() for one in tensors]
    if own:
        with torch.no_grad():
            _sync_params_and_buffers(group, own, BYTES, 0)


__all__ = ["on_meta", "other_shape", "read_weights", "reader_of", "start_equal"]
