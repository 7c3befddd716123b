"""Calls known to do nothing but compute are not watched again; all others are."""

import pytest
import torch
import torch.nn.functional as F

import corsac
from corsac import _core

pytestmark = pytest.mark.recording
X = torch.linspace(-1, 1, 12).reshape(3, 4)


def known(function, *args, **kwargs):
    return _core.quiet_call(function, args, kwargs)


def recorded(function, *args):
    with torch.no_grad():
        corsac.compile(function)(*args)


def test_calls_are_known_after_they_were_seen():
    assert known(torch.atan2, X, X + 5) is None
    recorded(lambda x: torch.atan2(x, x + 5), X)
    assert known(torch.atan2, X, X + 5) is True
    # Other sizes, types and strides are different calls.
    assert known(torch.atan2, X[:2], X[:2]) is None
    assert known(torch.atan2, X.t(), X.t()) is None
    assert known(torch.atan2, X.int(), X.int()) is None
    recorded(lambda x: x.unflatten(1, (2, 2)), X)
    assert known(torch.Tensor.unflatten, X, 1, (2, 2)) is False


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (F.dropout, (X, 0.5), {}),
        (torch.bernoulli, (X.abs(),), {}),
        (torch.nonzero, (X,), {}),
        (torch.where, (X > 0,), {}),
        (F.relu, (X, True), {}),
        (torch.Tensor.add_, (X, 1), {}),
        (F.one_hot, (torch.tensor([0, 2]),), {}),
        (torch.repeat_interleave, (X, torch.tensor([1, 2, 1])), {"dim": 0}),
    ],
)
def test_calls_that_do_more_are_never_known(function, args, kwargs):
    def program(*args):
        return function(*args, **kwargs)

    fresh = [own.clone() if isinstance(own, torch.Tensor) else own for own in args]
    for _ in range(2):
        recorded(program, *fresh)
    assert known(function, *args, **kwargs) is None


def test_a_call_that_writes_is_seen_after_one_that_does_not():
    def program(x, inplace):
        y = x * 2
        F.hardtanh(y, inplace=inplace)
        return y

    for inplace in (False, True, False, True):
        compiled = corsac.compile(program)
        torch.testing.assert_close(compiled(X * 3, inplace), program(X * 3, inplace))


def test_results_that_are_the_argument_or_a_copy_of_it():
    def program(x):
        y = x.contiguous()
        y.add_(1)
        return x, y

    for _ in range(2):
        for make in (X.clone, lambda: X.clone().t()):
            own, other = make(), make()
            compiled = corsac.compile(program)
            for _ in range(2):
                torch.testing.assert_close(compiled(own), program(other))
            torch.testing.assert_close(own, other)


def test_functions_of_the_program_are_watched_each_time():
    counted = []

    def ours(x):
        if torch.overrides.has_torch_function((x,)):
            return torch.overrides.handle_torch_function(ours, (x,), x)
        counted.append(1)
        return x + len(counted)

    assert known(ours, X) is None
    compiled = corsac.compile(lambda x: ours(x) * 2)
    found = [compiled(X) for _ in range(3)]
    for number, own in enumerate(found, 1):
        torch.testing.assert_close(own, (X + number) * 2)
    assert known(ours, X) is None


def test_no_more_calls_are_kept_than_are_of_use():
    for number in range(5000):
        _core.note_quiet_call(torch.atan2, (X, number), {}, True)
    assert known(torch.atan2, X, 0) is None and known(torch.atan2, X, 4999) is True
