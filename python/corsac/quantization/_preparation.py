"""Observed graph modules: the modules of observers; the graph is changed natively."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac import _core
from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.passes import Report, Site
from corsac.passes._weights import install, shallow_copy
from corsac.quantization._choices import NodeConfigurations, is_reuse_input, module_classes
from corsac.quantization._equalization import (
    add_equalization_observers,
    equalised_names,
    refusals,
)
from corsac.quantization._kinds import is_a, is_activation_post_process, is_quantizable
from corsac.quantization._patterns import (
    broken_bounds,
    describe,
    described_dtypes,
    entries,
    is_supported,
)
from corsac.quantization._requests import (
    DescribedObserver,
    DescribedQConfig,
    Numbered,
    ObserverRequest,
    dtype_name,
)
from corsac.quantization.quantization_mappings import OBSERVED_TO_QUANTIZED, own_class
from corsac.quantization.stubs import DeQuantStub

#: The key of ``GraphModule.meta`` with the :class:`ObservedState`, and the name of an attribute with it.
STATE = "_observed_graph_module_attrs"
#: The key of ``GraphModule.meta`` with the report.
REPORT = "observer_report"
_PREFIX = "activation_post_process_"
#: Beginning of the names of stubs, in which values of custom modules become floats.
STUB_PREFIX = "dequant_stub_"


@dataclass
class ObservedState:
    """Facts about an observed graph module, for conversion."""

    node_name_to_qconfig: dict[str, Any]
    node_name_to_scope: dict[str, tuple[str, str | None]]
    prepare_custom_config: Any
    qconfig_mapping: Any
    is_qat: bool
    observed_node_names: set[str]
    is_observed_standalone_module: bool = False
    standalone_module_input_quantized_idxs: list[int] = field(default_factory=list)
    standalone_module_output_quantized_idxs: list[int] = field(default_factory=list)
    equalization_node_name_to_qconfig: dict[str, Any] = field(default_factory=dict)
    module_classes: dict[str, tuple[type, ...]] = field(default_factory=dict)


def state_of(model: Any) -> ObservedState | None:
    """The state of an observed graph module; None for others."""
    found = getattr(model, "meta", {}).get(STATE) or getattr(model, STATE, None)
    return found if isinstance(found, ObservedState) else None


def keep_state(model: GraphModule, state: ObservedState) -> None:
    """Store the state where copies, and pickled modules, keep it."""
    model.meta[STATE] = state
    object.__setattr__(model, STATE, state)


def scope_names(scopes: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """The modules of nodes, with the names of their classes."""
    return {
        name: (
            path,
            f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind,
        )
        for name, (path, kind) in scopes.items()
    }


def observe(
    fused: GraphModule,
    qconfig_mapping: Any,
    is_qat: bool,
    scopes: dict[str, tuple[str, str | None]],
    custom_config: Any,
    backend: Any,
    prepare_child: PrepareChild,
    equalization: Any,
) -> GraphModule:
    """A graph module with observers on what ``backend`` quantises; see :func:`quantize_fx.prepare_fx`."""
    classes = module_classes(fused)
    choices = NodeConfigurations(fused, qconfig_mapping, scopes, classes)
    equalised = equalised_names(fused, equalization, scopes, classes)
    reasons = refusals(fused, equalised, choices.by_name())
    for path, kind, number in choices.unused:
        _warn(f"module {path!r} makes no call number {number} of {kind}")
    standalone = _standalone_children(fused, choices, prepare_child)
    _configure(fused, choices)
    if is_qat:
        _swap_for_training(fused, choices, backend)
    for path, child in standalone.items():
        install(fused, path, child.module)
    placed, names, custom, stubs = _observe_values(
        fused, choices, custom_config, backend, standalone, is_qat
    )
    _add_observers(fused, choices.qconfigs, placed)
    for stub in stubs:
        setattr(fused, stub, DeQuantStub())
    add_equalization_observers(fused, equalised, set(names), reasons)
    _swap_custom_modules(fused, choices, custom, custom_config)
    observed = GraphModule(fused, fused.graph)
    observed.meta = dict(fused.meta)
    keep_state(
        observed,
        ObservedState(
            node_name_to_qconfig=choices.by_name(),
            node_name_to_scope=scopes,
            prepare_custom_config=custom_config,
            qconfig_mapping=qconfig_mapping,
            is_qat=is_qat,
            observed_node_names=set(names),
            equalization_node_name_to_qconfig=equalised,
            module_classes=classes,
        ),
    )
    return observed


@dataclass
class StandaloneChild:
    """A module that is quantised by itself, with the numbers of inputs that it gets quantised."""

    module: torch.nn.Module
    quantised_inputs: list[int]


#: Prepares a module that is quantised by itself, with its path and configuration; None for other modules.
PrepareChild = Callable[[str, torch.nn.Module, Any], StandaloneChild | None]


def _standalone_children(
    model: GraphModule, choices: NodeConfigurations, prepare_child: PrepareChild
) -> dict[str, StandaloneChild]:
    children: dict[str, StandaloneChild] = {}
    for node in model.graph.find_nodes(op="call_module"):
        path, qconfig = node.target, choices.of_node(node.name)
        if path not in children:
            child = prepare_child(path, get_submodule(model, path), qconfig)
            if child is not None:
                children[path] = child
    return children


def _warn(message: str, deeper: int = 0) -> None:
    warnings.warn(message, stacklevel=5 + deeper)


def _configure(model: GraphModule, choices: NodeConfigurations) -> None:
    """Replace the modules that a graph calls by copies that have configurations, and share all else."""
    copies: dict[tuple[int, int | None], torch.nn.Module] = {}
    done: set[str] = set()
    for node in model.graph.find_nodes(op="call_module"):
        path, number = node.target, choices.chosen.get(node.name)
        module = get_submodule(model, path)
        if path in done or is_activation_post_process(module):
            continue
        done.add(path)
        if isinstance(module, torch.jit.ScriptModule):
            continue
        key = (id(module), number)
        if key not in copies:
            copies[key] = _configured(module, choices.of_node(node.name))
        install(model, path, copies[key])


def _configured(module: torch.nn.Module, qconfig: Any) -> torch.nn.Module:
    copied = shallow_copy(module)
    copied.qconfig = qconfig
    if is_a(module, "_FusedModule"):
        for name, layer in module._modules.items():
            copied._modules[name] = _configured(layer, qconfig)
    return copied


def _swap_for_training(model: GraphModule, choices: NodeConfigurations, backend: Any) -> None:
    """Replace layers by those that quantise their weights while training."""
    classes = {
        pattern: config.qat_module
        for pattern, config in entries(backend)
        if isinstance(pattern, type) and config.qat_module is not None
    }
    swapped: dict[int, torch.nn.Module] = {}
    for node in model.graph.find_nodes(op="call_module"):
        module = get_submodule(model, node.target)
        kind = classes.get(type(module))
        if kind is None or getattr(module, "qconfig", None) is None:
            continue
        if id(module) not in swapped:
            made = kind.from_float(module)
            for hook in module._forward_pre_hooks.values():
                made.register_forward_pre_hook(hook)
            for hook in module._forward_hooks.values():
                made.register_forward_hook(hook)
            device = device_of(module)
            swapped[id(module)] = made if device is None else made.to(device)
        install(model, node.target, swapped[id(module)])


def device_of(module: torch.nn.Module) -> torch.device | None:
    """The device of all parameters and buffers, if it is one."""
    devices = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    return devices.pop() if len(devices) == 1 else None


def custom_classes(mapping: dict[Any, dict[type, type]]) -> set[type]:
    """The classes that a custom configuration replaces, whatever the kind of quantisation."""
    return {kind for classes in mapping.values() for kind in classes}


def _described(constructor: Any, kinds: Numbered) -> DescribedObserver | None:
    if constructor is None:
        return None
    observer = constructor()
    if not hasattr(observer, "dtype"):
        # The identity, for values that are not observed.
        return None
    kind = kinds.number(type(observer))
    return DescribedObserver(
        dtype_name(observer.dtype) or "", bool(getattr(observer, "is_dynamic", False)), kind or 0
    )


#: The observers of a graph, the names of nodes that are quantised, the nodes of custom modules, the names of stubs.
_Placed = tuple[list[tuple[str, int, bool, str, str | None]], list[str], list[Any], list[str]]


def _observe_values(
    model: GraphModule,
    choices: NodeConfigurations,
    custom_config: Any,
    backend: Any,
    standalone: dict[str, StandaloneChild],
    is_qat: bool,
) -> _Placed:
    dtypes, kinds = Numbered(), Numbered()
    patterns = [describe(pattern, config, dtypes) for pattern, config in entries(backend)]
    broken = {
        (number, place, bounded): reason
        for number, qconfig in enumerate(choices.qconfigs)
        for place, config in enumerate(dtypes.objects)
        for bounded, reason in broken_bounds(qconfig, config)
    }
    classes = custom_classes(custom_config.float_to_observed_mapping)
    modules = dict(model.named_modules(remove_duplicate=False))
    request = ObserverRequest(
        patterns=patterns,
        dtypes=[described_dtypes(config) for config in dtypes.objects],
        broken=[*broken],
        qconfigs=[
            DescribedQConfig(
                _described(qconfig.activation, kinds),
                _described(qconfig.weight, kinds),
                is_reuse_input(qconfig),
            )
            for qconfig in choices.qconfigs
        ],
        choices=choices.chosen,
        custom=(custom := {path for path, module in modules.items() if type(module) in classes}),
        tuples={
            path: structure
            for kind, structure in (
                (torch.nn.LSTM, "recurrent"),
                (torch.nn.MultiheadAttention, "pair"),
            )
            for path in custom
            if isinstance(modules[path], kind)
        },
        tuple_functions=[operator.getitem, tuple],
        standalone={path: child.quantised_inputs for path, child in standalone.items()},
        quantised_inputs=[*custom_config.input_quantized_indexes],
        taken={name for name in dir(model) if name.startswith((_PREFIX, STUB_PREFIX))},
    )
    before = len(model.graph.nodes)
    placed, names, swapped, stubs, unbounded, sites = _core.observe_values(model.graph, request)
    model.meta[REPORT] = Report(
        "observers", tuple(Site(*site) for site in sites), before, len(model.graph.nodes)
    )
    _warn_of_bounds(
        {
            name: next(
                broken[number, place, part]
                for part in ("input", "output", "weight")
                if (number, place, part) in broken
            )
            for name, number, place in unbounded
        }
    )
    bounded = {name for name, _, _ in unbounded}
    _warn_of_types(model, modules, choices, backend, bounded | {node.name for node in swapped})
    return placed, names, swapped, stubs


#: Layers whose configurations are meant for them: configurations of all nodes are not meant for embeddings.
_LAYERS = (
    torch.nn.Linear,
    torch.nn.Conv1d,
    torch.nn.Conv2d,
    torch.nn.Conv3d,
    torch.nn.ConvTranspose1d,
    torch.nn.ConvTranspose2d,
    torch.nn.ConvTranspose3d,
)


def _warn_of_types(
    model: GraphModule,
    modules: dict[str, torch.nn.Module],
    choices: NodeConfigurations,
    backend: Any,
    others: set[str],
) -> None:
    """Warn of layers that the backend does not compute in the types of their configurations."""
    dtypes = {pattern: config.dtype_configs for pattern, config in entries(backend)}
    found: dict[int, list[str]] = {}
    for node in model.graph.find_nodes(op="call_module"):
        number = choices.chosen.get(node.name)
        # Observers are not there yet.
        module = modules.get(node.target)
        configs = dtypes.get(type(module))
        layer = module[0] if is_a(module, "_FusedModule") else module
        if number is None or configs is None or node.name in others:
            continue
        if not isinstance(layer, _LAYERS):
            continue
        if not is_supported(choices.qconfigs[number], configs):
            found.setdefault(number, []).append(node.target)
    for number, names in found.items():
        qconfig = choices.qconfigs[number]
        types = [getattr(one(), "dtype", None) for one in (qconfig.activation, qconfig.weight)]
        _warn(
            f"{', '.join(names)} stay floats: the backend does not compute them with inputs of {types[0]} and weights "
            f"of {types[1]}",
            2,
        )


def _warn_of_bounds(reasons: dict[str, str]) -> None:
    """Warn of nodes that stay floats, since their configurations break bounds of the backend."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        _warn(
            f"{', '.join(names)} stay floats: the backend does not take their configuration, {reason}",
            2,
        )


def _add_observers(
    model: GraphModule,
    qconfigs: list[Any],
    placed: list[tuple[str, int, bool, str, str | None]],
) -> None:
    device = device_of(model)
    made: dict[str, torch.nn.Module] = {}
    used = {shared for _, _, _, shared, value in placed if value is not None}
    for name, number, is_weight, shared, value in placed:
        if name in used or (shared == name and value is not None):
            qconfig = qconfigs[number]
            observer = (qconfig.weight if is_weight else qconfig.activation)()
            made[name] = observer if device is None else observer.to(device)
            for one in (observer, getattr(observer, "activation_post_process", None)):
                if one is not None and hasattr(one, "observed_name"):
                    one.observed_name = value
    for name, _, _, shared, value in placed:
        if value is not None:
            setattr(model, name, made[shared])


def quant_type(qconfig: Any) -> str:
    """The kind of quantisation of a configuration: "STATIC", "DYNAMIC" or "WEIGHT_ONLY"."""
    activation = qconfig.activation()
    if getattr(activation, "is_dynamic", False):
        return "DYNAMIC"
    quantised = getattr(activation, "dtype", torch.float32) != torch.float32
    return "STATIC" if quantised else "WEIGHT_ONLY"


def replacement(
    module: torch.nn.Module, mapping: dict[Any, dict[type, type]], qconfig: Any
) -> type:
    """The class that a custom configuration has for a module."""
    kind = quant_type(qconfig)
    classes = next((one for key, one in mapping.items() if key.name == kind), {})
    if type(module) not in classes:
        raise ValueError(
            f"expected a class for {type(module).__name__} and the kind of quantisation {kind}, got those for "
            f"{sorted(one.__name__ for one in classes)}"
        )
    return classes[type(module)]


def _swap_custom_modules(
    model: GraphModule, choices: NodeConfigurations, nodes: list[Any], custom_config: Any
) -> None:
    for path, name in {node.target: node.name for node in nodes}.items():
        module, qconfig = get_submodule(model, path), choices.of_node(name)
        kind = replacement(module, custom_config.float_to_observed_mapping, qconfig)
        kind = own_class(kind)
        if is_quantizable(kind) and not issubclass(kind, (*OBSERVED_TO_QUANTIZED,)):
            raise NotImplementedError(
                f"{path}: {kind.__name__} derives from a class of torch.ao, whose observed and quantised layers graphs "
                "here do not call: expected a class that derives from one of corsac.quantization.quantizable"
            )
        made = kind.from_float(module)
        made.qconfig = qconfig
        install(model, path, made)
