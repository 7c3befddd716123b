"""Steps of quantisation-aware training: corsac against eager training, in floats and with fake quantisers.

    python benches/qat.py [MODEL …] [--threads N] [--seconds S] [--cpu-time] [--training native]

Models are prepared by ``prepare_qat_fx`` with the configuration "x86". After steps that change ranges and no weights,
gradients are compared with eager ones: of the captured graph that PyTorch runs, and of native code. Then steps (forward, loss, backward, optimiser) are made in turn, one of
each peer, once corsac has decided for all parts. Writes target/bench/qat.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import corsac
from corsac.quantization import get_default_qat_qconfig_mapping
from corsac.quantization.quantize_fx import prepare_qat_fx
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "qat.json"
#: Size of random changes of the input after which eager gradients are compared with each other: a few values move to the
#: neighbouring level, as they do if sums have another order. Compiled gradients may differ by so many times as much.
CHANGE, ALLOWED = 1e-5, 4.0
#: Steps after which it is decided for all parts whether native code is faster.
STEPS = 30

Work = tuple[nn.Module, Tensor, Tensor]


def _mlp() -> Work:
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), torch.randn(128, 784), torch.randint(0, 10, (128,))


def _separable(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def _separable_cnn() -> Work:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *_separable(16, 32),
        nn.MaxPool2d(2),
        *_separable(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return model, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))


def _resnet() -> Work:
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    return model, torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))


class Block(nn.Module):
    """A transformer layer with causal attention, of fixed sizes."""

    def __init__(self, batch: int, length: int, width: int, heads: int) -> None:
        super().__init__()
        self.sizes = (batch, length, heads, width // heads)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        heads = [f(y).view(self.sizes).transpose(1, 2) for f in (self.query, self.key, self.value)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.second(x))))


def _transformer() -> Work:
    width = 256
    blocks = [Block(4, 128, width, 8) for _ in range(2)]
    model = nn.Sequential(*blocks, nn.LayerNorm(width), nn.Linear(width, 64))
    return model, torch.randn(4, 128, width), torch.randint(0, 64, (512,))


MODELS: dict[str, tuple[Callable[[], Work], str]] = {
    "mlp": (_mlp, "784, 512, 512, 10, batch 128"),
    "transformer": (_transformer, "2 layers, 256 wide, 4 x 128"),
    "separable_cnn": (_separable_cnn, "5 convolutions, batch 16, 32 x 32"),
    "resnet18": (_resnet, "batch 8, 64 x 64"),
}


class Trained:
    """A model with its optimiser, and the function that is called in its steps."""

    def __init__(self, model: nn.Module, run: Callable[[Tensor], Tensor]) -> None:
        self.model, self.run = model, run
        self.optimiser = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(self, x: Tensor, labels: Tensor) -> None:
        self.optimiser.zero_grad()
        F.cross_entropy(self.run(x).flatten(0, -2), labels).backward()
        self.optimiser.step()


def _difference(own: nn.Module, other: nn.Module) -> float:
    """Difference of all gradients, relative to their norm."""
    pairs = zip(own.parameters(), other.parameters(), strict=True)
    found, expected = zip(*((a.grad, b.grad) for a, b in pairs if b.grad is not None), strict=True)
    apart = torch.stack([(a - b).norm() for a, b in zip(found, expected, strict=True)]).norm()
    return float(apart / torch.stack([own.norm() for own in expected]).norm())


def _errors(
    name: str, qat: nn.Module, compiled: nn.Module, x: Tensor, labels: Tensor
) -> dict[str, float]:
    """Differences of the gradients of a step: of compiled ones from eager ones, and of eager ones if ``x`` changes."""
    models = {peer: copy.deepcopy(qat) for peer in ("eager", "changed", "captured")}
    captured = models["captured"]
    changed = x + CHANGE * torch.randn_like(x)
    hosted = Trained(captured, corsac.compile(captured, options={"training": "host"}))
    for peer, model in models.items():
        for _ in range(3):
            own = hosted if peer == "captured" else Trained(model, model)
            own.step(changed if peer == "changed" else x, labels)
    found = {
        "captured": _difference(captured, models["eager"]),
        "changed": _difference(models["changed"], models["eager"]),
        "native": _difference(compiled, qat),
    }
    if max(found["captured"], found["native"]) > ALLOWED * found["changed"] + 1e-4:
        raise SystemExit(f"{name}: gradients differ, of their norm: {found}")
    return found


def _said(errors: dict[str, float]) -> str:
    return (
        f"gradients differ by {errors['native']:.1e} of their norm, eager ones by {errors['changed']:.1e} if the "
        f"input changes by {CHANGE:.0e}"
    )


def _theirs(model: nn.Module, x: Tensor) -> nn.Module:
    from torch.ao.quantization import get_default_qat_qconfig_mapping, quantize_fx

    mapping = get_default_qat_qconfig_mapping("x86")
    return quantize_fx.prepare_qat_fx(model, mapping, (x,))


def _measure(
    name: str, seconds: float, clock: Callable[[], float], training: str
) -> dict[str, Any]:
    torch.manual_seed(0)
    model, x, labels = MODELS[name][0]()
    mapping = get_default_qat_qconfig_mapping("x86")
    qat = prepare_qat_fx(copy.deepcopy(model).train(), mapping, (x,))
    compiled = copy.deepcopy(qat)
    floats = copy.deepcopy(model).train()
    theirs = _theirs(copy.deepcopy(model).train(), x)
    fast = corsac.compile(compiled, options={"training": training})
    peers = {
        "eager float": Trained(floats, floats),
        "eager QAT": Trained(qat, qat),
        "PyTorch QAT": Trained(theirs, theirs),
        "corsac QAT": Trained(compiled, fast),
    }
    for _ in range(STEPS):
        for own in peers.values():
            own.step(x, labels)
    errors = _errors(name, qat, compiled, x, labels)
    for own in peers.values():
        own.optimiser.param_groups[0]["lr"] = 0.001
    calls = {peer: (lambda own=own: own.step(x, labels)) for peer, own in peers.items()}
    result = summary(samples_in_turn(calls, seconds, clock=clock))
    return result | {"errors": errors, "explain": fast.explain().splitlines()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--seconds", type=float, default=5.0, help="for each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor time, on a shared machine"
    )
    parser.add_argument("--training", default="measured", help="measured, native")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    clock = time.process_time if options.cpu_time else time.perf_counter
    report: dict[str, Any] = {"machine": machine(), "threads": options.threads}
    print(
        f"{report['machine']}, {options.threads} thread(s); ms: minimum, median; ratios of minima"
    )
    for name in options.models:
        result = report[name] = _measure(name, options.seconds, clock, options.training)
        print(f"{name} ({MODELS[name][1]}): {_said(result['errors'])}", flush=True)
        print_peers(result, of="eager float")
        for line in result["explain"]:
            if "native" in line:
                print(f"  {line.strip()}")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
