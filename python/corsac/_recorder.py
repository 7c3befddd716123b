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
import gc
import inspect
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from numbers import Number
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from corsac import _core
from corsac._aten import (
    IS_RANDOM,
    is_taking_places,
    place_of,
    tensors_in,
    what_it_does,
    written_tensors,
)
from corsac._collection import no_collection
from corsac._functions import (
    CONSTANTS,
    METADATA,
    REFUSED,
    getters,
    name_of,
    situation,
    takes_statistics,
    target_of,
)
from corsac._result_template import ResultTemplate, is_plain
from corsac.fx import Graph, GraphModule, Node
from corsac.fx.proxy import TraceError

_Tensor = torch.Tensor

#: What may be asked of a tensor that calls with the same types and sizes can differ in.
_FORM = frozenset(
    [
        *getters("requires_grad", "is_leaf", "grad", "grad_fn", "retains_grad"),
        _Tensor.is_contiguous,
        _Tensor.stride,
        _Tensor.storage_offset,
        _Tensor.is_inference,
        _Tensor.is_conj,
        _Tensor.is_neg,
    ]
)


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
#: Calls a function that may have a backward of its own.
_APPLY = torch._C._FunctionBase.__dict__["apply"]
#: Tell programs whether they are compiled.
_ASKS = (
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    torch.compiler.is_exporting,
)


class Kind(Enum):
    """Who runs a program that is not captured."""

    #: Values decide, or it writes to something that was there before: Dynamo makes graphs of parts of it.
    DYNAMO = "dynamo"
    #: Nothing is known of something that it does: PyTorch runs it as it is.
    HOST = "host"
    #: Autograd records it.
    TRAINS = "trains"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program is not captured.

    Attributes:
        kind: who runs it.
        reason: for people.
        passes: whether the next call may be another matter: much is noted once.
        by_values: whether a program that asks whether it is compiled has read a value.
    """

    kind: Kind
    reason: str
    passes: bool = False
    by_values: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program as a graph.

    Attributes:
        module: the graph; it takes the tensors among the arguments, each once, in their order.
        template: builds what the program returns of its results; None if the graph gives that.
        guards: tell whether the program would do the same again.
        tensors: those that the graph reads and that are no inputs.
        statistics: those of them that norms write to in training, which PyTorch does not count.
        form: of the inputs, if the program has asked for it: strides, for instance.
    """

    module: GraphModule
    template: ResultTemplate | None
    guards: _core.Guards
    tensors: list[torch.Tensor]
    statistics: list[torch.Tensor]
    form: Any


def form_of(tensors: Sequence[torch.Tensor]) -> Any:
    """What programs may ask of inputs besides types and sizes."""
    return tuple(
        (
            own.stride(),
            own.storage_offset(),
            own.requires_grad,
            own.is_leaf,
            own.is_inference(),
            own.is_conj(),
            own.is_neg(),
            own.retains_grad,
            own.grad is None if own.is_leaf else None,
            own.grad_fn is None,
        )
        for own in tensors
    )


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


def _drops_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all that is random about an operator is what it drops, and that is nothing."""
    for number, own in enumerate(func._schema.arguments):
        if own.name == "dropout_p":
            given = (
                args[number] if number < len(args) else kwargs.get("dropout_p", own.default_value)
            )
            return bool(given == 0)
    return False


class _OperatorWatch(TorchDispatchMode):
    """Sees the operators that functions of PyTorch call, and those that are called without one."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Who says yes has Dynamo imported.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        recorder = self._recorder
        if recorder.refusal is not None:
            return func(*args, **kwargs)
        if not recorder.depth:
            recorder.refuse(f"{func} is called by code that is not seen", Kind.HOST)
            return func(*args, **kwargs)
        reason, _ = what_it_does(func)
        if reason == IS_RANDOM and (recorder.trains or _drops_nothing(func, args, kwargs)):
            reason = None
        if reason is not None and not is_taking_places(func, args):
            if func._can_decompose():
                # Dropout does nothing in evaluation mode, for instance.
                with self:
                    return func.decompose(*args, **kwargs)
            recorder.refuse(f"{func} {reason}")
            return func(*args, **kwargs)
        for own in written_tensors(func, args, kwargs):
            if not recorder.writes(own):
                recorder.refuse(f"{func} writes to a tensor that the program did not make")
        return func(*args, **kwargs)


class _Recorder(TorchFunctionMode):
    """Makes nodes of the functions of PyTorch that a program calls.

    Args:
        recording: watches what Python does.
        weights: the names of parameters and buffers, by identity.
        trains: whether autograd is to go back through the graph.
    """

    def __init__(
        self, recording: _core.Recording, weights: Mapping[int, str], trains: bool
    ) -> None:
        super().__init__()
        self.recording, self.trains = recording, trains
        self.graph = Graph()
        self.watch = _OperatorWatch(self)
        self.refusal: Refusal | None = None
        #: How many functions run that are recorded.
        self.depth = 0
        #: Where the last one has written.
        self._written: list[torch.Tensor] = []
        #: Whether strides or the like were asked for.
        self.asks_form = False
        #: The tensors that the graph reads and that are no inputs, by their names in it.
        self.weights: dict[str, torch.Tensor] = {}
        self._names = weights
        self._weight_nodes: dict[int, Node] = {}
        #: Tensors that others write to without counting it: statistics of norms.
        self.statistics: dict[int, torch.Tensor] = {}
        #: What is computed of no input.
        self._constants = _Constants()
        #: The nodes of tensors, by identity, as long as they live.
        self._nodes: dict[int, tuple[weakref.ref[torch.Tensor], Node]] = {}
        #: Where tensors lie that the program did not make and may not write to.
        self._given: set[int] = set()
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
            self.refusal = Refusal(kind, reason)

    def placeholder(self, name: str, own: torch.Tensor) -> None:
        """An input."""
        self._given.add(place_of(own))
        self._know(own, self.graph.placeholder(name))

    def writes(self, own: torch.Tensor) -> bool:
        """An operator writes to a tensor. Whether the program has made it."""
        self._written.append(own)
        return not (own.layout is torch.strided and place_of(own) in self._given)

    def node_of(self, own: Any) -> Node:
        """The node of a tensor."""
        node = self._known(own)
        return self._weight(own) if node is None else node

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.recording.operator()
        kwargs = kwargs or {}
        if self.refusal is not None:
            return func(*args, **kwargs)
        self.depth += 1
        try:
            return self._called(func, args, kwargs)
        except Exception:
            # Who catches it may do something else in the next call: values decide about errors.
            self.refuse(f"{name_of(func)} raised an exception")
            raise
        finally:
            self.depth -= 1

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function gives, which is recorded."""
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled":
            return self._gradients_switched(func, args)
        if func in METADATA:
            return func(*args, **kwargs)
        if func in _FORM:
            return self._form_asked(func, args, kwargs)
        opened = _opened().get(func)
        if opened is not None:
            with self:
                return opened(*args, **kwargs)
        try:
            call = self._call(func, name, args, kwargs)
        except TraceError as error:
            self.refuse(str(error))
            return func(*args, **kwargs)
        self._written = []
        result = func(*args, **kwargs)
        if self.refusal is None:
            try:
                self._record(func, name, call, args, kwargs, result)
            except TraceError as error:
                self.refuse(str(error))
        return result

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
        if not all(id(own) in self._names for own in args if isinstance(own, _Tensor)):
            if self.trains and getattr(func, "__name__", "") == "__get__":
                self.refuse(f"it asks for {name_of(func)}, which differs between calls")
            self.asks_form = True
        else:
            for own in args:
                self._weight(own)
        return result

    def _call(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        """Opcode, target and arguments of a node for a call.

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
        if self.trains and name == "lstm" and not isinstance(args[1], _Tensor):
            # oneDNN notes something for the way back only where autograd records, which is above graphs.
            raise TraceError("an LSTM does something else where autograd records")
        if isinstance(func, torch._ops.OpOverloadPacket) and len(func.overloads()) == 1:
            # Its schema says what it does.
            func = getattr(func, func.overloads()[0])
        nodes = self._arguments(args)
        keywords = {key: self._argument(own) for key, own in kwargs.items()}
        target = target_of(func, name)
        if target is None:
            raise TraceError(
                f"it calls {name_of(func)}, which reads values or changes more than them"
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
        tensors = list(tensors_in(args, kwargs))
        if not tensors and next(tensors_in(result), None) is None:
            # It says something of types, or of what PyTorch can do.
            return
        if name in ("batch_norm", "instance_norm") and not (
            self.trains or takes_statistics(func, args, kwargs)
        ):
            raise TraceError(f"{name} may write to running statistics")
        if name in ("batch_norm", "instance_norm"):
            given = (*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var"))
            statistics = (own for own in given if isinstance(own, _Tensor))
            self.statistics.update((id(own), own) for own in statistics)
        op, what, nodes, keywords = call
        if result is None and what is not operator.setitem:
            raise TraceError(f"{name_of(func)} gives nothing")
        node = self.graph.create_node(op, what, nodes, keywords)
        self._results(result, node, {id(own) for own in tensors}, name_of(func))
        if not self.trains:
            weights = {place_of(own) for own in tensors if id(own) in self._weight_nodes}
            read = tensors
            if name in _TAKES_TYPES and args and isinstance(args[0], _Tensor):
                read = list(tensors_in(args[1:], kwargs))
            self._constants.note(node, self._written, read, weights, result)

    def _results(self, result: Any, node: Node, given: set[int], name: str) -> None:
        """Notes the tensors that a node gives."""
        if result is None:
            return
        if isinstance(result, tuple | list):
            for number, part in enumerate(result):
                item = self.graph.create_node("call_function", operator.getitem, (node, number), {})
                self._results(part, item, given, name)
            return
        if not isinstance(result, _Tensor):
            raise TraceError(f"{name} gives a {type(result).__name__}, which depends on values")
        if id(result) not in given and (
            type(result) is not _Tensor or result.layout is not torch.strided
        ):
            raise TraceError(f"{name} gives a {type(result).__name__} that is {result.layout}")
        if result.device.type != "cpu":
            raise TraceError(f"{name} gives a tensor on {result.device}")
        if not self.trains and result.requires_grad and torch.is_grad_enabled():
            self.refuse(f"autograd records {name}", Kind.TRAINS)
        self._know(result, node)

    def _know(self, own: torch.Tensor, node: Node) -> None:
        self._nodes[id(own)] = weakref.ref(own), node

    def _known(self, own: torch.Tensor) -> Node | None:
        found = self._nodes.get(id(own))
        # Another tensor may have lain there.
        return found[1] if found is not None and found[0]() is own else None

    def _arguments(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(self._argument, args))

    def _argument(self, arg: Any) -> Any:
        """An argument as that of a node."""
        kind = type(arg)
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
        raise TraceError(f"an argument is a {kind.__name__}")

    def _weight(self, own: Any) -> Node:
        """The node of a tensor that was there before: a parameter, a buffer, a constant."""
        if not isinstance(own, _Tensor):
            raise TraceError(f"it returns a {type(own).__name__} that it did not compute")
        known = self._weight_nodes.get(id(own))
        if known is not None:
            return known
        name = self._names.get(id(own))
        if name is None:
            name = f"_tensor_constant{len(self.weights)}"
        kind = type(own)
        if kind is not _Tensor and kind is not torch.nn.Parameter:
            raise TraceError(f"{name} is a {kind.__name__}")
        if own.layout is not torch.strided or own.device.type != "cpu":
            raise TraceError(f"{name} is {own.layout} on {own.device}")
        if not self.trains and own.requires_grad and torch.is_grad_enabled():
            self.refuse(f"{name} wants gradients", Kind.TRAINS)
        if self.trains and id(own) not in self._names and own.requires_grad:
            raise TraceError(f"{name} wants gradients, and is no input and no parameter")
        if not self.trains or isinstance(own, torch.nn.Parameter) or own.requires_grad:
            self._given.add(place_of(own))
        self.weights[name] = own
        node = self.graph.create_node("get_attr", name, (), {})
        self._weight_nodes[id(own)] = node
        return node

    def output(self, returned: Any) -> ResultTemplate | None:
        """Makes the output node; what its values are put into, unless that is in it."""
        returned_tensors = [own for own in tree_leaves(returned) if isinstance(own, _Tensor)]
        self.weights.update(self._constants.fold(self.graph, returned_tensors))
        if is_plain(returned) and not self._has_known_containers(returned):
            leaves, spec = tree_flatten(returned)
            values = [self.node_of(own) for own in leaves]
            self.graph.output(tree_unflatten(values, spec))
            return None
        template = ResultTemplate(returned, lambda own: not self.recording.made(own))
        self.graph.output(tuple(map(self.node_of, template.tensors)))
        template.tensors.clear()
        return template

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


class _Constants:
    """Tensors that a program computes of no input, in whatever steps: masks that are written part by part.

    Each call would compute the same, so that they are computed once, unless somebody could see that.
    """

    def __init__(self) -> None:
        #: The nodes that compute them, with what they give and where that lies.
        self._nodes: dict[Node, tuple[Any, set[int]]] = {}
        #: Where they lie, alive as long as this is.
        self._places: dict[int, torch.Tensor] = {}
        #: Places that are written to by others, or after they were read.
        self._lost: set[int] = set()
        self._read: set[int] = set()
        #: Places that are written to after they were made.
        self._written: set[int] = set()

    def note(
        self,
        node: Node,
        written: list[torch.Tensor],
        tensors: list[torch.Tensor],
        weights: set[int],
        result: Any,
    ) -> None:
        """A node was made, which has written to some tensors, read some, and given ``result``.

        Args:
            node: the node.
            written: what it has written to.
            tensors: what it has read.
            weights: where those of them lie that the program did not make and that are no inputs.
            result: what it gave.
        """
        results = list(tensors_in(result))
        if any(own.layout is not torch.strided for own in (*tensors, *results)):
            return
        read = {place_of(own): own for own in tensors if place_of(own) not in weights}
        is_constant = all(place in self._places for place in read)
        if not is_constant:
            self._read.update(place for place in read if place in self._places)
            self._lost.update(map(place_of, written))
            # A view of a constant that an input had a say in.
            self._lost.update(place_of(own) for own in results if place_of(own) in self._places)
            return
        places = {place_of(own): own for own in (*results, *written)}
        self._lost.update(place_of(own) for own in written if place_of(own) in self._read)
        self._written.update(map(place_of, written))
        self._places.update(places)
        self._nodes[node] = result, {*places, *read}

    def fold(self, graph: Graph, returned: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Puts the tensors in the place of the nodes that compute them, if some of these write; by name."""
        lost = self._lost | {place_of(own) for own in returned if own.layout is torch.strided}
        while True:
            # What shares a node with what is computed anew is computed anew, too.
            found = {own for _, places in self._nodes.values() if places & lost for own in places}
            if found <= lost:
                break
            lost |= found
        # What is only computed is for who folds constants.
        kept = {
            node: own
            for node, (own, places) in self._nodes.items()
            if places & self._written and not places & lost
        }
        named: dict[str, torch.Tensor] = {}
        for node, own in kept.items():
            if isinstance(own, _Tensor) and any(user not in kept for user in node.users):
                name = f"_constant{len(named)}"
                with torch.inference_mode(False):
                    named[name] = own.clone()
                with graph.inserting_before(node):
                    new = graph.create_node("get_attr", name, (), {})
                node.replace_all_uses_with(new, lambda user: user not in kept)
        for node in reversed(kept):
            if not node.users:
                graph.erase_node(node)
        return named


def named_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers, of which the first name is the last here."""
    yield from reversed([*model.named_parameters(), *model.named_buffers()])


def named_arguments(
    program: Callable[..., Any], args: tuple[Any, ...]
) -> Iterator[tuple[str, Any]]:
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        function = program.forward if isinstance(program, torch.nn.Module) else program
        for own in inspect.signature(function).parameters.values():
            if own.kind is own.VAR_POSITIONAL:
                names += [f"{own.name}_{number}" for number in range(len(args) - len(names))]
            names.append(own.name)
    for number, own in enumerate(args):
        yield names[number] if number < len(names) else f"input_{number}", own


_recorded_here = threading.local()


def is_recording() -> bool:
    """Whether this thread records a program, which is to see the operators of all that it calls."""
    return getattr(_recorded_here, "depth", 0) > 0


def _collections() -> list[int]:
    """How often garbage was collected, of each generation."""
    return [own["collections"] for own in gc.get_stats()]


def _ours() -> list[Any]:
    """The code in which nothing is looked at: it makes nodes of operators, and calls PyTorch."""
    functions = [
        handle_torch_function,
        _Recorder.__torch_function__,
        _OperatorWatch.__torch_dispatch__,
        is_recording,
        torch.autocast.__enter__,
        torch.autocast.__exit__,
        *_ASKS,
    ]
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    if guard is not None:
        # Dynamo counts modules that are made.
        functions.append(guard.GenerationTracker.tag)
    return [own.__code__ for own in functions]


def _unlike() -> list[tuple[Any, int, str]]:
    """Code that is not recorded if a variable is not None: the code, the number of the variable, and why."""

    def place(function: Any, variable: str) -> tuple[Any, int]:
        code = function.__code__
        return code, code.co_varnames.index(variable)

    return [
        (
            # It gives zeros for what was left out, unless somebody looks at its operators.
            *place(torch.nn.TransformerEncoder.forward, "src_key_padding_mask"),
            "an encoder packs sequences that are padded",
        )
    ]


#: What PyTorch's functions depend on besides their arguments and what Python reads.
_SETTINGS: tuple[Callable[[], Any], ...] = (
    torch.get_default_dtype,
    torch._C._len_torch_function_stack,
    torch._C._get_tracing_state,
    torch._C._functorch.maybe_current_level,
    torch._C._get_deterministic_algorithms,
    torch.is_deterministic_algorithms_warn_only_enabled,
)


def record(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    trains: bool = False,
    compiling: bool = False,
) -> tuple[Any, Recorded | Refusal]:
    """Calls ``program``, and records what it does with tensors of these types and sizes.

    Args:
        model: has the parameters and buffers.
        program: is called with the arguments; ``model`` itself, or a function.
        args: tensors on the CPU, and constants.
        kwargs: the same.
        trains: whether autograd is to go back through the graph; gradients are on then.
        compiling: whether programs that ask are told that they are compiled: many read values only if they
            are not.

    Returns:
        What the program returns; what it did, or why that is not known.
    """
    unavailable = _unavailable(args, kwargs)
    if unavailable is not None:
        return program(*args, **kwargs), unavailable
    with no_collection(), _told_to_be_compiled() if compiling else contextlib.nullcontext():
        return _recorded(model, program, args, kwargs, trains)


@contextlib.contextmanager
def _told_to_be_compiled() -> Iterator[None]:
    """``torch.compiler.is_compiling()`` is true in the block."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _unavailable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Refusal | None:
    """Why nothing can be recorded in this call."""
    if any(own.__dict__ for own in (*args, *kwargs.values()) if isinstance(own, _Tensor)):
        return Refusal(Kind.HOST, "an input has attributes", passes=True)
    if torch._C._len_torch_function_stack():
        return Refusal(Kind.HOST, "a mode of torch.overrides is on", passes=True)
    reason = _core.Recording.unavailable()
    return None if reason is None else Refusal(Kind.DYNAMO, reason, passes=True)


def _recorded(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    trains: bool,
) -> tuple[Any, Recorded | Refusal]:
    unlike = _unlike()
    recording = _core.Recording(_ours(), unlike, [_APPLY] if trains else [])
    for setting in _SETTINGS:
        recording.ask(setting)
    recorder = _Recorder(recording, {id(own): name for name, own in named_weights(model)}, trains)
    tensors: dict[int, torch.Tensor] = {}
    for name, own in [*named_arguments(program, args), *kwargs.items()]:
        if isinstance(own, _Tensor) and id(own) not in tensors:
            tensors[id(own)] = own
            recorder.placeholder(name, own)
    gradients, collections = torch.is_grad_enabled(), _collections()
    _recorded_here.depth = getattr(_recorded_here, "depth", 0) + 1
    try:
        with recorder.watch, recorder:
            recorder.begin()
            returned = recording.run(program, args, kwargs)
            recorder.end()
    finally:
        _recorded_here.depth -= 1
    if torch.is_grad_enabled() is not gradients:
        recorder.refuse("it leaves gradients switched on or off")
    found = recording.finish(list(tensors.values()))
    if _collections() != collections:
        # Whether the program has made an object is told by how young it is.
        return returned, Refusal(
            Kind.HOST, "garbage was collected while it was recorded", passes=True
        )
    if isinstance(found, tuple) and not trains and found[1] in [reason for *_, reason in unlike]:
        # Dynamo would capture what PyTorch does where somebody looks at its operators, too, and it has done so here: the
        # call is made again, for its results.
        return program(*args, **kwargs), Refusal(Kind.HOST, found[1])
    if recorder.refusal is not None and not (isinstance(found, tuple) and found[0] == "opaque"):
        asks = any(recording.entered(own.__code__) for own in _ASKS)
        by_values = asks and recorder.refusal.kind is Kind.DYNAMO
        return returned, replace(recorder.refusal, by_values=by_values)
    if isinstance(found, tuple):
        kind, reason = found
        who = Kind.HOST if kind == "opaque" else Kind.DYNAMO
        return returned, Refusal(who, reason, passes=kind != "torch")
    try:
        template = recorder.output(returned)
        if recorder.refusal is not None:
            return returned, recorder.refusal
    except TraceError as error:
        return returned, Refusal(Kind.DYNAMO, str(error))
    module = GraphModule(dict(recorder.weights), recorder.graph)
    module.training = False
    form = form_of(list(tensors.values())) if recorder.asks_form else None
    read = list(recorder.weights.values())
    kept = {id(own) for own in read}
    statistics = [own for key, own in recorder.statistics.items() if key in kept]
    return returned, Recorded(module, template, found, read, statistics, form)


__all__ = ["Kind", "Recorded", "Refusal", "form_of", "is_recording", "named_weights", "record"]
