"""Programs in stages: graphs, and the values read between them that control flow depends on.

A program with ``if x.sum() > 0:`` is one graph that computes the condition, and another for the branch that was taken.
A call runs the first, reads the value, and continues with the second if the value is the recorded one. Programs with
the same beginning share its stages (:class:`StagedRun`), so that the programs of all paths that calls have taken form a
tree.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from corsac import _core
from corsac._capture.markers import nothing
from corsac._capture.numbers import (
    Condition,
    Expression,
    evaluated,
    holds,
    is_same_value,
    names_in,
)
from corsac._native.strides import each_once
from corsac._pytorch.functions import name_of
from corsac.fx import Graph, GraphModule, Node
from corsac.passes._effects import effects

if TYPE_CHECKING:
    from corsac._capture.calls import Call

#: Largest number of programs of a stage for different sizes, which may depend on values.
SIZES = 64


def sizes_of(*tensors: torch.Tensor) -> tuple[torch.Size, ...]:
    """The sizes of tensors, which depend on values."""
    return tuple(own.shape for own in tensors)


@dataclass(frozen=True, slots=True)
class _Value:
    """The place of a value of the program, by the name of its node."""

    name: str


def _placed(own: Any, constants: Mapping[Node, torch.Tensor]) -> Any:
    """An argument of a node, with nodes replaced by constants or places of values."""
    if isinstance(own, Node):
        return constants[own] if own in constants else _Value(own.name)
    if isinstance(own, tuple | list):
        kind = list if isinstance(own, list) else tuple
        return kind([_placed(part, constants) for part in own])
    if isinstance(own, dict):
        return {key: _placed(part, constants) for key, part in own.items()}
    return own


def _filled(own: Any, values: Mapping[str, Any]) -> Any:
    """The argument with places replaced by ``values``."""
    kind = type(own)
    if kind is _Value:
        return values[own.name]
    if kind is tuple or kind is list:
        return kind([_filled(part, values) for part in own])
    if kind is dict:
        return {key: _filled(part, values) for key, part in own.items()}
    return own


#: A function that describes a failed condition: the value, and its change.
Failure = Callable[[], tuple[str, str]]


def _of_comparison() -> tuple[str, str]:
    return "a comparison of numbers that depend on values", "comes out otherwise"


def _of_state() -> tuple[str, str]:
    return "numbers in its state", "are others"


def shortened_value(own: Any) -> str:
    """A value that was read, as short text for reports."""
    return shorten(repr(own), 60, placeholder="…")


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a value that control flow depends on.

    Attributes:
        name: the name of the node that reads it.
        function: the function of tensors that returns it.
        args, kwargs: its arguments, with places of values.
        expected: the required value, in a tuple; None if it may be any number, on which there may be conditions.
        source: the line of the program that reads it, if known.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: tuple[Any] | None
    source: Any

    def place(self) -> str:
        """The function that reads it, and the line."""
        name = "sizes" if self.function is sizes_of else name_of(self.function)
        return name if self.source is None else f"{name} ({self.source})"

    def __str__(self) -> str:
        if self.function is nothing:
            where = "" if self.source is None else f" ({self.source})"
            return f"nothing: the program asks for a graph break{where}"
        if self.expected is None:
            return f"{self.place()}, any {'sizes' if self.function is sizes_of else 'number'}"
        return f"{self.place()} is {shortened_value(*self.expected)}"

    def found(self, values: Mapping[str, Any]) -> Any:
        """Read the value."""
        return self.function(*_filled(self.args, values), **_filled(self.kwargs, values))

    def change_as_text(self, value: Any) -> tuple[str, str]:
        """The place of the read, and the expected and the present value, as text."""
        then, now = (shortened_value(own) for own in (*(self.expected or ()), value))
        return self.place(), f"was {then}, is {now}"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether its value in ``values`` is as expected."""
        return self.expected is None or is_same_value(values[self.name], *self.expected)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A tensor of one element for a number that depends on values: its name, the number, and its dtype."""

    name: str
    expression: Expression
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program between two reads of values.

    Attributes:
        graph: its graph, with an empty output node; placeholders are values of earlier segments.
        weights: the tensors that it reads besides.
        gives: its values that are read, used by later segments, or returned.
        scalars: its inputs that are tensors made from numbers.
        reads: the reads after it, whose values decide whether the following segments apply.
        conditions: comparisons of numbers, which decide likewise.
        writes: whether it writes to values of earlier segments.
        uses_random_numbers: whether it uses random numbers.
    """

    graph: Graph
    weights: dict[str, torch.Tensor]
    gives: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    reads: tuple[Read, ...]
    conditions: tuple[Condition, ...]
    writes: bool
    uses_random_numbers: bool

    def takes(self) -> list[str]:
        """The names of the values that it takes."""
        return [own.name for own in self.graph.find_nodes(op="placeholder")]

    def failure(self, values: dict[str, Any]) -> Failure | None:
        """The first failed read or condition, which means that the following segments do not apply; None if all hold.
        Values that are read are added to ``values``, since later reads may depend on them."""
        for own in self.reads:
            values[own.name] = own.found(values)
            if not own.holds(values):
                return partial(own.change_as_text, values[own.name])
        if all(holds(own, values) for own in self.conditions):
            return None
        return _of_comparison

    def key(self) -> Any:
        """Key of the computation: segments with the same key and the same stages before them can be shared."""
        nodes = [own for own in self.graph.nodes if own.op != "output"]
        targets = tuple(id(own.target) for own in nodes if callable(own.target))
        tensors = tuple((name, id(own)) for name, own in self.weights.items())
        return tuple(own.format_node() for own in nodes), targets, tensors, self.scalars


@dataclass(frozen=True, slots=True)
class Staged:
    """A program in segments.

    Attributes:
        segments: its parts, in order.
        results: its return value, with places of values.
        state: numbers that it found in state, by their names; defaults for calls that find no others.
        conditions: comparisons of such numbers that must hold.
        rewinds: as for :class:`Decisions`.
    """

    segments: tuple[Segment, ...]
    results: Any
    state: Mapping[str, float]
    conditions: tuple[Condition, ...]
    rewinds: tuple[int, ...] | None

    def reads(self) -> list[Read]:
        """The reads of values that control flow depends on."""
        return [read for segment in self.segments for read in segment.reads]

    def is_whole(self) -> bool:
        """Whether neither control flow nor operators depend on values: numbers found in state are only put back."""
        first, *others = self.segments
        depends = first.reads or first.scalars or first.conditions or self.conditions
        return not (others or depends or self.rewinds is not None)

    def assemble(self, values: Mapping[str, Any]) -> Any:
        """The return value of the graph, built from its values."""
        return _filled(self.results, values)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Reads and conditions on values in a graph.

    Attributes:
        reads: nodes that read values, with the values in the recorded call.
        numbers: those of them whose values may be any numbers.
        conditions: comparisons of such numbers, whose results must be the same again.
        scalars: nodes that are tensors made from numbers.
        writing: nodes that write to tensors made before the last read of a value.
        sizes: nodes of integers.
        state: numbers that were found in state and may vary between calls, by their names.
        written_inputs: nodes that write to inputs and return them, with the nodes of these.
        rewinds: indices of the inputs that are written to, if inputs are written to, or random numbers used, before
            the last read: this is undone if another value is read. None otherwise.
    """

    reads: Mapping[Node, Any]
    numbers: Collection[Node]
    conditions: Sequence[Condition]
    scalars: Mapping[Node, tuple[Expression, torch.dtype]]
    writing: Collection[Node]
    sizes: Collection[Node]
    state: Mapping[str, float]
    written_inputs: Mapping[Node, Node]
    rewinds: tuple[int, ...] | None


def staged(graph: Graph, weights: Mapping[str, torch.Tensor], decisions: Decisions) -> Staged:
    """Split a graph where values are read.

    Args:
        graph: the whole program.
        weights: the tensors that it reads besides its inputs, by name.
        decisions: its reads and conditions on values.
    """
    _drop_unused(graph, decisions)
    output = graph.output_node()
    parts: list[list[Node]] = [[]]
    asked: list[list[Node]] = [[]]
    for node in graph.nodes:
        if node in decisions.reads:
            asked[-1].append(node)
        elif node.op not in ("placeholder", "get_attr", "output") and node not in decisions.scalars:
            if asked[-1]:
                parts.append([])
                asked.append([])
            parts[-1].append(node)
    made: dict[Node, int] = {own: number for number, part in enumerate(parts) for own in part}
    wanted: list[dict[str, None]] = [{} for _ in parts]
    for node, given in decisions.written_inputs.items():
        # Later parts use the input, which is the same tensor. Dropped nodes must not be used.
        number = made.get(node)
        if number is None:
            continue
        node.replace_all_uses_with(given, lambda user, number=number: made.get(user) != number)

    def want(node: Node) -> None:
        if node in made:
            wanted[made[node]].setdefault(node.name)

    bodies: list[_Body] = []
    for number, part in enumerate(parts):
        body = _Body(weights, decisions.sizes)
        for node in part:
            body.add(node)
        bodies.append(body)
        for own in (*body.taken, *(own for node in asked[number] for own in node.all_input_nodes)):
            want(own)
    for own in output.all_input_nodes:
        want(own)
    constants = {own: weights[str(own.target)] for own in graph.find_nodes(op="get_attr")}
    places = {node.name: number for number, nodes in enumerate(asked) for node in nodes}
    conditions: list[list[Condition]] = [[] for _ in parts]
    of_state: list[Condition] = []
    for condition in dict.fromkeys(decisions.conditions):
        names = (names_in(condition[1]) | names_in(condition[2])) - decisions.state.keys()
        to = conditions[max(places[name] for name in names)] if names else of_state
        to.append(condition)
    segments = tuple(
        Segment(
            body.graph,
            body.weights,
            tuple(gives),
            body.scalars(decisions.scalars),
            tuple(_read(own, decisions, constants) for own in readers),
            tuple(asserted),
            any(own in decisions.writing for own in part),
            any(effects(own).random for own in part),
        )
        for body, gives, readers, asserted, part in zip(
            bodies, wanted, asked, conditions, parts, strict=True
        )
    )
    results = _placed(output.args[0], constants)
    return Staged(segments, results, decisions.state, tuple(of_state), decisions.rewinds)


def _drop_unused(graph: Graph, decisions: Decisions) -> None:
    """Remove unused nodes, which would otherwise make stages pass values on: autograd would count these as used."""
    for node in reversed(graph.nodes):
        if node.users or not node.op.startswith("call_") or node in decisions.reads:
            continue
        own = effects(node)
        does = own.random or own.side_effect or own.writes_state or own.opaque
        if not (does or own.mutates or node in decisions.writing):
            graph.erase_node(node)


class _Body:
    """The graph of a segment under construction."""

    def __init__(self, weights: Mapping[str, torch.Tensor], sizes: Collection[Node]) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        #: Nodes of other segments whose values it takes.
        self.taken: list[Node] = []
        self._all, self._sizes = weights, sizes
        self.graph = Graph()
        self._copies: dict[Node, Node] = {}
        #: The last placeholder.
        self._last: Node | None = None

    def add(self, node: Node) -> Node:
        """Copy a node into the graph."""
        for own in node.all_input_nodes:
            if own not in self._copies:
                self._bring(own)
        self._copies[node] = copy = self.graph.node_copy(node, self._copies.__getitem__)
        return copy

    def _bring(self, node: Node) -> None:
        if node.op == "get_attr":
            name = str(node.target)
            self.weights[name] = self._all[name]
            self._copies[node] = self.graph.node_copy(node)
        elif node in self._sizes:
            self.add(node)
        else:
            self.taken.append(node)
            first = next(iter(self.graph.nodes), None) if self._last is None else self._last.next
            with self.graph.inserting_before(first):
                self._last = self.graph.create_node(
                    "placeholder", node.name, (), {}, name=node.name
                )
            self._copies[node] = self._last

    def scalars(self, known: Mapping[Node, tuple[Expression, torch.dtype]]) -> tuple[Scalar, ...]:
        """Its inputs that are tensors made from numbers."""
        return tuple(Scalar(own.name, *known[own]) for own in self.taken if own in known)


def _read(node: Node, decisions: Decisions, constants: Mapping[Node, torch.Tensor]) -> Read:
    args, kwargs = (_placed(own, constants) for own in (node.args, node.kwargs))
    assert callable(node.target)
    expected = None if node in decisions.numbers else (decisions.reads[node],)
    return Read(node.name, node.target, args, kwargs, expected, node.source)


class Changes:
    """State that a call may change before it is known whether a program applies to it, with its old values.

    Args:
        tensors: tensors that may be written to.
        uses_random_numbers: whether random numbers may be used.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], uses_random_numbers: bool) -> None:
        each = map(each_once, tensors)
        self._kept = [(own, own.clone()) for own in each]
        self._random = torch.get_rng_state() if uses_random_numbers else None

    def rewind(self) -> None:
        """Restore the old values, and the state of the random generator."""
        with torch.no_grad():
            for own, before in self._kept:
                own.copy_(before)
        if self._random is not None:
            torch.set_rng_state(self._random)


#: Makes guards on weights, which detect changes.
MakeGuards = Callable[[Iterable[torch.Tensor]], _core.ModelGuards]
#: Returns the properties of an input tensor that a compiled stage is specialised to.
Form = Callable[[torch.Tensor], Any]


def type_and_size(own: torch.Tensor) -> Any:
    """Dtype and shape of a tensor."""
    return own.dtype, own.shape


def whole_form(own: torch.Tensor) -> Any:
    """All properties of a tensor, and modes of autograd, that a backend may specialise a graph to."""
    return (
        own.dtype,
        own.shape,
        own.stride(),
        own.requires_grad,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )


#: Makes a function that compiles a graph for given inputs.
Make = Callable[[GraphModule], Callable[[Sequence[Any]], Callable[..., Any]]]


class Stage:
    """A compiled segment, shared by programs with the same beginning.

    Args:
        segment: the segment, of the first of these programs.
        before: the stages before it.
        make: makes a function that compiles a graph for given inputs.
        model_guards: guards on its weights.
        form: the properties of an input tensor that compiled code is specialised to.
    """

    def __init__(
        self,
        segment: Segment,
        before: tuple[Stage, ...],
        make: Make,
        model_guards: _core.ModelGuards,
        form: Form,
    ) -> None:
        self.before, self.model_guards, self._form = before, model_guards, form
        self._does_more = segment.writes or segment.uses_random_numbers
        self._graph, self._weights = segment.graph, segment.weights
        self.takes = segment.takes()
        self._make = make
        self._lock = threading.Lock()
        self._give(segment.gives)

    def _give(self, names: Sequence[str]) -> None:
        graph = Graph()
        copies: dict[Node, Any] = {}
        graph.graph_copy(self._graph, copies)
        found = {own.name: copies[own] for own in self._graph.nodes if own in copies}
        graph.output(tuple(found[name] for name in names))
        module = GraphModule(dict(self._weights), graph)
        module.training = False
        self._compile = self._make(module)
        self._programs: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
        self.gives = tuple(names)

    def give(self, names: Iterable[str]) -> None:
        """Add outputs that another program needs."""
        with self._lock:
            more = [own for own in names if own not in self.gives]
            if more:
                self._give((*self.gives, *more))

    def run(self, values: dict[str, Any]) -> None:
        """Run the stage, and add its results to ``values``."""
        found = self.prepare(values)
        if found is not None:
            gives, program, inputs = found
            values.update(zip(gives, program(*inputs), strict=True))

    def prepare(
        self, values: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], Callable[..., Any], tuple[Any, ...]] | None:
        """The names of its results, the compiled function, and its inputs from ``values``; None if it does
        nothing."""
        inputs = tuple([values[name] for name in self.takes])
        form = self._form
        key = tuple([form(own) if isinstance(own, torch.Tensor) else own for own in inputs])
        with self._lock:
            if not (self.gives or self._does_more):
                return None
            gives, programs, compile = self.gives, self._programs, self._compile
            known = programs.get(key)
        if known is None:
            # Compiling takes a lock that other threads may hold while they prepare stages.
            made = compile(inputs)
            with self._lock:
                known = programs.setdefault(key, made)
                while len(programs) > SIZES:
                    programs.popitem(last=False)
        return gives, known, inputs

    def programs(self) -> list[Callable[..., Any]]:
        """Its compiled functions, for all sizes so far."""
        with self._lock:
            return list(self._programs.values())


#: Stages, by the stages before them and their computation.
Stages = WeakValueDictionary[Any, Stage]


def _known_stage(
    stages: Stages,
    segment: Segment,
    before: tuple[Stage, ...],
    make: Make,
    make_guards: MakeGuards,
    form: Form,
    gives_more: bool,
) -> Stage:
    """The stage that computes a segment: that of another program with the same beginning, or a new one."""
    key = (tuple(map(id, before)), segment.key(), () if gives_more else segment.gives)
    known = stages.get(key)
    if known is not None and known.model_guards.is_current():
        known.give(segment.gives)
        return known
    made = Stage(segment, before, make, make_guards(segment.weights.values()), form)
    stages[key] = made
    return made


class StagedRun:
    """Runs a program in stages.

    Args:
        program: the program.
        graph: its whole graph.
        known: the stages of other programs, which it shares as far as its beginning is the same; its own are added.
        make: makes a function that compiles a graph for given inputs.
        make_guards: makes guards on weights.
        form: the properties of input tensors that compiled stages are specialised to.
        gives_more: whether stages may return values that only other programs need: autograd would count these as
            used.
    """

    def __init__(
        self,
        program: Staged,
        graph: Graph,
        known: Stages,
        make: Make,
        make_guards: MakeGuards,
        form: Form = type_and_size,
        gives_more: bool = True,
    ) -> None:
        self.program = program
        self._inputs = [own.name for own in graph.find_nodes(op="placeholder")]
        #: The failed condition of the last call that the program did not apply to.
        self.failure: Failure | None = None
        stages: list[Stage] = []
        for segment in program.segments:
            before = tuple(stages)
            stages.append(_known_stage(known, segment, before, make, make_guards, form, gives_more))
        self.stages = tuple(stages)
        #: The names of values that the stages up to each one take.
        self._taken = tuple(
            frozenset(name for own in stages[: number + 1] for name in own.takes)
            for number in range(len(stages))
        )

    def begin(self, inputs: Sequence[Any], numbers: Mapping[str, float]) -> dict[str, Any]:
        """The values before the first stage: inputs of the program, and numbers that it finds in state."""
        return {**self.program.state, **numbers, **dict(zip(self._inputs, inputs, strict=True))}

    def decide(self, start: Mapping[str, Any], ran: Ran) -> bool:
        """Run all stages up to the last read, and return whether all values are as expected.

        Args:
            start: the values before the first stage.
            ran: results of stages in this call; missing ones are added.
        """
        self.failure = _of_state
        try:
            if not all(holds(own, start) for own in self.program.conditions):
                return False
            for number, segment in enumerate(self.program.segments):
                if segment.reads:
                    self.failure = segment.failure(self.values(number, start, ran))
                    if self.failure is not None:
                        return False
        except ArithmeticError:
            return False
        return True

    def decides(self, call: Call) -> bool:
        """Whether the values read in a call are those that the program is valid for."""
        if self.program.rewinds is not None:
            # Results of other programs may depend on changes that this one undoes.
            call.rewind()
            call.ran.clear()
            call.changes = self.changes(call.inputs)
        holds = False
        try:
            holds = self.decide(self.begin(call.inputs, call.numbers), call.ran)
        finally:
            if not holds:
                call.rewind()
        return holds

    def decides_quietly(self, call: Call) -> bool:
        """As :meth:`decides`, but False if an operator fails: PyTorch runs the call then and raises the error, which
        the program may catch."""
        try:
            return self.decides(call)
        except Exception:
            return False

    def results(self, call: Call) -> tuple[Any, Mapping[str, Any]]:
        """The graph's return value in a call that the program applies to, and all values."""
        return self(self.begin(call.inputs, call.numbers), call.ran)

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Compile all stages for such inputs; all but the last are run, and their changes undone."""
        last = len(self.stages) - 1
        values = self.begin(inputs, {})
        changes = self.changes(inputs)
        try:
            if last:
                values = dict(self.values(last - 1, values, {}))
            self._add_scalars(last, values)
        finally:
            changes.rewind()
        self.stages[last].prepare(values)

    def changes(self, inputs: Sequence[Any]) -> Changes:
        """The state that may change before the last read, with its present values."""
        rewinds = self.program.rewinds
        if rewinds is None:
            return Changes((), False)
        return Changes([inputs[number] for number in rewinds], True)

    def _add_scalars(self, number: int, values: dict[str, Any]) -> None:
        for own in self.program.segments[number].scalars:
            value = evaluated(own.expression, values)
            values[own.name] = torch.scalar_tensor(value, dtype=own.dtype)

    def values(self, number: int, start: Mapping[str, Any], ran: Ran) -> dict[str, Any]:
        """The values after the stage with this number. The other arguments are as for :meth:`decide`."""
        stage, segment = self.stages[number], self.program.segments[number]
        known = ran.get(stage)
        if known is not None and not self._begins_with(number, known, start):
            # Another program has a different value of the same name.
            known = None
        if known is None or not known.keys() >= set(stage.gives):
            known = dict(self.values(number - 1, start, ran) if number else start)
            if segment.writes:
                # Programs with the same beginning but another path must not reuse the overwritten values.
                ran.clear()
            self._add_scalars(number, known)
            stage.run(known)
            ran[stage] = known
        if any(name not in known or known[name] is not own for name, own in start.items()):
            # Programs with the same beginning may have other numbers and inputs.
            known = ran[stage] = {**known, **start}
        for read in segment.reads:
            if read.name not in known:
                known[read.name] = read.found(known)
        return known

    def _begins_with(self, number: int, known: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
        """Whether the stages up to this number have used the same values as they would now."""
        return all(
            name in known and known[name] is start[name]
            for name in self._taken[number]
            if name in start
        )

    def programs(self) -> list[Callable[..., Any]]:
        """The compiled functions of all stages, for all sizes so far."""
        return [own for stage in self.stages for own in stage.programs()]

    def reads(self) -> list[Read]:
        """The reads of values that control flow depends on."""
        return self.program.reads()

    def __call__(self, start: Mapping[str, Any], ran: Ran) -> tuple[Any, Mapping[str, Any]]:
        """The graph's return value, whatever the values read, and all values. Arguments as for :meth:`decide`."""
        values = self.values(len(self.stages) - 1, start, ran)
        return self.program.assemble(values), values


#: All values after each stage that has run, including earlier ones.
Ran = dict[Stage, dict[str, Any]]


__all__ = [
    "Changes",
    "Decisions",
    "Ran",
    "Read",
    "Staged",
    "StagedRun",
    "Stages",
    "sizes_of",
    "staged",
    "whole_form",
]
