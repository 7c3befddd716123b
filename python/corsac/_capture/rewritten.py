"""Checks of programs that write to existing tensors: state whose values differ between calls is an input to them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch

from corsac._pytorch.aten import key_of_tensor, storages_in

#: Begin and end of a tensor's memory.
_Span = tuple[int, int]


class Rewritten:
    """Check before a run of a program that writes to existing tensors.

    Args:
        tensors: tensors that it takes as inputs, after its arguments and those found in state.
        overwritten: indices of the inputs that it writes to; ``tensors`` are the last inputs.
        weights: its other tensors.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        overwritten: Sequence[int],
        weights: Iterable[torch.Tensor],
    ) -> None:
        self.tensors, self.overwritten = tuple(tensors), tuple(overwritten)
        self._keys = tuple(map(key_of_tensor, tensors))
        spans = sorted(map(_span, weights))
        self._starts = [start for start, _ in spans]
        #: For each span, the largest end of it and those before it.
        self._ends = list(itertools.accumulate((end for _, end in spans), max))

    def are_current(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether its tensors have the right types, and those that it writes to share no memory with other tensors."""
        if tuple(map(key_of_tensor, self.tensors)) != self._keys:
            return False
        if torch.is_grad_enabled() and any(own.requires_grad for own in self.tensors):
            return False
        if not self.overwritten:
            return True
        written = [inputs[number] for number in self.overwritten]
        in_inference = torch.is_inference_mode_enabled()
        return all(
            own.is_contiguous() and (in_inference or not own.is_inference()) for own in written
        ) and not self._overlaps(inputs)

    def _overlaps(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether inputs that it writes to share memory with other inputs or with weights."""
        spans = [(*_span(own), number in self.overwritten) for number, own in enumerate(inputs)]
        for start, end, is_written in spans:
            if is_written and self._is_among_weights(start, end):
                return True
        spans.sort()
        reached = reached_by_written = 0
        for start, end, is_written in spans:
            if start == end:
                continue
            if start < (reached if is_written else reached_by_written):
                return True
            reached = max(reached, end)
            if is_written:
                reached_by_written = max(reached_by_written, end)
        return False

    def _is_among_weights(self, start: int, end: int) -> bool:
        before = bisect.bisect_left(self._starts, end)
        return start < end and before > 0 and self._ends[before - 1] > start


class WrittenInTraining:
    """Check before a run of a training program that writes to existing tensors.

    Args:
        weights: the tensors besides inputs that it reads or writes to.
        written: those of them that it writes to.
        inputs: indices of the inputs that it writes to.
    """

    tensors: ClassVar[tuple[torch.Tensor, ...]] = ()

    def __init__(
        self,
        weights: Iterable[torch.Tensor],
        written: Iterable[torch.Tensor],
        inputs: Sequence[int],
    ) -> None:
        self._written, self._inputs = tuple(written), tuple(inputs)
        # Needed only if inputs are written to.
        self._weights = tuple(weights) if inputs else ()

    def are_current(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether no input shares memory with another tensor that is written to."""
        lie = storages_in(inputs)
        storages = set(lie)
        if not storages.isdisjoint(storages_in(self._written)):
            return False
        if not self._inputs:
            return True
        return len(storages) == len(lie) and not storages.intersection(
            storages_in(self._weights)
        ).intersection(lie[number] for number in self._inputs)


def _span(own: torch.Tensor) -> _Span:
    storage = own.untyped_storage()
    start = storage.data_ptr()
    return start, start + storage.nbytes()


__all__ = ["Rewritten", "WrittenInTraining"]
