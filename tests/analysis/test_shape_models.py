"""Propagated types of real models, against torch.fx's ShapeProp."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from against_torch import difference
from torch.fx.passes.shape_prop import ShapeProp

import corsac.fx as fx
from corsac.analysis import propagate

torchvision = pytest.importorskip("torchvision")

FAST = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1")
LARGER = {"inception_v3": 299}
#: Models of tens of gigabytes, or that take minutes: run without data.
LARGE = {"regnet_y_128gf", "vit_h_14", "vit_l_16", "vit_l_32", "convnext_large"}

TIMM = (
    "resnet18", "resnet26d", "resnext50_32x4d", "seresnet50", "skresnet18", "ecaresnet26t",
    "resnetv2_50", "res2net50_26w_4s", "regnetx_002", "regnety_002", "efficientnet_b0",
    "efficientnet_lite0", "mobilenetv2_100", "mobilenetv3_small_100", "mnasnet_100",
    "mixnet_s", "ghostnet_100", "hardcorenas_a", "fbnetc_100", "spnasnet_100", "densenet121",
    "dla34", "dpn68", "vgg11", "vgg11_bn", "inception_v4", "xception41", "selecsls42",
    "cspresnet50", "cspdarknet53", "darknet53", "hrnet_w18_small", "rexnet_100",
    "convnext_atto", "convmixer_768_32", "mixer_s32_224", "gmlp_s16_224", "resmlp_12_224",
    "vit_tiny_patch16_224", "deit_tiny_patch16_224", "repvgg_a0", "lcnet_050",
    "tinynet_e", "poolformer_s12", "nf_resnet26",
)  # fmt: skip


def check(model: torch.nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """Compare every node; return the number of nodes, and of those without a rule."""
    traced = fx.symbolic_trace(model.eval())
    with torch.no_grad():
        found = propagate(traced, x)
        real = fx.to_torch(traced)
        ShapeProp(real).propagate(x)
    wrong = []
    for row, node in zip(found.rows, real.graph.nodes, strict=True):
        expected: Any = node.meta.get("tensor_meta")
        text = difference(row.value, expected)
        if text:
            wrong.append(f"{node.name} ({node.target}): {text}")
        if expected is not None:
            assert (
                next(n for n in traced.graph.nodes if n.name == node.name).meta["tensor_meta"]
                is not None
            )
    assert wrong == []
    assert found.unknown == ()
    return len(found.rows), len(found.fallbacks)


def of_torchvision(name: str) -> tuple[int, int]:
    torch.manual_seed(0)
    fast_init = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **fast_init)
    size = LARGER.get(name, 224)
    return check(model, torch.randn(1, 3, size, size))


@pytest.mark.parametrize("name", FAST)
def test_types_of_a_few_models_are_those_of_shape_prop(name: str) -> None:
    assert of_torchvision(name)[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sorted(set(torchvision.models.list_models(module=torchvision.models)) - LARGE - {*FAST}),
)
def test_types_of_torchvision_models_are_those_of_shape_prop(name: str) -> None:
    assert of_torchvision(name)[1] == 0


@pytest.mark.parametrize("name", sorted(LARGE - {"regnet_y_128gf"}))
def test_types_of_large_models_are_those_of_shape_prop_on_meta_tensors(name: str) -> None:
    with torch.device("meta"):
        model = torchvision.models.get_model(name, weights=None)
    assert check(model, torch.empty(1, 3, 224, 224, device="meta"))[1] == 0


@pytest.mark.slow
def test_types_of_the_largest_model_are_those_of_shape_prop_on_meta_tensors() -> None:
    # The constructor computes with tensors.
    model = torchvision.models.regnet_y_128gf(weights=None).to("meta")
    assert check(model, torch.empty(1, 3, 224, 224, device="meta"))[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMM)
def test_types_of_timm_models_are_those_of_shape_prop(name: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False)
    size = model.default_cfg["input_size"][-1]
    try:
        fx.symbolic_trace(model.eval())
    except Exception as error:
        pytest.skip(f"cannot be traced: {error}")
    assert check(model, torch.randn(1, 3, size, size))[1] == 0


def test_channels_last_inputs_are_followed_through() -> None:
    model = torchvision.models.resnet18(weights=None).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last)
    assert check(model, x)[1] == 0


def test_a_batch_may_be_a_symbol() -> None:
    from corsac.analysis import TensorSpec

    traced = fx.symbolic_trace(torchvision.models.resnet18(weights=None).eval())
    found = propagate(traced, TensorSpec(("batch", 3, "size", "size")))
    assert found.fallbacks == ()
    real = propagate(traced, torch.empty(5, 3, 96, 96))
    for row, known in zip(found.rows, real.rows, strict=True):
        if hasattr(row.value, "shape"):
            sizes = [
                size if isinstance(size, int) else size.evaluate({"batch": 5, "size": 96})
                for size in row.value.shape
            ]
            assert tuple(sizes) == tuple(known.value.shape), row.name
