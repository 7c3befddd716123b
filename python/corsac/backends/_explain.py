"""``corsac.backends.explain``: explains the compilation of a model for one call."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from corsac._capture.recordings import ATTEMPTS
from corsac._capture.stages import sizes_of
from corsac._engine.module import EngineModule, HostWarning
from corsac._models.function import module_of
from corsac.backends._explanation import (
    AOT_AUTOGRAD,
    NATIVE,
    ONCE,
    PYTORCH,
    Break,
    ExplainedGraph,
    Explanation,
    Guard,
    Operator,
)
from corsac.backends._graph_record import GraphRecord
from corsac.backends._hosted import HostedModule
from corsac.backends._registry import get_default_backend
from corsac.backends._runtime import LoweredModule
from corsac.fx import Node
from corsac.lowering._backend import name_of

# Conditions of Dynamo's guards, in words.
_CONDITIONS = {
    "BUILTIN_MATCH": "the same built-in function",
    "BOOL_MATCH": "the same truth value",
    "CONSTANT_MATCH": "the same value",
    "DICT_KEYS_MATCH": "the same keys",
    "EQUALS_MATCH": "the same value",
    "FUNCTION_MATCH": "the same function",
    "ID_MATCH": "the same object",
    "MODULE_MATCH": "the same Python module",
    "NN_MODULE": "the same module",
    "SEQUENCE_LENGTH": "the same length",
    "TENSOR_MATCH": "a tensor of the same type, device, sizes and strides",
    "TYPE_MATCH": "an object of the same class",
}
# Dynamo's reason for a branch on values.
_JUMP = "generic_jump"
_BY_VALUE = (
    "choose between values with torch.where, or between functions with torch.cond",
    "take the decision before the compiled function is called, and give it as an argument",
)
# Largest number of calls until a program is captured.
_CALLS = 1 + max(ATTEMPTS.values())
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")


def explain(model: Callable[..., Any], *, backend: Any = None) -> Callable[..., Explanation]:
    """Explain the compilation of ``model`` for a call: ``print(explain(model)(x))``.

    The model is called as by :func:`corsac.compile`, several times if its program depends on values or writes to
    existing tensors, until that is captured, too. Dynamo's compiled code of this process is reset.

    Args:
        model: a module, a function, or a result of :func:`corsac.compile`, whose backend is used.
        backend: a name or a function; the default backend if it is not given.

    Returns:
        A function of the model's arguments that returns an :class:`Explanation`: the graphs with
        the places where their operators ran, breaks with suggestions, guards, and times.
    """
    options = None
    model = module_of(model)
    if isinstance(model, HostedModule):
        backend = model._named if backend is None else backend
        options = model._options
        model = model._callable
    elif isinstance(model, EngineModule):
        backend = "engine" if backend is None else backend
        model = model._callable
    chosen = get_default_backend() if backend is None else backend

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        torch._dynamo.reset()
        guards: list[Any] = []
        hosted = HostedModule(model, chosen, options=options, guard_export_fn=guards.extend)
        before = _dynamo_seconds()
        start = time.perf_counter()
        with warnings.catch_warnings():
            # The explanation lists the calls that PyTorch runs.
            warnings.simplefilter("ignore", HostWarning)
            for _ in range(_CALLS):
                hosted(*args, **kwargs)
                if hosted.graphs:
                    break
        whole = time.perf_counter() - start
        spent = {stage: own - before.get(stage, 0.0) for stage, own in _dynamo_seconds().items()}
        torch._dynamo.reset()
        return Explanation(
            tuple(_graph(record, name_of(chosen)) for record in hosted.graphs),
            tuple([*_breaks(hosted.graphs), *_own_breaks(hosted)]),
            tuple(_guards(hosted, guards)),
            _stages(hosted.graphs, spent) | {"first call": whole},
            hosted._why_dynamo,
        )

    return explained


def _graph(record: GraphRecord, backend: str) -> ExplainedGraph:
    chosen = record.chosen() or backend
    ran = _places(record, chosen)
    operators = tuple(
        Operator(node.name, _target(record, node), *ran(node), _where(node))
        for node in record.module.graph.nodes
        if node.op.startswith("call_")
    )
    return ExplainedGraph(
        record.tracer,
        record.inputs,
        operators,
        chosen,
        record.declined,
        record.refusals(),
        dict(record.seconds),
    )


def _places(record: GraphRecord, backend: str) -> Callable[[Node], tuple[str, str | None]]:
    """A function that returns the place where a node ran, and the reason."""
    programs = record.programs()
    if record.declined is not None:
        return lambda node: (PYTORCH, record.declined)
    if record.trained() is not None:
        # The operators that ran are those of a forward and a backward graph.
        return lambda node: (AOT_AUTOGRAD, None)
    if not programs:
        place = PYTORCH if backend in ("eager", "debug", "torch:eager") else backend
        return lambda node: (place, None)
    program = programs[-1]
    native = backend if isinstance(program, LoweredModule) else NATIVE
    compiled = next(reversed(program._programs.values()), "it was not called")
    if isinstance(compiled, str):
        return lambda node: (PYTORCH, compiled)
    names = {node.name for node in program._captured.graph.nodes}
    host = {} if compiled.preview is None else {r.node: r.reason for r in compiled.preview.host}

    def place(node: Node) -> tuple[str, str | None]:
        if node.name not in names:
            return ONCE, None
        return (PYTORCH, host[node.name]) if node.name in host else (native, None)

    return place


def _target(record: GraphRecord, node: Node) -> str:
    """The target of a node; for modules, the class."""
    if node.op == "call_module":
        return type(record.module.get_submodule(str(node.target))).__name__
    return node._pretty_print_target(node.target)


def _where(node: Node) -> str | None:
    source = node.source
    return None if source is None else f"{source.file}:{source.line}"


def _breaks(records: tuple[GraphRecord, ...]) -> list[Break]:
    found = []
    for record in records:
        stopped = record.stopped
        if stopped is None or not stopped.graph_break:
            continue
        lines = [line.strip() for line in stopped.reason.splitlines() if line.strip()]
        if lines[0].startswith(_JUMP):
            reason, change = "a branch depends on the values of a tensor", _BY_VALUE
        else:
            reason = " ".join(
                [lines[0]]
                + [own.partition(": ")[2] for own in lines if own.startswith("Explanation: ")]
            )
            change = tuple(own.partition(": ")[2] for own in lines if own.startswith("Hint: "))
        frame = stopped.user_stack[-1] if stopped.user_stack else None
        function = "" if frame is None else frame.name
        resumed = _RESUMED.match(function)
        found.append(
            Break(
                reason,
                "" if frame is None else frame.filename,
                0 if frame is None else frame.lineno or 0,
                resumed.group(1) if resumed else function,
                change,
            )
        )
    return found


def _own_breaks(hosted: HostedModule) -> list[Break]:
    """Reads of values that control flow depends on, in programs that corsac has recorded."""
    found: dict[Break, None] = {}
    for read in hosted.reads():
        where = read.source
        reason = "a branch depends on the values of a tensor"
        if read.function is sizes_of:
            reason = "the size of a tensor depends on values"
        place = ("", 0, "") if where is None else (where.file, where.line, where.function)
        found[Break(reason, *place, _BY_VALUE)] = None
    return list(found)


def _guards(hosted: HostedModule, of_dynamo: list[Any]) -> list[Guard]:
    if hosted._dynamo is None:
        return _own_guards(hosted)
    found: dict[Guard, None] = {}
    for guard in of_dynamo:
        name = guard.name if isinstance(guard.name, str) else guard.name()
        kind = guard.create_fn_name()
        if name:
            found[Guard(name, _CONDITIONS.get(kind, kind.lower().replace("_", " ")))] = None
    return list(found)


def _own_guards(hosted: HostedModule) -> list[Guard]:
    """The guards of graphs that corsac has recorded."""
    found = []
    for record in hosted.graphs:
        names = [str(node.target) for node in record.module.graph.find_nodes(op="placeholder")]
        for name, own in zip(names, record.inputs, strict=True):
            found.append(Guard(name, f"{own}, with the same strides and device"))
    for program in hosted.programs():
        places = f"{program.guarded} places that the program reads in Python"
        found.append(Guard(places, "the same objects and values"))
    found.append(Guard("gradients, inference mode and autocast", "on or off as before"))
    return found


def _dynamo_seconds() -> dict[str, float]:
    """Time that Dynamo has spent in this process, by stage."""
    from torch._dynamo.utils import compilation_time_metrics

    total = {stage: sum(own) for stage, own in compilation_time_metrics.items()}
    tracing = total.get("bytecode_tracing", 0.0)
    return {
        "capture": tracing - total.get("OutputGraph.call_user_compiler", 0.0),
        "guards": total.get("build_guards", 0.0),
    }


def _stages(records: tuple[GraphRecord, ...], of_dynamo: dict[str, float]) -> dict[str, float]:
    stages: dict[str, float] = {}
    for record in records:
        for stage, own in record.seconds.items():
            stages[stage] = stages.get(stage, 0.0) + own
    if any(record.tracer == "Dynamo" for record in records):
        stages = {stage: max(own, 0.0) for stage, own in of_dynamo.items()} | stages
    return stages


__all__ = ["explain"]
