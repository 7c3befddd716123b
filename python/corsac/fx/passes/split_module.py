"""Splitting a graph module into submodules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from corsac import _core

from .._lazy_graph_module import (  # noqa: F401
    _get_graph_module_cls,
    _LazyGraphModule,
    _make_graph_module,
)
from .._module_attributes import _registered_module
from .._packages import expect_ours
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["Partition", "split_module", "split_module_simple"]

_NOT_SPLIT = frozenset({"placeholder", "get_attr", "output"})


class Partition:
    """A partition while a graph is being split.

    Args:
        name: the name of the partition. Its module is called ``submod_<name>``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        """The nodes in it."""
        self.inputs: dict[str, None] = {}
        """Its inputs."""
        self.outputs: dict[str, None] = {}
        """Its outputs."""
        self.dependencies: dict[str, None] = {}
        """The partitions whose values it uses."""
        self.dependents: dict[str, None] = {}
        """The partitions that use its values."""
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        """Its nodes, by the original ones."""
        self.targets: dict[str, Any] = {}
        """The modules and attributes that it uses."""

    def __repr__(self) -> str:
        shown = {
            "name": self.name,
            "nodes": self.node_names,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "partitions depended on": self.dependencies,
            "partition dependents": self.dependents,
        }
        return ",\n ".join(f"{key}: {value}" for key, value in shown.items())


def split_module(
    m: GraphModule,
    root_m: torch.nn.Module,
    split_callback: Callable[[Node], int],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Split ``m`` into submodules called ``submod_<partition>``; the result computes the same.

    Names, metadata, sources and type annotations of nodes are carried into the submodules. Attributes are
    passed to submodules as arguments, except for modules. Modes such as automatic casting and disabled
    gradients are turned on and off in every submodule within their region; partition numbers then have to
    ascend.

    Example::

        parts = iter(range(1000))
        split = split_module(gm, model, lambda node: next(parts) // 10)
        split.submod_0(x)

    Args:
        m: the module to split.
        root_m: unused, as in torch.fx.
        split_callback: returns the partition number of each node that is not an input, attribute or output.
            Called once per node, in order.
        qualname_map: filled with the original names of modules, by their names in the result.
        keep_original_order: call submodules in the order in which partitions first occur, instead of one
            derived from their uses. Attributes are read before the first call that takes them.
        keep_original_node_name: keep the names of nodes in submodules, instead of naming them after their
            targets.
        keep_original_input_name: name the inputs of submodules after their values, instead of ``arg_0``,
            ``arg_1``, …
        partition_affix: name submodules ``submod_<affix>_<part>``.
        tuple_return: let submodules return tuples even for a single value.

    Raises:
        RuntimeError: partitions depend on each other in a cycle; the message lists nodes along it.
        AssertionError: there are regions with a mode, and partition numbers do not ascend.
    """
    expect_ours(m, "split_module")
    numbers: dict[str, int] = {}
    names: list[str] = []
    part_of: list[int | None] = []
    keys: dict[Node, int] = {}
    for node in m.graph.nodes:
        if node.op in _NOT_SPLIT:
            part_of.append(None)
            continue
        key = split_callback(node)
        name = str(key) if partition_affix is None else f"{partition_affix}_{key}"
        number = numbers.setdefault(name, len(names))
        if number == len(names):
            names.append(name)
        part_of.append(number)
        keys[node] = key
    members = _Attributes(m)
    parent, parts, _ = _core.split_graph(
        m.graph,
        part_of,
        [f"submod_{name}" for name in names],
        local=[
            node
            for node in m.graph.find_nodes(op="get_attr")
            if isinstance(members[str(node.target)], torch.nn.Module)
        ],
        companions=_symbols_of(m.graph),
        regions=[
            (enter, leave, [numbers[_part_name(key, partition_affix)] for key in inside])
            for enter, leave, inside in _regions(keys)
        ],
        original_order=bool(keep_original_order),
        original_names=bool(keep_original_node_name),
        input_names=keep_original_input_name,
        tuple_return=tuple_return,
    )
    state: dict[str, Any] = {}
    graph, targets = parent
    for new, old in targets:
        state[new] = members[old]
    for name, (part, part_targets) in zip(names, parts, strict=True):
        submodule = f"submod_{name}"
        own = {new: members[old] for new, old in part_targets}
        state[submodule] = _module_of(own, part)
        if qualname_map is not None:
            for new, old in part_targets:
                if old in members.called:
                    qualname_map[f"{submodule}.{new}"] = old
    split = _make_graph_module(state, graph)
    split.meta["partition_names"] = {f"submod_{name}" for name in names}
    return split


def _part_name(key: int, affix: str | None) -> str:
    return str(key) if affix is None else f"{affix}_{key}"


def _module_of(state: dict[str, Any], graph: Graph) -> GraphModule:
    if _get_graph_module_cls() is GraphModule:
        return GraphModule._with_code_put_off(state, graph)
    return _make_graph_module(state, graph)


class _Attributes(dict[str, Any]):
    """Attributes of a module by qualified name, each looked up once."""

    def __init__(self, owner: GraphModule) -> None:
        super().__init__()
        self.owner = owner
        self.called = {node.target for node in owner.graph.find_nodes(op="call_module")}

    def __missing__(self, name: str) -> Any:
        path, _, last = name.rpartition(".")
        owner = self[path] if path else self.owner
        value: Any = _registered_module(owner, last)
        if value is None:
            if not hasattr(owner, last):
                raise AttributeError(f"Node target {name} not found!")
            value = getattr(owner, last)
        self[name] = value
        return value


# Symbols in shapes ---------------------------------------------------------------------------


def _symbols_of(graph: Graph) -> dict[Node, list[Node]] | None:
    """For each value with symbols in its shape, the values that define these symbols.

    Symbols are those in ``meta["example_value"]``; the definition of one is the first value equal to the
    symbol itself.
    """
    examples = {node: value for node in graph.nodes if (value := _example_of(node)) is not None}
    if not examples:
        return None
    import sympy
    from torch.fx.experimental.symbolic_shapes import free_symbols

    definitions: dict[Any, Node] = {}
    for node, value in examples.items():
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            formula = value.node.expr
            if isinstance(formula, sympy.Symbol):
                definitions.setdefault(formula, node)
    return {
        node: [definitions[symbol] for symbol in sorted(symbols, key=str)]
        for node, value in examples.items()
        if (symbols := free_symbols(value))
    }


def _example_of(node: Node) -> Any:
    return node.meta.get("example_value")


# Modes ---------------------------------------------------------------------------------------


def _regions(keys: dict[Node, int]) -> Iterator[tuple[Node, Node | None, list[int]]]:
    """The regions of the program with a mode: the node that turns it on, the one that turns it off, if any,
    and the partitions with nodes in between.

    Automatic casting has an explicit end; gradients are on or off until the next such node.
    """
    castings: dict[Node, set[int]] = {}
    exits: dict[Node, Node] = {}
    gradients: dict[Node, set[int]] = {}
    active: dict[Node, None] = {}
    gradient: Node | None = None
    for node, key in keys.items():
        target = node.target if node.op == "call_function" else None
        if target is torch._C._set_grad_enabled:
            if len(node.args) != 1 or not isinstance(node.args[0], bool):
                raise AssertionError(f"{node} has to set gradients to True or False")
            gradient = node
            gradients[node] = set()
        elif target is torch.amp._enter_autocast:
            if any(isinstance(arg, Node) for arg in node.args):
                raise AssertionError(f"the arguments of {node} have to be constants")
            active[node] = None
            castings[node] = set()
        elif target is torch.amp._exit_autocast:
            if len(node.args) != 1 or node.args[0] not in active:
                raise AssertionError(f"{node} has to leave what a node has entered")
            entered = node.args[0]
            castings[entered].add(key)
            exits[entered] = node
            del active[entered]
        if gradient is not None:
            gradients[gradient].add(key)
        for entered in active:
            castings[entered].add(key)
    if active:
        raise AssertionError(f"autocast must exit: {', '.join(map(str, active))}")
    if castings or gradients:
        _check_ascending(keys)
    for entered, inside in castings.items():
        yield entered, exits[entered], sorted(inside)
    for entered, inside in gradients.items():
        yield entered, None, sorted(inside)


def _check_ascending(keys: dict[Node, int]) -> None:
    highest = -1
    for node, key in keys.items():
        if highest > key:
            raise AssertionError(
                "autocast or set_grad_enabled require monotonically increasing partitions: "
                f"highest: {highest}, that of {node}: {key}"
            )
        highest = key


# The simple case -----------------------------------------------------------------------------


def split_module_simple(
    m: GraphModule,
    node_to_partition: dict[Node, int],
    *,
    partition_affix: str | None = None,
) -> GraphModule:
    """Like :func:`split_module`, for graphs without attributes and modules whose partitions are in order.

    Args:
        m: the module to split.
        node_to_partition: the partition number of each node that is not an input, attribute or output.
        partition_affix: name submodules ``submod_<affix>_<part>``.

    Raises:
        KeyError: a node has no number, or a partition needs a value of a later one.
    """
    numbers: dict[int, int] = {}
    part_of: list[int | None] = []
    for node in m.graph.nodes:
        if node.op in ("placeholder", "output"):
            part_of.append(None)
        else:
            part_of.append(numbers.setdefault(node_to_partition[node], len(numbers)))
    names = [f"submod_{_part_name(key, partition_affix)}" for key in numbers]
    (graph, _), parts, _ = _core.split_graph(
        m.graph, part_of, names, companions=_symbols_of(m.graph), original_order=True
    )
    state: dict[str, Any] = {}
    for name, (part, _) in zip(names, parts, strict=True):
        state[name] = _module_of({}, part)
        state[name].training = False
    split = GraphModule(state, graph)
    split.training = False
    return split
