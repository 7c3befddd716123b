"""Exports graphs as ONNX models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from corsac._core import __version__
from corsac._models.example_inputs import ExampleInputs, as_tuple
from corsac.analysis import Dim, TensorSpec
from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.onnx._builder import Builder, Missing, Operation, Tensor
from corsac.onnx._quantised_layers import LeafTracer, without_quantised_layers
from corsac.onnx._translate import Translator, Types, is_settled, types_of
from corsac.onnx._types import ELEMENT_TYPES, Unsupported, element_type
from corsac.passes._writes import Writes

if TYPE_CHECKING:
    import onnx

#: Supported versions of the operator set, and the default.
OPSETS = range(18, 22)
DEFAULT_OPSET = 20

# The version of the file format that belongs to the oldest of them; runtimes read older ones.
_IR_VERSION = 9
# Size in bytes above which weights go to a separate file: a protobuf message has at most 2 GiB.
LARGE = 2**31 - 2**24


class ExportError(ValueError):
    """A graph cannot be written as an ONNX model; the message names the node and the reason."""


def require_onnx() -> Any:
    """Import the ``onnx`` package."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("onnx is missing: pip install onnx") from error
    return onnx


def to_onnx(
    model: torch.nn.Module,
    example_inputs: ExampleInputs,
    *,
    dynamic: dict[str | int, dict[int, str]] | None = None,
    opset: int = DEFAULT_OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Convert a model to ONNX.

    Shapes come from :func:`corsac.analysis.propagate`: nothing is executed. Values that are not tensors, such
    as flags, are fixed to those of the example.

    Args:
        model: a graph module, or a module to trace.
        example_inputs: a tensor or a tuple of the model's arguments: tensors (only their types matter),
            :class:`corsac.analysis.TensorSpec` with symbols as sizes, other values.
        dynamic: names of symbols for dimensions of inputs, by the input's name or position:
            ``{"x": {0: "batch"}}``. A symbol stands for any size from 2.
        opset: the version of the operator set.
        input_names: names of the inputs; those of the placeholders by default.
        output_names: names of the outputs, in the order of the result.

    Raises:
        ExportError: a node has no exact translation.
    """
    require_onnx()
    if opset not in OPSETS:
        raise ValueError(f"opset {opset} cannot be written: {OPSETS[0]} to {OPSETS[-1]} can")
    module = without_quantised_layers(_traced(model))
    inputs = with_symbols(module, as_tuple(example_inputs), dynamic or {})
    written = Written.of_module(module, inputs, opset, input_names=input_names)
    return written.proto(output_names)


def _traced(model: torch.nn.Module) -> GraphModule:
    if isinstance(model, GraphModule):
        return model
    graph = LeafTracer().trace(model)
    return GraphModule(model, graph, type(model).__name__)


def with_symbols(
    module: GraphModule, inputs: tuple[Any, ...], dynamic: dict[str | int, dict[int, str]]
) -> tuple[Any, ...]:
    """The inputs, with the sizes named in ``dynamic`` replaced by symbols."""
    names = [node.target for node in module.graph.find_nodes(op="placeholder")]
    result = list(inputs)
    for key, symbols in dynamic.items():
        at = names.index(key) if key in names else key
        if not isinstance(at, int) or not 0 <= at < len(result):
            raise ValueError(f"dynamic: there is no input {key!r}; inputs are {', '.join(names)}")
        given = result[at]
        if not isinstance(given, (torch.Tensor, TensorSpec)):
            raise ValueError(f"dynamic: the input {key!r} is no tensor")
        shape = list(given.shape)
        for axis, symbol in symbols.items():
            shape[axis] = symbol
        result[at] = TensorSpec(shape, given.dtype)
    return tuple(result)


class Written:
    """A graph as ONNX nodes.

    Attributes:
        builder: the nodes, weights and constants.
        inputs: for each argument of the graph, in order: the tensor (or, for a size, scalar) that is an input
            of the ONNX graph; None if it is not one.
        result: the result of the graph, with tensors of the ONNX graph and sizes in it.
    """

    def __init__(self, builder: Builder, inputs: list[Tensor | None], result: Any) -> None:
        self.builder, self.inputs, self.result = builder, inputs, result

    @classmethod
    def of_module(
        cls,
        module: GraphModule,
        inputs: tuple[Any, ...],
        opset: int,
        *,
        types: Types | None = None,
        input_names: Sequence[str] | None = None,
        own_inputs: bool = False,
    ) -> Written:
        """Translate all nodes of ``module``'s graph.

        With ``own_inputs``, the caller does not use the inputs afterwards, so that they may be written to.

        Raises:
            ExportError: a node has no exact translation.
        """
        graph = module.graph
        types = types_of(graph, inputs) if types is None else types
        builder = Builder(opset)
        translator = Translator(builder, types, module)
        refused = {} if own_inputs else Writes.of_graph(graph).refused
        given: list[Tensor | None] = []
        names = iter(input_names or ())
        result: Any = None
        for node in graph.nodes:
            try:
                if node.op == "placeholder":
                    given.append(_input(translator, node, next(names, None)))
                elif node.op == "output":
                    result = torch.utils._pytree.tree_map_only(
                        Node, lambda n: translator.values[n], node.args[0]
                    )
                elif is_settled(node, types):
                    continue
                elif node in refused:
                    raise Unsupported(refused[node])
                else:
                    translator.translate(node)
            except Unsupported as error:
                raise ExportError(_where(node, str(error))) from error
        return cls(builder, given, result)

    def outputs(self) -> list[tuple[Tensor, bool]]:
        """Tensors of the result, in order, and whether each represents a size."""
        g, found = self.builder, []
        for leaf in torch.utils._pytree.tree_leaves(self.result):
            if isinstance(leaf, Missing):
                raise ExportError(leaf.reason)
            if isinstance(leaf, Tensor):
                found.append((leaf, False))
            elif isinstance(leaf, Dim):
                found.append((g.scalar(leaf, torch.int64), True))
        return found

    def proto(self, output_names: Sequence[str] | None = None) -> onnx.ModelProto:
        """Make the ONNX model."""
        onnx = require_onnx()
        helper, g = onnx.helper, self.builder
        outputs = self.outputs()
        wanted = list(output_names or ())
        results = []
        for at, (tensor, _) in enumerate(outputs):
            # Each output needs a name of its own, even if it is an input, a weight or another output.
            name = g.name(wanted[at] if at < len(wanted) else f"output_{at}")
            g.operations.append(Operation("Identity", (tensor.name,), (name,), {}))
            results.append(_value_info(helper, name, tensor))
        nodes = [
            helper.make_node(
                o.kind, list(o.inputs), list(o.outputs), domain=o.domain, **o.attributes
            )
            for o in _needed(g, [r.name for r in results])
        ]
        used = {name for node in nodes for name in node.input}
        domains = sorted({node.domain for node in nodes} - {""})
        stored = {**g.constants, **g.weights}
        inputs = [_value_info(helper, x.name, x) for x in self.inputs if x is not None]
        graph = helper.make_graph(nodes, "corsac", inputs, results)
        model = helper.make_model(
            graph, ir_version=_IR_VERSION, producer_name="corsac", producer_version=__version__,
            opset_imports=[
                helper.make_opsetid("", g.opset),
                *(helper.make_opsetid(domain, 1) for domain in domains),
            ],
        )  # fmt: skip
        # Stored directly in the model, since copies of weights are expensive.
        for name in (name for name in stored if name in used):
            _store(model.graph.initializer.add(), name, stored[name])
        return model


def _needed(g: Builder, outputs: list[str]) -> list[Any]:
    """The operations that the outputs depend on, in order."""
    wanted, kept = set(outputs), []
    for operation in reversed(g.operations):
        if wanted.intersection(operation.outputs):
            wanted.update(operation.inputs)
            kept.append(operation)
    return kept[::-1]


def _input(translator: Translator, node: Node, name: str | None) -> Tensor | None:
    name = name or str(node.target)
    translator.give(node, name)
    value = translator.values[node]
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Dim):
        return Tensor(name, torch.int64, ())
    return None


def _where(node: Node, reason: str) -> str:
    target = "" if node.op in ("placeholder", "output") else (
        f" ({node.op} {node._pretty_print_target(node.target)})"
    )  # fmt: skip
    source = node.source
    line = "" if source is None else f", at {source.file}:{source.line}"
    return f"{node.name}{target} cannot be written as ONNX{line}: {reason}"


def _value_info(helper: Any, name: str, tensor: Tensor) -> Any:
    shape = [size if isinstance(size, int) else str(size) for size in tensor.shape]
    return helper.make_tensor_value_info(name, element_type(tensor.dtype), shape)


def _store(proto: Any, name: str, tensor: torch.Tensor) -> None:
    """Store a tensor in ``proto``."""
    proto.name, proto.data_type = name, element_type(tensor.dtype)
    proto.dims.extend(tensor.shape)
    tensor = tensor.detach().cpu().contiguous()
    proto.raw_data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def weights_bytes(proto: onnx.ModelProto) -> int:
    """Size of the tensors in a model, in bytes."""
    sizes = {number: dtype.itemsize for dtype, number in ELEMENT_TYPES.items()}
    return sum(math.prod(x.dims) * sizes[x.data_type] for x in proto.graph.initializer)


def save(proto: onnx.ModelProto, path: str | Path) -> None:
    """Write a model to a file; weights of 2 GiB and more go to ``<name>.data`` beside it."""
    onnx = require_onnx()
    path = Path(path)
    if weights_bytes(proto) < LARGE:
        onnx.save_model(proto, str(path))
        return
    onnx.save_model(
        proto, str(path), save_as_external_data=True, location=f"{path.name}.data"
    )  # fmt: skip
