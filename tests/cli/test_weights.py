"""``--weights``, notes about random weights, and inputs that are expressions."""

import json
import os
import sys

import numpy
import pytest
import torch

from corsac._files.safetensors import read_safetensors, write_safetensors
from corsac.cli import main

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))

def Trained():
    net = Net()
    net.load_state_dict(net.state_dict())
    return net

class Scaled(torch.nn.Module):
    def forward(self, x, sizes):
        return x * sizes[0]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "net", raising=False)
    return tmp_path


STATE = {"linear.weight": torch.ones(4, 3), "linear.bias": torch.zeros(4)}
SAVE = ["save", "net.py:Net", "--input", "5,3", "--out", "net.safetensors"]


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "nested.ckpt", "parallel.pth"])
def test_weights_are_read_from_files(name, folder, capfd):
    write_safetensors("w.safetensors", STATE)
    torch.save(STATE, "w.pt")
    torch.save({"epoch": 3, "state_dict": STATE}, "nested.ckpt")
    torch.save({f"module.{key}": value for key, value in STATE.items()}, "parallel.pth")
    assert main([*SAVE, "--weights", name]) == 0
    assert "random" not in capfd.readouterr().err
    numpy.save("x.npy", numpy.ones((5, 3), numpy.float32))
    assert main(["run", "net.safetensors", "--input", "x.npy", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["outputs"][0]["elements"] == [3.0] * 20


def test_a_configuration_takes_weights(folder, capsys):
    write_safetensors("w.safetensors", STATE)
    assert main(["describe", "net.py:Net", "--out", "net.toml"]) == 0
    capsys.readouterr()
    assert main(["build", "net.toml", "--weights", "w.safetensors", "--out", "built"]) == 0
    assert torch.equal(
        read_safetensors("built/weights.safetensors")["linear.weight"], torch.ones(4, 3)
    )
    assert "random" not in capsys.readouterr().err
    assert main(["build", "net.toml", "--out", "built"]) == 0
    assert "note: the weights of net.toml are random (--seed 0)" in capsys.readouterr().err
    assert main(["show", "net.toml"]) == 0
    assert "note: the weights of net.toml are random (--seed 0)" in capsys.readouterr().err


MORE = {"draw": ["--out", "net.svg"], "save": ["--out", "net.safetensors"], "diff": ["net.py:Net"]}
MORE["lower"] = ["--to", "corsac"]
COMMANDS = [
    "optimize",
    "show",
    "table",
    "code",
    "diff",
    "draw",
    "summary",
    "ops",
    "profile",
    "split",
]
COMMANDS += ["lower", "describe", "save"]


@pytest.mark.parametrize("command", COMMANDS)
def test_random_weights_are_noted(command, capsys):
    def notes(model, *more):
        given = [model, *MORE.get(command, []), "--input", "5,3", *more]
        assert main([command, *given]) in (0, 1)
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if line.startswith("corsac: note: ")]

    note = "the weights of net.py:Net are random (--seed 7); --weights FILE reads others"
    assert notes("net.py:Net", "--seed", "7") == [f"corsac: note: {note}"] * (
        1 + (command == "diff")
    )
    if command == "diff":
        return
    write_safetensors("w.safetensors", STATE)
    assert notes("net.py:Net", "--weights", "w.safetensors") == notes("net.py:Trained") == []


def test_models_without_weights_are_not_noted(capsys, folder):
    (folder / "bare.py").write_text("import torch\ntorch.rand(1)\n" + MODEL)
    assert main(["show", "bare.py:Scaled"]) == 0
    assert "random" not in capsys.readouterr().err


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("made",))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("evil.pt", "the file holds more than tensors, or is damaged, and nothing of it is run"),
        ("less.safetensors", "the file has none of linear.bias"),
        ("more.pt", "the file has, and the model does not, other"),
        ("wide.pt", "the file has in another shape linear.weight ([3, 4], not [4, 3])"),
        ("cut.safetensors", "cut.safetensors is damaged: tensor linear.weight does not fit"),
        ("text.safetensors", "is no safetensors file"),
        ("text.pt", "the file holds more than tensors, or is damaged"),
        ("list.pt", "expected a state dict, got a list"),
        ("w.npz", "expected a file *.safetensors, *.pt, "),
        ("missing.pt", "missing.pt: no such file\n"),
    ],
)
def test_files_that_are_no_weights_are_refused(name, message, folder, capsys):
    torch.save({"linear.weight": Evil()}, "evil.pt")
    write_safetensors("less.safetensors", {"linear.weight": STATE["linear.weight"]})
    whole = (folder / "less.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-4])
    (folder / "text.safetensors").write_text("hello, world")
    (folder / "text.pt").write_text("hello, world")
    torch.save({**STATE, "other": torch.ones(1)}, "more.pt")
    torch.save({**STATE, "linear.weight": torch.ones(3, 4)}, "wide.pt")
    torch.save([torch.ones(3)], "list.pt")
    assert main([*SAVE, "--weights", name]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"corsac: error: --weights {name}: ") and message in error, error
    assert not (folder / "made").exists() and not (folder / "net.safetensors").exists()


def test_what_has_its_weights_takes_no_others(capsys):
    write_safetensors("w.safetensors", STATE)
    assert main(SAVE) == 0
    capsys.readouterr()
    assert main(["ops", "net.safetensors", "--weights", "w.safetensors"]) == 2
    assert "net.safetensors takes none; name the model itself" in capsys.readouterr().err


def test_inputs_are_expressions_or_shapes(capsys):
    given = ["--input", "torch.ones(2, 3)", "--input", "[7, 8]"]
    assert main(["optimize", "net.py:Scaled", *given, "--repeat", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["inputs"] == [{"shape": [2, 3], "dtype": "float32"}, {"value": "[7, 8]"}]
    assert report["largest_output"] == 7.0
    assert main(["save", "net.py:Net", "--input", "nope(3)", "--out", "n.safetensors"]) == 2
    assert "--input nope(3): NameError: name 'nope' is not defined" in capsys.readouterr().err


def test_tensors_of_all_types_are_written_and_read(tmp_path):
    tensors = {
        "half": torch.randn(3, 5).half(), "brain": torch.randn(2).bfloat16(), "empty": torch.empty(0, 3),
        "flag": torch.tensor([True, False]), "scalar": torch.tensor(3), "turned": torch.randn(3, 4).T,
        "complex": torch.randn(2, dtype=torch.complex64).conj(), "byte": torch.arange(3).to(torch.uint8),
    }  # fmt: skip
    write_safetensors(tmp_path / "t.safetensors", tensors)
    read = read_safetensors(tmp_path / "t.safetensors")
    for name, tensor in tensors.items():
        torch.testing.assert_close(read[name], tensor.resolve_conj(), rtol=0, atol=0)
    safetensors = pytest.importorskip("safetensors.torch")
    assert safetensors.load_file(tmp_path / "t.safetensors").keys() == tensors.keys()
    assert list(read_safetensors(tmp_path / "t.safetensors", ["flag"])) == ["flag"]
