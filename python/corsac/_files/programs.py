"""Model files with state, or with several programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from corsac import _core
from corsac._capture.capture import StatefulGraph, graph_with_state, input_names
from corsac._capture.result_template import is_plain
from corsac._capture.unchanged import unchanged
from corsac._engine.native_graph import CompileError
from corsac._files.dynamic_shapes import DynamicShapes
from corsac._files.program_graphs import readable, simplified
from corsac._files.promised_sizes import PromisedSizes
from corsac._files.state import Buffers, initial
from corsac._files.weights import FileWeights, check_name, type_of
from corsac._models.example_inputs import as_tuple
from corsac.fx.proxy import TraceError

#: Number of calls, one after the other, in which the graph is compared with the model.
CALLS = 2


@dataclass(frozen=True)
class Source:
    """A program to be saved.

    Attributes:
        name: its name; empty for an only one.
        model: what is called; a module or a function.
        root: the module that has its buffers.
        inputs: example inputs.
        names: the names of these.
        declared: ``dynamic_shapes``.
    """

    name: str
    model: Callable[..., Any]
    root: nn.Module
    inputs: tuple[torch.Tensor, ...]
    names: Sequence[str]
    declared: Any

    def captured(
        self,
        buffers: Buffers,
        state: Mapping[str, Collection[int]],
        dynamic: Mapping[str | int, Collection[int]],
    ) -> StatefulGraph:
        """The graph, with this state and its dynamic dimensions; the model is as before."""
        ids = {id(buffers.tensors[name]): dims for name, dims in state.items()}
        try:
            with buffers.restored():
                return graph_with_state(self.model, self.inputs, ids, dynamic)
        except TraceError as error:
            raise CompileError(f"{_about(self.name)}{error}") from error


def _about(program: str) -> str:
    return f"program {program}: " if program else ""


def sources(
    model: Callable[..., Any] | None, programs: Mapping[str, Any], dynamic_shapes: Any
) -> list[Source]:
    """The programs of :func:`corsac.save`: by name, example inputs, or a module or function and its example inputs.

    Raises:
        TypeError, ValueError: something else is given, or no program.
        CompileError: a model cannot be saved.
    """
    if not isinstance(programs, Mapping) or not programs:
        raise TypeError("programs is a dictionary of example inputs by name, with at least one")
    unknown = [name for name in dynamic_shapes if name not in programs]
    if unknown:
        raise ValueError(f"dynamic_shapes: there is no program {unknown[0]!r}")
    found = []
    # By model: its readable form, which its programs share.
    known: dict[int, tuple[Any, nn.Module]] = {}
    for name, given in programs.items():
        own, inputs = model, given
        if isinstance(given, tuple) and len(given) == 2 and callable(given[0]):
            own, inputs = given
        if own is None:
            raise TypeError(f"program {name!r} has no model")
        if isinstance(own, torch.export.ExportedProgram):
            raise CompileError("programs of torch.export cannot be saved with state")
        reason = _core.Recording.unavailable()
        if reason is not None:
            raise CompileError(f"state cannot be saved here: {reason}")
        if id(own) not in known:
            known[id(own)] = readable(own)
        read, root = known[id(own)]
        examples = as_tuple(inputs)
        names = input_names(read, examples)
        found.append(Source(name, read, root, examples, names, dynamic_shapes.get(name)))
    return found


def save_programs(
    path: str | os.PathLike[str],
    given: Sequence[Source],
    state: bool | Sequence[str],
    metadata: dict[str, str],
) -> None:
    """Write programs that share weights and state; arguments as for :func:`corsac.save`.

    Raises:
        ValueError, CompileError, OSError: as for :func:`corsac.save`.
    """
    if isinstance(state, str):
        raise TypeError(f"state is True or a list of names, not {state!r}")
    buffers = Buffers({own.name: own.root for own in given})
    names = _state(given, buffers, state)
    _check_names(given, names)
    buffers.check_alone(names)
    declared = _Declared.of(given, names)
    weights = FileWeights(reserved=names)
    parts = [_Part.of(own, buffers, names, declared, weights) for own in given]
    symbolic = {name: dims for own in parts for name, dims in own.symbolic().items()}
    for name in names:
        if name not in symbolic:
            raise ValueError(f"state: no program reads {name}")
    rows = [own.row(weights) for own in parts]
    for name in names:
        value = initial(name, buffers.tensors[name], symbolic[name])
        if value is not None:
            weights.add(name, value)
    _core.write_model_file(os.fspath(path), rows, weights.rows(), metadata, weights.graphs())


def _check_names(given: Sequence[Source], state: Sequence[str]) -> None:
    """Check that state can be told from inputs.

    Raises:
        CompileError: some is named like an input, or like a part of the file.
    """
    for name in state:
        check_name(name)
        for own in given:
            if name in own.names:
                raise CompileError(
                    f"{_about(own.name)}state {name} is named like an input of the model: rename the buffer or the parameter"
                )


def _state(given: Sequence[Source], buffers: Buffers, state: bool | Sequence[str]) -> list[str]:
    """The names of the state: those that are listed, or of all buffers that the programs write to."""
    if not isinstance(state, bool):
        return buffers.chosen(state)
    if not state:
        return []
    written = [own for source in given for own in source.captured(buffers, {}, {}).written]
    found = {buffers.name(own) for own in written}
    return [name for name in buffers.tensors if name in found]


@dataclass
class _Declared:
    """Symbolic sizes: of the inputs of each program, and of state, which has the same in all."""

    inputs: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Sequence[Source], names: Sequence[str]) -> _Declared:
        found = cls()
        for own in given:
            inputs = own.declared
            if isinstance(inputs, Mapping):
                for name in [key for key in inputs if key in names and key not in own.names]:
                    # Sizes that follow from others (2*n) are equal to nothing.
                    if repr(found.state.setdefault(name, inputs[name])) != repr(inputs[name]):
                        raise ValueError(f"dynamic_shapes: {name!r} differs between programs")
                inputs = {key: dims for key, dims in inputs.items() if key not in found.state}
            found.inputs[own.name] = inputs
        return found


@dataclass
class _Part:
    """A program with its graph."""

    source: Source
    buffers: Buffers
    graph: StatefulGraph
    state: list[str]
    shapes: DynamicShapes

    @classmethod
    def of(
        cls,
        source: Source,
        buffers: Buffers,
        names: Sequence[str],
        declared: _Declared,
        weights: FileWeights,
    ) -> _Part:
        graph = source.captured(buffers, dict.fromkeys(names, ()), {})
        for name in map(buffers.name, graph.written):
            if name not in names:
                hint = f"state=[{name!r}, ...]" if names else "state=True"
                raise CompileError(
                    f"{_about(source.name)}the model writes to its buffer {name}: {hint} makes it state of the file"
                )
        state = [buffers.name(own) for own in graph.state]
        tensors = [*source.inputs, *graph.state]
        known = [*source.names, *state]
        inputs = declared.inputs[source.name]
        own = {name: dims for name, dims in declared.state.items() if name in state}
        if own:
            inputs = {
                **dict(enumerate(inputs) if isinstance(inputs, (list, tuple)) else inputs or {}),
                **own,
            }
        shapes = DynamicShapes.of(inputs, known, tensors)
        part = cls(source, buffers, graph, state, shapes)
        if shapes.ranges:
            count = len(source.inputs)
            of_inputs = {at: list(own) for at, own in enumerate(shapes.sizes[:count])}
            of_state: dict[str, Collection[int]] = dict.fromkeys(names, ())
            of_state |= part.symbolic()
            part.graph = source.captured(buffers, of_state, of_inputs)
            assert [buffers.name(own) for own in part.graph.state] == state
        module = part.graph.module
        part.graph.truths[:] = simplified(module, part.graph.truths)
        weights.name(module, source.name)
        module.recompile()
        return part

    def symbolic(self) -> dict[str, Collection[int]]:
        """The symbolic dimensions of its state."""
        sizes = self.shapes.sizes[len(self.source.inputs) :]
        return {name: list(own) for name, own in zip(self.state, sizes, strict=True)}

    def row(self, weights: FileWeights) -> Any:
        """The program for :func:`corsac._core.write_model_file`, after it was compared with the model."""
        tensors = [*self.source.inputs, *self.graph.state]
        count = len(self.source.inputs)
        module, truths = self.graph.module, self.graph.truths
        placeholders = [str(own.target) for own in module.graph.find_nodes(op="placeholder")]
        names = [*placeholders[:count], *self.state]
        specs = [
            (name, type_of(own)[0], shape)
            for name, own, shape in zip(
                names, tensors, self.shapes.declared_shapes(tensors), strict=True
            )
        ]
        inputs, state = specs[:count], specs[count:]
        text, conditions = module.graph.to_lossless(), [own.name for own in truths]

        def draft(symbols: list[tuple[str, int, int | None]]) -> _core.ModelDraft:
            return _core.ModelDraft(
                text, inputs, weights.types(), symbols, conditions, state, weights.graphs()
            )

        given = [own.clone() for own in tensors]
        with self.buffers.restored(), unchanged(self.source.model):
            promised = PromisedSizes(self.shapes, given, draft, self._by_graph, self._by_model)
            try:
                symbols = promised.symbols()
            except CompileError as error:
                raise CompileError(f"{_about(self.source.name)}{error}") from error
        return self.source.name, text, inputs, state, symbols, conditions

    def _by_graph(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The results of the graph in a few calls, and the state after each."""
        count = len(self.source.inputs)
        inputs, state = tensors[:count], [own.clone() for own in tensors[count:]]
        return _calls(lambda: self.graph.module(*inputs, *state), state)

    def _by_model(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The same of the model."""
        count = len(self.source.inputs)
        inputs, state = tensors[:count], dict(zip(self.state, tensors[count:], strict=True))
        self.buffers.fill(state)
        own = [self.buffers.tensors[name] for name in self.state]
        found = _calls(lambda: self.source.model(*inputs), own)
        if is_plain(found):
            return found
        # Of results in classes, a graph has the tensors.
        self.buffers.fill(state)
        fresh = graph_with_state(self.source.model, inputs, {id(tensor): () for tensor in own}, {})
        kept = {name: tensor.clone() for name, tensor in state.items()}
        ordered = [kept[self.buffers.name(tensor)] for tensor in fresh.state]
        return _calls(lambda: fresh.module(*inputs, *ordered), list(kept.values()))


def _calls(call: Callable[[], Any], state: Sequence[torch.Tensor]) -> list[Any]:
    found: list[Any] = []
    for _ in range(CALLS):
        found += [
            own.clone() if isinstance(own, torch.Tensor) else own for own in tree_leaves(call())
        ]
        found += [own.clone() for own in state]
    return found


__all__ = ["Source", "save_programs", "sources"]
