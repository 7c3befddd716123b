# %% [markdown]
# # Quantise a model
#
# `corsac.quantize` replaces layers by layers of integers of 8 bits, where that makes them faster, and reports what it
# did and why. The model here is trained on drawn images in a few seconds, so that its accuracy means something.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import corsac

torch.manual_seed(0)
torch.set_num_threads(1)


def images(number):
    """Images of 16 × 16 with a bar, and the direction of the bar: one of four."""
    directions = torch.randint(0, 4, (number,))
    places = torch.linspace(-1, 1, 16)
    y, x = torch.meshgrid(places, places, indexing="ij")
    angles = (directions * torch.pi / 4)[:, None, None] + 0.2 * torch.randn(number, 1, 1)
    distance = x * angles.sin() - y * angles.cos() + 0.3 * torch.randn(number, 1, 1)
    return (distance.abs() < 0.2).float().unsqueeze(1) + 0.3 * torch.randn(
        number, 1, 16, 16
    ), directions


model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1, stride=2),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 4),
)
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(60):
    inputs, labels = images(64)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
model.eval()
inputs, labels = images(500)


def accuracy(model):
    with torch.inference_mode():
        return 100 * float((model(inputs).argmax(1) == labels).float().mean())


print(f"{accuracy(model):.1f} %")

# %% [markdown]
# ## Integers of 8 bits
#
# A few batches show which numbers the layers get. Both forms of each layer are timed on this machine. The report has for
# each layer its form, the signal-to-noise ratio of its result, times and bytes.

# %%
batches = [images(32)[0] for _ in range(4)]
small = corsac.quantize(model, batches)
print(small.quantization_report)

# %%
print(f"float {accuracy(model):.1f} %, quantised {accuracy(corsac.compile(small)):.1f} %")

# %% [markdown]
# ## Fewer bytes
#
# With `weights=`, only weights are stored as integers; numbers between layers stay float. `int4:32` are 4 bits, with a
# scale for every 32 weights of a row: for language models, whose time goes into reading weights.

# %%
few = corsac.quantize(model, weights="int4:32")
print(few.quantization_report)
print(f"{accuracy(corsac.compile(few)):.1f} %")

# %% [markdown]
# ## Save it
#
# A quantised model is saved and runs as any other: the file has the integers.

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
for name, own in (("float", model), ("int8", small), ("int4", few)):
    file = folder / f"{name}.safetensors"
    corsac.save(own, file, (inputs[:1],))
    print(f"{name:<6}{file.stat().st_size:>8,} bytes")

# %% [markdown]
# [Quantise in one call](../quantize.md) has all options: layers to leave out, a bound on the loss of accuracy, SmoothQuant.
# [Quantisation](../quantisation.md) has graph mode, training with rounded weights, and observers.
