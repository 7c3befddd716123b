"""Warnings about calls that are not compiled for inference, with their source lines."""

import warnings

import pytest
import torch
from torch import nn

import corsac


def test_a_call_in_evaluation_mode_that_autograd_records_is_told_once():
    model = nn.Linear(3, 2).eval()
    compiled, x = corsac.compile(model), torch.randn(4, 3)
    with pytest.warns(UserWarning, match=r"torch\.inference_mode\(\)") as told:
        result = compiled(x)
    assert [own.filename for own in told if "autograd records" in str(own.message)] == [__file__]
    torch.testing.assert_close(result, model(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)


@pytest.mark.parametrize("training", [True, False])
def test_who_asks_for_gradients_is_told_nothing(training):
    model = nn.Linear(3, 2).train(training)
    x = torch.randn(4, 3, requires_grad=not training)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*autograd records")
        corsac.compile(model)(x).sum().backward()
    assert (x.grad is not None) is not training
    assert model.weight.grad is not None


def test_what_pytorch_runs_is_said_of_the_line_that_calls():
    compiled = corsac.compile(nn.Linear(3, 2, dtype=torch.complex64).eval())
    with torch.no_grad(), pytest.warns(corsac.HostWarning, match="complex64") as told:
        compiled(torch.randn(4, 3).to(torch.complex64))
    assert [own.filename for own in told] == [__file__]
