"""First calls: what recording a program adds to a call, and Dynamo's first calls beside it.

    python benches/capture.py [--only PATTERN] [--repeat N]

Each model is compiled anew for each sample, by ``corsac.compile`` and by ``torch.compile(backend="eager")``, which
captures and does not compile; results are compared with eager's first. Samples are taken in turn, one thread, in a
process that has captured the model before.

Writes target/bench/capture.json: by model, ``steady`` and ``median`` in seconds of ``eager``, a call; ``recorded``, a
call that is recorded; ``corsac``, a first call, with compilation; ``dynamo``, a first call.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

import corsac
from corsac._capture import recordings as _recordings
from in_turn import print_peers, summary
from machine import REPORTS, machine

REPORT = REPORTS / "capture.json"
#: First calls of Dynamo take a hundred times as long, and are repeated less often.
OF_DYNAMO = 3


TEXT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 200,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _bert() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**TEXT))


def _llama() -> nn.Module:
    return transformers.LlamaModel(transformers.LlamaConfig(**TEXT))


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=200, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2Model(config)


MODELS = {"bert": _bert, "llama": _llama, "gpt2": _gpt2}


class Recorded:
    """Seconds of the calls that are recorded in the block, without what comes after."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __enter__(self) -> Recorded:
        self._before = _recordings.record

        def record(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            made = self._before(*args, **kwargs)
            self.seconds.append(time.perf_counter() - start)
            return made

        _recordings.record = record
        return self

    def __exit__(self, *_: object) -> None:
        _recordings.record = self._before


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _measure(model: nn.Module, repeat: int) -> dict[str, Any]:
    words = torch.randint(3, 200, (1, 16))
    expected = model(words)[0]
    torch._dynamo.reset()
    for compiled in (corsac.compile(model), torch.compile(model, backend="eager")):
        torch.testing.assert_close(compiled(words)[0], expected, rtol=1e-3, atol=1e-4)
    samples: dict[str, list[float]] = {"eager": [], "corsac": [], "dynamo": []}
    with Recorded() as recorded:
        for number in range(repeat):
            samples["eager"].append(_seconds(lambda: model(words)))
            compiled = corsac.compile(model)
            samples["corsac"].append(_seconds(lambda own=compiled: own(words)))
            if number % (repeat // OF_DYNAMO or 1) == 0:
                torch._dynamo.reset()
                compiled = torch.compile(model, backend="eager")
                samples["dynamo"].append(_seconds(lambda own=compiled: own(words)))
    return summary(samples | {"recorded": recorded.seconds})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--repeat", type=int, default=60, help="samples for each model")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    report: dict[str, Any] = {"machine": machine(), "models": {}}
    print(f"{report['machine']}, one thread; ms")
    for name, make in MODELS.items():
        if not re.search(chosen.only, name):
            continue
        with torch.no_grad():
            result = _measure(make().eval(), chosen.repeat)
        report["models"][name] = result
        for kind, own in result.items():
            added = own["recorded"] - own["eager"]
            print(
                f"{name}, {kind}: recording adds {added * 1e3:.2f} ms to {own['eager'] * 1e3:.2f}; "
                f"Dynamo's first call takes {own['dynamo'] / own['recorded']:.0f} times as long"
            )
        print_peers(result)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
