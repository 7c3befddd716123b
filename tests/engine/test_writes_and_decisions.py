"""Writes around data-dependent control flow, and operators that PyTorch runs: in order, once, and undone
where needed."""

import types

import pytest
import torch

import corsac

pytestmark = [pytest.mark.recording, pytest.mark.filterwarnings("ignore::corsac.HostWarning")]


def test_values_that_the_host_reads_before_they_are_written_to():
    def function(y):
        v = y * 1
        w = torch.bucketize(v, (v * 0).flatten())
        found = torch.isin(v, v.sort(0)[0])
        v.add_(1)
        return w, found, v

    compiled = corsac.compile(function, options={"inference": "native"})
    with torch.no_grad():
        for _ in range(4):
            y = torch.randn(3, 4)
            for own, other in zip(compiled(y), function(y), strict=True):
                assert torch.equal(own, other)


def test_what_is_expanded_and_written_to_is_put_back():
    state = types.SimpleNamespace(n=0, h=torch.zeros(3, 4))

    def function(x, y):
        x.diagonal().fill_(1)
        state.h.copy_(y)
        if x.sum() > 0:
            state.n += 1
        y.sign_()
        return x

    compiled = corsac.compile(function)
    with torch.no_grad():
        for _ in range(4):
            y = torch.randn(3, 4)
            before = y.clone()
            compiled(torch.randn(4).expand(3, 4), y)
            assert torch.equal(state.h, before) and torch.equal(y, before.sign())


def test_columns_of_what_depends_on_values_are_written_to():
    state = types.SimpleNamespace(h=torch.ones(3, 4))

    def function(x):
        places = x.nonzero()
        places[:, 1].mul_(2)
        state.h.mul_(0.5)
        return places

    compiled = corsac.compile(function)
    with torch.no_grad():
        for number in range(4):
            x = torch.randn(3, 4).relu()
            state.h.fill_(1)
            assert torch.equal(compiled(x), function(x))
            assert torch.equal(state.h, torch.full((3, 4), 0.25)), number


def test_operators_that_fail_say_so_as_in_pytorch():
    def function(x, y, z):
        if x.sum() > 0:
            x = x * 2
        z.addcmul_(y, y)
        return x

    compiled = corsac.compile(function, options={"inference": "native"})
    with torch.no_grad():
        for number in range(8):
            given = [torch.ones(3, 4), torch.ones(3, 4), torch.ones(2 + number % 2, 4)]
            if number % 2:
                assert torch.equal(compiled(*given), torch.full((3, 4), 2.0))
                continue
            with pytest.raises(RuntimeError) as expected:
                function(*(own.clone() for own in given))
            with pytest.raises(RuntimeError) as raised:
                compiled(*given)
            assert str(raised.value) == str(expected.value)


def test_inputs_are_written_to_once_whoever_runs_the_call():
    state = types.SimpleNamespace(n=0)

    def function(x):
        x *= 0.5
        turned = torch.minimum(x, x).t()
        shown = turned.detach()
        if x.sum() > -0.5:
            state.n += 1
        turned[turned > 0] = 0
        return shown

    torch.manual_seed(0)
    compiled = corsac.compile(function)
    with torch.no_grad():
        for _ in range(12):
            x = torch.randn(3, 4)
            half = x * 0.5
            assert torch.equal(compiled(x), half.clamp(max=0).t())
            assert torch.equal(x, half)
