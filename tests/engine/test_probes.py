"""Probes of PyTorch run once per process, whatever modes are active at the first use."""

import os
import subprocess
import sys

import pytest

ASKED = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
from corsac import _core

class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise AssertionError("not to be seen")

class Function(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        raise AssertionError("not to be seen")

with {mode}:
    print(_core.knows_tensor_layout(), _core.knows_switches(), _core.makes_tensors_directly())
"""


@pytest.mark.parametrize(
    "mode",
    [
        "FakeTensorMode()",
        "Dispatch()",
        "Function()",
        "torch.device('meta')",
        "torch.inference_mode()",
        "torch.autocast('cpu')",
        "torch.autograd.graph.save_on_cpu()",
    ],
)
def test_modes_of_the_first_caller_do_not_matter(mode):
    # Newly allocated memory is not zero.
    done = subprocess.run(
        [sys.executable, "-c", ASKED.format(mode=mode)],
        env=os.environ | {"MALLOC_PERTURB_": "165"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True True\n"
