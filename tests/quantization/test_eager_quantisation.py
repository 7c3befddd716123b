"""Quantisation module by module, against torch.ao.quantization's eager mode on its own test models."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections import OrderedDict

import pytest
import torch
import torch.ao.nn.intrinsic as their_fused
import torch.ao.nn.quantized as their_quantised
import torch.ao.quantization as theirs
import torch.ao.quantization.quantization_mappings as their_mappings
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.testing._internal import common_quantization as models

import corsac
import corsac.quantization as ours
import corsac.quantization.intrinsic as our_fused
import corsac.quantization.quantization_mappings as our_mappings
from corsac.quantization._conversion import CalibrationError
from corsac.quantization.ns import compute_sqnr
from corsac.quantization.quantized import dynamic, functional_modules, fused, static
from kit.int8_products import pytorch_saturates

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fbgemm():
    """PyTorch's kernels of fbgemm: with those of the engine "x86", transposed convolutions are wrong."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    yield
    torch.backends.quantized.engine = before


class Between(nn.Module):
    """A model between stubs."""

    def __init__(self, inner, qconfig):
        super().__init__()
        self.quant, self.inner, self.dequant = theirs.QuantStub(), inner, theirs.DeQuantStub()
        self.qconfig = qconfig

    def forward(self, *args):
        return self.dequant(self.inner(*map(self.quant, args)))


class Layers(nn.Module):
    """Layers of several kinds, in a row."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, groups=1)
        self.norm = nn.BatchNorm2d(8)
        self.leaky = nn.LeakyReLU(0.2)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, groups=8, bias=False)
        self.relu6 = nn.ReLU6()
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.5)
        self.last = nn.Linear(8 * 2 * 2, 4)
        for name in ("weight", "bias", "running_mean"):
            nn.init.uniform_(getattr(self.norm, name), 0.5, 1.5)

    def forward(self, x):
        x = self.relu6(self.depthwise(self.leaky(self.norm(self.conv(x)))))
        return self.last(self.dropout(self.pool(x)).flatten(1))


class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm3d(4)

    def forward(self, x):
        return self.norm(self.conv(x))


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3)
        self.relu = nn.ReLU()
        self.swish = nn.Hardswish()

    def forward(self, x):
        return self.swish(self.relu(self.conv(x)))


class Sums(nn.Module):
    """All operations of FloatFunctional."""

    def __init__(self):
        super().__init__()
        for name in ("add", "mul", "cat", "add_relu", "matmul", "add_scalar", "mul_scalar"):
            setattr(self, name, their_quantised.FloatFunctional())

    def forward(self, x, y):
        z = self.mul_scalar.mul_scalar(self.add_scalar.add_scalar(x, 0.5), 2.0)
        z = self.add_relu.add_relu(self.mul.mul(self.add.add(z, y), y), x)
        return self.matmul.matmul(self.cat.cat([z, x], 0), y.T)


def normalised():
    model = models.NormalizationTestModel()
    model.qconfig = theirs.default_qconfig
    return model


def embedded():
    model = models.EmbeddingWithStaticLinear()
    # torch.ao computes sums for all modes.
    model.emb.mode = "sum"
    return model


def between(make, backend="x86"):
    return lambda: Between(make(), theirs.get_default_qconfig(backend))


def numbers(*shapes):
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def bags():
    return torch.randint(0, 10, (32,)), torch.tensor([0, 19, 20, 28, 28, 31]), torch.randn(6, 4)


#: Models, with inputs, and how many steps of the last layer results may differ by.
STATIC = {
    "linear": (models.AnnotatedSingleLayerLinearModel, numbers((8, 5)), 0),
    "two linear": (models.AnnotatedTwoLayerLinearModel, numbers((8, 5)), 0),
    "nested": (lambda: models.AnnotatedNestedModel("x86"), numbers((8, 5)), 0),
    "parts": (models.AnnotatedSubNestedModel, numbers((8, 5)), 0),
    "configurations": (models.AnnotatedCustomConfigNestedModel, numbers((8, 5)), 0),
    "left out": (lambda: models.AnnotatedSkipQuantModel("x86"), numbers((8, 5)), 0),
    "stubs": (models.QuantStubModel, numbers((8, 5)), 0),
    "conv": (lambda: models.AnnotatedConvModel("x86"), numbers((2, 3, 9, 9)), 0),
    "transposed": (
        lambda: models.AnnotatedConvTransposeModel("qnnpack"),
        numbers((2, 3, 9, 9)),
        0,
    ),
    "batch norm": (models.AnnotatedConvBnModel, numbers((2, 3, 9, 9)), 0),
    "activations": (models.ActivationsTestModel, numbers((8, 5)), 0),
    "norms": (normalised, numbers((8, 5)), 0),
    "functionals": (between(models.ModelWithFunctionals), numbers((8, 5)), 0),
    "all functionals": (between(Sums), numbers((4, 5), (4, 5)), 2),
    "embedding bag": (embedded, bags, 0),
    "layers": (between(Layers), numbers((2, 3, 10, 10)), 1),
    "volumes": (between(Volumes), numbers((2, 2, 5, 5, 5)), 1),
    "sequences": (between(Sequences), numbers((2, 3, 12)), 1),
    # An average of values in steps is not rounded to steps, which the linear layer after it may see.
    "average": (between(models.ResNetBase), numbers((2, 3, 8, 8)), 2),
}


def floats(value):
    return value.dequantize() if value.is_quantized else value


def steps_of(model):
    """The scales and zero points of results, by the names of modules."""
    return {
        name: (float(module.scale), int(module.zero_point))
        for name, module in model.named_modules()
        if getattr(module, "scale", None) is not None and not isinstance(module, nn.Identity)
    }


def integers_of(model):
    """The integers of weights, by the names of modules, of a model of either package."""
    found = {}
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if callable(weight):
            weight = weight()
            found[name] = weight.int_repr() if weight.is_quantized else weight
        elif weight is not None and not weight.is_floating_point():
            found[name] = weight
    return found


def compare(left, right, inputs, allowed):
    """Scales, zero points, integers, and results, which differ by so many steps of the last module at most."""
    theirs_, ours_ = steps_of(left), steps_of(right)
    # Modules that round nothing have no steps here, and those of their input in torch.ao.
    assert ours_ and {name: theirs_[name] for name in ours_} == ours_
    wanted, got = integers_of(left), integers_of(right)
    assert wanted.keys() == got.keys()
    for name, weight in wanted.items():
        assert torch.equal(weight, got[name]), name
    last = [scale for scale, _ in ours_.values()][-1]
    for batch in inputs:
        a, b = floats(left(*batch)), right(*batch)
        assert b.dtype == torch.float32
        assert pytorch_saturates() or float((a - b).abs().max()) <= allowed * last + 1e-5


@pytest.mark.parametrize("case", STATIC)
def test_calibrated_models_are_those_of_torch_ao(case):
    make, inputs, allowed = STATIC[case]
    torch.manual_seed(0)
    model = make().eval()
    data = [inputs() for _ in range(3)]
    left, right = theirs.prepare(model), ours.prepare(model)
    with torch.no_grad():
        for batch in data:
            assert torch.equal(left(*batch), right(*batch))
        assert [name for name, _ in left.named_modules()] == [
            name for name, _ in right.named_modules()
        ]
        compare(theirs.convert(left), ours.convert(right), data, allowed)


TRAINED = {
    "linear": (lambda: models.ManualLinearQATModel("x86"), numbers((8, 5)), 0),
    "dropout": (lambda: models.ManualDropoutQATModel("x86"), numbers((8, 5)), 0),
    "conv": (models.ManualConvLinearQATModel, numbers((2, 3, 10, 10)), 1),
    "batch norms": (
        lambda: fused_for_training(Between(models.ResNetBase(), None)),
        numbers((2, 3, 8, 8)),
        2,
    ),
}


def fused_for_training(model):
    model.train()
    model.inner.fuse_model()
    model.qconfig = theirs.get_default_qat_qconfig("x86")
    return model


@pytest.mark.parametrize("case", TRAINED)
def test_trained_models_are_those_of_torch_ao(case):
    make, inputs, allowed = TRAINED[case]
    torch.manual_seed(0)
    model = make().train()
    data = [inputs() for _ in range(4)]
    both = theirs.prepare_qat(model), ours.prepare_qat(model)
    for batch in data:
        for one in both:
            optimiser = torch.optim.SGD(one.parameters(), 0.01)
            optimiser.zero_grad()
            torch.manual_seed(1)
            one(*batch).square().mean().backward()
            optimiser.step()
    with torch.no_grad():
        left, right = (one.eval() for one in both)
        assert torch.equal(left(*data[0]), right(*data[0]))
        compare(theirs.convert(left), ours.convert(right), data, allowed)


@pytest.mark.parametrize(
    "make", [models.ManualEmbeddingBagLinear, models.DeFusedEmbeddingBagLinear]
)
def test_trained_embeddings(make):
    torch.manual_seed(0)
    model = make().train()
    if hasattr(model.emb, "mode"):
        model.emb.mode = "sum"
    args = (torch.randint(0, 10, (5, 12)),)
    if make is models.ManualEmbeddingBagLinear:
        args = args[0].flatten(), torch.arange(0, 60, 12)
    results = []
    for package, mappings in ((theirs, their_mappings), (ours, our_mappings)):
        prepared = package.prepare_qat(model, mapping=mappings.get_embedding_qat_module_mappings())
        first = prepared(*args)
        first.sum().backward()
        mapping = mappings.get_embedding_static_quant_module_mappings()
        converted = package.convert(prepared.eval(), mapping=mapping)
        results.append((first, converted(*args)))
    assert torch.equal(results[0][0], results[1][0])
    if not pytorch_saturates():
        torch.testing.assert_close(results[0][1], results[1][1], atol=1e-5, rtol=0)


def test_whole_flows():
    torch.manual_seed(0)
    data = [(torch.randn(4, 5), None) for _ in range(3)]
    for name, make, run in (
        ("quantize", models.QuantStubModel, theirs.default_eval_fn),
        ("quantize_qat", lambda: models.ManualLinearQATModel("x86"), train),
    ):
        model = make()
        before = copy.deepcopy(model.state_dict())
        done = []
        for package in (theirs, ours):
            torch.manual_seed(3)
            done.append(getattr(package, name)(copy.deepcopy(model), run, [data]).eval())
        compare(*done, [(x,) for x, _ in data], 0)
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    called = []
    ours.default_eval_fn(called.append, [(1, 2), (3, 4)])
    assert called == [1, 3]


def train(model, data):
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    for x, _ in data:
        optimiser.zero_grad()
        model(x).sum().backward()
        optimiser.step()


SUMS = {
    "add": lambda conv, x, y: conv(x) + y,
    "relu": lambda conv, x, y: F.relu(conv(x) + y),
}


@pytest.mark.parametrize("case", SUMS)
def test_convolutions_with_sums(case):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, padding=1)
    kinds = {"add": our_fused.ConvAdd2d, "relu": our_fused.ConvAddReLU2d}
    parts = (conv, torch.add) if case == "add" else (conv, torch.add, nn.ReLU())
    model = nn.Sequential(kinds[case](*parts)).eval()
    model.qconfig = ours.get_default_qconfig("onednn")
    x, y = torch.randn(2, 3, 6, 6), torch.randn(2, 4, 6, 6)
    prepared = ours.prepare(model)
    prepared[0](x, y)
    layer = ours.convert(prepared)[0]
    assert type(layer) is getattr(fused, kinds[case].__name__)
    expected = SUMS[case](conv, x, y)
    result = layer(x, y)
    # The weight is rounded, and the result.
    assert 0 < float((result - expected).abs().max()) < layer.scale / 2 + 0.03
    levels = result / layer.scale
    torch.testing.assert_close(levels, levels.round(), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("name", "activation"),
    [("LinearLeakyReLU", nn.LeakyReLU(0.3)), ("LinearTanh", nn.Tanh()), ("LinearReLU", nn.ReLU())],
)
def test_linear_layers_with_activations(name, activation):
    torch.backends.quantized.engine = "onednn"
    torch.manual_seed(0)
    layer = nn.Linear(5, 4)
    data, results = [(torch.randn(6, 5),) for _ in range(2)], []
    for package, kinds in ((theirs, their_fused), (ours, our_fused)):
        model = Between(
            getattr(kinds, name)(layer, copy.deepcopy(activation)),
            theirs.get_default_qconfig("onednn"),
        ).eval()
        prepared = package.prepare(model)
        for batch in data:
            prepared(*batch)
        results.append(package.convert(prepared))
    compare(*results, data, 1)
    assert type(results[1].inner) is getattr(fused, name)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_batch_norms_with_relu(dimensions):
    torch.manual_seed(0)
    norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dimensions](4)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    data = [(torch.randn(2, 4, *(5,) * dimensions),) for _ in range(2)]
    results = []
    for package, kinds in ((theirs, their_fused), (ours, our_fused)):
        kind = getattr(kinds, f"BNReLU{dimensions}d")
        model = Between(kind(norm, nn.ReLU()), theirs.default_qconfig).eval()
        prepared = package.prepare(model)
        for batch in data:
            prepared(*batch)
        results.append(package.convert(prepared))
    compare(*results, data, 1)


def test_stubs_and_functionals_of_this_package():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = ours.QuantStub(), ours.DeQuantStub()
            self.sum = functional_modules.FloatFunctional()

        def forward(self, x):
            return self.dequant(self.sum.add(self.quant(x), x))

    model = Model().eval()
    model.qconfig = ours.default_qconfig
    prepared = ours.prepare(model)
    x = torch.linspace(-1, 1, 21)
    prepared(x)
    done = ours.convert(prepared)
    assert [type(module) for module in done.children()] == [
        static.Quantize,
        static.DeQuantize,
        functional_modules.QFunctional,
    ]
    # Seven bits of -2 to 2.
    assert done.sum.scale == pytest.approx(4 / 127) and done.sum.zero_point == 64
    assert float((done(x) - 2 * x).abs().max()) <= 4 / 127
    with pytest.raises(RuntimeError, match="FloatFunctional is not called itself"):
        model.sum(x)
    plain = functional_modules.FXFloatFunctional()
    assert torch.equal(plain.mul(x, x), x * x)
    assert "scale=0.031" in repr(done) and "zero_point=64" in repr(done)


def leaves(value):
    return torch.cat([leaf.flatten() for leaf in torch.utils._pytree.tree_leaves(value)])


def prepared_and_run(qconfig=None):
    torch.manual_seed(0)
    model = models.AnnotatedTwoLayerLinearModel().eval()
    if qconfig is not None:
        model.fc2.qconfig = qconfig
    prepared = ours.prepare(model)
    prepared(torch.randn(4, 5))
    return prepared


def test_state_dicts_and_copies():
    x = torch.randn(4, 5)
    first = ours.convert(prepared_and_run())
    torch.manual_seed(9)
    other = ours.prepare(models.AnnotatedTwoLayerLinearModel().eval())
    other(10 * torch.randn(4, 5))
    second = ours.convert(other)
    assert not torch.equal(first(x), second(x))
    state = first.state_dict()
    assert {"fc2.module.scale", "fc2.module.zero_point", "fc2.quant.scale"} <= set(state)
    second.load_state_dict(state)
    assert torch.equal(first(x), second(x))
    with pytest.raises(RuntimeError, match=r'Missing key.*"fc2.module.zero_point"'):
        second.load_state_dict({k: v for k, v in state.items() if k != "fc2.module.zero_point"})
    file = io.BytesIO()
    torch.save(first, file)
    file.seek(0)
    for one in (
        copy.deepcopy(first),
        pickle.loads(pickle.dumps(first)),
        torch.load(file, weights_only=False),
    ):
        assert torch.equal(first(x), one(x))


def test_models_compile_to_the_same_numbers():
    torch.manual_seed(0)
    model = Between(Layers(), ours.get_default_qconfig("x86")).eval()
    prepared = ours.prepare(model)
    x = torch.randn(2, 3, 10, 10)
    prepared(x)
    static_model = ours.convert(prepared)
    dynamic_model = ours.quantize_dynamic(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    )
    recurrent = ours.quantize_dynamic(models.RNNDynamicModel("GRU"))
    with torch.inference_mode():
        for one, value in (
            (static_model, x),
            (dynamic_model, torch.randn(5, 64)),
            (recurrent, torch.randn(2, 2, 2)),
        ):
            torch.testing.assert_close(
                leaves(corsac.compile(one)(value)), leaves(one(value)), atol=1e-5, rtol=1e-5
            )


def test_hooks_run_once_and_stay():
    calls = []
    model = models.AnnotatedSingleLayerLinearModel().eval()
    layer = model.fc1.module
    layer.register_forward_hook(lambda *_: calls.append("after"))
    layer.register_forward_pre_hook(lambda *_: calls.append("before"))
    prepared = ours.prepare(model)
    prepared(torch.randn(2, 5))
    assert calls == ["before", "after"]
    done = ours.convert(prepared)
    assert len(done.fc1.module._forward_hooks) == 1
    done(torch.randn(2, 5))
    assert calls == ["before", "after"] * 2
    assert not any(hasattr(module, "qconfig") for module in done.modules())
    assert not any("activation_post_process" in name for name, _ in done.named_modules())
    kept = ours.convert(prepared, remove_qconfig=False)
    assert kept.fc1.qconfig is not None


def test_models_that_torch_ao_prepared_are_converted():
    torch.manual_seed(0)
    model = models.AnnotatedTwoLayerLinearModel().eval()
    prepared = theirs.prepare(model)
    x = torch.randn(4, 5)
    prepared(x)
    compare(theirs.convert(prepared), ours.convert(prepared), [(x,)], 0)
    assert not any(module._forward_hooks for module in ours.convert(prepared).modules())


@pytest.mark.parametrize("case", TRAINED)
def test_models_that_torch_ao_trained_are_converted(case):
    make, inputs, allowed = TRAINED[case]
    torch.manual_seed(0)
    prepared = theirs.prepare_qat(make().train())
    data = [inputs() for _ in range(2)]
    for batch in data:
        prepared(*batch)
    prepared.eval()
    compare(theirs.convert(prepared), ours.convert(prepared), data, allowed)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_models_of_torchvision(name):
    """As exact as torch.ao's; natively, too, where sums that are between two steps are rounded the other way."""
    torch.manual_seed(0)
    model = getattr(torchvision.models.quantization, name)(quantize=False).train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 3, 64, 64))
        model.eval().fuse_model()
        x = torch.randn(2, 3, 64, 64)
        expected = model(x)
        model.qconfig = theirs.get_default_qconfig("x86")
        left, right = theirs.prepare(model), ours.prepare(model)
        left(x), right(x)
        left, right = theirs.convert(left), ours.convert(right)
        assert steps_of(right).items() <= steps_of(left).items()
        result = right(x)
        exact = float(compute_sqnr(expected, result))
        assert exact > 20 and exact > float(compute_sqnr(expected, left(x))) - 0.5
        with torch.inference_mode():
            native = corsac.compile(right)(x)
        assert float(compute_sqnr(expected, native)) > exact - 0.5
        assert float(compute_sqnr(result, native)) > exact + 5


def test_configurations_are_inherited():
    model = nn.Sequential(
        OrderedDict(a=nn.Linear(2, 2), b=nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    )
    model.b.qconfig = ours.default_qconfig
    model.b[1].qconfig = None
    both = copy.deepcopy(model), copy.deepcopy(model)
    spec = {"a": theirs.default_dynamic_qconfig, nn.Linear: theirs.float16_dynamic_qconfig}
    theirs.propagate_qconfig_(both[0], spec)
    ours.propagate_qconfig_(both[1], spec)
    for left, right in zip(both[0].modules(), both[1].modules(), strict=True):
        assert (left.qconfig is None) == (right.qconfig is None)
        assert ours.qconfig_equals(left.qconfig, right.qconfig)
    assert type(both[1].a.qconfig.activation()).__name__ == "PlaceholderObserver"
    assert both[1].b[1].qconfig is None


def test_leaves_get_stubs():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    model[0].qconfig = model[1][1].qconfig = ours.default_qconfig
    wrapped = ours.add_quant_dequant(model)
    assert wrapped is model
    assert [type(module).__name__ for module in (model[0], model[1][0], model[1][1])] == [
        "QuantWrapper",
        "ReLU",
        "QuantWrapper",
    ]
    leaf = nn.Linear(2, 2)
    leaf.qconfig = ours.default_qconfig
    assert ours.add_quant_dequant(leaf).module is leaf


def test_custom_modules():
    class Float(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)

        def forward(self, x):
            return self.conv(x)

    class Observed(Float):
        @classmethod
        def from_float(cls, module):
            made = cls()
            made.conv, made.qconfig = module.conv, module.qconfig
            return made

    class Quantised(Float):
        @classmethod
        def from_observed(cls, module):
            assert module.qconfig is not None
            made = cls()
            made.scale = float(module.activation_post_process.calculate_qparams()[0])
            return made

    model = nn.Sequential(Float(), nn.Conv2d(1, 1, 1)).eval()
    model.qconfig = ours.default_qconfig
    prepared = ours.prepare(
        model,
        prepare_custom_config_dict={"float_to_observed_custom_module_class": {Float: Observed}},
    )
    assert type(prepared[0]) is Observed
    assert not hasattr(prepared[0].conv, "activation_post_process")
    x = torch.rand(1, 1, 4, 4)
    prepared(x)
    expected = float(prepared[0].activation_post_process.calculate_qparams()[0])
    done = ours.convert(
        prepared,
        convert_custom_config_dict={
            "observed_to_quantized_custom_module_class": {Observed: Quantised}
        },
    )
    assert type(done[0]) is Quantised and done[0].scale == expected
    assert type(done[1]) is static.Conv2d


def test_reference_modules():
    torch.manual_seed(0)
    prepared = prepared_and_run()
    done = ours.convert(prepared, is_reference=True)
    layer = done.fc2.module
    assert type(layer).__module__ == "corsac.quantization.reference"
    theirs_ = theirs.prepare(models.AnnotatedTwoLayerLinearModel().eval())
    assert layer.get_quantized_weight().dtype == torch.int8
    assert torch.equal(layer.get_quantized_weight(), ours.convert(prepared).fc2.module.weight)
    assert type(theirs.convert(theirs_, is_reference=True).fc2.module).__name__ == "Linear"


def test_recurrent_layers_stay_floats_with_a_warning():
    model = nn.ModuleDict({"rnn": nn.RNN(4, 4), "gru": nn.GRU(4, 4)}).eval()
    model.qconfig = ours.default_qconfig
    with pytest.warns(UserWarning, match="stay floats: rnn, gru"):
        prepared = ours.prepare(model)
    done = ours.convert(prepared)
    x = torch.randn(3, 2, 4)
    for name in ("rnn", "gru"):
        assert torch.equal(done[name](x)[0], model[name](x)[0])


def test_errors():
    model = models.AnnotatedTwoLayerLinearModel().eval()
    with pytest.raises(
        CalibrationError, match=r"2 of 2 observers have seen no values: fc2.quant, fc2.module; run"
    ):
        ours.convert(ours.prepare(model))
    prepared = prepared_and_run()
    prepared.fc2.module.weight.data[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"fc2.module.weight has NaN or infinity.*: 1 of \d+"):
        ours.convert(prepared)
    broken = models.TwoLayerLinearModel()
    broken.fc1.weight.data[0, 0] = float("inf")
    with pytest.raises(ValueError, match=r"fc1.weight has NaN or infinity"):
        ours.quantize_dynamic(broken)
    with pytest.raises(ValueError, match=r"expected a dtype of .*torch.float16.*, got torch.int32"):
        ours.quantize_dynamic(model, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"expected a dtype of .*, got torch.int32"):
        ours.quantize_dynamic(model, {nn.Linear}, dtype=torch.int32)
    with pytest.raises(AssertionError, match="expected a model in training mode"):
        ours.prepare_qat(model)
    with pytest.raises(
        ValueError, match=r"expected results of a type of integers, got torch\.float16"
    ):
        ours.convert(prepared_and_run(ours.float16_static_qconfig))
    alone = nn.Sequential(nn.Linear(2, 2))
    alone[0].qconfig = ours.default_qconfig
    with pytest.raises(
        ValueError, match="Linear: expected a module with an observer, which prepare adds"
    ):
        ours.convert(alone)
    with pytest.raises(
        ValueError, match=r"Quantize: expected a type of integers, got torch\.float16"
    ):
        static.Quantize(1.0, 0, torch.float16)
    with pytest.raises(ValueError, match="expected max_norm None"):
        ours.quantize_dynamic(nn.Sequential(nn.Embedding(4, 4, max_norm=1.0)), dtype=torch.quint8)


def test_warnings_of_what_matches_nothing():
    model = models.TwoLayerLinearModel().eval()
    with pytest.warns(UserWarning, match="the model has no module 'fc11': did you mean fc1"):
        done = ours.quantize_dynamic(model, {"fc11", "fc2"})
    assert type(done.fc1) is nn.Linear and type(done.fc2) is dynamic.Linear
    with pytest.warns(UserWarning, match="the model has no module of type LSTM"):
        ours.quantize_dynamic(model, {nn.LSTM: ours.default_dynamic_qconfig})
    with pytest.warns(UserWarning, match="no module has a qconfig"):
        ours.prepare(model)


NAMES = [
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "swap_module",
    "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_embedding_static_quant_module_mappings",
    "get_dynamic_quant_module_class",
    "get_static_quant_module_class",
    "no_observer_set",
]


@pytest.mark.parametrize("name", NAMES)
def test_signatures(name):
    place = theirs if hasattr(theirs, name) else their_mappings
    left, right = (inspect.signature(getattr(one, name)) for one in (place, ours))
    assert [*left.parameters] == [*right.parameters]
    for parameter, other in zip(left.parameters.values(), right.parameters.values(), strict=True):
        assert parameter.default == other.default, parameter.name


def described(kinds):
    """Classes by name and package, without what is before and after it."""
    return {
        (kind.__name__, "qat" in kind.__module__.split("."), "reference" in kind.__module__)
        for kind in kinds
    }


@pytest.mark.parametrize(
    "name",
    [
        "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
        "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS",
        "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
        "DEFAULT_QAT_MODULE_MAPPINGS",
    ],
)
def test_mappings_have_the_same_classes(name):
    left, right = getattr(their_mappings, name), getattr(our_mappings, name)
    assert described(left) == described(right)
    for kind, made in left.items():
        own = our_mappings.counterpart(kind, right)
        assert own.__name__ == made.__name__, kind


def test_classes_of_layers():
    assert ours.get_static_quant_module_class(nn.Linear) is static.Linear
    assert ours.get_static_quant_module_class(their_fused.ConvReLU2d) is fused.ConvReLU2d
    assert ours.get_dynamic_quant_module_class(nn.LSTM) is dynamic.LSTM
    assert ours.get_static_quant_module_class(nn.ReLU, {nn.ReLU: nn.ReLU6}) is nn.ReLU6
    with pytest.raises(AssertionError, match="no quantised class for ReLU"):
        ours.get_static_quant_module_class(nn.ReLU)
    # A quantised layer of torch.ao is no layer for training.
    assert (
        our_mappings.counterpart(
            their_quantised.Linear, our_mappings.DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
        )
        is None
    )
