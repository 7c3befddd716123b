"""Capture by recording: PyTorch runs a program, and the functions of PyTorch that it calls become a graph.

The call that is recorded is an ordinary one: its result is eager's, and what the program does besides is done once.
:class:`corsac._core.Recording` watches what Python reads and writes meanwhile, which becomes guards; this module
makes nodes of operators, of which it sees the real results. Whatever depends on values, draws random numbers or
writes to what the program did not make is a reason to record nothing.

For training, graphs may draw random numbers, write to buffers and switch gradients off and on, as dropout and norms
do; what autograd would not see in them is a reason, too: functions with a backward of their own, hooks of tensors
that are saved.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Number
from typing import Any

import torch
from torch.overrides import (
    TorchFunctionMode,
)
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from corsac import _core
from corsac._aten import (
    SEVERAL,
    has_attributes,
    place_of,
    places_in,
    tensors_in,
)
from corsac._constants import Constants
from corsac._deferred import Deferred
from corsac._fast_paths import FastPaths
from corsac._functions import (
    CONSTANTS,
    METADATA,
    NORMS,
    REFUSED,
    VALUES,
    changes_more,
    drops_between_layers,
    getters,
    name_of,
    reads_values,
    situation,
    takes_statistics,
    target_of,
)
from corsac._lines import line_of_program
from corsac._markers import breaks, nothing
from corsac._numbers import Expression, depends_on_values, takes_tensor, value_of
from corsac._operator_watch import OperatorWatch, names_region
from corsac._refusal import Kind, Refusal, UnknownObject, who_runs
from corsac._replay import Replay
from corsac._result_template import ResultTemplate, is_key, is_plain
from corsac._sizes import Sizes, as_size
from corsac._stages import sizes_of
from corsac._strides import Layout, layouts_of
from corsac.fx import Graph, Node
from corsac.fx.proxy import TraceError

_Tensor = torch.Tensor

#: In how many places values may decide.
READS = 32
#: What may be asked of a tensor that calls with the same types and sizes can differ in.
_FORM = {
    own: own
    for own in (
        *getters("requires_grad", "is_leaf", "grad", "grad_fn", "retains_grad"),
        _Tensor.is_contiguous,
        _Tensor.stride,
        _Tensor.storage_offset,
        _Tensor.is_inference,
        _Tensor.is_conj,
        _Tensor.is_neg,
    )
}


#: Functions that take only type and sizes of their first argument.
_TAKES_TYPES = frozenset(
    [
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
    ]
)


_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def _is_of_torch(function: Any) -> bool:
    return (function.__module__ or "").partition(".")[0] == "torch"


@functools.cache
def _opened() -> dict[Any, Callable[..., Any]]:
    """Functions of PyTorch that are written in Python, and that are recorded as the operators that they call."""

    def opened(function: Any) -> Callable[..., Any]:
        # It would hand itself over to whoever records.
        variables = {**function.__globals__, "has_torch_function": lambda _: False}
        return types.FunctionType(
            function.__code__, variables, function.__name__, function.__defaults__
        )

    return {own: opened(own) for own in [torch.nn.functional.multi_head_attention_forward]}


class Recorder(TorchFunctionMode):
    """Makes nodes of the functions of PyTorch that a program calls.

    Args:
        recording: watches what Python does.
        weights: the names of parameters and buffers, by identity.
        trains: whether autograd is to go back through the graph.
        dynamic: tensors, by identity, and their dimensions that may be other ones in the next call.
        integers: whether arguments may be other integers in the next call.
        decides: whether values may decide what the program does.
        counts: whether numbers in state may be others in the next call.
        rewritten: tensors, by identity, that hold something else in each call; None if the program may not write
            to what was there before it, but in training to buffers.
        deferred: what it prints; None if it may not print.
    """

    def __init__(
        self,
        recording: _core.Recording,
        weights: Mapping[int, str],
        trains: bool,
        dynamic: Mapping[int, Collection[int]],
        integers: bool,
        decides: bool,
        counts: bool,
        rewritten: Collection[int] | None,
        deferred: Deferred | None,
    ) -> None:
        super().__init__()
        self.recording, self.trains = recording, trains
        self.deferred = deferred
        #: Whether a function runs whose results are taken to be constants.
        self._assumes = False
        #: Functions of the program that become one node each.
        self._whole: set[Any] = set()
        self._rewritten = rewritten
        #: Where tensors lie that were there before and that the program has written to.
        self._overwritten: set[int] = set()
        #: Whether it has, or has drawn random numbers, before a value was read that decides.
        self.rewinds = False
        #: Inputs, by the identity of tensors, and the nodes that have written to such and that give them.
        self._inputs: dict[int, Node] = {}
        self._written_inputs: dict[Node, int] = {}
        #: Where tensors lie of which a tensor with one integer chooses a part: graphs have a copy of that.
        self._chosen: set[int] = set()
        #: After how many reads views were made of what was there before, by where that lies.
        self._views: dict[int, int] = {}
        #: Whether there may be numbers that depend on values, or on state.
        self._counts = counts
        #: The nodes of functions that read values which decide, and what they have given; None if none may.
        self.reads: dict[Node, Any] | None = {} if decides else None
        #: Those of them whose values are symbols.
        self.numbers: set[Node] = set()
        #: Nodes of numbers that operators take as tensors, with what the numbers are.
        self.as_tensors: dict[Node, tuple[Expression, torch.dtype]] = {}
        #: Stands for numbers that differ among the tensors that functions read.
        self._number_read = torch.empty(0)
        #: The type of tensors that the function which runs may take in the place of numbers.
        self._tensor_type: torch.dtype | None = None
        #: Whether the function that runs has drawn random numbers.
        self.draws = False
        #: Whether the function that runs has read a value, or made a tensor whose size depends on some.
        self.values_read = False
        #: After how many reads tensors were made, by where they lie.
        self._ages: dict[int, int] = {}
        #: Nodes that write to what was there before the last value was read, and whether the function that runs does.
        self.writing: set[Node] = set()
        self._writes_back = False
        self.graph = Graph()
        self.sizes = Sizes(recording, self.graph, dynamic) if dynamic or integers else None
        #: Where in the program nodes are made.
        self._sources = _core.SourceNotes()
        self.watch = OperatorWatch(self)
        self._fast_paths = FastPaths()
        self.refusal: Refusal | None = None
        #: Whether PyTorch has drawn random numbers, written to what the program did not make, or may have done else.
        self.saw_change = False
        #: Whether the program has written to what it did not make.
        self._wrote = False
        #: How many functions run that are recorded.
        self.depth = 0
        #: Where the last one has written.
        self._written: list[torch.Tensor] = []
        #: Whether strides or the like were asked for.
        self.asks_form = False
        #: The tensors that the graph reads and that are no inputs, by their names in it.
        self.weights: dict[str, torch.Tensor] = {}
        self._names = weights
        #: Of tensors that have no name.
        self._numbers = itertools.count()
        self._weight_nodes: dict[int, Node] = {}
        #: Tensors that others write to without counting it: statistics of norms.
        self.statistics: dict[int, torch.Tensor] = {}
        #: As of :class:`corsac._record.Recorded`.
        self.layouts: tuple[Layout | None, ...] | None = None
        #: What is computed of no input.
        self._constants = Constants()
        #: The nodes of tensors, by identity, as long as they live.
        self._nodes: dict[int, tuple[weakref.ref[torch.Tensor], Node]] = {}
        #: Where tensors lie that the program did not make and may not write to.
        self._given: set[int] = set()
        #: Where of them programs for training may write to.
        self._written_in_training: set[int] = set()
        self._situation: tuple[Any, ...] = ()
        #: Whether autograd records, as far as functions have said it.
        self._is_recorded = torch.is_grad_enabled()
        self._records = torch.is_grad_enabled()

    def begin(self) -> None:
        """What PyTorch's functions depend on is what it is now."""
        self._situation = situation(self.trains)

    def end(self) -> None:
        """What they depend on is to be as it was."""
        if situation(self.trains) != self._situation:
            self.refuse("it leaves PyTorch set differently", Kind.HOST)

    def refuse(self, reason: str, kind: Kind = Kind.DYNAMO) -> None:
        """Record nothing more."""
        if self.refusal is None:
            self.refusal = Refusal(kind, reason, line=line_of_program())

    def changed(self) -> None:
        """An operator has written to what the program did not make."""
        self.saw_change = self._wrote = True

    def assume(self, begins: bool) -> None:
        """A function begins, or ends, whose results are taken to be constants."""
        self._assumes = begins

    def cut(self) -> None:
        """The graph ends here, and another one begins."""
        if self.reads is None:
            self.refuse("it asks for a graph break")
        elif self.refusal is None:
            try:
                self._value_read(nothing, (), {}, None)
            except TraceError as error:
                self.refuse(str(error), who_runs(error))

    def told(
        self, function: Callable[..., Any] | None, arguments: tuple[Any, ...], names: Any
    ) -> str | None:
        """A function prints, or asks for a graph break. As :meth:`corsac._deferred.Deferred.note` says."""
        if function is None and sys._getframe(2).f_code in breaks():
            self.cut()
            return None
        if self.deferred is None:
            return f"it calls {'logging' if function is None else name_of(function)}"
        with torch._C.DisableTorchFunction():
            return self.deferred.note(function, arguments, names)

    def whole(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives that becomes one node, whatever it calls."""
        self._whole.add(function)
        with torch._C.DisableTorchFunction():
            return self.__torch_function__(function, (), args, kwargs)

    def placeholder(self, name: str, own: torch.Tensor) -> None:
        """An input."""
        self._given.add(place_of(own))
        if self.trains and not (own.is_leaf and own.requires_grad):
            self._written_in_training.add(place_of(own))
        self._inputs[id(own)] = node = self.graph.placeholder(name)
        self._know(own, node)

    def integer(self, name: str, own: int) -> tuple[torch.Tensor, int]:
        """Makes an input of an argument that may be another integer: the size of a tensor without elements; this, and the
        integer for the program."""
        assert self.sizes is not None
        size = as_size(own)
        node = self.graph.placeholder(name)
        self._inputs[id(size)] = node
        return size, self.sizes.integer(size, node)

    def made(self, places: Iterable[int]) -> None:
        """Tensors are new that lie here."""
        if self.reads is not None:
            self._ages.update(dict.fromkeys(places, len(self.reads)))

    def writes(self, own: torch.Tensor, *, turns: bool = False) -> bool:
        """An operator writes to a tensor, or ``turns`` it, which lies otherwise then. Whether it may."""
        self._written.append(own)
        place = place_of(own) if own.layout is torch.strided else None
        if place in self._chosen:
            self.refuse("it writes to what has a part that a tensor chooses", Kind.HOST)
        if self.deferred is not None and place in self.deferred.places:
            self.refuse("it writes to a tensor that it has printed")
        if place is not None and place in self._given:
            return not turns and self._overwrites(place)
        age = self._ages.get(place)
        if self.reads and age != len(self.reads):
            self._writes_back = True
            base = own if own._base is None else own._base
            if place is not None and not base.is_contiguous():
                # Stages take what they write to row by row.
                self.refuse("it writes to what does not lie row by row", Kind.HOST)
            if self.trains and age is not None:
                # What other backends return need not share memory as PyTorch's results do.
                self.refuse("it writes to what it had before values decided")
        return True

    def _overwrites(self, place: int) -> bool:
        """A function writes to what was there before. Whether it may."""
        if self.trains:
            # AOTAutograd knows how, where nothing else lies there.
            return place in self._written_in_training
        if self._rewritten is None:
            return False
        if self.reads and self._views.get(place, READS) < len(self.reads):
            # Stages would pass them on.
            return False
        self._overwritten.add(place)
        self._writes_back = True
        return True

    def node_of(self, own: Any) -> Node:
        """The node of a tensor."""
        node = self._known(own)
        return self._weight(own) if node is None else node

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if not self.recording.operator():
            self.refuse("nothing is known of what it has done before", Kind.HOST)
        try:
            return self._function(func, args, kwargs or {})
        finally:
            self.recording.recorded()

    def _function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives, which is recorded if that is possible."""
        if self._assumes:
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                return func(*args, **kwargs)
        if func is _Tensor.__repr__ and self.deferred is not None and self.deferred.is_printing():
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                return func(*args, **kwargs)
        if changes_more(func, args, kwargs):
            self.saw_change = self._wrote = True
        if self.refusal is not None:
            args, kwargs = self._fast_paths.as_nested((args, kwargs))
            return func(*args, **kwargs)
        self.depth += 1
        try:
            return self._called(func, args, kwargs)
        except Exception:
            # Who catches it may do something else in the next call: values decide about errors.
            self.refuse(f"{name_of(func)} raised an exception", Kind.HOST)
            raise
        finally:
            self.depth -= 1

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives, which is recorded."""
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled":
            return self._gradients_switched(func, args)
        if isinstance(func, _OPERATORS) and names_region(func):
            return func(*args, **kwargs)
        if type(func) is types.FunctionType and not _is_of_torch(func) and func not in self._whole:
            # It may do anything, each time that it is called.
            self.refuse(f"{name_of(func)} is a function of the program for others", Kind.HOST)
            return func(*args, **kwargs)
        if func in METADATA:
            return self._type_asked(func, args, kwargs)
        if func in _FORM:
            return self._form_asked(func, args, kwargs)
        opened = _opened().get(func)
        if opened is not None:
            self._fix(args, kwargs)
            with self:
                return opened(*args, **kwargs)
        composed = self._fast_paths.found(func, args, kwargs)
        if composed is not None:
            with self:
                return composed()
        if self._fast_paths.shows(func, (args, kwargs)):
            self.refuse(f"{name_of(func)} is asked of a nested tensor", Kind.HOST)
            args, kwargs = self._fast_paths.as_nested((args, kwargs))
            return func(*args, **kwargs)
        is_read = self.reads is not None and func in VALUES
        if name == "__get__" and target_of(func, name) is None:
            # Dynamo would take it for a constant.
            self.refuse(f"it asks for {name_of(func)}", Kind.HOST)
            return func(*args, **kwargs)
        try:
            call = self._call(func, name, args, kwargs, is_read)
        except TraceError as error:
            self.refuse(str(error), who_runs(error))
            return func(*args, **kwargs)
        self._written, self.values_read, self._writes_back = [], False, False
        self.draws = False
        result = self.watch.computed(func, args, kwargs)
        if self.refusal is None:
            try:
                if is_read:
                    return self._value_read(func, call[2], call[3], result)
                else:
                    self._record(func, name, call, args, kwargs, result)
            except TraceError as error:
                self.refuse(str(error), who_runs(error))
        return result

    def _value_read(
        self, func: Any, nodes: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> Any:
        """A function has given a value that decides what comes after it.

        Returns:
            The value, for the program: a symbol, if it is a number.

        Raises:
            TraceError: what came before it cannot be done again where another way is to be taken.
        """
        assert self.reads is not None
        if self.saw_change:
            if self._wrote if self.trains else self._rewritten is None:
                raise TraceError(f"values decide ({name_of(func)}) after something was changed")
            # All of it can be put back.
            self.rewinds = True
        if len(self.reads) >= READS:
            raise TraceError(f"values decide in more than {READS} places")
        node = self.graph.call_function(func, nodes, keywords)
        self._sources.note(node)
        self.reads[node] = result
        is_number = type(result) is int or type(result) is float
        if is_number and self.recording.makes_number():
            self.numbers.add(node)
            self._counts = True
            return self.recording.symbol(value_of(node.name), result, True)
        return result

    def _type_asked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Types and sizes. Sizes may be symbols."""
        result = func(*args, **kwargs)
        if self.sizes is None:
            return result
        if func is _Tensor.size and len(args) == 1 and [*kwargs] == ["dim"]:
            args, kwargs = (*args, kwargs["dim"]), {}
        if (
            kwargs
            or not args
            or not isinstance(args[0], _Tensor)
            or any(isinstance(own, _Tensor) for own in args[1:])
        ):
            self._fix(args, kwargs)
            for own in tensors_in(args, kwargs):
                node = self._known(own) or self._weight_nodes.get(id(own))
                if node is not None:
                    self.sizes.fix(own, node)
                elif self.sizes.is_dynamic(own):
                    self.refuse(f"it asks {name_of(func)} of what it finds in its state")
            return result
        self._fix(args[1:], {})
        own = args[0]
        node = self._known(own) or self._weight_nodes.get(id(own))
        if node is None and self.sizes.is_dynamic(own):
            try:
                node = self._weight(own)
            except TraceError as error:
                self.refuse(str(error), who_runs(error))
        if node is None:
            return result
        return self.sizes.asked(func, args, result, node, self.depth == 1)

    def _fix(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Something is done with integers that is not seen."""
        if self.sizes is not None:
            self.recording.fix([*args, *kwargs.values()])

    def _gradients_switched(self, func: Any, args: tuple[Any, ...]) -> Any:
        if self.trains:
            # Autograd, which goes through the graph, has to see it. Regions are left after errors, too.
            self.graph.call_function(torch._C._set_grad_enabled, args)
            self._is_recorded = args[0]
        elif args[0] and not self._records:
            self.refuse("it switches gradients on")
        return func(*args)

    def _form_asked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Strides and the like, which are part of what calls are then recognised by."""
        result = func(*args, **kwargs)
        if isinstance(result, _Tensor) or (
            result is not None and name_of(func) == "Tensor.grad_fn"
        ):
            self.refuse(f"it asks for {name_of(func)}")
        is_attribute = getattr(func, "__name__", "") == "__get__"
        if not all(id(own) in self._names for own in args if isinstance(own, _Tensor)):
            if self.trains and is_attribute:
                self.refuse(f"it asks for {name_of(func)}, which differs between calls")
            self.asks_form = True
        else:
            for own in args:
                self._weight(own)
        if is_attribute and not any(
            id(own) in self._inputs or self._known(own) for own in args if isinstance(own, _Tensor)
        ):
            # Of what it finds in its state nobody looks at it where tensors are only read.
            self.recording.ask(_FORM[func], *args)
        return result

    def _call(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_read: bool
    ) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        """Opcode, target and arguments of a node for a call, which may read a value.

        Raises:
            TraceError: there is none.
        """
        if situation(self.trains) != self._situation:
            raise TraceError("a part of it runs in autocast, out of it, or with other defaults")
        if self.trains and torch.is_grad_enabled() is not self._is_recorded:
            raise TraceError("a part of it runs without gradients, which no function says")
        if self.trains and kwargs.get("requires_grad"):
            raise TraceError("it makes a tensor that wants a gradient")
        if name in REFUSED:
            raise TraceError(f"it calls {name_of(func)}")
        if self.trains and drops_between_layers(name, args):
            raise UnknownObject(f"a {name} with dropout between layers is decomposed without it")
        if self.trains and name == "lstm" and not isinstance(args[1], _Tensor):
            # oneDNN notes something for the way back only where autograd records, which is above graphs.
            raise TraceError("an LSTM does something else where autograd records")
        if isinstance(func, torch._ops.OpOverloadPacket) and len(func.overloads()) == 1:
            # Its schema says what it does.
            func = getattr(func, func.overloads()[0])
        self._tensor_type = takes_tensor(name, args, kwargs) if self._counts else None
        nodes = self._arguments(args)
        keywords = {key: self._argument(own) for key, own in kwargs.items()}
        if is_read:
            return "call_function", func, nodes, keywords
        target = target_of(func, name)
        if target is None:
            raise TraceError(
                f"the values of a tensor decide ({name_of(func)})"
                if reads_values(func)
                else f"it calls {name_of(func)}, which changes more than values"
            )
        op, what, swapped = target
        if swapped:
            nodes = (nodes[1], nodes[0], *nodes[2:])
        elif op == "call_function" and what is getattr:
            nodes = (nodes[0], func.__self__.__name__)
        return op, what, nodes, keywords

    def _record(
        self,
        func: Any,
        name: str,
        call: tuple[str, Any, tuple[Any, ...], dict[str, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        """Makes the node of a call that gave ``result``."""
        tensors = tensors_in(args, kwargs)
        if not tensors and not tensors_in(result):
            # It says something of types, or of what PyTorch can do.
            self._fix(args, kwargs)
            return
        if name in NORMS:
            given = (*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var"))
            statistics = [own for own in given if isinstance(own, _Tensor)]
            self.statistics.update((id(own), own) for own in statistics)
            if not (self.trains or takes_statistics(func, args, kwargs)):
                # PyTorch does not say that it does.
                self.saw_change = self._wrote = True
                if not all(map(self.writes, statistics)):
                    raise TraceError(f"{name} may write to running statistics")
        op, what, nodes, keywords = call
        if result is None and what is not operator.setitem:
            raise TraceError(f"{name_of(func)} gives nothing")
        node = self.graph.create_node(op, what, nodes, keywords)
        self._sources.note(node)
        if self._writes_back:
            self.writing.add(node)
        if self.sizes is not None:
            self.sizes.made(node)
        self._results(result, node, {id(own) for own in tensors}, func)
        if (
            what is operator.getitem
            and isinstance(result, _Tensor)
            and result.layout is torch.strided
            and place_of(result) == place_of(args[0])
            and tensors_in(args[1:])
        ):
            self._chosen.add(place_of(result))
            # Whichever part it is, it has these sizes.
            self.values_read = self.values_read and self.trains
        if not self.trains:
            weights = set(places_in([own for own in tensors if id(own) in self._weight_nodes]))
            read = tensors
            if name in _TAKES_TYPES and args and isinstance(args[0], _Tensor):
                read = tensors_in(args[1:], kwargs)
            if (
                self.draws
                or (self.sizes is not None and self.sizes.varies(node))
                or (self.as_tensors and any(own in self.as_tensors for own in node.all_input_nodes))
            ):
                # Numbers that are others in the next call are no constants.
                read = [*read, self._number_read]
            self._constants.note(node, self._written, read, weights, result)
        if self.values_read:
            sizes = [own for own in tensors_in(result) if own.layout is torch.strided]
            if not sizes:
                raise TraceError(f"{name_of(func)} depends on values")
            nodes = tuple(map(self.node_of, sizes))
            self._value_read(sizes_of, nodes, {}, sizes_of(*sizes))

    def decisions(self) -> dict[Node, Any]:
        """The nodes that read values which decide, and what they gave. What constants decide is no question: nodes
        that read them are dropped."""
        constants = self._constants.nodes()
        for node in [*(self.reads or ())]:
            if (
                not self.trains
                and node not in self.numbers
                and node.all_input_nodes
                and all(own.op == "get_attr" or own in constants for own in node.all_input_nodes)
            ):
                assert self.reads is not None
                del self.reads[node]
                self.graph.erase_node(node)
        return self.reads or {}

    def _results(self, result: Any, node: Node, given: set[int], func: Any) -> None:
        """Notes the tensors that a node gives, for a call of ``func``."""
        if result is None:
            return
        if isinstance(result, tuple | list):
            node.meta[SEVERAL] = len(result)
            if self.sizes is not None:
                self.sizes.counted(node, len(result))
            for number, part in enumerate(result):
                item = self.graph.create_node("call_function", operator.getitem, (node, number), {})
                self._results(part, item, given, func)
            return
        if not isinstance(result, _Tensor):
            raise TraceError(
                f"{name_of(func)} gives a {type(result).__name__}, which depends on values"
            )
        if id(result) not in given and (
            type(result) is not _Tensor or result.layout is not torch.strided
        ):
            raise TraceError(
                f"{name_of(func)} gives a {type(result).__name__} that is {result.layout}"
            )
        if result.is_nested:
            raise UnknownObject(f"{name_of(func)} gives a nested tensor")
        if result.device.type != "cpu":
            raise TraceError(f"{name_of(func)} gives a tensor on {result.device}")
        if not self.trains and result.requires_grad and torch.is_grad_enabled():
            self.refuse(f"autograd records {name_of(func)}", Kind.TRAINS)
        if result.layout is torch.strided and place_of(result) in self._given:
            if id(result) in self._inputs or id(result) in self._weight_nodes:
                self._written_inputs[node] = id(result)
            elif self.reads is not None:
                self._views.setdefault(place_of(result), len(self.reads))
        self._know(result, node)

    def _know(self, own: torch.Tensor, node: Node) -> None:
        self._nodes[id(own)] = weakref.ref(own), node
        if self.sizes is not None:
            self.sizes.given(own, node)
            self.sizes.made(node)

    def _known(self, own: torch.Tensor) -> Node | None:
        found = self._nodes.get(id(own))
        # Another tensor may have lain there.
        return found[1] if found is not None and found[0]() is own else None

    def _arguments(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(self._argument, args))

    def _argument(self, arg: Any) -> Any:
        """An argument as that of a node."""
        kind = type(arg)
        if self._counts and (kind is int or kind is float):
            expression = self.recording.expression(arg)
            if depends_on_values(expression):
                return self._number(arg, expression)
        if kind is int and self.sizes is not None:
            node = self.sizes.node_of(arg)
            return arg if node is None else node
        if kind in CONSTANTS:
            if kind is torch.device and arg.type != "cpu":
                raise TraceError(f"it computes on {arg}")
            return arg
        if kind is tuple or kind is torch.Size:
            return self._arguments(arg)
        if kind is list:
            self.recording.reads(arg)
            return list(self._arguments(arg))
        if kind is slice:
            return slice(*self._arguments((arg.start, arg.stop, arg.step)))
        if kind is dict:
            self.recording.reads(arg)
            if not all(type(name) is str for name in arg):
                raise TraceError("a dictionary with keys that are no strings")
            return {name: self._argument(own) for name, own in arg.items()}
        if isinstance(arg, _Tensor):
            return self.node_of(arg)
        if kind.__module__ == "numpy" and isinstance(arg, Number):
            return self._argument(arg.item())  # type: ignore[attr-defined]
        text = f"an argument is a {kind.__name__}"
        is_known = kind is types.FunctionType or kind.__module__.startswith("torch")
        raise TraceError(text) if is_known else UnknownObject(text)

    def _number(self, own: float, expression: Expression) -> Any:
        """A number that depends on values: a node of a tensor, or a number that has to be what it is."""
        dtype = self._tensor_type
        if dtype is None:
            self.recording.fix([own])
            return own
        node = self.graph.call_function(torch.scalar_tensor, (own,), {"dtype": dtype})
        self.as_tensors[node] = expression, dtype
        return node

    def _weight(self, own: Any) -> Node:
        """The node of a tensor that was there before: a parameter, a buffer, a constant."""
        if not isinstance(own, _Tensor):
            raise UnknownObject(f"it returns a {type(own).__name__} that it did not compute")
        known = self._weight_nodes.get(id(own))
        if known is not None:
            return known
        name = self._names.get(id(own))
        if name is None:
            name = f"_tensor_constant{next(self._numbers)}"
        kind = type(own)
        if kind is not _Tensor and kind is not torch.nn.Parameter:
            raise TraceError(f"{name} is a {kind.__name__}")
        if own.layout is not torch.strided or own.device.type != "cpu":
            raise TraceError(f"{name} is {own.layout} on {own.device}")
        if not self.trains and own.requires_grad and torch.is_grad_enabled():
            self.refuse(f"{name} wants gradients", Kind.TRAINS)
        if self.trains and self._records and id(own) not in self._names and own.requires_grad:
            # Dynamo makes something else of some of the containers that it may be in.
            raise UnknownObject(f"{name} wants gradients, and is no input and no parameter")
        if not self.trains or isinstance(own, torch.nn.Parameter) or own.requires_grad:
            self._given.add(place_of(own))
        self.weights[name] = own
        node = self.graph.create_node("get_attr", name, (), {})
        self._weight_nodes[id(own)] = node
        if self.sizes is not None:
            self.sizes.given(own, node)
        return node

    def rewritten(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes inputs of the tensors that are none and that hold something else in each call.

        Raises:
            TraceError: what the program writes to is more than one of the tensors that it was given.
        """
        weights = list(self.weights.values())
        places = [place_of(own) for own in (*inputs, *weights)]
        if any(places.count(place) > 1 for place in self._overwritten):
            raise TraceError("it writes to a tensor that shares memory with another one")
        known = self._rewritten or ()
        return self.state(
            [
                own
                for own, place in zip(weights, places[len(inputs) :], strict=True)
                if place in self._overwritten or id(own) in known
            ]
        )

    def overwritten(self, inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """The numbers of the inputs that the program writes to."""
        if not self._overwritten:
            return ()
        places = map(place_of, inputs)
        return tuple(n for n, place in enumerate(places) if place in self._overwritten)

    def written_inputs(self) -> dict[Node, Node]:
        """Nodes that have written to inputs and that give them, with the nodes of these."""
        return {
            node: self._inputs[own]
            for node, own in self._written_inputs.items()
            if own in self._inputs
        }

    def overwrites(self) -> bool:
        """Whether the program writes to what was there before."""
        return bool(self._overwritten)

    def state(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes inputs of tensors that were found in containers and in state; those that are none yet."""
        found: dict[int, torch.Tensor] = {}
        count = len(self.graph.find_nodes(op="placeholder"))
        first = next((own for own in self.graph.nodes if own.op != "placeholder"), None)
        for own in tensors:
            if id(own) in found or id(own) in self._inputs:
                continue
            found[id(own)] = own
            with self.graph.inserting_before(first) if first else contextlib.nullcontext():
                node = self.graph.placeholder(f"state_{count + len(found)}")
            weight = self._weight_nodes.pop(id(own), None)
            if weight is not None:
                weight.replace_all_uses_with(node)
                if self.sizes is not None:
                    self.sizes.replaced(weight, node)
                first = weight.next if weight is first else first
                self.graph.erase_node(weight)
                del self.weights[str(weight.target)]
            self._inputs[id(own)] = node
            self._know(own, node)
        self._constants.depend_on(self.graph.find_nodes(op="placeholder"))
        return list(found.values())

    def replay(
        self,
        returned: Any,
        inputs: Sequence[torch.Tensor],
        numbers: Mapping[int, int],
        edits: Sequence[Any],
    ) -> Replay:
        """Makes the output node of a program that finds objects, by identity, and changes them."""
        values = [own for *_, values in edits for own in values]
        calls = [] if self.deferred is None else self.deferred.calls
        values += [own for call in calls for own in call.args]
        for _, _, key, _ in edits:
            if key is not None and not is_key(key, lambda own: not self.recording.made(own)):
                raise UnknownObject(f"it sets an entry for a {type(key).__name__}")
        template = self._template((returned, *values), numbers)
        places = {id(own): number for number, own in enumerate(inputs)}
        sources: list[int | torch.Tensor | None] = []
        results = []
        for own in template.tensors:
            node = self.node_of(own)
            if id(own) in places:
                sources.append(places[id(own)])
            elif node.op == "get_attr":
                sources.append(own)
            else:
                sources.append(None)
                results.append(node)
        self.graph.output(tuple(results))
        computed = zip(template.tensors, sources, strict=True)
        self._note_results([own for own, source in computed if source is None])
        template.tensors.clear()
        # The tensors of this call are not kept.
        later = [(replace(own, args=()), len(own.args)) for own in calls]
        counted = [(number, kind, key, len(own)) for number, kind, key, own in edits]
        return Replay(template, sources, counted, later)

    def output(self, returned: Any) -> ResultTemplate | None:
        """Makes the output node; what its values are put into, unless that is in it."""
        if is_plain(returned) and not self._has_known_containers(returned):
            leaves, spec = tree_flatten(returned)
            if any(map(has_attributes, leaves)):
                raise TraceError("it returns a tensor with attributes")
            self.weights.update(self._constants.fold(self.graph, leaves))
            values = [self.node_of(own) for own in leaves]
            self.graph.output(tree_unflatten(values, spec))
            self._note_results(leaves)
            return None
        template = self._template(returned, {})
        self.graph.output(tuple(map(self.node_of, template.tensors)))
        self._note_results(template.tensors)
        template.tensors.clear()
        return template

    def _note_results(self, results: Sequence[torch.Tensor]) -> None:
        """Notes how the results lie in memory that the graph computes. They share none that a tensor chooses."""
        chosen = [own for own in places_in(results) if own in self._chosen]
        if len(chosen) != len(set(chosen)) or any(own in self._given for own in chosen):
            self.refuse("it returns a part that a tensor chooses of something else", Kind.HOST)
        if not self.trains:
            self.layouts = layouts_of(results, self._given)
            return
        for own in results:
            is_given = id(own) in self._inputs or id(own) in self._weight_nodes
            if own.requires_grad and own.is_leaf and not is_given:
                # Other backends give a view that autograd goes back through.
                self.refuse(
                    "it returns a view, made without gradients, of what wants some", Kind.HOST
                )

    def _template(self, returned: Any, numbers: Mapping[int, int]) -> ResultTemplate:
        """Builds what a program returns of the tensors in it."""
        template = ResultTemplate(
            returned,
            lambda own: not self.recording.made(own),
            numbers,
            self._constant if self.sizes is not None or self._counts else None,
        )
        self.weights.update(self._constants.fold(self.graph, template.tensors))
        return template

    def _constant(self, own: Any) -> Expression:
        """What a number is that the program returns: an expression of values; None if it has to be what it is."""
        expression = self.recording.expression(own)
        if depends_on_values(expression):
            return expression
        self.recording.fix(own)
        return None

    def _has_known_containers(self, returned: Any) -> bool:
        """Whether a container in it was there before, or is in it twice: it is one object."""
        seen: set[int] = set()

        def check(own: Any) -> bool:
            if isinstance(own, _Tensor):
                return False
            if id(own) in seen or not self.recording.made(own):
                return True
            seen.add(id(own))
            return any(map(check, own.values() if type(own) is dict else own))

        return check(returned)


__all__ = ["Recorder"]
