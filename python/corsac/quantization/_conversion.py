"""Quantised graph modules: the parameters of observers, and the weights; the graph is changed natively."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from corsac import _core
from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Interpreter
from corsac.passes._weights import install, shallow_copy
from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization._choices import NodeConfigurations
from corsac.quantization._dtypes import UNDERLYING, full_range
from corsac.quantization._equalization import equalise
from corsac.quantization._finite import infinite_parameter
from corsac.quantization._graph_state import quantised_values
from corsac.quantization._kinds import is_a, is_activation_post_process, is_fake_quantize
from corsac.quantization._preparation import (
    STATE,
    STUB_PREFIX,
    ObservedState,
    custom_classes,
    replacement,
    state_of,
)
from corsac.quantization._requests import Conversion
from corsac.quantization._weighted import QuantisedLayers
from corsac.quantization.fx.custom_config import ConvertCustomConfig
from corsac.quantization.pt2e._nodes import described
from corsac.quantization.qconfig import qconfig_equals
from corsac.quantization.quant_type import QuantType
from corsac.quantization.quantization_mappings import OBSERVED_TO_QUANTIZED, own_class
from corsac.quantization.quantized._steps import WeightSteps
from corsac.quantization.torch_ao._graph_names import NAMES, ObservedNames


class CalibrationError(RuntimeError):
    """Observers have seen no values."""


def _operators_of_graphs() -> list[Any]:
    corsac = torch.ops.corsac
    return [
        corsac.quantize_per_tensor.default,
        corsac.dequantize_per_tensor.default,
        corsac.quantize_per_channel.default,
        corsac.dequantize_per_channel.default,
        corsac.choose_qparams_per_token.default,
        corsac.quantize_per_token.default,
        corsac.dequantize_per_token.default,
        operator.getitem,
    ]


def convert(
    observed: GraphModule,
    custom_config: Any,
    *,
    remove_qconfig: bool,
    mapping: Any,
    backend: Any,
    keeps_weights: bool,
) -> GraphModule:
    """The quantised form of an observed graph module; see :func:`quantize_fx.convert_fx`."""
    state = state_of(observed)
    assert state is not None
    model = GraphModule(observed, copy.deepcopy(observed.graph))
    qconfigs = state.node_name_to_qconfig
    if mapping is not None:
        qconfigs = _chosen_again(model, state, mapping)
    with torch.no_grad():
        equalise(model, state.equalization_node_name_to_qconfig)
    observers = _Observers(model)
    with torch.no_grad():
        weights = observers.constants()
        observers.require_calibration()
        conversions = observers.conversions(weights)
        layers = QuantisedLayers(model, state, qconfigs, backend)
        layers.swap()
        _swap_custom_modules(model, custom_config, qconfigs, observers)
        _convert_standalone(model, backend, remove_qconfig)
    scopes = state.node_name_to_scope
    names = ObservedNames(model, observed, qconfigs, scopes, conversions, observers.by_path)
    custom = state.prepare_custom_config
    inputs = [] if state.is_observed_standalone_module else custom.input_quantized_indexes
    outputs = [] if state.is_observed_standalone_module else custom.output_quantized_indexes
    _core.convert_observers(
        model.graph,
        conversions,
        {name for name, qconfig in qconfigs.items() if qconfig is None},
        [*inputs],
        [*outputs],
        _operators_of_graphs(),
        _float_type(observed),
    )
    _drop_stubs(model)
    model.graph.eliminate_dead_code()
    found = names.converted(quantised_values(model))
    converted = GraphModule(model, model.graph)
    if keeps_weights:
        converted.original_weights_lookup = {**layers.float_weights, **observers.float_weights}
    if remove_qconfig:
        _remove_configurations(converted)
    converted.meta = {key: value for key, value in observed.meta.items() if key != STATE}
    # Pickled modules have attributes, not metadata.
    object.__setattr__(converted, NAMES, found)
    return converted


def _float_type(model: GraphModule) -> torch.dtype | None:
    """The type of a model's parameters, if all are of half precision or bfloat16."""
    types = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return types.pop() if types in ({torch.bfloat16}, {torch.float16}) else None


def _chosen_again(model: GraphModule, state: ObservedState, mapping: Any) -> dict[str, Any]:
    """The configurations of nodes for conversion: those that were prepared for, or None."""
    _require_same(state.qconfig_mapping, mapping)
    scopes, classes = state.node_name_to_scope, state.module_classes
    again = NodeConfigurations(model, mapping, scopes, classes).by_name()
    for name, before in state.node_name_to_qconfig.items():
        now = again.get(name)
        if now is not None and (before is None or not qconfig_equals(before, now)):
            raise ValueError(
                f"node {name} was prepared for {before}, expected the same configuration or None, got {now}"
            )
    return again


def _require_same(prepared: Any, given: Any) -> None:
    if not qconfig_equals(prepared.global_qconfig, given.global_qconfig):
        raise ValueError(
            "expected the global configuration that the model was prepared for, "
            f"{prepared.global_qconfig}, got {given.global_qconfig}"
        )
    for table in ("object_type_qconfigs", "module_name_qconfigs", "module_name_regex_qconfigs"):
        before, now = getattr(prepared, table), getattr(given, table)
        for key, qconfig in before.items():
            if key not in now:
                raise ValueError(
                    f"{table}: expected an entry for {key}, which the model was prepared for"
                )
            if now[key] is not None and (qconfig is None or not qconfig_equals(qconfig, now[key])):
                raise ValueError(
                    f"{table}: {key} was prepared for {qconfig}, expected the same or None, got {now[key]}"
                )


class _Observers:
    """The observers that a graph module calls, by path."""

    def __init__(self, model: GraphModule) -> None:
        self._model = model
        #: The observers, by path.
        self.by_path = {
            node.target: module
            for node in model.graph.find_nodes(op="call_module")
            if is_activation_post_process(module := get_submodule(model, node.target))
        }
        #: Weights of functions, by the names of the attributes.
        self.float_weights: dict[str, torch.Tensor] = {}

    def after(self, node: Any) -> torch.nn.Module | None:
        """The observer of a node's value."""
        calls = (user for user in node.users if user.op == "call_module")
        return next(
            (self.by_path[user.target] for user in calls if user.target in self.by_path), None
        )

    def constants(self) -> dict[str, tuple[str, torch.Tensor]]:
        """Weights of functions that observers see: by path, a name and the value. Observers see them once more."""
        found: dict[str, tuple[str, torch.Tensor]] = {}
        graph = self._model.graph
        written = self._written()
        for path, nodes, attribute in _core.weights_of_functions(graph, set(self.by_path)):
            if written.isdisjoint(node.target for node in nodes):
                value = _run(self._model, nodes)
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    # A copy: the prepared model stays as it is.
                    observer = self.by_path[path] = copy.deepcopy(self.by_path[path])
                    observer(value)
                    found[path] = (attribute or nodes[-1].name, value)
        return found

    def _written(self) -> set[str]:
        """The attributes that the program may write to, directly or through values that share their memory."""
        graph = self._model.graph
        effects = dict(zip(graph.nodes, _core.graph_effects(graph), strict=True))
        written, seen = set(), set()
        for call, (own, *_) in effects.items():
            if call.op == "call_module" and call.target in self.by_path:
                continue
            waiting = [*own[0]]
            while waiting:
                node = waiting.pop()
                if node.op == "get_attr":
                    written.add(node.target)
                elif node not in seen:
                    seen.add(node)
                    waiting += effects[node][0][1]
        return written

    def _described(self, path: str) -> str:
        """The value of an observer, with its line, for messages."""
        calls = self._model.graph.find_nodes(op="call_module")
        call = next(node for node in calls if node.target == path)
        return f"{path} of {described(call.args[0])}"

    def require_calibration(self) -> None:
        """Raise an error if observers have seen nothing; warn of values that were always the same."""
        require_seen(self.by_path, self._model, self._described)
        constant = [path for path, own in self.by_path.items() if _saw_one_number(own)]
        if constant:
            listed = ", ".join(_listed(constant, self._described))
            warnings.warn(
                f"values that were the same number in all batches: {listed}",
                stacklevel=6,
            )

    def conversions(self, weights: dict[str, tuple[str, torch.Tensor]]) -> dict[str, Conversion]:
        """The replacement of each observer; makes the attributes that this needs."""
        return {
            path: self._conversion(path, observer, weights.get(path))
            for path, observer in self.by_path.items()
        }

    def _conversion(
        self, path: str, observer: Any, weight: tuple[str, torch.Tensor] | None
    ) -> Conversion:
        dtype = observer.dtype
        plain = UNDERLYING.get(dtype)
        if getattr(observer, "is_dynamic", False):
            if dtype == torch.float16:
                return Conversion("dropped")
            if plain not in (torch.uint8, torch.int8):
                raise ValueError(
                    f"{path}: expected a type of 8 bits or float16 to quantise at each call, got {dtype}"
                )
            low, high = observer.quant_min, observer.quant_max
            if low is None or high is None:
                low, high = full_range(dtype)
            return Conversion("dynamic", quant_min=low, quant_max=high, dtype=plain)
        if dtype == torch.float16:
            return Conversion("half")
        if plain is None or plain.is_floating_point:
            return Conversion("dropped")
        if weight is not None:
            return self._constant(observer, *weight)
        limits = torch.iinfo(plain)
        if not limits.min <= observer.quant_min <= observer.quant_max <= limits.max:
            raise ValueError(
                f"{self._described(path)}: {plain} holds {limits.min} to {limits.max}, not {observer.quant_min} to "
                f"{observer.quant_max}"
            )
        scale, zero_point = observer.calculate_qparams()
        conversion = Conversion(
            "static", quant_min=observer.quant_min, quant_max=observer.quant_max, dtype=plain
        )
        if scale.numel() == 1 and not _is_per_channel(observer):
            conversion.scale, conversion.zero_point = float(scale), int(zero_point)
        else:
            conversion.axis = int(observer.ch_axis)
            conversion.scales = self._buffer(f"{path}_scale", scale)
            conversion.zero_points = self._buffer(f"{path}_zero_point", zero_point)
        return conversion

    def _constant(self, observer: Any, name: str, value: torch.Tensor) -> Conversion:
        steps = WeightSteps.of_observer(observer, name, value)
        flat = name.replace(".", "_")
        self.float_weights[name] = value
        conversion = Conversion(
            "constant",
            attribute=self._buffer(f"{flat}_quantized", steps.quantise(value)),
            quant_min=steps.quant_min,
            quant_max=steps.quant_max,
            dtype=steps.dtype,
        )
        if steps.per_tensor:
            conversion.scale = float(steps.scales)
            conversion.zero_point = int(steps.zero_points)
        else:
            conversion.axis = steps.axis
            conversion.scales = self._buffer(f"{flat}_scale", steps.scales)
            conversion.zero_points = self._buffer(f"{flat}_zero_point", steps.zero_points)
        return conversion

    def _buffer(self, name: str, value: torch.Tensor) -> str:
        """Register a buffer under a name like this one."""
        unique, number = name, 0
        while hasattr(self._model, unique):
            number += 1
            unique = f"{name}_{number}"
        self._model.register_buffer(unique, value.detach().clone())
        return unique


def _run(model: GraphModule, nodes: list[Any]) -> Any:
    """The value of the last of ``nodes``, which need no others."""
    interpreter = Interpreter(model, garbage_collect_values=False)
    for node in nodes:
        interpreter.env[node] = interpreter.run_node(node)
    return interpreter.env[nodes[-1]]


def _is_per_channel(observer: Any) -> bool:
    return getattr(observer, "qscheme", None) in (
        torch.per_channel_affine,
        torch.per_channel_symmetric,
        torch.per_channel_affine_float_qparams,
    )


def require_seen(
    observers: dict[str, Any], model: torch.nn.Module, described: Callable[[str], str] = str
) -> None:
    """Raise an error if some of ``observers`` of a model, by path, have seen nothing; ``described`` gives the text for a
    path."""
    blind = [path for path, observer in observers.items() if saw_nothing(observer)]
    if blind:
        advice = "run the prepared model on example inputs before it is converted"
        raise CalibrationError(
            f"{len(blind)} of {len(observers)} observers have seen no values: {', '.join(_listed(blind, described))}; "
            f"{infinite_parameter(model) or advice}"
        )


def _saw_one_number(observer: Any) -> bool:
    """Whether an observer of a whole tensor has a range of one number."""
    inner = getattr(observer, "activation_post_process", observer)
    low, high = getattr(inner, "min_val", None), getattr(inner, "max_val", None)
    if not isinstance(low, torch.Tensor) or not isinstance(high, torch.Tensor):
        return False
    return low.numel() == high.numel() == 1 and bool(low == high)


def _listed(names: list[str], described: Callable[[str], str]) -> Iterator[str]:
    yield from map(described, names[:8])
    if len(names) > 8:
        yield f"and {len(names) - 8} more"


def saw_nothing(observer: Any) -> bool:
    """Whether an observer that records a range has none."""
    inner = observer
    if is_fake_quantize(observer):
        inner = getattr(observer, "activation_post_process", observer)
    low, high = getattr(inner, "min_val", None), getattr(inner, "max_val", None)
    if not isinstance(low, torch.Tensor) or not isinstance(high, torch.Tensor):
        return False
    return low.numel() == 0 or bool((low > high).all())


def _swap_custom_modules(
    model: GraphModule, custom_config: Any, qconfigs: dict[str, Any], observers: _Observers
) -> None:
    mapping: dict[Any, dict[type, type]] = {QuantType.STATIC: dict(OBSERVED_TO_QUANTIZED)}
    for kind, made in custom_config.observed_to_quantized_mapping.items():
        known = mapping.setdefault(QuantType[kind.name], {})
        known.update({own_class(observed): own_class(one) for observed, one in made.items()})
    classes = custom_classes(mapping)
    done: set[str] = set()
    for node in model.graph.find_nodes(op="call_module"):
        module = get_submodule(model, node.target)
        if type(module) not in classes or node.target in done:
            continue
        done.add(node.target)
        qconfig = getattr(module, "qconfig", None) or qconfigs.get(node.name)
        observer = observers.after(node)
        if observer is not None:
            module = shallow_copy(module)
            module.activation_post_process = observer
        made = replacement(module, mapping, qconfig).from_observed(module)
        install(model, node.target, made)


def _drop_stubs(model: GraphModule) -> None:
    """Give users of values in whole steps the values: they are floats already."""
    for node in model.graph.find_nodes(op="call_module"):
        stub = node.target.startswith(STUB_PREFIX) and get_submodule(model, node.target)
        if stub and is_a(stub, "DeQuantStub"):
            node.replace_all_uses_with(node.args[0])
            model.graph.erase_node(node)


def _convert_standalone(model: GraphModule, backend: Any, remove_qconfig: bool) -> None:
    for node in model.graph.find_nodes(op="call_module"):
        child = get_submodule(model, node.target)
        state = state_of(child)
        if state is not None and state.is_observed_standalone_module:
            converted = convert(
                child,
                ConvertCustomConfig(),
                remove_qconfig=remove_qconfig,
                mapping=None,
                backend=backend,
                keeps_weights=False,
            )
            install(model, node.target, converted)


def _remove_configurations(model: GraphModule) -> None:
    """Delete the configurations of modules; the modules are copies."""
    for path in {node.target for node in model.graph.find_nodes(op="call_module")}:
        module = get_submodule(model, path)
        install(model, path, _without_configuration(module))


def _without_configuration(module: torch.nn.Module) -> torch.nn.Module:
    if "qconfig" not in vars(module):
        return module
    copied = shallow_copy(module)
    del copied.qconfig
    if is_a(module, "_FusedModule"):
        for name, layer in module._modules.items():
            copied._modules[name] = _without_configuration(layer)
    return copied
