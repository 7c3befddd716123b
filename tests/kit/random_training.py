"""Random small models, and jobs that train them on two ranks in each way as one process does."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import torch
from torch import nn

#: Features of all values, their number of heads, words, and the size and length of batches.
FEATURES, HEADS, WORDS, BATCH, LENGTH = 16, 4, 24, 8, 6


class Feedforward(nn.Module):
    def __init__(self, own: random.Random) -> None:
        super().__init__()
        self.up = nn.Linear(FEATURES, 4 * FEATURES, bias=own.random() < 0.7)
        self.down = nn.Linear(4 * FEATURES, FEATURES, bias=own.random() < 0.7)
        self.activation = own.choice([torch.relu, torch.tanh, nn.functional.gelu])

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Gated(nn.Module):
    def __init__(self, own: random.Random) -> None:
        super().__init__()
        self.gate = nn.Linear(FEATURES, 2 * FEATURES, bias=False)
        self.up = nn.Linear(FEATURES, 2 * FEATURES, bias=own.random() < 0.5)
        self.down = nn.Linear(2 * FEATURES, FEATURES, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    def __init__(self, own: random.Random) -> None:
        super().__init__()
        self.fused, self.causal = own.random() < 0.5, own.random() < 0.5
        self.pairs = HEADS // own.choice([1, 2])
        size = FEATURES // HEADS
        if self.fused:
            self.pairs = HEADS
            self.all = nn.Linear(FEATURES, 3 * FEATURES)
        else:
            self.query = nn.Linear(FEATURES, FEATURES)
            self.key = nn.Linear(FEATURES, self.pairs * size, bias=False)
            self.value = nn.Linear(FEATURES, self.pairs * size)
        self.out = nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            self.all(x).chunk(3, -1) if self.fused else (self.query(x), self.key(x), self.value(x))
        )
        q = q.view(batch, length, HEADS, -1).transpose(1, 2)
        k, v = (own.view(batch, length, self.pairs, -1).transpose(1, 2) for own in (k, v))
        if self.pairs != HEADS:
            k, v = (own.repeat_interleave(HEADS // self.pairs, 1) for own in (k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, FEATURES))


class Branches(nn.Module):
    def __init__(self, own: random.Random) -> None:
        super().__init__()
        self.left, self.right = Feedforward(own), nn.Linear(FEATURES, FEATURES)
        self.scale = nn.Parameter(torch.rand(FEATURES))
        self.joined = own.random() < 0.5
        self.join = nn.Linear(2 * FEATURES, FEATURES)

    def forward(self, x):
        left, right = self.left(x), self.right(x).sigmoid()
        if self.joined:
            return self.join(torch.cat([left, right], -1))
        return left * right * self.scale + self.join(torch.cat([x, x], -1)).tanh()


class RandomModel(nn.Module):
    """Blocks with residuals and norms, whose tables and blocks may be tied."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        own = random.Random(seed)
        torch.manual_seed(seed)
        self.table = nn.Embedding(WORDS, FEATURES)
        kinds = [Feedforward, Gated, Attention, Branches]
        self.blocks = nn.ModuleList(own.choice(kinds)(own) for _ in range(own.randint(2, 4)))
        if own.random() < 0.3:
            self.blocks.append(self.blocks[0])
        self.norms = nn.ModuleList(
            nn.LayerNorm(FEATURES) if own.random() < 0.7 else nn.RMSNorm(FEATURES)
            for _ in self.blocks
        )
        self.before = own.random() < 0.6
        self.drop = nn.Dropout(0.0)
        self.register_buffer("shift", torch.linspace(-1, 1, FEATURES))
        self.head = nn.Linear(FEATURES, WORDS, bias=own.random() < 0.5)
        if own.random() < 0.5:
            self.head.weight = self.table.weight
        for name, weight in self.named_parameters():
            if own.random() < 0.15 and "table" not in name:
                weight.requires_grad_(False)

    def forward(self, words):
        x = self.table(words) + self.shift
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + self.drop(block(norm(x))) if self.before else norm(x + block(x))
        return self.head(x)


def loss_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The words and targets of a step."""
    own = torch.Generator().manual_seed(1000 + number)
    words, target = torch.randint(WORDS, (2, BATCH, LENGTH), generator=own)
    return words, target


class Habits:
    """How a user trains: an optimizer, and unusual things."""

    def __init__(self, seed: int) -> None:
        own = random.Random(seed + 10_000)
        kind, options = own.choice(
            [
                (torch.optim.AdamW, {"lr": 1e-2}),
                (torch.optim.AdamW, {"lr": 1e-2, "foreach": True}),
                (torch.optim.AdamW, {"lr": 1e-2, "fused": True}),
                (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
                (torch.optim.SGD, {"lr": 0.1, "foreach": True}),
                (torch.optim.RMSprop, {"lr": 1e-3}),
            ]
        )
        # The first steps of Adam have the size of the learning rate, whatever that of the gradient.
        self.kind, self.options = kind, options | ({"eps": 1e-3} if "Adam" in kind.__name__ else {})
        self.accumulated = own.choice([1, 1, 2])
        self.set_to_none = own.random() < 0.5
        self.clip = own.choice([None, 0.05])
        self.factor = own.choice([1.0, 0.5])
        self.resumes, self.infers = own.random() < 0.4, own.random() < 0.5

    def __repr__(self) -> str:
        return f"{self.kind.__name__} {vars(self)}"


#: Results and losses, the gradients of the first step, and the weights at the end.
Trained = tuple[list[torch.Tensor | None], dict[str, torch.Tensor], dict[str, torch.Tensor]]


def steps(habits: Habits, way: Any) -> Generator[None, None, Trained]:
    """Three steps, as ``way`` makes them, with a pause after each backward pass."""
    results: list[torch.Tensor | None] = []
    gradients: dict[str, torch.Tensor] = {}
    for step in range(3):
        for part in range(habits.accumulated):
            results.append(way.backward(*batch_of(3 * step + part)))
            yield
        if step == 0:
            gradients = way.gradients()
        if habits.clip is not None:
            results.append(way.clip(habits.clip))
        way.optimizer.step()
        for group in way.inner().param_groups:
            group["lr"] *= habits.factor
        if habits.infers:
            results.append(way.infer(batch_of(7)[0]))
        way.zero(habits.set_to_none)
        if habits.resumes and step == 1:
            way.resume()
    return results, gradients, way.weights()


def train(*of: tuple[Habits, Any]) -> list[Trained]:
    """What :func:`steps` returns for each of several models, whose passes take turns."""
    found: dict[int, Trained] = {}
    runs = [steps(*own) for own in of]
    while len(found) < len(runs):
        for at, run in enumerate(runs):
            if at not in found:
                try:
                    next(run)
                except StopIteration as end:
                    found[at] = end.value
    return [found[at] for at in range(len(runs))]


class Whole:
    """One process."""

    def __init__(self, seed: int, habits: Habits, dtype: torch.dtype) -> None:
        self.seed, self.habits, self.dtype = seed, habits, dtype
        self.make(None)

    def make(self, state: dict[str, torch.Tensor] | None) -> None:
        """The model, with these weights, and an optimizer."""
        model = RandomModel(self.seed).to(self.dtype)
        if state is not None:
            model.load_state_dict(state, strict=False)
        self.model = self.placed(model)
        self.optimizer = self.optimized()

    def placed(self, model: nn.Module) -> Any:
        """The model as the ranks have it."""
        return model

    def optimized(self) -> Any:
        return self.habits.kind(self.model.parameters(), **self.habits.options)

    def inner(self) -> torch.optim.Optimizer:
        """The optimizer of PyTorch."""
        return self.optimizer

    def backward(self, words: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
        found = self.model(words)
        loss_of(found, target).backward()
        return found.detach()

    def infer(self, words: torch.Tensor) -> torch.Tensor | None:
        with torch.no_grad():
            return self.model(words)

    def gradients(self) -> dict[str, torch.Tensor]:
        return {
            name: own.grad.clone()
            for name, own in self.model.named_parameters()
            if own.grad is not None
        }

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: own.detach().clone() for name, own in self.model.state_dict().items()}

    def clip(self, norm: float) -> torch.Tensor:
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)

    def zero(self, set_to_none: bool) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def resume(self) -> None:
        """Begin anew from what was saved."""
        state = self.optimizer.state_dict()
        self.make(self.weights())
        self.optimizer.load_state_dict(state)

    def part(self, whole: torch.Tensor) -> torch.Tensor | None:
        """What this rank has of a result."""
        return whole


class Parts(Whole):
    """Each weight is cut."""

    by_sequences = False

    def placed(self, model):
        import torch.distributed as dist

        from corsac.distributed import parallelize

        words = batch_of(0)[0]
        options = {"sequence_parallel": self.by_sequences}
        return parallelize(model, words, mesh=dist.group.WORLD, **options)

    def gradients(self):
        return {name: self.model.whole(name, own) for name, own in super().gradients().items()}

    def weights(self):
        return self.model.full_state_dict()

    def clip(self, norm):
        return self.model.clip_grad_norm_(norm)


class Sequences(Parts):
    """Each weight is cut, and sequences between layers."""

    by_sequences = True


class Copies(Whole):
    """Each rank has half of a batch."""

    scatter = False

    def placed(self, model):
        import torch.distributed as dist

        from corsac.distributed import data_parallel

        words = self.part(batch_of(0)[0])
        return data_parallel(model, words, mesh=dist.group.WORLD, scatter=self.scatter)

    def backward(self, words, target):
        return super().backward(self.part(words), self.part(target))

    def infer(self, words):
        return super().infer(self.part(words))

    def weights(self):
        return self.model.full_state_dict()

    def part(self, whole):
        import torch.distributed as dist

        return whole.chunk(2)[dist.get_rank()] if whole.dim() else whole


class Scattered(Copies):
    """Each rank has half of a batch, and a part of the gradients and of the state of the optimizer."""

    scatter = True

    def optimized(self):
        from corsac.distributed import ShardedOptimizer

        return ShardedOptimizer(self.model, self.habits.kind, **self.habits.options)

    def inner(self):
        return self.optimizer.optimizer

    def gradients(self):
        import torch.distributed as dist

        found = {}
        for bucket, part in zip(self.model.buckets, self.model._means.parts, strict=True):
            parts = [torch.empty_like(part) for _ in range(2)]
            dist.all_gather(parts, part)
            whole = torch.cat(parts)
            for name, shape, at, length in bucket.places():
                found[name] = whole[at : at + length].view(shape)
        return found

    def clip(self, norm):
        return self.optimizer.clip_grad_norm_(norm)


class Stages(Whole):
    """A pipeline."""

    schedule = "1f1b"

    def placed(self, model):
        import torch.distributed as dist

        from corsac.distributed import pipeline

        words = batch_of(0)[0]
        options = {"schedule": self.schedule, "microbatches": 4, "loss_fn": loss_of}
        return pipeline(model, words, group=dist.group.WORLD, **options)

    def backward(self, words, target):
        return self.model.step(words, target=target)

    def infer(self, words):
        return self.model(words)

    def weights(self):
        import torch.distributed as dist

        all_of: list[Any] = [None, None]
        dist.all_gather_object(all_of, super().weights())
        return all_of[0] | all_of[1]


class Interleaved(Stages):
    """A pipeline of two stages for each rank."""

    schedule = "interleaved1f1b"


WAYS = {own.__name__: own for own in (Parts, Sequences, Copies, Scattered, Stages, Interleaved)}


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, relative to the largest number."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    if not ours.numel():
        return 0.0
    scale = theirs.double().abs().max().item()
    return (ours.double() - theirs.double()).abs().max().item() / max(scale, 1e-3)


def compared(rank: int, way: str, *seeds: int) -> dict[str, float]:
    """Differences of random models, which are trained in turn in one of the :data:`WAYS`, from one process."""
    del rank
    of = [(habits := _habits(way, seed), WAYS[way](seed, habits, torch.float32)) for seed in seeds]
    worst = {"results": 0.0, "gradients": 0.0, "weights": 0.0}
    for seed, (habits, own), ours in zip(seeds, of, train(*of), strict=True):
        (theirs,) = train((habits, Whole(seed, habits, torch.float32)))
        found = differences(own, ours, theirs)
        worst = {name: max(value, found[name]) for name, value in worst.items()}
    return worst


def compared_in_16_bits(rank: int, way: str, seed: int) -> dict[str, tuple[float, float]]:
    """Differences of a random model in bfloat16 from one in float64, on two ranks and in one process."""
    del rank
    habits = _habits(way, seed)
    own, whole = (kind(seed, habits, torch.bfloat16) for kind in (WAYS[way], Whole))
    ours, theirs, exact = (
        train((habits, one))[0] for one in (own, whole, Whole(seed, habits, torch.float64))
    )
    there = differences(whole, theirs, exact)
    return {name: (value, there[name]) for name, value in differences(own, ours, exact).items()}


def _habits(way: str, seed: int) -> Habits:
    habits = Habits(seed)
    if issubclass(WAYS[way], Stages):
        # Pipelines alone have no norm of all gradients.
        habits.clip = None
    return habits


def differences(own: Whole, ours: Any, theirs: Any) -> dict[str, float]:
    """Differences of what :func:`train` returned, where this rank has it."""
    found = {"results": 0.0, "gradients": 0.0, "weights": 0.0}
    for result, whole in zip(ours[0], theirs[0], strict=True):
        if result is not None:
            found["results"] = max(found["results"], difference(result, own.part(whole)))
    for name, at in (("gradients", 1), ("weights", 2)):
        known = ours[at]
        if not isinstance(own, Stages):
            # Weights that the graph does not read have no part in it.
            assert all("scale" in key for key in theirs[at].keys() - known.keys())
        for key, value in known.items():
            found[name] = max(found[name], difference(value, theirs[at][key]))
    return found
