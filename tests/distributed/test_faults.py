"""Ranks that do something else than the others: all of them end, with an error that names what each does."""

from __future__ import annotations

import re

import pytest

from kit import faults
from kit.ranks import Ranks

#: A node with its source line.
NODE = r'node \w+ \(File "[^"]*\.py", line \d+, in [\w.]+\)'


def check(found, message):
    for text, seconds in found:
        assert re.search(message, text), text
        assert seconds < faults.LIMIT


@pytest.mark.parametrize(
    "what, message",
    [
        (
            "modes",
            f"PlanMismatchError: rank 1 has another plan than rank 0: graph.*; rank 0 has {NODE}: .*True.*, rank 1 has {NODE}: .*False",
        ),
        (
            "modes of stages",
            f"PlanMismatchError: rank 1 .*graph.*; rank 0 has {NODE}: .*True.*, rank 1 has {NODE}: .*False",
        ),
        ("ranks", r"ParallelError: .*the plan is for 4 ranks, the group has 2"),
        (
            "slice",
            f"PlanMismatchError: rank 1 has another plan than rank 0: part 1 of up.weight, {NODE}",
        ),
    ],
)
def test_plans_that_differ_are_named(two, what, message):
    check(two.run(faults.said, "plans", what), message)


@pytest.mark.parametrize(
    "what, message",
    [
        (
            "backward",
            f"rank 0 begins the backward pass of call 1 from {NODE}; rank 1 begins call 3 of",
        ),
        ("backward and weights", "rank 0 begins the backward pass .*; rank 1 begins gathering all"),
        ("backward and norm", "rank 0 begins the backward pass .*; rank 1 begins the norm of"),
        (
            "order",
            f"rank 0 begins the backward pass of call 1 from {NODE}; rank 1 .* of call 2 from",
        ),
        ("shapes", rf"rank 0 begins call 3 of float32\[4, 16\] .*from {NODE}; .*float32\[3, 16\]"),
        ("dtypes", r"rank 1, .*expected.*float64|rank 1 begins call 3 of float64"),
        ("arguments", r"TypeError: expected tensors as inputs"),
        ("gradients", "rank 0 begins call 3 .* with gradients .*; rank 1 .* without gradients"),
        ("raises", f"rank 1, {NODE}: RuntimeError: "),
    ],
)
def test_passes_that_differ_are_named(two, what, message):
    check(two.run(faults.said, "passes", what), message)


def test_a_rank_that_skips_the_last_backward_pass_is_not_waited_for(two):
    (text, seconds), (other, _) = two.run(faults.said, "passes", "last backward")
    assert re.search(
        f"rank 0, the backward pass of call 1 from {NODE}: one of the ranks \\[1\\]", text
    )
    assert seconds < faults.LIMIT
    assert not other


def test_a_rank_that_dies_in_a_backward_pass_is_named(tmp_path):
    with Ranks(2, tmp_path) as ranks:
        ranks.start(faults.said, "passes", "dies")
        (is_done, (text, seconds)), (other, _) = ranks.results()
    assert is_done and not other
    assert re.search(f"ParallelError: rank 0, backward pass, {NODE}: ", text), text
    assert seconds < 2 * faults.LIMIT


@pytest.mark.parametrize(
    "what, message",
    [
        (
            "backward",
            f"rank 0 begins the backward pass of call 1 .*from {NODE}; rank 1 begins the norm",
        ),
        ("norm", "rank 0 begins the norm of gradients; rank 1 begins a step of the optimizer with"),
        ("step", f"rank 0 begins a step .*; rank 1 begins the backward pass of call 2 .*{NODE}"),
    ],
)
def test_steps_of_copies_that_differ_are_named(two, what, message):
    check(two.run(faults.said, "copies", what), message)


@pytest.mark.parametrize(
    "what, message",
    [
        ("sizes", "rank 0 begins step 1 of 8 items.*; rank 1 begins step 1"),
        ("call", "rank 0 begins step 2 .*; rank 1 begins call 2"),
        ("step", "rank 0 begins step 1 .*; rank 1 begins call 1"),
    ],
)
def test_steps_of_stages_that_differ_are_named(two, what, message):
    check(two.run(faults.said, "stages", what), message)
