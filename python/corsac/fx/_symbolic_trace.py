"""Symbolic tracing: runs a program on proxies to record its operations."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import inspect
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, TypeVar, overload

import torch
import torch.utils._pytree as pytree
from torch.fx import _symbolic_trace as _torch_trace
from torch.fx._symbolic_trace import PH, PHBase, PHWithMeta, _assert_is_none

from corsac import _core
from corsac.bytecode import patch_function as _patch_function

from . import _explain, _interception
from ._lazy_graph_module import _make_graph_module
from .graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from .graph_module import GraphModule
from .node import Argument, base_types, map_aggregate  # noqa: F401
from .proxy import (
    ParameterProxy,
    Proxy,
    Scope,
    ScopeContextManager,
    TraceError,
    TracerBase,
    _find_proxy,
)

__all__ = [
    "PH",
    "PHBase",
    "PHWithMeta",
    "ProxyableClassMeta",
    "Scope",
    "ScopeContextManager",
    "Tracer",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "symbolic_trace",
    "wrap",
]

log = logging.getLogger(__name__)

# Calls and attribute reads of modules that bypass any trace.
_orig_module_call = _interception.original_call
_orig_module_getattr = _interception.original_getattr

HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

_F = TypeVar("_F", bound=Callable[..., Any])

# Shared with torch.fx: registrations of libraries apply to both packages.
_proxyable_classes: dict[type, None] = _torch_trace._proxyable_classes
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = _torch_trace._wrapped_fns_to_patch
_wrapped_methods_to_patch: list[tuple[type, str]] = _torch_trace._wrapped_methods_to_patch

try:
    from torch.fx._symbolic_trace import _constant_attribute_types
except ImportError:  # an older torch
    from torch._library.fake_class_registry import FakeScriptObject

    _constant_attribute_types = (torch.Tensor, torch.ScriptObject, FakeScriptObject)


@functools.lru_cache
def is_fx_tracing_warning() -> None:
    """Warn once about the cases that :func:`is_fx_tracing` includes."""
    log.warning(
        "is_fx_tracing is true under symbolic_trace and under torch.export: ask "
        "is_fx_symbolic_tracing for the former, torch.compiler.is_compiling for the latter"
    )


def _set_is_fx_tracing(value: bool) -> None:
    if hasattr(_torch_trace, "_set_is_fx_tracing"):
        _torch_trace._set_is_fx_tracing(value)
    else:  # an older torch: one flag for all threads
        _torch_trace._is_fx_tracing_flag = value


def _get_is_fx_tracing() -> bool:
    if hasattr(_torch_trace, "_get_is_fx_tracing"):
        return _torch_trace._get_is_fx_tracing()
    return _torch_trace._is_fx_tracing_flag


@contextlib.contextmanager
def _is_fx_tracing_context(value: bool) -> Iterator[None]:
    previous = _get_is_fx_tracing()
    _set_is_fx_tracing(value)
    try:
        yield
    finally:
        _set_is_fx_tracing(previous)


def is_fx_tracing() -> bool:
    """Whether this thread is tracing, by this package, by torch.fx or by torch.export."""
    is_fx_tracing_warning()
    return _get_is_fx_tracing()


def is_fx_symbolic_tracing() -> bool:
    """Whether this thread is tracing symbolically, by this package or by torch.fx."""
    return _get_is_fx_tracing() and not torch.compiler.is_compiling()


class ProxyableClassMeta(_torch_trace.ProxyableClassMeta):
    """Metaclass of classes whose construction is recorded when it is given a proxy::

        class Pair(metaclass=corsac.fx.ProxyableClassMeta):
            def __init__(self, left, right):
                self.left, self.right = left, right

    While tracing, ``Pair(x, y)`` becomes a ``call_function`` node with ``Pair`` as its target.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if _get_is_fx_tracing():
            proxy = _find_proxy(args, kwargs)
            if proxy is not None:
                return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _takes_the_same(a: CodeType, b: CodeType) -> bool:
    """Whether two functions have the same numbers and kinds of parameters."""
    varstuff = (a.co_flags & HAS_VARSTUFF) == (b.co_flags & HAS_VARSTUFF)
    counts = (a.co_argcount, a.co_kwonlyargcount) == (b.co_argcount, b.co_kwonlyargcount)
    return a is b or (varstuff and counts)


def _by_keyword(fn: FunctionType, code: CodeType) -> FunctionType:
    """``fn``, which hides the parameters of ``code``, as a function that takes all of them by position."""
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        keywords = dict(zip(names, args[code.co_argcount :], strict=True))
        return fn(*args[: code.co_argcount], **keywords)

    return call  # type: ignore[return-value]


def _transfer_attrs(fr: object, to: object) -> None:
    """Set the plain attributes of ``fr`` on ``to``, except those it has."""
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


class _Signature:
    """The parameters of a function, computed lazily, since ``inspect.signature`` is slow."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._signature, name)

    def default(self, name: str) -> tuple[Any, ...]:
        """The default value of the parameter ``name``, in a tuple; empty if there is none."""
        fn = self._fn
        if hasattr(fn, "__signature__"):
            default = self._signature.parameters[name].default
            return () if default is inspect.Parameter.empty else (default,)
        keyword_defaults = fn.__kwdefaults__
        if keyword_defaults and name in keyword_defaults:
            return (keyword_defaults[name],)
        defaults, code = fn.__defaults__, fn.__code__
        if defaults:
            with_default = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
            if name in with_default:
                return (defaults[with_default.index(name)],)
        return ()


def _autowrap_candidates(module: ModuleType) -> set[int]:
    return {
        id(value)
        for name, value in module.__dict__.items()
        if not name.startswith("_") and callable(value)
    }


_MATH_FUNCTION_IDS = frozenset(_autowrap_candidates(math))


class Tracer(TracerBase):
    """Tracer(autowrap_modules=(math,), autowrap_functions=())

    Records the operations of a module or function on its inputs as a :class:`Graph`.

    ``symbolic_trace(m)`` is ``Tracer().trace(m)`` made into a module. Override methods to record
    differently; :meth:`is_leaf_module` is the one overridden most::

        class KeepBlocks(corsac.fx.Tracer):
            def is_leaf_module(self, m, module_qualified_name):
                return isinstance(m, Block) or super().is_leaf_module(m, module_qualified_name)

    Any number of tracers may run at once, each in its own thread.

    Args:
        autowrap_modules: modules whose functions are recorded as calls when an argument is a proxy, as if
            :func:`wrap` had been called for each.
        autowrap_functions: functions that are recorded in the same way.
        param_shapes_constant: whether shapes of parameters are read from the parameter, so that control flow
            may depend on them, instead of being recorded.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids: set[int] = set()
        for module in autowrap_modules:
            self._autowrap_function_ids |= (
                _MATH_FUNCTION_IDS if module is math else _autowrap_candidates(module)
            )
        self._autowrap_function_ids.update(map(id, autowrap_functions))
        # Modules to be searched for wrapped functions, besides those met while tracing.
        self._autowrap_search: list[ModuleType] = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.root_module_name: str = ""

    @classmethod
    def _graph_module_deserialization_tracer(cls, root: torch.nn.Module) -> Tracer:
        """The tracer with which an unpickled graph module traces its code again.

        Override it if the constructor needs arguments.
        """
        return cls()

    _qualname_counter: ClassVar[dict[str, int]] = collections.defaultdict(int)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that starts with ``prefix`` and is no attribute of the root."""
        qualname = f"{prefix}0"
        if not hasattr(self.root, qualname):
            self._qualname_counter[prefix] = 0
            return qualname
        number = self._qualname_counter[prefix]
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        self._qualname_counter[prefix] = number + 1
        return f"{prefix}{number}"

    def create_arg(self, a: Any) -> Argument:
        """The argument of a node for the value ``a``.

        In addition to :meth:`TracerBase.create_arg`: a parameter, buffer or submodule of the root becomes a
        ``get_attr`` node; so does any other tensor, which is first made an attribute of the root; a named
        tuple becomes a call of its class.

        Raises:
            NameError: ``a`` is a parameter of another module.
        """
        if isinstance(a, torch.nn.Parameter):
            name = self._parameter_name(a)
            if name is None:
                raise NameError(_explain.foreign_parameter())
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, torch.Tensor):
            name = self._buffer_name(a)
            if name is not None:
                return self.create_node("get_attr", name, (), {})
        elif isinstance(a, torch.nn.Module):
            name = self._module_name(a)
            if name is not None:
                return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            args = tuple(self.create_arg(item) for item in a)
            return self.create_node("call_function", a.__class__, args, {})
        if isinstance(a, _constant_attribute_types) or _is_opaque_symbolic(type(a)):
            name = self.tensor_attrs.get(a)
            if not name:
                name = self.get_fresh_qualname(_constant_prefix(a))
                self.tensor_attrs[a] = name
                setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        if type(a) in _proxyable_classes:
            # Made before tracing began: a constant.
            name = self.get_fresh_qualname(f"_{a.__class__.__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Whether a call of ``m`` is recorded as such, instead of tracing its ``forward``.

        By default these are the modules of ``torch.nn``, except ``Sequential``.

        Args:
            m: the module.
            module_qualified_name: its path from the root, such as ``layer1.0.conv1``.
        """
        return m.__module__.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(
            m, torch.nn.Sequential
        )

    def path_of_module(self, mod: torch.nn.Module) -> str:
        """The qualified name of ``mod`` in the module being traced.

        Raises:
            NameError: it is not in that module.
        """
        name = self._module_name(mod)
        if name is None:
            raise NameError(_explain.foreign_module(mod))
        return name

    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Handle a call of a module while tracing.

        A leaf module (:meth:`is_leaf_module`) becomes a ``call_module`` node; any other is
        called.

        Args:
            m: the module.
            forward: calls it.
            args: the positional arguments.
            kwargs: the keyword arguments.

        Returns:
            A proxy in the first case, the result of ``m`` in the second.
        """
        return self._call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """Handle a read of a module's attribute while tracing.

        A parameter becomes a proxy for a ``get_attr`` node, always the same one; with
        :attr:`proxy_buffer_attributes` so does a buffer. Other values are returned unchanged.

        Args:
            attr: the name of the attribute.
            attr_val: its value.
            parameter_proxy_cache: the proxies made so far, by qualified name.
        """
        if isinstance(attr_val, torch.nn.Parameter):
            name = self._parameter_name(attr_val)
        elif self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor):
            name = self._buffer_name(attr_val)
        else:
            return attr_val
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            kwargs = {}
            if "proxy_factory_fn" in inspect.signature(self.create_proxy).parameters:
                kwargs["proxy_factory_fn"] = (
                    functools.partial(self._parameter_proxy, name, attr_val)
                    if self.param_shapes_constant
                    else None
                )
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, **kwargs)
        return parameter_proxy_cache[name]

    def _parameter_proxy(self, name: str, parameter: Any, node: Any) -> ParameterProxy:
        return ParameterProxy(self, node, name, parameter)

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:
        """Record a placeholder for each parameter of the function to be traced.

        Args:
            root_fn: the function.
            is_module: whether its first parameter is the root module.
            concrete_args: values for some parameters; :data:`PH` in them becomes a proxy.

        Returns:
            The function to call, and its arguments.
        """
        # Decorators that use functools.wraps hide the parameters.
        fn_for_analysis = inspect.unwrap(root_fn)
        code = fn_for_analysis.__code__
        total_args = code.co_argcount + code.co_kwonlyargcount
        names = iter(code.co_varnames)
        args: list[Any] = []
        if is_module:
            if total_args == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            next(names)
            args.append(self.root)
        has_varstuff = bool(code.co_flags & HAS_VARSTUFF)

        if isinstance(concrete_args, tuple) and concrete_args and has_varstuff and total_args == 1:
            # Flat values for a forward(self, *args, **kwargs) are passed unchanged.
            for number, value in enumerate(concrete_args):
                proxy = self.create_proxy("placeholder", f"input_{number}", (), {})
                if isinstance(value, PHBase) and value is not PH:
                    _transfer_attrs(fr=value, to=proxy.node)
                args.append(proxy)
            return root_fn, args

        arg_names = [next(names) for _ in range(int(is_module), total_args)]
        if isinstance(concrete_args, tuple):
            if len(arg_names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(arg_names)} arguments but got "
                    f"{len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(arg_names, concrete_args, strict=True))
        signature: Any = _Signature(fn_for_analysis)

        def placeholder(name: str) -> Any:
            return self._proxy_placeholder(name, concrete_args, signature, fn_for_analysis)

        args.extend(map(placeholder, arg_names))
        if code.co_kwonlyargcount > 0 or has_varstuff:
            if code.co_flags & inspect.CO_VARARGS:
                args.append(placeholder("*" + next(names)))
            if code.co_flags & inspect.CO_VARKEYWORDS:
                args.append(placeholder("**" + next(names)))
            if _takes_the_same(root_fn.__code__, code):
                root_fn = _patch_function(root_fn, len(args))
            elif has_varstuff:
                raise TraceError(_explain.hidden_parameters(fn_for_analysis))
            else:
                root_fn = _by_keyword(root_fn, code)

        if not concrete_args:
            return root_fn, args
        flat_args, in_spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in in_spec.children()):
            return root_fn, args
        return self._flattened(root_fn, list(code.co_varnames[:total_args]), in_spec), flat_args

    def _flattened(
        self, root_fn: Callable[..., Any], names: list[str], in_spec: Any
    ) -> Callable[..., Any]:
        """``root_fn`` as a function of the leaves of its arguments, which the graph's code flattens."""
        self.graph._codegen = _PyTreeCodeGen(_PyTreeInfo(names, in_spec, None))

        def flatten_fn(*args):  # no annotations: they would become those of the generated code
            result = root_fn(*pytree.tree_unflatten(list(args), in_spec))
            leaves, out_spec = pytree.tree_flatten(result)
            codegen = self.graph._codegen
            if not isinstance(codegen, _PyTreeCodeGen):
                raise AssertionError(f"Expected _codegen to be _PyTreeCodeGen, got {type(codegen)}")
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return leaves

        return flatten_fn

    def _proxy_placeholder(
        self,
        name: str,
        concrete_args: dict[str, Any] | None,
        sig: inspect.Signature,
        fn_for_analysis: Callable[..., Any],
    ) -> Any:
        """The value of the parameter ``name`` while tracing: a proxy, or the one in ``concrete_args``."""
        signature = sig if isinstance(sig, _Signature) else _Signature(fn_for_analysis)
        if concrete_args is None or name not in concrete_args:
            default = () if name[0] == "*" else signature.default(name)
            annotation = fn_for_analysis.__annotations__.get(name, None)
            return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)

        count = 0

        def replace(value: Any) -> Any:
            nonlocal count
            count += 1
            proxy = self.create_proxy("placeholder", f"{name}_{count}", signature.default(name), {})
            if isinstance(value, PHBase):
                if value is not PH:
                    _transfer_attrs(fr=value, to=proxy.node)
                return proxy
            if type(value) in base_types and type(value) is not torch.Tensor:
                torch._assert(
                    proxy == value,
                    f"{name} has been specialized to have value {value} but got another value",
                )
            elif value is None:
                message = f"{name} has been specialized to have value None but got another value"
                self.create_proxy("call_function", _assert_is_none, (proxy, message), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to "
                    f"specialized function. It is up to the user to make sure that your inputs "
                    f"match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return value

        return pytree.tree_map(replace, concrete_args[name])

    def trace(
        self,
        root: torch.nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """Record the operations of ``root`` on its inputs.

        Args:
            root: a module, or a function. For a function, :attr:`root` becomes a new module that holds the
                constants.
            concrete_args: fixed values of inputs, by name. In a container, each :data:`PH` becomes an input.

        Returns:
            The graph.

        Raises:
            TraceError: control flow depends on a traced value.
            NameError: a module or parameter that is used is not in ``root``.
        """
        was_tracing = _get_is_fx_tracing()
        _set_is_fx_tracing(True)
        try:
            is_module = isinstance(root, torch.nn.Module)
            if is_module:
                _torch_trace_lazy_modules(root)
                self.root = root
                cls = type(root)
                if not hasattr(cls, self.traced_func_name):
                    raise AssertionError(
                        f"traced_func_name={self.traced_func_name} doesn't exist in {cls.__name__}"
                    )
                fn: Any = getattr(cls, self.traced_func_name)
                self.root_module_name = root._get_name()
            else:
                self.root = torch.nn.Module()
                fn = root
            self.graph = Graph(tracer_cls=type(self))
            code = getattr(fn, "__code__", None)
            if code is not None:
                self.graph._co_fields = {
                    "co_name": code.co_name,
                    "co_filename": code.co_filename,
                    "co_firstlineno": code.co_firstlineno,
                }
            self.tensor_attrs: dict[Any, str] = self._index_root(self.root, is_module, code)
            if not isinstance(fn, FunctionType):
                raise AssertionError(f"Expected FunctionType, got {type(fn)}")
            fn_globals = fn.__globals__
            fn, args = self.create_args_for_root(fn, is_module, concrete_args)
            annotations = getattr(inspect.unwrap(fn), "__annotations__", None) or {}
            self._record(fn, args, fn_globals, annotations.get("return"))
        except RuntimeError as error:
            if error.args and isinstance(error.args[0], str) and "data-dependent" in error.args[0]:
                partial = self.graph.python_code(root_module="self", verbose=True).src
                error.partial_fx_graph = partial  # type: ignore[attr-defined]
            raise
        finally:
            _set_is_fx_tracing(was_tracing)
        return self.graph

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        # _autowrap_search contains modules, which cannot be copied.
        copied = type(self).__new__(type(self))
        for key, value in self.__dict__.items():
            if key == "_autowrap_search":
                copied.__dict__[key] = copy.copy(value)
            else:
                copied.__dict__[key] = copy.deepcopy(value, memo)
        graph = getattr(self, "graph", None)
        if graph is not None:
            copied.graph = copy.deepcopy(graph, memo)
        return copied


def _torch_trace_lazy_modules(root: torch.nn.Module) -> None:
    """Make a lazy graph module of torch.fx generate its code, since a stub cannot be traced."""
    lazy = sys.modules.get("torch.fx._lazy_graph_module")
    if lazy is not None:
        lazy._LazyGraphModule.force_recompile(root)


def _constant_prefix(a: Any) -> str:
    """Prefix of the name of the attribute for a constant."""
    if isinstance(a, torch.Tensor):
        return "_tensor_constant"
    if isinstance(a, pytree.TreeSpec):
        return "_tree_spec_constant"
    if isinstance(a, _constant_attribute_types):
        return "_torchbind_obj"
    return "_opaque_obj"


try:
    from torch._library.opaque_object import is_opaque_symbolic_type as _is_opaque_symbolic
except ImportError:  # an older torch, which has no such types

    def _is_opaque_symbolic(cls: Any) -> bool:
        return False


@overload
def wrap(fn_or_name: _F) -> _F: ...
@overload
def wrap(fn_or_name: str) -> str: ...
def wrap(fn_or_name: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """Register a function of the calling module: calls of it are recorded, not traced into.

    Call it at the top level of a module, with the function or its name, or use it as a
    decorator::

        @corsac.fx.wrap
        def my_function(x, y):
            return x * x + y * y

        corsac.fx.wrap("len")

    Registrations also hold for torch.fx.

    Raises:
        RuntimeError: ``fn_or_name`` is neither a function nor a string.
        NotImplementedError: the call is not at the top level of a module.
    """
    if callable(fn_or_name):
        name = fn_or_name.__name__
    elif isinstance(fn_or_name, str):
        name = fn_or_name
    else:
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    frame = sys._getframe(1)
    try:
        if frame.f_code.co_name != "<module>":
            raise NotImplementedError("wrap must be called at the top level of a module")
        _wrapped_fns_to_patch[(id(frame.f_globals), name)] = frame.f_globals
    finally:
        del frame
    return fn_or_name


def symbolic_trace(
    root: torch.nn.Module | Callable[..., Any],
    concrete_args: dict[str, Any] | None = None,
) -> GraphModule:
    """Record the operations of a module or function as a :class:`GraphModule`.

    ``concrete_args`` fixes inputs, so that control flow may depend on them::

        def f(a, b):
            return a if b else a * 2

        f = corsac.fx.symbolic_trace(f, concrete_args={"b": False})
        assert f(3, False) == 6

    Containers can be taken apart too: each :data:`PH` in them remains an input::

        def f(x):
            return sum(x.values())

        f = corsac.fx.symbolic_trace(f, concrete_args={"x": {"a": PH, "b": PH}})
        assert f({"a": 1, "b": 2}) == 3

    Args:
        root: the module or function.
        concrete_args: fixed values of inputs, by name.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root.__class__.__name__ if isinstance(root, torch.nn.Module) else root.__name__
    return _make_graph_module(tracer.root, graph, name)


_core.register_tracer_classes(TracerBase, Tracer)
