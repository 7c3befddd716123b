"""Operators that write to their arguments, in programs that expose the writes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kit.operator_samples import entries, samples

#: In-place methods without samples of torch's own, with arguments for a tensor of three rows of four.
OTHER_METHODS: dict[str, tuple[Any, ...]] = {
    "as_strided_": ((2, 2), (4, 1)),
    "copy_": (torch.arange(4.0),),
    "detach_": (),
    "arctan2_": (torch.tensor(2.0),),
    "clip_": (-0.2, 0.2),
    "divide_": (2,),
    "erfinv_": (),
    "fill_": (3,),
    "fill_diagonal_": (2.0,),
    "greater_": (0,),
    "greater_equal_": (0,),
    "index_put_": ((torch.tensor([0, 2]),), torch.tensor(5.0)),
    "less_": (0,),
    "less_equal_": (0,),
    "masked_scatter_": (torch.tensor([True, False, True, False]), torch.arange(12.0)),
    "multiply_": (2,),
    "not_equal_": (0,),
    "put_": (torch.tensor([0, 5]), torch.tensor([1.0, 2.0])),
    "resize_": ((2, 2),),
    "set_": (torch.arange(6.0),),
    "squeeze_": (),
    "subtract_": (2,),
    "swapaxes_": (0, 1),
    "swapdims_": (0, 1),
    "t_": (),
    "transpose_": (0, -1),
    "unsqueeze_": (0,),
    "zero_": (),
    "__iadd__": (2,),
    "__imul__": (2,),
    "__isub__": (2,),
    "__itruediv__": (2,),
    "__ipow__": (2,),
    "__ifloordiv__": (2,),
    "__imod__": (2,),
}
#: Other names of methods with samples, and functions of one tensor.
OTHER_METHODS |= dict.fromkeys(
    [
        "absolute_",
        "arccos_",
        "arccosh_",
        "arcsin_",
        "arcsinh_",
        "arctan_",
        "arctanh_",
        "fix_",
        "negative_",
        "relu_",
    ],
    (),
)
#: Types of tensors written to.
DTYPES = (torch.float32, torch.int64, torch.bool, torch.int32)
#: Operators that use random numbers: PyTorch is called with the same seed.
RANDOM = {
    "bernoulli_": (0.5,),
    "cauchy_": (),
    "exponential_": (),
    "geometric_": (0.5,),
    "log_normal_": (),
    "normal_": (),
    "random_": (5,),
    "uniform_": (),
}
#: The same operators as functions of ``torch``.
FUNCTIONS = {"torch.zero_": (), "torch.fill_": (3,), "torch.relu_": (), "torch.neg_": ()}


@dataclass(frozen=True)
class Write:
    """A call that writes to its first argument.

    Attributes:
        name: the method, or the function.
        tensor: the tensor written to.
        rest: its other arguments, tensors among them.
        named: its keyword arguments.
    """

    name: str
    tensor: torch.Tensor
    rest: tuple[Any, ...]
    named: dict[str, Any]

    def __call__(self, written: Any, rest: Sequence[Any], named: dict[str, Any]) -> Any:
        if self.name.startswith("torch."):
            return getattr(torch, self.name.removeprefix("torch."))(written, *rest, **named)
        return getattr(written, self.name)(*rest, **named)


def writes(limit: int, dtypes: Sequence[torch.dtype] = DTYPES) -> Iterator[Write]:
    """One or more calls of each in-place operator: up to ``limit`` samples of each element type that torch has."""
    for op in entries():
        method = op.inplace_variant
        name = getattr(method, "__name__", "")
        if not name.endswith("_") or not hasattr(torch.Tensor, name):
            continue
        for dtype in dtypes:
            for sample in samples(op, dtype, limit):
                if isinstance(sample.input, torch.Tensor):
                    yield Write(name, sample.input, tuple(sample.args), dict(sample.kwargs))
    torch.manual_seed(3)
    for name, rest in (OTHER_METHODS | RANDOM | FUNCTIONS).items():
        yield Write(name, torch.rand(3, 4) - 0.5, rest, {})


def methods() -> set[str]:
    """The names of the methods that :func:`writes` calls."""
    sampled = {getattr(op.inplace_variant, "__name__", "") for op in entries()}
    return sampled | OTHER_METHODS.keys() | RANDOM.keys()


def all_in_place_methods() -> set[str]:
    """The in-place methods of PyTorch's tensors."""
    names = {name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_")}
    # Not on elements: gradients, names, other layouts and devices; and pickling.
    return names - {
        "align_",
        "apply_",
        "coalesce_",
        "map_",
        "map2_",
        "rename_",
        "requires_grad_",
        "resize_as_sparse_",
        "share_memory_",
        "sparse_resize_",
        "sparse_resize_and_clear_",
    }


def on_value(write: Write, x: Any, rest: Sequence[Any], named: dict[str, Any]) -> Any:
    """A write to a value made by the program."""
    y = torch.clone(x)
    returned = write(y, rest, named)
    return y.clone(), returned.clone()


def on_value_read_before(write: Write, x: Any, rest: Sequence[Any], named: dict[str, Any]) -> Any:
    """A value read before a write is not changed by it, and a view of it is."""
    y = torch.clone(x)
    before, shown = y.clone(), y.view_as(y)
    write(y, rest, named)
    return before.clone(), shown.clone(), y.clone()


def on_view(write: Write, x: Any, rest: Sequence[Any], named: dict[str, Any]) -> Any:
    """A write to a part of a value, which is read as a whole."""
    y = torch.stack([x, x])
    write(y[1], rest, named)
    return y.clone()


def on_reshaped(write: Write, x: Any, rest: Sequence[Any], named: dict[str, Any]) -> Any:
    """A write to a view or a copy, depending on strides."""
    y = torch.clone(x)
    write(y.reshape(x.shape), rest, named)
    return y.clone()


def on_input(write: Write, x: Any, rest: Sequence[Any], named: dict[str, Any]) -> Any:
    """A write to an input."""
    returned = write(x, rest, named)
    return x.clone(), returned.clone()


PLACES: tuple[Callable[..., Any], ...] = (
    on_value,
    on_value_read_before,
    on_view,
    on_reshaped,
    on_input,
)


class Program:
    """A function of tensors with a write somewhere; its tensors are in the order of :attr:`inputs`."""

    def __init__(self, write: Write, place: Callable[..., Any]) -> None:
        self.write, self.place = write, place
        leaves, self._spec = pytree.tree_flatten((write.tensor, write.rest, write.named))
        self._leaves = leaves
        self.inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, *given: Any) -> Any:
        rest = iter(given)
        full = [next(rest) if isinstance(own, torch.Tensor) else own for own in self._leaves]
        x, others, named = pytree.tree_unflatten(full, self._spec)
        return self.place(self.write, x, others, named)

    def function(self) -> Callable[..., Any]:
        """The same function with explicit parameters, for tracers."""
        names = ", ".join(f"x{number}" for number in range(len(self.inputs)))
        return eval(f"lambda {names}: call({names})", {"call": self})

    def __str__(self) -> str:
        sizes = [f"{own.dtype}{list(own.shape)}" for own in self.inputs]
        return (
            f"{self.write.name} {self.place.__name__} {sizes} {self.write.rest} {self.write.named}"
        )


class Holder(torch.nn.Module):
    """A program of one tensor that writes to an attribute, a buffer."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.register_buffer("own", program.inputs[0].clone())

    def forward(self) -> Any:
        return self.program(self.own)


@dataclass(frozen=True)
class Ran:
    """Outcome of a call: its results and inputs afterwards, or its exception."""

    values: tuple[torch.Tensor, ...] | None
    inputs: tuple[torch.Tensor, ...] = ()
    error: str = ""


def ran(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Ran:
    """A call with copies of ``inputs``, with the same strides."""
    given = [copy.deepcopy(own) for own in inputs]
    torch.manual_seed(7)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            values = function(*given)
        except Exception as error:
            return Ran(None, error=f"{type(error).__name__}: {error}")
    leaves = [own for own in pytree.tree_leaves(values) if isinstance(own, torch.Tensor)]
    return Ran(tuple(leaves), tuple(given))


def difference(own: Ran, expected: Ran) -> str | None:
    """The difference of a call from eager's; None if there is none."""
    if own.values is None or expected.values is None:
        if own.values is expected.values:
            return None
        return f"raised {own.error!r}, eager {expected.error!r}"
    for what in ("values", "inputs"):
        mine, eager = getattr(own, what), getattr(expected, what)
        if len(mine) != len(eager):
            return f"{len(mine)} {what}, not {len(eager)}"
        for number, (a, b) in enumerate(zip(mine, eager, strict=True)):
            if a.dtype != b.dtype or a.shape != b.shape:
                return f"{what}[{number}]: {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
            if not torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"{what}[{number}]: {a.flatten()[:6]}, not {b.flatten()[:6]}"
    return None
