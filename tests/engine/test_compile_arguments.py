"""Errors of ``corsac.compile`` for invalid arguments, and for invalid settings in the environment."""

import os
import subprocess
import sys

import pytest
import torch

import corsac


def test_names_of_models_are_refused_at_once(tmp_path):
    with pytest.raises(
        TypeError, match=r"expected a module or a function, got 'resnet50'; .*corsac save torchv"
    ):
        corsac.compile("resnet50")
    for refused in (
        lambda: corsac.capture("resnet50", torch.ones(1)),
        lambda: corsac.save("resnet50", tmp_path / "own.safetensors", torch.ones(1)),
    ):
        with pytest.raises(TypeError, match="expected a module or a function, got 'resnet50'; "):
            refused()
    assert not any(tmp_path.iterdir())
    with pytest.raises(TypeError, match=r"expected a module or a function, got 3$"):
        corsac.compile(3)


PROGRAM = """
import torch, corsac
layers = torch.nn.Linear(300, 400), torch.nn.ReLU(), torch.nn.Linear(400, 300)
fast = corsac.compile(torch.nn.Sequential(*layers).eval())
with torch.inference_mode():
    for _ in range(4):
        fast(torch.ones(200, 300))
"""


def test_a_number_of_threads_that_is_none_is_said_once():
    run = [sys.executable, "-c", PROGRAM]
    environment = os.environ | {"CORSAC_NUM_THREADS": "abc"}
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = 'CORSAC_NUM_THREADS is "abc", and a number from 1 to 65536 is needed: it is ignored'
    assert done.stderr.count(said) == 1, done.stderr
