"""Facts about configurations, observers and modules. The names are those of ``torch.ao.quantization.utils``."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from corsac.quantization import _dtypes
from corsac.quantization._kinds import is_a
from corsac.quantization._qparams import (
    PER_CHANNEL,
    PER_TENSOR,
    calculate_qmin_qmax,
    check_min_max_valid,
    determine_qparams,
    validate_qmin_qmax,
)
from corsac.quantization.quant_type import QuantType

__all__ = [
    "MatchAllNode",
    "NodePattern",
    "Pattern",
    "activation_dtype",
    "activation_is_dynamically_quantized",
    "activation_is_int8_quantized",
    "activation_is_int32_quantized",
    "activation_is_statically_quantized",
    "calculate_qmin_qmax",
    "check_min_max_valid",
    "check_node",
    "determine_qparams",
    "get_combined_dict",
    "get_fqn_to_example_inputs",
    "get_qconfig_dtypes",
    "get_qparam_dict",
    "get_quant_type",
    "get_swapped_custom_module_class",
    "getattr_from_fqn",
    "has_no_children_ignoring_parametrizations",
    "is_per_channel",
    "is_per_tensor",
    "op_is_int8_dynamically_quantized",
    "to_underlying_dtype",
    "validate_qmin_qmax",
    "weight_dtype",
    "weight_is_quantized",
    "weight_is_statically_quantized",
]

#: A module type, a function, the name of a method, or a tuple of such; tuples of nodes that match one.
Pattern = Any
NodePattern = Any


class MatchAllNode:
    """The part of a pattern that every node matches."""


# Operators that need nothing but the observer of their input, for check_node.
module_type_list = {
    nn.ReLU,
    nn.ReLU6,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.Identity,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Tanh,
}
func_list = {
    F.adaptive_avg_pool1d,
    F.adaptive_avg_pool2d,
    F.adaptive_avg_pool3d,
    F.elu,
    F.hardswish,
    F.instance_norm,
    F.layer_norm,
    F.leaky_relu,
    F.silu,
    F.mish,
    F.dropout,
    F.max_pool1d,
    F.max_pool2d,
    F.max_pool3d,
    F.relu,
    F.hardtanh,
    F.hardtanh_,
    F.hardsigmoid,
    F.sigmoid,
    torch.transpose,
    torch.repeat_interleave,
    torch.sigmoid,
    torch.squeeze,
    torch.stack,
    torch.sum,
    torch.tanh,
    torch.unsqueeze,
    torch.cat,
}
method_list = {
    torch.mean,
    *[
        "contiguous",
        "detach",
        "detach_",
        "hardsigmoid",
        "hardsigmoid_",
        "permute",
        "relu",
        "relu_",
        "repeat",
        "repeat_interleave",
        "reshape",
        "resize_",
        "shape",
        "sigmoid",
        "sigmoid_",
        "size",
        "squeeze",
        "squeeze_",
        "tanh",
        "tanh_",
        "transpose",
        "unsqueeze",
        "unsqueeze_",
        "view",
    ],
}


def check_node(node: Any, modules: dict[str, nn.Module]) -> tuple[bool, bool, bool]:
    """Whether a node calls one of the listed functions, methods and modules."""
    return (
        node.op == "call_function" and node.target in func_list,
        node.op == "call_method" and node.target in method_list,
        node.op == "call_module" and type(modules[str(node.target)]) in module_type_list,
    )


def get_combined_dict(
    default_dict: dict[Any, Any], additional_dict: dict[Any, Any]
) -> dict[Any, Any]:
    """Both dictionaries; the second one's values replace those of the first."""
    return {**default_dict, **additional_dict}


def is_per_tensor(qscheme: Any) -> bool:
    return qscheme in PER_TENSOR


def is_per_channel(qscheme: Any) -> bool:
    return qscheme in PER_CHANNEL


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """The attribute of a dotted name."""
    return functools.reduce(getattr, fqn.split("."), obj)


def to_underlying_dtype(qdtype: torch.dtype) -> torch.dtype:
    """The plain type in which the values of a quantised type are kept."""
    if qdtype not in _dtypes.UNDERLYING:
        raise AssertionError(f"unsupported dtype {qdtype}")
    return _dtypes.UNDERLYING[qdtype]


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """The parameters of an observer or a fake quantiser: dtype, qscheme, scale, zero_point, axis, limits.

    Symmetric schemes are given as affine ones. An observer without a range has ``qscheme`` None.
    """
    observer = observer_or_fake_quant
    qscheme = getattr(observer, "qscheme", None)
    if not qscheme or is_a(observer, "PlaceholderObserver"):
        return {"qscheme": None, "dtype": observer.dtype}
    qparams = {"qscheme": qscheme, "dtype": observer.dtype}
    if is_per_tensor(qscheme):
        qparams["qscheme"] = torch.per_tensor_affine
    elif is_per_channel(qscheme):
        if qscheme == torch.per_channel_symmetric:
            qparams["qscheme"] = torch.per_channel_affine
        qparams["axis"] = observer.ch_axis
    else:
        raise RuntimeError(f"unknown qscheme {qscheme}")
    qparams["scale"], qparams["zero_point"] = observer.calculate_qparams()
    for name in ("quant_min", "quant_max"):
        if hasattr(observer, name):
            qparams[name] = getattr(observer, name)
    return qparams


def get_swapped_custom_module_class(
    custom_module: nn.Module, custom_module_class_mapping: dict[Any, Any], qconfig: Any
) -> type[nn.Module]:
    """The class that a custom module is swapped for, in a mapping by kinds of quantisation."""
    mapping = custom_module_class_mapping.get(get_quant_type(qconfig), {})
    if type(custom_module) not in mapping:
        raise AssertionError(
            f"expected a class to swap {type(custom_module).__name__} for, got a mapping of "
            f"{[kind.__name__ for kind in mapping]}"
        )
    return mapping[type(custom_module)]


def get_qconfig_dtypes(qconfig: Any) -> tuple[Any, Any, bool]:
    """The types of activations and weights, and whether activations are quantised dynamically."""
    if qconfig is None:
        raise AssertionError("expected a qconfig, got None")
    activation = qconfig.activation()
    return activation.dtype, qconfig.weight().dtype, getattr(activation, "is_dynamic", False)


def activation_dtype(qconfig: Any) -> torch.dtype:
    if qconfig is None:
        raise AssertionError("expected a qconfig, got None")
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> torch.dtype:
    if qconfig is None:
        raise AssertionError("expected a qconfig, got None")
    return qconfig.weight().dtype


def activation_is_statically_quantized(qconfig: Any) -> bool:
    known = _dtypes.STATIC - {_dtypes.quint4x2} | {torch.float16}
    return activation_dtype(qconfig) in known and not activation_is_dynamically_quantized(qconfig)


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    return get_qconfig_dtypes(qconfig)[2]


def activation_is_int8_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in _dtypes.UINT8 | _dtypes.INT8


def activation_is_int32_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in _dtypes.INT32


def weight_is_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in _dtypes.STATIC - {_dtypes.qint32} | {torch.float16, torch.int32}


def weight_is_statically_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in _dtypes.UINT8 | _dtypes.INT8


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    activation, weight, dynamic = get_qconfig_dtypes(qconfig)
    return activation in _dtypes.UINT8 and weight in _dtypes.INT8 and dynamic


def get_quant_type(qconfig: Any) -> QuantType:
    """The kind of quantisation that the types of a configuration ask for."""
    activation, weight, dynamic = get_qconfig_dtypes(qconfig)
    if weight in _dtypes.STATIC:
        if dynamic:
            return QuantType.DYNAMIC
        return QuantType.STATIC if activation in _dtypes.STATIC else QuantType.WEIGHT_ONLY
    if weight == torch.float16:
        if dynamic:
            return QuantType.DYNAMIC
        if activation == torch.float16:
            return QuantType.STATIC
    raise ValueError(
        f"no kind of quantisation has activations of {activation} and weights of {weight}"
    )


def _parent_name(target: str) -> tuple[str, str]:
    """The name of the parent of a module, and its name there."""
    parent, _, name = target.rpartition(".")
    return parent, name


def has_no_children_ignoring_parametrizations(module: nn.Module) -> bool:
    """Whether a module has no other modules than its parametrisations."""
    return not module._modules or (
        is_parametrized(module) and module._modules.keys() == {"parametrizations"}
    )


def _get_path_of_module(root: nn.Module, submodule: nn.Module) -> str | None:
    """The dotted name of a module, None if it is not in ``root``."""
    return next((name for name, module in root.named_modules() if module is submodule), None)


def get_fqn_to_example_inputs(
    model: nn.Module, example_inputs: tuple[Any, ...]
) -> dict[str, tuple[Any, ...]]:
    """Run a model, and return what its modules are called with, by their names.

    Keyword arguments are put in their places, defaults are filled in. Of several calls the last one counts.
    """
    found: dict[str, tuple[Any, ...]] = {}

    def record(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            try:
                bound = inspect.signature(module.forward).bind(*args, **kwargs)
            except (TypeError, ValueError):  # the call fails, or has no signature
                found[name] = (*args, *kwargs.values())
                return
            bound.apply_defaults()
            found[name] = (*bound.args, *bound.kwargs.values())

        return hook

    handles = [
        module.register_forward_pre_hook(record(name), with_kwargs=True)
        for name, module in model.named_modules()
    ]
    try:
        model(*example_inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _assert_and_get_unique_device(module: nn.Module) -> torch.device | None:
    """The device of all parameters and buffers, None if there are none."""
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    if devices == {torch.device("cpu"), torch.device("meta")}:
        warnings.warn("the module has tensors on cpu and on meta, cpu is taken", stacklevel=2)
        return torch.device("cpu")
    if len(devices) > 1:
        raise AssertionError(f"expected a module on one device, got {sorted(map(str, devices))}")
    return next(iter(devices), None)
