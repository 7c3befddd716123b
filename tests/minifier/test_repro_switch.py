"""CORSAC_REPRO: a fault of a backend becomes a script before it is raised."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_planted_faults import differs, exits, rejects

import corsac
import corsac.backends
from corsac.backends import BackendError, _repro_switch, aot_autograd, make_boxed_func
from corsac.fx import Interpreter
from corsac.minifier._settings import Settings


def program(x):
    return torch.cos(torch.atan(torch.sin(x) + 1)) * 2


class WrongBackward(Interpreter):
    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return result * 1.01 if "tanh_backward" in str(target) else result


def wrong_backward(module, example_inputs):
    return make_boxed_func(WrongBackward(module).run)


def as_it_is(module, example_inputs):
    return make_boxed_func(module.forward)


@pytest.fixture
def switch(monkeypatch, tmp_path):
    def on(look):
        monkeypatch.setenv("CORSAC_REPRO", look)
        monkeypatch.setenv("CORSAC_REPRO_DIR", str(tmp_path / "faults"))
        monkeypatch.setenv("CORSAC_REPRO_HANG_SECONDS", "60")
        return tmp_path / "faults"

    yield on
    torch._dynamo.reset()


def the_script(folder):
    (script,) = folder.glob("*.py")
    assert script.with_suffix(".graph").read_text() in script.read_text()
    return script


def test_the_original_error_is_raised_with_a_note(switch):
    folder = switch("compile")
    with pytest.raises(BackendError, match="NotImplementedError: no kernel for atan") as caught:
        corsac.compile(program, backend=rejects)(torch.randn(3))
    script = the_script(folder)
    cause = caught.value.__cause__
    assert type(cause) is NotImplementedError
    note = f"5 calls became 1: {script}"
    assert cause.__notes__ == [note] and caught.value.__notes__ == [note]
    # Without the switch, it is an ordinary program.
    environment = _repro_switch.environment_without()
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert "fault: NotImplementedError: no kernel for atan\n" in done.stdout


def test_a_crash_is_an_error_here(switch):
    folder = switch("run")
    with pytest.raises(BackendError, match="exits: crashes when compiled: exit status 0") as caught:
        corsac.compile(program, backend=exits)(torch.randn(3))
    assert str(the_script(folder)) in caught.value.__notes__[0]


@pytest.mark.slow
def test_graphs_of_dynamo_are_watched(switch):
    folder = switch("accuracy")
    compiled = corsac.compile(program, backend=differs, dynamic=True)
    with pytest.raises(BackendError, match="differs from PyTorch: result 0") as caught:
        compiled(torch.randn(3))
    assert "5 calls became 1" in caught.value.__notes__[0]
    assert "torch.atan" in the_script(folder).read_text()


def test_backward_graphs_of_aot_autograd_are_watched(switch):
    folder = switch("accuracy")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    backend = aot_autograd(fw_compiler=as_it_is, bw_compiler=wrong_backward)
    result = corsac.compile(model, backend=backend)(torch.randn(3, 4))
    with pytest.raises(BackendError, match="wrong_backward: differs from PyTorch"):
        result.sum().backward()
    text = the_script(folder).read_text()
    assert "torch.ops.aten.tanh_backward.default" in text
    assert text.count("call_function[") == 1


@pytest.mark.slow
@pytest.mark.parametrize("capture", [corsac.compile, torch.compile])
def test_what_is_right_is_right(switch, capture):
    folder = switch("accuracy")
    backend = {} if capture is corsac.compile else {"backend": "corsac"}
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    compiled = capture(model.eval(), **backend)
    with torch.no_grad():
        for rows in (3, 3, 5):
            x = torch.randn(rows, 4)
            assert torch.allclose(compiled(x), model(x), atol=1e-5)
    assert not folder.exists()


def test_a_later_call_that_differs(switch):
    folder = switch("accuracy")
    calls = []

    def wrong_for_large_values(module, example_inputs):
        def run(x):
            (result,) = module(x)
            return (torch.where(x > 100, result + 1, result),)

        return run

    compiled = corsac.compile(lambda x: torch.tanh(x), backend=wrong_for_large_values)
    x = torch.randn(3)
    assert torch.allclose(compiled(x), torch.tanh(x))
    assert not calls and not folder.exists()
    with pytest.raises(BackendError, match="result 0: values differ by up to 1"):
        compiled(x + 1000)
    assert "def wrong_for_large_values" in the_script(folder).read_text()


def test_programs_that_fail_are_none_of_a_backend(switch):
    folder = switch("accuracy")

    def fails(x):
        return x.view(7, 7)

    with pytest.raises(RuntimeError, match="is invalid for input of size 3"):
        corsac.compile(fails, backend="eager")(torch.randn(3))
    assert not folder.exists()


def test_the_environment_without_the_switch(switch):
    before = _repro_switch.environment_without()
    switch("run")
    assert _repro_switch.is_in_environment()
    set_here = {"CORSAC_REPRO", "CORSAC_REPRO_DIR", "CORSAC_REPRO_HANG_SECONDS"}
    assert os.environ.keys() - before.keys() == set_here
    assert _repro_switch.environment_without() == before
    _repro_switch.remove_from_environment()
    assert dict(os.environ) == before and not _repro_switch.is_in_environment()


def test_settings_that_are_set_and_others(switch, monkeypatch, tmp_path):
    monkeypatch.setenv("CORSAC_REPRO_SECONDS", "")
    assert Settings.from_environment() is None
    folder = switch("run")
    expected = Settings("run", folder, seconds=60.0, hang_seconds=60.0, tolerance=None)
    assert Settings.from_environment() == expected
    for name in ("DIR", "HANG_SECONDS"):
        monkeypatch.delenv(f"CORSAC_REPRO_{name}")
    monkeypatch.setenv("CORSAC_REPRO_SECONDS", "5")
    monkeypatch.setenv("CORSAC_REPRO_TOLERANCE", "1e-2")
    expected = Settings("run", Path("corsac_repro"), 5.0, hang_seconds=30.0, tolerance=0.01)
    assert Settings.from_environment() == expected


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("CORSAC_REPRO", "acuracy", "CORSAC_REPRO is compile, run or accuracy, not 'acuracy'"),
        (
            "CORSAC_REPRO_DRI",
            "x",
            "there is no setting CORSAC_REPRO_DRI, did you mean CORSAC_REPRO_DIR?",
        ),
        ("CORSAC_REPRO_SECONDS", "-1", "CORSAC_REPRO_SECONDS is a number above 0, not '-1'"),
    ],
)
def test_settings_that_there_are_not(monkeypatch, name, value, message):
    monkeypatch.setenv("CORSAC_REPRO", "run")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as caught:
        corsac.compile(program, backend="eager")(torch.randn(3))
    assert message in str(caught.value)
