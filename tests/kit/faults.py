"""Jobs in which one of two ranks does something else than the other."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import nn

from kit.pipelines import Looked, loss_of, made

#: Seconds after which a rank gives up.
LIMIT = 20.0


class Dropping(nn.Module):
    """Two layers, and a dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.drop, self.down = nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(self.drop(self.up(x)))


def said(rank: int, job: str, *args: Any) -> tuple[str, float]:
    """The error of a job, as text, and its time in seconds."""
    from corsac.distributed import DistributedError

    torch.manual_seed(0)
    begin = time.monotonic()
    try:
        globals()[job](rank, *args)
    except (DistributedError, TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - begin
    return "", time.monotonic() - begin


def plans(rank: int, what: str) -> None:
    """Plans of two ranks that are not the same."""
    from corsac.distributed import collectives, parallelize, pipeline, plan_parallel

    x = torch.randn(8, 8)
    if what == "modes":
        parallelize(Dropping().train(rank == 0), x, timeout=LIMIT)
    elif what == "modes of stages":
        pipeline(Dropping().train(rank == 0), x, microbatches=4, timeout=LIMIT)
    elif what == "ranks":
        parallelize(plan_parallel(Dropping(), x, tp=4), x, timeout=LIMIT)
    else:
        correct = collectives.own_part
        if rank:
            collectives.own_part = lambda *args: correct(*args[:3], 0, args[4])
        try:
            parallelize(Dropping(), x, timeout=LIMIT)
        finally:
            collectives.own_part = correct


def passes(rank: int, what: str) -> None:
    """Calls and backward passes of a model whose weights are cut."""
    from corsac.distributed import parallelize

    model, inputs = made("perceptron", 4)
    x, is_other = inputs["x"], rank == 1
    own = parallelize(model, x, timeout=5 if what == "last backward" else LIMIT)
    losses = [own(x).square().sum() for _ in range(2)]
    if is_other and what == "dies":
        own.get_parameter("layers.1.weight").register_hook(lambda _: os._exit(3))
    if what == "order":
        losses[rank].backward()
    elif not (is_other and "backward" in what):
        losses[0].backward()
    elif what == "backward and weights":
        own.full_state_dict()
    elif what == "backward and norm":
        own.clip_grad_norm_(1.0)
    elif what == "last backward":
        return
    if is_other and what == "shapes":
        x = x[:3]
    elif is_other and what == "dtypes":
        x = x.double()
    if is_other and what == "raises":
        own.get_parameter("layers.1.weight").data = torch.zeros(3, 3)
    given = (x, x) if is_other and what == "arguments" else (x,)
    with torch.set_grad_enabled(not (is_other and what == "gradients")):
        own(*given).square().sum().backward()


def copies(rank: int, what: str) -> None:
    """Steps of a model of which each rank has a copy."""
    from corsac.distributed import ShardedOptimizer, data_parallel

    given = (torch.randn(4, 8), torch.randint(3, (4,)))
    own = data_parallel(Looked(), given, scatter=True, timeout=LIMIT)
    optimizer = ShardedOptimizer(own, torch.optim.SGD, lr=0.1)
    for step in range(2):
        skipped = what if rank and step == 0 else ""
        loss = loss_of(own(*given), None)
        if skipped != "backward":
            loss.backward()
        if skipped != "norm":
            optimizer.clip_grad_norm_(1.0)
        if skipped != "step":
            optimizer.step()


def stages(rank: int, what: str) -> None:
    """Steps of a model whose stages are on the ranks."""
    from corsac.distributed import pipeline

    x, words = torch.randn(8, 8), torch.randint(3, (8,))
    pipe = pipeline(Looked(), (x, words), microbatches=4, loss_fn=loss_of, timeout=LIMIT)
    if rank and what == "sizes":
        pipe.resize(torch.randn(12, 8), torch.randint(3, (12,)))
    if not (rank and what == "step"):
        pipe.step(x, words)
    run = pipe if rank and what in ("call", "step") else pipe.step
    run(x, words)
