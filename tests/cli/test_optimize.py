"""``corsac optimize``, run as on the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from corsac.cli import main

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, channels=4, bias=True):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, channels, 3, bias=bias)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.dropout = torch.nn.Dropout()

    def forward(self, x):
        return self.dropout(self.norm(self.conv(x)).relu())

class Embedded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(10, 4)

    def forward(self, ids, keep):
        return {"sum": self.rows(ids).sum(-1) * keep, "ids": ids}

class Branching(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

class Broken(torch.nn.Module):
    def __init__(self):
        raise RuntimeError("no weights here")

def factory(width):
    return torch.nn.Linear(width, 2)

ready = torch.nn.ReLU()
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with ``model.py`` in it."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("model", "broken", "importer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def corsac(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "corsac.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_run_from_the_shell_writes_a_module_that_computes_the_same(folder: Path):
    result = corsac(
        "optimize", "model.py:Net", "--input", "1,3,8,8", "--out", "out/net", "--repeat", "2",
        cwd=folder,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1] == "model model.py:Net, input 1x3x8x8 float32, seed 0"
    assert lines[2].startswith("1 batch norm (untrained, ")
    table = {
        line[:21].strip(): line[21:].split() for line in lines if re.search(r" [mµn]?s$", line)
    }
    assert table["capture"][0] == "6"
    assert table["dropout removal"][:3] == ["6", "->", "5"]
    assert table["no-op removal"][0] == "5"
    assert table["Conv+BatchNorm fusion"][:3] == ["5", "->", "4"]
    assert table["common subexpressions"][0] == "4"
    assert table["dead code"][0] == "4"
    assert table["in all"][:3] == ["6", "->", "4"]
    assert re.search(r"^maximum absolute error +\d\.\d+e-\d+ ", result.stdout, re.M)
    assert re.search(r"^time per call +[\d.]+ [mµn]?s -> [\d.]+ [mµn]?s, ", result.stdout, re.M)
    assert re.search(r"^capture and fusion +torch.fx [\d.]+ [mµn]?s, corsac ", result.stdout, re.M)

    graph = (folder / "out/net/graph.txt").read_text()
    assert graph.splitlines()[0] == "graph():"
    assert "call_module[target=conv]" in graph
    assert "norm" not in graph and "dropout" not in graph
    program = """
import torch
from corsac.cli.batch_norm import randomize
import model
from out.net import Net

torch.manual_seed(0)
original = model.Net().eval()
image = torch.randn(1, 3, 8, 8)
randomize(original, [torch.randn(1, 3, 8, 8)])
written = Net().eval()
assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in written.modules())
torch.testing.assert_close(written(image), original(image))
print("same")
"""
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )
    assert loaded.stdout == "same\n", loaded.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.py:Nett"], "model.py has no 'Nett'; did you mean Net?"),
        (["nowhere:Net"], "there is no module 'nowhere' here or on the Python path"),
        (["nowhere.py:Net"], "nowhere.py: no such file"),
        (["model"], "'model' does not name a model: write module:callable or file.py:callable"),
        (["model.py:number"], "model.py:number is an int, neither a model nor a callable"),
        (["model.py:Broken"], "calling Broken() failed: RuntimeError: no weights here"),
        (["model.py:factory"], "calling factory() failed: TypeError: "),
        (["model.py:torch.zeros", "--kwargs", "size=[3]"], "returned a Tensor, not a torch.nn"),
        (["model.py:ready", "--kwargs", "a=1"], "is a model already, so --kwargs has nothing"),
        (["model.py:Net", "--kwargs", "{"], "--kwargs {: not valid JSON"),
        (["model.py:Net", "--kwargs", "nonsense"], "write a JSON object or key=value"),
        (["model.py:Net", "--input", "1,x"], "--input 1,x: the shape is comma-separated sizes"),
        (["model.py:Net", "--input", "1,-3"], "--input 1,-3: a size is negative"),
        (["model.py:Net", "--input", "1:int"], None),
        (["model.py:Net", "--input", "1:integer"], "torch has no dtype 'integer'"),
        (["model.py:Net"], "the model does not accept the input (none): TypeError"),
        (
            ["model.py:Net", "--input", "1,2,8,8"],
            "the model does not accept the input (1x2x8x8 float32): RuntimeError: Given groups=1",
        ),
        (["model.py:Branching", "--input", "3"], "the model cannot be captured: "),
        (["model.py:Net", "--input", "1,3,8,8", "--out", "."], "the folder holds something else"),
        (
            ["model.py:Net", "--input", "1,3,8,8", "--out", "net.pt"],
            "a folder is written, not a file *.pt",
        ),
        (["model.py:Net", "--input", "1,3,8,8", "--out", "model.py"], "there is a file of that"),
    ],
)
def test_what_goes_wrong_is_one_message_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str | None
):
    assert main(["optimize", *arguments]) == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if not line.endswith(" ...")]
    lines = [line for line in lines if "note: the weights of" not in line]
    assert lines[0].startswith("corsac: error: ")
    if message is not None:
        assert message in error
    assert "Traceback" not in error


def test_a_number_of_threads_that_is_none_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CORSAC_NUM_THREADS", "abc")
    for command in ("optimize", "profile", "summary"):
        assert main([command, "model.py:Net", "--input", "1,3,8,8"]) == 2
        said = 'CORSAC_NUM_THREADS is "abc", and a number from 1 to 65536 is needed'
        assert capsys.readouterr().err == f"corsac: error: {said}\n"


def test_a_module_that_fails_to_import_is_told_from_one_that_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "importer.py").write_text("import not_there_at_all\n")
    assert main(["optimize", "broken:Net"]) == 2
    assert "importing broken failed: ZeroDivisionError" in capsys.readouterr().err
    assert main(["optimize", "importer:Net"]) == 2
    assert "importing importer failed: ModuleNotFoundError" in capsys.readouterr().err
    assert main(["optimize", "broken.py:Net"]) == 2
    assert "running broken.py failed: ZeroDivisionError" in capsys.readouterr().err


def test_traceback_shows_the_cause(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["optimize", "model.py:Broken", "--traceback"]) == 2
    error = capsys.readouterr().err
    assert "Traceback (most recent call last)" in error
    assert 'raise RuntimeError("no weights here")' in error
    assert error.splitlines()[-1].startswith("corsac: error: calling Broken() failed")


def test_json_is_all_that_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["--input", "1,3,8,8", "--repeat", "2", "--verify", "--json", "--out", "out"]
    assert main(["optimize", "model.py:Net", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "model.py:Net" and report["folder"] == "out"
    assert report["inputs"] == [{"shape": [1, 3, 8, 8], "dtype": "float32"}]
    assert report["batch_norms_randomized"] == 1 and report["agrees"] is True
    assert report["error"] < 1e-5 * report["largest_output"]
    names = [step["name"] for step in report["passes"]]
    assert names[0] == "capture" and "Conv+BatchNorm fusion" in names
    assert [report["passes"][at]["nodes_after"] for at in (0, -1)] == [6, 4]
    assert report["passes"][1]["error"] < 1e-5
    fused = next(step for step in report["passes"] if step["name"] == "Conv+BatchNorm fusion")
    assert [(site["node"], site["reason"]) for site in fused["sites"]] == [("norm", None)]
    assert report["seconds_before"] > 0 and report["torch_fx"]["corsac_seconds"] > 0


def test_a_report_says_what_was_done_where_and_why_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "twice.py").write_text(
        MODEL.replace("self.norm(self.conv(x))", "self.norm(self.conv(x)) + self.conv(x)")
    )
    arguments = ["--input", "1,3,8,8", "--repeat", "2", "--report"]
    assert main(["optimize", "twice.py:Net", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  dropout  done" in lines
    (kept,) = (line for line in lines if line.startswith("  norm "))
    assert "kept: " in kept and "conv" in kept


def test_several_inputs_and_structured_outputs(folder: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["--input", "2,5:int64", "--input", "2,5:bool", "--repeat", "1"]
    assert main(["optimize", "model.py:Embedded", *arguments]) == 0
    output = capsys.readouterr().out
    assert "input 2x5 int64, 2x5 bool, seed 0" in output
    assert "maximum absolute error   0.00e+00" in output


def test_kwargs_reach_the_callable(folder: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["--input", "1,3,8,8", "--repeat", "1"]
    given = ["--kwargs", '{"channels": 7}', "--kwargs", "bias=false"]
    assert main(["optimize", "model.py:Net", *arguments, *given, "--out", "out"]) == 0
    assert "torch.nn.Conv2d(3, 7, (3, 3)" in (folder / "out/module.py").read_text()
    # A folder that the program wrote may be overwritten.
    assert main(["optimize", "model.py:Net", *arguments, "--out", "out"]) == 0
    assert "torch.nn.Conv2d(3, 4, (3, 3)" in (folder / "out/module.py").read_text()
    capsys.readouterr()


def test_trained_statistics_are_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "trained.py").write_text(
        "from model import Net\n"
        "def net():\n"
        "    net = Net()\n"
        "    net.norm.running_mean.fill_(0.5)\n"
        "    return net\n"
    )
    assert main(["optimize", "trained:net", "--input", "1,3,8,8", "--repeat", "1"]) == 0
    assert "random weights" not in capsys.readouterr().out
    arguments = ["--input", "1,3,8,8", "--repeat", "1", "--no-randomize-stats"]
    assert main(["optimize", "model.py:Net", *arguments]) == 0
    assert "random weights" not in capsys.readouterr().out


def test_a_result_that_differs_is_exit_code_1(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from corsac.cli import pipeline

    def spoil(module):
        module.get_submodule("conv").bias.data.add_(1.0)

    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES, ("spoiling", spoil)))
    assert main(["optimize", "model.py:Net", "--input", "1,3,8,8", "--repeat", "1"]) == 1
    assert "the result differs from the original" in capsys.readouterr().err


def test_help_and_version_need_no_torch():
    program = (
        "import sys; sys.modules['torch'] = None\nfrom corsac.cli import main\nmain(sys.argv[1:])\n"
    )
    for argument, expected in (
        (["--version"], "corsac 0.1.0"),
        (["--help"], "capture a model, run the passes"),
        (["optimize", "--help"], "such as 1,3,224,224 or"),
    ):
        result = subprocess.run(
            [sys.executable, "-c", program, *argument], capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        assert expected in result.stdout
    result = subprocess.run(
        [sys.executable, "-c", program, "optimize", "a:b"], capture_output=True, text=True
    )
    assert "corsac optimize needs PyTorch, 2.6 or later: pip install" in result.stderr
    result = subprocess.run(
        [sys.executable, "-m", "corsac.cli", "optimise"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "did you mean 'optimize'?" in result.stderr


def test_verification_runs_the_model_after_every_pass(folder: Path):
    result = corsac(
        "optimize", "model.py:Net", "--input", "1,3,8,8", "--verify", "--repeat", "2", cwd=folder
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    errors = re.findall(r" [mµn]?s +(\d\.\de[+-]\d+)$", result.stdout, re.M)
    assert len(errors) == 5
    assert all(float(error) < 1e-5 for error in errors)


def test_verification_names_the_change_that_is_wrong(folder: Path, monkeypatch):
    import torch

    from corsac.cli import pipeline
    from corsac.cli.failure import Failure

    def wrong(module):
        for node in module.graph.find_nodes(op="call_module", target="conv"):
            node.replace_all_uses_with(node.args[0])
        module.recompile()

    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES, ("wrong", wrong)))
    model = torch.nn.Sequential()
    model.add_module("conv", torch.nn.Conv2d(2, 2, 1))
    with pytest.raises(Failure, match=r"(?s)wrong changed .*change 1, by wrong"):
        pipeline.capture_and_optimize(
            model.eval(), [torch.randn(1, 2, 3, 3)], verify=True, tolerance=1e-5
        )


@pytest.mark.parametrize(("shape", "folded"), [((5, 3), True), ((5, 4, 3), False)])
def test_batch_norms_after_linear_layers_go_where_inputs_say_that_there_are_rows(shape, folded):
    import torch

    from corsac.cli import pipeline

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    torch.nn.init.normal_(model[1].running_mean)
    for verify in (False, True):
        module, _ = pipeline.capture_and_optimize(
            model, [torch.randn(shape)], verify=verify, tolerance=1e-4
        )
        norms = [own for own in module.modules() if isinstance(own, torch.nn.BatchNorm1d)]
        assert bool(norms) is not folded
        assert all("tensor_meta" not in node.meta for node in module.graph.nodes)
        x = torch.randn(shape)
        torch.testing.assert_close(module(x), model(x))
