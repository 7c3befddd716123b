"""Steps of quantisation-aware training, compiled and eager."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from corsac.quantization import _operators as _registered
from corsac.quantization import (
    default_fused_act_fake_quant,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    get_default_qat_qconfig_mapping,
)
from corsac.quantization.quantize_fx import convert_fx, prepare_qat_fx

pytestmark = pytest.mark.filterwarnings("ignore")


def mlp():
    model = nn.Sequential(
        nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )
    return model, torch.randn(16, 20)


def convolutions():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(72, 4),
    )
    return model, torch.randn(8, 3, 8, 8)


def prepared(make, qconfig="x86"):
    torch.manual_seed(0)
    model, x = make()
    mapping = get_default_qat_qconfig_mapping(qconfig)
    return prepare_qat_fx(model.train(), mapping, (x,)), x


def step(model, run, x, rate=0.05):
    for parameter in model.parameters():
        parameter.grad = None
    labels = torch.arange(len(x)) % 4
    loss = F.cross_entropy(run(x), labels)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad
    return float(loss.detach())


@pytest.mark.parametrize("make", [mlp, convolutions])
@pytest.mark.parametrize("qconfig", ["x86", "qnnpack"])
def test_captured_steps_are_eager_ones(make, qconfig):
    """Run by PyTorch, the captured graphs give the same losses, gradients, ranges and scales to the last bit."""
    eager, x = prepared(make, qconfig)
    captured = copy.deepcopy(eager)
    compiled = corsac.compile(captured, options={"training": "host"})
    for number in range(5):
        batch = x * (1 + 0.1 * number)
        assert step(captured, compiled, batch) == step(eager, eager, batch)
        for own, other in zip(captured.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(own.grad, other.grad, atol=1e-7, rtol=1e-5)
        for name, value in eager.state_dict().items():
            if value.dtype == torch.float32:
                torch.testing.assert_close(
                    captured.state_dict()[name], value, atol=1e-6, rtol=1e-6, msg=name
                )
    assert "with gradients" in compiled.explain()


@pytest.mark.parametrize("make", [mlp, convolutions])
def test_native_steps(make):
    eager, x = prepared(make)
    own = copy.deepcopy(eager)
    compiled = corsac.compile(own, options={"training": "native"})
    losses = [(step(own, compiled, x), step(eager, eager, x)) for _ in range(40)]
    assert losses[-1][0] < 0.95 * losses[0][0]
    assert abs(losses[-1][0] - losses[-1][1]) < 0.05 * losses[0][0]
    # The operator of the engine, and no Dynamo.
    report = compiled.explain()
    assert "forward:" in report and "backward:" in report and "Dynamo" not in report
    assert "corsac.fake_quantize" not in report
    with torch.no_grad():
        converted = convert_fx(copy.deepcopy(own).eval())
        trained = copy.deepcopy(own).eval().apply(disable_observer)
        expected, found = trained(x), converted(x)
        assert (expected - found).norm() < 0.05 * expected.norm()


def test_ranges_of_native_steps_are_eager_ones():
    eager, x = prepared(mlp)
    own = copy.deepcopy(eager)
    compiled = corsac.compile(own, options={"training": "native"})
    for number in range(4):
        batch = x * (1 + number)
        # Without a change of weights, only the input's range and those of weights are exact.
        step(own, compiled, batch, rate=0.0)
        step(eager, eager, batch, rate=0.0)
    for name, value in eager.state_dict().items():
        if name.startswith("activation_post_process_0") or "weight_fake_quant" in name:
            assert torch.equal(own.state_dict()[name], value), name


def test_switches_hold_for_compiled_steps():
    own, x = prepared(mlp)
    compiled = corsac.compile(own, options={"training": "native"})
    for _ in range(3):
        step(own, compiled, x)
    scale = own.activation_post_process_0.scale.clone()
    own.apply(disable_observer)
    for _ in range(2):
        step(own, compiled, 10 * x)
    assert torch.equal(own.activation_post_process_0.scale, scale)
    own.apply(disable_fake_quant)
    floats = compiled(x)
    layers = [own.get_submodule(name) for name in ("0", "2", "4")]
    expected = x
    for number, layer in enumerate(layers):
        expected = F.linear(expected, layer.weight, layer.bias)
        expected = expected if number == 2 else expected.relu()
    torch.testing.assert_close(floats, expected, atol=1e-5, rtol=1e-5)
    own.apply(enable_fake_quant)
    own.apply(enable_observer)
    step(own, compiled, 10 * x)
    assert not torch.equal(own.activation_post_process_0.scale, scale)


def test_nan_in_compiled_steps_is_found_by_conversion():
    own, x = prepared(mlp)
    compiled = corsac.compile(own, options={"training": "native"})
    for _ in range(3):
        step(own, compiled, x)
    x = x.clone()
    x[0, 0] = float("nan")
    step(own, compiled, x, rate=0.0)
    with pytest.raises(ValueError, match="NaN or infinity"):
        convert_fx(own.eval())


def test_fixed_parameters_are_native():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.Sigmoid(), nn.Linear(32, 4), nn.Tanh()).train()
    x = torch.randn(16, 20)
    eager = prepare_qat_fx(model, get_default_qat_qconfig_mapping("qnnpack"), (x,))
    own = copy.deepcopy(eager)
    compiled = corsac.compile(own, options={"training": "native"})
    for number in range(5):
        if number == 3:
            for one in (eager, own):
                one.apply(disable_fake_quant)
        assert abs(step(own, compiled, x) - step(eager, eager, x)) < 1e-5
        for left, right in zip(own.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad, atol=1e-3, rtol=1e-2)
    assert "with gradients" in compiled.explain()
    assert "by PyTorch" not in compiled.explain().partition("\n")[0]


@pytest.mark.parametrize("limits", [(0, 127), (0, 255), (-128, 127), (-127, 127), (-8, 7)])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("is_per_channel", [False, True])
def test_moving_averages_are_pytorchs(limits, symmetric, is_per_channel):
    """Ranges, scales and zero points to the last bit: of small, large, one-sided and empty ranges, by PyTorch's
    operators and natively."""
    own = torch.ops.corsac.moving_average_qparams
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        sizes = 10 ** (torch.rand(64, 1, generator=generator) * 14 - 11)
        x = torch.randn(64, 2, generator=generator) * sizes
        x = {1: x.abs(), 2: -x.abs()}.get(seed % 4, x)
        x[0], x[1, 0] = 0.0, 0.0
        x = x if is_per_channel else x[seed]
        low, high = x.amin(-1), x.amax(-1)
        first = seed % 2 == 0
        min_val = (
            torch.full_like(low, torch.inf) if first else -torch.rand_like(low) * float(sizes[0])
        )
        max_val = (
            torch.full_like(low, -torch.inf) if first else torch.rand_like(low) * float(sizes[0])
        )
        scale = torch.ones(low.numel())
        zero_point = torch.zeros(low.numel(), dtype=torch.int32)
        on = torch.ones(1, dtype=torch.long)
        state = [min_val, max_val, scale.reshape(low.shape), zero_point.float().reshape(low.shape)]
        before = [value.clone() for value in state]
        yes, no = on[0] == 1, on[0] == 0
        found = own(low, high, yes, yes, *before, 0.01, *limits, symmetric)
        kept = own(low, high, no, no, *before, 0.01, *limits, symmetric)
        torch.fused_moving_avg_obs_fake_quant(
            x,
            on,
            on,
            min_val,
            max_val,
            scale,
            zero_point,
            0.01,
            *limits,
            0,
            is_per_channel,
            symmetric,
        )
        after = [min_val, max_val, scale, zero_point.float()]
        for one, value, old, same in zip(found, after, before, kept, strict=True):
            assert torch.equal(one.flatten(), value.flatten())
            assert torch.equal(same, old)


@pytest.mark.parametrize("training", ["native", "host"])
@pytest.mark.parametrize("make", [mlp, convolutions])
def test_each_switch_alone_is_eager(make, training):
    """Ranges follow the observer's switch, and scales that of the rounding, also where a program begins with one off."""
    for calibrated in (False, True):
        for switches in [(disable_observer,), (disable_fake_quant,), ()]:
            eager, x = prepared(make)
            if calibrated:
                eager.apply(disable_fake_quant)
                for _ in range(3):
                    eager(x)
                eager.apply(enable_fake_quant)
            for switch in switches:
                eager.apply(switch)
            own = copy.deepcopy(eager)
            compiled = corsac.compile(own, options={"training": training})
            for number in range(4):
                assert abs(step(own, compiled, x, 0.0) - step(eager, eager, x, 0.0)) < 1e-2
                for name, value in eager.state_dict().items():
                    found = own.state_dict()[name]
                    if disable_fake_quant in switches and name.endswith(("scale", "zero_point")):
                        # PyTorch leaves them as memory is, if they have got a size.
                        continue
                    if name.startswith("activation_post_process_0") or "weight_fake" in name:
                        assert torch.equal(found, value), (number, name)
                    elif name.endswith(("scale", "min_val", "max_val")):
                        torch.testing.assert_close(found, value, atol=1e-3, rtol=1e-2)


def test_numbers_without_dimensions_are_rounded():
    torch.manual_seed(0)
    own = default_fused_act_fake_quant()
    eager, x = copy.deepcopy(own), torch.tensor(0.3, requires_grad=True)
    compiled = corsac.compile(own, options={"training": "native"})
    for _ in range(3):
        found, expected = compiled(x), eager(x)
        assert found.shape == expected.shape
        assert torch.equal(found, expected)


def test_moving_averages_of_native_steps_are_pytorchs():
    """Of weights, whose values are known to the last bit, while they change."""
    eager, x = prepared(mlp)
    own = copy.deepcopy(eager)
    compiled = corsac.compile(own, options={"training": "native"})
    for number in range(6):
        with torch.no_grad():
            for one in (eager, own):
                one.get_submodule("0").weight.mul_(1.5 if number % 2 else 0.5)
                one.get_submodule("2").weight[number] = 1e-9 * number
        step(own, compiled, x, rate=0.0)
        step(eager, eager, x, rate=0.0)
        for name, value in eager.state_dict().items():
            if "weight_fake_quant" in name:
                assert torch.equal(own.state_dict()[name], value), (number, name)


def test_fake_quantize_is_pytorchs_operator():
    assert _registered.LIBRARY is not None
    torch.manual_seed(0)
    x, grad = 3 * torch.randn(64, 30, requires_grad=True), torch.randn(64, 30)
    scales, zero_points = 0.01 + 0.03 * torch.rand(64), torch.randint(-5, 5, (64,)).int()
    own = torch.ops.corsac.fake_quantize
    cases = [
        (
            torch.fake_quantize_per_tensor_affine(x, scales[:1], zero_points[:1], -128, 127),
            own(x, scales[:1], zero_points[:1].float(), -128, 127),
        ),
        (
            torch.fake_quantize_per_channel_affine(x, scales, zero_points, 0, -8, 7),
            own(x, scales[:, None], zero_points[:, None].float(), -8, 7),
        ),
    ]
    for expected, found in cases:
        assert torch.equal(found, expected)
        gradients = [torch.autograd.grad(own, x, grad)[0] for own in (expected, found)]
        assert torch.equal(*gradients)
        assert 0 < int((gradients[0] == 0).sum()) < x.numel()
