"""Samples of torch's own operator tests, run on the engine and by PyTorch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import corsac
from corsac import _core, fx

#: Element types that the engine supports.
DTYPES = (torch.float32, torch.int64, torch.bool)
#: Relative and absolute tolerance by kind of operator, with the operators of the kind. Sums are computed in
#: another order than PyTorch's, and functions such as ``exp`` are different approximations.
TOLERANCES = {
    "exact": (0.0, 0.0),
    "elementwise": (1e-5, 1e-6),
    "sums": (1e-4, 1e-5),
}
EXACT = frozenset(
    [
        "add",
        "sub",
        "mul",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_not",
        "where",
        "masked_fill",
        "permute",
        "transpose",
        "t",
        "reshape",
        "view",
        "expand",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "cat",
        "stack",
        "hstack",
        "vstack",
        "dstack",
        "column_stack",
        "chunk",
        "split",
        "split_with_sizes",
        "tensor_split",
        "unbind",
        "narrow",
        "select",
        "roll",
        "flip",
        "fliplr",
        "flipud",
        "repeat",
        "tile",
        "repeat_interleave",
        "movedim",
        "tril",
        "triu",
        "gather",
        "index_select",
        "take",
        "take_along_dim",
        "nn.functional.pad",
        "nn.functional.embedding",
        "nn.functional.relu",
        "abs",
        "neg",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "clamp",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "sort",
        "topk",
        "msort",
        "argsort",
        "max",
        "min",
        "any",
        "all",
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "clone",
        "contiguous",
        "diagonal",
        "unfold",
    ]
)
#: Operators for which the order of equal elements is not defined.
ORDERING = frozenset(
    ["argsort", "sort", "topk", "msort", "kthvalue", "median", "nanmedian", "mode"]
)
ELEMENTWISE = frozenset(
    [
        "div",
        "pow",
        "rsqrt",
        "sqrt",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "sigmoid",
        "erf",
        "reciprocal",
        "square",
        "addcmul",
        "addcdiv",
        "lerp",
        "atan2",
        "hypot",
        "remainder",
        "fmod",
        "floor_divide",
        "frac",
        "deg2rad",
        "rad2deg",
    ]
)


def kind(name: str) -> str:
    """The kind of operator, for the tolerance."""
    if name in EXACT:
        return "exact"
    return "elementwise" if name in ELEMENTWISE else "sums"


@dataclass
class Outcome:
    """Results for the samples of an operator."""

    name: str
    native: int = 0
    #: Reasons why the engine left samples to PyTorch, with their numbers.
    host: dict[str, int] = field(default_factory=dict)
    #: Samples whose results differ, or that only raise on the engine.
    failing: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        return self.native + sum(self.host.values()) + len(self.failing)


def entries() -> Iterator[Any]:
    """The operators, in order, with a separate entry per variant."""
    yield from sorted(op_db, key=lambda op: (op.name, op.variant_test_name))


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def run(op: Any, limit: int) -> Outcome:
    """Run up to ``limit`` samples of each element type."""
    outcome = Outcome(full_name(op))
    for dtype in DTYPES:
        if op.name in ORDERING and dtype is not torch.float32:
            continue
        for sample in samples(op, dtype, limit):
            _try(op, sample, outcome)
    return outcome


def samples(op: Any, dtype: torch.dtype, limit: int, requires_grad: bool = False) -> list[Any]:
    """Up to ``limit`` samples of an element type, the same in each call; their tensors may require gradients."""
    found: list[Any] = []
    if dtype not in op.dtypes or op.name.startswith(("empty", "new_empty")):
        return found
    torch.manual_seed(0)
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
            found.append(sample)
            if len(found) == limit:
                break
    return found


class Call:
    """The call of a sample, as a function of its tensors.

    Attributes:
        function: the called function.
        tensors: the tensors among its arguments.
    """

    def __init__(self, op: Any, sample: Any) -> None:
        self.function = op.op
        self._leaves, self._spec = pytree.tree_flatten(
            ((sample.input, *sample.args), sample.kwargs)
        )
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def arguments(self, given: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with ``given`` in place of the tensors."""
        rest = iter(given)
        full = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(full, self._spec)

    def __call__(self, *given: Any) -> Any:
        args, kwargs = self.arguments(given)
        return self.function(*args, **kwargs)

    def traced(self) -> fx.GraphModule:
        """The call as a graph of operators.

        Raises:
            ValueError: the graph would not contain the call.
        """
        if self.tensors:
            tracer = fx.Tracer()
            names = ", ".join(f"x{i}" for i in range(len(self.tensors)))
            graph = tracer.trace(eval(f"lambda {names}: call({names})", {"call": self}))
            return fx.GraphModule(tracer.root, graph)
        # A tracer would compute the tensor immediately.
        if getattr(self.function, "__name__", "<lambda>") == "<lambda>":
            raise ValueError("a lambda has no name to be called by")
        graph = fx.Graph()
        graph.output(graph.call_function(self.function, *self.arguments(())))
        return fx.GraphModule(torch.nn.Module(), graph)


def described(sample: Any, call: Call, error: object) -> str:
    """A sample and its error."""
    shapes = ", ".join(f"{t.dtype}{list(t.shape)}" for t in call.tensors)
    return f"({shapes}) {sample.args} {sample.kwargs}: {' '.join(str(error).split())[:300]}"


def _try(op: Any, sample: Any, outcome: Outcome) -> None:
    call = Call(op, sample)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = call(*(tensor.clone() for tensor in call.tensors))
        except Exception:
            return
        try:
            found = program(call)(*call.tensors)
            rtol, atol = TOLERANCES[kind(op.name)]
            _compare(found, expected, rtol, atol)
            outcome.native += 1
        except Left as left:
            reason = str(left)
            outcome.host[reason] = outcome.host.get(reason, 0) + 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic is not an Exception
            outcome.failing.append(described(sample, call, error))


class Left(Exception):
    """The engine leaves a call to PyTorch."""


def program(call: Call) -> Any:
    """The call as a program of the engine."""
    from corsac._native.call import NativeCall

    try:
        module = call.traced()
    except Exception as error:
        raise Left(f"not traced: {type(error).__name__}") from error
    try:
        return NativeCall(_core.compile_graph(module.graph, tuple(call.tensors)))
    except corsac.CompileError as error:
        raise Left(_short(str(error))) from error
    except _core.ShapeInferenceError as error:
        raise Left(f"types: {_short(str(error))}") from error


def _short(text: str) -> str:
    reason = text.split("cannot be compiled: ")[-1].splitlines()[0]
    return reason if len(reason) < 80 else reason[:77] + "..."


def _compare(found: Any, expected: Any, rtol: float, atol: float) -> None:
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected), f"{len(found)} results, not {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape, f"{list(one.shape)}, not {list(other.shape)}"
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)
