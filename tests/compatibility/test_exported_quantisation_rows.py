"""The rows of docs/compatibility.md about quantised programs of ``torch.export``.

What torchao does was seen with torchao 0.18.0, which the tests do not need.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from corsac.quantization import pt2e
from corsac.quantization.pt2e._annotations import AnnotationError
from corsac.quantization.quantize_fx import CalibrationError
from corsac.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from corsac.quantization.quantizer import (
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
    xnnpack_quantizer,
)
from corsac.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from kit import row
from kit.exported_models import exported_model

RECORD = Path(__file__).parent.parent / "quantization" / "pt2e_of_torchao.json"


def exported(model: nn.Module, *inputs: torch.Tensor) -> Any:
    return torch.export.export(model, inputs).module()


def x86(**given: bool) -> X86InductorQuantizer:
    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(**given))


def prepared(name: str = "layers") -> tuple[Any, tuple[torch.Tensor, ...]]:
    model, inputs = exported_model(name)
    gm = prepare_pt2e(exported(model, *inputs), x86())
    gm(*inputs)
    return gm, inputs


def trained() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(2, eps=0.1, momentum=0.3)
    return nn.Sequential(nn.Conv2d(1, 2, 1), norm, nn.Dropout(0.25)), torch.randn(2, 1, 3, 3)


@row("operators of converted exported programs")
def test_operators() -> None:
    theirs = "\n".join(json.loads(RECORD.read_text())["cases"]["layers, static"]["converted"])
    ours = convert_pt2e(prepared()[0]).code
    assert "quantized_decomposed" in theirs and "quantized_decomposed" not in ours
    lines = [text.count("quantize_per_tensor.default(") for text in (theirs, ours)]
    assert lines[0] == lines[1] > 0


@row("float weights of converted exported programs")
def test_float_weights() -> None:
    gm, _ = prepared()
    assert "a.weight" in gm.state_dict()
    assert not [name for name in convert_pt2e(gm).state_dict() if name.endswith(".weight")]


@row("a layer before a batch norm whose weight or result is also used elsewhere")
def test_shared_layers() -> None:
    model, (x,) = exported_model("shared")
    with pytest.warns(
        UserWarning, match=r"batch_norm \(.*\) is not folded: conv.weight has 2 users"
    ):
        gm = prepare_pt2e(exported(model, x), X86InductorQuantizer())
    assert torch.equal(gm(x), model(x))


@row("batch norms that use the statistics of the batch")
def test_statistics_of_the_batch() -> None:
    model, x = trained()
    with pytest.warns(UserWarning, match="is not folded: it uses the statistics of the batch"):
        gm = prepare_pt2e(exported(model, x), x86())
    assert "batch_norm" in gm.code


@row("`eps` and `momentum` of batch norms")
def test_numbers_of_batch_norms() -> None:
    model, x = trained()
    gm = exported(model, x)
    pt2e.move_exported_model_to_train(pt2e.move_exported_model_to_eval(gm))
    assert "True, 0.3, 0.1" in gm.code and "(batch_norm, 0.25, True)" in gm.code
    gm = prepare_qat_pt2e(exported(model, x), x86(is_qat=True))
    assert "True, 0.3, 0.1" in gm.code and "running_var, 0.1)" in gm.code


@row("nodes of batch norms and dropout where the mode is switched")
def test_names_of_nodes() -> None:
    model, x = trained()
    gm = exported(model, x)
    before = [*gm.graph.nodes]
    pt2e.move_exported_model_to_eval(gm)
    assert [*gm.graph.nodes] == before
    gm = prepare_qat_pt2e(exported(model, x), x86(is_qat=True))
    gm(x)
    assert "conv2d = " in convert_pt2e(gm).code


@row("counters of batches of one-dimensional norms")
def test_counters() -> None:
    model, (x,) = exported_model("conv1d", training=True)
    config = xnnpack_quantizer.get_symmetric_quantization_config(is_qat=True)
    own = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    gm = prepare_qat_pt2e(exported(model, x), own)
    assert "add_.Tensor" in gm.code
    gm(x)
    code = convert_pt2e(gm).code
    assert "batch_norm" not in code and "add_.Tensor" not in code


@row("results of `extract_results_from_loggers`")
def test_handles() -> None:
    model, (x,) = exported_model("layers")
    program = torch.export.export(model, (x,))
    pt2e.generate_numeric_debug_handle(program)
    logged = pt2e.prepare_for_propagation_comparison(program.module())
    logged(x)
    found = pt2e.extract_results_from_loggers(logged)
    assert [*found] == [*range(1, len(found) + 1)]


@row("exported programs converted without calibration")
def test_calibration() -> None:
    model, inputs = exported_model("layers")
    with pytest.raises(CalibrationError, match=r"x, gelu \(exported_models.py:\d+\)"):
        convert_pt2e(prepare_pt2e(exported(model, *inputs), x86()))
    convert_pt2e(prepare_pt2e(exported(model, *inputs), x86(is_dynamic=True)))


@row("the prepared program after `convert_pt2e`")
def test_prepared_program() -> None:
    gm, inputs = prepared("residual")
    code, result = gm.code, gm(*inputs)
    first, second = convert_pt2e(gm), convert_pt2e(gm)
    assert first.code == second.code and torch.equal(first(*inputs), second(*inputs))
    assert gm.code == code and torch.equal(gm(*inputs), result)


@row("annotations that do not fit a graph")
def test_annotations() -> None:
    class Circle(Quantizer):
        def annotate(self, model: Any) -> Any:
            for node in model.graph.nodes:
                if node.op == "call_function":
                    spec = SharedQuantizationSpec(node)
                    node.meta["quantization_annotation"] = QuantizationAnnotation({}, spec)
            return model

        def validate(self, model: Any) -> None:
            pass

    model, inputs = exported_model("layers")
    with pytest.raises(AnnotationError, match=r"in a circle: linear \(exported_models.py:\d+\)"):
        prepare_pt2e(exported(model, *inputs), Circle())


class Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(F.relu(self.layer(x)) + x)


@row("activations called as functions")
def test_functions_and_modules_that_are_called_twice() -> None:
    gm = exported(Functions().eval(), torch.randn(1, 1, 3, 3))
    x86().annotate(gm)
    done = {
        node.name: node.meta["quantization_annotation"]
        for node in gm.graph.nodes
        if "quantization_annotation" in node.meta
    }
    assert [*done] == ["conv2d", "relu", "conv2d_1"]
    assert done["relu"]._is_output_of_quantized_pattern


@row("`use_reference_representation` of")
def test_reference_representation() -> None:
    gm, x = prepared()
    converted, written = convert_pt2e(gm), convert_pt2e(gm, use_reference_representation=True)
    assert torch.allclose(written(*x), converted(*x), rtol=1e-5, atol=1e-6)
    assert "corsac" in converted.code and "corsac" not in written.code
    with pytest.raises(ValueError, match="expected a bool"):
        convert_pt2e(gm, use_reference_representation=1)
