"""Quantisation of models without a graph: module by module. The names are those of ``torch.ao.quantization.quantize``.

Example::

    model.qconfig = get_default_qconfig("x86")
    prepared = prepare(model.eval())
    for batch in batches:
        prepared(batch)
    quantised = convert(prepared)
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from corsac.quantization import _dtypes, qconfig
from corsac.quantization._finite import infinite_numbers, infinite_parameter
from corsac.quantization._kinds import is_a, is_activation_post_process
from corsac.quantization._observation import add_observers, observer_hooks, remove_observers
from corsac.quantization._unmatched import unknown_modules, unknown_types
from corsac.quantization.quantization_mappings import (
    LEFT_AS_FLOATS,
    OBSERVED_MODULES,
    OBSERVED_TO_QUANTIZED,
    counterpart,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    get_default_static_quant_reference_module_mappings,
    own_class,
)
from corsac.quantization.stubs import QuantWrapper
from corsac.quantization.utils import (
    get_qparam_dict,
    has_no_children_ignoring_parametrizations,
)

__all__ = [
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "get_default_custom_config_dict",
    "is_activation_post_process",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
]

#: The configurations of :func:`quantize_dynamic` by type: of weights, and the layers that have them by default.
_RECURRENT = (nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell)
_DYNAMIC: dict[torch.dtype, tuple[Any, tuple[type[nn.Module], ...]]] = {
    **dict.fromkeys(_dtypes.INT8, (qconfig.per_channel_dynamic_qconfig, (nn.Linear, *_RECURRENT))),
    torch.float16: (qconfig.float16_dynamic_qconfig, (nn.Linear, *_RECURRENT)),
    **dict.fromkeys(
        _dtypes.UINT8, (qconfig.float_qparams_weight_only_qconfig, (nn.EmbeddingBag, nn.Embedding))
    ),
    _dtypes.quint4x2: (qconfig.float_qparams_weight_only_qconfig_4bit, (nn.EmbeddingBag,)),
}


def get_default_custom_config_dict() -> dict[str, dict[type, type]]:
    """The custom modules of :func:`prepare` and :func:`convert`: LSTM and attention."""
    return {
        "float_to_observed_custom_module_class": dict(OBSERVED_MODULES),
        "observed_to_quantized_custom_module_class": dict(OBSERVED_TO_QUANTIZED),
    }


def default_eval_fn(model: nn.Module, calib_data: Iterable[Any]) -> None:
    """Run a model on the inputs of a data set of inputs and targets."""
    for data, _ in calib_data:
        model(data)


def propagate_qconfig_(
    module: nn.Module,
    qconfig_dict: dict[Any, Any] | None = None,
    prepare_custom_config_dict: dict[str, Any] | None = None,
) -> None:
    """Give each module a ``qconfig``: its own, or that of its name, of its type, of its parent, or None.

    Args:
        module: the model, which is changed.
        qconfig_dict: configurations by types and by names of modules.
        prepare_custom_config_dict: "non_traceable_module_name" and "non_traceable_module_class" have modules that are
            left alone.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.propagate_qconfig_.html
    """
    custom = prepare_custom_config_dict or {}
    names = custom.get("non_traceable_module_name", [])
    classes = custom.get("non_traceable_module_class", [])

    def propagate(module: nn.Module, path: str, inherited: Any) -> None:
        configs = qconfig_dict or {}
        own = configs.get(type_before_parametrizations(module), inherited)
        own = getattr(module, "qconfig", configs.get(path, own))
        qconfig._assert_valid_qconfig(own, module)
        own = qconfig._add_module_to_qconfig_obs_ctr(own, module)
        module.qconfig = own
        for name, child in module.named_children():
            if name not in names and type(child) not in classes:
                propagate(child, f"{path}.{name}" if path else name, own)

    propagate(module, "", None)


def add_quant_dequant(module: nn.Module) -> nn.Module:
    """The module with each leaf that has a ``qconfig`` in a ``QuantWrapper``; it is changed, or wrapped itself.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.add_quant_dequant.html
    """
    if has_no_children_ignoring_parametrizations(module) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        module._modules[name] = add_quant_dequant(child)
    return module


def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: dict[str, Any] | None = None,
) -> nn.Module:
    """A copy of a model with observers of the results of its layers, for calibration.

    A layer is observed with its ``qconfig``, or that of a module around it. LSTM and attention become those of
    :mod:`corsac.quantization.quantizable`; ``nn.RNN`` and ``nn.GRU`` stay floats.

    Args:
        model: the model.
        inplace: changes ``model`` itself.
        allow_list: the classes of modules that are observed, those that can be quantised if not given.
        observer_non_leaf_module_list: classes of modules with modules in them that are observed.
        prepare_custom_config_dict: "float_to_observed_custom_module_class" has observed classes by classes.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.prepare.html
    """
    custom = (prepare_custom_config_dict or get_default_custom_config_dict()).get(
        "float_to_observed_custom_module_class", {}
    )
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    if not any(getattr(module, "qconfig", None) for module in model.modules()):
        warnings.warn(
            "no module has a qconfig, nothing is observed: set the attribute qconfig of the model, or of modules in it",
            stacklevel=2,
        )
    wrong = infinite_parameter(model)
    if wrong:
        warnings.warn(wrong, stacklevel=2)
    classes = get_default_qconfig_propagation_list() if allow_list is None else set(allow_list)
    left = add_observers(model, classes, set(observer_non_leaf_module_list or ()), custom)
    if left:
        warnings.warn(
            f"modules that stay floats: {', '.join(left)}; quantize_dynamic quantises recurrent layers",
            stacklevel=2,
        )
    return model


def prepare_qat(
    model: nn.Module, mapping: dict[Any, Any] | None = None, inplace: bool = False
) -> nn.Module:
    """A copy of a model for training: layers quantise their weights, and their results are fake-quantised.

    Args:
        model: the model, in training mode.
        mapping: classes for training by classes.
        inplace: changes ``model`` itself.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.prepare_qat.html
    """
    if not model.training:
        raise AssertionError(
            "expected a model in training mode, got one in evaluation mode: call model.train()"
        )
    mapping = get_default_qat_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    convert(model, mapping=mapping, inplace=True, remove_qconfig=False)
    prepare(model, observer_non_leaf_module_list=set(mapping.values()), inplace=True)
    return model


def quantize(
    model: nn.Module,
    run_fn: Callable[..., Any],
    run_args: Any,
    mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """A statically quantised copy of a model: prepared, calibrated by ``run_fn(model, *run_args)``, converted.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize.html
    """
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def quantize_qat(
    model: nn.Module, run_fn: Callable[..., Any], run_args: Any, inplace: bool = False
) -> nn.Module:
    """A quantised copy of a model: prepared for training, trained by ``run_fn(model, *run_args)``, converted.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_qat.html
    """
    model = model if inplace else copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: Any = None,
    dtype: torch.dtype = _dtypes.qint8,
    mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """A copy of a model, in evaluation mode, with weights that are integers, per output channel.

    Linear layers quantise each row of their input when they run. Recurrent layers compute with their weights as floats.

    Args:
        model: the model.
        qconfig_spec: configurations by types and names of modules, or a set of types and names; linear and recurrent
            layers if not given.
        dtype: ``torch.qint8``, ``torch.float16``, or, for embeddings, ``torch.quint8`` and ``torch.quint4x2``; not used
            if ``qconfig_spec`` has configurations.
        mapping: quantised classes by classes.
        inplace: changes ``model`` itself.

    Raises:
        ValueError: the type is none of those; a weight has NaN or infinity.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_dynamic.html
    """
    if not isinstance(qconfig_spec, dict):
        if dtype not in _DYNAMIC:
            # PyTorch raises the one for the default layers and the other for a set of them.
            error = ValueError if qconfig_spec is None else RuntimeError
            raise error(
                f"quantize_dynamic: expected a dtype of {', '.join(map(str, _DYNAMIC))}, got {dtype}"
            )
        own, layers = _DYNAMIC[dtype]
        given = qconfig_spec
        qconfig_spec = dict.fromkeys(layers if given is None else given, own)
        if given is not None:
            _warn_of_unmatched(model, qconfig_spec)
    else:
        _warn_of_unmatched(model, qconfig_spec)
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    mapping = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    convert(model, mapping, inplace=True)
    _keep_from_fast_paths(model)
    return model


def _warn_of_unmatched(model: nn.Module, spec: dict[Any, Any]) -> None:
    """Warn of names and types that no module of a model has."""
    for sentence in (
        *unknown_modules([key for key in spec if isinstance(key, str)], model),
        *unknown_types([key for key in spec if isinstance(key, type)], model),
    ):
        warnings.warn(sentence, stacklevel=3)


def _keep_from_fast_paths(model: nn.Module) -> None:
    """Keep transformers from PyTorch's fused operators and nested tensors, which take float weights."""
    for module in model.modules():
        if not any(is_a(layer, "QuantisedWeight") for layer in module.modules()):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder):
            module.enable_nested_tensor = module.use_nested_tensor = False


def convert(
    module: nn.Module,
    mapping: dict[Any, Any] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: dict[str, Any] | None = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """A copy of a calibrated or trained model with quantised modules.

    Layers hold their weights as integers, results are rounded to the steps that observers have found. Values are floats.

    Args:
        module: the result of :func:`prepare` or :func:`prepare_qat`.
        mapping: quantised classes by classes.
        inplace: changes ``module`` itself.
        remove_qconfig: whether modules lose their ``qconfig`` and their observers.
        is_reference: maps to reference modules.
        convert_custom_config_dict: "observed_to_quantized_custom_module_class" has quantised classes by observed ones.
        use_precomputed_fake_quant: takes the parameters that fake quantisers of weights have, without another look at
            the weights.

    Raises:
        CalibrationError: observers have seen no values.
        ValueError: a weight has NaN or infinity.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.convert.html
    """
    if mapping is None:
        mapping = (
            get_default_static_quant_reference_module_mappings()
            if is_reference
            else get_default_static_quant_module_mappings()
        )
    custom = (convert_custom_config_dict or get_default_custom_config_dict()).get(
        "observed_to_quantized_custom_module_class", {}
    )
    custom = {own_class(observed): own_class(made) for observed, made in custom.items()}
    module = module if inplace else copy.deepcopy(module)
    _require_calibration(module, mapping)
    _convert(module, "", mapping, custom, use_precomputed_fake_quant)
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _require_calibration(model: nn.Module, mapping: dict[Any, Any]) -> None:
    from corsac.quantization._conversion import require_seen, saw_nothing

    observed = {
        path: module
        for path, module in model.named_modules()
        if getattr(module, "qconfig", None) is not None
        and is_activation_post_process(getattr(module, "activation_post_process", None))
        and counterpart(type_before_parametrizations(module), mapping) is not None
    }
    observers = {path: module.activation_post_process for path, module in observed.items()}
    blind = {path for path, observer in observers.items() if saw_nothing(observer)}
    if len(blind) < len(observers):
        # Operations with a number are not observed: nothing is rounded.
        for path in [path for path in blind if is_a(observed[path], "FloatFunctional")]:
            observed[path].activation_post_process = nn.Identity()
            del observers[path]
    require_seen(observers, model)


def _convert(
    module: nn.Module, path: str, mapping: dict[Any, Any], custom: dict[Any, Any], precomputed: bool
) -> None:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        kind = type_before_parametrizations(child)
        if kind in LEFT_AS_FLOATS and counterpart(kind, mapping) is None and kind not in custom:
            continue
        # A fused module, or a custom one, is swapped with all that is in it.
        if not is_a(child, "_FusedModule") and kind not in custom:
            _convert(child, inner, mapping, custom, precomputed)
        if getattr(child, "qconfig", None) is not None and counterpart(kind, mapping) is not None:
            _require_finite(child, inner)
        module._modules[name] = swap_module(child, mapping, custom, precomputed)


def _require_finite(module: nn.Module, path: str) -> None:
    for name, parameter in module.named_parameters():
        wrong = infinite_numbers(parameter)
        if wrong:
            raise ValueError(
                f"{path}.{name} has NaN or infinity, expected finite numbers to quantise: {wrong}"
            )


def swap_module(
    mod: nn.Module,
    mapping: dict[Any, Any],
    custom_module_class_mapping: dict[Any, Any],
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """The quantised module of a module that has a ``qconfig`` and a counterpart; the module itself if not.

    Hooks are kept, except those of observers.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.swap_module.html
    """
    if getattr(mod, "qconfig", None) is None:
        return mod
    kind = type_before_parametrizations(mod)
    target = counterpart(kind, mapping)
    if kind in custom_module_class_mapping:
        made = custom_module_class_mapping[kind].from_observed(mod)
    elif target is None:
        return mod
    elif getattr(target, "_IS_REFERENCE", False):
        observer = mod.qconfig.weight()  # type: ignore[union-attr,operator]
        observer(mod.weight)
        made = target.from_float(mod, get_qparam_dict(observer))
    elif "use_precomputed_fake_quant" in inspect.signature(target.from_float).parameters:
        made = target.from_float(mod, use_precomputed_fake_quant=use_precomputed_fake_quant)
    else:
        made = target.from_float(mod)
    before, after = observer_hooks(mod)
    for key, hook in mod._forward_pre_hooks.items():
        if key not in before:
            made.register_forward_pre_hook(hook)
    for key, hook in mod._forward_hooks.items():
        if key not in after:
            made.register_forward_hook(hook)
    devices = {tensor.device for tensor in (*mod.parameters(), *mod.buffers())}
    devices -= {torch.device("meta")}
    if len(devices) > 1:
        raise AssertionError(
            f"expected a {kind.__name__} on one device, got {sorted(map(str, devices))}"
        )
    return made.to(devices.pop()) if devices else made


def _remove_qconfig(module: nn.Module) -> None:
    for child in module.modules():
        vars(child).pop("qconfig", None)
    for child in [*module.modules()]:
        remove_observers(child)
