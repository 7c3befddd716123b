"""Training steps: corsac against eager, and the first step against inductor's.

    python benches/training.py [--only PATTERN] [--threads N] [--seconds S] [--inductor] [--autocast] [--cpu-time]

Gradients of the first step are compared with those in float64, with a tolerance a little above eager's own
error. Then steps (forward, loss, backward, optimiser) are made in turn, one of each peer, once corsac has
decided for all parts; the minimum and the median are reported. The first step is capture, compilation and a
step, in this process, with everything imported; corsac's time for compiling graphs, without capture, is
reported too, in wall-clock seconds. ``--autocast`` takes steps in autocast to bfloat16, and beside them corsac's in
float32. ``--cpu-time`` reports CPU seconds instead, for one thread on a machine
shared with other programs; those of the C++ compiler count, and inductor starts one at a time.

Writes target/bench/training.json: by model, ``first``, ``steady`` and ``median`` in seconds by peer, ``compiling``, ``error``
(of the worst gradient, of its largest element), and ``native`` (calls of operators, of how many).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._inductor.config
from torch import nn
from torch.nn import functional as F

import corsac
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "training.json"
#: Allowed difference of a gradient from eager's, relative to its largest element.
TOLERANCE = 1e-4
#: The peer in float32, beside steps in autocast.
IN_FLOAT32 = "corsac float32"
#: Number of steps after which it is decided for all parts whether native code is faster.
STEPS = 30


class Block(nn.Module):
    """A transformer layer with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.joint(self.first(x)).split(width, 2)
        heads = [own.view(batch, length, self.heads, -1).transpose(1, 2) for own in parts]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """Two layers, 256 wide."""

    def __init__(self, words: int = 2000, width: int = 256, length: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 8), Block(width, 8))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def _mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), torch.randn(128, 784), torch.randint(0, 10, (128,))


def _gpt() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return GPT(), torch.randint(0, 2000, (4, 128)), torch.randint(0, 2000, (512,))


def _vit() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", num_classes=10)
    return model, torch.randn(4, 3, 224, 224), torch.randint(0, 10, (4,))


def _resnet() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    return model, torch.randn(8, 3, 96, 96), torch.randint(0, 10, (8,))


#: Name, constructor, and description of the batch.
MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "mlp": (_mlp, "784, 512, 512, 10, batch 128"),
    "gpt": (_gpt, "2 layers, 256 wide, 4 x 128 words"),
    "vit_tiny": (_vit, "batch 4, 224 x 224"),
    "resnet18": (_resnet, "batch 8, 96 x 96"),
}


class Trained:
    """A copy of a model, with its optimiser and its compiled function."""

    def __init__(
        self, model: nn.Module, compiled: Callable[[nn.Module], Any], *, autocast: bool = False
    ) -> None:
        self.model = copy.deepcopy(model).train()
        self.run = compiled(self.model)
        self._autocast = autocast
        self._optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> None:
        self._optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
            loss = F.cross_entropy(self.run(x).flatten(0, -2), labels)
        loss.backward()
        self._optimiser.step()

    def graphs(self) -> list[Any]:
        """The forward and backward graphs of corsac."""
        return [own for piece in self.run._trained_graphs() for own in piece.graphs]


def processor_seconds() -> float:
    """CPU seconds of this process and its finished child processes."""
    own = os.times()
    return time.process_time() + own.children_user + own.children_system


def _difference(one: nn.Module, other: nn.Module) -> float:
    """Difference of the worst gradient, relative to its largest element."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(
        ((own.grad - its.grad).abs().max() / its.grad.abs().max().clamp_min(1e-12)).item()
        for own, its in pairs
    )


def checked_gradients(
    found: Trained,
    model: nn.Module,
    x: torch.Tensor,
    labels: torch.Tensor,
    *,
    autocast: bool = False,
) -> float:
    """Difference of the worst gradient of a first step of ``model`` from that in float64.

    Where this is no sign of a fault, as for an activation near zero that changes sign, eager's differs as
    well.
    """
    exact, eager = (
        Trained(copy.deepcopy(model).double(), lambda own: own),
        Trained(model, lambda own: own, autocast=autocast),
    )
    exact.step(x.double() if x.is_floating_point() else x, labels)
    eager.step(x, labels)
    error, bound = _difference(found.model, exact.model), _difference(eager.model, exact.model)
    assert error <= max(TOLERANCE, 4 * bound), f"gradients differ by {error}, eager's by {bound}"
    return error


def settle(trained: Trained, x: torch.Tensor, labels: torch.Tensor) -> None:
    """Run steps until it is decided for all parts whether native code is faster; until then, both run in turn."""
    for _ in range(STEPS):
        if "run both ways in turn" not in trained.run.explain():
            return
        trained.step(x, labels)


def _measure(
    name: str, seconds: float, clock: Callable[[], float], *, inductor: bool, autocast: bool
) -> dict[str, Any]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x, labels = MODELS[name][0]()
    peers: dict[str, Callable[[nn.Module], Any]] = {
        "eager": lambda own: own,
        "corsac": corsac.compile,
    }
    if inductor:
        peers["inductor"] = torch.compile
    if autocast:
        peers[IN_FLOAT32] = corsac.compile
    result: dict[str, Any] = {"first": {}}
    trained = {}
    for compiled in peers.values():
        # Imports and start-up at the first use are not counted.
        Trained(nn.Linear(2, 2), compiled).step(torch.randn(3, 2), torch.tensor([0, 1, 0]))
    # Otherwise Dynamo would treat the sizes of the next model as dynamic.
    torch._dynamo.reset()
    for peer, compiled in peers.items():
        start = clock()
        trained[peer] = Trained(model, compiled, autocast=autocast and peer != IN_FLOAT32)
        trained[peer].step(x, labels)
        result["first"][peer] = clock() - start
    result["error"] = checked_gradients(trained["corsac"], model, x, labels, autocast=autocast)
    for peer in {"corsac", IN_FLOAT32} & {*trained}:
        settle(trained[peer], x, labels)
    steps = {peer: partial(own.step, x, labels) for peer, own in trained.items()}
    samples = samples_in_turn(steps, seconds, clock=clock)
    graphs = trained["corsac"].graphs()
    result["compiling"] = sum(own.seconds for own in graphs)
    result["native"] = [f"{own.native} of {own.calls} calls native" for own in graphs]
    return result | summary(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model")
    parser.add_argument("--inductor", action="store_true", help="compare with inductor, too")
    parser.add_argument("--autocast", action="store_true", help="steps in autocast to bfloat16")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    # Nothing is reused from earlier runs.
    torch._inductor.config.force_disable_caches = True
    clock = processor_seconds if chosen.cpu_time else time.perf_counter
    if chosen.cpu_time:
        # Compilers started by its own worker processes cannot be observed from here.
        torch._inductor.config.compile_threads = 1
    report: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "models": {}}
    for name, (_, batch) in MODELS.items():
        if not re.search(chosen.only, name):
            continue
        result = _measure(
            name, chosen.seconds, clock, inductor=chosen.inductor, autocast=chosen.autocast
        )
        report["models"][name] = result
        print(
            f"{name} ({batch}): worst gradient {result['error']:.1e}; {', '.join(result['native'])}"
        )
        first = result["first"]
        print_peers(result, lambda peer, first=first: f"first step {first[peer]:.2f} s")
        if "inductor" in first:
            times = first["inductor"] / first["corsac"]
            own = result["compiling"]
            rest = first["corsac"] - own
            print(
                f"  inductor's first step takes {times:.1f} times corsac's; without {rest:.2f} s for capture and "
                f"the step {(first['inductor'] - rest) / own:.0f} times {own:.2f} s",
                flush=True,
            )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
