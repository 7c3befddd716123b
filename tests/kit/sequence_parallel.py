"""Jobs with parts of sequences between the layers of parallel models."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from kit.pipelines import loss_of, made


class _Sent(TorchDispatchMode):
    """Counts the bytes that this rank sends in rings, by collective."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, float] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("_c10d_functional::")
        if name in ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"):
            ranks = dist.get_world_size()
            whole = max(args[0].nbytes, made.nbytes) * (ranks - 1) / ranks
            own = 2 * whole if name == "all_reduce" else whole
            self.bytes[name] = self.bytes.get(name, 0.0) + own
        return made


def _model(name: str) -> nn.Module:
    """A model of four layers that drops elements, wide enough that norms and dropouts count."""
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 128, "max_position_embeddings": 64}
    if name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=128, n_positions=64, n_embd=64, n_layer=4, n_head=4, n_inner=128
        )
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        **sizes,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    return transformers.LlamaForCausalLM(config)


def measured(rank: int, name: str, sequence: bool) -> dict[str, Any]:
    """What a rank sends in a step, and keeps for the backward pass, in bytes."""
    from corsac.distributed import parallelize

    del rank
    torch.manual_seed(0)
    words = torch.randint(128, (4, 64))
    own = parallelize(
        _model(name),
        words,
        {"use_cache": False},
        mesh=dist.group.WORLD,
        sequence_parallel=sequence,
    )
    # Sizes are checked in the first call, of which nothing counts.
    own(words, use_cache=False)
    weights = {value.untyped_storage()._cdata for value in own.state_dict().values()}
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        if key not in weights:
            saved[key] = tensor.detach()
        return tensor

    with _Sent() as sent:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = own(words, use_cache=False).logits.square().mean()
        loss.backward()
    return {
        "sent": sent.bytes,
        "saved": sum(tensor.untyped_storage().nbytes() for tensor in saved.values()),
    }


def of_sizes(rank: int, name: str, sizes: list[tuple[int, int]]) -> tuple[float, list[str]]:
    """The largest difference of results and gradients for batches of these sizes and lengths, and errors for others."""
    from corsac.distributed import ParallelError, parallelize

    del rank
    model, inputs = made(name, 2)
    reference, _ = made(name, 2)
    own = parallelize(model, (), inputs, mesh=dist.group.WORLD, sequence_parallel=True)
    known = dict(reference.named_parameters(remove_duplicate=False))
    worst, errors = 0.0, []
    for batch, length in sizes:
        words = torch.randint(3, 80, (batch, length))
        given = inputs | {"input_ids": words}
        given |= {key: torch.ones_like(words) for key in given if key == "attention_mask"}
        given |= {key: words for key in given if key in ("labels", "decoder_input_ids")}
        try:
            loss = loss_of(own(**given), None)
        except ParallelError as error:
            errors.append(str(error))
            continue
        wanted = loss_of(reference(**given), None)
        for one, module in ((loss, own), (wanted, reference)):
            module.zero_grad()
            one.backward()
        pairs = [(loss, wanted)]
        for key, parameter in own.named_parameters():
            pairs.append((own.whole(key, parameter.grad), known[key].grad))
        worst = max(worst, *((one - other).abs().max().item() for one, other in pairs))
    return worst, errors


class Blocks(nn.Module):
    """Blocks of a norm and a pair of linear layers, and what ``last`` makes of their sum."""

    def __init__(self, last: Any, count: int) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(32, 64) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(64, 32) for _ in range(count))
        self.norm = nn.ModuleList(nn.LayerNorm(32) for _ in range(count))
        self.last = last

    def forward(self, x):
        for up, down, norm in zip(self.up, self.down, self.norm, strict=True):
            x = norm(x + down(up(x).relu()))
        return x if self.last is None else self.last(x)


def _blocks(last: Any = None, count: int = 2) -> Blocks:
    torch.manual_seed(0)
    return Blocks(last, count)


def _first_twelve(y):
    return y[:, :12].tanh()


def _joined(y):
    return torch.cat([y, y * 2], 1)


def _centred(y):
    return y - y.mean(1, keepdim=True)


def _dropped(y):
    return nn.functional.dropout(y * 0 + 1, 0.5, True)


def _name(function: Any) -> str:
    return getattr(function, "__name__", "")


def _apart(own: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference, of the largest number if that is more than 1."""
    return ((own - other).abs().max() / other.abs().max().clamp(min=1)).item()


def of_layouts(rank: int) -> dict[str, float]:
    """Differences of results, gradients and second derivatives, by the sizes of what is given, what comes last and the number
    of blocks; of lengths that only a slice or what is joined tells apart, the ones that are refused."""
    from corsac.distributed import ParallelError, collectives, parallelize

    del rank
    world = {"mesh": dist.group.WORLD, "sequence_parallel": True}
    found: dict[str, float] = {}
    layouts = [
        ((2, 12, 32), None, 2),
        ((2, 12, 32), None, 1),
        ((2, 12, 32), _joined, 2),
        ((3, 12, 32), _centred, 2),
        ((24, 32), None, 2),
        ((24, 1, 32), None, 2),
        ((2, 3, 4, 32), None, 2),
        ((4, 5, 32), None, 2),
    ]
    for shape, last, count in layouts:
        model = _blocks(last, count)
        x = torch.randn(shape)
        own = parallelize(model, x, **world)
        if count > 1:
            assert any(node.target is collectives.reduce_scatter for node in own.graph.nodes)
        pairs = []
        for one in (own, model):
            given = x.clone().requires_grad_()
            result = one(given)
            (first,) = torch.autograd.grad(result.sin().sum(), given, create_graph=True)
            first.square().sum().backward()
            grads = {name: own.grad for name, own in one.named_parameters()}
            pairs.append((result, first, given.grad, grads))
        wholes = {
            name: own.whole(name, grad) for name, grad in pairs[0][3].items() if grad is not None
        }
        found[f"{shape} {_name(last)} {count}"] = max(
            *(_apart(one, other) for one, other in zip(pairs[0][:3], pairs[1][:3], strict=True)),
            *(_apart(one, pairs[1][3][name]) for name, one in wholes.items()),
        )
    for last in (_first_twelve, _joined):
        own = parallelize(_blocks(last), torch.randn(2, 12, 32), **world)
        try:
            own(torch.randn(2, 24, 32))
            found[f"other lengths of {_name(last)}"] = 1.0
        except ParallelError:
            found[f"other lengths of {_name(last)}"] = 0.0
    return found


def dropped(rank: int) -> list[float]:
    """What a dropout keeps of a sequence of ones."""
    from corsac.distributed import parallelize

    torch.manual_seed(10 + rank)
    own = parallelize(
        _blocks(_dropped), torch.randn(1, 64, 32), mesh=dist.group.WORLD, sequence_parallel=True
    )
    return own(torch.ones(1, 64, 32))[0, :, 0].tolist()


def message(rank: int, what: str) -> str:
    """The error of a planted fault, as text."""
    from corsac.distributed import DistributedError, collectives, parallelize

    torch.manual_seed(0)
    x = torch.randn(2, 12, 32)
    try:
        if what == "plans":
            parallelize(_blocks(), x, timeout=60, sequence_parallel=rank == 0)
        elif what == "lengths":
            parallelize(_blocks(), torch.randn(3, 7, 32), timeout=60, sequence_parallel=True)
        elif what == "other lengths":
            parallelize(_blocks(), x, timeout=60, sequence_parallel=True)(torch.randn(2, 7, 32))
        elif what == "skipped":
            own = parallelize(_blocks(), x, timeout=5, sequence_parallel=True)
            if rank == 1:
                size, group = dist.get_world_size(), own.group

                def part(tensor: torch.Tensor, dim: int, pieces: Any, name: str) -> torch.Tensor:
                    return collectives.own_part(tensor, dim, pieces, dist.get_rank(group), size)

                collectives._scattered, before = part, collectives._scattered
            try:
                own(x)
            finally:
                if rank == 1:
                    collectives._scattered = before
    except (DistributedError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def whole_lengths(rank: int) -> float:
    """The difference of a model whose sequences stay whole, as the ranks do not divide them."""
    from corsac.distributed import parallelize

    del rank
    torch.manual_seed(0)
    x = torch.randn(3, 7, 32)
    own = parallelize(
        _blocks(), x, mesh=dist.group.WORLD, sequence_parallel=True, uneven="replicate"
    )
    return (own(x) - _blocks()(x)).abs().max().item()
