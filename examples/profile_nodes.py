"""Measure the time of a model, node by node.

An interpreter runs the graph one node at a time, so wrapping ``run_node`` is all that is needed.

    python examples/profile_nodes.py
"""

import statistics
import time
from collections import defaultdict
from typing import Any

import torch
from torch import nn

import corsac.fx as fx


class Profiler(fx.Interpreter):
    """Runs a model and records, for each node, its times and the shape of its result."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(fx.symbolic_trace(module))
        self.seconds: dict[fx.Node, list[float]] = defaultdict(list)
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}
        self.totals: list[float] = []

    def run(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = super().run(*args, **kwargs)
        self.totals.append(time.perf_counter() - start)
        return result

    def run_node(self, n: fx.Node) -> Any:
        start = time.perf_counter()
        result = super().run_node(n)
        self.seconds[n].append(time.perf_counter() - start)
        if isinstance(result, torch.Tensor):
            self.shapes[n] = tuple(result.shape)
        return result

    def table(self) -> str:
        """The nodes, slowest first."""
        total = statistics.median(self.totals)
        lines = [f"{'node':<12} {'op':<14} {'ms':>8} {'share':>6}  shape"]
        medians = {n: statistics.median(times) for n, times in self.seconds.items()}
        for node, seconds in sorted(medians.items(), key=lambda item: -item[1]):
            lines.append(
                f"{node.name:<12} {node.op:<14} {seconds * 1e3:8.3f} {seconds / total:6.1%}"
                f"  {self.shapes.get(node, '')}"
            )
        return "\n".join(lines)


def model() -> nn.Module:
    """Two convolutions and a classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def main() -> None:
    profiler = Profiler(model())
    x = torch.randn(2, 3, 32, 32)
    for _ in range(5):
        profiler.run(x)
    print(profiler.table())


if __name__ == "__main__":
    main()
