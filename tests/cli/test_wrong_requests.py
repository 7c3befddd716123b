"""Requests that cannot be met: one message that says what is wrong, exit code 2, and nothing of Python."""

import sys

import pytest

from corsac.cli import main

MODELS = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden=4):
        super().__init__()
        self.first, self.second = nn.Linear(3, hidden), nn.Linear(hidden, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

class Sized(Net):
    def __init__(self, size):
        super().__init__(size)

class Exits(nn.Module):
    def __init__(self):
        sys.exit(3)

class Bare(nn.Module):
    def __init__(self):
        self.size = 3

class Leaves(nn.Module):
    def forward(self, x):
        if x.shape[0] > 1:
            sys.exit("enough")
        return x

class ByValue(nn.Module):
    def forward(self, x):
        return x.relu() if x.sum() > 0 else x

class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()

class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.LazyLinear(3)

    def forward(self, x):
        return self.linear(x)

class Stacked(nn.Module):
    def forward(self, *xs):
        return torch.stack(xs).sum(0)
"""
GIVEN = ["--input", "2,3"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(MODELS)
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(5)\n")
    (tmp_path / "noise.txt").write_bytes(b"\x00\xff\xfe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own", raising=False)
    return tmp_path


def errors(arguments, capsys):
    """What is said of a request that cannot be met, without notes."""
    try:
        code = main(arguments)
    except SystemExit as exited:
        code = exited.code
    assert code == 2
    lines = capsys.readouterr().err.splitlines()
    dropped = ("corsac: note: ", "corsac: --traceback shows")
    lines = [line for line in lines if not line.endswith(" ...")]
    return "\n".join(line for line in lines if not line.startswith(dropped))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "exits.py:A"], "the model's code ended the program: sys.exit(5)"),
        (["show", "own.py:Exits"], "the model's code ended the program: sys.exit(3)"),
        (
            ["ops", "own.py:Leaves", *GIVEN],
            "the model's code ended the program: sys.exit('enough')",
        ),
        (["show", "own.py:Bare"], "Bare.__init__ does not call super().__init__()"),
        (["show", "own.py:Sized"], "'size'; --kwargs KEY=VALUE gives an argument"),
        (["show", "nothing.py"], "error: nothing.py: no such file"),
        (["show", "nothing/"], "error: nothing/: no such folder"),
        (["show", "noise.txt"], "error: noise.txt: this is no text in UTF-8"),
        (["show", "own.py:ByValue", "--input", "2,a"], "error: --input 2,a: the shape is "),
        (["show", "own.py:ByValue", "--input", "-2,3"], "error: --input -2,3: a size is negative"),
        (
            ["show", "own.py:ByValue"],
            "for all inputs; with --input it is captured for inputs such as those: ",
        ),
        (["show", "own.py:Net", "--seed", "x"], "--seed: 'x' is no whole number"),
        (["show", "own.py:Net", "--weights", "nothing.pt"], "--weights nothing.pt: no such file"),
        (["summary", "own.py:Net", *GIVEN, "--depth", "-1"], "--depth: -1 is not at least 0"),
        (["summary", "own.py:Net", "--input", "2,4"], "the input: node first (first): expected"),
        (["optimize", "own.py:Net", *GIVEN, "--tolerance", "x"], "--tolerance: 'x' is no number"),
        (["lower", "own.py:Net", *GIVEN, "--tolerance", "-1"], "-1 is not at least 0"),
        (["optimize", "own.py:ByValue", *GIVEN], "captured: the model is no graph (own.py:"),
        (["lower", "own.py:Net", *GIVEN, "--to", "tensorrt"], "error: the backend tensorrt cannot"),
        (
            ["lower", "own.py:Spectrum", *GIVEN, "--to", "corsac", "--strict"],
            "error: fft_rfft (call_function ",
        ),
        (
            ["lower", "own.py:Spectrum", *GIVEN, "--out", "x.onnx"],
            "error: fft_rfft (call_function ",
        ),
        (["lower", "own.py:Net", *GIVEN, "--out", "away/x.onnx"], "there is no folder away"),
        (["save", "own.py:Net", *GIVEN, "--out", "away/x.safetensors"], "there is no folder away"),
        (["describe", "own.py:Net", "--out", "away/x.toml"], "there is no folder away"),
        (["describe", "own.py:Lazy"], "error: the model cannot be described: RuntimeError: "),
        (["split", "own.py:Lazy", *GIVEN], "got 2: the graph has 1 call"),
        (["build", "own.py:Net"], "error: own.py:Net: expected a file *.graph, *.toml or *.json"),
        (["build", "x.graph", "--max-gib", "-1"], "--max-gib: -1 is not above 0"),
        (
            ["minify", "own.py:Net", *GIVEN, "--backend", "eager", "--options", "3"],
            "--options 3: a JSON object is needed, not an int",
        ),
        (
            ["minify", "own.py:Net", *GIVEN, "--backend", "eager", "--out", "away/x.py"],
            "there is no folder away",
        ),
        (
            ["minify", "own.py:Net", "--input", "2,4", "--backend", "eager"],
            "the model does not accept the input: RuntimeError: ",
        ),
        (["bytecode", "os:nothing"], "os has no function or class 'nothing'"),
    ],
    ids=lambda own: " ".join(own) if isinstance(own, list) else "",
)
def test_one_message(arguments, message, capsys):
    error = errors(arguments, capsys)
    assert error.startswith("corsac: error: ") and error.count("corsac: error: ") == 1, error
    assert message in error, error
    assert "Failure" not in error and "[Errno" not in error and "Traceback" not in error


@pytest.mark.parametrize(
    "command",
    [
        ["summary"],
        ["ops"],
        ["profile", "--repeat", "1"],
        ["describe"],
        ["save", "--out", "own.safetensors"],
        ["lower", "--to", "corsac", "--repeat", "1"],
    ],
    ids=lambda own: own[0],
)
def test_lazy_models_get_their_shapes_from_the_input(command, capsys):
    assert main([*command, "own.py:Lazy", *GIVEN]) == 0, capsys.readouterr().err
    assert main([*command, "own.py:Lazy", "--input", "2,5"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("command", ["summary", "ops", "profile", "show", "lower"])
def test_models_of_any_number_of_inputs(command, capsys):
    more = ["--to", "corsac", "--repeat", "1"] if command == "lower" else []
    assert main([command, "own.py:Stacked", *GIVEN, *GIVEN, *more]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "sum" in out or "float32[2, 3]" in out or "2 of 2 calls" in out, out


def test_nothing_is_held_at_no_place(capsys):
    assert main(["ops", "own.py:Net", "--input", "0,3"]) == 0
    assert "activations      0B at most\n" in capsys.readouterr().out
