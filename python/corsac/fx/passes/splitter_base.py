"""Splits a module between an accelerator and the host."""

from __future__ import annotations

import argparse
import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from corsac import _core

from ..graph_module import GraphModule
from ..node import Node, map_arg
from ._node_events import (  # noqa: F401
    ALL_SUFFIX,
    DUMP_PREFIX,
    ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH,
    ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE,
    ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES,
    NODES_SUFFIX,
    TRACKER_DUMP_PATH,
    TRACKER_MODE,
    NodeEvent,
    NodeEventTracker,
)
from .graph_drawer import FxGraphDrawer
from .graph_manipulation import get_size_of_node
from .operator_support import OperatorSupportBase
from .shape_prop import ShapeProp
from .split_utils import move_non_tensor_nodes_on_boundary, split_by_tags
from .tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    NodeList,
    NodeSet,
    Tensors,
    get_node_target,
    is_node_output_tensor,
)

__all__ = [
    "FxNetAccNodesFinder",
    "FxNetSplitterInternalError",
    "NodeEvent",
    "NodeEventTracker",
    "SplitResult",
    "Subgraph",
    "generate_inputs_for_submodules",
]

DEFAULT_MIN_ACC_MODULE_SIZE = 1
DEFAULT_SKIP_FUSION = False
DEFAULT_ALLOW_NON_TENSOR = False


class _SplitterSettingBase:
    """Settings of a splitter. Options of the program's command line take precedence:
    ``--min-acc-module-size``, ``--skip-fusion``, ``--allow-non-tensor`` and
    ``--move-non-tensor-nodes-on-boundary``.

    Args:
        min_acc_module_size: smaller accelerator subgraphs move to the host.
        skip_fusion: do not keep nodes together that exchange non-tensor values.
        allow_non_tensor: allow non-tensor values between accelerator and host.
        max_acc_splits: maximum number of submodules; unlimited if negative.
        move_non_tensor_nodes_on_boundary: move non-tensor nodes to where they are used.
    """

    def __init__(
        self,
        min_acc_module_size: int = DEFAULT_MIN_ACC_MODULE_SIZE,
        skip_fusion: bool = DEFAULT_SKIP_FUSION,
        allow_non_tensor: bool = DEFAULT_ALLOW_NON_TENSOR,
        max_acc_splits: int = -1,
        move_non_tensor_nodes_on_boundary: bool = False,
    ) -> None:
        parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
        for name in ("min-acc-module-size", "max-acc-splits"):
            parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", type=int)
        for name in ("skip-fusion", "allow-non-tensor", "move-non-tensor-nodes-on-boundary"):
            parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", action="store_true")
        given, _ = parser.parse_known_args()
        self.min_acc_module_size: int = given.min_acc_module_size or min_acc_module_size
        self.skip_fusion: bool = given.skip_fusion or skip_fusion
        self.allow_non_tensor: bool = given.allow_non_tensor or allow_non_tensor
        self.max_acc_splits: int = max_acc_splits
        self.move_non_tensor_nodes_on_boundary: bool = (
            given.move_non_tensor_nodes_on_boundary or move_non_tensor_nodes_on_boundary
        )


class FxNetAccNodesFinder:
    """Finds the nodes for the accelerator.

    These are the supported ones, except those that exchange non-tensor values with nodes on the host, unless
    that is allowed. Calling an instance without arguments returns them as a set. The reasons are recorded in
    ``tracker``.

    Args:
        module: a module on which :class:`.shape_prop.ShapeProp` has been run.
        operator_support: decides which nodes are supported.
        allow_non_tensor: allow non-tensor values between host and accelerator.
    """

    def __init__(
        self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool
    ) -> None:
        self.module = module
        self.operator_support = operator_support
        self.allow_non_tensor = allow_non_tensor
        self.acc_nodes: NodeSet = set()
        self.tracker = NodeEventTracker(int(TRACKER_MODE), DUMP_PREFIX)

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist: NodeList) -> None:
        """Remove the users of these nodes from the accelerator, the users of those among them that are not
        tensors, and so on.
        """
        while cpu_worklist:
            node = cpu_worklist.pop(0)
            for user in node.users:
                if user not in self.acc_nodes:
                    continue
                self.acc_nodes.remove(user)
                self.tracker.add(user, "acc_del|user_of_new_cpu_node", node)
                if not is_node_output_tensor(user):
                    self.tracker.add(user, "new_cpu_node|non_tensor_output")
                    cpu_worklist.append(user)

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Remove nodes from the accelerator that take non-tensor values from the host."""
        sources: NodeList = []
        for node in self.module.graph.nodes:
            is_call = node.op in CALLABLE_NODE_OPS
            if is_call and node not in self.acc_nodes and not is_node_output_tensor(node):
                self.tracker.add(node, "new_cpu_node|callable_non_tensor_input")
                sources.append(node)
        self.reduce_acc_nodes_non_tensor_input_helper(sources)

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Remove nodes from the accelerator that pass non-tensor values to the host."""
        while True:
            leaving: NodeList = []
            for node in self.module.graph.nodes:
                if node not in self.acc_nodes or is_node_output_tensor(node):
                    continue
                user = next((user for user in node.users if user not in self.acc_nodes), None)
                if user is not None:
                    leaving.append(node)
                    self.tracker.add(node, "acc_del|non_tensor_output_with_cpu_user", user)
            if not leaving:
                return
            self.acc_nodes.difference_update(leaving)
            self.reduce_acc_nodes_non_tensor_input_helper(leaving)

    def __call__(self) -> NodeSet:
        modules = dict(self.module.named_modules())
        self.acc_nodes = set()
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                self.tracker.add(node, "init_cpu|not_callable")
            elif not self.operator_support.is_node_supported(modules, node):
                self.tracker.add(node, "init_cpu|operator_support")
            else:
                self.tracker.add(node, "init_acc|callable_and_operator_supported")
                self.acc_nodes.add(node)
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        self.tracker.dump()
        return self.acc_nodes


class FxNetSplitterInternalError(Exception):
    """The splitter cannot process the graph."""


@dataclass
class Subgraph:
    """Nodes that run on one device."""

    is_acc: bool
    """Whether they run on the accelerator."""
    nodes: NodeList
    """The nodes."""
    device_ordinal: int | None = None
    """The number of the accelerator, if there are several."""


class SplitResult(NamedTuple):
    """A split module: the module, the inputs of its submodules by name, and the name prefix of submodules on
    the host. The prefix of those on the accelerator is ``_run_on_acc_``.
    """

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


def generate_inputs_for_submodules(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    target_submodules: Iterable[str],
    deepcopy: bool = False,
) -> dict[str, Any]:
    """Run a model and record the inputs of its submodules.

    Args:
        model: the model.
        inputs: its inputs.
        target_submodules: the submodules to record. If one is called several times, the last call counts; of
            two names for one module, the last one in the model.
        deepcopy: copy the inputs, since the model may change them afterwards.

    Returns:
        The positional arguments of each submodule, by name.
    """
    wanted = set(target_submodules)
    names = {module: name for name, module in model.named_modules()}
    found: dict[str, Any] = {}

    def note(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        found[names[module]] = copy.deepcopy(args) if deepcopy else args

    handles = [
        module.register_forward_pre_hook(note)
        for name, module in model.named_modules()
        if name in wanted and not isinstance(module, torch.jit.ScriptModule)
    ]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


class _SplitterBase:
    """Splits a module into submodules that run alternately on an accelerator and on the host.

    There are as few as possible: each contains all nodes of its kind that can run by then. Nodes that
    exchange non-tensor values stay together. Derived classes define how submodules are lowered.

    Args:
        module: the module. :class:`.shape_prop.ShapeProp` is run on it.
        sample_input: its inputs.
        operator_support: decides what the accelerator supports.
        settings: the settings.
        non_acc_submodule_name: name prefix of submodules on the host.
        return_tuple: let submodules return tuples even for a single value.
        nodes_finder: finds the nodes for the accelerator; a :class:`FxNetAccNodesFinder` by default.
    """

    PCIe_BW = 100 * 2**30  # bytes per second

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase,
        non_acc_submodule_name: str = "_run_on_cpu_",
        return_tuple: bool = False,
        nodes_finder: FxNetAccNodesFinder | None = None,
    ) -> None:
        if not isinstance(module, GraphModule):
            raise AssertionError(f"Expected GraphModule, got {type(module)}")
        self.module = module
        ShapeProp(module).propagate(*sample_input)
        self.settings = settings
        self.operator_support = operator_support
        self.sample_input = sample_input
        if nodes_finder is None:
            nodes_finder = FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor)
        self._nodes_finder = nodes_finder
        self.acc_nodes = nodes_finder()
        supported = set(self.acc_nodes)
        self.fusions: dict[Node, NodeSet] = {}
        if not settings.skip_fusion and not all(n in self.acc_nodes for n in self._calls()):
            self.fusions = FxNetAccFusionsFinder(module, self.acc_nodes)()
            self._merge_overlapping_fusions()
        self._left_for_fusion = supported - self.acc_nodes
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self.non_acc_submodule_name = non_acc_submodule_name
        self._node_submodule_map: dict[str, str] = {}
        self._return_tuple = return_tuple
        self.tags: list[str] = []

    def _calls(self) -> list[Node]:
        return [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]

    def _groups(self) -> list[NodeSet]:
        """The groups of nodes that must run together, each once."""
        return list({id(group): group for group in self.fusions.values()}.values())

    def get_node_submodule_map(self) -> dict[str, str]:
        """The submodule of each node, by name."""
        return self._node_submodule_map

    # Dependencies ----------------------------------------------------------------------------

    def find_deps(self) -> dict[Node, NodeSet]:
        """The calls whose values each node uses."""
        deps: dict[Node, NodeSet] = defaultdict(set)
        for node in self._calls():
            for user in node.users:
                if user.op != "output":
                    deps[user].add(node)
        return deps

    def update_deps_for_fusions(self) -> None:
        """Give all nodes of a group the dependencies of any of them, and make the users of one of them depend
        on all.
        """
        for group in self._groups():
            outside = set().union(*(self.deps[node] for node in group)) - group
            users = {user for node in group for user in node.users} - group
            for node in group:
                self.deps[node] |= outside
            for user in users:
                self.deps[user] |= group

    def _merge_overlapping_fusions(self) -> None:
        """Merge groups that share nodes."""
        for group in self._groups():
            sharing = {id(g): g for n in group if (g := self.fusions.get(n)) is not None}
            if len(sharing) > 1 or any(g is not group for g in sharing.values()):
                merged = set(group).union(*sharing.values())
                self.fusions.update(dict.fromkeys(merged, merged))

    # Methods of derived classes ----------------------------------------------------------------

    def _lower_model_to_backend(self, mod: GraphModule, inputs: Tensors) -> torch.nn.Module:
        """Lower ``mod`` to the accelerator; returns the module itself unless overridden."""
        return mod

    def _find_culprit(self, mod: GraphModule, inputs: Tensors) -> str:
        """Find the part of ``mod`` that made lowering or running it fail."""
        return "Unable to find a culprit because _find_culprit() function is not implemented."

    # Previews ----------------------------------------------------------------------------------

    def _draw_graph_based_on_node_support(
        self, mod: GraphModule, supported_nodes: NodeList
    ) -> None:
        supported = set(supported_nodes)

        class SupportDrawer(FxGraphDrawer):
            def _get_node_style(self, node: Node) -> dict[str, str]:
                style = super()._get_node_style(node)
                is_call = node.op in CALLABLE_NODE_OPS
                style["fillcolor"] = (
                    "chartreuse1" if node in supported else "crimson" if is_call else "AliceBlue"
                )
                return style

        drawer = SupportDrawer(mod, "node_support", ignore_getattr=True)
        drawer.get_main_dot_graph().write_raw("node_support.dot")

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """Print and return the supported and unsupported calls, with their dtypes.

        Args:
            dump_graph: also draw the graph, coloured, to ``node_support.dot``.
        """
        modules = dict(self.module.named_modules())
        supported: NodeList = []
        kinds: dict[bool, dict[str, dict[Any, None]]] = {True: {}, False: {}}
        for node in self._calls():
            is_supported = bool(self.operator_support.is_node_supported(modules, node))
            if is_supported:
                supported.append(node)
            dtypes = [_dtype_of(arg) for arg in node.args]
            while dtypes and dtypes[-1] is None:
                dtypes.pop()
            named = [(k, _dtype_of(arg)) for k, arg in node.kwargs.items() if isinstance(arg, Node)]
            seen = kinds[is_supported].setdefault(get_node_target(modules, node), {})
            seen[tuple(dtypes), tuple(named)] = None
        if dump_graph:
            self._draw_graph_based_on_node_support(self.module, supported)
        report = ""
        for is_supported, title in ((True, "Supported"), (False, "Unsupported")):
            report += f"\n{title} node types in the model:\n"
            for target, seen in kinds[is_supported].items():
                for dtypes, named in seen:
                    report += f"{target}: ({dtypes}, {dict(named)})\n"
        print(report)
        return report

    def split_preview(self, dump_graph: bool = False) -> str:
        """Print and return the result of splitting: submodules, values passed between them, the bound on
        speed, whether lowering works, and the reason for each node's place.

        Args:
            dump_graph: also draw the submodules to ``<name>.dot``.
        """
        subgraphs = self.put_nodes_into_subgraphs()
        report = _counted("Before", subgraphs)
        subgraphs = self.remove_small_acc_subgraphs(subgraphs)
        report += _counted("After", subgraphs)
        for i, subgraph in enumerate(subgraphs):
            prefix = "_run_on_acc_" if subgraph.is_acc else self.non_acc_submodule_name
            report += f"{prefix}{i}: {len(subgraph.nodes)} node(s)\n"
        self.tag(subgraphs)
        split_module = self.split(remove_tag=True)
        split_module.eval()
        if dump_graph:
            drawer = FxGraphDrawer(split_module, "preview", ignore_getattr=True)
            for name, graph in drawer.get_all_dot_graphs().items():
                graph.write_raw(f"{name}.dot")
        best, bottleneck = float(self.PCIe_BW), ""
        for node in split_module.graph.find_nodes(op="call_module"):
            if "acc" not in node.target:
                continue
            report += f"\nProcessing acc submodule {node.target}\n"
            text, rate = self._preview_submodule(split_module, node.target)
            report += text
            if rate < best:
                best, bottleneck = rate, node.target
        report += (
            f"\nTheoretical max qps (bounds by PCIe bandwidth) for this model is {best},"
            f" bottleneck is submodule {bottleneck}."
        )
        report += f"\n\nWhy nodes are where they are:\n{self.explain_placement()}"
        print(report)
        return report

    def _preview_submodule(self, split_module: GraphModule, name: str) -> tuple[str, float]:
        """A report on a submodule, and the maximum number of calls per second."""
        module: Any = getattr(split_module, name)
        inputs = generate_inputs_for_submodules(split_module, self.sample_input, [name])[name]
        ShapeProp(module).propagate(*inputs)
        report = "Checking inputs...\n"
        sizes = []
        returned: NodeList = []
        map_arg(module.graph.output_node().args, returned.append)
        for kind, nodes in (
            ("Input", module.graph.find_nodes(op="placeholder")),
            ("Output", returned),
        ):
            if kind == "Output":
                report += "Checking outputs...\n"
            total = 0
            for node in nodes:
                if is_node_output_tensor(node):
                    total += get_size_of_node(module, node)[0]
                else:
                    report += (
                        f"{kind} {node.name} is not a tensor, this might cause problems during "
                        "lowering!\n"
                    )
            sizes.append(total)
        rate = self.PCIe_BW / max(*sizes, 1)
        report += (
            f"Total input size in bytes is {sizes[0]}, total output size in bytes is {sizes[1]},"
            f" theoretical max qps (bounds by PCIe bandwidth) for this submodule is {rate}.\n"
        )
        stage = "lowering"
        try:
            lowered = self._lower_model_to_backend(module, inputs)
            stage = "inference"
            lowered(*inputs)
        except RuntimeError:
            report += f"Run into an error during {stage}!\n"
            report += self._find_culprit(module, inputs)
        else:
            report += "Lowering and running succeed!\n"
        return report, rate

    def explain_placement(self) -> str:
        """One line per call: its place and the reason."""
        modules = dict(self.module.named_modules())
        tracker = getattr(self._nodes_finder, "tracker", None)
        lines = []
        for node in self._calls():
            place = self._node_submodule_map.get(node.name, "no submodule yet")
            target = get_node_target(modules, node)
            reason = self._reason(node, target, tracker, place)
            lines.append(f"{node.name} -> {place}: {reason}\n")
        return "".join(lines)

    def _reason(self, node: Node, target: str, tracker: Any, place: str) -> str:
        if node in self.acc_nodes:
            if place.startswith(self.non_acc_submodule_name):
                return f"{target} is supported, but its subgraph is too small or has to run here"
            group = self.fusions.get(node)
            if group is None:
                return f"{target} is supported"
            others = ", ".join(sorted(n.name for n in group if n is not node))
            return f"{target} is supported, and passes what is no tensor within: {others}"
        if node in self._left_for_fusion:
            return f"{target} is supported, but has to run with a node that is not"
        events = tracker._events_of(node.name) if tracker is not None else []
        for event in reversed(events):
            if event.desc == "acc_del|user_of_new_cpu_node":
                return f"{target} is supported, but {event.dep} on the host gives it no tensor"
            if event.desc == "acc_del|non_tensor_output_with_cpu_user":
                return f"{target} is supported, but gives {event.dep} on the host no tensor"
        return f"{target} is not supported with these arguments"

    # Extending a subgraph upwards ----------------------------------------------------------------

    def find_reverse_deps(self, tag_id: int | None = None) -> dict[Node, NodeSet]:
        """The calls that use each node; only those in subgraphs before ``tag_id``, if given."""
        users: dict[Node, NodeSet] = defaultdict(set)
        for node in self._calls():
            for user in node.users:
                if user.op in CALLABLE_NODE_OPS and (
                    tag_id is None or int(user.tag.split("_")[-1]) < tag_id
                ):
                    users[node].add(user)
        return users

    def update_reverse_deps_for_fusions(self, deps: dict[Node, NodeSet]) -> None:
        """Treat groups as one in the result of :meth:`find_reverse_deps`."""
        for group in self._groups():
            outside = set().union(*(deps[node] for node in group)) - group
            for node in group:
                deps[node] = outside
                for arg in node.all_input_nodes:
                    if arg not in group:
                        deps[arg].update(group)

    def find_parent_nodes_of_subgraph(self, tag: str) -> NodeSet:
        """The calls in other subgraphs whose values the subgraph with this tag uses."""
        return {
            arg
            for node in self._calls()
            if node.tag == tag
            for arg in node.all_input_nodes
            if arg.op in CALLABLE_NODE_OPS and arg.tag != tag
        }

    def extend_acc_subgraph(self, tag: str) -> None:
        """Move accelerator nodes upwards into the subgraph with this tag, as long as no earlier subgraph uses
        them otherwise.
        """
        deps = self.find_reverse_deps(tag_id=int(tag.rsplit("_", maxsplit=1)[-1]))
        self.update_reverse_deps_for_fusions(deps)
        waiting = self.find_parent_nodes_of_subgraph(tag)
        moved: NodeSet = set()
        while True:
            ready = (n for n in waiting if deps[n] <= moved and n in self.acc_nodes)
            node = next(ready, None)
            if node is None:
                return
            node.tag = tag
            waiting.remove(node)
            moved.add(node)
            waiting |= self.fusions.get(node, set()) - moved
            waiting |= {
                arg
                for arg in node.all_input_nodes
                if arg.op in CALLABLE_NODE_OPS and arg not in moved
            }

    # Splitting -----------------------------------------------------------------------------------

    def starter_nodes(self) -> tuple[NodeSet, NodeSet]:
        """The nodes on host and accelerator that use inputs and attributes, or have no inputs."""
        first = {
            user
            for node in self.module.graph.nodes
            if node.op in ("placeholder", "get_attr")
            for user in node.users
        }
        first |= {
            node
            for node in self.module.graph.nodes
            if node.op == "call_function" and not node.all_input_nodes
        }
        return first - self.acc_nodes, first & self.acc_nodes

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """The subgraphs, in order, each with its nodes in graph order.

        Raises:
            FxNetSplitterInternalError: there is nothing to split.
        """
        calls = self._calls()
        place = {node: i for i, node in enumerate(calls)}
        on_host = [node for node in self.starter_nodes()[0] if node in place]
        groups = _core.alternate_groups(
            [node in self.acc_nodes for node in calls],
            [
                (place[before], place[node])
                for node, waits_for in self.deps.items()
                if node in place
                for before in waits_for
                if before in place
            ]
            # Uses of values that are written to keep the order of the program.
            + [
                (place[before], place[node])
                for before, node in _core.effect_pairs(self.module.graph)
                if before in place and node in place
            ],
            [[place[node] for node in group] for group in self._groups()],
            host_first=any(not self.deps[node] for node in on_host),
        )
        if not groups:
            raise FxNetSplitterInternalError("Couldn't create subgraphs")
        return [
            Subgraph(is_acc=is_acc, nodes=[calls[i] for i in sorted(members)])
            for is_acc, members in groups
        ]

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """Move accelerator subgraphs smaller than ``min_acc_module_size`` to the host."""
        least = self.settings.min_acc_module_size
        result: list[Subgraph] = []
        for subgraph in subgraphs:
            is_small = subgraph.is_acc and len(subgraph.nodes) < least
            if is_small:
                print(
                    "Eliminating acc subgraph because it's smaller than the threshold: "
                    f"{len(subgraph.nodes)} < {least}"
                )
            if result and (is_small or (not subgraph.is_acc and not result[-1].is_acc)):
                result[-1].nodes.extend(subgraph.nodes)
                continue
            if is_small:
                subgraph.is_acc = False
            result.append(subgraph)
        return result

    def tag(self, subgraphs: list[Subgraph]) -> None:
        """Set ``node.tag`` to the name of the node's submodule.

        Raises:
            FxNetSplitterInternalError: a node has a tag already.
        """
        self.tags = []
        for number, subgraph in enumerate(subgraphs):
            prefix = "_run_on_acc_" if subgraph.is_acc else self.non_acc_submodule_name
            self.tags.append(f"{prefix}{number}")
            for node in subgraph.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                node.tag = self.tags[-1]
                self._node_submodule_map[node.name] = self.tags[-1]

    def split(self, remove_tag: bool = False) -> GraphModule:
        """Split the module by the tags.

        Args:
            remove_tag: remove the tags from the nodes afterwards.
        """
        split_module = split_by_tags(self.module, self.tags, return_tuple=self._return_tuple)
        if remove_tag:
            for node in self.module.graph.nodes:
                if hasattr(node, "tag"):
                    del node.tag
        return split_module  # type: ignore[return-value]

    def __call__(self) -> GraphModule:
        """Split the module."""
        subgraphs = self.put_nodes_into_subgraphs()
        if self.settings.move_non_tensor_nodes_on_boundary:
            move_non_tensor_nodes_on_boundary(subgraphs)
        subgraphs = self.remove_small_acc_subgraphs(subgraphs)
        on_device = sum(subgraph.is_acc for subgraph in subgraphs)
        print(f"Got {on_device} acc subgraphs and {len(subgraphs) - on_device} non-acc subgraphs")
        self.tag(subgraphs)
        return self.split()

    def generate_split_results(self) -> SplitResult:
        """Split the module, and run it to record the inputs of its submodules.

        Raises:
            ValueError: there are more submodules than the settings allow.
        """
        split_module = self()
        names = [name for name, _ in split_module.named_children()]
        most = self.settings.max_acc_splits
        if 0 < most < len(names):
            raise ValueError(
                f"Cannot fulfill max_acc_splits limit: {len(names)} submodules, {most} allowed. "
                "This may cause split fragmentation and result in performance issues."
            )
        inputs = generate_inputs_for_submodules(split_module, self.sample_input, names)
        return SplitResult(split_module, inputs, self.non_acc_submodule_name)


def _dtype_of(arg: Any) -> torch.dtype | None:
    if not isinstance(arg, Node):
        return None
    return getattr(arg.meta.get("tensor_meta"), "dtype", None)


def _counted(when: str, subgraphs: list[Subgraph]) -> str:
    on_device = sum(subgraph.is_acc for subgraph in subgraphs)
    return (
        f"{when} removing small acc subgraphs, total {len(subgraphs)} subgraphs are created:"
        f" {on_device} acc subgraphs and {len(subgraphs) - on_device} cpu subgraphs.\n"
    )
