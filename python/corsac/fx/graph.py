"""Graphs: programs as lists of nodes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.graph import (  # noqa: F401
    _custom_builtins,
    _CustomBuiltin,
    _format_target,
    _is_from_torch,
    _is_magic,
    _origin_type_map,
    _register_custom_builtin,
    _snake_case,
    dtype_abbrs,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)

from corsac import _core
from corsac._core import GraphTextError
from corsac.fx import _symbolic_sizes
from corsac.fx._codegen import (  # noqa: F401
    CodeGen,
    PythonCode,
    TransformCodeFunc,
    _BoxedCodeGen,
    _ExportCodeGen,
    _Namespace,
    _override_sym_repr,
    _PyTreeCodeGen,
    _PyTreeInfo,
)
from corsac.fx._describe import _illegal_names  # noqa: F401
from corsac.fx._graph_pickle import _bare, _records, _restore
from corsac.fx._node_notes import _parse_stack_trace, _ParsedStackTrace  # noqa: F401
from corsac.fx.immutable_collections import immutable_dict  # noqa: F401
from corsac.fx.node import (  # noqa: F401
    Argument,
    Node,
    _get_qualified_name,
    _type_repr,
    map_arg,
)

if TYPE_CHECKING:
    from corsac.fx._symbolic_trace import Tracer
    from corsac.fx.graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "GraphTextError", "PythonCode"]


class Graph(_core.Graph):
    """A program as a list of nodes.

    Nodes are created at the insertion point (the end, unless set by :meth:`inserting_before` or
    :meth:`inserting_after`) by :meth:`placeholder`, :meth:`get_attr`, :meth:`call_function`,
    :meth:`call_method`, :meth:`call_module` and :meth:`output`. Each returns the :class:`Node` of its value::

        graph = Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.relu, (x,))
        graph.output(y)
        module = GraphModule(torch.nn.Module(), graph)

    Args:
        owning_module: the module that runs the graph, if one does.
        tracer_cls: the class of the tracer that recorded it.
        tracer_extras: additional data of that tracer.
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: type[Tracer] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._co_fields: dict[str, Any] = {}
        self._codegen = CodeGen()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        """Copy the nodes with their names, metadata and attributes to a new graph.

        Values in nodes, such as functions and tensors, are shared. Nodes after the output node are left out,
        as in torch.fx.
        """
        memo = {} if memo is None else memo
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new._fill_from(self)
        _copy_attributes(self, new, memo)
        for name, value in self.__dict__.items():
            new.__dict__[name] = (
                value if name in ("_tracer_cls", "_tracer_extras") else copy.deepcopy(value, memo)
            )
        return new

    def __copy__(self) -> Graph:
        """Copy the nodes with their names to a new graph, which shares metadata values and attributes, also
        those of nodes."""
        new = type(self).__new__(type(self))
        new._fill_from(self)
        new.__dict__.update(self.__dict__)
        for copied, node in zip(new.nodes, self.nodes, strict=True):
            if node.__dict__:
                copied.__dict__.update(node.__dict__)
        return new

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the nodes in order, without the owning module."""
        nodes = [(node.op, node.name) for node in self.nodes]
        return _bare, (type(self), nodes), (dict(self.__dict__), _records(self))

    def __setstate__(self, state: tuple[dict[str, Any], list[Any]]) -> None:
        attributes, records = state
        self.__dict__.update(attributes)
        _restore(self, records)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """Insert a ``get_attr`` node: the attribute of the module hierarchy called
        ``qualified_name``, such as ``"encoder.weight"``.

        Warns if there is an owning module without such a parameter, buffer or module.
        """
        owner = self.owning_module
        if owner is not None and not _refers_to_something(owner, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer\n"
                f"there is no {qualified_name!r}",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Insert a ``call_module`` node: a call of the submodule called ``module_name``.

        Raises:
            AttributeError: there is an owning module without such a submodule.
        """
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    # Text ----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str, allow: Callable[[str], bool] | Iterable[str] | None = None) -> Graph:
        """Parse the text of a graph, as ``print(graph)`` or :meth:`to_lossless` writes it.

        Functions and types are looked up by name in torch, operator, builtins, math and modules that are
        already imported. Parsing runs nothing; running the graph does, so read only text that you would run,
        or restrict its names with ``allow``.

        Args:
            text: either text form.
            allow: the functions, classes and other objects that the text may use: a predicate on qualified
                names, or a collection of names, each of which includes the names below it
                (``"torch.nn.functional"`` allows ``torch.nn.functional.relu``). Builtins are written with
                their module, ``builtins.len``. An object must also be allowed under its own name:
                ``torch.os.system`` is ``os.system``. None allows everything. Note that torch itself has
                functions that read files and run code, such as ``torch.load``: list the names that you need.

        Raises:
            GraphTextError: (a ``ValueError``) the text is not a graph; with line, column and what was
                expected there. Or a name is not found or not allowed.
            TypeError: ``allow`` is a string.
        """
        graph = cls()
        graph._parse(text, allow)
        return graph

    def _repr_html_(self) -> str:
        """The picture for notebooks."""
        from corsac._drawing.pictures import notebook_page

        return notebook_page(self)

    def print_tabular(self) -> None:
        """Print the graph as a table: opcode, name, target, args and kwargs of each node."""
        print(self._table())

    def lint(self) -> None:
        """Check that the graph is well-formed.

        All arguments are nodes of this graph that precede their users, names are unique, and if a module owns
        the graph, the attributes and submodules used by nodes exist. The message lists every fault, and shows
        each at its place in the graph.

        Raises:
            RuntimeError: the graph is malformed.
            ValueError: if the target of a node does not fit its opcode.
        """
        self._lint()
        if self.owning_module is not None:
            self._check_targets(self.owning_module)

    def _target_to_str(self, target: Any) -> str:
        """The name of a node with this target, before it is made unique."""
        if callable(target):
            name = target.__name__
        elif isinstance(target, str):
            name = target[2:-2] if _is_magic(target) else target
        else:
            raise AssertionError(f"expected a callable or a str as target, got {type(target)}")
        return _snake_case(name)

    # Python code ---------------------------------------------------------------------------

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """Generate Python code.

        Args:
            root_module: the expression for the module with parameters and submodules, usually ``"self"``.
            verbose: show the source of each node, and the type and shape of its value.
            include_stride: show strides too.
            include_device: show devices too.
            colored: use the terminal's escape sequences.
            expanded_def: each parameter and result on a line of its own, with its description.
            record_func: mark each call for the profiler.
            additional_meta: keys of ``node.meta`` to show.

        Returns:
            ``src``, the source of a module with one function, and ``globals``, the values of its global
            names.
        """
        return self._python_code(
            root_module,
            _Namespace(),
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
            record_func=record_func,
            additional_meta=additional_meta,
        )

    def _python_code(self, root_module: str, namespace: _Namespace, **style: Any) -> PythonCode:
        """The code, without the names in use in ``namespace``."""
        return self._codegen._gen_python_code(self.nodes, root_module, namespace, **style)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Set the code generator."""
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        """The graph's inputs from the arguments of the generated function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The result of the generated function from the graph's outputs ``out``."""
        return self._codegen.process_outputs(out)

    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> AbstractContextManager[Any]:
        """Register a function that changes the body of the code whenever it is generated.

        A transformer takes the body as a list of pieces of text and returns such a list::

            graph.on_generate_code(lambda before: lambda body: ["breakpoint()\n", *body])

        Args:
            make_transformer: called with the transformer registered so far, or None; returns the new one,
                which may call it.

        Returns:
            A context manager that restores the previous transformer on exit. Without a ``with`` statement the
            new one stays.
        """
        codegen = self._codegen
        before = codegen._body_transformer
        codegen._body_transformer = make_transformer(before)
        restore = ExitStack()
        restore.callback(self._set_body_transformer, before)
        return restore

    def _set_body_transformer(self, transformer: TransformCodeFunc | None) -> None:
        self._codegen._body_transformer = transformer

    def create_size_node(self, tensor_node: Node, dim: int) -> Node:
        """Insert a node for ``tensor_node.size(dim)``."""
        return self._create_metadata_node(
            torch.ops.aten.sym_size.int, tensor_node, lambda tensor: tensor.size(dim), dim
        )

    def create_stride_node(self, tensor_node: Node, dim: int) -> Node:
        """Insert a node for ``tensor_node.stride(dim)``."""
        return self._create_metadata_node(
            torch.ops.aten.sym_stride.int, tensor_node, lambda tensor: tensor.stride(dim), dim
        )

    def create_storage_offset_node(self, tensor_node: Node) -> Node:
        """Insert a node for ``tensor_node.storage_offset()``."""
        return self._create_metadata_node(
            torch.ops.aten.sym_storage_offset.default,
            tensor_node,
            lambda tensor: tensor.storage_offset(),
        )

    def _create_metadata_node(
        self, function: Callable[..., Any], tensor_node: Node, read: Callable[..., Any], *args: int
    ) -> Node:
        value, key = self._get_tensor_meta_val(tensor_node)
        node = self.call_function(function, (tensor_node, *args))
        if value is not None:
            node.meta[key] = read(value)
        return node

    @staticmethod
    def _get_tensor_meta_val(tensor_node: Node) -> tuple[Any, str]:
        """The example value of a tensor's node, and its ``meta`` key."""
        return _symbolic_sizes.example_of(tensor_node)

    def _resolve_unbacked_binding(
        self,
        producer: Node,
        keypath: tuple[object, ...],
        lower_symint: Callable[[torch.SymInt], Node | int],
    ) -> Node:
        """Record the path from the result of ``producer`` to a symbol."""
        return _symbolic_sizes.follow_binding(self, producer, keypath, lower_symint)

    def materialize_symints(self, values: Sequence[torch.SymInt | int]) -> list[Node | int]:
        """Nodes that compute symbolic sizes from the inputs of this graph.

        The nodes follow the values of the formula's symbols at run time, whatever happens to the tensor that
        ``values`` were read from. Integers and constant formulas are returned as integers. Nodes are inserted
        at the insertion point, which must come after the inputs.

        Args:
            values: symbolic or plain integers; common formulas are recorded once.

        Raises:
            TypeError: a value is not an integer.
            AssertionError: a symbol has no source in any node.
        """
        materializer = _symbolic_sizes.Materializer(self)
        return [materializer.materialize(value) for value in values]

    def materialize_symint(self, value: torch.SymInt | int) -> Node | int:
        """The node that computes one symbolic size; see :meth:`materialize_symints`."""
        return self.materialize_symints([value])[0]

    def _clear_nodes(self) -> None:
        """Erase all nodes."""
        for node in reversed(self.nodes):
            node.meta.clear()
            self.erase_node(node)


def _copy_attributes(graph: Graph, copied: Graph, memo: dict[int, Any]) -> None:
    """Gives the nodes of a deep copy what users attached to those of ``graph``."""
    if not any(vars(node) for node in graph.nodes):
        return
    pairs = list(zip(graph.nodes, copied.nodes, strict=False))
    # What is attached may be other nodes. As deepcopy does, the memo keeps what it knows by address.
    memo.update((id(node), new) for node, new in pairs)
    memo.setdefault(id(memo), []).append(pairs)
    for node, new in pairs:
        for name, value in vars(node).items():
            try:
                vars(new)[name] = copy.deepcopy(value, memo)
            except (LookupError, RuntimeError, TypeError):
                # Results of autograd, locks, nodes that are not copied: shared, as metadata is.
                vars(new)[name] = value


def _refers_to_something(module: torch.nn.Module, qualified_name: str) -> bool:
    """Whether a parameter, buffer or submodule of ``module`` has this name."""
    path, _, name = qualified_name.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return False
    if not hasattr(owner, name):
        return False
    value = getattr(owner, name)
    return isinstance(value, (torch.nn.Module, torch.nn.Parameter)) or name in owner._buffers
