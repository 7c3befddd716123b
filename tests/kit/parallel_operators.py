"""Operators on parts of tensors: small functions of weights, each of which is cut along each dimension in turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A function of weights ``a``, ``b`` and so on, and of the input ``x``.

    Attributes:
        function: takes the weights, then the input.
        shapes: of the weights.
        x: shape of the input.
        cut: the weights and dimensions along which a rank can have a part, as ``"a0"``.
    """

    function: Function
    shapes: tuple[tuple[int, ...], ...]
    x: tuple[int, ...]
    cut: str


def case(function: Function, *shapes: tuple[int, ...], x: tuple[int, ...] = (1,), cut: str) -> Case:
    return Case(function, shapes, x, cut)


A = (4, 6, 8)
ALL = "a0 a1 a2"


def einsum(equation: str) -> Function:
    return lambda a, b, x: torch.einsum(equation, a, b)


def loss(reduction: str, ignore_index: int = -100) -> Function:
    def function(a, x):
        target = (x * 0).sum().to(torch.int64) + torch.tensor([3, 0, 7, 1, 5, 2])
        return F.cross_entropy(
            x @ a.t(), target, ignore_index=ignore_index, reduction=reduction
        ).reshape(-1)

    return function


CASES: dict[str, Case] = {
    # Element by element.
    "relu": case(lambda a, x: a.relu(), A, cut=ALL),
    "add broadcast": case(lambda a, b, x: a + b, A, (6, 1), cut=f"{ALL} b0"),
    "add to input": case(lambda a, x: a + x, A, x=A, cut=ALL),
    "subtract from number": case(lambda a, x: 1 - a, A, cut=ALL),
    "mul": case(lambda a, b, x: a * b, A, (8,), cut=f"{ALL} b0"),
    "div": case(lambda a, b, x: a / (b.abs() + 1), A, A, cut=f"{ALL} b0 b1 b2"),
    "where": case(lambda a, b, x: torch.where(a > 0, a, b), A, (8,), cut=f"{ALL} b0"),
    "masked_fill": case(lambda a, x: a.masked_fill(x > 0, 0.5), A, x=(6, 8), cut=ALL),
    "clamp and power": case(lambda a, x: a.clamp(-0.5, 0.5).pow(2), A, cut=ALL),
    "gelu": case(lambda a, x: F.gelu(a, approximate="tanh"), A, cut=ALL),
    "convert": case(lambda a, x: a.double().to(torch.float32), A, cut=ALL),
    "in place": case(lambda a, x: a.clone().add_(1).mul_(2), A, cut=""),
    # Products.
    "linear": case(lambda a, b, x: F.linear(x, a, b), (6, 8), (6,), x=(3, 8), cut="a0 a1 b0"),
    "two linears": case(
        lambda a, b, c, d, x: F.linear(F.linear(x, a, b).relu(), c, d),
        (12, 8),
        (12,),
        (6, 12),
        (6,),
        x=(2, 3, 8),
        cut="a0 a1 b0 c0 c1 d0",
    ),
    "matmul": case(lambda a, x: x @ a, (4, 8, 6), x=(4, 3, 8), cut=ALL),
    "matmul of vector": case(lambda a, x: a @ x, (4, 6, 8), x=(8,), cut=ALL),
    "matmul broadcast": case(lambda a, x: a @ x, (4, 6, 8), x=(8, 5), cut=ALL),
    "vector times matrix": case(lambda a, x: x @ a, (8, 6), x=(8,), cut="a0 a1"),
    "dot": case(lambda a, x: torch.dot(a, x).reshape(1), (8,), x=(8,), cut="a0"),
    "bmm": case(lambda a, b, x: torch.bmm(a, b), (4, 6, 8), (4, 8, 2), cut=f"{ALL} b0 b1 b2"),
    "addmm": case(
        lambda a, b, x: torch.addmm(b, x, a, beta=0.5, alpha=2.0),
        (8, 6),
        (6,),
        x=(4, 8),
        cut="a0 a1 b0",
    ),
    "baddbmm": case(
        lambda a, b, x: torch.baddbmm(b, x, a),
        (4, 8, 6),
        (4, 1, 6),
        x=(4, 2, 8),
        cut="a0 a1 a2 b0 b2",
    ),
    "transposed weight": case(lambda a, x: x @ a.t(), (6, 8), x=(3, 8), cut="a0 a1"),
    "attribute T": case(lambda a, x: x @ a.T, (6, 8), x=(3, 8), cut="a0 a1"),
    "attribute mT": case(lambda a, x: x @ a.mT, (4, 6, 8), x=(3, 8), cut=ALL),
    "einsum": case(einsum("bij,bjk->bik"), (4, 6, 8), (4, 8, 2), cut=f"{ALL} b0 b1 b2"),
    "einsum that sums": case(einsum("bij,bj->i"), (4, 6, 8), (4, 8), cut=f"{ALL} b0 b1"),
    # Views.
    "split heads": case(
        lambda a, x: F.linear(x, a).view(2, 3, 4, 2).transpose(1, 2),
        (8, 6),
        x=(2, 3, 6),
        cut="a0 a1",
    ),
    "split and merge": case(
        lambda a, x: F.linear(x, a).view(2, 3, 4, 2).transpose(1, 2).reshape(2, 4, 6),
        (8, 6),
        x=(2, 3, 6),
        cut="a0 a1",
    ),
    "flatten": case(lambda a, x: a.flatten(1), A, cut=ALL),
    "unflatten": case(lambda a, x: a.unflatten(-1, (4, 2)), A, cut=ALL),
    "minus one": case(lambda a, x: a.reshape(4, -1, 2, 4), A, cut="a0 a1 a2"),
    "of sizes": case(lambda a, x: a.view(a.size(0), a.shape[1] * a.size(2)), A, cut=ALL),
    "number of elements": case(lambda a, x: a / a.numel() + a.shape[-1], A, cut=ALL),
    "squeeze all": case(lambda a, x: a.squeeze(), (2, 6, 1, 8), cut=""),
    "squeeze of another size": case(lambda a, x: a.squeeze(1).sum(1), (4, 2, 8), cut=""),
    "torch.embedding": case(
        lambda a, x: torch.embedding(a, torch.tensor([[0, 5], [7, 2]])), (8, 6), cut="a0 a1"
    ),
    "like": case(lambda a, x: a * torch.ones_like(a) + torch.full_like(a, 2), A, cut=ALL),
    "like a sum": case(
        lambda a, b, x: torch.ones_like(F.linear(x, a)) + F.linear(x, b),
        (6, 8),
        (6, 8),
        x=(3, 8),
        cut="a0 a1 b0 b1",
    ),
    "expand_as": case(lambda a, b, x: a.expand_as(b) * b, (4, 1, 8), A, cut="a0 a2 b0 b1 b2"),
    "tuple of one": case(lambda a, x: a.split(6, 1)[0].cumsum(2), A, cut=ALL),
    "length of repeats": case(
        lambda a, x: a.repeat_interleave(2, dim=1, output_size=12), A, cut=""
    ),
    "permute": case(lambda a, x: a.permute(2, 0, 1), A, cut=ALL),
    "movedim": case(lambda a, x: a.movedim(0, -1), A, cut=ALL),
    "squeeze": case(lambda a, x: a.unsqueeze(1).squeeze(1), A, cut=ALL),
    "expand": case(lambda a, x: a[:, None].expand(4, 3, 6, 8), A, cut=ALL),
    "expand with minus one": case(lambda a, x: a[:, None].expand(-1, 3, -1, -1), A, cut=ALL),
    "repeat": case(lambda a, x: a.repeat(1, 2, 1), A, cut="a0 a2"),
    "repeat_interleave": case(lambda a, x: a.repeat_interleave(3, dim=1), A, cut=ALL),
    "tril": case(lambda a, x: a.tril(), A, cut="a0"),
    # Pieces.
    "chunk": case(lambda a, x: a.chunk(2, -1)[0] * a.chunk(2, -1)[1], A, cut="a0 a1 a2"),
    "split": case(lambda a, x: a.split([4, 2, 2], 2)[0].sin(), A, cut=ALL),
    "equal split": case(lambda a, x: a.split(4, 2)[1].sin(), A, cut=ALL),
    "gated": case(
        lambda a, b, x: F.linear(F.linear(x, a).chunk(2, -1)[0].sigmoid() * x[..., :4], b),
        (8, 6),
        (5, 4),
        x=(3, 6),
        cut="a0 a1 b1",
    ),
    "queries, keys and values": case(
        lambda a, x: sum(F.linear(x, a).view(2, 5, 3, 4, 2).unbind(2)),
        (24, 6),
        x=(2, 5, 6),
        cut="a0 a1",
    ),
    "unbind": case(lambda a, x: a.unbind(0)[1] + a.unbind(0)[3], A, cut="a1 a2"),
    "select": case(lambda a, x: a.select(1, -2), A, cut="a0 a2"),
    "slices": case(lambda a, x: a[:, None, ..., 4:].cos(), A, cut="a0 a1 a2"),
    "slices of parts": case(lambda a, x: a[..., :2] + a[..., 2:4], A, cut=ALL),
    "steps": case(lambda a, x: a[:, ::2], A, cut="a0 a2"),
    "narrow": case(lambda a, x: a.narrow(2, 4, 4), A, cut=ALL),
    "cat": case(lambda a, b, x: torch.cat([a, b.relu()], 1), A, (4, 2, 8), cut=f"{ALL} b0 b1 b2"),
    "cat of parts": case(
        lambda a, b, x: torch.cat([x @ a, x @ b], -1), (6, 8), (6, 4), x=(3, 6), cut="a0 a1 b0 b1"
    ),
    "stack": case(lambda a, b, x: torch.stack([a, b], 1), A, A, cut=f"{ALL} b0 b1 b2"),
    # Reductions, softmax and norms.
    "sum": case(lambda a, x: a.sum((0, 2)), A, cut=ALL),
    "sum of all": case(lambda a, x: a.sum().reshape(1), A, cut=ALL),
    "mean": case(lambda a, x: a.mean(-1, keepdim=True), A, cut=ALL),
    "max": case(lambda a, x: a.amax(1), A, cut="a0 a2"),
    "deviation": case(lambda a, x: a.std(2), A, cut="a0 a1"),
    "root mean square": case(
        lambda a, x: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-3), A, cut=ALL
    ),
    "softmax": case(lambda a, x: a.softmax(1), A, cut="a0 a2"),
    "log_softmax": case(lambda a, x: F.log_softmax(a, dim=-1), A, cut="a0 a1"),
    "cumsum": case(lambda a, x: a.cumsum(1), A, cut="a0 a2"),
    "layer_norm": case(lambda a, b, x: F.layer_norm(a, (8,), b), A, (8,), cut="a0 a1"),
    "rms_norm": case(lambda a, b, x: F.rms_norm(a, (8,), b), A, (8,), cut="a0 a1"),
    # Attention.
    "attention": case(
        lambda a, b, x: F.scaled_dot_product_attention(a, b, b, is_causal=True),
        (2, 4, 3, 8),
        (2, 4, 3, 8),
        cut="a0 a1 b0 b1",
    ),
    "grouped attention": case(
        lambda a, b, x: F.scaled_dot_product_attention(a, b, b, x, enable_gqa=True),
        (2, 8, 3, 4),
        (2, 2, 3, 4),
        x=(3, 3),
        cut="a0 a1 b0 b1",
    ),
    "attention with bias": case(
        lambda a, b, x: F.scaled_dot_product_attention(x, x, x, a[None]),
        (4, 3, 3),
        (1,),
        x=(2, 4, 3, 8),
        cut="a0",
    ),
    # Lookups, convolutions, losses.
    "embedding": case(
        lambda a, x: F.embedding(torch.tensor([[0, 5], [7, 2]]), a), (8, 6), cut="a0 a1"
    ),
    "embedding with padding": case(
        lambda a, x: F.embedding(torch.tensor([0, 5, 5, 2]), a, padding_idx=5), (8, 6), cut="a0 a1"
    ),
    "tied": case(
        lambda a, x: F.linear(F.embedding(torch.tensor([0, 5, 7]), a), a), (8, 6), cut="a0 a1"
    ),
    "conv1d": case(lambda a, b, x: F.conv1d(x, a, b), (6, 4, 3), (6,), x=(2, 4, 9), cut="a0 a1 b0"),
    "conv2d": case(
        lambda a, b, x: F.conv2d(x, a, b, padding=1),
        (6, 4, 3, 3),
        (6,),
        x=(2, 4, 5, 5),
        cut="a0 a1 b0",
    ),
    "two convolutions": case(
        lambda a, b, x: F.conv2d(F.conv2d(x, a).relu(), b),
        (6, 4, 1, 1),
        (2, 6, 1, 1),
        x=(2, 4, 5, 5),
        cut="a0 a1 b0 b1",
    ),
    "depthwise": case(
        lambda a, b, x: F.conv2d(x, a, b, groups=4), (4, 1, 3, 3), (4,), x=(2, 4, 5, 5), cut="a0 b0"
    ),
    "cross entropy": case(loss("mean"), (8, 4), x=(6, 4), cut="a0 a1"),
    "cross entropy of each": case(loss("none"), (8, 4), x=(6, 4), cut="a0 a1"),
    "cross entropy that ignores": case(loss("sum", 7), (8, 4), x=(6, 4), cut="a0 a1"),
}


class Function_(nn.Module):
    """A case as a module."""

    def __init__(self, own: Case) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.function = own.function
        self.names = "abcd"[: len(own.shapes)]
        for name, shape in zip(self.names, own.shapes, strict=True):
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, x):
        return self.function(*(getattr(self, name) for name in self.names), x)


def differences(rank: int, name: str) -> dict[str, float]:
    """The difference of result and gradients for each weight and dimension that can be cut, or -1 if none is cut."""
    import torch.distributed as dist

    from corsac.distributed import ParallelError, parallelize

    del rank
    own = CASES[name]
    size = dist.get_world_size()
    found: dict[str, float] = {}
    for weight, shape in zip("abcd", own.shapes, strict=False):
        for dim, length in enumerate(shape):
            if length % size:
                continue
            model = Function_(own)
            x = torch.randn(own.x)
            try:
                part = parallelize(
                    model, x, mesh=dist.group.WORLD, shard={weight: dim}, uneven="replicate"
                )
            except ParallelError:
                continue
            assert part.plan.shards[weight][0] == dim
            found[f"{weight}{dim}"] = _difference(part, model, x)
    return found


def _difference(part: Any, model: nn.Module, x: torch.Tensor) -> float:
    ours, theirs = part(x), model(x)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    worst = (ours - theirs).abs().max().item()
    scales = torch.arange(1, theirs.numel() + 1).reshape(theirs.shape) / theirs.numel()
    (ours * scales).sum().backward()
    (theirs * scales).sum().backward()
    known = dict(model.named_parameters())
    for key, parameter in part.named_parameters():
        assert (parameter.grad is None) == (known[key].grad is None), key
        if parameter.grad is not None:
            whole = part.whole(key, parameter.grad)
            worst = max(worst, (whole - known[key].grad).abs().max().item())
    return worst


class Random(nn.Module):
    """A program of random calls, of weights and an input of the sizes 2, 4 and 8."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(shape) / 2)
            for shape in [(8, 8), (16, 8), (8, 16), (24, 8), (8,), (4, 8), (2, 4, 8), (16,), (4, 1)]
        )
        self.steps = [self._step() for _ in range(self.random.randint(6, 18))]

    def _step(self) -> tuple[str, float, float, int]:
        kinds = [
            "linear", "wide", "narrow", "three", "add", "mul", "weight", "relu", "transpose", "heads",
            "chunk", "cat", "softmax", "mean", "sum", "norm", "product", "slice", "attention",
            "permute", "repeat", "stack", "where", "scale", "expand",
        ]  # fmt: skip
        pick = self.random
        return pick.choice(kinds), pick.random(), pick.random(), pick.randrange(3)

    def forward(self, x):
        square, up, down, triple, vector, rows, same, wide, column = self.weights
        values = [x, same + 0, F.linear(x, square)]
        for kind, first, second, dim in self.steps:
            a = values[int(first * len(values))]
            b = values[int(second * len(values))]
            if kind == "linear":
                a = F.linear(a, square, vector)
            elif kind == "wide":
                a = F.linear(F.linear(a, up, wide).sigmoid(), down)
            elif kind == "narrow":
                a = (a @ up.t()).view(2, 4, 2, 8).mean(2)
            elif kind == "three":
                q, k, v = F.linear(a, triple).view(2, 4, 3, 8).unbind(2)
                a = q * k.tanh() + v
            elif kind == "add":
                a = a + b
            elif kind == "mul":
                a = a * b.tanh()
            elif kind == "weight":
                a = a + (vector, rows, same, column)[int(second * 4)]
            elif kind == "relu":
                a = F.gelu(a)
            elif kind == "transpose":
                a = (a.mT.softmax(-1) @ a).transpose(0, 1)[:4].transpose(0, 1) + a
            elif kind == "heads":
                heads = a.view(2, 4, 4, 2).transpose(1, 2)
                a = heads.exp().clamp(max=2.0).transpose(1, 2).reshape(2, 4, 8)
            elif kind == "chunk":
                one, two = a.chunk(2, -1)
                a = torch.cat([two.sigmoid() * one, one], -1)
            elif kind == "cat":
                a = torch.cat([a[..., :4], b[..., 4:]], -1)
            elif kind == "softmax":
                a = a.softmax(dim)
            elif kind == "mean":
                a = a * torch.rsqrt(a.pow(2).mean(dim, keepdim=True) + 0.1)
            elif kind == "sum":
                a = a + b.sum(dim, keepdim=True) / 8
            elif kind == "norm":
                a = F.layer_norm(a, (8,), vector)
            elif kind == "product":
                a = (a @ b.transpose(-1, -2)).softmax(-1) @ b
            elif kind == "slice":
                a = torch.cat([a.narrow(dim, 0, 1), a], dim).narrow(dim, 1, a.size(dim))
            elif kind == "attention":
                q, k, v = F.linear(a, triple).split(8, -1)
                q, k, v = (own.view(2, 4, 4, 2).transpose(1, 2) for own in (q, k, v))
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=dim == 1)
                a = F.linear(mixed.transpose(1, 2).reshape(2, 4, -1), square) + b
            elif kind == "permute":
                a = a.permute(2, 0, 1).flatten(1).t().reshape(2, 4, 8)
            elif kind == "repeat":
                a = a.repeat_interleave(2, dim=1).view(2, 4, 2, 8).sum(2)
            elif kind == "stack":
                a = torch.stack([a, b], dim).sum(dim)
            elif kind == "where":
                a = torch.where(a > b, a, vector)
            elif kind == "scale":
                a = 2 - a / 3
            else:
                a = (a.sum(1, keepdim=True) / 8).expand(-1, 4, -1) + a
            values.append(a)
        return values[-1], values[-2] + values[-3]


def random_programs(
    rank: int, first: int, last: int, options: dict[str, Any]
) -> tuple[float, int, int]:
    """The largest difference for random programs, the numbers of those of which something is cut, and of those with sums of
    which each rank has a part."""
    import torch.distributed as dist

    from corsac.distributed import collectives, parallelize

    del rank
    worst, cut, scattered = 0.0, 0, 0
    for seed in range(first, last):
        model = Random(seed)
        x = torch.randn(2, 4, 8)
        own = parallelize(model, x, mesh=dist.group.WORLD, uneven="replicate", **options)
        cut += bool(own.plan.shards)
        scattered += any(node.target is collectives.reduce_scatter for node in own.graph.nodes)
        given = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        ours, theirs = own(given[0]), model(given[1])
        for one in (ours, theirs):
            (one[0].sin().mean() + one[1].cos().sum()).backward()
        known = dict(model.named_parameters())
        pairs = [*zip(ours, theirs, strict=True), (given[0].grad, given[1].grad)]
        for key, parameter in own.named_parameters():
            grad = known[key].grad
            assert (parameter.grad is None) == (grad is None), (seed, key)
            if grad is not None:
                pairs.append((own.whole(key, parameter.grad), grad))
        for one, other in pairs:
            if other is not None:
                scale = max(1.0, other.abs().max().item())
                difference = (one - other).abs().max().item() / scale
                assert difference <= 1e-4, (seed, difference)
                worst = max(worst, difference)
    return worst, cut, scattered
