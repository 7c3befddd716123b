"""Comparison of two graph modules of one model, operation by operation.

The names are those of ``torch.ao.ns._numeric_suite_fx``. The models are float, prepared or converted. Values are floats.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node, map_arg
from corsac.quantization._kinds import is_activation_post_process
from corsac.quantization._preparation import scope_names
from corsac.quantization._tracer import QuantizationTracer
from corsac.quantization.ns._operations import is_quantisation, is_watcher, path_of, target_type
from corsac.quantization.ns._subgraphs import Subgraph, matches
from corsac.quantization.ns._values import constant, inputs, places, settled
from corsac.quantization.ns._weights import weights_of
from corsac.quantization.ns.loggers import NSResultsType, named_by_nodes

__all__ = ["NSTracer", "add_loggers", "add_shadow_loggers", "extract_weights"]


class NSTracer(QuantizationTracer):
    """A tracer that keeps layers, observers and fake quantisers as calls."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_activation_post_process(m) or super().is_leaf_module(m, module_qualified_name)


def graph_of(model: nn.Module, tracer: Any = None) -> GraphModule:
    """A graph module of a model; of a graph module, one with a copy of its graph. Modules are shared."""
    if isinstance(model, GraphModule):
        made = GraphModule(model, copy.deepcopy(model.graph))
        made.meta = dict(model.meta)
        return made
    tracer = tracer or NSTracer()
    made = GraphModule(model, tracer.trace(model))
    scopes = scope_names(getattr(tracer, "node_name_to_scope", {}))
    object.__setattr__(made, "_node_name_to_scope", scopes)
    return made


def result_of(
    kind: str, model: GraphModule, node: Node, logged: Node, place: tuple[int, int] = (0, 0)
) -> dict[str, Any]:
    """The facts about a value that results and loggers have."""
    return {
        "results_type": kind,
        "ref_node_name": node.name,
        "ref_node_target_type": target_type(model, node),
        "prev_node_name": logged.name,
        "prev_node_target_type": target_type(model, logged),
        "index_of_arg": place[0],
        "index_within_arg": place[1],
        "fqn": path_of(model, node),
    }


def extract_weights(
    model_name_a: str,
    model_a: nn.Module,
    model_name_b: str,
    model_b: nn.Module,
    base_name_to_sets_of_related_ops: dict[str, set[Any]] | None = None,
    unmatchable_types_map: dict[str, set[Any]] | None = None,
    op_to_type_to_weight_extraction_fn: dict[str, dict[Any, Callable[..., Any]]] | None = None,
) -> NSResultsType:
    """The weights of two models, as floats, by the names of the nodes of the second one.

    Args:
        model_name_a: the name of the first model in the results.
        model_a: the first model.
        model_name_b: the name of the second model.
        model_b: the second model.
        base_name_to_sets_of_related_ops: sets of functions and types that compute the same.
        unmatchable_types_map: what is not compared: "funs_unmatchable", "mods_unmatchable", "meths_unmatchable".
        op_to_type_to_weight_extraction_fn: functions that return the weight of a module (under "call_module") or of a
            node and its graph module ("call_function"), by type.
    """
    models = graph_of(model_a), graph_of(model_b)
    names = model_name_a, model_name_b
    results: NSResultsType = {}
    pairs = matches(*models, base_name_to_sets_of_related_ops, unmatchable_types_map)
    for number, pair in enumerate(pairs):
        for name, model, subgraph in zip(names, models, pair, strict=True):
            node = subgraph.base
            weights = _weights(model, node, op_to_type_to_weight_extraction_fn)
            if weights:
                facts = result_of("weight", model, node, node)
                facts["type"] = facts.pop("results_type")
                found = results.setdefault(f"match_{number}", {"weight": {}})
                found["weight"][name] = [{**facts, "values": weights}]
    return named_by_nodes(results, model_name_b)


def _weights(model: GraphModule, node: Node, functions: dict[str, dict[Any, Any]] | None) -> Any:
    own = (functions or {}).get(node.op, {})
    if node.op == "call_module":
        module = get_submodule(model, str(node.target))
        if type(module) in own:
            return [own[type(module)](module)]
    elif node.target in own:
        return [own[node.target](node, model)]
    return weights_of(model, node)


def add_loggers(
    name_a: str,
    model_a: nn.Module,
    name_b: str,
    model_b: nn.Module,
    logger_cls: Callable[..., Any],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: dict[str, set[Any]] | None = None,
    unmatchable_types_map: dict[str, set[Any]] | None = None,
) -> tuple[nn.Module, nn.Module]:
    """Graph modules of two models with loggers of the results of each operation; modules are shared.

    Results are logged after they were observed, or quantised and dequantised.

    Args:
        name_a: the name of the first model in the results.
        model_a: the first model.
        name_b: the name of the second model.
        model_b: the second model.
        logger_cls: the class of the loggers, :class:`OutputLogger`.
        should_log_inputs: whether inputs of operations are logged, too.
        base_name_to_sets_of_related_ops: sets of functions and types that compute the same.
        unmatchable_types_map: what is not compared.
    """
    models = graph_of(model_a), graph_of(model_b)
    pairs = matches(*models, base_name_to_sets_of_related_ops, unmatchable_types_map)
    loggers = [
        Loggers(model, name, logger_cls)
        for model, name in zip(models, (name_a, name_b), strict=True)
    ]
    for number, pair in enumerate(pairs):
        for own, subgraph in zip(loggers, pair, strict=True):
            if should_log_inputs:
                own.log_inputs(subgraph, f"match_{number}")
            own.log_output(subgraph, f"match_{number}")
    first, second = (own.done() for own in loggers)
    return first, second


class Loggers:
    """The loggers of a graph module that is compared."""

    def __init__(self, model: GraphModule, name: str, logger_cls: Callable[..., Any]) -> None:
        self.model, self._name, self._logger_cls = model, name, logger_cls

    def log_output(self, subgraph: Subgraph, match: str) -> None:
        """Log the result of a subgraph for all nodes that use it."""
        logged = settled(self.model, subgraph.end)
        facts = result_of("node_output", self.model, subgraph.base, logged)
        users = list(logged.users)
        logger = self.log(logged, match, facts)
        for user in users:
            user.replace_input_with(logged, logger)

    def log_inputs(self, subgraph: Subgraph, match: str) -> None:
        """Log the inputs of a subgraph."""
        node = subgraph.base
        for place, within, value in places(self.model, node):
            facts = result_of("node_input", self.model, node, value, (place, within))
            node.replace_input_with(value, self.log(value, match, facts))

    def log(
        self, value: Node, match: str, facts: dict[str, Any], after: Node | None = None
    ) -> Node:
        """A node that logs a value; ``after`` is the node that it comes after, that of the value if not given."""
        name = _unused(self.model, f"{value.name}_ns_logger_0")
        logger = self._logger_cls(model_name=self._name, ref_name=match, qconfig_str="", **facts)
        self.model.add_submodule(name, logger)
        with self.model.graph.inserting_after(after or value):
            return self.model.graph.create_node("call_module", name, (value,), {}, name)

    def done(self) -> GraphModule:
        """The graph module with the loggers."""
        made = GraphModule(self.model, self.model.graph)
        made.meta = self.model.meta
        return made


def _unused(model: nn.Module, name: str) -> str:
    stem, number = name.rpartition("_")[0], 0
    while hasattr(model, name):
        number += 1
        name = f"{stem}_{number}"
    return name


def add_shadow_loggers(
    name_a: str,
    model_a: nn.Module,
    name_b: str,
    model_b: nn.Module,
    logger_cls: Callable[..., Any],
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: dict[str, set[Any]] | None = None,
    node_type_to_io_type_map: dict[str, set[Any]] | None = None,
    unmatchable_types_map: dict[str, set[Any]] | None = None,
) -> nn.Module:
    """A graph module of the second model, in which operations of the first one run, too, on the second one's inputs.

    The results of both are logged: differences are those of one operation, not of all before it.

    Args:
        name_a: the name of the first model in the results.
        model_a: the first model.
        name_b: the name of the second model.
        model_b: the second model.
        logger_cls: the class of the loggers, :class:`OutputLogger`.
        should_log_inputs: whether inputs of operations are logged, too.
        base_name_to_sets_of_related_ops: sets of functions and types that compute the same.
        node_type_to_io_type_map: not used: values are floats here.
        unmatchable_types_map: what is not compared.
    """
    first, second = graph_of(model_a), graph_of(model_b)
    pairs = matches(first, second, base_name_to_sets_of_related_ops, unmatchable_types_map)
    shadows = _Shadows(first, second, pairs)
    ours, theirs = (Loggers(second, name, logger_cls) for name in (name_a, name_b))
    for number, (a, b) in enumerate(pairs):
        match = f"match_{number}"
        copied = shadows.add(a, b)
        if copied is None:
            continue
        if should_log_inputs:
            for place, within, value in places(second, b.base):
                for own, model, node in ((ours, first, a.base), (theirs, second, b.base)):
                    facts = result_of("node_input", second, b.base, value, (place, within))
                    facts["ref_node_name"] = node.name
                    facts["ref_node_target_type"] = target_type(model, node)
                    own.log(value, match, facts)
        logged = settled(second, b.end)
        theirs.log(logged, match, result_of("node_output", second, b.base, logged))
        facts = result_of("node_output", first, a.base, a.end)
        ours.log(copied, match, facts)
    return theirs.done()


class _Shadows:
    """Copies of the subgraphs of one graph module in another one."""

    def __init__(
        self, source: GraphModule, target: GraphModule, pairs: list[tuple[Subgraph, Subgraph]]
    ) -> None:
        self._source, self._target = source, target
        self._twins = {
            a: b
            for a, b in zip(
                source.graph.find_nodes(op="placeholder"),
                target.graph.find_nodes(op="placeholder"),
                strict=False,
            )
        }
        self._twins.update({a.end: settled(target, b.end) for a, b in pairs})

    def add(self, a: Subgraph, b: Subgraph) -> Node | None:
        """A copy of ``a`` with the inputs of ``b``; None where inputs have no counterpart."""
        own, other = inputs(self._source, a.base), inputs(self._target, b.base)
        values: dict[Node, Node] = dict(zip(own, other, strict=False))
        if len(own) > len(other):
            return None
        # Copies are at the end of what they use: behind the result of b.
        after = settled(self._target, b.end)
        for node in a.nodes:
            for one in node.all_input_nodes:
                if one not in values and not self._resolve(one, values):
                    return None
            after = self._copied(node, values, after)
        return values[a.end]

    def _resolve(self, node: Node, values: dict[Node, Node]) -> bool:
        """Find the counterpart of a node, with what observes and rounds it passed by."""
        one = node
        if constant(self._source, node) is None:
            while one not in values and one not in self._twins:
                if not (is_watcher(self._source, one) or is_quantisation(one)):
                    return False
                one = one.args[0]  # type: ignore[assignment]
            values[node] = values[one] if one in values else self._twins[one]
        return True

    def _copied(self, node: Node, values: dict[Node, Node], after: Node) -> Node:
        graph, target = self._target.graph, node.target
        for one in node.all_input_nodes:
            if one not in values:
                name = _unused(self._target, f"shadow_{one.name}_0")
                self._target.register_buffer(name, constant(self._source, one))
                with graph.inserting_after(after):
                    after = values[one] = graph.get_attr(name)
        if node.op == "call_module":
            target = _unused(self._target, f"shadow_{str(node.target).replace('.', '_')}_0")
            self._target.add_submodule(target, get_submodule(self._source, str(node.target)))
        with graph.inserting_after(after):
            made = graph.create_node(
                node.op,
                target,
                map_arg(node.args, values.__getitem__),
                map_arg(node.kwargs, values.__getitem__),
                f"{node.name}_shadow",
            )
        values[node] = made
        return made
