"""The tensors that the graphs of a model file refer to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from corsac._engine.native_graph import CompileError
from corsac.fx import GraphModule
from corsac.fx._module_attributes import _assign_attr, _get_attr

#: Memory of a tensor, and how it lies there.
_Place = tuple[Any, ...]


def type_of(tensor: torch.Tensor) -> tuple[str, list[int]]:
    """The element type and the sizes of a tensor."""
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape)


def bytes_of(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor, row by row."""
    whole = tensor.detach().cpu().contiguous().reshape(-1)
    return whole.view(torch.uint8).numpy()


class FileWeights:
    """Tensors by their names in a file, each once.

    Args:
        reserved: names of tensors that are no weights.
    """

    def __init__(self, reserved: Collection[str] = ()) -> None:
        self._reserved = frozenset(reserved)
        self._tensors: dict[str, torch.Tensor] = {}
        self._names: dict[_Place, str] = {}
        self._graphs: dict[str, GraphModule] = {}

    def name(self, module: GraphModule, program: str = "") -> None:
        """Name the tensors of a graph, and graphs that it calls, as the file does: equal tensors have one name.

        Raises:
            CompileError: an attribute is no tensor.
        """
        for node in module.graph.find_nodes(op="get_attr"):
            target = str(node.target)
            value = _get_attr(module, target)
            if isinstance(value, GraphModule):
                node.target = self._graph_name(value, target, program)
                _assign_attr(value, module, node.target)
                continue
            if not isinstance(value, torch.Tensor):
                raise CompileError(f"{node.target} is a {type(value).__name__}, not a tensor")
            name = self._name(value, target, program)
            if name != target:
                _assign_attr(value, module, name)
            node.target = name

    def _name(self, value: torch.Tensor, name: str, program: str) -> str:
        check_name(name)
        place = _place(value)
        known = self._names.get(place)
        if known is None:
            known = name
            # Constants that two graphs have computed have the same name.
            while known in self._reserved or not self._is_free(known, value):
                known = f"{program or 'weights'}.{known}"
            self._tensors.setdefault(known, value)
            self._names[place] = known
        return known

    def _graph_name(self, value: GraphModule, name: str, program: str) -> str:
        # Without dots: a graph is no part of another one.
        known = f"{program}_{name}" if program else name
        while known in self._graphs or known in self._tensors or known in self._reserved:
            known += "_"
        self._graphs[known] = value
        self.name(value, known)
        return known

    def _is_free(self, name: str, value: torch.Tensor) -> bool:
        """Whether no other tensor has this name."""
        own = self._tensors.get(name)
        if own is None:
            return name not in self._graphs
        return type_of(own) == type_of(value) and bool((bytes_of(own) == bytes_of(value)).all())

    def add(self, name: str, value: torch.Tensor) -> None:
        """Add a tensor that no graph reads as a weight."""
        self._tensors[name] = value

    def types(self) -> list[tuple[str, str, list[int]]]:
        """Names, element types and sizes."""
        return [(name, *type_of(own)) for name, own in self._tensors.items()]

    def graphs(self) -> list[tuple[str, str]]:
        """The graphs that others call: names, and texts in the lossless form."""
        return [(name, own.graph.to_lossless()) for name, own in self._graphs.items()]

    def rows(self) -> list[Any]:
        """The types, with bytes."""
        rows = zip(self.types(), self._tensors.values(), strict=True)
        return [(spec, bytes_of(own)) for spec, own in rows]


def check_name(name: str) -> None:
    """Check that a tensor may have this name.

    Raises:
        CompileError: the format has another meaning for it.
    """
    if name == "__metadata__":
        raise CompileError(
            "the model has a tensor named __metadata__, the name of the metadata in safetensors files: rename it"
        )


def _place(value: torch.Tensor) -> _Place:
    if not value.numel():
        # It has no memory.
        return (id(value),)
    return value.data_ptr(), value.dtype, value.shape, value.stride()


__all__ = ["FileWeights", "bytes_of", "check_name", "type_of"]
