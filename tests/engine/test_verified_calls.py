"""Calls that are also run by PyTorch, and compared (``CORSAC_VERIFY_CAPTURE=1``)."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import corsac
from corsac._compile import verify
from corsac._compile.recorded_programs import NativeProgram
from corsac._models.function import module_of

pytestmark = pytest.mark.recording


@pytest.fixture(autouse=True)
def verifies(monkeypatch):
    monkeypatch.setattr(verify, "ON", True)


def stateful():
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    state = SimpleNamespace(h=torch.zeros(2, 3), log=[], last={})

    def program(x):
        state.h = (state.h * 0.5 + layer(x)).relu()
        state.log.append(state.h)
        state.last["pair"] = state.h, x
        return state.h.t() + 1, state.h

    return program, state


def test_state_is_changed_once():
    program, state = stateful()
    other, expected = stateful()
    compiled = corsac.compile(program)
    with torch.no_grad():
        for number in range(4):
            x = torch.full((2, 3), float(number))
            torch.testing.assert_close(compiled(x), other(x))
    assert len(state.log) == len(expected.log) == 4
    torch.testing.assert_close(state.log, expected.log)
    assert module_of(compiled)._recorded.programs()


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda found, edits: ((found[0] + 1, found[1]), edits), "apart by 1"),
        (lambda found, edits: ((found[0].double(), found[1]), edits), "dtype"),
        (lambda found, edits: ((found[0].contiguous(), found[1]), edits), "strides"),
        (lambda found, edits: ((found[0], found[1].clone()), edits), "not the same tensor"),
        (lambda found, edits: ([*found], edits), "is a list, not a tuple"),
        (lambda found, edits: ((*found, 3), edits), "3 elements, not 2"),
        (
            lambda found, edits: (
                found,
                [(o, k, n, [v[0] * 2] if k == "append" else v) for o, k, n, v in edits],
            ),
            "append",
        ),
        (lambda found, edits: (torch.rand(1), found, edits)[1:], "random numbers"),
    ],
)
def test_what_differs_is_told(change, what, monkeypatch):
    program, _ = stateful()
    compiled = corsac.compile(program)
    outcome = NativeProgram.outcome
    monkeypatch.setattr(NativeProgram, "outcome", lambda self, call: change(*outcome(self, call)))
    x = torch.ones(2, 3)
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
            try:
                compiled(x)
            except corsac.VerifyError as error:
                assert what in str(error) and "[2, 3]" in str(error)
                return
    pytest.fail("nothing was told")


def test_writes_to_inputs_are_told(monkeypatch):
    compiled = corsac.compile(lambda x: x * 2)
    outcome = NativeProgram.outcome

    def writing(self, call):
        call.inputs[0].add_(1)
        return outcome(self, call)

    monkeypatch.setattr(NativeProgram, "outcome", writing)
    x = torch.ones(3)
    with torch.no_grad():
        compiled(x)
        with pytest.raises(corsac.VerifyError, match="what an input or a weight holds"):
            compiled(x)
    assert torch.equal(x, torch.ones(3))
