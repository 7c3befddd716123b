"""Tensor parallelism on two and four processes: results, gradients, weights, random numbers, faults."""

from __future__ import annotations

import re

import pytest
from safetensors.torch import save_file

from corsac.distributed import ParallelError, plan_parallel
from kit import parallel, parallel_operators
from kit.hugging_face import ARCHITECTURES
from kit.pipelines import made
from kit.ranks import Ranks

#: Models, with the least share of their weights that is cut among two ranks.
MODELS = dict.fromkeys([*ARCHITECTURES, "vit_b_16"], 0.9) | {"albert": 0.85, "wav2vec2": 0.7}
#: Models on four ranks: heads, or heads of keys and values, may be fewer than ranks.
ON_FOUR = ["bert", "gpt2", "t5", "vit", "llama", "bloom"]


@pytest.mark.parametrize("name", MODELS)
def test_is_the_whole_model(two, name):
    found = two.run(parallel.compare, name, 2, {})
    parallel.check_whole(found)
    assert found[0]["sharded"] >= MODELS[name]


@pytest.mark.parametrize("name", ON_FOUR)
def test_is_the_whole_model_on_four_ranks(four, name):
    parallel.check_whole(four.run(parallel.compare, name, 2, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(MODELS) - set(ON_FOUR)))
def test_others_are_the_whole_model_on_four_ranks(four, name):
    parallel.check_whole(four.run(parallel.compare, name, 2, {"uneven": "replicate"}))


@pytest.mark.parametrize("name", parallel_operators.CASES)
def test_operators_on_parts(two, name):
    expected = set(parallel_operators.CASES[name].cut.split())
    for found in two.run(parallel_operators.differences, name):
        assert set(found) == expected
        assert max(found.values(), default=0.0) <= 1e-5


@pytest.mark.parametrize("first", [0, 50])
def test_random_programs(two, first):
    for worst, cut, _ in two.run(parallel_operators.random_programs, first, first + 50, {}):
        assert worst <= 1e-4
        assert cut >= 40


def test_regions_without_gradients(two):
    for found in two.run(parallel.modes):
        assert found["result"] <= 1e-5
        assert found["gradient"] <= 1e-4


def test_batches_of_which_each_item_is_cut(two):
    for difference, message in two.run(parallel.batched):
        assert difference <= 1e-5
        assert not message or "make a plan with inputs of these sizes" in message


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "bloom", "opt"])
def test_sizes_of_calls(two, name):
    assert max(two.run(parallel.sizes, name)) <= 1e-5


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_training_with_weights_of_a_file(two, tmp_path, name):
    model, _ = made(name, 4)
    path = str(tmp_path / "weights.safetensors")
    save_file({key: own.detach().clone() for key, own in model.state_dict().items()}, path)
    for found in two.run(parallel.trained, name, path):
        assert found["loss"] <= 1e-5
        assert found["norm"] <= 1e-4
        assert found["weights"] <= 1e-4
        assert found["loaded"] <= 1e-6
        # The header of the file is read, too.
        assert found["read"] <= 1.15
        assert (found["losses in graph"], found["whole logits"]) == (1, False)


@pytest.mark.parametrize("pairs", [4, 2])
def test_keys_and_values_of_grouped_heads_are_cut(two, four, tmp_path, pairs):
    path = str(tmp_path / "weights.safetensors")
    save_file(parallel.grouped(pairs).state_dict(), path)
    for ranks in (two, four):
        for found in ranks.run(parallel.of_grouped_heads, pairs, path):
            assert found["read"] <= 1.01
            assert found["difference"] <= 1e-5
            # By heads, or by features if that is as cheap: none is whole.
            assert found["cut"] == {0} or (pairs == 2 and found["cut"] <= {0, 1})


def test_dropout_is_one_for_whole_tensors_and_others_for_parts(two):
    (first, second, kept), (other_first, other_second, other_kept) = two.run(parallel.dropped)
    assert first == other_first
    assert second == other_second
    assert first != second
    assert kept == other_kept, "the mean is gathered"
    assert kept[:32] != kept[32:], "each rank drops other elements"
    assert 0.8 < sum(kept) / len(kept) < 1.2


def test_unusual_uses(two):
    for found in two.run(parallel.unusual):
        assert found["second"] <= 1e-5
        assert found["lengths"] <= 1e-5
        assert found["refused"] <= 3
        assert found["cut"]
        assert found["channels"], "a channel is dropped as a whole"
        assert found["unfrozen"] <= 1e-5


def test_gradients_of_inputs(two):
    for difference, has_gradient in two.run(parallel.gradients_of_inputs):
        assert difference <= 1e-6
        assert not has_gradient


def test_plans_for_modules(two):
    assert max(two.run(parallel.by_modules, "llama")) <= 1e-5


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
def test_plans_that_modules_cannot_follow(name):
    model, inputs = made(name, 2)
    plan = plan_parallel(model, (), inputs, tp=2)
    with pytest.raises(ParallelError, match=r"parallelize_module (cannot do|has no style)"):
        plan.module_plan(model)


def test_a_plan_says_where_weights_lie():
    model, inputs = made("gpt2", 2)
    plan = plan_parallel(model, (), inputs, tp=2, replicate=["*.mlp.*"])
    text = str(plan)
    assert (
        "transformer.h.0.attn.c_attn.weight [32, 96]: dimension 1, in pieces of 32, 32, 32" in text
    )
    assert "transformer.h.0.mlp.c_fc.weight [32, 128]: replicated" in text
    assert plan.local_shape("transformer.h.1.attn.c_proj.weight") == (16, 32)
    same = plan_parallel(model, (), inputs, tp=2, replicate=["*.mlp.*"])
    assert plan.hash() == same.hash()
    assert plan.hash() != plan_parallel(model, (), inputs, tp=2).hash()


@pytest.mark.parametrize(
    "what, message",
    [
        ("heads", r"node view .*parallel\.py.*: 2 ranks do not divide 3"),
        ("plans", r"PlanMismatchError: rank 1 has another plan than rank 0: .*shards"),
        ("seeds", r"PlanMismatchError: rank 1 has another plan than rank 0: values of weights"),
        ("values", r"PlanMismatchError: rank 1 has another plan than rank 0: values of input 0"),
        ("one rank", r"rank 0: "),
        ("file", r"ParallelError: .*weights\.safetensors lacks it|has no tensor"),
        ("meta", r"the parameter layers\.0\.weight is on meta, and no file of weights was given"),
        ("sizes", r"ParallelError: .*linear"),
        ("arguments", r"TypeError: expected tensors as inputs"),
        ("ranks", r"ValueError: tp: expected 2, the number of ranks of the group, got 3"),
        ("name", r"no weight is called layers\.0\.wieght; there are layers\.0\.weight"),
    ],
)
def test_faults_are_named_on_all_ranks(two, tmp_path, what, message):
    path = tmp_path / "weights.safetensors"
    model, _ = made("perceptron", 4)
    save_file({"layers.1.weight": model.layers[1].weight.detach().clone()}, path)
    for found in two.run(parallel.message, what, str(path)):
        assert found
        assert re.search(message, found), found


def test_a_rank_that_skips_a_call_is_not_waited_for(tmp_path):
    with Ranks(2, tmp_path) as own:
        waited, other = own.run(parallel.message, "skipped", "")
    assert re.match(
        r"ParallelError: rank 0, call 2 of float32\[4, 16\] with gradients from node linear \(.*py.*\): "
        r"one of the ranks \[1\] has ended",
        waited,
    ), waited
    assert other == ""
