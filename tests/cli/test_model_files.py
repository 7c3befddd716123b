"""The console program on model files: what it writes, and what it passes on to the native program."""

import json

import numpy
import pytest
import torch

from corsac.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(
        "import torch\ndef Net():\n    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def saved(capfd):
    assert main(["save", "net.py:Net", "--input", "5,3", "--out", "net.safetensors"]) == 0
    assert capfd.readouterr().out.startswith("net.safetensors: ")
    return "net.safetensors"


def test_a_saved_model_runs(saved, capfd):
    numpy.save("x.npy", numpy.ones((5, 3), numpy.float32))
    assert main(["run", saved, "--input", "x.npy", "--output", "y.npy"]) == 0
    assert capfd.readouterr().out.strip() == "output: float32[5, 4] -> y.npy"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    with torch.no_grad():
        expected = model(torch.ones(5, 3))
    torch.testing.assert_close(torch.from_numpy(numpy.load("y.npy")), expected)
    assert main(["bench", saved, "--repeat", "2", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["repeat"] == 2


def test_commands_understand_model_files(saved, capfd):
    assert main(["show", saved]) == 0
    assert capfd.readouterr().out.startswith("graph():\n")
    assert main(["ops", saved, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["parameters"], report["nodes"][0]["flops"]) == (16, 5 * 4 * 3 * 2)
    assert main(["code", saved]) == 0
    assert "def forward(self, input)" in capfd.readouterr().out
    assert main(["diff", saved, saved]) == 0


def test_help_and_errors_are_the_native_program_s(saved, capfd):
    for command in ("run", "bench"):
        assert main([command, "--help"]) == 0
        assert f"  corsac {command} " in capfd.readouterr().out
    assert main(["run", saved]) == 2
    assert capfd.readouterr().err.startswith("corsac: error: the input input: float32[5, 3] is mis")
    assert main(["show", "nothing.safetensors"]) == 2
    assert "No such file" in capfd.readouterr().err
    assert main(["code", "nothing.safetensors"]) == 2
    assert "nothing.safetensors" in capfd.readouterr().err
    assert main(["save", "net.py:Net", "--input", "5,4", "--out", "x.safetensors"]) == 2
    assert "the model cannot be saved: " in capfd.readouterr().err
