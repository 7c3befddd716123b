"""Several quantised forms of each operation of a model, that run beside it and are compared with it.

The names are those of ``torch.ao.ns._numeric_suite_fx``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Interpreter
from corsac.fx.node import Node, map_arg
from corsac.quantization._choices import NodeConfigurations, module_classes
from corsac.quantization._patterns import entries
from corsac.quantization._tracer import QuantizationTracer
from corsac.quantization.ns._operations import module_of, path_of, target_type, unmatchable_types
from corsac.quantization.ns._subgraphs import Subgraph, subgraphs
from corsac.quantization.ns.loggers import (
    NSResultsType,
    OutputComparisonLogger,
    OutputLogger,
    collect,
)
from corsac.quantization.ns.suite import graph_of
from corsac.quantization.qconfig_mapping import QConfigMapping
from corsac.quantization.quantize_fx import convert_fx, prepare_fx

__all__ = [
    "convert_n_shadows_model",
    "extract_results_n_shadows_model",
    "prepare_n_shadows_model",
    "print_comparisons_n_shadows_model",
]

_WRAPPER = "shadow_wrapper_"


def prepare_n_shadows_model(
    model: torch.nn.Module,
    example_inputs: Any,
    qconfig_multi_mapping: Any,
    backend_config: Any,
    custom_prepare_fn: Callable[..., Any] | None = None,
    custom_prepare_kwargs: dict[str, Any] | None = None,
    custom_tracer: Any = None,
) -> GraphModule:
    """A graph module of ``model`` with a prepared copy of each operation for each of its configurations.

    ``shadow_wrapper_I_N`` is the copy of operation I with configuration N, from 1, on the same inputs;
    ``shadow_I_N`` compares its result, and ``shadow_I_0`` keeps that of the model. They are off, for calibration, until
    ``loggers_set_enabled(model, True)``.

    Args:
        model: the model, in evaluation mode.
        example_inputs: inputs of the model.
        qconfig_multi_mapping: a :class:`QConfigMultiMapping`.
        backend_config: a ``BackendConfig`` with the operations.
        custom_prepare_fn: called in place of ``prepare_fx``.
        custom_prepare_kwargs: more arguments of it.
        custom_tracer: the tracer.
    """
    tracer = custom_tracer or QuantizationTracer()
    traced = graph_of(model, tracer)
    scopes = traced.__dict__.get("_node_name_to_scope", {})
    values = Interpreter(traced, garbage_collect_values=False)
    with torch.no_grad():
        values.run(*example_inputs)
    mappings = qconfig_multi_mapping.qconfig_mappings_list
    classes = module_classes(traced)
    choices = [NodeConfigurations(traced, mapping, scopes, classes) for mapping in mappings]
    known = _targets(backend_config)
    everything = {**unmatchable_types(), "meths_unmatchable": set(), "mods_unmatchable": set()}
    found = [one for one in subgraphs(traced, everything) if _target(traced, one.base) in known]
    for number, subgraph in enumerate(found):
        shadows = _Shadows(traced, number, subgraph)
        inner = None
        for place, choice in enumerate(choices, 1):
            qconfig = choice.of_node(subgraph.base.name)
            if qconfig is None:
                continue
            inner, inputs = shadows.copied()
            arguments = tuple(values.env[one] for one in inputs)
            prepare = custom_prepare_fn or prepare_fx
            prepared = prepare(
                inner.eval(),
                QConfigMapping().set_global(qconfig),
                arguments,
                backend_config=backend_config,
                **(custom_prepare_kwargs or {}),
            )
            shadows.add(place, prepared, inputs, qconfig)
        if inner is not None:
            shadows.log_reference()
    return GraphModule(traced, traced.graph)


def _targets(backend: Any) -> set[Any]:
    """The types, functions and methods that a backend has patterns for."""

    def parts(pattern: Any) -> Iterator[Any]:
        if isinstance(pattern, tuple):
            for inner in pattern:
                yield from parts(inner)
        else:
            yield pattern

    return {part for pattern, _ in entries(backend) for part in parts(pattern)}


def _target(model: GraphModule, node: Node) -> Any:
    module = module_of(model, node)
    return node.target if module is None else type(module)


class _Shadows:
    """The copies of one subgraph of a graph module."""

    def __init__(self, model: GraphModule, number: int, subgraph: Subgraph) -> None:
        self._model, self._number, self._subgraph = model, number, subgraph
        self._last = subgraph.end

    def copied(self) -> tuple[GraphModule, list[Node]]:
        """A graph module of the subgraph, and the nodes that are its inputs. Attributes are a part of it."""
        graph, values = Graph(), {}
        nodes = self._subgraph.nodes
        own = set(nodes)
        outer = [*dict.fromkeys(one for node in nodes for one in node.all_input_nodes)]
        inputs = [one for one in outer if one not in own and one.op != "get_attr"]
        for one in inputs:
            values[one] = graph.placeholder(f"{one.name}_0")
        for one in outer:
            if one.op == "get_attr":
                values[one] = graph.get_attr(str(one.target))
        for node in nodes:
            values[node] = graph.create_node(
                node.op,
                node.target,
                map_arg(node.args, values.__getitem__),
                map_arg(node.kwargs, values.__getitem__),
                node.name,
            )
        graph.output(values[nodes[-1]])
        return GraphModule(self._model, graph), inputs

    def add(self, place: int, prepared: Any, inputs: list[Node], qconfig: Any) -> None:
        """Run a prepared copy behind the subgraph, and compare its result."""
        name = f"{_WRAPPER}{self._number}_{place}"
        self._model.add_submodule(name, prepared)
        made = self._call(name, tuple(inputs))
        self._log(OutputComparisonLogger, place, (made, self._subgraph.end), str(qconfig))

    def log_reference(self) -> None:
        """Keep the result of the subgraph itself."""
        self._last = self._subgraph.end
        self._log(OutputLogger, 0, (self._subgraph.end,), "")

    def _log(self, kind: Any, place: int, arguments: tuple[Node, ...], qconfig: str) -> None:
        base, end = self._subgraph.base, self._subgraph.end
        logger = kind(
            ref_node_name=base.name,
            prev_node_name=end.name,
            model_name=f"subgraph_{self._number}_{place}",
            ref_name="model",
            prev_node_target_type=target_type(self._model, end),
            ref_node_target_type=target_type(self._model, base),
            results_type="node_output",
            index_within_arg=0,
            index_of_arg=0,
            fqn=path_of(self._model, base),
            qconfig_str=qconfig,
        )
        # Values of calibration are not looked at.
        logger.enabled = False
        name = f"shadow_{self._number}_{place}"
        self._model.add_submodule(name, logger)
        self._call(name, arguments)

    def _call(self, name: str, arguments: tuple[Node, ...]) -> Node:
        graph = self._model.graph
        with graph.inserting_after(self._last):
            self._last = graph.create_node("call_module", name, arguments, {}, name)
        return self._last


def convert_n_shadows_model(
    model: GraphModule,
    custom_convert_fn: Callable[..., Any] | None = None,
    custom_convert_kwargs: dict[str, Any] | None = None,
) -> GraphModule:
    """Convert the copies of a calibrated model of :func:`prepare_n_shadows_model`, in their places.

    Args:
        model: the model, which is changed.
        custom_convert_fn: called in place of ``convert_fx``.
        custom_convert_kwargs: more arguments of it.
    """
    for node in model.graph.find_nodes(op="call_module"):
        if node.name.startswith(_WRAPPER):
            prepared = getattr(model, str(node.target))
            convert = custom_convert_fn or convert_fx
            setattr(model, str(node.target), convert(prepared, **(custom_convert_kwargs or {})))
    return model


def extract_results_n_shadows_model(model: torch.nn.Module) -> NSResultsType:
    """The records of the loggers of a model, under "model" and "node_output", by operation and configuration."""
    results: NSResultsType = {}
    collect(model, results, OutputLogger)
    for kinds in results.values():
        for kind, models in kinds.items():
            kinds[kind] = dict(sorted(models.items(), key=lambda item: _place(item[0])))
    return results


def _place(name: str) -> tuple[int, int]:
    _, subgraph, number = name.split("_")
    return int(subgraph), int(number)


def print_comparisons_n_shadows_model(results: NSResultsType) -> None:
    """Print the mean comparison of each operation in each configuration, as a table."""
    rows: dict[int, dict[str, Any]] = {}
    for name, (one, *_) in results["model"]["node_output"].items():
        subgraph, number = _place(name)
        row = rows.setdefault(
            subgraph,
            {
                "node_name": one["ref_node_name"],
                "node_type": one["ref_node_target_type"],
                "fqn": one["fqn"] or "",
            },
        )
        if number and one["comparisons"]:
            row[str(number - 1)] = f"{float(torch.stack(one['comparisons']).mean()):g}"
    numbers = sorted({key for row in rows.values() for key in row if key.isdigit()}, key=int)
    heads = ["node_name", "node_type", "fqn", *numbers]
    lines = [heads, *([row.get(head, "") for head in heads] for row in rows.values())]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    for number, line in enumerate(lines):
        print("  ".join(map(str.ljust, line, widths)).rstrip())
        if not number:
            print("  ".join("-" * width for width in widths))
