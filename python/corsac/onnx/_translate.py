"""Translates nodes of a graph to ONNX nodes."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from corsac import _core
from corsac.analysis import Dim, TensorSpec
from corsac.analysis._meta_run import MetaRun
from corsac.fx import Graph, Node
from corsac.onnx import translations as _translations  # noqa: F401  (fills the table)
from corsac.onnx._builder import Builder, Missing, Tensor
from corsac.onnx._decompose import decompose
from corsac.onnx._table import NoTranslation, operator_of, translate_call, translate_module
from corsac.onnx._types import TensorType, Unsupported, name_of


class Unknown:
    """The type of a value that analysis could not determine."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()

Types = Mapping[Node, Any]


def types_of(graph: Graph, inputs: tuple[Any, ...]) -> dict[Node, Any]:
    """The type of each node's value: tensors as :class:`TensorType`, :data:`UNKNOWN` if undetermined."""
    run = MetaRun(graph.owning_module)
    found = _core.propagate_types(graph, inputs, run, fill=False)
    unknown = {name for name, _, _ in found.unknown()}
    types: dict[Node, Any] = {}
    for node, value in zip(graph.nodes, found.values(), strict=True):
        # Analysis returns None for numbers that depend on elements, such as those of item().
        hidden = value is None and node.op.startswith("call_") and not _is_item(node, types)
        types[node] = UNKNOWN if hidden or node.name in unknown else _without_layout(value)
    return types


def _is_item(node: Node, types: Types) -> bool:
    """Whether ``node`` takes an item from a container of known type."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, Node) and isinstance(types[source], (tuple, list, dict))


def _without_layout(value: Any) -> Any:
    if isinstance(value, TensorMetadata):
        return TensorType(value.dtype, tuple(value.shape), bool(value.is_quantized))
    if type(value) in (tuple, list):
        return type(value)(_without_layout(item) for item in value)
    if isinstance(value, dict):
        return {key: _without_layout(item) for key, item in value.items()}
    return value


def spec_of(value: Any) -> Any:
    """The argument for :func:`corsac.analysis.propagate` for a value of this type."""
    if isinstance(value, TensorType):
        return TensorSpec(tuple(value.shape), value.dtype)
    if isinstance(value, (tuple, list)):
        return type(value)(spec_of(item) for item in value)
    if isinstance(value, dict):
        return {key: spec_of(item) for key, item in value.items()}
    return value


def holds_tensors(value: Any) -> bool:
    """Whether a value of this type contains a tensor, or may."""
    if isinstance(value, (TensorType, Unknown)):
        return True
    if isinstance(value, (tuple, list)):
        return any(holds_tensors(item) for item in value)
    if isinstance(value, dict):
        return any(holds_tensors(item) for item in value.values())
    return False


def holds_sizes(value: Any) -> bool:
    """Whether a value of this type contains a size that depends on symbols."""
    if isinstance(value, (tuple, list)):
        return any(holds_sizes(item) for item in value)
    return isinstance(value, Dim)


def is_settled(node: Node, types: Types) -> bool:
    """Whether ``node`` is an assertion that analysis has proved."""
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    if node.users or not node.args:
        return False
    if name in ("_assert", "_check"):
        condition = node.args[0]
        return (types[condition] if isinstance(condition, Node) else condition) is True
    if name == "_assert_tensor_metadata.default":
        found = types[node.args[0]] if isinstance(node.args[0], Node) else None
        sizes = [*node.args[1:3], node.kwargs.get("size"), node.kwargs.get("stride")]
        wanted = node.args[3] if len(node.args) > 3 else node.kwargs.get("dtype")
        plain = all(size is None for size in sizes) and isinstance(found, TensorType)
        return plain and wanted in (None, found.dtype)
    return False


class Translator:
    """Translates nodes one by one.

    Args:
        builder: builder of the ONNX graph.
        types: the types of the nodes' values.
        root: the module whose attributes the nodes use.
    """

    def __init__(self, builder: Builder, types: Types, root: torch.nn.Module | None) -> None:
        self.builder, self.types, self.root = builder, types, root
        self.values: dict[Node, Any] = {}

    def give(self, node: Node, name: str | None = None) -> None:
        """Make the value of ``node`` an input of the ONNX graph."""
        g, value = self.builder, self.types[node]
        name = name or node.name
        if isinstance(value, TensorType):
            _check_tensor(value)
            self.values[node] = g.input(name, value.dtype, value.shape)
        elif isinstance(value, Dim):
            g.size_input(name, value)
            self.values[node] = value
        elif isinstance(value, Unknown):
            raise Unsupported(f"the type of {node.name} is not known")
        elif holds_tensors(value):
            raise Unsupported(f"{node.name} is a container of tensors")
        else:
            self.values[node] = value

    def translate(self, node: Node) -> Any:
        """Translate ``node`` into the ONNX graph, and return its value."""
        value = self._translate(node)
        self.values[node] = value
        return value

    def _translate(self, node: Node) -> Any:
        type_ = self.types[node]
        if isinstance(type_, Unknown):
            raise Unsupported("the type of its value is not known")
        if not holds_tensors(type_):
            if holds_sizes(type_):
                self._check_sizes(type_)
            return type_
        g = self.builder
        g.out, g.scope = type_, node.name
        if node.op == "get_attr":
            return self._attribute(node)
        args, kwargs = torch.utils._pytree.tree_map_only(
            Node, self._value, (tuple(node.args), dict(node.kwargs))
        )
        mark = len(g.operations)
        try:
            if node.op == "call_module":
                module = self._module(node)
                result = translate_module(g, module, str(node.target), args, kwargs)
            elif node.op in ("call_function", "call_method"):
                result = translate_call(g, node, args, kwargs)
            else:
                raise Unsupported(f"{node.op} computes nothing")
        except NoTranslation as error:
            del g.operations[mark:]
            result = decompose(self, node, args, kwargs, str(error))
        except Unsupported:
            raise
        except Exception as error:  # arguments that torch accepts and the translation does not
            raise Unsupported(f"no translation of these arguments ({error})") from error
        return self._checked(node, result, type_)

    def _check_sizes(self, value: Any) -> None:
        """Check that sizes can be computed from the inputs."""
        for size in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(size, Dim):
                self.builder.size(size)

    def _value(self, node: Node) -> Any:
        value = self.values[node]
        if isinstance(value, Missing):
            raise Unsupported(value.reason)
        return value

    def _module(self, node: Node) -> torch.nn.Module:
        if self.root is None:
            raise Unsupported("the graph has no module")
        return self.root.get_submodule(str(node.target))

    def _attribute(self, node: Node) -> Tensor:
        if self.root is None:
            raise Unsupported("the graph has no module")
        owner, _, name = str(node.target).rpartition(".")
        tensor = getattr(self.root.get_submodule(owner), name)
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported(f"{node.target} is no tensor")
        return self.builder.weight(tensor, str(node.target))

    def _checked(self, node: Node, result: Any, type_: Any) -> Any:
        """``result``, checked to have the type that analysis found."""
        if isinstance(type_, TensorType):
            if not isinstance(result, Tensor):
                raise Unsupported("its translation gives no tensor")
            if result.dtype != type_.dtype and _core.operator_of(node.op, node.target)[1]:
                # A write keeps the dtype of the tensor written to.
                result = self.builder.cast(result, type_.dtype)
            if result.dtype != type_.dtype or result.rank != len(type_.shape):
                raise Unsupported(
                    f"its translation gives {name_of(result.dtype)} of rank {result.rank}, "
                    f"expected {name_of(type_.dtype)} of rank {len(type_.shape)}"
                )
            return Tensor(result.name, result.dtype, tuple(type_.shape), result.constant)
        if isinstance(type_, (tuple, list)):
            if not isinstance(result, (tuple, list)) or len(result) < len(type_):
                raise Unsupported("its translation gives another number of tensors")
            pairs = zip(result, type_, strict=False)
            return type(type_)(
                item if isinstance(item, Missing) else self._checked(node, item, own)
                for item, own in pairs
            )
        return result


def _check_tensor(value: TensorType) -> None:
    if value.is_quantized:
        raise Unsupported("a quantised tensor")


def explain(
    node: Node, types: Types, root: torch.nn.Module | None, opset: int
) -> tuple[Builder | None, str | None]:
    """Translate ``node`` by itself; return the builder, or the reason why it has no translation."""
    builder = Builder(opset)
    translator = Translator(builder, types, root)
    try:
        for source in node.all_input_nodes:
            if source.op == "get_attr":
                translator.translate(source)
            elif holds_tensors(types[source]) and isinstance(types[source], (tuple, list)):
                translator.values[source] = _apart(builder, source, types[source])
            else:
                translator.give(source)
        result = translator.translate(node)
        _check_uses(node, result)
    except Unsupported as error:
        return None, str(error)
    return builder, None


def _apart(g: Builder, node: Node, type_: Any) -> Any:
    """Inputs for the items of a container that ``node`` makes."""
    items = []
    for at, item in enumerate(type_):
        if isinstance(item, TensorType):
            items.append(g.input(f"{node.name}_{at}", item.dtype, item.shape))
        elif isinstance(item, (tuple, list)) and holds_tensors(item):
            raise Unsupported("containers in containers")
        else:
            items.append(item)
    return type(type_)(items) if type(type_) in (tuple, list) else tuple(items)


def _check_uses(node: Node, result: Any) -> None:
    """Check that results without a translation have no users."""
    if not isinstance(result, (tuple, list)):
        return
    missing = {at: item for at, item in enumerate(result) if isinstance(item, Missing)}
    for user in node.users if missing else ():
        index = user.args[1] if operator_of(user) == "getitem" else None
        if not isinstance(index, int) or index % len(result) in missing:
            raise Unsupported(next(iter(missing.values())).reason)
