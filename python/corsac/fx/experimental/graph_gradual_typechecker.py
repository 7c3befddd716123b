"""Gradual typing of tensor shapes: annotations are checked and propagated through the graph; sizes that they
leave open (``Dyn``) stay open, or become variables.

Source: J. G. Siek and W. Taha, "Gradual typing for functional languages", 2006; the rules are those
of torch.fx's documentation for the operators of a ResNet-50.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from corsac.fx.experimental.refinement_types import Equality
from corsac.fx.experimental.unification import Var
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node, map_arg
from corsac.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = [
    "GraphTypeChecker",
    "Refine",
    "adaptiveavgpool2d_check",
    "adaptiveavgpool2d_inference_rule",
    "add_inference_rule",
    "all_eq",
    "bn2d_inference_rule",
    "broadcast_types",
    "calculate_out_dimension",
    "conv2d_inference_rule",
    "conv_refinement_rule",
    "conv_rule",
    "element_wise_eq",
    "expand_to_tensor_dim",
    "first_two_eq",
    "flatten_check",
    "flatten_inference_rule",
    "flatten_refinement_rule",
    "get_attr_inference_rule",
    "get_greatest_upper_bound",
    "get_parameter",
    "linear_check",
    "linear_inference_rule",
    "linear_refinement_rule",
    "maxpool2d_check",
    "maxpool2d_inference_rule",
    "register_algebraic_expressions_inference_rule",
    "register_inference_rule",
    "register_refinement_rule",
    "relu_inference_rule",
    "reshape_inference_rule",
    "transpose_inference_rule",
]

Rule = Callable[..., Any]

#: Rules by function or class of modules: the type of a call; the equalities that a call requires; sizes as
#: expressions of other sizes.
_INFERENCE_RULES: dict[Any, Rule] = {}
_REFINEMENT_RULES: dict[Any, Rule] = {}
_RULES: dict[Any, Rule] = {}


def _registering(table: dict[Any, Rule], kind: str, call_target: Any) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        if call_target in table:
            raise RuntimeError(f"{kind} already registered for {call_target}!")
        table[call_target] = rule
        return rule

    return register


def register_inference_rule(call_target: Any) -> Callable[[Rule], Rule]:
    """Register the rule for the type of calls of a function, or of modules of a class.

    The rule is called with the node, and the module if there is one; it sets the type of the node and returns
    it, or raises ``TypeError``.
    """
    return _registering(_INFERENCE_RULES, "Inference rule", call_target)


def register_refinement_rule(call_target: Any) -> Callable[[Rule], Rule]:
    """Register the rule for equal sizes in a call: it is called with the node and returns equalities."""
    return _registering(_REFINEMENT_RULES, "Refinement rule", call_target)


def register_algebraic_expressions_inference_rule(call_target: Any) -> Callable[[Rule], Rule]:
    """Register the rule that computes sizes of a result: it is called with the node, and the module if there
    is one, and sets the type of the node."""
    return _registering(_RULES, "Rule", call_target)


def expand_to_tensor_dim(t: Any, n: int) -> TensorType:
    """A type of rank ``n``: ``t`` itself, or one with unknown sizes if ``t`` is unknown.

    Raises:
        TypeError: ``t`` has another rank, or is not a tensor type.
    """
    if t == Dyn:
        return TensorType((Dyn,) * n)
    if not isinstance(t, TensorType):
        raise TypeError(f"Cannot match the type {t}")
    if len(t.dims) != n:
        raise TypeError(
            f"Cannot extend tensor. Tensor {t} has rank {len(t.dims)}. It should have rank {n}"
        )
    return t


def _is_open(t: Any) -> bool:
    return bool(t == Dyn) or isinstance(t, Var)


def broadcast_types(t1: Any, t2: Any) -> tuple[Any, Any]:
    """Both types after broadcasting: of the same rank, with each size 1 replaced by the other's size.

    Raises:
        TypeError: one of the two is not a tensor type.
    """
    if _is_open(t1) or _is_open(t2):
        return t1, t2
    if not (isinstance(t1, TensorType) and isinstance(t2, TensorType)):
        raise TypeError(f"Cannot broadcast types {t1} and {t2}")
    rank = max(len(t1.dims), len(t2.dims))
    left, right = ((1,) * (rank - len(t.dims)) + tuple(t.dims) for t in (t1, t2))
    pairs = [(y if x == 1 else x, x if y == 1 and x != 1 else y) for x, y in zip(left, right)]  # noqa: B905
    return TensorType(tuple(x for x, _ in pairs)), TensorType(tuple(y for _, y in pairs))


def get_greatest_upper_bound(type1: Any, type2: Any) -> Any:
    """The information of both types combined.

    Raises:
        TypeError: they contradict each other.
    """
    if type1 == Dyn:
        return type2
    if type2 == Dyn:
        return type1
    if not (isinstance(type1, TensorType) and isinstance(type2, TensorType)):
        return None
    if not is_consistent(type1, type2):
        raise TypeError(f"Inconsistent types {type1}, {type2}")
    return TensorType(
        tuple(
            a if is_more_precise(a, b) else b for a, b in zip(type1.dims, type2.dims, strict=True)
        )
    )


def _node(argument: Any) -> Node:
    if not isinstance(argument, Node):
        raise AssertionError(f"Expected Node, got {type(argument)}")
    return argument


def _of_pair(value: Any, index: int) -> Any:
    return value if isinstance(value, int) else value[index]


def calculate_out_dimension(d_in: Any, module_instance: Any, index: int) -> Any:
    """The output size of a convolution or pooling for the size ``d_in`` of dimension ``index`` of the image
    (0 for the height, 1 for the width): a number, an expression, or ``Dyn``.

    Raises:
        TypeError: the size is none of these.
    """
    import sympy

    if d_in == Dyn:
        return Dyn
    if not isinstance(d_in, int | sympy.Expr):
        raise TypeError(
            f"{d_in} in {module_instance} must be a number or Dyn. Received {type(d_in)}"
        )
    kernel = _of_pair(module_instance.kernel_size, index)
    stride = _of_pair(module_instance.stride, index)
    dilation = _of_pair(module_instance.dilation, index)
    padding = module_instance.padding
    reach = dilation * (kernel - 1)
    both_sides = {"valid": 0, "same": reach}.get(padding) if isinstance(padding, str) else None
    if both_sides is None:
        both_sides = 2 * _of_pair(padding, index)
    free = d_in + both_sides - reach - 1
    if getattr(module_instance, "ceil_mode", False):
        steps = -((-free) // stride)
        # The last window has to start inside the image or the padding before it.
        begins_inside = steps * stride < d_in + both_sides // 2
        return steps + 1 if not isinstance(d_in, int) or begins_inside else steps
    return free // stride + 1


@register_inference_rule(torch.add)
@register_inference_rule(operator.add)
def add_inference_rule(n: Node) -> Any:
    """The less precise of both types after broadcasting; for a number, the type of the other operand.

    Raises:
        TypeError: the types are not compatible.
    """
    operands = n.args[0], n.args[1]
    types = [a.type if isinstance(a, Node) else type(a) for a in operands]
    for number, other in (types, types[::-1]):
        if number in (int, float) and isinstance(other, TensorType):
            n.type = other
            return n.type
    for operand in operands:
        _node(operand)
    wide = broadcast_types(*types)
    n.meta["broadcast"] = wide[0] != types[0] or wide[1] != types[1]
    if n.meta["broadcast"]:
        for operand, type_ in zip(operands, wide, strict=True):
            n.meta[str(operand)] = type_
    if not is_consistent(*wide):
        raise TypeError(
            f"Cannot add arguments {operands[0]} ({types[0]}) and {operands[1]} ({types[1]}) in "
            f"node {n}. Types should match "
        )
    n.type = wide[1] if is_more_precise(*wide) else wide[0]
    return n.type


@register_inference_rule(getattr)
def get_attr_inference_rule(n: Node, traced: Any) -> Any:
    """The unknown type for the attribute ``shape``; others are a ``TypeError``."""
    if n.args[1] != "shape":
        raise TypeError("Not yet implemented")
    n.type = Dyn
    return n.type


@register_inference_rule(torch.transpose)
def transpose_inference_rule(n: Node) -> Any:
    """The sizes with two of them exchanged.

    Raises:
        TypeError: the dimensions do not exist.
    """
    t = _node(n.args[0]).type
    dims = n.args[1:3]
    for dim in dims:
        if not isinstance(dim, int):
            raise AssertionError(f"Expected int, got {type(dim)}")
    if t == Dyn:
        n.type = Dyn
        return n.type
    rank = len(t.dims) if isinstance(t, TensorType) else 0
    if not all(-rank <= dim < rank for dim in dims):
        raise TypeError(f"Cannot transpose {dims[0]} and {dims[1]} in type {t} for node {n}")
    sizes = list(t.dims)
    a, b = dims
    sizes[a], sizes[b] = sizes[b], sizes[a]
    n.type = get_greatest_upper_bound(n.type, TensorType(sizes))
    return n.type


@register_inference_rule(torch.reshape)
def reshape_inference_rule(n: Node) -> TensorType:
    """The requested sizes, unknown where they are -1.

    Raises:
        TypeError: the numbers of elements cannot be equal, whatever the unknown sizes are.
    """
    given = _node(n.args[0]).type
    wanted = n.args[1]
    if not isinstance(wanted, list | tuple):
        raise AssertionError(f"Expected list, got {type(wanted)}")
    result = TensorType([Dyn if size == -1 else size for size in wanted])
    is_tensor = isinstance(given, TensorType)
    if given != Dyn and not (is_tensor and _may_be_reshaped(given.dims, wanted)):
        raise TypeError(f"Cannot reshape in node {n} from {given} to {result}")
    n.type = result
    return n.type


def _may_be_reshaped(sizes: Sequence[Any], wanted: Sequence[int]) -> bool:
    numbers = [size for size in sizes if isinstance(size, int)]
    have = math.prod(numbers)
    want = math.prod(size for size in wanted if size != -1)
    is_known, is_fixed = len(numbers) == len(sizes), -1 not in wanted
    if is_known:
        return have == want if is_fixed else want != 0 and have % want == 0
    if is_fixed:
        return want == 0 or (have != 0 and want % have == 0)
    return want != 0


@register_inference_rule(nn.BatchNorm2d)
def bn2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The combined type of input and result, which are the same, with the number of channels of the
    module."""
    source = _node(n.args[0])
    source.type = expand_to_tensor_dim(source.type, 4)
    n.type = expand_to_tensor_dim(n.type, 4)
    channels = module_instance.num_features
    both = (source.type, n.type)
    if not (is_consistent(*both) and all(is_consistent(t.dims[1], channels) for t in both)):
        raise _cannot_apply(n, module_instance, source.type)
    n.type = get_greatest_upper_bound(source.type, n.type)
    return n.type


def _cannot_apply(n: Node, module: Any, given: Any) -> TypeError:
    return TypeError(
        f"Cannot apply {module} with input type {given} and existing type {n.type} on {n}"
    )


@register_inference_rule(nn.Conv2d)
def conv2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The batch of the input, the channels of the module, and the computed size of the image."""
    source = _node(n.args[0])
    source.type = expand_to_tensor_dim(source.type, 4)
    batch, channels, height, width = source.type.dims
    annotated = expand_to_tensor_dim(n.type, 4)
    if not is_consistent(channels, module_instance.in_channels):
        raise _cannot_apply(n, module_instance, source.type)
    sizes = (
        batch,
        module_instance.out_channels,
        calculate_out_dimension(height, module_instance, 0),
        calculate_out_dimension(width, module_instance, 1),
    )
    n.type = get_greatest_upper_bound(TensorType(sizes), annotated)
    return n.type


def _by_input(n: Node, result: Callable[[TensorType], TensorType]) -> Any:
    """Combine the annotation of ``n`` with the type that follows from its input. An unknown input is taken to
    have as many dimensions as the annotation."""
    source = _node(n.args[0])
    if source.type == Dyn and isinstance(n.type, TensorType):
        source.type = expand_to_tensor_dim(source.type, len(n.type.dims))
    if isinstance(source.type, TensorType):
        n.type = get_greatest_upper_bound(result(source.type), n.type)
    return n.type


@register_inference_rule(nn.ReLU)
def relu_inference_rule(n: Node, module_instance: Any) -> Any:
    """The type of the input."""
    return _by_input(n, lambda t: t)


def maxpool2d_check(typ: Any, module_instance: Any) -> TensorType:
    """The result of max pooling for images of the type ``typ``, of rank 3 or 4."""
    sizes = list(typ.dims)
    if len(sizes) not in (3, 4):
        raise TypeError(f"Wrong size {typ} for {module_instance}")
    for index in (0, 1):
        sizes[index - 2] = calculate_out_dimension(sizes[index - 2], module_instance, index)
    return TensorType(tuple(sizes))


@register_inference_rule(nn.MaxPool2d)
def maxpool2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The type of the input, with the computed size of the image."""
    return _by_input(n, lambda t: maxpool2d_check(t, module_instance))


def linear_check(tensor_type: Any, module_instance: Any) -> TensorType:
    """The result of a linear layer for a tensor of this type, of rank 2 or more."""
    sizes = tuple(tensor_type.dims)
    if len(sizes) < 2:
        raise TypeError(f"Type {tensor_type} must have rank 2 or more.")
    if not is_consistent(module_instance.in_features, sizes[-1]):
        raise TypeError(
            f"Inconsistent {module_instance.in_features} and {sizes[-1]} in {module_instance}"
        )
    return TensorType((*sizes[:-1], module_instance.out_features))


@register_inference_rule(nn.Linear)
def linear_inference_rule(n: Node, module_instance: Any) -> Any:
    """The type of the input, with the features of the layer as the last size."""
    return _by_input(n, lambda t: linear_check(t, module_instance))


def adaptiveavgpool2d_check(tensor_type: Any, module_instance: Any) -> TensorType:
    """The result of adaptive average pooling for images of this type, of rank 3 or 4."""
    sizes = list(tensor_type.dims)
    if len(sizes) not in (3, 4):
        raise TypeError(f"Tensor ranks must be 3 or 4. Got {tensor_type}")
    wanted = module_instance.output_size
    height, width = (wanted, wanted) if isinstance(wanted, int | None) else wanted
    # An unspecified size is that of the image.
    sizes[-2] = sizes[-2] if height is None else height
    sizes[-1] = sizes[-1] if width is None else width
    return TensorType(tuple(sizes))


@register_inference_rule(nn.AdaptiveAvgPool2d)
def adaptiveavgpool2d_inference_rule(n: Node, module_instance: Any) -> Any:
    """The type of the input, with the image size of the module."""
    return _by_input(n, lambda t: adaptiveavgpool2d_check(t, module_instance))


def flatten_check(tensor_type: Any, start_dim: int, end_dim: int) -> TensorType:
    """The sizes with those from ``start_dim`` to ``end_dim`` (inclusive) merged.

    Raises:
        TypeError: the dimensions do not exist.
    """
    sizes = tuple(tensor_type.dims)
    rank = len(sizes)
    start, last = (dim + rank if dim < 0 else dim for dim in (start_dim, end_dim))
    if not 0 <= start <= last < rank:
        raise TypeError(f"Incompatible dimensions {start_dim}, {end_dim} in type {tensor_type}")
    merged = sizes[start : last + 1]
    size = Dyn if Dyn in merged else math.prod(merged)
    return TensorType((*sizes[:start], size, *sizes[last + 1 :]))


def _flatten_arguments(n: Node) -> tuple[int, int]:
    named = dict(zip(("start_dim", "end_dim"), n.args[1:], strict=False)) | dict(n.kwargs)
    dims = named.get("start_dim", 1), named.get("end_dim", -1)
    for dim in dims:
        if not isinstance(dim, int):
            raise AssertionError(f"Expected int, got {type(dim)}")
    return dims


@register_inference_rule(torch.flatten)
def flatten_inference_rule(n: Node) -> Any:
    """The type of the input, flattened."""
    start, end = _flatten_arguments(n)
    return _by_input(n, lambda t: flatten_check(t, start, end))


class GraphTypeChecker:
    """Checks the annotations of a graph, and gives every node a type.

    Args:
        env: kept as ``env``.
        traced: the module whose graph it is.
    """

    def __init__(self, env: dict[str, Any], traced: GraphModule) -> None:
        self.env = env
        self.traced = traced

    def type_check(self) -> bool:
        """Give every node a type; return True, or raise an error.

        Raises:
            TypeError: types contradict each other.
            RuntimeError: a called function or module has no rule.
        """
        for node in self.traced.graph.nodes:
            self.type_check_node(node)
        return True

    def type_check_node(self, n: Node) -> Any:
        """Give one node a type; the nodes that it uses must have theirs."""
        if n.type is None:
            n.type = Dyn
        if n.op == "placeholder":
            return n.type
        if n.op == "get_attr":
            value = get_parameter(self.traced, n.target)
            if isinstance(value, torch.Tensor):
                n.type = TensorType(value.shape)
            return n.type
        if n.op == "call_function":
            rule = _INFERENCE_RULES.get(n.target)
            if rule is None:
                raise RuntimeError(f"No inference rule registered for target {n.target}!")
            return rule(n, self.traced) if n.target is getattr else rule(n)
        if n.op == "call_module":
            module = self.traced.get_submodule(n.target)
            rule = _INFERENCE_RULES.get(type(module))
            if rule is None:
                raise RuntimeError(f"No inference rule registered for class {type(module)}!")
            return rule(n, module)
        if n.op == "output":
            n.type = map_arg(n.args[0], lambda used: used.type)
            return n.type
        raise NotImplementedError(f"Method {n.op} not yet implemented")


def _equal_sizes(n: Node, count: int | None) -> list[Equality]:
    """Equalities between the first sizes of the input and of the result."""
    given, made = _node(n.args[0]).type, n.type
    if not (isinstance(given, TensorType) and isinstance(made, TensorType)):
        return []
    pairs = zip(given.dims[:count], made.dims[:count], strict=False)
    return [Equality(a, b) for a, b in pairs]


@register_refinement_rule(nn.Conv2d)
def conv_refinement_rule(n: Node) -> list[Any]:
    """The batch is the same."""
    return _equal_sizes(n, 1)


@register_refinement_rule(nn.Linear)
def linear_refinement_rule(n: Node) -> list[Any]:
    """The batch is the same."""
    return _equal_sizes(n, 1)


@register_refinement_rule(nn.BatchNorm2d)
@register_refinement_rule(nn.ReLU)
def all_eq(n: Node) -> list[Any]:
    """All sizes are the same."""
    return _equal_sizes(n, None)


@register_refinement_rule(nn.AdaptiveAvgPool2d)
@register_refinement_rule(nn.MaxPool2d)
def first_two_eq(n: Node) -> list[Any]:
    """Batch and channels are the same."""
    return _equal_sizes(n, 2)


@register_refinement_rule(torch.add)
@register_refinement_rule(operator.add)
def element_wise_eq(n: Node) -> list[Any]:
    """Sizes that both operands share after broadcasting are those of the result."""
    operands = n.args[:2]
    types = [operand.type for operand in operands if isinstance(operand, Node)]
    if len(types) != 2 or not all(isinstance(t, TensorType) for t in (*types, n.type)):
        return []
    wide = broadcast_types(*types)
    sizes = zip(wide[0].dims, wide[1].dims, n.type.dims, strict=False)
    return [Equality(a, made) for a, b, made in sizes if a == b]


@register_refinement_rule(torch.flatten)
def flatten_refinement_rule(n: Node) -> list[Any]:
    """Sizes before and after the flattened ones are the same."""
    given, made = _node(n.args[0]).type, n.type
    start, end = _flatten_arguments(n)
    if not (isinstance(given, TensorType) and isinstance(made, TensorType)):
        return []
    rank = len(given.dims)
    start, last = (dim + rank if dim < 0 else dim for dim in (start, end))
    kept = rank - last - 1
    pairs = [*zip(made.dims[:start], given.dims[:start], strict=True)]
    if kept:
        pairs += zip(made.dims[-kept:], given.dims[-kept:], strict=True)
    return [Equality(a, b) for a, b in pairs]


@register_algebraic_expressions_inference_rule(nn.Conv2d)
def conv_rule(n: Node, module_instance: Any) -> TensorType | None:
    """The size of the image, computed from that of the input."""
    given = _node(n.args[0]).type
    if not (isinstance(given, TensorType) and isinstance(n.type, TensorType)):
        return None
    height, width = given.dims[2], given.dims[3]
    n.type = TensorType(
        (
            *n.type.dims[:2],
            calculate_out_dimension(height, module_instance, 0),
            calculate_out_dimension(width, module_instance, 1),
        )
    )
    return n.type


class Refine:
    """Replaces unknown sizes by variables, and collects equalities between them.

    Attributes:
        constraints: the equalities found by :meth:`refine`.
        traced: the module whose graph it is.
    """

    def __init__(self, traced: Any) -> None:
        self.constraints: list[Any] = []
        self.traced = traced
        self.symbol_iter = itertools.count()

    def refine(self) -> bool:
        """Give every node a type with variables, and collect the equalities."""
        for node in self.traced.graph.nodes:
            self.refine_node(node)
        return True

    def symbolic_relations(self) -> bool:
        """Turn variables into symbols, and sizes into expressions of them."""
        for node in self.traced.graph.nodes:
            self.infer_symbolic_relations(node)
        return True

    def replace_dyn_with_fresh_var(self, typ: Any) -> Any:
        """``typ`` with a new variable for every unknown type or size."""
        return _replaced(typ, lambda t: Var(next(self.symbol_iter)) if t == Dyn else t)

    def convert_to_sympy_symbols(self, typ: Any) -> Any:
        """``typ`` with symbols for its variables."""
        import sympy

        return _replaced(typ, lambda t: sympy.symbols(str(t)) if isinstance(t, Var) else t)

    def refine_node(self, n: Node) -> Any:
        """Give one node a type with variables, and collect the equalities that it requires."""
        n.type = self.replace_dyn_with_fresh_var(Dyn if n.type is None else n.type)
        rule = self._rule_of(n, _REFINEMENT_RULES)
        if rule is not None:
            self.constraints += rule[0](n) or []
        return self._of_output(n)

    def infer_symbolic_relations(self, n: Node) -> Any:
        """Turn the sizes of one node into expressions."""
        n.type = self.convert_to_sympy_symbols(n.type)
        rule = self._rule_of(n, _RULES)
        if rule is not None:
            return rule[0](n, *rule[1])
        return self._of_output(n)

    def _rule_of(self, n: Node, table: dict[Any, Rule]) -> tuple[Rule, tuple[Any, ...]] | None:
        if n.op == "call_function" and n.target in table:
            return table[n.target], ()
        if n.op == "call_module":
            module = self.traced.get_submodule(n.target)
            if type(module) in table:
                return table[type(module)], (module,)
        return None

    @staticmethod
    def _of_output(n: Node) -> Any:
        if n.op != "output":
            return None
        n.type = map_arg(n.args[0], lambda used: used.type)
        return n.type


def _replaced(typ: Any, by: Callable[[Any], Any]) -> Any:
    """``typ`` with its parts replaced: sizes, and items of lists and tuples."""
    if isinstance(typ, TensorType):
        return TensorType(tuple(_replaced(size, by) for size in typ.dims))
    if isinstance(typ, list | tuple):
        return type(typ)(_replaced(item, by) for item in typ)
    return by(typ)


def get_parameter(traced: Any, target: str) -> torch.nn.Parameter:
    """The parameter, or other attribute, with this qualified name.

    Raises:
        AttributeError: there is none.
    """
    path, _, name = target.rpartition(".")
    owner = traced.get_submodule(path)
    if not hasattr(owner, name):
        raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
    return getattr(owner, name)
