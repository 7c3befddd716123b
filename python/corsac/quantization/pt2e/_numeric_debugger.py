"""Values of an exported program before and after quantisation, node by node.

The names are those of ``torch.ao.quantization.pt2e``. Nodes are told by numbers, handles, which stay with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corsac.quantization.ns.metrics import compute_sqnr

__all__ = [
    "CUSTOM_KEY",
    "NUMERIC_DEBUG_HANDLE_KEY",
    "NodeAccuracySummary",
    "OutputLogger",
    "QuantizationComparisonResult",
    "compare_results",
    "extract_results_from_loggers",
    "generate_numeric_debug_handle",
    "prepare_for_propagation_comparison",
]

#: The key of ``node.meta`` with a dictionary of what users keep.
CUSTOM_KEY = "custom"
#: The key of the handle in that dictionary.
NUMERIC_DEBUG_HANDLE_KEY = "numeric_debug_handle"

_PREFIX = "_output_logger_"


def _handle(node: Any) -> int | None:
    handle = (node.meta.get(CUSTOM_KEY) or {}).get(NUMERIC_DEBUG_HANDLE_KEY)
    return handle if node.op == "call_function" else None


def generate_numeric_debug_handle(ep: torch.export.ExportedProgram) -> None:
    """Give each node of an exported program that calls an operator a handle, unless it has one."""
    if not isinstance(ep, torch.export.ExportedProgram):
        raise ValueError(f"expected an ExportedProgram, got {type(ep).__name__}")
    nodes = [node for node in ep.graph.nodes if node.op == "call_function"]
    number = max((_handle(node) or 0 for node in nodes), default=0)
    for node in nodes:
        if _handle(node) is None:
            number += 1
            known = node.meta.get(CUSTOM_KEY) or {}
            node.meta[CUSTOM_KEY] = {**known, NUMERIC_DEBUG_HANDLE_KEY: number}


class OutputLogger(torch.nn.Module):
    """A module that passes its input on and keeps copies of it, ``stats``."""

    def __init__(self, debug_handle: int, node_name: str, nn_module_stack: Any = None) -> None:
        super().__init__()
        self.debug_handle = debug_handle
        self.node_name = node_name
        self.nn_module_stack = nn_module_stack
        self.stats: list[Any] = []

    def forward(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            self.stats.append(x.detach().clone())
        return x

    def extra_repr(self) -> str:
        return f"debug_handle={self.debug_handle}, node_name={self.node_name}, batches={len(self.stats)}"


def prepare_for_propagation_comparison(model: Any) -> Any:
    """A copy of a graph module with a logger behind each node that has a handle."""
    model = copy.deepcopy(model)
    for node in [*model.graph.nodes]:
        handle = _handle(node)
        if handle is None:
            continue
        name = f"{_PREFIX}{handle}"
        if hasattr(model, name):
            continue
        setattr(model, name, OutputLogger(handle, node.name, node.meta.get("nn_module_stack")))
        users = [*node.users]
        with model.graph.inserting_after(node):
            logger = model.graph.call_module(name, (node,))
        for user in users:
            user.replace_input_with(node, logger)
    model.recompile()
    return model


@dataclass(frozen=True)
class QuantizationComparisonResult:
    """A value of the quantised program and that of the float one."""

    actual: Tensor
    ref: Tensor

    def __post_init__(self) -> None:
        if self.actual.shape != self.ref.shape:
            raise ValueError(
                f"expected values of one shape, got {list(self.actual.shape)} and {list(self.ref.shape)}"
            )

    def loss(self, loss_function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """A function of both values, in single precision."""
        return loss_function(self.actual.to(torch.float32), self.ref.to(torch.float32))

    @property
    def mse_loss(self) -> Tensor:
        """The mean of the squared differences."""
        return self.loss(F.mse_loss)

    @property
    def sqnr(self) -> Tensor:
        """The ratio of signal to noise, in decibels."""
        return self.loss(lambda actual, ref: compute_sqnr(ref, actual))

    def __repr__(self) -> str:
        return f"QuantizationComparisonResult(mse_loss={self.mse_loss}, sqnr={self.sqnr})"


@dataclass(frozen=True)
class NodeAccuracySummary:
    """The values of a node in both programs, batch by batch."""

    handle: int
    actual_node_name: str
    actual_module_stack: str
    ref_node_name: str
    ref_module_stack: str
    results: Sequence[QuantizationComparisonResult]


def extract_results_from_loggers(model: torch.nn.Module) -> dict[int, tuple[str, Any, list[Any]]]:
    """Names, module stacks and values of the nodes with loggers, by handle."""
    return {
        own.debug_handle: (own.node_name, own.nn_module_stack, own.stats)
        for own in model.children()
        if isinstance(own, OutputLogger) and own.stats
    }


def _shown(stack: Any) -> str:
    return str([*stack.values()][-1][0]) if stack else ""


def compare_results(
    ref_results: dict[int, tuple[str, Any, list[Any]]],
    actual_results: dict[int, tuple[str, Any, list[Any]]],
) -> dict[int, NodeAccuracySummary]:
    """The values of nodes that both programs have, by handle."""
    found = {}
    for handle, (ref_name, ref_stack, refs) in ref_results.items():
        if handle not in actual_results:
            continue
        name, stack, values = actual_results[handle]
        try:
            pairs = zip(values, refs, strict=False)
            results = [QuantizationComparisonResult(*pair) for pair in pairs]
        except ValueError as error:
            raise ValueError(f"nodes {name} and {ref_name}, handle {handle}: {error}") from error
        found[handle] = NodeAccuracySummary(
            handle, name, _shown(stack), ref_name, _shown(ref_stack), results
        )
    return found
