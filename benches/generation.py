"""Text generation with Hugging Face models: eager, inductor and ONNX Runtime against corsac, as a compiled model and
as a file without Python.

    python benches/generation.py [--only PATTERN] [--peers PATTERN] [--threads N] [--seconds S] [--tokens N]
        [--inductor]

The models have the sizes of popular ones and random weights. ``forward`` is compiled, and ``generate`` is
called with a growing (dynamic) cache and with one of fixed size (static). Tokens are compared with eager's first.
Then texts are generated in turn, once corsac has compiled for all cache lengths; the time of the first text, with
capture and compilation, is reported too. The file also generates 8 texts together, and one after the other.

Writes target/bench/generation.json: by model, ``first``, ``steady`` and ``median`` in seconds a text by peer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import corsac
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "generation.json"
#: Number of texts generated before measuring: programs are tried in the first calls.
WARM = 6
#: Number of texts that are generated together.
TOGETHER = 8


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config())


def llama() -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8000,
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=12,
            num_key_value_heads=4,
        )
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"GPT-2, 124M": gpt2, "Llama, 12 layers of 768": llama}


def made(name: str, compiled: Callable[..., Any] | None) -> Any:
    """Make the model, with a compiled ``forward``."""
    torch.manual_seed(0)
    model: Any = MODELS[name]().eval()
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
    if compiled is not None:
        model.forward = compiled(model.forward)
    return model


def in_file(name: str) -> corsac.generation.TextModel:
    """The model in a file, which runs without Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.safetensors"
        corsac.generation.save(made(name, None), path, batch=TOGETHER)
        return corsac.generation.load(path, threads=torch.get_num_threads())


def peers(
    name: str, file: corsac.generation.TextModel, tokens: int, *, inductor: bool
) -> dict[str, Callable[[], Callable[[], torch.Tensor]]]:
    """Functions that make functions that generate a text."""
    given = torch.randint(0, 8000, (1, 16), generator=torch.Generator().manual_seed(1))
    # transformers itself would compile a model with a static cache.
    settings = {"max_new_tokens": tokens, "do_sample": False, "disable_compile": True}

    def transformers(cache: str, compiled: Callable[..., Any] | None) -> Callable[[], torch.Tensor]:
        generate = made(name, compiled).generate
        return partial(generate, given, cache_implementation=cache, **settings)

    def onnx_runtime() -> Callable[[], torch.Tensor]:
        from generation_onnx import on_onnx_runtime

        generate = on_onnx_runtime(made(name, None), torch.get_num_threads())
        return partial(generate, given, tokens)

    def from_file() -> torch.Tensor:
        found = file.generate(given[0], max_new_tokens=tokens, stop=())
        return torch.tensor([given[0].tolist() + found])

    compilers: dict[str, Callable[..., Any] | None] = {"eager": None, "corsac": corsac.compile}
    found = {
        f"{peer}, {cache} cache": partial(transformers, cache, compiled)
        for peer, compiled in compilers.items()
        for cache in ("dynamic", "static")
    }
    if inductor:
        found["inductor, static cache"] = partial(transformers, "static", torch.compile)
    if importlib.util.find_spec("onnxruntime"):
        found["ONNX Runtime"] = onnx_runtime
    return found | {"file": lambda: from_file}


def measured(calls: dict[str, Callable[[], torch.Tensor]], seconds: float) -> dict[str, Any]:
    """Times of the peers in turn, once all have generated the tokens of the first one."""
    first: dict[str, float] = {}
    expected: torch.Tensor | None = None
    for peer, call in calls.items():
        start = time.perf_counter()
        found = call()
        first[peer] = time.perf_counter() - start
        expected = found if expected is None else expected
        for _ in range(WARM):
            if not torch.equal(found, expected):
                raise SystemExit(f"{peer} generates other tokens")
            found = call()
    return {"first": first} | summary(samples_in_turn(calls, seconds))


def together(file: corsac.generation.TextModel, tokens: int, seconds: float) -> dict[str, Any]:
    """Texts that the file continues together, and one after the other."""
    chosen = torch.Generator().manual_seed(1)
    given = [torch.randint(8000, (16,), generator=chosen).tolist() for _ in range(TOGETHER)]
    settings = {"max_new_tokens": tokens, "stop": ()}
    peers = {
        "one by one": lambda: [file.generate(own, **settings) for own in given],
        "together": lambda: file.generate(given, **settings),
    }
    if peers["together"]() != peers["one by one"]():
        raise SystemExit("texts that are continued together have other tokens")
    return summary(samples_in_turn(peers, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--peers", default="", help="peers whose name has this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model")
    parser.add_argument("--tokens", type=int, default=32, help="how long texts are")
    parser.add_argument(
        "--inductor",
        action="store_true",
        help="compare with inductor, too: it compiles for a minute",
    )
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    report: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "models": {}}
    for name in MODELS:
        if not re.search(chosen.only, name):
            continue
        file = in_file(name)
        if not chosen.peers:
            result = together(file, chosen.tokens, chosen.seconds)
            report["models"][f"{name}, {TOGETHER} texts"] = result
            print(f"{name}, {TOGETHER} texts of {chosen.tokens} tokens")
            print_peers(result, of="one by one")
        torch._dynamo.reset()
        makers = peers(name, file, chosen.tokens, inductor=chosen.inductor)
        calls = {peer: make() for peer, make in makers.items() if re.search(chosen.peers, peer)}
        result = measured(calls, chosen.seconds)
        report["models"][name] = result
        first = result["first"]
        print(f"{name}, {chosen.tokens} tokens, by token")
        print_peers(
            result,
            lambda peer, first=first: f"first text {first[peer]:.2f} s",
            of=next(iter(calls)),
            unit=(1e3 / chosen.tokens, "ms"),
        )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
