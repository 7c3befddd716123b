# %% [markdown]
# # Deploy a model
#
# A model is saved as one file, and runs without Python and PyTorch: from NumPy, on the command line, in Rust, in C.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.export import Dim

import corsac

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
).eval()
x = torch.randn(2, 3, 32, 32)
folder = Path(tempfile.mkdtemp())
file = folder / "model.safetensors"

# %% [markdown]
# ## Save
#
# One call is recorded. Sizes are fixed, except those that are declared: here any batch from 1 to 64. The sizes are
# checked when the file is written.

# %%
corsac.save(model, file, (x,), dynamic_shapes={"input": {0: Dim("batch", min=1, max=64)}})
print(file.stat().st_size, "bytes")

# %% [markdown]
# The file is in the safetensors format: tensors, and the graph as text in its header. Reading one runs no code, and
# [limits](../model-files.md#checks-and-limits) hold for what it may ask for.
#
# ## Run it from NumPy
#
# With PyTorch, `corsac.load(file)` is a module; `framework="numpy"` makes a function of arrays, for which PyTorch need not
# be installed.

# %%
run = corsac.load(file, framework="numpy")
for batch in (1, 2, 7):
    images = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32), dtype=np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(run(images), expected, rtol=1e-4, atol=1e-5)
print(run)

# %% [markdown]
# A size out of range is an error that names the input and the dimension:

# %%
try:
    run(np.zeros((65, 3, 32, 32), np.float32))
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## Run it on the command line
#
# The package has a program. The native one (`make programs`) has the same commands for files, and needs no Python.


# %%
def corsac_program(*words):
    done = subprocess.run(
        [sys.executable, "-m", "corsac", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    print(done.stdout)


np.save(folder / "x.npy", x.numpy())
corsac_program("run", "model.safetensors", "--input", "x.npy", "--output", "y.npy")
print(np.load(folder / "y.npy").shape)

# %%
corsac_program("ops", "model.safetensors", "--size", "batch=8")

# %% [markdown]
# ## Rust and C
#
# ```rust
# let model = corsac_engine::Model::load("model.safetensors")?;
# let results = model.run(&[Tensor::new([2, 3, 32, 32], pixels)?])?;
# ```
#
# [The C interface](../c.md) is a library with a header: `corsac_model_load`, `corsac_model_run`. Whole programs are
# [classify.rs](../../examples/classify.rs) and [classify.c](../../examples/c).
