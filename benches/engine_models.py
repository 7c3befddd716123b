"""The models that `benches/engine.py` runs: random weights, float32, in evaluation mode."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from corsac.cli.batch_norm import randomize

Function = Callable[..., Any]


@dataclass
class Workload:
    """A model, its inputs, and the definition of a measured call."""

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    #: Calls the compiled model on the inputs: once, or token by token.
    call: Callable[[Function, tuple[torch.Tensor, ...]], Any] = lambda run, inputs: run(*inputs)
    #: Whether shapes differ between calls, which programs exported for one shape do not support.
    grows: bool = False
    #: Number of calls timed together, since short ones are below the clock's resolution.
    repeat: int = 1
    #: Precision of matrix products: "f32" or "bf16".
    precision: str = "f32"

    def result(self, run: Function) -> Any:
        """The result of a measured call."""
        return self.call(run, self.inputs)


def _vision(name: str, batch: int = 1) -> Workload:
    import torchvision

    model = torchvision.models.get_model(name, weights=None)
    if name.startswith("vit"):
        nn.init.normal_(model.heads.head.weight, std=0.02)
    image = torch.randn(batch, 3, 224, 224)
    # Weights are not downloaded: batch norms get statistics that are not the identity.
    randomize(model.eval(), [image])
    return Workload(model, (image,))


class _Encoder(nn.Module):
    """A Hugging Face model that returns one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids).last_hidden_state


class _Cached(nn.Module):
    """A language model with a cache of earlier keys and values as tensor inputs and outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        logits = self.model(ids, past_key_values=cache, use_cache=True).logits
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        return logits, *itertools.chain.from_iterable(layers)


class _Uncached(nn.Module):
    """A language model that reads all tokens each time."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False).logits


def _bert() -> Workload:
    import transformers

    # Without the pooler: its unused output would be a layer that is not computed.
    model = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
    return Workload(_Encoder(model).eval(), (torch.randint(0, 30_000, (1, 128)),))


def _gpt2() -> nn.Module:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()


def _llama() -> nn.Module:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=1024,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
        intermediate_size=2816,
        vocab_size=32_000,
    )
    return transformers.LlamaForCausalLM(config).eval()


def _tokens(count: int) -> torch.Tensor:
    return torch.randint(0, 30_000, (1, count))


def _generate(run: Function, inputs: tuple[torch.Tensor, ...], tokens: int = 32) -> Any:
    """Run the prompt, then one token at a time, with cached keys and values."""
    logits, *past = run(*inputs)
    found = [logits[:, -1]]
    for _ in range(tokens - 1):
        logits, *past = run(found[-1].argmax(-1, keepdim=True), *past)
        found.append(logits[:, -1])
    return torch.stack(found)


def _generate_uncached(run: Function, inputs: tuple[torch.Tensor, ...], tokens: int = 32) -> Any:
    """Run the prompt and all tokens after it, again for each token."""
    (ids,) = inputs
    found = []
    for _ in range(tokens):
        found.append(run(ids)[:, -1])
        ids = torch.cat([ids, found[-1].argmax(-1, keepdim=True)], 1)
    return torch.stack(found)


def _prefill(model: nn.Module) -> Workload:
    return Workload(_Uncached(model).eval(), (_tokens(128),))


def _decode(model: nn.Module) -> Workload:
    """One token after 128."""
    cached = _Cached(model).eval()
    with torch.no_grad():
        _, *past = cached(_tokens(128))
    return Workload(cached, (_tokens(1), *past))


def _generation(model: nn.Module) -> Workload:
    return Workload(_Cached(model).eval(), (_tokens(128),), _generate, grows=True)


def _generation_uncached(model: nn.Module) -> Workload:
    return Workload(_Uncached(model).eval(), (_tokens(16),), _generate_uncached, grows=True)


def _recommender() -> Workload:
    """The autoencoder of DeepRecommender, as measured in the FX paper."""
    sizes = [17_768, 512, 512, 1024, 512, 512, 17_768]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.SELU()]
    return Workload(nn.Sequential(*layers).eval(), (torch.randn(256, sizes[0]),))


class _Chain(nn.Module):
    """Two hundred elementwise operators and reductions."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            a = torch.sigmoid(x * y + 0.5)
            b = torch.tanh(x - a) * 0.5
            z = a * b + x
            x = z - z.mean(-1, keepdim=True)
            y = torch.maximum(y, b)
        return x + y


class _Tiny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).relu()


MODELS: dict[str, Callable[[], Workload]] = {
    "resnet50": lambda: _vision("resnet50"),
    "resnet50_b16": lambda: _vision("resnet50", 16),
    "mobilenet_v3_large": lambda: _vision("mobilenet_v3_large"),
    "efficientnet_b0": lambda: _vision("efficientnet_b0"),
    "densenet121": lambda: _vision("densenet121"),
    "vit_b_16": lambda: _vision("vit_b_16"),
    "convnext_tiny": lambda: _vision("convnext_tiny"),
    "swin_t": lambda: _vision("swin_t"),
    "bert_base": _bert,
    "gpt2_prefill": lambda: _prefill(_gpt2()),
    "gpt2_decode": lambda: _decode(_gpt2()),
    "gpt2_generate_32": lambda: _generation(_gpt2()),
    "gpt2_generate_32_uncached": lambda: _generation_uncached(_gpt2()),
    "llama_prefill": lambda: _prefill(_llama()),
    "llama_decode": lambda: _decode(_llama()),
    "llama_generate_32": lambda: _generation(_llama()),
    "recommender_b256": _recommender,
    "elementwise_200": lambda: Workload(
        _Chain().eval(), (torch.randn(64, 1024), torch.randn(64, 1024))
    ),
    "tiny": lambda: Workload(_Tiny().eval(), (torch.randn(8),), repeat=1000),
}


def workload(name: str, precision: str = "f32") -> Workload:
    """The model of this name, the same each time."""
    torch.manual_seed(0)
    return dataclasses.replace(MODELS[name](), precision=precision)


def error_and_scale(found: Any, expected: Any) -> tuple[float, float]:
    """The largest difference between results, and the largest number in them."""
    if isinstance(expected, torch.Tensor):
        assert found.shape == expected.shape, f"{found.shape}, not {expected.shape}"
        return (found - expected).abs().max().item(), expected.abs().max().item()
    pairs = [error_and_scale(a, b) for a, b in zip(found, expected, strict=True)]
    return max(error for error, _ in pairs), max(scale for _, scale in pairs)
