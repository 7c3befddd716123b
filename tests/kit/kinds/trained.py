"""Modules that are compiled themselves, and the effects of training on them."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B905

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.kinds.driver import program, t
from kit.kinds.modules import state_of


def module_program(name, forward, *shapes, **submodules):
    """Register a program that is a module with these submodules and this ``forward``."""

    @program(name)
    def _():
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                for key, make in submodules.items():
                    setattr(self, key, make())

            def forward(self, x):
                return forward(self, x)

        m = M()
        return m, [(t(*shape),) for shape in shapes], state_of(m)


_S = (4, 6)


def _linear():
    return nn.Linear(6, 6)


for _name, _kind in (("a GRU", nn.GRU), ("an LSTM", nn.LSTM)):
    module_program(
        f"{_name} with dropout between its layers",
        lambda m, x: m.rnn(x[None])[0],
        _S,
        _S,
        _S,
        rnn=functools.partial(_kind, 6, 3, 2, dropout=0.5),
    )
module_program(
    "a GRU whose batches come first",
    lambda m, x: m.rnn(x[None])[0],
    _S,
    _S,
    _S,
    rnn=lambda: nn.GRU(6, 3, batch_first=True),
)
module_program(
    "attention with dropout",
    lambda m, x: m.att(x, x, x),
    _S,
    _S,
    (3, 6),
    att=lambda: nn.MultiheadAttention(6, 2, dropout=0.5),
)
module_program(
    "batch norm on one way of two, for other sizes",
    lambda m, x: m.bn(m.lin(x)) if x.sum() > 0 else m.lin(x) * 2,
    _S, _S, (3, 6), _S, (3, 6), (2, 6),
    lin=_linear, bn=lambda: nn.BatchNorm1d(6),
)  # fmt: skip
module_program(
    "dropout that decides",
    lambda m, x: m.drop(x) if m.drop(x).sum() > 0 else m.lin(x) * 2,
    _S, _S, _S, _S,
    lin=_linear, drop=lambda: nn.Dropout(0.5),
)  # fmt: skip
module_program(
    "dropout of nothing and of everything",
    lambda m, x: (F.dropout(x, 0.0), F.dropout(x, 1.0), F.dropout(x, 0.3, False)),
    _S,
    _S,
    _S,
)
module_program("a module in autocast", lambda m, x: in_autocast(m, x), _S, _S, (3, 6), lin=_linear)
module_program(
    "a checkpoint with dropout in a module",
    lambda m, x: checkpoint(m.part, x, use_reentrant=False),
    _S, _S, _S,
    part=lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.ReLU()),
)  # fmt: skip
module_program(
    "experts that are mixed",
    lambda m, x: sum(
        e(x) * g[:, None] for e, g in zip(m.experts, m.gate(x).softmax(-1).unbind(-1))
    ),
    _S,
    _S,
    (3, 6),
    experts=lambda: nn.ModuleList([_linear(), _linear()]),
    gate=lambda: nn.Linear(6, 2),
)
module_program(
    "experts that are chosen by values",
    lambda m, x: routed(m, x),
    _S,
    _S,
    (3, 6),
    experts=lambda: nn.ModuleList([_linear(), _linear()]),
    gate=lambda: nn.Linear(6, 2),
)
module_program(
    "a teacher that follows by moving averages",
    lambda m, x: followed(m, x),
    _S,
    _S,
    (3, 6),
    lin=_linear,
    teacher=_linear,
)
module_program(
    "weights that are clamped in each call", lambda m, x: clamped(m, x), _S, _S, (3, 6), lin=_linear
)
module_program(
    "parameters among the results",
    lambda m, x: (m.lin(x), m.lin.weight, m.lin.weight.t(), m.lin.bias[:2]),
    _S,
    _S,
    (3, 6),
    lin=_linear,
)
module_program(
    "a frozen teacher",
    lambda m, x: m.lin(x) + m.teacher(x),
    _S,
    _S,
    (3, 6),
    lin=_linear,
    teacher=lambda: _linear().requires_grad_(False),
)
module_program(
    "rounding with gradients that pass straight through",
    lambda m, x: m.lin(x) + (m.lin(x).round() - m.lin(x)).detach(),
    _S,
    _S,
    (3, 6),
    lin=_linear,
)
module_program(
    "the nearest entries of a code book",
    lambda m, x: m.book(torch.cdist(x, m.book.weight).argmin(-1)) - x,
    _S,
    _S,
    (3, 6),
    book=lambda: nn.Embedding(4, 6),
)
module_program(
    "a hook on what a layer gives", lambda m, x: hooked_result(m, x), _S, _S, (3, 6), lin=_linear
)
module_program(
    "activations in place after a layer",
    lambda m, x: m.lin(x).relu_().mul_(2),
    _S,
    _S,
    (3, 6),
    lin=_linear,
)
module_program(
    "embeddings with a largest norm",
    lambda m, x: m.emb((x > 0).long()),
    _S,
    _S,
    (3, 6),
    emb=lambda: nn.Embedding(5, 3, max_norm=1.0, scale_grad_by_freq=True),
)
module_program(
    "batch norm that is used twice",
    lambda m, x: m.bn(m.bn(m.lin(x))),
    _S,
    _S,
    (3, 6),
    lin=_linear,
    bn=lambda: nn.BatchNorm1d(6, momentum=None),
)
module_program(
    "derivatives of a module by torch.func in it",
    lambda m, x: (torch.func.grad(lambda v: m.lin(v).sum())(x), torch.vmap(m.lin)(x)),
    _S,
    _S,
    (3, 6),
    lin=_linear,
)
module_program(
    "orthogonal and spectral weights",
    lambda m, x: m.b(m.a(x)),
    _S,
    _S,
    (3, 6),
    a=lambda: nn.utils.parametrizations.orthogonal(_linear()),
    b=lambda: nn.utils.parametrizations.spectral_norm(_linear()),
)
module_program(
    "random numbers that are multiplied in as Python's",
    lambda m, x: m.lin(x) * torch.rand(1).item() + torch.rand(6),
    _S,
    _S,
    _S,
    lin=_linear,
)


def in_autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.lin(x)
        return y, y.float().sum(), F.mse_loss(y.float(), x), y * 2


def routed(m, x):
    chosen = m.gate(x).argmax(-1)
    out = torch.zeros_like(x)
    for k, expert in enumerate(m.experts):
        rows = (chosen == k).nonzero().flatten()
        if len(rows):
            out[rows] = expert(x[rows])
    return out


def followed(m, x):
    with torch.no_grad():
        for own, other in zip(m.lin.parameters(), m.teacher.parameters()):
            other.mul_(0.9).add_(own, alpha=0.1)
    return m.lin(x) - m.teacher(x).detach()


def clamped(m, x):
    with torch.no_grad():
        m.lin.weight.clamp_(-0.1, 0.1)
    return m.lin(x)


def hooked_result(m, x):
    y = m.lin(x)
    if y.requires_grad:
        y.register_hook(lambda g: g * 2)
    return y


@program("a random number that decides")
def _():
    return lambda x: x + torch.rand(4) if torch.rand(1) > 0.5 else x * 2, [(t(4),)] * 4


@program("one result of autocast after three operators")
def _():
    w = torch.ones(3, 3)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).sin() + 1

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]
