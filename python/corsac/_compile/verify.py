"""``CORSAC_VERIFY_CAPTURE=1``: each call that a recorded program runs is also run by PyTorch, and both are compared."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from corsac._capture.replay import found_now
from corsac._engine.native_graph import GraphFailed
from corsac._native.panic import EngineError
from corsac._pytorch.aten import storage_of
from corsac.passes._agreement import default_tolerance

if TYPE_CHECKING:
    from corsac._capture.calls import Call
    from corsac._compile.recorded_programs import NativeProgram

#: Whether calls are verified in this process.
ON = os.environ.get("CORSAC_VERIFY_CAPTURE", "0") not in ("", "0")
#: Tolerances of results, relative to the largest element, by the precision of the engine.
TOLERANCES = {"f32": 1e-4, "bf16": 5e-2}
#: Tolerance for other precisions.
COARSE = 0.2


class VerifyError(AssertionError):
    """A recorded program differs from PyTorch in its result or in its changes."""


def verified(
    program: NativeProgram,
    call: Call,
    weights: Iterable[torch.Tensor],
    run: Callable[[], Any],
    precision: str,
    shares: bool,
) -> Any:
    """Make a call by a recorded program and by PyTorch, and compare them; PyTorch's results and changes are kept.

    Args:
        program: the recorded program; it changes no state here.
        call: the call, with the values found by guards.
        weights: tensors that it may write to besides its inputs.
        run: makes the call by PyTorch.
        precision: as for :func:`corsac.compile`.
        shares: whether results must share memory as PyTorch's do, with the same strides.

    Raises:
        VerifyError: they differ.
    """
    call.rewind()
    tensors = {id(own): own for own in (*call.inputs, *weights)}
    written = [_Kept(own) for own in tensors.values()]
    random = torch.get_rng_state()
    outcome = None
    # PyTorch repeats calls that fail.
    with contextlib.suppress(ValueError, EngineError, GraphFailed):
        outcome = program.outcome(call)
    drawn = torch.get_rng_state()
    torch.set_rng_state(random)
    for own in written:
        own.swap()
    if outcome is None:
        return run()
    returned, edits = outcome
    # PyTorch rounds the results of all calls to the types of inputs and weights.
    of_types = default_tolerance(list(tensors.values()))
    tolerance = max(TOLERANCES.get(precision, COARSE), of_types)
    compare = _Compare(tolerance, call.inputs, shares)
    try:
        expected = run()
    except Exception as error:
        raise VerifyError(f"{_described(call)}: PyTorch raises {error!r}") from error
    compare(returned, expected, "the result")
    is_set = {(id(own), key) for own, kind, key, _ in edits if kind == "set"}
    for edit in edits:
        if edit[1] == "delete" and (id(edit[0]), edit[2]) in is_set:
            continue
        for number, (own, then) in enumerate(zip(*found_now(edit), strict=True)):
            compare(own, then, f"{edit[1]} {edit[2]!r} of a {type(edit[0]).__name__}, {number}")
    for own in written:
        made = own.before if own.changed is None else own.changed
        compare.elements(made, own.tensor.detach(), "what an input or a weight holds")
    compare.memory()
    if not torch.equal(drawn, torch.get_rng_state()):
        compare.found.append("random numbers were drawn")
    if compare.found:
        raise VerifyError(f"{_described(call)}: {'; '.join(compare.found[:5])}")
    return expected


def _described(call: Call) -> str:
    return f"a recorded program for ({call.describe()}) differs from PyTorch"


class _Kept:
    """The old values of a tensor, and the new ones that a program has written."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        with torch.no_grad():
            self.before = tensor.detach().clone()
        self.changed: torch.Tensor | None = None

    def swap(self) -> None:
        """Keep the present values if they have changed, and restore the old ones."""
        own = self.tensor
        if own.shape != self.before.shape or not _are_bits(own.detach(), self.before):
            with torch.no_grad():
                self.changed = own.detach().clone()
                own.detach().copy_(self.before)


def _are_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype.is_floating_point:
        return torch.equal(left.nan_to_num(17.0), right.nan_to_num(17.0))
    return torch.equal(left, right)


def _overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have elements in common."""
    if left.layout is not torch.strided or right.layout is not torch.strided:
        return False
    if not left.numel() or not right.numel() or storage_of(left) != storage_of(right):
        return False
    return bool(torch.isin(_elements(left), _elements(right)).any())


def _elements(own: torch.Tensor) -> torch.Tensor:
    """Offsets of the elements of a tensor in its storage, in bytes."""
    places = torch.tensor(own.storage_offset())
    for size, stride in zip(own.shape, own.stride(), strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return places.flatten() * own.element_size()


class _Compare:
    """Compares values, and collects differences in :attr:`found`.

    Args:
        tolerance: tolerance of elements, relative to the largest one.
        inputs: the inputs of both calls.
        shares: as for :func:`verified`.
    """

    def __init__(self, tolerance: float, inputs: Sequence[torch.Tensor], shares: bool) -> None:
        self._tolerance, self._shares = tolerance, shares
        self.found: list[str] = []
        #: Ids of objects of PyTorch's call, by ids of those of the program.
        self._objects: dict[int, int] = {}
        self._held: list[Any] = []
        #: Pairs of tensors of the program and of PyTorch's call, with a description.
        self._tensors: list[tuple[torch.Tensor, torch.Tensor, str]] = []
        for number, own in enumerate(inputs):
            self._is_pair(own, own)
            self._tensors.append((own, own, f"input {number}"))

    def _is_pair(self, own: Any, other: Any) -> bool:
        """Whether two objects correspond; a pair of new objects does from now on."""
        pairs = self._objects
        if id(own) in pairs or id(other) in pairs.values():
            return pairs.get(id(own)) == id(other)
        pairs[id(own)] = id(other)
        return True

    def memory(self) -> None:
        """Note pairs of tensors that share elements in only one of the calls."""
        for (own, then, where), (other, its, there) in itertools.combinations(self._tensors, 2):
            if _overlap(own, other) != _overlap(then, its):
                self.found.append(f"{where} and {there} share elements, or do not")

    def __call__(self, own: Any, then: Any, where: str) -> None:
        self._held += own, then
        if isinstance(own, torch.Tensor) and isinstance(then, torch.Tensor):
            self._tensor(own, then, where)
            return
        if own is then:
            return
        if type(own) is not type(then):
            self.found.append(f"{where} is a {type(own).__name__}, not a {type(then).__name__}")
        elif isinstance(own, bool | int | str | bytes | type(None)):
            if own != then:
                self.found.append(f"{where} is {own!r}, not {then!r}")
        elif isinstance(own, float | complex):
            left, right = torch.tensor(own), torch.tensor(then)
            if not torch.allclose(left, right, self._tolerance, 1e-6, equal_nan=True):
                self.found.append(f"{where} is {own!r}, not {then!r}")
        elif isinstance(own, tuple):
            self._all(own, then, where)
        elif not self._is_pair(own, then):
            self.found.append(f"{where} is not the same object as somewhere else, or is")
        elif isinstance(own, dict):
            self._all([*own], [*then], f"the keys of {where}")
            self._all([*own.values()], [*then.values()], where)
        elif isinstance(own, list | deque):
            self._all(own, then, where)
        elif isinstance(own, set | frozenset):
            if own != then:
                self.found.append(f"{where} is {own!r}, not {then!r}")
        elif hasattr(own, "__dict__"):
            self(vars(own), vars(then), f"attributes of {where}")
        elif own != then:
            self.found.append(f"{where} is {own!r}, not {then!r}")

    def _all(self, own: Any, then: Any, where: str) -> None:
        if len(own) != len(then):
            self.found.append(f"{where} has {len(own)} elements, not {len(then)}")
            return
        for number, (left, right) in enumerate(zip(own, then, strict=True)):
            self(left, right, f"{where}[{number}]")

    def _memory_of(self, own: torch.Tensor, then: torch.Tensor, where: str) -> None:
        if own.is_inference() is not then.is_inference():
            self.found.append(f"{where} is a tensor of inference mode, or is not")
        strides = zip(own.stride(), then.stride(), own.shape, strict=True)
        if own.numel() and any(left != right for left, right, size in strides if size > 1):
            self.found.append(f"strides of {where} are {own.stride()}, not {then.stride()}")
        if not self._is_pair(own, then):
            self.found.append(f"{where} is not the same tensor as somewhere else, or is")
        self._tensors.append((own, then, where))

    def _tensor(self, own: torch.Tensor, then: torch.Tensor, where: str) -> None:
        for name in ("dtype", "shape", "requires_grad", "layout"):
            left, right = getattr(own, name), getattr(then, name)
            if left != right:
                self.found.append(f"{name} of {where} is {left}, not {right}")
                return
        if own.layout is not torch.strided:
            return
        if self._shares:
            self._memory_of(own, then, where)
        self.elements(own, then, where)

    def elements(self, own: torch.Tensor, then: torch.Tensor, where: str) -> None:
        """Compare the sizes and elements of strided tensors of one type."""
        left, right = own.detach(), then.detach()
        if left.shape != right.shape:
            self.found.append(f"{where} has the size {list(left.shape)}, not {list(right.shape)}")
            return
        if left.dtype.is_floating_point or left.dtype.is_complex:
            finite = right[right.isfinite()].abs()
            scale = max(1.0, finite.max().item() if finite.numel() else 0.0)
            if not torch.allclose(left, right, 0.0, self._tolerance * scale, equal_nan=True):
                apart = (left - right).abs().nan_to_num().max().item()
                self.found.append(f"{where} is apart by {apart:.3g}, of {scale:.3g}")
        elif not torch.equal(left, right):
            self.found.append(f"{where} has other values")


__all__ = ["ON", "VerifyError", "verified"]
