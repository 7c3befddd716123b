"""Training in bfloat16 and float16, and under autocast: gradients are as near to those in float64 as eager's."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import corsac
from corsac._training import _widening

HALVES = (torch.bfloat16, torch.float16)
#: Errors (norms, of the norm of the true tensor) may be so many times eager's, and at least as large as one rounding.
TIMES, FLOOR = 2.0, {torch.bfloat16: 2**-8, torch.float16: 2**-11}

pytestmark = pytest.mark.usefixtures("native_or_error")


class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        joint = self.joint(self.first(x)).unflatten(-1, (3, self.heads, -1))
        mixed = F.scaled_dot_product_attention(*joint.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Words(nn.Module):
    """An embedding, two blocks of a transformer, and a head that has the weight of the embedding."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 32)
        self.blocks = nn.Sequential(*(Block() for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 40, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x))))


class Images(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.Conv2d(8, 16, 3, 1, 1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 5),
        )


def rows():
    layers = [nn.Linear(20, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(32, 5)), torch.randn(16, 20), torch.randint(5, (16,))


def words():
    return Words(), torch.randint(40, (3, 12)), torch.randint(40, (36,))


def images():
    return Images(), torch.randn(4, 3, 16, 16), torch.randint(5, (4,))


MODELS = {"rows": rows, "words": words, "images": images}


def in_autocast(dtype):
    return torch.autocast("cpu", dtype, enabled=dtype is not None)


def step(run, model, x, labels, dtype=None):
    """The results and the gradients of a step, in autocast to ``dtype``."""
    model.zero_grad()
    with in_autocast(dtype):
        results = run(x)
    F.cross_entropy(results.flatten(0, -2).to(next(model.parameters()).dtype), labels).backward()
    return results, [own.grad for own in model.parameters()]


def exact(model, x, labels):
    own = copy.deepcopy(model).double()
    return step(own, own, x.double() if x.is_floating_point() else x, labels)


def as_near_as(expected, found, true, half):
    """Whether a tensor is as near to the true one as the expected one, with its type and size."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.stride() == expected.stride()
    own, its = ((each.double() - true).norm() / true.norm() for each in (found, expected))
    assert own <= max(TIMES * its, FLOOR[half]), (own, its)


def all_as_near(expected, found, true, half):
    as_near_as(expected[0], found[0], true[0], half)
    for own, its, exact in zip(found[1], expected[1], true[1], strict=True):
        as_near_as(its, own, exact, half)


def native_calls(compiled):
    return [graph.native for piece in compiled._trained_graphs() for graph in piece.graphs]


def native(model):
    return corsac.compile(model, options={"training": "native"})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("how", ["autocast", "parameters"])
def test_gradients_are_as_near_as_eager_s(name, half, how):
    model, x, labels = MODELS[name]()
    dtype = half if how == "autocast" else None
    if dtype is None:
        model.to(half)
        x = x.to(half) if x.is_floating_point() else x
    other, true = copy.deepcopy(model), exact(model, x, labels)
    compiled = native(model)
    for _ in range(3):
        found, expected = (
            step(run, own, x, labels, dtype) for run, own in ((compiled, model), (other, other))
        )
        all_as_near(expected, found, true, half)
    forward, backward = native_calls(compiled)
    assert forward > 5 and backward > 5
    for own, its in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(own, its)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_measured_steps_have_the_same_gradients(half):
    model, x, labels = rows()
    other, true = copy.deepcopy(model), exact(model, x, labels)
    compiled = corsac.compile(model)
    for _ in range(12):
        found, expected = (
            step(run, own, x, labels, half) for run, own in ((compiled, model), (other, other))
        )
        all_as_near(expected, found, true, half)


def test_a_state_that_changes_between_calls():
    model, x, labels = rows()
    other, true = copy.deepcopy(model), exact(model, x, labels)
    compiled = native(model)
    for dtype in (None, torch.bfloat16, None, torch.float16, torch.bfloat16) * 3:
        found, expected = (
            step(run, own, x, labels, dtype) for run, own in ((compiled, model), (other, other))
        )
        assert found[0].dtype == (dtype or torch.float32)
        if dtype is None:
            torch.testing.assert_close(found, expected)
        else:
            all_as_near(expected, found, true, dtype)


@pytest.mark.parametrize("there", [None, *HALVES], ids=str)
@pytest.mark.parametrize("back", [None, *HALVES], ids=str)
def test_a_state_that_changes_between_forward_and_backward(there, back):
    """What a graph computes backward does not depend on autocast then; eager's products do."""
    model, x, labels = words()
    true = exact(model, x, labels)[1]
    compiled, gradients = native(model), []
    for state in (there, back) * 2:
        model.zero_grad()
        with in_autocast(there):
            results = compiled(x).float()
        loss = F.cross_entropy(results.flatten(0, 1), labels)
        with in_autocast(state):
            loss.backward()
        gradients.append([own.grad for own in model.parameters()])
    for own in gradients[2:]:
        for found, its, at in zip(own, gradients[3], true, strict=True):
            assert torch.equal(found, its) and found.dtype == torch.float32
            error = (found.double() - at).abs().max() / at.abs().max()
            assert error < (1e-5 if there is None else 0.05)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_scaled_gradients(half):
    model, x, labels = rows()
    other = copy.deepcopy(model)
    compiled = native(model)
    seen = []
    for run, own in ((compiled, model), (other, other)):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2)
        optimiser = torch.optim.SGD(own.parameters(), lr=0.05)
        scales = []
        for number in range(6):
            optimiser.zero_grad()
            with in_autocast(half):
                loss = F.cross_entropy(run(x).float(), labels)
            # Once gradients are infinite, the step is left out, and the scale halved.
            scaler.scale(loss * (float("inf") if number == 3 else 1.0)).backward()
            scaler.step(optimiser)
            scaler.update()
            scales.append(scaler.get_scale())
        seen.append((scales, loss.item()))
    assert seen[0][0] == seen[1][0] and seen[0][0][3] < seen[0][0][2]
    assert seen[0][1] == pytest.approx(seen[1][1], rel=4 * FLOOR[half])
    for own, its in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(own, its, rtol=0, atol=0.05 * FLOOR[half] * 6 * 4)


class Regions(nn.Module):
    """Enters autocast, and leaves it again for a part."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 5)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = F.gelu(self.first(x))
            with torch.autocast("cpu", enabled=False):
                y = self.second(y.float()).sin()
            return self.last(y)


@pytest.mark.parametrize("around", [None, *HALVES], ids=str)
def test_programs_that_enter_and_leave_autocast(around):
    model, x, labels = Regions(), torch.randn(16, 20), torch.randint(5, (16,))
    other, true = copy.deepcopy(model), exact(Plain(model), x, labels)
    compiled = native(model)
    for _ in range(3):
        found, expected = (
            step(run, own, x, labels, around) for run, own in ((compiled, model), (other, other))
        )
        assert found[0].dtype is torch.bfloat16
        all_as_near(expected, found, true, torch.bfloat16)
    assert min(native_calls(compiled)) > 3


class Plain(nn.Module):
    """The same without autocast."""

    def __init__(self, of):
        super().__init__()
        self.first, self.second, self.last = of.first, of.second, of.last

    def forward(self, x):
        return self.last(self.second(F.gelu(self.first(x))).sin())


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_graphs_of_dynamo(half):
    model, x, labels = rows()
    other, true = copy.deepcopy(model), exact(model, x, labels)
    compiled = torch.compile(model, backend="corsac", options={"training": "native"})
    for dtype in (half, half, None, half, None):
        found, expected = (
            step(run, own, x, labels, dtype) for run, own in ((compiled, model), (other, other))
        )
        if dtype is None:
            torch.testing.assert_close(found, expected)
        else:
            all_as_near(expected, found, true, half)


FUNCTIONS = {
    "threshold": lambda h: F.relu(h),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu of tanh": lambda h: F.gelu(h, approximate="tanh"),
    "leaky": lambda h: F.leaky_relu(h, 0.2),
    "hardtanh": lambda h: F.hardtanh(h, -0.5, 0.7),
    "softmax": lambda h: F.softmax(h, -1),
    "log softmax": lambda h: F.log_softmax(h, 0),
    "select": lambda h: h[:, 3],
    "slice": lambda h: h[1::2, :-1],
    "sum": lambda h: h.sum(0, keepdim=True) * h,
    "mean": lambda h: h.float().mean(1, keepdim=True) + h,
    "norm": lambda h: F.layer_norm(h, (8,)),
    "division": lambda h: h / (h.square() + 1),
    "wider": lambda h: h.float().exp() * h,
    "branch": lambda h: torch.where(h > 0, h, h * h),
    "max": lambda h: torch.maximum(h, h.flip(0)).cumsum(1),
}


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, half):
    function, weight = FUNCTIONS[name], torch.randn(6, 8)

    def loss(own, x):
        return (function(own * x).to(own.dtype) * 2).sin()

    x = torch.randn(6, 8).to(half)
    true = weight.to(half).double().requires_grad_()
    loss(true, x.double()).sum().backward()
    compiled = corsac.compile(loss, options={"training": "native"})
    own, its = (weight.to(half).requires_grad_() for _ in range(2))
    for _ in range(2):
        own.grad = its.grad = None
        compiled(own, x).sum().backward()
        loss(its, x).sum().backward()
        as_near_as(its.grad, own.grad, true.grad, half)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_norms_with_weights_of_another_type(half):
    """PyTorch takes weights of float32 with inputs of 16 bits, outside autocast."""

    class Norm(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.sin()).cos()

    norm, x = Norm(24), torch.randn(5, 24).to(half)
    nn.init.normal_(norm.weight)

    def gradients(run, model, x):
        model.zero_grad()
        own = x.clone().requires_grad_()
        run(own).sum().backward()
        return own.grad, model.weight.grad, model.bias.grad

    wide = copy.deepcopy(norm).double()
    true = gradients(wide, wide, x.double())
    compiled = native(norm)
    for _ in range(2):
        found, expected = (gradients(run, norm, x) for run in (compiled, norm))
        for own, its, at in zip(found, expected, true, strict=True):
            as_near_as(its, own, at, half)


@pytest.mark.parametrize("name", ["words", "images"])
def test_operators_without_kernels_are_computed_in_float32(name, monkeypatch):
    first, x, labels = MODELS[name]()
    true, native_before = exact(first, x, labels), 0
    for is_slow in (False, True):
        monkeypatch.setattr(
            _widening, "_is_slow", lambda own, is_slow=is_slow: is_slow and own is torch.bfloat16
        )
        model, other = copy.deepcopy(first), copy.deepcopy(first)
        compiled = native(model)
        for _ in range(2):
            expected = step(other, other, x, labels, torch.bfloat16)
            found = step(compiled, model, x, labels, torch.bfloat16)
            all_as_near(expected, found, true, torch.bfloat16)
        # Conversions around them.
        assert sum(native_calls(compiled)) > native_before
        native_before = sum(native_calls(compiled))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_gradients_of_widened_convolutions_keep_their_strides(half):
    """Also where PyTorch computes them in float32, with gradients of other strides."""
    model = nn.Sequential(nn.Conv3d(4, 6, 2), nn.SiLU()).to(half)
    model.to(memory_format=torch.channels_last_3d)
    x = torch.randn(2, 4, 3, 4, 5).to(half, memory_format=torch.channels_last_3d)
    other, compiled = copy.deepcopy(model), native(model)
    own, its = (x.detach().clone().requires_grad_() for _ in range(2))
    for _ in range(2):
        own.grad = its.grad = None
        compiled(own).sum().backward()
        other(its).sum().backward()
        assert own.grad.stride() == its.grad.stride()
        torch.testing.assert_close(own.grad, its.grad, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_softmax_to_another_type(half):
    """Results are rounded to the type that is named, also where nothing that is read is of 16 bits."""

    def rounded(x):
        return torch.ops.aten._safe_softmax(x.sin(), -1, half).tanh()

    compiled = corsac.compile(rounded, options={"training": "native"})
    x = torch.randn(6, 8)
    own, its = (x.clone().requires_grad_() for _ in range(2))
    for _ in range(2):
        own.grad = its.grad = None
        found, expected = compiled(own), rounded(its)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(own.grad, its.grad, rtol=0, atol=2 * FLOOR[half])
