"""``corsac quantize``: its output, files, and requests that cannot be met."""

import json
import sys

import numpy
import pytest
import torch

import corsac
from corsac.cli import main

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first = torch.nn.Linear(64, width)
        self.second = torch.nn.Linear(width, 16)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, left, right):
        return self.linear(left) - right

def floats(model):
    return float(sum(type(module) is torch.nn.Linear for module in model.modules()))

LIMIT = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(MODEL)
    random = numpy.random.default_rng(0)
    numpy.savez(tmp_path / "data.npz", x=random.standard_normal((12, 64), numpy.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "net", raising=False)
    return tmp_path


NET = ["quantize", "net.py:Net", "--input", "4,64", "--out", "q.safetensors"]


def test_a_quantised_file_runs(capsys, folder):
    command = [*NET, "--calibration", "data.npz", "--no-measure", "--report", "report.html"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "\nfirst   int8 static" in out and "2 of 2 layers quantised" in out
    assert "q.safetensors: " in out and "agrees with the model" in out
    page = (folder / "report.html").read_text()
    assert "int8 static" in page and "<iframe" in page
    torch.manual_seed(0)
    import net

    model = net.Net().eval()
    batch = torch.randn(4, 64)
    with torch.no_grad():
        expected, got = model(batch), corsac.load("q.safetensors", framework="torch")(batch)
    error = (got - expected).norm() / expected.norm()
    assert 0.0 < error < 0.03
    assert (folder / "q.safetensors").stat().st_size < 0.4 * 4 * (64 * 128 + 128 * 16)


def test_batches_have_the_size_of_the_input(monkeypatch):
    seen = []

    def quantize(model, data, **options):
        seen.append([own[0].shape for own in data])
        return corsac.quantization.one_call.quantize(model, data, **options)

    monkeypatch.setattr(corsac, "quantize", quantize)
    assert main([*NET, "--calibration", "data.npz"]) in (0, 1)
    assert seen == [[(4, 64)] * 3]


@pytest.mark.parametrize(
    ("options", "form"),
    [
        (["--dynamic"], "int8 dynamic"),
        (["--weights", "int8"], "int8"),
        (["--weights", "int4:32"], "int4:32"),
    ],
)
def test_forms_without_calibration(options, form, capsys):
    assert main([*NET, *options, "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert [row["form"] for row in read["report"]["rows"]] == [form, form]
    assert read["file"] == "q.safetensors" and read["bytes"] > 1000
    assert read["seconds_before"] > 0.0 and read["seconds_after"] > 0.0


def test_layers_are_left_float_by_name_and_metric(capsys):
    command = [*NET, "--calibration", "data.npz", "--no-measure", "--json"]
    assert main([*command, "--exclude", "sec*"]) == 0
    rows = json.loads(capsys.readouterr().out)["report"]["rows"]
    assert [row["form"] for row in rows] == ["int8 static", "float"]
    assert main([*command, "--metric", "net.py:floats", "--max-drop", "1"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert sorted(row["form"] for row in report["rows"]) == ["float", "int8 static"]
    assert (report["float_metric"], report["metric"]) == (2.0, 1.0)
    assert main([*command, "--max-drop", "100"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["float_metric"] == 100.0


def test_arrays_are_inputs_by_name(capsys):
    left, right = numpy.ones((4, 8), numpy.float32), numpy.zeros((4, 1), numpy.float32)
    numpy.savez("two.npz", right=right, left=left)
    command = ["quantize", "net.py:Two", "--out", "q.safetensors", "--no-measure", "--json"]
    assert main([*command, "--calibration", "two.npz"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["rows"][0]["form"] == "int8 static"
    numpy.savez("one.npz", right=right)
    assert main([*command, "--calibration", "one.npz"]) == 2
    assert "the file has no left" in capsys.readouterr().err
    numpy.savez("odd.npz", left=left, right=right[:2])
    assert main([*command, "--calibration", "odd.npz"]) == 2
    assert "different numbers of samples: left 4, right 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --calibration FILE, or --dynamic, or --weights int8"),
        (["--weights", "int5"], "weights: expected 'int8', 'int4:32'"),
        (["--calibration", "none.npz"], "--calibration none.npz: no such file"),
        (["--calibration", "net.py"], "expected a file *.npz, *.npy, *.safetensors"),
        (["--calibration", "broken.npz"], "--calibration broken.npz: "),
        (["--calibration", "wide.npy"], "the model does not accept it"),
        (["--calibration", "few.npy"], "2 samples, expected at least 4"),
        (["--calibration", "nan.npy"], "calibration batch 1: input 0 has NaN or infinity"),
        (["--dynamic", "--exclude", "frist"], "no module 'frist': did you mean first?"),
        (["--dynamic", "--max-drop", "1"], "--max-drop needs --metric"),
        (["--dynamic", "--metric", "net.py:LIMIT"], "expected a function of a model"),
        (["--dynamic", "--state", "none.pt"], "--state none.pt: no such file"),
        (["--dynamic", "--report", "report.txt"], "--report report.txt: expected a file *.html"),
    ],
)
def test_requests_that_cannot_be_met(options, message, capsys, folder):
    (folder / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    numpy.save("wide.npy", numpy.zeros((4, 65), numpy.float32))
    numpy.save("few.npy", numpy.zeros((2, 64), numpy.float32))
    bad = numpy.ones((8, 64), numpy.float32)
    bad[6, 3] = numpy.nan
    numpy.save("nan.npy", bad)
    assert main([*NET, *options]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "q.safetensors").exists()


def test_a_folder_that_is_missing(capsys):
    assert main([*NET[:-1], "no/q.safetensors", "--dynamic"]) == 2
    assert "there is no folder no" in capsys.readouterr().err
    assert main([*NET[:-1], "q.bin", "--dynamic"]) == 2
    assert "expected a file *.safetensors" in capsys.readouterr().err
