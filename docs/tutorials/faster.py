# %% [markdown]
# # Make a model faster
#
# `corsac.compile` records the first call of a model and runs the next ones natively, on the CPU. It needs no C++ compiler.

# %%
import time

import torch
import torchvision

import corsac

torch.manual_seed(0)
torch.set_num_threads(1)
model = torchvision.models.efficientnet_b0().eval()
x = torch.randn(1, 3, 224, 224)

fast = corsac.compile(model)
with torch.inference_mode():
    start = time.perf_counter()
    first = fast(x)
    print(f"first call {1e3 * (time.perf_counter() - start):.0f} ms")
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)

# %% [markdown]
# ## How much faster
#
# Calls in turn, so that a slow moment of the machine counts for both.


# %%
def shortest(*functions, calls=20):
    """Milliseconds of the shortest call of each function."""
    best = [float("inf")] * len(functions)
    for _ in range(calls):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function(x)
            best[i] = min(best[i], 1e3 * (time.perf_counter() - start))
    return best


with torch.inference_mode():
    eager, compiled = shortest(model, fast)
print(f"eager {eager:.1f} ms, compiled {compiled:.1f} ms")

# %% [markdown]
# ## What was compiled
#
# `explain` has a line for each set of sizes that was seen, and what PyTorch still runs, with the reason.

# %%
print(fast.explain())

# %% [markdown]
# `corsac.profile` measures each step of the program.

# %%
with torch.inference_mode():
    text = str(corsac.profile(fast, x))
print("\n".join(text.splitlines()[:12]))

# %% [markdown]
# ## What happens to Python
#
# The program may read Python values. They are guarded: where one has changed, the call is recorded anew, so a result is
# never that of an old value.


# %%
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.scale = 2.0

    def forward(self, x):
        return self.linear(x) * self.scale


scaled = Scaled().eval()
fast = corsac.compile(scaled)
x = torch.randn(2, 8)
with torch.inference_mode():
    for scale in (2.0, 2.0, 3.0):
        scaled.scale = scale
        torch.testing.assert_close(fast(x), scaled(x))
print(fast.explain())

# %% [markdown]
# The second size of a batch is recorded with a symbol for it. Other sizes need no recording: the program is compiled for
# them, in a fraction of a millisecond. [Capture](../capture.md) has the details, [the engine](../engine.md) the options.

# %%
with torch.inference_mode():
    for batch in (4, 5, 6, 7):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(fast(x), scaled(x))
print(fast.explain())
