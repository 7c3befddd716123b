"""Read the inner activations of a model by name.

Every value in a graph gets a stable name: the path of the module that made it, and the name of the operation
if a module makes several. Selecting some of them gives a model that computes just these, without the layers
that they do not need.

    python examples/feature_extraction.py
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import corsac.fx as fx


class NamingTracer(fx.Tracer):
    """Names each node after its module, and numbers repeated names."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.names: dict[fx.Node, str] = {}
        self.seen: Counter[str] = Counter()

    def call_module(
        self, m: nn.Module, forward: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        outer, self.path = self.path, self.path_of_module(m)
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.path = outer

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(kind, target, *args, **kwargs)
        operation = target if isinstance(target, str) else getattr(target, "__name__", "call")
        name = self.path if kind == "call_module" else f"{self.path}.{operation}".lstrip(".")
        count = self.seen[name]
        self.seen[name] += 1
        self.names[node] = f"{name}_{count}" if count else name
        return node


def node_names(model: nn.Module) -> list[str]:
    """The names of all values that can be selected."""
    tracer = NamingTracer()
    tracer.trace(model)
    return list(tracer.names.values())


def extractor(model: nn.Module, wanted: dict[str, str]) -> fx.GraphModule:
    """A model that returns a dictionary with the wanted values.

    ``wanted`` maps names of values, or of modules (their last value), to keys of the result.
    """
    tracer = NamingTracer()
    graph = tracer.trace(model)
    found: dict[str, fx.Node] = {}
    for node in graph.nodes:
        name = tracer.names[node]
        for request, key in wanted.items():
            if name == request or name.startswith(request + "."):
                found[key] = node  # the last one counts
    missing = set(wanted.values()) - set(found)
    if missing:
        raise ValueError(f"no value of the model is called {sorted(missing)}")
    graph.erase_node(graph.output_node())
    graph.output({key: found[key] for key in wanted.values()})
    module = fx.GraphModule(model, graph, f"{type(model).__name__}Features")
    graph.eliminate_dead_code()
    module.recompile()
    module.delete_all_unused_submodules()
    return module


def main() -> None:
    from torchvision.models import resnet18

    model = resnet18(weights=None).eval()
    print("some names:", node_names(model)[:6])
    features = extractor(model, {"layer1": "low", "layer3": "high", "layer2.0.add": "sum"})
    with torch.no_grad():
        result = features(torch.randn(1, 3, 64, 64))
    for key, value in result.items():
        print(f"{key:<5} {tuple(value.shape)}")
    print("kept:", [name for name, _ in features.named_children()])


if __name__ == "__main__":
    main()
