"""Write the shape and dtype of every value into the graph.

Running the graph once on an example input is enough; the meta device makes it free of arithmetic.

    python examples/shape_propagation.py
"""

from typing import Any

import torch
from torch import nn

import corsac.fx as fx


class ShapePropagation(fx.Interpreter):
    """Stores ``shape`` and ``dtype`` in the metadata of each node whose value is a tensor."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            n.meta["shape"], n.meta["dtype"] = tuple(result.shape), result.dtype
        return result


def propagate(traced: fx.GraphModule, *shapes: tuple[int, ...]) -> fx.GraphModule:
    """Annotate a traced module for inputs of these shapes, without computing anything."""
    on_meta = fx.GraphModule(traced, traced.graph).to("meta")
    ShapePropagation(on_meta).run(*(torch.empty(shape, device="meta") for shape in shapes))
    return on_meta


def model() -> nn.Module:
    """A small image classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(10),
    )


def main() -> None:
    network = model()
    network(torch.zeros(1, 3, 32, 32))  # determines the size of the lazy layer
    traced = fx.symbolic_trace(network.eval())
    propagate(traced, (5, 3, 32, 32))
    for node in traced.graph.nodes:
        print(f"{node.name:<10} {node.meta.get('shape')!s:<20} {node.meta.get('dtype')}")


if __name__ == "__main__":
    main()
