"""Programs to be split, and comparison of split modules."""

import importlib
import random
from types import ModuleType
from typing import Any

import torch
from torch import nn

from .implementations import REFERENCE, SUBJECT

BOTH = (REFERENCE, SUBJECT)


def module_of(implementation: Any, name: str) -> ModuleType:
    """The submodule of an implementation: ``passes.split_module``."""
    return importlib.import_module(f"{implementation.name}.{name}")


def described(module: nn.Module, normalise: Any = lambda text: text) -> str:
    """Graph and code of a split module and of all its graph modules, and the classes of all modules."""
    texts = []
    for name, inner in module.named_modules():
        kind = "graph module" if hasattr(inner, "graph") else type(inner).__name__
        texts.append(f"== {name}: {kind}")
        if hasattr(inner, "graph"):
            texts += [str(inner.graph), inner.code]
    return normalise("\n".join(texts))


def calls(gm: Any) -> list[Any]:
    return [node for node in gm.graph.nodes if node.op.startswith("call_")]


class Residual(nn.Module):
    """Nested modules, an attribute used twice, a residual edge, an output that is used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4))
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))

    def forward(self, x, unused=None, *, shift=1.5):
        a = x * self.scale
        b = self.block(a)
        c = b + a
        d = (c * self.scale).clamp(min=0.0, max=shift)
        return {"sum": c, "both": (d, [a, x])}


class Mutating(nn.Module):
    """Changes in place a value that another partition reads."""

    def forward(self, x):
        y = x + 1
        z = y.view(-1)
        y.add_(2)
        y.mul_(3)
        return z.sum() + y.sum()


class Tuples(nn.Module):
    """Takes tuples apart, nested arguments, slices."""

    def forward(self, x, i):
        a, b = torch.split(x, 2, dim=-1)
        c = torch.cat([a, b * i], dim=-1)
        d = c[:, 0:1]
        n = x.size(0)
        e = d.expand(n, 4).reshape(n, -1)
        return torch.stack((e, c), dim=0), n


PROGRAMS = {
    "residual": (Residual, lambda: (torch.rand(3, 4),)),
    "mutating": (Mutating, lambda: (torch.rand(3, 4),)),
    "tuples": (Tuples, lambda: (torch.rand(3, 4), 2.0)),
}


def random_program(fx: ModuleType, seed: int, length: int = 24) -> Any:
    """A graph module with random calls; all values are tensors of one shape."""
    dice = random.Random(seed)
    root = nn.Module()
    root.weight = nn.Parameter(torch.linspace(0.5, 1.5, 4))
    root.inner = nn.Module()
    root.inner.linear = nn.Identity()
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    values.append(graph.get_attr("weight"))
    for _ in range(length):
        pick = [values[max(0, len(values) - 1 - int(dice.expovariate(0.4)))] for _ in range(2)]
        kind = dice.randrange(6)
        if kind == 0:
            node = graph.call_function(torch.add, tuple(pick))
        elif kind == 1:
            node = graph.call_function(torch.mul, (pick[0],), {"other": pick[1]})
        elif kind == 2:
            node = graph.call_method("sigmoid", (pick[0],))
        elif kind == 3:
            node = graph.call_module("inner.linear", (pick[0],))
        elif kind == 4:
            node = graph.call_function(torch.relu, (pick[0],))
        else:
            node = graph.call_function(torch.sub, tuple(pick))
        values.append(node)
    returned = [dice.choice(values) for _ in range(dice.randrange(1, 4))]
    graph.output(returned[0] if len(returned) == 1 else tuple(returned))
    return fx.GraphModule(root, graph)
