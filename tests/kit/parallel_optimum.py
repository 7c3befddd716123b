"""Jobs with the layers and models of ``corsac.optimum.parallelization``."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from kit.pipelines import made, tensors_of


def _context() -> Any:
    from corsac.optimum.parallelization import ParallelExecutionCtx

    return ParallelExecutionCtx(tp_group=dist.group.WORLD)


def layers(rank: int) -> dict[str, float]:
    """Differences of results and gradients of layers that are put together by hand."""
    from corsac.optimum import parallelization as own

    ctx = _context()
    torch.manual_seed(0)
    table, up, down, head = (
        nn.Embedding(12, 8, padding_idx=3),
        nn.Linear(8, 16),
        nn.Linear(16, 8),
        nn.Linear(8, 10, bias=False),
    )
    words, target = torch.randint(12, (2, 5)), torch.randint(10, (2, 5))
    parts = [
        own.VocabParallelEmbedding(ctx, table),
        own.ColumnParallelLinear(ctx, up, gather_output=False),
        own.RowParallelLinear(ctx, down, input_is_parallel=True),
        own.ColumnParallelLinear(ctx, head, gather_output=False),
    ]
    x = parts[0](words)
    x = x + parts[2](parts[1](x).relu())
    loss = own.VocabParallelCrossEntropyLoss(ctx)(parts[3](x), target)
    loss.backward()
    x = table(words)
    x = x + down(up(x).relu())
    logits = head(x)
    wanted = nn.functional.cross_entropy(logits.reshape(-1, 10), target.reshape(-1))
    wanted.backward()
    each = own.sharded_cross_entropy(
        logits.detach().chunk(dist.get_world_size(), -1)[rank], target, ctx.tp_group
    )
    expected = nn.functional.cross_entropy(logits.permute(0, 2, 1), target, reduction="none")
    found = {
        "loss": abs(loss.item() - wanted.item()),
        "each": (each - expected).abs().max().item(),
        "bias": (parts[2].bias.grad - down.bias.grad).abs().max().item(),
    }
    for name, part, whole, dim in (
        ("table", parts[0], table, 0),
        ("up", parts[1], up, 0),
        ("down", parts[2], down, 1),
        ("head", parts[3], head, 0),
    ):
        mine = whole.weight.grad.chunk(dist.get_world_size(), dim)[rank]
        found[name] = (part.weight.grad - mine).abs().max().item()
    gathered = own.ColumnParallelLinear(ctx, up)(torch.ones(3, 8))
    scattered = own.RowParallelLinear(ctx, down)(torch.ones(3, 16))
    found["gathered"] = (gathered - up(torch.ones(3, 8))).abs().max().item()
    found["scattered"] = (scattered - down(torch.ones(3, 16))).abs().max().item()
    return found


def of_folder(rank: int, folder: str) -> dict[str, float]:
    """Differences of a model of a folder, in evaluation and in training, after a step."""
    from corsac.optimum.parallelization import parallelize_model

    del rank
    reference, inputs = made("llama", 2)
    reference.eval()
    own = parallelize_model(folder, _context())
    found: dict[str, float] = {}

    def differ() -> float:
        with torch.no_grad():
            pairs = zip(tensors_of(own(**inputs)), tensors_of(reference(**inputs)), strict=True)
            return max((one - other).abs().max().item() for one, other in pairs)

    found["evaluated"] = differ()
    names = {name for name, _ in own.named_parameters()}
    assert names == {name for name, _ in reference.named_parameters()}
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (own, reference)]
    for one, optimizer in zip((own, reference), optimizers, strict=True):
        one.train()
        one(**inputs).logits.square().mean().backward()
        optimizer.step()
        one.eval()
    found["trained"] = differ()
    return found


def sequences(rank: int) -> tuple[float, int]:
    """The difference of a model with parts of sequences, and the number of its sums that become parts."""
    from corsac.distributed import collectives
    from corsac.optimum.parallelization import parallelize_model

    del rank
    (model, inputs), (reference, _) = made("llama", 2), made("llama", 2)
    own = parallelize_model(model, _context(), enable_sequence_parallel=True)
    pairs = zip(tensors_of(own(**inputs)), tensors_of(reference(**inputs)), strict=True)
    difference = max((one - other).abs().max().item() for one, other in pairs)
    (part,) = own.parts.values()
    targets = [node.target for node in part.graph.nodes]
    return difference, targets.count(collectives.reduce_scatter)


def mistakes(rank: int, folder: str) -> list[str]:
    """The errors of wrong arguments."""
    from corsac.optimum import parallelization as own

    del rank
    ctx = _context()
    found = []
    for call in (
        lambda: own.ColumnParallelLinear(ctx, nn.Linear(4, 5)),
        lambda: own.VocabParallelEmbedding(ctx, nn.Embedding(4, 2, max_norm=1.0)),
        lambda: own.VocabParallelCrossEntropyLoss(ctx, "median"),
        lambda: own.parallelize_model("meta-llama/Llama", ctx),
        lambda: own.parallelize_model(nn.Linear(2, 2), ctx, sharded=True),
        lambda: own.parallelize_model(folder, ctx),
    ):
        try:
            call()
        except (ValueError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


class Auxiliary(nn.Module):
    """Has a head in training only, and a part that is always evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.aux = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.drop(self.down(self.up(x).relu()))
        return (y, self.aux(y)) if self.training else y


def modes(rank: int, trains: bool) -> dict[str, Any]:
    """Differences of a model whose modes read other weights, in the mode ``trains`` first."""
    from corsac.optimum.parallelization import parallelize_model

    del rank
    torch.manual_seed(0)
    model = Auxiliary().train(trains)
    model.drop.eval()
    reference = Auxiliary().train(trains)
    reference.load_state_dict(model.state_dict())
    reference.drop.eval()
    own = parallelize_model(model, _context())
    x = torch.randn(3, 8)
    found = {}
    for mode in (trains, not trains):
        own.train(mode)
        reference.train(mode)
        if mode is trains:
            reference.drop.eval()
        elif mode:
            # Training drops now, in the model, too.
            continue
        pairs = zip(tensors_of(own(x)), tensors_of(reference(x)), strict=True)
        found[f"trains {mode}"] = max((one - other).abs().max().item() for one, other in pairs)
    own.train(True)
    own(x)
    found["names"] = sorted(name for name, _ in own.named_parameters())
    return found
