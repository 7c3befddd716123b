"""Size of the representation: a model as a corsac graph and as TorchScript.

The comparison of the torch.fx paper (Reed et al., "torch.fx: Practical Program Capture and
Transformation for Deep Learning in Python", MLSys 2022, section 6.1, "IR complexity"), which counts
the operations in the graphs of a ResNet-50.

    python examples/ir_size.py
"""

from collections import Counter
from dataclasses import dataclass

import torch
import torchvision

import corsac.fx as fx


@dataclass
class Size:
    """Number of operations of a program, and number of kinds of operations."""

    operations: int
    kinds: Counter[str]


def of_corsac(model: torch.nn.Module) -> Size:
    """The nodes of a traced graph."""
    nodes = fx.symbolic_trace(model).graph.nodes
    kinds = Counter(node.op for node in nodes)
    return Size(len(nodes), kinds)


def of_script(graph: torch._C.Graph) -> Size:
    """The nodes of a TorchScript graph, with those in nested blocks."""
    kinds: Counter[str] = Counter()

    def visit(block: torch._C.Block | torch._C.Graph) -> None:
        for node in block.nodes():
            kinds[node.kind()] += 1
            for inner in node.blocks():
                visit(inner)

    visit(graph)
    return Size(sum(kinds.values()), kinds)


def measure(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Size]:
    """The model as a corsac graph, scripted, and traced by TorchScript."""
    script = torch.jit.script(model)
    torch._C._jit_pass_inline(script.graph)
    trace = torch.jit.trace(model, x)
    torch._C._jit_pass_inline(trace.graph)
    return {
        "corsac": of_corsac(model),
        "torch.jit.script": of_script(script.graph),
        "torch.jit.trace": of_script(trace.graph),
    }


def main() -> None:
    model = torchvision.models.resnet50(weights=None).eval()
    sizes = measure(model, torch.zeros(1, 3, 64, 64))
    least = sizes["corsac"].operations
    for name, size in sizes.items():
        print(
            f"{name:<17} {size.operations:>5} operations of {len(size.kinds):>2} kinds, "
            f"{size.operations / least:.1f} times as many as corsac"
        )
        print("    " + ", ".join(f"{kind} {count}" for kind, count in size.kinds.most_common(4)))


if __name__ == "__main__":
    main()
