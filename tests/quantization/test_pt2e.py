"""Exported programs with observers, converted: structure, parameters, numbers, and what is said of wrong input."""

from __future__ import annotations

import copy
import io
import json
import re
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.ao.quantization as theirs
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import corsac
import corsac.fx
import corsac.quantization as ours
from corsac.quantization import pt2e, quantize_pt2e
from corsac.quantization.pt2e import export_utils
from corsac.quantization.quantize_fx import CalibrationError
from corsac.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
from corsac.quantization.quantizer import (
    ComposableQuantizer,
    DerivedQuantizationSpec,
    EmbeddingQuantizer,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
    x86_inductor_quantizer,
    xnnpack_quantizer,
)
from corsac.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from kit.exported_models import CASES, exported_model, observed_and_converted

RECORD = json.loads(Path(__file__).with_name("pt2e_of_torchao.json").read_text())["cases"]
aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore")


def exported(model, *inputs):
    return torch.export.export(model, inputs).module()


def x86(**given):
    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(**given))


def quantised(model, *inputs, quantizer=None):
    prepared = prepare_pt2e(exported(model.eval(), *inputs), quantizer or x86())
    prepared(*inputs)
    return convert_pt2e(prepared)


def parted(code):
    """The code without its floating-point numbers, and these; names that only training changes have no numbers."""
    code = code.replace("quantized_decomposed", "corsac")
    code = re.sub(r"\b(?<!\.)(batch_norm|conv2d)_\d+\b(?!\.)", r"\1", code)
    number = re.compile(r"\d+\.\d+(?:e-\d+)?")
    return number.sub("#", code), [float(one) for one in number.findall(code)]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_programs_are_those_of_torchao(name, kind):
    """The record of torchao 0.18.0: see ``record_pt2e.py``."""
    expected = RECORD[f"{name}, {kind}"]
    packages = (quantize_pt2e, x86_inductor_quantizer, xnnpack_quantizer, pt2e)
    prepared, result, gradients, converted, output = observed_and_converted(packages, name, kind)
    assert parted(prepared) == parted("\n".join(expected["prepared"]))
    assert_close(result.flatten(), torch.tensor(expected["result"]), rtol=1e-4, atol=1e-4)
    assert gradients.keys() == expected["gradients"].keys()
    for own, gradient in gradients.items():
        known = expected["gradients"][own]
        assert (gradient is None) == (known is None)
        if known is not None:
            scale = max(known[1], 1e-3)
            assert abs(gradient.sum().item() - known[0]) <= 1e-3 * scale * gradient.numel() ** 0.5
            assert abs(gradient.norm().item() - known[1]) <= 1e-3 * scale
    text, numbers = parted(converted)
    their_text, their_numbers = parted("\n".join(expected["converted"]))
    assert text == their_text
    assert_close(numbers, their_numbers, rtol=1e-5, atol=0)
    assert_close(output.flatten(), torch.tensor(expected["output"]), rtol=1e-3, atol=0.02)


class OwnQuantizer(Quantizer):
    """Annotates each linear layer with specifications of a package."""

    def __init__(self, package, **changes):
        self._package, self._changes = package, changes

    def annotate(self, model):
        package = self._package
        values = QuantizationSpec(
            torch.uint8,
            package.MinMaxObserver.with_args(eps=2**-12),
            quant_min=0,
            quant_max=255,
            qscheme=torch.per_tensor_affine,
        )
        weight = QuantizationSpec(
            torch.int8,
            package.PerChannelMinMaxObserver,
            quant_min=-127,
            quant_max=127,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
        )
        for node in model.graph.nodes:
            if node.target == aten.linear.default:
                value, own, *_ = node.args
                node.meta["quantization_annotation"] = QuantizationAnnotation(
                    {value: values, own: weight}, values, _annotated=True
                )
        return model

    def validate(self, model):
        pass


def buffers(model):
    return {name: own for name, own in model.named_buffers() if own is not None}


@pytest.mark.parametrize("kind", [torch.fx, corsac.fx])
def test_parameters_are_those_of_the_observers_of_torch_ao(kind):
    """Observers of both packages see the same values; the values of the graph are those of torch.ao's operators."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 4).eval()
    batches = [torch.randn(5, 6) * scale for scale in (1, 3, 0.5)]
    found = []
    for package in (theirs, ours):
        gm = exported(layer, batches[0])
        if kind is corsac.fx:
            gm = corsac.fx.GraphModule(gm, corsac.fx.from_torch(gm.graph))
        prepared = prepare_pt2e(gm, OwnQuantizer(package))
        for batch in batches:
            prepared(batch)
        converted = convert_pt2e(prepared)
        assert isinstance(converted, kind.GraphModule)
        found.append((converted.code, buffers(converted), converted(batches[0])))
    assert found[0][0] == found[1][0]
    assert found[0][1].keys() == found[1][1].keys()
    for name, own in found[0][1].items():
        assert torch.equal(own, found[1][1][name])
    assert torch.equal(found[0][2], found[1][2])

    observers = [theirs.MinMaxObserver(torch.uint8, quant_min=0, quant_max=255, eps=2**-12)]
    observers += [copy.deepcopy(observers[0])]
    weights = theirs.PerChannelMinMaxObserver(
        0, torch.int8, torch.per_channel_symmetric, quant_min=-127, quant_max=127
    )
    weights(layer.weight)
    operators = torch.ops.quantized_decomposed

    def rounded(x, observer):
        scale, zero = observer.calculate_qparams()
        given = (float(scale), int(zero), 0, 255, torch.uint8)
        return operators.dequantize_per_tensor(operators.quantize_per_tensor(x, *given), *given)

    channels = (*weights.calculate_qparams(), 0, -127, 127, torch.int8)
    levels = operators.quantize_per_channel(layer.weight, *channels)
    for batch in batches:
        observers[0](batch)
        observers[1](layer(batch))
    x = rounded(batches[0], observers[0])
    y = F.linear(x, operators.dequantize_per_channel(levels, *channels), layer.bias)
    assert torch.equal(found[1][2], rounded(y, observers[1]))
    assert torch.equal(found[1][1]["_frozen_param0"], levels)


class Annotated(Quantizer):
    """Annotates a graph by a function of its nodes by name."""

    def __init__(self, annotate):
        self._annotate = annotate

    def annotate(self, model):
        self._annotate({node.name: node for node in model.graph.nodes})

    def validate(self, model):
        pass


INT8 = {"quant_min": -128, "quant_max": 127, "qscheme": torch.per_tensor_affine}
VALUES = QuantizationSpec(torch.int8, ours.MinMaxObserver, **INT8)


def annotate(node, inputs=None, output=None, **given):
    own = QuantizationAnnotation(inputs or {}, output, _annotated=True, **given)
    node.meta["quantization_annotation"] = own


class Branches(nn.Module):
    def forward(self, x, y):
        a = x + 1
        b = torch.cat([a, y])
        return torch.cat([b, y * 2])


def observers_by_call(model):
    """The number of the observer of each call, in the order in which observers come first."""
    numbers = {}
    calls = []
    for node in model.graph.nodes:
        if node.op == "call_module" and node.target.startswith("activation_post_process"):
            observer = model.get_submodule(node.target)
            calls.append((node.args[0].name, numbers.setdefault(id(observer), len(numbers))))
    return calls


def branches(function):
    inputs = (torch.randn(2, 3), torch.randn(2, 3) * 4)
    prepared = prepare_pt2e(exported(Branches(), *inputs), Annotated(function))
    prepared(*inputs)
    return prepared


def test_values_that_are_shared_have_one_observer():
    def share(nodes):
        cat = nodes["cat"]
        first, second = cat.args[0]
        shared = SharedQuantizationSpec((first, cat))
        annotate(cat, {first: VALUES, second: shared}, shared)

    prepared = branches(share)
    assert observers_by_call(prepared) == [("y", 0), ("add", 0), ("cat", 0)]
    converted = convert_pt2e(prepared)
    scales = {
        node.args[1]
        for node in converted.graph.nodes
        if node.target == torch.ops.corsac.quantize_per_tensor.default
    }
    assert len(scales) == 1


def test_an_input_uses_the_observer_of_the_value_unless_the_annotation_says_otherwise():
    def both(implicit):
        def function(nodes):
            add, cat = nodes["add"], nodes["cat"]
            annotate(add, output=VALUES)
            annotate(cat, {add: VALUES}, allow_implicit_sharing=implicit)

        return function

    assert observers_by_call(branches(both(True))) == [("add", 0)]
    assert observers_by_call(branches(both(False))) == [
        ("add", 0),
        ("activation_post_process_0", 1),
    ]


def test_fixed_and_derived_parameters():
    def function(nodes):
        add, mul = nodes["add"], nodes["mul"]
        fixed = FixedQParamsQuantizationSpec(
            torch.uint8, 1 / 256, 3, quant_min=0, quant_max=255, qscheme=torch.per_tensor_affine
        )
        annotate(add, {add.args[0]: fixed}, VALUES)
        derived = DerivedQuantizationSpec(
            [(add.args[0], add), add],
            lambda others: (
                torch.tensor([2 * float(others[0].calculate_qparams()[0])]),
                others[1].calculate_qparams()[1],
            ),
            torch.int8,
            **INT8,
        )
        annotate(mul, output=derived)

    prepared = branches(function)
    code = convert_pt2e(prepared).code
    assert "quantize_per_tensor.default(x, 0.00390625, 3, 0, 255, torch.uint8)" in code
    zero = int(prepared.activation_post_process_1.calculate_qparams()[1])
    assert f"quantize_per_tensor.default(mul, 0.0078125, {zero}, -128, 127, torch.int8)" in code


def test_callback_changes_observers():
    class Calls(Annotated):
        def prepare_obs_or_fq_callback(self, model, observers):
            for place in observers:
                observers[place] = ours.FixedQParamsObserver(
                    0.5, 1, torch.int8, quant_min=-128, quant_max=127
                )

    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    own = Calls(lambda nodes: annotate(nodes["add"], output=VALUES))
    code = convert_pt2e(prepare_pt2e(exported(Branches(), *inputs), own)).code
    assert "quantize_per_tensor.default(add, 0.5, 1, -128, 127, torch.int8)" in code


@pytest.mark.parametrize("name", ["residual", "layers", "conv1d", "shared"])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_converted_models_run_natively(name, kind):
    model, inputs = exported_model(name)
    converted = quantised(model, *inputs, quantizer=x86(is_dynamic=kind == "dynamic"))
    fast = corsac.compile(converted, options={"inference": "native"})
    with torch.no_grad():
        expected = converted(*inputs)
        fast(*inputs)
        found = fast(*inputs)
    assert "PyTorch runs" not in fast.explain() and "not compiled" not in fast.explain()
    difference = (found - expected).abs()
    level = 0.02 * expected.abs().max()
    assert difference.max() <= 3 * level
    assert (difference > 1e-5).double().mean() < 0.15
    signal = model(*inputs).detach()
    noise = (expected - signal).norm()
    assert 20 * torch.log10(signal.norm() / noise) > 20


class OfTorch(nn.Module):
    """A graph as torchao writes it, with operators of ``quantized_decomposed``."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(3)
        self.kind = kind
        shape = (5, 4, 3, 3) if kind == "conv" else (5, 8)
        self.register_buffer("weight", torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(5) * 0.01 + 0.005)
        self.register_buffer("zeros", torch.zeros(5, dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, x):
        own = torch.ops.quantized_decomposed
        if self.kind.startswith("dynamic"):
            choose = "choose_qparams" + ("_symmetric" if self.kind.endswith("symmetric") else "")
            given = (-128, 127, torch.int8)
            scale, zero = getattr(own, choose).tensor(x, -128, 127, 2**-12, torch.int8)
            levels = own.quantize_per_tensor.tensor(x, scale, zero, *given)
            x = own.dequantize_per_tensor.tensor(levels, scale, zero, *given)
        else:
            given = (0.03, 120, 0, 255, torch.uint8)
            levels = own.quantize_per_tensor.default(x, *given)
            x = own.dequantize_per_tensor.default(levels, *given)
        if self.kind == "tensor":
            weight = own.dequantize_per_tensor.default(self.weight, 0.01, 0, -128, 127, torch.int8)
        else:
            weight = own.dequantize_per_channel.default(
                self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
            )
        return (aten.conv2d if self.kind == "conv" else aten.linear).default(x, weight, self.bias)


@pytest.mark.parametrize("kind", ["channel", "tensor", "conv", "dynamic", "dynamic symmetric"])
def test_programs_that_torch_has_converted_run_natively(kind):
    model = OfTorch(kind).eval()
    x = torch.randn(*((2, 4, 6, 6) if kind == "conv" else (3, 8)))
    fast = corsac.compile(exported(model, x), options={"inference": "native"})
    with torch.no_grad():
        fast(x)
        for scale in (1, 0.2, 7):
            assert_close(fast(x * scale), model(x * scale), rtol=1e-5, atol=1e-5)
    assert "PyTorch runs" not in fast.explain() and "not compiled" not in fast.explain()


@pytest.mark.parametrize("inference", [False, True])
def test_scales_that_a_program_writes_to(inference):
    operators = torch.ops.quantized_decomposed

    def program(x):
        bounds = (-128, 127)
        scale, zero_point = operators.choose_qparams.tensor(x, *bounds, 1e-5, torch.int8)
        scale.mul_(3)
        levels = operators.quantize_per_tensor.tensor(x, scale, zero_point, *bounds, torch.int8)
        return operators.dequantize_per_tensor.tensor(
            levels, scale, zero_point, *bounds, torch.int8
        )

    x, compiled = torch.randn(4, 8), corsac.compile(program)
    with torch.inference_mode(inference):
        for _ in range(3):
            assert_close(compiled(x), program(x))


@pytest.mark.parametrize("name", ["choose_qparams", "choose_qparams_symmetric"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_operators_of_dynamic_quantisation(name, dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    torch.manual_seed(1)
    mine, own = torch.ops.corsac, torch.ops.quantized_decomposed
    for scale in (1, 1e-9, 300):
        x = torch.randn(4, 7) * scale + scale
        found = getattr(mine, name).tensor(x, low, high, 2**-12, dtype)
        expected = getattr(own, name).tensor(x, low, high, 2**-12, dtype)
        assert all(map(torch.equal, found, expected))
        assert [one.dtype for one in found] == [one.dtype for one in expected]
        levels = mine.quantize_per_tensor.tensor(x, *found, low, high, dtype)
        assert torch.equal(levels, own.quantize_per_tensor.tensor(x, *found, low, high, dtype))
        given = (levels, *found, low, high, dtype)
        assert torch.equal(
            mine.dequantize_per_tensor.tensor(*given), own.dequantize_per_tensor.tensor(*given)
        )
        with pytest.raises(ValueError, match=r"of torch\.int32 were expected"):
            mine.dequantize_per_tensor.tensor(levels, *found, low, high, torch.int32)


def test_weights_become_integers_unless_fold_quantize_is_false():
    model, inputs = exported_model("layers")
    prepared = prepare_pt2e(exported(model, *inputs), x86())
    prepared(*inputs)
    folded, whole = convert_pt2e(prepared), convert_pt2e(prepared, fold_quantize=False)
    assert torch.equal(folded(*inputs), whole(*inputs))
    kinds = {own.dtype for name, own in folded.state_dict().items() if own.dim() == 2}
    assert kinds == {torch.int8}
    assert whole.a.weight.dtype == torch.float32
    file = io.BytesIO()
    torch.save(folded.state_dict(), file)
    file.seek(0)
    again = copy.deepcopy(folded)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(again(*inputs), folded(*inputs))


def test_weights_of_half_precision():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), torch.randn(3, 8)
    config = x86_inductor_quantizer.get_x86_inductor_linear_dynamic_fp16_config()
    converted = quantised(model, x, quantizer=X86InductorQuantizer().set_global(config))
    rounded = F.relu(F.linear(x, model[0].weight.half().float(), model[0].bias))
    assert torch.equal(converted(x), rounded)
    fast = corsac.compile(converted, options={"inference": "native"})
    with torch.no_grad():
        fast(x)
        assert_close(fast(x), rounded)
    assert "PyTorch runs" not in fast.explain() and "not compiled" not in fast.explain()


def test_tables_of_embeddings():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3)).eval()
    x = torch.tensor([[1, 8, 0]])
    own = ComposableQuantizer([EmbeddingQuantizer(), x86()])
    converted = quantised(model, x, quantizer=own)
    tables = [one for one in converted.state_dict().values() if one.shape == (9, 4)]
    assert [one.dtype for one in tables] == [torch.uint8]
    assert_close(converted(x), model(x), rtol=0, atol=0.05)


def test_a_quantizer_may_not_change_what_another_has_annotated():
    model, inputs = exported_model("layers")
    own = ComposableQuantizer([x86(), OwnQuantizer(ours)])
    with pytest.raises(
        RuntimeError, match="OwnQuantizer has changed the annotation of node linear"
    ):
        prepare_pt2e(exported(model, *inputs), own)


def test_configurations_by_module_and_by_type():
    model, inputs = exported_model("layers")
    config = get_default_x86_inductor_quantization_config()
    own = X86InductorQuantizer().set_module_name_qconfig("a", config)
    own.set_module_type_qconfig(nn.Linear, None).set_global(config)
    code = prepare_pt2e(exported(model, *inputs), own).code
    assert "activation_post_process_1(a_weight)" in code
    assert "(b_weight)" not in code
    own = X86InductorQuantizer().set_function_type_qconfig(torch.matmul, config)
    code = prepare_pt2e(exported(model, *inputs), own).code
    assert code.count("= self.activation_post_process") == 2
    assert own.get_global_quantization_config() is None
    with pytest.warns(UserWarning, match="static and dynamic cannot be mixed"):
        own.set_global(get_default_x86_inductor_quantization_config(is_dynamic=True))
    with pytest.warns(UserWarning, match="quantises AdaptiveAvgPool2d, AvgPool2d"):
        own.set_module_type_qconfig(nn.LSTM, config)


@dataclass(frozen=True)
class ForeignSpec:
    """A specification of another package, with the fields of torch.ao's."""

    dtype: torch.dtype
    observer_or_fake_quant_ctr: object
    quant_min: int = -128
    quant_max: int = 127
    qscheme: torch.qscheme = torch.per_tensor_affine
    ch_axis: int | None = None
    is_dynamic: bool = False


@dataclass(frozen=True)
class ForeignShare:
    edge_or_node: object


class ForeignQuantizer:
    """A quantiser that derives from no class of this package, and has no method that may be left out."""

    def annotate(self, model):
        spec = ForeignSpec(torch.int8, theirs.MinMaxObserver)
        for node in model.graph.nodes:
            if node.target == aten.cat.default:
                first, second = node.args[0]
                shared = ForeignShare((first, node))
                node.meta["quantization_annotation"] = types.SimpleNamespace(
                    input_qspec_map={first: spec, second: shared},
                    output_qspec=shared,
                    allow_implicit_sharing=True,
                )

    def validate(self, model):
        pass


def test_quantizers_are_taken_by_what_they_have():
    inputs = (torch.randn(2, 3), torch.randn(2, 3) * 4)
    prepared = prepare_pt2e(exported(Branches(), *inputs), ForeignQuantizer())
    prepared(*inputs)
    assert len({number for _, number in observers_by_call(prepared)}) == 1
    assert type(prepared.activation_post_process_0) is theirs.MinMaxObserver
    own = Annotated(lambda nodes: [annotate_as_foreign(nodes[name]) for name in ("cat", "cat_1")])
    expected = prepare_pt2e(exported(Branches(), *inputs), own)
    expected(*inputs)
    assert prepared.code == expected.code
    assert torch.equal(convert_pt2e(prepared)(*inputs), convert_pt2e(expected)(*inputs))


def annotate_as_foreign(cat):
    first, second = cat.args[0]
    shared = SharedQuantizationSpec((first, cat))
    annotate(cat, {first: VALUES, second: shared}, shared)


def test_mobile_quantizer_by_module_and_operator():
    model, inputs = exported_model("layers")
    config = xnnpack_quantizer.get_symmetric_quantization_config()
    for own in (
        xnnpack_quantizer.XNNPACKQuantizer().set_module_name("a", config),
        xnnpack_quantizer.XNNPACKQuantizer().set_global(config).set_module_type(nn.Linear, None),
        xnnpack_quantizer.XNNPACKQuantizer().set_operator_type(aten.linear.default, config),
    ):
        code = prepare_pt2e(exported(model, *inputs), own).code
        assert ("(a_weight)" in code) == (own.global_config is None)
        assert ("(c_weight)" in code) == bool(own.operator_type_config)
        assert ("(mul)" in code) == (own.global_config is not None)


def test_training_and_evaluation_of_exported_models():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.25))
    x = torch.randn(2, 1, 3, 3)
    gm = exported(model.train(), x)
    assert export_utils.model_is_exported(gm)
    pt2e.move_exported_model_to_eval(gm)
    assert torch.equal(gm(x), copy.deepcopy(model).eval()(x))
    pt2e.move_exported_model_to_train(gm)
    torch.manual_seed(5)
    found = gm(x)
    torch.manual_seed(5)
    assert torch.equal(found, copy.deepcopy(model)(x))
    pt2e.allow_exported_model_train_eval(gm)
    gm.eval()
    assert gm(x).grad_fn is not None
    assert torch.equal(gm(x), gm(x))
    prepared = prepare_pt2e(exported(model.eval(), x), x86())
    with pytest.raises(NotImplementedError, match="move_exported_model_to_train"):
        prepared.train()
    prepared(x)
    with pytest.raises(NotImplementedError, match="exported models"):
        convert_pt2e(prepared).eval()


class Shared(nn.Module):
    """Two convolutions, of which parameters of the given names are the same, or one that is called twice."""

    def __init__(self, *names):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        if not names:
            self.second = self.first
        for name in names:
            setattr(self.second, name, getattr(self.first, name))
        self.norm = nn.BatchNorm2d(3)
        self.norm.running_var.mul_(4)

    def forward(self, x):
        other = self.second(2 * x)
        return self.norm(self.first(x)) + (self.norm(other) if self.second is self.first else other)


@pytest.mark.parametrize("names", [(), ("weight",), ("bias",)])
def test_parameters_that_several_layers_share_are_folded_for_each(names):
    torch.manual_seed(0)
    x = torch.randn(8, 3, 6, 6)
    program = exported(Shared(*names).train(), x)
    prepared = quantize_pt2e.prepare_qat_pt2e(program, x86(is_qat=True))
    for _ in range(3):
        prepared(x)
    export_utils.move_exported_model_to_eval(prepared)
    expected = prepared(x)
    result = convert_pt2e(prepared)(x)
    assert (result - expected).norm() < 0.02 * expected.norm()


def test_values_before_and_after_quantisation():
    model, inputs = exported_model("residual")
    program = torch.export.export(model, inputs)
    pt2e.generate_numeric_debug_handle(program)
    before = [dict(node.meta.get("custom", {})) for node in program.graph.nodes]
    pt2e.generate_numeric_debug_handle(program)
    assert [node.meta.get("custom", {}) for node in program.graph.nodes] == before
    reference = pt2e.prepare_for_propagation_comparison(program.module())
    prepared = prepare_pt2e(program.module(), x86())
    prepared(*inputs)
    converted = pt2e.prepare_for_propagation_comparison(convert_pt2e(prepared))
    assert torch.equal(reference(*inputs), model(*inputs))
    converted(*inputs)
    found = [pt2e.extract_results_from_loggers(one) for one in (reference, converted)]
    compared = pt2e.compare_results(*found)
    names = {one.ref_node_name for one in compared.values()}
    # Batch norms are not there any longer.
    assert {"conv2d", "relu", "cat", "linear"} <= names and "batch_norm" not in names
    last = next(one for one in compared.values() if one.ref_node_name == "linear")
    (result,) = last.results
    assert torch.equal(result.ref, model(*inputs)) and last.ref_module_stack.endswith("linear")
    noise = (result.actual - result.ref).norm() / result.ref.norm()
    assert_close(result.sqnr, -20 * torch.log10(noise))
    assert 20 < result.sqnr < 60 and 0 < result.mse_loss < 0.01
    with pytest.raises(ValueError, match=r"handle 1: expected values of one shape, got \[2\]"):
        pt2e.compare_results({1: ("a", None, [inputs[0]])}, {1: ("a", None, [torch.ones(2)])})
    with pytest.raises(ValueError, match="expected an ExportedProgram, got GraphModule"):
        pt2e.generate_numeric_debug_handle(program.module())


def test_conversion_without_calibration_names_node_and_line():
    model, inputs = exported_model("layers")
    prepared = prepare_pt2e(exported(model, *inputs), x86())
    with pytest.raises(
        CalibrationError,
        match=r"observers have seen no values: those of x, .* \(exported_models.py:",
    ):
        convert_pt2e(prepared)
    # Weights need no calibration.
    prepared = prepare_pt2e(exported(model, *inputs), x86(is_dynamic=True))
    converted = convert_pt2e(prepared)
    assert_close(converted(*inputs), model(*inputs), rtol=0, atol=0.1)
    with pytest.raises(ValueError, match=r"of prepare_pt2e .* without observers"):
        convert_pt2e(exported(model, *inputs))
    with pytest.raises(TypeError, match=r"graph module of an exported program, .* got Layers"):
        prepare_pt2e(model, x86())


def wrong(function):
    with pytest.raises(ValueError, match="add") as caught:
        branches(function)
    assert "test_pt2e.py" in str(caught.value)
    return str(caught.value)


def test_annotations_that_do_not_fit_the_graph():
    stranger = exported(Branches(), torch.randn(2, 3), torch.randn(2, 3)).graph
    other = next(node for node in stranger.nodes if node.name == "y")
    message = wrong(lambda nodes: annotate(nodes["add"], {other: VALUES}))
    assert "has an input y, expected a node of the graph" in message
    spec = SharedQuantizationSpec(other)
    assert "expected a value with a specification" in wrong(
        lambda nodes: annotate(nodes["add"], output=spec)
    )
    with pytest.warns(
        UserWarning, match=r"has an input y, which it does not read: its inputs are x"
    ):
        branches(lambda nodes: annotate(nodes["add"], {nodes["y"]: VALUES}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quant_max": 300}, "quant_max 300 contradicts torch.int8, expected -128 to 127"),
        (
            {"qscheme": torch.per_channel_symmetric, "ch_axis": 2},
            r"ch_axis 2 contradicts its shape \[2, 3\]",
        ),
        (
            {"qscheme": torch.per_channel_symmetric, "ch_axis": 0, "is_dynamic": True},
            "is_dynamic contradicts torch.per_channel_symmetric",
        ),
    ],
)
def test_specifications_that_contradict_themselves(changes, message):
    spec = QuantizationSpec(torch.int8, ours.MinMaxObserver, **{**INT8, **changes})
    assert re.search(message, wrong(lambda nodes: annotate(nodes["add"], output=spec)))


def test_specifications_that_share_each_other():
    def circle(nodes):
        add, cat = nodes["add"], nodes["cat"]
        annotate(add, output=SharedQuantizationSpec(cat))
        annotate(cat, output=SharedQuantizationSpec(add))

    assert "share each other in a circle" in wrong(circle)
    with pytest.raises(ValueError, match="quant_min of at most quant_max, got 5 and 2"):
        QuantizationSpec(torch.int8, ours.MinMaxObserver, 5, 2)


def test_names_of_torchao_are_those_of_torch_ao():
    from corsac.quantization.pt2e import quantize_pt2e as second
    from corsac.quantization.pt2e import quantizer
    from corsac.quantization.pt2e.quantizer import x86_inductor_quantizer as other

    assert (
        second.prepare_pt2e is prepare_pt2e and other.X86InductorQuantizer is X86InductorQuantizer
    )
    assert quantizer.QuantizationSpec is QuantizationSpec
    for package in (pt2e, quantizer, ours.quantizer):
        assert all(getattr(package, name) is not None for name in package.__all__)
    assert ours.move_exported_model_to_eval is pt2e.move_exported_model_to_eval
    assert pt2e.MinMaxObserver is ours.MinMaxObserver


def test_nothing_needs_torch_ao():
    import subprocess
    import sys

    program = (
        "import sys, torch\n"
        "from torch import nn\n"
        "from corsac.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e\n"
        "from corsac.quantization.quantizer import X86InductorQuantizer\n"
        "from corsac.quantization.quantizer.x86_inductor_quantizer import *\n"
        "x = torch.randn(2, 4)\n"
        "gm = torch.export.export(nn.Linear(4, 3).eval(), (x,)).module()\n"
        "for name in [one for one in sys.modules if one.startswith('torch.ao')]:\n"
        "    sys.modules[name] = None\n"
        "config = get_default_x86_inductor_quantization_config()\n"
        "prepared = prepare_pt2e(gm, X86InductorQuantizer().set_global(config))\n"
        "prepared(x)\n"
        "print(convert_pt2e(prepared)(x).shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "torch.Size([2, 3])\n", done.stderr


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_norms_behind_transposed_convolutions_with_groups(rank, bias):
    torch.manual_seed(0)
    layer = (nn.ConvTranspose1d, nn.ConvTranspose2d)[rank - 1](4, 6, 3, groups=2, bias=bias)
    norm = (nn.BatchNorm1d, nn.BatchNorm2d)[rank - 1](6)
    for one in (norm.weight, norm.bias, norm.running_mean):
        nn.init.uniform_(one)
    norm.running_var.uniform_(0.5, 2)
    model, x = nn.Sequential(layer, norm).eval(), torch.randn(2, 4, *[5] * rank)
    prepared = prepare_pt2e(exported(model, x), x86())
    assert "batch_norm" not in prepared.code
    assert_close(prepared(x), model(x))
    assert_close(ours.fuse_convtranspose_bn(False, layer, norm)(x), model(x))
