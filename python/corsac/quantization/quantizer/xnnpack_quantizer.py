"""The quantiser of mobile processors: symmetric weights, activations of ``int8``, and sums, products and concatenations.

The names are those of ``torch.ao.quantization.quantizer.xnnpack_quantizer``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from corsac.quantization.fake_quantize import FusedMovingAvgObsFakeQuantize
from corsac.quantization.observer import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from corsac.quantization.pt2e._nodes import (
    BATCH_NORMS,
    CONVOLUTIONS,
    TRANSPOSED,
    attribute,
    calls,
    is_node,
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
    OperatorConfig,
    OperatorPatternType,
    QuantizationConfig,
    get_bias_qspec,
    get_input_act_qspec,
    get_module_name_filter,
    get_output_act_qspec,
    get_weight_qspec,
    warn_of_unmatched,
)

__all__ = ["XNNPACKQuantizer", "get_symmetric_quantization_config"]

aten = torch.ops.aten
_LINEAR = frozenset([aten.linear.default])
_RELU = frozenset([aten.relu.default, aten.relu_.default])
_ADD = frozenset([aten.add.Tensor, aten.add_.Tensor])
_MUL = frozenset([aten.mul.Tensor, aten.mul_.Tensor])
_PLAIN = frozenset([aten.conv1d.default, aten.conv2d.default])
_TRAINED = frozenset([*_PLAIN, aten.conv1d.padding, aten.conv2d.padding])
_TRAINED_TRANSPOSED = frozenset([aten.conv_transpose1d.default, aten.conv_transpose2d.input])
#: Operators whose output has the parameters of their input.
_KEEP = frozenset(
    [
        aten.relu.default,
        aten.hardtanh.default,
        aten.hardtanh_.default,
        aten.max_pool2d.default,
        aten.mean.default,
        aten.mean.dim,
        aten.permute.default,
        aten.permute_copy.default,
        aten.squeeze.dim,
        aten.squeeze_copy.dim,
        aten.adaptive_avg_pool2d.default,
        aten.view_copy.default,
        aten.view.default,
        aten.slice_copy.Tensor,
        aten.flatten.using_ints,
    ]
)
#: Values above which histograms overflow.
_LARGEST = 3.4028235e15


@functools.lru_cache
def get_symmetric_quantization_config(
    is_per_channel: bool = False,
    is_qat: bool = False,
    is_dynamic: bool = False,
    act_qmin: int = -128,
    act_qmax: int = 127,
    weight_qmin: int = -127,
    weight_qmax: int = 127,
) -> QuantizationConfig:
    """Activations of ``int8`` for a whole tensor, and symmetric weights of ``int8``.

    Args:
        is_per_channel: whether weights have a scale for each output channel.
        is_qat: whether the model is trained with fake quantisers.
        is_dynamic: whether activations are quantised with parameters of each batch.
        act_qmin: the smallest quantised activation.
        act_qmax: the largest quantised activation.
        weight_qmin: the smallest quantised weight.
        weight_qmax: the largest quantised weight.
    """
    eps = 2**-12
    values = QuantizationSpec(
        dtype=torch.int8,
        quant_min=act_qmin,
        quant_max=act_qmax,
        qscheme=torch.per_tensor_affine,
        is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=activation_constructor(is_qat, is_dynamic, eps),
    )
    if is_qat:
        observer = (
            MovingAveragePerChannelMinMaxObserver if is_per_channel else MovingAverageMinMaxObserver
        )
        channels = FusedMovingAvgObsFakeQuantize.with_args(eps=eps, observer=observer)
    elif is_per_channel:
        channels = PerChannelMinMaxObserver.with_args(eps=eps)
    else:
        channels = MinMaxObserver.with_args(eps=eps)
    weight = QuantizationSpec(
        dtype=torch.int8,
        quant_min=weight_qmin,
        quant_max=weight_qmax,
        qscheme=torch.per_channel_symmetric if is_per_channel else torch.per_tensor_symmetric,
        ch_axis=0,
        observer_or_fake_quant_ctr=channels,
    )
    return QuantizationConfig(values, None if is_dynamic else values, weight, None, is_qat)


def _is_annotated(nodes: list[Any]) -> bool:
    found = [node.meta.get(Q_ANNOTATION_KEY) for node in nodes]
    return any(one is not None and one._annotated for one in found)


def _annotate(node: Any, inputs: Any = None, output: Any = None) -> None:
    node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(inputs or {}, output, _annotated=True)


def _chains(graph: Any, *kinds: frozenset[Any]) -> Iterator[list[Any]]:
    """Calls of operators of these kinds, each of which is all that reads the one before."""
    for node in graph.nodes:
        found = [node]
        for kind in reversed(kinds):
            if not calls(found[0], *kind):
                break
            if len(found) == len(kinds):
                yield found
                break
            before = found[0].args[0]
            if not is_node(before) or len(before.users) != 1:
                break
            found.insert(0, before)


def _module_type_filter(kind: Any) -> Callable[[Any], bool]:
    name = f"{kind.__module__}.{kind.__qualname__}"

    def comes_from_kind(node: Any) -> bool:
        kinds = [own for _, own in (node.meta.get("nn_module_stack") or {}).values()]
        return name in kinds or kind in kinds

    return comes_from_kind


class _Recipe:
    """Annotation of the nodes that a configuration is meant for, where no other one has come before."""

    def __init__(self, model: Any, config: Any, is_meant: Callable[[Any], bool]) -> None:
        self._model, self._graph, self._is_meant = model, model.graph, is_meant
        self._input, self._output = get_input_act_qspec(config), get_output_act_qspec(config)
        self._weight, self._bias = get_weight_qspec(config), get_bias_qspec(config)

    def static(self, is_qat: bool) -> None:
        """All patterns, the longest of a kind first."""
        if is_qat:
            for kind in (_TRAINED, _TRAINED_TRANSPOSED):
                self._layers(kind, BATCH_NORMS, _RELU)
                self._layers(kind, BATCH_NORMS)
        self._layers(_LINEAR, _RELU)
        self._layers(_LINEAR)
        self._layers(CONVOLUTIONS, _RELU)
        self._layers(_PLAIN)
        self._layers(TRANSPOSED, _RELU)
        self._pools()
        for kind in (_ADD, _MUL):
            self._pairs(kind, _RELU)
            self._pairs(kind)
        self._concatenations()

    def dynamic(self) -> None:
        """Linear layers."""
        self._layers(_LINEAR)

    def _takes(self, nodes: list[Any], others: list[Any]) -> bool:
        return not _is_annotated([*nodes, *others]) and all(map(self._is_meant, nodes))

    def _layers(self, *kinds: frozenset[Any]) -> None:
        """Layers with weights, with what follows them."""
        for nodes in _chains(self._graph, *kinds):
            layer, last = nodes[0], nodes[-1]
            weights = [own for own in layer.args[1:3] if is_node(own)]
            if not self._takes(nodes, [] if kinds == (_LINEAR,) else weights):
                continue
            specs = (self._weight, self._bias)
            inputs = {layer.args[0]: self._input, **dict(zip(weights, specs, strict=False))}
            for node in (*nodes, *weights):
                _annotate(node)
            _annotate(last, output=self._output)
            _annotate(layer, inputs, self._output if last is layer else None)

    def _pools(self) -> None:
        for node in self._graph.nodes:
            if not calls(node, aten.adaptive_avg_pool2d.default) or not self._takes([node], []):
                continue
            value = node.args[0]
            before = value.meta.get(Q_ANNOTATION_KEY)
            known = before is not None and before._annotated and before.output_qspec is not None
            spec = SharedQuantizationSpec(value) if known else self._input
            _annotate(node, {value: spec}, SharedQuantizationSpec((value, node)))

    def _pairs(self, *kinds: frozenset[Any]) -> None:
        """Sums and products of tensors, with an activation."""
        for nodes in _chains(self._graph, *kinds):
            pair, last = nodes[0], nodes[-1]
            values = [own for own in pair.args[:2] if is_node(own)]
            if not self._takes(nodes, []) or not all(map(self._is_quantisable, values)):
                continue
            for node in nodes[1:]:
                _annotate(node, output=self._output)
            inputs = dict.fromkeys(values, self._input)
            _annotate(pair, inputs, self._output if last is pair else None)

    def _is_quantisable(self, node: Any) -> bool:
        """Whether a value is a tensor of numbers that observers can hold."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return False
        if node.op != "get_attr":
            return True
        own = attribute(self._model, node.target)
        return own.numel() != 1 or abs(own.item()) <= _LARGEST

    def _concatenations(self) -> None:
        for node in self._graph.nodes:
            if not calls(node, aten.cat.default) or not self._takes([node], []):
                continue
            first = node.args[0][0]
            shared = SharedQuantizationSpec((first, node))
            inputs = {**dict.fromkeys(node.args[0], shared), first: self._input}
            _annotate(node, inputs, shared)


class XNNPACKQuantizer(Quantizer):
    """Quantises layers with their activations, sums, products, concatenations and pools.

    A configuration by name of a module comes before one by class, which comes before the global one.
    """

    _patterns: ClassVar[list[OperatorPatternType]] = [
        [torch.nn.Conv2d, torch.nn.ReLU],
        [torch.nn.Conv2d, F.relu],
        [F.conv2d, torch.nn.ReLU],
        [F.conv2d, F.relu],
        [torch.nn.Linear],
        [F.linear],
        [torch.add],
        [torch.nn.AdaptiveAvgPool2d],
        [F.adaptive_avg_pool2d],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.global_config: Any = None
        self.operator_type_config: dict[Any, Any] = {}
        self.module_type_config: dict[Any, Any] = {}
        self.module_name_config: dict[str, Any] = {}

    @classmethod
    def get_supported_operators(cls) -> list[OperatorConfig]:
        return [
            OperatorConfig(
                get_symmetric_quantization_config(is_per_channel=per_channel, is_qat=is_qat),
                [*cls._patterns],
            )
            for per_channel in (False, True)
            for is_qat in (False, True)
        ]

    @classmethod
    def get_supported_quantization_configs(cls) -> list[QuantizationConfig]:
        return [config for config, _ in cls.get_supported_operators()]

    @classmethod
    def get_supported_operator_for_quantization_config(
        cls, quantization_config: Any
    ) -> list[OperatorPatternType]:
        supported = cls.get_supported_operators()
        if quantization_config is None:
            return [one for _, patterns in supported for one in patterns]
        return next((own for config, own in supported if config == quantization_config), [])

    def set_global(self, quantization_config: Any) -> XNNPACKQuantizer:
        """Set the configuration of all modules without another one."""
        self.global_config = quantization_config
        return self

    def set_operator_type(self, operator_type: Any, quantization_config: Any) -> XNNPACKQuantizer:
        """Set the configuration of an operator, such as ``torch.ops.aten.linear.default``."""
        self.operator_type_config[operator_type] = quantization_config
        return self

    def set_module_type(self, module_type: Any, quantization_config: Any) -> XNNPACKQuantizer:
        """Set the configuration of all operators of modules of a class."""
        self.module_type_config[module_type] = quantization_config
        return self

    def set_module_name(self, module_name: str, quantization_config: Any) -> XNNPACKQuantizer:
        """Set the configuration of all operators of the module of a qualified name; None leaves them as they are."""
        self.module_name_config[module_name] = quantization_config
        return self

    def transform_for_annotation(self, model: Any) -> Any:
        """Make buffers of the numbers that are added and multiplied by."""
        for node in [*model.graph.nodes]:
            if calls(node, aten.add.Tensor, aten.mul.Tensor):
                node.args = tuple(
                    own if is_node(own) else self._buffer(model, node, own) for own in node.args
                )
        model.recompile()
        return model

    @staticmethod
    def _buffer(model: Any, node: Any, number: float) -> Any:
        place = 0
        while hasattr(model, f"_tensor_constant_{place}"):
            place += 1
        value = torch.tensor(float(number))
        model.register_buffer(f"_tensor_constant_{place}", value)
        with model.graph.inserting_before(node):
            own = model.graph.get_attr(f"_tensor_constant_{place}")
        own.meta["val"] = node.meta["val"].fake_mode.from_tensor(value, static_shapes=True)
        return own

    def annotate(self, model: Any) -> Any:
        warn_of_unmatched(model, self.module_name_config)
        chosen = [
            *(
                (get_module_name_filter(own), config)
                for own, config in self.module_name_config.items()
            ),
            *(
                (_module_type_filter(own), config)
                for own, config in self.module_type_config.items()
            ),
            *(
                (lambda node, own=own: node.target == own, config)
                for own, config in self.operator_type_config.items()
            ),
        ]
        filters = [own for own, _ in chosen]
        chosen.append((lambda node: not any(own(node) for own in filters), self.global_config))
        for is_meant, config in chosen:
            if config is None:
                continue
            recipe = _Recipe(model, config, is_meant)
            values = config.input_activation
            if values is not None and values.is_dynamic:
                recipe.dynamic()
            else:
                recipe.static(config.is_qat)
        self._propagate(model.graph)
        return model

    @staticmethod
    def _propagate(graph: Any) -> None:
        """Share the observer of a quantised value with what keeps its parameters."""
        for node in graph.nodes:
            if not calls(node, *_KEEP) or not is_node(node.args[0]) or _is_annotated([node]):
                continue
            value = node.args[0]
            before = value.meta.get(Q_ANNOTATION_KEY)
            if before is not None and before.output_qspec is not None:
                shared = SharedQuantizationSpec(value)
                _annotate(node, {value: shared}, shared)

    def validate(self, model: torch.nn.Module) -> None:
        pass
