"""Models that torch.ao has quantised, as this package reads them, against PyTorch's kernels."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch
import torch.ao.quantization as theirs
import torch.ao.quantization.quantize_fx as their_graphs
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.testing._internal import common_quantization as models

import corsac
import corsac.fx
from corsac.quantization import UnreadableError, from_torch_ao
from corsac.quantization._tracer import QuantizationTracer
from corsac.quantization.torch_ao._weights import integers_of
from kit import row
from kit.int8_products import pytorch_saturates

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fbgemm")]

#: Largest share of the levels of a value that are the neighbour of PyTorch's.
RARE = 2e-3


class Recording(corsac.fx.Interpreter):
    """Runs a model, and keeps copies of the values."""

    def __init__(self, module):
        super().__init__(module)
        self.values = {}

    def run_node(self, node):
        value = super().run_node(node)
        # Later calls may write to it.
        self.values[node.name] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


class Following(corsac.fx.Interpreter):
    """Runs a model that was read, and puts PyTorch's levels in the places of its own once they are compared."""

    def __init__(self, module, values):
        super().__init__(module)
        self.values, self.apart = values, {}

    def run_node(self, node):
        own = super().run_node(node)
        name = node.name.removesuffix("_quantized")
        if name == node.name or name not in self.values:
            return own
        levels = self.values[name].int_repr()
        distance = (levels.int() - own.int()).abs()
        self.apart[name] = int(distance.max()), float((distance > 0).float().mean())
        scale, zero_point = node.args[1:3]
        assert (scale, zero_point) == (
            self.values[name].q_scale(),
            self.values[name].q_zero_point(),
        ), name
        return levels


def apart(converted, read, *inputs):
    """The largest distance of levels, and the share that differ, by the node that makes them."""
    if not isinstance(converted, torch.fx.GraphModule):
        traced = corsac.fx.GraphModule(converted, QuantizationTracer().trace(converted))
    else:
        traced = corsac.fx.from_torch(converted)
    with torch.no_grad():
        recording = Recording(traced)
        recording.run(*inputs)
        following = Following(read, recording.values)
        following.run(*inputs)
    assert following.apart
    return following.apart


def plain(value):
    """Results as floats."""
    leaves = torch.utils._pytree.tree_leaves(value)
    return [own.dequantize() if own.is_quantized else own for own in leaves]


def assert_native(model, read, inputs, nodes=1):
    """The compiled model computes what ``read`` computes, natively."""
    compiled = corsac.compile(model)
    with torch.no_grad():
        for _ in range(3):
            results = plain(compiled(*inputs))
        torch.testing.assert_close(results, plain(read(*inputs)), atol=2e-6, rtol=2e-6)
    assert "steps" in compiled.explain() and "PyTorch ran" not in compiled.explain()
    return compiled


def assert_close_when_compiled(model, read, images):
    """The compiled model is as near to PyTorch's kernels as the read one: levels between which numbers are go on
    through all layers."""
    compiled = corsac.compile(model)
    with torch.no_grad():
        expected = model(images)
        for _ in range(3):
            found = compiled(images)
        for result in (found, read(images)):
            assert (result - expected).norm() < 0.05 * expected.norm()
    assert "steps" in compiled.explain() and "PyTorch ran" not in compiled.explain()
    return compiled


GRAPHS = [
    "ActivationsTestModel",
    "ConvBnAddReluModel",
    "ConvReluAddModel",
    "ConvTransposeModel",
    "FunctionalConvReluConvModel",
    "FunctionalLinearAddModel",
    "FunctionalLinearReluLinearModel",
    "LinearBnLeakyReluModel",
    "LinearTanhModel",
    "ModelMultipleOps",
    "NestedModel",
    "ResNetBase",
]


def small(name):
    """A model of torch.ao's tests, and inputs of it."""
    model = getattr(models, name)().eval()
    if hasattr(model, "get_example_inputs"):
        return model, model.get_example_inputs()
    for shape in ((1, 3, 8, 8), (4, 5), (4, 8), (1, 3, 5, 5)):
        try:
            model(torch.zeros(shape))
            return model, (torch.randn(shape),)
        except Exception:
            continue
    raise AssertionError(name)


def prepared(model, inputs, qconfig=None):
    mapping = theirs.get_default_qconfig_mapping("fbgemm")
    if qconfig is not None:
        mapping = theirs.QConfigMapping().set_global(qconfig)
    made = their_graphs.prepare_fx(copy.deepcopy(model), mapping, inputs)
    made(*inputs)
    return made


@pytest.mark.parametrize("name", GRAPHS)
def test_converted_graphs_have_their_levels(name):
    model, inputs = small(name)
    converted = their_graphs.convert_fx(prepared(model, inputs))
    read = from_torch_ao(converted)
    assert isinstance(read, corsac.fx.GraphModule)
    found = apart(converted, read, *inputs)
    assert max(most for most, _ in found.values()) <= 1
    values = [*plain(converted(*inputs))]
    assert len(values) == len(plain(read(*inputs)))
    assert_native(converted, read, inputs)


@pytest.mark.parametrize("name", GRAPHS)
def test_reference_graphs_have_their_numbers(name):
    model, inputs = small(name)
    reference = their_graphs.convert_to_reference_fx(prepared(model, inputs))
    read = from_torch_ao(reference)
    for expected, found in zip(plain(reference(*inputs)), plain(read(*inputs)), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    kinds = {type(own).__module__ for own in read.modules()}
    assert not any(kind.startswith("torch.ao.nn.quantized") for kind in kinds)
    assert_native(reference, read, inputs)


@pytest.mark.parametrize(
    "qconfig",
    [
        theirs.default_dynamic_qconfig,
        theirs.per_channel_dynamic_qconfig,
        theirs.float16_dynamic_qconfig,
    ],
)
@pytest.mark.parametrize("name", ["FunctionalLinearReluLinearModel", "LinearReluLinearModel"])
@pytest.mark.parametrize("form", ["convert_fx", "convert_to_reference_fx"])
def test_dynamic_graphs_have_their_numbers(qconfig, name, form):
    model, inputs = small(name)
    converted = getattr(their_graphs, form)(prepared(model, inputs, qconfig))
    read = from_torch_ao(converted)
    torch.testing.assert_close(read(*inputs), converted(*inputs), atol=2e-6, rtol=1e-5)
    assert_native(converted, read, inputs)


def quantised_resnet(kind, size=64):
    """A quantizable model of torchvision, converted module by module, and an input."""
    model = getattr(torchvision.models.quantization, kind)(quantize=False).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    images = torch.randn(2, 3, size, size)
    model.fuse_model()
    model.qconfig = theirs.get_default_qconfig("fbgemm")
    observed = theirs.prepare(model)
    observed(images)
    return theirs.convert(observed), images


@pytest.mark.parametrize("kind", ["resnet18", "mobilenet_v2"])
def test_models_of_torchvision_module_by_module(kind):
    converted, images = quantised_resnet(kind)
    read = from_torch_ao(converted)
    found = apart(converted, read, images)
    assert len(found) > 30
    assert max(most for most, _ in found.values()) == 1
    # An average of four levels is between two of them in a quarter of cases.
    pools = {name for name in found if "pool" in name}
    assert len(pools) == 1
    assert max(share for name, (_, share) in found.items() if name not in pools) < RARE
    layer = dict(converted.named_modules())["layer1.0.conv1" if "res" in kind else "features.0.0"]
    own = dict(read.named_modules())["layer1.0.conv1" if "res" in kind else "features.0.0"]
    assert own.weight.dtype == torch.int8
    assert torch.equal(own.weight, layer.weight().int_repr())
    assert torch.equal(own.weight_scale.double(), layer.weight().q_per_channel_scales())
    compiled = assert_close_when_compiled(converted, read, images)
    assert compiled.state_dict().keys() == converted.state_dict().keys()


@pytest.mark.parametrize("kind", ["resnet18", "mobilenet_v2"])
def test_models_of_torchvision_by_graph(kind):
    model = getattr(torchvision.models, kind)().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.1, 0.3)
    images = torch.randn(2, 3, 64, 64)
    converted = their_graphs.convert_fx(prepared(model, (images,)))
    read = from_torch_ao(converted)
    found = apart(converted, read, images)
    assert max(most for most, _ in found.values()) <= 1
    assert max(share for name, (_, share) in found.items() if "pool" not in name) < RARE
    assert_close_when_compiled(converted, read, images)


class Text(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = kind(16, 32, num_layers=2, batch_first=True, **options)
        self.out = nn.Linear(64 if options.get("bidirectional") else 32, 7)

    def forward(self, words):
        return self.out(self.layers(self.words(words))[0])


@row("dynamic recurrent layers of models that `from_torch_ao` reads")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}])
def test_recurrent_layers(kind, options):
    """PyTorch's kernels round the inputs of products; here they are floats. Weights are the same."""
    model, words = Text(kind, **options).eval(), torch.randint(0, 50, (3, 9))
    converted = theirs.quantize_dynamic(model)
    read = from_torch_ao(converted)
    theirs_weight = converted.layers.get_weight()["weight_hh_l1"]
    assert torch.equal(read.layers.weight_hh_l1, theirs_weight.int_repr())
    assert read.layers.weight_hh_l1.dtype == torch.int8
    whole = copy.deepcopy(model)
    for name, weight in converted.layers.get_weight().items():
        getattr(whole.layers, name).data = weight.dequantize()
    exact = whole.layers(whole.words(words))[0]
    torch.testing.assert_close(read.layers(read.words(words))[0], exact, atol=1e-6, rtol=1e-5)
    error = (converted(words) - model(words)).abs().max()
    assert 0 < (read(words) - converted(words)).abs().max() < 3 * error
    assert_native(converted, read, (words,))
    half = theirs.quantize_dynamic(model, dtype=torch.float16)
    torch.testing.assert_close(from_torch_ao(half)(words), half(words), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_cells_have_their_numbers(kind, dtype):
    converted = theirs.quantize_dynamic(nn.Sequential(kind(8, 6)), {kind}, dtype)[0]
    read = from_torch_ao(converted)
    x, state = torch.randn(5, 8), torch.randn(5, 6)
    given = (state, torch.randn(5, 6)) if kind is nn.LSTMCell else state
    for arguments in ((x,), (x, given)):
        torch.testing.assert_close(read(*arguments), converted(*arguments), atol=1e-6, rtol=1e-5)


def test_bert_has_their_numbers():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=99,
    )
    model = transformers.BertModel(config).eval()
    converted = theirs.quantize_dynamic(model)
    words = torch.randint(0, 99, (2, 20))
    read = from_torch_ao(converted)
    assert type(read) is transformers.BertModel
    assert read.encoder.layer[0].output.dense.weight.dtype == torch.int8
    # The same parameters.
    assert read.embeddings.word_embeddings.weight is converted.embeddings.word_embeddings.weight
    with torch.no_grad():
        expected = converted(words)[0]
        torch.testing.assert_close(read(words)[0], expected, atol=1e-5, rtol=1e-5)
        rows = from_torch_ao(converted, per_row=True)(words)[0]
        exact = model(words)[0]
        assert (rows - exact).norm() < 0.8 * (expected - exact).norm()
        compiled = corsac.compile(converted)
        for _ in range(3):
            result = compiled(words)
        torch.testing.assert_close(result[0], expected, atol=1e-5, rtol=1e-5)
    assert "steps" in compiled.explain()


@pytest.mark.parametrize("bits", [8, 4])
def test_tables(bits):
    qconfig = theirs.float_qparams_weight_only_qconfig
    if bits == 4:
        qconfig = theirs.float_qparams_weight_only_qconfig_4bit
    bag = nn.EmbeddingBag(50, 16, mode="sum", include_last_offset=True)
    bag.qconfig = qconfig
    converted = theirs.convert(theirs.prepare(nn.Sequential(bag)))
    read = from_torch_ao(converted)
    words, ends = torch.randint(0, 50, (12,)), torch.tensor([0, 4, 12])
    expected = converted[0](words, ends)
    torch.testing.assert_close(read[0](words, ends), expected, atol=2e-6, rtol=1e-5)
    assert read[0].weight.dtype == torch.uint8
    assert int(read[0].weight.max()) == 2**bits - 1
    state = from_torch_ao(converted.state_dict())
    assert {*state} == {"0.weight", "0.weight_scale", "0.weight_zero_point"}
    assert all(torch.equal(state[name], own) for name, own in read.state_dict().items())


@row("tables of 4 bits that `convert` makes of `nn.Embedding`")
def test_tables_of_4_bits_are_read_by_the_type_of_their_weight():
    model = nn.Sequential(nn.Embedding(50, 16))
    model.qconfig = theirs.float_qparams_weight_only_qconfig_4bit
    converted = theirs.convert(theirs.prepare(model))
    words = torch.arange(50)
    assert converted(words).shape == (50, 4)
    read = from_torch_ao(converted)
    assert read(words).shape == (50, 16)
    assert (read(words) - model(words)).abs().max() < 0.25


class Function(nn.Module):
    """A function between a quantised input and floats."""

    def __init__(self, function, zero_point=100, dtype=torch.quint8):
        super().__init__()
        self.function, self.zero_point, self.dtype = function, zero_point, dtype

    def forward(self, x):
        levels = torch.quantize_per_tensor(x, 0.05, self.zero_point, self.dtype)
        return self.function(levels).dequantize()


own = torch.ops.quantized
FUNCTIONS = {
    "relu": torch.relu,
    "flatten": lambda t: t.flatten(1),
    "transposed": lambda t: t.transpose(1, 2).contiguous(),
    "part": lambda t: t[:, 1:, ::2],
    "chunk": lambda t: t.chunk(2, 1)[1],
    "unbind": lambda t: t.unbind(1)[0],
    "max_pool": lambda t: F.max_pool2d(t, 2),
    "topk": lambda t: t.topk(2, -1)[0],
    "largest": lambda t: t.max(1)[0],
    "sort": lambda t: torch.sort(t)[0],
    "clamp": lambda t: torch.clamp(t, -0.99, 1.013),
    "hardtanh": lambda t: F.hardtanh(t, -0.5, 0.7),
    "relu6": F.relu6,
    "leaky_relu": lambda t: F.leaky_relu(t, 0.1),
    "mean": lambda t: t.mean((1, 2)),
    "interpolate": lambda t: F.interpolate(t, scale_factor=2, mode="nearest"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardsigmoid": F.hardsigmoid,
    "pad": lambda t: F.pad(t, (1, 1)),
    "same": lambda t: torch.cat([t, t], 1),
    "other scale": lambda t: torch.cat([t, torch.sigmoid(t)], 1),
    "cat": lambda t: own.cat([t, torch.sigmoid(t)], 1, 0.07, 90),
    "stack": lambda t: torch.stack([t, t]),
    "add": lambda t: own.add(t, torch.tanh(t), 0.08, 120),
    "add_relu": lambda t: own.add_relu(t, torch.tanh(t), 0.04, 3),
    "mul": lambda t: own.mul(t, torch.tanh(t), 0.03, 17),
    "plus a number": lambda t: own.add_scalar(t, 1.5),
    "plus much": lambda t: own.add_scalar(t, 20.0),
    "minus much": lambda t: own.add_scalar(t, -20.0),
    "times a number": lambda t: own.mul_scalar(t, 1.5),
    "times a negative number": lambda t: own.mul_scalar(t, -0.5),
    "times nothing": lambda t: own.mul_scalar(t, 0.0),
    "matmul": lambda t: own.matmul(t, t, 0.4, 128),
    "hardswish": lambda t: own.hardswish(t, 0.03, 9),
    "elu": lambda t: own.elu(t, 0.05, 60, 0.9),
    "celu": lambda t: own.celu(t, 0.05, 60, 1.2),
    "own leaky_relu": lambda t: own.leaky_relu(t, 0.2, False, 0.05, 50),
    "softmax": lambda t: own.softmax(t, -1, 1 / 256, 0),
    "own sigmoid": lambda t: own.sigmoid(t, 1 / 200, 2),
    "threshold": lambda t: own.threshold(t, 0.53, 0.25),
    "max_pool1d": lambda t: F.max_pool1d(t[0], 2),
    "group norm": lambda t: own.group_norm(t, 2, torch.ones(4), torch.zeros(4), 1e-5, 0.03, 120),
    "layer norm": lambda t: own.layer_norm(t, [6], torch.ones(6), torch.zeros(6), 1e-5, 0.03, 120),
    "instance norm": lambda t: own.instance_norm(t, torch.ones(4), torch.zeros(4), 1e-5, 0.03, 120),
    "batch norm": lambda t: own.batch_norm2d_relu(
        t, torch.ones(4), torch.ones(4), torch.zeros(4), torch.ones(4), 1e-5, 0.03, 20
    ),
    "levels": lambda t: t.int_repr().float(),
    "parameters": lambda t: t.dequantize() * t.q_scale() + t.q_zero_point(),
    "comparison": lambda t: (t > 0.3).float(),
    "levels in place": lambda t: t.relu_().int_repr() - 2.0 * t.int_repr(),
    "relu6 in place": lambda t: own.relu6(t, True).dequantize() + t.dequantize(),
    "in place": lambda t: F.hardtanh(t, -0.51, 0.73, inplace=True).dequantize() + t.dequantize(),
}


def test_elu_with_scales_is_left_to_pytorch():
    x = torch.randn(4, 6)
    for arguments in ((0.9,), (0.9, 1.0, 1.0)):
        traced = torch.fx.symbolic_trace(Function(lambda t: own.elu(t, 0.05, 60, *arguments)))  # noqa: B023
        torch.testing.assert_close(from_torch_ao(traced)(x), traced(x), atol=0.051, rtol=0)
    traced = torch.fx.symbolic_trace(Function(lambda t: own.elu(t, 0.05, 60, 0.9, 1.5, 1.0)))
    with pytest.raises(UnreadableError, match=r"an input_scale of 1, got quantized\.elu with 1.5"):
        from_torch_ao(traced)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("zero_point", "dtype"), [(100, torch.quint8), (-7, torch.qint8)])
def test_functions_have_their_levels(name, zero_point, dtype):
    x = torch.randn(2, 4, 6, 6) * 2
    module = Function(FUNCTIONS[name], zero_point, dtype)
    try:
        expected = module(x)
    except (RuntimeError, NotImplementedError):
        pytest.skip("PyTorch has no kernel for this type")
    traced = torch.fx.symbolic_trace(module)
    read = from_torch_ao(traced)
    result = read(x)
    assert result.shape == expected.shape
    # A level of the input, or of a result of its own steps.
    step = 0.08 if name in ("other scale", "add", "cat") else 0.05
    distance = (result - expected).abs()
    most = {"matmul": 0.4, "plus much": 0.2, "minus much": 0.2}.get(name, step)
    assert float(distance.max()) <= most * 1.001
    ties = {"mean": 0.2, "hardswish": 0.05}.get(name, 0.02)
    assert float((distance > 1e-5).float().mean()) <= ties
    with torch.no_grad():
        compiled = corsac.compile(traced)
        for _ in range(3):
            found = compiled(x)
    torch.testing.assert_close(found, result, atol=most * 1.001, rtol=0)
    assert float(((found - result).abs() > 1e-5).float().mean()) <= ties


def test_weights_that_are_packed_in_the_graph():
    class Packs(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randn(5, 4, 3, 3))
            self.register_buffer("bias", torch.randn(5))

        def forward(self, x):
            x = torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
            weight = torch.quantize_per_tensor(self.weight, 0.03, 0, torch.qint8)
            packed = own.conv2d_prepack(weight, self.bias, [1, 1], [1, 1], [1, 1], 1)
            return own.conv2d_relu(x, packed, 0.2, 3).dequantize()

    model, x = Packs().eval(), torch.randn(2, 4, 6, 6)
    read = from_torch_ao(torch.fx.symbolic_trace(model))
    integers = [own for own in read.buffers() if own.dtype == torch.int8]
    assert [own.shape for own in integers] == [(5, 4, 3, 3)]
    torch.testing.assert_close(read(x), model(x), atol=0.2001, rtol=0)
    assert float((read(x) != model(x)).float().mean()) < 0.01


def test_reduced_ranges_are_exact():
    """With activations of 7 bits, PyTorch's sums do not saturate: only ties differ from exact arithmetic."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(300, 40), nn.ReLU(), nn.Linear(40, 8)).eval()
    x = torch.randn(64, 300)
    converted = their_graphs.convert_fx(prepared(model, (x,)))
    read = from_torch_ao(converted)
    assert int(read.get_submodule("0").weight.abs().max()) > 120
    found = apart(converted, read, x)
    assert max(share for _, share in found.values()) <= 1 / 2560


def test_calls_see_new_weights():
    model = nn.Sequential(nn.Linear(8, 8)).eval()
    converted = theirs.quantize_dynamic(model)
    compiled, x = corsac.compile(converted), torch.randn(3, 8)
    with torch.no_grad():
        before = compiled(x)
        model[0].weight.mul_(2)
    other = theirs.quantize_dynamic(model)
    converted.load_state_dict(other.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), other(x), atol=2e-6, rtol=1e-5)
        assert (compiled(x) - before).abs().max() > 0.1
    again = pickle.loads(pickle.dumps(compiled))
    torch.testing.assert_close(again(x), other(x), atol=2e-6, rtol=1e-5)


class Functional(nn.Module):
    """A linear function, whose packed weight and steps are attributes of the converted graph module."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(8, 8)),
            nn.Parameter(torch.randn(8)),
        )

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


def test_calls_see_new_weights_and_steps_of_graphs():
    x = torch.randn(16, 8)
    first, other = (
        their_graphs.convert_fx(prepared(Functional().eval(), (scale * x,))) for scale in (1, 3)
    )
    compiled = corsac.compile(first)
    with torch.no_grad():
        before = compiled(x)
        first.load_state_dict(other.state_dict())
        torch.testing.assert_close(compiled(x), other(x), atol=0.1, rtol=0)
        assert (compiled(x) - before).abs().max() > 1
        name = next(own for own, _ in first.named_buffers() if "input_scale" in own)
        inside = compiled._current()
        assert compiled._current() is inside
        getattr(first, name).mul_(0.5)
        torch.testing.assert_close(compiled(x), first(x), atol=0.1, rtol=0)
        assert compiled._current() is not inside


def test_models_that_are_read_are_modules_like_others():
    model, inputs = small("FunctionalLinearReluLinearModel")
    read = from_torch_ao(their_graphs.convert_fx(prepared(model, inputs)))
    expected = read(*inputs)
    assert torch.equal(pickle.loads(pickle.dumps(read))(*inputs), expected)
    assert torch.equal(copy.deepcopy(read)(*inputs), expected)
    file = io.BytesIO()
    torch.save(read.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert all(not own.is_quantized for own in state.values())
    read.load_state_dict(state)
    assert not any(own.requires_grad for own in read.parameters())


def test_converted_models_are_saved(tmp_path):
    converted, images = quantised_resnet("resnet18", 32)
    corsac.save(converted, tmp_path / "model.safetensors", images)
    loaded = corsac.load(tmp_path / "model.safetensors")
    with torch.no_grad():
        expected = from_torch_ao(converted)(images)
    assert (loaded(images) - expected).norm() < 0.05 * expected.norm()
    size = (tmp_path / "model.safetensors").stat().st_size
    assert size < 0.27 * 4 * sum(own.numel() for own in torchvision.models.resnet18().parameters())


def test_state_dicts():
    converted, _ = quantised_resnet("resnet18", 32)
    state, own = converted.state_dict(), from_torch_ao(converted)
    own_state = {**dict(own.named_parameters()), **dict(own.named_buffers())}
    plain_state = from_torch_ao(state)
    assert not any(getattr(value, "is_quantized", False) for value in plain_state.values())
    # The steps of results are numbers in the graph.
    assert {*own_state} <= {*plain_state}
    assert all(torch.equal(value, plain_state[name]) for name, value in own_state.items())
    assert torch.equal(plain_state["fc.weight"], converted.fc.weight().int_repr())


def test_integers_of_tensors():
    values = torch.randn(3, 5)
    for dtype in (torch.quint8, torch.qint8, torch.qint32):
        tensor = torch.quantize_per_tensor(values, 0.1, 3, dtype)
        assert torch.equal(integers_of(tensor), tensor.int_repr())
    scales, zero_points = torch.full((3,), 0.4), torch.full((3,), 7.5)
    packed = torch.quantize_per_channel(values[:, :4], scales, zero_points, 0, torch.quint4x2)
    wide = torch.quantize_per_channel(values[:, :4], scales, zero_points, 0, torch.quint8)
    assert torch.equal(integers_of(packed), wide.int_repr())


def test_other_models_are_returned_as_they_are():
    model = nn.Sequential(nn.Linear(2, 2))
    assert from_torch_ao(model) is model
    with pytest.raises(TypeError, match="expected a module or a state dict, got int"):
        from_torch_ao(3)


class Branches(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.quant, self.dequant = inner, theirs.QuantStub(), theirs.DeQuantStub()

    def forward(self, x):
        x = self.quant(x)
        if x.dequantize().sum() > 0:
            return self.dequant(self.inner(x))
        return self.dequant(x)


def converted_eagerly(model, x):
    model.eval().qconfig = theirs.get_default_qconfig("fbgemm")
    observed = theirs.prepare(model)
    observed(x)
    return theirs.convert(observed)


def test_static_models_without_a_graph_are_left_to_pytorch():
    x = torch.rand(3, 8)
    converted = converted_eagerly(Branches(nn.Linear(8, 4)), x)
    with pytest.raises(
        UnreadableError, match=r"the model: expected .*symbolic_trace takes.* got Branches"
    ):
        from_torch_ao(converted)
    compiled = corsac.compile(converted)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for value in (x, -x, x):
            assert torch.equal(compiled(value), converted(value))
    assert compiled.explain().startswith("not read from torch.ao: ")


def test_parts_with_graphs_are_read_alone():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = theirs.QuantWrapper(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))

        def forward(self, x):
            return self.inner(x) if x.sum() > 0 else x[:, :4]

    x = torch.rand(3, 8)
    converted = converted_eagerly(Outer(), x)
    read = from_torch_ao(converted)
    assert type(read) is Outer
    torch.testing.assert_close(read(x), converted(x), atol=0.02, rtol=0)
    assert torch.equal(read(-x), converted(-x))


class Inner(nn.Module):
    def forward(self, x, y, factor=2.0):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize() - factor * y


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.fx.symbolic_trace(Inner())

    def forward(self, a, b):
        return self.inner(y=a, x=b) + self.inner(a, b, factor=3.0)


class WholeGraphs(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, torch.fx.GraphModule)


def test_graphs_inside_graphs_have_their_arguments_by_name():
    model = Outer()
    model = torch.fx.GraphModule(model, WholeGraphs().trace(model))
    a, b = torch.rand(2, 5)
    assert torch.equal(from_torch_ao(model)(a, b), model(a, b))
    call = next(node for node in model.graph.nodes if node.op == "call_module")
    call.args, call.kwargs = (), {"z": call.kwargs["y"]}
    with pytest.raises(UnreadableError, match="node inner: expected the arguments of the module"):
        from_torch_ao(model)


def graph_of_sum(root, names):
    """The sum of an input and of attributes, those of quantised types dequantised."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for name, is_quantised in names.items():
        own = graph.get_attr(name)
        if is_quantised:
            own = graph.call_method("dequantize", (own,))
        value = graph.call_function(torch.add, (value, own))
    graph.output(value)
    return torch.fx.GraphModule(root, graph)


def test_names_of_attributes_that_are_alike():
    """Integers and scales have names of their own, whatever is read first."""
    root, x = nn.Module(), torch.randn(4, 4)
    scales, zero_points = torch.rand(4) + 0.01, torch.zeros(4, dtype=torch.long)
    root.w = torch.quantize_per_channel(x, scales, zero_points, 0, torch.qint8)
    root.register_buffer("w_scale", torch.randn(4))
    root.a = nn.Module()
    root.a.w = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    root.a_w = torch.quantize_per_tensor(x, 0.2, 0, torch.qint8)
    for names in (
        {"w": True, "w_scale": False},
        {"w_scale": False, "w": True},
        {"a.w": True, "a_w": True, "w": True},
        {"a_w": True, "a.w": True},
    ):
        model = graph_of_sum(root, names)
        read = from_torch_ao(model)
        torch.testing.assert_close(read(x), model(x))
        assert {"w", "w_scale", "a_w"} & {*names} <= {*read.state_dict()}


def test_errors_name_the_place():
    unknown = Function(lambda t: torch.cumsum(t, 1))
    with pytest.raises(
        UnreadableError,
        match="node cumsum: expected a function that takes values of a quantised type, got cumsum",
    ):
        from_torch_ao(torch.fx.symbolic_trace(unknown))

    class Scales(nn.Module):
        def forward(self, x):
            return torch.quantize_per_tensor(x, x.max() / 100, 0, torch.qint8).dequantize()

    with pytest.raises(
        UnreadableError, match="node quantize_per_tensor: expected a scale and a zero point"
    ):
        from_torch_ao(torch.fx.symbolic_trace(Scales()))

    class Input(nn.Module):
        def forward(self, x):
            return own.add_relu(x, x, 0.1, 0).dequantize()

    with pytest.raises(
        UnreadableError, match="node add_relu: expected a value of a quantised type, whose scale"
    ):
        from_torch_ao(torch.fx.symbolic_trace(Input()))


@row("quantised results of models that `from_torch_ao` reads")
def test_results_of_quantised_types_are_floats():
    module = torch.fx.symbolic_trace(Function(lambda t: t))
    module.graph.find_nodes(op="call_method", target="dequantize")
    output = module.graph.output_node()
    output.args = (output.args[0].args[0],)
    module.recompile()
    x = torch.randn(4)
    assert module(x).dtype == torch.quint8
    assert torch.equal(from_torch_ao(module)(x), module(x).dequantize())


def test_models_stay_as_they_are():
    converted, images = quantised_resnet("resnet18", 32)
    before = converted(images)
    modes = {name: module.training for name, module in converted.named_modules()}
    from_torch_ao(converted)
    assert {name: module.training for name, module in converted.named_modules()} == modes
    assert torch.equal(converted(images), before)


def test_a_layer_alone():
    converted = theirs.quantize_dynamic(nn.Sequential(nn.Linear(8, 8)))[0]
    x = torch.randn(3, 8)
    compiled = corsac.compile(converted)
    with torch.no_grad():
        for _ in range(3):
            found = compiled(x)
    torch.testing.assert_close(found, converted(x), atol=2e-6, rtol=1e-5)
    assert "steps" in compiled.explain()


@pytest.mark.parametrize(
    ("kind", "options", "fused"),
    [
        (models.LinearBnLeakyReluModel, {}, "LinearLeakyReLU"),
        (models.LinearTanhModel, {}, "LinearTanh"),
        (models.ConvBnAddReluModel, {}, "ConvAddReLU2d"),
        (models.ConvBnAddReluModel, {"with_relu": False}, "ConvAdd2d"),
        (models.ConvBnAddReluModel, {"left_conv": False, "two_conv": False}, "ConvAddReLU2d"),
    ],
)
def test_fused_modules_of_onednn(kind, options, fused):
    torch.backends.quantized.engine = "onednn"
    backend = theirs.backend_config.get_onednn_backend_config()
    model = kind(**options).eval()
    inputs = model.get_example_inputs()
    mapping = theirs.QConfigMapping().set_global(theirs.get_default_qconfig("onednn"))
    observed = their_graphs.prepare_fx(model, mapping, inputs, backend_config=backend)
    observed(*inputs)
    converted = their_graphs.convert_fx(observed, backend_config=backend)
    assert fused in {type(child).__name__ for child in converted.children()}
    found = apart(converted, from_torch_ao(converted), *inputs)
    if not pytorch_saturates():
        assert max(most for most, _ in found.values()) <= 1
        assert max(share for _, share in found.values()) < 0.02
