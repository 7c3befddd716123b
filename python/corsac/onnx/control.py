"""Modules for control flow of ONNX that depends on elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class If(nn.Module):
    """One of two graphs, which are called with the same values."""

    def __init__(self, then_branch: nn.Module, else_branch: nn.Module) -> None:
        super().__init__()
        self.then_branch, self.else_branch = then_branch, else_branch

    def forward(self, condition: torch.Tensor, *values: Any) -> tuple[Any, ...]:
        return (self.then_branch if bool(condition) else self.else_branch)(*values)


class Loop(nn.Module):
    """A graph that is called again and again.

    Args:
        body: called with the number of the iteration, the condition, values of the loop and ``values`` of the graph
            around it; returns the condition, the next values of the loop and results of the iteration.
        carried: the number of values of the loop.
        rows: types and shapes of the results of an iteration, for loops without one.
    """

    def __init__(
        self, body: nn.Module, carried: int, rows: Sequence[tuple[torch.dtype, Sequence[int]]]
    ) -> None:
        super().__init__()
        self.body, self.carried, self.rows = body, carried, list(rows)

    def forward(self, count: Any, condition: Any, *values: Any) -> tuple[Any, ...]:
        own, others = values[: self.carried], values[self.carried :]
        go_on = torch.tensor(True) if condition is None else condition
        results: list[list[torch.Tensor]] = [[] for _ in self.rows]
        at = 0
        while (count is None or at < int(count)) and bool(go_on):
            found = self.body(torch.tensor(at), go_on, *own, *others)
            go_on, own = found[0], found[1 : 1 + self.carried]
            for parts, result in zip(results, found[1 + self.carried :], strict=True):
                parts.append(result)
            at += 1
        stacked = [
            torch.stack(parts) if parts else torch.empty((0, *shape), dtype=dtype)
            for parts, (dtype, shape) in zip(results, self.rows, strict=True)
        ]
        return (*own, *stacked)


class Scan(nn.Module):
    """A graph that is called for each part of tensors.

    Args:
        body: called with values of the loop, a part of each tensor, and values of the graph around it; returns the
            next values of the loop and results.
        carried: the number of values of the loop.
        scanned: the number of tensors.
        input_axes: the dimension of each tensor along which its parts are.
        input_backwards: whether the parts of a tensor are taken from its end.
        output_axes: the dimension along which results are joined.
        output_backwards: whether results are joined from the last one on.
    """

    def __init__(
        self,
        body: nn.Module,
        carried: int,
        scanned: int,
        input_axes: Sequence[int],
        input_backwards: Sequence[bool],
        output_axes: Sequence[int],
        output_backwards: Sequence[bool],
    ) -> None:
        super().__init__()
        self.body, self.carried, self.scanned = body, carried, scanned
        self.input_axes, self.input_backwards = list(input_axes), list(input_backwards)
        self.output_axes, self.output_backwards = list(output_axes), list(output_backwards)

    def forward(self, *values: Any) -> tuple[Any, ...]:
        own, rest = values[: self.carried], values[self.carried :]
        tensors, others = rest[: self.scanned], rest[self.scanned :]
        length = tensors[0].shape[self.input_axes[0]]
        results: list[list[torch.Tensor]] = [[] for _ in self.output_axes]
        for at in range(length):
            parts = [
                tensor.select(axis, length - 1 - at if backwards else at)
                for tensor, axis, backwards in zip(
                    tensors, self.input_axes, self.input_backwards, strict=True
                )
            ]
            found = self.body(*own, *parts, *others)
            own = found[: self.carried]
            for joined, result in zip(results, found[self.carried :], strict=True):
                joined.append(result)
        stacked = [
            torch.stack(joined[::-1] if backwards else joined, axis)
            for joined, axis, backwards in zip(
                results, self.output_axes, self.output_backwards, strict=True
            )
        ]
        return (*own, *stacked)
