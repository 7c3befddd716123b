"""``corsac plan``."""

import argparse
import json

import pytest
import torch

from corsac.cli import main
from corsac.cli.values import numbers, per_second, seconds
from corsac.distributed import MeshPlan

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=64, layers=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.drop = nn.Dropout(0.1)
        self.register_buffer("shift", torch.ones(width), persistent=False)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(self.drop(x))) + self.shift
        return x

class ByValue(nn.Module):
    def forward(self, x):
        return x.relu() if x.sum() > 0 else x
"""
GIVEN = ["--input", "32,64", "--bandwidth", "1G", "--flops", "1T", "--memory-bandwidth", "100G"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(*words, model="net.py:Net"):
    return main(["plan", model, *GIVEN, *words])


def test_the_best_meshes_are_printed(capsys):
    assert planned("--ranks", "2..8", "--show", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:1] == ["ranks"] and "pipeline × tensor × data" in lines[0]
    assert [line.split()[0] for line in lines[1:7]] == ["2", "2", "4", "4", "8", "8"]
    assert lines[-1] == (
        "a batch of 32; ranks of 1.00TFLOP/s and 100.00GB/s of memory, connected with 1.00GB/s and 10.0 µs"
    )


def test_the_plan_is_json_picture_and_file(capsys, folder):
    words = ("--draw", "step.svg", "--out", "plan.json", "--mesh", "2x2x2", "--json")
    assert planned("--ranks", "8", *words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["batch"] == 32 and len(report["found"]) + len(report["refused"]) == 10
    assert report["found"][0]["seconds"] == min(own["seconds"] for own in report["found"])
    assert "2 × 2 × 2" in (folder / "step.svg").read_text()
    plan = MeshPlan.load(folder / "plan.json")
    assert plan.mesh.shape == (2, 2, 2) and plan.batch == 32
    assert len(plan.pipeline.stages) == 2
    assert planned("--ranks", "8", "--draw", "step.html") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("written to step.html")


def test_a_model_without_its_parameters_has_its_buffers(capsys, folder):
    assert planned("--ranks", "4", "--meta", "--sequence-parallel", "--out", "plan.json") == 0
    plan = MeshPlan.load(folder / "plan.json")
    assert plan.sequence_parallel
    tensors = plan.pipeline.program.tensors
    assert torch.equal(tensors["shift"], torch.ones(64))
    assert tensors["layers.0.weight"].is_meta
    assert torch.nn.Linear(2, 2).weight.device.type == "cpu"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ranks", "8", "--mesh", "2x2"), "--mesh 2x2: expected the ranks of pipeline"),
        (
            ("--ranks", "8", "--mesh", "2x2x3"),
            "--mesh 2x2x3 has 12 ranks, which are none of --ranks",
        ),
        (("--ranks", "64", "--mesh", "1x1x64"), "--mesh 1 × 1 × 64 is not possible: the number of"),
        (
            ("--ranks", "8", "--draw", "step.png"),
            "--draw step.png: expected a file *.html or *.svg",
        ),
        (("--ranks", "8", "--out", "plan.txt"), "--out plan.txt: expected a file *.json"),
        (("--ranks", "8", "--out", "no/plan.json"), "there is no folder no"),
        (("--ranks", "2", "--memory", "1k"), "no mesh can be used"),
        (
            ("--ranks", "2", "--meta", "--weights", "w.safetensors"),
            "--weights has nothing to go to",
        ),
        (("--ranks", "2", "--capture", "2,63"), "the model does not accept the input: "),
    ],
)
def test_wrong_requests_are_refused(capsys, words, said):
    assert planned(*words) == 2
    assert said in capsys.readouterr().err


def test_models_that_are_no_graph_are_refused(capsys):
    assert planned("--ranks", "2", model="net.py:ByValue") == 2
    assert "the model cannot be planned: the model is no graph" in capsys.readouterr().err
    assert main(["plan", "net.py:Net", "--ranks", "2", "--bandwidth", "1G"]) == 2
    assert "a plan needs the batch of a step; give --input SHAPE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bandwidth", "1G"], "required: --ranks"),
        (["--ranks", "2"], "required: --bandwidth"),
        (["--ranks", "8..2", "--bandwidth", "1G"], "8..2 has none: 8 is above 2"),
        (["--ranks", "0", "--bandwidth", "1G"], "0 is not at least 1"),
        (["--ranks", "2", "--bandwidth", "1G", "--latency", "5"], "'5' is no time, such as 10us"),
        (["--ranks", "2", "--bandwidth", "1G", "--flops", "fast"], "no number of operations"),
    ],
)
def test_wrong_options_are_named(capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "net.py:Net", "--input", "4,64", *words])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_numbers_and_times_are_read():
    assert numbers("8..64") == [8, 16, 32, 64]
    assert numbers("6..30") == [6, 12, 24] and numbers("6,10") == [6, 10] and numbers("3") == [3]
    assert seconds("10us") == pytest.approx(1e-5) and seconds("0.5 ms") == pytest.approx(5e-4)
    assert per_second("1T") == 10**12
    for wrong in ("", "us", "-1us", "1m"):
        with pytest.raises(argparse.ArgumentTypeError):
            seconds(wrong)
