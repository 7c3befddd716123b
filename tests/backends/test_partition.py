"""Partitions of joint graphs: gradients are eager's, and PyTorch's partitioners do not save less."""

import copy
import functools
import random

import pytest
import torch
import torch.fx
from functorch.compile import aot_function, make_boxed_func
from test_training import MODELS, ResNet
from torch import nn
from torch._functorch.partitioners import (
    default_partition,
    get_default_op_list,
    min_cut_rematerialization_partition,
)
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import corsac
from corsac import _core
from corsac._native.options import PARTITIONS
from corsac._training._partition import NotParted, plan_partition
from corsac.backends import aot_autograd, min_cut_partition

pytestmark = pytest.mark.usefixtures("native_or_error")


def compiler(module, inputs):
    del inputs
    return make_boxed_func(module.forward)


class Taken:
    """A partitioner that records joint graphs and their partitions."""

    def __init__(self, partition=min_cut_partition):
        self.partition = partition
        self.joints, self.made = [], []

    def __call__(self, joint, inputs, *, num_fwd_outputs, **keywords):
        self.joints.append((copy.deepcopy(joint), num_fwd_outputs, keywords))
        made = self.partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **keywords)
        self.made.append(made)
        return made

    def saved(self, partition=None):
        """Bytes that the forward graph of each joint graph saves."""
        found = []
        for (joint, outputs, keywords), made in zip(self.joints, self.made, strict=True):
            if partition is not None:
                made = theirs(partition, copy.deepcopy(joint), outputs, keywords)
            found.append(saved_bytes(made[0], outputs))
        return found

    def plans(self, **options):
        for joint, outputs, keywords in self.joints:
            static = keywords.get("static_lifetime_input_indices") or ()
            yield plan_partition(joint, num_fwd_outputs=outputs, static=static, **options)


def theirs(partition, joint, outputs, keywords):
    """The partition of a graph by a partitioner of PyTorch."""
    for node in reversed(joint.graph.nodes):
        # PyTorch's partitioner assumes a single tensor if its results have no users.
        if "native_dropout" in str(node.target) and not node.users:
            joint.graph.erase_node(node)
    modes = [getattr(node.meta.get("val"), "fake_mode", None) for node in joint.graph.nodes]
    with next(filter(None, modes)):
        return partition(joint, None, num_fwd_outputs=outputs, **keywords)


def saved_bytes(forward, outputs):
    """Bytes of the tensors that a forward graph returns besides results; parameters cost nothing."""
    total = 0
    for node in forward.graph.output_node().args[0][outputs:]:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and not node.meta.get("is_static_input"):
            total += (
                torch.fx.experimental.symbolic_shapes.optimization_hint(
                    value.numel(), fallback=4096
                )
                * value.element_size()
            )
    return total


def compiled(model, taken, dynamic=None):
    backend = aot_autograd(fw_compiler=compiler, partition_fn=taken)
    return torch.compile(model, backend=backend, dynamic=dynamic)


def never_above(taken):
    """Check that each graph saves what was planned, and that PyTorch's partitioners do not save less."""
    assert taken.joints
    own = taken.saved()
    fewest = [plan.saved_bytes for plan in taken.plans(fewest_bytes=True)]
    assert all(least <= saved for least, saved in zip(fewest, own, strict=True))
    planned = [plan.saved_bytes for plan in taken.plans()]
    for saved, bound, theirs, least in zip(
        own,
        planned,
        taken.saved(default_partition),
        taken.saved(min_cut_rematerialization_partition),
        strict=True,
    ):
        assert saved <= theirs
        assert saved <= least
        # The states of generators are counted too.
        assert taken.partition is not min_cut_partition or saved == bound


def steps(run, model, inputs, seed=3):
    """Results and gradients of two calls, from the same seed."""
    torch.manual_seed(seed)
    found = []
    for _ in range(2):
        results = run(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        sum((own * own).mean() for own in results if own.is_floating_point()).backward()
        found += [own.detach().clone() for own in results]
        for own in model.parameters():
            found.append(None if own.grad is None else own.grad.clone())
            own.grad = None
        found += [own.clone() for own in model.buffers()]
    return found


def same(own, its, **tolerance):
    assert len(own) == len(its)
    for one, other in zip(own, its, strict=True):
        if one is None or other is None:
            assert one is other
        else:
            torch.testing.assert_close(one, other, **tolerance)


def trains_like_eager(make, *inputs, partition=min_cut_partition):
    """Compare a model's gradients with eager's, with the partition's saved bytes bounded."""
    torch.manual_seed(1)
    model = make().train()
    other = copy.deepcopy(model)
    taken = Taken(partition)
    own = steps(compiled(model, taken), model, inputs)
    its = steps(other, other, inputs)
    same(own, its, rtol=1e-4, atol=1e-5)
    never_above(taken)
    return taken


fewest_bytes = functools.partial(min_cut_partition, fewest_bytes=True)


@pytest.mark.parametrize("partition", [min_cut_partition, fewest_bytes])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_models_are_those_of_eager(name, partition):
    make, batches = MODELS[name]
    x, _ = batches()
    taken = trains_like_eager(make, x, partition=partition)
    if name != "resnet":
        assert taken.saved() < taken.saved(default_partition)


@pytest.mark.parametrize("name", ["resnet18", "vit"])
def test_gradients_of_larger_models_are_those_of_eager(name):
    if name == "resnet18":
        torchvision = pytest.importorskip("torchvision")
        make = lambda: torchvision.models.resnet18(num_classes=5)  # noqa: E731
        trains_like_eager(make, torch.randn(2, 3, 32, 32))
    else:
        timm = pytest.importorskip("timm")
        make = lambda: timm.create_model(  # noqa: E731
            "vit_tiny_patch16_224", num_classes=5, img_size=32, depth=2
        )
        trains_like_eager(make, torch.randn(2, 3, 32, 32))


class Dropped(nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 16)
        self.checkpointed = checkpointed

    def body(self, x):
        x = F.dropout(F.gelu(self.first(x)), 0.3)
        return F.dropout(self.second(x).sin(), 0.5)

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.body, x, use_reentrant=False) if self.checkpointed else self.body(x)
        return x


@pytest.mark.parametrize("checkpointed", [False, True])
def test_dropout_has_one_mask(checkpointed):
    x = torch.randn(32, 16)
    taken = trains_like_eager(lambda: Dropped(checkpointed), x)
    (plan,) = taken.plans()
    assert len(plan.redrawn) == (4 if checkpointed else 0)
    if checkpointed:
        # The input, and the state of the generator before each use.
        assert plan.saved_bytes == 4 * 32 * 16 + 4 * 5056
    if not checkpointed:
        assert not any("dropout" in str(node.target) for node in plan.recomputed)


def test_a_dropout_passes_gradients_where_it_passed_values():
    taken = Taken()

    def program(x):
        return checkpoint(lambda own: F.dropout(own * 2.0, 0.5).sin(), x, use_reentrant=False)

    x = torch.rand(400, requires_grad=True)
    result = compiled(program, taken)(x)
    torch.rand(17)  # the generator's state has changed when backward begins
    before = torch.get_rng_state()
    result.sum().backward()
    assert torch.equal(x.grad != 0, result != 0)
    assert 0 < (result != 0).sum() < 400
    # Recomputing random numbers does not change the generator's state.
    assert torch.equal(torch.get_rng_state(), before)
    never_above(taken)


def test_a_checkpointed_region_saves_what_it_reads():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4)))

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = copy.deepcopy(layers)

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

    taken = trains_like_eager(Checkpointed, torch.randn(8, 32, requires_grad=True))
    (plan,) = taken.plans()
    # The input, and the result of each region but the last.
    assert plan.saved_bytes == 4 * 8 * 32 * 4
    # Results of regions are saved, and the gradient of tanh needs no more: the last one is recomputed.
    assert sum("addmm" in str(node.target) for node in plan.recomputed) == 1


def test_batch_norm_writes_its_statistics_once():
    taken = trains_like_eager(ResNet, torch.randn(4, 3, 32, 32))
    (plan,) = taken.plans()
    assert not any("batch_norm" in str(node.target) for node in plan.recomputed)
    forward, backward = taken.made[0]
    assert not any("copy_" in str(node.target) for node in backward.graph.nodes)
    del forward


def test_sizes_may_be_symbols():
    make, _ = MODELS["gpt"]
    torch.manual_seed(1)
    model = make().train()
    other = copy.deepcopy(model)
    taken = Taken()
    run = compiled(model, taken, dynamic=True)
    for batch, length in [(2, 7), (3, 9), (5, 5)]:
        x = torch.randint(0, 50, (batch, length))
        same(steps(run, model, [x]), steps(other, other, [x]), rtol=1e-4, atol=1e-5)
    assert len(taken.joints) <= 2
    never_above(taken)


def test_sizes_are_saved_and_not_the_tensors_that_have_them():
    def program(x, y):
        return (x.sum(0).expand(y.shape[0] * 2, x.shape[1]) * 3.0).sin()

    taken = Taken()
    run = compiled(program, taken, dynamic=True)
    for rows in (4, 6):
        x = torch.randn(5, rows, requires_grad=True)
        own = x.detach().clone().requires_grad_()
        y = torch.randn(rows + 3, 2)
        run(x, y).sum().backward()
        program(own, y).sum().backward()
        torch.testing.assert_close(x.grad, own.grad)
    never_above(taken)
    plan = next(taken.plans())
    # The sum is smaller than its expansion.
    assert plan.saved_bytes <= 4 * 4


# -- random programs --------------------------------------------------------------------------


def random_program(seed):
    """A function of two matrices with views, reductions, products, several results and random numbers."""
    draw = random.Random(seed)
    kinds = [draw.randrange(14) for _ in range(draw.randrange(4, 24))]
    picks = [draw.random() for _ in range(4 * len(kinds) + 4)]
    count = draw.randrange(1, 4)

    def program(x, w):
        values, at = [x, x @ w], 0

        def pick():
            nonlocal at
            at += 1
            return values[int(picks[at % len(picks)] * len(values))]

        for kind in kinds:
            a = pick()
            if kind == 0:
                new = a.sin()
            elif kind == 1:
                new = a * pick()
            elif kind == 2:
                new = a @ w
            elif kind == 3:
                new = torch.softmax(a, -1)
            elif kind == 4:
                new = a - a.mean(-1, keepdim=True)
            elif kind == 5:
                new = F.dropout(a, 0.4)
            elif kind == 6:
                left, right = a.split(4, 1)
                new = torch.cat([right, left.exp().clamp(max=3)], 1)
            elif kind == 7:
                new = a.t().reshape(8, 8).tanh()
            elif kind == 8:
                new = torch.where(a > 0, a, pick())
            elif kind == 9:
                top, _ = a.topk(3, 1)
                new = a + top.sum(1, keepdim=True)
            elif kind == 10:
                new = F.layer_norm(a, (8,))
            elif kind == 11:
                new = a.detach().sin() + pick()
            elif kind == 12:
                new = F.gelu(a[:, None, :].expand(8, 2, 8)).sum(1)
            else:
                new = a.clone().mul_(2.0).add_(pick())
            values.append(new)
        return tuple(values[-count:])

    return program


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_have_the_gradients_of_eager(seed):
    program = random_program(seed)
    taken = Taken(fewest_bytes if seed % 2 else min_cut_partition)
    run = aot_function(program, fw_compiler=compiler, bw_compiler=compiler, partition_fn=taken)
    x, w = torch.randn(8, 8) * 0.5, torch.randn(8, 8) * 0.3
    found = []
    for own in (run, program):
        given = [one.clone().requires_grad_() for one in (x, w)]
        torch.manual_seed(seed)
        results = own(*given)
        sum(one.sum() for one in results).backward()
        found.append([*(one.detach() for one in results), *(one.grad for one in given)])
    same(*found, rtol=1e-4, atol=1e-4)
    never_above(taken)


# -- special cases ------------------------------------------------------------------------------


def gradients(program, *inputs, partition=min_cut_partition):
    """Results, gradients and inputs after the call, from the partition and from eager."""
    taken = Taken(partition)
    found = []
    for run in (compiled(program, taken), program):
        given = [own.clone() for own in inputs]
        for own, source in zip(given, inputs, strict=True):
            own.requires_grad_(source.requires_grad)
        torch.manual_seed(5)
        results = run(*given)
        results = results if isinstance(results, tuple) else (results,)
        sum(own.sum() for own in results if own.requires_grad).backward()
        found.append([*(own.detach() for own in results), *(own.grad for own in given)])
        found[-1] += [own.detach() for own in given]
    same(*found)
    return taken


def wanted(*shape):
    return torch.randn(shape, requires_grad=True)


def test_inputs_and_results_may_be_saved():
    def program(x, y):
        a = x @ y
        return a, a.relu(), x * y

    taken = gradients(program, wanted(6, 6), wanted(6, 6))
    never_above(taken)
    (plan,) = taken.plans()
    assert [node.name for node in plan.saved] == ["primals_1", "primals_2", "relu"]


def test_several_results_of_one_operator():
    def program(x):
        top, places = x.topk(2, 1)
        low, high = x.chunk(2, 1)
        return top * high[:, :2].exp(), places, low.max(1)[0]

    never_above(gradients(program, wanted(4, 8)))


def test_views_and_results_that_share_memory():
    def program(x):
        flat = x.view(-1)
        return flat[2:], flat[:4].sin(), x.t()

    never_above(gradients(program, wanted(4, 4)))


def test_an_input_that_is_written_to_is_read_before():
    def program(x, state):
        y = x * state.exp()
        state.mul_(2.0)
        return y.sin() * state

    never_above(gradients(program, wanted(4, 4), torch.randn(4, 4)))


def test_an_input_that_wants_a_gradient_is_written_to():
    def program(x, y):
        x = x * 1.0
        a = x.exp()
        x.add_(y.exp())
        return a * x.cos()

    never_above(gradients(program, wanted(4, 4), wanted(4, 4)))


def test_a_leaf_that_is_written_to_after_the_call_is_not_saved():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.ones(4))
            self.weight = nn.Parameter(torch.randn(4))

        def forward(self, x):
            scaled = (x * self.count).sin() * self.weight
            self.count.add_(1.0)
            return scaled.cos() * self.count

    taken = trains_like_eager(Model, torch.randn(3, 4))
    del taken


def test_a_function_that_goes_back_its_own_way():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.noise = torch.rand_like(x)
            return (x * 2).exp() * ctx.noise

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x * 2).exp() * 2 * ctx.noise

    never_above(gradients(lambda x: Own.apply(x.sin()).cos(), wanted(5, 5)))


def test_random_numbers_of_the_way_back_are_drawn_there():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2 + torch.rand_like(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.rand_like(grad)

    program = lambda x: Noisy.apply(x).sin()  # noqa: E731
    taken = Taken()
    x = wanted(50)
    own = x.detach().clone().requires_grad_()
    torch.manual_seed(4)
    result = compiled(program, taken)(x)
    torch.manual_seed(9)
    result.sum().backward()
    torch.manual_seed(4)
    its = program(own)
    torch.manual_seed(9)
    its.sum().backward()
    torch.testing.assert_close(result, its)
    torch.testing.assert_close(x.grad, own.grad)


def test_operators_that_nobody_knows_run_once():
    calls = []

    @torch.library.custom_op("corsac_partition::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x.sin()

    counted.register_fake(torch.empty_like)
    counted.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    program = lambda x: counted(x * 2.0).exp()  # noqa: E731
    taken = gradients(program, wanted(4, 4))
    assert len(calls) == 2  # one of the partition, and one of eager
    never_above(taken)


def test_a_graph_with_effects_keeps_them_in_order():
    def program(x):
        y = x.sin()
        torch.ops.higher_order.print("sum {}", y.sum())
        return y.cos()

    x = wanted(4)
    run = compiled(program, Taken())
    run(x).sum().backward()
    own = x.detach().requires_grad_()
    own.sin().cos().sum().backward()
    torch.testing.assert_close(x.grad, own.grad)


def test_some_inputs_want_no_gradient():
    def program(x, y, z):
        return (x * y.exp()).sin() + z.cos(), y.sum()

    never_above(gradients(program, wanted(4, 4), torch.randn(4, 4), torch.randn(4, 4)))


def test_a_parameter_that_is_not_used_has_no_gradient():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x).sin()

    trains_like_eager(Model, torch.randn(2, 4))


def test_empty_tensors_and_scalars():
    def program(x, y):
        return (x.sin() * y).exp(), y.cos() * 2

    never_above(gradients(program, wanted(0, 4), wanted()))


def test_a_duplicate_is_saved_once():
    def program(x, y):
        a, b = x @ y, x @ y
        return (a.sin() * b).sum() + b.cos().sum()

    taken = gradients(program, wanted(8, 8), wanted(8, 8))
    never_above(taken)
    (plan,) = taken.plans()
    assert plan.saved_bytes == 3 * 8 * 8 * 4


def joint_of(program, *inputs):
    taken = Taken(default_partition)
    run = aot_function(program, fw_compiler=compiler, bw_compiler=compiler, partition_fn=taken)
    run(*inputs)
    return taken.joints[0]


def test_what_is_planned_is_said():
    joint, outputs, _ = joint_of(lambda x, w: F.gelu(x @ w).sum(), wanted(4, 8), wanted(8, 16))
    plan = plan_partition(joint, num_fwd_outputs=outputs)
    assert [node.name for node in plan.saved] == ["primals_1", "primals_2", "mm"]
    assert plan.saved_bytes == (4 * 8 + 8 * 16 + 4 * 16) * 4
    plan = plan_partition(joint, num_fwd_outputs=outputs, static=[1])
    assert plan.saved_bytes == (4 * 8 + 4 * 16) * 4
    assert not plan.recomputed and not plan.merged


def test_a_graph_is_only_read():
    joint, outputs, _ = joint_of(lambda x: x.sin().exp().sum(), wanted(4))
    before = str(joint.graph)
    forward, backward = min_cut_partition(joint, None, num_fwd_outputs=outputs)
    assert str(joint.graph) == before
    for own in (forward, backward):
        own.graph.lint()
        assert isinstance(own, torch.fx.GraphModule)
    assert [node.name for node in backward.graph.find_nodes(op="placeholder")] == [
        "primals_1",
        "tangents_1",
    ]


def test_graphs_of_corsac_are_taken_too():
    joint, outputs, _ = joint_of(lambda x: x.sin().exp().sum(), wanted(4))
    own = corsac.fx.convert.from_torch(joint)
    forward, _ = min_cut_partition(own, None, num_fwd_outputs=outputs)
    assert saved_bytes(forward, outputs) == 16


def test_a_graph_without_a_way_back_is_left_to_pytorch():
    graph = torch.fx.symbolic_trace(lambda primals_1: primals_1.sin())
    for node in graph.graph.nodes:
        node.meta["val"] = torch.empty(4)
    graph.graph.output_node().args = ([graph.graph.output_node().args[0]],)
    with pytest.raises(NotParted, match="no way back"):
        plan_partition(graph, num_fwd_outputs=1)


def test_a_memory_budget_is_left_to_pytorch():
    joint, outputs, _ = joint_of(lambda x: x.sin().exp().sum(), wanted(4))
    with torch._functorch.config.patch(activation_memory_budget=0.5):
        with pytest.raises(NotParted, match="settings"):
            plan_partition(joint, num_fwd_outputs=outputs)
        forward, _ = min_cut_partition(joint, None, num_fwd_outputs=outputs)
    assert len(forward.graph.output_node().args[0]) > outputs


def test_everything_that_pytorch_computes_again_may_be_computed_again():
    # Otherwise it could save less.
    missing = []
    for packet in get_default_op_list().recomputable_ops:
        if not isinstance(packet, torch._ops.OpOverloadPacket):
            continue
        for overload in packet.overloads():
            own = getattr(packet, overload)
            if own._schema.is_mutable or torch.Tag.nondeterministic_seeded in own.tags:
                continue
            if own.is_view or _core.computing_again(f"torch.ops.{own}") != "long":
                continue
            missing.append(str(own))
    assert not missing


def test_views_of_the_table_are_pytorchs():
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        own = f"aten.{packet}.{overload or 'default'}"
        if name.startswith("aten::") and _core.is_view(f"torch.ops.{own}"):
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            assert operator.is_view or packet == "_unsafe_view"
            assert [str(result.type) for result in operator._schema.returns] == ["Tensor"]
            found.add(own)
    assert {"aten.t.default", "aten.slice.Tensor", "aten.diagonal.default"} < found
    assert "aten.as_strided.default" not in found


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_option_says_who_takes_graphs_in_two(partition):
    make, batches = MODELS["gpt"]
    torch.manual_seed(1)
    model = make().train()
    other = copy.deepcopy(model)
    x, _ = batches()
    run = corsac.compile(model, options={"partition": partition, "training": "native"})
    same(steps(run, model, [x]), steps(other, other, [x]), rtol=1e-3, atol=1e-5)


def test_an_option_that_there_is_not_is_an_error():
    with pytest.raises(
        ValueError, match="option 'partition' is 'min_cut', 'fewest_bytes', 'default', not 'most'"
    ):
        corsac.compile(nn.Linear(2, 2), options={"partition": "most"})
