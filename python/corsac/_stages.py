"""Programs whose values decide what they do: graphs, and the values that are read between them.

A program that asks ``if x.sum() > 0:`` is a graph that computes the condition, and another one for what it did then.
A call runs the first, reads the value, and goes on with the second if the value is the one that was recorded. Programs
that begin alike share what they have in common (:class:`StagedRun`), so that those of all ways that calls have taken
are a tree.
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
from corsac._functions import name_of
from corsac._markers import nothing
from corsac._numbers import (
    Condition,
    Expression,
    evaluated,
    holds,
    is_same_value,
    names_in,
)
from corsac._strides import each_once
from corsac.fx import Graph, GraphModule, Node
from corsac.passes._effects import effects

if TYPE_CHECKING:
    from corsac._recordings import Call

#: For how many sets of sizes there are programs of one stage: sizes may depend on values.
SIZES = 64


def sizes_of(*tensors: torch.Tensor) -> tuple[torch.Size, ...]:
    """The sizes of tensors, which depend on values."""
    return tuple(own.shape for own in tensors)


@dataclass(frozen=True, slots=True)
class _Value:
    """The place of a value of the program, by the name of its node."""

    name: str


def _placed(own: Any, constants: Mapping[Node, torch.Tensor]) -> Any:
    """An argument of a node with places of values for nodes, but for constants."""
    if isinstance(own, Node):
        return constants[own] if own in constants else _Value(own.name)
    if isinstance(own, tuple | list):
        kind = list if isinstance(own, list) else tuple
        return kind([_placed(part, constants) for part in own])
    if isinstance(own, dict):
        return {key: _placed(part, constants) for key, part in own.items()}
    return own


def _filled(own: Any, values: Mapping[str, Any]) -> Any:
    """The same with the values in their places."""
    kind = type(own)
    if kind is _Value:
        return values[own.name]
    if kind is tuple or kind is list:
        return kind([_filled(part, values) for part in own])
    if kind is dict:
        return {key: _filled(part, values) for key, part in own.items()}
    return own


#: Tells a value, and what it was and is.
Failure = Callable[[], tuple[str, str]]


def _of_comparison() -> tuple[str, str]:
    return "a comparison of numbers that depend on values", "comes out otherwise"


def _of_state() -> tuple[str, str]:
    return "numbers in its state", "are others"


def shortened_value(own: Any) -> str:
    """A value that was read, for people."""
    return shorten(repr(own), 60, placeholder="…")


@dataclass(frozen=True, slots=True)
class Read:
    """A value that decides.

    Attributes:
        name: of the node that reads it.
        function: gives it, of tensors.
        args, kwargs: its arguments, with the names of values.
        expected: what it has to give, in a tuple; None if it may be any number, on which there may be conditions.
        source: the line of the program that reads it, if it is known.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: tuple[Any] | None
    source: Any

    def place(self) -> str:
        """What reads it, and where."""
        name = "sizes" if self.function is sizes_of else name_of(self.function)
        return name if self.source is None else f"{name} ({self.source})"

    def __str__(self) -> str:
        if self.function is nothing:
            where = "" if self.source is None else f" ({self.source})"
            return f"nothing: the program asks for a graph break{where}"
        if self.expected is None:
            return f"{self.place()}, any number"
        return f"{self.place()} is {shortened_value(*self.expected)}"

    def found(self, values: Mapping[str, Any]) -> Any:
        """The value."""
        return self.function(*_filled(self.args, values), **_filled(self.kwargs, values))

    def told(self, value: Any) -> tuple[str, str]:
        """Where a value is read, and what it was and is."""
        then, now = (shortened_value(own) for own in (*(self.expected or ()), value))
        return self.place(), f"was {then}, is {now}"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the value, which is among the others, is as expected."""
        return self.expected is None or is_same_value(values[self.name], *self.expected)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A tensor of one element that is made of a number which depends on values: its name, the number, and its type."""

    name: str
    expression: Expression
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a program between two values that are read.

    Attributes:
        graph: what it computes, with an output node of nothing; placeholders are what it takes.
        weights: the tensors that it has besides.
        gives: the values that are read, taken by later segments, or returned.
        scalars: those that it takes and that are made of numbers.
        reads: the values that decide whether what comes after it is what is to be done.
        conditions: comparisons of numbers that decide, too.
        writes: whether it writes to values of earlier segments.
        draws: whether it draws random numbers.
    """

    graph: Graph
    weights: dict[str, torch.Tensor]
    gives: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    reads: tuple[Read, ...]
    conditions: tuple[Condition, ...]
    writes: bool
    draws: bool

    def takes(self) -> list[str]:
        """The values that it takes."""
        return [own.name for own in self.graph.find_nodes(op="placeholder")]

    def failure(self, values: dict[str, Any]) -> Failure | None:
        """What of values is not such that what comes after it is what is to be done; None if all is. Adds what it reads
        to them: what is read next depends on what was read."""
        for own in self.reads:
            values[own.name] = own.found(values)
            if not own.holds(values):
                return partial(own.told, values[own.name])
        if all(holds(own, values) for own in self.conditions):
            return None
        return _of_comparison

    def key(self) -> Any:
        """What segments differ in that begin alike."""
        nodes = [own for own in self.graph.nodes if own.op != "output"]
        targets = tuple(id(own.target) for own in nodes if callable(own.target))
        tensors = tuple((name, id(own)) for name, own in self.weights.items())
        return tuple(own.format_node() for own in nodes), targets, tensors, self.scalars


@dataclass(frozen=True, slots=True)
class Staged:
    """A program in segments.

    Attributes:
        segments: its parts, in their order.
        results: what it returns, with places of values.
        state: numbers that it found in state, by their names: they are these where nothing else is said.
        conditions: comparisons of such numbers that decide.
        rewinds: as of :class:`Decisions`.
    """

    segments: tuple[Segment, ...]
    results: Any
    state: Mapping[str, float]
    conditions: tuple[Condition, ...]
    rewinds: tuple[int, ...] | None

    def reads(self) -> list[Read]:
        """The values that decide."""
        return [read for segment in self.segments for read in segment.reads]

    def assemble(self, values: Mapping[str, Any]) -> Any:
        """What the graph returned, of its values."""
        return _filled(self.results, values)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What decides in a graph.

    Attributes:
        reads: nodes that read values, and what they have given.
        numbers: those of them whose values may be any numbers.
        conditions: comparisons of such numbers that have to come out as they did.
        scalars: nodes that are tensors of numbers.
        writing: nodes that write to what was there before the last value was read.
        sizes: nodes of integers.
        state: numbers that were found in state and that may be any in the next call, by their names.
        written_inputs: nodes that write to inputs and give them, with the nodes of these.
        rewinds: the numbers of the inputs that are written to, if some are, or if random numbers are drawn, before
            the last value is read: who reads another value has to put that back. None if that is not so.
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
    """Cuts a graph where values are read.

    Args:
        graph: the whole program.
        weights: its tensors that are no inputs, by name.
        decisions: what decides in it.
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
        # Later parts have the input, which is the same tensor. Nobody may use what is dropped.
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
    """Removes what nobody uses, which stages would hand on to each other: autograd would see that it was used."""
    for node in reversed(graph.nodes):
        if node.users or not node.op.startswith("call_") or node in decisions.reads:
            continue
        own = effects(node)
        does = own.random or own.side_effect or own.writes_state or own.opaque
        if not (does or own.mutates or node in decisions.writing):
            graph.erase_node(node)


class _Body:
    """The graph of a segment, which is being made."""

    def __init__(self, weights: Mapping[str, torch.Tensor], sizes: Collection[Node]) -> None:
        self.weights: dict[str, torch.Tensor] = {}
        #: What it takes of others.
        self.taken: list[Node] = []
        self._all, self._sizes = weights, sizes
        self.graph = Graph()
        self._copies: dict[Node, Node] = {}
        #: The last placeholder.
        self._last: Node | None = None

    def add(self, node: Node) -> Node:
        """Copies a node into it."""
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
        """The values that it takes and that are made of numbers."""
        return tuple(Scalar(own.name, *known[own]) for own in self.taken if own in known)


def _read(node: Node, decisions: Decisions, constants: Mapping[Node, torch.Tensor]) -> Read:
    args, kwargs = (_placed(own, constants) for own in (node.args, node.kwargs))
    assert callable(node.target)
    expected = None if node in decisions.numbers else (decisions.reads[node],)
    return Read(node.name, node.target, args, kwargs, expected, node.source)


class Changes:
    """What a call may change before it is known whether a program is for it.

    Args:
        tensors: are written to.
        draws: whether random numbers are drawn.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], draws: bool) -> None:
        each = map(each_once, tensors)
        self._kept = [(own, own.clone()) for own in each]
        self._random = torch.get_rng_state() if draws else None

    def rewind(self) -> None:
        """Puts all back as it was."""
        with torch.no_grad():
            for own, before in self._kept:
                own.copy_(before)
        if self._random is not None:
            torch.set_rng_state(self._random)


#: Makes of weights what tells whether they are as they were.
Watching = Callable[[Iterable[torch.Tensor]], _core.Watch]
#: What a stage is compiled anew for, of a tensor that it takes.
Form = Callable[[torch.Tensor], Any]


def type_and_size(own: torch.Tensor) -> Any:
    """Its type and size."""
    return own.dtype, own.shape


def whole_form(own: torch.Tensor) -> Any:
    """All that backends may compile a graph for, and what autograd records."""
    return (
        own.dtype,
        own.shape,
        own.stride(),
        own.requires_grad,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )


#: Makes of a graph what compiles it for inputs.
Make = Callable[[GraphModule], Callable[[Sequence[Any]], Callable[..., Any]]]


class Stage:
    """A segment that programs share which begin alike, as what computes it.

    Args:
        segment: what it is, as the first program has it.
        before: the stages before it.
        make: makes what compiles a graph for inputs.
        watch: tells whether its weights are as they were.
        form: what it is compiled anew for, of an input that is a tensor.
    """

    def __init__(
        self,
        segment: Segment,
        before: tuple[Stage, ...],
        make: Make,
        watch: _core.Watch,
        form: Form,
    ) -> None:
        self.before, self.watch, self._form = before, watch, form
        self._does_more = segment.writes or segment.draws
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
        """Have it give these values, too: another program needs them."""
        with self._lock:
            more = [own for own in names if own not in self.gives]
            if more:
                self._give((*self.gives, *more))

    def run(self, values: dict[str, Any]) -> None:
        """Adds to ``values`` what it computes of them."""
        found = self.prepare(values)
        if found is not None:
            gives, program, inputs = found
            values.update(zip(gives, program(*inputs), strict=True))

    def prepare(
        self, values: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], Callable[..., Any], tuple[Any, ...]] | None:
        """The names of what it gives, what computes that, and what this takes of ``values``; None if it does
        nothing."""
        inputs = tuple([values[name] for name in self.takes])
        with self._lock:
            does = self.gives or self._does_more
            return (self.gives, self._program(inputs), inputs) if does else None

    def _program(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        form = self._form
        key = tuple([form(own) if isinstance(own, torch.Tensor) else own for own in inputs])
        known = self._programs.get(key)
        if known is None:
            known = self._programs[key] = self._compile(inputs)
            while len(self._programs) > SIZES:
                self._programs.popitem(last=False)
        return known

    def programs(self) -> list[Callable[..., Any]]:
        """What runs it, for all sizes so far."""
        with self._lock:
            return list(self._programs.values())


#: Stages, by the stages before them and what they compute.
Stages = WeakValueDictionary[Any, Stage]


def _known_stage(
    stages: Stages,
    segment: Segment,
    before: tuple[Stage, ...],
    make: Make,
    watch: Watching,
    form: Form,
    gives_more: bool,
) -> Stage:
    """The stage that computes a segment: one of another program that begins alike, or a new one."""
    key = (tuple(map(id, before)), segment.key(), () if gives_more else segment.gives)
    known = stages.get(key)
    if known is not None and known.watch.is_current():
        known.give(segment.gives)
        return known
    made = Stage(segment, before, make, watch(segment.weights.values()), form)
    stages[key] = made
    return made


class StagedRun:
    """Runs a program in stages.

    Args:
        program: the program.
        graph: the whole of it.
        known: the stages of other programs, which it shares where it begins alike; its own are added.
        make: makes what compiles a graph for inputs.
        watch: makes what tells whether weights are as they were.
        form: what stages are compiled anew for, of tensors that they take.
        gives_more: whether stages may give what only other programs take: autograd would see that it was computed.
    """

    def __init__(
        self,
        program: Staged,
        graph: Graph,
        known: Stages,
        make: Make,
        watch: Watching,
        form: Form = type_and_size,
        gives_more: bool = True,
    ) -> None:
        self.program = program
        self._inputs = [own.name for own in graph.find_nodes(op="placeholder")]
        #: Why a call was for another program, the last time.
        self.failure: Failure | None = None
        stages: list[Stage] = []
        for segment in program.segments:
            before = tuple(stages)
            stages.append(_known_stage(known, segment, before, make, watch, form, gives_more))
        self.stages = tuple(stages)
        #: What the stages up to each one take.
        self._taken = tuple(
            frozenset(name for own in stages[: number + 1] for name in own.takes)
            for number in range(len(stages))
        )

    def begin(self, inputs: Sequence[Any], numbers: Mapping[str, float]) -> dict[str, Any]:
        """The values that there are before the first stage: what the program takes, and numbers that it finds."""
        return {**self.program.state, **numbers, **dict(zip(self._inputs, inputs, strict=True))}

    def decide(self, start: Mapping[str, Any], ran: Ran) -> bool:
        """Runs all stages up to the last value that decides, and tells whether all values are as expected.

        Args:
            start: the values that there are before the first stage.
            ran: what stages have given in this call; what is missing is added.
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
        """Whether values decide that a call is for the program."""
        if self.program.rewinds is not None:
            # What others have computed is not from before these changes.
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
        """The same; a call in which an operator fails is for none: PyTorch raises that, where the program may catch it."""
        try:
            return self.decides(call)
        except Exception:
            return False

    def results(self, call: Call) -> tuple[Any, Mapping[str, Any]]:
        """What the graph returns in a call that the program is for, and all values."""
        return self(self.begin(call.inputs, call.numbers), call.ran)

    def prepare(self, inputs: Sequence[Any]) -> None:
        """Compiles all stages for such inputs; all but the last are run, which changes nothing."""
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
        """What is changed, of what was there before, until all is known that decides."""
        rewinds = self.program.rewinds
        if rewinds is None:
            return Changes((), False)
        return Changes([inputs[number] for number in rewinds], True)

    def _add_scalars(self, number: int, values: dict[str, Any]) -> None:
        for own in self.program.segments[number].scalars:
            value = evaluated(own.expression, values)
            values[own.name] = torch.scalar_tensor(value, dtype=own.dtype)

    def values(self, number: int, start: Mapping[str, Any], ran: Ran) -> dict[str, Any]:
        """The values that there are after the stage with this number. The other arguments are as for
        :meth:`decide`."""
        stage, segment = self.stages[number], self.program.segments[number]
        known = ran.get(stage)
        if known is not None and not self._begins_with(number, known, start):
            # Another program calls something else by the same name.
            known = None
        if known is None or not known.keys() >= set(stage.gives):
            known = dict(self.values(number - 1, start, ran) if number else start)
            if segment.writes:
                # Who begins alike and goes another way is to find nothing of it.
                ran.clear()
            self._add_scalars(number, known)
            stage.run(known)
            ran[stage] = known
        if any(name not in known or known[name] is not own for name, own in start.items()):
            # Others that begin alike know of other numbers and inputs.
            known = ran[stage] = {**known, **start}
        for read in segment.reads:
            if read.name not in known:
                known[read.name] = read.found(known)
        return known

    def _begins_with(self, number: int, known: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
        """Whether the stages up to this number have taken what they would take now."""
        return all(
            name in known and known[name] is start[name]
            for name in self._taken[number]
            if name in start
        )

    def programs(self) -> list[Callable[..., Any]]:
        """What runs stages, for all sizes so far."""
        return [own for stage in self.stages for own in stage.programs()]

    def reads(self) -> list[Read]:
        """The values that decide."""
        return self.program.reads()

    def __call__(self, start: Mapping[str, Any], ran: Ran) -> tuple[Any, Mapping[str, Any]]:
        """What the graph returns, whatever decides, and all values. The arguments are as for :meth:`decide`."""
        values = self.values(len(self.stages) - 1, start, ran)
        return self.program.assemble(values), values


#: The values that there are after a stage, with those before it.
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
