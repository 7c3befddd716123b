"""Guard overhead: corsac's guards against Dynamo's, for the same models.

    python benches/guards.py [--only PATTERN] [--seconds S]

Each model is compiled by ``corsac.compile`` and by ``torch.compile(backend="eager")``, and both results are
compared with eager's. Then samples of a hundred checks are taken in turn, one thread. ``guards`` are those on
values read by Python, ``weights`` those on tensors that are not inputs, ``find`` is both with the search for
the program, ``lookup`` also checks the arguments; ``dynamo`` are Dynamo's guards, arguments included.
``fails`` is a search among eight programs, for eight values of an attribute, none of which fits; ``dynamo
fails`` is the same for Dynamo.

Writes target/bench/guards.json: by model, the number of guarded places and weights, ``steady`` and ``median``
in seconds by check, and the ``aim``.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torchvision
import transformers
from torch import nn
from torch._dynamo import guards as dynamo_guards

import corsac
from corsac._capture import recordings
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "guards.json"
REPEAT = 100
PROGRAMS = 8
#: Upper bounds in seconds: per call, per guarded object, and per weight.
AIM = (1e-6, 10e-9, 50e-9)
TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 90,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Scaled(nn.Module):
    """A model, and a number that it reads."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, 1

    def forward(self, x: torch.Tensor, **options: Any) -> Any:
        found = self.inner(x, **options)
        return (found if isinstance(found, torch.Tensor) else found[0]) * self.scale


def _words() -> torch.Tensor:
    return torch.randint(3, 90, (2, 12))


def _mlp() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.randn(2, 8), {}


def _bert() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    # Without a mask: control flow would depend on its values.
    return transformers.BertModel(transformers.BertConfig(**TEXT)), _words(), {}


def _llama() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config), _words(), {"use_cache": False}


def _gpt2() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=4, vocab_size=90, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config), _words(), {"use_cache": False}


def _resnet50() -> tuple[nn.Module, torch.Tensor, dict[str, Any]]:
    return torchvision.models.resnet50(), torch.randn(1, 3, 64, 64), {}


MODELS = {
    "mlp": _mlp,
    "bert": _bert,
    "llama": _llama,
    "gpt2": _gpt2,
    "resnet50": _resnet50,
}


class DynamoGuards:
    """Evaluates the guards of programs that Dynamo has made, with the variables they were made for."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, dict[str, Any]]] = []

    def __enter__(self) -> DynamoGuards:
        self._before = dynamo_guards.CheckFunctionManager.__init__
        made, before = self.made, self._before

        def init(manager: Any, code: Any, output: Any, *args: Any, **kwargs: Any) -> None:
            before(manager, code, output, *args, **kwargs)
            made.append((manager.guard_manager, dict(output.local_scope)))

        dynamo_guards.CheckFunctionManager.__init__ = init
        return self

    def __exit__(self, *_: object) -> None:
        dynamo_guards.CheckFunctionManager.__init__ = self._before

    def count(self) -> int:
        """Number of guards, counted as Dynamo prints them."""
        return sum(str(manager).count("\n| ") for manager, _ in self.made)

    def question(self, *, hold: bool) -> Callable[[], None]:
        asked = [(manager.root.check, scope) for manager, scope in self.made]
        assert all(check(scope) is hold for check, scope in asked)

        def ask() -> None:
            for check, scope in asked:
                check(scope)

        return ask


def _entry(compiled: Any, call: Any) -> Any:
    entry = compiled._recorded.find(call)
    assert isinstance(entry, recordings.Entry), compiled.explain()
    return entry


def _measure(name: str, seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    inner, x, options = MODELS[name]()
    model = Scaled(inner.eval()).eval()
    expected = model(x, **options)
    compiled = corsac.compile(model, options={"inference": "native"})
    for _ in range(3):
        torch.testing.assert_close(compiled(x, **options), expected, rtol=1e-3, atol=1e-4)
    call = compiled._recorded.call((x,), options)
    entry = _entry(compiled, call)
    with DynamoGuards() as dynamo:
        by_dynamo = torch.compile(model, backend="eager")
        torch.testing.assert_close(by_dynamo(x, **options), expected)
    recorded = compiled._recorded
    questions: dict[str, Callable[[], Any]] = {
        "dynamo": dynamo.question(hold=True),
        "guards": entry.guards.hold,
        "weights": entry.model_guards.is_current,
        "find": lambda: recorded.find(call),
        "lookup": lambda: recorded.find(recorded.call((x,), options)),
    }
    places, weights, of_dynamo = len(entry.guards), entry.model_guards.count, dynamo.count()
    result: dict[str, Any] = summary(samples_in_turn(questions, seconds / 2, repeat=REPEAT))
    aim = AIM[0] + AIM[1] * places + AIM[2] * weights

    # The maximum number of programs, and a call that fits none of them.
    torch._dynamo.reset()
    compiled = corsac.compile(model, options={"inference": "native"})
    with DynamoGuards() as failing:
        by_dynamo = torch.compile(model, backend="eager")
        for scale in range(PROGRAMS):
            model.scale = scale + 2
            for _ in range(2):
                compiled(x, **options)
            by_dynamo(x, **options)
    assert len(compiled._recorded.programs()) == len(failing.made) == PROGRAMS
    model.scale = 100
    for _, scope in failing.made:
        assert scope["self"] is model
    missed = compiled._recorded.call((x,), options)
    assert compiled._recorded.find(missed) is None
    questions = {
        "dynamo fails": failing.question(hold=False),
        "fails": lambda: compiled._recorded.find(missed),
    }
    fails = summary(samples_in_turn(questions, seconds / 2, repeat=REPEAT))
    for kind, found in fails.items():
        result[kind].update(found)
    return {"places": places, "weights": weights, "dynamo": of_dynamo, "aim": aim, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each model")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    recordings.PROGRAMS = PROGRAMS
    report: dict[str, Any] = {"machine": machine(), "models": {}}
    print(f"{report['machine']}, one thread; µs")
    for name in MODELS:
        if not re.search(chosen.only, name):
            continue
        with torch.no_grad():
            result = _measure(name, chosen.seconds)
        report["models"][name] = result
        print(
            f"{name}: {result['places']} places and {result['weights']} weights, {result['dynamo']} "
            f"guards of Dynamo; aim: {result['aim'] * 1e6:.2f}"
        )
        print_peers(result, of="dynamo", unit=(1e6, "µs"))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
