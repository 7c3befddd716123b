"""Lowered parts as submodules, and the check of a lowered program's inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from corsac._models.placed_inputs import leaves
from corsac._pytorch.unhooked import UnhookedModule
from corsac.analysis import Dim
from corsac.lowering._backend import LoweringError
from corsac.lowering._preview import shown
from corsac.onnx._translate import UNKNOWN
from corsac.onnx._types import TensorType, Unsupported, compute_dim

_ARITHMETIC = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
}


class LoweredPart(UnhookedModule):
    """Calls the function that a backend compiled from a part.

    Results are new tensors without autograd history. Copies share the compiled function; pickling is
    refused, since the function exists in this process only.
    """

    def __init__(self, name: str, backend: str, function: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.backend = name, backend
        self.function = function
        self.training = False

    def forward(self, *arguments: Any) -> Any:
        with torch.no_grad():
            return self.function(*arguments)

    def train(self, mode: bool = True) -> LoweredPart:
        if mode:
            raise LoweringError(f"{self.name} was lowered for evaluation and cannot be trained")
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LoweredPart:
        copy = LoweredPart(self.name, self.backend, self.function)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self.name} holds what {self.backend} has made in this process and cannot be "
            "pickled: pickle the model and lower it again, or write it with corsac.onnx.to_onnx"
        )

    def extra_repr(self) -> str:
        return self.backend


class InputCheck:
    """Checks that a lowered program is called with inputs of the types it was lowered for.

    It is a forward pre-hook. Sizes may have become constants of the program, so that other sizes would
    give wrong results rather than errors.
    """

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[Any],
        defaults: Mapping[str, Any],
        parameters: Sequence[str] | None,
    ) -> None:
        self.names, self.types, self.defaults = list(names), list(types), dict(defaults)
        #: The parameters of the program, where its inputs are the leaves of their values.
        self.parameters = parameters

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del module
        if self.parameters is not None:
            args, kwargs = leaves(self.parameters, args, kwargs), {}
        symbols: dict[str, int] = {}
        given = self.defaults | dict(zip(self.names, args, strict=False)) | kwargs
        pending = []
        for name, type_ in zip(self.names, self.types, strict=True):
            if name in given:
                pending.append((name, type_, given[name]))
        for name, type_, value in pending:
            _check(name, type_, value, symbols)
        for name, type_, value in pending:
            _check_sums(name, type_, value, symbols)


def _check(name: str, type_: Any, value: Any, symbols: dict[str, int]) -> None:
    if type_ is UNKNOWN:
        # No part reads it.
        return
    if isinstance(type_, TensorType):
        expected = shown(type_)
        if not isinstance(value, torch.Tensor):
            raise LoweringError(f"{name}: lowered for {expected}, got a {type(value).__name__}")
        got = shown(TensorType(value.dtype, tuple(value.shape)))
        if value.dtype != type_.dtype or len(value.shape) != len(type_.shape):
            raise LoweringError(f"{name}: lowered for {expected}, got {got}")
        if value.device.type != "cpu":
            raise LoweringError(
                f"{name}: lowered for tensors on the CPU, got one on {value.device}"
            )
        for size, actual in zip(type_.shape, value.shape, strict=True):
            if isinstance(size, int):
                fits = size == actual
            elif str(size).isidentifier():
                # A symbol stands for any size of at least 2.
                fits = actual >= 2 and symbols.setdefault(str(size), actual) == actual
            else:
                fits = True
            if not fits:
                meaning = "" if isinstance(size, int) else f" ({size} is {_meaning(size, symbols)})"
                raise LoweringError(f"{name}: lowered for {expected}, got {got}{meaning}")
    elif isinstance(type_, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(type_):
            raise LoweringError(f"{name}: lowered for {shown(type_)}, got a {type(value).__name__}")
        for at, (item, own) in enumerate(zip(value, type_, strict=True)):
            _check(f"{name}[{at}]", own, item, symbols)
    elif isinstance(type_, dict):
        if not isinstance(value, dict) or value.keys() != type_.keys():
            raise LoweringError(f"{name}: lowered for another dictionary")
        for key, own in type_.items():
            _check(f"{name}[{key!r}]", own, value[key], symbols)
    elif isinstance(type_, Dim):
        if isinstance(value, bool) or not isinstance(value, int):
            raise LoweringError(f"{name}: lowered for a size, got a {type(value).__name__}")
    elif type(value) is not type(type_) or (type_ != value and type_ == type_):
        raise LoweringError(f"{name}: lowered for {type_!r}, got {value!r}")


def _meaning(size: Dim, symbols: dict[str, int]) -> str:
    known = symbols.get(str(size))
    return "any size from 2" if known is None else f"{known} here, and 2 at least"


def _check_sums(name: str, type_: Any, value: Any, symbols: dict[str, int]) -> None:
    """Check sizes that are expressions over symbols."""
    if not isinstance(type_, TensorType):
        return
    for size, actual in zip(type_.shape, value.shape, strict=True):
        if isinstance(size, int) or str(size).isidentifier():
            continue
        try:
            wanted = compute_dim(
                size, symbols.__getitem__, lambda kind, a, b: _ARITHMETIC[kind](a, b), int
            )
        except (KeyError, Unsupported):
            continue
        if wanted != actual:
            raise LoweringError(f"{name}: the size {size} is {wanted} here, got {actual}")
