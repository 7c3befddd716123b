# %% [markdown]
# # Write a transform
#
# A transform takes a model, records it as a graph, changes the graph, and returns a model. Here each
# `x * sigmoid(x)` becomes one call of `silu`, in three ways; then a pass is checked and measured.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx as fx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 8)

    def forward(self, x):
        y = self.first(x)
        y = y * torch.sigmoid(y)
        y = self.second(y)
        return y * torch.sigmoid(y)


torch.manual_seed(0)
model = Net().eval()
x = torch.randn(4, 16)
expected = model(x)

# %% [markdown]
# ## The graph
#
# `symbolic_trace` runs the model with proxies. Each node has an operation, a target and arguments; `users` are the nodes
# that read its value.

# %%
gm = fx.symbolic_trace(model)
print(gm.graph)

# %%
for node in gm.graph.find_nodes(op="call_function", target=torch.sigmoid):
    print(node.name, "reads", node.args, "and is read by", list(node.users))

# %% [markdown]
# ## By hand
#
# New nodes are inserted before an old one, which is erased when nothing reads it any more. `lint` checks the graph,
# `recompile` makes the code anew.

# %%
import operator

for node in list(gm.graph.nodes):
    if node.target is not operator.mul:
        continue
    value, gate = node.args
    if gate.target is torch.sigmoid and gate.args == (value,):
        with gm.graph.inserting_before(node):
            silu = gm.graph.call_function(F.silu, (value,))
        node.replace_all_uses_with(silu)
        gm.graph.erase_node(node)
        gm.graph.erase_node(gate)
gm.graph.lint()
gm.recompile()
print(gm.code)
torch.testing.assert_close(gm(x), expected)

# %% [markdown]
# ## As a pattern
#
# `replace_pattern` takes two functions, whose parameters match any value.

# %%
gm = fx.symbolic_trace(model)
matches = fx.replace_pattern(gm, lambda y: y * torch.sigmoid(y), lambda y: F.silu(y))
print(len(matches), "places")
torch.testing.assert_close(gm(x), expected)

# %% [markdown]
# ## As a rule
#
# A [rule](../rules.md) is text. `mul(?x, sigmoid(?x))` matches all spellings of a product (`*`, `torch.mul`, `.mul`) and both
# orders of its factors. The report has each place, and the reason where a rule was not applied.

# %%
from corsac.passes import rewrite

gm = fx.symbolic_trace(model)
report = rewrite(gm, "silu: mul(?x, sigmoid(?x)) => torch.nn.functional.silu(?x)")
print(report)
torch.testing.assert_close(gm(x), expected)

# %% [markdown]
# ## A manager of passes
#
# `PassManager` runs passes in order, checks the graph after each, and with `verify=` compares results. A wrong pass is
# found, and named:

# %%
from corsac.passes import PassManager, common_subexpressions, eliminate_dead_code


def halve(gm):
    """Multiplies the result by a half, which a pass must not do."""
    (output,) = gm.graph.find_nodes(op="output")
    with gm.graph.inserting_before(output):
        half = gm.graph.call_function(torch.mul, (output.args[0], 0.5))
    output.args = (half,)
    gm.recompile()


gm = fx.symbolic_trace(model)
try:
    PassManager([common_subexpressions, halve, eliminate_dead_code], verify=x)(gm)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## An interpreter
#
# Subclasses of `Interpreter` run the graph node by node; this one counts the numbers that each node makes.


# %%
class Sizes(fx.Interpreter):
    def run_node(self, node):
        value = super().run_node(node)
        print(f"{node.name:<10} {node.op:<14} {value.numel():>4}")
        return value


_ = Sizes(gm).run(x)
