"""Training steps of models that corsac captures for the sizes of calls, without Dynamo, against eager's."""

import copy
import random
import threading
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

import corsac
import corsac._compile.compiled_module
from corsac._models.function import module_of


class Plain(nn.Module):
    """The base of the cases: a linear layer before ``between``, and one after."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def between(self, x):
        return torch.tanh(x)

    def forward(self, x):
        return self.last(self.between(self.first(x)))


class Looping(Plain):
    def between(self, x):
        return torch.cat([part.sigmoid() for part in x.split(2, -1)], -1)


class Normalised(Plain):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def between(self, x):
        return self.norm(x).relu()


class Averaging(Plain):
    """A buffer that the program writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(8))

    def between(self, x):
        self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x * (1 + self.average)


class Assigning(Averaging):
    def between(self, x):
        self.average = self.average * 0.9 + x.detach().mean(0)
        return x * (1 + self.average)


class Tied(Plain):
    def __init__(self):
        super().__init__()
        self.back = nn.Linear(8, 6)
        self.back.weight = nn.Parameter(self.first.weight.T.clone())
        self.again = self.last

    def forward(self, x):
        return self.last(self.first(x)) + self.again(self.first(self.back(self.first(x))))


class Detached(Plain):
    def between(self, x):
        return x * x.detach().softmax(-1)


class WithoutGradients(Plain):
    def between(self, x):
        with torch.no_grad():
            factor = x.softmax(-1)
        return x * factor


class _Reversed(torch.autograd.Function):
    """Its forward has no observable calls."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return -grad


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad


class Reversed(Plain):
    def between(self, x):
        return _Reversed.apply(x).tanh()


class Rounded(Plain):
    def between(self, x):
        return _Rounded.apply(x * 4)


class Checkpointed(Plain):
    def between(self, x):
        return checkpoint(lambda own: torch.tanh(own * 2), x, use_reentrant=False)


class ReadingWeights(Plain):
    """A weight's value becomes a number in the program."""

    def between(self, x):
        return x * float(self.first.bias.abs().max()) + self.last.weight.detach().numpy().mean()


class ReadingBuffers(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(1))

    def between(self, x):
        self.scale.add_(1)
        return x * float(self.scale.numpy()[0])


class Deciding(Plain):
    def between(self, x):
        return x.tanh() if x.sum() > 0 else x.sigmoid()


class Hooking(Plain):
    def between(self, x):
        x.register_hook(lambda grad: 2 * grad)
        return x.tanh()


class Asking(Plain):
    def between(self, x):
        return x.tanh() if x.requires_grad else x.sigmoid()


class Spectral(Plain):
    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.spectral_norm(self.first)
        nn.utils.parametrizations.weight_norm(self.last)


class Inside(Plain):
    """A compiled module in a compiled module."""

    def __init__(self):
        super().__init__()
        self.inner = corsac.compile(nn.Sequential(nn.Linear(8, 8), nn.GELU()))

    def between(self, x):
        return self.inner(x)


@dataclass
class _Results:
    scores: torch.Tensor
    kept: dict[str, torch.Tensor]


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = Plain()

    def forward(self, x, *, scale=1.0, other=None):
        scores = self.plain(x) * scale
        if other is not None:
            scores = scores + other.sum()
        return _Results(scores, {"weight": self.plain.first.weight, "x": x})


def losses(results):
    return results.square().mean()


def gradients_of(model):
    return {name: own.grad for name, own in model.named_parameters()}


def assert_alike(ours, eager):
    for one, other in (
        (gradients_of(ours), gradients_of(eager)),
        (_buffers(ours), _buffers(eager)),
    ):
        assert one.keys() == other.keys()
        for name, own in one.items():
            if own is None or other[name] is None:
                assert own is other[name], name
                continue
            torch.testing.assert_close(own, other[name], rtol=1e-4, atol=1e-5, msg=name)


def _buffers(model):
    return dict(model.named_buffers())


def by_dynamo(compiled):
    return bool(module_of(compiled)._pieces)


def captured(compiled):
    return len(module_of(compiled)._trained_graphs())


def train(model, batches, change=lambda model, at: None, **options):
    """Compare steps of ``model`` compiled and uncompiled; return the compiled model."""
    torch._dynamo.reset()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    compiled = corsac.compile(ours, **options)
    optimisers = [torch.optim.SGD(own.parameters(), lr=0.01) for own in (eager, ours)]
    for at, batch in enumerate(batches):
        change(eager, at)
        change(ours, at)
        results = []
        for run, optimiser in zip((eager, compiled), optimisers, strict=True):
            optimiser.zero_grad()
            results.append(run(batch))
            losses(results[-1]).backward()
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
        assert_alike(ours, eager)
        for optimiser in optimisers:
            optimiser.step()
    return compiled


def batches(count=4, rows=5):
    return [torch.randn(rows, 6) for _ in range(count)]


@pytest.mark.parametrize(
    "kind",
    [Plain, Looping, Normalised, Averaging, Assigning, Tied, Detached, WithoutGradients, Spectral],
)
def test_steps_are_captured_without_dynamo(kind):
    torch.manual_seed(0)
    compiled = train(kind().train(), batches(), options={"training": "native"})
    assert captured(compiled) == 1
    assert not by_dynamo(compiled)
    assert "[5, 6], with gradients:" in compiled.explain()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind",
    [
        *(Reversed, Rounded, Checkpointed, ReadingWeights),
        *(ReadingBuffers, Hooking, Asking),
    ],
)
def test_what_a_graph_would_not_do_is_not_captured(kind):
    torch.manual_seed(0)
    compiled = train(kind().train(), batches(5))
    assert captured(compiled) == 0
    # Dynamo cannot capture these three either.
    assert by_dynamo(compiled) == (kind not in (Checkpointed, ReadingWeights, ReadingBuffers))


def test_functions_with_a_backward_of_their_own_are_as_they_were():
    before = torch.autograd.Function.__dict__["apply"]
    torch.manual_seed(0)
    for kind in (Reversed, Plain):
        compiled = corsac.compile(kind().train())
        losses(compiled(torch.randn(5, 6))).backward()
        assert torch.autograd.Function.__dict__["apply"] is before
    x = torch.randn(3, requires_grad=True)
    _Reversed.apply(x).sum().backward()
    assert torch.equal(x.grad, -torch.ones(3))
    assert torch.autograd.Function.__dict__["apply"] is before


def test_compiled_modules_inside():
    torch.manual_seed(0)
    model = Inside().train()
    train(model, batches())
    # The inner one may have had calls of its own.
    model.inner(torch.randn(2, 8)).sum().backward()
    eager, ours = copy.deepcopy(model), model
    compiled = corsac.compile(ours)
    for own in (eager, ours):
        own.zero_grad()
    x = torch.randn(5, 6)
    losses(compiled(x)).backward()
    losses(eager(x)).backward()
    assert_alike(ours, eager)
    assert captured(compiled) == 1


def test_sizes_that_change():
    torch.manual_seed(0)
    compiled = train(Looping().train(), [torch.randn(rows, 6) for rows in (5, 3, 5, 3, 1)])
    assert captured(compiled) == 3
    assert not by_dynamo(compiled)


def test_many_sets_of_sizes_are_left_to_dynamo():
    torch.manual_seed(0)
    limit = corsac._compile.compiled_module.TRAINED
    sizes = [*range(2, limit + 5), 2, 3]
    compiled = train(Looping().train(), [torch.randn(rows, 6) for rows in sizes])
    assert captured(compiled) == limit
    # Sizes are symbols in them.
    assert len(module_of(compiled)._pieces) <= 2
    dynamic = train(Looping().train(), [torch.randn(rows, 6) for rows in (2, 3)], dynamic=True)
    assert captured(dynamic) == 0
    assert len(dynamic._pieces) == 1


def test_parts_that_train_in_turn_have_graphs_of_their_own():
    torch.manual_seed(0)

    def change(model, at):
        model.first.requires_grad_(at % 2 == 0)

    compiled = train(Plain().train(), batches(8), change)
    assert captured(compiled) == 2
    assert not by_dynamo(compiled)


def test_modes_that_change():
    torch.manual_seed(0)

    def change(model, at):
        model.train(at % 3 != 0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        compiled = train(Normalised(), batches(7), change)
    assert captured(compiled) == 2


def test_attributes_that_change_with_each_step():
    torch.manual_seed(0)

    class Annealed(Plain):
        temperature = 1.0

        def between(self, x):
            return (x / self.temperature).tanh()

    def change(model, at):
        model.temperature = 1.0 + at

    compiled = train(Annealed().train(), batches(12), change)
    # Each value has its own graph; after a few, PyTorch runs the steps.
    assert captured(compiled) <= 4
    assert not by_dynamo(compiled)


@pytest.mark.parametrize("at_step", [0, 2])
@pytest.mark.parametrize("kind", ["forward", "full_backward", "full_backward_pre"])
def test_hooks_of_modules(kind, at_step):
    torch.manual_seed(0)

    def hook(module, *values):
        # Backward hooks: the gradients of inputs or of results.
        return values[1] * 2 if kind == "forward" else (values[0][0] * 3,)

    def change(model, at):
        if at == at_step:
            getattr(model.last, f"register_{kind}_hook")(hook)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = train(Plain().train(), batches(4), change)
    # Forward hooks are recorded like anything else.
    expected = 1 + (at_step > 0) if kind == "forward" else int(at_step > 0)
    assert captured(compiled) == expected


def test_hooks_of_parameters():
    torch.manual_seed(0)
    model = Plain().train()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    compiled = corsac.compile(ours)
    seen = []
    for own in (eager, ours):
        own.first.weight.register_hook(lambda grad: grad * 2)
        own.last.weight.register_post_accumulate_grad_hook(
            lambda own: seen.append(own.grad.clone())
        )
    x = torch.randn(5, 6)
    losses(eager(x)).backward()
    losses(compiled(x)).backward()
    assert_alike(ours, eager)
    torch.testing.assert_close(seen[0], seen[1])
    assert captured(compiled) == 1


def test_weights_that_are_replaced_and_resized():
    torch.manual_seed(0)

    def change(model, at):
        generator = torch.Generator().manual_seed(at)
        if at == 1:
            own = {
                name: torch.randn(it.shape, generator=generator)
                for name, it in model.state_dict().items()
            }
            model.load_state_dict(own, assign=True)
        elif at == 2:
            # In place: the graph may stay.
            model.load_state_dict({name: it * 0.5 for name, it in model.state_dict().items()})
        elif at == 3:
            model.last.weight.data = torch.randn(5, 8, generator=generator)
            model.last.bias = nn.Parameter(torch.randn(5, generator=generator))

    torch._dynamo.reset()
    eager, ours = Plain().train(), None
    ours = copy.deepcopy(eager)
    compiled = corsac.compile(ours)
    for at in range(5):
        change(eager, at)
        change(ours, at)
        x = torch.randn(5, 6)
        for own in (eager, ours):
            own.zero_grad()
        losses(eager(x)).backward()
        losses(compiled(x)).backward()
        assert_alike(ours, eager)
    # Programs for freed weights are dropped; one of the remaining weights has another size now.
    assert captured(compiled) == 2
    assert not by_dynamo(compiled)


def test_inputs_that_want_gradients_and_lie_in_other_ways():
    torch.manual_seed(0)
    model = Plain().train()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    compiled = corsac.compile(ours)
    wide = torch.randn(6, 10)
    for make in (
        lambda: wide[:, :6].clone(),
        lambda: wide[:, :6].clone().requires_grad_(),
        lambda: wide[:, 2:8].detach().requires_grad_(),
        lambda: wide[:6, :6].T.detach().requires_grad_(),
        lambda: wide[:1, :6].expand(6, 6).detach(),
    ):
        x, y = make(), make()
        losses(eager(x)).backward()
        losses(compiled(y)).backward()
        assert_alike(ours, eager)
        assert (x.grad is None) == (y.grad is None)
        if x.grad is not None:
            torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=1e-5)
    assert not by_dynamo(compiled)


def test_results_of_any_form_and_keywords():
    torch.manual_seed(0)
    model = Structured().train()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    compiled = corsac.compile(ours)
    x, other = torch.randn(5, 6), torch.randn(2, requires_grad=True)
    for keywords in ({}, {"scale": 2.0}, {"other": other}, {"scale": 2.0}):
        one, two = eager(x, **keywords), compiled(x, **keywords)
        torch.testing.assert_close(two.scores, one.scores)
        assert type(two) is _Results
        assert torch.equal(two.kept["weight"], ours.plain.first.weight)
        assert torch.equal(two.kept["x"], x)
        (one.scores.sum() + one.kept["weight"].sum()).backward()
        (two.scores.sum() + two.kept["weight"].sum()).backward()
        assert_alike(ours, eager)
    assert captured(compiled) == 3
    assert not by_dynamo(compiled)


def test_one_tensor_twice():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))

        def forward(self, a, b):
            return a * self.weight if a is b else a + b * self.weight

    model = Two()
    compiled = corsac.compile(model)
    a, b = torch.randn(4, requires_grad=True), torch.randn(4)
    for pair in ((a, b), (a, a), (b, b), (b, a)):
        expected = torch.autograd.grad(model(*pair).sum(), [model.weight])
        found = torch.autograd.grad(compiled(*pair).sum(), [model.weight])
        torch.testing.assert_close(found, expected)
    assert not by_dynamo(compiled)


def test_dropout_draws_anew_in_each_step():
    torch.manual_seed(0)
    compiled = corsac.compile(nn.Sequential(nn.Dropout(0.25), nn.Linear(1, 1, bias=False)).train())
    x = torch.ones(20_000, 1, requires_grad=True)
    kept = []
    for _ in range(3):
        x.grad = None
        result = compiled(x)
        result.sum().backward()
        weight = compiled.state_dict()["1.weight"].item()
        # Elements dropped in the forward pass have no gradient, and the others are scaled up.
        torch.testing.assert_close(x.grad, result.detach() * weight / weight)
        kept.append(result.detach() != 0)
        assert 0.73 < kept[-1].float().mean() < 0.77
        torch.testing.assert_close(result.detach().abs().max().item(), abs(weight) / 0.75)
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[1], kept[2])
    assert captured(compiled) == 1
    # A seed gives the same numbers again.
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        runs.append(compiled(x).detach())
    assert torch.equal(*runs)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + torch.rand(x.shape),
        lambda x: x + torch.randn_like(x),
        lambda x: x * torch.empty(x.shape[0], 1).bernoulli_(0.5),
        lambda x: x[torch.randperm(x.shape[0])],
        lambda x: F.dropout2d(x[None, :, :, None], 0.5)[0, :, :, 0],
    ],
)
def test_random_numbers_differ_between_steps(draw):
    class Drawing(Plain):
        def between(self, x):
            return draw(x)

    torch.manual_seed(0)
    compiled = corsac.compile(Drawing().train())
    x = torch.randn(64, 6)
    found = [compiled(x).detach() for _ in range(3)]
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])
    assert captured(compiled) == 1


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_of_python_are_drawn_in_each_step(draw):
    class Drawing(Plain):
        def between(self, x):
            return x * float(draw())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = corsac.compile(Drawing().train())
        x = torch.randn(4, 6)
        found = [compiled(x).detach() for _ in range(3)]
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])
    assert captured(compiled) == 0


def test_parameters_outside_the_model():
    torch.manual_seed(0)
    outside = nn.Parameter(torch.randn(6))

    def program(x):
        return (x * outside).tanh()

    compiled = corsac.compile(program)
    x = torch.randn(3, 6, requires_grad=True)
    compiled(x).sum().backward()
    found = outside.grad.clone(), x.grad.clone()
    outside.grad = x.grad = None
    program(x).sum().backward()
    torch.testing.assert_close(found, (outside.grad, x.grad))


def test_calls_before_one_way_back_and_ways_back_after_one_call():
    torch.manual_seed(0)
    model = Normalised().train()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    compiled = corsac.compile(ours)
    one, two = torch.randn(5, 6), torch.randn(5, 6)
    for run in (eager, compiled):
        (losses(run(one)) + losses(run(two))).backward()
        loss = losses(run(one))
        loss.backward(retain_graph=True)
        loss.backward()
    assert_alike(ours, eager)


def test_threads_that_train():
    torch.manual_seed(0)
    model = Looping().train()
    compiled = corsac.compile(copy.deepcopy(model))
    inputs = [torch.randn(5 + number % 2, 6, requires_grad=True) for number in range(8)]
    expected = [torch.autograd.grad(losses(model(x)), [x])[0] for x in inputs]
    found = {}

    def run(number):
        for _ in range(5):
            found[number] = torch.autograd.grad(losses(compiled(inputs[number])), [inputs[number]])[
                0
            ]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, own in enumerate(expected):
        torch.testing.assert_close(found[number], own, rtol=1e-4, atol=1e-5)
    assert captured(compiled) == 2


def test_results_and_gradients_take_turns():
    torch.manual_seed(0)
    model = Normalised()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    compiled = corsac.compile(ours)
    for _ in range(3):
        x = torch.randn(5, 6)
        for own, run in ((eager, eager), (ours, compiled)):
            own.train()
            own.zero_grad()
            losses(run(x)).backward()
            with torch.no_grad():
                for weight in own.parameters():
                    weight -= 0.01 * weight.grad
        assert_alike(ours, eager)
        eager.eval()
        ours.eval()
        with torch.inference_mode():
            torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-5)
    assert captured(compiled) == 1


def test_the_whole_graph_without_dynamo():
    torch.manual_seed(0)
    compiled = train(Looping().train(), batches(2), fullgraph=True)
    assert captured(compiled) == 1
    torch._dynamo.reset()
    deciding = corsac.compile(Deciding().train(), fullgraph=True)
    deciding(torch.randn(5, 6))
    with pytest.raises(torch._dynamo.exc.Unsupported):
        deciding(torch.randn(5, 6))


def test_copies_have_graphs_of_their_own():
    torch.manual_seed(0)
    compiled = corsac.compile(Plain().train())
    x = torch.randn(5, 6)
    losses(compiled(x)).backward()
    other = copy.deepcopy(compiled)
    assert captured(other) == 0
    other.zero_grad()
    losses(other(x)).backward()
    assert_alike(other, compiled)


def test_containers_of_results_are_pythons_own():
    compiled = corsac.compile(lambda x: [x * 2, {"more": [x + 1]}])
    x = torch.randn(3, requires_grad=True)
    for _ in range(3):
        result = compiled(x)
        result.append(result[1]["more"])
        assert type(result) is list and type(result[1]) is dict and type(result[2]) is list
    assert "with gradients" in compiled.explain()
