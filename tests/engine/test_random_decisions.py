"""Random programs that read values, write to memory, count and use random numbers: compiled calls are eager's."""

import random
import warnings

import pytest
import torch

import corsac
from kit.random_programs import Program, same

pytestmark = pytest.mark.recording

CALLS = 8


def outcome(model, program, x, y, seed):
    torch.manual_seed(seed)
    try:
        result = program(x, y)
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        result = type(error).__name__
    state = model.count, model.mean, list(model.kept), model.last
    found = result[0] if isinstance(result, tuple) else []
    given = [[own is other for other in (x, y, model.table)] for own in found]
    return result, given, state, torch.rand(2), [x, y, model.table]


def check(seed):
    eager, model = Program(seed), Program(seed)
    compiled = corsac.compile(model, options={"inference": "native"})
    random_ = random.Random(seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(CALLS):
            rows = random_.choice([2, 2, 3])
            torch.manual_seed(random_.randrange(3))
            x = torch.randint(-2, 3, (rows, 3)).float()
            y = x.clone() if random_.random() < 0.2 else torch.randint(-2, 3, (rows, 3)).float()
            before = [x.clone(), y.clone()]
            if random_.random() < 0.1:
                # Slices of one tensor.
                both, copy = (torch.cat([x, y]) for _ in range(2))
                x, y, before = both[:rows], both[1 : rows + 1], [copy[:rows], copy[1 : rows + 1]]
            elif random_.random() < 0.05:
                x, before[0] = model.table, eager.table
            expected = outcome(eager, eager, *before, number)
            found = outcome(model, compiled, x, y, number)
            where = f"seed {seed}, call {number}\n{model.source}\n{compiled.explain()}"
            same(found, expected, where)
            if random_.random() < 0.2:
                for own in (eager, model):
                    own.count, own.mean = 7, 1.5
                    own.table.mul_(0.5)
            elif random_.random() < 0.1:
                for own in (eager, model):
                    own.table = torch.ones(4, 3)


@pytest.mark.parametrize("seed", range(40))
def test_random_decisions(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 2000, 100))
def test_many_random_decisions(start):
    for seed in range(start + 100, start + 200):
        check(seed)
