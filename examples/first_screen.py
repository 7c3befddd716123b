"""The README's example: trace a module, look at it, change it, run it."""

import torch

import corsac.fx as fx


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.param = torch.nn.Parameter(torch.rand(3, 4))
        self.linear = torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.linear(x + self.param).clamp(min=0.0, max=1.0)


torch.manual_seed(0)
traced = fx.symbolic_trace(Net())
print(traced.graph)
traced.graph.print_tabular()
print(traced.code)
fx.replace_pattern(traced, lambda x: x.clamp(min=0.0, max=1.0), lambda x: x.relu())
print(traced(torch.ones(3, 4)))
