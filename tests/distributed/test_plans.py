"""Plans of pipelines, in one process: where programs are cut, what is sent, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from corsac.distributed import PipelineError, PipelinePlan, plan_pipeline
from corsac.distributed._stage import StageModule, may_split
from corsac.distributed._stage_graphs import sent
from corsac.distributed._stage_weights import stage_weights
from corsac.distributed._values import input_types, values_of
from kit import pipelines

CPU = torch.device("cpu")


def run(plan, *inputs):
    """The result of all stages of a plan, in turn."""
    weights = stage_weights(plan, range(len(plan.stages)), None, CPU)
    values = inputs
    for number, stage in enumerate(plan.stages):
        values = StageModule(0, number, stage, weights[number], CPU)(*values)
    return plan.program.result(values)


def planned(model, *inputs, **options):
    plan = plan_pipeline(model, inputs, **options)
    torch.testing.assert_close(run(plan, *inputs), model(*inputs))
    return plan


def layers(count=6, width=16):
    return nn.ModuleList(nn.Linear(width, width) for _ in range(count))


def test_stages_are_balanced():
    plan = planned(nn.Sequential(*layers(8, 512)), torch.randn(4, 512), stages=4)
    assert [sum("weight" in name for name in own.weights) for own in plan.stages] == [2] * 4
    assert all(len(own.inputs) == 1 for own in plan.stages)


def test_borders_that_carry_less_are_taken():
    narrow = nn.Linear(128, 4), nn.Linear(4, 128)
    model = nn.Sequential(*layers(2, 128), *narrow, *layers(2, 128))
    plan = planned(model, torch.randn(64, 128), stages=2)
    (name,) = plan.stages[1].inputs
    assert plan.values(plan.inputs[0])[name].shape == (64, 4)


def test_a_mask_of_sizes_is_computed_again():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers()

        def forward(self, x):
            length = x.shape[1]
            mask = torch.ones(length, length).tril() > 0
            for own in self.layers:
                x = torch.tanh(own(x) + (x @ x.mT).masked_fill(~mask, 0.0) @ x)
            return x

    plan = planned(Masked(), torch.randn(4, 40, 16), stages=3)
    assert [len(own.inputs) for own in plan.stages] == [1, 1, 1]
    assert all("tril" in own.recomputed for own in plan.stages[1:])
    # The length is read from what is sent.
    assert any("size" in str(node.target) for node in plan.stages[2].graph.nodes)


def test_a_small_input_is_relayed_in_place_of_a_large_mask():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers()

        def forward(self, x, keep):
            mask = keep[:, None, :].expand(-1, x.shape[1], -1) > 0
            for own in self.layers:
                x = torch.tanh(own(x) + (x @ x.mT).masked_fill(~mask, 0.0) @ x)
            return x

    keep = torch.randint(2, (4, 40))
    plan = planned(Masked(), torch.randn(4, 40, 16), keep, stages=3)
    assert [own.inputs[0] for own in plan.stages[1:]] == ["keep", "keep"]
    assert all(len(own.inputs) == 2 for own in plan.stages[1:])


def test_random_numbers_are_relayed():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers(4)

        def forward(self, x):
            noise = torch.rand(x.shape[0], 16)
            for own in self.layers:
                x = own(x) * noise
            return x

    model, x = Noisy(), torch.randn(4, 16)
    cuts = ["linear_1", "linear_2", "linear_3"]
    plan = plan_pipeline(model, (x,), stages=4, cut_before=cuts)
    assert [own.inputs for own in plan.stages[1:]] == [
        ("rand", name) for name in ("mul", "mul_1", "mul_2")
    ]
    torch.manual_seed(3)
    result = run(plan, x)
    torch.manual_seed(3)
    torch.testing.assert_close(result, model(x))


class Written(nn.Module):
    """Writes to a value of which there is a view; switches gradients off; takes a chunk apart."""

    def __init__(self):
        super().__init__()
        self.layers = layers(4)

    def forward(self, x):
        y = self.layers[0](x)
        view = y.view(-1)
        z = self.layers[1](y * 2)
        y.add_(1)
        x = z + view.view_as(y)
        with torch.no_grad():
            scale = x.mean()
            scale = scale + 1
        first, second = torch.chunk(self.layers[2](x), 2, 1)
        return self.layers[3](torch.cat([second, first], 1)) * scale


def test_what_is_written_to_lies_in_one_stage():
    model, x = Written(), torch.randn(4, 16)
    plan = planned(model, x, stages=2)
    names = [node.name for node in plan.program.graph.nodes if node.op.startswith("call_")]
    for name in names[names.index("view") : names.index("add_") + 1]:
        with pytest.raises(PipelineError, match=f"cannot be cut before {name}"):
            plan_pipeline(model, (x,), stages=2, cut_before=[name])
    inside = names[names.index("mean")]
    with pytest.raises(PipelineError, match="cannot be cut before mean"):
        plan_pipeline(model, (x,), stages=2, cut_before=[inside])


def test_each_border_gives_the_same_result_and_gradients():
    model, x = Written(), torch.randn(4, 16)
    whole = plan_pipeline(model, (x,), stages=1)
    wanted = model(x)
    gradients = torch.autograd.grad(wanted.sum(), list(model.parameters()))
    count = 0
    for node in list(whole.program.graph.nodes):
        if not node.op.startswith("call_"):
            continue
        try:
            plan = plan_pipeline(model, (x,), stages=2, cut_before=[node.name])
        except PipelineError:
            continue
        result = run(plan, x)
        torch.testing.assert_close(result, wanted)
        ours = torch.autograd.grad(result.sum(), list(model.parameters()))
        for own, other in zip(ours, gradients, strict=True):
            torch.testing.assert_close(own, other)
        count += 1
    assert count > 5


def test_memory_is_a_limit():
    model, x = nn.Sequential(*layers(8)), torch.randn(4, 16)
    layer = (16 * 16 + 16) * 4 * 2
    planned(model, x, stages=4, memory=2 * layer)
    with pytest.raises(PipelineError, match="no 4 stages fit into"):
        plan_pipeline(model, (x,), stages=4, memory=2 * layer - 1)


def test_too_many_stages_are_refused():
    with pytest.raises(PipelineError, match="expected at least 8 for 9 stages"):
        plan_pipeline(nn.Sequential(*layers(3)), (torch.randn(4, 16),), stages=9)


def test_sizes_that_the_model_has_fixed_are_named():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers(4)

        def forward(self, x):
            by_batch = {x.shape[0]: 2.0}
            for own in self.layers:
                x = own(x) * by_batch[x.shape[0]]
            return x

    plan = planned(Fixed(), torch.randn(4, 16), stages=2)
    with pytest.raises(
        PipelineError, match=r"not valid for inputs of sizes \[\[5, 16\]\].*x.shape\[0\] is 5"
    ):
        plan.values([((5, 16), torch.float32)])


def test_control_flow_that_values_decide_is_refused():
    class Decides(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(PipelineError, match="the model is no graph"):
        plan_pipeline(Decides(), (torch.ones(4),), stages=1)


def test_buffers_and_random_state_are_kept():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()).train()
    before = {name: own.clone() for name, own in model.state_dict().items()}
    x = torch.randn(8, 4)
    state = torch.get_rng_state()
    plan = plan_pipeline(model, (x,), stages=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(own, before[name]) for name, own in model.state_dict().items())
    assert plan.program.weights["1.running_mean"].kind == "buffer"


def test_tied_weights_have_one_name():
    model, inputs = pipelines.made("relayed", 4)
    plan = plan_pipeline(model, (), inputs, stages=2, cut_before=["linear_3"])
    assert plan.shared()["table.weight"] == [0, 1]
    assert plan.program.weights["table.weight"].aliases == ("out.weight",)


@pytest.mark.parametrize("name", ["gpt2", "t5", "resnet18"])
def test_models_on_meta_have_the_same_graph(name):
    model, inputs = pipelines.made(name, 2)
    plan = plan_pipeline(model, (), inputs, stages=3)
    with torch.device("meta"):
        on_meta, _ = pipelines.made(name, 2)
    for key, own in model.named_buffers():
        place, _, last = key.rpartition(".")
        setattr(on_meta.get_submodule(place), last, own)
    again = plan_pipeline(on_meta, (), inputs, stages=3)
    assert again.hash() == plan.hash()


def test_stages_whose_weights_meet_no_input_are_told():
    model, inputs = pipelines.made("apart", 4)
    plan = plan_pipeline(model, (), inputs, stages=2)
    values = plan.values(plan.inputs[0])
    told = [
        may_split(own, [values[name] for name in own.inputs], plan.program.weights)
        for own in plan.stages
    ]
    assert told[-1] is False
    plan = plan_pipeline(nn.Sequential(*layers()), torch.randn(4, 16), stages=2)
    values = plan.values(plan.inputs[0])
    last = plan.stages[-1]
    assert may_split(last, [values[name] for name in last.inputs], plan.program.weights)


def test_types_are_those_of_a_call():
    model, inputs = pipelines.made("relayed", 4)
    plan = plan_pipeline(model, (), inputs, stages=2)
    types = values_of(plan.program.graph, input_types(list(inputs.values())), plan.program.weights)
    results = plan.program.result([types[own] for own in plan.program.results()])
    for key, own in model(**inputs).items():
        assert results[key].shape == own.shape and results[key].dtype == own.dtype
        assert results[key].requires_grad == own.requires_grad


def test_values_that_are_sent_can_be_detached_in_place():
    x = torch.randn(4, 6, requires_grad=True)
    mask = torch.ones(4, 6) > 0
    saved, factor = torch.relu(x * 2), torch.ones(4, 6)
    product = x * factor
    for own in (x, x.t(), saved, saved[1:], mask, mask.t(), mask[1:], mask.expand(2, 4, 6), factor):
        value = sent(own)
        assert value.is_contiguous() and torch.equal(value, own)
        value.detach_()
    (saved + product).sum().backward()


def test_nothing_is_imported_before_it_is_used():
    program = "import sys, corsac, corsac.distributed; print('torch.distributed' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("target", ["builtins.eval", "builtins.exec", "torch.load"])
def test_plan_files_call_no_function_of_which_nothing_is_known(target, tmp_path):
    class Model(nn.Module):
        def forward(self, x):
            return torch.sin(torch.relu(x)) + 1

    path = tmp_path / "plan.json"
    plan_pipeline(Model(), torch.ones(4, 8), stages=2).save(path)
    text = path.read_text()
    assert "torch.sin" in text and len(PipelinePlan.load(path).stages) == 2
    path.write_text(text.replace("torch.sin", target))
    with pytest.raises(PipelineError, match=r"node sin.* calls .* of which nothing is known"):
        PipelinePlan.load(path)
