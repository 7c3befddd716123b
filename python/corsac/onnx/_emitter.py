"""Makes nodes of a graph, with the types of their values.

Types are found by calling the functions on tensors of the meta device. Where sizes are not fixed, there are two such
tensors for each value, with different sample sizes: what differs between them depends on the sizes of the inputs.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from operator import getitem as _getitem
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from corsac import fx
from corsac.fx import Node
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value, is_whole

# Constants up to this number of elements are computed from others while the graph is read.
_FOLDED = 4096
_META = torch.device("meta")
#: Tensors of constants that the graph has as numbers.
_NUMBERS = (torch.float32, torch.float64, torch.int32, torch.int64)


class Weights:
    """The parameters and buffers of the module that is made."""

    def __init__(self) -> None:
        self.root = torch.nn.Module()
        self._names: dict[int, tuple[str, torch.Tensor]] = {}

    def add(self, name: str, tensor: torch.Tensor, role: str) -> str:
        """Make a tensor a parameter or buffer; return its path, which resembles ``name``."""
        if id(tensor) in self._names:
            return self._names[id(tensor)][0]
        path = [part if part.isdecimal() else identifier(part) for part in name.split(".")]
        owner = self._owner(path[:-1])
        if owner is None or hasattr(owner, path[-1]):
            owner, path = self.root, ["_".join(path)]
            base, at = path[0], 1
            while hasattr(owner, path[0]):
                path, at = [f"{base}_{at}"], at + 1
        if role == "parameter" and tensor.is_floating_point():
            owner.register_parameter(path[-1], torch.nn.Parameter(tensor))
        else:
            owner.register_buffer(path[-1], tensor)
        self._names[id(tensor)] = ".".join(path), tensor
        return ".".join(path)

    def module(self, name: str, module: torch.nn.Module) -> str:
        """Make ``module`` a submodule; return its path."""
        base = name = identifier(name)
        at = 1
        while hasattr(self.root, name):
            name, at = f"{base}_{at}", at + 1
        self.root.add_module(name, module)
        return name

    def _owner(self, path: list[str]) -> torch.nn.Module | None:
        owner = self.root
        for part in path:
            found = getattr(owner, part, None)
            if found is None and not hasattr(owner, part):
                found = torch.nn.Module()
                owner.add_module(part, found)
            if type(found) is not torch.nn.Module:
                return None
            owner = found
        return owner


def identifier(name: str | bytes) -> str:
    """``name`` as an identifier of Python; protobuf has names that are no UTF-8 as bytes."""
    name = name if isinstance(name, str) else name.decode("utf-8", "replace")
    name = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "value"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


class Emitter:
    """Makes the nodes of one graph.

    Attributes:
        version: the version of ONNX's default operator set.
        count: the number of sets of sample sizes.
        outputs: the names of the outputs of the present operator; empty for those left out.
        declared: the type that the model declares for a value.
        reading: the reading of the graph, set by it.
    """

    def __init__(self, version: int, count: int, weights: Weights | None = None) -> None:
        self.graph = fx.Graph()
        self.weights = Weights() if weights is None else weights
        self.version, self.count = version, count
        self.outputs: list[str] = []
        self.declared: Callable[[str], tuple[torch.Tensor, ...] | None] = lambda name: None
        self.reading: Any = None
        self._attributes: dict[int, Node] = {}

    # -- calls -------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of torch in the graph, or now if its arguments are known and short."""
        return self._called("call_function", function, function, args, kwargs, fold=True)

    def kept(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of torch in the graph, even if its arguments are known."""
        return self._called("call_function", function, function, args, kwargs, fold=False)

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a tensor."""

        def function(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(tensor, name)(*args, **kwargs)

        return self._called("call_method", name, function, args, kwargs, fold=True)

    def _called(
        self, op: str, target: Any, function: Callable[..., Any], args: Any, kwargs: Any, fold: bool
    ) -> Any:
        leaves = tree_leaves((args, kwargs))
        sizes = [leaf for leaf in leaves if isinstance(leaf, Size)]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Value)]
        if any(size.samples is None for size in sizes):
            return self.typed(op, target, args, kwargs, self._declared())
        samples = [
            self._sampled(function, at, args, kwargs)
            for at in range(self.count if sizes or any(_varies(own) for own in tensors) else 1)
        ]
        if len(samples) < self.count:
            samples = samples[:1] * self.count
        known = fold and not sizes and all(own.constant is not None for own in tensors)
        if known and self._is_short(tensors, tree_leaves(samples[0])):
            return self._computed(function, args, kwargs)
        return self.typed(op, target, args, kwargs, samples)

    def _sampled(self, function: Callable[..., Any], at: int, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map(lambda leaf: _sample(leaf, at), (args, kwargs))
        with torch.no_grad(), _META:
            return function(*args, **kwargs)

    def _is_short(self, tensors: list[Value], results: list[Any]) -> bool:
        literal = all(own.is_literal for own in tensors)
        for result in results:
            if not isinstance(result, torch.Tensor):
                return False
            if result.numel() > (_FOLDED if is_whole(result.dtype) or literal else 1):
                return False
        return True

    def _computed(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        def elements(leaf: Any) -> Any:
            return leaf.constant if isinstance(leaf, Value) else leaf

        args, kwargs = tree_map(elements, (args, kwargs))
        with torch.no_grad():
            result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            return self.literal(result)
        return tuple(self.literal(own) for own in result)

    def typed(self, op: str, target: Any, args: Any, kwargs: Any, samples: Sequence[Any]) -> Any:
        """A node whose value has the types in ``samples``, one for each set of sample sizes."""
        args, kwargs = tree_map(self.argument, (args, kwargs))
        node = self.graph.create_node(op, target, tuple(args), dict(kwargs))
        return self._value(node, samples)

    def _value(self, node: Node, samples: Sequence[Any]) -> Any:
        first = samples[0]
        if isinstance(first, torch.Tensor):
            return Value(node.name, tuple(samples), node)
        if isinstance(first, (tuple, list)):
            return tuple(
                self._value(
                    self.graph.call_function(_getitem, (node, at)), [own[at] for own in samples]
                )
                for at in range(len(first))
            )
        return Size(self, node, tuple(samples))

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        dtype: torch.dtype | None = None,
        rank: int | None = None,
    ) -> Any:
        """Call a function whose result has a type that depends on elements: the one that the model declares, or else
        any of this rank."""
        return self.typed("call_function", function, args, {}, self._declared(dtype, rank))

    def _declared(self, dtype: torch.dtype | None = None, rank: int | None = None) -> list[Any]:
        found = [self.declared(name) for name in self.outputs if name]
        if len(found) == 1 and found[0] is None and dtype is not None and rank is not None:
            return list(self.reading.fresh(dtype, rank))
        if not found or any(own is None for own in found):
            raise Unsupported("a result whose type depends on the elements of a tensor")
        if len(found) == 1:
            return list(found[0])
        return [tuple(own[at] for own in found) for at in range(self.count)]

    # -- arguments ---------------------------------------------------------------------------------

    def argument(self, leaf: Any) -> Any:
        """A value as an argument of a node."""
        if isinstance(leaf, Value):
            return self.node(leaf)
        if isinstance(leaf, Size):
            return leaf.node
        return leaf

    def node(self, value: Value) -> Node:
        """The node of a value."""
        if value._node is None:
            if value.constant is not None:
                return self._attribute(value)
            if value.make is not None:
                value._node = self.node(value.make())
                return value._node
            elements = tree_map(self.argument, value.elements.tolist())
            value._node = self.graph.call_function(
                torch.tensor, (elements,), {"dtype": value.dtype}
            )
        return value._node

    def _attribute(self, value: Value) -> Node:
        """The node of a constant."""
        found = self._attributes.get(id(value.constant))
        if found is None:
            role = "buffer" if value.is_literal else value.role
            path = self.weights.add(value.name, value.constant, role)
            found = self._attributes[id(value.constant)] = self.graph.get_attr(path)
        return found

    def module(self, name: str, module: torch.nn.Module, args: Iterable[Any], samples: Any) -> Any:
        """Call ``module``."""
        path = self.weights.module(name, module)
        return self.typed("call_module", path, tuple(args), {}, samples)

    # -- values ------------------------------------------------------------------------------------

    def constant(
        self,
        tensor: torch.Tensor,
        name: str | None = None,
        *,
        is_literal: bool = False,
        role: str = "parameter",
    ) -> Value:
        """A constant; ``name`` is the present operator's first output by default."""
        name = name or next((own for own in self.outputs if own), "constant")
        samples = (torch.empty_like(tensor, device=_META),) * self.count
        return Value(name, samples, constant=tensor, is_literal=is_literal, role=role)

    def literal(self, value: Any, dtype: torch.dtype | None = None) -> Value:
        """A constant of the program."""
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype)
        return self.constant(tensor.detach(), is_literal=True)

    def sizes(self, elements: Any, dtype: torch.dtype = torch.int64) -> Value:
        """A short tensor of integers and sizes."""
        array = np.asarray(elements, dtype=object)
        if not any(isinstance(own, Size) for own in array.flat):
            return self.literal(torch.tensor(array.tolist(), dtype=dtype).reshape(array.shape))
        samples = (torch.empty(array.shape, dtype=dtype, device=_META),) * self.count
        return Value(self.outputs[0] if self.outputs else "sizes", samples, elements=array)

    def later(self, samples: tuple[torch.Tensor, ...], make: Callable[[], Value]) -> Value:
        """A value whose nodes are made by ``make`` when there is a use of it."""
        value = Value(self.outputs[0] if self.outputs else "value", samples)
        value.make = make
        return value

    def number(self, function: Callable[..., Any], *operands: Any) -> Size:
        """A function of sizes and numbers."""
        found = [own.samples for own in operands if isinstance(own, Size)]
        samples = None
        if all(own is not None for own in found):
            samples = tuple(
                function(*(_sample(own, at) for own in operands)) for at in range(self.count)
            )
        node = self.graph.call_function(function, tuple(self.argument(own) for own in operands))
        return Size(self, node, samples)

    def size(self, value: Value, dim: int) -> int | Size:
        """The size of a dimension."""
        if not -value.rank <= dim < value.rank:
            raise Unsupported(f"dimension {dim} of a tensor of rank {value.rank}")
        dim %= value.rank
        fixed = value.shape[dim]
        if fixed is not None:
            return fixed
        known = value.facts.setdefault("sizes", {})
        if dim not in known:
            node = self.graph.call_function(torch.ops.aten.sym_size.int, (self.node(value), dim))
            known[dim] = Size(self, node, tuple(own.shape[dim] for own in value.samples))
        return known[dim]

    def shape(self, value: Value) -> list[int | Size]:
        return [self.size(value, dim) for dim in range(value.rank)]

    def known_ints(self, value: Value | Sequence[int] | None) -> list[Any] | None:
        """The elements of a vector of integers, if these are numbers or sizes."""
        if value is None or not isinstance(value, Value):
            return None if value is None else list(value)
        return None if value.elements is None else list(value.elements.reshape(-1).tolist())

    def ints(self, value: Value | Sequence[int]) -> list[Any]:
        """The elements of a vector of integers, which may be known when the graph runs only."""
        known = self.known_ints(value)
        if known is not None:
            return known
        if value.numel is None:
            raise Unsupported(f"{value.name} has no fixed number of elements")
        tensor = self.method("reshape", value, -1) if value.rank != 1 else value
        listed = self.graph.call_method("tolist", (self.node(tensor),))
        nodes = [self.graph.call_function(_getitem, (listed, at)) for at in range(value.numel)]
        return [Size(self, node, None) for node in nodes]

    def int(self, value: Value) -> Any:
        """The one element of a tensor of an integer."""
        found = self.ints(value)
        if len(found) != 1:
            raise Unsupported(f"{value.name} has {len(found)} elements, expected 1")
        return found[0]

    def fixed(self, value: Value | Sequence[int] | None, what: str) -> list[int] | None:
        """Integers that have to be known now."""
        if value is None:
            return None
        known = self.known_ints(value)
        if known is None or any(isinstance(own, Size) for own in known):
            raise Unsupported(f"{what} that depend on the inputs")
        return [int(own) for own in known]

    def operand(self, value: Value, other: Value) -> Any:
        """The second operand of an elementwise operator: a number or size, if that is the same."""
        if value.numel != 1 or value.rank > other.rank:
            return value
        if value.dtype != other.dtype or value.dtype not in _NUMBERS or not other.rank:
            return value
        if value.is_dynamic and value.elements is not None:
            return value.elements.reshape(-1)[0]
        return value if value.constant is None else value.constant.item()


def _sample(leaf: Any, at: int) -> Any:
    return leaf.samples[at] if isinstance(leaf, (Value, Size)) else leaf


def _varies(value: Value) -> bool:
    return any(own is not value.samples[0] for own in value.samples)
