"""State of model files: the buffers of models that calls read and write."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import nn

from corsac._engine.native_graph import CompileError
from corsac._files.weights import bytes_of
from corsac._native.strides import each_once


class Buffers:
    """The buffers of modules, by their names in a model file.

    Args:
        roots: the modules by program. A buffer of several has its name in the first.
    """

    def __init__(self, roots: Mapping[str, nn.Module]) -> None:
        #: By name.
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}
        self._places: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor | None]] = []
        #: All tensors of the modules.
        self._all: list[tuple[str, torch.Tensor]] = []
        for program, root in roots.items():
            for module in root.modules():
                own_buffers = module._buffers
                self._places += [(own_buffers, key, own) for key, own in own_buffers.items()]
                self._all += _tensors_of(module)
            for name, own in root.named_buffers():
                if id(own) in self._names:
                    continue
                while name in self.tensors:
                    name = f"{program}.{name}"
                self.tensors[name] = own
                self._names[id(own)] = name

    def name(self, own: torch.Tensor) -> str:
        """The name of a tensor that is written to.

        Raises:
            CompileError: it is no buffer.
        """
        if id(own) not in self._names:
            kind = f"{own.dtype}{list(own.shape)}".removeprefix("torch.")
            raise CompileError(
                f"the model writes to a tensor ({kind}) that is no buffer of it: register it with register_buffer"
            )
        return self._names[id(own)]

    def chosen(self, names: Sequence[str]) -> list[str]:
        """These names, in the order of the buffers.

        Raises:
            ValueError: there is no such buffer.
        """
        for name in names:
            if name not in self.tensors:
                near = difflib.get_close_matches(str(name), self.tensors, 3, 0.3)
                known = f"; near it are {', '.join(near)}" if near else ""
                raise ValueError(f"state: {name!r} is no buffer of the model{known}")
        return [name for name in self.tensors if name in names]

    def check_alone(self, names: Sequence[str]) -> None:
        """Check that these buffers share memory with no other tensor of the modules: a file has each by itself.

        Raises:
            CompileError: one does.
        """
        for name in names:
            own = self.tensors[name]
            for other_name, other in self._all:
                if other is not own and _overlap(own, other):
                    raise CompileError(
                        f"state {name} shares memory with {other_name}: writes to one would have to change both"
                    )

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Undo in the end what the block does to the buffers."""
        before = {name: (own.data, own.data.clone()) for name, own in self.tensors.items()}
        try:
            yield
        finally:
            for buffers, key, own in self._places:
                buffers[key] = own
            for name, (memory, elements) in before.items():
                each_once(memory).copy_(each_once(elements, memory.stride()))
                self.tensors[name].data = memory

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Write these elements to buffers, in new memory where the sizes are others."""
        for name, value in values.items():
            own = self.tensors[name]
            if own.shape == value.shape:
                own.data.copy_(value)
            else:
                own.data = value.clone(memory_format=torch.contiguous_format)


def _tensors_of(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """The tensors that a module has itself."""
    own = {**vars(module), **module._parameters, **module._buffers}
    kind = type(module).__name__
    return [
        (f"{kind}.{name}", value) for name, value in own.items() if isinstance(value, torch.Tensor)
    ]


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors may have memory in common."""
    if one.layout != torch.strided or other.layout != torch.strided:
        return False
    (start, end), (other_start, other_end) = _span(one), _span(other)
    return start < other_end and other_start < end


def _span(own: torch.Tensor) -> tuple[int, int]:
    """The first byte, and that after the last one."""
    if own.numel() == 0:
        return 0, 0
    steps = sum((size - 1) * stride for size, stride in zip(own.shape, own.stride(), strict=True))
    return own.data_ptr(), own.data_ptr() + (steps + 1) * own.element_size()


def initial(name: str, own: torch.Tensor, symbolic: Collection[int]) -> torch.Tensor | None:
    """The initial value of state for the file, of size 1 in symbolic dimensions; None for zeros.

    Raises:
        CompileError: elements differ along a symbolic dimension.
    """
    if not bytes_of(own).any():
        return None
    for dim in symbolic:
        first = own.narrow(dim, 0, 1)
        if not (bytes_of(first.expand_as(own)) == bytes_of(own)).all():
            raise CompileError(
                f"state {name} has other elements along dimension {dim}, whose size is a symbol: they cannot be "
                "repeated for other sizes"
            )
        own = first
    return own


__all__ = ["Buffers", "initial"]
