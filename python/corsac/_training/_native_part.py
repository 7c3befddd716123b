"""Native programs for parts of a graph, and the decision whether they are worth it."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from corsac import _core, cache
from corsac._native.call import NativeCall
from corsac._pytorch.unhooked import UnhookedModule
from corsac._training._expansions import expand
from corsac._training._parts import spec_of, value_of
from corsac._training._trial import Trial, is_worth_it
from corsac.fx import Graph, GraphModule, Node
from corsac.fx._own_copy import copied_graph
from corsac.fx.node import map_arg

#: Number of programs kept for later graphs, which often have the same parts.
KEPT = 256


class NativePart(UnhookedModule):
    """A native program in the place of some calls of a graph.

    Results have the strides that PyTorch's would have, which AOTAutograd relies on.

    Args:
        program: the program, of tensors that are contiguous once their dimensions are in memory order.
        operands: fake tensors for its operands.
        results: fake tensors for its results.
        host: runs the same by PyTorch if an index is out of range, so that errors are PyTorch's.
    """

    def __init__(
        self,
        program: _core.NativeProgram,
        operands: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
        host: Callable[..., Any],
    ) -> None:
        super().__init__()
        self._program, self._host = NativeCall(program), host
        orders = [(at, memory_order(own)) for at, own in enumerate(operands)]
        self._orders = [(at, order) for at, order in orders if order is not None]
        finish = [_layout(own) for own in results]
        self._finish = finish if any(own is not None for own in finish) else None

    @property
    def program(self) -> _core.NativeProgram:
        """The program."""
        return self._program.program

    def forward(self, *arguments: torch.Tensor) -> Any:
        given: Sequence[torch.Tensor] = arguments
        if self._orders:
            given = list(arguments)
            for at, order in self._orders:
                given[at] = given[at].permute(order)
        try:
            results = self._program(*given)
        except ValueError:
            # Outside this handler, so that PyTorch's error is not chained to this one.
            results = None
        if results is None:
            return self._host(*arguments)
        if self._finish is None:
            return results
        if isinstance(results, torch.Tensor):
            return _finished(results, self._finish[0])
        return tuple(_finished(own, to) for own, to in zip(results, self._finish, strict=True))


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor is contiguous; None if it is contiguous already or in no order."""
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: -strides[dim])
    return tuple(order) if tensor.permute(order).is_contiguous() else None


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    order = memory_order(tensor)
    return tensor if order is None else tensor.permute(order)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes ``order``."""
    return tuple(sorted(range(len(order)), key=lambda at: order[at]))


#: Finishing of a program's result: the order of dimensions (None to keep it), and the strides.
_Layout = tuple[tuple[int, ...] | None, tuple[int, ...]]


def _layout(tensor: torch.Tensor) -> _Layout | None:
    """The layout of ``tensor``, or None if its strides are the default ones, also in dimensions of size 1."""
    rows = torch.empty(tuple(tensor.shape), device="meta").stride()
    if tensor.stride() == rows:
        return None
    order = memory_order(tensor)
    return None if order is None else inverse(order), tuple(tensor.stride())


def _finished(tensor: torch.Tensor, layout: _Layout | None) -> torch.Tensor:
    if layout is None:
        return tensor
    order, strides = layout
    if order is not None:
        shape = [tensor.shape[dim] for dim in order]
        # In place, since a view could not be written to: autograd does not know its base.
        tensor.as_strided_(shape, [tensor.stride(dim) for dim in order])
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements share one place in memory."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in pairs)


@dataclass(frozen=True, slots=True)
class Made:
    """The decision on a part.

    Attributes:
        part: the native part; None if PyTorch runs it.
        reason: why PyTorch runs it.
        seconds: times of a run, natively and by PyTorch; None if not measured.
        kept: whether they were measured in an earlier process.
        trial: runs the part until the decision is made.
    """

    part: NativePart | None
    reason: str | None = None
    seconds: tuple[float, float] | None = None
    kept: bool = False
    trial: Trial | None = None


class _Kept:
    """The cache entry of a part: its program and measured times from earlier processes, if any."""

    def __init__(
        self,
        module: GraphModule,
        examples: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
        precision: str,
    ) -> None:
        self._cache = cache.current()
        self._program = ""
        self.seconds: tuple[float, float] | None = None
        graph = None if self._cache is None else module.graph.portable_hash()
        if self._cache is None or graph is None:
            self._cache = None
            return
        self._facts = [
            ("kind", "part of a training graph"),
            ("graph", graph),
            ("inputs", str(_types(examples))),
            ("results", str(_types(results))),
            ("precision", precision),
            *cache.surroundings(),
        ]
        known = self._cache.get(self._facts)
        if known is not None and set(known[1]) == {"native", "host"}:
            self._program, seconds = known
            self.seconds = seconds["native"], seconds["host"]

    def is_for(self, program: _core.NativeProgram) -> bool:
        """Whether the cached times are those of ``program``."""
        return self.seconds is not None and self._program == str(program)

    def use(self, part: NativePart | None, reason: str | None = None) -> Made:
        """The decision from the cached times."""
        if self._cache is not None:
            self._cache.found += 1
        return Made(part, reason, self.seconds, kept=True)

    def put(self, program: _core.NativeProgram, native: float, host: float) -> None:
        """Store measured times, in seconds."""
        if self._cache is not None:
            self._cache.missed += 1
            self._cache.put(self._facts, str(program), {"native": native, "host": host})


class _Memory:
    """The last :data:`KEPT` decisions, by computation and tensor types of the part."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, Made] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Made | None:
        with self._lock:
            made = self._made.get(key)
            if made is not None:
                self._made.move_to_end(key)
            return made

    def put(self, key: Any, made: Made) -> None:
        with self._lock:
            self._made[key] = made
            while len(self._made) > KEPT:
                self._made.popitem(last=False)


_memory = _Memory()


def make(
    module: GraphModule,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    *,
    measure: bool,
    precision: str,
) -> Made:
    """Compile a part, and decide whether it runs natively.

    Args:
        module: the part, which is not changed.
        inputs: the nodes of the whole graph for its placeholders.
        outputs: the nodes of the whole graph for its results.
        measure: whether to compare it with PyTorch; otherwise it is native if it can be.
        precision: as for :func:`corsac.compile`.
    """
    examples, results = [value_of(node) for node in inputs], [value_of(node) for node in outputs]
    threads = torch.get_num_threads()
    key = (_text(module, examples, results), measure, precision, threads)
    made = _memory.get(key)
    if made is None:
        decided = functools.partial(_memory.put, key)
        # AOTAutograd calls compilers while its modes are active.
        with _disable_current_modes(), torch.no_grad():
            made = _make(module, examples, results, measure, precision, decided)
        decided(made)
    return made


def _make(
    module: GraphModule,
    examples: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    measure: bool,
    precision: str,
    decided: Callable[[Made], None],
) -> Made:
    if any(_overlaps(own) for own in results):
        return Made(None, "a result of its part has several elements in one place")
    kept = _Kept(module, examples, results, precision) if measure else None
    if kept is not None and kept.seconds is not None and not is_worth_it(*kept.seconds):
        return kept.use(None, _took(*kept.seconds))
    graph = copied_graph(module.graph)
    written = GraphModule(module, graph)
    for node, example in zip(graph.find_nodes(op="placeholder"), examples, strict=True):
        node.meta["val"] = example
    expand(graph)
    _put_in_order(graph, examples, results)
    ordered = [_in_order(own) for own in examples]
    try:
        specs = tuple(spec_of(own) for own in ordered)
        program = _core.compile_graph(written.graph, specs, precision=precision)
    except (_core.CompileError, _core.ShapeInferenceError) as error:
        return Made(None, f"{type(error).__name__}: {error}")
    wanted = [_in_order(own) for own in results]
    wanted = [(list(own.shape), str(own.dtype).removeprefix("torch.")) for own in wanted]
    if list(zip(program.output_shapes, program.output_dtypes, strict=True)) != wanted:
        return Made(None, f"its part would give {program.output_shapes}, not {wanted}")
    part = NativePart(program, examples, results, module.forward)
    if kept is None:
        return Made(part)
    if kept.is_for(program):
        return kept.use(part)

    def over(native: float, host: float, reason: str | None) -> Made:
        if reason is not None:
            made = Made(None, reason)
        else:
            kept.put(program, native, host)
            faster = Made(part) if is_worth_it(native, host) else Made(None, _took(native, host))
            made = replace(faster, seconds=(native, host))
        decided(made)
        return made

    return Made(None, trial=Trial(part, module, over))


def _took(native: float, host: float) -> str:
    return f"its part took {native * 1e6:.0f} µs natively, {host * 1e6:.0f} µs by PyTorch"


def _put_in_order(
    graph: Graph, examples: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> None:
    """Let ``graph`` take and return tensors with dimensions in memory order."""
    for node, example in zip(graph.find_nodes(op="placeholder"), examples, strict=True):
        order = memory_order(example)
        if order is not None:
            with graph.inserting_after(node):
                view = graph.call_function(torch.permute, (node, inverse(order)))
            node.replace_all_uses_with(view, lambda user, view=view: user is not view)
    output = graph.output_node()
    returned = output.args[0]
    values = list(returned) if isinstance(returned, tuple | list) else [returned]
    for at, result in enumerate(results):
        order = memory_order(result)
        if order is not None:
            with graph.inserting_before(output):
                values[at] = graph.call_function(torch.permute, (values[at], order))
    output.args = (tuple(values) if isinstance(returned, tuple | list) else values[0],)


def _text(module: GraphModule, examples: Sequence[Any], results: Sequence[Any]) -> Any:
    """Key of a part: its computation, without names, and the types of its tensors."""
    numbers: dict[Node, int] = {}
    rows = []
    for node in module.graph.nodes:
        args = map_arg((tuple(node.args), dict(node.kwargs)), lambda own: f"%{numbers[own]}")
        numbers[node] = len(numbers)
        target = "" if node.op in ("placeholder", "output") else str(node.target)
        rows.append(f"{node.op} {target} {args}")
    return "\n".join(rows), _types([*examples, *results])


def _types(tensors: Sequence[torch.Tensor]) -> Any:
    """Dtype, shape and strides of each tensor."""
    return tuple((own.dtype, tuple(own.shape), own.stride()) for own in tensors)
