"""Pipelines on two processes: results and gradients of the whole model, sizes, weights, plans."""

from __future__ import annotations

import pytest
import torch

from corsac.distributed import PipelineError, PipelinePlan, plan_pipeline
from kit import pipelines
from kit.ranks import Ranks


@pytest.mark.parametrize(
    "name, schedule, stages, microbatches, batch",
    [
        ("perceptron", "gpipe", 2, 4, 8),
        ("perceptron", "1f1b", 2, 8, 8),
        ("relayed", "1f1b", 2, 4, 8),
        ("relayed", "1f1b", 2, 3, 7),
        ("relayed", "interleaved1f1b", 4, 4, 8),
        ("relayed", "looped_bfs", 4, 4, 8),
        ("relayed", "interleaved_zero_bubble", 4, 4, 8),
        ("relayed", "zbv_zero_bubble", 4, 4, 8),
        ("frozen", "1f1b", 2, 4, 8),
        ("frozen", "interleaved_zero_bubble", 4, 4, 8),
        ("apart", "1f1b", 2, 4, 8),
        ("apart", "interleaved_zero_bubble", 4, 4, 8),
        ("gpt2", "1f1b", 2, 4, 8),
        ("t5", "zbv_zero_bubble", 4, 4, 8),
        ("resnet18", "interleaved_zero_bubble", 4, 4, 8),
    ],
)
def test_is_the_whole_model(two, name, schedule, stages, microbatches, batch):
    check(two.run(pipelines.compare, name, schedule, stages, microbatches, batch, {}), stages)


def check(found, stages):
    assert all(own["stages"] == stages for own in found)
    assert all(own["parameters"] > 0 for own in found)
    assert max(own["gradient"] for own in found) <= 1e-4
    assert max(own["buffer"] for own in found) <= 1e-5
    (result,) = [own["result"] for own in found if "result" in own]
    assert result <= 1e-5
    assert max(own.get("losses", 0.0) for own in found) <= 1e-4


def test_takes_other_sizes_after_resize(two):
    for found in two.run(pipelines.resized):
        assert len(found) > 10
        assert max(found) < 1e-5


@pytest.mark.parametrize("schedule, stages", [("1f1b", 2), ("interleaved1f1b", 4)])
def test_tied_weights_stay_equal(two, schedule, stages):
    first, second = two.run(pipelines.trained, schedule, stages)
    tied = ("table.weight", "out.weight")
    for when in ("start", "end"):
        for name in tied:
            assert torch.equal(first[when][name], second[when]["table.weight"])
    # The whole model, from the same weights, with both batches in one step.
    model, _ = pipelines.made("relayed", 8)
    model.load_state_dict(first["start"] | second["start"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        for at in range(2):
            torch.manual_seed(10 * step + at)
            words, mask = torch.randint(20, (8, 5)), torch.randint(2, (8, 5))
            pipelines.loss_of(model(words, mask), None).backward()
        optimizer.step()
    for name, own in (first["end"] | second["end"]).items():
        torch.testing.assert_close(own, model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_ranks_read_their_own_weights_only(two, tmp_path):
    from corsac._files.safetensors import write_safetensors

    torch.manual_seed(5)
    model = pipelines.Perceptron()
    path = tmp_path / "model.safetensors"
    write_safetensors(path, model.state_dict())
    found = two.run(pipelines.from_file, str(path), "perceptron")
    names = [name for own in found for name in own["names"]]
    assert sorted(names) == sorted(model.state_dict())
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    for own in found:
        # The header is read once for each tensor, and Python reads ahead by a buffer.
        assert own["own"] <= own["read"] <= own["own"] + len(own["names"]) * (header + 2 * 8192)
    torch.testing.assert_close(found[1]["result"], model(torch.ones(8, 16)))


def test_a_plan_file_holds_the_rest(two, tmp_path):
    model, inputs = pipelines.made("relayed", 2)
    plan = plan_pipeline(model, (), inputs, stages=2)
    path = tmp_path / "plan.json"
    plan.save(path)
    again = PipelinePlan.load(path)
    assert again.hash() == plan.hash()
    assert [str(own.graph) for own in again.stages] == [str(own.graph) for own in plan.stages]
    (nothing, (result, wanted)) = two.run(pipelines.from_plan, str(path))
    assert nothing is None
    for name, own in wanted.items():
        torch.testing.assert_close(result[name], own)


def test_changed_plan_files_are_refused(tmp_path):
    model, inputs = pipelines.made("perceptron", 2)
    path = tmp_path / "plan.json"
    plan_pipeline(model, (), inputs, stages=2).save(path)
    text = path.read_text()
    path.write_text(text.replace("layers.3.weight", "layers.2.weight", 1))
    with pytest.raises(PipelineError):
        PipelinePlan.load(path)
    path.write_text("{")
    with pytest.raises(PipelineError, match="no plan of a pipeline"):
        PipelinePlan.load(path)


def test_batch_norms_in_training_warn(two):
    first, second = two.run(pipelines.warned, True)
    assert len(first) == 1 and "statistics from each microbatch" in first[0]
    assert second == [] and two.run(pipelines.warned, False) == [[], []]


@pytest.mark.parametrize(
    "kind, wanted",
    [
        ("model", "PlanMismatchError: rank 1 has another plan than rank 0: graph, weights"),
        ("batch", "PlanMismatchError: rank 1 has another plan than rank 0: inputs"),
        ("schedule", "PlanMismatchError: rank 1 has another plan than rank 0: inputs, schedule"),
    ],
)
def test_different_plans_are_named(two, kind, wanted):
    for message in two.run(pipelines.mismatched, kind):
        assert message.startswith(wanted)


def test_a_rank_that_cannot_plan_is_named(two):
    for message in two.run(pipelines.mismatched, "fails"):
        assert "rank 1: RuntimeError: addmm: mat1 and mat2 shapes cannot be multiplied" in message


def test_a_weight_that_the_file_lacks_is_named(two, tmp_path):
    from corsac._files.safetensors import write_safetensors

    state = pipelines.Looked().state_dict()
    del state["table.weight"]
    path = tmp_path / "model.safetensors"
    write_safetensors(path, state)
    two.start(pipelines.from_file, str(path), "looked")
    for is_done, message in two.results():
        assert not is_done
        assert "rank 1: PipelineError: stage 1, node " in message
        assert "pipelines.py" in message and "in Looked.last): " in message
        assert "the parameter table.weight is on meta" in message and "lacks it" in message


def test_a_stage_that_raises_is_named_on_all_ranks(two):
    first, second = two.run(pipelines.raising, 1)
    for message, seconds in (first, second):
        assert "rank 1, stage 1, node embedding" in message
        assert "in Looked.last): IndexError: index out of range" in message
        assert seconds < 20
    assert first[0].startswith("rank 0, stages [0]: another rank failed: ")


def test_a_rank_that_does_not_answer_is_left_after_the_timeout(two):
    (message, seconds), _ = two.run(pipelines.unanswered)
    assert message.startswith(
        "rank 0, stages [0], step 1 of 8 items, first float32[2, 8], int64[2]: "
    )
    assert "one of its neighbours, ranks [1], has ended" in message
    assert seconds < 30


def test_a_rank_that_dies_is_named(tmp_path):
    with Ranks(2, tmp_path) as ranks:
        ranks.start(pipelines.dying)
        (is_done, (message, seconds)), (other, _) = ranks.results()
    assert is_done and not other
    assert message.startswith("rank 0, stages [0]: one of its neighbours, ranks [1], has ended")
    assert seconds < 40
