"""A data-dependent branch: three graphs, with the value that is read between them.

corsac records each path when a call takes it for the first time: a graph up to the branch, which both paths
share, and one for each of them.

    python examples/backend_graph_breaks.py
"""

from collections.abc import Callable

import torch

import corsac
import corsac.fx as fx
from corsac.backends import explain

graphs: list[fx.GraphModule] = []


def my_compiler(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., object]:
    graphs.append(gm)
    print(f"graph {len(graphs)}:")
    gm.graph.print_tabular()
    return gm.forward


def toy_example(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def main() -> None:
    optimized = corsac.compile(toy_example, backend=my_compiler)
    for sign in (1, -1, 1, -1):
        a, b = torch.randn(10), torch.rand(10) * sign
        torch.testing.assert_close(optimized(a, b), toy_example(a, b))
    print(f"{len(graphs)} graphs")
    for own in explain(toy_example, backend="eager")(a, b).breaks:
        print(own)


if __name__ == "__main__":
    main()
