"""Lists of integers as indices, of which Python's own lists and lists of sizes are made."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

import corsac

X = torch.arange(60.0).reshape(3, 4, 5)
PARTS: list[Any] = [slice(None), 1, -1, [0, 2], [-1], [], torch.tensor([2, 0]), None, Ellipsis]
INDICES = [
    index
    for count in (1, 2, 3)
    for index in itertools.product(PARTS, repeat=count)
    if any(isinstance(part, list) for part in index) and sum(part is Ellipsis for part in index) < 2
]


def result(index: Any) -> torch.Tensor | None:
    try:
        return X[index]
    except (IndexError, RuntimeError):
        return None


def test_elements_are_those_of_pytorch() -> None:
    checked = 0
    for index in [[0, 2], [-1], [2, 0, 1], *INDICES]:
        expected = result(index)
        if expected is None:
            continue

        def read(x: torch.Tensor, index: Any = index) -> torch.Tensor:
            return x[index] + 1

        compiled = corsac.compile(read)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), expected + 1)
        checked += 1
    assert checked > 150


@pytest.mark.parametrize("index", [[0, 2], [-1], ([0, 2], [1, 1]), (slice(None), [3, 0]), (1, [2])])
def test_elements_are_written_as_pytorch_does(index: Any, tmp_path: Path) -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[index] = -1.0
        return x

    path = tmp_path / "model.safetensors"
    try:
        corsac.save(write, path, X)
    except corsac.CompileError as error:
        assert "among indices" in str(error) or "index" in str(error)
        return
    assert torch.equal(corsac.load(path)(X), write(X))


@pytest.mark.parametrize("value", [1.0, "sum"])
def test_lists_with_sizes_are_no_tuples(value: Any, tmp_path: Path) -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        n = x.shape[0]
        x[[n - 1, 0]] = x.sum() if value == "sum" else value
        return x

    def read(x: torch.Tensor) -> torch.Tensor:
        return x[[x.shape[0] - 1, 0]] * 2

    for function in (write, read):
        path = tmp_path / f"{function.__name__}.safetensors"
        corsac.save(function, path, X, dynamic_shapes={"x": {0: Dim("b", min=3, max=8)}})
        file = corsac.load(path)
        for rows in (3, 5):
            x = torch.randn(rows, 4, 5)
            torch.testing.assert_close(file(x), function(x))


def test_places_that_are_not_there_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    corsac.save(
        lambda x: x[[0, 4]], path, torch.ones(5), dynamic_shapes={"x": {0: Dim("n", min=5, max=9)}}
    )
    assert corsac.load(path)(torch.arange(6.0)).tolist() == [0, 4]
    with pytest.raises(corsac.CompileError, match="a list of 300 integers as an index"):
        corsac.save(lambda x: x[[0, 2] * 150], path, torch.ones(5))
