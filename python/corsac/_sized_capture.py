"""Capture of a program for the sizes of one call.

Programs whose control flow depends on sizes (Hugging Face's models do) cannot be traced with proxies of
which nothing is known. Here they are run once on stand-ins that know types and sizes but have no data:
each function of PyTorch that is called becomes a node of the graph, and sizes are numbers in it. What
would depend on values, or on anything else that may differ in the next call, stops the capture.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import operator
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from corsac._aten import is_taking_places, place_of, what_it_does, written_tensors
from corsac._python_state import PythonState
from corsac._result_template import ResultTemplate
from corsac.fx import Graph, GraphModule, Node
from corsac.fx.proxy import TraceError

_META, _CPU = torch.device("meta"), torch.device("cpu")
_Tensor = torch.Tensor


def getters(*names: str) -> Iterator[Any]:
    for name in names:
        found = getattr(_Tensor, name, None)
        if found is not None:
            yield found.__get__


#: What may be asked of a stand-in: it is the same in all calls that the graph is for.
METADATA = frozenset(
    [
        *getters("shape", "dtype", "device", "ndim", "layout", "itemsize", "nbytes", "names"),
        *getters("is_cpu", "is_cuda", "is_mps", "is_xpu", "is_xla", "is_hpu", "is_mtia", "is_ipu"),
        *getters("is_vulkan", "is_maia", "is_quantized", "is_sparse", "is_sparse_csr"),
        *getters("is_mkldnn", "is_nested"),
        _Tensor.size,
        _Tensor.dim,
        _Tensor.ndimension,
        _Tensor.numel,
        _Tensor.nelement,
        _Tensor.element_size,
        _Tensor.__len__,
        _Tensor.is_floating_point,
        _Tensor.is_complex,
        _Tensor.is_signed,
        torch.numel,
        torch.is_floating_point,
        torch.is_complex,
        torch.is_signed,
        torch.result_type,
    ]
)
#: The same of weights, where the answer is theirs.
_OF_WEIGHTS = frozenset(
    [*getters("requires_grad", "is_leaf"), _Tensor.is_contiguous, _Tensor.stride]
)
#: Attributes that are tensors.
_VIEWS = {getattr(_Tensor, name).__get__: name for name in ("T", "mT", "H", "mH", "real", "imag")}
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_SHIFTS = ("lshift", "rshift", "xor")
_OTHERS = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem", "setitem")
#: Methods of tensors that Python's operators call, as functions; True where operands are swapped.
_OPERATORS: dict[str, tuple[Callable[..., Any], bool]] = {
    **{
        f"__{name}__": (getattr(operator, name), False)
        for name in (*_ARITHMETIC, *_SHIFTS, *_OTHERS)
    },
    **{f"__r{name}__": (getattr(operator, name), True) for name in (*_ARITHMETIC, *_SHIFTS)},
    **{f"__i{name}__": (getattr(operator, f"i{name}"), False) for name in _SHIFTS},
    "__and__": (operator.and_, False),
    "__or__": (operator.or_, False),
    "__div__": (operator.truediv, False),
    "__rand__": (operator.and_, True),
    "__ror__": (operator.or_, True),
    "__rdiv__": (operator.truediv, True),
    "__iand__": (operator.iand, False),
    "__ior__": (operator.ior, False),
    "__ipow__": (operator.ipow, False),
}
#: The same by the methods, some of which have other names for themselves.
_METHODS = {
    getattr(_Tensor, name): found for name, found in _OPERATORS.items() if hasattr(_Tensor, name)
}
#: Functions that change what autograd, other threads or the caller see, and not only numbers.
REFUSED = frozenset(
    [
        *("requires_grad_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook"),
        *("backward", "share_memory_", "pin_memory", "set_", "resize_", "resize_as_", "resize"),
        *("rename_", "rename", "refine_names", "align_to", "as_subclass", "new", "to_sparse"),
        *("map_", "map2_", "apply_", "cuda", "xpu", "ipu", "mtia", "hpu", "storage", "data_ptr"),
        *("untyped_storage", "module_load"),
    ]
)
#: What arguments of nodes may be, besides tensors.
CONSTANTS = frozenset(
    [
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        type(Ellipsis),
    ]
)


class Hollow(FakeTensor):
    """A tensor on the CPU of which types and sizes are known, and nothing else.

    It is a ``FakeTensor``, since programs ask for those before they read values; but it needs no
    ``FakeTensorMode``, whose first one takes longer than a capture. Operators that reach it without a
    function that :class:`_Recorder` sees are refused.
    """

    _corsac_meta: torch.Tensor
    _corsac_node: Node
    _corsac_is_input: bool
    _corsac_recorder: _Recorder

    @staticmethod
    def __new__(  # type: ignore[misc]
        cls: type[Hollow],
        recorder: _Recorder,
        meta: torch.Tensor,
        node: Node,
        is_input: bool = False,
    ) -> Hollow:
        own = _Tensor._make_subclass(
            cls, meta, False, dispatch_device=True, device_for_backend_keys=_CPU
        )
        own._corsac_meta, own._corsac_node, own._corsac_is_input = meta, node, is_input
        own._corsac_recorder = recorder
        return own

    def __init__(self, *_: Any) -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return _CPU

    @property
    def layout(self) -> torch.layout:  # type: ignore[override]
        return torch.strided

    @property
    def is_mkldnn(self) -> bool:  # type: ignore[override]
        return False

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return _CPU
        error = TraceError(f"{func} reads a value, or is called by code that is not seen")
        for own in tree_leaves((args, kwargs)):
            if type(own) is Hollow:
                # Whoever called it may catch the exception.
                own._corsac_recorder.error = error
        raise error


class _OperatorWatch(TorchDispatchMode):
    """Sees the operators that functions of PyTorch call, and those that are called without one."""

    def __init__(self) -> None:
        super().__init__()
        #: How many functions run that are recorded.
        self.depth = 0
        #: Where tensors lie that the program did not make and may not write to.
        self.given: dict[int, torch.Tensor] = {}
        #: How many operators have written to something.
        self.writes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Who says yes has Dynamo imported.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.depth:
            raise TraceError(f"{func} is called by code that is not seen")
        reason, _ = what_it_does(func)
        if reason is not None and not is_taking_places(func, args):
            if not func._can_decompose():
                raise TraceError(f"{func} {reason}")
            # Dropout does nothing in evaluation mode, for instance.
            with self:
                return func.decompose(*args, **kwargs)
        written = list(written_tensors(func, args, kwargs))
        self.writes += bool(written)
        if any(place_of(own) in self.given for own in written):
            raise TraceError(f"{func} writes to a tensor that the program did not make")
        return func(*args, **kwargs)


class _Recorder(TorchFunctionMode):
    """Makes nodes of the functions of PyTorch that a program calls.

    Args:
        graph: where they go.
        weights: the names of parameters and buffers, by identity.
    """

    def __init__(self, graph: Graph, weights: dict[int, str]) -> None:
        super().__init__()
        self.graph = graph
        self.watch = _OperatorWatch()
        #: What has stopped the capture: programs may catch exceptions.
        self.error: TraceError | None = None
        self.hollows: list[weakref.ref[Hollow]] = []
        self._weights = weights
        self._weight_metas: dict[int, torch.Tensor] = {}
        self._weight_nodes: dict[int, Node] = {}
        self._kept: list[Any] = []
        self._situation: tuple[Any, ...] = ()
        #: Results of functions that do nothing but compute a new tensor, by what they were called with.
        self._fresh: dict[Any, tuple[Any, ...]] = {}

    def __enter__(self) -> _Recorder:
        self._situation = situation(False)
        return super().__enter__()

    def placeholder(self, name: str, own: torch.Tensor) -> Hollow:
        """What stands for an input, as if it lay row by row."""
        meta = torch.empty(own.shape, dtype=own.dtype, device=_META)
        self.watch.given[place_of(meta)] = meta
        return self._hollow(meta, self.graph.placeholder(name), True)

    def node_of(self, value: Any) -> Node:
        """The node of a tensor, for what the program returns."""
        if type(value) is Hollow:
            return value._corsac_node
        if id(value) in self._weights:
            return self._weight(value)[1]
        raise TraceError(f"it returns a {type(value).__name__} that it did not compute")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self.error is not None:
            raise self.error
        kwargs = kwargs or {}
        self.watch.depth += 1
        try:
            if func in METADATA:
                return self._described(func, args, kwargs)
            return self._recorded(func, args, kwargs)
        except TraceError as error:
            self.error = error
            raise
        except Exception as error:
            self.error = TraceError(f"{name_of(func)}: {type(error).__name__}: {error}")
            raise self.error from error
        finally:
            self.watch.depth -= 1

    def _described(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function tells of the type of a tensor."""
        for own in (*args, *kwargs.values()):
            if isinstance(own, _Tensor) and type(own) is not Hollow:
                self._weight(own)
        return func(*args, **kwargs)

    def _recorded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled":
            if args[0]:
                raise TraceError("it switches gradients on")
            return func(*args)
        if situation(False) != self._situation:
            raise TraceError("a part of it runs in autocast, out of it, or with other defaults")
        own: dict[int, Any] = {}
        metas, nodes, key = self._arguments(args, own)
        meta_kwargs, node_kwargs, kwargs_key = self._keywords(kwargs, own)
        if func in _OF_WEIGHTS:
            if any(type(found) is Hollow for found in own.values()):
                if name != "__get__" or any(found._corsac_is_input for found in own.values()):
                    raise TraceError(f"it asks for {name_of(func)}, which differs between calls")
                # Autograd records nothing of what is computed here.
                return func(*args)
            return func(*args, **kwargs)
        if name in REFUSED:
            raise TraceError(f"it calls {name_of(func)}")
        target = target_of(func, name)
        if target is None:
            raise TraceError(
                f"it calls {name_of(func)}, which reads values or changes more than them"
            )
        if not own and "device" not in kwargs and func in _device_constructors():
            meta_kwargs["device"] = _META
        call = None if key is None or kwargs_key is None else (func, key, kwargs_key)
        known = self._fresh.get(call) if call is not None else None
        if known is not None:
            result = torch.empty_strided(known[0], known[1], dtype=known[2], device=_META)
        else:
            result = self._run(func, metas, meta_kwargs, own, call)
        if not own and not _has_tensor(result):
            # It says something of types, or of what PyTorch can do.
            return result
        if name in ("batch_norm", "instance_norm") and not takes_statistics(func, args, kwargs):
            raise TraceError(f"{name} may write to running statistics")
        op, what, swapped = target
        if swapped:
            nodes = (nodes[1], nodes[0], *nodes[2:])
        elif op == "call_function" and what is getattr:
            nodes = (nodes[0], _VIEWS[func])
        if result is None and what is not operator.setitem:
            raise TraceError(f"{name_of(func)} gives nothing")
        node = self.graph.create_node(op, what, tuple(nodes), node_kwargs)
        return self._given_back(result, node, own, name_of(func))

    def _run(self, func: Any, args: Any, kwargs: Any, own: dict[int, Any], call: Any) -> Any:
        """What a function gives of tensors without data."""
        watch = self.watch
        writes = watch.writes
        result = func(*args, **kwargs)
        if call is not None and watch.writes == writes and type(result) is _Tensor:
            place = place_of(result)
            metas = [self._meta_of(found) for found in own.values()]
            is_fresh = place not in {place_of(meta) for meta in metas}
            if is_fresh and result.device is not None and result.device.type == "meta":
                self._fresh[call] = (tuple(result.shape), result.stride(), result.dtype)
        return result

    def _meta_of(self, own: Any) -> torch.Tensor:
        return own._corsac_meta if type(own) is Hollow else self._weight_metas[id(own)]

    def _arguments(self, args: Sequence[Any], own: dict[int, Any]) -> tuple[Any, Any, Any]:
        """Arguments as tensors without data, as nodes, and as a key; ``own`` are the tensors in them."""
        metas, nodes, keys = [], [], []
        for arg in args:
            meta, node, key = self._argument(arg, own)
            metas.append(meta)
            nodes.append(node)
            keys.append(key)
        return tuple(metas), tuple(nodes), tuple(keys)

    def _keywords(self, kwargs: Mapping[str, Any], own: dict[int, Any]) -> tuple[Any, Any, Any]:
        if not kwargs:
            return {}, {}, ()
        if not all(type(name) is str for name in kwargs):
            raise TraceError("a dictionary with keys that are no strings")
        metas, nodes, keys = self._arguments(list(kwargs.values()), own)
        names = tuple(kwargs)
        return (
            dict(zip(names, metas, strict=True)),
            dict(zip(names, nodes, strict=True)),
            (names, keys),
        )

    def _argument(self, arg: Any, own: dict[int, Any]) -> tuple[Any, Any, Any]:
        kind = type(arg)
        if kind is Hollow:
            meta = arg._corsac_meta
            own[id(meta)] = arg
            return meta, arg._corsac_node, (meta.dtype, meta.shape, meta.stride())
        if kind in CONSTANTS:
            if kind is torch.device or arg == "cpu":
                if kind is torch.device and arg.type != "cpu":
                    raise TraceError(f"it computes on {arg}")
                return _META, arg, "device"
            return arg, arg, (kind, arg)
        if kind is list or kind is tuple or kind is torch.Size:
            metas, nodes, keys = self._arguments(arg, own)
            if kind is list:
                return list(metas), list(nodes), (list, keys)
            return metas, nodes, (tuple, keys)
        if kind is slice:
            metas, nodes, keys = self._arguments((arg.start, arg.stop, arg.step), own)
            return slice(*metas), slice(*nodes), (slice, keys)
        if kind is dict:
            metas, nodes, keys = self._keywords(arg, own)
            return metas, nodes, (dict, keys)
        if isinstance(arg, _Tensor):
            meta, node = self._weight(arg)
            own[id(meta)] = arg
            return meta, node, (meta.dtype, meta.shape, meta.stride())
        if kind.__module__ == "numpy" and isinstance(arg, Number):
            return self._argument(arg.item(), own)  # type: ignore[attr-defined]
        raise TraceError(f"an argument is a {kind.__name__}")

    def _weight(self, own: torch.Tensor) -> tuple[torch.Tensor, Node]:
        """What stands for a parameter or buffer."""
        name = self._weights.get(id(own))
        if name is None:
            raise TraceError("it uses a tensor that is no input, no parameter and no buffer")
        meta = self._weight_metas.get(id(own))
        if meta is None:
            is_plain = type(own) is _Tensor or type(own) is torch.nn.Parameter
            if not is_plain or own.layout is not torch.strided or own.device.type != "cpu":
                kind = type(own).__name__
                raise TraceError(f"{name} is a {kind} that is {own.layout} on {own.device}")
            meta = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=_META)
            self._weight_metas[id(own)] = meta
            self.watch.given[place_of(meta)] = meta
            self._weight_nodes[id(own)] = self.graph.create_node("get_attr", name, (), {})
        return meta, self._weight_nodes[id(own)]

    def _hollow(self, meta: torch.Tensor, node: Node, is_input: bool = False) -> Hollow:
        made = Hollow(self, meta, node, is_input)
        self.hollows.append(weakref.ref(made))
        return made

    def _given_back(self, result: Any, node: Node, own: dict[int, Any], name: str) -> Any:
        """What the program gets where PyTorch gives ``result``."""
        if isinstance(result, _Tensor):
            found = own.get(id(result))
            if found is not None:
                if type(found) is Hollow:
                    if found.shape != result.shape:
                        raise TraceError(f"{name} gives a tensor another size in place")
                    found._corsac_node = node
                return found
            if type(result) is not _Tensor or result.layout is not torch.strided:
                raise TraceError(f"{name} gives a {type(result).__name__} that is {result.layout}")
            if result.device.type == "cpu" and not own:
                result = torch.empty_strided(
                    result.shape, result.stride(), dtype=result.dtype, device=_META
                )
            if result.device.type != "meta":
                raise TraceError(f"{name} gives a tensor on {result.device}")
            return self._hollow(result, node)
        if result is None:
            return None
        if isinstance(result, tuple | list):
            parts = []
            for number, part in enumerate(result):
                item = self.graph.create_node("call_function", operator.getitem, (node, number), {})
                parts.append(self._given_back(part, item, own, name))
            kind = type(result)
            if kind is tuple or kind is list:
                return kind(parts)
            # A tuple with names, of PyTorch (which takes them all at once) or of Python.
            return kind(parts) if kind.__module__.startswith("torch.return_types") else kind(*parts)
        raise TraceError(f"{name} gives a {type(result).__name__}, which depends on values")


def takes_statistics(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a norm computes with statistics that are given, which its schema does not say."""
    mean = args[1] if len(args) > 1 else kwargs.get("running_mean")
    if mean is None:
        return True
    if func is not torch.nn.functional.batch_norm:
        return False
    training = args[5] if len(args) > 5 else kwargs.get("training", False)
    return training is False


def target_of(func: Any, name: str) -> tuple[str, Any, bool] | None:
    """Opcode and target for a function, and whether its first two arguments change places."""
    if func in _VIEWS:
        return "call_function", getattr, False
    found = _METHODS.get(func)
    if found is not None:
        return "call_function", *found
    if name.startswith("__"):
        return None
    if getattr(_Tensor, name, None) is func:
        return "call_method", name, False
    return "call_function", func, False


def name_of(func: Any) -> str:
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") in ("__get__", "__set__") and owner is not None:
        return f"Tensor.{owner.__name__}"
    return getattr(func, "__qualname__", None) or str(func)


def _has_tensor(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_tensor, value))
    return isinstance(value, _Tensor)


def situation(trains: bool) -> tuple[Any, ...]:
    """What PyTorch's functions depend on, besides their arguments; with ``trains`` autograd, too."""
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    of_autograd: tuple[Any, ...] = ()
    if trains:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        of_autograd = (torch.is_inference_mode_enabled(), hooks)
    return (
        *of_autograd,
        autocast,
        torch.get_default_dtype(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._functorch.maybe_current_level(),
    )


@dataclass(frozen=True, slots=True)
class SizedCapture:
    """A program as a graph for some sizes.

    Attributes:
        module: the graph; it takes the tensors among the arguments, each once, in their order.
        template: builds what the program returns, or None where the graph gives that.
    """

    module: GraphModule
    template: ResultTemplate | None

    def rebuilt(self, results: Any) -> Any:
        """What the program returns, of the results of the graph."""
        return results if self.template is None else self.template.build(results)


def sized_capture(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> SizedCapture:
    """What ``program`` does with tensors of the types and sizes of these.

    Args:
        model: has the parameters and buffers.
        program: is called with the arguments; ``model`` itself, or a function.
        args: tensors on the CPU, and constants.
        kwargs: the same.

    Raises:
        TraceError: something depends on values, or the graph would do something else.
    """
    if any(own.__dict__ for own in (*args, *kwargs.values()) if isinstance(own, _Tensor)):
        raise TraceError("an input has attributes")
    if torch._C._len_torch_function_stack() or torch.nn.modules.module._has_any_global_hook():
        raise TraceError("a mode is on, or all modules have hooks")
    state = PythonState.of(model, program)
    try:
        found = _recorded(model, program, args, kwargs, state)
        changed = state.change()
        if changed is not None:
            if not state.is_set_to_constants():
                raise TraceError(f"it changes {changed}")
            # Some note what they are used for, which is the same from then on.
            again = PythonState.of(model, program)
            first, found = found, _recorded(model, program, args, kwargs, again)
            if again.change() is not None or _differ(first, found):
                again.restore()
                raise TraceError(f"it changes {changed}")
    except BaseException:
        state.restore()
        raise
    return found


def _differ(one: SizedCapture, other: SizedCapture) -> bool:
    return str(one.module.graph) != str(other.module.graph)


def _recorded(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: PythonState,
) -> SizedCapture:
    """The graph of one run of ``program``, and ``state`` was before."""
    graph = Graph()
    recorder = _Recorder(graph, {id(own): name for name, own in named_weights(model)})
    hollow: dict[int, Hollow] = {}
    given: list[Any] = []
    for name, own in [*named_arguments(program, args), *kwargs.items()]:
        if not isinstance(own, _Tensor):
            given.append(own)
            continue
        if id(own) not in hollow:
            hollow[id(own)] = recorder.placeholder(name, own)
        given.append(hollow[id(own)])
    positional, named = given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True))
    try:
        with (
            _grad_mode_as_it_is(),
            _random_numbers_as_they_are(),
            recorder.watch,
            recorder,
        ):
            returned = program(*positional, **named)
        if recorder.error is not None:
            raise recorder.error
    except Exception as error:
        stopped = recorder.error or error
        if isinstance(stopped, TraceError):
            raise stopped from None
        raise TraceError(f"{type(stopped).__name__}: {stopped}") from stopped
    template = _output(recorder, returned, state)
    del hollow, given, positional, named, returned
    if any(reference() is not None for reference in recorder.hollows):
        # What is only kept by cycles is not kept.
        gc.collect()
        if any(reference() is not None for reference in recorder.hollows):
            raise TraceError("it keeps a tensor")
    module = GraphModule(model if program is model else torch.nn.Module(), graph)
    module.training = False
    return SizedCapture(module, template)


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


def _output(recorder: _Recorder, returned: Any, state: PythonState) -> ResultTemplate | None:
    """Makes the output node; what its values are put into, unless that is in it."""
    if is_plain(returned):
        leaves, spec = tree_flatten(returned)
        values = [recorder.node_of(own) for own in leaves]
        recorder.graph.output(tree_unflatten(values, spec))
        return None
    template = ResultTemplate(returned, state.knows)
    recorder.graph.output(tuple(map(recorder.node_of, template.tensors)))
    template.tensors.clear()
    return template


def is_plain(returned: Any) -> bool:
    """Whether graphs say what it is: tensors, in Python's own containers or in none."""
    if type(returned) is tuple or type(returned) is list:
        return all(map(is_plain, returned))
    if type(returned) is dict:
        return all(type(key) is str for key in returned) and all(map(is_plain, returned.values()))
    return isinstance(returned, _Tensor)


@contextlib.contextmanager
def _grad_mode_as_it_is() -> Iterator[None]:
    """Nobody leaves autograd on or off in the block who found it otherwise."""
    before = torch.is_grad_enabled()
    try:
        yield
    finally:
        after = torch.is_grad_enabled()
        torch.set_grad_enabled(before)
    if after is not before:
        raise TraceError("it leaves gradients switched on or off")


@contextlib.contextmanager
def _random_numbers_as_they_are() -> Iterator[None]:
    """Nothing draws random numbers in the block, or seeds who does."""

    def states() -> tuple[Any, ...]:
        numpy = sys.modules.get("numpy")
        of_numpy = None
        if numpy is not None and "numpy.random" in sys.modules:
            found = numpy.random.get_state()
            of_numpy = (found[0], found[1].tobytes(), *found[2:])
        return random.getstate(), of_numpy, torch.get_rng_state().numpy().tobytes()

    before = states()
    yield
    after = states()
    if after != before:
        random.setstate(before[0])
        if before[1] is not None:
            import numpy as np

            name, keys, *rest = before[1]
            np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))
        torch.set_rng_state(torch.frombuffer(bytearray(before[2]), dtype=torch.uint8))
        raise TraceError("it draws random numbers")


__all__ = ["Hollow", "SizedCapture", "sized_capture"]
