"""Parts of sequences between the layers of tensor parallelism: results, gradients, what is sent and kept, faults."""

from __future__ import annotations

import pytest

from kit import parallel, parallel_operators

MODELS = ["gpt2", "llama", "bert", "t5", "vit", "opt"]


@pytest.mark.parametrize("name", MODELS)
def test_is_the_whole_model(two, name):
    for found in two.run(parallel.compare, name, 2, {"sequence_parallel": True}):
        assert found["result"] <= 1e-5
        assert found["gradient"] <= 1e-4
        assert found["parameters"] >= 10


@pytest.mark.parametrize("name", MODELS)
def test_is_the_whole_model_on_four_ranks(four, name):
    for found in four.run(parallel.compare, name, 4, {"sequence_parallel": True}):
        assert found["result"] <= 1e-5
        assert found["gradient"] <= 1e-4


@pytest.mark.parametrize("first", [0, 50])
def test_random_programs(two, first):
    options = {"sequence_parallel": True}
    for worst, _, scattered in two.run(
        parallel_operators.random_programs, first, first + 50, options
    ):
        assert worst <= 1e-4
        assert scattered >= 10
