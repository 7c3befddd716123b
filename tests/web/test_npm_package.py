"""The npm package in Node.js: results are those of PyTorch, and errors those of the library."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import corsac
from kit.small_models import TransformerBlock

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def run(package, path, *inputs):
    """What the program prints for these tensors."""
    given = [
        {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "data": base64.b64encode(
                bytes(tensor.contiguous().view(-1).view(torch.uint8))
            ).decode(),
        }
        for tensor in inputs
    ]
    program = Path(__file__).with_name("run_model.mjs")
    done = subprocess.run(
        [NODE, program, package, path],
        input=json.dumps(given), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def results(printed):
    """The results as tensors."""
    assert "error" not in printed, printed
    return [
        torch.frombuffer(bytearray(base64.b64decode(own["data"])), dtype=getattr(torch, own["dtype"]))
        .reshape(own["shape"])
        for own in printed["results"]
    ]  # fmt: skip


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 20, 3, padding=1)
        self.depthwise = nn.Conv2d(20, 20, 3, groups=20, stride=2)
        self.last = nn.Linear(20, 7)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.nn.functional.hardswish(self.depthwise(x))
        return self.last(x.mean((2, 3))).softmax(-1)


class Numbers(nn.Module):
    """Integers, booleans and double precision."""

    def forward(self, x, ids):
        return ids * 3 - 1, x > 0, x.double().exp(), (x * 2).to(torch.float16)


@pytest.fixture
def ids():
    return torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("is_quantised", [False, True])
def test_convolutions_are_those_of_native_programs(package, tmp_path, is_quantised):
    torch.manual_seed(0)
    model, x = Convolutions().eval(), torch.randn(2, 3, 17, 23)
    if is_quantised:
        model = corsac.quantize(model, [(x,)], measure=False)
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, x)
    native = corsac.load(path)
    printed = run(package, path, x)
    assert printed["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3, 17, 23]}]
    assert [own["shape"] for own in printed["outputs"]] == [[2, 7]]
    torch.testing.assert_close(results(printed)[0], native(x), rtol=1e-4, atol=1e-5)


def test_transformers_are_those_of_pytorch(package, tmp_path, ids):
    torch.manual_seed(0)
    model, x = TransformerBlock().eval(), torch.randn(2, 9, 32)
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, (ids, x))
    for ours, theirs in zip(results(run(package, path, ids, x)), model(ids, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_weights_of_four_bits_are_multiplied(package, tmp_path):
    torch.manual_seed(0)
    model, x = nn.Linear(64, 40).eval(), torch.randn(3, 64)
    path = tmp_path / "model.safetensors"
    corsac.save(corsac.quantize(model, weights="int4:32", measure=False), path, x)
    ours = results(run(package, path, x))[0]
    torch.testing.assert_close(ours, corsac.load(path)(x), rtol=1e-4, atol=1e-5)
    assert 0.01 < (ours - model(x)).abs().max() < 0.3


def test_types_of_numbers_are_kept(package, tmp_path, ids):
    model, x = Numbers().eval(), torch.linspace(-3, 3, 18).reshape(2, 9)
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, (x, ids))
    for ours, theirs in zip(results(run(package, path, x, ids)), model(x, ids), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_sizes_may_differ_between_calls(package, tmp_path):
    torch.manual_seed(0)
    model, path = nn.Linear(5, 3).eval(), tmp_path / "model.safetensors"
    sizes = {"input": {0: Dim("batch", min=1, max=64)}}
    corsac.save(model, path, torch.zeros(2, 5), dynamic_shapes=sizes)
    for batch in (1, 7):
        x = torch.randn(batch, 5)
        printed = run(package, path, x)
        assert printed["inputs"][0]["shape"] == [None, 5]
        torch.testing.assert_close(results(printed)[0], model(x), rtol=1e-4, atol=1e-5)


def test_errors_have_texts_and_kinds(package, tmp_path):
    path = tmp_path / "model.safetensors"
    corsac.save(nn.Linear(5, 3).eval(), path, torch.zeros(2, 5))
    other_shape = run(package, path, torch.zeros(2, 4))
    assert other_shape["status"] == "CALL"
    assert "float32[2, 5], not float32[2, 4]" in other_shape["error"]
    other_type = run(package, path, torch.zeros(2, 5, dtype=torch.float64))
    assert other_type["error"].endswith("is a Float32Array for float32, not a Float64Array")
    assert run(package, path)["error"] == "TypeError: the model takes 1 inputs, not 0"
    path.write_bytes(path.read_bytes()[:-1])
    damaged = run(package, path, torch.zeros(2, 5))
    assert damaged["status"] == "DAMAGED" and damaged["error"].startswith("CorsacError: this is no")


def test_the_package_has_the_version_of_the_crates_and_all_its_files(package):
    described = json.loads((package / "package.json").read_text())
    cargo = (package.parent / "Cargo.toml").read_text()
    assert described["version"] == re.search(r'^version = "(.*)"', cargo, re.MULTILINE)[1]
    assert all((package / name).exists() for name in described["files"])
