"""Results of model files come in the structure in which the model returns them."""

import json
import math
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import corsac

X = torch.arange(6.0).reshape(2, 3)


class Returns(nn.Module):
    """A model that returns what a function makes of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, x):
        return self.function(x)


RESULTS = {
    "a tensor and None": lambda x: (x + 1, None),
    "None first": lambda x: [None, x + 1],
    "nested": lambda x: {"a": (x * 2, None), "b": [x.sum(), {"c": None}]},
    "numbers": lambda x: (x + 1, 3, 2.5, True, -1),
    "texts": lambda x: {"result": x + 1, "kind": "sum", "quoted": "a'b\"\n\\é"},
    "special numbers": lambda x: (x + 1, math.inf, -0.0, 10**18),
    "sizes": lambda x: (x + 1, x.shape[0], x.dim()),
    "an empty tuple": lambda x: (x + 1, (), [], {}),
    "inputs and numbers": lambda x: (x, 0, 1, x * 2),
    "a tensor twice": lambda x: (lambda y: (y, y, None, 1))(x + 1),
}


def kind(value):
    """The structure of a result, with constants, where tensors and arrays count as the same."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return "tensor"
    if isinstance(value, (tuple, list)):
        return type(value), [kind(own) for own in value]
    if isinstance(value, dict):
        return [(key, kind(own)) for key, own in value.items()]
    return type(value), repr(value)


def leaves(value):
    return [
        np.asarray(own)
        for own in torch.utils._pytree.tree_leaves(value)
        if isinstance(own, (torch.Tensor, np.ndarray))
    ]


def check(found, expected):
    assert kind(found) == kind(expected)
    for own, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(own, other)


@pytest.mark.parametrize("name", RESULTS)
def test_loaded_models_return_what_the_model_returns(name, tmp_path):
    model, path = Returns(RESULTS[name]), tmp_path / "m.safetensors"
    corsac.save(model, path, X)
    module = corsac.load(path)
    for x in (X, X - 3):
        check(corsac.load(path, framework="numpy")(x.numpy()), model(x))
        for _ in range(2):
            check(module(x), model(x))


@pytest.mark.parametrize("name", ["a tensor and None", "nested", "numbers", "texts"])
def test_exported_programs_and_functions_keep_the_structure_too(name, tmp_path):
    model, path = Returns(RESULTS[name]), tmp_path / "m.safetensors"
    for own in (torch.export.export(model, (X,)), RESULTS[name], corsac.compile(model)):
        corsac.save(own, path, (X,))
        check(corsac.load(path, framework="numpy")(X.numpy()), model(X))


def test_sessions_keep_the_structure(tmp_path):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return {"sum": x + self.count, "cache": None, "layers": [1, "one"]}

    model, path = Counts().eval(), tmp_path / "m.safetensors"
    corsac.save(model, path, X, state=True)
    for framework in ("torch", "numpy"):
        session = corsac.load(path, framework=framework).session()
        given = X if framework == "torch" else X.numpy()
        for count in (1, 2):
            check(session.run(given), {"sum": X + count, "cache": None, "layers": [1, "one"]})


def test_results_in_classes_are_a_tuple_of_the_tensors(tmp_path):
    model = Returns(lambda x: (OrderedDict(a=x + 1), None, 3))
    corsac.save(model, tmp_path / "m.safetensors", X)
    (found,) = corsac.load(tmp_path / "m.safetensors", framework="numpy")(X.numpy())
    np.testing.assert_array_equal(found, X + 1)


def test_numbers_that_follow_from_sizes_are_no_constants_of_symbolic_ones(tmp_path):
    path, sizes = tmp_path / "m.safetensors", {"x": {0: Dim("n", min=1, max=8)}}
    with pytest.raises(corsac.CompileError):
        corsac.save(Returns(lambda x: (x + 1, x.shape[0])), path, X, dynamic_shapes=sizes)
    corsac.save(Returns(lambda x: (x + 1, x.shape[1], None)), path, X, dynamic_shapes=sizes)
    for x in (X, X[:1]):
        check(corsac.load(path, framework="numpy")(x.numpy()), (x + 1, 3, None))


def test_only_files_with_constants_are_of_the_newest_version(tmp_path):
    def version(function):
        path = tmp_path / "m.safetensors"
        corsac.save(Returns(function), path, X)
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return header["__metadata__"]["corsac.format"]

    assert version(lambda x: x + 1) == "1"
    assert version(lambda x: (x + 1, None)) == "1"
    assert version(lambda x: (x + 1, "text")) == "6"


def test_the_program_writes_the_tensors_of_results_with_constants(tmp_path):
    model, path = Returns(RESULTS["nested"]), tmp_path / "m.safetensors"
    corsac.save(model, path, X)
    np.save(tmp_path / "x.npy", X.numpy())
    outputs = [f"--output={tmp_path / name}.npy" for name in ("first", "second")]
    command = [sys.executable, "-m", "corsac", "run", str(path), "--input", str(tmp_path / "x.npy")]
    subprocess.run([*command, *outputs], check=True, cwd=Path(__file__).parent)
    np.testing.assert_array_equal(np.load(tmp_path / "first.npy"), X * 2)
    np.testing.assert_array_equal(np.load(tmp_path / "second.npy"), X.sum())
    text = subprocess.run(
        [*command[:3], "show", str(path)], check=True, capture_output=True, text=True
    )
    assert "None" in text.stdout


def test_modules_loaded_from_files_are_saved_again(tmp_path):
    model = Returns(RESULTS["numbers"])
    for name in ("one", "two"):
        corsac.save(model, tmp_path / name, X)
        model = corsac.load(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    check(model(X), RESULTS["numbers"](X))
