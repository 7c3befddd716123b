"""Stages: modules for parts of a program, and their places in a schedule of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._utils import _derive_grad_metas, extract_tensor_metas

from corsac.distributed._errors import PipelineError
from corsac.distributed._program import Weight
from corsac.distributed._rank_module import RankModule, move_graph
from corsac.distributed._stage_graphs import StageGraph
from corsac.distributed._values import input_types, summary, values_of


class StageModule(RankModule):
    """The module of a stage: its weights have the names that they have in the model.

    Args:
        rank, index: of the stage.
        stage: its graph.
        weights: its weights.
        device: device on which new tensors are made.
    """

    def __init__(
        self,
        rank: int,
        index: int,
        stage: StageGraph,
        weights: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        move_graph(stage.graph, device)
        own = {name: weights[name] for name in stage.weights}
        super().__init__(stage.graph, own, {"rank": rank, "index": index})

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            return self.graph_module.forward(*inputs)
        except Exception as error:
            raise PipelineError(
                f"rank {dist.get_rank()}, stage {self.index}{self._place(error)}: {summary(error)}"
            ) from error


class SizedStage(PipelineStage):
    """A stage of a schedule with known types of all values it sends and receives, for each microbatch.

    Args:
        module: the module of the stage.
        index, count: its number, and the number of stages.
        device, group: as for :class:`~torch.distributed.pipelining.PipelineStage`.
        inputs, outputs: what it takes and returns, as fake tensors, for each microbatch.
        splits: whether gradients of weights may be computed apart from those of inputs.
    """

    def __init__(
        self,
        module: StageModule,
        index: int,
        count: int,
        device: torch.device,
        group: Any,
        inputs: Sequence[tuple[torch.Tensor, ...]],
        outputs: Sequence[tuple[torch.Tensor, ...]],
        *,
        splits: bool,
    ) -> None:
        # PyTorch's separate pass for weights finds those only that meet an input which has a gradient.
        builder = None if splits else lambda: lambda: None
        super().__init__(
            module, index, count, device, inputs[0], outputs[0], group=group, dw_builder=builder
        )
        self._inputs_of = [extract_tensor_metas(own) for own in inputs]
        self._outputs_of = [extract_tensor_metas(own) for own in outputs]
        self._sent = 0

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(num_microbatches, has_backward)
        for chunk in range(num_microbatches):
            for info, meta in zip(self.args_recv_info[chunk], self._inputs_of[chunk], strict=True):
                info.tensor_meta = meta

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(num_microbatches)
        for chunk in range(num_microbatches):
            metas = _derive_grad_metas(self._outputs_of[chunk])
            for info, meta in zip(self.grad_recv_info[chunk], metas, strict=False):
                info.tensor_meta = meta

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[Any]:
        self._sent = bwd_chunk_id
        if bwd_chunk_id in self.bwd_cache:
            self.bwd_cache[bwd_chunk_id] = tuple(
                None if own is None else own.contiguous() for own in self.bwd_cache[bwd_chunk_id]
            )
        return super().get_bwd_send_ops(bwd_chunk_id)

    def _get_grad_send_meta(self, input_idx: int) -> Any:
        return _derive_grad_metas(self._inputs_of[self._sent])[input_idx]


def may_split(
    stage: StageGraph, inputs: Sequence[torch.Tensor], weights: Mapping[str, Weight]
) -> bool:
    """Whether one input of a stage has a gradient, and all results that have gradients depend on it."""
    frozen = {name: replace(weights[name], requires_grad=False) for name in stage.weights}
    gradients = [own.requires_grad for own in inputs]
    if sum(gradients) != 1:
        # PyTorch frees the graph that the chains of several inputs have in common before the last one is done.
        return False
    results = stage.graph.output_node().args[0]
    by_inputs = values_of(stage.graph, input_types(inputs), frozen, gradients)
    by_all = values_of(stage.graph, input_types(inputs), weights, gradients)
    return all(by_inputs[own].requires_grad or not by_all[own].requires_grad for own in results)


__all__ = ["SizedStage", "StageModule", "may_split"]
