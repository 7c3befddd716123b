"""Memory of the tensors of a program that is being recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from corsac._capture.recording_options import RecordingOptions
from corsac._pytorch.aten import storage_of, storages_in
from corsac.fx.proxy import TraceError


class RecordedMemory:
    """Memory that existed before the program ran, and memory that it has written to.

    Args:
        options: constructs that the program may contain.

    Attributes:
        existing: memory of existing tensors, which the program may write to only in some cases.
        overwritten: existing memory that it has written to.
        selected: memory of tensors of which a one-element index tensor selects a part: in graphs that part is a copy.
    """

    def __init__(self, options: RecordingOptions) -> None:
        self._options = options
        self.existing: set[int] = set()
        self.overwritten: set[int] = set()
        self.selected: set[int] = set()
        #: Existing memory that programs for training may write to.
        self._writable_in_training: set[int] = set()
        #: Number of reads of values before the first view of existing memory was made.
        self._views: dict[int, int] = {}
        #: Number of reads of values before a tensor was made, by its memory.
        self._ages: dict[int, int] = {}

    def add_input(self, own: torch.Tensor) -> None:
        """Add an input of the graph."""
        self.existing.add(storage_of(own))
        if self._options.trains and not (own.is_leaf and own.requires_grad):
            self._writable_in_training.add(storage_of(own))

    def made(self, storages: Iterable[int], reads: int) -> None:
        """Note the memory of tensors made after so many reads of values."""
        self._ages.update(dict.fromkeys(storages, reads))

    def age(self, storage: int | None) -> int | None:
        """Number of reads of values before the tensor was made; None if that is not known."""
        return None if storage is None else self._ages.get(storage)

    def viewed(self, own: torch.Tensor, reads: int) -> None:
        """Note a view of existing memory, made after so many reads of values."""
        self._views.setdefault(storage_of(own), reads)

    def overwrite(self, storage: int, reads: int) -> bool:
        """Note a write to existing memory after so many reads of values; return whether it is allowed."""
        if self._options.trains:
            # AOTAutograd supports it if no other tensor shares the memory.
            return storage in self._writable_in_training
        if self._options.rewritten is None:
            return False
        if self._views.get(storage, reads) < reads:
            # Stages would pass views of it on.
            return False
        self.overwritten.add(storage)
        return True

    def indices_overwritten(self, inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The indices of the inputs that the program has written to."""
        if not self.overwritten:
            return ()
        return tuple(n for n, own in enumerate(inputs) if storage_of(own) in self.overwritten)

    def rewritten(
        self, inputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Those of the weights whose values differ between calls.

        Raises:
            TraceError: the program writes to memory that several of the tensors share.
        """
        storages = [storage_of(own) for own in (*inputs, *weights)]
        if any(storages.count(storage) > 1 for storage in self.overwritten):
            raise TraceError("it writes to a tensor that shares memory with another one")
        known = self._options.rewritten or ()
        return [
            own
            for own, storage in zip(weights, storages[len(inputs) :], strict=True)
            if storage in self.overwritten or id(own) in known
        ]

    def shares_selected(self, results: Sequence[torch.Tensor]) -> bool:
        """Whether results share selected memory, with each other or with existing tensors."""
        selected = [own for own in storages_in(results) if own in self.selected]
        return len(selected) != len(set(selected)) or any(own in self.existing for own in selected)


__all__ = ["RecordedMemory"]
