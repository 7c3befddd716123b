"""Kinds of modules and classes, of this package and of ``torch.ao``.

Programs may mix the two: a class of this package and the class of the same name of ``torch.ao.quantization`` or
``torch.ao.nn`` are of one kind. Nothing here imports ``torch.ao``.
"""

from __future__ import annotations

from typing import Any

from torch import nn

_PACKAGES = ("corsac.quantization", "torch.ao.quantization", "torch.ao.nn", "torchao.quantization")


def is_quantizable(kind: type[nn.Module]) -> bool:
    """Whether a class is, or derives from, one of ``quantizable``, which has observers of its own."""
    return any(
        base.__module__.startswith(("torch.ao.nn.quantizable", "corsac.quantization.quantizable"))
        for base in kind.__mro__
    )


def is_a(value: Any, *names: str) -> bool:
    """Whether ``value``, a class or an instance, is or derives from a class of one of these names."""
    kind = value if isinstance(value, type) else type(value)
    return any(
        base.__name__ in names and base.__module__.startswith(_PACKAGES) for base in kind.__mro__
    )


def same_class(left: Any, right: Any) -> bool:
    """Whether two callables are equal, or classes of the same name of this package and of ``torch.ao``."""
    if left == right:
        return True
    return (
        isinstance(left, type)
        and isinstance(right, type)
        and left.__name__ == right.__name__
        and left.__module__.startswith(_PACKAGES)
        and right.__module__.startswith(_PACKAGES)
        and left.__module__.split(".")[0] != right.__module__.split(".")[0]
    )


def _place(kind: type) -> str:
    """The package of a class in ``torch.ao.nn``, ``torch.ao.quantization`` or here: "qat", "intrinsic.qat"."""
    name = kind.__module__
    for package in _PACKAGES:
        name = name.removeprefix(f"{package}.")
    return name.partition(".modules")[0].partition(".functional_modules")[0]


def same_place(left: Any, right: Any) -> bool:
    """Whether two classes are of the same name and of the same package, here and in ``torch.ao``."""
    return same_class(left, right) and (left is right or _place(left) == _place(right))


def is_fake_quantize(module: Any) -> bool:
    """Whether ``module`` rounds values to those of a quantised type: it can switch that and its observer off."""
    return isinstance(module, nn.Module) and all(
        callable(getattr(module, name, None))
        for name in ("enable_fake_quant", "enable_observer", "calculate_qparams")
    )


def is_observer(module: Any) -> bool:
    """Whether ``module`` records values and passes them on: it has quantisation parameters and no switches."""
    return (
        isinstance(module, nn.Module)
        and callable(getattr(module, "calculate_qparams", None))
        and not is_fake_quantize(module)
    )


def is_activation_post_process(module: Any) -> bool:
    """Whether ``module`` is an observer or a fake quantiser."""
    return isinstance(module, nn.Module) and callable(getattr(module, "calculate_qparams", None))
