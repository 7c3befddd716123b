"""Parts of sequences between the layers of tensor parallelism: results, gradients, what is sent and kept, faults."""

from __future__ import annotations

import re

import pytest
import torch

from corsac.distributed import ParallelError, plan_parallel, simulate_step
from kit import data_parallel, mesh_plans, parallel, parallel_operators, sequence_parallel
from kit.mesh_plans import batch, loss, plans
from kit.pipelines import made
from kit.ranks import Ranks

MODELS = ["gpt2", "llama", "bert", "t5", "vit", "opt"]
ON = {"sequence_parallel": True}


@pytest.mark.parametrize("name", MODELS)
def test_is_the_whole_model(two, name):
    parallel.check_whole(two.run(parallel.compare, name, 2, ON))


@pytest.mark.parametrize("name", MODELS)
def test_is_the_whole_model_on_four_ranks(four, name):
    # Of seventeen parts of an image nothing is cut, but of four images.
    parallel.check_whole(four.run(parallel.compare, name, 4, ON))


@pytest.mark.parametrize("first", [0, pytest.param(50, marks=pytest.mark.slow)])
def test_random_programs(two, first):
    job = parallel_operators.random_programs
    for worst, _, scattered in two.run(job, first, first + 50, ON):
        assert worst <= 1e-4
        assert scattered >= 10


@pytest.mark.parametrize("name, on_two, on_four", [("gpt2", 0.91, 0.8), ("llama", 0.86, 0.72)])
def test_less_is_kept_and_no_more_is_sent(two, four, name, on_two, on_four):
    for ranks, most in ((two, on_two), (four, on_four)):
        whole, parts = (ranks.run(sequence_parallel.measured, name, on) for on in (False, True))
        for before, after in zip(whole, parts, strict=True):
            assert after["saved"] <= most * before["saved"]
            # Once for the embedding, whose gradient is gathered.
            assert sum(after["sent"].values()) <= 1.06 * sum(before["sent"].values())
            assert "reduce_scatter_tensor" not in before["sent"]
            assert after["sent"]["all_reduce"] <= 0.2 * before["sent"]["all_reduce"]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_sizes_of_calls(two, name):
    sizes = [(2, 12), (5, 12), (3, 8), (2, 16), (2, 7)]
    for worst, errors in two.run(sequence_parallel.of_sizes, name, sizes):
        assert worst <= 1e-5
        assert len(errors) == 1
        assert "2 ranks do not divide a dimension of 7" in errors[0]


def test_parts_that_are_merged_with_a_batch_are_for_one_length(two):
    sizes = [(2, 12), (4, 12), (3, 8)]
    for worst, errors in two.run(sequence_parallel.of_sizes, "opt", sizes):
        assert worst <= 1e-5
        assert len(errors) == 1
        assert "make a plan with inputs of these sizes" in errors[0]


def test_layouts_and_second_derivatives(two):
    for found in two.run(sequence_parallel.of_layouts):
        assert len(found) == 10
        assert max(found.values()) <= 1e-5


def test_parts_drop_elements_of_their_own(two):
    first, same = two.run(sequence_parallel.dropped)
    assert first == same, "the result is gathered"
    assert first[:32] != first[32:]
    assert 0.6 < sum(first) / len(first) < 1.4


def test_replicas_of_parts_of_sequences(four):
    for found in four.run(data_parallel.of_parts, "gpt2", ON):
        assert found.pop("buckets") >= 4
        assert found["loss"] <= 1e-5
        assert max(found.values()) <= 1e-4


def test_stages_of_pipelines_have_parts_of_sequences(two, tmp_path):
    found = plans(4, sequence_parallel=True)
    plan = found.plan(next(own for own in found.found if own.mesh.shape == (2, 2, 1)))
    x, y = batch()
    step = simulate_step(plan, x, target=y, loss_fn=loss)
    wanted, known = mesh_plans.whole()
    assert float(sum(step.losses)) / len(step.losses) == pytest.approx(wanted, abs=1e-5)
    for name, gradient in known.items():
        torch.testing.assert_close(step.gradients[name], gradient, rtol=1e-4, atol=1e-6)
    on_two = plans(2, sequence_parallel=True)
    path = tmp_path / "plan.json"
    assert plan.sequence_parallel
    on_two.plan(next(own for own in on_two.found if own.mesh.shape == (1, 2, 1))).save(path)
    for largest, _ in two.run(mesh_plans.run, str(path)):
        assert largest < 1e-6


def test_plans_count_half_of_an_all_reduce():
    model = mesh_plans.words()
    whole, parts = (
        plans(2, model=model, microbatches=[1], sequence_parallel=on) for on in (False, True)
    )
    (before,), (after,) = (one._planner.stages(1, 2, mesh_plans.BATCH) for one in (whole, parts))
    for one, least in ((before, 0), (after, 3)):
        rings = 0.0
        for (kind, _), (size, count) in one.collectives.items():
            # Half of two ranks' bytes, once or twice.
            rings += size / 2 * (2 if kind == "all_reduce" else 1)
            assert kind != "reduce_scatter" or count >= least
        assert one.sent == rings
    assert before.collectives["reduce_scatter", False] == (0, 0)
    assert after.sent <= before.sent
    assert after.times.held < before.times.held


def test_plans_differ_in_their_hash_and_cut_the_same_weights():
    model, inputs = made("gpt2", 2)
    one, other = (
        plan_parallel(model, (), inputs, tp=2, sequence_parallel=on) for on in (False, True)
    )
    assert one.shards == other.shards
    assert one.hash() != other.hash()
    again = plan_parallel(model, (), inputs, tp=2, sequence_parallel=True)
    assert again.hash() == other.hash()
    with pytest.raises(ParallelError, match="parallelize_module cannot do"):
        other.module_plan(model)


@pytest.mark.parametrize(
    "what, message",
    [
        ("plans", r"PlanMismatchError: rank 1 has another plan than rank 0: .*(ranks|placements)"),
        ("lengths", r"node linear.*: 2 ranks divide no dimension of \[3, 7, 32\] but the last"),
        ("other lengths", r"ParallelError: .*2 ranks do not divide a dimension of 7"),
    ],
)
def test_faults_are_named_on_all_ranks(two, what, message):
    for found in two.run(sequence_parallel.message, what):
        assert re.search(message, found), found


def test_sequences_that_the_ranks_do_not_divide_can_stay_whole(two):
    assert max(two.run(sequence_parallel.whole_lengths)) <= 1e-6


def test_a_rank_that_skips_a_reduce_scatter_is_not_waited_for(tmp_path):
    with Ranks(2, tmp_path) as own:
        waited, _ = own.run(sequence_parallel.message, "skipped")
    assert re.search(r"ParallelError: rank 0, node .*", waited), waited
