"""Packed sequences in programs that are recorded.

The sizes of packed sequences, and of all values computed from them, depend on values. As long as a program only passes
packed sequences to recurrent layers and pads the results, its graph contains padded sequences in their place
(:mod:`corsac._padded`), whose sizes are known. The program itself gets PyTorch's packed sequences. If it uses them in any
other way, they become nodes, and the control flow depends on their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corsac import _padded
from corsac._capture.refusal import who_runs
from corsac._capture.sizes import TYPES
from corsac._pytorch.aten import storage_of, tensors_in
from corsac._pytorch.functions import METADATA
from corsac.fx.proxy import TraceError

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder

PACK, PAD = torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence
_LAYERS: dict[Any, Callable[..., tuple[Tensor, ...]]] = {
    torch.lstm: _padded.lstm,
    torch.gru: _padded.gru,
    torch.rnn_tanh: _padded.rnn_tanh,
    torch.rnn_relu: _padded.rnn_relu,
}


@dataclass(slots=True, eq=False)
class _Sequences:
    """A packed sequence of the program, and the padded sequences of the graph.

    Attributes:
        data: the rows of all time steps, one after the other.
        padded: the padded sequences.
        batch_first: whether the batch is the first dimension of these, otherwise the second one.
    """

    data: Tensor
    padded: Tensor
    batch_first: bool

    def steps_first(self) -> Tensor:
        return self.padded.transpose(0, 1) if self.batch_first else self.padded


@dataclass(slots=True, eq=False)
class _Batch:
    """Packed sequences of the same lengths: the first one, and the outputs of layers for it.

    Attributes:
        lengths: the lengths, in descending order.
        sizes: the batch sizes of all time steps, a tensor of the program.
        sequences: the packed sequences.
        count: the number of sequences, a tensor of the program.
        longest: the largest length, once the program has read it: a symbolic size, or a number that depends on values
            if it is less than the number of time steps.
        storages: those of the padded sequences and their lengths.
        is_changed: whether the program has written to this memory.
    """

    lengths: Tensor
    sizes: Tensor
    sequences: list[_Sequences] = field(default_factory=list)
    count: Tensor | None = None
    longest: int | None = None
    storages: set[int] = field(default_factory=set)
    is_changed: bool = False


class PackedSequences:
    """The packed sequences of a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        #: Batches by the ids of the tensors that packed sequences consist of.
        self.batches: dict[int, _Batch] = {}

    def found(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any] | None:
        """Return a callable that computes and records a call with packed sequences; None if it has none among its
        arguments, or if these have become nodes."""
        if function == PACK:
            return self._packing(*args) if not kwargs and len(args) == 3 else None
        if not self.batches:
            return None
        found = (self.batches.get(id(own)) for own in tensors_in(args, kwargs))
        batches = {own for own in found if own is not None}
        if not batches:
            return None
        batch, *others = batches
        if batch.is_changed:
            self._recorder.refuse("it writes to what it has packed")
            return None
        composed = None if others or not args else self._composed(batch, function, args, kwargs)
        if composed is None:
            self.release(tensors_in(args, kwargs))
        return composed

    def release(self, tensors: Iterable[Tensor]) -> None:
        """Make nodes of those tensors that belong to packed sequences; control flow depends on their sizes then."""
        for own in tensors:
            batch = self.batches.get(id(own))
            if batch is not None:
                self._release(batch)

    def _release(self, batch: _Batch) -> None:
        recorder = self._recorder
        for key in [key for key, own in self.batches.items() if own is batch]:
            del self.batches[key]
        if batch.is_changed:
            recorder.refuse("it writes to what it has packed")
            return
        try:
            for own in batch.sequences:
                args = own.padded, batch.lengths, own.batch_first
                recorder.made_before(PACK, args, {}, (own.data, batch.sizes))
            if batch.count is not None:
                recorder.made_before(Tensor.__getitem__, (batch.sizes, 0), {}, batch.count)
            recorder.values.sizes_read([batch.sizes, *(own.data for own in batch.sequences)])
        except TraceError as error:
            recorder.refuse(str(error), who_runs(error))

    def _packing(
        self, padded: Tensor, lengths: Tensor, batch_first: bool
    ) -> Callable[[], Any] | None:
        if (
            self._recorder.trains
            or self._recorder.values.nodes is None
            or padded.dim() != 3
            or padded.numel() == 0
            or lengths.dim() != 1
            or lengths.dtype is not torch.int64
            or lengths.numel() != padded.size(0 if batch_first else 1)
        ):
            return None

        def pack() -> Any:
            data, sizes = self._computed(PACK, padded, lengths, batch_first)
            batch = _Batch(lengths, sizes)
            self._know(batch, _Sequences(data, padded, batch_first))
            self.batches[id(sizes)] = batch
            return data, sizes

        return pack

    def _know(self, batch: _Batch, own: _Sequences) -> None:
        batch.sequences.append(own)
        batch.storages.update(map(storage_of, (own.padded, batch.lengths)))
        self.batches[id(own.data)] = batch

    def written(self, storage: int | None) -> None:
        """Note a write to this memory."""
        for batch in self.batches.values():
            batch.is_changed = batch.is_changed or storage in batch.storages

    def _computed(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call that is not recorded."""
        with torch._C.DisableTorchFunction():
            return self._recorder.watch.computed(function, args, {})

    def _composed(
        self, batch: _Batch, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any] | None:
        recorder, first = self._recorder, batch.sequences[0]
        if function in TYPES and len(args) == 1 and not kwargs:
            return lambda: self._computed(function, *args)
        if function in METADATA:
            is_size = function is Tensor.size and len(args) + len(kwargs) == 2
            dim = [*args[1:], *kwargs.values()][0] if is_size else None
            if args[0] is batch.sizes and dim in (0, -1):
                return lambda: self._steps(batch)
            if args[0] is not batch.sizes and dim in (1, -1):
                (own,) = (own for own in batch.sequences if own.data is args[0])
                return lambda: recorder.size_of(own.padded, 2)
            return None
        if function == Tensor.__getitem__ and args[0] is batch.sizes and type(args[1]) is int:
            return (lambda: self._counted(batch)) if args[1] == 0 else None

        def rows() -> int:
            return recorder.size_of(first.padded, 0 if first.batch_first else 1)

        if batch.count is not None and function == Tensor.__int__ and args[0] is batch.count:
            return rows
        if batch.count is not None and function is torch.zeros and not tensors_in(kwargs):
            return lambda: torch.zeros(
                *(rows() if own is batch.count else own for own in args), **kwargs
            )
        given = next((own for own in batch.sequences if own.data is args[0]), None)
        if given is None or kwargs or len(args) < 2 or args[1] is not batch.sizes:
            return None
        if function in _LAYERS and len(args) == 9 and not (args[6] and args[7]):
            return lambda: self._layer(batch, given, function, args)
        full = given.padded.size(1 if given.batch_first else 0)
        if (
            function == PAD
            and len(args) == 5
            and batch.longest is not None
            and (args[4] is batch.longest or args[4] == full)
        ):
            is_short = args[4] is batch.longest and args[4] != full
            return lambda: self._padding(batch, given, args[2], args[3], is_short)
        return None

    def _steps(self, batch: _Batch) -> int:
        """Return the largest length. Control flow depends on whether it is the number of time steps; if it is not, it
        does not depend on the length itself, until the program reads a size that does."""
        if batch.longest is None:
            first = batch.sequences[0]
            full = self._recorder.size_of(first.padded, 1 if first.batch_first else 0)
            most = batch.lengths.amax()
            batch.longest = full if bool(most == full) else self._recorder.values.number_read(most)
        return batch.longest

    def _counted(self, batch: _Batch) -> Tensor:
        if batch.count is None:
            batch.count = self._computed(Tensor.__getitem__, batch.sizes, 0)
            self.batches[id(batch.count)] = batch
        return batch.count

    def _layer(
        self, batch: _Batch, given: _Sequences, function: Any, args: tuple[Any, ...]
    ) -> tuple[Tensor, ...]:
        rest = (given.steps_first(), batch.lengths, *args[2:])
        padded, *state = self._recorder.whole(_LAYERS[function], rest, {})
        data, _ = self._computed(PACK, padded, batch.lengths, False)
        self._know(batch, _Sequences(data, padded, False))
        return (data, *state)

    def _padding(
        self, batch: _Batch, given: _Sequences, batch_first: bool, value: float, is_short: bool
    ) -> tuple[Tensor, Tensor]:
        padded = given.steps_first()
        if given is batch.sequences[0] or value != 0:
            # The input of a layer may have any elements where a sequence has ended.
            steps = torch.arange(
                self._recorder.size_of(given.padded, 1 if given.batch_first else 0)
            )
            ended = steps.unsqueeze(1) >= batch.lengths
            padded = padded.masked_fill(ended.unsqueeze(2), value)
        if is_short:
            padded = self._recorder.whole(_padded.until_longest, (padded, batch.lengths), {})
        else:
            padded = padded.clone(memory_format=torch.contiguous_format)
        return padded.transpose(0, 1) if batch_first else padded, batch.lengths.clone()


__all__ = ["PACK", "PAD", "PackedSequences"]
