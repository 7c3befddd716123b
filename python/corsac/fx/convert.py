"""Converts graphs and modules of torch.fx to corsac.fx, and back."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any, NamedTuple, overload

import torch
import torch.fx
import torch.fx.graph as torch_graph

from . import graph as corsac_graph
from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import map_arg

__all__ = ["from_torch", "to_torch"]

# Internal fields of a torch.fx node in ``__dict__``, by version; the rest is the user's.
_NODE_FIELDS = frozenset(
    [
        "graph",
        "name",
        "op",
        "target",
        "type",
        "meta",
        "users",
        "next",
        "prev",
        "args",
        "kwargs",
        "stack_trace",
        "_args",
        "_kwargs",
        "_input_nodes",
        "_erased",
        "_prev",
        "_next",
        "_repr_fn",
        "_sort_key",
        "_name",
    ]
)

# Fields of a graph module in ``__dict__`` that belong to its own graph. The lists of hooks hold functions
# that expect nodes of one package.
_GRAPH_MODULE_FIELDS = frozenset(
    [
        "_graph",
        "_code",
        "_lineno_map",
        "_prologue_start",
        "_tracer_cls",
        "_tracer_extras",
        "_parameters",
        "_buffers",
        "_modules",
        "_non_persistent_buffers_set",
        "_replace_hooks",
        "_create_node_hooks",
        "_erase_node_hooks",
        "_deepcopy_hooks",
    ]
)


class _Package(NamedTuple):
    """Corresponding classes of torch.fx and corsac.fx."""

    graph: type
    graph_module: type
    tracer: type
    code_gen: type
    pytree_code_gen: type
    boxed_code_gen: type | None
    export_code_gen: type | None
    map_arg: Callable[..., Any]


_TORCH = _Package(
    torch.fx.Graph,
    torch.fx.GraphModule,
    torch.fx.Tracer,
    torch.fx.CodeGen,
    torch_graph._PyTreeCodeGen,
    getattr(torch_graph, "_BoxedCodeGen", None),
    getattr(torch_graph, "_ExportCodeGen", None),
    torch.fx.node.map_arg,
)
_CORSAC = _Package(
    Graph,
    GraphModule,
    Tracer,
    corsac_graph.CodeGen,
    corsac_graph._PyTreeCodeGen,
    corsac_graph._BoxedCodeGen,
    getattr(corsac_graph, "_ExportCodeGen", None),
    map_arg,
)


@overload
def from_torch(source: torch.fx.Graph) -> Graph: ...
@overload
def from_torch(source: torch.fx.GraphModule | torch.export.ExportedProgram) -> GraphModule: ...
def from_torch(source: Any) -> Any:
    """Convert from torch.fx.

    Names, arguments, types, metadata, attributes on nodes and the code generator are kept. Parameters,
    buffers and submodules are shared with ``source``, not copied; so are the submodules that control-flow
    operators call, which are not converted.

    Args:
        source: a ``torch.fx.Graph``, a ``torch.fx.GraphModule`` (as ``torch.compile`` passes to a backend),
            or a ``torch.export.ExportedProgram``, whose ``graph_module`` is used. Objects of corsac are
            returned unchanged.

    Raises:
        TypeError: ``source`` is something else.
    """
    return _convert(source, _TORCH, _CORSAC, "from_torch")


@overload
def to_torch(source: Graph) -> torch.fx.Graph: ...
@overload
def to_torch(source: GraphModule) -> torch.fx.GraphModule: ...
def to_torch(source: Any) -> Any:
    """Convert to torch.fx; see :func:`from_torch`, of which this is the inverse.

    Args:
        source: a :class:`Graph` or :class:`GraphModule`. Objects of torch.fx are returned unchanged.

    Raises:
        TypeError: ``source`` is something else.
    """
    return _convert(source, _CORSAC, _TORCH, "to_torch")


def _convert(source: Any, old: _Package, new: _Package, caller: str) -> Any:
    if isinstance(source, torch.export.ExportedProgram):
        source = source.graph_module
    if isinstance(source, old.graph_module):
        return _convert_module(source, old, new)
    if isinstance(source, old.graph):
        return _convert_graph(source, old, new)
    if isinstance(source, (new.graph, new.graph_module)):
        return source
    raise TypeError(
        f"{caller} takes a Graph, a GraphModule or an ExportedProgram, not {type(source).__name__}"
    )


def _convert_graph(source: Any, old: _Package, new: _Package) -> Any:
    graph = new.graph(
        tracer_cls=new.tracer if source._tracer_cls is not None else None,
        tracer_extras=source._tracer_extras,
    )
    append = _torch_appender(graph) if new is _TORCH else graph.create_node
    copies: dict[Any, Any] = {}
    lookup = copies.__getitem__
    map_old_arg = old.map_arg
    for node in source.nodes:
        name = node.name
        args = node.args
        kwargs = node.kwargs
        new_node = copies[node] = append(
            node.op,
            node.target,
            map_old_arg(args, lookup) if args else (),
            map_old_arg(kwargs, lookup) if kwargs else {},
            name,
            node.type,
        )
        if new_node.name != name:
            new_node.name = name
        meta = node.meta
        if meta:
            new_node.meta.update(meta)
        own = node.__dict__
        if own:
            for key, value in own.items():
                if key not in _NODE_FIELDS:
                    setattr(new_node, key, value)
    graph._co_fields = dict(getattr(source, "_co_fields", {}))
    graph.set_codegen(_convert_code_gen(source._codegen, old, new))
    return graph


def _torch_appender(graph: torch.fx.Graph) -> Callable[..., torch.fx.Node]:
    """``graph.create_node`` for names that are known to be unused and legal.

    Searching for an unused name takes torch.fx twice as long as everything else. This appends a node as
    ``create_node`` does, if the parts of a graph are those of torch 2.9 and later.
    """
    names = graph._graph_namespace
    parts = ("_used_names", "_obj_to_name", "_base_count")
    if not all(hasattr(names, part) for part in parts) or not hasattr(graph, "_root"):
        return graph.create_node
    table = getattr(graph, "_find_nodes_lookup_table", None)
    if table is None or not hasattr(table, "table"):
        return graph.create_node
    used, by_node, counts = names._used_names, names._obj_to_name, names._base_count
    if not isinstance(used, set):
        return graph.create_node
    found, insert, node_cls = table.table, graph._root.prepend, torch.fx.Node

    def append(
        op: str, target: Any, args: Any, kwargs: Any, name: str, type_expr: Any
    ) -> torch.fx.Node:
        node = node_cls(graph, name, op, target, args, kwargs, type_expr)
        base, _, number = name.rpartition("_")
        if base and number.isdecimal():
            counts[base] = int(number)
        else:
            counts[name] = 0
        used.add(name)
        by_node[node] = name
        insert(node)
        found[(op, target if op == "call_function" else None)][node] = None
        graph._len += 1
        return node

    return append


def _convert_module(source: Any, old: _Package, new: _Package) -> Any:
    graph = _convert_graph(source.graph, old, new)
    module = new.graph_module(source, graph, type(source).__name__)
    # The constructor copied the attributes that the graph refers to; these are the others.
    for table in ("_parameters", "_buffers", "_modules"):
        own = module.__dict__[table]
        for name, value in source.__dict__[table].items():
            own.setdefault(name, value)
    module._non_persistent_buffers_set.update(source._non_persistent_buffers_set)
    for name, value in source.__dict__.items():
        if name in _GRAPH_MODULE_FIELDS:
            continue
        if isinstance(value, types.MethodType) and value.__self__ is source:
            value = types.MethodType(value.__func__, module)
        elif isinstance(value, dict):
            value = copy.copy(value)
        module.__dict__[name] = value
    return module


def _convert_code_gen(code_gen: Any, old: _Package, new: _Package) -> Any:
    cls = type(code_gen)
    if cls is old.code_gen:
        converted = new.code_gen()
    elif cls is old.boxed_code_gen and new.boxed_code_gen is not None:
        converted = new.boxed_code_gen()
    elif cls is old.pytree_code_gen:
        converted = new.pytree_code_gen(code_gen.pytree_info)
    elif cls is old.export_code_gen and new.export_code_gen is not None:
        converted = new.export_code_gen(
            code_gen.pytree_info,
            code_gen.in_shuffle_graph,
            code_gen.out_shuffle_graph,
            code_gen.tree_leaf_names,
            code_gen.root,
        )
    elif isinstance(code_gen, _Adapter):
        return code_gen.adapted
    else:
        return _adapter_class(new.code_gen)(code_gen)
    converted._body_transformer = code_gen._body_transformer
    converted._func_name = getattr(code_gen, "_func_name", "forward")
    return converted


class _Adapter:
    """Marks a code generator that wraps one written for the other package."""

    adapted: Any


def _adapter_class(base: type) -> type:
    """A subclass of ``base`` that calls another code generator for the text."""
    adapter = _ADAPTER_CLASSES.get(base)
    if adapter is None:

        class Adapter(_Adapter, base):  # type: ignore[misc, valid-type]
            def __init__(self, adapted: Any) -> None:
                super().__init__()
                self.adapted = adapted
                self._body_transformer = adapted._body_transformer
                self._func_name = getattr(adapted, "_func_name", "forward")

            def gen_fn_def(self, *args: Any, **kwargs: Any) -> str:
                return self.adapted.gen_fn_def(*args, **kwargs)

            def generate_output(self, *args: Any, **kwargs: Any) -> str:
                return self.adapted.generate_output(*args, **kwargs)

            def process_inputs(self, *args: Any) -> Any:
                return self.adapted.process_inputs(*args)

            def process_outputs(self, outputs: Any) -> Any:
                return self.adapted.process_outputs(outputs)

            def additional_globals(self) -> list[tuple[str, Any]]:
                return self.adapted.additional_globals()

        adapter = _ADAPTER_CLASSES[base] = Adapter
    return adapter


_ADAPTER_CLASSES: dict[type, type] = {}
