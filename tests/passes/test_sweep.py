"""All passes over popular models: outputs as in eager mode, largest error printed."""

import pytest
import torch
import torchvision
from torch import nn

import corsac.analysis
import corsac.fx
from corsac.passes import (
    PassManager,
    canonicalize,
    common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    fuse_conv_bn,
    reinplace,
    remove_dropout,
    remove_no_ops,
)
from kit.trained import as_if_trained

PASSES = [
    remove_dropout,
    remove_no_ops,
    fuse_conv_bn,
    fold_constants,
    common_subexpressions,
    canonicalize,
    eliminate_dead_code,
]
FAST = ["resnet18", "squeezenet1_1", "shufflenet_v2_x0_5"]
ALL = torchvision.models.list_models(module=torchvision.models)
#: Image sizes that the architecture requires; all others take 64 pixels.
SIZES = {"inception_v3": 96, "googlenet": 64, "alexnet": 96} | {
    name: 224 for name in ALL if name.startswith(("vit_", "maxvit"))
}


def check(name):
    torch.manual_seed(0)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name == "vit_h_14":
        options["image_size"] = 224
    model = as_if_trained(torchvision.models.get_model(name, weights=None, **options))
    size = SIZES.get(name, 64)
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        expected = model(x)
        gm = corsac.fx.symbolic_trace(model)
        for transform in PASSES:
            transform(gm)
        corsac.analysis.propagate(gm, x)
        in_place = reinplace(gm).count
        gm.graph.lint()
        found = gm(x)
    if not isinstance(expected, torch.Tensor):
        expected, found = expected[0], found[0]
    scale = max(expected.abs().max().item(), 1e-6)
    error = (found - expected).abs().max().item()
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in gm.modules())
    print(
        f"{name}: {len(gm.graph.nodes)} nodes, {norms} batch norms left, {in_place} in place, "
        f"max error {error:.2e} of {scale:.2e}"
    )
    assert error <= 1e-4 * max(scale, 1.0), name


@pytest.mark.parametrize("name", FAST)
def test_some_models(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALL if name not in FAST])
def test_all_models(name):
    check(name)


def test_a_small_model_is_verified_after_every_pass():
    torch.manual_seed(0)
    model = torchvision.models.squeezenet1_1(weights=None).eval()
    gm = corsac.fx.symbolic_trace(model)
    result = PassManager(PASSES, verify=(torch.randn(1, 3, 64, 64),))(gm)
    assert all(step.agreement.error <= 1e-5 for step in result.steps)
