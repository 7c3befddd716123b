"""Graphs that a recorded program calls as elements decide: branches, loops and scans."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from corsac.fx import GraphModule
from corsac.fx._module_attributes import _get_attr
from corsac.fx.proxy import TraceError

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder

#: The operator by which modules call graphs while they are recorded: the recording sees operators as a whole.
_LIBRARY = torch.library.Library("corsac", "FRAGMENT")
_LIBRARY.define("call_graphs(Tensor[] operands, int caller) -> Tensor[]")
_CALLERS: weakref.WeakValueDictionary[int, GraphCaller] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


class GraphCaller(nn.Module):
    """A module that calls graphs as elements decide.

    Attributes:
        operator: the operator of ``torch.ops.higher_order`` that the calls are of.
    """

    operator: str

    def __init__(self) -> None:
        super().__init__()
        self._register()

    def _register(self) -> None:
        self._caller = next(_NUMBERS)
        _CALLERS[self._caller] = self

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._register()

    def arguments(self, operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """The arguments of the operator for these operands: graphs, and tuples of tensors."""
        raise NotImplementedError

    def called_as_graph(self, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results of a call that becomes one node."""
        return tuple(torch.ops.corsac.call_graphs.default(operands, self._caller))


def _call(operands: Sequence[torch.Tensor], caller: int) -> list[torch.Tensor]:
    module = _CALLERS[caller]
    function = getattr(torch.ops.higher_order, module.operator)
    # Results of loops without iterations are operands.
    return [_row_major(own) for own in function(*module.arguments(operands))]


_LIBRARY.impl("call_graphs", _call, "CompositeExplicitAutograd")
_CALL = torch.ops.corsac.call_graphs.default


def calls_graphs(function: Any) -> bool:
    """Whether a function is the operator by which modules call graphs."""
    return function is _CALL


class CalledGraphs:
    """The graphs that a recorded program calls, each with tensors like its inputs."""

    def __init__(self) -> None:
        self._found: list[tuple[str, nn.Module, tuple[torch.Tensor, ...]]] = []
        self._kept: list[Any] = []

    def keep(self, *objects: Any) -> None:
        """Keep objects alive while the program is recorded: code that runs when they die, since others have weak
        references to them, is not the program's."""
        self._kept += objects

    def modules(self) -> dict[str, nn.Module]:
        """The modules that are called, by the names of their attributes."""
        return {name: module for name, module, _ in self._found}

    def record(self, recorder: Recorder, operands: Any, caller: int) -> tuple[Any, ...]:
        """The result of a call, the operator that its node calls, and the arguments of the node.

        Raises:
            TraceError: the call cannot be a node.
        """
        module = _CALLERS[caller]
        name = module.operator
        if recorder.sizes is not None:
            raise TraceError(f"{name} in a graph whose sizes differ between calls")
        if any(not isinstance(own, torch.Tensor) for own in operands):
            raise TraceError(f"numbers as operands of {name}")
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            result = tuple(_call(operands, caller))
            arguments = module.arguments(operands)
            groups = [own for own in arguments if isinstance(own, tuple)]
            examples = [_row_major(own) for own in itertools.chain(*groups)]
            if name == "scan":
                begin = len(groups[0])
                for at in range(begin, begin + len(groups[1])):
                    rows = examples[at]
                    examples[at] = rows[0] if len(rows) else rows.new_zeros(rows.shape[1:])

        def argument(own: Any) -> Any:
            if isinstance(own, nn.Module):
                return self._node(recorder, own, tuple(examples))
            if isinstance(own, tuple):
                return tuple(map(recorder.node_of, own))
            return recorder.node_of(own)

        function = getattr(torch.ops.higher_order, name)
        return result, function, tuple(map(argument, arguments))

    def _node(
        self, recorder: Recorder, module: nn.Module, examples: tuple[torch.Tensor, ...]
    ) -> Any:
        name = f"called_graph_{len(self._found)}"
        self._found.append((name, module, examples))
        return recorder.graph.get_attr(name)

    def attach(self, root: GraphModule, captured: Callable[..., GraphModule]) -> None:
        """Put the graphs in the place of the modules in ``root``; ``captured`` makes a graph of a module and examples.

        Raises:
            TraceError: a module is no graph.
        """
        for name, module, examples in self._found:
            setattr(root, name, captured(module, examples))


def _row_major(own: torch.Tensor) -> torch.Tensor:
    return own.detach().clone(memory_format=torch.contiguous_format)


def graphs_in(module: GraphModule) -> Sequence[tuple[Any, GraphModule]]:
    """The nodes of a graph that are graphs which it calls, and these."""
    found = []
    for node in module.graph.find_nodes(op="get_attr"):
        own = _get_attr(module, str(node.target))
        if isinstance(own, GraphModule):
            found.append((node, own))
    return found


__all__ = ["CalledGraphs", "GraphCaller", "calls_graphs", "graphs_in"]
