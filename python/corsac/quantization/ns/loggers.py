"""Modules that keep the values that go through them, and what they have kept.

The names are those of ``torch.ao.ns._numeric_suite_fx``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization.ns.metrics import compute_sqnr

__all__ = [
    "NSResultsType",
    "OutputComparisonLogger",
    "OutputLogger",
    "extend_logger_results_with_comparison",
    "extract_logger_info",
    "extract_shadow_logger_info",
    "loggers_set_enabled",
    "loggers_set_save_activations",
]

#: Results by the name of the operator, the kind of value, and the name of the model.
NSResultsType = dict[str, dict[str, dict[str, list[dict[str, Any]]]]]


class OutputLogger(nn.Module):
    """Keeps the values that go through it.

    Args:
        ref_node_name: the node that is compared.
        prev_node_name: the node whose result is kept.
        model_name: the model.
        ref_name: the name of the match: loggers of two models with one name are compared.
        prev_node_target_type: the type of the target of ``prev_node_name``.
        ref_node_target_type: the type of the target of ``ref_node_name``.
        results_type: "node_output", or "node_input".
        index_within_arg: the place in a list of tensors that is an argument.
        index_of_arg: the place of the argument.
        fqn: the path of the module that has the node.
        qconfig_str: the configuration that is compared.

    Attributes:
        stats: the values.
        stats_rnn: the values that are results of recurrent layers: pairs of a tensor and of a pair of tensors.
        enabled: whether values are looked at.
        save_activations: whether values are kept.
    """

    # Calls are kept, though no node uses their results.
    _is_impure = True

    def __init__(
        self,
        ref_node_name: str,
        prev_node_name: str,
        model_name: str,
        ref_name: str,
        prev_node_target_type: str,
        ref_node_target_type: str,
        results_type: str,
        index_within_arg: int,
        index_of_arg: int,
        fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:
        super().__init__()
        self.stats: list[Tensor] = []
        self.stats_rnn: list[Any] = []
        self.ref_node_name = ref_node_name
        self.prev_node_name = prev_node_name
        self.model_name = model_name
        self.ref_name = ref_name
        self.prev_node_target_type = prev_node_target_type
        self.ref_node_target_type = ref_node_target_type
        self.results_type = results_type
        self.index_within_arg = index_within_arg
        self.index_of_arg = index_of_arg
        self.fqn = fqn
        self.enabled = True
        self.qconfig_str = qconfig_str
        self.save_activations = True

    def forward(self, x: Any) -> Any:
        if not self.enabled or not self.save_activations:
            return x
        if isinstance(x, Tensor):
            self.stats.append(x.detach())
        elif isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], tuple) and len(x[1]) == 2:
            hidden, cell = x[1]
            self.stats_rnn.append((x[0].detach(), (hidden.detach(), cell.detach())))
        return x

    def __repr__(self) -> str:
        own = {
            name: value
            for name, value in vars(self).items()
            if name != "training" and not name.startswith("_")
        }
        return f"{type(self).__name__}({own})"


class OutputComparisonLogger(OutputLogger):
    """Keeps the values that go through it, and how far they are from others, in decibels.

    Attributes:
        comparisons: the signal-to-noise ratio of each value.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.comparison_fn = compute_sqnr
        self.comparison_fn_name = "sqnr"
        self.comparisons: list[Tensor] = []

    def forward(self, x: Any, x_ref: Any) -> Any:
        if not self.enabled:
            return x
        if not isinstance(x, Tensor):
            raise AssertionError(
                f"node {self.ref_node_name}: expected a tensor to compare, got {type(x).__name__}"
            )
        if self.save_activations:
            self.stats.append(x.detach())
        self.comparisons.append(self.comparison_fn(x, x_ref))
        return x


def loggers_set_enabled(model: nn.Module, enabled: bool) -> None:
    """Switch the loggers of a model on or off."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.enabled = enabled


def loggers_set_save_activations(model: nn.Module, save_activations: bool) -> None:
    """Switch whether the loggers of a model keep values; comparisons go on."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.save_activations = save_activations


def collect(model: nn.Module, results: NSResultsType, logger_cls: Any) -> None:
    """Put what the loggers of a model have kept into ``results``, by the names of matches."""
    for module in model.modules():
        if not isinstance(module, logger_cls):
            continue
        logger: Any = module
        kinds = results.setdefault(logger.ref_name, {})
        found = kinds.setdefault(logger.results_type, {}).setdefault(logger.model_name, [])
        found.append(
            {
                "type": logger.results_type,
                "values": logger.stats_rnn or logger.stats,
                "ref_node_name": logger.ref_node_name,
                "ref_node_target_type": logger.ref_node_target_type,
                "prev_node_name": logger.prev_node_name,
                "prev_node_target_type": logger.prev_node_target_type,
                "index_within_arg": logger.index_within_arg,
                "index_of_arg": logger.index_of_arg,
                "fqn": logger.fqn,
                "qconfig_str": logger.qconfig_str,
                "comparisons": getattr(logger, "comparisons", []),
                "comparison_fn_name": getattr(logger, "comparison_fn_name", ""),
            }
        )
        found.sort(key=lambda result: (result["index_of_arg"], result["index_within_arg"]))


def named_by_nodes(results: NSResultsType, model_name: str) -> NSResultsType:
    """Results by the names of the nodes of a model, each with the path of its module.

    A converted graph may not say which module a function is of, the other model does.
    """
    renamed: NSResultsType = {}
    for name, kinds in sorted(results.items(), key=lambda item: _number(item[0])):
        of_models = [of_model for models in kinds.values() for of_model in models.values()]
        paths = [one["fqn"] for found in of_models for one in found if one["fqn"] is not None]
        for found in of_models:
            for one in found:
                if one["fqn"] is None and paths:
                    one["fqn"] = paths[0]
        own = [models[model_name] for models in kinds.values() if models.get(model_name)]
        renamed[own[0][0]["ref_node_name"] if own else name] = kinds
    return renamed


def _number(match: str) -> int:
    """The place of a match in the order of the graph."""
    number = match.rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def extract_logger_info(
    model_a: nn.Module,
    model_b: nn.Module,
    logger_cls: Callable[..., Any],
    model_name_to_use_for_layer_names: str,
) -> NSResultsType:
    """The records of the loggers of two models, by the names of the nodes of one of them.

    Args:
        model_a: a model of :func:`add_loggers`.
        model_b: the other one.
        logger_cls: the class of the loggers.
        model_name_to_use_for_layer_names: the name of one of the models.
    """
    results: NSResultsType = {}
    for model in (model_a, model_b):
        collect(model, results, logger_cls)
    return named_by_nodes(results, model_name_to_use_for_layer_names)


def extract_shadow_logger_info(
    model_a_shadows_b: nn.Module,
    logger_cls: Callable[..., Any],
    model_name_to_use_for_layer_names: str,
) -> NSResultsType:
    """The records of the loggers of a model of :func:`add_shadow_loggers`; see :func:`extract_logger_info`."""
    results: NSResultsType = {}
    collect(model_a_shadows_b, results, logger_cls)
    return named_by_nodes(results, model_name_to_use_for_layer_names)


def extend_logger_results_with_comparison(
    results: NSResultsType,
    model_name_1: str,
    model_name_2: str,
    comparison_fn: Callable[[Any, Any], torch.Tensor],
    comparison_name: str,
) -> None:
    """Compare the values of two models, and add the comparisons to the results of the second one.

    Args:
        results: the results, which are changed.
        model_name_1: the model that is compared with.
        model_name_2: the model that is compared.
        comparison_fn: a measure, as :func:`compute_sqnr`.
        comparison_name: the key of the comparisons.
    """
    for name, kinds in results.items():
        for models in kinds.values():
            for model_name in (model_name_1, model_name_2):
                if model_name not in models:
                    raise AssertionError(
                        f"results of {name}: expected values of model {model_name!r}, got those of "
                        f"{', '.join(map(repr, models))}"
                    )
            by_place = {
                (one["index_of_arg"], one["index_within_arg"]): one["values"]
                for one in models[model_name_1]
            }
            for one in models[model_name_2]:
                place = one["index_of_arg"], one["index_within_arg"]
                if place not in by_place:
                    raise AssertionError(
                        f"results of {name}: model {model_name_1!r} has no value at place {place}"
                    )
                one[comparison_name] = [
                    comparison_fn(left, right)
                    for left, right in zip(by_place[place], one["values"], strict=False)
                ]
