"""Observers compared with those of torch.ao: parameters, states, text, errors."""

from __future__ import annotations

import ast
import copy
import io
import pickle
import warnings
from pathlib import Path

import pytest
import torch
import torch.ao.quantization.observer as theirs
from torch import nn

import corsac.quantization.observer as ours
from corsac.quantization import utils
from corsac.quantization._unmatched import unmatched_names
from corsac.quantization.qconfig_mapping import QConfigMapping

pytestmark = pytest.mark.filterwarnings("ignore")

PER_TENSOR = [
    {},
    {"dtype": torch.qint8},
    {"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric},
    {"dtype": torch.quint8, "qscheme": torch.per_tensor_symmetric},
    {"dtype": torch.int8, "qscheme": torch.per_tensor_symmetric},
    {"dtype": torch.uint8},
    {"dtype": torch.int16},
    {"dtype": torch.uint16, "qscheme": torch.per_tensor_symmetric},
    {"dtype": torch.qint32, "qscheme": torch.per_tensor_symmetric},
    {"reduce_range": True},
    {"dtype": torch.qint8, "reduce_range": True},
    {"quant_min": 0, "quant_max": 127},
    {"quant_min": 0, "quant_max": 15, "qscheme": torch.per_tensor_symmetric},
    {"dtype": torch.qint8, "quant_min": -127, "quant_max": 127, "eps": 2**-12},
    {"quant_min": 0, "quant_max": 255, "reduce_range": True},
    {"factory_kwargs": {"dtype": torch.float64}},
]
PER_CHANNEL = [
    {},
    {"ch_axis": 1},
    {"ch_axis": -1},
    {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric},
    {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric, "ch_axis": 2},
    {"dtype": torch.quint8, "qscheme": torch.per_channel_affine_float_qparams},
    {"dtype": torch.quint4x2, "qscheme": torch.per_channel_affine_float_qparams},
    {"reduce_range": True},
    {"quant_min": 0, "quant_max": 100},
]
KINDS = [
    *(("MinMaxObserver", kwargs) for kwargs in PER_TENSOR),
    *(("MovingAverageMinMaxObserver", kwargs) for kwargs in PER_TENSOR),
    *(("HistogramObserver", kwargs) for kwargs in PER_TENSOR if "int16" not in str(kwargs)),
    *(("PerChannelMinMaxObserver", kwargs) for kwargs in PER_CHANNEL),
    *(("MovingAveragePerChannelMinMaxObserver", kwargs) for kwargs in PER_CHANNEL),
    ("MovingAverageMinMaxObserver", {"averaging_constant": 1, "is_dynamic": True}),
    ("MovingAveragePerChannelMinMaxObserver", {"averaging_constant": 0.5}),
    ("HistogramObserver", {"bins": 37}),
    ("HistogramObserver", {"dtype": torch.int16, "bins": 300}),
]
VALUES = {
    "normal": lambda shape: torch.randn(shape),
    "one_sided": lambda shape: torch.rand(shape) * 5 + 3,
    "negative": lambda shape: -torch.rand(shape) - 0.5,
    "constant": lambda shape: torch.full(shape, 2.5),
    "zero": lambda shape: torch.zeros(shape),
    "outlier": lambda shape: (
        torch.randn(shape).flatten().index_fill(0, torch.tensor([0]), 1e4).view(shape)
    ),
    "large": lambda shape: torch.randn(shape) * 1e30,
    "small": lambda shape: torch.randn(shape) * 1e-4,
    "denormal": lambda shape: torch.randn(shape) * 1e-40,
    "half": lambda shape: torch.randn(shape).half(),
    "double": lambda shape: torch.randn(shape).double(),
    "strided": lambda shape: torch.randn(*shape, 3)[..., 1],
    "transposed": lambda shape: torch.randn(shape[::-1]).permute(*range(len(shape) - 1, -1, -1)),
    "empty": lambda shape: torch.randn(0, *shape[1:]),
}


def pair(name, kwargs):
    return getattr(theirs, name)(**kwargs), getattr(ours, name)(**kwargs)


def outcome(call, *args):
    try:
        return call(*args)
    except Exception as error:
        return type(error)


def assert_same(left, right):
    if isinstance(left, tuple):
        assert isinstance(right, tuple)
        for one, other in zip(left, right, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert torch.equal(one, other)
    else:
        assert left is right


def assert_same_state(left, right):
    left, right = left.state_dict(), right.state_dict()
    assert list(left) == list(right)
    assert left._metadata == right._metadata
    for name, value in left.items():
        assert value.dtype == right[name].dtype
        assert torch.equal(value, right[name]), name


CASES = [
    (name, kwargs, values)
    for name, kwargs in KINDS
    for values in VALUES
    # The errors of PyTorch's search overflow or underflow.
    if not (name == "HistogramObserver" and values in ("large", "denormal"))
]


@pytest.mark.parametrize(("name", "kwargs", "values"), CASES, ids=str)
def test_parameters_are_equal(name, kwargs, values):
    torch.manual_seed(len(values))
    their, our = pair(name, kwargs)
    assert_same(their.calculate_qparams(), our.calculate_qparams())
    for step in range(4):
        x = VALUES[values]((4, 5, 6)) * (1 + step % 3)
        one, other = outcome(their, x), outcome(our, x)
        assert (one is x) == (other is x)
        if one is not x:
            assert one == other  # the same kind of error
            return
        assert_same(their.calculate_qparams(), our.calculate_qparams())
    assert_same_state(their, our)
    assert repr(their) == repr(our)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (2, 3, 4, 5), (1, 8, 2, 2, 3)])
@pytest.mark.parametrize(
    "name", ["MinMaxObserver", "MovingAverageMinMaxObserver", "HistogramObserver"]
)
def test_shapes_per_tensor(name, shape):
    torch.manual_seed(1)
    their, our = pair(name, {})
    for _ in range(3):
        x = torch.randn(shape)
        their(x)
        our(x)
    assert_same(their.calculate_qparams(), our.calculate_qparams())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
def test_axes_of_channels(axis, memory_format):
    torch.manual_seed(2)
    their, our = pair("PerChannelMinMaxObserver", {"ch_axis": axis})
    for _ in range(3):
        x = torch.randn(3, 4, 5, 6).to(memory_format=memory_format)
        their(x)
        our(x)
    assert_same(their.calculate_qparams(), our.calculate_qparams())
    assert_same_state(their, our)


def random_tensor(generator):
    """A tensor of a random shape, type, memory order, scale and shift; it may be empty, constant or one-sided."""

    def chosen(values):
        return values[int(torch.randint(len(values), (), generator=generator))]

    rank = chosen([1, 2, 3, 4])
    shape = [chosen([1, 2, 3, 7]) for _ in range(rank)]
    x = torch.randn(shape, generator=generator) * 10.0 ** chosen(range(-12, 13))
    x = chosen(
        [
            lambda: x,
            lambda: x.abs(),
            lambda: -x.abs(),
            lambda: x + x.abs().max(),
            lambda: torch.full_like(x, float(x.max())),
            lambda: x[:0],
        ]
    )()
    x = chosen([lambda: x, lambda: x.double(), lambda: x.bfloat16()])()
    order = torch.randperm(rank, generator=generator).tolist()
    return chosen([x, x.permute(order), x[..., ::2], x.repeat_interleave(2, -1)[..., ::2]])


@pytest.mark.parametrize(
    "name",
    [
        "MinMaxObserver",
        "MovingAverageMinMaxObserver",
        "PerChannelMinMaxObserver",
        "MovingAveragePerChannelMinMaxObserver",
    ],
)
def test_random_tensors(name):
    generator = torch.Generator().manual_seed(len(name))
    seen = 0
    for _ in range(300):
        x = random_tensor(generator)
        if "Channel" in name and x.dim() == 1:
            continue
        kinds = PER_CHANNEL if "Channel" in name else PER_TENSOR
        kwargs = kinds[int(torch.randint(len(kinds), (), generator=generator))]
        if kwargs.get("ch_axis", 0) >= x.dim():
            continue
        their, our = pair(name, kwargs)
        for batch in (x, x * 2, x - 1):
            their(batch)
            our(batch)
        assert_same(their.calculate_qparams(), our.calculate_qparams())
        assert_same_state(their, our)
        seen += 1
    assert seen > 150


def test_channels_of_a_vector():
    """PyTorch takes tensors of at least two dimensions."""
    our = ours.PerChannelMinMaxObserver()
    our(torch.tensor([1.0, -2.0]))
    our(torch.tensor([0.5, -1.0]))
    assert our.min_val.tolist() == [0.5, -2.0]
    assert our.max_val.tolist() == [1.0, -1.0]


def test_random_histograms():
    """Batches of many scales and shifts, so that histograms are widened on either side."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(60):
        their, our = pair("HistogramObserver", {})
        for _ in range(int(torch.randint(1, 6, (), generator=generator))):
            size = int(torch.randint(1, 3000, (), generator=generator))
            scale = 10 ** float(torch.rand((), generator=generator) * 8 - 4)
            shift = float(torch.randn((), generator=generator)) * scale
            x = torch.randn(size, generator=generator) * scale + shift
            if size % 3 == 0:
                x = x.relu()
            their(x)
            our(x)
            assert_same(their.calculate_qparams(), our.calculate_qparams())
        assert_same_state(their, our)


@pytest.mark.parametrize("exponent", [-60, 100])
def test_histograms_of_very_small_and_very_large_values(exponent):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(4))
    x[0] = 50
    plain, scaled = (ours.HistogramObserver(eps=1e-30) for _ in range(2))
    plain(x)
    scaled(x * 2.0**exponent)
    scale, zero_point = plain.calculate_qparams()
    assert_same(scaled.calculate_qparams(), (scale * 2.0**exponent, zero_point))


def test_infinities_are_not_counted_by_histograms():
    their, our = pair("HistogramObserver", {})
    x = torch.randn(100)
    x[3], x[4] = float("inf"), float("-inf")
    with pytest.warns(UserWarning, match="HistogramObserver: batch 1 has infinite values"):
        our(x)
    their(x)
    all_infinite = torch.full((3,), float("inf"))
    their(all_infinite)
    our(all_infinite)
    assert_same(their.calculate_qparams(), our.calculate_qparams())
    assert_same_state(their, our)


def test_observed_parameters_and_gradients():
    observer = ours.MinMaxObserver()
    weight = nn.Parameter(torch.randn(3))
    assert observer(weight) is weight
    assert not observer.min_val.requires_grad


def test_the_model_may_be_on_another_type():
    their, our = (kind.MinMaxObserver().half() for kind in (theirs, ours))
    x = torch.randn(20)
    their(x)
    our(x)
    assert_same(their.calculate_qparams(), our.calculate_qparams())


def test_names_are_those_of_torch():
    assert set(ours.__all__) == set(theirs.__all__)
    assert all(getattr(ours, name) is not None for name in theirs.__all__)


CONSTRUCTORS = [name for name in theirs.__all__ if name.startswith("default_") or "127" in name]


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_default_observers(name):
    their, our = getattr(theirs, name)(), getattr(ours, name)()
    assert type(their).__name__ == type(our).__name__
    for attribute in (
        "dtype",
        "qscheme",
        "quant_min",
        "quant_max",
        "ch_axis",
        "is_dynamic",
        "reduce_range",
    ):
        assert getattr(their, attribute, None) == getattr(our, attribute, None), attribute
    assert_same_state(their, our)


# Invalid arguments --------------------------------------------------------------------------------

INVALID = [
    ("MinMaxObserver", {"qscheme": torch.per_channel_affine}),
    ("MinMaxObserver", {"dtype": torch.float32}),
    ("MinMaxObserver", {"quant_min": 5, "quant_max": 9}),
    ("MinMaxObserver", {"quant_min": 0, "quant_max": 0}),
    ("MinMaxObserver", {"dtype": torch.qint8, "quant_min": -200, "quant_max": 200}),
    ("MinMaxObserver", {"qscheme": torch.per_tensor_symmetric, "reduce_range": True}),
    ("MinMaxObserver", {"no_such_argument": 1}),
    ("MovingAverageMinMaxObserver", {"is_dynamic": True}),
    ("PerChannelMinMaxObserver", {"is_dynamic": True}),
    ("PerChannelMinMaxObserver", {"qscheme": torch.per_tensor_affine}),
    ("MovingAveragePerChannelMinMaxObserver", {"is_dynamic": True}),
    ("HistogramObserver", {"is_dynamic": True}),
    ("HistogramObserver", {"qscheme": torch.per_channel_affine}),
    ("FixedQParamsObserver", {"scale": 1.0, "zero_point": 0, "is_dynamic": True}),
    ("UniformQuantizationObserverBase", {"qscheme": None}),
    ("ObserverBase", {"dtype": torch.quint8}),
]


@pytest.mark.parametrize(("name", "kwargs"), INVALID)
def test_invalid_arguments(name, kwargs):
    with pytest.raises(Exception) as expected:
        getattr(theirs, name)(**kwargs)
    with pytest.raises(expected.type):
        getattr(ours, name)(**kwargs)


@pytest.mark.parametrize(
    "name", ["PlaceholderObserver", "RecordingObserver", "NoopObserver", "ReuseInputObserver"]
)
def test_observers_without_parameters(name):
    our = getattr(ours, name)()
    x = torch.randn(3)
    assert our(x) is x
    with pytest.raises(NotImplementedError, match=f"{name} has no quantisation parameters"):
        our.calculate_qparams()
    assert repr(our) == repr(getattr(theirs, name)())


def test_records():
    our = ours.RecordingObserver()
    x = torch.randn(3)
    our(x)
    assert our.get_tensor_value()[0] is not x
    assert torch.equal(our.tensor_val[0], x)


# Values that torch.ao takes silently ----------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "name",
    [
        "MinMaxObserver",
        "MovingAverageMinMaxObserver",
        "PerChannelMinMaxObserver",
        "MovingAveragePerChannelMinMaxObserver",
    ],
)
def test_values_that_are_not_finite(name, value):
    our = getattr(ours, name)()
    our.observed_name = "layer1.conv"
    our(torch.randn(3, 4))
    state = copy.deepcopy(our.state_dict())
    x = torch.randn(3, 4)
    x[2, 1] = value
    with pytest.raises(ValueError, match=f"{name} of layer1.conv: batch 2 has NaN or infinity"):
        our(x)
    assert all(torch.equal(state[key], own) for key, own in our.state_dict().items())


def test_nan_in_a_histogram():
    our = ours.HistogramObserver()
    with pytest.raises(ValueError, match="HistogramObserver: batch 1 has NaN"):
        our(torch.tensor([1.0, float("nan")]))


def test_a_recorded_range_that_is_not_finite():
    our = ours.MinMaxObserver()
    our.load_state_dict({**our.state_dict(), "min_val": torch.tensor(float("nan"))})
    with pytest.raises(ValueError, match="MinMaxObserver: the recorded range has NaN or infinity"):
        our.calculate_qparams()


def test_channels_are_named():
    our = ours.PerChannelMinMaxObserver()
    with pytest.raises(ValueError, match=r"in channels \[1\]"):
        our(torch.tensor([[1.0], [float("nan")]]))


def test_values_that_all_become_zero():
    our = ours.MinMaxObserver()
    our(torch.tensor([-1e-9, 2e-9]))
    with pytest.warns(UserWarning, match="all values become 0"):
        our.calculate_qparams()
    fine = ours.MinMaxObserver(eps=1e-12)
    fine(torch.tensor([-1e-9, 2e-9]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine.calculate_qparams()


def test_no_values_at_all():
    for name in ("MinMaxObserver", "PerChannelMinMaxObserver", "HistogramObserver"):
        with pytest.warns(UserWarning, match="before the observer has seen any values"):
            scale, zero_point = getattr(ours, name)().calculate_qparams()
        assert scale.tolist() == [1.0]
        assert zero_point.tolist() == [0]


def test_compute_dtype_is_dynamic():
    with pytest.warns(UserWarning, match="compute_dtype is deprecated"):
        our = ours.PlaceholderObserver(compute_dtype=torch.quint8)
    assert our.is_dynamic


# States ------------------------------------------------------------------------------------------


def observed(kind, name):
    torch.manual_seed(5)
    observer = getattr(kind, name)()
    for _ in range(2):
        observer(torch.randn(4, 6))
    return observer


STATEFUL = [
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "PerChannelMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "HistogramObserver",
]


@pytest.mark.parametrize("name", STATEFUL)
def test_states_are_exchanged(name):
    their, our = observed(theirs, name), observed(ours, name)
    fresh_their, fresh_our = getattr(theirs, name)(), getattr(ours, name)()
    fresh_their.load_state_dict(our.state_dict())
    fresh_our.load_state_dict(their.state_dict())
    assert_same_state(fresh_their, fresh_our)
    assert_same(fresh_their.calculate_qparams(), fresh_our.calculate_qparams())


@pytest.mark.parametrize("name", STATEFUL)
def test_a_loaded_state_is_a_copy(name):
    our = observed(ours, name)
    state = our.state_dict()
    fresh = getattr(ours, name)()
    fresh.load_state_dict(state)
    before = {key: value.clone() for key, value in state.items()}
    fresh(torch.randn(4, 6) * 100)
    assert all(torch.equal(before[key], state[key]) for key in state)


@pytest.mark.parametrize("name", STATEFUL)
def test_old_states(name):
    """Version 1 has no eps, version 2 of observers per channel has other names."""
    state = observed(ours, name).state_dict()
    del state["eps"]
    state._metadata[""]["version"] = 1
    if "PerChannel" in name:
        for key in ("min_val", "max_val"):
            state[f"{key}s"] = state.pop(key)
    our = getattr(ours, name)()
    our.load_state_dict(state)
    assert_same(our.calculate_qparams(), observed(ours, name).calculate_qparams())


@pytest.mark.parametrize("name", STATEFUL)
def test_copies_and_files(name):
    our = observed(ours, name)
    expected = our.calculate_qparams()
    for clone in (copy.deepcopy(our), pickle.loads(pickle.dumps(our))):
        assert_same(clone.calculate_qparams(), expected)
    file = io.BytesIO()
    torch.save(our.state_dict(), file)
    file.seek(0)
    fresh = getattr(ours, name)()
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert_same(fresh.calculate_qparams(), expected)


@pytest.mark.parametrize("name", STATEFUL[:4])
def test_reset(name):
    their, our = observed(theirs, name), observed(ours, name)
    their.reset_min_max_vals()
    our.reset_min_max_vals()
    assert_same_state(their, our)


class Observed(nn.Module):
    def __init__(self, kind, **kwargs):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.activation_post_process_0 = kind.MinMaxObserver(**kwargs)
        self.inner = nn.Module()
        self.inner.activation_post_process_1 = kind.PerChannelMinMaxObserver()


def test_states_of_observers_apart():
    their, our = Observed(theirs), Observed(ours, eps=1e-10)
    for model in (their, our):
        model.activation_post_process_0(torch.tensor([1.0, 2.0]))
        model.inner.activation_post_process_1(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    state = ours.get_observer_state_dict(our)
    assert list(state) == list(theirs.get_observer_state_dict(their))
    fresh = Observed(ours)
    ours.load_observer_state_dict(fresh, state)
    assert float(fresh.activation_post_process_0.eps) == pytest.approx(1e-10)
    assert fresh.inner.activation_post_process_1.max_val.tolist() == [2.0, 4.0]
    of_theirs = Observed(theirs)
    ours.load_observer_state_dict(of_theirs, state)
    assert of_theirs.activation_post_process_0.max_val == 2.0
    state["activation_post_process_0.min_val"] = torch.ones(2)
    with pytest.raises(RuntimeError, match=r"size mismatch for activation_post_process_0\.min_val"):
        ours.load_observer_state_dict(fresh, state)


# Kinds -------------------------------------------------------------------------------------------


def test_observers_of_torch_are_observers():
    assert isinstance(theirs.MinMaxObserver(), ours.ObserverBase)
    assert issubclass(theirs.HistogramObserver, ours.ObserverBase)
    assert not isinstance(theirs.MinMaxObserver(), ours.MinMaxObserver)
    assert not isinstance(nn.Linear(1, 1), ours.ObserverBase)


def test_kinds_of_modules():
    for kind in (ours, theirs):
        assert ours._is_activation_post_process(kind.MinMaxObserver())
    assert not ours._is_activation_post_process(nn.Linear(1, 1))


def test_constructors_with_arguments():
    for kind in (ours, theirs):
        partly = kind.MinMaxObserver.with_args(dtype=torch.qint8).with_args(quant_min=-10)
        computed = []

        def factory_kwargs(computed=computed):
            computed.append(1)
            return {"dtype": torch.float64}

        partly = partly.with_callable_args(factory_kwargs=factory_kwargs)
        one, other = partly(quant_max=10), partly(quant_max=20)
        assert one is not other
        assert computed == [1, 1]
        assert (one.quant_min, one.quant_max, other.quant_max) == (-10, 10, 20)
        assert one.min_val.dtype == torch.float64
        assert partly(factory_kwargs=None).min_val.dtype == torch.float32
        assert len(computed) == 2


def test_ranges_as_functions():
    assert (
        utils.determine_qparams(
            torch.tensor([-1.0, 0.0]),
            torch.tensor([1.0, 3.0]),
            -128,
            127,
            torch.qint8,
            torch.tensor([1e-7]),
            False,
            torch.per_channel_symmetric,
        )[0].dtype
        == torch.float64
    )
    from torch.ao.quantization import utils as their_utils

    for low, high in ((-1.0, 2.0), (0.5, 2.0), (-3.0, -1.0), (0.0, 0.0)):
        for qscheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            arguments = (
                torch.tensor(low),
                torch.tensor(high),
                0,
                255,
                torch.quint8,
                torch.tensor([1e-7]),
                False,
                qscheme,
            )
            assert_same(
                their_utils.determine_qparams(*arguments), utils.determine_qparams(*arguments)
            )


def test_names_that_nothing_matches():
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(nn.Conv2d(1, 1, 1)))
    mapping = QConfigMapping().set_module_name("featurs", None).set_module_name("features.0", None)
    mapping.set_module_name_regex("head.*", None)
    assert list(unmatched_names(mapping, model)) == [
        "the model has no module 'featurs': did you mean features or features.0?",
        "no module of the model matches 'head.*'",
    ]


def test_nothing_imports_torch_ao():
    package = Path(ours.__file__).parents[1]
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            assert not any(name.startswith("torch.ao") for name in names), path
