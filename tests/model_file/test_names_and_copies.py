"""Names of tensors and inputs in model files, sizes of ``*args``, and copies and pickles of loaded models."""

import copy
import pickle

import numpy
import pytest
import torch
from torch import nn
from torch.export import Dim

import corsac


class Named(nn.Module):
    """Adds its input to a buffer of a given name."""

    def __init__(self, name, writes=False):
        super().__init__()
        self.name, self.writes = name, writes
        self.register_buffer(name, torch.ones(2))

    def forward(self, x):
        own = getattr(self, self.name)
        return (own.add_(x) if self.writes else own + x) * 1


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_a_buffer_may_be_named_like_an_input_unless_it_is_state(path):
    corsac.save(Named("x").eval(), path, torch.ones(2))
    assert torch.equal(corsac.load(path)(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(corsac.CompileError, match="state x is named like an input of the model"):
        corsac.save(Named("x", writes=True).eval(), path, torch.ones(2), state=True)


@pytest.mark.parametrize("writes", [False, True])
def test_a_name_of_the_format_is_refused(writes, path):
    with pytest.raises(corsac.CompileError, match="named __metadata__, the name of the metadata"):
        corsac.save(Named("__metadata__", writes).eval(), path, torch.ones(2), state=writes)


class Sum(nn.Module):
    def forward(self, x, *others):
        return x + sum(others)


@pytest.mark.parametrize(
    "declared",
    [
        {"x": {0: "n"}, "others": ({0: "n"}, {0: "n"})},
        {"x": ("n", None), "others": [("n", None), ("n", None)]},
        ({0: "n"}, ({0: "n"}, {0: "n"})),
        ({0: Dim("n")}, [{0: Dim("n")}, {0: Dim("n")}]),
        ({0: "n"}, {0: "n"}, {0: "n"}),
        {"x": {0: "n"}, "others_0": {0: "n"}, "others_1": {0: "n"}},
    ],
)
def test_sizes_of_args_as_torch_export_takes_them(declared, path):
    example = (torch.ones(3, 2),) * 3
    corsac.save(Sum().eval(), path, example, dynamic_shapes=declared)
    loaded = corsac.load(path)
    x = torch.arange(10.0).reshape(5, 2)
    assert torch.equal(loaded(x, x, x), 3 * x)


def test_sizes_of_other_numbers_of_args_are_refused(path):
    example = (torch.ones(3, 2),) * 3
    for declared in ({"x": {}, "others": ({0: "n"},)}, ({}, ({0: "n"},))):
        with pytest.raises(ValueError, match=r"\*others has 1 entries, and there are 2 inputs"):
            corsac.save(Sum().eval(), path, example, dynamic_shapes=declared)


def test_equal_sizes_with_two_names_get_a_hint(path):
    example = torch.ones(3, 4), torch.ones(4, 5)
    with pytest.raises(corsac.CompileError, match="if k and n are always equal, declare them by"):
        corsac.save(torch.matmul, path, example, dynamic_shapes=({1: "k"}, {0: "n"}))


def test_models_of_arrays_are_copied_and_pickled(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    for dynamic in (None, {"input": {0: Dim("n", min=1, max=8)}}):
        corsac.save(model, path, torch.ones(2, 3), dynamic_shapes=dynamic)
        arrays = corsac.load(path, framework="numpy")
        path.unlink()
        x = numpy.arange(6, dtype="float32").reshape(2, 3)
        for other in (pickle.loads(pickle.dumps(arrays)), copy.copy(arrays), copy.deepcopy(arrays)):
            assert repr(other) == repr(arrays) and other.sizes == arrays.sizes
            numpy.testing.assert_array_equal(other(x), arrays(x))


def test_models_with_state_are_not_pickled_and_sessions_are_forked(path):
    corsac.save(Named("total", writes=True).eval(), path, torch.ones(2), state=True)
    model = corsac.load(path)
    session = model.session()
    session.run(torch.ones(2))
    assert copy.deepcopy(model) is model
    with pytest.raises(TypeError, match="models with state cannot be pickled"):
        pickle.dumps(model)
    with pytest.raises(TypeError, match="sessions cannot be pickled"):
        pickle.dumps(session)
    for made in (copy.copy(session), copy.deepcopy(session)):
        assert torch.equal(made.run(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(session.state["total"], torch.full((2,), 2.0))
