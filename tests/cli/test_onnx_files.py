"""The console program on ONNX models."""

from __future__ import annotations

import json

import numpy
import pytest
import torch

import corsac
from corsac.cli import main
from corsac.onnx import save, to_onnx

pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    save(to_onnx(made, torch.randn(5, 3)), "net.onnx")
    save(to_onnx(made, torch.randn(5, 3), dynamic={"input": {0: "batch"}}), "free.onnx")
    return made


def expected(model, x):
    with torch.no_grad():
        return model(torch.from_numpy(x)).numpy()


def test_models_are_converted(model, capfd):
    assert main(["convert", "net.onnx", "net.safetensors"]) == 0
    assert capfd.readouterr().out.startswith("net.safetensors: ")
    x = numpy.random.default_rng(0).standard_normal((5, 3), numpy.float32)
    got = corsac.load("net.safetensors", framework="numpy")(x)
    numpy.testing.assert_allclose(got, expected(model, x), rtol=1e-5, atol=1e-6)
    assert main(["convert", "free.onnx", "free.safetensors", "--input", "2,3", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["file"] == "free.safetensors"
    assert corsac.load("free.safetensors", framework="numpy")(x[:2]).shape == (2, 4)


@pytest.mark.parametrize(("options", "most"), [([], 20), (["--dynamic", "batch=1..8"], 8)])
def test_free_sizes_remain_free(model, options, most):
    assert main(["convert", "free.onnx", "free.safetensors", *options]) == 0
    run = corsac.load("free.safetensors", framework="numpy")
    for rows in (1, 4, most):
        x = numpy.random.default_rng(rows).standard_normal((rows, 3), numpy.float32)
        numpy.testing.assert_allclose(run(x), expected(model, x), rtol=1e-5, atol=1e-6)
    if options:
        with pytest.raises(ValueError, match="batch"):
            run(numpy.zeros((most + 1, 3), numpy.float32))


def test_models_run(model, capfd):
    for rows, name in ((5, "net.onnx"), (7, "free.onnx")):
        x = numpy.random.default_rng(rows).standard_normal((rows, 3), numpy.float32)
        numpy.save("x.npy", x)
        assert main(["run", name, "--input", "x.npy", "--output", "y.npy"]) == 0
        assert capfd.readouterr().out.strip().startswith(f"output: float32[{rows}, 4]")
        numpy.testing.assert_allclose(numpy.load("y.npy"), expected(model, x), rtol=1e-5, atol=1e-6)
    assert main(["run", "free.onnx", "--input=input=x.npy", "--output", "y.npy"]) == 0
    assert main(["bench", "net.onnx", "--repeat", "2", "--json"]) == 0
    assert '"repeat": 2' in capfd.readouterr().out


def test_commands_take_them(capfd):
    assert main(["show", "net.onnx"]) == 0
    assert "target=torch.relu" in capfd.readouterr().out
    assert main(["ops", "net.onnx", "--json"]) == 0
    assert [row["name"] for row in json.loads(capfd.readouterr().out)["nodes"]][-1] == "output"
    assert main(["save", "net.onnx", "--out", "saved.safetensors"]) == 0
    assert main(["diff", "net.onnx", "net.onnx"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "missing.onnx", "y.safetensors"], "missing.onnx: no such file"),
        (["convert", "net.onnx", "y.pt"], "y.pt: expected a file *.safetensors"),
        (["convert", "net.pt", "y.safetensors"], "net.pt: expected a file *.onnx or *.pt2"),
        (["convert", "broken.onnx", "y.safetensors"], "broken.onnx: this is no ONNX model"),
        (
            ["convert", "free.onnx", "y.safetensors", "--dynamic", "n=1..4"],
            "no --input has this size",
        ),
        (["run", "free.onnx"], "running it needs the shape of each input"),
        (["run", "missing.onnx"], "missing.onnx: no such file"),
        (["show", "net.onnx", "--weights", "w.pt"], "net.onnx takes none"),
    ],
)
def test_wrong_requests(arguments, message, capfd):
    with open("broken.onnx", "w") as file:
        file.write("hello")
    assert main(arguments) == 2
    assert message in capfd.readouterr().err


class Rows(torch.nn.Module):
    def forward(self, factors, rows):
        return factors.unsqueeze(1) * rows


def test_inputs_keep_their_order_in_both_spellings():
    inputs = torch.randn(5), torch.randn(5, 2)
    dynamic = {"factors": {0: "count"}, "rows": {0: "count"}}
    save(to_onnx(Rows(), inputs, dynamic=dynamic), "rows.onnx")
    factors, rows = numpy.arange(3, dtype=numpy.float32), numpy.ones((3, 2), numpy.float32)
    numpy.save("factors.npy", factors)
    numpy.save("rows.npy", rows)
    words = ["--input", "factors.npy", "--input=rows.npy", "--output", "y.npy"]
    assert main(["run", "rows.onnx", *words]) == 0
    numpy.testing.assert_array_equal(numpy.load("y.npy"), factors[:, None] * rows)
