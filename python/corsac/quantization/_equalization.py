"""Equalisation of inputs and weights in graph modules: observers of columns in, factors out.

A factor for each channel of an input is in the weights of the layer before, if the input is its result alone, through
ReLU; else the input is multiplied by the factors.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.fx.graph_module import GraphModule
from corsac.passes._weights import install, shallow_copy
from corsac.quantization._choices import NodeConfigurations
from corsac.quantization._kinds import is_a, is_activation_post_process
from corsac.quantization.fx._equalize import (
    calculate_equalization_scale,
    fused_module_supports_equalization,
    is_equalization_observer,
    is_identity,
    node_supports_equalization,
)

_WEIGHT, _BIAS = 1, 2  # places among the arguments of functions
_GROUPS = 6


def equalised_names(
    model: GraphModule, mapping: Any, scopes: dict[str, Any], classes: dict[str, tuple[type, ...]]
) -> dict[str, Any]:
    """The configurations of equalisation of nodes, by name, where they have some."""
    tables = (
        mapping.object_type_qconfigs,
        mapping.module_name_qconfigs,
        mapping.module_name_regex_qconfigs,
        mapping.module_name_object_type_order_qconfigs,
    )
    if mapping.global_qconfig is None and not any(tables):
        return {}
    chosen = NodeConfigurations(model, mapping, scopes, classes).by_name()
    found = {name: qconfig for name, qconfig in chosen.items() if qconfig is not None}
    for name, qconfig in found.items():
        if not hasattr(qconfig, "input_activation"):
            raise TypeError(
                f"_equalization_config: expected an EqualizationQConfig for {name}, got "
                f"{type(qconfig).__name__}"
            )
    return found


def refusals(model: GraphModule, names: dict[str, Any], qconfigs: dict[str, Any]) -> dict[str, str]:
    """The reasons, by name, to leave nodes that could be equalised as they are. The graph has no observers yet."""
    found = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    calls = Counter(node.target for node in model.graph.find_nodes(op="call_module"))
    reads = {node.target for node in model.graph.find_nodes(op="get_attr")}
    for node in model.graph.nodes:
        if node.name not in names or not node_supports_equalization(node, modules):
            continue
        source = node.args[0] if node.args else None
        users = getattr(source, "users", ())
        if any(user is not node and qconfigs.get(user.name) is not None for user in users):
            found[node.name] = "its input has other users that are quantised"
        elif _groups(node, modules) != 1:
            found[node.name] = "the convolution has groups"
        elif _shares_weight(node, calls, reads):
            found[node.name] = "its weight is used several times"
    return found


def _shares_weight(node: Any, calls: Counter[Any], reads: set[Any]) -> bool:
    """Whether something else uses the weight of a layer: it could not have the factors of both."""
    if node.op == "call_module":
        is_read = any(path.startswith(f"{node.target}.") for path in reads)
        return is_read or calls[node.target] > 1
    return len(node.args) > _WEIGHT and len(node.args[_WEIGHT].users) > 1


def _groups(node: Any, modules: dict[str, Any]) -> Any:
    if node.op == "call_module":
        return getattr(_layer(modules[node.target]), "groups", 1)
    given = node.args[_GROUPS] if len(node.args) > _GROUPS else 1
    return 1 if node.target is F.linear else node.kwargs.get("groups", given)


def _layer(module: Any) -> Any:
    return module[0] if fused_module_supports_equalization(module) else module


def add_equalization_observers(
    model: GraphModule, names: dict[str, Any], observed: set[str], reasons: dict[str, str]
) -> None:
    """Put observers of columns before the nodes ``names``, behind the observers of inputs and of weights of functions."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in [*model.graph.nodes]:
        qconfig = names.get(node.name)
        if qconfig is None or node.name not in observed:
            continue
        if not node_supports_equalization(node, modules):
            continue
        if node.name in reasons:
            warnings.warn(f"{node.name} is not equalised: {reasons[node.name]}", stacklevel=5)
            continue
        is_linear = (
            isinstance(_layer(modules.get(node.target)), nn.Linear) or node.target is F.linear
        )
        arguments = [*node.args]
        for place, argument in enumerate(arguments):
            if place == _BIAS or not hasattr(argument, "users"):
                continue
            observer = (qconfig.weight if place == _WEIGHT else qconfig.input_activation)()
            if place == 0 and is_linear and observer.__module__.startswith("corsac."):
                # Channels are the last dimension, however many there are.
                observer.input_obs.ch_axis = -1
            arguments[place] = _add(model, argument, observer)
        node.args = tuple(arguments)


def _add(model: GraphModule, value: Any, observer: nn.Module) -> Any:
    """A call of an observer behind a value."""
    name = _unused(model, f"{value.name}_equalization_process_")
    device = next((tensor.device for tensor in model.parameters()), None)
    setattr(model, name, observer if device is None else observer.to(device))
    with model.graph.inserting_after(value):
        return model.graph.create_node("call_module", name, (value,), {})


def _unused(model: GraphModule, prefix: str) -> str:
    number = 0
    while hasattr(model, f"{prefix}{number}"):
        number += 1
    return f"{prefix}{number}"


@dataclass
class _Equalised:
    """A layer to equalise.

    Attributes:
        node: the call.
        watcher: the call of the observer of its input's channels.
        factors: the factors of input channels, one for all if there is nothing to do.
        layer: the layer whose results the input is, if it takes the factors.
        following: the factors of the results.
    """

    node: Any
    watcher: Any
    factors: Tensor
    layer: Any = None
    following: Tensor | None = None


def equalise(model: GraphModule, names: dict[str, Any]) -> None:
    """Replace observers of columns by factors, in weights and in the graph. Modules that change are copies."""
    modules = dict(model.named_modules(remove_duplicate=False))
    watchers = {
        node
        for node in model.graph.find_nodes(op="call_module")
        if is_equalization_observer(modules[node.target])
    }
    if not watchers:
        return
    layers = {}
    for node in model.graph.nodes:
        watcher = node.args[0] if node.args else None
        if watcher in watchers and node_supports_equalization(node, modules):
            layers[node] = _Equalised(node, watcher, _factors(node, modules, names))
    for one in layers.values():
        one.layer = layers.get(_source(one.watcher, modules))
        if one.layer is not None:
            one.layer.following = one.factors
    observers: dict[str, Any] = {}
    for one in layers.values():
        _scale_weight(model, one, modules)
        _scale_input(model, one, modules, observers)
    for node in watchers:
        node.replace_all_uses_with(node.args[0])
        model.graph.erase_node(node)


def _factors(node: Any, modules: dict[str, Any], names: dict[str, Any]) -> Tensor:
    """The factors of input channels, from what observers have seen."""
    seen = modules[node.args[0].target]
    if node.op == "call_module":
        weight = names[node.name].weight()
        own = _layer(modules[node.target]).weight
        weight.to(own.device)
        weight(own)
    else:
        watched = node.args[_WEIGHT] if len(node.args) > _WEIGHT else None
        weight = modules.get(getattr(watched, "target", None))
        if not is_a(weight, "_WeightEqualizationObserver"):
            return torch.tensor(1)
    try:
        return calculate_equalization_scale(seen, weight)
    except ValueError as error:
        raise ValueError(f"{node.name} cannot be equalised: {error}") from error


def _source(watcher: Any, modules: dict[str, Any]) -> Any:
    """The node whose results only the equalised layer uses, through ReLU and the observer; None if there is none."""
    observer = watcher.args[0]
    for value in (watcher, observer):
        if len(value.users) != 1:
            return None
    if not is_activation_post_process(modules.get(getattr(observer, "target", None))):
        return None
    source = observer.args[0]
    if _is_relu(source, modules):
        source = source.args[0] if len(source.users) == 1 else None
    return source if source is not None and len(source.users) == 1 else None


def _is_relu(node: Any, modules: dict[str, Any]) -> bool:
    if node.op == "call_module":
        return type(modules[node.target]) is nn.ReLU
    return node.target in (F.relu, torch.relu, "relu") and node.op != "get_attr"


def _scale_weight(model: GraphModule, one: _Equalised, modules: dict[str, Any]) -> None:
    """Divide columns by the factors of the input, and multiply rows and bias by those of the result."""
    parts = [] if is_identity(one.factors) else [(1, torch.reciprocal(one.factors))]
    if one.following is not None and not is_identity(one.following):
        parts.append((0, one.following))
    if not parts:
        return
    if one.node.op == "call_module":
        module = modules[one.node.target]
        layer = shallow_copy(_layer(module))
        for name, factors in _scaled(parts):
            own = getattr(layer, name, None)
            if own is not None:
                for axis, factor in factors:
                    own = own * _along(factor, axis, own.dim())
                layer._parameters[name] = nn.Parameter(own, requires_grad=False)
        if fused_module_supports_equalization(module):
            whole = shallow_copy(module)
            whole._modules["0"] = layer
            layer = whole
        install(model, one.node.target, layer)
        return
    for place, (name, factors) in zip((_WEIGHT, _BIAS), _scaled(parts), strict=True):
        _scale_argument(model, one.node, place, name, factors, modules)


def _scaled(
    parts: list[tuple[int, Tensor]],
) -> Iterator[tuple[str, list[tuple[int, Tensor]]]]:
    yield "weight", parts
    yield "bias", [part for part in parts if part[0] == 0]


def _along(factors: Tensor, axis: int, rank: int) -> Tensor:
    """Factors that broadcast along a dimension of values with ``rank`` dimensions."""
    shape = [1] * rank
    shape[axis] = -1
    return factors.reshape(shape)


def _scale_argument(
    model: GraphModule,
    node: Any,
    place: int,
    name: str,
    parts: list[tuple[int, Tensor]],
    modules: dict[str, Any],
) -> None:
    """Multiply the weight or bias of a function; the observer of the weight forgets its range."""
    value = node.args[place] if len(node.args) > place else node.kwargs.get(name)
    if value is None or not parts:
        return
    user = node
    while value.op == "call_module" and (
        is_equalization_observer(modules[value.target])
        or is_activation_post_process(modules[value.target])
    ):
        if is_activation_post_process(modules[value.target]):
            install(model, value.target, _blank(modules[value.target]))
        user, value = value, value.args[0]
    rank = _rank(node) if place == _WEIGHT else 1
    with model.graph.inserting_before(user):
        scaled = value
        for axis, factors in parts:
            path = _unused(model, f"{value.name}_equalization_scale")
            model.register_buffer(path, _along(factors, axis, rank))
            scaled = model.graph.call_function(
                torch.mul, (scaled, model.graph.create_node("get_attr", path))
            )
    user.replace_input_with(value, scaled)


def _rank(node: Any) -> int:
    return {F.linear: 2, F.conv1d: 3, F.conv2d: 4, F.conv3d: 5}[node.target]


def _blank(observer: nn.Module) -> nn.Module:
    """A copy of an observer that has seen nothing."""
    made = copy.deepcopy(observer)
    inner = getattr(made, "activation_post_process", made)
    inner.reset_min_max_vals()
    return made


def _scale_input(
    model: GraphModule, one: _Equalised, modules: dict[str, Any], observers: dict[str, Any]
) -> None:
    """Multiply the input by the factors, if no layer before does; its observer gets the new range."""
    if is_identity(one.factors):
        return
    observer = one.watcher.args[0]
    seen = copy.deepcopy(modules[one.watcher.target])
    seen.set_equalization_scale(one.factors)
    path = observer.target
    if is_activation_post_process(modules.get(path)):
        if path not in observers:
            observers[path] = copy.deepcopy(modules[path])
            install(model, path, observers[path])
        inner = getattr(observers[path], "activation_post_process", observers[path])
        if hasattr(inner, "min_val"):
            inner.min_val, inner.max_val = seen.calculate_scaled_minmax()
    if one.layer is not None:
        return
    source = observer.args[0]
    with model.graph.inserting_before(observer):
        name = _unused(model, f"{source.name}_equalization_scale")
        model.register_buffer(name, seen.equalization_scale)
        factors = model.graph.create_node("get_attr", name)
    with model.graph.inserting_after(factors):
        scaled = model.graph.call_function(torch.mul, (source, factors))
    observer.replace_input_with(source, scaled)
