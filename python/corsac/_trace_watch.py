"""What a program does to real tensors while it is traced, which a graph would not do again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from corsac._aten import place_of, written_tensors
from corsac.fx import Graph, Node, Tracer
from corsac.fx._module_attributes import _get_attr
from corsac.fx.proxy import TraceError
from corsac.passes import effects


class TraceWatch(TorchDispatchMode):
    """Stops a trace before real random numbers are drawn, or a tensor from outside is written to.

    What a trace makes itself, such as ``torch.zeros(3)``, it may write to. Where the graph writes to
    it, each call would write to the same tensor: :meth:`check` finds that.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Tensors that the trace made, by where they lie.
        self._made: dict[int, torch.Tensor] = {}
        #: The first operator that read a tensor that the trace did not make.
        self.outside: str | None = None
        self._read: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise TraceError(f"{func} draws random numbers that do not depend on an input")
        given = list(_tensors((args, kwargs)))
        if func._schema.is_mutable:
            for tensor in written_tensors(func, args, kwargs):
                if not self.made(tensor):
                    raise TraceError(f"{func} writes to a tensor that the program did not make")
        result = func(*args, **kwargs)
        for own in given:
            if not self.made(own):
                self.outside = self.outside or str(func)
                self._read[id(own)] = own
        sources = {place_of(own) for own in given}
        for tensor in _tensors(result):
            if place_of(tensor) not in sources:
                self._made[place_of(tensor)] = tensor
        return result

    @property
    def read(self) -> list[torch.Tensor]:
        """The tensors that operators read and that the trace did not make."""
        return list(self._read.values())

    def made(self, tensor: torch.Tensor) -> bool:
        """Whether the trace made it."""
        return tensor.layout is torch.strided and place_of(tensor) in self._made

    def constants(self, graph: Graph, root: torch.nn.Module) -> set[Node]:
        """The nodes that may give, or be a view of, a tensor that the trace made."""
        found: set[Node] = set()
        for node in graph.nodes:
            if node.op == "get_attr":
                value = _get_attr(root, str(node.target))
                if isinstance(value, torch.Tensor) and self.made(value):
                    found.add(node)
            elif _reads(node, found) and found.intersection(effects(node).aliases):
                found.add(node)
        return found

    def check(self, graph: Graph, root: torch.nn.Module) -> None:
        """That no node writes to a tensor that was made once, when ``graph`` was traced.

        Raises:
            TraceError: one does.
        """
        constants = self.constants(graph, root)
        if not constants:
            return
        for node in graph.nodes:
            if _reads(node, constants) and constants.intersection(effects(node).mutates):
                raise TraceError(f"{node.name} writes to a tensor that each call has to make")


class WatchingTracer(Tracer):
    """A tracer that stops where autocast is switched on or off: graphs do not say so; and where a value
    decides, though the program catches the exception."""

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        self._autocast = _autocast()
        self._decided: TraceError | None = None
        graph = super().trace(root, concrete_args)
        if self._decided is not None:
            raise self._decided
        return graph

    def to_bool(self, obj: Any) -> bool:
        try:
            return super().to_bool(obj)
        except TraceError as error:
            self._decided = error
            raise

    def create_node(self, *args: Any, **kwargs: Any) -> Node:
        if _autocast() != self._autocast:
            raise TraceError("a part of it runs in autocast, or out of it")
        return super().create_node(*args, **kwargs)


class ModeWatch(TorchFunctionMode):
    """Stops a trace that switches gradients on or off: graphs do not say so."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch._C._set_grad_enabled:
            raise TraceError("it switches gradients on or off")
        return func(*args, **(kwargs or {}))


@contextmanager
def watched_trace() -> Iterator[TraceWatch]:
    """A :class:`TraceWatch`, for what is traced in the block.

    Raises:
        TraceError: Python's own random numbers were drawn.
    """
    before = random.getstate()
    with TraceWatch() as watch:
        yield watch
    if random.getstate() != before:
        random.setstate(before)
        raise TraceError("it draws random numbers of Python's random module")


def _autocast() -> torch.dtype | None:
    """What autocast casts to, if it is on."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def _reads(node: Node, nodes: set[Node]) -> bool:
    """Whether a call has one of ``nodes`` among its arguments."""
    return node.op.startswith("call_") and not nodes.isdisjoint(node.all_input_nodes)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for own in tree_leaves(values):
        if isinstance(own, torch.Tensor) and own.layout is torch.strided:
            yield own
