"""Graphs that Dynamo captures, on the engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from corsac._engine.compiled_graph import CompiledGraph
from corsac._native.options import INFERENCE, Precision
from corsac._native.panic import as_compile_error
from corsac._native.strides import laid_out, layouts_of
from corsac._pytorch.aten import storages_in
from corsac.fx import GraphModule
from corsac.fx._own_copy import copied_graph
from corsac.fx.convert import from_torch
from corsac.fx.node import map_arg
from corsac.passes._writes import written_placeholders

#: Largest number of specialisations of a graph to weights, if these differ from call to call.
VARIANTS = 16
#: Functions that switch autograd on and off.
_GRAD_SWITCHES = (torch._C._set_grad_enabled,)
#: Marks arguments that a graph takes as inputs in each call.
_INPUT = object()


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
        self.module = module
        self._precision, self._inference = precision, inference
        self._compiled = compiled
        placeholders = list(module.graph.find_nodes(op="placeholder"))
        self._is_weight = [_is_weight(node) for node in placeholders]
        if any(self._is_weight):
            # Static inputs that are written to, such as key-value caches, differ after each call.
            for number in written_placeholders(from_torch(module.graph)):
                self._is_weight[number] = False
        self._switches = [n for n in module.graph.nodes if n.target in _GRAD_SWITCHES]
        self._layouts = _layouts(module.graph)
        self._variants: OrderedDict[Any, Any] = OrderedDict()

    def __call__(self, *args: Any) -> Any:
        results = self._results(args)
        if self._layouts is None:
            return results
        return laid_out(results, self._layouts)

    def _results(self, args: tuple[Any, ...]) -> Any:
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
        if not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
            return False
        return records(self.module.graph)

    def _variant(self, args: Sequence[Any]) -> Any:
        """Compile the graph for the weights and numbers among ``args``."""
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
                node.target in _GRAD_SWITCHES
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
    (output,) = graph.find_nodes(op="output")
    returned = output.args[0]
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    values = [getattr(own, "meta", {}).get("example_value") for own in results]
    if not all(isinstance(own, torch.Tensor) and own.layout is torch.strided for own in values):
        return None
    given = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    return layouts_of(values, set(storages_in(given)))


def _is_input(arg: Any) -> bool:
    """Whether an argument can be an input of a graph: a tensor, or an integer, which may be a varying size."""
    return isinstance(arg, torch.Tensor) or type(arg) is int


def _replace_by_number(graph: Any, node: Any, number: Any) -> None:
    for user in list(node.users):
        user.args = map_arg(user.args, lambda own: number if own is node else own)
        user.kwargs = map_arg(user.kwargs, lambda own: number if own is node else own)


def _enters_autocast(node: Any) -> bool:
    return node.target is torch.amp.autocast_mode._enter_autocast


def _switches_autocast_off(node: Any) -> bool:
    return _enters_autocast(node) and len(node.args) > 2 and node.args[2] is False


def _is_weight(node: Any) -> bool:
    """Whether a placeholder is a parameter or buffer of a module."""
    if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"):
        return True
    example = getattr(node.meta.get("grapharg"), "example", None)
    return isinstance(example, torch.nn.Parameter)


def records(graph: Any) -> bool:
    """Whether autograd records a call of ``graph``."""
    enabled = torch.is_grad_enabled()
    for node in graph.nodes:
        if node.target in _GRAD_SWITCHES:
            enabled = node.args[0]
        elif enabled and node.op.startswith("call_"):
            return True
    return False


__all__ = ["Piece", "records"]
