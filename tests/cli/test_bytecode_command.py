"""``corsac bytecode``: its output, and that it does not run the file."""

from __future__ import annotations

import dis
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from corsac.cli import main

SOURCE = """
print("this file was run")

class Net:
    def forward(self, x):
        return [y + 1 for y in x]

def outer():
    def inner():
        return 1
    return inner
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with ``net.py`` in it."""
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def f(:")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected(name: str, depth: int | None = None) -> str:
    code = compile(SOURCE, "net.py", "exec")
    for part in name.replace(".<locals>", "").split("."):
        code = next(it for it in code.co_consts if getattr(it, "co_name", None) == part)
    text = io.StringIO()
    dis.dis(code, file=text, depth=depth)
    return text.getvalue()


def without_addresses(text: str) -> str:
    return " ".join(word for word in text.split() if not word.startswith("0x"))


def test_instructions_are_listed_as_by_dis(capsys):
    for name, options in (
        ("Net.forward", []),
        ("outer.inner", []),
        ("outer.<locals>.inner", []),
        ("Net", ["--depth", "0"]),
    ):
        assert main(["bytecode", f"net.py:{name}", *options]) == 0
        printed = capsys.readouterr().out
        text = expected(name, 0 if options else None)
        assert without_addresses(printed) == without_addresses(text)
        assert "this file was run" not in printed
    assert main(["bytecode", "net.py"]) == 0
    assert "LOAD_BUILD_CLASS" in capsys.readouterr().out
    assert main(["bytecode", "json:loads"]) == 0
    assert "JSONDecoder" in capsys.readouterr().out


def test_fields_are_listed_and_written_as_json(capsys):
    assert main(["bytecode", "net.py:Net.forward", "--info"]) == 0
    assert "co_argcount         2  # parameters" in capsys.readouterr().out
    assert main(["bytecode", "net.py:outer.inner", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["co_name"] == "inner" and shown["co_consts"] == ["None", "1"]
    assert [it["opname"] for it in shown["instructions"]][-1].startswith("RETURN_")


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (
            "net.py:Net.forwrd",
            "net.py has no function or class 'Net.forwrd'; did you mean Net.forward?",
        ),
        ("net.py:swim", "net.py has no function or class 'swim'"),
        ("nothing.py:f", "nothing.py: no such file or directory"),
        ("broken.py:f", "broken.py does not compile: SyntaxError"),
        ("no_such_module:f", "there is no module 'no_such_module' with a source here"),
        ("sys:exit", "there is no module 'sys' with a source"),
        ("net:missing", "net has no function or class 'missing'"),
        ("broken", "broken.py does not compile"),
    ],
)
def test_what_is_not_there_is_said(subject, message, capsys):
    assert main(["bytecode", subject]) == 2
    error = capsys.readouterr().err
    assert error.startswith("corsac: error: ") and message in error, error


def test_arguments_are_checked(capsys):
    for arguments, message in (
        (["bytecode", "net.py", "--depth", "-1"], "not at least"),
        (["bytecode", "net.py", "--infos"], "did you mean '--info'?"),
        (["bytcode", "net.py"], "did you mean 'bytecode'?"),
        (["bytecode"], "the following arguments are required: FUNCTION"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2 and message in capsys.readouterr().err


def test_it_does_without_torch():
    program = "import sys; from corsac.cli import main; main(['bytecode', 'net.py:outer']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
