"""The autotuner runs subgraphs both ways and records the faster one."""

import json

import pytest
import torch
import torch.fx.experimental.optimization as reference
import torchvision
from inference_models import Net
from torch import nn

import corsac.fx.experimental.optimization as subject
from corsac.fx.experimental import _mkldnn_autotuner as autotuner
from corsac.fx.experimental._mkldnn_modules import MkldnnConv2d
from kit.trained import as_if_trained


def tuned(model, heuristic):
    with torch.no_grad():
        return subject.optimize_for_inference(
            model, {"mkldnn_layout_optimize": {"heuristic": heuristic}}
        )


@pytest.fixture
def model():
    torch.manual_seed(0)
    return as_if_trained(Net(nn.Softmax(1)))


@pytest.fixture
def x():
    return torch.randn(2, 3, 16, 16)


def test_each_subgraph_is_measured(model, x):
    rule = subject.gen_mkl_autotuner([x], iters=3, warmup=1)
    result = tuned(model, rule)
    assert [m.first for m in rule.measurements] == ["stem", "second_conv", "head"]
    for measurement in rule.measurements:
        assert 0 < measurement.plain_seconds < 1 and 0 < measurement.mkldnn_seconds < 1
        faster = measurement.mkldnn_seconds < measurement.plain_seconds
        assert measurement.use_mkldnn == faster and not measurement.reused
    with torch.no_grad():
        torch.testing.assert_close(result(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("winner", ["plain", "mkldnn"])
def test_the_faster_way_is_taken(model, x, winner, monkeypatch):
    """The faster way is chosen, by a clock that advances for one of the two only."""
    now = 0.0

    def slow_for(way):
        def extract(owner, subgraph, converted):
            module = extracted(owner, subgraph, converted=converted)

            def advance(*_):
                nonlocal now
                now += 1.0 if converted == (way == "mkldnn") else 0.25

            module.register_forward_hook(advance)
            return module

        return extract

    extracted = autotuner._extract
    loser = "mkldnn" if winner == "plain" else "plain"
    monkeypatch.setattr(autotuner, "_extract", slow_for(loser))
    monkeypatch.setattr(autotuner, "_clock", lambda: lambda: now)
    rule = subject.gen_mkl_autotuner([x], iters=2)
    result = tuned(model, rule)
    assert {(m.plain_seconds, m.mkldnn_seconds) for m in rule.measurements} == {
        (0.25, 1.0) if winner == "plain" else (1.0, 0.25)
    }
    packed = sum(type(m) is MkldnnConv2d for m in result.modules())
    assert packed == (0 if winner == "plain" else 5)
    conversions = [node for node in result.graph.nodes if node.name.startswith("to_")]
    assert bool(conversions) == (winner == "mkldnn")


def forbid_measuring(monkeypatch):
    """From here on, measuring raises an error."""

    def no_measurement(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(autotuner.MklAutotuner, "_measure", no_measurement)


def test_decisions_are_kept(model, x, tmp_path, monkeypatch):
    file = tmp_path / "some" / "decisions.json"
    first = subject.gen_mkl_autotuner([x], iters=2, decisions=file)
    before = tuned(model, first)
    content = json.loads(file.read_text())
    assert content["format"] == 1 and len(content["decisions"]) == 3
    forbid_measuring(monkeypatch)
    second = subject.gen_mkl_autotuner([x], iters=2, decisions=file)
    after = tuned(model, second)
    assert all(m.reused for m in second.measurements)
    assert str(after.graph) == str(before.graph)
    with torch.no_grad():
        assert torch.equal(after(x), before(x))
    # Other shapes need a new measurement.
    with pytest.raises(AssertionError, match="measured again"):
        tuned(model, subject.gen_mkl_autotuner([torch.randn(1, 3, 9, 9)], decisions=file))
    # So do other parameters of modules.
    model.second.side.stride = (1, 2)
    model.second.conv.stride = (1, 2)
    with pytest.raises(AssertionError, match="measured again"):
        tuned(model, subject.gen_mkl_autotuner([x], decisions=file))


def small_vit():
    return torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        pytest.param(small_vit, 32, id="small"),
        pytest.param(torchvision.models.vit_b_16, 224, id="vit_b_16", marks=pytest.mark.slow),
    ],
)
def test_decisions_for_a_vision_transformer_are_taken_again(make, size, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(2, 3, size, size)
    # New heads are zero, and any result would equal that.
    nn.init.normal_(model.heads.head.weight)
    file = tmp_path / "decisions.json"
    first = subject.gen_mkl_autotuner([x], iters=2, decisions=file)
    before = tuned(model, first)
    names = ["conv_proj", "encoder_layers_encoder_layer_0_mlp_0", "heads_head"]
    assert [m.first for m in first.measurements] == names
    assert not any(m.reused for m in first.measurements)
    forbid_measuring(monkeypatch)
    second = subject.gen_mkl_autotuner([x], iters=2, decisions=file)
    after = tuned(model, second)
    assert all(m.reused for m in second.measurements)
    assert [(m.first, m.nodes, m.use_mkldnn) for m in second.measurements] == [
        (m.first, m.nodes, m.use_mkldnn) for m in first.measurements
    ]
    assert str(after.graph) == str(before.graph) and after.code == before.code
    with torch.no_grad():
        expected = model(x)
        assert expected.abs().max() > 0.1
        for result in (before(x), after(x)):
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_names_are_those_of_the_subgraph_at_hand(model, x, tmp_path):
    file = tmp_path / "decisions.json"
    tuned(model, subject.gen_mkl_autotuner([x], iters=1, decisions=file))
    content = json.loads(file.read_text())
    for entry in content["decisions"].values():
        entry["first"] = "called_so_in_another_model"
    file.write_text(json.dumps(content))
    rule = subject.gen_mkl_autotuner([x], iters=1, decisions=file)
    tuned(model, rule)
    assert [m.first for m in rule.measurements] == ["stem", "second_conv", "head"]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 2, "decisions": {}}', '{"format": 1, "decisions": {"a": {}}}']
)
def test_a_file_with_something_else(x, tmp_path, content):
    file = tmp_path / "decisions.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"decisions\.json holds no decisions"):
        subject.gen_mkl_autotuner([x], decisions=file)
    assert file.read_text() == content


def test_progress_is_shown_when_it_takes_long(model, x, capsys, monkeypatch):
    tuned(model, subject.gen_mkl_autotuner([x], iters=1))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(autotuner, "PATIENCE", 0.0)
    tuned(model, subject.gen_mkl_autotuner([x], iters=1))
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "corsac: measuring stem to first_relu (5 nodes), round 1 of 2 ..."
    assert len(shown) == 3


def test_torch_fx_cannot(x):
    """The example in torch.fx's docstring does not run there."""
    config = {"mkldnn_layout_optimize": {"heuristic": reference.gen_mkl_autotuner([x])}}
    model = torchvision.models.resnet18().eval()
    with pytest.raises((RuntimeError, TypeError)):
        reference.optimize_for_inference(model, config)
