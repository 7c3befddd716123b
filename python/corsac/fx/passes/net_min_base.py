"""Finds the nodes at which two ways of running a module differ."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..graph_module import GraphModule
from ..node import Node, map_arg
from .shape_prop import ShapeProp
from .split_utils import split_by_tags
from .tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    Names,
    NodeList,
    NodeSet,
    TensorOrTensors,
    Tensors,
)

__all__ = [
    "FxNetMinimizerBadModuleError",
    "FxNetMinimizerResultMismatchError",
    "FxNetMinimizerRunFuncError",
]

_LOGGER = logging.getLogger(__name__)


class FxNetMinimizerBadModuleError(Exception):
    """The chosen nodes cannot be made one submodule."""


class FxNetMinimizerRunFuncError(Exception):
    """One of the two ways of running a submodule failed."""


class FxNetMinimizerResultMismatchError(Exception):
    """The two ways of running a submodule had different results."""


_FAILURES = (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError)


@dataclass
class _MinimizerSettingBase:
    """Settings of a minimizer.

    Args:
        accumulate_error: run each way on its own previous results, instead of those of the first way.
        traverse_method: ``"sequential"`` (node by node), ``"binary"`` (halves), ``"accumulate"`` (from the
            first node to more and more), ``"block"`` (the smallest range), ``"skip"`` (ranges between given
            nodes) or ``"defined"`` (all at once).
        find_all: continue after the first finding.
        return_intermediate: compare all values in :meth:`_MinimizerBase.run_nodes`.
        all_outputs: compare all outputs of a submodule, not only the last one.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self) -> str:
        lines = [f"\t{name}: {value}\n" for name, value in vars(self).items()]
        return "FX Minimizer Settings:\n" + "".join(lines)


class _MinimizerBase:
    """Finds nodes at which ``run_a`` and ``run_b``, which derived classes define, differ.

    Submodules are made of some nodes and run both ways on the same inputs, and the results are compared. On a
    terminal, a line shows the progress.

    Args:
        module: the module. :class:`.shape_prop.ShapeProp` is run on it.
        sample_input: its inputs.
        compare_fn: called with both results and the names of the values; returns a number to report and
            whether they agree.
        settings: the settings.
        module_exporter: called with submodules that differ, to save them: inputs, submodule, name.
        exclusion_fn: removes nodes from a given list; also called with the positions of its first and last
            one.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Tensors,
        compare_fn: Callable[[TensorOrTensors, TensorOrTensors, Names], tuple[float, bool]],
        settings: _MinimizerSettingBase,
        module_exporter: Callable[[Tensors, GraphModule, str], None] | None = None,
        exclusion_fn: Callable[[NodeList, int, int], None] | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"Expected GraphModule, got {type(module)}")
        self.module = module
        self.sample_input = sample_input
        self.compare_fn = compare_fn
        self.module_exporter = module_exporter
        self.settings = settings
        self.exclusion_fn = exclusion_fn
        self.a_outputs: dict[str, Any] = {}
        """Results of the first way of running, by names of values."""
        self.b_outputs: dict[str, Any] = {}
        """Results of the second way of running, by names of values."""
        self.results: dict[Any, Any] = {}
        """Numbers returned by ``compare_fn``, by names of the values compared."""
        self.reports: list[list[str]] = []
        """The steps taken, as lines."""
        self.iteration: int = 0
        """Number of steps taken."""
        self.run_shape_prop()
        calls = {node for node in module.graph.nodes if node.op in CALLABLE_NODE_OPS}
        self.fusions = FxNetAccFusionsFinder(module, calls)()
        inputs = [node.name for node in module.graph.find_nodes(op="placeholder")]
        if len(inputs) != len(sample_input):
            raise AssertionError(
                f"the module has {len(inputs)} inputs, but sample_input {len(sample_input)}"
            )
        for name, value in zip(inputs, sample_input, strict=True):
            self.a_outputs[name] = self.b_outputs[name] = value

    def run_shape_prop(self) -> None:
        """Determine which values are tensors. Derived classes may override it."""
        ShapeProp(self.module).propagate(*self.sample_input)

    def run_a(self, mod: GraphModule, inputs: Tensors, report_idx: int = -1) -> TensorOrTensors:
        """Run a submodule the first way. Derived classes define this.

        Args:
            mod: the submodule.
            inputs: its arguments.
            report_idx: the index in ``reports`` to write to; the last one if negative.
        """
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Tensors, report_idx: int = -1) -> TensorOrTensors:
        """Run a submodule the second way, as :meth:`run_a` does the first."""
        raise RuntimeError("run_b() is not implemented.")

    # One comparison ------------------------------------------------------------------------------

    def _store_outputs(
        self, a_result: TensorOrTensors, b_result: TensorOrTensors, submodule: GraphModule
    ) -> None:
        """Store results, as inputs for their users."""
        returned = submodule.graph.find_nodes(op="output")[0].args[0]
        if isinstance(returned, Node):
            returned, a_result, b_result = (returned,), (a_result,), (b_result,)  # type: ignore
        for node, a, b in zip(returned, a_result, b_result, strict=False):
            self.a_outputs[node.name] = a
            self.b_outputs[node.name] = b

    def _get_submod_inputs(
        self, main_module: GraphModule, submod_path: str
    ) -> tuple[Tensors, Tensors]:
        """The arguments for both ways of running a submodule: stored results, or else values from running the
        module.
        """
        submodule: Any = getattr(main_module, submod_path)
        names = [node.name for node in submodule.graph.find_nodes(op="placeholder")]
        if set(names) <= self.a_outputs.keys():
            a = [self.a_outputs[name] for name in names]
            return a, [
                self.b_outputs[name] for name in names
            ] if self.settings.accumulate_error else a
        if self.settings.accumulate_error:
            print(f"Can't find previous stored outputs named {names}!")
        found: Any = []

        def note(_: torch.nn.Module, args: tuple[Any, ...]) -> None:
            nonlocal found
            found = args

        handle = submodule.register_forward_pre_hook(note)
        try:
            main_module(*self.sample_input)
        finally:
            handle.remove()
        return found, found

    def _tag_nodes(self, selected_nodes: NodeSet) -> None:
        """Tag the chosen nodes ``minimize``, nodes that depend on them ``main_1``, others ``main_0``."""
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            if node in selected_nodes:
                node.tag = "minimize"
                continue
            before = (n.tag for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS)
            node.tag = "main_0" if all(tag == "main_0" for tag in before) else "main_1"

    def _build_submodule(self, nodes: NodeSet) -> tuple[GraphModule, str]:
        """The module split so that one submodule has exactly these nodes, and the name of the submodule.

        Raises:
            FxNetMinimizerBadModuleError: there is not exactly one such submodule.
        """
        self._tag_nodes(nodes)
        split: Any = split_by_tags(self.module, ["main_0", "minimize", "main_1"])
        names = [name for name, _ in split.named_children() if "minimize" in name]
        if len(names) != 1:
            raise FxNetMinimizerBadModuleError(
                f"Expected one minimize submodule with nodes {nodes}, not {len(names)}"
            )
        return split, names[0]

    def _run_and_compare(
        self,
        split_module: GraphModule,
        submod_name: str,
        output_names: Names,
        report_idx: int = -1,
    ) -> None:
        """Run a submodule both ways and compare the results.

        Args:
            split_module: the module with the submodule.
            submod_name: the submodule's name.
            output_names: the values to compare, unless the settings require all; the submodule's outputs if
                the list is empty.
            report_idx: the report to write to; that of this step if negative.

        Raises:
            FxNetMinimizerRunFuncError: running it failed.
            FxNetMinimizerResultMismatchError: the results differ.
        """
        submodule: Any = getattr(split_module, submod_name)
        a_input, b_input = self._get_submod_inputs(split_module, submod_name)
        if not self.reports:
            self.reports.append([])
            self.iteration = 1
        report = self.reports[report_idx if report_idx >= 0 else self.iteration - 1]
        report.append("Run and compare ...")
        self._progress(submod_name, output_names)
        if output_names and not self.settings.all_outputs:
            _return_only(submodule, set(output_names))
        key: Any = map_arg(submodule.graph.output_node().args, lambda node: node.name)
        try:
            a_result = self.run_a(submodule, a_input, report_idx)
            b_result = self.run_b(submodule, b_input, report_idx)
            self._store_outputs(a_result, b_result, submodule)
        except Exception as error:
            message = f"Exception raised when running {submod_name}: {error}"
            report.append(message)
            raise FxNetMinimizerRunFuncError(message) from error
        names = [str(name) for name in key] if output_names is None else output_names
        number, agree = self.compare_fn(a_result, b_result, names)
        self.results[key] = number
        report.append(f"Numerical accuracy = {number}")
        if agree:
            return
        report.append(f"Result mismatch for {key}")
        if self.module_exporter:
            while isinstance(key, tuple):
                key = key[-1]
            self.module_exporter(a_input, submodule, f"{key}_cpu")
            self.module_exporter(b_input, submodule, f"{key}_acc")
        raise FxNetMinimizerResultMismatchError(f"Result mismatch for {key}")

    def _progress(self, submod_name: str, output_names: Names) -> None:
        _LOGGER.info("step %d: %s up to %s", self.iteration, submod_name, output_names)
        if sys.stderr.isatty():
            last = output_names[-1] if output_names else submod_name
            print(f"\r\033[Kstep {self.iteration}: {last}", end="", file=sys.stderr, flush=True)

    def _differs(self, nodes: NodeSet, compared: Names, report_idx: int = -1) -> bool:
        """Whether the two ways of running these nodes fail or differ."""
        try:
            self._run_and_compare(*self._build_submodule(nodes), compared, report_idx)
        except _FAILURES:
            return True
        return False

    def _step(self, *lines: str) -> list[str]:
        """Start a step, with these lines in its report."""
        self.iteration += 1
        report = list(lines)
        self.reports.append(report)
        return report

    def _end(self, report: list[str], *lines: str) -> None:
        report.extend(lines)
        self.print_report(report)

    # Traversals of the nodes -----------------------------------------------------------------------

    def _binary_search_impl(self, all_nodes: NodeList, start_idx: int, end_idx: int) -> NodeSet:
        """Examine a range of nodes; if it differs, its halves."""
        nodes = all_nodes[start_idx:end_idx]
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, start_idx, end_idx)
            if not nodes:
                self.reports.append(["All nodes are excluded by user"])
                return set()
        report = self._step()
        report += [
            f"Binary search iteration {self.iteration}",
            f"From node index {start_idx}:{nodes[0].name} to {end_idx - 1}:{nodes[-1].name}. "
            f"Size of the interested node list is {len(nodes)}",
        ]
        if not self._differs(set(nodes), [nodes[-1].name]):
            self._end(report, "No discrepancy found.")
            return set()
        if len(nodes) == 1:
            self._end(
                report,
                "This is the last node in the sub-module. "
                f"Search in the current branch is successful with culprit = {set(nodes)}.",
            )
            return set(nodes)
        self._end(
            report,
            "Proceed to split and lower the halves of the current sub-module individually.",
        )
        middle = start_idx + len(nodes) // 2
        culprits = self._binary_search_impl(all_nodes, start_idx, middle)
        if culprits and not self.settings.find_all:
            return culprits
        culprits = culprits | self._binary_search_impl(all_nodes, middle, end_idx)
        if not culprits:
            self._end(
                report,
                "Further split and lowering found no errors. "
                f"Unable to minimize the submodule with list of nodes: {nodes}",
            )
        return culprits

    def _binary_traverse(self, nodes: NodeList) -> NodeSet:
        return self._binary_search_impl(nodes, 0, len(nodes))

    def _sequential_traverse(self, nodes: NodeList) -> NodeSet:
        """Examine one node after the other, with its group if it has one."""
        culprits: NodeSet = set()
        for node in nodes:
            report = self._step()
            report += [
                f"Sequential traverse iteration {self.iteration}.",
                f"Visit node: {node.name}",
            ]
            _LOGGER.info("Visit node: %s", node.name)
            chosen = [node]
            if self.exclusion_fn is not None:
                self.exclusion_fn(chosen, -1, -1)
            if not chosen:
                self._end(report, f"User exclusion : {node.name}")
                if not self.settings.find_all:
                    return culprits
                continue
            group = self.fusions.get(node, {node})
            try:
                self._run_and_compare(*self._build_submodule(group), [node.name])
            except FxNetMinimizerResultMismatchError:
                culprits.add(node)
                report.append(f"Found culprit from numeric error: {node}")
            except FxNetMinimizerRunFuncError:
                culprits.update(group)
                report.append(f"Found culprit from run error: {node}")
            self._end(report)
            if culprits and not self.settings.find_all:
                return culprits
        return culprits

    def _block_traverse_impl(
        self, nodes: NodeList, start_idx: int, end_idx: int, find_last_node: bool
    ) -> int | None:
        """Find one end of the range that differs, by bisection.

        Args:
            nodes: all nodes.
            start_idx: the first candidate index.
            end_idx: the last candidate index.
            find_last_node: find the last node needed for the difference to show; otherwise the first one.

        Returns:
            The index; None if there is no difference.
        """
        while True:
            middle = (start_idx + end_idx) // 2
            chosen = nodes[: middle + 1] if find_last_node else nodes[middle:]
            if self.exclusion_fn:
                self.exclusion_fn(chosen, -1, -1)
            first, last = chosen[0].name, chosen[-1].name
            report = self._step("=" * 30)
            report += [
                f"Block search iteration {self.iteration}",
                f"Search for {'last' if find_last_node else 'first'} node in culprits",
                f"From node index {start_idx}:{nodes[start_idx].name} to "
                f"{end_idx}:{nodes[end_idx].name}. ",
                f"Subgraph constructed by {first} to {last}",
                f"Targeting node: {last if find_last_node else first}",
                f"Size of the interested node list is {end_idx - start_idx + 1}",
            ]
            differs = self._differs(set(chosen), [last], len(self.reports) - 1)
            report.append(
                f"Culprits found from node {first} to {last}."
                if differs
                else f"Culprits not found from node start to {middle}:{nodes[middle].name}."
            )
            if start_idx == end_idx:
                return self._block_end(nodes, start_idx, find_last_node, differs, report)
            self._end(
                report,
                "Proceed to split and lower the halves of the current sub-module individually.",
            )
            if differs == find_last_node:
                end_idx = middle
            else:
                start_idx = middle + 1
            if start_idx > end_idx:
                # Ranges that begin later do not differ: this is the index.
                return end_idx

    def _block_end(
        self, nodes: NodeList, place: int, find_last_node: bool, differs: bool, report: list[str]
    ) -> int | None:
        if differs:
            self._end(
                report,
                "This is the last node in the sub-module. ",
                "Search in the current branch is successful with node :",
                f"{place}, node name: {nodes[place].name}.",
            )
            return place
        at_end = place == (len(nodes) - 1 if find_last_node else 0)
        if at_end:
            which = "last" if find_last_node else "first"
            self._end(report, f"At {which} node, no culprits found.")
            return None
        self._end(report)
        return place + (1 if find_last_node else -1)

    def _block_traverse(self, nodes: NodeList, find_last_node: bool | None) -> NodeSet:
        """Find the smallest range of nodes that differs: its last node first, then its first one, or only one
        of the two.
        """
        report = [f"Block search from {nodes[0].name} to {nodes[-1].name}", "*" * 50]
        self.reports.append(report)
        start, end = 0, len(nodes) - 1
        if find_last_node is None or find_last_node:
            self._end(report, "Start searching for last node in culprit")
            found = self._block_traverse_impl(nodes, start, end, True)
            if found is None:
                self._end(report, "No culprits found")
                return set()
            end = found
            self._end(report, "Finish Pass 1", f"Find end_idx = {end}:{nodes[end].name}")
        if not find_last_node:
            second = ["Start searching for first node in culprit"]
            self.print_report(second)
            found = self._block_traverse_impl(nodes, start, end, False)
            if found is None:
                self._end(report, "No culprits found")
                return set()
            start = found
            self.reports.append(second)
            self._end(
                second, "*" * 50, "Finish Pass 2", f"Find start_idx = {start}:{nodes[start].name}"
            )
        result = [f"Finish searching, found minimum block ({nodes[start]},{nodes[end]})"]
        self.reports.append(result)
        self.print_report(result)
        return set(nodes[start : end + 1])

    def _defined_traverse(self, nodes: NodeList) -> NodeSet:
        """Examine exactly these nodes at once."""
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, -1, -1)
        if not nodes:
            self.reports.append(["All nodes are excluded by user"])
            return set()
        report = [f"Defined graph from {nodes[0].name} to {nodes[-1].name}"]
        if not self._differs(set(nodes), [nodes[-1].name]):
            self.print_report(report)
            return set()
        self._end(report, f"Found culprit {set(nodes)}")
        return set(nodes)

    def _accumulate_traverse(self, nodes: NodeList) -> NodeSet:
        """Examine the first node, the first two, and so on."""
        if self.settings.find_all:
            print("'Find All' mode is not supported in accumulate traversal.")
            return set()
        chosen: NodeSet = set()
        for node in nodes:
            report = self._step()
            report += [f"Accumulate traverse iteration {self.iteration}.", f"Add node: {node.name}"]
            chosen.add(node)
            if self._differs(chosen, [node.name]):
                self._end(report, f"Found culprit {node}")
                return {node}
            self._end(report)
        return set()

    def _skip_traverse_impl(self, all_nodes: NodeList, start_idx: int, end_idx: int) -> NodeSet:
        """Examine a range of nodes, with their groups."""
        nodes = all_nodes[start_idx:end_idx]
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, start_idx, end_idx)
            chosen = set(nodes)
        else:
            chosen = self._with_groups(nodes)
        report = self._step()
        report += [
            f" Nodes block {self.iteration}.",
            f"From node index {start_idx} to {end_idx - 1}. "
            f"Size of the interested node list is {len(nodes)}",
        ]
        try:
            self._run_and_compare(*self._build_submodule(chosen), [])
        except _FAILURES as error:
            kind = "numeric" if isinstance(error, FxNetMinimizerResultMismatchError) else "run"
            self._end(report, f"Found culprit from {kind} error: {chosen}")
            return chosen
        self._end(report, "No discrepancy found.")
        return set()

    def _skip_traverse(self, all_nodes: NodeList, skip_nodes: list[str]) -> NodeSet:
        """Examine the ranges between the nodes to skip."""
        culprits: NodeSet = set()
        start = 0
        for place in range(len(all_nodes) + 1):
            if place == len(all_nodes) or all_nodes[place].name in skip_nodes:
                if place > start:
                    culprits |= self._skip_traverse_impl(all_nodes, start, place)
                start = place + 1
        return culprits

    # Public methods ----------------------------------------------------------------------------------

    def _with_groups(self, nodes: NodeList) -> NodeSet:
        return set(nodes).union(*(self.fusions[node] for node in nodes if node in self.fusions))

    def _collect_nodes(self, start: str | None, end: str | None) -> NodeList:
        """The calls from the node named ``start`` to the one named ``end``, both included."""
        nodes = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]
        names = [node.name for node in nodes]
        if start is not None:
            first = names.index(start) if start in names else len(names)
            nodes, names = nodes[first:], names[first:]
        return nodes[: names.index(end) + 1] if end in names else nodes

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Run part of the module both ways and compare; print any difference.

        Args:
            start: the name of the first node; the module's first by default.
            end: the name of the last.
        """
        nodes = self._collect_nodes(start, end)
        names = [node.name for node in nodes] if self.settings.return_intermediate else []
        try:
            self._run_and_compare(*self._build_submodule(self._with_groups(nodes)), names)
        except _FAILURES as error:
            print(error)

    def print_report(self, report: list[str]) -> None:
        """Print the lines of a report, all but the first indented."""
        for number, line in enumerate(report):
            print(f" . {line}" if number else line)

    def print_reports(self) -> None:
        """Print all reports."""
        for report in self.reports:
            self.print_report(report)

    def minimize(
        self,
        start: str | None = None,
        end: str | None = None,
        skip_nodes: list[str] | None = None,
        find_last_node: bool | None = None,
    ) -> NodeSet:
        """Find the nodes at which the two ways of running the module fail or differ.

        Args:
            start: the name of the first node to examine; the module's first by default.
            end: the name of the last.
            skip_nodes: the names of nodes to leave out, for ``"skip"``.
            find_last_node: for ``"block"``: find only the last node of the range (True), or the first
                (False).

        Raises:
            RuntimeError: the method is unknown, or ``skip_nodes`` is missing.
        """
        print(self.settings)
        print(self.module.graph)
        nodes = self._collect_nodes(start, end)
        method = self.settings.traverse_method
        if method == "skip":
            if skip_nodes is None:
                raise RuntimeError("'skip_nodes' can't be None when 'traverse_method' is 'skip'.")
            return self._skip_traverse(nodes, skip_nodes)
        if method == "block":
            return self._block_traverse(nodes, find_last_node)
        traverse = {
            "sequential": self._sequential_traverse,
            "binary": self._binary_traverse,
            "accumulate": self._accumulate_traverse,
            "defined": self._defined_traverse,
        }.get(method)
        if traverse is None:
            raise RuntimeError(f"Unknown traverse method {method}!")
        return traverse(nodes)


def _return_only(module: GraphModule, names: set[str]) -> None:
    """Make a module return the values with these names."""
    graph = module.graph
    for output in graph.find_nodes(op="output"):
        graph.erase_node(output)
    returned = [node for node in graph.nodes if node.name in names]
    graph.output(returned[0] if len(returned) == 1 else tuple(returned))
    graph.lint()
    module.recompile()
