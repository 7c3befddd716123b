"""Layers of which each rank has a part of the weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from corsac.distributed import collectives
from corsac.optimum.parallelization._context import ParallelExecutionCtx


def _part(ctx: ParallelExecutionCtx, tensor: torch.Tensor, dim: int, of: str) -> nn.Parameter:
    """This rank's part of a parameter.

    Raises:
        ValueError: the ranks do not divide it.
    """
    length = tensor.size(dim)
    if length % ctx.size:
        raise ValueError(f"{ctx.size} ranks do not divide the {length} {of}")
    own = collectives.own_part(tensor.detach(), dim, [length], ctx.rank, ctx.size)
    own = own.to(ctx.current_device, copy=True, memory_format=torch.contiguous_format)
    return nn.Parameter(own, tensor.requires_grad)


def _whole(ctx: ParallelExecutionCtx, tensor: torch.Tensor | None) -> nn.Parameter | None:
    if tensor is None:
        return None
    return nn.Parameter(tensor.detach().to(ctx.current_device, copy=True), tensor.requires_grad)


class ColumnParallelLinear(nn.Module):
    """A linear layer of which each rank computes some of the outputs.

    Args:
        ctx: the process group.
        linear: the whole layer.
        gather_output: whether the result is whole.
    """

    def __init__(
        self, ctx: ParallelExecutionCtx, linear: nn.Linear, gather_output: bool = True
    ) -> None:
        super().__init__()
        self.group, self.gather_output = ctx.name, gather_output
        self.out_features = linear.out_features
        self.weight = _part(ctx, linear.weight, 0, "outputs of a linear layer")
        bias = linear.bias
        self.bias = None if bias is None else _part(ctx, bias, 0, "outputs of a linear layer")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        output = F.linear(collectives.copy(input, self.group), self.weight, self.bias)
        if not self.gather_output:
            return output
        return collectives.gather(output, output.dim() - 1, (self.out_features,), self.group)


class RowParallelLinear(nn.Module):
    """A linear layer of which each rank has the weights of some of the inputs.

    Args:
        ctx: the process group.
        linear: the whole layer.
        input_is_parallel: whether the input is this rank's part, as :class:`ColumnParallelLinear` returns it.
    """

    def __init__(
        self, ctx: ParallelExecutionCtx, linear: nn.Linear, input_is_parallel: bool = False
    ) -> None:
        super().__init__()
        self.group, self.input_is_parallel = ctx.name, input_is_parallel
        self.in_features = linear.in_features
        self.weight = _part(ctx, linear.weight, 1, "inputs of a linear layer")
        self.bias = _whole(ctx, linear.bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.input_is_parallel:
            input = collectives.scatter(input, input.dim() - 1, (self.in_features,), self.group)
        output = collectives.reduce(F.linear(input, self.weight), self.group)
        return output if self.bias is None else output + self.bias


class VocabParallelEmbedding(nn.Module):
    """An embedding of which each rank has some of the rows.

    Args:
        ctx: the process group.
        embedding: the whole table.

    Raises:
        ValueError: the ranks do not divide its rows, or it renormalises or scales gradients.
    """

    def __init__(self, ctx: ParallelExecutionCtx, embedding: nn.Embedding) -> None:
        super().__init__()
        if embedding.max_norm is not None or embedding.scale_grad_by_freq or embedding.sparse:
            raise ValueError("a part of an embedding has no max_norm, scale_grad_by_freq or sparse")
        self.group, self.num_embeddings = ctx.name, embedding.num_embeddings
        self.padding_idx = embedding.padding_idx
        self.weight = _part(ctx, embedding.weight, 0, "rows of an embedding")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = collectives.sharded_embedding(
            input, self.weight, (self.num_embeddings,), self.group, self.padding_idx
        )
        return collectives.reduce(rows, self.group)


def sharded_cross_entropy(
    sharded_logits: torch.Tensor, target: torch.Tensor, process_group: object
) -> torch.Tensor:
    """The cross entropy of each target, for logits of which this rank has a part of the classes.

    Args:
        sharded_logits: of shape ``[..., own classes]``.
        target: numbers of classes, of shape ``[...]``.
        process_group: the ranks, in the order of their classes.
    """
    import torch.distributed as dist

    classes = sharded_logits.size(-1) * dist.get_world_size(process_group)
    losses = collectives.sharded_cross_entropy(
        sharded_logits.reshape(-1, sharded_logits.size(-1)),
        target.reshape(-1),
        (classes,),
        process_group.group_name,  # type: ignore[attr-defined]
        reduction="none",
    )
    return losses.reshape(target.shape)


class VocabParallelCrossEntropyLoss(nn.Module):
    """The cross entropy of logits of which each rank has a part of the classes.

    Args:
        ctx: the process group.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, ctx: ParallelExecutionCtx, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")
        self.group, self.reduction = ctx.tp_group, reduction

    def forward(self, sharded_logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        losses = sharded_cross_entropy(sharded_logits, target, self.group)
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()


__all__ = [
    "ColumnParallelLinear",
    "RowParallelLinear",
    "VocabParallelCrossEntropyLoss",
    "VocabParallelEmbedding",
    "sharded_cross_entropy",
]
