"""Proxies, the values in a program while it is recorded, and the recording."""

from __future__ import annotations

import enum
import os
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.fx import proxy as _torch_proxy
from torch.fx import traceback as fx_traceback
from torch.fx.proxy import assert_fn
from torch.utils._traceback import CapturedTraceback

from corsac import _core
from corsac._core import Attribute, Proxy

from . import _explain
from .immutable_collections import immutable_dict, immutable_list  # noqa: F401
from .node import Node, base_types, map_aggregate, map_arg
from .operator_schemas import check_for_mutable_operation

if TYPE_CHECKING:
    import types

    from .graph import Graph
    from .node import Argument, Target

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "MetaProxy",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

# Metadata that a node inherits from the node being interpreted, while metadata is preserved.
_COPY_META_FIELDS: list[str] = _torch_proxy._COPY_META_FIELDS
_copied_fields = frozenset(_COPY_META_FIELDS)


class TraceError(_torch_proxy.TraceError):
    """The program contains an operation that cannot be recorded.

    The message contains the place, the value, and suggestions.
    """


class ConversionTraceError(TraceError, TypeError):
    """A traced value would be converted to a number or to an array of another library."""


def _conversion_error(proxy: Proxy, kind: str) -> TraceError:
    error = TraceError if kind == "numpy" else ConversionTraceError
    return error(_explain.conversion(proxy, kind))


class Scope:
    """The module that is being called: its qualified name and its class.

    ``Scope("", None)`` is the root of the trace.
    """

    def __init__(self, module_path: str, module_type: Any) -> None:
        super().__init__()
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager:
    """Copies ``current_scope`` into ``scope`` until the end of the ``with`` block."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        super().__init__()
        self._previous = (scope.module_path, scope.module_type)
        scope.module_path = current_scope.module_path
        scope.module_type = current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: object) -> None:
        self._scope.module_path, self._scope.module_type = self._previous


class TracerBase(_core.TracerCore):
    """Records operations on proxies into :attr:`graph`.

    A subclass overrides the steps to change. A method that is not overridden is not called for each
    operation, but done natively.
    """

    graph: Graph
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    # Whether calls of operators that write to their arguments are errors.
    check_mutable_operations: bool = False
    # Whether `assert` on a proxy is recorded.
    trace_asserts: bool = False
    # Whether reads of a module's buffers become proxies.
    proxy_buffer_attributes: bool = False
    # The method of a module that is traced.
    traced_func_name: str = "forward"

    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, type]]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        graph = getattr(self, "graph", None)
        if graph is not None:
            state["graph"] = graph
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Add a node to the graph and record its source.

        Override it to check, forbid or change what is recorded.

        Args:
            kind: the opcode.
            target: a function for ``call_function``, otherwise a string.
            args: positional arguments, in terms of nodes.
            kwargs: keyword arguments, in terms of nodes.
            name: the preferred name of the value.
            type_expr: a type annotation for the value.

        Raises:
            RuntimeError: the operation writes to its arguments and
                :attr:`check_mutable_operations` is set.
        """
        if kind == "call_function" and self.check_mutable_operations:
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self._note_origin(node)
        self._note_meta(node)
        return node

    def _note_meta(self, node: Node) -> None:
        """Add the metadata and the stack trace that the settings require to a new node."""
        if fx_traceback.has_preserved_node_meta():
            _inherit_meta(node)
        if self.record_stack_traces and not node.stack_trace:
            summary = CapturedTraceback.extract().summary()
            frames = self._filter_traceback_frames(summary) if summary else None
            if frames:
                node.stack_trace = "".join(frames.format()).strip()

    def _filter_traceback_frames(
        self, user_stack_summary: traceback.StackSummary
    ) -> traceback.StackSummary:
        """The frames of a stack to record: from the first ``forward`` on."""
        from torch.fx.experimental.symbolic_shapes import uninteresting_files

        boring = uninteresting_files()
        frames = list(user_stack_summary)
        if self._record_forward_stack_traces_only:
            anchors = getattr(_torch_proxy, "_STACK_TRACE_ANCHORS", ())
            frames = [
                frame
                for frame in frames
                if frame.name == "forward"
                or frame.filename.endswith("torch/__init__.py")
                or (frame.filename, frame.name) in anchors
            ]
        else:
            while frames and frames[0].name != "forward":
                del frames[0]
        return traceback.StackSummary.from_list(
            frame
            for frame in frames
            if frame.filename not in boring and not frame.filename.startswith(_PACKAGE_FOLDER)
        )

    def proxy(self, node: Node) -> Proxy:
        """A proxy for ``node``."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record an operation and return a proxy for its value.

        Args:
            kind: the opcode.
            target: a function for ``call_function``, otherwise a string.
            args: positional arguments, with proxies; for a placeholder, the default value if there is one.
            kwargs: keyword arguments, with proxies.
            name: the preferred name of the value.
            type_expr: a type annotation for the value.
            proxy_factory_fn: makes the proxy, instead of :meth:`proxy`.
        """
        return self._create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)

    def _find_user_frame(self) -> types.FrameType | None:
        """The innermost frame that is neither in PyTorch nor in this package."""
        return _core.user_frame()

    def create_arg(self, a: Any) -> Argument:
        """The argument of a node for the value ``a``: proxies are replaced by nodes.

        Override it to support values of further types as arguments.

        Raises:
            NotImplementedError: values of this type cannot be arguments.
            RuntimeError: a dictionary key contains a proxy.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return type(a)(*items) if hasattr(a, "_fields") else type(a)(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return {self._create_key(key): self.create_arg(item) for key, item in a.items()}
        if isinstance(a, slice):
            return slice(*map(self.create_arg, (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*map(self.create_arg, (a.start, a.stop, a.step)))
        if type(a) in _LITERAL_TYPES or _is_opaque_constant(type(a)):
            return a
        if is_dataclass(a):
            values = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", a.__class__, (), values)
        if isinstance(a, _LITERAL_TYPES):
            return a
        raise NotImplementedError(_explain.unknown_argument(a))

    def _create_key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key
        made = self.create_arg(key)
        map_arg(made, _refuse_key)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """Called for the truth of a proxy: ``if``, ``while``, ``and``, ``assert``.

        A tracer that knows the value may return it.

        Raises:
            TraceError: unless overridden.
        """
        raise TraceError(_explain.control_flow(obj))

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Called for iteration over a proxy.

        A tracer that knows the number of items may return an iterator.

        Raises:
            TraceError: unless overridden.
        """
        raise TraceError(_explain.iteration(obj))

    def keys(self, obj: Proxy) -> Any:
        """Called for ``obj.keys()``, which is also how ``**obj`` begins.

        A tracer that knows the keys may return them, so that ``**obj`` works.
        """
        return Attribute(obj, "keys")()


_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep

_LITERAL_TYPES: tuple[Any, ...] = (
    *base_types,
    type(None),
    type(...),
    enum.Enum,
    torch._ops.OpOverload,
    torch._ops.HigherOrderOperator,
)

try:
    from torch._library.opaque_object import is_opaque_constant_type as _is_opaque_constant
except ImportError:  # an older torch, which has no such types

    def _is_opaque_constant(cls: Any) -> bool:
        return False


def _refuse_key(node: Node) -> NoReturn:
    raise RuntimeError(
        "Keys for dictionaries used as an argument cannot contain a "
        f"Node. Got key: {node}{_explain.where()}"
    )


def _sequence_number(name: str, current: dict[str, Any]) -> int | None:
    """The number of the autograd node of a node of the graph."""
    if hasattr(_torch_proxy, "_get_seq_nr"):
        return _torch_proxy._get_seq_nr(name)
    # An older torch, in which tracing an operator has just incremented the number.
    if current.get("in_grad_fn", 0) > 0:
        return current["grad_fn_seq_nr"][-1]
    return torch.autograd._get_sequence_nr() - 1


def _inherit_meta(node: Node) -> None:
    """Copy the metadata of the node being interpreted to a new node."""
    current = fx_traceback.get_current_meta()
    # Set as a whole: the new node's own module stack is not needed.
    meta: dict[str, Any] = {}
    stack_trace = current.get("stack_trace")
    if stack_trace:
        meta["stack_trace"] = stack_trace
        if fx_traceback.GRADIENT_ACC_SPECIAL_STACK in stack_trace:
            meta["is_gradient_acc"] = True
            meta["autograd_backward"] = True
    global _copied_fields
    if len(_copied_fields) != len(_COPY_META_FIELDS):  # users add to the list
        _copied_fields = frozenset(_COPY_META_FIELDS)
    for field, value in current.items():
        if field in _copied_fields:
            meta[field] = value.copy() if hasattr(value, "copy") else value
    sequence_number = _sequence_number(node.name, current)
    if sequence_number is not None:
        meta["seq_nr"] = sequence_number
    replayed = fx_traceback.get_current_replay_node()
    if replayed is not None:
        meta["is_functional_regenerated"] = True
        for field in ("custom", "stack_trace"):
            if field in replayed.meta:
                meta[field] = replayed.meta[field]
    if current.get("autograd_backward", False):
        meta["autograd_backward"] = True
    node.meta = meta


class GraphAppendingTracer(TracerBase):
    """Appends to an existing graph; the tracer of ``Proxy(node)``."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class MetaProxy(Proxy):
    """A proxy that computes ``meta["val"]`` of new nodes made from it, under a fake tensor mode."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> MetaProxy:
        args, kwargs = args or (), kwargs or {}
        first = next((a for a in args if isinstance(a, MetaProxy)), None)
        if first is None:
            raise AssertionError("No MetaProxy found in arguments, but one is expected.")
        proxy = super().__torch_function__(orig_method, types, args, kwargs)
        with first.fake_mode:
            values = [a.node.meta["val"] if isinstance(a, Proxy) else a for a in args]
            proxy.node.meta["val"] = orig_method(*values, **kwargs)
        return MetaProxy(proxy.node, proxy.tracer, first.fake_mode)


class ParameterProxy(Proxy):
    """A proxy for a parameter whose shape is read from the parameter itself.

    Control flow that depends on the shape then works while tracing.
    """

    def __init__(
        self, tracer: TracerBase, node: Node, name: str, param: torch.nn.Parameter
    ) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, torch.nn.Parameter):
            raise AssertionError(f"Expected Parameter, got {type(param)}")
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> torch.Size:
        return self.param.shape

    def size(self) -> torch.Size:
        return self.param.size()

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _find_proxy(*objects_to_search: object) -> Proxy | None:
    """The last proxy in nested containers, if there is one."""
    found: Proxy | None = None

    def look(value: Any) -> Any:
        nonlocal found
        if isinstance(value, Proxy):
            found = value
        return value

    map_aggregate(objects_to_search, look)
    return found


def _make_torch_proxy_class(cls: type[Proxy]) -> type[Proxy]:
    """A class that is both ``cls`` and its namesake in torch.fx.

    It is the value of ``proxy.__class__``, so that ``isinstance(proxy, torch.fx.Proxy)`` is true in libraries
    that test in this way whether they are being traced.
    """
    namesake = getattr(_torch_proxy, cls.__name__)
    return type(cls.__name__, (cls, namesake), {"__module__": cls.__module__})


_core.register_proxy_support(
    _make_torch_proxy_class(Proxy),
    _make_torch_proxy_class(Attribute),
    GraphAppendingTracer,
    assert_fn,
    _explain.length,
    _conversion_error,
)
