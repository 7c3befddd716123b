"""Random small models on two processes train as in one, whatever habits the user has."""

from __future__ import annotations

import pytest

from kit import random_training
from kit.random_training import WAYS

#: Largest differences from one process.
TOLERANCES = {"results": 1e-5, "gradients": 1e-4, "weights": 1e-4}
#: The same in bfloat16, as a multiple of the error that one process makes, and a number.
IN_16_BITS = 3.0, 0.03


def check(found):
    for one in found:
        assert one.keys() == TOLERANCES.keys()
        assert all(one[name] <= limit for name, limit in TOLERANCES.items()), one


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seeds", [(0, 1), (4,)])
def test_training_is_that_of_one_process(two, way, seeds):
    check(two.run(random_training.compared, way, *seeds))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(5, 25))
def test_training_of_more_models(two, way, seed):
    check(two.run(random_training.compared, way, seed))


@pytest.mark.parametrize("way", ["Parts", "Scattered", "Stages"])
def test_training_in_bfloat16_is_as_exact(two, way):
    for one in two.run(random_training.compared_in_16_bits, way, 43):
        for ours, theirs in one.values():
            assert ours <= max(IN_16_BITS[0] * theirs, IN_16_BITS[1])
