"""The commands that print, compare and build, run as on the command line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import corsac.fx as fx
from corsac.cli import main
from corsac.cli.commands import COMMANDS, NATIVE

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = torch.nn.Linear(3, width)

    def forward(self, x):
        return torch.relu(self.linear(x))

class Longer(Net):
    def forward(self, x):
        return super().forward(x) * 2
"""

TEXT = """\
graph():
    %x : [num_users=1] = placeholder[target=x]
    %linear : [num_users=1] = call_module[target=linear](args = (%x,), kwargs = {})
    %relu : [num_users=1] = call_function[target=torch.relu](args = (%linear,), kwargs = {})
    return relu
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with ``net.py`` in it."""
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "net", raising=False)
    return tmp_path


def test_show_prints_the_graph_and_reads_it_back(capsys, folder):
    assert main(["show", "net.py:Net"]) == 0
    assert capsys.readouterr().out == TEXT
    assert main(["show", "net.py:Net", "--lossless"]) == 0
    lossless = capsys.readouterr().out
    (folder / "net.txt").write_text(lossless)
    assert main(["show", "net.txt"]) == 0
    assert capsys.readouterr().out == TEXT
    assert main(["show", "net.py:Net", "--sources"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].endswith("net.py:10 in Net.forward")
    assert main(["show", "net.txt", "--sources"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_show_prints_json(capsys):
    assert main(["show", "net.py:Net", "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [node["name"] for node in nodes] == ["x", "linear", "relu", "output"]
    assert nodes[2]["target"] == "torch.relu" and nodes[1]["users"] == ["relu"]
    assert nodes[1]["source"]["line"] == 10


def test_code_says_which_lines_it_is_of(capsys, folder):
    assert main(["code", "net.py:Net", "--verbose"]) == 0
    code = capsys.readouterr().out
    comment = "net.py:10 in Net.forward, code: return torch.relu(self.linear(x))"
    assert comment in code and "No stacktrace" not in code
    assert main(["show", "net.py:Net", "--lossless"]) == 0
    (folder / "net.txt").write_text(capsys.readouterr().out)
    assert main(["code", "net.txt", "--verbose"]) == 0
    assert capsys.readouterr().out == code
    assert main(["table", "net.txt", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["source"]["line"] for row in rows] == [9, 10, 10, 9]


def test_table_and_code(capsys):
    assert main(["table", "net.py:Net"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert lines[4].split()[:2] == ["call_function", "relu"]
    assert main(["code", "net.py:Net"]) == 0
    code = capsys.readouterr().out
    assert "linear = self.linear(x);  x = None" in code
    assert main(["table", "net.py:Net", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


def test_diff_says_whether_graphs_differ(capsys, folder):
    assert main(["diff", "net.py:Net", "net.py:Net"]) == 0
    capsys.readouterr()
    assert main(["diff", "net.py:Net", "net.py:Longer"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert any(line.startswith("+") and "mul" in line for line in out.splitlines())
    assert main(["diff", "net.py:Net", "net.py:Longer", "--json"]) == 1
    added = json.loads(capsys.readouterr().out)["added"]
    assert [node["target"] for node in added] == ["operator.mul"]


def test_colours_are_for_terminals(folder):
    command = [sys.executable, "-m", "corsac.cli", "diff", "net.py:Net", "net.py:Longer"]
    for environment, expected in (({}, True), ({"NO_COLOR": "1"}, False)):
        leader, follower = pty.openpty()
        child = subprocess.Popen(
            command, stdout=follower, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
        )
        os.close(follower)
        shown = b""
        try:
            while block := os.read(leader, 4096):
                shown += block
        except OSError:
            pass
        assert child.wait() == 1
        assert (b"\x1b[32m+" in shown) == expected


def test_build_writes_a_module_and_describe_its_configuration(capsys, folder):
    assert main(["describe", "net.py:Net", "--out", "net.toml"]) == 0
    assert main(["describe", "net.py:Net", "--kwargs", "width=7"]) == 0
    assert "module linear = Linear(3, 7)" in capsys.readouterr().out
    configuration = (folder / "net.toml").read_text()
    assert "x = {}" in configuration
    (folder / "net.toml").write_text(configuration.replace("x = {}", 'x = ["_", 3]'))
    assert main(["build", "net.toml", "--out", "built"]) == 0
    out = capsys.readouterr().out
    assert "Net: 2 calls, 16 parameters" in out
    assert "2x3 float32 -> 2x4 float32" in out
    check = "import torch, built; print(tuple(built.Net()(torch.ones(5, 3)).shape))"
    printed = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert printed.stdout == "(5, 4)\n", printed.stderr
    assert main(["diff", "built", "net.toml"]) == 0
    assert main(["code", "net.toml"]) == 0


def test_build_describe_and_save_print_json(capsys, folder):
    assert main(["describe", "net.py:Net", "--json"]) == 0
    configuration = json.loads(capsys.readouterr().out)
    assert configuration["modules"]["linear"] == {"class": "Linear", "args": [3, 4]}
    assert main(["describe", "net.py:Net", "--json", "--out", "net.toml"]) == 0
    written = json.loads(capsys.readouterr().out)
    text = (folder / "net.toml").read_text()
    assert written == {"file": "net.toml", "bytes": len(text)}
    assert main(["build", "net.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "Net", "calls": 2, "parameters": 16}
    (folder / "net.toml").write_text(text.replace("x = {}", 'x = ["_", 3]'))
    assert main(["build", "net.toml", "--json", "--out", "built"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["inputs"] == [{"shape": [2, 3], "dtype": "float32"}]
    assert made["output"] == {"shape": [2, 4], "dtype": "float32"}
    assert made["folder"] == "built" and (folder / "built/module.py").is_file()
    assert main(["save", "net.py:Net", "--input", "5,3", "--out", "n.safetensors", "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)
    assert saved["bytes"] == (folder / "n.safetensors").stat().st_size
    assert saved["inputs"] == [{"shape": [5, 3], "dtype": "float32"}]
    assert main(["describe", "net.py:Net", "--json", "--format", "toml"]) == 2
    assert "--json is --format json, and --format is toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["save", "--input", "5,3", "--out", "net.onnx"],
        ["save", "--input", "5,3", "--out", "net"],
        ["draw", "--out", "net.png"],
        ["describe", "--out", "net.yaml"],
        ["lower", "--input", "5,3", "--out", "net.pt"],
        ["minify", "--backend", "engine", "--out", "fault.txt"],
    ],
)
def test_unknown_suffixes_are_refused_before_anything_is_done(arguments, capsys, folder):
    assert main([arguments[0], "missing.py:Net", *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"corsac: error: --out {arguments[-1]}: expected a file *."), error
    assert not (folder / arguments[-1]).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["shwo", "net.py:Net"],
            "there is no command 'shwo': did you mean 'show'? (corsac --help ",
        ),
        (["swim", "net.py:Net"], "there is no command 'swim' (corsac --help shows how)"),
        (["show", "net.py:Net", "--losless"], "'--losless': did you mean '--lossless'?"),
        (["ops", "net.py:Net", "--inpt", "5,3"], "'--inpt': did you mean '--input'?"),
        (["ops", "net.py:Net", "--inpt=5,3"], "'--input'? (corsac ops --help shows how)"),
        (
            ["show", "net.py:Net", "--format", "poem"],
            "expected one of graph, table, code, lossless",
        ),
        (["split"], "the following arguments are required: MODEL (corsac split --help shows how)"),
    ],
)
def test_words_that_are_none_are_refused_with_what_was_meant(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    error = capsys.readouterr().err
    assert ended.value.code == 2 and len(error.splitlines()) == 1
    assert error.startswith("corsac: error: ") and message in error, error


def test_show_takes_the_forms_of_the_native_program(capsys):
    for form, same in (("graph", ["show"]), ("table", ["table"]), ("code", ["code"])):
        assert main(["show", "net.py:Net", "--format", form]) == 0
        printed = capsys.readouterr().out
        assert main([*same, "net.py:Net"]) == 0
        assert capsys.readouterr().out == printed
    assert main(["show", "net.py:Net", "--format", "code", "--json"]) == 2
    assert "--json cannot be used with --format code" in capsys.readouterr().err


def test_shells_complete_commands_and_options(capsys, folder):
    assert main(["completions", "bash"]) == 0
    (folder / "corsac.bash").write_text(capsys.readouterr().out)
    ask = """
source corsac.bash
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _corsac; echo "${COMPREPLY[*]}"; }
complete_words corsac sh
complete_words corsac show --lo
complete_words corsac bench --rep
complete_words corsac show net
complete_words corsac show --format ""
complete_words corsac bench --precision b
complete_words corsac completions ""
"""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    words = [
        "show",
        "--lossless",
        "--repeat",
        "",
        "graph table code lossless",
        "bf16",
        "bash zsh fish",
    ]
    assert done.stdout.splitlines() == words, done.stderr
    assert main(["completions", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completions", "fish"]) == 0
    fish = capsys.readouterr().out
    assert "complete -c corsac -n '__fish_seen_subcommand_from show' -l lossless\n" in fish
    assert "_from show' -l format -x -a 'graph table code lossless'\n" in fish


def test_the_cache_command_does_without_torch(folder):
    program = (
        "import sys; from corsac.cli import main; main(['cache']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["ops"], "counting operations"),
        (["profile"], "a profile"),
        (["lower"], "lowering"),
        (["save", "--out", "n.safetensors"], "saving"),
        (["draw", "--out", "n.svg", "--overlay", "flops"], "--overlay flops"),
    ],
)
def test_inputs_that_are_not_given_are_asked_for(command, why, capsys, folder):
    (folder / "two.py").write_text(
        "import torch\nclass Two(torch.nn.Module):\n"
        "    def forward(self, left, right, scale=2):\n        return (left + right) * scale\n"
    )
    assert main([*command, "two.py:Two", "--input", "5"]) == 2
    error = capsys.readouterr().err
    assert f"{why} needs the shape of each input; give --input SHAPE" in error
    assert error.endswith("for right\n")
    assert main([*command, "two.py:Two"]) == 2
    assert capsys.readouterr().err.endswith("for left, right\n")
    assert main([*command, "two.py:Two", *["--input", "5"] * 4]) == 2
    error = capsys.readouterr().err
    assert "--input is given 4 times; the inputs of the model are: left, right, scale" in error
    assert not (folder / "n.safetensors").exists() and not (folder / "n.svg").exists()


def test_inputs_that_a_configuration_declares_need_not_be_given(capsys, folder):
    assert main(["describe", "net.py:Net", "--out", "net.toml"]) == 0
    text = (folder / "net.toml").read_text()
    (folder / "net.toml").write_text(text.replace("x = {}", "x = [5, 3]"))
    assert capsys.readouterr().out == "written to net.toml\n"
    assert main(["ops", "net.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["macs"] == 5 * 3 * 4
    assert main(["optimize", "net.toml", "--repeat", "1"]) == 0
    assert "input 5x3 float32" in capsys.readouterr().out


def test_inputs_of_a_model_file_need_not_be_given(capsys):
    assert main(["save", "net.py:Net", "--input", "5,3", "--out", "n.safetensors"]) == 0
    assert main(["profile", "n.safetensors", "--repeat", "1"]) == 0
    assert "linear" in capsys.readouterr().out
    assert main(["optimize", "n.safetensors", "--repeat", "1"]) == 0
    assert "input 5x3 float32" in capsys.readouterr().out
    assert main(["ops", "n.safetensors", "--input", "7,3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["macs"] == 7 * 3 * 4
    with pytest.raises(SystemExit):
        main(["profile", "n.safetensors", "--repeat", "twice"])
    assert "argument --repeat: 'twice' is no whole number" in capsys.readouterr().err


def test_a_folder_without_weights_says_which_model_it_is(capsys, folder):
    assert (
        main(["optimize", "net.py:Net", "--input", "5,3", "--repeat", "1", "--out", "o/net"]) == 0
    )
    capsys.readouterr()
    assert main(["ops", "o/net", "--input", "5,3"]) == 2
    error = capsys.readouterr().err
    assert "counting operations needs a model, which is o.net:Net" in error
    assert main(["ops", "o.net:Net", "--input", "5,3"]) == 0
    assert main(["split", "net.py:Net", "--input", "5,3", "--out", "o/parts"]) == 0
    assert main(["ops", "o/parts", "--input", "5,3"]) == 2
    assert "which is o.parts:Net" in capsys.readouterr().err


def test_a_file_with_one_class_needs_no_name(capsys, folder):
    (folder / "only.py").write_text(
        "import torch\n\n\nclass Only(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.relu(x)\n"
    )
    assert main(["show", "only.py"]) == 0
    assert "torch.relu](args = (%x,)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "missing.txt"], "missing.txt: no such file"),
        (["show", "empty"], "empty: a folder without graph.txt"),
        (["show", "wrong.txt"], "wrong.txt is no graph"),
        (["show", "broken.txt"], "broken.txt: line 2, column 5: expected"),
        (["show", "net.py:Nett"], "did you mean Net?"),
        (["show", "net.txt", "--kwargs", "width=3"], "net.txt is no callable, so --kwargs has no"),
        (["show", "net.onnx"], "net.onnx: no such file"),
        (["show", "net.pt"], "not *.pt; --weights reads weights"),
        (["show", "net.py"], "which model of net.py? Write net.py:Net or net.py:Longer"),
        (["build", "missing.toml"], "error: missing.toml: no such file"),
        (["draw", "net.py:Net", "--out", "away/net.svg"], "away/net.svg: there is no folder away"),
        (["show", "net.py:Unknown"], "net.py has no 'Unknown'; its classes are Net, Longer"),
        (
            ["lower", "net.py:Net", "--input", "5,3", "--to", "x"],
            "error: there is no backend 'x'; ",
        ),
        (["build", "wrong.toml"], "wrong.toml, line 1, column 1: expected `name`"),
        (
            ["describe", "net.txt"],
            "net.txt is the text of a graph, without the modules and weights that it names (linear): ",
        ),
        (["ops", "net.txt", "--input", "5,3"], "(linear): counting operations needs a model"),
        (["split", "net.txt", "--out", "parts"], "(linear): splitting needs a model"),
        (["build", "net.toml", "--out", "net.py"], "--out net.py: there is a file of that name"),
        (
            ["build", "large.graph"],
            "large.graph, line 1: module a: Linear: the tensors of the model",
        ),
        (
            ["build", "small.graph", "--max-gib", "1e-8"],
            "take 64 bytes up to here, and may take 10 b",
        ),
        (
            ["build", "inputs.graph"],
            "the inputs that the file declares take 3.469 EiB, and may take",
        ),
    ],
)
def test_errors_are_one_message_and_exit_code_2(arguments, message, capsys, folder):
    (folder / "empty").mkdir()
    (folder / "wrong.txt").write_text("hello")
    (folder / "broken.txt").write_text("graph():\n    hello")
    (folder / "wrong.toml").write_text("nodes = 1")
    (folder / "large.graph").write_text(
        "module a = Linear(1000000000, 1000000000)\ninput x\ngraph:\n  return a(x)"
    )
    (folder / "small.graph").write_text("module a = Linear(4, 4)\ninput x\ngraph:\n  return a(x)")
    (folder / "inputs.graph").write_text(
        "input x = float32[1000000000, 1000000000]\ngraph:\n  return torch.relu(x)"
    )
    (folder / "net.txt").write_text(TEXT)
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    error = "\n".join(line for line in lines if "note: the weights of" not in line)
    assert error.startswith("corsac: error: ") and message in error, error
    assert "Traceback" not in error


@pytest.mark.parametrize("command", [c.name for c in COMMANDS if c.name not in NATIVE])
def test_every_command_has_an_example_in_its_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"  corsac {command} " in out[out.index("example") :]


def test_no_command_shows_which_there_are(capsys):
    assert main([]) == 2
    error = capsys.readouterr().err
    assert all(f"  {command.name}" in error for command in COMMANDS)


def test_a_reader_that_goes_is_no_error(folder):
    command = f"{sys.executable} -m corsac.cli show net.py:Net | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout == "graph():\n"
    assert done.stderr.startswith("corsac: note: the weights of net.py:Net are random")
    assert done.stderr.count("\n") == 1


def test_saved_graphs_are_graphs_of_the_package(folder):
    (folder / "net.txt").write_text(TEXT)
    graph = fx.Graph.parse((folder / "net.txt").read_text())
    gm = fx.GraphModule({"linear": torch.nn.Linear(3, 4)}, graph)
    assert gm(torch.ones(2, 3)).shape == (2, 4)


def test_ops_and_profile_count_and_measure(capsys):
    assert main(["ops", "net.py:Net", "--input", "5,3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["totals"]["macs"] == 5 * 3 * 4
    assert main(["ops", "net.py:Net", "--input", "5,3"]) == 0
    assert "linear" in capsys.readouterr().out
    assert main(["profile", "net.py:Net", "--input", "5,3", "--repeat", "2"]) == 0
    assert "linear" in capsys.readouterr().out
    assert main(["ops", "net.py:Net", "--input", "5,4"]) == 2
    assert "does not accept the input" in capsys.readouterr().err


def test_lower_runs_previews_and_writes(capsys, folder):
    given = ["net.py:Net", "--input", "5,3"]
    assert main(["lower", *given]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 of 2 calls on onnxruntime in 1 part, 2 transfers\n")
    assert "maximum absolute error" in out and "time per call" in out
    assert main(["lower", *given, "--to", "openvino", "--json", "--repeat", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["error"] < 1e-6 and report["preview"]["backend"] == "openvino"
    assert main(["lower", *given, "--preview"]) == 0
    assert "lowered_0: 2 nodes, 60 bytes in, 80 bytes out" in capsys.readouterr().out
    assert main(["lower", *given, "--preview", "--json", "--min-nodes", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == []
    assert main(["lower", *given, "--strict", "--min-nodes", "3"]) == 2
    assert "linear (call_module linear) cannot run on onnxruntime" in capsys.readouterr().err
    assert main(["lower", *given, "--to", "nowhere"]) == 2
    assert "there is no backend 'nowhere'" in capsys.readouterr().err
    assert main(["lower", "net.py:Net", "--input", "5,4"]) == 2
    assert "does not accept the input" in capsys.readouterr().err
    assert main(["lower", *given, "--out", "net.onnx"]) == 0
    assert "written to net.onnx: " in capsys.readouterr().out
    import onnxruntime

    session = onnxruntime.InferenceSession("net.onnx")
    assert [x.name for x in session.get_inputs()] == ["x"]
    assert main(["lower", *given, "--out", "net.pt"]) == 2
    assert "--out net.pt: expected a file *.onnx" in capsys.readouterr().err


def test_draw_writes_what_the_name_says(capsys, folder):
    assert main(["draw", "net.py:Net", "--out", "net.svg"]) == 0
    assert (folder / "net.svg").read_text().startswith("<svg")
    options = ["--input", "5,3", "--overlay", "flops"]
    assert main(["draw", "net.py:Net", *options, "--out", "net.html"]) == 0
    assert "linear" in (folder / "net.html").read_text()
    capsys.readouterr()
    assert main(["draw", "net.py:Net", "--out", "net.bmp"]) == 2
    assert "--out net.bmp" in capsys.readouterr().err
    assert main(["draw", "net.py:Net", "--overlay", "time", "--out", "net.svg"]) == 2
    assert "--overlay time needs the shape of each input" in capsys.readouterr().err


def test_code_and_draw_print_json(capsys, folder):
    assert main(["code", "net.py:Net", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["code"].startswith("def forward(self, x):\n    linear = self.linear(x)")
    assert printed["code"].endswith("return relu")
    assert printed["globals"]["torch"] == "torch"
    assert printed["globals"]["device"] == "torch.device"
    options = ["--input", "5,3", "--overlay", "flops", "--json"]
    assert main(["draw", "net.py:Net", "--out", "net.svg", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": "net.svg",
        "format": "svg",
        "bytes": (folder / "net.svg").stat().st_size,
        "nodes": 4,
        "overlay": "flops",
    }


def test_texts_do_where_no_weights_are_needed(capsys, folder):
    (folder / "net.txt").write_text(TEXT)
    for command in (["show"], ["table"], ["code"], ["draw", "--out", "net.html"]):
        assert main([command[0], "net.txt", *command[1:]]) == 0
    capsys.readouterr()
    assert main(["diff", "net.txt", "net.py:Net"]) == 0


def test_texts_of_functions_alone_run(capsys, folder):
    (folder / "net.txt").write_text(
        """\
graph():
    %x : [num_users=1] = placeholder[target=x]
    %w : [num_users=1] = placeholder[target=w]
    %mm : [num_users=1] = call_function[target=torch.matmul](args = (%x, %w), kwargs = {})
    return mm
"""
    )
    shapes = ["--input", "8,16", "--input", "16,32"]
    assert main(["ops", "net.txt", *shapes, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["macs"] == 8 * 16 * 32
    assert main(["draw", "net.txt", *shapes, "--out", "net.svg"]) == 0
    assert "8×32" in (folder / "net.svg").read_text()
    assert main(["save", "net.txt", *shapes, "--out", "net.safetensors"]) == 0


def test_split_gives_parts_that_compute_the_same(capsys, folder):
    assert main(["split", "net.py:Longer", "--input", "5,3", "--parts", "3", "--out", "parts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["submod_0", "1"],
        ["submod_1", "1"],
        ["submod_2", "1"],
    ]
    check = """
import torch, net, parts
torch.manual_seed(0)
x, original = torch.ones(5, 3), net.Longer()
assert torch.equal(parts.Longer()(x), original(x))
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert main(["split", "net.py:Net", "--input", "5,3", "--parts", "3"]) == 2
    assert "got 3: the graph has 2 calls" in capsys.readouterr().err


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "corsac", "code", "net.py:Net"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "relu = torch.relu(linear)" in result.stdout


WRITTEN = """
import torch


@torch.fx.wrap
def halved(x):
    return x / len(x)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(10, 4)
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.9))
        self.lstm = torch.nn.LSTM(4, 4, 2, batch_first=True)
        layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu")
        self.encoder = torch.nn.TransformerEncoder(layer, 2)
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(4)
        self.again = self.norm
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.rows.weight
        self.scale = torch.nn.Parameter(torch.rand(4), requires_grad=False)
        self.register_buffer("shift", torch.rand(4), persistent=False)

    def forward(self, ids):
        x = self.body(halved(self.rows(ids)) * self.scale + self.shift)
        x = self.encoder(self.lstm(self.again(self.norm(x)))[0])
        return self.head(self.attention(x, x, x)[0])
"""


@pytest.mark.parametrize(
    "command",
    [
        ["optimize", "--input", "2,5:int64", "--repeat", "1"],
        ["split", "--input", "2,5:int64", "--parts", "5"],
    ],
)
def test_written_folders_can_be_moved_and_hold_no_pickle(command, folder):
    (folder / "tied.py").write_text(WRITTEN)
    assert main([command[0], "tied.py:Tied", *command[1:], "--out", "first/place"]) == 0
    (folder / "first/place").rename(folder / "moved")
    files = {path.name for path in (folder / "moved").iterdir()}
    assert files == {"__init__.py", "module.py", "graph.txt", "weights.safetensors"}
    with (folder / "moved/weights.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    assert shapes.count([10, 4]) == 1
    check = """
import sys
import torch, moved, tied
torch.manual_seed(0)
original, written = tied.Tied().eval(), moved.Tied()
ids = torch.randint(0, 10, (2, 5))
torch.testing.assert_close(written(ids), original(ids))
assert not written.training and "corsac" not in sys.modules
parameters = dict(written.named_parameters(remove_duplicate=False))
rows = [p for name, p in parameters.items() if name.endswith(("rows.weight", "head.weight"))]
assert len(rows) == 2 and rows[0] is rows[1] and rows[0].requires_grad
assert not written.scale.requires_grad
"""
    if command[0] == "split":
        check += "assert moved.submod_4().head.weight.shape == (10, 4)\n"
    else:
        check += "assert 'shift' not in written.state_dict()\n"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_written_as_source_is_refused(capsys, folder):
    (folder / "hooked.py").write_text(
        "import torch\n\ndef Hooked():\n    layer = torch.nn.Linear(3, 3)\n"
        "    layer.register_forward_hook(lambda module, args, result: result + 1)\n"
        "    return torch.nn.Sequential(layer)\n\n"
        "def Normed():\n"
        "    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3))\n"
        "    return torch.nn.Sequential(layer)\n"
    )
    assert main(["split", "hooked.py:Hooked", "--input", "2,3", "--parts", "1", "--out", "o"]) == 2
    assert "module 0 cannot be written as source: it has hooks" in capsys.readouterr().err
    assert main(["split", "hooked.py:Normed", "--input", "2,3", "--parts", "1", "--out", "o"]) == 2
    assert "module 0: the attributes of this ParametrizedLinear do not" in capsys.readouterr().err
    assert not (folder / "o").exists()
