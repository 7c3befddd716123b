"""The console program on programs of ``torch.export``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.export import Dim

import corsac
from corsac.cli import main
from kit.pt2_archives import archive


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, pair, scale=1.0):
        return {"sum": self.layer(pair[0]) * scale + pair[1], "rows": pair[0] * 2}


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    shapes = ({0: Dim("batch", min=2, max=9)},)
    Path("net.pt2").write_bytes(archive(made, (torch.randn(5, 3),), shapes=shapes))
    pair = (torch.randn(5, 3), torch.randn(4))
    Path("pair.pt2").write_bytes(archive(Pair().eval(), (pair,), {"scale": 2.0}))
    return made


def test_programs_are_converted_with_their_sizes(model, capfd):
    assert main(["convert", "net.pt2", "net.safetensors", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["file"] == "net.safetensors"
    run = corsac.load("net.safetensors", framework="numpy")
    for rows in (2, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(torch.from_numpy(run(x.numpy())), model(x).detach())
    with pytest.raises(ValueError, match="input"):
        run(torch.randn(10, 3).numpy())
    assert main(["convert", "net.pt2", "net.safetensors", "--input", "4,3"]) == 0
    assert corsac.load("net.safetensors", framework="numpy")(
        numpy.ones((4, 3), "float32")
    ).shape == (4, 4)


def test_ranges_of_the_command_line_are_in_those_of_the_program(capfd):
    arguments = ["convert", "net.pt2", "net.safetensors", "--input", "rows,3", "--dynamic"]
    assert main([*arguments, "rows=3..8"]) == 0
    assert main([*arguments, "rows=1..8"]) == 2
    assert (
        "rows is declared to be 1..8, and the exported program takes 2..9" in capfd.readouterr().err
    )


def test_structured_inputs_are_separate(capfd):
    assert main(["convert", "pair.pt2", "pair.safetensors"]) == 0
    x, y = torch.randn(5, 3), torch.randn(4)
    result = corsac.load("pair.safetensors", framework="numpy")(x.numpy(), y.numpy())
    expected = corsac.from_pt2("pair.pt2")((x, y), scale=2.0)
    torch.testing.assert_close(torch.from_numpy(result["sum"]), expected["sum"].detach())


def test_programs_run(model, capfd):
    for rows in (2, 7):
        x = numpy.random.default_rng(rows).standard_normal((rows, 3), numpy.float32)
        numpy.save("x.npy", x)
        assert main(["run", "net.pt2", "--input", "x.npy", "--output", "y.npy"]) == 0
        assert f"float32[{rows}, 4]" in capfd.readouterr().out
        expected = model(torch.from_numpy(x)).detach().numpy()
        numpy.testing.assert_allclose(numpy.load("y.npy"), expected, rtol=1e-5, atol=1e-6)
    assert main(["bench", "net.pt2", "--repeat", "2", "--json"]) == 0
    numpy.save("x.npy", numpy.ones((1, 3), "float32"))
    assert main(["run", "net.pt2", "--input", "x.npy"]) == 2
    assert "expected s" in capfd.readouterr().err


def test_commands_take_them(capfd):
    assert main(["show", "net.pt2"]) == 0
    assert "torch.ops.aten.linear.default" in capfd.readouterr().out
    assert main(["ops", "net.pt2", "--json"]) == 0
    assert main(["diff", "net.pt2", "net.pt2"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "missing.pt2", "y.safetensors"], "missing.pt2: no such file"),
        (["convert", "broken.pt2", "y.safetensors"], "broken.pt2: this is no archive"),
        (
            ["convert", "net.pt2", "y.safetensors", "--dynamic", "n=1..4"],
            "no --input has this size",
        ),
        (["run", "broken.pt2"], "broken.pt2: this is no archive"),
    ],
)
def test_wrong_requests(arguments, message, capfd):
    with open("broken.pt2", "w") as file:
        file.write("nothing")
    assert main(arguments) == 2
    assert message in capfd.readouterr().err
