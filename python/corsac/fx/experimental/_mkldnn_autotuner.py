"""Decides by measurement which subgraphs run on oneDNN."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from corsac import cache
from corsac.fx.experimental._mkldnn_layout import (
    MklSubgraph,
    run_on_mkldnn,
    to_channels_last,
    to_contiguous,
)
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Interpreter
from corsac.fx.node import Node, map_aggregate

__all__ = ["Measurement", "MklAutotuner", "gen_mkl_autotuner"]

#: Seconds before progress is shown.
PATIENCE: Final = 1.0
#: Format version of the file of decisions.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of a subgraph, run both ways.

    Attributes:
        first: the name of its first node.
        nodes: its number of nodes.
        plain_seconds: the shortest run without oneDNN.
        mkldnn_seconds: the shortest run on oneDNN, conversions included.
        use_mkldnn: whether it runs on oneDNN.
        reused: whether it was read from the file of decisions.
    """

    first: str
    nodes: int
    plain_seconds: float
    mkldnn_seconds: float
    use_mkldnn: bool
    reused: bool


def gen_mkl_autotuner(
    example_inputs: Sequence[torch.Tensor],
    iters: int = 10,
    warmup: int = 1,
    *,
    decisions: str | os.PathLike[str] | None = None,
) -> Callable[[MklSubgraph], bool]:
    """A rule for :func:`optimize_for_inference` that runs each subgraph both ways.

    Runs of both ways alternate, without gradients; the way with the shortest run wins. Progress is shown on
    stderr if it takes over a second. The rule's ``measurements`` hold the results.

    Args:
        example_inputs: inputs of the model.
        iters: number of timed runs of each way, at least one.
        warmup: number of untimed runs before.
        decisions: a JSON file to which decisions are added, and from which they are reused for a subgraph of
            the same structure, with inputs of the same shapes and dtypes, on a machine with the same
            instructions, number of threads and PyTorch. Without it, decisions are cached in the folder
            ``CORSAC_CACHE_DIR``, if that is set.

    Raises:
        ValueError: the file has other contents.
    """
    return MklAutotuner(example_inputs, iters, warmup, decisions)


class MklAutotuner:
    """The rule that :func:`gen_mkl_autotuner` returns.

    Attributes:
        measurements: the measurements, in the order of the subgraphs.
    """

    def __init__(
        self,
        example_inputs: Sequence[torch.Tensor],
        iters: int = 10,
        warmup: int = 1,
        decisions: str | os.PathLike[str] | None = None,
    ) -> None:
        self._example_inputs = list(example_inputs)
        self._iters, self._warmup = max(1, iters), max(0, warmup)
        self._decisions: _Decisions | _KeptDecisions | None = None
        if decisions is not None:
            self._decisions = _Decisions(Path(decisions))
        elif (kept := cache.current()) is not None:
            self._decisions = _KeptDecisions(kept)
        self._values: dict[str, Any] = {}
        self._measured: Graph | None = None
        self.measurements: list[Measurement] = []

    def __call__(self, graph: MklSubgraph) -> bool:
        self._run_once(graph.fx_graph)
        inputs = [self._values[node.args[0].name] for node in graph.start_nodes]
        owner = graph.fx_graph.owning_module
        key = _key(owner, graph, inputs)
        known = None if self._decisions is None else self._decisions.get(key)
        if known is None:
            known = self._measure(owner, graph, inputs)
            if self._decisions is not None:
                self._decisions.put(key, known)
        else:
            # It may be of another subgraph with the same structure.
            known = replace(known, first=graph.nodes[0].name, nodes=len(graph.nodes))
        self.measurements.append(known)
        return known.use_mkldnn

    def _run_once(self, graph: Graph) -> None:
        """Record the inputs of all subgraphs by running the whole program once."""
        if self._measured is graph:
            return
        starts = graph.find_nodes(op="call_function", target=to_channels_last)
        wanted = {node.args[0].name for node in starts}
        with torch.no_grad():
            recorder = _Recorder(graph.owning_module, wanted)
            recorder.run(*self._example_inputs)
        self._values, self._measured = recorder.recorded, graph

    def _measure(self, owner: GraphModule, subgraph: MklSubgraph, inputs: list[Any]) -> Measurement:
        plain = _extract(owner, subgraph, converted=False)
        mkldnn = _extract(owner, subgraph, converted=True)
        names = [node.name for node in subgraph.nodes]
        label = f"measuring {names[0]} to {names[-1]} ({len(names)} nodes)"
        best = [float("inf"), float("inf")]
        progress, clock = _Progress(label), _clock()
        with torch.no_grad():
            for round_number in range(self._warmup + self._iters):
                for way, module in enumerate((plain, mkldnn)):
                    # Subgraphs may write to their inputs.
                    fresh = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
                    begin = clock()
                    module(*fresh)
                    seconds = clock() - begin
                    if round_number >= self._warmup:
                        best[way] = min(best[way], seconds)
                progress.show(round_number + 1, self._warmup + self._iters)
        progress.close()
        return Measurement(names[0], len(names), *best, best[1] < best[0], reused=False)


def _clock() -> Callable[[], float]:
    """The clock: with one thread its CPU time, so that other programs on the machine do not interfere."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


class _Recorder(Interpreter):
    """Runs a program and records the values of some nodes."""

    def __init__(self, module: GraphModule, wanted: set[str]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self.recorded: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.name in self._wanted:
            # Later nodes may write to it.
            self.recorded[n.name] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def _extract(owner: GraphModule, subgraph: MklSubgraph, converted: bool) -> GraphModule:
    """The subgraph as a module of its own: unchanged, or on oneDNN with its conversions."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for start in subgraph.start_nodes:
        copies[start] = graph.placeholder(start.args[0].name)
    if converted:
        for start in subgraph.start_nodes:
            copies[start] = graph.call_function(to_channels_last, (copies[start],))
    own = []
    for node in subgraph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        own.append(copies[node])
    results = [copies[end.args[0]] for end in subgraph.end_nodes]
    if converted:
        results = [graph.call_function(to_contiguous, (result,)) for result in results]
    graph.output(tuple(results))
    gm = GraphModule(owner, graph)
    if converted:
        inner = MklSubgraph(graph)
        inner.nodes = own
        run_on_mkldnn(gm, [inner])
        gm.recompile()
    return gm


def _key(owner: GraphModule, subgraph: MklSubgraph, inputs: list[Any]) -> str:
    """A hash of everything that the time depends on; subgraphs with the same key take the same time."""
    places: dict[Node, str] = {node: f"in{i}" for i, node in enumerate(subgraph.start_nodes)}
    lines = [
        f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads"
    ]
    lines += [_describe(value) for value in inputs]
    for i, node in enumerate(subgraph.nodes):
        target: Any = node.target
        if node.op == "call_module":
            module = owner.get_submodule(node.target)
            weight = getattr(module, "weight", None)
            target = f"{module!r} {getattr(weight, 'dtype', '')}"
        elif not isinstance(target, str):
            target = (
                f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"
            )
        places[node] = f"v{i}"
        arguments = map_aggregate(
            (node.args, dict(node.kwargs)),
            lambda a: places.get(a, "?") if isinstance(a, Node) else repr(a),
        )
        lines.append(f"{node.op} {target} {arguments}")
    lines += [places[end.args[0]] for end in subgraph.end_nodes]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.dtype} {value.stride()}"
    return repr(value)


class _Decisions:
    """Measurements by key, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._known = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}, expected {FORMAT}")
            known = dict(content["decisions"])
            for entry in known.values():
                Measurement(**entry, reused=True)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self._path} holds no decisions: {error}") from error
        return known

    def get(self, key: str) -> Measurement | None:
        entry = self._known.get(key)
        return None if entry is None else Measurement(**entry, reused=True)

    def put(self, key: str, measurement: Measurement) -> None:
        """Store a measurement. The file is complete at any time."""
        entry = asdict(measurement)
        del entry["reused"]
        self._known[key] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, "decisions": self._known}, indent=1)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            os.replace(name, self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


class _KeptDecisions:
    """Measurements in the cache that processes share, without names."""

    def __init__(self, kept: cache.Cache) -> None:
        self._kept = kept

    def _facts(self, key: str) -> list[tuple[str, str]]:
        return [("kind", "subgraph for oneDNN"), ("graph", key), *cache.surroundings()]

    def get(self, key: str) -> Measurement | None:
        known = self._kept.get(self._facts(key))
        seconds = {} if known is None else known[1]
        if set(seconds) != {"mkldnn", "plain"}:
            return None
        self._kept.found += 1
        plain, mkldnn = seconds["plain"], seconds["mkldnn"]
        return Measurement("", 0, plain, mkldnn, mkldnn < plain, reused=True)

    def put(self, key: str, measurement: Measurement) -> None:
        self._kept.missed += 1
        seconds = {"plain": measurement.plain_seconds, "mkldnn": measurement.mkldnn_seconds}
        self._kept.put(self._facts(key), "", seconds)


class _Progress:
    """A progress line on stderr for work that takes over a second."""

    def __init__(self, label: str) -> None:
        self._label, self._start, self._shown = label, time.monotonic(), False

    def show(self, done: int, total: int) -> None:
        if time.monotonic() - self._start < PATIENCE:
            return
        terminal = sys.stderr.isatty()
        if self._shown and not terminal:
            return
        start, end = ("\r\x1b[K", "") if terminal else ("", "\n")
        text = f"{start}corsac: {self._label}, round {done} of {total} ..."
        print(text, end=end, file=sys.stderr, flush=True)
        self._shown = True

    def close(self) -> None:
        if self._shown and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
