"""The sizes that a model file promises: found, and verified with the model."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from corsac import _core
from corsac._engine.native_graph import CompileError
from corsac._files.dynamic_shapes import DynamicShapes

#: Largest number of sets of sizes for which types and conditions are checked; of more, a few are chosen.
CHECKED, CHOSEN = 256, 32
#: Largest size that is tried where no largest one is declared.
TRIED = 2**20
#: Floating-point operations, and elements of inputs, of a call up to which the largest declared sizes are verified with
#: the model: seconds, and hundreds of megabytes.
VERIFIED_FLOPS, VERIFIED_ELEMENTS = 10**12, 2**26
#: Largest difference between the results of the model and of its graph, as a part of the largest number.
TOLERANCE = 1e-4

Values = dict[str, int]


class PromisedSizes:
    """Finds and verifies the ranges of the symbols of a model.

    Args:
        shapes: the symbolic sizes of its inputs.
        inputs: example inputs.
        draft: makes the model that is to be written, for the ranges of its symbols.
        graph: the results of its graph for inputs.
        model: the results of the model for inputs.
    """

    def __init__(
        self,
        shapes: DynamicShapes,
        inputs: Sequence[torch.Tensor],
        draft: Callable[[list[tuple[str, int, int | None]]], _core.ModelDraft],
        graph: Callable[..., Any],
        model: Callable[..., Any],
    ) -> None:
        self._shapes, self._inputs = shapes, inputs
        self._graph, self._model = graph, model
        self._example = shapes.values(inputs)
        self._draft = draft([(name, 0, None) for name in shapes.ranges])

    def symbols(self) -> list[tuple[str, int, int | None]]:
        """The symbols, with their least and largest values.

        Raises:
            CompileError: the model is not the same function for all sizes in the declared ranges.
        """
        reason = self._reason(self._example)
        if reason is not None:
            raise CompileError(reason)
        found = [
            (
                name,
                self._least(name) if least is None else least,
                self._most(name) if most is None else most,
            )
            for name, (least, most) in self._shapes.ranges.items()
        ]
        for name, least, most in found:
            if least == most and not self._shapes.is_declared(name):
                # Others than the example's.
                reason = self._reason(self._example | {name: least + 1})
                hint = self._hint(name)
                raise CompileError(f"the model takes {name}={least} only: {reason}{hint}")
        for values in self._in_range(found):
            reason = self._reason(values)
            if reason is not None:
                raise CompileError(
                    f"the model does not take all sizes that are declared: {reason} (without a declared range, the "
                    "file has the one that is found)"
                )
        for values in self._verified(found):
            self._verify(values)
        return found

    def _hint(self, name: str) -> str:
        """A hint if a size may differ together with others."""
        value = self._example[name]
        equal = [own for own, other in self._example.items() if own != name and other == value]
        if equal:
            names = " and ".join([name, *equal])
            return f"; if {names} are always equal, declare them by one name"
        return "; other sizes stay as they are in the example" if len(self._example) > 1 else ""

    def _reason(self, values: Values) -> str | None:
        """The reason why the model does not take these sizes; None if it does, or if they need more memory than files
        may ask for, which is checked in each call."""
        try:
            self._draft.check(list(values.values()))
        except (ValueError, CompileError) as error:
            return str(error)
        return None

    def _takes(self, name: str, value: int) -> bool:
        return self._reason(self._example | {name: value}) is None

    def _least(self, name: str) -> int:
        """The least value of a symbol without a declared one: 1 where that works."""
        taken = self._example[name]

        def runs(value: int) -> bool:
            values = self._example | {name: value}
            return self._takes(name, value) and not isinstance(self._results(values), Exception)

        for value in (1, 2):
            if value == taken or (value < taken and runs(value)):
                return value
        return _last(taken, 0, runs)

    def _most(self, name: str) -> int | None:
        """The largest value of a symbol without a declared one; None if there is no limit."""
        taken = self._example[name]
        above = max(2 * taken, 2)
        while above <= TRIED:
            if not self._takes(name, above):
                return _last(taken, above, lambda value: self._takes(name, value))
            taken, above = above, 2 * above
        return None

    def _in_range(self, found: Sequence[tuple[str, int, int | None]]) -> Iterator[Values]:
        """Values of symbols with declared ranges: all, or else the ends, their neighbours, and random ones."""
        choices, count = [], 1
        for name, least, most in found:
            declared = most is not None and self._shapes.is_declared(name)
            last = most if declared and most is not None else self._example[name]
            first = least if declared else self._example[name]
            choices.append(range(first, last + 1))
            count *= len(choices[-1])
        names = [name for name, *_ in found]
        if count <= CHECKED:
            every: Iterator[tuple[int, ...]] = itertools.product(*choices)
        else:
            ends = [sorted({*own[:3], *own[-2:]}) for own in choices]
            chosen = random.Random(0)
            some = (tuple(map(chosen.choice, choices)) for _ in range(CHOSEN))
            each = itertools.islice(itertools.zip_longest(*ends), CHOSEN)
            lasts = tuple(own[-1] for own in choices)
            filled = (
                tuple(last if own is None else own for own, last in zip(row, lasts, strict=True))
                for row in each
            )
            corners = itertools.islice(
                itertools.product(*((own[0], own[-1]) for own in ends)), CHOSEN
            )
            every = itertools.chain(corners, filled, some)
        for values in every:
            yield dict(zip(names, values, strict=True))

    def _verified(self, found: Sequence[tuple[str, int, int | None]]) -> Iterator[Values]:
        """Values of symbols for which the model is run: the least, others than the example's, and each largest one
        that is declared."""
        least = {name: own for name, own, _ in found}
        yield least
        others = (self._other(found, more) for more in range(1, 9))
        yield from itertools.islice((own for own in others if self._reason(own) is None), 1)
        for name, _, most in found:
            if most is None or self._shapes.ranges[name][1] is None:
                continue
            values = least | {name: most}
            elements = sum(map(math.prod, self._shapes.shapes(self._inputs, values)))
            flops = self._draft.check(list(values.values()))
            if flops is not None and flops <= VERIFIED_FLOPS and elements <= VERIFIED_ELEMENTS:
                yield values

    def _other(self, found: Sequence[tuple[str, int, int | None]], more: int) -> Values:
        """Values that are not the example's where their ranges have others, for each symbol by another number."""
        values = {}
        for number, (name, least, most) in enumerate(found, more):
            value = self._example[name] + number
            if most is not None and value > most:
                value = max(least, min(most, self._example[name] - number))
            values[name] = value
        return values

    def _verify(self, values: Values) -> None:
        """Compare the graph with the model for these values."""
        sizes = ", ".join(f"{name}={value}" for name, value in values.items())
        reason = self._reason(values)
        if reason is not None:
            raise CompileError(f"the model does not take all sizes that are declared: {reason}")
        found = self._results(values)
        if isinstance(found, Exception):
            text = str(found).strip().splitlines() or [""]
            raise CompileError(
                f"the model does not take all sizes that are declared: with {sizes} it raises "
                f"{type(found).__name__}: {text[0]}"
            ) from found
        expected, got = found
        if len(expected) != len(got) or not all(map(_alike, expected, got)):
            if not sizes:
                raise CompileError("the model gives other results than its graph")
            raise CompileError(
                f"with {sizes} the model gives other results than its graph: it depends on sizes in a way that "
                "cannot be followed, so that the file has to be for fixed ones"
            )

    def _results(self, values: Values) -> tuple[list[Any], list[Any]] | Exception:
        """The results of the model and of its graph for these values, or what the model raises."""
        error: Exception | None = None
        for made in (_sampled, _repeated):
            shapes = self._shapes.shapes(self._inputs, values)
            try:
                inputs = tuple(
                    made(own, shape) for own, shape in zip(self._inputs, shapes, strict=True)
                )
                expected = tree_leaves(self._model(*inputs))
            except Exception as raised:
                # Random values may be none that the model takes; it may raise anything.
                error = error or raised
                continue
            try:
                return expected, tree_leaves(self._graph(*inputs))
            except Exception:
                # It raises what the model does not.
                return expected, []
        assert error is not None
        return error


def _last(taken: int, refused: int, takes: Callable[[int], bool]) -> int:
    """The last value that is taken on the way from one that is to one that is not."""
    while abs(refused - taken) > 1:
        middle = (taken + refused) // 2
        if takes(middle):
            taken = middle
        else:
            refused = middle
    return taken


def _sampled(own: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of another shape with elements of ``own``, in random order."""
    if list(own.shape) == list(shape):
        return own.clone()
    chosen = torch.Generator().manual_seed(0)
    made = torch.empty(shape, dtype=own.dtype)
    if own.numel() and made.numel():
        places = torch.randint(own.numel(), (made.numel(),), generator=chosen)
        made = own.reshape(-1)[places].reshape(shape)
    return made


def _repeated(own: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of another shape that begins with ``own``, and repeats it."""
    made = own.clone()
    for dim, size in enumerate(shape):
        made = made.index_select(dim, torch.arange(size) % max(own.shape[dim], 1))
    return made


def _alike(expected: Any, got: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return type(expected) is type(got) and bool(expected == got)
    if expected.dtype != got.dtype or expected.shape != got.shape:
        return False
    if not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(expected, got)
    finite = expected[expected.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return torch.allclose(got, expected, 0.0, max(TOLERANCE * scale, 1e-6), equal_nan=True)


__all__ = ["PromisedSizes"]
