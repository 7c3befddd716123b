"""Training of convolutional networks: batch norms, pools and convolutions have eager's gradients and statistics."""

import copy
import random

import pytest
import torch
from torch import nn

import corsac

pytestmark = pytest.mark.usefixtures("native_or_error")


def _steps(model, run, inputs, count=2):
    """Results and gradients of some steps, and the state after them."""
    found = []
    for number in range(count):
        model.zero_grad()
        own = [x.detach().clone(memory_format=torch.preserve_format) for x in inputs]
        own = [x.mul_(1 + number).requires_grad_() for x in own]
        result = run(*own)
        # Gradients that are not contiguous.
        weights = torch.arange(result.numel()).sin().to(result.dtype)
        (result.flatten() * weights.flip(0)).sum().backward()
        found += [result.detach(), *(x.grad for x in own)]
        found += [p.grad for p in model.parameters()]
    return found, [buffer.clone() for buffer in model.buffers()]


def _assert_like_eager(model, *inputs, rtol=2e-5, floor=1e-5):
    own = copy.deepcopy(model)
    fast = corsac.compile(own, options={"training": "native"})
    found, state = _steps(own, fast, inputs)
    expected, expected_state = _steps(model, model, inputs)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=rtol * float(b.abs().max()) + floor)
    for a, b in zip(state, expected_state, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    return fast.explain()


SHAPES = [
    (3, 5, 7, 3),
    (1, 3, 5, 4),
    (4, 17, 2, 2),
    (2, 16, 16, 17),
    (8, 6),
    (4, 6, 9),
    (2, 3, 2, 3, 4),
]
KINDS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.3, "eps": 1e-3}, {"affine": False}, {"track_running_stats": False}],
    ids=str,
)
def test_batch_norms(shape, options):
    norm = KINDS[len(shape)](shape[1], **options)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_()
    report = _assert_like_eager(nn.Sequential(norm, nn.Tanh()), 2 * torch.randn(shape) + 1)
    assert "forward: 2 of 2 calls native" in report or "forward: 3 of 3 calls native" in report
    assert "backward: 2 of 2 calls native" in report


def test_batch_norm_of_channels_last():
    x = torch.randn(3, 6, 5, 4).contiguous(memory_format=torch.channels_last)
    report = _assert_like_eager(nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()), x)
    assert "PyTorch runs" not in report


def test_batch_norm_with_a_cumulative_average():
    _assert_like_eager(
        nn.Sequential(nn.BatchNorm2d(3, momentum=None), nn.ReLU()), torch.randn(4, 3, 5, 5)
    )


def test_batch_norm_with_a_large_mean():
    """The variance is that of differences from the mean: of squares, nothing would be left."""
    x = torch.randn(8, 4, 6, 6) + 1000
    _assert_like_eager(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()), x, rtol=2e-3)


def test_norm_in_evaluation_inside_a_model_in_training():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4))
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    model[1].eval()
    before = model[1].running_mean.clone()
    _assert_like_eager(model, torch.randn(2, 3, 8, 8))
    assert torch.equal(model[1].running_mean, before)
    assert int(model[1].num_batches_tracked) == 0 and int(model[3].num_batches_tracked) == 2


def test_one_value_for_each_channel_is_an_error():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU())
    fast = corsac.compile(model, options={"training": "native"})
    for _ in range(2):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            fast(torch.randn(1, 3, 1, 1, requires_grad=True))
    assert int(model[0].num_batches_tracked) in (0, 2)


def test_norms_of_float64_are_in_double_precision():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()).double()
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    _assert_like_eager(model, x, rtol=1e-12, floor=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions(seed):
    chance = random.Random(seed)
    groups = chance.choice([1, 1, 2, 4])
    inputs, outputs = groups * chance.randint(1, 9), groups * chance.randint(1, 9)
    if seed % 4 == 3:
        inputs = outputs = groups = chance.randint(2, 20)
    options = {
        "kernel_size": (chance.randint(1, 3), chance.randint(1, 3)),
        "stride": (chance.randint(1, 2), chance.randint(1, 3)),
        "padding": (chance.randint(0, 2), chance.randint(0, 2)),
        "dilation": (chance.randint(1, 2), chance.randint(1, 2)),
        "groups": groups,
        "bias": chance.random() < 0.5,
    }
    model = nn.Sequential(nn.Conv2d(inputs, outputs, **options), nn.BatchNorm2d(outputs), nn.ReLU())
    x = torch.randn(chance.randint(1, 3), inputs, chance.randint(5, 9), chance.randint(5, 9))
    if chance.random() < 0.3:
        x = x.contiguous(memory_format=torch.channels_last)
    _assert_like_eager(model, x, rtol=1e-4)


def test_convolutions_are_parts_by_themselves():
    """The calls around a convolution that is faster by PyTorch stay native."""
    model = nn.Sequential(nn.Tanh(), nn.Conv2d(3, 4, 3, padding=1), nn.Sigmoid(), nn.Tanh())
    report = _assert_like_eager(model, torch.randn(2, 3, 8, 8))
    assert "forward: 4 of 4 calls native, in 3 parts" in report


class Windows(nn.Module):
    """Overlapping windows of what a convolution gives, by their strides."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)

    def forward(self, x):
        y = self.conv(x)
        return y.as_strided((2, 2, 3, 4), (y.stride(0), y.stride(1), 1, 1)).tanh()


def test_strided_views_of_convolutions():
    report = _assert_like_eager(Windows(), torch.randn(2, 1, 8, 8))
    assert "it is a part by itself" not in report and "as_strided" in report


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 2, 2), (2, 3, 0, 2)], ids=str)
def test_batch_norm_without_elements(shape):
    """PyTorch's statistics are not numbers then, and its gradients zeros."""
    model = nn.Sequential(KINDS[len(shape)](3), nn.Tanh())
    other, fast = copy.deepcopy(model), corsac.compile(model, options={"training": "native"})
    for _ in range(2):
        results = []
        for run in (fast, other):
            x = torch.randn(shape, requires_grad=True)
            try:
                found = run(x)
                found.sum().backward()
            except ValueError as error:
                results.append(str(error))
                continue
            results.append((found.detach(), x.grad))
        torch.testing.assert_close(*results)
    for own, its in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(own.grad, its.grad)
    for own, its in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(own, its, equal_nan=True)


class Channels(nn.Module):
    """Chains with numbers for channels, and conditions that are numbers."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.offset = nn.Parameter(torch.randn(channels, 1, 1))
        self.register_buffer("on", torch.tensor([1]))

    def forward(self, x):
        y = x / self.scale + self.offset.tanh()
        y = torch.where(self.on != 0, y.clamp(-1, 1), x)
        return torch.where(y > self.offset, y * y, 0.25) + torch.where(y == 0.5, 1.0, y)


@pytest.mark.parametrize("size", [(2, 2), (3, 11), (16, 16), (32, 16), (37, 41), (64, 80)])
@pytest.mark.parametrize("on", [0, 1])
def test_numbers_for_channels(size, on):
    model = Channels(6)
    model.on.fill_(on)
    _assert_like_eager(model, torch.randn(2, 6, *size), rtol=1e-4)


def test_sums_over_planes_and_batch():
    def sums(x):
        return (
            x.sum([0, 2, 3]),
            x.mean([0, 2]),
            x.amax([0, 3]),
            x.amin([0, 2, 3], keepdim=True),
            x.sum(1),
        )

    fast = corsac.compile(sums, options={"inference": "native"})
    for shape in [(3, 5, 6, 7), (1, 4, 8, 8), (2, 3, 1, 1), (7, 2, 5, 1)]:
        x = torch.randn(shape)
        with torch.inference_mode():
            fast(x)
            for a, b in zip(fast(x), sums(x), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-5)


def test_threads_give_the_same_bits():
    model = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(16))
    x = torch.randn(8, 16, 34, 34)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            own = copy.deepcopy(model)
            fast = corsac.compile(own, options={"training": "native"})
            found, state = _steps(own, fast, [x], count=1)
            results.append([*found, *state])
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, *results))


def test_pooled_means_of_a_network():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.BatchNorm2d(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    _assert_like_eager(model, torch.randn(4, 3, 17, 15), rtol=1e-4)
