"""The casts of autocast as nodes of recorded programs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from corsac import _core
from corsac._capture.refusal import UnknownObject
from corsac._pytorch.aten import tensors_in
from corsac._pytorch.autocast import autocast_dtype
from corsac._pytorch.functions import name_of, target_of

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder

#: Targets of attributes and of item assignment, which autocast has nothing to do with.
_AS_THEY_ARE = frozenset([getattr, operator.setitem])


class Autocasts:
    """Makes the casts that autocast would make for functions called by a recorded program.

    Each is a recorded call of ``to``, so that the function itself needs no casts any more.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def cast(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a function after the casts of autocast.

        Raises:
            UnknownObject: it is not known which those are.
        """
        dtype = autocast_dtype()
        target = None if dtype is None else target_of(func, name)
        if target is None or target[1] in _AS_THEY_ARE:
            return args, kwargs
        precision = _core.precision_in_autocast(*target[:2])
        if precision is None:
            return args, kwargs
        if precision == "unknown" or kwargs.get("out") is not None:
            raise UnknownObject(f"{name_of(func)} is called in autocast")
        given = {own.dtype for own in tensors_in(args, kwargs) if _is_cast(own)}
        if precision == "widest":
            if not given <= {torch.float32, dtype}:
                raise UnknownObject(f"{name_of(func)} is called in autocast for other types")
            dtype = torch.float32 if torch.float32 in given else dtype
        elif precision == "single":
            dtype = torch.float32
        elif precision == "lower products" and not self._multiplies(func, args, kwargs):
            return args, kwargs
        if given <= {dtype}:
            return args, kwargs
        with self._recorder:
            return self._as_type(args, dtype), self._as_type(kwargs, dtype)

    def _multiplies(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a function without effects multiplies matrices, which autocast casts."""
        unwatched = torch._C._DisableTorchDispatch()
        try:
            return bool(func(*args, **kwargs).dtype == autocast_dtype())
        finally:
            del unwatched

    def refuse_inner(self, func: Any, name: str) -> None:
        """Refuse the program if an operator, which a function of this name calls, is a cast of autocast."""
        if (
            func is torch.ops.aten._to_copy.default
            and autocast_dtype() is not None
            and "conversion" not in _core.operator_classes("call_method", name)
        ):
            self._recorder.refuse(f"autocast casts in {name}")

    def _as_type(self, own: Any, dtype: torch.dtype | None) -> Any:
        if isinstance(own, torch.Tensor):
            return own.to(dtype) if _is_cast(own) and own.dtype != dtype else own
        if type(own) in (tuple, list):
            return type(own)(self._as_type(part, dtype) for part in own)
        if type(own) is dict:
            return {key: self._as_type(part, dtype) for key, part in own.items()}
        return own


def _is_cast(own: torch.Tensor) -> bool:
    return own.is_floating_point() and own.dtype != torch.float64 and own.device.type == "cpu"


__all__ = ["Autocasts"]
