"""Comments about nodes in verbose code: source, shape and metadata."""

from __future__ import annotations

import dataclasses
import pprint
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import py_sym_types
from torch.fx.passes.shape_prop import TensorMetadata

try:
    from torch.utils._dtype_abbrs import dtype_abbrs
except ImportError:  # before torch 2.7
    from torch.fx.graph import dtype_abbrs

if TYPE_CHECKING:
    from .node import Node

#: A node; the comment above it; its type annotation's replacement; descriptions; metadata.
Note = tuple["Node", str | None, str | None, list[str] | None, str | None]

_FRAME = re.compile(r'^File "(.+)", line (\d+), in (.+)$')
_LONGEST_CUSTOM_VALUE = 40

_RED = "\033[31m"
_BLUE = "\033[34m"
_DIM_BLUE = "\033[2m\033[34m"
_DIM_GREEN = "\033[2m\033[32m"
_RESET = "\033[0m"


@dataclasses.dataclass(frozen=True)
class _ParsedStackTrace:
    """One frame of a stack trace."""

    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        """The frame on one line."""
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


def _parse_stack_trace(
    stack_trace: str | None, filter_fn: Callable[[str, str, str], bool] | None = None
) -> _ParsedStackTrace | None:
    """The innermost frame of a formatted stack trace.

    Args:
        stack_trace: a text as :func:`traceback.format_list` formats it.
        filter_fn: is called with file, function and code of a frame; frames for which it is false are
            skipped.
    """
    if stack_trace is None:
        return None
    lines = [line.strip() for line in stack_trace.strip().split("\n")]
    for line, code in zip(reversed(lines[:-1]), reversed(lines[1:]), strict=True):
        if frame := _FRAME.match(line):
            file, lineno, name = frame.groups()
            if filter_fn is None or filter_fn(file, name, code):
                return _ParsedStackTrace(file, lineno, name, code)
    return None


def tensor_annotation(tensor: torch.Tensor) -> str:
    """Type, shape, strides and device of a tensor: ``Tensor "f32[2, 3][3, 1]cpu"``."""
    from torch._subclasses.meta_utils import is_sparse_compressed_layout

    stride = "" if is_sparse_compressed_layout(tensor.layout) else _shape(tensor.stride())
    size = f"{dtype_abbrs[tensor.dtype]}{_shape(tensor.shape)}"
    return f'Tensor "{size}{stride}{_device_annotation(tensor.device)}"'


def _device_annotation(device: torch.device) -> str:
    try:
        from torch.fx.node import _device_annotation as annotation
    except ImportError:  # before torch 2.12
        return str(device)
    return annotation(device)


def _shape(sizes: Iterable[object]) -> str:
    return f"[{', '.join(str(size) for size in sizes)}]"


@dataclasses.dataclass(frozen=True)
class NoteStyle:
    """Selection and style of the comments about nodes."""

    verbose: bool
    stride: bool
    device: bool
    metadata: bool
    expanded: bool
    colored: bool
    additional_meta: list[str] | None
    sym_repr: Callable[[Any], str]

    def notes(self, nodes: Iterable[Node]) -> list[Note]:
        """The comments about all nodes that have any."""
        found = []
        for node in nodes:
            comment = annotation = None
            if self.verbose:
                if node.op not in ("placeholder", "output"):
                    comment = self._comment(node)
                annotation = self._annotation(node)
            descriptions = self._descriptions(node) if self.expanded else None
            metadata = self._metadata(node) if self.metadata else None
            if comment or annotation or descriptions is not None or metadata:
                found.append((node, comment, annotation, descriptions, metadata))
        return found

    def _paint(self, codes: str, text: str) -> str:
        return f"{codes}{text}{_RESET}" if self.colored else text

    def _comment(self, node: Node) -> str:
        meta = node.meta
        extra = [f"{key}: {meta[key]}" for key in self.additional_meta or () if key in meta]
        text = f"# {', '.join(extra)} " if extra else ""
        text += "#"
        if custom := meta.get("custom", {}):
            text += f" Annotation: { ({key: _shorten(value) for key, value in custom.items()}) }"
        recompute, checkpoint = meta.get("recompute"), meta.get("ac_graph_id")
        if checkpoint is not None:
            text += f" ac_graph_id: {checkpoint}"
            if recompute is not None:
                text += f" - {recompute.name}"
        elif recompute is not None:
            text += f" recompute: {recompute.name}"
        return f"{text} {self._source(node)}"

    @staticmethod
    def _source(node: Node) -> str:
        trace = node.stack_trace
        frame = _parse_stack_trace(trace) if trace else None
        if frame is None:
            return "No stacktrace found for following nodes"
        summary = frame.get_summary_str()
        if node.meta.get("autograd_backward", False):
            return f"Backward of forward node: {summary}"
        return summary

    def _annotation(self, node: Node) -> str | None:
        """The value's type and shape, as a string literal."""
        meta = node.meta
        value = meta.get("val", meta.get("tensor_meta", meta.get("example_value")))
        if isinstance(value, torch.Tensor):
            return self._quoted(self._tensor(value))
        if isinstance(value, py_sym_types):
            return self._quoted(f"Sym({self.sym_repr(value)})")
        if isinstance(value, TensorMetadata):
            return self._quoted(f"{dtype_abbrs[value.dtype]}{_shape(value.shape)}")
        return None

    @staticmethod
    def _quoted(text: str) -> str:
        if '"' in text or "\\" in text or "\n" in text:
            return repr(text)
        return f'"{text}"'

    def _tensor(self, tensor: torch.Tensor) -> str:
        from torch._subclasses.meta_utils import is_sparse_compressed_layout

        stride = ""
        if self.stride and not is_sparse_compressed_layout(tensor.layout):
            stride = _shape(tensor.stride())
        device = _device_annotation(tensor.device) if self.device else ""
        core = (
            self._paint(_RED, dtype_abbrs[tensor.dtype])
            + self._paint(_BLUE, _shape(tensor.shape))
            + self._paint(_DIM_BLUE, stride)
            + self._paint(_DIM_GREEN, device)
        )
        cls = type(tensor)
        if cls is torch.Tensor or isinstance(tensor, torch._subclasses.FakeTensor):
            return core
        if placement := self._placement(tensor):
            return f"{cls.__name__}({core}, {self._paint(_DIM_GREEN, placement)})"
        return f"{cls.__name__}({core})"

    @staticmethod
    def _placement(tensor: Any) -> str | None:
        """The placements of a distributed tensor."""
        try:
            from torch.distributed.tensor._api import DTensor, DTensorSpec
        except ModuleNotFoundError:
            return None
        if type(tensor) is not DTensor:
            return None
        spec = tensor._spec
        return DTensorSpec.format_shard_order_str(spec.placements, spec.shard_order)

    @staticmethod
    def _descriptions(node: Node) -> list[str] | None:
        described = node.meta.get("desc")
        if described is None or node.op not in ("placeholder", "output"):
            return None
        if node.op == "placeholder":
            return [str(described)]
        return [str(item) for item in described]

    @staticmethod
    def _metadata(node: Node) -> str | None:
        lines = [
            f"{key}: {pprint.pformat(str(value), width=80, compact=True)}"
            for key, value in node.meta.items()
        ]
        return "\n".join(lines) or None


def _shorten(value: Any) -> Any:
    text = str(value)
    return text[:_LONGEST_CUSTOM_VALUE] + "..." if len(text) > _LONGEST_CUSTOM_VALUE else value
