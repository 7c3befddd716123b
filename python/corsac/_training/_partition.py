"""Partitioning of AOTAutograd's joint graphs: tensors that forward saves, and operators that backward recomputes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import CheckpointPolicy

from corsac import _core
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch, to_torch

#: Key of the metadata of inputs that are written to after the forward graph has run, as AOTAutograd has it.
OVERWRITTEN = "aot_runtime_epilogue_input_mutation"
#: Bits that describe a value for :func:`corsac._core.partition_joint`.
_SIZE, _NUMBER, _OTHER = 1, 2, 3
_PARAMETER, _TANGENT = 1 << 2, 2 << 2
_BACKWARD, _ONLY_FORWARD, _ONLY_BACKWARD = 1 << 4, 2 << 4, 3 << 4
_SAVE, _RECOMPUTE = 1 << 6, 2 << 6
_HOOKED, _OVERWRITTEN = 1 << 8, 1 << 9
_TIMES = {
    "is_backward": _BACKWARD,
    "must_be_in_forward": _ONLY_FORWARD,
    "must_be_in_backward": _ONLY_BACKWARD,
}
_POLICIES = {
    CheckpointPolicy.MUST_SAVE: _SAVE,
    CheckpointPolicy.MUST_RECOMPUTE: _RECOMPUTE,
    CheckpointPolicy.PREFER_RECOMPUTE: _RECOMPUTE,
}
_PLAIN = (FakeTensor, torch.Tensor, torch.nn.Parameter)
#: Assumed number of elements if it is not known before the program runs, as in PyTorch's partitioners.
_UNKNOWN_ELEMENTS = 4096


@dataclass(slots=True, frozen=True)
class Partition:
    """The plan for partitioning a joint graph.

    Attributes:
        saved: tensors that forward saves for backward; inputs may be among them.
        saved_numbers: sizes and other numbers that it saves.
        saved_bytes: size of ``saved``, without parameters and buffers, which stay in memory anyway.
        forward: calls of the forward graph, in order.
        backward: calls of the backward graph, in order.
        recomputed: calls of both.
        redrawn: those of them that use random numbers, recomputed from the same state of the generator.
        merged: nodes that compute the same as an earlier one, mapped to that.
    """

    saved: list[torch.fx.Node] = field(default_factory=list)
    saved_numbers: list[torch.fx.Node] = field(default_factory=list)
    saved_bytes: int = 0
    forward: list[torch.fx.Node] = field(default_factory=list)
    backward: list[torch.fx.Node] = field(default_factory=list)
    recomputed: list[torch.fx.Node] = field(default_factory=list)
    redrawn: list[torch.fx.Node] = field(default_factory=list)
    merged: dict[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)


class NotParted(Exception):
    """A graph has something that only PyTorch's own partitioners support."""


def min_cut_partition(
    joint_module: torch.fx.GraphModule | GraphModule,
    joint_inputs: Any,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] | None = None,
    fewest_bytes: bool = False,
    **keywords: Any,
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """Split a joint graph into a forward and a backward graph, with few saved bytes.

    A ``partition_fn`` for ``aot_autograd``, of corsac or of PyTorch::

        aot_autograd(fw_compiler=mine, partition_fn=corsac.backends.min_cut_partition)

    Cheap operators (views, elementwise operators, fills, indexing, some reductions) are recomputed in backward
    where that saves memory, except functions such as an exponential that a product or the like reads there,
    unless ``fewest_bytes``. Products, convolutions, attention, norms, and unknown operators are computed once,
    random numbers are generated once, and the policies of ``torch.utils.checkpoint`` are followed. No more
    is saved than by ``default_partition`` and ``min_cut_rematerialization_partition`` of
    ``torch._functorch.partitioners``. Graphs that only those support (recomputed random numbers on other devices,
    collectives, states of custom classes, a memory budget, offloading) are left to the latter.

    Args:
        joint_module: the joint graph traced by AOTAutograd; its inputs for backward have ``tangents`` in their
            names, and the metadata of nodes has ``val``. It is only read.
        joint_inputs: not used.
        num_fwd_outputs: number of its outputs that belong to forward; they come first.
        static_lifetime_input_indices: indices of inputs that stay in memory anyway: parameters and buffers.
        fewest_bytes: recompute all cheap operators.
        keywords: for PyTorch's partitioner, if a graph is left to it.

    Returns:
        The forward graph, which returns the outputs and then the saved values (tensors, then numbers), and the
        backward graph, which takes numbers, tensors and tangents.
    """
    if isinstance(joint_module, GraphModule):
        joint_module = to_torch(joint_module)
    static = set(static_lifetime_input_indices or ())
    try:
        found = plan_partition(
            joint_module,
            num_fwd_outputs=num_fwd_outputs,
            static=static,
            fewest_bytes=fewest_bytes,
        )
        return _Extraction(joint_module, found, num_fwd_outputs, static).modules()
    except NotParted:
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        return min_cut_rematerialization_partition(
            joint_module,
            joint_inputs,
            num_fwd_outputs=num_fwd_outputs,
            static_lifetime_input_indices=list(static_lifetime_input_indices or ()),
            **keywords,
        )


def plan_partition(
    joint_module: torch.fx.GraphModule,
    *,
    num_fwd_outputs: int,
    static: Iterable[int] = (),
    fewest_bytes: bool = False,
) -> Partition:
    """Plan the partition of :func:`min_cut_partition`, without making the modules.

    Args:
        joint_module: as there.
        num_fwd_outputs: as there.
        static: indices of inputs that stay in memory anyway.
        fewest_bytes: as there.

    Raises:
        NotParted: the graph is left to PyTorch's partitioner.
    """
    if (
        functorch_config.activation_memory_budget != 1
        or functorch_config.enable_activation_offloading
        or functorch_config._sync_decision_cross_ranks
    ):
        raise NotParted("PyTorch's settings ask for what its own partitioner does")
    nodes = list(joint_module.graph.nodes)
    values = _values(nodes, set(static), _overwritten(joint_module.graph))
    try:
        merged, saved, numbers, saved_bytes, *bodies = _core.partition_joint(
            from_torch(joint_module.graph), values, num_fwd_outputs, fewest_bytes
        )
    except RuntimeError as error:
        raise NotParted(str(error)) from error
    if not any(bits & _TANGENT for _, bits, _ in values):
        raise NotParted("there is no way back")

    def named(numbers: list[int]) -> list[torch.fx.Node]:
        return [nodes[number] for number in numbers]

    forward, backward, recomputed, redrawn = map(named, bodies)
    if any(_device(node) != "cpu" for node in redrawn):
        raise NotParted("another generator's numbers are drawn again")
    return Partition(
        saved=named(saved),
        saved_numbers=named(numbers),
        saved_bytes=saved_bytes,
        forward=forward,
        backward=backward,
        recomputed=recomputed,
        redrawn=redrawn,
        merged={nodes[gone]: nodes[kept] for gone, kept in merged},
    )


def _device(node: torch.fx.Node) -> str:
    own = node.meta["val"]
    while isinstance(own, list | tuple):
        own = own[0]
    return own.device.type


def _overwritten(graph: torch.fx.Graph) -> list[Any]:
    """AOTAutograd's descriptions of the inputs that are written to after the forward graph has run."""
    described = graph.output_node().meta.get("desc") or ()
    written = (getattr(own, "mutated_input", None) for own in described)
    return [own for own in written if own is not None]


def _values(
    nodes: list[torch.fx.Node], static: set[int], overwritten: list[Any]
) -> list[tuple[int, int, int]]:
    """Description of the value of each node: size in bytes, bits, and the checkpointed region or -1."""
    values = []
    inputs = 0
    for node in nodes:
        meta = node.meta
        bytes_, bits = _size_of(meta.get("val"), node)
        region = -1
        if node.op == "placeholder":
            name = node.target
            if "tangents" in name:
                bits |= _TANGENT
            elif "seed" in name or "base_offset" in name or "rng_state" in name:
                raise NotParted("states of generators are inputs")
            else:
                bits |= _PARAMETER if inputs in static else 0
                inputs += 1
            is_written = overwritten and meta.get("desc") in overwritten
            if is_written or OVERWRITTEN in meta:
                bits |= _OVERWRITTEN
        elif node.op == "call_function":
            if "recompute" in meta:
                bits |= _POLICIES.get(meta["recompute"], 0)
                region = meta.get("ac_graph_id", -1)
            if "has_backward_hook" in meta:
                bits |= _HOOKED
            if "partitioner_tag" in meta:
                bits |= _TIMES.get(meta["partitioner_tag"], 0)
            if "memory_budget" in meta or "custom" in meta:
                _check_budget(meta)
            bits = _of_target(node, bits)
        values.append((bytes_, bits, region))
    return values


def _check_budget(meta: dict[str, Any]) -> None:
    custom = meta.get("custom")
    named = isinstance(custom, dict) and any("budget" in str(key) for key in custom)
    if named or isinstance(meta.get("memory_budget"), float):
        raise NotParted("a part of the graph has a memory budget")


def _of_target(node: torch.fx.Node, bits: int) -> int:
    """``bits``, adjusted to the target of ``node``.

    Raises:
        NotParted: the target is not supported.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace == "_c10d_functional":
            raise NotParted("there are collectives")
        in_backward = bits & _ONLY_BACKWARD == _ONLY_BACKWARD
        if in_backward and target is torch.ops.aten.copy_.default:
            raise NotParted("the way back writes to an input")
    elif isinstance(target, torch._ops.HigherOrderOperator):
        name = target.name()
        if name == "control_deps":
            raise NotParted("there are orders without data")
        if name == "with_effects":
            # It belongs to a chain of effects, which is in one of the two graphs.
            bits &= ~(_SAVE | _RECOMPUTE)
    return bits


def _size_of(value: Any, node: torch.fx.Node) -> tuple[int, int]:
    """Size of ``value`` in bytes, and the bits of its kind."""
    if isinstance(value, torch.Tensor):
        if type(value) not in _PLAIN:
            raise NotParted(f"{node} is a {type(value).__name__}")
        if value.layout is not torch.strided:
            raise NotParted(f"{node} is {value.layout}")
        elements = value.numel()
        if type(elements) is not int:
            elements = _guess(elements)
        return elements * value.dtype.itemsize, 0
    if value is None:
        return 0, _OTHER
    if isinstance(value, torch.SymInt):
        return 0, _SIZE
    if isinstance(value, torch.SymFloat | torch.SymBool | int | float):
        return 0, _NUMBER
    if isinstance(value, list | tuple):
        return sum(_size_of(own, node)[0] for own in value), _OTHER
    if isinstance(value, dict):
        return sum(_size_of(own, node)[0] for own in value.values()), _OTHER
    if isinstance(value, torch.device | torch.dtype):
        return 0, _OTHER
    raise NotParted(f"{node} is a {type(value).__name__}")


def _guess(elements: torch.SymInt) -> int:
    from torch.fx.experimental.symbolic_shapes import optimization_hint

    return int(optimization_hint(elements, fallback=_UNKNOWN_ELEMENTS))


class _Extraction:
    """Makes the forward and the backward module from a plan."""

    def __init__(
        self, joint: torch.fx.GraphModule, parts: Partition, forward_outputs: int, static: set[int]
    ) -> None:
        self._joint, self._parts = joint, parts
        placeholders = joint.graph.find_nodes(op="placeholder")
        self._tangents = [node for node in placeholders if "tangents" in node.target]
        self._inputs = [node for node in placeholders if "tangents" not in node.target]
        for number, node in enumerate(self._inputs):
            node.meta["is_static_input"] = number in static
        output = joint.graph.output_node()
        outputs = list(output.args[0])
        descriptions = list(output.meta.get("desc", [None] * len(outputs)))
        self._forward = outputs[:forward_outputs], descriptions[:forward_outputs]
        self._backward = outputs[forward_outputs:], descriptions[forward_outputs:]

    def modules(self) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        from torch._functorch._aot_autograd.descriptors import (
            SavedForBackwardsAOTOutput,
            SavedForBackwardsNoVcCheckAOTOutput,
        )

        saved = self._parts.saved
        # Tensors without a version check in backward come last.
        unchecked = list(filter(_is_unchecked, saved))
        checked = [node for node in saved if not _is_unchecked(node)] if unchecked else saved
        tensors = [*checked, *map(_State, self._parts.redrawn), *unchecked]
        numbers = self._numbers(saved)
        first = len(tensors) - len(unchecked)
        descriptions = [
            SavedForBackwardsNoVcCheckAOTOutput(at)
            if first <= at < len(tensors)
            else SavedForBackwardsAOTOutput(at)
            for at in range(len(tensors) + len(numbers))
        ]
        outputs, known = self._forward
        body = self._with_numbers(numbers)
        outputs = [*outputs, *tensors, *numbers]
        forward = self._graph(self._inputs, body, outputs, [*known, *descriptions])
        inputs = [*numbers, *tensors, *self._tangents]
        backward = self._graph(inputs, self._parts.backward, *self._backward)
        for node in backward.nodes:
            if node.op in ("call_function", "get_attr"):
                node.meta["autograd_backward"] = True
        return self._module(forward), self._module(backward)

    def _module(self, graph: torch.fx.Graph) -> torch.fx.GraphModule:
        # AOTAutograd may change the graph, and compilers may never call it: its code is generated at the
        # first call.
        from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module

        with _use_lazy_graph_module(True):
            return _make_graph_module(self._joint, graph)

    def _numbers(self, saved: list[torch.fx.Node]) -> list[torch.fx.Node]:
        """The numbers to save: first those that bind a symbol, some of which no call reads, but which are
        sizes of tensors in backward."""
        numbers = self._parts.saved_numbers
        read = [*numbers, *saved, *self._tangents]
        if not any(map(_has_symbols, read)):
            return numbers
        from torch.fx.experimental.symbolic_shapes import (
            find_symbol_binding_fx_nodes,
            is_symbol_binding_fx_node,
        )

        binding = {is_symbol_binding_fx_node(node): node for node in numbers}
        binding.pop(None, None)
        derived = [node for node in numbers if node not in binding.values()]
        bindings = find_symbol_binding_fx_nodes(self._joint.graph)
        for node in [*derived, *saved, *self._tangents]:
            for symbol in sorted(_symbols(node.meta.get("val")), key=lambda own: own.name):
                if symbol in bindings:
                    binding.setdefault(symbol, bindings[symbol])
        return [*binding.values(), *derived]

    def _with_numbers(self, numbers: list[torch.fx.Node]) -> list[torch.fx.Node]:
        """The calls of forward, with those that ``numbers`` depend on."""
        own = self._parts.forward
        there = {*own, *self._inputs}
        missing = [node for node in numbers if node not in there]
        if not missing:
            return own
        while missing:
            node = missing.pop()
            if node not in there:
                there.add(node)
                missing += node.all_input_nodes
        return [
            node for node in self._joint.graph.nodes if node in there and node.op != "placeholder"
        ]

    def _graph(
        self,
        inputs: Sequence[Any],
        body: list[torch.fx.Node],
        outputs: Sequence[Any],
        descriptions: Sequence[Any],
    ) -> torch.fx.Graph:
        graph = torch.fx.Graph()
        made: dict[Any, torch.fx.Node] = {}
        merged = self._parts.merged

        def own(node: Any) -> torch.fx.Node:
            found = made.get(node)
            return made[merged[node]] if found is None else found

        for node in inputs:
            if isinstance(node, _State):
                made[node] = new = graph.placeholder(f"{node.of.name}_state")
                new.meta["val"] = node.fake()
            else:
                made[node] = new = graph.placeholder(node.name)
                new.meta = node.meta
        redrawn = set(self._parts.redrawn)
        map_arg = torch.fx.map_arg
        for node in body:
            if node in made:
                continue
            args, kwargs = map_arg(node.args, own), node.kwargs
            kwargs = map_arg(kwargs, own) if kwargs else kwargs
            if node in redrawn:
                made[node] = _drawn(graph, node, args, kwargs, made)
                continue
            # Arguments are set later: `create_node` would search them for nodes of other graphs.
            made[node] = new = graph.create_node(
                node.op, node.target, None, None, node.name, node.type
            )
            new.args = args
            if kwargs:
                new.kwargs = kwargs
            new.meta.update(node.meta)
        returned = [
            own(node)
            if isinstance(node, torch.fx.Node)
            else made.get(node, node)
            if isinstance(node, _State)
            else node
            for node in outputs
        ]
        output = graph.output(tuple(returned))
        output.meta["desc"] = list(descriptions)
        output.meta["output_stack_traces"] = [
            node.meta.get("stack_trace") if isinstance(node, torch.fx.Node) else None
            for node in returned
        ]
        return graph


@dataclass(frozen=True, slots=True)
class _State:
    """The state of the random generator before a node used it."""

    of: torch.fx.Node

    def fake(self) -> Any:
        value = self.of.meta["val"]
        while isinstance(value, list | tuple):
            value = value[0]
        with _disable_current_modes():
            state = torch.get_rng_state()
        return value.fake_mode.from_tensor(state, static_shapes=True)


def _drawn(
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: dict[Any, torch.fx.Node],
) -> torch.fx.Node:
    """``node`` in forward, with the state of the generator saved, or in backward, rerun from that state."""
    from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

    key = _State(node)
    state = made.get(key)
    if state is not None:
        arguments = (state, node.target, *args)
        new = graph.create_node("call_function", run_with_rng_state, arguments, kwargs, node.name)
        new.meta = node.meta.copy()
        return new
    pair = graph.call_function(run_and_save_rng_state, (node.target, *args), kwargs)
    pair.meta["val"] = (key.fake(), node.meta["val"])
    made[key] = state = graph.call_function(operator.getitem, (pair, 0))
    state.meta["val"] = pair.meta["val"][0]
    new = graph.create_node("call_function", operator.getitem, (pair, 1), {}, node.name)
    new.meta = node.meta.copy()
    return new


def _is_unchecked(node: torch.fx.Node) -> bool:
    """Whether a tensor may be written to before backward: it was kept without ``save_for_backward``."""
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


def _symbolic(value: Any) -> list[Any]:
    """The sizes and numbers in ``value`` that are symbols."""
    if isinstance(value, torch.Tensor):
        return [
            n for n in (*value.shape, *value.stride(), value.storage_offset()) if type(n) is not int
        ]
    return [value] if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else []


def _has_symbols(node: torch.fx.Node) -> bool:
    return bool(_symbolic(node.meta.get("val")))


def _symbols(value: Any) -> set[Any]:
    """The symbols in ``value``, before and after the replacement of symbols by known expressions."""
    found: set[Any] = set()
    for number in _symbolic(value):
        found |= number.node.expr.free_symbols | number.node._expr.free_symbols
    return found


__all__ = ["Partition", "min_cut_partition", "plan_partition"]
