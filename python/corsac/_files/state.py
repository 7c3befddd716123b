"""State of model files: the buffers of models that calls read and write."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import nn

from corsac._engine.native_graph import CompileError
from corsac._files.weights import bytes_of


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
        for program, root in roots.items():
            for module in root.modules():
                own_buffers = module._buffers
                self._places += [(own_buffers, key, own) for key, own in own_buffers.items()]
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
                self.tensors[name].data = memory.copy_(elements)

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Write these elements to buffers, in new memory where the sizes are others."""
        for name, value in values.items():
            own = self.tensors[name]
            if own.shape == value.shape:
                own.data.copy_(value)
            else:
                own.data = value.clone(memory_format=torch.contiguous_format)


def initial(name: str, own: torch.Tensor, symbolic: Collection[int]) -> torch.Tensor | None:
    """The initial value of state for the file, of size 1 in symbolic dimensions; None for zeros.

    Raises:
        CompileError: elements differ along a symbolic dimension.
    """
    if not bytes_of(own).any():
        return None
    for dim in symbolic:
        first = own.narrow(dim, 0, 1)
        if not torch.equal(first.expand_as(own).nan_to_num(), own.nan_to_num()):
            raise CompileError(
                f"state {name} has other elements along dimension {dim}, whose size is a symbol: they cannot be "
                "repeated for other sizes"
            )
        own = first
    return own


__all__ = ["Buffers", "initial"]
