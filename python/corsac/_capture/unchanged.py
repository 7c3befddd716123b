"""Models that are as they were before a call of theirs."""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

#: Built-in classes of containers, whose methods run no code of the program.
_CONTAINERS = (OrderedDict, dict, list, deque, set)
#: Classes of tensors whose memory may be replaced.
_TENSORS = (torch.Tensor, nn.Parameter)


class Unchanged:
    """Undoes in the end what a program changes: elements and memory of tensors, attributes of its modules, and containers
    in these. Other objects, and global variables, are not restored.

    Args:
        program: a module, a method of one, or a function that has modules as its variables.
    """

    def __init__(self, program: Callable[..., Any]) -> None:
        #: Containers, with what was in them.
        self._contents: list[tuple[Any, list[Any]]] = []
        #: Tensors, with the memory that they had.
        self._memory: list[tuple[torch.Tensor, torch.Tensor]] = []
        #: Memory that was written to, by address, with a copy.
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        known: set[int] = set()
        for root in _roots(program):
            for module in root.modules():
                self._note(vars(module), known)
                if isinstance(module, _NormBase) and module.training:
                    # Their operators do not declare that they write to them.
                    for statistics in (module.running_mean, module.running_var):
                        if statistics is not None:
                            self.keep(statistics)

    def _note(self, own: Any, known: set[int]) -> None:
        """Note a tensor or a container, and what is in it."""
        left = [own]
        while left:
            own = left.pop()
            if id(own) in known or not isinstance(own, (torch.Tensor, tuple, *_CONTAINERS)):
                continue
            known.add(id(own))
            if isinstance(own, torch.Tensor):
                if type(own) in _TENSORS and own.layout is torch.strided:
                    self._memory.append((own, own.data))
                continue
            contents = _contents(own)
            if not isinstance(own, tuple):
                self._contents.append((own, contents))
            left += [value for _, value in contents] if isinstance(own, dict) else contents

    def keep(self, own: torch.Tensor) -> None:
        """Copy the memory of a tensor that is about to be written to."""
        storage = own.untyped_storage()
        if storage.data_ptr() not in self._copies:
            self._copies[storage.data_ptr()] = storage, storage.clone()

    def restore(self) -> None:
        """Undo the changes."""
        for own, contents in self._contents:
            if not _are_same(_contents(own), contents):
                _fill(own, contents)
        for tensor, memory in self._memory:
            if (tensor.data_ptr(), tensor.shape, tensor.stride()) != (
                memory.data_ptr(),
                memory.shape,
                memory.stride(),
            ):
                tensor.data = memory
        for storage, copy in self._copies.values():
            # Memory of others, such as arrays, has one size.
            if storage.nbytes() != copy.nbytes():
                storage.resize_(copy.nbytes())
            storage.copy_(copy)


@contextlib.contextmanager
def unchanged(program: Callable[..., Any]) -> Iterator[Unchanged]:
    """Undo in the end what the block changes of a program, and its use of random numbers."""
    kept = Unchanged(program)
    random = torch.get_rng_state()
    try:
        yield kept
    finally:
        kept.restore()
        torch.set_rng_state(random)


def _roots(program: Any) -> list[nn.Module]:
    """The modules of a program."""
    found = [program, getattr(program, "__self__", None)]
    for own in (program, getattr(program, "forward", None)):
        if isinstance(own, types.FunctionType):
            for cell in own.__closure__ or ():
                with contextlib.suppress(ValueError):
                    # It may be empty.
                    found.append(cell.cell_contents)
    return [own for own in found if isinstance(own, nn.Module)]


def _base(own: Any) -> Any:
    return next(base for base in (tuple, *_CONTAINERS) if isinstance(own, base))


def _contents(own: Any) -> list[Any]:
    base = _base(own)
    return list(base.items(own) if issubclass(base, dict) else base.__iter__(own))


def _are_same(now: list[Any], before: list[Any]) -> bool:
    def parts(own: list[Any]) -> list[int]:
        return [id(part) for each in own for part in (each if type(each) is tuple else (each,))]

    return len(now) == len(before) and parts(now) == parts(before)


def _fill(own: Any, contents: list[Any]) -> None:
    base = _base(own)
    base.clear(own)
    (base.extend if base in (list, deque) else base.update)(own, contents)


__all__ = ["Unchanged", "unchanged"]
