"""``torch.compile(model, backend="corsac")``: graphs that Dynamo captures, run by the engine."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from corsac.backends import _repro_switch

#: Precision of the products in convolutions and linear layers.
Precision: TypeAlias = Literal["f32", "bf16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
#: The modes of :func:`torch.compile`.
Mode: TypeAlias = Literal[
    "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"
]
MODES: tuple[Mode, ...] = get_args(Mode)
#: Execution of graphs that autograd records: natively where measured to be faster, natively wherever the engine can,
#: or by PyTorch.
TRAINING = ("measured", "native", "host")
#: Execution of graphs for inference: natively unless PyTorch was measured to be faster, or always natively.
INFERENCE = ("measured", "native")
#: Tensors saved for backward: as corsac's partitioner chooses so that no step takes longer, the fewest bytes that are
#: possible if cheap operators are recomputed, or all intermediate values.
PARTITIONS = ("min_cut", "fewest_bytes", "default")
#: Options of ``torch.compile(options=…)``, with their values.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "precision": PRECISIONS,
    "inference": INFERENCE,
    "training": TRAINING,
    "partition": PARTITIONS,
}
#: Largest number of specialisations of a graph to weights, if these differ from call to call.
VARIANTS = 16
_REGISTRY = "torch._dynamo.backends.registry"
#: Marks arguments that a graph takes as inputs in each call.
_INPUT = object()


def checked_options(options: Mapping[str, Any] | None) -> None:
    """Raise ``ValueError`` for unknown options or values."""
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            raise ValueError(f"corsac has no option {name!r}; there are: {known}")
        if value not in OPTIONS[name]:
            known = ", ".join(map(repr, OPTIONS[name]))
            raise ValueError(f"option {name!r} is {known}, not {value!r}")


def backend(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo for the engine.

    If autograd records it, AOTAutograd makes a forward and a backward graph, which run natively where
    that is faster. Operators that the engine cannot run are run by PyTorch; if these are all of a graph
    for inference, with a :class:`corsac.HostWarning` that gives the reason.

    Args:
        module: the graph, a ``torch.fx.GraphModule``.
        example_inputs: its inputs, which decide whether autograd records; programs are made for the shapes of calls.
        options: ``{"precision": "bf16"}``, as for :func:`corsac.compile`, ``{"inference": …}``, one of
            :data:`INFERENCE`, ``{"training": …}``, one of :data:`TRAINING`, and ``{"partition": …}``, one of
            :data:`PARTITIONS`.
        mode: the mode of ``torch.compile``; ignored, since there is one way to compile.

    Returns:
        A function of the graph's inputs.

    Raises:
        ValueError: an unknown option.
    """
    checked_options(options)
    piece = piece_for(module, example_inputs, options or {})
    if not _repro_switch.is_in_environment():
        return piece
    from corsac.backends._watching import watched

    return watched("engine", module, example_inputs, options, lambda: piece)


def piece_for(module: Any, example_inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The compiled form of a graph that Dynamo captured, for training or inference; Dynamo captures again if that
    changes."""
    precision = options.get("precision", "f32")
    if not _wants_gradients(module, example_inputs) and not _transforms(module.graph):
        return Piece(module, precision, options.get("inference", INFERENCE[0]))
    # Not at the top: Dynamo is imported only when it is needed.
    from corsac._training import train

    return train(
        module,
        example_inputs,
        precision=precision,
        placement=options.get("training", TRAINING[0]),
        partition=options.get("partition", PARTITIONS[0]),
    )


def _wants_gradients(module: Any, example_inputs: Sequence[Any]) -> bool:
    """Whether autograd records a part of a graph with these inputs."""
    import torch

    if not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return False
    tensors = [own for own in example_inputs if isinstance(own, torch.Tensor)]
    tensors += [*module.parameters(), *module.buffers()]
    return any(own.requires_grad for own in tensors) and _records(module.graph)


def _records(graph: Any) -> bool:
    """Whether ``graph`` has a call where autograd is on."""
    import torch

    enabled = torch.is_grad_enabled()
    for node in graph.nodes:
        if node.target in _grad_switches():
            enabled = node.args[0]
        elif enabled and node.op.startswith("call_"):
            return True
    return False


def _transforms(graph: Any) -> bool:
    """Whether transforms of ``torch.func`` are among the calls of ``graph``.

    Between them tensors have hidden dimensions; AOTAutograd makes graphs without transforms.
    """
    return any(
        "_functorch" in (getattr(node.target, "__module__", None) or "")
        for node in graph.nodes
        if node.op == "call_function"
    )


class Piece:
    """A graph that Dynamo captured, specialised to the weights among its inputs.

    Args:
        module: the graph, of torch.fx or corsac.fx.
        precision: as for :func:`corsac.compile`.
        inference: one of :data:`INFERENCE`.
        compiled: compiles a specialisation, given as a graph module with the weights and a function that makes
            the same graph module again; :class:`corsac._engine.compiled_graph.CompiledGraph` by default.
    """

    def __init__(
        self,
        module: Any,
        precision: Precision = "f32",
        inference: str = INFERENCE[0],
        compiled: Callable[[Any, Callable[[], Any]], Any] | None = None,
    ) -> None:
        from corsac.fx.convert import from_torch
        from corsac.passes._writes import written_placeholders

        self.module = module
        self._precision, self._inference = precision, inference
        self._compiled = compiled
        placeholders = list(module.graph.find_nodes(op="placeholder"))
        self._is_weight = [_is_weight(node) for node in placeholders]
        if any(self._is_weight):
            # Static inputs that are written to, such as key-value caches, differ after each call.
            for number in written_placeholders(from_torch(module.graph)):
                self._is_weight[number] = False
        self._switches = [n for n in module.graph.nodes if n.target in _grad_switches()]
        self._layouts = _layouts(module.graph)
        self._variants: OrderedDict[Any, Any] = OrderedDict()

    def __call__(self, *args: Any) -> Any:
        results = self._results(args)
        if self._layouts is None:
            return results
        from corsac._native.strides import laid_out

        return laid_out(results, self._layouts)

    def _results(self, args: tuple[Any, ...]) -> Any:
        import torch

        if torch.is_autocast_enabled("cpu"):
            return self.module.forward(*args)
        compiled, inputs = self._for(args)
        if not self._switches:
            return compiled(*inputs)
        if self._records(args):
            # PyTorch runs the whole graph, with its switches.
            return self.module.forward(*args)
        with torch.no_grad():
            results = compiled(*inputs)
        torch._C._set_grad_enabled(self._switches[-1].args[0])
        return results

    def prepare(self, args: Sequence[Any]) -> str | None:
        """Compile for ``args`` without a call; return the reason if PyTorch would run it, else None."""
        import torch

        if torch.is_autocast_enabled("cpu"):
            return "autocast is on"
        if self._switches and self._records(args):
            return "autograd records a part of it"
        compiled, inputs = self._for(args)
        if not self._switches:
            return compiled.prepare(tuple(inputs))
        with torch.no_grad():
            return compiled.prepare(tuple(inputs))

    def variants(self) -> list[Any]:
        """The compiled specialisations, for each set of weights."""
        return list(self._variants.values())

    def _for(self, args: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The compiled specialisation for the weights among ``args``, and the other arguments."""
        key = tuple(
            id(arg) if weight else None if _is_input(arg) else arg
            for arg, weight in zip(args, self._is_weight, strict=True)
        )
        compiled = self._variants.get(key)
        if compiled is None:
            compiled = self._variants[key] = self._variant(args)
            if len(self._variants) > VARIANTS:
                self._variants.popitem(last=False)
        inputs = [
            arg
            for arg, weight in zip(args, self._is_weight, strict=True)
            if _is_input(arg) and not weight
        ]
        return compiled, inputs

    def explain(self) -> str:
        """Report of the compiled programs, and of calls that PyTorch ran, with reasons, as text."""
        lines = [compiled.explain() for compiled in self._variants.values()]
        return "\n".join(lines) or "not called yet"

    def native_programs(self) -> list[Any]:
        """The native programs of the graph."""
        compiled = list(self._variants.values())
        return [program for own in compiled for program in own.native_programs()]

    def _records(self, args: Sequence[Any]) -> bool:
        """Whether autograd records a part of a graph that switches it on or off."""
        import torch

        if not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
            return False
        return _records(self.module.graph)

    def _variant(self, args: Sequence[Any]) -> Any:
        """Compile the graph for the weights and numbers among ``args``."""
        from corsac._engine.compiled_graph import CompiledGraph
        from corsac._native.panic import as_compile_error

        # Inputs of this call are not kept alive.
        kept = [
            _INPUT if _is_input(arg) and not weight else arg
            for arg, weight in zip(args, self._is_weight, strict=True)
        ]
        with as_compile_error("it specialised a graph of Dynamo"):
            graph_module = self._specialised(kept)

        def capture() -> Any:
            return self._specialised(kept, graph_module)

        if self._compiled is not None:
            return self._compiled(graph_module, capture)
        return CompiledGraph(
            graph_module, capture, precision=self._precision, inference=self._inference
        )

    def _specialised(self, args: Sequence[Any], owner: Any = None) -> Any:
        """A copy of the graph with weights as attributes, and other values than inputs as constants."""
        import torch

        from corsac.fx import GraphModule
        from corsac.fx._own_copy import copied_graph
        from corsac.fx.convert import from_torch

        graph = from_torch(self.module.graph)
        if graph is self.module.graph:
            graph = copied_graph(graph)
        root = torch.nn.Module() if owner is None else owner
        if owner is None:
            for name, child in self.module.named_children():
                root.add_module(name, child)
            for name, own in [*self.module.named_parameters(recurse=False)]:
                root.register_parameter(name, own)
            for name, own in [*self.module.named_buffers(recurse=False)]:
                root.register_buffer(name, own)
        for number, node in enumerate(graph.find_nodes(op="placeholder")):
            arg = args[number]
            if arg is _INPUT:
                continue
            if isinstance(arg, torch.Tensor):
                name = f"_input_{number}"
                if owner is None and isinstance(arg, torch.nn.Parameter):
                    root.register_parameter(name, arg)
                elif owner is None:
                    root.register_buffer(name, arg)
                with graph.inserting_before(node):
                    node.replace_all_uses_with(graph.get_attr(name))
            else:
                _replace_by_number(graph, node, arg)
            graph.erase_node(node)
        for node in graph.nodes:
            # Other metadata holds tensors of the captured call.
            trace = node.meta.get("stack_trace")
            node.meta.clear()
            if trace is not None:
                node.meta["stack_trace"] = trace
        # Autocast is off here, so switching it off changes nothing, unless the graph switches it on somewhere.
        switched_off = [node for node in graph.nodes if _switches_autocast_off(node)]
        if len(switched_off) < sum(map(_enters_autocast, graph.nodes)):
            switched_off = []
        for node in reversed(graph.nodes):
            leaves = node.target is torch.amp.autocast_mode._exit_autocast
            if (
                node.target in _grad_switches()
                or node.target is torch._C._log_api_usage_once
                or node in switched_off
                or (leaves and node.args[0] in switched_off)
            ):
                graph.erase_node(node)
        module = GraphModule(root, graph)
        # Training flags are arguments of calls, or attributes of called modules.
        module.training = False
        return module


def _layouts(graph: Any) -> Any:
    """Layouts of the results of a graph that are not contiguous, from Dynamo's metadata; None if unknown or none."""
    import torch

    from corsac._native.strides import layouts_of
    from corsac._pytorch.aten import places_in

    (output,) = graph.find_nodes(op="output")
    returned = output.args[0]
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    values = [getattr(own, "meta", {}).get("example_value") for own in results]
    if not all(isinstance(own, torch.Tensor) and own.layout is torch.strided for own in values):
        return None
    given = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    return layouts_of(values, set(places_in(given)))


def _is_input(arg: Any) -> bool:
    """Whether an argument can be an input of a graph: a tensor, or an integer, which may be a varying size."""
    import torch

    return isinstance(arg, torch.Tensor) or type(arg) is int


def _replace_by_number(graph: Any, node: Any, number: Any) -> None:
    from corsac.fx.node import map_arg

    for user in list(node.users):
        user.args = map_arg(user.args, lambda own: number if own is node else own)
        user.kwargs = map_arg(user.kwargs, lambda own: number if own is node else own)


def _grad_switches() -> tuple[Any, ...]:
    import torch

    return (torch._C._set_grad_enabled,)


def _enters_autocast(node: Any) -> bool:
    import torch

    return node.target is torch.amp.autocast_mode._enter_autocast


def _switches_autocast_off(node: Any) -> bool:
    return _enters_autocast(node) and len(node.args) > 2 and node.args[2] is False


def _is_weight(node: Any) -> bool:
    """Whether a placeholder is a parameter or buffer of a module."""
    import torch

    if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"):
        return True
    example = getattr(node.meta.get("grapharg"), "example", None)
    return isinstance(example, torch.nn.Parameter)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Registers the backend once Dynamo's registry of backends is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Registering(spec.loader)
        return spec


class _Registering(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        _add_to(module)


def _add_to(registry: types.ModuleType) -> None:
    if registry._BACKENDS.get("corsac") is not None:
        # Dynamo has found the entry point, through which it may be importing corsac just now: it registers
        # that one itself, and registering twice is an error.
        return
    if "corsac" not in registry._COMPILER_FNS:
        registry.register_backend(backend, name="corsac")


def register() -> None:
    """Register ``backend="corsac"`` for ``torch.compile``, without importing Dynamo.

    An installed package is found by its entry point; this is for packages that are not installed.
    """
    registry = sys.modules.get(_REGISTRY)
    if registry is not None:
        _add_to(registry)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())
