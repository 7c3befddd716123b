"""Functions that programs may call, by their names in archives."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch

from corsac._pytorch.functions import BITWISE
from corsac.pt2._archive import Pt2ImportError

_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", re.ASCII)
#: Libraries whose operators are functions of tensors.
_LIBRARIES = ("aten", "prims", "quantized_decomposed", "torchvision", "corsac")
#: Operators on numbers only, which check them.
_CHECKS = {"_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"}
#: Functions of sizes.
_ON_SIZES: dict[str, Callable[..., Any]] = {
    f"_operator.{own.__name__}": own
    for own in (
        operator.eq, operator.ne, operator.le, operator.ge, operator.lt, operator.gt, operator.neg,
        operator.pos, operator.mul, operator.add, operator.sub, operator.floordiv, operator.mod,
        operator.pow, operator.truediv, operator.and_, operator.or_, operator.lshift, operator.rshift,
    )
} | {
    f"torch.{own.__name__}": own
    for own in (
        torch.sym_not, torch.sym_int, torch.sym_float, torch.sym_ite, torch.sym_max, torch.sym_min,
    )
} | {"math.trunc": math.trunc, "torch.sym_sqrt": torch.sym_sqrt, "torch._sym_sqrt": torch.sym_sqrt}  # fmt: skip


@functools.cache
def function_of(target: str, libraries: frozenset[str]) -> Callable[..., Any]:
    """The function with this name: an operator that PyTorch has registered, or a function of sizes.

    Args:
        target: the name.
        libraries: names of libraries whose operators may be called, besides those that are known.
    """
    if target in _ON_SIZES:
        return _ON_SIZES[target]
    found = _OPERATOR.fullmatch(target)
    if found is None:
        raise Pt2ImportError(f"the function {target} is not read")
    library, name, overload = found.groups()
    if library not in _LIBRARIES and library not in libraries:
        raise Pt2ImportError(f"operators of {library} are not read unless libraries names it")
    try:
        known = "" if overload == "default" else overload
        schema = torch._C._get_schema(f"{library}::{name}", known)
    except RuntimeError as error:
        raise Pt2ImportError(f"PyTorch has no operator {target}") from error
    if not _is_of_tensors(schema) and name not in _CHECKS:
        raise Pt2ImportError(f"{target} is no operator on tensors")
    function = getattr(getattr(getattr(torch.ops, library), name), overload)
    return BITWISE.get(function, function)


def _is_of_tensors(schema: Any) -> bool:
    if any(own.name == "filename" for own in schema.arguments):
        return False
    return any("Tensor" in str(own.type) for own in (*schema.arguments, *schema.returns))


__all__ = ["function_of"]
