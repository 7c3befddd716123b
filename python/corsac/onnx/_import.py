"""Reads ONNX models as graphs."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.onnx._emitter import Emitter, Weights, identifier
from corsac.onnx._export import require_onnx
from corsac.onnx._model_reader import (
    FEW_BITS,
    OnnxImportError,
    dtype_of,
    read_model,
    tensor_of,
)
from corsac.onnx._registry import (
    attributes_of,
    nearest,
    reader_of,
    reader_on_sizes,
    signature_of,
)
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Sequence, Value

if TYPE_CHECKING:
    import onnx

# Operators of a model, those of its functions each time they are called.
_MOST_OPERATORS = 200_000
_DEEPEST = 64
# Tensors of a sequence that is an input.
_LONGEST = 4096
# Sample sizes of dimensions that are not fixed. The first set whose sizes the model accepts is used.
_SAMPLES = (
    ((7, 11, 13, 17, 19, 23, 29, 31), (37, 41, 43, 47, 53, 59, 61, 67)),
    ((64, 96, 160, 192, 320), (128, 224, 288, 352, 416)),
    ((2, 3, 4, 5, 6), (3, 4, 5, 6, 7)),
    ((224, 352, 544, 608), (256, 288, 384, 448)),
)
_DEFAULT_DOMAINS = ("", "ai.onnx")


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    sizes: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> GraphModule:
    """Read an ONNX model as a graph of PyTorch's functions.

    The parameters and buffers of the result have the names of the model's initialisers, and its placeholders the names
    of the inputs (as identifiers). It returns a tensor if the model has one output, else a tuple of all. Quantised models
    become graphs with ``torch.ops.corsac`` operators on weights of integers. Weights beside the model are read
    from its folder only.

    Args:
        model: a path, the bytes of a model, or a message.
        sizes: numbers for symbols in the shapes of the inputs, such as ``{"batch": 1}``; others are free.
        lengths: for each input that is a sequence of tensors, its length. The graph takes it as a list.

    Raises:
        OnnxImportError: (a ``ValueError``) the model is damaged, or an operator cannot be read; the message names it.
        OSError: the file cannot be read.
    """
    from corsac.onnx import readers  # registers them
    from corsac.quantization import _operators

    require_onnx()
    assert readers and _operators
    proto, folder = read_model(model)
    whole = _Model(proto, folder, dict(sizes or {}), dict(lengths or {}))
    errors: list[OnnxImportError] = []
    free = whole.has_free_sizes()
    # Sizes may depend on elements where those of the inputs are fixed.
    for samples in _SAMPLES if free else (_SAMPLES[0][:1], _SAMPLES[0]):
        try:
            return whole.graph_module(samples)
        except TooLarge:
            raise
        except OnnxImportError as error:
            errors.append(error)
    raise errors[0 if free else -1]


class TooLarge(OnnxImportError):
    """Other sample sizes do not help."""


class _Model:
    """A model, with what is needed to read its graph."""

    def __init__(
        self, proto: Any, folder: Path | None, sizes: dict[str, int], lengths: dict[str, int]
    ) -> None:
        self.proto, self.folder, self.sizes, self.lengths = proto, folder, sizes, lengths
        self.versions = {_domain(own.domain): own.version for own in proto.opset_import}
        self.functions = {
            (_domain(own.domain), own.name, getattr(own, "overload", "")): own
            for own in proto.functions
        }
        # By the identity of a message, which is kept so that no other one gets it.
        self._tensors: dict[int, tuple[Any, torch.Tensor]] = {}
        self._types: dict[str, Any] | None = None
        unknown = set(sizes) - {dim.dim_param for dim in self._dims()}
        if unknown:
            raise OnnxImportError(f"sizes: no input has a dimension {', '.join(sorted(unknown))}")
        sequences = {own.name for own in self.inputs() if own.type.HasField("sequence_type")}
        unknown = set(lengths) - sequences
        if unknown:
            raise OnnxImportError(f"lengths: {', '.join(sorted(unknown))} is no sequence")

    def inputs(self) -> list[Any]:
        """Inputs of the graph that are no initialisers."""
        graph = self.proto.graph
        stored = {own.name for own in graph.initializer}
        return [own for own in graph.input if own.name not in stored]

    def has_free_sizes(self) -> bool:
        return any(
            not dim.HasField("dim_value") and dim.dim_param not in self.sizes
            for dim in self._dims()
        )

    def _dims(self) -> Iterator[Any]:
        """Dimensions of the inputs, and of the elements of sequences."""
        for own in self.inputs():
            yield from own.type.tensor_type.shape.dim
            yield from own.type.sequence_type.elem_type.tensor_type.shape.dim

    def tensor(self, proto: Any) -> torch.Tensor:
        """The tensor in a message; the same one each time."""
        if id(proto) not in self._tensors:
            self._tensors[id(proto)] = proto, tensor_of(proto, self.folder)
        return self._tensors[id(proto)][1]

    def graph_module(self, samples: tuple[tuple[int, ...], ...]) -> GraphModule:
        graph = self.proto.graph
        reading = Reading(self, samples)
        reading.open(graph)
        for own in self.inputs():
            reading.give(own)
        reading.translate_all(graph.node)
        reading.close([own.name for own in graph.output])
        emitter = reading.emitter
        name = identifier(graph.name or "OnnxModel")
        result = GraphModule(emitter.weights.root, emitter.graph, name)
        result.graph.eliminate_dead_code()
        _drop_unused(result)
        result.recompile()
        return result.eval()

    def declared(self, name: str) -> Any:
        """The type of a value that the model, or inference over it, gives."""
        if self._types is None:
            self._types = _declared_types(self.proto)
        return self._types.get(name)


def _domain(name: str) -> str:
    return "" if name in _DEFAULT_DOMAINS else name


def _declared_types(proto: Any) -> dict[str, Any]:
    import onnx

    # Without types for a model that is too large, or in which inference finds faults.
    with contextlib.suppress(Exception):
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    graph = proto.graph
    return {own.name: own.type for own in (*graph.value_info, *graph.output)}


def _drop_unused(module: GraphModule) -> None:
    """Remove parameters and buffers without users."""
    used = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    called = {str(node.target) for node in module.graph.find_nodes(op="call_module")}
    for owner_name, owner in list(module.named_modules()):
        if any(owner_name == own or owner_name.startswith(f"{own}.") for own in called):
            continue
        for names in (owner._parameters, owner._buffers):
            for name in list(names):
                path = f"{owner_name}.{name}" if owner_name else name
                if path not in used:
                    del names[name]


class Reading:
    """A graph that is read.

    Attributes:
        emitter: makes the nodes.
        values: values by their names in ONNX.
        outer: values of the graph around it.
    """

    def __init__(
        self, model: _Model, samples: tuple[tuple[int, ...], ...], weights: Weights | None = None
    ) -> None:
        self.model, self.samples = model, samples
        self.emitter = Emitter(model.versions.get("", 1), len(samples), weights)
        self.emitter.declared = self._declared
        self.emitter.reading = self
        self.values: dict[str, Any] = {}
        self.symbols: dict[Hashable, int] = {}
        # Free sizes by their names as identifiers.
        self.names: dict[str, Hashable] = {}
        self.versions = model.versions
        self.depth = 0
        self.translated = 0

    # -- inputs and results ------------------------------------------------------------------------

    def open(self, graph: Any) -> None:
        """Read the initialisers of a graph."""
        if graph.sparse_initializer:
            raise OnnxImportError("sparse initialisers cannot be read")
        for proto in graph.initializer:
            self.values[proto.name] = _Stored(self, proto)

    def give(self, info: Any) -> None:
        """Make a placeholder for an input of the graph."""
        try:
            if info.type.HasField("sequence_type"):
                self.values[info.name] = self._sequence(info)
                return
            samples = self.sampled(info.type)
        except Unsupported as error:
            raise OnnxImportError(f"input {info.name!r}: {error}") from error
        name = identifier(info.name)
        node = self.emitter.graph.placeholder(name)
        value = Value(info.name, samples, node)
        node.meta["declared_input"] = {
            "dtype": value.dtype,
            "shape": value.shape,
            "sizes": self._declared_sizes(name, info.type.tensor_type, value),
        }
        if info.type.tensor_type.elem_type in FEW_BITS:
            value.facts["bits"] = FEW_BITS[info.type.tensor_type.elem_type]
        self.values[info.name] = value

    def _declared_sizes(self, name: str, type_: Any, value: Value) -> tuple[int | str, ...]:
        """The sizes of an input, with names for those that are free."""
        sizes: list[int | str] = []
        for dim, (size, own) in enumerate(zip(value.shape, type_.shape.dim, strict=True)):
            key = own.dim_param or (name, dim)
            written = identifier(own.dim_param) if own.dim_param else f"{name}_{dim}"
            while size is None and self.names.setdefault(written, key) != key:
                written += "_"
            sizes.append(written if size is None else size)
        return tuple(sizes)

    def _sequence(self, info: Any) -> Sequence:
        """Make a placeholder for a list of tensors."""
        length = self.model.lengths.get(info.name)
        if length is None:
            raise Unsupported("it is a sequence: give its length in lengths")
        if not 0 <= length <= _LONGEST:
            raise Unsupported(f"a sequence of length {length}, expected 0 to {_LONGEST}")
        graph = self.emitter.graph
        node = graph.placeholder(identifier(info.name))
        type_ = info.type.sequence_type.elem_type
        # Tensors of a sequence may differ in sizes that have one name in its type.
        return Sequence(
            Value(
                f"{info.name}_{at}",
                self.sampled(type_, f"{at}: "),
                graph.call_function(operator.getitem, (node, at)),
            )
            for at in range(length)
        )

    def sampled(self, type_: Any, scope: str = "") -> tuple[torch.Tensor, ...]:
        """Tensors of a type, one for each set of sample sizes; ``scope`` is put before the names of free sizes."""
        kind = type_.WhichOneof("value")
        if kind != "tensor_type":
            raise Unsupported(f"it is no tensor but a {str(kind).removesuffix('_type')}")
        tensor = type_.tensor_type
        dtype = dtype_of(tensor.elem_type)
        if not tensor.HasField("shape"):
            raise Unsupported("its rank is not known")
        shapes: list[list[int]] = [[] for _ in self.samples]
        for dim in tensor.shape.dim:
            for at, size in enumerate(self._sample_sizes(dim, scope)):
                shapes[at].append(size)
        return tuple(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)

    def _sample_sizes(self, dim: Any, scope: str) -> list[int]:
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise Unsupported(f"a size of {dim.dim_value}")
            return [dim.dim_value] * len(self.samples)
        if dim.dim_param in self.model.sizes:
            return [self.model.sizes[dim.dim_param]] * len(self.samples)
        # Names that are no UTF-8 are bytes.
        return self._free_sizes((scope, dim.dim_param or len(self.symbols)))

    def _free_sizes(self, name: Hashable) -> list[int]:
        at = self.symbols.setdefault(name, len(self.symbols))
        if len(self.samples) == 1:
            raise Unsupported("a size that depends on elements")
        return [own[at % len(own)] for own in self.samples]

    def _declared(self, name: str) -> tuple[torch.Tensor, ...] | None:
        type_ = None if self.depth else self.model.declared(name)
        if type_ is None or not type_.tensor_type.HasField("shape"):
            return None
        return self.sampled(type_)

    def fresh(self, dtype: torch.dtype, rank: int) -> tuple[torch.Tensor, ...]:
        """A type of which only the rank is known."""
        shapes: list[list[int]] = [[] for _ in self.samples]
        for _ in range(rank):
            for at, size in enumerate(self._free_sizes(len(self.symbols))):
                shapes[at].append(size)
        return tuple(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)

    def value(self, name: str) -> Any:
        """The value with this name."""
        found = self.values.get(name)
        if found is None:
            raise Unsupported(
                f"there is no value {name!r}: it is neither an input, an initialiser nor the output of a node before it"
            )
        if isinstance(found, _Stored):
            found = self.values[name] = found.value()
        return found

    def close(self, names: list[str]) -> None:
        """Make the named values the result."""
        g = self.emitter
        results = []
        for name in names:
            try:
                value = self.value(name)
            except Unsupported as error:
                raise OnnxImportError(f"output {name!r}: {error}") from error
            if isinstance(value, Sequence):
                results.append([g.argument(own) for own in value])
            else:
                results.append(g.argument(value))
        nodes = [own for own in results if isinstance(own, Node)]
        for name, node in zip(names, results, strict=True):
            if isinstance(node, Node) and node.op.startswith("call_") and nodes.count(node) == 1:
                node._rename(identifier(name))
        g.graph.output(results[0] if len(results) == 1 else tuple(results))

    # -- operators ---------------------------------------------------------------------------------

    def translate_all(self, nodes: Any) -> None:
        """Translate nodes, which are in an order in which they can run."""
        for node in nodes:
            self.translated += 1
            if self.translated > _MOST_OPERATORS:
                raise TooLarge(f"more than {_MOST_OPERATORS} operators")
            try:
                self._translate(node)
            except OnnxImportError:
                raise
            except Unsupported as error:
                raise OnnxImportError(f"{described(node)}: {error}") from error
            except Exception as error:  # what torch raises for operands that do not fit
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                raise OnnxImportError(f"{described(node)}: {reason}") from error

    def _translate(self, node: Any) -> None:
        domain = _domain(node.domain)
        inputs = [self.value(name) if name else None for name in node.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        g = self.emitter
        g.outputs = list(node.output)
        function = self.model.functions.get((domain, node.op_type, getattr(node, "overload", "")))
        if function is not None:
            return self._inline(function, node, inputs, dict(self.model.versions))
        if domain not in self.versions and reader_of(domain, node.op_type, 1) is None:
            raise Unsupported(f"the model has no version of the operator set {domain or 'ai.onnx'}")
        version = self.versions.get(domain, 1)
        on_sizes = reader_on_sizes(domain, node.op_type)
        attributes = {own.name: self._attribute(own) for own in node.attribute}
        if on_sizes is not None and _are_sizes(inputs):
            result = on_sizes(g, *[own and own.elements for own in inputs], **attributes)
            if result is not None:
                # Sizes are never truth values: those are the condition of Where.
                dtype = next(own.dtype for own in inputs if own and own.dtype != torch.bool)
                return self._define(node, _sizes(g, result, dtype))
        reader = reader_of(domain, node.op_type, version)
        if reader is None:
            return self._expand(node, inputs, version)
        known = attributes_of(reader)
        for name in attributes:
            if known is not None and name not in known:
                accepted = f"it has {', '.join(sorted(known))}" if known else "it has none"
                raise Unsupported(f"there is no attribute {name!r}: {accepted}")
        try:
            signature_of(reader).bind(g, *inputs, **attributes)
        except TypeError as error:
            raise Unsupported(f"its inputs or attributes do not fit ({error})") from error
        return self._define(node, reader(g, *inputs, **attributes))

    def _define(self, node: Any, result: Any) -> None:
        results = result if type(result) is tuple else (result,)
        for at, name in enumerate(node.output):
            if not name:
                continue
            if at >= len(results) or results[at] is None:
                raise Unsupported(f"its output {name!r} is not computed")
            self.values[name] = results[at]

    def _attribute(self, proto: Any) -> Any:
        import onnx

        if proto.ref_attr_name:
            raise Unsupported(f"the attribute {proto.name!r} refers to {proto.ref_attr_name!r}")
        kinds = onnx.AttributeProto
        if proto.type == kinds.TENSOR:
            return proto.t
        if proto.type == kinds.GRAPH:
            return proto.g
        if proto.type == kinds.STRING:
            return proto.s.decode("utf-8", "replace")
        if proto.type == kinds.STRINGS:
            return [own.decode("utf-8", "replace") for own in proto.strings]
        if proto.type in (kinds.INT, kinds.FLOAT):
            return proto.i if proto.type == kinds.INT else proto.f
        if proto.type in (kinds.INTS, kinds.FLOATS):
            return list(proto.ints if proto.type == kinds.INTS else proto.floats)
        return proto

    # -- functions ---------------------------------------------------------------------------------

    def _expand(self, node: Any, inputs: list[Any], version: int) -> None:
        """Translate an operator by the function that ONNX defines it as."""
        import onnx

        domain = _domain(node.domain)
        name = f"{domain or 'ai.onnx'} {version}"
        unknown = f"the operator {node.op_type} of {name} is not known"
        try:
            schema = onnx.defs.get_schema(node.op_type, version, domain)
        except onnx.defs.SchemaError:
            similar = nearest(domain, node.op_type)
            raise Unsupported(unknown + (f"; did you mean {similar}?" if similar else "")) from None
        body = _body_of(schema, node, inputs, version)
        if body is None:
            raise Unsupported(f"the operator {node.op_type} of {name} has no translation")
        versions = {_domain(own.domain): own.version for own in body.opset_import}
        attributes = {own.name for own in node.attribute}
        defaults = [
            own.default_value
            for key, own in schema.attributes.items()
            if key not in attributes and own.default_value.name
        ]
        self._inline(body, node, inputs, self.versions | versions, defaults)

    def _inline(
        self,
        function: Any,
        node: Any,
        inputs: list[Any],
        versions: dict[str, int],
        defaults: Any = (),
    ) -> None:
        """Translate the body of a function in place of a call."""
        if self.depth >= _DEEPEST:
            raise Unsupported(f"functions that call each other {_DEEPEST} deep")
        given = {own.name: own for own in (*function.attribute_proto, *defaults, *node.attribute)}
        own_versions = {_domain(own.domain): own.version for own in function.opset_import}
        outer = self.values, self.versions, self.emitter.version
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        self.values = {
            name: value
            for name, value in zip(function.input, padded, strict=False)
            if value is not None
        }
        absent = {name for name in function.input if name not in self.values}
        self.versions = versions | own_versions
        self.emitter.version = self.versions.get("", 1)
        self.depth += 1
        try:
            self.translate_all(_resolved(own, given, absent) for own in function.node)
            results = [self.values.get(name) and self.value(name) for name in function.output]
        finally:
            self.values, self.versions, self.emitter.version = outer
            self.depth -= 1
        self._define(node, tuple(results))

    # -- graphs in attributes ----------------------------------------------------------------------

    def inline_graph(self, graph: Any, inputs: list[Any] = ()) -> tuple[Any, ...]:
        """Translate a graph of an attribute in place; return its results."""
        outer = dict(self.values)
        try:
            self.open(graph)
            for info, value in zip(graph.input, inputs, strict=True):
                self.values[info.name] = value
            self.translate_all(graph.node)
            return tuple(self.value(own.name) for own in graph.output)
        finally:
            self.values = outer


class _Stored:
    """An initialiser that is not read yet."""

    def __init__(self, reading: Reading, proto: Any) -> None:
        self.reading, self.proto = reading, proto

    def value(self) -> Value:
        proto = self.proto
        try:
            tensor = self.reading.model.tensor(proto)
        except Unsupported as error:
            raise Unsupported(f"the initialiser {proto.name!r} has {error}") from error
        made = self.reading.emitter.constant(tensor, proto.name)
        if proto.data_type in FEW_BITS:
            made.facts["bits"] = FEW_BITS[proto.data_type]
        return made


def _are_sizes(inputs: list[Any]) -> bool:
    tensors = [own for own in inputs if own is not None]
    if not tensors or not all(isinstance(own, Value) for own in tensors):
        return False
    return any(own.is_dynamic for own in tensors) and all(
        own.elements is not None for own in tensors
    )


def _sizes(g: Emitter, result: Any, dtype: torch.dtype) -> Any:
    if isinstance(result, tuple):
        return tuple(_sizes(g, own, dtype) for own in result)
    return result if isinstance(result, Value) else g.sizes(result, dtype)


def _resolved(node: Any, given: dict[str, Any], absent: set[str]) -> Any:
    """A node of a function with the attributes of the call."""
    referring = [own for own in node.attribute if own.ref_attr_name or own.g.node or own.graphs]
    if not referring and not absent.intersection(node.input):
        return node
    import onnx

    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = ["" if name in absent else name for name in node.input]
    del made.attribute[:]
    for own in node.attribute:
        if own.ref_attr_name:
            if own.ref_attr_name in given:
                copied = made.attribute.add()
                copied.CopyFrom(given[own.ref_attr_name])
                copied.name = own.name
            continue
        copied = made.attribute.add()
        copied.CopyFrom(own)
        if own.g.node:
            nodes = [_resolved(inner, given, absent) for inner in own.g.node]
            del copied.g.node[:]
            copied.g.node.extend(nodes)
    return made


def _body_of(schema: Any, node: Any, inputs: list[Any], version: int) -> Any:
    """The function that defines an operator, if there is one."""
    import onnx

    if schema.has_function:
        fitting = [own for own in schema.function_opset_versions if own <= version]
        if not fitting:
            return schema.function_body
        return _function(schema.get_function_with_opset_version(max(fitting)))
    if not schema.has_context_dependent_function:
        return None
    types = []
    numbers = _numbers()
    for value in inputs:
        if isinstance(value, Sequence):
            # ONNX reads the type of a tensor without a check.
            raise Unsupported("a sequence where a tensor is expected")
        if isinstance(value, Value):
            info = onnx.helper.make_tensor_type_proto(numbers[value.dtype], value.shape)
        else:
            info = onnx.TypeProto()
        types.append(info.SerializeToString())
    versions = schema.context_dependent_function_opset_versions
    fitting = [own for own in versions if own <= version] or list(versions)
    data = schema.get_context_dependent_function_with_opset_version(
        max(fitting), node.SerializeToString(), types
    )
    return _function(data) if data else None


def _function(data: Any) -> Any:
    """The message of a function, which some versions of onnx return as bytes."""
    import onnx

    if not isinstance(data, bytes):
        return data
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body


def _numbers() -> dict[torch.dtype, int]:
    from corsac.onnx._model_reader import _DTYPES

    return {dtype: number for number, dtype in _DTYPES.items() if number not in FEW_BITS}


def described(node: Any) -> str:
    """A node of ONNX for messages: its name, or else its first output."""
    name = node.name or next((own for own in node.output if own), "")
    domain = "" if node.domain in _DEFAULT_DOMAINS else f" of {node.domain}"
    return f"node {name!r} ({node.op_type}{domain})"
