"""Compiled steps of quantisation-aware training with observers of each kind, against eager ones."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.ao.quantization
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize

import corsac
import corsac.quantization as ours
from corsac.quantization import (
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from corsac.quantization.quantize_fx import convert_fx, prepare_qat_fx
from kit import row

pytestmark = pytest.mark.filterwarnings("ignore")


def per_channel(package, observer, kind="FakeQuantize"):
    return getattr(package, kind).with_args(
        observer=getattr(package, observer),
        dtype=torch.qint8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )


def of_values(package, observer):
    return package.FakeQuantize.with_args(
        observer=getattr(package, observer), dtype=torch.quint8, quant_min=0, quant_max=255
    )


def learnable(package):
    return _LearnableFakeQuantize.with_args(
        observer=package.MovingAverageMinMaxObserver,
        dtype=torch.quint8,
        quant_min=0,
        quant_max=255,
        use_grad_scaling=True,
    )


FIXED = "default_fixed_qparams_range_neg1to1_fake_quant"
FUSED = "FusedMovingAvgObsFakeQuantize"
OBSERVERS = {
    "smallest and largest": lambda k: (
        of_values(k, "MinMaxObserver"),
        per_channel(k, "PerChannelMinMaxObserver"),
    ),
    "moving averages": lambda k: (
        of_values(k, "MovingAverageMinMaxObserver"),
        per_channel(k, "MovingAveragePerChannelMinMaxObserver"),
    ),
    "histograms": lambda k: (
        of_values(k, "HistogramObserver"),
        per_channel(k, "PerChannelMinMaxObserver"),
    ),
    "fixed": lambda k: (getattr(k, FIXED), per_channel(k, "PerChannelMinMaxObserver")),
    "learnable": lambda k: (learnable(k), per_channel(k, "PerChannelMinMaxObserver")),
    "fused values": lambda k: (
        k.default_fused_act_fake_quant,
        per_channel(k, "PerChannelMinMaxObserver"),
    ),
    "fused weights": lambda k: (
        of_values(k, "MinMaxObserver"),
        per_channel(k, "MovingAveragePerChannelMinMaxObserver", FUSED),
    ),
}


RECORDED = ["smallest and largest", "moving averages", "fixed", "fused values", "fused weights"]


def prepared(activation, weight):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 4))
    x = torch.randn(8, 3, 8, 8)
    mapping = ours.QConfigMapping().set_global(ours.QConfig(activation, weight))
    return prepare_qat_fx(model.train(), mapping, (x,)), x


def step(model, run, x, rate=0.05):
    for parameter in model.parameters():
        parameter.grad = None
    loss = F.cross_entropy(run(x), torch.arange(len(x)) % 4)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad
    return loss.detach()


def assert_eager_steps(eager, x, training, changes, equal, steps=7):
    """Losses, gradients, ranges and scales of compiled and eager steps, with ``changes`` of modules by step; the
    compiled model."""
    own = copy.deepcopy(eager)
    compiled = corsac.compile(own, options={"training": training})
    for number in range(steps):
        for one in (eager, own):
            one.apply(changes.get(number, lambda _: None))
        batch = x * (1 + number % 4)
        equal(step(own, compiled, batch), step(eager, eager, batch))
        for left, right in zip(own.parameters(), eager.parameters(), strict=True):
            assert (left.grad is None) == (right.grad is None)
            if left.grad is not None:
                equal(left.grad, right.grad)
        found = own.state_dict()
        for key, value in eager.state_dict().items():
            equal(found[key], value)
    return compiled


def same(found, expected):
    assert found.shape == expected.shape
    assert torch.equal(found, expected)


def close(found, expected):
    # Sums in another order move a few values to the neighbouring level.
    assert found.shape == expected.shape
    if expected.is_floating_point():
        assert (found - expected).norm() <= 0.3 * expected.norm() + 1e-3


SWITCHES = {3: disable_observer, 4: disable_fake_quant, 5: enable_observer, 6: enable_fake_quant}


@pytest.mark.parametrize(
    "package",
    [ours, pytest.param(torch.ao.quantization, marks=pytest.mark.slow)],
    ids=["ours", "theirs"],
)
@pytest.mark.parametrize("name", OBSERVERS)
def test_steps_are_eager_ones(name, package):
    """To the last bit, as far as PyTorch runs the graphs, with observers and rounding switched off and on."""
    eager, x = prepared(*OBSERVERS[name](package))
    report = assert_eager_steps(eager, x, "host", SWITCHES, same).explain()
    assert ("with gradients" in report) == (package is ours and name in RECORDED)


@pytest.mark.parametrize("name", RECORDED[:3])
def test_native_steps(name):
    eager, x = prepared(*OBSERVERS[name](ours))
    compiled = assert_eager_steps(eager, x, "native", SWITCHES, close)
    report = compiled.explain()
    assert "forward:" in report and "backward:" in report and "corsac.fake_quantize" not in report


def first(switch):
    return {0: switch, 3: enable_observer, 4: enable_fake_quant}


def reset(module):
    if hasattr(module, "reset_min_max_vals"):
        module.reset_min_max_vals()


@pytest.mark.parametrize(
    ("name", "changes"),
    [("smallest and largest", {3: reset}), ("moving averages", first(disable_fake_quant))],
)
def test_ranges_begin_as_in_eager_steps(name, changes):
    eager, x = prepared(*OBSERVERS[name](ours))
    compiled = assert_eager_steps(eager, x, "host", changes, same, steps=4)
    assert "with gradients" in compiled.explain()


def test_observers_that_are_off_at_first_are_left_to_pytorch():
    eager, x = prepared(*OBSERVERS["smallest and largest"](ours))

    def off(module):
        disable_observer(module)
        disable_fake_quant(module)

    compiled = assert_eager_steps(eager, x, "host", first(off), same, steps=4)
    assert "observers that cannot be recorded" in compiled.explain()


@pytest.mark.parametrize("observer", ["NoopObserver", "PlaceholderObserver"])
def test_observers_without_ranges(observer):
    values = getattr(ours, observer).with_args(dtype=torch.float16)
    eager, x = prepared(values, per_channel(ours, "PerChannelMinMaxObserver"))
    compiled = assert_eager_steps(eager, x, "host", SWITCHES, same, steps=4)
    assert "with gradients" in compiled.explain()


@pytest.mark.parametrize("scheme", [torch.per_tensor_affine, torch.per_tensor_symmetric])
@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8])
def test_schemes_and_limits(scheme, dtype):
    low, high = (0, 127) if dtype == torch.quint8 else (-8, 7)
    values = ours.FakeQuantize.with_args(
        observer=ours.MinMaxObserver, dtype=dtype, quant_min=low, quant_max=high, qscheme=scheme
    )
    eager, x = prepared(values, ours.default_weight_fake_quant)
    for training, equal in (("host", same), ("native", close)):
        assert_eager_steps(copy.deepcopy(eager), x, training, {}, equal, steps=3)


def test_extremes_of_native_steps_are_pytorchs():
    """Of the input and of weights, whose values are known to the last bit, while they grow and shrink."""
    eager, x = prepared(*OBSERVERS["smallest and largest"](ours))
    own = copy.deepcopy(eager)
    compiled = corsac.compile(own, options={"training": "native"})
    for number in range(6):
        with torch.no_grad():
            for one in (eager, own):
                one.get_submodule("5").weight.mul_(1.5 if number % 2 else 0.5)
                one.get_submodule("5").weight[number] = 1e-9 * number
        for one, run in ((own, compiled), (eager, eager)):
            step(one, run, x * (number - 2), rate=0.0)
        for name, value in eager.state_dict().items():
            if "5.weight_fake_quant" in name or "post_process_0" in name:
                assert torch.equal(own.state_dict()[name], value), (number, name)


def test_what_a_recording_does_not_see_is_left_to_pytorch():
    """Hooks of observers, classes derived from fake quantisers, and observers of other kinds."""

    class Own(ours.FakeQuantize):
        def calculate_qparams(self):
            scale, zero_point = super().calculate_qparams()
            return 2 * scale, zero_point

    hooked = ours.FakeQuantize(ours.MinMaxObserver, 0, 255)
    batches = []
    hooked.activation_post_process.register_forward_hook(lambda *_: batches.append(1))
    histogram = ours.FakeQuantize(ours.HistogramObserver, 0, 255)
    for own in (Own(ours.MinMaxObserver, 0, 255), hooked, histogram):
        eager, x = copy.deepcopy(own), torch.randn(4, 5, requires_grad=True)
        compiled = corsac.compile(own)
        for number in range(3):
            assert torch.equal(compiled(x * (1 + number)), eager(x * (1 + number)))
            assert torch.equal(own.scale, eager.scale)
        assert "with gradients" not in compiled.explain()
    assert len(batches) == 6


def test_nan_is_found_by_conversion():
    own, x = prepared(*OBSERVERS["smallest and largest"](ours))
    compiled = corsac.compile(own, options={"training": "native"})
    for _ in range(2):
        step(own, compiled, x)
    x = x.clone()
    x[0, 0, 0, 0] = float("nan")
    step(own, compiled, x, rate=0.0)
    with pytest.raises(ValueError, match="NaN or infinity"):
        convert_fx(own.eval())


@pytest.mark.parametrize("training", ["host", "native"])
@pytest.mark.parametrize("name", ["smallest and largest", "fused weights"])
def test_the_level_of_nan_is_the_lowest_without_observer(name, training):
    """As in eager steps, with no gradient; where rounding is off, NaN stays."""
    torch.manual_seed(0)
    own = OBSERVERS[name](ours)[0]()
    own(torch.randn(4, 5))
    own.apply(disable_observer)
    eager, x = copy.deepcopy(own), torch.randn(4, 5)
    x[0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    compiled = corsac.compile(own, options={"training": training})
    for number in range(5):
        if number == 3:
            for one in (own, eager):
                one.apply(disable_fake_quant)
        results = []
        for run in (compiled, eager):
            given = x.clone().requires_grad_()
            result = run(given)
            result.sum().backward()
            results.append((result.detach(), given.grad))
        torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)
        assert bool(results[0][0].isnan().any()) == (number >= 3)
    assert "with gradients" in compiled.explain()


@row("values of more than 2^63 steps in fake quantisers of channels")
def test_values_of_very_many_steps():
    own = per_channel(ours, "PerChannelMinMaxObserver")()
    own(torch.tensor([[-1.0, 1.0]]))
    own.apply(disable_observer)
    x = torch.tensor([[1e30, -1e30]], requires_grad=True)
    lowest, highest = -128 * own.scale, 127 * own.scale
    assert torch.equal(own(x), torch.stack([lowest, lowest], 1))
    compiled = corsac.compile(own)
    for _ in range(2):
        compiled(x)
    assert torch.equal(compiled(x), torch.stack([highest, lowest], 1))


class Twice(nn.Module):
    """Two weights that one fake quantiser of channels rounds."""

    def __init__(self, quantiser):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.quantiser = quantiser

    def forward(self, x):
        y = x @ self.quantiser(self.weight).t()
        return y @ self.quantiser(self.weight * 0.5).t()


@pytest.mark.parametrize("training", ["host", "native"])
@pytest.mark.parametrize("kind", ["FakeQuantize", FUSED])
def test_a_fake_quantiser_of_channels_is_called_twice_in_the_first_step(kind, training):
    torch.manual_seed(0)
    model = Twice(per_channel(ours, "MovingAveragePerChannelMinMaxObserver", kind)())
    compiled = corsac.compile(copy.deepcopy(model), options={"training": training})
    x = torch.randn(4, 8)
    for _ in range(3):
        for own in (model, compiled):
            own.zero_grad()
            own(x).sum().backward()
        torch.testing.assert_close(compiled.weight.grad, model.weight.grad)
        torch.testing.assert_close(compiled.quantiser.scale, model.quantiser.scale)
