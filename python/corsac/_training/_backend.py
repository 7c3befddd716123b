"""Compilation of graphs for training: forward and backward graphs of ATen operators."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import RestartAnalysis
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from corsac import _core
from corsac._capture.collection import no_collection
from corsac._engine.module import HostWarning
from corsac._native.panic import EngineError, panic_message
from corsac._pytorch.aten import storage_of
from corsac._pytorch.autocast import WithoutAutocast
from corsac._pytorch.functions import drops_between_layers
from corsac._training._autograd_graph import AutogradGraph
from corsac._training._joint_graph import JointGraph, NotSimple, joint_graph
from corsac._training._native_part import make
from corsac._training._partition import min_cut_partition
from corsac._training._parts import Parts, has_symbols, mark_results, value_of, why_not_split
from corsac._training._placed_graph import PREFIX, AtenGraph, PlacedGraph, boxed, computes
from corsac._training._sizes import BySizes
from corsac._training._widening import widen
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch, to_torch
from corsac.fx.passes.utils.fuser_utils import fuse_as_graphmodule

#: Overhead of AOTAutograd's functions in a step over PyTorch's own autograd, in seconds.
OVERHEAD = 1e-4
#: A step takes less than about a millisecond if its graphs compute no more elements, and multiply no more numbers.
ELEMENTS, PRODUCTS = 2**20, 2**24
#: Functions that split a joint graph into forward and backward, by the option ``partition``.
_FEWEST = functools.partial(min_cut_partition, fewest_bytes=True)
PARTITIONERS = {
    "min_cut": min_cut_partition,
    "fewest_bytes": _FEWEST,
    "default": default_partition,
}


class TrainedGraph:
    """A captured graph, from Dynamo or corsac, and the graphs of ATen operators made from it: by AOTAutograd,
    or without it where possible.

    Attributes:
        graphs: forward and backward graph.
    """

    def __init__(self, precision: str, placement: str, partition: str) -> None:
        self.graphs: list[AtenGraph] = []
        self._precision, self._placement = precision, placement
        self._partitioner = PARTITIONERS[partition]
        self._run: Callable[..., Any] | None = None
        #: The captured graph run by PyTorch, if its own autograd may turn out to be faster.
        self._plain: Callable[..., Any] | None = None
        self._is_left = False

    def __call__(self, *args: Any) -> Any:
        assert self._run is not None
        return self._run(*args)

    def capture(
        self, module: Any, example_inputs: Sequence[Any], *, weights: int | None = None
    ) -> None:
        """Make the forward and backward graphs of ``module``.

        Args:
            module: a graph module of torch.fx or corsac.fx.
            example_inputs: its inputs.
            weights: number of leading inputs that are weights; set if corsac captured ``module``, which may then
                do without AOTAutograd, and has the casts of autocast as calls.
        """
        # Option "fewest_bytes" saves memory, so it is kept even if it is slower.
        may_be_left = self._placement == "measured" and self._partitioner is not _FEWEST
        if may_be_left and _may_be_left(module):
            graph = torch.fx.Graph()
            graph.output(graph.graph_copy(module.graph, {}))
            self._plain = torch.fx.GraphModule(module, graph).forward
            if weights is not None:
                self._plain = WithoutAutocast(self._plain)
        with no_collection():
            if weights is None:
                self._run = self._by_aot_autograd(module, example_inputs)
                return
            try:
                self._run = self._autograd_graph(module, example_inputs, weights)
            except NotSimple:
                # Outside Dynamo there is no tracing context yet; sizes are static.
                with tracing(TracingContext(FakeTensorMode(static_shapes=True))):
                    self._run = self._by_aot_autograd(module, example_inputs, weights)

    def _partition(
        self, module: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **how: Any
    ) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        """The two parts of a joint graph, each with its visible results marked."""
        there, back = self._partitioner(module, inputs, num_fwd_outputs=num_fwd_outputs, **how)
        mark_results(there.graph, num_fwd_outputs)
        mark_results(back.graph, 0)
        return there, back

    def _by_aot_autograd(
        self, module: Any, inputs: Sequence[Any], weights: int = 0
    ) -> Callable[..., Any]:
        """Forward and backward by AOTAutograd, of which the leading inputs are ``weights`` that stay in memory anyway."""

        def partition(joint: torch.fx.GraphModule, joint_inputs: Any, **how: Any) -> Any:
            given = joint.graph.find_nodes(op="placeholder")
            # AOTAutograd may have joined inputs that share memory.
            if weights and sum("tangents" not in own.target for own in given) == len(inputs):
                how["static_lifetime_input_indices"] = list(range(weights))
            return self._partition(joint, joint_inputs, **how)

        run: Callable[..., Any] = aot_autograd(
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            partition_fn=partition,
        )
        # AOTAutograd changes the list of inputs that it gets.
        return run(to_torch(module), list(inputs))

    def _autograd_graph(
        self, module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], weights: int
    ) -> AutogradGraph:
        """Forward and backward as a function, without AOTAutograd.

        Raises:
            NotSimple: AOTAutograd is needed.
        """
        joint = joint_graph(module, inputs)
        there, back = self._partition(
            joint.module,
            (),
            num_fwd_outputs=joint.forward_outputs,
            static_lifetime_input_indices=list(range(weights)),
        )
        _check_saved(there.graph, joint)

        def make_backward() -> Callable[[list[Any]], Any]:
            with no_collection():
                run = self._recorded(back, "backward")
            self._leave_if_idle()
            return run

        forward = self._recorded(there, "forward")
        return AutogradGraph(forward, make_backward, joint.results, joint.written)

    def leave(self, module: Any, reason: str) -> None:
        """Let PyTorch run ``module``, for the given reason."""
        calls = sum(map(computes, module.graph.nodes))
        self.graphs = [AtenGraph("forward", calls, host={reason: calls})]
        self._run = module.forward

    def _leave_if_idle(self) -> None:
        """Let PyTorch's own autograd run later calls, if native parts save no more time than AOTAutograd's
        overhead."""
        if self._plain is None or not any(own.kind == "backward" for own in self.graphs):
            return
        elements, products = (sum(of) for of in zip(*(g.work for g in self.graphs), strict=True))
        is_short = elements <= ELEMENTS and products <= PRODUCTS
        saves = sum(own.gain for own in self.graphs) > (OVERHEAD if is_short else 0.0)
        if saves or not all(own.was_measured for own in self.graphs):
            return
        self._run, self._plain = self._plain, None
        self._is_left = True

    def explain(self) -> str:
        """Report of the calls that are native and of those that PyTorch runs, with reasons, as text."""
        lines = list(map(str, self.graphs))
        if self._is_left:
            lines.append(
                "PyTorch runs later calls: they take less than AOTAutograd does for itself"
            )
        return "\n".join(lines) or "not called yet"

    def native_programs(self) -> list[Any]:
        """The native programs of the graph."""
        return [part.program for graph in self.graphs for part in graph.parts]

    def _compiler(self, kind: str) -> Callable[..., Any]:
        def compile(module: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
            del example_inputs
            _nothing_is_donated()
            if kind == "backward":
                _without_passed_gradients(module)
            run = self._recorded(module, kind)
            if kind == "backward":
                self._leave_if_idle()
            if self._placement == "host" or not has_symbols(module.graph):
                return run
            return _taking_a_list(BySizes(module, run, lambda own: self._recorded(own, kind)))

        return compile

    def _recorded(self, module: torch.fx.GraphModule, kind: str) -> Callable[..., Any]:
        start = time.perf_counter()
        record = AtenGraph(kind)
        try:
            run = self._compiled(from_torch(module), record)
        except (_core.PanicException, EngineError) as panic:
            reason = panic_message(panic, f"it compiled a {kind} graph")
            warnings.warn(f"PyTorch runs this graph: {reason}", HostWarning, stacklevel=2)
            calls = sum(map(computes, module.graph.nodes))
            record = AtenGraph(kind, calls, host={reason: calls})
            run = _taking_a_list(lambda arguments: module.forward(*arguments))
        record.seconds = time.perf_counter() - start
        self.graphs.append(record)
        return run

    def _why_not(self) -> str | None:
        """Reason why PyTorch runs every graph, or None."""
        if self._placement == "host":
            return "options say so"
        if self._placement == "measured" and torch.are_deterministic_algorithms_enabled():
            return "algorithms are to be deterministic, and who is faster is not"
        return None

    def _compiled(self, module: GraphModule, record: AtenGraph) -> Callable[..., Any]:
        why_not = self._why_not() or why_not_split(module.graph)
        if why_not is None and widen(module.graph):
            # Faster than PyTorch's own autograd, whatever native parts save.
            self._plain = None
        record.calls = sum(map(computes, module.graph.nodes))
        if self._plain is not None:
            record.work = _work(module.graph)
        if why_not is not None:
            record.host[why_not] = record.calls
            return _taking_a_list(boxed(module))
        found = Parts(module)
        parts = []
        for nodes in found.parts:
            part, inputs, outputs = fuse_as_graphmodule(module, nodes, PREFIX)
            measure = self._placement == "measured"
            made = make(part, inputs, outputs, measure=measure, precision=self._precision)
            parts.append((nodes, made))
        placed = PlacedGraph(module, parts, found.reasons, record, self._leave_if_idle)
        return _taking_a_list(placed)


def _check_saved(forward: torch.fx.Graph, joint: JointGraph) -> None:
    """Check that nothing is saved that shares memory with inputs that are written to after the forward graph.

    Raises:
        NotSimple: something is.
    """
    given = joint.module.graph.find_nodes(op="placeholder")
    written = {storage_of(given[at].meta["val"]) for at in joint.written}
    for node in forward.output_node().args[0][joint.forward_outputs :]:
        own = node.meta["val"]
        if isinstance(own, torch.Tensor) and storage_of(own) in written:
            raise NotSimple(f"{node.name} is saved, and its memory written to")


def _nothing_is_donated() -> None:
    """Let users run backward twice from one result: our graphs do not overwrite saved tensors, so none is marked as
    donated."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def _without_passed_gradients(module: torch.fx.GraphModule) -> None:
    """Return None in the place of gradients of what was written to inputs without gradients, which the backward graph only
    passes on: zeros, as nothing else has such a gradient."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return
    output = module.graph.output_node()
    results = list(output.args[0])
    for at, own in enumerate(context.fw_metadata.input_info[: len(results)]):
        is_passed = isinstance(results[at], torch.fx.Node) and results[at].op == "placeholder"
        if is_passed and own.mutations_under_no_grad_or_inference_mode:
            results[at] = None
    output.args = (tuple(results),)
    module.recompile()


def _may_be_left(module: Any) -> bool:
    """Whether PyTorch can run a captured graph as it is, with autograd: it has static sizes, and no grad mode
    switches, higher-order operators or function transforms."""
    if not isinstance(module, torch.fx.GraphModule) or has_symbols(module.graph):
        return False
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    return torch._C._set_grad_enabled not in targets and not any(
        isinstance(own, torch._ops.HigherOrderOperator)
        or "_functorch" in (getattr(own, "__module__", None) or "")
        for own in targets
    )


#: Index of the operand of a matrix product whose last dimension is contracted, by operator.
_SUMMED = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}


def _work(graph: Any) -> tuple[int, int]:
    """Number of elements that calls compute, and number of multiplications in products, as far as known."""
    elements = products = 0
    for node in filter(computes, graph.nodes):
        own = sum(t.numel() for t in tree_leaves(value_of(node)) if isinstance(t, torch.Tensor))
        if type(own) is not int:
            # The size depends on values.
            return ELEMENTS + 1, 0
        elements += own
        summed = _SUMMED.get(_core.operator_of(node.op, node.target)[0])
        if summed is not None:
            products += own * value_of(node.args[summed]).shape[-1]
        elif "conv" in str(node.target) or "attention" in str(node.target):
            # Convolutions and attention are never that short.
            products += PRODUCTS + 1
    return elements, products


def _taking_a_list(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """The function of a graph of ATen operators, marked as taking its arguments in a list, as AOTAutograd expects.

    Casts of autocast are among the operators, so that it makes none itself."""
    run = WithoutAutocast(function)
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _why_not_traced(node: Any) -> str | None:
    """Reason why AOTAutograd would compile a call wrongly, or None."""
    name = getattr(node.target, "__name__", "")
    if name == "_jvp_increment_nesting":
        return "it has tangents, of which those that are zero have no elements"
    if node.op == "call_function" and drops_between_layers(name, node.args):
        return f"a {name} with dropout between layers is decomposed without it"
    return None


def train(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    precision: str = "f32",
    placement: str = "measured",
    partition: str = "min_cut",
) -> Callable[..., Any]:
    """Compile a graph for training.

    PyTorch's AOTAutograd makes a forward and a backward graph of it. The operators that the engine supports
    run natively where that is faster, the rest as PyTorch's own operators.

    Args:
        module: a graph module of torch.fx or corsac.fx, from Dynamo.
        example_inputs: its inputs, some of which require gradients.
        precision: as for :func:`corsac.compile`.
        placement: one of :data:`corsac._native.options.TRAINING`.
        partition: one of :data:`corsac._native.options.PARTITIONS`.

    Returns:
        A differentiable function of the graph's inputs.
    """
    trained = TrainedGraph(precision, placement, partition)
    reason = next(filter(None, map(_why_not_traced, module.graph.nodes)), None)
    if reason is not None:
        trained.leave(module, reason)
        return trained
    try:
        trained.capture(module, example_inputs)
    except RestartAnalysis:
        # Dynamo captures the program again, with AOTAutograd's findings.
        raise
    except (Exception, _core.PanicException) as error:
        # AOTAutograd cannot trace some calls that PyTorch can still run.
        reason = f"AOTAutograd failed: {type(error).__name__}: {error}"
        warnings.warn(f"PyTorch runs this graph: {reason}", HostWarning, stacklevel=2)
        trained.leave(module, reason)
    return trained
