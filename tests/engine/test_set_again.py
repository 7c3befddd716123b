"""State that a program sets before it reads it, or resets: changes are made, and old values are not read."""

from types import SimpleNamespace

import pytest
import torch

import corsac

pytestmark = [pytest.mark.recording, pytest.mark.filterwarnings("ignore::corsac.HostWarning")]
X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


# Dictionaries that are read completely after a write.


def counts_after_setting(x, d):
    d["k"] = x.sum()
    return x * len(d)


def sums_after_adding(x, d):
    d["k"] = d.get("k", 0) + 1
    return x * sum(d.values())


def sets_again_what_is_deleted(x, d):
    d.pop("k", None)
    d["k"] = 1
    return x * len(list(d.items()))


def updates(x, d):
    d["n"] = 2
    d.update(z=3)
    return x * sum(d.values()), list(d)


def walks_over_what_is_set(x, d):
    d["a"] = x.sum()
    d["b"] = x * 2
    return sum(own.sum() for own in d.values()), list(d)


def deletes_what_is_missing(x, d):
    d["t"] = d.get("t", torch.zeros(2)) + 1
    d.pop("u", None)
    return x * 1


DICTIONARIES = [counts_after_setting, sums_after_adding, sets_again_what_is_deleted, updates]
DICTIONARIES += [walks_over_what_is_set, deletes_what_is_missing]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", DICTIONARIES)
def test_dictionaries_that_come_back(function, gradients):
    compiled = corsac.compile(function)
    own, other = {}, {}
    for number in range(7):
        x = (X + number).requires_grad_(gradients)
        found, expected = compiled(x, own), function(x, other)
        assert list(own) == list(other)
        torch.testing.assert_close(list(own.values()), list(other.values()))
        found, expected = (v if isinstance(v, tuple) else (v,) for v in (found, expected))
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]


@pytest.mark.parametrize("start", [lambda x: 3, lambda x: x.shape[0]])
def test_numbers_that_are_set_and_then_counted_up(start):
    """The number that the program has set may equal the one that was there."""
    state = SimpleNamespace(n=0, factor=torch.zeros(()))

    def program(x):
        state.n = start(x)
        if x.sum() > 0:
            state.n += 1
        return state.factor * 1

    compiled = corsac.compile(program, options={"inference": "native"})
    with torch.no_grad():
        for number, digit in enumerate("0101001101101110"):
            compiled(torch.ones(3) * (1 if digit == "1" else -1))
            assert state.n == 3 + int(digit)
            if number % 3 == 2:
                state.factor += 1


def test_numbers_that_are_replaced_by_what_they_were():
    """Setting the same number again, where the next call finds another one."""
    state = SimpleNamespace(last=0)

    def program(x):
        state.twice = x * 2
        before = state.last
        state.last = x.shape[0]
        return x + before

    compiled = corsac.compile(program)
    last = 0
    with torch.no_grad():
        for rows in [3, 3, 5, 5, 4, 3, 3, 2, 5, 4, 3, 3, 4, 5, 5, 3, 6, 3]:
            found = compiled(torch.zeros(rows, 4))
            assert torch.equal(found, torch.full((rows, 4), float(last)))
            assert state.last == rows
            last = rows
