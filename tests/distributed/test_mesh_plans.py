"""Plans for more ranks than there are, and steps on all their ranks as threads and as processes."""

from __future__ import annotations

import collections
import json
import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import schedules

from corsac.analysis import Machine
from corsac.distributed import (
    DistributedError,
    MeshPlan,
    Network,
    ParallelError,
    PipelineError,
    StepSeconds,
    collectives,
    measure_network,
    measure_step,
    plan_mesh,
    plan_pipeline,
    simulate_step,
)
from corsac.distributed._planning.exchanges import exchanges
from corsac.distributed._planning.matching import check_matching
from corsac.distributed._planning.meshes import Mesh, meshes_of
from corsac.distributed._planning.names import SCHEDULES
from corsac.distributed._tensor_stages import TensorStages
from kit import mesh_plans
from kit.mesh_plans import BATCH, LENGTH, MACHINE, batch, loss, plans, whole, words


def on_mesh(found, *shape):
    """The costs of a mesh."""
    return next(own for own in found.found if own.mesh == Mesh(*shape))


def layers(count=4, width=64):
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(count)))


@pytest.fixture(scope="module")
def eight():
    return plans(8)


def test_all_meshes_are_found_or_refused(eight):
    own = [one.mesh for one in eight.found]
    assert sorted([*own, *eight.refused]) == sorted(meshes_of(8))
    assert eight.best() == eight.found[0]
    assert (
        len(
            {
                one.rank(p, t, d)
                for one in [Mesh(2, 2, 2)]
                for p in (0, 1)
                for t in (0, 1)
                for d in (0, 1)
            }
        )
        == 8
    )
    times = [one.seconds for one in eight.found]
    assert times == sorted(times) and all(own > 0 for own in times)
    text = str(eight)
    assert "pipeline × tensor × data" in text and str(eight.found[0].mesh) in text


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", [(2, 2, 2), (4, 1, 2)])
def test_all_ranks_send_and_receive_the_same(eight, schedule, shape):
    planner, mesh = eight._planner, Mesh(*shape)
    own, stages = planner.parts(mesh, schedule, 4)
    shared = planner.shared(len(stages), mesh.tensor)
    assert list(shared) == ["table.weight"]
    programs = exchanges(mesh, own, stages, shared)
    assert len(programs) == 8
    assert check_matching(programs) > 8 * 4
    for rank in range(8):
        for at in range(len(programs[rank])):
            if programs[rank][at].kind == "receive":
                broken = [list(one) for one in programs]
                del broken[rank][at]
                with pytest.raises(DistributedError, match=r"for ever|never receives|but rank"):
                    check_matching(broken)
                break


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 8, 1), (4, 1, 2)])
def test_eight_ranks_compute_what_one_does(eight, shape):
    x, y = batch()
    step = simulate_step(eight.plan(on_mesh(eight, *shape)), x, target=y, loss_fn=loss)
    value, gradients = whole()
    assert float(sum(step.losses) / len(step.losses)) == pytest.approx(value, rel=1e-6)
    assert step.gradients.keys() == gradients.keys()
    for name, own in gradients.items():
        torch.testing.assert_close(step.gradients[name], own, rtol=1e-4, atol=1e-6)
    assert not dist.is_initialized()


@pytest.mark.parametrize("schedule", [own for own in SCHEDULES if own != "1f1b"])
def test_schedules_run_stages_that_are_cut(eight, schedule):
    x, y = batch()
    plan = eight.plan(eight._planner.costs_of(Mesh(2, 2, 1), schedule, 4))
    step = simulate_step(plan, x, target=y, loss_fn=loss)
    for name, own in whole()[1].items():
        torch.testing.assert_close(step.gradients[name], own, rtol=1e-4, atol=1e-6)


def test_dropout_runs_in_stages_that_are_cut():
    model = nn.Sequential(
        nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64)
    )
    x = torch.randn(8, 64)
    found = plan_mesh(model, x, ranks=4, bandwidth=1e9, machine=MACHINE, microbatches=[2])
    step = simulate_step(
        found.plan(on_mesh(found, 2, 2, 1)), x, target=x, loss_fn=nn.functional.mse_loss
    )
    assert step.gradients.keys() == dict(model.named_parameters()).keys()
    assert all(own.isfinite().all() for own in step.gradients.values())


def test_ranks_send_the_bytes_that_are_planned(monkeypatch):
    """Messages, collectives and their sizes, as counted while all ranks run."""
    model = mesh_plans.Words(tied=False)
    found = plans(4, model=model, microbatches=[2])
    own = on_mesh(found, 2, 2, 1)
    counted = collections.Counter()
    lock = threading.Lock()

    def count(kind, tensor):
        with lock:
            counted[kind] += tensor.numel() * tensor.element_size()
            counted[f"{kind} calls"] += 1

    def watched(name, kind):
        function = getattr(collectives, name)

        def call(tensor, *args):
            count(kind, tensor)
            return function(tensor, *args)

        monkeypatch.setattr(collectives, name, call)

    watched("_reduced", "all_reduce")
    forward = collectives._Paired.forward

    def paired(ctx, tensor, run, *args):
        made = forward(ctx, tensor, run, *args)
        if run is collectives._whole:
            count("all_gather", made)
        return made

    monkeypatch.setattr(collectives._Paired, "forward", staticmethod(paired))
    batched = schedules._batch_p2p

    def messages(ops, *args, **kwargs):
        for one in ops:
            if one.op is dist.isend:
                count("sent", one.tensor)
        return batched(ops, *args, **kwargs)

    monkeypatch.setattr(schedules, "_batch_p2p", messages)
    x, y = batch()
    simulate_step(found.plan(own), x, target=y, loss_fn=loss)
    _, stages = found._planner.parts(own.mesh, own.schedule, own.microbatches)
    # Two ranks of each stage, two microbatches.
    for kind in ("all_reduce", "all_gather"):
        rows = [one.collectives[kind, way] for one in stages for way in (False, True)]
        assert counted[kind] == 2 * 2 * sum(size for size, _ in rows)
        assert counted[f"{kind} calls"] == 2 * 2 * sum(count for _, count in rows)
    moved = sum(one.times.received + one.times.returned for one in stages)
    assert counted["sent"] == 2 * 2 * moved


def test_costs_of_a_product_are_those_of_its_sizes():
    """Four layers without biases: operations, weights, what autograd keeps, gradients."""
    width, items = 64, 16
    x = torch.empty(items, width, device="meta")
    slow = Machine(1.0, 1e9)
    found = plan_mesh(
        layers(4, width),
        x,
        ranks=1,
        bandwidth=1e9,
        machine=slow,
        microbatches=[1],
        optimizer="adam",
    )
    (own,) = found.found
    product = 2 * items * width * width
    # The input has no gradient: the first layer has one product less.
    assert own.seconds == pytest.approx((4 + 8 - 1) * product / 1e9)
    weight = 4 * width * width
    held = 4 * items * width * 4 + items * width * 4
    working = weight + 2 * 4 * items * width
    assert own.memory_bytes == pytest.approx(4 * 4 * weight + held + working)
    assert own.sent_bytes == 0 and own.bubble == 0


def test_parts_of_a_pair_of_layers_are_summed_once_in_each_direction():
    x = torch.empty(16, 64, device="meta")
    found = plan_mesh(
        nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Tanh()),
        x, ranks=4, bandwidth=1e9, machine=MACHINE, microbatches=[1],
    )  # fmt: skip
    (stage,) = found._planner.stages(1, 4, 16)
    assert stage.collectives["all_reduce", False] == (16 * 64 * 4, 1)
    assert stage.collectives["all_gather", False] == (0, 0)
    own = on_mesh(found, 1, 4, 1)
    assert own.sent_bytes == 2 * 3 / 4 * sum(
        stage.collectives["all_reduce", way][0] for way in (False, True)
    )
    # Both weights and the first bias are cut.
    assert stage.weights == 4 * (2 * 64 * 256 / 4 + 256 / 4 + 64)


def test_copies_sum_the_gradients_of_their_weights():
    model = layers(2, 64)
    found = plan_mesh(
        model, torch.empty(16, 64, device="meta"),
        ranks=4, bandwidth=1e6, latency=0.0, machine=MACHINE, microbatches=[1],
    )  # fmt: skip
    own = on_mesh(found, 1, 1, 4)
    gradients = 2 * 64 * 64 * 4
    assert own.sent_bytes == 2 * 3 / 4 * gradients
    assert own.exposed == pytest.approx(2 * 3 / 4 * gradients / 1e6, rel=1e-3)
    assert own.seconds > own.exposed


def test_frozen_weights_have_no_gradients_to_sum():
    model = layers(4, 64)
    model[:3].requires_grad_(False)
    found = plan_mesh(
        model, torch.empty(16, 64, device="meta"), ranks=2, bandwidth=1e6, machine=MACHINE
    )
    assert on_mesh(found, 1, 1, 2).sent_bytes == 64 * 64 * 4


def test_measured_times_are_shared_out():
    measured = StepSeconds(4, 0.5, 1.5)
    x = torch.empty(16, 64, device="meta")
    found = plan_mesh(
        layers(8), x, ranks=[1, 2], bandwidth=1e15, latency=0.0, machine=MACHINE, measured=measured,
        microbatches=[4],
    )  # fmt: skip
    assert on_mesh(found, 1, 1, 1).seconds == pytest.approx(4 * 2.0)
    two = on_mesh(found, 2, 1, 1)
    # A bubble of one of five; halves that differ by the product that the first layer lacks.
    assert 5.0 <= two.seconds < 5.6


def test_steps_are_measured_without_touching_gradients():
    model = layers(2, 8)
    x = torch.randn(4, 8)
    model(x).sum().backward()
    before = [own.grad.clone() for own in model.parameters()]
    found = measure_step(model, (x,), lambda result: result.sum(), repeats=2)
    assert found.items == 4 and found.forward > 0 and found.backward > 0
    assert found.split > 1
    assert all(torch.equal(a, b.grad) for a, b in zip(before, model.parameters(), strict=True))


def test_models_of_words_have_no_split_backward_pass():
    model, words_ = mesh_plans.words(), torch.randint(mesh_plans.WORDS, (2, 5))
    assert measure_step(model, (words_,), lambda result: result.sum(), repeats=1).split == 1
    unused = lambda result: sum(own.sum() for own in model.parameters())  # noqa: E731
    model = layers(2, 8)
    assert measure_step(model, (torch.randn(4, 8),), unused, repeats=1).split == 1


def test_networks_are_measured_between_ranks(two):
    first, second = two.run(mesh_plans.measured_network)
    assert first == second
    assert 0 < first.latency < 1 and first.bandwidth > 0
    assert [size for size, _ in first.hops] == [2.0, 4096.0]
    assert all(0 < seconds < 1 for _, seconds in first.hops)
    found = plans(2, network=first)
    assert found.network == first and found.best().seconds > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sizes": (8, 4)}, r"sizes: expected ascending ones of at least 4 bytes, got \[8, 4\]"),
        ({"repeats": 0}, "repeats: expected at least 1, got 0"),
    ],
)
def test_networks_that_cannot_be_measured_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        measure_network(**wrong)
    with pytest.raises(ParallelError, match="there is no process group"):
        measure_network()


def test_a_plan_needs_one_description_of_the_network():
    for own in ({}, {"bandwidth": 1e9, "network": Network(1e9, 0.0)}):
        with pytest.raises(ValueError, match="expected either bandwidth or network"):
            plan_mesh(layers(), torch.empty(4, 64, device="meta"), ranks=2, **own)


# -- what is refused ----------------------------------------------------------------------------


def test_meshes_that_cannot_be_used_are_listed_with_the_reason():
    model = mesh_plans.Words(heads=6, width=48)
    least = min(own.memory_bytes for own in plans(4, model=model, microbatches=[1, 2]).found)
    bound = round(1.01 * least)
    found = plans([4, 16], model=model, memory=bound, microbatches=[1, 2])
    reasons = {mesh: str(own) for mesh, own in found.refused.items()}
    assert "4 ranks do not divide 6" in reasons[Mesh(1, 4, 1)]
    assert reasons[Mesh(1, 1, 16)] == "the number of copies does not divide a batch of 8"
    assert reasons[Mesh(16, 1, 1)] == "1f1b needs a microbatch for each stage"
    assert reasons[Mesh(1, 1, 4)].startswith("it needs more memory: ")
    assert found.found and all(own.memory_bytes <= bound for own in found.found)
    assert "not possible:" in str(found)
    with pytest.raises(DistributedError, match=r"no mesh can be used: .* needs more memory"):
        plans(2, memory=1000).best()


def test_sizes_of_microbatches_that_the_graph_is_not_for_are_left_out():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers()

        def forward(self, x):
            return self.layers(x) if x.shape[0] > 1 else self.layers(x + 1)

    x = torch.empty(8, 64, device="meta")
    found = plan_mesh(Two(), x, ranks=2, bandwidth=1e9, machine=MACHINE, microbatches=[4, 8])
    assert on_mesh(found, 2, 1, 1).microbatches == 4
    assert "the graph is not valid" in str(found.refused[Mesh(1, 1, 2)])


def test_a_graph_for_one_size_of_a_batch_has_microbatches_of_it():
    class Rows(nn.Module):
        """Gives each row of a batch of one size a number of its own."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, x):
            numbers = torch.tensor([float(row) for row in range(x.shape[0])])
            return self.layer(x) + numbers[:, None, None]

    model = nn.Sequential(Rows(), Rows())
    x = torch.empty(8, 6, 32, device="meta")
    options = {"ranks": 2, "bandwidth": 1e9, "machine": MACHINE}
    found = plan_mesh(model, x, captured_with=torch.zeros(4, 6, 32), **options)
    assert {own.items for own in found.found} == {4}
    assert found.refused.keys() <= {Mesh(1, 1, 2)}
    with pytest.raises(DistributedError, match="for microbatches of 3 only"):
        plan_mesh(model, x, captured_with=torch.zeros(3, 6, 32), **options).best()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranks": 0}, "ranks: expected numbers of at least 1"),
        ({"ranks": []}, "ranks: expected numbers"),
        ({"microbatches": [0]}, "microbatches: expected numbers"),
        ({"bandwidth": 0.0}, "bandwidth: expected more than 0"),
        ({"latency": -1.0}, "latency: expected at least 0"),
        ({"memory": 0}, "memory: expected at least 1 byte"),
        ({"optimizer": "adamw"}, "optimizer: expected one of"),
        ({"schedules": ["2f2b"]}, "2f2b"),
        ({"schedules": []}, "schedules: expected"),
    ],
)
def test_wrong_numbers_are_an_error(options, said):
    given = {"ranks": 2, "bandwidth": 1e9, "machine": MACHINE} | options
    with pytest.raises(ValueError, match=said):
        plan_mesh(layers(), torch.empty(8, 64, device="meta"), **given)


def test_inputs_without_a_batch_are_an_error():
    with pytest.raises(PipelineError, match="no batch dimension"):
        plan_mesh(nn.Tanh(), torch.tensor(1.0), ranks=2, bandwidth=1e9, machine=MACHINE)


def test_a_large_model_is_planned_without_memory():
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(8)))
    x = torch.empty(1024, 8192, device="meta")
    found = plan_mesh(
        model, x, ranks=1024, bandwidth=25e9, machine=Machine(1e5, 2e3), memory=2 * 10**9,
        captured_with=torch.empty(2, 8192, device="meta"),
    )  # fmt: skip
    assert found.best().mesh.ranks == 1024 and found.best().memory_bytes <= 2 * 10**9


# -- files --------------------------------------------------------------------------------------


def test_a_plan_file_is_the_plan(eight, tmp_path):
    plan = eight.plan(on_mesh(eight, 2, 2, 2))
    plan.save(tmp_path / "plan.json")
    read = MeshPlan.load(tmp_path / "plan.json")
    assert (read.costs, read.batch, read.digests()) == (plan.costs, BATCH, plan.digests())
    content = json.loads((tmp_path / "plan.json").read_text())
    assert "weights" in content["pipeline"] and len(content["pipeline"]["cuts"]) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda own: own.update({"corsac.mesh": 9}), "expected a mesh of version 1, got 9"),
        (lambda own: own.pop("mesh"), "no plan of a mesh: KeyError"),
        (lambda own: own.update(mesh={"pipeline": 1}), "no plan of a mesh: TypeError"),
        (lambda own: own.update(stages=3), "expected 3 stages, got 2"),
        (lambda own: own["pipeline"]["inputs"].clear(), "no plan of a pipeline|was changed"),
        (lambda own: own.pop("pipeline"), "no plan of a mesh: KeyError"),
    ],
)
def test_other_files_are_refused(eight, tmp_path, change, said):
    content = eight.plan(on_mesh(eight, 2, 2, 2)).content()
    change(content)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PipelineError, match=said):
        MeshPlan.load(path)
    path.write_text("{")
    with pytest.raises(PipelineError, match="no plan"):
        MeshPlan.load(path)


def test_a_plan_needs_a_process_group_of_its_size(eight):
    with pytest.raises(DistributedError, match="no process group"):
        eight.plan().device_mesh()


def test_an_error_of_one_rank_ends_the_simulation(eight):
    def fails(result, target):
        if threading.current_thread().name == "rank 7":
            raise ZeroDivisionError("a loss of nothing")
        return loss(result, target)

    x, y = batch()
    plan = eight.plan(on_mesh(eight, 2, 2, 2))
    with pytest.raises(DistributedError, match=r"rank 7: .*loss_fn: .*a loss of nothing"):
        simulate_step(plan, x, target=y, loss_fn=fails, timeout=30.0)


@pytest.mark.parametrize("shape", [(2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_processes_run_a_plan_file(two, tmp_path, shape):
    found = plans(2)
    path = tmp_path / "plan.json"
    found.plan(on_mesh(found, *shape)).save(path)
    results = two.run(mesh_plans.run, str(path))
    for largest, shapes in results:
        assert largest < 1e-6
        assert ("up.0.weight" in shapes) or shape[0] == 2
    names = [set(shapes) for _, shapes in results]
    if shape[0] == 2:
        assert names[0] & names[1] == {"table.weight"}
    elif shape[1] == 2:
        assert results[0][1]["up.0.weight"] == (64, 32)


def test_a_plan_for_other_ranks_is_refused(two, eight, tmp_path):
    eight.plan(on_mesh(eight, 2, 2, 2)).save(tmp_path / "plan.json")
    two.start(mesh_plans.run, str(tmp_path / "plan.json"))
    for is_done, said in two.results():
        assert not is_done and "the plan is for 8 ranks (2 × 2 × 2), there are 2" in said


def test_stages_that_the_ranks_do_not_divide_are_named():
    model = mesh_plans.Words(heads=6, width=48, tied=False)
    plan = plan_pipeline(model, batch()[0], stages=2)
    with pytest.raises(ParallelError, match=r"stage 0: node .* 4 ranks do not divide 6"):
        TensorStages(plan, 4)


def test_pictures_have_a_box_for_each_pass(eight, tmp_path):
    own = on_mesh(eight, 2, 2, 2)
    eight.draw(tmp_path / "step.svg", own, "words & <tags>")
    text = (tmp_path / "step.svg").read_text()
    assert text.count('class="forward"') == 2 * own.microbatches + 1
    assert "words &amp; &lt;tags&gt; on 8 ranks" in text and "2 × 2 × 2" in text
    eight.draw(tmp_path / "step.html", own)
    assert "<pre>ranks" in (tmp_path / "step.html").read_text()
    with pytest.raises(ValueError, match="a picture is"):
        eight.draw(tmp_path / "step.png")


def test_lengths_are_free_if_the_capture_is_shorter():
    model = words()
    x = torch.empty(BATCH, 4 * LENGTH, dtype=torch.int64, device="meta")
    few = torch.empty(2, LENGTH, dtype=torch.int64, device="meta")
    options = {"ranks": 2, "bandwidth": 1e9, "machine": MACHINE, "microbatches": [4]}
    short = plan_mesh(model, x, captured_with=few, **options)
    long = plan_mesh(model, x, **options)
    assert short.found == long.found
