"""Random programs that compute numbers from nested containers by C functions, and change these: calls are eager's."""

import functools
import random
import warnings

import pytest
import torch

import corsac
from kit import random_state

pytestmark = pytest.mark.recording

CALLS = 9


def outcome(function, state, x, levels, number):
    # Two programs change one class.
    random_state.Shared.level = levels[number]
    try:
        result = function(state, x)
    except Exception as error:
        result = type(error)
    levels[number] = random_state.Shared.level
    try:
        return result, state.shown()
    except ValueError as error:
        # Numbers of thousands of digits.
        return result, str(error)


def check(seed):
    function, source = random_state.program(seed)
    compiled = corsac.compile(function, options={"inference": "native"})
    random_, other, rows = random.Random(seed), random.Random(seed), random.Random(seed)
    expected, found = random_state.State(), random_state.State()
    levels = [1, 1]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(CALLS):
            torch.manual_seed(call)
            x = torch.randn(rows.choice([2, 2, 3, 4]), 3)
            if call in (4, 6, 7):
                random_state.changed(expected, random_)
                random_state.changed(found, other)
            result, state = outcome(function, expected, x, levels, 0)
            own, shown = outcome(compiled, found, x, levels, 1)
            where = f"seed {seed}, call {call}\n{source}\n{compiled.explain()}"
            if isinstance(result, torch.Tensor):
                assert isinstance(own, torch.Tensor), where
                assert torch.allclose(own, result, rtol=1e-4, atol=1e-4), where
            else:
                assert own is result, where
            assert shown == state, where
    return compiled


@pytest.mark.parametrize("seed", range(60))
def test_calls_are_eagers(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 3000, 100))
def test_many_calls_are_eagers(start):
    for seed in range(60 + start, 160 + start):
        check(seed)


def test_most_are_recorded():
    check_all = functools.partial(map, check)
    explained = [str(own.explain()) for own in check_all(range(30))]
    assert sum("not compiled" not in own for own in explained) > 10
