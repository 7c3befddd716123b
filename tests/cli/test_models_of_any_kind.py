"""Models that torch.fx cannot trace, on the command line: they are captured for the given inputs."""

import json

import pytest

from corsac.cli import main

MODEL = """
import torch
from torch import nn
from dataclasses import dataclass

class BySize(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        for layer in self.layers if x.shape[0] > 1 else self.layers[:1]:
            x = layer(x).relu()
        return {"rows": x, "first": [x[0]]}

class ByValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 4), []

    def forward(self, x):
        y = self.layer(x)
        self.seen.append(x.shape[0] if x.shape[0] > 1 else 0)
        return y * 2 if y.abs().sum() > 0 else y.relu()
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return "models.py:BySize"


@pytest.mark.parametrize("command", ["show", "table", "code", "ops", "profile", "split"])
def test_with_inputs(command, model, capfd):
    assert main([command, model, "--input", "2,4"]) == 0
    out = capfd.readouterr().out
    assert ("submod_1" if command == "split" else "linear") in out


@pytest.mark.parametrize("command", ["show", "table", "code", "ops", "profile", "summary", "draw"])
def test_one_way_of_a_model_is_shown(command, model, capfd, tmp_path):
    """Commands that only inspect a graph accept one path of a model; those that make programs do not."""
    more = ["--out", str(tmp_path / "way.svg")] if command == "draw" else []
    assert main([command, "models.py:ByValue", "--input", "2,4", *more]) == 0
    out, err = capfd.readouterr()
    assert "a value decides, and the graph is of the way that this input takes: " in err
    assert "line 24" in err and "the model changes state, which the graph does not: " in err
    assert command == "draw" or "linear" in out or "Linear" in out or "multiplications" in out
    if command == "show":
        assert "mul" in out and "relu" not in out
    for refuses in ("optimize", "save", "lower"):
        made = {"save": ["--out", "m.safetensors"], "lower": ["--to", "eager"]}.get(refuses, [])
        assert main([refuses, "models.py:ByValue", "--input", "2,4", *made]) != 0
        assert "decide" in capfd.readouterr().err


def test_their_modules_are_listed(model, capfd):
    assert main(["summary", model, "--input", "2,4"]) == 0
    out = capfd.readouterr().out
    assert "├─ModuleList (layers): 1-1" in out and "float32[2, 4]" in out, out
    assert "Total params: 40" in out and "Total mult-adds: 64" in out, out
    assert main(["summary", model, "--input", "2,4", "--depth", "0", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [own["kind"] for own in found["modules"]] == ["BySize"] and found["mult_adds"] == 64
    assert main(["summary", model]) == 2
    assert "with --input it is captured" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["ops", "profile", "summary"])
def test_an_input_may_be_a_list(command, tmp_path, monkeypatch, capfd):
    text = """
import torch

class Joins(torch.nn.Module):
    def forward(self, xs):
        return torch.relu(xs[0] + xs[1])
"""
    (tmp_path / "joins.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    given = ["--input", "[torch.ones(2, 3), torch.ones(3)]"]
    assert main([command, "joins.py:Joins", *given, "--json"]) == 0, capfd.readouterr().err
    found = json.loads(capfd.readouterr().out)
    outputs = [own["output"] for own in found.get("nodes", found.get("modules"))]
    assert outputs[-1] == "float32[2, 3]", outputs


def test_results_in_objects_are_compared_by_their_tensors(tmp_path, monkeypatch, capfd):
    """The keys and values of a cache, which is not a pytree container, are compared."""
    text = """
from transformers import GPT2Config, GPT2LMHeadModel

def make():
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=20, n_positions=16)
    return GPT2LMHeadModel(config).eval()
"""
    (tmp_path / "texts.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    given = ["--input", "torch.arange(8)[None]", "--repeat", "1", "--json"]
    assert main(["optimize", "texts.py:make", *given]) == 0, capfd.readouterr().err
    found = json.loads(capfd.readouterr().out)
    assert found["agrees"] and found["largest_output"] > 0 and found["error"] < 1e-5


def test_they_are_compared_described_and_minified(model, capfd, tmp_path):
    given = ["--input", "2,4"]
    assert main(["diff", model, model, *given]) == 0
    assert main(["describe", model, *given, "--out", "own.graph"]) == 0
    assert "linear" in (tmp_path / "own.graph").read_text()
    assert main(["minify", model, *given, "--backend", "eager", "--out", "small.py"]) == 1
    assert "no fault of backend eager was found" in capfd.readouterr().out
    for command in (
        ["diff", model],
        ["describe"],
        ["minify", "--backend", "eager", "--out", "m.py"],
    ):
        assert main([*command, model]) == 2
        assert "with --input it is captured" in capfd.readouterr().err


EXPORTED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x, *, scale):
        x = self.linear(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return {"x": x, "scaled": x * scale}

def program():
    inputs = (torch.ones(1, 3, 8, 8),), {"scale": torch.ones(2)}
    return torch.export.export(Net().eval(), *inputs)

def module():
    return program().module()

def decomposed():
    return program().run_decompositions()

made = program()
"""


@pytest.mark.parametrize("name", ["program", "module", "decomposed", "made"])
def test_programs_of_torch_export(name, capfd, tmp_path, monkeypatch):
    (tmp_path / "exported.py").write_text(EXPORTED)
    monkeypatch.chdir(tmp_path)
    given = [f"exported.py:{name}", "--input", "1,3,8,8", "--input", "2"]
    for command in ("show", "table", "code", "ops", "profile", "split", "describe"):
        assert main([command, *given]) == 0, capfd.readouterr().err
        assert "scale" in capfd.readouterr().out
    assert main(["summary", *given]) == 0
    out = capfd.readouterr().out
    assert "Net: 0-1" in out and "├─Conv2d (conv): 1-1" in out and "float32[1, 4, 6, 6]" in out
    assert main(["optimize", *given, "--repeat", "1", "--out", "own", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["agrees"]
    assert main(["lower", *given, "--to", "corsac", "--repeat", "1"]) == 0
    assert "1 part" in capfd.readouterr().out
    assert main(["save", *given, "--out", "own.safetensors"]) == 0
    assert main(["draw", *given, "--out", "own.svg"]) == 0
    assert main(["diff", given[0], *given]) == 0


def test_without_inputs(model, capfd):
    assert main(["show", model]) != 0
    told = capfd.readouterr().err
    assert "with --input it is captured for inputs such as those" in told
    assert main(["show", model, "--input", "torch.ones(2, 4) > 0"]) != 0
    assert "the model cannot be captured: " in capfd.readouterr().err


def test_it_is_optimized_saved_lowered_and_drawn(model, capfd, tmp_path):
    assert main(["optimize", model, "--input", "2,4", "--out", "out/own"]) == 0
    assert "maximum absolute error   0" in capfd.readouterr().out
    assert main(["save", model, "--input", "2,4", "--out", "own.safetensors"]) == 0
    assert main(["lower", model, "--input", "2,4", "--to", "corsac"]) == 0
    assert main(["draw", model, "--input", "2,4", "--out", "own.svg"]) == 0
    assert (tmp_path / "own.svg").read_text().startswith("<svg")
