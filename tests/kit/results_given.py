"""Operators that are given tensors for their results, ``out=``, in programs that show where they write."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kit.operator_samples import ORDERING, entries, samples

#: Of what is written to.
DTYPES = (torch.float32, torch.int64, torch.bool)
#: What they give depends on random numbers, or is as memory has it.
RANDOM = frozenset(
    ["bernoulli", "empty", "empty_permuted", "multinomial", "normal", "randint", "randn", "rand"]
)


def made(x: Any, own: torch.Tensor) -> tuple[Any, Any]:
    """A tensor that the program has made, and all of what it lies in."""
    given = x.new_empty(own.shape, dtype=own.dtype)
    return given, given


def filled(x: Any, own: torch.Tensor) -> tuple[Any, Any]:
    """A view of what the program has made."""
    whole = x.new_ones((2, *own.shape), dtype=own.dtype)
    return whole[1], whole


def turned(x: Any, own: torch.Tensor) -> tuple[Any, Any]:
    """A view that lies column by column, if there are columns."""
    if own.ndim < 2:
        return filled(x, own)
    whole = x.new_zeros((*own.shape[:-2], own.shape[-1], own.shape[-2]), dtype=own.dtype)
    return whole.transpose(-1, -2), whole


PLACES: tuple[Callable[..., tuple[Any, Any]], ...] = (made, filled, turned)


@dataclass(frozen=True)
class Given:
    """A call that is given tensors for its results, in one place; its tensors come in the order of :attr:`inputs`.

    Attributes:
        name: of the operator.
        operator: the function.
        leaves: its arguments, flat.
        spec: how they were together.
        results: like those that it gives.
        place: makes tensors for them; None where they are inputs.
    """

    name: str
    operator: Callable[..., Any]
    leaves: list[Any]
    spec: Any
    results: list[torch.Tensor]
    place: Callable[..., tuple[Any, Any]] | None

    @property
    def inputs(self) -> list[torch.Tensor]:
        own = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        return own if self.place is not None else own + [torch.zeros_like(r) for r in self.results]

    def __call__(self, *given: Any) -> Any:
        rest = iter(given)
        full = [next(rest) if isinstance(own, torch.Tensor) else own for own in self.leaves]
        args, kwargs = pytree.tree_unflatten(full, self.spec)
        if self.place is None:
            pairs = [(own, own) for own in rest]
        else:
            pairs = [self.place(given[0], own) for own in self.results]
        out = tuple(own for own, _ in pairs)
        returned = self.operator(*args, **kwargs, out=out if len(out) > 1 else out[0])
        parts = [returned[at] for at in range(len(out))] if len(out) > 1 else [returned]
        return [own.clone() for _, own in pairs], [own.clone() for own in parts]

    def function(self) -> Callable[..., Any]:
        """The same with as many parameters, for tracers."""
        names = ", ".join(f"x{number}" for number in range(len(self.inputs)))
        return eval(f"lambda {names}: call({names})", {"call": self})

    def __str__(self) -> str:
        sizes = [f"{own.dtype}{list(own.shape)}" for own in self.inputs]
        place = "input" if self.place is None else self.place.__name__
        return f"{self.name} {place} {sizes} {[o for o in self.leaves if not isinstance(o, torch.Tensor)]}"


def _is_strided(own: Any) -> bool:
    return isinstance(own, torch.Tensor) and own.layout is torch.strided


def programs(
    limit: int,
    dtypes: Sequence[torch.dtype] = DTYPES,
    places: Sequence[Callable[..., Any] | None] = PLACES,
) -> Iterator[Given]:
    """A call or more of each operator that takes ``out=``, up to ``limit`` of each element type, in each of the
    places."""
    for op in entries():
        if not op.supports_out or op.name in RANDOM:
            continue
        for dtype in dtypes:
            if op.name in ORDERING and not dtype.is_floating_point:
                # Which one of equal elements is meant is not said.
                continue
            for sample in samples(op, dtype, limit):
                arguments = ((sample.input, *sample.args), sample.kwargs)
                leaves, spec = pytree.tree_flatten(arguments)
                tensors = [own for own in leaves if isinstance(own, torch.Tensor)]
                with torch.no_grad(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        results = op.op(sample.input, *sample.args, **sample.kwargs)
                    except Exception:
                        continue
                flat = list(results) if isinstance(results, tuple | list) else [results]
                if not tensors or not all(map(_is_strided, (*tensors, *flat))):
                    continue
                for place in places:
                    if place is turned and op.name == "nn.functional.gelu":
                        # PyTorch 2.15 leaves it as it was, unless it lies row by row.
                        continue
                    yield Given(op.name, op.op, leaves, spec, flat, place)
