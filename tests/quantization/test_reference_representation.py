"""Converted exported programs whose integer arithmetic is written out."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import corsac
import corsac.quantization as quantization
from corsac.quantization import pt2e, quantize_pt2e
from corsac.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
from corsac.quantization.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    x86_inductor_quantizer,
    xnnpack_quantizer,
)
from kit.exported_models import CASES, exported_model, observed_and_converted

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_numbers_are_those_of_the_quantised_program(name, kind):
    written = []

    def convert(prepared):
        written.append(convert_pt2e(prepared, use_reference_representation=True))
        return convert_pt2e(prepared)

    package = types.SimpleNamespace(**{**vars(quantize_pt2e), "convert_pt2e": convert})
    packages = (package, x86_inductor_quantizer, xnnpack_quantizer, pt2e)
    *_, expected = observed_and_converted(packages, name, kind)
    _, inputs = exported_model(name, kind == "training")
    with torch.no_grad():
        result = written[0](*inputs)
    assert_close(result, expected, rtol=1e-6, atol=1e-6)
    left = {node.target for node in written[0].graph.nodes if "corsac" in str(node.target)}
    assert left <= {torch.ops.corsac.choose_qparams.tensor}
    sums = [node for node in written[0].graph.nodes if "out_dtype" in str(node.target)]
    layers = {"residual": 4, "layers": 3, "linear_norm": 1}
    assert len(sums) == layers.get(name, 0)


def programs(model, *inputs, symmetric=False, fold_quantize=True):
    """The converted program, and the one that is written out."""
    if symmetric:
        config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
        quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    else:
        config = x86_inductor_quantizer.get_default_x86_inductor_quantization_config()
        quantizer = x86_inductor_quantizer.X86InductorQuantizer().set_global(config)
    exported = torch.export.export(model.eval(), inputs).module()
    prepared = prepare_pt2e(exported, quantizer)
    prepared(*inputs)
    return [
        convert_pt2e(prepared, use_reference_representation=written, fold_quantize=fold_quantize)
        for written in (False, True)
    ]


class Images(nn.Module):
    """Layers, sums, ReLU and pools, all of which XNNPACK quantises from integers to integers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=2, stride=2)
        self.second = nn.Conv2d(6, 6, 3, padding=1, groups=3, bias=False)
        self.relu, self.inplace = nn.ReLU(), nn.ReLU(inplace=True)
        self.pool, self.mean = nn.MaxPool2d(3, 2, padding=1), nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(6, 4)

    def forward(self, x):
        x = self.relu(self.first(x))
        y = self.inplace(self.second(x) + x)
        z = self.pool(y - 0.5 * y + y)
        return self.linear(torch.flatten(self.mean(z), 1))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("fold_quantize", [False, True])
def test_images(symmetric, fold_quantize):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12)
    plain, written = programs(Images(), x, symmetric=symmetric, fold_quantize=fold_quantize)
    more = torch.randn(2, 3, 12, 12) * 2
    with torch.no_grad():
        expected = plain(more)
        assert_close(written(more), expected, rtol=0, atol=0.02 * expected.abs().max().item())
        assert_close(written(x), plain(x), rtol=1e-5, atol=1e-6)
    targets = [node.target for node in written.graph.nodes]
    if symmetric:
        # Pools of integers, and no ReLU: results are clamped at zero.
        pool = next(node for node in written.graph.nodes if node.target == aten.max_pool2d.default)
        assert aten.relu.default not in targets and aten.relu_.default not in targets
        assert pool.args[0].target != aten.mul.Tensor


def test_dilated_convolutions_stay_floats():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 9)
    plain, written = programs(nn.Conv2d(3, 4, 3, dilation=2), x)
    assert aten.conv2d.default in {node.target for node in written.graph.nodes}
    with torch.no_grad():
        assert_close(written(x), plain(x), rtol=1e-6, atol=1e-6)


def test_places_of_the_program_are_kept():
    torch.manual_seed(0)
    plain, written = programs(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4))
    names = {node.name for node in written.graph.nodes}
    assert {"linear", "quantize_per_tensor_default"} <= names
    linear = next(node for node in written.graph.nodes if node.name == "linear")
    before = next(node for node in plain.graph.nodes if node.name == "linear")
    assert linear.meta["stack_trace"] == before.meta["stack_trace"]


def test_compiled():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12)
    plain, written = programs(Images(), x, symmetric=True)
    with torch.inference_mode():
        fast = corsac.compile(written)
        fast(x)
        assert_close(fast(x), plain(x), rtol=1e-5, atol=1e-6)


class Levels16(Quantizer):
    """Inputs of linear layers in levels of 16 bits, which reach from zero on."""

    def annotate(self, model):
        values = QuantizationSpec(
            torch.int16,
            quantization.MinMaxObserver.with_args(eps=2**-20),
            quant_min=-(2**15),
            quant_max=2**15 - 1,
            qscheme=torch.per_tensor_affine,
        )
        weights = QuantizationSpec(
            torch.int8,
            quantization.MinMaxObserver,
            quant_min=-128,
            quant_max=127,
            qscheme=torch.per_tensor_affine,
        )
        for node in model.graph.nodes:
            if node.target is aten.linear.default:
                x, weight = node.args[:2]
                own = QuantizationAnnotation({x: values, weight: weights}, None, _annotated=True)
                node.meta["quantization_annotation"] = own
        return model

    def validate(self, model):
        pass


def test_levels_of_16_bits_stay_floats_in_layers():
    torch.manual_seed(0)
    model, x = nn.Linear(600, 4).eval(), torch.rand(3, 600)
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), Levels16())
    prepared(x)
    written, plain = (
        convert_pt2e(prepared, use_reference_representation=own) for own in (True, False)
    )
    with torch.no_grad():
        assert_close(written(x), plain(x), rtol=1e-5, atol=1e-5)
        assert_close(written(x), model(x), rtol=0, atol=0.05)


def test_scales_of_calls_leave_floats_in_single_precision():
    config = x86_inductor_quantizer.get_default_x86_inductor_quantization_config(is_dynamic=True)
    quantizer = x86_inductor_quantizer.X86InductorQuantizer().set_global(config)
    model, x = nn.Linear(16, 4).eval(), torch.randn(3, 16)
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    written = convert_pt2e(prepared, use_reference_representation=True)
    doubles = []

    class Watched(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
                doubles.append(result.numel())
            return result

    Watched(written).run(x)
    # A scale for the input, and one for each output.
    assert doubles and max(doubles) == 4
