"""Plans of pipelines: the graph of a model, and the places where it is cut."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac import _core
from corsac.distributed._agreement import digests_of
from corsac.distributed._borders import Dependencies, cuts
from corsac.distributed._errors import PipelineError
from corsac.distributed._plan_file import PlanFile
from corsac.distributed._program import Arguments, Program, Weight, positional, program_of
from corsac.distributed._stage_graphs import StageGraph, stage_graphs
from corsac.distributed._values import (
    InputType,
    data_of,
    described,
    dtype_name,
    input_types,
    quiet,
    values_for,
)
from corsac.fx import Graph, Node

#: Version of plan files.
_FORMAT = 1
#: Number of sets of sizes for which the types of values are kept.
_KEPT = 16
#: Modules of functions that the graphs of plan files may call.
_ALLOWED = ("torch", "operator", "_operator", "builtins", "corsac")


@dataclass(slots=True)
class PipelinePlan(PlanFile):
    """A model cut into stages, without its weights.

    Attributes:
        program: the model as one graph.
        inputs: the types of inputs that it was cut for, first, and others with which sizes were told apart.
        cuts: the names of the nodes that begin the second and further stages.
        stages: the graphs of the stages.
    """

    program: Program
    inputs: list[list[InputType]]
    cuts: tuple[str, ...]
    stages: list[StageGraph]
    _values: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def values(self, inputs: Sequence[InputType]) -> dict[str, Any]:
        """The types of all values for inputs of these types, by name, as fake tensors.

        Raises:
            PipelineError: the graph is not that of the model for such inputs.
        """
        key = tuple(inputs)
        if key not in self._values:
            found = _by_name(values_for(self.program, inputs))
            for stage in self.stages:
                _check_sizes(stage, found)
            if len(self._values) >= _KEPT:
                del self._values[next(own for own in self._values if own not in self._own_keys())]
            self._values[key] = found
        return self._values[key]

    def _own_keys(self) -> set[Any]:
        return {tuple(own) for own in self.inputs}

    def shared(self) -> dict[str, list[int]]:
        """The weights that several stages read, with these stages."""
        found: dict[str, list[int]] = {}
        for number, stage in enumerate(self.stages):
            for name in stage.weights:
                found.setdefault(name, []).append(number)
        return {name: own for name, own in found.items() if len(own) > 1}

    def hash(self) -> str:
        """A hash of all that the ranks of a pipeline must agree on."""
        text = json.dumps(self._parts(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def digests(self) -> dict[str, str]:
        """A hash of each part of the plan."""
        return digests_of(self._parts())

    def _parts(self) -> dict[str, Any]:
        program = self.program
        return {
            "graph": program.graph.to_lossless(),
            "arguments": list(program.arguments.places),
            "constant arguments": {
                str(place): repr(own) for place, own in program.arguments.constants.items()
            },
            "weights": {name: _weight_as_json(own) for name, own in program.weights.items()},
            "conditions": program.conditions,
            "cuts": list(self.cuts),
            "inputs": [
                [[list(shape), dtype_name(dtype)] for shape, dtype in own] for own in self.inputs
            ],
        }

    def content(self) -> dict[str, Any]:
        """The plan as values of JSON, with the constants of the program, but without its weights.

        Raises:
            PipelineError: a constant is on ``meta``.
        """
        constants = {}
        for name, own in self.program.weights.items():
            value = self.program.tensors.get(name)
            if own.kind != "constant":
                continue
            if value is None or value.is_meta:
                raise PipelineError(f"the constant {name} of the model is on meta")
            constants[name] = base64.b64encode(data_of(value).tobytes()).decode()
        named = {
            str(place): own
            for place, own in self.program.arguments.constants.items()
            if own is None or isinstance(own, bool | int | float | str)
        }
        return {
            "corsac.pipeline": _FORMAT,
            "hash": self.hash(),
            **self._parts(),
            "plain arguments": named,
            "constants": constants,
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any], name: str) -> PipelinePlan:
        try:
            if content.get("corsac.pipeline") != _FORMAT:
                found = content.get("corsac.pipeline")
                raise PipelineError(f"{name}: expected a plan of version {_FORMAT}, got {found}")
            plan = _read(content)
            given = content["hash"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise PipelineError(
                f"{name} is no plan of a pipeline: {type(error).__name__}: {error}"
            ) from error
        if plan.hash() != given:
            raise PipelineError(f"{name} was changed: its hash is {plan.hash()[:12]}")
        return plan

    def __str__(self) -> str:
        values = self.values(self.inputs[0])
        lines = ["stage  nodes  weights (bytes)  takes  returns"]
        for number, stage in enumerate(self.stages):
            size = sum(self.program.weights[name].bytes for name in stage.weights)
            shown = [
                ", ".join(f"{name}{list(values[name].shape)}" for name in names)
                for names in (stage.inputs, stage.outputs)
            ]
            lines.append(
                f"{number:>5}  {len(stage.graph.nodes):>5}  {size:>15,}  {shown[0]} -> {shown[1]}"
            )
        return "\n".join(lines)


def plan_pipeline(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    stages: int,
    memory: int | None = None,
    cut_before: Sequence[str] | None = None,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
) -> PipelinePlan:
    """Capture a model and cut it into stages that take about the same time. Needs no process group.

    Args:
        model: a module, whose weights may be on ``meta``. It is captured in the training modes that its modules have.
        example_inputs: the positional arguments of a call with one microbatch: a tensor, or a tuple of tensors and
            plain values.
        kwargs: its keyword arguments.
        stages: the number of stages.
        memory: the largest number of bytes of weights and their gradients of a stage.
        cut_before: the names of the nodes that begin the second and further stages, in place of a search.
        dynamic_shapes: dimensions of inputs that may differ between calls, by position or name; all if it is None.

    Raises:
        PipelineError: the model is no graph, or cannot be cut into this many stages.
    """
    args = positional(example_inputs)
    program = program_of(model, args, kwargs or {}, dynamic_shapes)
    base = input_types(program.arguments.tensors(args, kwargs or {}))
    return plan_stages(
        program, [base, *other_sizes(program, base, dynamic_shapes)], stages, memory, cut_before
    )


def plan_stages(
    program: Program,
    inputs: list[list[InputType]],
    stages: int,
    memory: int | None,
    cut_before: Sequence[str] | None,
    values: Sequence[dict[Node, Any]] | None = None,
    costs: Sequence[float] | None = None,
) -> PipelinePlan:
    """Cut a captured model, for inputs of each of these types; see :func:`plan_pipeline`.

    Args:
        values: the values of all nodes for each of ``inputs``, if they are known.
        costs: the cost of each node; by default operations, and bytes written.
    """
    found = [values_for(program, own) for own in inputs] if values is None else values
    dependencies = Dependencies.of(program, found[0])
    if cut_before is None:
        borders = cuts(program, found[0], dependencies, stages, memory, costs)
    else:
        by_name = {node.name: at for node, at in dependencies.place.items()}
        unknown = [name for name in cut_before if name not in by_name]
        if unknown:
            raise PipelineError(f"the graph has no node {unknown[0]}")
        borders = sorted(by_name[name] for name in cut_before)
        for own in borders:
            if own not in dependencies.borders:
                raise PipelineError(
                    f"the program cannot be cut before {dependencies.nodes[own].name}: memory that "
                    "is written to, a mode or a tuple lies across"
                )
        if len(borders) != stages - 1:
            raise PipelineError(
                f"expected {stages - 1} cuts for {stages} stages, got {len(borders)}"
            )
    made = stage_graphs(program, borders, dependencies, found)
    names = tuple(dependencies.nodes[own].name for own in borders)
    plan = PipelinePlan(program, inputs, names, made)
    for own, known in zip(inputs, found, strict=True):
        plan._values[tuple(own)] = _by_name(known)
    return plan


def _by_name(values: Mapping[Node, Any]) -> dict[str, Any]:
    return {node.name: own for node, own in values.items()}


def other_sizes(
    program: Program,
    base: Sequence[InputType],
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
) -> list[list[InputType]]:
    """Types of inputs that differ in one size from ``base`` each, the batch first, for which the program is valid, too."""
    reads_sizes = any(
        node.target == "size" or "sym_size" in str(node.target) for node in program.graph.nodes
    )
    found: list[list[InputType]] = []
    symbols = {(shape[dim], dim) for shape, _ in base for dim in range(len(shape))}
    for size, dim in sorted(symbols, key=lambda own: own[1]):
        # Inputs share the sizes of a batch and of its sequences.
        other = [
            (
                tuple(
                    own + ((own, number) == (size, dim) and _varies(place, dim, dynamic_shapes))
                    for number, own in enumerate(shape)
                ),
                dtype,
            )
            for place, (shape, dtype) in zip(program.arguments.places, base, strict=True)
        ]
        # Only programs that read sizes need to have them told apart.
        if other == list(base) or (dim > 0 and not reads_sizes):
            continue
        with quiet():
            try:
                values_for(program, other)
            except PipelineError:
                continue
        found.append(other)
    return found


def _varies(
    place: int | str, dim: int, dynamic_shapes: Mapping[str | int, Collection[int]] | None
) -> bool:
    return dynamic_shapes is None or dim in dynamic_shapes.get(place, ())


def _check_sizes(stage: StageGraph, values: Mapping[str, Any]) -> None:
    """Check that the sizes which a stage reads from other values than the program are equal."""
    for (name, dim), other in stage.sizes.items():
        wanted = values[name].shape[dim]
        got = other if isinstance(other, int) else values[other[0]].shape[other[1]]
        if got != wanted:
            shown = other if isinstance(other, int) else f"{other[0]}.shape[{other[1]}], {got}"
            raise PipelineError(
                f"the plan takes the size {name}.shape[{dim}] to be {shown}, but it is {wanted} for "
                "these inputs: make a plan with inputs of these sizes"
            )


def _weight_as_json(weight: Weight) -> list[Any]:
    return [
        list(weight.shape),
        dtype_name(weight.dtype),
        weight.kind,
        weight.requires_grad,
        list(weight.aliases),
    ]


def _read(content: Mapping[str, Any]) -> PipelinePlan:
    weights = {
        name: Weight(tuple(shape), getattr(torch, dtype), kind, requires_grad, tuple(aliases))
        for name, (shape, dtype, kind, requires_grad, aliases) in content["weights"].items()
    }
    tensors = {}
    for name, own in weights.items():
        if own.kind == "constant":
            data = bytearray(base64.b64decode(content["constants"][name]))
            flat = (
                torch.frombuffer(data, dtype=own.dtype) if data else torch.empty(0, dtype=own.dtype)
            )
            tensors[name] = flat.reshape(own.shape)
        else:
            tensors[name] = torch.empty(own.shape, dtype=own.dtype, device="meta")
    constants = {
        int(place) if place.isdigit() else place: own
        for place, own in content["plain arguments"].items()
    }
    graph = Graph.parse(content["graph"], allow=_ALLOWED)
    for node, ((*_, is_opaque), *_) in zip(graph.nodes, _core.graph_effects(graph), strict=True):
        if is_opaque and node.op.startswith("call_"):
            # Those that read files or run code are among them.
            raise PipelineError(f"{described(node)} calls {node.target}, of which nothing is known")
    program = Program(
        graph,
        Arguments(tuple(content["arguments"]), constants),
        weights,
        tensors,
        [_as_condition(own) for own in content["conditions"]],
    )
    inputs = [
        [(tuple(shape), getattr(torch, dtype)) for shape, dtype in own] for own in content["inputs"]
    ]
    named = content["cuts"]
    return plan_stages(program, inputs, len(named) + 1, None, named)


def _as_condition(own: Any) -> Any:
    return tuple(map(_as_condition, own)) if isinstance(own, list) else own


__all__ = [
    "PipelinePlan",
    "other_sizes",
    "plan_pipeline",
    "plan_stages",
]
