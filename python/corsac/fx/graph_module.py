"""``GraphModule``: a ``torch.nn.Module`` whose ``forward`` is generated from a graph."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.package import Importer, PackageExporter, PackageImporter, sys_importer

from . import _code_state
from ._generated_code import _ForwardPutOff, _PendingForward, generate
from ._generated_source import (
    _exec_with_source,
    _forward_from_src,
    _loader,
    _method_from_src,
)
from ._module_attributes import (
    _assign_attr,
    _copy_attr,
    _copy_attrs,
    _del_attr,
    _get_attr,
    _get_attr_via_attr_list,
    _has_attr,
    _set_module,
)
from ._module_folder import _format_import_statement, write_folder
from ._packages import refuse_torch_reader
from ._print_readable import _print_readable, fast_sympy_repr
from ._wrapped_call import _WrappedCall
from .graph import Graph, PythonCode, _BoxedCodeGen, _PyTreeCodeGen

if TYPE_CHECKING:
    from typing import Self

    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from ._symbolic_trace import Tracer
    from .node import Node

__all__ = [
    "GraphModule",
    "reduce_graph_module",
    "reduce_package_graph_module",
]

# Names that code written for torch.fx imports from this module.
_COMPATIBLE_NAMES = (
    _assign_attr,
    _copy_attr,
    _del_attr,
    _exec_with_source,
    _get_attr,
    _get_attr_via_attr_list,
    _has_attr,
    _loader,
    _method_from_src,
)

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
FX_GRAPH_MODULE_FILE_PREFIX = "fx_generated_"


def _format_import_block(globals: dict[str, Any], importer: Importer) -> str:
    """The statements that bind all ``globals``, sorted so that the text is reproducible."""
    statements = {
        # A string is a forward reference in an annotation: it is its own value.
        f"{name} = {obj!r}"
        if isinstance(obj, str)
        else _format_import_statement(name, obj, importer)
        for name, obj in globals.items()
    }
    return "\n".join(sorted(statements))


def reduce_graph_module(body: dict[str, Any], import_block: str) -> torch.nn.Module:
    """Rebuild a pickled :class:`GraphModule`.

    Args:
        body: the module's ``__dict__`` without its graph, with the generated code as ``_code``.
        import_block: the import statements of the code.

    Returns:
        The module; its graph is made by tracing the code.
    """
    source = body.get("_code") or body["code"]
    return _deserialize_graph_module(_forward_from_src(import_block + source, {}), body)


def reduce_package_graph_module(
    importer: PackageImporter, body: dict[str, Any], generated_module_name: str
) -> torch.nn.Module:
    """Rebuild a :class:`GraphModule` from a ``torch.package``.

    Args:
        importer: gives access to the modules in the package.
        body: the module's ``__dict__`` without its graph.
        generated_module_name: the packaged Python module with the generated ``forward``.
    """
    forward = importer.import_module(generated_module_name).forward
    return _deserialize_graph_module(forward, body)


class _CodeOnlyModule(torch.nn.Module):
    """State without a graph, from which a pickled or copied graph module is rebuilt."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _deserialize_graph_module(
    forward: Callable[..., Any],
    body: dict[str, Any],
    graph_module_cls: type | None = None,
) -> torch.nn.Module:
    """Trace ``forward`` over the state in ``body`` and return the graph module."""
    from ._lazy_graph_module import _make_graph_module
    from ._symbolic_trace import Tracer

    # Tracing takes ``forward`` from the class. A class per module lets several threads unpickle at once.
    holder_cls = type("_CodeOnlyModule", (_CodeOnlyModule,), {"forward": forward})
    holder = holder_cls(body)

    tracer_cls: Any = body.get("_tracer_cls") or Tracer

    class KeepModules(tracer_cls):
        # Buffers that the code reads stay attributes, so that what is computed of them alone is not a constant.
        proxy_buffer_attributes = True

        # Submodules called by the generated code stay calls.
        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return True

    tracer = KeepModules._graph_module_deserialization_tracer(holder)
    graph = tracer.trace(holder, **body.get("_tracer_extras", {}))
    stack_traces = body.pop("_graphmodule_graph_node_meta_stack_trace", None) or {}
    if stack_traces:
        for node in graph.nodes:
            if stack_traces.get(node.name) is not None:
                node.meta["stack_trace"] = stack_traces[node.name]

    # The original class: the local subclass could not be pickled again.
    graph._tracer_cls = tracer_cls
    module = _make_graph_module(
        holder,
        graph,
        class_name=body.get("_graphmodule_cls_name", "GraphModule"),
        graph_module_cls=graph_module_cls,
    )
    for name, value in body.items():
        if not hasattr(module, name):
            setattr(module, name, value)
    return module


_EMPTY_MODULE = torch.nn.Module().__dict__
_MODULE_CONTAINERS = [
    (name, type(value))
    for name, value in _EMPTY_MODULE.items()
    if value is not None and not isinstance(value, bool)
]


def _state_names(graph: Graph) -> Iterable[str]:
    """The qualified names of the attributes that ``graph`` reads, in order."""
    # Without a handle for each node, if the graph is one of corsac's.
    native = getattr(graph, "_state_names", None)
    return native() if native is not None else _state_targets(graph)


def _state_targets(graph: Graph) -> dict[str, Node]:
    """The qualified names of the attributes that ``graph`` reads, in order, with the first node that does."""
    targets: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module"):
            target = node.target
            if not isinstance(target, str):
                raise AssertionError(f"Expected node.target to be str, got {type(target)}")
            targets.setdefault(target, node)
    return targets


def _call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._wrapped_call(self, *args, **kwargs)


class GraphModule(torch.nn.Module):
    """A ``torch.nn.Module`` generated from a :class:`Graph`.

    ``graph`` is the graph, ``code`` the Python source generated from it and ``forward`` the function compiled
    from that source. Assigning ``graph`` updates the other two; after editing the graph in place, call
    :meth:`recompile`.

    The code is compiled on first use, when the module is called or ``forward`` is read: a chain of transforms
    compiles only once.

    Example::

        gm = corsac.fx.symbolic_trace(model)
        for node in gm.graph.find_nodes(op="call_function", target=torch.relu):
            node.target = torch.nn.functional.gelu
        gm.recompile()
        print(gm.code)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # ``forward`` differs from module to module, and Python looks up methods on the class: every module
        # has a class of its own, derived from the class the user named. A copy derives from that class again,
        # not from the original's own class.
        for base in cls.__mro__:
            if base.__qualname__.split(".")[-1] != "GraphModuleImpl":
                cls = base  # type: ignore[assignment]
                break

        class GraphModuleImpl(cls):  # type: ignore[misc, valid-type]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(
        self,
        root: torch.nn.Module | dict[str, Any],
        graph: Graph,
        class_name: str = "GraphModule",
    ) -> None:
        """Make a module that runs ``graph`` with the attributes of ``root``.

        Args:
            root: the source of the targets of ``get_attr`` and ``call_module`` nodes: a module, whose
                attributes are shared with the new module under the same qualified names, or a dict from
                qualified name to value.
            graph: the graph to run; the new module becomes its owner.
            class_name: the module's class name when printed.

        Raises:
            RuntimeError: ``root`` is neither, or a dict that lacks a target.
        """
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, torch.nn.Module):
            if hasattr(root, "training"):
                self.training = root.training
            if isinstance(root, _CodeOnlyModule):
                _copy_attrs(
                    root,
                    self,
                    itertools.chain(
                        (name for name, _ in root.named_children()),
                        (name for name, _ in root.named_buffers()),
                        (name for name, _ in root.named_parameters()),
                    ),
                )
            _copy_attrs(root, self, _state_names(graph))
        elif isinstance(root, dict):
            targets = _state_targets(graph)
            for target, node in targets.items():
                if target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {target} but that target was not "
                        "provided in ``root``!"
                    )
            # Shallow names first: assigning ``a`` after ``a.b`` would drop ``a.b``.
            for target in sorted(targets, key=lambda name: name.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")

        self.graph = graph
        self._remember(graph)

    if TYPE_CHECKING:  # What :meth:`_remember` sets; TorchScript would read the annotations.
        _tracer_cls: type[Tracer] | None
        _tracer_extras: dict[str, Any]
        meta: dict[str, Any]
        _replace_hooks: list[Callable[[Node, str, Node], object]]
        _create_node_hooks: list[Callable[[Node], object]]
        _erase_node_hooks: list[Callable[[Node], object]]
        _deepcopy_hooks: list[Callable[[GraphModule], object]]
        shape_env: ShapeEnv | None

    def _remember(self, graph: Graph) -> None:
        # The tracer class is kept for unpickling, which traces again. Local classes cannot be pickled.
        tracer_cls = graph._tracer_cls
        is_local = tracer_cls is not None and "<locals>" in tracer_cls.__qualname__
        # Module.__setattr__ is not needed: none of these is a module or a tensor.
        self.__dict__.update(
            _tracer_cls=None if is_local else tracer_cls,
            _tracer_extras=graph._tracer_extras or {},
            meta={},
            _replace_hooks=[],
            _create_node_hooks=[],
            _erase_node_hooks=[],
            _deepcopy_hooks=[],
            shape_env=None,
        )

    @classmethod
    def _with_code_put_off(cls, state: dict[str, Any], graph: Graph) -> GraphModule:
        """Make a module that runs ``graph`` on ``state``, a dict from qualified name to value.

        Its code is generated when it is read, the module is run, or the graph is accessed; no one else may
        hold the graph. For making many modules at once.
        """
        module = cls.__new__(cls)
        # Equivalent to Module.__init__, in a fraction of the time.
        module.__dict__.update(_EMPTY_MODULE)
        for name, container in _MODULE_CONTAINERS:
            module.__dict__[name] = container()
        own = type(module)
        own.__name__ = "GraphModule"
        for name, value in sorted(state.items(), key=lambda item: item[0].count(".")):
            if "." not in name and isinstance(value, torch.nn.Module):
                _set_module(module, name, value)
            else:
                _assign_attr(value, module, name)
        module.__dict__["_graph"] = graph
        graph.owning_module = module
        module._remember(graph)
        own.forward = _ForwardPutOff(module)  # type: ignore[method-assign, assignment]
        own._wrapped_call = _WrappedCall(own, None)  # type: ignore[attr-defined]
        own.__call__ = _call_wrapped  # type: ignore[method-assign, assignment]
        return module

    # Properties that TorchScript must not compile.
    __jit_unused_properties__ = ["graph", "code", "_boxed_call"]  # noqa: RUF012

    @property
    def _boxed_call(self) -> bool:
        return isinstance(self._graph._codegen, _BoxedCodeGen)

    @property
    def graph(self) -> Graph:
        """The graph of this module; assigning another one recompiles."""
        refuse_torch_reader(1)
        if "_code" not in self.__dict__ and "_graph" in self.__dict__:
            self.recompile()
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(
                f"Expected a Graph instance, but got {type(g)}: graphs of torch.fx are converted with "
                "corsac.fx.from_torch"
            )
        self._graph = g
        g.owning_module = self
        self.recompile()

    # Generated code ------------------------------------------------------------------------

    @property
    def code(self) -> str:
        """The Python source generated from :attr:`graph`."""
        if "_code" not in self.__dict__:
            if "_graph" not in self.__dict__:
                raise RuntimeError("no code: this module has not been given a graph")
            self.recompile()
        return self._code

    def recompile(self) -> PythonCode:
        """Update ``code`` and ``forward`` from :attr:`graph`.

        Call it after editing the graph in place. The source is generated at once; it is compiled when the
        module is called or ``forward`` is read for the first time.

        Returns:
            The generated code: ``src``, and ``globals``, the values of its global names.
        """
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        code, co_fields = generate(self._graph)
        self._code = code.src
        self._lineno_map = code._lineno_map
        self._prologue_start = code._prologue_start
        cls = type(self)
        cls.forward = _PendingForward(code, co_fields)
        if "_wrapped_call" not in vars(cls):
            # A ``__call__`` defined on this very class is kept and called. Inherited ones are looked up at
            # each call, since tracing replaces ``Module.__call__`` temporarily.
            own_call = cls.__call__ if "__call__" in vars(cls) else None
            cls._wrapped_call = _WrappedCall(cls, own_call)
        self._recompile_submodules()
        cls.__call__ = _call_wrapped
        return code

    def _refresh(self) -> None:
        """Recompile, unless code is deferred: it will be generated from the graph as it is then."""
        if "_code" in self.__dict__:
            self.recompile()

    def _recompile_submodules(self) -> list[tuple[str, PythonCode]]:
        """Recompile the direct children that are graph modules."""
        return [
            (name, child.recompile())
            for name, child in self.named_children()
            # Deferred code will be generated from the graph as it is then.
            if isinstance(child, GraphModule) and "_code" in child.__dict__
        ]

    # Saving --------------------------------------------------------------------------------

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        _code_state.save(self, destination, prefix)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        _code_state.load(self, state_dict, prefix, missing_keys, error_msgs)
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write this module to ``folder`` as a package for ``from <folder> import ...``.

        ``module.py`` contains the generated code, ``state_dict.pt`` the weights; children that cannot be
        rebuilt from their ``repr`` are pickled beside.

        Args:
            folder: created if missing.
            module_name: the name of the class in ``module.py``.
        """
        write_folder(self, folder, module_name)

    def __reduce_package__(self, exporter: PackageExporter) -> tuple[Any, ...]:
        code = self.recompile()
        body = self.__dict__.copy()
        del body["_graph"]
        body["_graphmodule_cls_name"] = self.__class__.__name__
        body["_graphmodule_graph_node_meta_stack_trace"] = {
            node.name: node.meta["stack_trace"]
            for node in self.graph.nodes
            if "stack_trace" in node.meta
        }
        module_name = f"fx-generated._{exporter.get_unique_id()}"
        imports = _format_import_block(code.globals, exporter.importer)
        exporter.save_source_string(module_name, imports + code.src)
        return (reduce_package_graph_module, (body, module_name))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the generated code, from which loading traces the graph again.

        Python source stays readable across versions.
        """
        code = self.recompile()
        body = self.__dict__.copy()
        del body["_graph"]
        return (reduce_graph_module, (body, _format_import_block(code.globals, sys_importer)))

    # Copying -------------------------------------------------------------------------------

    def _deepcopy_init(self) -> Callable[..., None]:
        """The ``__init__`` for deep copies; override this in subclasses with another signature."""
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        _share_uncopyable(self.__dict__, memo)
        holder = _CodeOnlyModule(copy.deepcopy(self.__dict__, memo))
        self._deepcopy_init()(copied, holder, holder.__dict__["_graph"])
        # ``__init__`` copied what the graph and the module tables refer to. The rest was attached by users:
        # plain attributes, hooks, flags.
        for name, value in holder.__dict__.items():
            if name not in _REBUILT_ATTRIBUTES:
                copied.__dict__[name] = value
        meta = getattr(copied, "meta", {})
        for name, value in meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(copied, name, value)
        for hook in getattr(self, "_deepcopy_hooks", ()):
            hook(copied)
        return copied

    def __copy__(self) -> GraphModule:
        from ._lazy_graph_module import _make_graph_module

        copied = _make_graph_module(self, self.graph)
        for name, value in self.__dict__.items():
            if name not in _REBUILT_ATTRIBUTES:
                copied.__dict__[name] = copy.copy(value) if name in _OWN_TABLES else value
        return copied

    def _replicate_for_data_parallel(self) -> GraphModule:
        replica = self.__copy__()
        object.__setattr__(replica, "_is_replica", True)
        return replica

    # Printing ------------------------------------------------------------------------------

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """Return the code as a class, with shapes and the user's source lines as comments.

        Args:
            print_output: also print it.
            include_stride: show tensors' strides beside their shapes.
            include_device: show tensors' devices.
            colored: use terminal colours.
            fast_sympy_print: print symbolic sizes with a faster, plainer printer.
            expanded_def: put each argument of ``def forward`` on its own line.
            additional_meta: keys of ``node.meta`` to show as comments.
        """
        with fast_sympy_repr() if fast_sympy_print else contextlib.nullcontext():
            return _print_readable(
                self,
                self._get_name(),
                print_output,
                include_stride,
                include_device,
                colored,
                expanded_def,
                additional_meta,
            )

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self.code, reminder])

    # Pictures ------------------------------------------------------------------------------

    def show(self, **options: Any) -> Any:
        """Show the graph: in a notebook as the result of the cell, elsewhere in the browser.

        ``options`` are those of :func:`corsac.draw`.
        """
        from corsac._drawing.pictures import show

        return show(self, **options)

    def _repr_html_(self) -> str:
        """The picture for notebooks."""
        from corsac._drawing.pictures import notebook_page

        return notebook_page(self)

    # Submodules ----------------------------------------------------------------------------

    def add_submodule(self, target: str, m: torch.nn.Module) -> bool:
        """Install ``m`` under the qualified name ``target``.

        Missing containers on the path are made as empty modules.

        Returns:
            Whether it was installed: ``False`` if something on the path is not a module.
        """
        *prefix, field = target.split(".")
        module: torch.nn.Module = self
        for item in prefix:
            inner = getattr(module, item, None)
            if inner is None:
                inner = torch.nn.Module()
                setattr(module, item, inner)
            if not isinstance(inner, torch.nn.Module):
                return False
            module = inner
        module.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the submodule with the qualified name ``target``.

        Returns:
            Whether it existed; otherwise nothing is deleted.
        """
        *prefix, field = target.split(".")
        module: Any = self
        for item in prefix:
            module = getattr(module, item, None)
            if not isinstance(module, torch.nn.Module):
                return False
        if not isinstance(getattr(module, field, None), torch.nn.Module):
            return False
        delattr(module, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete every submodule that the graph does not use.

        Used are: modules that a ``call_module`` node calls or a ``get_attr`` node reads, with all modules inside; and
        modules on the path to the target of such a node.
        """
        used: set[str] = set()
        for target in _used_targets(self.graph):
            used.update(itertools.accumulate(target.split("."), "{}.{}".format))
            try:
                module = self.get_submodule(target)
            except AttributeError:
                continue  # a tensor, or nothing there to keep
            used.update(f"{target}.{name}" for name, _ in module.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name not in used]:
            self.delete_submodule(name)

    # Hooks ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[[Node, str, Node], object]) -> Iterator[None]:
        """Within the context, ``f(old, new_name, user)`` is called at each replacement of a node."""
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    @contextlib.contextmanager
    def _set_create_node_hook(self, f: Callable[[Node], object]) -> Iterator[None]:
        """Within the context, ``f(node)`` is called for each node that is made."""
        self._register_create_node_hook(f)
        try:
            yield
        finally:
            self._unregister_create_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[[Node, str, Node], object]) -> None:
        """Call ``f(old, new_name, user)`` at each replacement of ``old`` in ``user``.

        It is also called for renaming.
        """
        self._replace_hooks.append(_checked_hook(f, "replace"))

    def _unregister_replace_node_hook(self, f: Callable[[Node, str, Node], object]) -> None:
        """Undo :meth:`_register_replace_node_hook`."""
        self._replace_hooks.remove(_checked_hook(f, "replace"))

    def _register_create_node_hook(self, f: Callable[[Node], object]) -> None:
        """Call ``f(node)`` for each node that is made in the graph."""
        self._create_node_hooks.append(_checked_hook(f, "create_node"))

    def _unregister_create_node_hook(self, f: Callable[[Node], object]) -> None:
        """Undo :meth:`_register_create_node_hook`."""
        self._create_node_hooks.remove(_checked_hook(f, "create_node"))

    def _register_erase_node_hook(self, f: Callable[[Node], object]) -> None:
        """Call ``f(node)`` for each node that is erased from the graph."""
        self._erase_node_hooks.append(_checked_hook(f, "erase_node"))

    def _unregister_erase_node_hook(self, f: Callable[[Node], object]) -> None:
        """Undo :meth:`_register_erase_node_hook`."""
        self._erase_node_hooks.remove(_checked_hook(f, "erase_node"))

    def _register_deepcopy_hook(self, f: Callable[[GraphModule], object]) -> None:
        """Call ``f(copy)`` with each deep copy made of this module."""
        self._deepcopy_hooks.append(_checked_hook(f, "deepcopy"))

    def _unregister_deepcopy_hook(self, f: Callable[[GraphModule], object]) -> None:
        """Undo :meth:`_register_deepcopy_hook`."""
        self._deepcopy_hooks.remove(_checked_hook(f, "deepcopy"))


# Entries of a graph module's ``__dict__`` that belong to its own graph and module tables.
_REBUILT_ATTRIBUTES = frozenset(
    {
        "_graph",
        "_code",
        "_lineno_map",
        "_prologue_start",
        "_parameters",
        "_buffers",
        "_modules",
        "_non_persistent_buffers_set",
    }
)

# Tables that even a shallow copy does not share, so that a hook registered on the copy does not affect the
# original.
_OWN_TABLES = frozenset(torch.nn.Module().__dict__) | {
    "_replace_hooks",
    "_create_node_hooks",
    "_erase_node_hooks",
    "_deepcopy_hooks",
}


def _checked_hook(f: Any, kind: str) -> Any:
    if not callable(f):
        raise AssertionError(f"{kind} hook must be a callable.")
    return f


def _used_targets(graph: Graph) -> set[str]:
    """Qualified names of the modules that the graph calls, and of what it reads."""
    nodes = itertools.chain(*(graph.find_nodes(op=op) for op in ("call_module", "get_attr")))
    return {node.target for node in nodes if isinstance(node.target, str)}


def _share_uncopyable(state: dict[str, Any], memo: dict[int, Any]) -> None:
    """Let deepcopy share script objects and process groups, if torch.fx is configured to."""
    share = getattr(torch.fx.graph_module, "_share_torchbind_and_process_group", None)
    if share is None or not share.get():
        return
    distributed = torch.distributed
    process_group = distributed.ProcessGroup if distributed.is_available() else ()
    for value in state.values():
        is_opaque_script = isinstance(value, torch.ScriptObject) and not (
            value._has_method("__getstate__") and value._has_method("__setstate__")
        )
        if is_opaque_script or isinstance(value, process_group):
            memo.setdefault(id(value), value)
