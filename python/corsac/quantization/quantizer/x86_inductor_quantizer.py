"""The quantiser of x86 processors: convolutions and linear layers with what follows them, and products.

The names are those of ``torch.ao.quantization.quantizer.x86_inductor_quantizer``. Nodes are found by the operators that
``torch.export`` writes, whether they come from modules or functions.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from corsac.quantization.fake_quantize import FusedMovingAvgObsFakeQuantize
from corsac.quantization.observer import (
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from corsac.quantization.quantizer._activations import activation_constructor
from corsac.quantization.quantizer.quantizer import (
    Q_ANNOTATION_KEY,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from corsac.quantization.quantizer.utils import (
    QuantizationConfig,
    get_bias_qspec,
    get_input_act_qspec,
    get_module_name_filter,
    get_output_act_qspec,
    get_weight_qspec,
    warn_of_unmatched,
)

__all__ = [
    "X86InductorQuantizer",
    "get_default_x86_inductor_quantization_config",
    "get_x86_inductor_linear_dynamic_fp16_config",
]

aten = torch.ops.aten
#: Whether a configuration is meant for the nodes of a pattern.
FilterFn = Callable[[list[Any]], bool]

#: Operators that keep the levels of their input.
int8_in_int8_out_ops = {
    aten.max_pool2d.default,
    aten.cat.default,
    aten.avg_pool2d.default,
    aten.adaptive_avg_pool2d.default,
    aten.flatten.using_ints,
}
#: Operators that are quantised if their inputs come from quantised ones.
propagation_quantizable_ops = int8_in_int8_out_ops
#: Operators that the global configuration is for.
default_quantizable_ops = propagation_quantizable_ops | {
    aten.conv1d.default,
    aten.conv2d.default,
    aten.linear.default,
    aten.mul.Tensor,
}
#: Operators that may have a configuration.
quantizable_ops = default_quantizable_ops | {aten.matmul.default}

_ADD = (aten.add.Tensor, aten.add_.Tensor)
_RELU = (aten.relu.default, aten.relu_.default)
_AFTER_CONVOLUTION = (
    _RELU,
    (aten.hardtanh.default, aten.hardtanh_.default),
    (aten.hardswish.default, aten.hardswish_.default),
    (aten.relu6.default, aten.relu6_.default),
    (aten.silu.default, aten.silu_.default),
)
_AFTER_LINEAR = (
    _RELU,
    (aten.leaky_relu.default, aten.leaky_relu_.default),
    (aten.tanh.default, aten.tanh_.default),
    (aten.gelu.default, aten.gelu_.default),
)
_CONV1D, _CONV2D = (aten.conv1d.default,), (aten.conv2d.default,)
_LINEAR, _NORM = (aten.linear.default,), (aten.batch_norm.default,)


@dataclass
class _X86InductorQuantizationAnnotation(QuantizationAnnotation):
    #: Whether the node is the last one of operators that are computed with integers.
    _is_output_of_quantized_pattern: bool = False


@functools.lru_cache
def get_default_x86_inductor_quantization_config(
    is_qat: bool = False, is_dynamic: bool = False, reduce_range: bool = False
) -> QuantizationConfig:
    """Activations of ``uint8`` for a whole tensor, weights of ``int8`` for each output channel.

    Args:
        is_qat: whether the model is trained with fake quantisers.
        is_dynamic: whether activations are quantised with parameters of each batch.
        reduce_range: activations of 7 bits, for processors without VNNI.
    """
    eps = 2**-12
    values = QuantizationSpec(
        dtype=torch.uint8,
        quant_min=0,
        quant_max=127 if reduce_range else 255,
        qscheme=torch.per_tensor_affine,
        is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=activation_constructor(is_qat, is_dynamic, eps),
    )
    if is_qat:
        channels = FusedMovingAvgObsFakeQuantize.with_args(
            eps=eps, observer=MovingAveragePerChannelMinMaxObserver
        )
    else:
        channels = PerChannelMinMaxObserver.with_args(eps=eps)
    weight = QuantizationSpec(
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
        is_dynamic=False,
        observer_or_fake_quant_ctr=channels,
    )
    return QuantizationConfig(values, values, weight, None, is_qat)


@functools.lru_cache
def get_x86_inductor_linear_dynamic_fp16_config() -> QuantizationConfig:
    """Weights of ``float16``, for linear layers."""
    weight = QuantizationSpec(torch.float16, PlaceholderObserver)
    return QuantizationConfig(None, None, weight, None)


def _is_annotated(node: Any) -> bool:
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    return annotation is not None and annotation._annotated


def _is_quantised(node: Any) -> bool:
    return _is_annotated(node) and bool(
        getattr(node.meta[Q_ANNOTATION_KEY], "_is_output_of_quantized_pattern", False)
    )


def _annotate(node: Any, is_last: bool = False, **given: Any) -> None:
    node.meta[Q_ANNOTATION_KEY] = _X86InductorQuantizationAnnotation(
        **given, _annotated=True, _is_output_of_quantized_pattern=is_last
    )


def _sequences(graph: Any, *kinds: tuple[Any, ...]) -> Iterator[list[Any]]:
    """Calls of operators of these kinds, each of which reads the one before."""

    def extended(nodes: list[Any], rest: tuple[tuple[Any, ...], ...]) -> Iterator[list[Any]]:
        if not rest:
            yield nodes
            return
        for user in sorted(nodes[-1].users):
            if user.op == "call_function" and user.target in rest[0]:
                yield from extended([*nodes, user], rest[1:])

    for node in graph.nodes:
        if node.op == "call_function" and node.target in kinds[0]:
            yield from extended([node], kinds[1:])


def _other_input(add: Any, value: Any) -> Any:
    """The node that is added to ``value``, if that is another."""
    left, right = add.args[:2]
    other = right if left is value else left
    return other if other is not value and hasattr(other, "meta") else None


class X86InductorQuantizer(Quantizer):
    """Quantises convolutions, linear layers and products, and pools and concatenations between them.

    A configuration by name of a module comes before one by type of an operator, which comes before the global one; None
    leaves nodes as they are. Configurations of different kinds (training, dynamic) cannot be mixed.
    """

    module_function_to_aten_operator_type: ClassVar[dict[Any, Any]] = {
        torch.nn.Conv1d: aten.conv1d.default,
        F.conv1d: aten.conv1d.default,
        torch.nn.Conv2d: aten.conv2d.default,
        F.conv2d: aten.conv2d.default,
        torch.nn.Linear: aten.linear.default,
        F.linear: aten.linear.default,
        torch.nn.MaxPool2d: aten.max_pool2d.default,
        F.max_pool2d: aten.max_pool2d.default,
        torch.cat: aten.cat.default,
        torch.nn.AvgPool2d: aten.avg_pool2d.default,
        F.avg_pool2d: aten.avg_pool2d.default,
        torch.nn.AdaptiveAvgPool2d: aten.adaptive_avg_pool2d.default,
        F.adaptive_avg_pool2d: aten.adaptive_avg_pool2d.default,
        torch.flatten: aten.flatten.using_ints,
        torch.matmul: aten.matmul.default,
        torch.mul: aten.mul.Tensor,
    }

    def __init__(self) -> None:
        super().__init__()
        self.global_config: Any = None
        self.operator_type_qconfig: dict[Any, Any] = {}
        self.module_name_qconfig: dict[str, Any] = {}

    def set_global(self, quantization_config: Any) -> X86InductorQuantizer:
        """Set the configuration of all operators without another one."""
        if self._fits(quantization_config, "the global configuration"):
            self.global_config = quantization_config
        return self

    def get_global_quantization_config(self) -> Any:
        """The configuration of all operators without another one."""
        if self.global_config is None:
            warnings.warn(
                "there is no global configuration: set_global has not been called", stacklevel=2
            )
        return self.global_config

    def set_function_type_qconfig(
        self, function_type: Any, quantization_config: Any
    ) -> X86InductorQuantizer:
        """Set the configuration of a function, such as ``torch.nn.functional.linear``."""
        return self._set_type(function_type, quantization_config)

    def set_module_type_qconfig(
        self, module_type: Any, quantization_config: Any
    ) -> X86InductorQuantizer:
        """Set the configuration of a class of modules, and of the function that it calls."""
        return self._set_type(module_type, quantization_config)

    def set_module_name_qconfig(
        self, module_name: str, quantization_config: Any
    ) -> X86InductorQuantizer:
        """Set the configuration of all operators of the module of a qualified name."""
        if self._fits(quantization_config, module_name):
            self.module_name_qconfig[module_name] = quantization_config
        return self

    def _set_type(self, kind: Any, config: Any) -> X86InductorQuantizer:
        operator = self.module_function_to_aten_operator_type.get(kind)
        if operator is None:
            names = sorted({one.__name__ for one in self.module_function_to_aten_operator_type})
            warnings.warn(
                f"{kind} has no configuration: X86InductorQuantizer quantises {', '.join(names)}",
                stacklevel=3,
            )
        elif self._fits(config, str(kind)):
            self.operator_type_qconfig[operator] = config
        return self

    def _fits(self, config: Any, name: str) -> bool:
        """Whether a configuration is of the same kind as the others; a warning if not."""
        if config is None:
            return True
        others = [
            *self.module_name_qconfig.values(),
            *self.operator_type_qconfig.values(),
            self.global_config,
        ]
        for other in others:
            if other is None:
                continue
            values, before = config.input_activation, other.input_activation
            reason = None
            if other.is_qat != config.is_qat:
                reason = "for training and for inference"
            elif values and before and values.is_dynamic != before.is_dynamic:
                reason = "static and dynamic"
            if reason is not None:
                warnings.warn(
                    f"the configuration for {name} is left out: those {reason} cannot be mixed",
                    stacklevel=3,
                )
                return False
        return True

    def annotate(self, model: Any) -> Any:
        warn_of_unmatched(model, self.module_name_qconfig)
        for name, config in self.module_name_qconfig.items():
            comes_from = get_module_name_filter(name)
            self._annotate_with(
                model.graph, config, lambda nodes, own=comes_from: all(map(own, nodes))
            )
        for operator, config in self.operator_type_qconfig.items():
            self._annotate_with(model.graph, config, _has_one_of({operator}))
        if self.global_config is not None:
            self._annotate_with(
                model.graph, self.global_config, _has_one_of(default_quantizable_ops)
            )
        for node in model.graph.nodes:
            if node.target in int8_in_int8_out_ops and _is_quantised(node):
                shared = SharedQuantizationSpec((node.all_input_nodes[0], node))
                node.meta[Q_ANNOTATION_KEY].output_qspec = shared
        return model

    def validate(self, model: torch.nn.Module) -> None:
        pass

    def _annotate_with(self, graph: Any, config: Any, is_meant: FilterFn) -> None:
        recipe = _Recipe(graph, config, is_meant)
        recipe.layers()
        recipe.products()
        recipe.followers()


def _has_one_of(operators: set[Any]) -> FilterFn:
    return lambda nodes: sum(node.target in operators for node in nodes) == 1


class _Recipe:
    """Annotation of the nodes that a configuration is meant for, where no other one has come before."""

    def __init__(self, graph: Any, config: Any, is_meant: FilterFn) -> None:
        self._graph, self._config, self._is_meant = graph, config, is_meant
        self._input, self._output = get_input_act_qspec(config), get_output_act_qspec(config)
        self._weight, self._bias = get_weight_qspec(config), get_bias_qspec(config)
        self._is_qat = config is None or config.is_qat

    def layers(self) -> None:
        """Convolutions and linear layers, the longest patterns first."""
        if self._is_qat:
            self._with_add(_CONV2D, _NORM, _ADD, _RELU)
            self._with_add(_CONV2D, _NORM, _ADD)
            for activation in _AFTER_CONVOLUTION:
                self._plain(_CONV2D, _NORM, activation)
            self._plain(_CONV2D, _NORM)
        self._with_add(_CONV2D, _ADD, _RELU)
        self._with_add(_CONV2D, _ADD)
        for activation in _AFTER_CONVOLUTION:
            self._plain(_CONV2D, activation)
        self._plain(_CONV1D, _RELU)
        self._plain(_CONV2D)
        self._with_add(_LINEAR, _ADD, _RELU)
        self._with_add(_LINEAR, _ADD)
        for activation in _AFTER_LINEAR:
            self._plain(_LINEAR, activation)
        self._plain(_LINEAR)

    def _takes(self, nodes: list[Any]) -> bool:
        """Whether the nodes are to be annotated; those of a configuration that is None are marked."""
        if any(map(_is_annotated, nodes)) or not self._is_meant(nodes):
            return False
        if self._config is None:
            for node in nodes:
                _annotate(node)
            return False
        return True

    def _layer(self, node: Any, is_last: bool, **given: Any) -> None:
        inputs = {node.args[0]: self._input, node.args[1]: self._weight}
        if len(node.args) > 2 and node.args[2] is not None:
            inputs[node.args[2]] = self._bias
        _annotate(node, is_last, input_qspec_map=inputs, **given)

    def _plain(self, *kinds: tuple[Any, ...]) -> None:
        """A layer, its batch norm while it is trained, and a function."""
        for nodes in _sequences(self._graph, *kinds):
            if self._takes(nodes):
                self._mark(nodes, has_norm=_NORM in kinds)

    def _mark(self, nodes: list[Any], has_norm: bool) -> None:
        layer, last = nodes[0], nodes[-1]
        for node in nodes:
            _annotate(node)
        self._layer(layer, layer is last)
        if last is not layer:
            output = {"output_qspec": self._output} if has_norm else {}
            _annotate(last, is_last=True, **output)

    def _with_add(self, *kinds: tuple[Any, ...]) -> None:
        """A layer to whose result another value is added."""
        place = kinds.index(_ADD)
        for nodes in _sequences(self._graph, *kinds):
            value, add = nodes[place - 1], nodes[place]
            other = _other_input(add, value)
            if len(value.users) != 1 or other is None or not self._takes(nodes):
                continue
            has_norm = _NORM in kinds
            self._mark(nodes, has_norm)
            # The other value of a linear layer stays a number, for accuracy.
            inputs = {} if kinds[0] == _LINEAR else {other: self._input}
            is_last = add is nodes[-1]
            output = {"output_qspec": self._output} if has_norm and is_last else {}
            _annotate(add, is_last, input_qspec_map=inputs, **output)

    def products(self) -> None:
        """Products of matrices, and of tensors of the same shape."""
        for target in (aten.matmul.default, aten.mul.Tensor):
            for node in self._graph.nodes:
                if node.op != "call_function" or node.target != target:
                    continue
                values = [getattr(one, "meta", {}).get("val") for one in node.args]
                alike = all(isinstance(one, torch.Tensor) for one in values) and (
                    target is aten.matmul.default or values[0].shape == values[1].shape
                )
                if self._config is not None and not alike:
                    continue
                if self._takes([node]):
                    inputs = dict.fromkeys(node.args, self._input)
                    _annotate(node, is_last=True, input_qspec_map=inputs)

    def followers(self) -> None:
        """Operators that keep levels, behind quantised ones."""
        for node in self._graph.nodes:
            if node.op == "call_function" and node.target in propagation_quantizable_ops:
                self._follow(node)

    def _follow(self, node: Any) -> None:
        if not self._takes([node]):
            return
        sources = node.all_input_nodes if node.target is aten.cat.default else [node.args[0]]
        if not all(map(_is_quantised, sources)):
            return
        if node.target is aten.flatten.using_ints and not any(
            user.target in quantizable_ops for user in node.users
        ):
            return
        first = sources[0]
        inputs = dict.fromkeys(sources, SharedQuantizationSpec((first, node)))
        inputs[first] = self._input
        _annotate(node, is_last=True, input_qspec_map=inputs)
