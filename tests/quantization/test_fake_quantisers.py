"""Fake quantisers compared with those of torch.ao: results, gradients, states, switches."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch._dynamo.testing
import torch.ao.quantization as torch_ao
import torch.ao.quantization.fake_quantize as theirs
from torch import nn

import corsac.quantization.fake_quantize as ours
import corsac.quantization.observer as observers

pytestmark = pytest.mark.filterwarnings("ignore")

CONSTRUCTORS = [name for name in theirs.__all__ if name.startswith(("default_", "fused_"))]


def run(module, batches):
    results = []
    for batch in batches:
        x = batch.clone().requires_grad_()
        y = module(x)
        y.square().sum().backward()
        results += [y.detach(), x.grad]
    return results


def assert_same_state(left, right):
    left, right = left.state_dict(), right.state_dict()
    assert list(left) == list(right)
    for name, value in left.items():
        assert value.dtype == right[name].dtype
        assert torch.equal(value, right[name]), name


def batches(seed=0, count=4):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5, 6, generator=generator) * (1 + n) for n in range(count)]


def test_names_are_those_of_torch():
    assert set(ours.__all__) == set(theirs.__all__)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_default_fake_quantisers(name):
    their, our = getattr(theirs, name)(), getattr(ours, name)()
    for left, right in zip(run(their, batches()), run(our, batches()), strict=True):
        assert torch.equal(left, right)
    assert_same_state(their, our)
    assert repr(their) == repr(our)
    for left, right in zip(their.calculate_qparams(), our.calculate_qparams(), strict=True):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    for attribute in (
        "quant_min",
        "quant_max",
        "dtype",
        "qscheme",
        "ch_axis",
        "is_dynamic",
        "is_per_channel",
    ):
        assert getattr(their, attribute) == getattr(our, attribute)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_states_are_exchanged(name):
    their, our = getattr(theirs, name)(), getattr(ours, name)()
    run(their, batches())
    run(our, batches(seed=1))
    fresh_our, fresh_their = getattr(ours, name)(), getattr(theirs, name)()
    fresh_our.load_state_dict(their.state_dict())
    fresh_their.load_state_dict(our.state_dict())
    assert_same_state(their, fresh_our)
    assert_same_state(our, fresh_their)
    file = io.BytesIO()
    torch.save(our.state_dict(), file)
    file.seek(0)
    read = getattr(ours, name)()
    read.load_state_dict(torch.load(file, weights_only=True))
    assert_same_state(our, read)
    x = batches(seed=2, count=1)
    for left, right in zip(run(copy.deepcopy(our), x), run(read, x), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", ["default_fake_quant", "default_fused_act_fake_quant"])
def test_switches(name):
    results = []
    for kind in (theirs, ours):
        module = getattr(kind, name)()
        x, y, z = batches(count=3)
        found = [module(x)]
        module.apply(kind.disable_observer)
        found.append(module(y))
        module.apply(kind.enable_observer)
        module.apply(kind.disable_fake_quant)
        found.append(module(z))
        assert torch.equal(found[-1], z)
        module.apply(kind.enable_fake_quant)
        found.append(module(x))
        results.append((found, module.state_dict()))
    for left, right in zip(results[0][0], results[1][0], strict=True):
        assert torch.equal(left, right)
    for key, value in results[0][1].items():
        assert torch.equal(value, results[1][1][key])


def test_switches_of_all_fake_quantisers():
    """The functions work on modules of torch.ao, and leave others alone."""
    model = nn.Sequential(nn.Linear(1, 1), theirs.FakeQuantize(), ours.FakeQuantize())
    model.apply(ours.disable_observer)
    model.apply(ours.disable_fake_quant)
    for module in model[1:]:
        assert not module.observer_enabled.any()
        assert not module.fake_quant_enabled.any()
    model.apply(ours.enable_observer)
    model.apply(ours.enable_fake_quant)
    for module in model[1:]:
        assert module.observer_enabled.all()
        assert module.fake_quant_enabled.all()


ARGUMENTS = [
    {"observer": "MovingAverageMinMaxObserver", "quant_min": 0, "quant_max": 255},
    {"observer": "MinMaxObserver", "dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric},
    {"observer": "MinMaxObserver", "dtype": torch.int8, "quant_min": -8, "quant_max": 7},
    {"observer": "MinMaxObserver", "dtype": torch.uint8},
    {"observer": "HistogramObserver"},
    {"observer": "PerChannelMinMaxObserver", "ch_axis": 1},
    {
        "observer": "PerChannelMinMaxObserver",
        "dtype": torch.qint8,
        "qscheme": torch.per_channel_symmetric,
        "quant_min": -8,
        "quant_max": 7,
    },
    {"observer": "MinMaxObserver", "reduce_range": True, "quant_min": 0, "quant_max": 255},
]


@pytest.mark.parametrize("kwargs", ARGUMENTS, ids=str)
def test_arguments(kwargs):
    modules = []
    for kind, observer in ((theirs, torch_ao), (ours, observers)):
        modules.append(
            kind.FakeQuantize(**{**kwargs, "observer": getattr(observer, kwargs["observer"])})
        )
    their, our = modules
    for left, right in zip(run(their, batches()), run(our, batches()), strict=True):
        assert torch.equal(left, right)
    assert_same_state(their, our)
    assert repr(their) == repr(our)


INVALID = [
    ("FakeQuantize", {"quant_min": 9, "quant_max": 3}),
    ("FakeQuantize", {"quant_min": -1, "quant_max": 255}),
    ("FakeQuantize", {"quant_min": 0, "quant_max": 256}),
    (
        "FakeQuantize",
        {"observer": "MinMaxObserver", "dtype": torch.qint8, "quant_min": -129, "quant_max": 0},
    ),
    ("FixedQParamsFakeQuantize", {"observer": "MinMaxObserver"}),
    ("FusedMovingAvgObsFakeQuantize", {"observer": "MinMaxObserver"}),
    ("FakeQuantizeBase", {}),
]


@pytest.mark.parametrize(("name", "kwargs"), INVALID)
def test_invalid_arguments(name, kwargs):
    for kind, observer in ((theirs, torch_ao), (ours, observers)):
        given = dict(kwargs)
        if "observer" in given:
            given["observer"] = getattr(observer, given["observer"])
        with pytest.raises((AssertionError, TypeError)) as raised:
            getattr(kind, name)(**given)
        if kind is theirs:
            expected = raised.type
    assert raised.type is expected


def test_observers_of_torch_are_taken():
    fixed = ours.FixedQParamsFakeQuantize(torch_ao.default_fixed_qparams_range_0to1_observer)
    assert float(fixed.scale) == 1 / 256
    fused = ours.FusedMovingAvgObsFakeQuantize(torch_ao.MovingAverageMinMaxObserver)
    assert torch.equal(fused(batches()[0]), theirs.FusedMovingAvgObsFakeQuantize()(batches()[0]))
    assert isinstance(theirs.FakeQuantize(), ours.FakeQuantizeBase)
    assert not isinstance(torch_ao.MinMaxObserver(), ours.FakeQuantizeBase)


@pytest.mark.parametrize(
    "name",
    [
        "default_fake_quant",
        "default_fused_act_fake_quant",
        "default_fused_per_channel_wt_fake_quant",
    ],
)
def test_values_that_are_not_finite(name):
    module = getattr(ours, name)()
    module(batches()[0])
    inner = module.activation_post_process
    state = {key: value.clone() for key, value in inner.state_dict().items()}
    with pytest.raises(ValueError, match=r"batch 2 has NaN or infinity"):
        module(torch.full((5, 6), float("nan")))
    assert all(torch.equal(value, state[key]) for key, value in inner.state_dict().items())
    assert torch.isfinite(module.scale).all()
    assert torch.isfinite(module(batches()[1])).all()


@pytest.mark.parametrize("name", ["default_fake_quant", "default_fused_act_fake_quant"])
def test_compiled_by_dynamo(name):
    torch._dynamo.reset()
    plain, counter = getattr(ours, name)(), torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(copy.deepcopy(plain), backend=counter)
    for x in batches():
        assert torch.equal(compiled(x), plain(x))
    assert_same_state(plain, compiled._orig_mod)
    if name == "default_fused_act_fake_quant":
        assert counter.frame_count == 1  # no part of it runs in Python, and it is compiled once


def test_gradients_stop_where_values_are_clamped():
    module = ours.FakeQuantize(observer=observers.MinMaxObserver)
    module(torch.tensor([-1.0, 1.0]))
    module.disable_observer()
    x = torch.tensor([-2.0, 0.5, 2.0], requires_grad=True)
    module(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_devices_and_modes_of_a_model():
    module = ours.default_fused_wt_fake_quant().to(torch.float32).eval()
    assert module.observer_enabled.dtype == torch.int64
    assert copy.deepcopy(module).state_dict().keys() == module.state_dict().keys()
