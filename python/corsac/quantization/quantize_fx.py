"""Quantisation of graph modules: observers in, calibrate or train, quantised operators out.

The names and signatures are those of ``torch.ao.quantization.quantize_fx``; objects of ``torch.ao`` (configurations,
mappings, backends, observers) are taken as well as those of this package.

Example::

    prepared = prepare_fx(model.eval(), get_default_qconfig_mapping(), (x,))
    for batch in batches:
        prepared(batch)
    quantised = convert_fx(prepared)
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from corsac._messages.near_names import did_you_mean
from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.graph_module import _USER_PRESERVED_ATTRIBUTES_KEY, GraphModule
from corsac.quantization._conversion import CalibrationError as CalibrationError
from corsac.quantization._conversion import convert
from corsac.quantization._finite import infinite_parameter
from corsac.quantization._fusion import TrainingModeError as TrainingModeError
from corsac.quantization._fusion import fuse
from corsac.quantization._kinds import is_a
from corsac.quantization._preparation import (
    ObservedState,
    StandaloneChild,
    custom_classes,
    keep_state,
    observe,
    scope_names,
    state_of,
)
from corsac.quantization._prepared_before import require_no_observers, require_unprepared
from corsac.quantization._tracer import QuantizationTracer
from corsac.quantization._unmatched import (
    Calls,
    unknown_modules,
    unknown_types,
    unmatched_names,
)
from corsac.quantization.backend_config import BackendConfig, get_native_backend_config
from corsac.quantization.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
)
from corsac.quantization.qconfig_mapping import (
    QConfigMapping,
    require_configurations,
)
from corsac.quantization.quantization_mappings import own_class

__all__ = [
    "convert_fx",
    "convert_to_reference_fx",
    "fuse_fx",
    "prepare_fx",
    "prepare_qat_fx",
]


def _given(value: Any, kind: Any, name: str) -> Any:
    """A configuration: ``value``, one made of it where it is a dictionary, an empty one for None."""
    if value is None:
        return kind()
    if isinstance(value, dict):
        warnings.warn(
            f"{name} as a dictionary is deprecated, use a {kind.__name__}",
            FutureWarning,
            stacklevel=4,
        )
        return kind.from_dict(value)
    if not is_a(value, kind.__name__):
        raise TypeError(f"{name}: expected a {kind.__name__}, got {type(value).__name__}")
    return value


def _backend(value: Any) -> Any:
    if value is None:
        return get_native_backend_config()
    return _given(value, BackendConfig, "backend_config")


def _preserved(model: torch.nn.Module, names: list[str]) -> dict[str, Any]:
    missing = [name for name in names if not hasattr(model, name)]
    for name in missing:
        _warn(f"the model has no attribute {name!r} to preserve{did_you_mean(name, dir(model))}")
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def _preserve(model: GraphModule, attributes: dict[str, Any]) -> None:
    model.meta[_USER_PRESERVED_ATTRIBUTES_KEY] = copy.copy(attributes)
    for name, value in attributes.items():
        setattr(model, name, value)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def fuse_fx(
    model: torch.nn.Module,
    fuse_custom_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """A graph module of ``model``, in evaluation mode, with the layers fused that a backend runs as one.

    Convolution, batch norm and ReLU become one module, for example. ``model`` is not changed. What is left alone, and
    why, is in a warning and in ``meta["fusion_report"]``.

    Args:
        model: the model, or a graph module.
        fuse_custom_config: a ``FuseCustomConfig`` with the attributes to keep.
        backend_config: a ``BackendConfig`` with the patterns to fuse; PyTorch's own kernels if not given.

    Raises:
        TrainingModeError: a batch norm to fold is in training mode.
        ValueError: the model is prepared already.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_fx.fuse_fx.html
    """
    config = _given(fuse_custom_config, FuseCustomConfig, "fuse_custom_config")
    preserved = _preserved(model, config.preserved_attributes)
    require_no_observers(model, "fuse")
    traced = _copy_of_captured(model) or symbolic_trace(model)
    fused = fuse(traced, False, _backend(backend_config))
    _preserve(fused, preserved)
    return fused


def prepare_fx(
    model: torch.nn.Module,
    qconfig_mapping: Any,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """A graph module of ``model``, in evaluation mode, with fused layers and with observers for calibration.

    ``model`` is not changed, its parameters are shared. ``meta["observer_report"]`` of the result is a
    :class:`corsac.passes.Report` with the reason for each call that stays as it is.

    Args:
        model: the model, or a graph module.
        qconfig_mapping: a ``QConfigMapping``: the configuration of each operator.
        example_inputs: inputs of the model, of standalone modules for example.
        prepare_custom_config: a ``PrepareCustomConfig``: modules that are not traced, custom and standalone modules,
            inputs and outputs that are quantised, attributes to keep.
        _equalization_config: a ``QConfigMapping`` of the linear layers and convolutions whose inputs and weights are
            equalised, with ``corsac.quantization.fx._equalize.default_equalization_qconfig`` for example.
        backend_config: a ``BackendConfig`` with the patterns to quantise; PyTorch's own kernels if not given.

    Raises:
        ValueError: the model is prepared or converted already.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_fx.prepare_fx.html
    """
    return _prepare(
        model,
        qconfig_mapping,
        False,
        prepare_custom_config,
        _equalization_config,
        backend_config,
    )


def prepare_qat_fx(
    model: torch.nn.Module,
    qconfig_mapping: Any,
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """:func:`prepare_fx` for training: layers quantise their weights, and batch norms are part of the layers.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_fx.prepare_qat_fx.html
    """
    return _prepare(model, qconfig_mapping, True, prepare_custom_config, None, backend_config)


def _prepare(
    model: torch.nn.Module,
    qconfig_mapping: Any,
    is_qat: bool,
    prepare_custom_config: Any,
    equalization_config: Any,
    backend_config: Any,
    is_standalone: bool = False,
) -> GraphModule:
    config = _given(prepare_custom_config, PrepareCustomConfig, "prepare_custom_config")
    mapping = copy.deepcopy(_given(qconfig_mapping, QConfigMapping, "qconfig_mapping"))
    require_configurations(mapping)
    backend = _backend(backend_config)
    equalization = _given(equalization_config, QConfigMapping, "_equalization_config")
    _warn_of_unmatched(model, mapping, equalization, config)
    preserved = _preserved(model, config.preserved_attributes)
    traced, scopes = _traced(model, config, is_standalone)
    require_unprepared(traced)
    _warn_of_places(traced, config)
    calls = Calls()
    calls.add(model)
    calls.add(traced)
    fused = fuse(traced, is_qat, backend)
    calls.add(fused)
    for sentence in calls.unmatched(
        [*mapping.object_type_qconfigs, *equalization.object_type_qconfigs]
    ):
        _warn(sentence)

    def prepare_child(path: str, module: torch.nn.Module, qconfig: Any) -> StandaloneChild | None:
        return _standalone_child(path, module, qconfig, is_qat, config, backend)

    prepared = observe(fused, mapping, is_qat, scopes, config, backend, prepare_child, equalization)
    _preserve(prepared, preserved)
    if is_standalone:
        state = state_of(prepared)
        assert state is not None
        state.is_observed_standalone_module = True
        state.standalone_module_input_quantized_idxs = [*config.input_quantized_indexes]
        state.standalone_module_output_quantized_idxs = [*config.output_quantized_indexes]
        keep_state(prepared, state)
    return prepared


def _copy_of_captured(model: Any) -> GraphModule | None:
    """A copy of a graph that :func:`corsac.capture` has made; None for other models. Its sizes may be symbols, which
    cannot be traced again."""
    if not isinstance(model, GraphModule) or "guards" not in model.meta:
        return None
    made = GraphModule(model, copy.deepcopy(model.graph))
    made.training = model.training
    return made


def _traced(model: torch.nn.Module, config: Any, is_standalone: bool) -> tuple[GraphModule, Any]:
    """The graph of a model, and the paths and classes of the modules in which its nodes were recorded."""
    captured = _copy_of_captured(model)
    if captured is None:
        tracer = _tracer(config, is_standalone)
        traced = GraphModule(model, tracer.trace(model))
        return traced, scope_names(tracer.node_name_to_scope)
    layers = captured.graph.find_nodes(op="call_module")
    scopes = {
        node.name: (node.target, type(captured.get_submodule(node.target))) for node in layers
    }
    return captured, scope_names(scopes)


def _tracer(config: Any, is_standalone: bool) -> QuantizationTracer:
    names = [*config.non_traceable_module_names]
    classes = [
        *config.non_traceable_module_classes,
        *custom_classes(config.float_to_observed_mapping),
    ]
    if not is_standalone:
        names += config.standalone_module_names
        classes += config.standalone_module_classes
    return QuantizationTracer(names, classes)


def _warn_of_unmatched(
    model: torch.nn.Module, mapping: Any, equalization: Any, config: Any
) -> None:
    modules = [*config.non_traceable_module_names, *config.standalone_module_names]
    types = [
        *config.non_traceable_module_classes,
        *config.standalone_module_classes,
        *custom_classes(config.float_to_observed_mapping),
    ]
    for sentence in (
        *unmatched_names(mapping, model),
        *(f"_equalization_config: {text}" for text in unmatched_names(equalization, model)),
        *unknown_modules(modules, model),
        *unknown_types(types, model),
    ):
        _warn_higher(sentence)
    wrong = infinite_parameter(model)
    if wrong:
        _warn_higher(wrong)


def _warn_of_unmatched_again(
    model: GraphModule, state: ObservedState, mapping: Any, config: Any
) -> None:
    """Warn of what a mapping for conversion has more than that of preparation, and of custom modules."""
    calls = Calls(kind for kinds in state.module_classes.values() for kind in kinds)
    calls.add(model)
    observed = map(own_class, custom_classes(config.observed_to_quantized_mapping))
    new, known = (
        [*unmatched_names(one, model), *calls.unmatched(one.object_type_qconfigs)]
        for one in (mapping or QConfigMapping(), state.qconfig_mapping)
    )
    for sentence in (*unknown_types(observed, model), *new):
        if sentence not in known:
            _warn_higher(sentence)


def _warn_of_places(traced: GraphModule, config: Any) -> None:
    """Warn of numbers of inputs and results that the program does not have."""
    (result,) = traced.graph.output_node().args
    results = len(result) if isinstance(result, list | tuple) else 1
    inputs = len(traced.graph.find_nodes(op="placeholder"))
    for name, count in (("input", inputs), ("output", results)):
        indexes = getattr(config, f"{name}_quantized_indexes")
        wrong = [index for index in indexes if index not in range(count)]
        if wrong:
            _warn_higher(
                f"{name}_quantized_indexes: the model has {count} {name}s, {wrong} are ignored"
            )


def _warn_higher(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _standalone_child(
    path: str, module: torch.nn.Module, qconfig: Any, is_qat: bool, config: Any, backend: Any
) -> StandaloneChild | None:
    """A standalone module, prepared by itself with the configuration of its call if it has none of its own."""
    entry = config.standalone_module_names.get(path) or config.standalone_module_classes.get(
        type(module)
    )
    if entry is None:
        return None
    own = entry.prepare_custom_config or PrepareCustomConfig()
    mapping = entry.qconfig_mapping or QConfigMapping().set_global(qconfig)
    prepared = _prepare(
        module, mapping, is_qat, own, None, entry.backend_config or backend, is_standalone=True
    )
    return StandaloneChild(prepared, [*own.input_quantized_indexes])


def convert_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    keep_original_weights: bool = False,
) -> GraphModule:
    """A quantised graph module of a calibrated or trained one: quantise and dequantise nodes for its observers.

    ``graph_module`` is not changed. Layers hold their weights as integers, with ``weight_scale`` and
    ``weight_zero_point``.

    Args:
        graph_module: the result of :func:`prepare_fx` or :func:`prepare_qat_fx`.
        convert_custom_config: a ``ConvertCustomConfig``: custom modules, attributes to keep.
        _remove_qconfig: whether modules lose their ``qconfig``.
        qconfig_mapping: the configurations that were prepared for, or None for operators that are to stay floats.
        backend_config: a ``BackendConfig``; PyTorch's own kernels if not given.
        keep_original_weights: whether float weights are kept too, in ``original_weights_lookup``, by the path of the
            layer.

    Raises:
        CalibrationError: observers have seen no values.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_fx.convert_fx.html
    """
    return _convert(
        graph_module,
        convert_custom_config,
        _remove_qconfig,
        qconfig_mapping,
        backend_config,
        keep_original_weights,
    )


def convert_to_reference_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
) -> GraphModule:
    """:func:`convert_fx`: the quantised form of this package is PyTorch's reference form with plain integers.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.quantize_fx.convert_fx.html
    """
    return _convert(
        graph_module, convert_custom_config, _remove_qconfig, qconfig_mapping, backend_config, False
    )


def _convert(
    graph_module: GraphModule,
    convert_custom_config: Any,
    remove_qconfig: bool,
    qconfig_mapping: Any,
    backend_config: Any,
    keep_original_weights: bool,
) -> GraphModule:
    config = _given(convert_custom_config, ConvertCustomConfig, "convert_custom_config")
    mapping = None
    if qconfig_mapping:
        mapping = copy.deepcopy(_given(qconfig_mapping, QConfigMapping, "qconfig_mapping"))
    state = state_of(graph_module)
    if not isinstance(graph_module, torch.nn.Module) or state is None:
        raise ValueError(
            f"expected a graph module that prepare_fx or prepare_qat_fx has made, got {type(graph_module).__name__}"
        )
    _warn_of_unmatched_again(graph_module, state, mapping, config)
    names = config.preserved_attributes
    kept = graph_module.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {})
    preserved = {**kept, **_preserved(graph_module, names)}
    converted = convert(
        graph_module,
        config,
        remove_qconfig=remove_qconfig,
        mapping=mapping,
        backend=_backend(backend_config),
        keeps_weights=keep_original_weights,
    )
    _preserve(converted, preserved)
    return converted
