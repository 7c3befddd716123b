"""The patterns of a backend: which calls it fuses and quantises, and in which element types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from corsac.quantization._dtypes import quantised
from corsac.quantization._kinds import is_a
from corsac.quantization._requests import DescribedPattern, Numbered, dtype_name


def entries(backend: Any) -> Iterator[tuple[Any, Any]]:
    """The entries of a backend, each with its pattern: a call before the patterns of its arguments."""
    known = getattr(backend, "_pattern_complex_format_to_config", None)
    if known is not None:
        yield from known.items()
        return
    for config in backend.configs:
        yield _reversed(config), config


def _reversed(config: Any) -> Any:
    given = getattr(config, "_pattern_complex_format", None)
    if given is not None:
        return given
    pattern = config.pattern
    if not isinstance(pattern, tuple):
        return pattern
    nested, *rest = pattern
    for call in rest:
        nested = (call, nested)
    return nested


class _Leaf:
    """A call of a pattern, in a copy of the pattern that functions of a backend pick calls from."""


def _mirror(pattern: Any, leaves: list[_Leaf]) -> Any:
    if isinstance(pattern, tuple):
        return tuple(_mirror(inner, leaves) for inner in pattern)
    leaves.append(_Leaf())
    return leaves[-1]


def nested(pattern: Any, values: list[Any]) -> Any:
    """``values``, one for each call of a pattern, in the form of the pattern."""
    remaining = iter(values)

    def build(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(build(inner) for inner in part)
        return next(remaining)

    return build(pattern)


def _picked(
    pattern: Any, getter: Callable[[Any], Any] | None, config: Any, purpose: str
) -> list[int]:
    """The places of the calls that a function of a backend picks."""
    leaves: list[_Leaf] = []
    mirror = _mirror(pattern, leaves)
    if getter is None:
        return []
    try:
        picked = getter(mirror)
        picked = [*picked] if isinstance(picked, (list, tuple)) else [picked]
        return [next(at for at, leaf in enumerate(leaves) if leaf is one) for one in picked]
    except Exception as error:
        raise ValueError(
            f"{purpose} of the backend's pattern {config.pattern} does not follow from the pattern alone: {error!r}"
        ) from error


def _length(pattern: Any) -> int:
    return sum(map(_length, pattern)) if isinstance(pattern, tuple) else 1


def describe(pattern: Any, config: Any, dtypes: Numbered) -> DescribedPattern:
    """An entry of a backend for the native passes; ``dtypes`` collects its element types."""
    getter = getattr(config, "_root_node_getter", None)
    root = _picked(pattern, getter, config, "the root") or [_length(pattern) - 1]
    extra = _picked(
        pattern, getattr(config, "_extra_inputs_getter", None), config, "further inputs"
    )
    places = getattr(config, "_input_type_to_index", None) or {}
    by_tensors = getattr(config, "_num_tensor_args_to_observation_type", None) or {}
    return DescribedPattern(
        pattern=pattern,
        root=root[0],
        extra=extra,
        observation=config.observation_type.value,
        by_tensors={count: kind.value for count, kind in by_tensors.items()},
        dtypes=[
            number for one in config.dtype_configs if (number := dtypes.number(one)) is not None
        ],
        weight=places.get("weight"),
        bias=places.get("bias"),
        config=config,
    )


def described_dtypes(config: Any) -> tuple[str | None, str | None, str | None, str | None, bool]:
    """The element types of input, output, weight and bias, and whether they are dynamic."""
    return (
        dtype_name(config.input_dtype),
        dtype_name(config.output_dtype),
        dtype_name(config.weight_dtype),
        dtype_name(config.bias_dtype),
        bool(config.is_dynamic),
    )


#: The values that a backend's bounds are for: the attribute of the bounds, and the observer that has to keep them.
_BOUNDED = {
    "input": ("input_dtype_with_constraints", "activation"),
    "output": ("output_dtype_with_constraints", "activation"),
    "weight": ("weight_dtype_with_constraints", "weight"),
}


def broken_bounds(qconfig: Any, config: Any) -> Iterator[tuple[str, str]]:
    """The bounds of element types that a configuration does not keep: what they are for, and the reason."""
    for bounded, (attribute, part) in _BOUNDED.items():
        bounds = getattr(config, attribute)
        constructor = getattr(qconfig, part)
        if bounds.dtype is None or constructor is None:
            continue
        observer = constructor()
        if quantised(observer.dtype) == quantised(bounds.dtype):
            reason = _broken(observer, bounds)
            if reason is not None:
                yield bounded, reason


def _broken(observer: Any, bounds: Any) -> str | None:
    inner = getattr(observer, "activation_post_process", observer)
    smallest, largest = getattr(inner, "quant_min", None), getattr(inner, "quant_max", None)
    low, high = bounds.quant_min_lower_bound, bounds.quant_max_upper_bound
    if low is not None and high is not None:
        if smallest is None or largest is None:
            return "it has no quant_min and quant_max"
        if smallest < low or largest > high:
            return f"it quantises to {smallest} to {largest}, the backend to {low} to {high}"
    step = bounds.scale_min_lower_bound
    if step is not None:
        eps = getattr(inner, "eps", None)
        if eps is None:
            return "it has no eps"
        if eps < step:
            return f"its eps is {float(eps)}, the backend's smallest scale {step}"
    scale, zero_point = bounds.scale_exact_match, bounds.zero_point_exact_match
    if scale is not None and zero_point is not None:
        if not is_a(observer, "FixedQParamsObserver", "FixedQParamsFakeQuantize"):
            return (
                "the operator has a fixed scale and zero point, and it is no FixedQParamsObserver"
            )
        if inner.scale != scale or inner.zero_point != zero_point:
            return (
                f"its scale is {float(inner.scale)} and its zero point {int(inner.zero_point)}, the backend's "
                f"{scale} and {zero_point}"
            )
    return None


def is_supported(qconfig: Any, configs: list[Any]) -> bool:
    """Whether a backend computes a layer in the element types of a configuration."""
    observer = qconfig.activation()
    dynamic = bool(getattr(observer, "is_dynamic", False))
    activation, weight = (
        quantised(getattr(one, "dtype", torch.float32)) for one in (observer, qconfig.weight())
    )
    halves = activation == weight == torch.float16
    for config in configs:
        given = [
            quantised(getattr(config, name)) or torch.float32
            for name in ("input_dtype", "output_dtype", "weight_dtype", "bias_dtype")
        ]
        if config.is_dynamic:
            wanted = [activation, torch.float32, weight, given[3]]
            matches = dynamic and given == wanted
        else:
            bias = torch.float16 if halves else torch.float32
            matches = given == [activation, activation, weight, bias]
        if matches:
            return True
    return False
