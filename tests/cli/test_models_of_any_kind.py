"""Models that torch.fx cannot trace, on the command line: they are captured for the inputs that are given."""

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
    assert "linear" in out


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
