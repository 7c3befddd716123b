"""State dicts of converted graph modules: weights, and scales and zero points of values."""

from __future__ import annotations

import copy
import io
import pickle
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import get_default_qconfig_mapping as their_mapping
from torch.ao.quantization import quantize_fx as theirs

import corsac
import corsac.quantization as ours
from corsac.fx import GraphModule
from corsac.quantization import quantize_fx
from kit.quantised_models import model_and_inputs

pytestmark = pytest.mark.filterwarnings("ignore")

NAMES = ["ConvReluAddModel", "Classifier", "FunctionalLinearReluModel", "Branches", "Masked"]


def flat(results):
    return torch.cat(
        [one.flatten() for one in (results if isinstance(results, tuple) else (results,))]
    )


def scaled(inputs, factor):
    return tuple(
        x * factor if x.is_floating_point() and not bool((x == 1).all()) else x for x in inputs
    )


def converted(name, factor=1.0, backend="fbgemm", seed=0):
    """A model, calibrated on inputs of another magnitude, with other weights for another seed."""
    model, inputs = model_and_inputs(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.1 * seed)
    mapping = ours.get_default_qconfig_mapping(backend)
    prepared = quantize_fx.prepare_fx(model.eval(), mapping, inputs)
    prepared(*scaled(inputs, factor))
    return quantize_fx.convert_fx(prepared), inputs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1], ids=["same weights", "other weights"])
def test_a_state_is_a_calibration(name, seed):
    first, inputs = converted(name)
    second, _ = converted(name, 3.0, seed=seed)
    expected = flat(first(*inputs))
    assert not torch.equal(flat(second(*inputs)), expected)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(flat(second(*inputs)), expected)
    assert second.code == first.code


@pytest.mark.parametrize("name", NAMES)
def test_natively(name):
    first, inputs = converted(name)
    second, _ = converted(name, 3.0)
    native = corsac.compile(second)
    before = flat(second(*inputs))
    assert torch.allclose(flat(native(*inputs)), before, atol=1e-6)
    second.load_state_dict(first.state_dict())
    expected = flat(first(*inputs))
    assert torch.allclose(flat(native(*inputs)), expected, atol=1e-6)
    assert torch.allclose(flat(corsac.compile(second)(*inputs)), expected, atol=1e-6)
    assert not torch.allclose(before, expected, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_copies(name):
    first, inputs = converted(name)
    expected = flat(first(*inputs))
    state = converted(name, 3.0)[0].state_dict()
    for same in (
        copy.deepcopy(first),
        pickle.loads(pickle.dumps(first)),
        GraphModule(first, first.graph),
    ):
        assert same.state_dict().keys() == first.state_dict().keys()
        assert torch.equal(flat(same(*inputs)), expected)
        same.load_state_dict(state)
        assert not torch.equal(flat(same(*inputs)), expected)
        same.load_state_dict(converted(name)[0].state_dict())
        assert torch.equal(flat(same(*inputs)), expected)


def test_numbers_are_those_of_torch():
    model, inputs = model_and_inputs("ConvReluConvModel")
    expected = theirs.prepare_fx(copy.deepcopy(model).eval(), their_mapping("fbgemm"), inputs)
    expected(*inputs)
    their_state = theirs.convert_to_reference_fx(expected).state_dict()
    state = converted("ConvReluConvModel")[0].state_dict()
    # By the layer there, by what makes the value here.
    pairs = {"x": "fc1_input", "fc1": "fc1", "fc2": "fc2"}
    names = {name.removesuffix("_scale_0") for name in state if name.endswith("_scale_0")}
    assert names == {*pairs}
    for value, there in pairs.items():
        for part in ("scale", "zero_point"):
            assert torch.equal(state[f"{value}_{part}_0"], their_state[f"{there}_{part}_0"])


def test_ranges_are_a_part():
    first, inputs = converted("ConvReluConvModel", backend="fbgemm")
    second, _ = converted("ConvReluConvModel", backend="onednn")
    assert first.state_dict()["x_quant_range_0"].tolist() == [0, 127]
    assert second.state_dict()["x_quant_range_0"].tolist() == [0, 255]
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(*inputs), first(*inputs))


def test_ranges_of_floats_are_integers_in_the_code():
    model, inputs = converted("ConvReluConvModel")
    state = model.state_dict()
    results = []
    for bounds in (torch.tensor([0, 100]), torch.tensor([0.0, 100.0])):
        model.load_state_dict({**state, "x_quant_range_0": bounds})
        results.append(model(*inputs))
        assert model.state_dict()["x_quant_range_0"].tolist() == [0, 100]
        model.load_state_dict(state)
    assert torch.equal(*results)


def test_what_does_not_fit_is_an_error():
    model, _ = converted("ConvReluConvModel")
    code, state = model.code, model.state_dict()
    for name, value, message in (
        ("x_scale_0", torch.tensor(0.0), "x: expected a positive scale, got 0.0"),
        ("x_scale_0", torch.tensor([1.0, 2.0]), "x_scale_0: expected one number, got 2"),
        ("x_quant_range_0", torch.tensor([-128, 127]), "x: expected a range of torch.uint8"),
        (
            "x_quant_range_0",
            torch.tensor([0, 1, 2]),
            "x_quant_range_0: expected two numbers, got 3",
        ),
        ("x_quant_range_0", torch.tensor(127), "x_quant_range_0: expected two numbers, got 1"),
    ):
        with pytest.raises(RuntimeError, match=message):
            model.load_state_dict({**state, name: value})
        assert model.code == code
    missing = {name: value for name, value in state.items() if name != "x_zero_point_0"}
    with pytest.raises(RuntimeError, match=r"Missing key.*x_zero_point_0"):
        model.load_state_dict(missing)
    assert model.load_state_dict(missing, strict=False).missing_keys == ["x_zero_point_0"]
    with pytest.raises(RuntimeError, match=r"Unexpected key.*y_scale_0"):
        model.load_state_dict({**state, "y_scale_0": torch.tensor(1.0)})
    dynamic = ours.QConfigMapping().set_global(ours.default_dynamic_qconfig)
    other, inputs = model_and_inputs("ConvReluConvModel")
    plain = quantize_fx.convert_fx(quantize_fx.prepare_fx(other.eval(), dynamic, inputs))
    with pytest.raises(RuntimeError, match=r"Unexpected key.*x_scale_0"):
        plain.load_state_dict(state)


class Shared(nn.Module):
    """One function, and one module, called several times."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, y):
        return F.linear(self.fc(x) + self.fc(y) + self.fc(x), self.fc.weight)


def test_values_of_one_name_are_numbered():
    inputs = torch.randn(2, 4), torch.randn(2, 4)
    prepared = quantize_fx.prepare_fx(
        Shared().eval(), ours.get_default_qconfig_mapping("fbgemm"), inputs
    )
    prepared(*inputs)
    gm = quantize_fx.convert_fx(prepared)
    scales = {name for name in gm.state_dict() if "_scale_" in name}
    assert {"fc_scale_0", "fc_scale_1", "fc_scale_2", "add_scale_0", "add_scale_1"} <= scales


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        return self.inner(*inputs)


def test_parts_of_models():
    first, inputs = converted("ConvReluConvModel")
    second, _ = converted("ConvReluConvModel", 3.0)
    outer = Outer(second)
    assert "inner.x_scale_0" in outer.state_dict()
    outer.load_state_dict(Outer(first).state_dict())
    assert torch.equal(outer(*inputs), first(*inputs))


def test_folders(tmp_path, monkeypatch):
    model, inputs = converted("ConvReluConvModel")
    model.to_folder(tmp_path / "quantised_folder", "Quantised")
    monkeypatch.syspath_prepend(str(tmp_path))
    from quantised_folder import Quantised

    assert torch.equal(Quantised()(*inputs), model(*inputs))
    monkeypatch.delitem(sys.modules, "quantised_folder")


def test_other_graph_modules_have_tensors_only():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.ones(3))

        def forward(self, x):
            return x * 0.5 + self.shift

    gm = corsac.fx.symbolic_trace(Scaled())
    assert [*gm.state_dict()] == ["shift"]


def test_weights_stay_integers_in_pickles():
    model, inputs = converted("FunctionalLinearReluModel")
    same = pickle.loads(pickle.dumps(model))
    names = {node.target for node in same.graph.find_nodes(op="get_attr")}
    assert names == {node.target for node in model.graph.find_nodes(op="get_attr")}
    assert torch.equal(same(*inputs), model(*inputs))
