"""Models for plans of meshes, and jobs that run them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from corsac.analysis import Machine
from corsac.distributed import MeshPlan, Network, measure_network, plan_mesh

#: A machine of round numbers: 100 GFLOP/s, 10 GB/s.
MACHINE = Machine(100.0, 10.0)
WORDS, WIDTH, BATCH, LENGTH = 64, 32, 8, 6


class Words(nn.Module):
    """A transformer whose table of words is the last layer, too, if it is tied."""

    def __init__(
        self, layers: int = 4, heads: int = 8, tied: bool = True, width: int = WIDTH
    ) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(WORDS, width)
        self.last = nn.Linear(width, WORDS, bias=False)
        if tied:
            self.last.weight = self.table.weight
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        batch, length, _ = x.shape
        for norm, qkv, out, up, down in zip(
            self.norms, self.qkv, self.out, self.up, self.down, strict=True
        ):
            q, k, v = qkv(norm(x)).chunk(3, -1)
            q, k, v = (own.view(batch, length, self.heads, -1).transpose(1, 2) for own in (q, k, v))
            own = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(own.transpose(1, 2).reshape(batch, length, -1))
            x = x + down(nn.functional.gelu(up(x)))
        return self.last(x)


def words() -> Words:
    """The model, with the same weights each time."""
    torch.manual_seed(0)
    return Words()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of inputs and targets."""
    generator = torch.Generator().manual_seed(1)
    found = torch.randint(WORDS, (2, BATCH, LENGTH), generator=generator)
    return found[0], found[1]


def loss(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The cross entropy of each word."""
    return nn.functional.cross_entropy(result.flatten(0, 1), target.flatten())


def whole() -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradients of the whole model."""
    model, (x, y) = words(), batch()
    value = loss(model(x), y)
    value.backward()
    return float(value.detach()), {name: own.grad for name, own in model.named_parameters()}


def plans(ranks: Any = 8, model: nn.Module | None = None, **options: Any) -> Any:
    """The plans of the model for a batch on ``meta``."""
    x = torch.empty(BATCH, LENGTH, dtype=torch.int64, device="meta")
    network = {} if "network" in options else {"bandwidth": 1e9}
    given = {**network, "machine": MACHINE, **options}
    return plan_mesh(words() if model is None else model, x, ranks=ranks, **given)


def run(rank: int, path: str) -> tuple[float, dict[str, tuple[tuple[int, ...], float]]]:
    """A step of a plan file on a rank of a process group: the largest difference of gradients from those of the whole model,
    and the shapes of the parts of weights."""
    plan = MeshPlan.load(path)
    # The file has no weights.
    plan.pipeline.program.tensors.update(dict(words().named_parameters()))
    (x, y), copies = batch(), plan.mesh.data
    part = torch.empty(BATCH // copies, LENGTH, dtype=torch.int64, device="meta")
    ready = plan.start(part, loss_fn=loss, timeout=60.0)
    ready.step(x.chunk(copies)[ready.copy], target=y.chunk(copies)[ready.copy])
    _, gradients = whole()
    shapes, largest = {}, 0.0
    for name, own in ready.pipeline.named_parameters():
        wanted = gradients[name]
        largest = max(largest, float((ready.whole(name, own.grad) - wanted).abs().max()))
        shapes[name] = tuple(own.shape)
    norm = torch.stack([own.norm() for own in gradients.values()]).norm()
    torch.testing.assert_close(ready.clip_grad_norm_(0.5 * float(norm)), norm)
    for name, own in ready.pipeline.named_parameters():
        wanted = 0.5 * gradients[name]
        torch.testing.assert_close(ready.whole(name, own.grad), wanted, rtol=1e-4, atol=1e-6)
    state = words().state_dict()
    for name, own in ready.full_state_dict().items():
        assert torch.equal(own, state[name])
    return largest, shapes


def measured_network(rank: int) -> Network:
    """The connections of all ranks."""
    del rank
    return measure_network(sizes=(4, 8192), repeats=2)


__all__ = [
    "BATCH",
    "LENGTH",
    "MACHINE",
    "WIDTH",
    "WORDS",
    "Words",
    "batch",
    "loss",
    "measured_network",
    "plans",
    "run",
    "whole",
    "words",
]
