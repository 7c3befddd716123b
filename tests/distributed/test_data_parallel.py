"""Data parallelism on two and four processes: equal to DistributedDataParallel, with parts of weights, faults."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import save_file

from kit import data_parallel
from kit.ranks import Ranks


@pytest.mark.parametrize(
    "name, buckets", [("perceptron", 8), ("unusual", 2), ("relayed", 4), ("frozen", 3)]
)
def test_is_distributed_data_parallel(two, name, buckets):
    is_equal(two.run(data_parallel.compare, name), buckets)


@pytest.mark.parametrize(
    "name, dtype, autocast",
    [
        ("unusual", torch.float64, False),
        ("perceptron", torch.bfloat16, False),
        ("relayed", torch.float32, True),
    ],
)
def test_element_types_are_those_of_distributed_data_parallel(two, name, dtype, autocast):
    is_equal(two.run(data_parallel.compare, name, dtype, autocast), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "bert", "llama", "t5", "vit"])
def test_others_are_distributed_data_parallel(two, name):
    # The last bits of the gradients of attention differ, and AdamW makes more of them.
    is_equal(two.run(data_parallel.compare, name), 2, 5e-5)


def is_equal(found, buckets, tolerance=1e-6):
    for one in found:
        assert one.pop("buckets") >= buckets
        assert one.pop("trained") > 0
        assert max(one.values()) <= tolerance


def test_is_distributed_data_parallel_on_four_ranks(four):
    is_equal(four.run(data_parallel.compare, "relayed"), 4)


def test_is_one_process_with_the_whole_batch(two):
    for found in two.run(data_parallel.unusual_uses):
        assert max(found.values()) <= 1e-6


def test_the_state_of_an_optimizer_may_be_cut(two):
    for found in two.run(data_parallel.sharded_states):
        assert found["weights"] <= 1e-6
        assert found["share"] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("name, kind", [("perceptron", "AdamW"), ("unusual", "RMSprop")])
def test_scattered_gradients_train_as_distributed_data_parallel(two, name, kind):
    for found in two.run(data_parallel.scattered, name, kind):
        assert found.pop("share") == pytest.approx(0.5, abs=0.1)
        assert max(found.values()) <= 1e-6


def test_scattered_gradients_on_four_ranks(four):
    found = four.run(data_parallel.scattered, "relayed", "AdamW")
    assert sum(one.pop("share") for one in found) == pytest.approx(1.0)
    assert max(max(one.values()) for one in found) <= 1e-5


def test_gradients_of_parts_are_scattered(four):
    assert max(max(one.values()) for one in four.run(data_parallel.scattered_parts)) <= 1e-5


@pytest.mark.parametrize(
    "what, message",
    [
        ("options", "PlanMismatchError: rank 1 has another plan than rank 0: scatter"),
        ("not scattered", "ParallelError: gradients of this module are not scattered"),
        ("no optimizer", "ParallelError: rank .*parameters get none: make an optimizer with Shard"),
        ("kept", "ParallelError: rank .*layers.0.weight has a gradient that is not scattered: of"),
        ("outside", "ParallelError: rank .*layers.0.weight has a gradient that is not scattered"),
    ],
)
def test_scattered_gradients_are_not_lost(two, what, message):
    for text in two.run(data_parallel.scattered_wrongly, what):
        assert re.search(message, text), text


def test_weights_of_a_file(two, tmp_path):
    torch.manual_seed(3)
    path = tmp_path / "weights.safetensors"
    save_file(data_parallel.Looked().state_dict(), path)
    assert two.run(data_parallel.from_file, str(path)) == [0.0, 0.0]


def test_collectives_are_in_flight_while_the_backward_pass_goes_on(two):
    for events in two.run(data_parallel.overlapped):
        names = [own for own in events if "all_reduce" in own or "wait" in own or "mm" in own]
        short = [own.rpartition("::")[2] for own in names]
        assert short == [*["mm", "mm", "all_reduce"] * 3, "all_reduce", *["wait_tensor"] * 4]


@pytest.mark.parametrize(
    "name",
    ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "bert", "bloom"))],
)
def test_parts_of_weights(four, name):
    for found in four.run(data_parallel.of_parts, name, {}):
        assert found.pop("buckets") >= 4
        assert found["loss"] <= 1e-5
        assert max(found.values()) <= 1e-4


@pytest.mark.parametrize(
    "what, message",
    [
        (
            "names",
            r"expected a mesh with the dimensions .* 'tensor' or 'tp', got \['tp', 'other'\]",
        ),
        ("none", "expected a mesh whose dimensions have names"),
        ("fails", "rank 3: RuntimeError: .*mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_faults_of_meshes_are_named_on_all_ranks(four, what, message):
    for found, seconds in four.run(data_parallel.meshes, what):
        assert re.search(f"ParallelError: .*{message}", found), found
        assert seconds < 20


def test_dropout_of_parts(four):
    first, same, other, same_as_other = four.run(data_parallel.dropped_parts)
    assert first == same and other == same_as_other
    assert first != other, "replicas drop other elements"
    assert first[:32] != first[32:], "parts drop other elements"


@pytest.mark.parametrize(
    "what, message",
    [
        (
            "models",
            r"PlanMismatchError: rank 1 has another plan than rank 0: graph, weights, buckets",
        ),
        ("buckets", r"PlanMismatchError: rank 1 has another plan than rank 0: buckets"),
        ("nothing", r"ParallelError: rank 0: .*no parameter of the model has a gradient"),
        ("one cannot", r"ParallelError: rank 1: RuntimeError: Expected tensor for argument #1"),
        ("sizes", r"ParallelError: rank \d: node linear \(.*pipelines\.py.*\[4, 15\] X \[16, 16\]"),
        ("arguments", r"ParallelError: rank \d: TypeError: input 1 is 3"),
        ("frozen", r"ParallelError: rank \d: table\.weight was of .*requires_grad=False: call it"),
        ("forward", r"rank 1, node embedding \(.*in Looked\.forward\): IndexError: index out of"),
        ("second", r"RuntimeError: .*double backward"),
    ],
)
def test_faults_are_named_on_all_ranks(two, what, message):
    for found, seconds in two.run(data_parallel.message, what):
        assert re.search(message, found), found
        assert seconds < 20


@pytest.mark.parametrize(
    "what, other",
    [pytest.param("skips", "", marks=pytest.mark.slow), ("loss", "ValueError: a loss that fails")],
)
def test_a_rank_that_skips_a_backward_pass_is_not_waited_for(two, what, other):
    (waited, seconds), (found, _) = two.run(data_parallel.message, what)
    assert re.match(
        r"ParallelError: rank 0, the backward pass of call 2 with gradients from node \w+ \(.*\.py.*\): "
        r"one of the ranks \[1\] has ended, or does not run this pass",
        waited,
    ), waited
    assert seconds < 20
    assert found == other


def test_a_rank_that_dies_is_named(tmp_path):
    with Ranks(2, tmp_path) as ranks:
        ranks.start(data_parallel.message, "dies")
        (is_done, (message, seconds)), (other, _) = ranks.results()
    assert is_done and not other
    assert message.startswith(
        "ParallelError: rank 0, the backward pass of call 2 with gradients from"
    )
    assert seconds < 40


@pytest.mark.parametrize(
    "name, schedule, stages",
    [
        ("perceptron", "gpipe", 2),
        ("relayed", "1f1b", 2),
        ("relayed", "interleaved1f1b", 4),
        ("relayed", "interleaved_zero_bubble", 4),
        ("frozen", "zbv_zero_bubble", 4),
        ("gpt2", "1f1b", 2),
        pytest.param("llama", "gpipe", 2, marks=pytest.mark.slow),
        pytest.param("bert", "interleaved1f1b", 4, marks=pytest.mark.slow),
    ],
)
def test_replicas_of_pipelines(four, name, schedule, stages):
    found = four.run(data_parallel.of_stages, name, schedule, stages)
    assert sum(one["parameters"] for one in found) > 0
    for one in found:
        assert one["gradient"] <= 1e-4
        assert one["weight"] <= 1e-5
        events = one["events"]
        assert events.count("start") == one["buckets"]
        # Hooks do not see gradients that a pass for weights computes.
        if "zero_bubble" not in schedule:
            assert "start start" not in " ".join(events), "each starts when its gradients exist"


def test_replicas_may_have_batches_of_other_sizes(four):
    assert max(four.run(data_parallel.batches_of_replicas)) <= 1e-6


@pytest.mark.parametrize(
    "what, message",
    [
        ("models", r"PlanMismatchError: rank 3 has another plan than rank 2: graph, weights, cuts"),
        ("mesh", r"PipelineError: expected a mesh of one dimension, got one of \['dp', 'pp'\]"),
        (
            "raises",
            r"rank 2, stage 0, node embedding .*in Looked\.forward\): IndexError: index out",
        ),
        ("unfrozen", r"stage 0: requires_grad of table\.weight was False when the pipeline was"),
    ],
)
def test_faults_of_replicas_are_named_on_all_ranks(four, what, message):
    for found, seconds in four.run(data_parallel.message_of_stages, what):
        assert re.search(message, found), found
        assert found.count("another rank failed") <= 1
        assert seconds < 20


@pytest.mark.slow
def test_a_replica_that_dies_is_named(tmp_path):
    with Ranks(4, tmp_path) as ranks:
        ranks.start(data_parallel.message_of_stages, "dies")
        found = ranks.results()
    for rank, (is_done, own) in enumerate(found):
        assert is_done == (rank != 2)
        if is_done:
            assert re.search(
                r"rank \d, stages \[\d\]: one of its neighbours, ranks .*2.* has", own[0]
            )
            assert own[1] < 40


def test_other_passes_are_those_of_distributed_data_parallel(tmp_path):
    with Ranks(2, tmp_path) as ranks:
        for found in ranks.run(data_parallel.other_passes):
            assert found["returned"] <= 1e-6
            assert found["of inputs"] <= 1e-6
            assert found["checkpointed"] <= 1e-6
            assert "the graph has the training modes" in found["warned"][0]
            assert re.search(
                r"ParallelError: .*0\.weight is another tensor than", found["assigned"]
            )


def test_passes_inside_and_outside_of_no_sync_are_not_mixed(tmp_path):
    with Ranks(2, tmp_path) as ranks:
        for text in ranks.run(data_parallel.mixed_passes):
            assert re.search("ParallelError: .*inside and outside of no_sync", text), text


@pytest.mark.parametrize(
    "job", [data_parallel.other_buckets_of_parts, data_parallel.numbers_of_pipelines]
)
def test_ranks_of_all_groups_learn_of_a_failure(tmp_path, job):
    with Ranks(4, tmp_path) as ranks:
        for text, seconds in ranks.run(job):
            wanted = "buckets" if job is data_parallel.other_buckets_of_parts else "boom"
            assert wanted in text, text
            assert seconds < 10


def test_weights_that_are_not_cut_are_equal(two):
    for text in two.run(data_parallel.whole_weights_of_parts):
        assert re.search("PlanMismatchError: .*values of whole weights", text), text


@pytest.mark.parametrize("trained", [False, True])
def test_weights_of_several_stages_stay_trained_or_frozen(tmp_path, trained):
    with Ranks(2, tmp_path) as ranks:
        texts = ranks.run(data_parallel.tied_weight_that_changes, trained)
        assert all("requires_grad of table.weight was" in text for text in texts), texts
