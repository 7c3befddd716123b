"""Capture by recording: PyTorch runs a program, and the functions of PyTorch that it calls become a graph.

The recorded call is an ordinary one: its result is eager's, and its side effects happen once.
:class:`corsac._core.Recording` watches the state that Python reads and writes meanwhile, which becomes guards; this
module makes nodes of operators, with their real results at hand. Programs that depend on values, use random numbers or
write to existing tensors are recorded only as far as the options allow, and refused otherwise.

For training, graphs may use random numbers, write to buffers and switch gradients off and on, as dropout and norms
do; operations that autograd would not see in them are refused: functions with a backward of their own, hooks of saved
tensors.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import torch
from torch.overrides import (
    TorchFunctionMode,
)
from torch.utils._python_dispatch import _disable_current_modes

from corsac import _core
from corsac._capture.autocasts import Autocasts
from corsac._capture.called_graphs import CalledGraphs, calls_graphs
from corsac._capture.deferred import Deferred
from corsac._capture.fast_paths import FastPaths
from corsac._capture.markers import breaks, nothing
from corsac._capture.numbers import Expression, depends_on_values, takes_tensor
from corsac._capture.opened_functions import opened_functions
from corsac._capture.operator_watch import OperatorWatch, names_region
from corsac._capture.packed import PackedSequences
from corsac._capture.recorded_memory import RecordedMemory
from corsac._capture.recorded_results import RecordedResults
from corsac._capture.recording_options import RecordingOptions
from corsac._capture.refusal import Kind, Refusal, UnknownObject, who_runs
from corsac._capture.sizes import TYPES, Sizes, as_size
from corsac._capture.tracked_size import TrackedSize
from corsac._capture.value_reads import ValueReads
from corsac._messages.lines import line_of_program
from corsac._padded import until_longest
from corsac._pytorch import quantised
from corsac._pytorch.aten import (
    SEVERAL,
    storage_of,
    tensors_in,
)
from corsac._pytorch.autocast import autocast_dtype
from corsac._pytorch.functions import (
    CONSTANTS,
    FORM,
    METADATA,
    NORMS,
    REFUSED,
    VALUES,
    changes_more,
    drops_between_layers,
    global_state,
    is_of_torch,
    is_sized_by_values,
    name_of,
    only_checks_values,
    reads_values,
    takes_statistics,
    takes_type,
    target_of,
)
from corsac.fx import Graph, Node
from corsac.fx.proxy import TraceError

_Tensor = torch.Tensor

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
#: A check of a condition on sizes, and the size of a dimension, in graphs of torch.export.
_SIZE_CHECK = torch.ops.aten._assert_scalar.default
_SYM_SIZE = torch.ops.aten.sym_size.int
#: A check of a tensor's type in these graphs, and its arguments that do not depend on sizes.
_TYPE_CHECK = torch.ops.aten._assert_tensor_metadata.default
_CHECKED_TYPE = {"dtype", "device", "layout"}


class Recorder(TorchFunctionMode):
    """Records the functions of PyTorch that a program calls as nodes.

    Args:
        recording: watches the Python code.
        weights: the names of parameters and buffers, by id.
        options: constructs that the program may contain.
        deferred: collects printing calls; None if the program may not print.
    """

    def __init__(
        self,
        recording: _core.Recording,
        weights: Mapping[int, str],
        options: RecordingOptions,
        deferred: Deferred | None,
    ) -> None:
        super().__init__()
        self.recording, self.trains = recording, options.trains
        self.deferred = deferred
        #: Whether a function marked as constant is running.
        self._assumes = False
        #: Functions of the program that become one node each.
        self._whole: set[Any] = set()
        self.memory = RecordedMemory(options)
        #: Whether the program may write to existing tensors, and this can be undone.
        self.undoes_writes = options.rewritten is not None
        self._keep = options.keep
        #: Nodes of inputs by id of the tensor, and nodes that write to inputs and return them, with that id.
        self._inputs: dict[int, Node] = {}
        self._written_inputs: dict[Node, int] = {}
        #: Whether there may be numbers that depend on values, or on state.
        self.counts = bool(options.counters)
        self.values = ValueReads(self, allowed=options.decides)
        #: Nodes of numbers that operators take as tensors, with expression and dtype of the number.
        self.as_tensors: dict[Node, tuple[Expression, torch.dtype]] = {}
        #: Dtype of tensors that the running function may take in the place of numbers.
        self._tensor_type: torch.dtype | None = None
        #: Whether the running function has used random numbers.
        self.uses_random = False
        #: Whether the running function has read a value, or made a tensor whose size depends on values.
        self.values_read = False
        #: The running function, and its arguments.
        self._running: tuple[Any, tuple[Any, ...], dict[str, Any]] = (None, (), {})
        #: Nodes that write to tensors made before the last read, and whether the running function does.
        self.writing: set[Node] = set()
        self._writes_back = False
        self.graph = Graph()
        #: Scales that operators of quantisation have computed.
        self._scales: list[torch.Tensor] = []
        self.sizes = None
        if options.dynamic or options.integers:
            self.sizes = Sizes(recording, self.graph, options.dynamic)
        #: Source lines of nodes.
        self.sources = _core.SourceNotes()
        #: Nodes of tensors, and their memory.
        self.tensors = _core.RecordedTensors(recording, self.graph, self.sources, METADATA)
        #: Whether calls that are known may become nodes without a closer look, as long as nothing unusual happens.
        self._repeats = not (self.trains or self.sizes or self.counts)
        self.watch = OperatorWatch(self)
        self._fast_paths = FastPaths(reads=options.decides)
        self._packed = PackedSequences(self)
        #: The casts of autocast, if they become nodes.
        self._autocasts = Autocasts(self) if options.casts else None
        #: The graphs that are called, if such calls become nodes.
        self.called = CalledGraphs() if options.calls_graphs else None
        self.refusal: Refusal | None = None
        #: Whether random numbers were used, existing tensors written to, or other changes made.
        self.saw_change = False
        #: Whether the program has written to existing tensors.
        self.wrote = False
        #: Number of nested recorded functions that are running.
        self.depth = 0
        #: That number where a function runs in the place of one of PyTorch's.
        self._instead = 0
        #: Tensors that the last one has written to.
        self._written: list[torch.Tensor] = []
        #: Whether strides or similar properties were read.
        self.asks_form = False
        #: The tensors that the graph reads besides its inputs, by their names in it.
        self.weights: dict[str, torch.Tensor] = {}
        self._names = weights
        #: Numbers for names of tensors that have none.
        self._numbers = itertools.count()
        #: Tensors written to without raising their version counters: statistics of norms, by id.
        self.statistics: dict[int, torch.Tensor] = {}
        self.results = RecordedResults(self)
        self._global_state: tuple[Any, ...] = ()
        self._autocast: torch.dtype | None = None
        #: Whether autograd records, according to the grad mode switches in the graph.
        self._is_recorded = torch.is_grad_enabled()
        self._records = torch.is_grad_enabled()

    def begin(self) -> None:
        """Note the global state that PyTorch's functions depend on."""
        self._global_state = global_state(self.trains)
        self._autocast = autocast_dtype()

    def end(self) -> None:
        """Refuse the program if that state has changed."""
        if (global_state(self.trains), autocast_dtype()) != (self._global_state, self._autocast):
            self.refuse("it leaves PyTorch set differently", Kind.HOST)

    def refuse(self, reason: str, kind: Kind = Kind.DYNAMO) -> None:
        """Stop recording, for this reason, unless there is one already."""
        if self.refusal is None:
            self.refusal = Refusal(kind, reason, line=line_of_program())

    def changes(self, own: torch.Tensor) -> None:
        """Note that an operator is about to write to an existing tensor."""
        self.saw_change = self.wrote = True
        if self._keep is not None and own.layout is torch.strided:
            self._keep(own)

    def refuse_inner_cast(self, func: Any) -> None:
        """Refuse the program if an operator is a cast that autocast makes in the running function."""
        if self._autocasts is not None:
            self._autocasts.refuse_inner(func, getattr(self._running[0], "__name__", ""))

    def only_checks(self) -> bool:
        """Whether the function that runs reads values for errors alone, and nobody traces what it calls."""
        return not self.trains and only_checks_values(*self._running)

    def assume(self, begins: bool) -> None:
        """Note the begin or end of a function marked as constant."""
        self._assumes = begins

    def cut(self) -> None:
        """Split the graph here."""
        if self.values.nodes is None:
            self.refuse("it asks for a graph break")
        elif self.refusal is None:
            try:
                self.values.read(nothing, (), {}, None)
            except TraceError as error:
                self.refuse(str(error), who_runs(error))

    def note_deferred(
        self, function: Callable[..., Any] | None, arguments: tuple[Any, ...], names: Any
    ) -> str | None:
        """Note a function that prints, or asks for a graph break; as :meth:`corsac._capture.deferred.Deferred.note`."""
        if function is None and sys._getframe(2).f_code in breaks():
            self.cut()
            return None
        if self.deferred is None:
            return f"it calls {'logging' if function is None else name_of(function)}"
        with torch._C.DisableTorchFunction():
            return self.deferred.note(function, arguments, names)

    def whole(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that becomes one node, whatever it calls."""
        self._whole.add(function)
        with torch._C.DisableTorchFunction():
            return self.__torch_function__(function, (), args, kwargs)

    def placeholder(self, name: str, own: torch.Tensor) -> None:
        """Add an input."""
        self.memory.add_input(own)
        self._inputs[id(own)] = node = self.graph.placeholder(name)
        self._know(own, node)

    def integer(self, name: str, own: int) -> tuple[torch.Tensor, int]:
        """Add an input for an integer argument that may vary, as the size of a tensor without elements; return that
        tensor, and the symbolic integer for the program."""
        assert self.sizes is not None
        size = as_size(own)
        node = self.graph.placeholder(name)
        self._inputs[id(size)] = node
        return size, self.sizes.integer(size, node)

    def made(self, storages: Iterable[int]) -> None:
        """Note the memory of new tensors."""
        if self.values.nodes is not None:
            self.memory.made(storages, len(self.values.nodes))

    def writes(self, own: torch.Tensor, *, turns: bool = False) -> bool:
        """Note that an operator writes to a tensor, or changes its strides (``turns``); return whether it may."""
        self._written.append(own)
        storage = storage_of(own) if own.layout is torch.strided else None
        self._packed.written(storage)
        for scale in self._scales:
            if storage_of(scale) == storage:
                quantised.written(scale)
        if storage in self.memory.selected:
            self.refuse("it writes to what has a part that a tensor chooses", Kind.HOST)
        if self.deferred is not None and storage in self.deferred.storages:
            self.refuse("it writes to a tensor that it has printed")
        if storage is not None and storage in self.memory.existing:
            if turns or not self.memory.overwrite(storage, len(self.values.nodes or ())):
                return False
            self._writes_back = self._writes_back or not self.trains
            return True
        age = self.memory.age(storage)
        if self.values.nodes and age != len(self.values.nodes):
            self._writes_back = True
            base = own if own._base is None else own._base
            if storage is not None and not base.is_contiguous():
                # Tensors that stages write to must be contiguous.
                self.refuse("it writes to what does not lie row by row", Kind.HOST)
            if self.trains and age is not None:
                # Results of backends need not share memory as PyTorch's do.
                self.refuse("it writes to what it had before values decided")
        return True

    def node_of(self, own: Any) -> Node:
        """The node of a tensor; a new one for a weight or constant."""
        if isinstance(own, _Tensor):
            self._packed.release([own])
        node = self._known(own)
        return self._weight(own) if node is None else node

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # Without a call: functions called here would be followed.
        if self._repeats and not (
            self.refusal is not None
            or self.values.nodes
            or self._assumes
            or self._packed.batches
            or self._fast_paths.nested
        ):
            try:
                repeated = self.tensors.repeat(self._weight_or_none, func, args, kwargs)
            except Exception:
                self.refuse(f"{name_of(func)} raised an exception", Kind.HOST)
                raise
            if repeated is not None:
                result, is_recorded = repeated
                if not is_recorded:
                    self.recording.operator()
                    try:
                        self._record_late(func, args, kwargs or {}, result)
                    finally:
                        self.recording.recorded()
                return result
        if not self.recording.operator():
            self.refuse("nothing is known of what it has done before", Kind.HOST)
        try:
            return self._function(func, args, kwargs or {})
        finally:
            self.recording.recorded()

    def _record_late(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Record a call that has been made, if possible."""
        try:
            self.made_before(func, args, kwargs, result)
        except TraceError as error:
            self.refuse(str(error), who_runs(error))

    def _function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, and record it if possible."""
        if self._assumes:
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                return func(*args, **kwargs)
        if func is _Tensor.__repr__ and self.deferred is not None and self.deferred.is_printing():
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                return func(*args, **kwargs)
        if changes_more(func, args, kwargs):
            self.saw_change = self.wrote = True
        if self.refusal is not None:
            args, kwargs = self._fast_paths.as_nested((args, kwargs))
            return self._refused(func, args, kwargs)
        self.depth += 1
        try:
            return self._called(func, args, kwargs)
        except Exception:
            # The program may catch the error, which may depend on values.
            self.refuse(f"{name_of(func)} raised an exception", Kind.HOST)
            raise
        finally:
            self.depth -= 1

    def _refused(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of a refused program."""
        if autocast_dtype() is None:
            return func(*args, **kwargs)
        # Watched operators would not cast what they call themselves. What is not watched may change anything.
        self.saw_change = self.wrote = True
        unwatched = torch._C._DisableTorchDispatch()
        try:
            return func(*args, **kwargs)
        finally:
            del unwatched

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, and record it."""
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled":
            return self._gradients_switched(func, args)
        if isinstance(func, _OPERATORS) and names_region(func):
            return func(*args, **kwargs)
        if self.called is not None and calls_graphs(func):
            return self._graphs_called(func, args, kwargs)
        composed = self._packed.found(func, args, kwargs)
        if composed is not None:
            return self._run_instead(composed)
        if type(func) is types.FunctionType and not is_of_torch(func) and func not in self._whole:
            # A function of the program may do anything in each call.
            self.refuse(f"{name_of(func)} is a function of the program for others", Kind.HOST)
            return func(*args, **kwargs)
        if func is _SIZE_CHECK and args and args[0] is True:
            # The comparison of sizes is a condition of the recording.
            return None
        if func is _TYPE_CHECK and len(args) == 1 and kwargs.keys() <= _CHECKED_TYPE:
            # As if the program had read the type.
            self.tensors.note_typed(args[0])
            return func(*args, **kwargs)
        if func is _SYM_SIZE:
            func = _Tensor.size
        if func in METADATA:
            return self._type_asked(func, args, kwargs)
        if func in FORM:
            return self._form_asked(func, args, kwargs)
        if self._fast_paths.is_one(func) and autocast_dtype() is not None:
            self.refuse(f"{name_of(func)} is called in autocast", Kind.HOST)
            return self._refused(func, args, kwargs)
        opened = opened_functions().get(func)
        if opened is not None:
            self._fix(args, kwargs)
            return self._run_instead(opened, *args, **kwargs)
        quantises = quantised.function_of(func)
        if quantises is not None:
            with self:
                result = quantises(*args, **kwargs)
            if isinstance(result, tuple):
                self._scales.append(result[0])
            return result
        composed = self._fast_paths.found(func, args, kwargs)
        if composed is not None:
            return self._run_instead(composed)
        if self._fast_paths.shows(func, (args, kwargs)):
            self.refuse(f"{name_of(func)} is asked of a nested tensor", Kind.HOST)
            args, kwargs = self._fast_paths.as_nested((args, kwargs))
            return func(*args, **kwargs)
        is_read = self.values.nodes is not None and func in VALUES
        if name == "__get__" and target_of(func, name) is None:
            # Dynamo would treat it as a constant.
            self.refuse(f"it asks for {name_of(func)}", Kind.HOST)
            return func(*args, **kwargs)
        try:
            if self._autocasts is not None:
                args, kwargs = self._autocasts.cast(func, name, args, kwargs)
            call = self._call(func, name, args, kwargs, is_read)
        except TraceError as error:
            self.refuse(str(error), who_runs(error))
            return self._refused(func, args, kwargs)
        self._begin_call()
        self._running = func, args, kwargs
        try:
            result = self.watch.computed(func, args, kwargs)
            if is_sized_by_values(name, args):
                self.values_read = True
            if self.refusal is None:
                try:
                    if is_read:
                        return self.values.read(func, call[2], call[3], result)
                    self._record(func, name, call, args, kwargs, result)
                    self._note_call(func, name, args, kwargs)
                except TraceError as error:
                    self.refuse(str(error), who_runs(error))
            return result
        finally:
            # Nothing lives longer for being recorded.
            self._running = None, (), {}

    def _run_instead(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a function that runs in the place of one of PyTorch's, and whose operators are recorded."""
        before, self._instead = self._instead, self.depth
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            self._instead = before

    def _graphs_called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the operator that calls graphs, and record it."""
        assert self.called is not None
        try:
            result, function, nodes = self.called.record(self, *args)
            self._begin_call()
            call = ("call_function", function, nodes, {})
            self._record(function, function.__name__, call, args, kwargs, result)
        except TraceError as error:
            self.refuse(str(error), who_runs(error))
            return func(*args, **kwargs)
        return result

    def _type_asked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that returns types or sizes. Sizes may be symbols."""
        result = func(*args, **kwargs)
        for own in tensors_in(args, kwargs):
            self.tensors.note_typed(own)
        if func not in TYPES:
            self.values.ask_sizes(args, kwargs)
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
                node = self._known(own) or self.tensors.weight_node(own)
                if node is not None:
                    self.sizes.fix(own, node)
                elif self.sizes.is_dynamic(own):
                    self.refuse(f"it asks {name_of(func)} of what it finds in its state")
            return result
        self._fix(args[1:], {})
        own = args[0]
        node = self._known(own) or self.tensors.weight_node(own)
        if node is None and self.sizes.is_dynamic(own):
            try:
                node = self._weight(own)
            except TraceError as error:
                self.refuse(str(error), who_runs(error))
        if node is None:
            return result
        tracked = 0 < self._instead == self.depth - 1
        seen = tracked or self.depth == 1
        return self.sizes.asked(func, args, result, node, seen, tracked=tracked)

    def _fix(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Fix the values of symbolic integers among the arguments, since their use is not recorded."""
        if self.sizes is not None:
            self.recording.fix([*args, *kwargs.values()])

    def _gradients_switched(self, func: Any, args: tuple[Any, ...]) -> Any:
        if self.trains:
            # The graph needs the switch, for autograd. Regions are left after errors, too.
            self.graph.call_function(torch._C._set_grad_enabled, args)
            self._is_recorded = args[0]
        elif args[0] and not self._records:
            self.refuse("it switches gradients on")
        return func(*args)

    def _form_asked(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that returns strides or similar properties, which then become part of the key of calls."""
        result = func(*args, **kwargs)
        self.values.ask_sizes(args, {})
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
            self.is_input(own) or self._known(own) for own in args if isinstance(own, _Tensor)
        ):
            # These properties of tensors found in state are guarded here, since their key does not have them.
            self.recording.ask(FORM[func], *args)
        return result

    def _call(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], is_read: bool
    ) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        """Opcode, target and arguments of the node for a call, which may read a value.

        Raises:
            TraceError: it cannot be a node.
        """
        if global_state(self.trains) != self._global_state:
            raise TraceError("a part of it runs with other defaults")
        if self._autocasts is None and autocast_dtype() != self._autocast:
            raise TraceError("a part of it runs in autocast, or out of it")
        if self.trains and torch.is_grad_enabled() is not self._is_recorded:
            raise TraceError("a part of it runs without gradients, which no function says")
        if self.trains and kwargs.get("requires_grad"):
            raise TraceError("it makes a tensor that wants a gradient")
        if name in REFUSED:
            raise TraceError(f"it calls {name_of(func)}")
        if self.trains and drops_between_layers(name, args):
            raise UnknownObject(f"a {name} with dropout between layers is decomposed without it")
        if self.trains and name == "lstm" and not isinstance(args[1], _Tensor):
            # oneDNN saves a workspace for backward only if autograd records, which happens outside graphs.
            raise TraceError("an LSTM does something else where autograd records")
        if isinstance(func, torch._ops.OpOverloadPacket) and len(func.overloads()) == 1:
            # The overload has a schema, which declares its effects.
            func = getattr(func, func.overloads()[0])
        self._tensor_type = takes_tensor(name, args, kwargs) if self.counts else None
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
        """Make the node of a call that returned ``result``."""
        tensors = tensors_in(args, kwargs)
        if not tensors and not tensors_in(result):
            # It is about types, or features of PyTorch.
            self._fix(args, kwargs)
            return
        if name in NORMS:
            given = (*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var"))
            statistics = [own for own in given if isinstance(own, _Tensor)]
            self.statistics.update((id(own), own) for own in statistics)
            if not (self.trains or takes_statistics(func, args, kwargs)):
                # It writes to running statistics, which its schema does not declare.
                self.saw_change = self.wrote = True
                if not all(map(self.writes, statistics)):
                    raise TraceError(f"{name} may write to running statistics")
        op, what, nodes, keywords = call
        if result is None and what is not operator.setitem:
            raise TraceError(f"{name_of(func)} gives nothing")
        node = self.graph.create_node(op, what, nodes, keywords)
        self.sources.note(node)
        if self._writes_back:
            self.writing.add(node)
        if self.sizes is not None:
            self.sizes.made(node)
        self.values.made(node, result)
        self._results(result, node, {id(own) for own in tensors}, func)
        if (
            what is operator.getitem
            and isinstance(result, _Tensor)
            and result.layout is torch.strided
            and storage_of(result) == storage_of(args[0])
            and tensors_in(args[1:])
        ):
            self.memory.selected.add(storage_of(result))
            # The part has the same sizes, whichever it is.
            self.values_read = self.values_read and self.trains
        if not self.trains:
            read = tensors_in(args[1:], kwargs) if takes_type(name, args) else tensors
            # Numbers that vary are not constants.
            varies = (
                self.uses_random
                or (self.sizes is not None and self.sizes.varies(node))
                or (
                    bool(self.as_tensors)
                    and any(own in self.as_tensors for own in node.all_input_nodes)
                )
            )
            self.tensors.note_constant(node, self._written, read, result, varies)
        if self.values_read and not self.only_checks():
            sizes = [own for own in tensors_in(result) if own.layout is torch.strided]
            if not sizes:
                raise TraceError(f"{name_of(func)} depends on values")
            if self.values.nodes is None:
                raise TraceError(f"{name_of(func)} gives tensors whose sizes depend on values")
            self.values.sizes_read(sizes, decide=func is not until_longest)

    def _note_call(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Note the call that was recorded last, for equal calls, if it has only computed its result."""
        watch = self.watch
        if watch.is_new is None:
            return
        made = None
        if self._repeats and not self.values.nodes:
            made = self._node_of_equal_calls(func, name, args, kwargs)
        if made is not None or not watch.is_known:
            _core.note_pure_call(func, args, kwargs, watch.is_new, made)

    def _node_of_equal_calls(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, Any, bool, bool] | None:
        """Opcode and target of the node of a call, whether its first two arguments are exchanged, and whether it only
        uses the type of the first one; None if the node depends on more than the call."""
        target = target_of(func, name)
        if (
            target is None
            or target[1] is getattr
            or name in NORMS
            or func in self._whole
            or changes_more(func, args, kwargs)
            # A part that a tensor chooses.
            or (target[1] is operator.getitem and tensors_in(args[1:]))
        ):
            return None
        return *target, takes_type(name, args)

    def _begin_call(self) -> None:
        """Forget what the last call was found to do."""
        self._written, self.values_read, self._writes_back = [], False, False
        self.uses_random = False

    def made_before(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Record a call that was executed without a node."""
        self._begin_call()
        name = func.__name__
        call = self._call(func, name, args, kwargs, False)
        self._record(func, name, call, args, kwargs, result)

    def size_of(self, own: torch.Tensor, dim: int) -> int:
        """Return a size of a tensor, which may be a symbol."""
        with torch._C.DisableTorchFunction():
            size = own.size(dim)
            if self.sizes is None:
                return size
            try:
                node = self.node_of(own)
            except TraceError as error:
                self.refuse(str(error), who_runs(error))
                return size
            return int(self.sizes.asked(_Tensor.size, (own, dim), size, node, True))

    def _results(self, result: Any, node: Node, given: set[int], func: Any) -> None:
        """Note the tensors that a node returns, for a call of ``func``."""
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
        if result.layout is torch.strided and storage_of(result) in self.memory.existing:
            if self.is_input(result) or self.tensors.weight_node(result):
                self._written_inputs[node] = id(result)
            elif self.values.nodes is not None:
                self.memory.viewed(result, len(self.values.nodes))
        self._know(result, node)

    def _know(self, own: torch.Tensor, node: Node) -> None:
        self.tensors.know(own, node)
        self.values.given(node)
        if self.sizes is not None:
            self.sizes.given(own, node)
            self.sizes.made(node)

    def _known(self, own: torch.Tensor) -> Node | None:
        return self.tensors.node_of(own)

    def _arguments(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(self._argument, args))

    def _argument(self, arg: Any) -> Any:
        """Convert an argument to that of a node."""
        kind = type(arg)
        if self.counts and (kind is int or kind is float):
            expression = self.recording.expression(arg)
            if depends_on_values(expression):
                return self._number(arg, expression)
        if (kind is int or kind is TrackedSize) and self.sizes is not None:
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
        """The argument for a number that depends on values: a node of a tensor, or the number itself, which is then
        fixed."""
        dtype = self._tensor_type
        if dtype is None:
            self.recording.fix([own])
            return own
        node = self.graph.call_function(torch.scalar_tensor, (own,), {"dtype": dtype})
        self.as_tensors[node] = expression, dtype
        return node

    def _weight(self, own: Any) -> Node:
        """The node of an existing tensor: a parameter, a buffer, a constant."""
        if not isinstance(own, _Tensor):
            raise UnknownObject(f"it returns a {type(own).__name__} that it did not compute")
        known = self.tensors.weight_node(own)
        if known is not None:
            return known
        name = self._names.get(id(own))
        if name is None:
            name = f"_tensor_constant{next(self._numbers)}"
        kind = type(own)
        if kind is not _Tensor and kind is not torch.nn.Parameter:
            raise TraceError(f"{name} is a {kind.__name__}")
        if torch._C._functorch.is_functorch_wrapped_tensor(own):
            raise UnknownObject(f"{name} is transformed by torch.func")
        if own.layout is not torch.strided or own.device.type != "cpu":
            raise TraceError(f"{name} is {own.layout} on {own.device}")
        if not self.trains and own.requires_grad and torch.is_grad_enabled():
            self.refuse(f"{name} wants gradients", Kind.TRAINS)
        if self.trains and self._records and id(own) not in self._names and own.requires_grad:
            # Dynamo handles some of the containers that it may be in differently.
            raise UnknownObject(f"{name} wants gradients, and is no input and no parameter")
        if not self.trains or isinstance(own, torch.nn.Parameter) or own.requires_grad:
            self.memory.existing.add(storage_of(own))
        self.weights[name] = own
        node = self.graph.create_node("get_attr", name, (), {})
        self.tensors.add_weight(own, node)
        if self.sizes is not None:
            self.sizes.given(own, node)
        return node

    def _weight_or_none(self, own: torch.Tensor) -> Node | None:
        """The node of an existing tensor; None if it cannot have one."""
        try:
            return self._weight(own)
        except TraceError:
            return None

    def rewritten(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Turn weights whose values differ between calls into inputs.

        Raises:
            TraceError: the program writes to memory that several of its inputs and weights share.
        """
        return self.state(self.memory.rewritten(inputs, list(self.weights.values())))

    def written_inputs(self) -> dict[Node, Node]:
        """Nodes that write to inputs and return them, with the nodes of these."""
        return {
            node: self._inputs[own]
            for node, own in self._written_inputs.items()
            if own in self._inputs
        }

    def typed(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Existing tensors, neither inputs nor weights of the graph, of which types or sizes were read."""
        known = {id(own) for own in (*inputs, *self.weights.values())}
        asked = [own for own in self.tensors.typed() if id(own) not in known]
        return tuple(own for own in asked if not self.recording.made(own))

    def is_input(self, own: torch.Tensor) -> bool:
        """Whether a tensor is an input of the graph."""
        return id(own) in self._inputs

    def drop_scales(self) -> None:
        """Remove scales of double precision that nothing reads: their numbers are there in single precision."""
        for own in self._scales:
            node = self._known(own)
            if node is not None and not node.users and self.refusal is None:
                self.graph.erase_node(node)
        self._scales.clear()

    def state(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Turn tensors found in containers and in state into inputs; return those that were not inputs before."""
        found: dict[int, torch.Tensor] = {}
        count = len(self.graph.find_nodes(op="placeholder"))
        first = next((own for own in self.graph.nodes if own.op != "placeholder"), None)
        for own in tensors:
            if id(own) in found or self.is_input(own):
                continue
            found[id(own)] = own
            with self.graph.inserting_before(first) if first else contextlib.nullcontext():
                node = self.graph.placeholder(f"state_{count + len(found)}")
            weight = self.tensors.take_weight(own)
            if weight is not None:
                weight.replace_all_uses_with(node)
                if self.sizes is not None:
                    self.sizes.replaced(weight, node)
                first = weight.next if weight is first else first
                self.graph.erase_node(weight)
                del self.weights[str(weight.target)]
            self._inputs[id(own)] = node
            self._know(own, node)
        self.tensors.depend_on_inputs()
        return list(found.values())


__all__ = ["Recorder"]
