"""Makes tensors from texts like ``1,3,224,224`` and ``1,16:int64``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from corsac.cli.failure import Failure, first_line
from corsac.fx import GraphModule

#: Characters that occur in an expression but not in a shape.
EXPRESSION_SIGNS = "([{."
#: Exclusive upper bound of random integers, suitable for embeddings of ten rows and more.
INTEGERS_BELOW = 10


@dataclass(frozen=True)
class Input:
    """The shape and dtype of one positional input."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def parse(cls, text: str) -> Input | Expression:
        """Parse ``SHAPE[:DTYPE]`` or an expression; an empty shape means a scalar."""
        if any(sign in text for sign in EXPRESSION_SIGNS):
            return Expression(text)
        sizes, _, name = text.partition(":")
        try:
            shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
        except ValueError as error:
            raise Failure(
                f"--input {text}: the shape is comma-separated sizes, such as 1,3,224,224"
            ) from error
        if any(size < 0 for size in shape):
            raise Failure(f"--input {text}: a size is negative")
        dtype = getattr(torch, name or "float32", None)
        if not isinstance(dtype, torch.dtype):
            raise Failure(
                f"--input {text}: torch has no dtype {name!r}; float32, int64 and bool are some"
            )
        return cls(shape, dtype)

    @property
    def size_bytes(self) -> int:
        """Size of such a tensor, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def random(self) -> torch.Tensor:
        """A random tensor from torch's generator."""
        if self.dtype == torch.bool:
            return torch.randint(0, 2, self.shape).bool()
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return torch.randn(self.shape).to(self.dtype)
        return torch.randint(0, INTEGERS_BELOW, self.shape).to(self.dtype)

    def __str__(self) -> str:
        sizes = "x".join(str(size) for size in self.shape) or "scalar"
        return f"{sizes} {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Expression:
    """A positional input given as a Python expression."""

    text: str

    def random(self) -> Any:
        """The expression's value; evaluated each time, since it may use random numbers."""
        try:
            return eval(self.text, {"torch": torch, "math": math})
        except Exception as error:
            raise Failure(f"--input {self.text}: {first_line(error)}") from error

    def __str__(self) -> str:
        return self.text


#: The size of a dimension for which a configuration allows any size.
ANY = 2


def random_inputs(texts: list[str]) -> tuple[Any, ...]:
    """Values for the inputs on the command line; random for shapes."""
    return tuple(Input.parse(text).random() for text in texts)


def given_inputs(texts: list[str], module: GraphModule, why: str) -> tuple[Any, ...]:
    """Values for all inputs of ``module``: those on the command line, random for shapes, or else random ones
    of the shapes that its configuration or file declares. ``why``: the purpose, for the error message."""
    given: list[Any] = [Input.parse(text) for text in texts] or declared_inputs(module)
    taken = [node for node in module.graph.find_nodes(op="placeholder")]
    takes_more = any(node.target.startswith("*") for node in taken)
    taken = [node for node in taken if not node.target.startswith("*")]
    missing = [node.target for node in taken[len(given) :] if not node.args]
    if missing:
        raise Failure(
            f"{why} needs the shape of each input; give --input SHAPE, such as 1,3,224,224 or "
            f"1,16:int64, for {', '.join(missing)}"
        )
    if len(given) > len(taken) and not takes_more:
        names = ", ".join(node.target for node in taken) or "none"
        raise Failure(f"--input is given {len(given)} times; the inputs of the model are: {names}")
    return tuple(one.random() for one in given)


def declared_inputs(module: GraphModule) -> list[Input]:
    """Inputs whose shapes a configuration or a file declares, up to the first undeclared one."""
    inputs = []
    for node in module.graph.find_nodes(op="placeholder"):
        declared = node.meta.get("declared_input")
        if declared is None or ("sizes" in declared and None in declared["shape"]):
            # Any size will not do for a graph that was read from another format.
            break
        sizes = tuple(ANY if size is None else size for size in declared["shape"])
        inputs.append(Input(sizes, declared["dtype"]))
    return inputs


@contextmanager
def accepted(*others: type[Exception]) -> Iterator[None]:
    """Context for a run of a model on the given inputs: its exceptions are reported as faults of the
    inputs, except those of the classes ``others``."""
    try:
        yield
    except others:
        raise
    except Exception as error:
        raise Failure(f"the model does not accept the input: {first_line(error)}") from error
