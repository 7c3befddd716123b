"""Graphs of quantised models, rewritten as graphs of floats with quantise and dequantise nodes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac._pytorch.quantised_parts import is_graph, is_static, operator_name, place
from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.fx.proxy import GraphAppendingTracer, Proxy
from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization._dtypes import UNDERLYING, full_range, quint8
from corsac.quantization.torch_ao import _dynamic, _functions
from corsac.quantization.torch_ao._calls import QUANTISED
from corsac.quantization.torch_ao._layers import bases, float_layer, static_layer
from corsac.quantization.torch_ao._sequences import SEQUENCES, sequence
from corsac.quantization.torch_ao._values import Levels, Packed, Several, Steps
from corsac.quantization.torch_ao._weights import (
    UnreadableError,
    constant,
    integers_of,
    is_quantised,
    packed_kind,
    packed_parts,
    steps_of,
)

#: Graph modules keep here what users want to keep.
_PRESERVED = "_user_preserved_attributes"


class Reader:
    """Reads a graph module.

    Args:
        per_row: whether dynamic layers have steps for each row.
        read: reads modules that are called and hold quantised ones.
    """

    def __init__(self, per_row: bool, read: Callable[[str, nn.Module], nn.Module]) -> None:
        self.per_row, self._read = per_row, read
        self.graph = Graph()
        self._tracer = GraphAppendingTracer(self.graph)
        self._installed: dict[str, Any] = {}
        #: Nodes of attributes by name, so that one is read once.
        self._attributes: dict[str, Any] = {}
        self._constants: dict[str, Levels] = {}
        self._packed: dict[str, Packed] = {}
        self._model: Any = None
        self._current: Any = None
        self._path = ""

    def module(self, model: Any) -> GraphModule:
        """The graph module of floats."""
        self._model = model
        result = self._walk(model, "", None)
        self.graph.output(self._plain(result))
        self.graph.eliminate_dead_code()
        used = {node.target for node in self.graph.nodes if node.op in ("call_module", "get_attr")}
        root = nn.Module()
        made = GraphModule(
            {path: own for path, own in self._installed.items() if path in used} or root,
            self.graph,
            getattr(model, "name", type(model).__name__),
        )
        for name, value in getattr(model, "meta", {}).get(_PRESERVED, {}).items():
            if not hasattr(made, name):
                setattr(made, name, value)
        # Not with train(): modules that stay are the model's own.
        made.training = model.training
        return made

    # The walk over the nodes of a graph.

    def _walk(self, model: Any, prefix: str, inputs: list[Any] | None) -> Any:
        env: dict[Any, Any] = {}
        given = iter(inputs or ())
        before = self._path, self._current
        for node in model.graph.nodes:
            self._path, self._current = prefix, node
            if node.op == "placeholder":
                env[node] = next(given) if inputs is not None else self._placeholder(node)
            elif node.op == "output":
                result = self._given(node.args[0], env)
            else:
                args = self._given(node.args, env)
                kwargs = self._given(node.kwargs, env)
                handle = getattr(self, f"_{node.op}")
                env[node] = handle(model, prefix, node, args, kwargs)
        self._path, self._current = before
        return result

    def _given(self, value: Any, env: dict[Any, Any]) -> Any:
        """Arguments with the values of nodes in their places."""
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._given(own, env) for own in value))
        if isinstance(value, list | tuple):
            return type(value)([self._given(own, env) for own in value])
        if isinstance(value, dict):
            return {key: self._given(own, env) for key, own in value.items()}
        if isinstance(value, slice):
            parts = (self._given(own, env) for own in (value.start, value.stop, value.step))
            return slice(*parts)
        return env[value] if hasattr(value, "op") and hasattr(value, "users") else value

    def _plain(self, value: Any) -> Any:
        """Values with the nodes of their floats."""
        if isinstance(value, Levels):
            return value.real
        if isinstance(value, Several):
            return value.node
        if isinstance(value, list | tuple):
            own = [self._plain(part) for part in value]
            return type(value)(*own) if hasattr(value, "_fields") else type(value)(own)
        if isinstance(value, dict):
            return {key: self._plain(own) for key, own in value.items()}
        if isinstance(value, slice):
            return slice(*map(self._plain, (value.start, value.stop, value.step)))
        if isinstance(value, Packed | _PackedAttribute):
            raise self.error("a packed weight as an argument of its operator only")
        if isinstance(value, _Attribute):
            return value.node(self)
        return value

    def error(self, expected: str, got: str = "") -> UnreadableError:
        """An error about the present node: what was expected, and what is there."""
        node = self._current
        target = node.target if isinstance(node.target, str) else operator_name(node.target)
        inside = f" of {self._path}" if self._path else ""
        return UnreadableError(
            f"node {node.name}{inside}: expected {expected}, got {got or f'{node.op} of {target}'}"
        )

    def _placeholder(self, node: Any) -> Any:
        defaults = {"default_value": node.args[0]} if node.args else {}
        return self.graph.placeholder(node.target, type_expr=node.type, **defaults)

    def _get_attr(self, model: Any, prefix: str, node: Any, args: Any, kwargs: Any) -> Any:
        owner, _, name = node.target.rpartition(".")
        found = getattr(get_submodule(model, owner), name)
        path = f"{prefix}.{node.target}" if prefix else node.target
        if isinstance(found, torch.ScriptObject):
            return _PackedAttribute(path, found)
        if is_quantised(found):
            return self._constant(path, found)
        return _Attribute(path, found)

    def attribute(self, path: str, value: Any) -> Any:
        """A node of an attribute, which gets this value."""
        node = self._attributes.get(path)
        if node is None:
            self._installed[path] = value
            node = self._attributes[path] = self.graph.create_node("get_attr", path)
        return node

    def _free(self, path: str, end: str = "") -> str:
        """A name in the root like ``path`` that no attribute has, or ``path`` itself."""
        wish = path.replace(".", "_") + end
        unique, number = wish, 0
        while unique in self._installed or (unique != path and hasattr(self._model, unique)):
            number += 1
            unique = f"{wish}_{number}"
        return unique

    def _constant(self, path: str, tensor: Tensor) -> Levels:
        """A tensor of a quantised type, as integers with its steps."""
        found = self._constants.get(path)
        if found is None:
            found = self._constants[path] = self._constant_anew(path, tensor)
        return found

    def _constant_anew(self, path: str, tensor: Tensor) -> Levels:
        steps = steps_of(tensor)
        integers = self.attribute(self._free(path), integers_of(tensor))
        if steps.per_tensor:
            whole = Steps(float(steps.scales), int(steps.zero_points), tensor.dtype)
            real = self._call("dequantize_per_tensor", integers, *whole.arguments)
            return Levels(real, whole, integers)
        real = self._call(
            "dequantize_per_channel",
            integers,
            self.attribute(self._free(path, "_scale"), steps.scales.clone()),
            self.attribute(self._free(path, "_zero_point"), steps.zero_points.clone()),
            steps.axis,
            steps.quant_min,
            steps.quant_max,
            steps.dtype,
        )
        return Levels(real, None, integers)

    def _unpacked(self, path: str, packed: Any, rank: int | None) -> Packed:
        found = self._packed.get(path)
        if found is None:
            found = self._packed[path] = self._unpacked_anew(path, packed, rank)
        return found

    def _unpacked_anew(self, path: str, packed: Any, rank: int | None) -> Packed:
        parts = packed_parts(packed, rank)
        if parts is None:
            raise self.error("a packed weight of this operator", packed_kind(packed))
        weight, bias = parts
        nodes = self._weight_and_bias(path, weight, bias)
        if rank is None:
            return Packed(*nodes, not weight.is_quantized)
        transposed = bool(packed.transpose())
        names = ("stride", "padding", "dilation") + ("output_padding",) * transposed
        options = {name: tuple(getattr(packed, name)())[-rank:] for name in names}
        options["groups"] = packed.groups()
        return Packed(*nodes, False, options, transposed)

    def _weight_and_bias(self, path: str, weight: Tensor, bias: Tensor | None) -> tuple[Any, Any]:
        made = None
        if bias is not None:
            made = self.attribute(self._free(path, "_bias"), constant(bias))
        if weight.is_quantized:
            return self._constant(path, weight).real, made
        half = self.attribute(self._free(path), weight.detach().to(torch.float16))
        return self.graph.call_method("to", (half, torch.float32)), made

    # Nodes of the new graph.

    def function(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of a function of floats."""
        return self.graph.call_function(function, self._plain(args), self._plain(kwargs))

    def _call(self, name: str, *args: Any) -> Any:
        target = getattr(torch.ops.corsac, name).default
        return self.graph.call_function(target, self._plain(args))

    def in_steps(self, node: Any, steps: Steps) -> Levels:
        """A value rounded to ``steps``; the nodes are named after the one that is read."""
        operators, name = torch.ops.corsac, self._current.name
        integers = self.graph.create_node(
            "call_function",
            operators.quantize_per_tensor.default,
            (self._plain(node), *steps.arguments),
            name=f"{name}_quantized",
        )
        real = self.graph.create_node(
            "call_function",
            operators.dequantize_per_tensor.default,
            (integers, *steps.arguments),
            name=f"{name}_dequantized",
        )
        return Levels(real, steps, integers)

    def levels(self, value: Any) -> Levels:
        """A value that has to be of a quantised type, with steps for the whole of it."""
        if not isinstance(value, Levels) or value.steps is None:
            raise self.error("a value of a quantised type, whose scale is in the model")
        return value

    def steps_of(self, value: Any) -> Steps:
        """The steps of a value that has to be of a quantised type."""
        steps = self.levels(value).steps
        assert steps is not None
        return steps

    def packed(self, value: Any, rank: int | None = None) -> Packed:
        """A value that has to be the packed weight of a linear layer, or of a convolution of ``rank`` dimensions."""
        if isinstance(value, _PackedAttribute):
            return self._unpacked(value.path, value.packed, rank)
        if not isinstance(value, Packed):
            raise self.error("a packed weight that the model holds")
        return value

    def number(self, value: Any) -> Any:
        """A number of the model, which may be in a tensor."""
        if isinstance(value, _Attribute):
            value = value.value
        if isinstance(value, Tensor) and value.numel() == 1:
            return value.item()
        if isinstance(value, int | float):
            return value
        raise self.error("a scale and a zero point that the model holds")

    def steps(self, scale: Any, zero_point: Any, dtype: torch.dtype = quint8) -> Steps:
        """Steps of numbers, or of tensors that the model holds."""
        return Steps(float(self.number(scale)), int(self.number(zero_point)), dtype)

    # Calls.

    def _call_module(self, model: Any, prefix: str, node: Any, args: Any, kwargs: Any) -> Any:
        module: Any = get_submodule(model, node.target)
        path = f"{prefix}.{node.target}" if prefix else node.target
        where = place(module)
        name = type(module).__name__
        if where == "static":
            return self._static(path, name, module, args, kwargs)
        if where:
            self._require_floats(args)
            if path not in self._installed:
                self._installed[path] = float_layer(path, module, self.per_row)
            return self.graph.call_module(path, self._plain(args), self._plain(kwargs))
        if is_graph(module) and is_static(module):
            return self._walk(module, path, self._inputs(module, args, kwargs))
        value = args[0] if args else None
        if isinstance(value, Levels):
            made = self._of_levels(
                _functions.of_class(name),
                value,
                lambda: self._install_and_call(path, module, args, kwargs),
            )
            if made is None:
                kind = f"{type(module).__module__}.{name}"
                raise self.error("a module that takes values of a quantised type", kind)
            if getattr(module, "inplace", False):
                value.write(made)
            return made
        if path not in self._installed:
            module = self._read(path, module)
        return self._install_and_call(path, module, args, kwargs)

    def _inputs(self, module: Any, args: Any, kwargs: Any) -> list[Any]:
        """The values of the placeholders of a graph module that is called with these arguments."""
        try:
            bound = inspect.signature(module.forward).bind(*args, **kwargs)
        except TypeError as error:
            raise self.error("the arguments of the module", str(error)) from error
        bound.apply_defaults()
        return [*bound.arguments.values()]

    def _install_and_call(self, path: str, module: Any, args: Any, kwargs: Any) -> Any:
        self._installed.setdefault(path, module)
        return self.graph.call_module(path, self._plain(args), self._plain(kwargs))

    def _require_floats(self, args: Any) -> None:
        if any(isinstance(own, Levels) for own in args):
            raise self.error("floats as inputs of a dynamic or a reference module")

    def _static(self, path: str, name: str, module: Any, args: Any, kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        if name == "Quantize":
            dtype = getattr(module, "dtype", quint8)
            return self.in_steps(
                self._plain(values[0]), self.steps(module.scale, module.zero_point, dtype)
            )
        if name == "DeQuantize":
            return self._plain(values[0])
        given = self.levels(values[0])
        if any(base in SEQUENCES for base in bases(module)):
            return self._sequence(path, module, args, kwargs)
        found = static_layer(path, module)
        self._installed.setdefault(path, found.layer)
        result = self.graph.call_module(path, (given.real,))
        if found.adds:
            result = self.function(torch.add, result, self.levels(values[1]).real)
        if found.after is not None:
            arguments = (module.negative_slope,) if found.after is F.leaky_relu else ()
            result = self.function(found.after, result, *arguments)
        if found.steps is None:
            if isinstance(found.layer, nn.Identity):
                return Levels(result, given.steps)
            made = self.in_steps(result, self.steps_of(given))
            if getattr(module, "inplace", False):
                given.write(made)
            return made
        return self.in_steps(result, Steps(*found.steps, self.steps_of(given).dtype))

    def _sequence(self, path: str, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The result of an LSTM and its states, or that of attention and its weights."""
        first = next(iter([*args, *kwargs.values()]))
        found = sequence(path, module, self.steps_of(first).dtype)
        self._installed.setdefault(path, found.layer)
        node = self.graph.call_module(path, self._plain(args), self._plain(kwargs))
        result = Levels(self.function(operator.getitem, node, 0), found.result)
        rest = self.function(operator.getitem, node, 1)
        if len(found.rest) == 1:
            # Those of the heads may be averaged.
            wanted = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            has_weights = wanted.get("need_weights", True)
            return result, self.in_steps(rest, *found.rest) if has_weights else None
        return result, tuple(
            Levels(self.function(operator.getitem, rest, at), steps)
            for at, steps in enumerate(found.rest)
        )

    def _call_function(self, model: Any, prefix: str, node: Any, args: Any, kwargs: Any) -> Any:
        name = operator_name(node.target)
        if name.startswith("quantized."):
            handler = QUANTISED.get(name.removeprefix("quantized."))
            if handler is None:
                raise self.error("an operator of torch.ops.quantized that can be read", name)
            try:
                return handler(self, *args, **kwargs)
            except TypeError as error:
                raise self.error("the arguments of the operator", str(error)) from error
        return self._of_name(
            name, args, kwargs, lambda own, named: self.function(node.target, *own, **named)
        )

    def _call_method(self, model: Any, prefix: str, node: Any, args: Any, kwargs: Any) -> Any:
        def call(own: Any, named: Any) -> Any:
            return self.graph.call_method(node.target, self._plain(own), self._plain(named))

        return self._of_name(node.target, args, kwargs, call)

    def _of_name(self, name: str, args: Any, kwargs: Any, call: Any) -> Any:
        """A call of a function or a method of PyTorch, or of Python."""
        if name in _CONVERTED:
            made = getattr(self, f"_{name}")(*args, **kwargs)
            if made is not None:
                return made
        value = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(value, Several):
            if name != "getitem":
                raise self.error("a place in a tuple of values of a quantised type")
            item = call((value.node, args[1]), {})
            return item if args[1] in value.plain else Levels(item, value.steps)
        if isinstance(value, list | tuple) and any(isinstance(own, Levels) for own in value):
            if name == "getitem":
                return value[args[1]]
            if name in _functions.JOINING:
                return self.joined(value, call((value, *args[1:]), kwargs))
            raise self.error("a function of a list of values of a quantised type")
        if isinstance(value, tuple | list | dict) and name == "getitem":
            return value[args[1]]
        if isinstance(value, Levels):
            stem = name.strip("_") if not name.startswith("__") else name
            if stem == "getattr" and args[1] == "is_quantized":
                return True
            made = self._of_levels(stem, value, lambda: call(args, kwargs), args[1:], kwargs)
            if made is None:
                raise self.error("a function that takes values of a quantised type", name)
            if (stem != name and name.endswith("_")) or kwargs.get("inplace"):
                value.write(made)
            return made
        return call(args, kwargs)

    def _of_levels(
        self,
        name: str,
        value: Levels,
        call: Callable[[], Any],
        rest: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """A call with a value of a quantised type as the first argument; None for functions that are not known."""
        steps = value.steps
        if name in _functions.PLAIN:
            return call()
        if steps is None:
            raise self.error("a value with one scale, or dequantize")
        if name in _functions.SELECTING:
            return Levels(call(), steps)
        if name in _functions.ROUNDING:
            return self.in_steps(call(), steps)
        if name in _functions.FIXED:
            return self.in_steps(call(), _functions.fixed_steps(name, steps))
        if name in _functions.SEVERAL:
            return Several(call(), steps)
        if name in _functions.WITH_PLACES:
            whole = name in ("max", "min", "median") and not rest and not kwargs
            return Levels(call(), steps) if whole else Several(call(), steps, (1,))
        return None

    def joined(self, values: Any, node: Any, steps: Steps | None = None) -> Levels:
        """Joined values, in the steps of the first one if no others are given."""
        own = [self.steps_of(value) for value in values]
        steps = steps or own[0]
        if all(other == steps for other in own):
            return Levels(node, steps)
        return self.in_steps(node, steps)

    # Functions that convert between floats and quantised types.

    def _quantize_per_tensor(
        self, input: Any, scale: Any, zero_point: Any, dtype: torch.dtype
    ) -> Levels:
        steps = self.steps(scale, zero_point, dtype)
        if isinstance(input, _Attribute) and isinstance(input.value, Tensor):
            value = input.value.detach().float()
            integers = torch.ops.corsac.quantize_per_tensor(value, *steps.arguments)
            node = self.attribute(self._free(input.path, "_quantized"), integers)
            return Levels(self._call("dequantize_per_tensor", node, *steps.arguments), steps, node)
        return self.in_steps(self._plain(input), steps)

    def _quantize_per_channel(
        self, input: Any, scales: Any, zero_points: Any, axis: int, dtype: torch.dtype
    ) -> Levels:
        if not all(isinstance(own, _Attribute) for own in (scales, zero_points)):
            raise self.error("scales and zero points of channels that the model holds")
        low, high = full_range(dtype)
        bounds = axis, low, high, UNDERLYING[dtype]
        scale, zero_point = scales.value.float(), zero_points.value.to(torch.int32)
        nodes = (
            self.attribute(scales.path, scale),
            self.attribute(zero_points.path, zero_point),
        )
        if isinstance(input, _Attribute):
            value = input.value.detach().float()
            integers = torch.ops.corsac.quantize_per_channel(value, scale, zero_point, *bounds)
            node = self.attribute(self._free(input.path, "_quantized"), integers)
        else:
            node = self._call("quantize_per_channel", input, *nodes, *bounds)
        return Levels(self._call("dequantize_per_channel", node, *nodes, *bounds), None, node)

    def _quantize_per_tensor_dynamic(
        self, input: Any, dtype: torch.dtype, reduce_range: bool
    ) -> Levels:
        if dtype == torch.float16:
            half = self.graph.call_method("to", (self._plain(input), torch.float16))
            return Levels(self.graph.call_method("to", (half, torch.float32)), None)
        if UNDERLYING.get(dtype) != torch.uint8:
            raise self.error("torch.quint8 as the type of dynamic quantisation", str(dtype))
        return Levels(self.rounded(input, reduce_range), None)

    def rounded(self, input: Any, reduce_range: bool, rows: bool = True) -> Any:
        """The input of a dynamic layer, in steps of its range, or in those of each row if that is wanted."""
        if self.per_row and rows:
            return self.traced(_dynamic.rounded_rows, input)
        return self.traced(_dynamic.rounded, input, _reduced(reduce_range))

    def dynamic_linear(self, input: Any, packed: Packed, reduce_range: bool) -> Any:
        """The result of a linear layer that rounds its input in steps of its range."""
        if packed.half:
            return self.function(F.linear, input, packed.weight, packed.bias)
        if self.per_row or _reduced(reduce_range) != 127:
            rounded = self.rounded(input, reduce_range)
            return self.function(F.linear, rounded, packed.weight, packed.bias)
        return self.traced(_dynamic.scaled_product, input, packed.weight, packed.bias)

    def traced(self, function: Any, *args: Any) -> Any:
        """The nodes of a function of this package."""
        own = [
            Proxy(value, self._tracer) if isinstance(value, Node) else value
            for value in self._plain(args)
        ]
        return function(*own).node

    def _dequantize(self, value: Any, *rest: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._dequantize(own) for own in value)
        if isinstance(value, Levels):
            return value.real
        # Floats are of single precision then.
        return self.graph.call_method("to", (self._plain(value), torch.float32))

    def _int_repr(self, value: Any) -> Any:
        given = self.levels(value)
        if given.integers is not None:
            return given.integers
        return self._call("quantize_per_tensor", given.real, *self.steps_of(given).arguments)

    def _q_scale(self, value: Any) -> float:
        return self.steps_of(value).scale

    def _q_zero_point(self, value: Any) -> int:
        return self.steps_of(value).zero_point

    def _to(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, Levels) and value.steps is not None:
            # Of a quantised type, only the memory format, or the device, changes.
            return Levels(
                self.graph.call_method("to", self._plain((value, *args)), kwargs), value.steps
            )
        return None


def _reduced(reduce_range: bool) -> int:
    """The largest level of dynamic quantisation: qnnpack has the whole range in any case."""
    return 127 if reduce_range and torch.backends.quantized.engine != "qnnpack" else 255


class _PackedAttribute:
    """A packed weight that a model holds."""

    def __init__(self, path: str, packed: Any) -> None:
        self.path, self.packed = path, packed


class _Attribute:
    """The value of an attribute that is no packed weight, and of no quantised type."""

    def __init__(self, path: str, value: Any) -> None:
        self.path, self.value = path, value

    def node(self, reader: Reader) -> Any:
        """The node that reads it."""
        return reader.attribute(self.path, self.value)


_CONVERTED = frozenset(
    {
        "quantize_per_tensor",
        "quantize_per_channel",
        "quantize_per_tensor_dynamic",
        "dequantize",
        "int_repr",
        "q_scale",
        "q_zero_point",
        "to",
    }
)
