"""The console program on model files: its output, and the commands passed to the native program."""

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


def test_model_files_show_every_form(saved, capfd):
    assert main(["show", saved, "--lossless"]) == 0
    lossless = capfd.readouterr().out
    assert lossless.startswith("graph v1:")
    assert main(["show", saved, "--format", "lossless"]) == 0
    assert capfd.readouterr().out == lossless
    assert main(["show", saved, "--sources"]) == 0
    assert capfd.readouterr().out.startswith("graph():")


def test_models_that_cannot_be_saved_or_run_say_what_to_do(capfd, folder):
    (folder / "inverse.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.linalg.inv(x) + 1\n"
    )
    assert main(["save", "inverse.py", "--input", "3,3", "--out", "x.safetensors"]) == 2
    error = capfd.readouterr().err
    assert "linalg_inv): its type is not known: there is no rule for torch._C._linalg" in error
    assert "corsac.compile runs the model" in error
    for model in ("inverse.py", "torchvision.models:resnet18"):
        assert main(["bench", model]) == 2
        assert f"corsac save {model} --input SHAPE --out" in capfd.readouterr().err


def test_a_recurrent_model_is_saved_and_run(capfd, folder):
    (folder / "recurrent.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.lstm = torch.nn.LSTM(3, 4)\n"
        "    def forward(self, x):\n        return self.lstm(x)[0]\n"
    )
    assert main(["save", "recurrent.py", "--input", "5,3", "--out", "x.safetensors"]) == 0
    numpy.save(folder / "x.npy", numpy.ones((5, 3), dtype=numpy.float32))
    assert main(["run", "x.safetensors", "--input", "x.npy", "--output", "y.npy"]) == 0
    found = numpy.load(folder / "y.npy")
    assert found.shape == (5, 4) and (abs(found) < 1).all() and found.any()


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


def test_a_model_with_named_sizes(capfd):
    words = ["save", "net.py:Net", "--out", "sized.safetensors"]
    assert main([*words, "--input", "batch,3", "--dynamic", "batch=1..64"]) == 0
    assert capfd.readouterr().out.startswith("sized.safetensors: ")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    for size in (1, 9):
        numpy.save("x.npy", numpy.ones((size, 3), numpy.float32))
        assert main(["run", "sized.safetensors", "--input", "x.npy", "--output", "y.npy"]) == 0
        assert capfd.readouterr().out.strip() == f"output: float32[{size}, 4] -> y.npy"
        with torch.no_grad():
            expected = model(torch.ones(size, 3))
        torch.testing.assert_close(torch.from_numpy(numpy.load("y.npy")), expected)
    numpy.save("x.npy", numpy.ones((65, 3), numpy.float32))
    assert main(["run", "sized.safetensors", "--input", "x.npy"]) == 2
    assert "input input, dimension 0: batch: 65 is more than 64" in capfd.readouterr().err
    assert main(["bench", "sized.safetensors", "--repeat", "2"]) == 2
    assert "size batch: a value is missing (batch=1..64)" in capfd.readouterr().err
    assert main(["bench", "sized.safetensors", "--repeat", "2", "--size", "batch=8"]) == 0
    capfd.readouterr()
    assert main(["ops", "sized.safetensors", "--json", "--size", "batch=5"]) == 0
    assert json.loads(capfd.readouterr().out)["nodes"][0]["flops"] == 5 * 4 * 3 * 2
    assert main(["show", "sized.safetensors"]) == 0
    assert capfd.readouterr().out.startswith("# input: float32[batch, 3]; batch=1..64, here 1\n")
    assert main(["show", "sized.safetensors", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["inputs"][0]["shape"] == ["batch", 3]
    assert shown["outputs"][0]["shape"] == ["batch", 4]
    assert shown["sizes"] == [{"name": "batch", "least": 1, "most": 64, "shown": 1}]
    assert main(["code", "sized.safetensors"]) == 0
    assert main(["save", "sized.safetensors", "--out", "fixed.safetensors"]) == 0


def test_named_sizes_that_make_no_sense_are_errors(capfd):
    words = ["save", "net.py:Net", "--out", "sized.safetensors", "--input"]
    cases = [
        (["batch,3"], "batch is no number; --dynamic batch=1..64 makes it"),
        (["batch,3", "--dynamic", "batch=64..1"], "64 is more than 1"),
        (["batch,3", "--dynamic", "batch=0..64"], "the least size is 1"),
        (["batch,3", "--dynamic", "batch=4..4"], "--input takes 4 itself"),
        (["batch,3", "--dynamic", "batch=x"], "expected a name with a range"),
        (["2,3", "--dynamic", "batch=1..64"], "no --input has this size"),
        (["batch,3", "--dynamic", "batch", "--dynamic", "batch=1..2"], "has a range already"),
        (["5,width", "--dynamic", "width=1..64"], "cannot be multiplied"),
    ]
    for more, text in cases:
        assert main([*words, *more]) == 2
        assert text in capfd.readouterr().err, text
