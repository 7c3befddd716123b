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

    Nodes are created at the insertion point (the end, unless :meth:`inserting_before` or
    :meth:`inserting_after` says otherwise) by :meth:`placeholder`, :meth:`get_attr`,
    :meth:`call_function`, :meth:`call_method`, :meth:`call_module` and :meth:`output`, and each
    returns the :class:`Node` that stands for its value::

        graph = Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.relu, (x,))
        graph.output(y)
        module = GraphModule(torch.nn.Module(), graph)

    Args:
        owning_module: the module that runs the graph, if one does.
        tracer_cls: the class of the tracer that recorded it.
        tracer_extras: what that tracer wants to remember.
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
        """A graph with the same nodes, names, metadata and attributes.

        Values that nodes refer to, such as functions and tensors, are shared. Nodes after the
        output node are left out, as in torch.fx.
        """
        memo = {} if memo is None else memo
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new._fill_from(self)
        for name, value in self.__dict__.items():
            new.__dict__[name] = (
                value if name in ("_tracer_cls", "_tracer_extras") else copy.deepcopy(value, memo)
            )
        return new

    def __copy__(self) -> Graph:
        """A graph with the same nodes and names, which shares metadata values and attributes, those of
        nodes too."""
        new = type(self).__new__(type(self))
        new._fill_from(self)
        new.__dict__.update(self.__dict__)
        for copied, node in zip(new.nodes, self.nodes, strict=True):
            if node.__dict__:
                copied.__dict__.update(node.__dict__)
        return new

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the nodes in order; the owning module is not part of a graph."""
        nodes = [(node.op, node.name) for node in self.nodes]
        return _bare, (type(self), nodes), (dict(self.__dict__), _records(self))

    def __setstate__(self, state: tuple[dict[str, Any], list[Any]]) -> None:
        attributes, records = state
        self.__dict__.update(attributes)
        _restore(self, records)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """Insert a ``get_attr`` node: the attribute of the module hierarchy called
        ``qualified_name``, such as ``"encoder.weight"``.

        Warns if the owning module, where there is one, has no such parameter, buffer or module.
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
            AttributeError: if the owning module, where there is one, has no such submodule.
        """
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    # Text ----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str, allow: Callable[[str], bool] | Iterable[str] | None = None) -> Graph:
        """The graph that ``text`` says, as ``print(graph)`` or :meth:`to_lossless` wrote it.

        Functions and types are looked up by name in torch, operator, builtins, math and modules
        that are imported already. Reading runs nothing that the text says; running the graph
        does, so read only what you would run, or say with ``allow`` what the text may name.

        Args:
            text: Either text form.
            allow: Which functions, classes and other objects the text may name: a predicate on
                qualified names, or a collection of names, each of which allows what is in it
                (``"torch.nn.functional"`` allows ``torch.nn.functional.relu``). Builtins have
                their module with them, ``builtins.len``. What a name leads to must be allowed
                under its own name too: ``torch.os.system`` is ``os.system``. None allows all.
                Note that torch itself has functions that read files and run code, such as
                ``torch.load``: name what you need.

        Raises:
            GraphTextError: (a ``ValueError``) if the text is no graph, with the line, the column
                and what was expected there; or if it names something that is not found or not
                allowed.
            TypeError: if ``allow`` is a string.
        """
        graph = cls()
        graph._parse(text, allow)
        return graph

    def _repr_html_(self) -> str:
        """The picture that a notebook shows."""
        from corsac._drawing import notebook_page

        return notebook_page(self)

    def print_tabular(self) -> None:
        """Print the graph as a table: opcode, name, target, args and kwargs of each node."""
        print(self._table())

    def lint(self) -> None:
        """Check that the graph is well-formed.

        All arguments are nodes of this graph that come before the node that uses them, names are
        unique, and where a module owns the graph, the attributes and submodules that nodes name
        are there. The message lists every fault, and shows each in its place in the graph.

        Raises:
            RuntimeError: if something is wrong.
            ValueError: if the target of a node does not fit its opcode.
        """
        self._lint()
        if self.owning_module is not None:
            self._check_targets(self.owning_module)

    def _target_to_str(self, target: Any) -> str:
        """What a node that calls or names ``target`` is called, before it is made unique."""
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
            root_module: the expression under which parameters and submodules are found, usually
                ``"self"``.
            verbose: show where each node comes from, and the type and shape of its value.
            include_stride: show strides too.
            include_device: show devices too.
            colored: with escape sequences of a terminal.
            expanded_def: each parameter and result on a line of its own, with its description.
            record_func: with marks for the profiler around each call.
            additional_meta: keys of ``node.meta`` to show.

        Returns:
            ``src``, the source of a module with one function, and ``globals``, the values that it
            refers to by name.
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
        """The code, with no name that ``namespace`` has given out."""
        return self._codegen._gen_python_code(self.nodes, root_module, namespace, **style)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Have ``codegen`` generate the code from now on."""
        self._codegen = codegen

    def process_inputs(self, *args: Any) -> Any:
        """The graph's inputs for these arguments of the generated function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the generated function returns when the graph's outputs are ``out``."""
        return self._codegen.process_outputs(out)

    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> AbstractContextManager[Any]:
        """Register a function that changes the body of the code whenever it is generated.

        A transformer takes the body as a list of pieces of text and returns such a list::

            graph.on_generate_code(lambda before: lambda body: ["breakpoint()\n", *body])

        Args:
            make_transformer: takes the transformer registered so far, or None, and returns the
                new one, which may call it.

        Returns:
            A context manager that brings the former transformer back when it is left. Without a
            ``with`` statement the new one stays.
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
        """The example value of a tensor's node, and the ``meta`` key it was found under."""
        return _symbolic_sizes.example_of(tensor_node)

    def _resolve_unbacked_binding(
        self,
        producer: Node,
        keypath: tuple[object, ...],
        lower_symint: Callable[[torch.SymInt], Node | int],
    ) -> Node:
        """Record the way from the result of ``producer`` to the symbol ``keypath`` leads to."""
        return _symbolic_sizes.follow_binding(self, producer, keypath, lower_symint)

    def materialize_symints(self, values: Sequence[torch.SymInt | int]) -> list[Node | int]:
        """Nodes that compute symbolic sizes from the inputs of this graph.

        What a node computes is what the symbols of the formula are when the program runs, whatever
        becomes of the tensor that ``values`` were read from. Integers and constant formulas are
        returned as integers. Nodes go to the insertion point, which has to come after the inputs.

        Args:
            values: symbolic or plain integers; formulas that they share are recorded once.

        Raises:
            TypeError: if a value is no integer.
            AssertionError: if a symbol cannot be read from any node.
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
