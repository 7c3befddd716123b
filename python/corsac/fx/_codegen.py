"""Code generators, which turn a graph into a Python function.

The text is generated in Rust. A subclass of :class:`CodeGen` that overrides the definition of the function or
its return statement is called for that part.
"""

from __future__ import annotations

import cmath
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.utils._pytree as pytree
from torch.fx.graph import _custom_builtins

from corsac import _core

from . import _describe
from ._describe import _illegal_names
from ._node_notes import NoteStyle
from .node import Argument, Node

if TYPE_CHECKING:
    import torch

    from .graph_module import GraphModule

__all__ = ["CodeGen", "PythonCode"]

#: A function from the body of generated code, in pieces, to another one.
TransformCodeFunc = Callable[[list[str]], list[str]]


@dataclass
class PythonCode:
    """Generated code, with the data needed to run or save it."""

    #: The source of a module with one function.
    src: str
    #: The values of the global names in the source.
    globals: dict[str, Any]
    #: Map from lines of the function to indices of nodes; the ``def`` line is line 0.
    _lineno_map: dict[int, int | None] | None
    #: The line of ``src`` where the function starts.
    _prologue_start: int = 0


def _line_map(code: PythonCode) -> dict[int, int | None] | None:
    lines = code.__dict__["_lines"]
    if isinstance(lines, _core.LineMap):
        # Made on first use: it is rarely used, and as large as the graph.
        lines = code.__dict__["_lines"] = lines.to_dict()
    return lines


def _set_line_map(code: PythonCode, lines: dict[int, int | None] | None) -> None:
    code.__dict__["_lines"] = lines


PythonCode._lineno_map = property(_line_map, _set_line_map)  # type: ignore[assignment]


class _PyTreeInfo(NamedTuple):
    """Structures by which the arguments of a traced function become graph inputs, and outputs its result."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


class _Namespace:
    """Unique names for objects: one name per object, one object per name.

    A name is a Python identifier that hides no builtin, unless the object is that builtin.
    """

    def __init__(self) -> None:
        self._names = _core.Namespace()
        self._obj_to_name: dict[Any, str] = {}

    @property
    def _used_names(self) -> list[str]:
        return self._names.used()

    def create_name(self, candidate: str, obj: object | None) -> str:
        """The name of ``obj``, or a fresh one after ``candidate``.

        Args:
            candidate: the preferred name.
            obj: the object; None for a name without one.
        """
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        name = self._names.create(
            candidate, obj is not None and _illegal_names.get(candidate) is obj
        )
        if obj is not None:
            self._obj_to_name[obj] = name
        return name

    def associate_name_with_obj(self, name: str, obj: object) -> None:
        """Register ``name`` as the name of ``obj``; neither may be registered yet."""
        if self._obj_to_name.setdefault(obj, name) is not name:
            raise AssertionError("obj is already associated")

    def _rename_object(self, obj: object, name: str) -> None:
        if obj not in self._obj_to_name:
            raise AssertionError(f"Object {obj} is not in _obj_to_name")
        self._obj_to_name[obj] = name
        self._names.mark_used(name)


class CodeGen:
    """Generates code with one parameter for each input.

    Subclasses may override :meth:`gen_fn_def`, :meth:`generate_output`, :meth:`additional_globals`,
    :meth:`process_inputs` and :meth:`process_outputs`, and are installed by
    :meth:`Graph.set_codegen <corsac.fx.Graph.set_codegen>`.
    """

    # Text form of symbolic sizes.
    _sym_repr: Callable[[Any], str] = lambda x: repr(x)

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name: str = "forward"

    def gen_fn_def(
        self,
        free_vars: list[str],
        maybe_return_annotation: str,
        *,
        expanded_def: bool = False,
    ) -> str:
        """The lines that begin the function: ``def forward(self, a, b):``.

        Args:
            free_vars: the inputs, with annotations and default values.
            maybe_return_annotation: the type of the result, with its arrow, or an empty string.
            expanded_def: each parameter on a line of its own.
        """
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if expanded_def:
            parameters = "\n" + self._format_multiline_args(free_vars)
        else:
            parameters = ", ".join(free_vars)
        return f"def {self._func_name}({parameters}){maybe_return_annotation}:"

    def generate_output(
        self,
        output_args: Argument,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The statement that returns, not indented.

        Args:
            output_args: the argument of the output node.
            descs: descriptions of its items, to show each on a line of its own.
            repr_fn: returns an argument as an expression.
        """
        if descs is not None and isinstance(output_args, list | tuple):
            return self._format_multiline_container(output_args, descs, "return ", repr_fn)
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The inputs of the graph from the arguments of the generated function."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The result of the generated function from the graph's outputs."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Global names and values that the text of this generator needs."""
        return []

    def _format_multiline_args(self, args: list[str]) -> str:
        return "".join(self._format_single_arg(arg) for arg in args)

    def _format_single_arg(self, arg: str) -> str:
        declaration, mark, comment = arg.partition("#")
        if mark:
            return f"    {declaration.rstrip()},  # {comment.lstrip()}\n"
        return f"    {arg},\n"

    def _get_delimiters(self, container: Sequence[object]) -> tuple[str, str]:
        return ("(", ")") if isinstance(container, tuple) else ("[", "]")

    def _format_multiline_container(
        self,
        items: Sequence[object],
        descs: Sequence[str] | None = None,
        prefix: str = "",
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        opening, closing = self._get_delimiters(items)
        trailers = self._get_desc_trailers(items, descs)
        lines = [
            f"    {(repr_fn or repr)(item)},{trailer}\n"
            for item, trailer in zip(items, trailers, strict=False)
        ]
        return f"{prefix}{opening}\n{''.join(lines)}{closing}"

    def _get_desc_trailers(self, items: Sequence[object], descs: Sequence[str] | None) -> list[str]:
        described = [f"  # {desc}" for desc in descs or ()]
        return described + [""] * (len(items) - len(described))

    def _call_method_with_signature_check(
        self, method: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call an override, which may be older than some of the keywords, without these."""
        accepted = inspect.signature(method).parameters
        return method(*args, **{k: v for k, v in kwargs.items() if k in accepted})

    def _is_overridden(self, hook: str) -> bool:
        """Whether ``hook`` is overridden: it is not one that is implemented in Rust too."""
        if hook in self.__dict__:
            return True
        return getattr(type(self), hook) not in _NATIVE_HOOKS

    def _calling(self) -> tuple[Any, ...] | None:
        """Calling convention of the function, for the Rust side: None for one parameter per input, () for a
        list, or parameters, keywords and whether the result has a structure.
        """
        return None

    def _gen_python_code(
        self,
        nodes: _core.Nodes,
        root_module: str,
        namespace: _Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        notes = None
        metadata = _is_set("FX_GRAPH_SHOW_META")
        if verbose or expanded_def or metadata:
            style = NoteStyle(
                verbose=verbose,
                stride=include_stride or _is_set("FX_GRAPH_SHOW_STRIDE"),
                device=include_device or _is_set("FX_GRAPH_SHOW_DEVICE"),
                metadata=metadata,
                expanded=expanded_def,
                colored=colored,
                additional_meta=additional_meta,
                sym_repr=CodeGen._sym_repr,
            )
            notes = style.notes(nodes)
        request = _Request(
            graph=nodes.graph,
            root_module=root_module,
            function_name=self._func_name,
            calling=self._calling(),
            expanded_def=expanded_def,
            record_func=record_func,
            colored=colored,
            reserved=namespace._used_names,
            describe=_describe,
            builtins=[(name, entry.obj) for name, entry in _custom_builtins.items()],
            additional=[(name, value) for name, value in self.additional_globals()],
            notes=notes,
        )
        if (
            self._body_transformer is None
            and not self._is_overridden("gen_fn_def")
            and not self._is_overridden("generate_output")
        ):
            src, globals_, lines, start = _core.generate_code(request)
            return PythonCode(src, globals_, lines, start)
        return self._gen_with_hooks(request)

    def _gen_with_hooks(self, request: _Request) -> PythonCode:
        own_output = self._is_overridden("generate_output")
        draft = _core.draft_code(request, own_output)
        body = draft.pieces
        with _names_shown(draft.renamed):
            for piece, node in draft.outputs:
                body[piece] = self._call_method_with_signature_check(
                    self.generate_output,
                    node.args[0],
                    descs=node.meta.get("desc") if request.expanded_def else None,
                    repr_fn=_ArgumentText(draft, request.colored),
                )
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        prologue = self._call_method_with_signature_check(
            self.gen_fn_def,
            draft.free_vars,
            draft.return_annotation,
            expanded_def=request.expanded_def,
        )
        src, lines, start = _core.assemble_code(draft.wraps, prologue, "".join(body))
        return PythonCode(src, draft.globals, lines, start)


@dataclass
class _Request:
    """Parameters of the code generation in Rust."""

    graph: _core.Graph
    root_module: str
    function_name: str
    calling: tuple[Any, ...] | None
    expanded_def: bool
    record_func: bool
    colored: bool
    reserved: list[str]
    describe: Any
    builtins: list[tuple[str, object]]
    additional: list[tuple[str, object]]
    notes: list[Any] | None


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") == "1"


class _ArgumentText:
    """Writes arguments of nodes as expressions, for an override of ``generate_output``."""

    def __init__(self, draft: _core.CodeDraft, colored: bool) -> None:
        self._texts = {id(value): text for value, text in draft.texts}
        self._colors = ("\033[34m", "\033[0m") if colored else ("", "")

    def __call__(self, value: Any) -> str:
        if isinstance(value, Node):
            return repr(value)
        if (text := self._texts.get(id(value))) is not None:
            return text
        if isinstance(value, tuple):
            cls = self._texts.get(id(type(value)))
            comma = "," if len(value) == 1 else ""
            items = f"({self._items(value)}{comma})"
            return items if cls is None else f"{cls}{items}"
        if isinstance(value, list):
            return f"[{self._items(value)}]"
        if isinstance(value, slice):
            return f"slice({self._items((value.start, value.stop, value.step))})"
        if isinstance(value, dict):
            entries = (f"{self(key)}: {self(item)}" for key, item in value.items())
            return "{" + ", ".join(entries) + "}"
        if isinstance(value, complex) and not _reads_back(value):
            return f"complex({self(value.real)}, {self(value.imag)})"
        return f"{self._colors[0]}{value!r}{self._colors[1]}"

    def _items(self, items: Sequence[Any]) -> str:
        return ", ".join(map(self, items))


def _reads_back(value: complex) -> bool:
    """Whether ``repr`` of a complex number is an expression of the same number."""
    return bool(value.real and value.imag) and cmath.isfinite(value)


@contextmanager
def _names_shown(renamed: list[tuple[Node, str]]) -> Iterator[None]:
    """Within the context, nodes show the names that they have in the code."""
    before = [node._repr_fn for node, _ in renamed]
    for node, name in renamed:
        node._repr_fn = lambda _node, name=name: name
    try:
        yield
    finally:
        for (node, _), repr_fn in zip(renamed, before, strict=True):
            node._repr_fn = repr_fn


class _BoxedCodeGen(CodeGen):
    """Generates code that takes all inputs in one list and empties it, so that the caller does not keep them
    alive.
    """

    def gen_fn_def(
        self,
        free_vars: list[str],
        maybe_return_annotation: str,
        *,
        expanded_def: bool = False,
    ) -> str:
        """The lines that begin the function and take the inputs from the list."""
        lines = [f"def {self._func_name}(self, args_list){maybe_return_annotation}:"]
        inputs = [_variable(var) for var in free_vars if var != "self"]
        if inputs:
            lines.append("args_iter = iter(args_list)")
            lines.extend(f"{name} = next(args_iter)" for name in inputs)
            lines.append("args_list.clear()")
        return "\n    ".join(lines)

    def _calling(self) -> tuple[Any, ...] | None:
        return ()


def _variable(declaration: str) -> str:
    """The name in ``name : type = default``."""
    return declaration.split(":")[0].split("=")[0].split("#")[0].strip()


class _PyTreeCodeGen(CodeGen):
    """Generates code with the parameters of the traced function, which are flattened to inputs."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info: _PyTreeInfo = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """The leaves of the arguments."""
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, out: Any) -> Any:
        """The outputs in the structure of the traced function's result."""
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return out
        leaves = out if isinstance(out, list | tuple) else [out]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def _keywords(self) -> tuple[int, list[str]] | None:
        """Number of positional parameters, and the names of the others, if there are any."""
        spec = self.pytree_info.in_spec
        if spec.type is not tuple or spec.num_children != 2:
            return None
        args, kwargs = spec.child(0), spec.child(1)
        if args.type is not tuple or kwargs.type is not dict:
            return None
        return args.num_children, [str(key) for key in kwargs.context]

    def _format_annotations(self, free_vars: list[str], expanded_def: bool) -> str:
        annotated = [var for var in free_vars if ":" in var]
        if not annotated:
            return ""
        if expanded_def:
            return "\n    " + "\n    ".join(annotated)
        return "\n    " + "; ".join(annotated) + ";\n"

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """The lines that assign the inputs."""
        arguments = f"[{', '.join(fn_args)}]"
        if (keywords := self._keywords()) is not None:
            count, keys = keywords
            names = self.pytree_info.orig_args
            entries = [f"{k!r}:{v}" for k, v in zip(keys, names[count:], strict=False)]
            arguments = f"([{', '.join(names[:count])}], {{{', '.join(entries)}}})"
        inputs = ", ".join(var.split(":")[0].split("#")[0] for var in free_vars)
        return (
            self._format_annotations(free_vars, expanded_def)
            + f"\n    {inputs}, = fx_pytree.tree_flatten_spec({arguments}, self._in_spec)"
        )

    def gen_fn_def(
        self,
        free_vars: list[str],
        maybe_return_annotation: str,
        *,
        expanded_def: bool = False,
    ) -> str:
        """The lines that begin the function and flatten its arguments."""
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation, expanded_def=expanded_def)
        fn_args = self.pytree_info.orig_args
        if fn_args and fn_args[0] == "self":
            free_vars.insert(0, "self")
        definition = super().gen_fn_def(
            fn_args[:], maybe_return_annotation, expanded_def=expanded_def
        )
        if free_vars:
            definition += self.gen_var_bindings(fn_args, free_vars, expanded_def)
        return definition

    def generate_output(
        self,
        output_args: Argument,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The statement that returns the outputs in the structure of the result."""
        if not self.pytree_info or not self.pytree_info.out_spec:
            return super().generate_output(output_args, descs=descs, repr_fn=repr_fn)
        prefix = "return pytree.tree_unflatten("
        if descs is not None and isinstance(output_args, list | tuple):
            text = self._format_multiline_container(output_args, descs, prefix, repr_fn)
        else:
            text = prefix + (repr_fn or repr)(output_args)
        return f"{text}, self._out_spec)"

    def _is_overridden(self, hook: str) -> bool:
        return super()._is_overridden(hook) or (
            hook == "gen_fn_def" and super()._is_overridden("gen_var_bindings")
        )

    def _calling(self) -> tuple[Any, ...] | None:
        if self.pytree_info is None:
            return None
        has_result = bool(self.pytree_info.out_spec)
        return self.pytree_info.orig_args, self._keywords(), has_result


class _ExportCodeGen(_PyTreeCodeGen):
    """Generates code for exported programs, with graphs that rearrange inputs and outputs."""

    def __init__(
        self,
        pytree_info: _PyTreeInfo,
        in_shuffle_graph: GraphModule,
        out_shuffle_graph: GraphModule,
        tree_leaf_names: list[str],
        root: torch.nn.Module | None,
    ) -> None:
        super().__init__(pytree_info)
        self.in_shuffle_graph = in_shuffle_graph
        self.out_shuffle_graph = out_shuffle_graph
        self.tree_leaf_names = tree_leaf_names
        self.root = root

    def process_inputs(self, *inputs: Any) -> Any:
        """The leaves of the arguments, rearranged."""
        leaves = super().process_inputs(*inputs)
        if self.root is not None:
            leaves = (self.root, *leaves)
        self.flat_args = leaves
        return self.in_shuffle_graph(*leaves)

    def process_outputs(self, out: Any) -> Any:
        """The outputs, rearranged, in the structure of the result."""
        leaves = self.out_shuffle_graph(*self.flat_args, *out)
        del self.flat_args
        return super().process_outputs(leaves)

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """The lines that flatten and rearrange the arguments."""
        names = fn_args if self.root is None else ["self", *fn_args]
        leaves = ", ".join(self.tree_leaf_names)
        inputs = ", ".join(var.split(":")[0].split("#")[0] for var in free_vars)
        return (
            f"\n    {leaves}, = pytree.tree_leaves(({', '.join(names)},))"
            f"\n    {inputs}, = self._in_shuffle_graph({leaves})"
        )

    def generate_output(self, output_args: Argument, *args: Any, **kwargs: Any) -> str:
        """The statement that returns the rearranged outputs."""
        if not isinstance(output_args, list | tuple):
            raise TypeError(f"Expected list or tuple for output_args, got {type(output_args)}")
        values = ", ".join([*self.tree_leaf_names, *map(str, output_args)])
        shuffled = f"self._out_shuffle_graph({values})"
        return f"return pytree.tree_unflatten({shuffled}, self._out_spec)"


#: Hooks that are implemented in Rust, by calling convention.
_NATIVE_HOOKS = frozenset(
    {
        CodeGen.gen_fn_def,
        CodeGen.generate_output,
        _BoxedCodeGen.gen_fn_def,
        _PyTreeCodeGen.gen_fn_def,
        _PyTreeCodeGen.gen_var_bindings,
        _PyTreeCodeGen.generate_output,
    }
)


@contextmanager
def _override_sym_repr(override: Callable[[Any], str]) -> Iterator[None]:
    """Within the context, symbolic sizes are shown by ``override``."""
    before = CodeGen._sym_repr
    CodeGen._sym_repr = override
    try:
        yield
    finally:
        CodeGen._sym_repr = before
