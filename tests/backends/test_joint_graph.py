"""Joint graphs of programs that write to buffers: made without AOTAutograd, or left to it."""

import copy

import pytest
import torch
from torch import nn

import corsac
from corsac._training import _backend
from corsac._training._joint_graph import NotSimple, joint_graph


def program(function, *inputs):
    graph = torch.fx.symbolic_trace(function)
    return joint_graph(graph, list(inputs))


def weight(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_written_buffers_are_outputs_of_forward():
    def function(x, kept, untouched):
        kept.mul_(0.5)
        kept.add_(x.detach())
        return (x * kept * untouched,)

    x, kept, untouched = weight(3), torch.randn(3), torch.randn(3)
    joint = program(function, x, kept, untouched)
    assert joint.written == [1]
    assert joint.forward_outputs == 2
    tangent = torch.randn(3)
    before = kept.clone()
    result, anew, gradient, *none = joint.module(x, kept, untouched, tangent)
    expected = before * 0.5 + x
    torch.testing.assert_close(anew, expected)
    torch.testing.assert_close(result, x * expected * untouched)
    torch.testing.assert_close(gradient, tangent * expected * untouched)
    # The graph itself writes nothing.
    assert none == [None, None]
    assert kept.equal(before)


def test_statistics_of_norms_are_written():
    norm = nn.BatchNorm1d(4)

    def function(x, mean, var):
        y = torch.nn.functional.batch_norm(x, mean, var, training=True, momentum=0.1)
        return (torch.nn.functional.batch_norm(y * 2, mean, var, training=True, momentum=0.1),)

    x, mean, var = weight(8, 4), norm.running_mean, norm.running_var
    joint = program(function, x, mean, var)
    assert joint.written == [1, 2]
    result, *anew = joint.module(x, mean, var, torch.ones(8, 4))[:3]
    own = (torch.zeros(4), torch.ones(4))
    torch.testing.assert_close(result, function(x, *own)[0])
    torch.testing.assert_close(anew, list(own))


REFUSED = {
    "a view is read after the write": (
        lambda x, kept: (x * (kept.view(-1), kept.add_(1.0))[0],),
        "a view of an input that was written to",
    ),
    "a part is written to": (lambda x, kept: (x * kept[:2].add_(1.0).sum(),), "part of an input"),
    "an alias is written to": (lambda x, kept: (x * kept.detach().add_(1.0),), "part of an input"),
    "a written input is returned": (lambda x, kept: (x * 2, kept.add_(1.0)), "shares memory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_writes_are_left_to_aot_autograd(name):
    function, reason = REFUSED[name]
    with pytest.raises(NotSimple, match=reason):
        program(function, weight(3), torch.randn(3))


def test_inputs_that_share_memory_are_left_to_aot_autograd():
    kept = torch.randn(3)
    with pytest.raises(NotSimple, match="several inputs"):
        program(lambda x, a, b: (x * a.add_(1.0) * b,), weight(3), kept, kept.view(3))


class Counted(nn.Module):
    """Reads a buffer before and after it writes to it; the old value is needed for gradients."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.register_buffer("average", torch.ones(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        old = self.average * 1.0
        self.calls.add_(1)
        y = self.norm(self.linear(x)) * old
        self.average.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return y * self.average.exp() / self.calls


@pytest.mark.parametrize("partition", ["min_cut", "fewest_bytes", "default"])
@pytest.mark.parametrize("training", ["native", "host"])
def test_buffers_change_as_they_do_in_eager_mode(partition, training, monkeypatch):
    def never(*args):
        raise AssertionError("AOTAutograd was used")

    monkeypatch.setattr(_backend.TrainedGraph, "_by_aot_autograd", never)
    torch.manual_seed(0)
    model = Counted()
    own = copy.deepcopy(model)
    compiled = corsac.compile(own, options={"training": training, "partition": partition})
    for model_, run in ((model, model), (own, compiled)):
        torch.manual_seed(1)
        optimiser = torch.optim.SGD(model_.parameters(), lr=0.1)
        for _ in range(4):
            optimiser.zero_grad()
            run(torch.randn(5, 6)).square().sum().backward()
            optimiser.step()
    expected = model.state_dict()
    for name, found in own.state_dict().items():
        torch.testing.assert_close(
            found, expected[name], msg=lambda text, name=name: f"{name}: {text}"
        )
    for found, parameter in zip(own.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found.grad, parameter.grad)


def test_norms_in_evaluation_mode_are_trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2.0)
    own = copy.deepcopy(model)
    compiled = corsac.compile(own, options={"training": "native"})
    x = torch.randn(2, 3, 6, 6)
    model(x).square().sum().backward()
    compiled(x).square().sum().backward()
    for (name, found), parameter in zip(own.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(
            found.grad, parameter.grad, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert own[1].running_mean.equal(model[1].running_mean)
