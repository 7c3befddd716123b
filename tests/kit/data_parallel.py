"""Jobs that compare data parallelism with DistributedDataParallel, and with one process."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kit.parallel import _difference
from kit.pipelines import loss_of, made, tensors_of

#: Bytes of a bucket, so that small models have several.
BYTES = 1000


class Unusual(nn.Module):
    """Batch norm, dropout, a weight in the order of channels, and parameters that are tied, frozen, unused, or added to
    the result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 8)
        self.down.weight = nn.Parameter(torch.randn(8, 4).t().contiguous().t())
        self.down.in_features = 4
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = nn.Parameter(torch.randn(8, 8))
        self.again = nn.Linear(8, 8, bias=False)
        self.again.weight = self.tied.weight
        self.frozen = nn.Parameter(torch.randn(8), requires_grad=False)
        self.unused, self.added = nn.Parameter(torch.randn(3)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        y = nn.functional.dropout(self.norm(self.conv(x)).relu().mean((2, 3)), 0.25)
        y = (self.up(y) + self.down(y)) * self.frozen
        return self.again(self.tied(y).tanh()) + self.added


def _images(batch: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 3, 8, 8)}


def _made(name: str, batch: int) -> tuple[nn.Module, Callable[[int], dict[str, Any]]]:
    """A model, and what makes its inputs for a batch."""
    if name == "unusual":
        torch.manual_seed(0)
        return Unusual(), _images
    return made(name, batch)[0], lambda size: made(name, size, seed=int(torch.randint(99, ())))[1]


def compare(
    rank: int, name: str, dtype: torch.dtype = torch.float32, autocast: bool = False
) -> dict[str, float]:
    """Differences from DistributedDataParallel: of results, gradients, weights and buffers in four steps of AdamW, with
    weights that differ at the start, accumulated gradients, and batches of other sizes on each rank."""
    from corsac.distributed import data_parallel

    (model, inputs), (reference, _) = _made(name, 4), _made(name, 4)
    model, reference = model.to(dtype), reference.to(dtype)
    if rank:
        with torch.no_grad():
            for own in (*model.parameters(), *reference.parameters()):
                own.add_(1)

    def of_type(given: dict[str, Any]) -> dict[str, Any]:
        return {
            key: own.to(dtype) if isinstance(own, torch.Tensor) and own.is_floating_point() else own
            for key, own in given.items()
        }

    own = data_parallel(model, (), of_type(inputs(4)), bucket_bytes=BYTES, timeout=60)
    ddp = DistributedDataParallel(reference, find_unused_parameters=True)
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-2) for one in (own, ddp)]
    known = dict(reference.named_parameters(remove_duplicate=False))
    found = {"result": 0.0, "gradient": 0.0, "trained": 0.0, "buckets": len(own.buckets)}
    for step in range(4):
        for at in range(3 if step % 2 else 1):
            torch.manual_seed(100 * step + 10 * at + rank)
            given = of_type(inputs(4 if step < 3 else 3 + rank))
            results = []
            for one in (own, ddp):
                torch.manual_seed(step + rank)
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    if at < 2 and step % 2:
                        with one.no_sync():
                            results.append(one(**given))
                            loss_of(results[-1], None).backward()
                    else:
                        results.append(one(**given))
                        loss_of(results[-1], None).backward()
            for ours, theirs in zip(*map(tensors_of, results), strict=True):
                assert ours.dtype == theirs.dtype
                found["result"] = max(found["result"], _difference(ours, theirs))
            for key, parameter in own.named_parameters():
                expected = known[key].grad
                assert (parameter.grad is None) == (expected is None), key
                if expected is not None:
                    assert parameter.grad.stride() == expected.stride() or at, key
                    worst = _difference(parameter.grad, expected)
                    found["gradient"] = max(found["gradient"], worst)
                    found["trained"] = max(found["trained"], expected.abs().max().item())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=step != 1)
    buffers = dict(reference.named_buffers())
    found["weights"] = max(_difference(o, known[key]) for key, o in own.named_parameters())
    pairs = [(o, buffers[key]) for key, o in own.named_buffers() if key in buffers]
    found["buffers"] = max((_difference(*pair) for pair in pairs), default=0.0)
    return found


class Looked(nn.Module):
    """A table, whose rows may be missing, and layers."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))

    def forward(self, words):
        x = self.table(words)
        for layer in self.layers:
            x = layer(x).tanh()
        return x


class Recurrent(nn.Module):
    """A recurrent layer, a checkpoint, and an input that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x, y):
        x.add_(1)
        found, _ = self.layer(x + y)
        return torch.utils.checkpoint.checkpoint(self.out, found.tanh(), use_reentrant=False)


def unusual_uses(rank: int) -> dict[str, float]:
    """Differences from one process: two calls for one loss, a graph that is used twice, a gradient of an input, calls
    without gradients, a loss in the graph."""
    from corsac.distributed import data_parallel

    torch.manual_seed(0)
    model, reference = Looked(), Looked()
    reference.load_state_dict(model.state_dict())
    words = torch.randint(5, (8, 3))
    mine, half = words[4 * rank : 4 * rank + 4], words[4 * rank : 4 * rank + 2]
    own = data_parallel(model, words[:4], bucket_bytes=BYTES, timeout=60)

    def gradients(loss: torch.Tensor, module: nn.Module, times: int = 1) -> list[torch.Tensor]:
        module.zero_grad()
        for at in range(times):
            loss.backward(retain_graph=at + 1 < times)
        return [one.grad for _, one in sorted(module.named_parameters())]

    def worst(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
        return max(_difference(*pair) for pair in zip(ours, theirs, strict=True))

    found = {}
    twice = own(mine).sin().mean() + own(half).cos().mean()
    parts = torch.cat([words[:2], words[4:6]])
    wanted = reference(words).sin().mean() + reference(parts).cos().mean()
    found["two calls"] = worst(gradients(twice, own), gradients(wanted, reference))
    found["used twice"] = worst(
        gradients(own(mine).sin().mean(), own, 2),
        gradients(reference(words).sin().mean(), reference, 2),
    )
    with torch.no_grad():
        result = own(words[: 1 + rank])
    assert not result.requires_grad
    found["without gradients"] = _difference(result, reference(words[: 1 + rank]))

    layers, whole = (
        nn.Sequential(nn.Linear(6, 4), nn.Tanh()),
        nn.Sequential(nn.Linear(6, 4), nn.Tanh()),
    )
    whole.load_state_dict(layers.state_dict())
    x, y = torch.randn(8, 6), torch.randn(8, 4)
    ours = x[4 * rank : 4 * rank + 4].clone().requires_grad_()
    part = y[4 * rank : 4 * rank + 4]
    trained = data_parallel(layers, (ours, part), loss_fn=nn.functional.mse_loss, timeout=60)
    x.requires_grad_()
    wanted = nn.functional.mse_loss(whole(x), y)
    found["loss in graph"] = worst(
        gradients(trained(ours, part), trained), gradients(wanted, whole)
    )
    wanted_x = x.grad
    sequences, repeated = Recurrent(), Recurrent()
    repeated.load_state_dict(sequences.state_dict())
    x, y = torch.randn(2, 8, 3, 4)
    part, ours_y = x[4 * rank : 4 * rank + 4].clone(), y[4 * rank : 4 * rank + 4]
    recurrent = data_parallel(sequences, (part, ours_y), timeout=60)
    found["recurrent"] = worst(
        gradients(loss_of(recurrent(part, ours_y), None), recurrent),
        gradients(loss_of(repeated(x, y), None), repeated),
    )
    found["written"] = _difference(part, x[4 * rank : 4 * rank + 4])
    # Gradients of inputs are of the loss of this rank.
    found["input"] = _difference(ours.grad, 2 * wanted_x[4 * rank : 4 * rank + 4])
    return found


def sharded_states(rank: int) -> dict[str, float]:
    """The difference of weights from DistributedDataParallel after three steps of AdamW of which each rank has a part of
    the state, and the share of the state that this rank has."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    from corsac.distributed import data_parallel

    (model, inputs), (reference, _) = _made("perceptron", 4), _made("perceptron", 4)
    own = data_parallel(model, (), inputs(4), bucket_bytes=BYTES, timeout=60)
    ddp = DistributedDataParallel(reference)
    adam = torch.optim.AdamW
    sharded = ZeroRedundancyOptimizer(own.parameters(), adam, process_group=own.group, lr=1e-2)
    optimizers = [sharded, adam(ddp.parameters(), lr=1e-2)]
    for step in range(3):
        torch.manual_seed(10 * step + rank)
        given = inputs(4)
        for one, optimizer in zip((own, ddp), optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(one(**given), None).backward()
            optimizer.step()
    known = dict(reference.named_parameters())
    states = [
        sum(one["exp_avg"].numel() for one in o.state.values())
        for o in (sharded.optim, optimizers[1])
    ]
    return {
        "weights": max(_difference(one, known[key]) for key, one in own.named_parameters()),
        "share": states[0] / states[1],
    }


def scattered(rank: int, name: str, kind: str) -> dict[str, float]:
    """Differences from DistributedDataParallel of weights, norms of gradients and buffers after five steps of an optimizer
    of which each rank has a part, with accumulated gradients; and the share of the state that this rank has."""
    from corsac.distributed import ShardedOptimizer, data_parallel

    (model, inputs), (reference, _) = _made(name, 4), _made(name, 4)
    own = data_parallel(model, (), inputs(4), bucket_bytes=BYTES, scatter=True, timeout=60)
    ddp = DistributedDataParallel(reference, find_unused_parameters=True)
    cls, options = getattr(torch.optim, kind), {"lr": 1e-2, "weight_decay": 0.1}
    sharded = ShardedOptimizer(own, cls, **options)
    whole = cls(ddp.parameters(), **options)
    slower = [
        torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (sharded.optimizer, whole)
    ]
    found = {"norm": 0.0}
    for step in range(5):
        for at in range(3 if step % 2 else 1):
            for one in (own, ddp):
                torch.manual_seed(100 * step + 10 * at + rank)
                given = inputs(4)
                # Of three calls the first adds up before, the last two after the collective.
                with one.no_sync() if step % 2 and at == 0 else contextlib.nullcontext():
                    loss_of(one(**given), None).backward()
        assert step % 2 or all(one.grad is None for one in own.parameters())
        norms = [
            sharded.clip_grad_norm_(0.1),
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1),
        ]
        found["norm"] = max(found["norm"], abs(float(norms[0] / norms[1]) - 1))
        for optimizer in (sharded, whole, *slower):
            optimizer.step()
        for optimizer in (sharded, whole):
            optimizer.zero_grad()
    known, buffers = dict(reference.named_parameters()), dict(reference.named_buffers())
    found["weights"] = max(_difference(o, known[key]) for key, o in own.named_parameters())
    pairs = [(o, buffers[key]) for key, o in own.named_buffers() if key in buffers]
    found["buffers"] = max((_difference(*pair) for pair in pairs), default=0.0)
    key = "exp_avg" if kind == "AdamW" else "square_avg"
    counts = [sum(one[key].numel() for one in o.state.values()) for o in (sharded.optimizer, whole)]
    return found | {"share": counts[0] / counts[1]}


def scattered_parts(rank: int) -> dict[str, float]:
    """Differences from the whole model, whose batch the copies share, of a model whose weights are cut in one dimension of
    a mesh, and whose gradients are scattered in the other."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import ShardedOptimizer, parallelize

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    (model, _), (reference, _) = made("perceptron", 4), made("perceptron", 4)
    own = parallelize(model, torch.ones(2, 16), mesh=mesh, bucket_bytes=BYTES, scatter=True)
    sharded = ShardedOptimizer(own, torch.optim.AdamW, lr=1e-2)
    whole = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    found = {"norm": 0.0}
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(4, 16)
        loss_of(own(x.chunk(2)[mesh.get_local_rank("dp")]), None).backward()
        loss_of(reference(x), None).backward()
        norms = [
            sharded.clip_grad_norm_(0.1),
            torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1),
        ]
        found["norm"] = max(found["norm"], abs(float(norms[0] / norms[1]) - 1))
        for optimizer in (sharded, whole):
            optimizer.step()
            optimizer.zero_grad()
    state = own.full_state_dict()
    found["weights"] = max(_difference(state[key], o) for key, o in reference.named_parameters())
    return found


def scattered_wrongly(rank: int, what: str) -> str:
    """What it says if scattered gradients are not used as they have to be."""
    from corsac.distributed import ShardedOptimizer, data_parallel

    model, inputs = _made("perceptron", 4)
    scatter = (what == "options" and rank == 1) or what in ("no optimizer", "kept", "outside")
    made_ = lambda: data_parallel(model, (), inputs(4), scatter=scatter, timeout=30)  # noqa: E731
    if what == "options":
        return _raised(made_)
    own = made_()
    if what == "not scattered":
        return _raised(lambda: ShardedOptimizer(own, torch.optim.SGD, lr=0.1))
    if what != "no optimizer":
        optimizer = ShardedOptimizer(own, torch.optim.SGD, lr=0.1)
    loss = loss_of(own(**inputs(4)), None)
    if what == "no optimizer":
        return _raised(loss.backward)
    loss.backward()
    if what == "kept":
        with own.no_sync():
            loss_of(own(**inputs(4)), None).backward()
    else:
        next(own.parameters()).sum().backward()
    return _raised(optimizer.step)


def from_file(rank: int, path: str) -> float:
    """The difference of weights from those of a file, of a model on ``meta``."""
    from safetensors.torch import load_file

    from corsac.distributed import data_parallel

    del rank
    with torch.device("meta"):
        model = Looked()
    own = data_parallel(model, torch.zeros(4, 3, dtype=torch.long), weights=path, timeout=60)
    loss_of(own(torch.ones(4, 3, dtype=torch.long)), None).backward()
    assert all(one.grad is not None for one in own.parameters())
    known, found = load_file(path), own.full_state_dict()
    assert found.keys() == known.keys()
    return max(_difference(one, known[key]) for key, one in found.items())


def overlapped(rank: int) -> list[str]:
    """The operators of a backward pass, in order. The first rank takes part in no collective before the second one
    waits for it, so that what the second one runs before is run while it communicates."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from corsac.distributed import data_parallel

    torch.manual_seed(0)
    own = data_parallel(
        Looked(), torch.zeros(4, 3, dtype=torch.long), bucket_bytes=BYTES, timeout=60
    )
    store = dist.distributed_c10d._get_default_store()
    events: list[str] = []

    class Events(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func._schema.name
            if (
                "all_reduce" in name
                and rank == 0
                and not any("all_reduce" in own for own in events)
            ):
                store.wait(["the second rank waits"])
            if "wait_tensor" in name and rank == 1:
                store.set("the second rank waits", "")
            events.append(name)
            return func(*args, **(kwargs or {}))

    loss = loss_of(own(torch.randint(5, (4, 3))), None)
    with Events():
        loss.backward()
    return events


def message(rank: int, what: str) -> tuple[str, float]:
    """The error of a planted fault, as text, and its time in seconds."""
    from corsac.distributed import DistributedError, data_parallel

    torch.manual_seed(0)
    words = torch.randint(5, (4, 3))
    begin = time.monotonic()
    try:
        model = Looked(3 + rank if what == "models" else 3)
        if what == "nothing":
            model.requires_grad_(False)
        if what == "one cannot" and rank:
            words = words.float()
        seconds = 2 if what in ("skips", "loss") else 30
        size = BYTES if what != "buckets" else BYTES * (1 + rank)
        own = data_parallel(model, words, bucket_bytes=size, timeout=seconds)
        loss_of(own(words), None).backward()
        begin = time.monotonic()
        if what == "sizes":
            perceptron, given = made("perceptron", 4)
            own = data_parallel(perceptron, given["x"], bucket_bytes=BYTES, timeout=seconds)
            own(given["x"][:, 1:])
        elif what == "arguments":
            own(words, 3)
        elif what == "frozen":
            own.table.weight.requires_grad_(False)
            own(words)
        elif what == "forward" and rank:
            words[0] = 9
        loss = loss_of(own(words), None)
        if what == "dies" and rank:
            os._exit(3)
        if what == "loss" and rank:
            raise ValueError("a loss that fails")
        if what == "second":
            torch.autograd.grad(loss, own.parameters(), create_graph=True)[0].sum().backward()
        if not (what == "skips" and rank):
            loss.backward()
    except (DistributedError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - begin
    return "", 0.0


def of_parts(rank: int, name: str, options: dict[str, Any]) -> dict[str, float]:
    """Differences from one process on four ranks: two replicas, of which each has two parts."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import data_parallel, parallelize

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    replica = mesh["dp"].get_local_rank()
    (model, inputs), (reference, whole) = made(name, 2), made(name, 4)
    if name == "gpt2":
        own = parallelize(model, (), inputs, mesh=mesh, bucket_bytes=BYTES, **options)
        parts = own.module
    else:
        parts = parallelize(model, (), inputs, mesh=mesh["tp"], **options)
        own = data_parallel(parts, mesh=mesh["dp"], bucket_bytes=BYTES)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (own, reference)]
    known = dict(reference.named_parameters(remove_duplicate=False))
    found = {"loss": 0.0, "gradient": 0.0, "norm": 0.0, "buckets": len(own.buckets)}
    for _ in range(2):
        mine = {
            key: one[2 * replica : 2 * replica + 2] if isinstance(one, torch.Tensor) else one
            for key, one in whole.items()
        }
        losses = [loss_of(own(**mine), None), loss_of(reference(**whole), None)]
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
        mean = losses[0].detach().clone()
        dist.all_reduce(mean, group=own.group)
        found["loss"] = max(found["loss"], _difference(mean / 2, losses[1]))
        for key, parameter in own.named_parameters():
            expected = known[key].grad
            assert (parameter.grad is None) == (expected is None), key
            if expected is not None:
                worst = _difference(parts.whole(key, parameter.grad), expected)
                found["gradient"] = max(found["gradient"], worst)
        norms = parts.clip_grad_norm_(0.5), nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        found["norm"] = max(found["norm"], _difference(*norms))
        for optimizer in optimizers:
            optimizer.step()
    state = own.full_state_dict()
    found["weights"] = max(
        _difference(state[key], one) for key, one in known.items() if key in state
    )
    return found


def dropped_parts(rank: int) -> list[float]:
    """Means of what a model with dropout keeps inside, on four ranks: two replicas, of which each has two parts."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import data_parallel, parallelize
    from kit.parallel import Dropped

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = Dropped()
    torch.manual_seed(10 + rank)
    parts = parallelize(model, torch.randn(32, 16), mesh=mesh["tp"])
    own = data_parallel(parts, mesh=mesh["dp"])
    result, inside = own(torch.zeros(32, 16))
    before = torch.get_rng_state()
    result.sum().backward()
    assert torch.equal(before, torch.get_rng_state())
    return inside.tolist()


def of_stages(rank: int, name: str, schedule: str, stages: int) -> dict[str, Any]:
    """Differences from one process on four ranks: two replicas of a pipeline on two ranks, in two steps, and the order
    in which gradients exist and collectives start in the second one."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import pipeline
    from corsac.distributed._replicas import Replicas

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    replica = mesh["dp"].get_local_rank()
    (model, inputs), (reference, whole) = made(name, 8), made(name, 16)
    if replica:
        with torch.no_grad():
            for own in model.parameters():
                own.mul_(2)
    pipe = pipeline(
        model,
        (),
        inputs,
        stages=stages,
        schedule=schedule,
        microbatches=4,
        loss_fn=loss_of,
        group=mesh["pp"],
        replicas=mesh["dp"],
        bucket_bytes=BYTES,
    )
    events: list[str] = []
    counted, start = Replicas._counted, Replicas._start

    def logged_count(self: Replicas, key: str) -> None:
        events.append("gradient")
        counted(self, key)

    def logged_start(self: Replicas, bucket: Any) -> None:
        events.append("start")
        start(self, bucket)

    Replicas._counted, Replicas._start = logged_count, logged_start
    mine = {
        key: one[8 * replica : 8 * replica + 8] if isinstance(one, torch.Tensor) else one
        for key, one in whole.items()
    }
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (pipe, reference)]
    known = dict(reference.named_parameters(remove_duplicate=False))
    found: dict[str, Any] = {"gradient": 0.0, "weight": 0.0, "parameters": 0}
    try:
        for _ in range(2):
            for optimizer in optimizers:
                optimizer.zero_grad()
            events.clear()
            pipe.step(**mine)
            loss_of(reference(**whole), None).backward()
            for key, own in pipe.named_parameters():
                if known[key].grad is not None:
                    worst = _difference(own.grad, known[key].grad)
                    found["gradient"] = max(found["gradient"], worst)
                    found["parameters"] += 1
            for optimizer in optimizers:
                optimizer.step()
    finally:
        Replicas._counted, Replicas._start = counted, start
    for key, own in pipe.named_parameters():
        found["weight"] = max(found["weight"], _difference(own, known[key]))
    return found | {"events": events, "buckets": len(pipe.replicas.buckets)}


def batches_of_replicas(rank: int) -> float:
    """The difference of gradients that are added up over two steps from those of one process, on four ranks: two
    replicas of a pipeline, with batches of different sizes."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import pipeline

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    (model, inputs), (reference, _) = made("relayed", 8), made("relayed", 8)
    options = {"group": mesh["pp"], "replicas": mesh["dp"], "bucket_bytes": BYTES}
    pipe = pipeline(model, (), inputs, microbatches=4, loss_fn=loss_of, **options)
    batches = [made("relayed", size, seed=size)[1] for size in (6, 9)]
    mine = batches[mesh["dp"].get_local_rank()]
    pipe.resize(**mine)
    for _ in range(2):
        pipe.step(**mine)
    for batch in batches:
        loss_of(reference(**batch), None).backward()
    known = dict(reference.named_parameters(remove_duplicate=False))
    pairs = [(own.grad, known[key].grad) for key, own in pipe.named_parameters()]
    return max(_difference(ours, theirs) for ours, theirs in pairs if theirs is not None)


def message_of_stages(rank: int, what: str) -> tuple[str, float]:
    """The error of a planted fault in two replicas of a pipeline on two ranks, as text, and its time in seconds."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import DistributedError, pipeline

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    words = torch.zeros(8, 3, dtype=torch.long)
    begin = time.monotonic()
    try:
        layers = 4 if what == "models" and rank == 3 else 3
        options = {"group": mesh["pp"], "replicas": mesh if what == "mesh" else mesh["dp"]}
        model = Looked(layers)
        model.table.weight.requires_grad_(what != "unfrozen")
        pipe = pipeline(model, words, microbatches=4, loss_fn=loss_of, **options)
        model.table.weight.requires_grad_(True)
        begin = time.monotonic()
        if rank == 2 and what == "raises":
            words[5] = 9
        if rank == 2 and what == "dies":
            os._exit(3)
        pipe.step(words)
    except DistributedError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - begin
    return "", 0.0


class Prototypes(nn.Module):
    """A model that returns a parameter, and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.own = nn.Linear(8, 4), nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return self.layer(x), self.own, self.own[1:]


def _compared(work: Callable[[Any], None], make: Callable[[], nn.Module]) -> float:
    """The difference of the gradients that ``work`` leaves from those of DistributedDataParallel."""
    from corsac.distributed import data_parallel

    torch.manual_seed(0)
    model = make()
    reference = DistributedDataParallel(make())
    reference.module.load_state_dict(model.state_dict())
    own = data_parallel(model, (torch.randn(4, 8),))
    for one in (own, reference):
        torch.manual_seed(dist.get_rank())
        work(one)
    return max(
        _difference(found.grad, expected.grad)
        for found, expected in zip(own.parameters(), reference.parameters(), strict=True)
    )


def _two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))


def other_passes(rank: int) -> dict[str, Any]:
    """Results that are parameters, passes that add nothing up, checkpoints, and passes and weights that are refused."""
    from corsac.distributed import data_parallel

    def returned(model: Any) -> None:
        features, own, part = model(torch.randn(4, 8))
        (torch.cdist(features, own).mean() + part.square().sum()).backward()

    def of_inputs(model: Any) -> None:
        with model.no_sync():
            model(torch.randn(4, 8)).square().mean().backward()
        z = torch.randn(4, 8, requires_grad=True)
        torch.autograd.grad(model(z).sum(), z)
        model(torch.randn(4, 8)).square().mean().backward()

    def checkpointed(model: Any) -> None:
        is_reference = isinstance(model, DistributedDataParallel)
        x = torch.randn(4, 8, requires_grad=True)
        called = model.module if is_reference else model
        torch.utils.checkpoint.checkpoint(called, x, use_reentrant=False).square().mean().backward()
        if is_reference:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    found: dict[str, Any] = {
        "returned": _compared(returned, Prototypes),
        "of inputs": _compared(of_inputs, _two_layers),
        "checkpointed": _compared(checkpointed, _two_layers),
    }
    own = data_parallel(_two_layers(), (torch.randn(4, 8),))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own.eval()
    found["warned"] = [str(one.message) for one in caught]
    own.load_state_dict(_two_layers().state_dict(), assign=True)
    found["assigned"] = _raised(lambda: own(torch.randn(4, 8)))
    return found


def mixed_passes(rank: int) -> str:
    """A backward pass through calls inside and outside of no_sync."""
    from corsac.distributed import data_parallel

    own = data_parallel(_two_layers(), (torch.randn(4, 8),))
    with own.no_sync():
        first = own(torch.randn(4, 8)).square().mean()
    second = own(torch.randn(4, 8)).square().mean()
    return _raised((first + second).backward)


def _raised(run: Callable[[], Any]) -> str:
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def meshes(rank: int, what: str) -> tuple[str, float]:
    """The error of a planted fault in a model on a mesh of two dimensions, as text, and its time in seconds."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import parallelize

    names = {"names": ("tp", "other"), "none": None}.get(what, ("tp", "data"))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
    model = _two_layers()
    if what == "fails" and rank == 3:
        model = nn.Linear(3, 3)
    begin = time.monotonic()
    return _raised(
        lambda: parallelize(model, torch.ones(2, 4), mesh=mesh)
    ), time.monotonic() - begin


def other_buckets_of_parts(rank: int) -> tuple[str, float]:
    """Buckets that differ in one of two groups of copies of parts."""
    from torch.distributed.device_mesh import init_device_mesh

    from corsac.distributed import data_parallel, parallelize

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    parts = parallelize(_two_layers(), torch.randn(4, 8), mesh=mesh["tp"])
    begin = time.monotonic()
    text = _raised(
        lambda: data_parallel(parts, mesh=mesh["dp"], bucket_bytes=64 if rank == 3 else 2**20)
    )
    return text, time.monotonic() - begin


def whole_weights_of_parts(rank: int) -> str:
    """Weights that are not cut, and differ between ranks."""
    from corsac.distributed import parallelize

    torch.manual_seed(rank)
    return _raised(lambda: parallelize(_two_layers(), torch.randn(4, 8)))


def numbers_of_pipelines(rank: int) -> tuple[str, float]:
    """The reason of a failure where some ranks have made more pipelines than others."""
    from corsac.distributed import pipeline

    first = dist.new_group([0, 1])
    torch.manual_seed(0)
    x = torch.randn(8, 8)
    if rank < 2:
        pipeline(_two_layers(), x, microbatches=2, group=first)

    def loss(result: Any, target: Any) -> Any:
        raise ValueError("boom")

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    pipe = pipeline(model, x, microbatches=4, loss_fn=loss, timeout=20.0)
    begin = time.monotonic()
    return _raised(lambda: pipe.step(x, target=x)), time.monotonic() - begin


class Tied(Looked):
    """Its table is also its last layer."""

    def forward(self, words):
        return super().forward(words) @ self.table.weight.t()


def tied_weight_that_changes(rank: int, trained: bool) -> str:
    """A weight of several stages that is frozen or trained after the pipeline was made."""
    from corsac.distributed import pipeline

    torch.manual_seed(0)
    model = Tied()
    model.table.weight.requires_grad_(not trained)
    x = torch.randint(0, 5, (8, 4))
    pipe = pipeline(model, x, microbatches=4, loss_fn=lambda own, target: own.square().mean())
    assert "table.weight" in pipe.plan.shared()
    for name, own in pipe.named_parameters():
        if name == "table.weight":
            own.requires_grad_(trained)
    return _raised(lambda: pipe.step(x, target=x))
