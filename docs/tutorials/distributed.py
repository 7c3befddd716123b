# %% [markdown]
# # Several processes
#
# `corsac.distributed` cuts a model into stages for a pipeline, cuts weights for tensor parallelism, and plans both for
# more ranks than there are. Everything here runs in one process; [several processes](../distributed.md) has programs
# for `torchrun`.

# %%
import torch
from torch import nn

import corsac

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(*(Block(64) for _ in range(4)), nn.Linear(64, 10))
x = torch.randn(16, 64)
target = torch.randint(0, 10, (16,))


def loss(result, target):
    return nn.functional.cross_entropy(result, target)


# %% [markdown]
# ## A pipeline
#
# The model is recorded and cut where the slowest stage is as fast as possible. A plan needs no processes; it can be
# written to a file, which the processes read. The arguments are those of a call with one microbatch.

# %%
plan = corsac.distributed.plan_pipeline(model, x[:4], stages=2)
print(plan)

# %% [markdown]
# ## Tensor parallelism
#
# Each weight gets a placement, and each collective its place in the graph. The first linear layer of a block is cut by
# columns, the second by rows, so that a block needs one sum.

# %%
text = str(corsac.distributed.plan_parallel(model, x, tp=2))
print("\n".join(text.splitlines()[:7]))

# %% [markdown]
# ## A plan for more ranks
#
# `plan_mesh` compares all ways to share ranks among stages, parts of weights and copies, by what a step takes and
# keeps. The speeds of ranks and of their connections are arguments: this model is so small that messages take most of
# the time.

# %%
from corsac.analysis import Machine

plans = corsac.distributed.plan_mesh(
    model,
    x,
    ranks=[2, 4],
    bandwidth=12e9,
    latency=1e-6,
    machine=Machine(gflops=100, gbytes=10),
    microbatches=[2, 4],
)
print(plans)

# %% [markdown]
# ## A step of it
#
# `simulate_step` runs a step with all ranks as threads of this process, over gloo. Losses and gradients are those of one
# process.

# %%
best = plans.plan(plans.best(4))
step = corsac.distributed.simulate_step(best, x, target=target, loss_fn=loss)
loss(model(x), target).backward()
for name, parameter in model.named_parameters():
    torch.testing.assert_close(step.gradients[name], parameter.grad)
print(best.mesh, "with", len(step.losses), "microbatches")
print(
    f"mean loss {torch.stack(step.losses).mean():.4f}, in one process {loss(model(x), target):.4f}"
)
