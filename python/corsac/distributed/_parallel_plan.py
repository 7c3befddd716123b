"""Plans of tensor parallelism: which part of each value each rank has, on the graph of a model."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch

from corsac import _core
from corsac.analysis._meta_run import MetaRun
from corsac.distributed._agreement import digests_of
from corsac.distributed._errors import ParallelError, as_parallel_errors
from corsac.distributed._node_plan import NodePlan
from corsac.distributed._part_sizes import check_sizes
from corsac.distributed._program import Program, positional, program_of
from corsac.distributed._sequences import check_sequences, view_wholes
from corsac.distributed._values import (
    InputType,
    described,
    input_types,
    quiet,
    reads_places,
    values_for,
)
from corsac.fx import Graph, Node
from corsac.passes._writes import written_sources

#: Operations that a rank makes while it sends a byte.
_OPERATIONS = 100.0
#: Cost of a byte of a weight that a rank keeps, in bytes that are sent: weights, gradients and the state of optimizers
#: stay, what is sent goes.
_KEPT = 16.0
#: The same of a byte of another value, if parts of sequences are asked for: it is kept until its gradient is computed.
_ACTIVATION = 1.0


@dataclass(slots=True)
class ParallelPlan:
    """A model cut among ranks, without its weights.

    Attributes:
        program: the model as one graph.
        inputs: the types of the inputs that it was cut for.
        ranks: the number of ranks.
        training: whether there are gradients.
        sequence_parallel: whether sums may become parts of sequences.
        nodes: how each node of the graph is run.
        shards: the dimension of each sharded weight, and the sizes of the pieces that are cut among the ranks.
        written: the values that share memory with one that is written to.
        cost: of the plan, in bytes: those that are sent, and those of operations and weights as if they were sent.
    """

    program: Program
    inputs: list[InputType]
    ranks: int
    training: bool
    sequence_parallel: bool
    nodes: dict[Node, NodePlan]
    shards: dict[str, tuple[int, list[int]]]
    cost: float
    written: set[Node]
    _checked: set[Any] = field(default_factory=set)

    def local_shape(self, name: str) -> tuple[int, ...]:
        """The shape of a rank's part of a weight."""
        shape = list(self.program.weights[name].shape)
        if name in self.shards:
            shape[self.shards[name][0]] //= self.ranks
        return tuple(shape)

    def bytes(self) -> tuple[int, int]:
        """The bytes of sharded weights, as a whole, and of replicated ones."""
        sizes = {name: own.bytes for name, own in self.program.weights.items()}
        sharded = sum(own for name, own in sizes.items() if name in self.shards)
        return sharded, sum(sizes.values()) - sharded

    def check(self, inputs: Sequence[InputType]) -> None:
        """Check that the graph is the model's for inputs of these types.

        Raises:
            ParallelError: it is not.
        """
        key = tuple(inputs)
        if key in self._checked:
            return
        program = self.program
        with as_parallel_errors(), quiet():
            values = values_for(program, inputs)
        check_sizes(self.nodes, values, self.ranks)
        self._checked.add(key)

    def module_plan(self, model: torch.nn.Module) -> dict[str, Any]:
        """The plan for :func:`torch.distributed.tensor.parallel.parallelize_module`: a style for each linear layer and
        embedding whose weight is sharded. Losses over parts of the classes and gradients of what is replicated are not in
        it; norms have to be whole (``replicate=["*norm*"]``).

        Raises:
            ParallelError: layers with these styles would compute something else: a weight is cut in pieces or in a layer
                for which PyTorch has no style, what one layer makes is not what the next one takes, or the model's code
                has numbers of heads in it.
        """
        from corsac.distributed._module_plan import module_plan

        return module_plan(self, model)

    def digests(self) -> dict[str, str]:
        """A hash of each part of the plan that the ranks must agree on."""
        parts: dict[str, Any] = {
            **self.program.parts(),
            "shards": self.shards,
            "placements": [
                [
                    node.name,
                    [[own.name, placed] for own, placed in one.inputs.items()],
                    one.output,
                    one.replicated,
                    one.form,
                    one.has_summands,
                ]
                for node, one in self.nodes.items()
            ],
            "inputs": [[list(shape), str(dtype)] for shape, dtype in self.inputs],
            "ranks": [self.ranks, self.training, self.sequence_parallel],
        }
        return digests_of(parts)

    def hash(self) -> str:
        """A hash of all that the ranks must agree on."""
        return hashlib.sha256(json.dumps(self.digests(), sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        sharded, replicated = self.bytes()
        lines = [
            f"{self.ranks} ranks: {sharded / self.ranks + replicated:,.0f} bytes of weights each "
            f"({sharded:,} sharded, {replicated:,} replicated)"
        ]
        for name, weight in self.program.weights.items():
            if weight.kind == "constant":
                continue
            shard = self.shards.get(name)
            if shard is None:
                shown = "replicated"
            elif len(shard[1]) == 1:
                shown = f"dimension {shard[0]}"
            else:
                shown = f"dimension {shard[0]}, in pieces of {', '.join(map(str, shard[1]))}"
            lines.append(f"{name} {list(weight.shape)}: {shown}")
        return "\n".join(lines)


def plan_parallel(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tp: int,
    training: bool = True,
    sequence_parallel: bool = False,
    replicate: Collection[str] = (),
    shard: Mapping[str, int] | None = None,
    uneven: str = "error",
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
) -> ParallelPlan:
    """Capture a model and cut its weights and computations among ranks. Needs no process group.

    Layouts are found on the graph: each value is whole on all ranks, cut along a dimension, or a sum of which each rank
    has a summand, so that the least is kept, computed and sent.

    Args:
        model: a module, whose weights may be on ``meta``. It is captured in the training modes that its modules have.
        example_inputs: the positional arguments of a call: a tensor, or a tuple of tensors and plain values.
        kwargs: its keyword arguments.
        tp: the number of ranks.
        training: whether there are gradients. Without them, results have none.
        sequence_parallel: whether each rank keeps a part of the sequence between layers, where values are whole
            otherwise: what norms, dropouts and residual sums make. The same bytes are sent. A sum is cut along its last
            dimension that the ranks divide, without the last of all: the sequence, or else the batch.
        replicate: names of weights, or patterns as ``"*.lm_head.weight"``, that stay whole.
        shard: dimensions along which weights are cut, by name or pattern.
        uneven: what is done if the ranks do not divide the heads of attention, or neither sequence nor batch for
            ``sequence_parallel``: ``"error"``, or ``"replicate"``.
        dynamic_shapes: dimensions of inputs that may differ between calls, by position or name; all if it is None.

    Raises:
        ParallelError: the model is no graph, or cannot be cut in this way.
    """
    if tp < 1:
        raise ValueError(f"tp: expected at least 1 rank, got {tp}")
    if uneven not in ("error", "replicate"):
        raise ValueError(f"uneven: expected 'error' or 'replicate', got {uneven!r}")
    args = positional(example_inputs)
    with as_parallel_errors():
        program = program_of(model, args, kwargs or {}, dynamic_shapes)
    inputs = input_types(program.arguments.tensors(args, kwargs or {}))
    return plan_program(
        program, inputs, tp, training, replicate, shard or {}, uneven, sequence_parallel
    )


def plan_program(
    program: Program,
    inputs: list[InputType],
    ranks: int,
    training: bool,
    replicate: Collection[str],
    shard: Mapping[str, int],
    uneven: str,
    sequence_parallel: bool = False,
) -> ParallelPlan:
    """The plan for a captured model."""
    graph = program.graph
    found = _types(program, inputs)
    whole = _written(graph)
    counts = found.costs()
    products = {node for node, row in zip(graph.nodes, counts, strict=True) if row[0]}
    costs = [
        ((row[1] if isinstance(row[1], int) else 0) / _OPERATIONS, node in whole, bool(aliases))
        for node, row, ((_, aliases, *_), *_) in zip(
            graph.nodes, counts, _core.graph_effects(graph), strict=True
        )
    ]
    written = {str(node.target) for node in whole if node.op == "get_attr"}
    whole_weights = {own for pattern in replicate for own in _matching(program, pattern)}
    along = _along(program, shard)
    weights = [
        (
            name,
            name not in whole_weights
            and name not in written
            and weight.kind != "constant"
            and weight.dtype.is_floating_point,
            weight.requires_grad,
            along.get(name),
            name in along,
        )
        for name, weight in program.weights.items()
    ]
    nodes = list(graph.nodes)
    rows, cost, refused = _cheapest(found, ranks, costs, weights, training, (_KEPT, 0.0))
    shards = _shards(program, nodes, rows)
    if sequence_parallel:
        # Weights are cut as without it: else others might be sent rather than activations kept.
        weights = [
            (name, name in shards, trained, shards[name][0] if name in shards else None, fixed)
            for name, _, trained, _, fixed in weights
        ]
        rows, cost, _ = _cheapest(found, ranks, costs, weights, training, (_KEPT, _ACTIVATION))
        shards = _shards(program, nodes, rows)
    planned: dict[Node, NodePlan] = {}
    for node, (used, output, replicated, split, form, sizes) in zip(nodes, rows, strict=True):
        planned[node] = NodePlan(
            {nodes[at]: placed for at, placed in used}, output, replicated, split, form, sizes
        )
    if uneven == "error":
        for at, size in refused:
            if ranks % size and _whole_products(nodes[at], planned, products):
                raise ParallelError(
                    f"{described(nodes[at])}: {ranks} ranks do not divide {size}, into which this call "
                    f"splits a dimension; uneven='replicate' keeps these weights whole"
                )
        if sequence_parallel:
            check_sequences(program, inputs, ranks, planned, products)
    if sequence_parallel:
        view_wholes(planned, whole)
    return ParallelPlan(
        program, inputs, ranks, training, sequence_parallel, planned, shards, cost, whole
    )


def _cheapest(
    found: Any,
    ranks: int,
    costs: Sequence[Any],
    weights: Sequence[Any],
    training: bool,
    kept: tuple[float, float],
) -> Any:
    """The cheapest plan, as :meth:`Types.tensor_parallel` returns it.

    Raises:
        ParallelError: there is none.
    """
    try:
        return found.tensor_parallel(ranks, costs, weights, training=training, kept=kept)
    except ValueError as error:
        raise ParallelError(str(error)) from error


def _shards(
    program: Program, nodes: Sequence[Node], rows: Sequence[Any]
) -> dict[str, tuple[int, list[int]]]:
    """The dimension of each sharded weight in the rows of a plan, and its pieces."""
    return {
        str(node.target): output[0]
        for node, (_, output, *_) in zip(nodes, rows, strict=True)
        if node.op == "get_attr"
        and str(node.target) in program.weights
        and output
        and isinstance(output[0], tuple)
    }


def _types(program: Program, inputs: Sequence[InputType]) -> Any:
    """The types and costs of all values, and the ways to make calls on parts."""
    given = tuple(torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in inputs)
    return _core.propagate_types(
        program.graph, given, MetaRun(None), fill=False, cost=True, shards=True
    )


def _whole_products(view: Node, planned: Mapping[Node, NodePlan], products: set[Node]) -> bool:
    """Whether the next product without a weight after a view is computed as a whole by all ranks, as that of heads which
    they do not divide."""
    near, seen = [view], {view}
    while near and len(seen) < 64:
        node = near.pop()
        if node in products:
            if not planned[node].split and all(
                own.op != "get_attr" for own in node.all_input_nodes
            ):
                return True
            continue
        near += [user for user in node.users if user not in seen and user.op != "output"]
        seen.update(near)
    return False


def _written(graph: Graph) -> set[Node]:
    """The values that share memory with one that is written to, that an unknown call may change, or of which it matters
    where their elements lie."""
    facts = list(zip(graph.nodes, _core.graph_effects(graph), strict=True))
    groups: dict[int, list[Node]] = {}
    group_of: dict[Node, int] = {}
    for node, (*_, group) in facts:
        group_of[node] = group
        groups.setdefault(group, []).append(node)
    written = written_sources(graph)
    for node, ((mutates, *_, opaque), *_) in facts:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        for own in node.all_input_nodes if opaque or reads_places(node) else mutates:
            # Number 0 is for inputs and attributes.
            written.update(groups[group_of[own]] if group_of[own] else (own,))
    # Views of inputs and attributes that are written to.
    names = {str(node.target) for node in written if node.op == "get_attr"}
    for node, ((_, aliases, *_), *_) in facts:
        is_written = node.op == "get_attr" and str(node.target) in names
        if is_written or any(own in written for own in aliases):
            written.add(node)
    return written


def _matching(program: Program, pattern: str) -> list[str]:
    """The weights that a pattern matches.

    Raises:
        ParallelError: it matches none.
    """
    matched = [
        name
        for name, weight in program.weights.items()
        if any(fnmatchcase(own, pattern) for own in (name, *weight.aliases))
    ]
    if not matched:
        near = difflib.get_close_matches(pattern, program.weights, 3)
        hint = f"; there are {', '.join(near)}" if near else ""
        raise ParallelError(f"no weight is called {pattern}{hint}")
    return matched


def _along(program: Program, shard: Mapping[str, int]) -> dict[str, int]:
    """The dimensions along which weights have to be cut.

    Raises:
        ParallelError: a pattern matches no weight, or a dimension is none of a weight.
    """
    found: dict[str, int] = {}
    for pattern, dim in shard.items():
        for name in _matching(program, pattern):
            shape = program.weights[name].shape
            if not -len(shape) <= dim < len(shape):
                raise ParallelError(f"{name} of shape {list(shape)} has no dimension {dim}")
            found[name] = dim % len(shape)
    return found


__all__ = [
    "ParallelError",
    "ParallelPlan",
    "plan_parallel",
    "plan_program",
]
