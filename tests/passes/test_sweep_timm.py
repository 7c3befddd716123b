"""Every registered pass, one by one, over models of timm: outputs as in eager mode, largest error
printed."""

import functools

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

import corsac.analysis
import corsac.fx
from corsac.passes import PassManager
from corsac.passes._registry import REGISTRY
from kit.trained import as_if_trained

#: Small models, one per family; those that take any image size get 64 pixels.
MODELS = [
    "cait_xxs24_224",
    "coat_tiny",
    "convmixer_768_32",
    "convnext_atto",
    "cspresnet50",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla34",
    "dpn68",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientnet_lite0",
    "ese_vovnet19b_dw",
    "eva02_tiny_patch14_224",
    "fasternet_t0",
    "fastvit_t8",
    "ghostnet_100",
    "hgnet_tiny",
    "hrnet_w18_small",
    "lcnet_035",
    "levit_128s",
    "mambaout_femto",
    "mixer_s32_224",
    "mobilenetv3_small_050",
    "pit_ti_224",
    "poolformer_s12",
    "pvt_v2_b0",
    "regnetx_002",
    "repghostnet_050",
    "repvgg_a0",
    "repvit_m0_9",
    "res2net50_26w_4s",
    "resmlp_12_224",
    "resnet18",
    "rexnet_100",
    "selecsls42",
    "seresnet18",
    "starnet_s1",
    "vit_tiny_patch16_224",
    "xcit_nano_12_p16_224",
]
FAST = ["resnet18", "mobilenetv3_small_050"]


class Linear(nn.Linear):
    """The same layer under another name."""


class Convolution(nn.Conv2d):
    """The same layer under another name."""


#: Calls of passes that need arguments.
CALLS = {
    "decompose": functools.partial(
        REGISTRY["decompose"],
        rules={
            F.relu: lambda x, inplace=False: x.clamp(min=0),
            nn.ReLU: lambda _, x: x.clamp(min=0),
            nn.SiLU: lambda _, x: x * x.sigmoid(),
            nn.Linear: lambda layer, x: F.linear(x, layer.weight, layer.bias),
        },
    ),
    "rewrite": functools.partial(
        REGISTRY["rewrite"],
        rules="transpose(?x, -2, -1) => torch.transpose(?x, -1, -2)",
    ),
    "replace_op": functools.partial(
        REGISTRY["replace_op"],
        table={
            nn.Linear: Linear,
            nn.Conv2d: Convolution,
            nn.GELU: F.gelu,
            "flatten": torch.flatten,
            "transpose": torch.transpose,
            "mean": torch.mean,
            F.relu: torch.relu,
        },
    ),
}
#: Tolerances of passes that compute with fewer bits, relative to the largest value.
APPROXIMATE = {"autocast": 0.1}


def prepared(name):
    torch.manual_seed(0)
    model = as_if_trained(timm.create_model(name, pretrained=False), spread=0.1)
    config = model.default_cfg
    size = config["input_size"][-1] if config.get("fixed_input_size") else 64
    return model, torch.randn(1, 3, size, size)


def check(name):
    """The largest error of each pass, relative to the largest value."""
    model, x = prepared(name)
    errors, changes = {}, {}
    with torch.no_grad():
        expected = model(x)
        traced = corsac.fx.symbolic_trace(model)
        for pass_name, transform in REGISTRY.items():
            transform = CALLS.get(pass_name, transform)
            gm = corsac.fx.GraphModule(traced, traced.graph.__deepcopy__({}))
            corsac.analysis.propagate(gm, x)
            if pass_name in APPROXIMATE:
                changes[pass_name] = transform(gm).count
                gm.graph.lint()
            else:
                outcome = PassManager([transform], verify=(x,))(gm)
                gm, changes[pass_name] = outcome.graph_module, outcome.changes
            found = gm(x).to(expected.dtype)
            scale = max(expected.abs().max().item(), 1.0)
            errors[pass_name] = (found - expected).abs().max().item() / scale
    shown = ", ".join(f"{key} {changes[key]}: {error:.1e}" for key, error in errors.items())
    print(f"{name} ({len(traced.graph.nodes)} nodes): {shown}")
    for pass_name, error in errors.items():
        assert error <= APPROXIMATE.get(pass_name, 1e-4), pass_name
    return errors


@pytest.mark.parametrize("name", FAST)
def test_some_models(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in FAST])
def test_all_models(name):
    check(name)


def test_there_are_enough():
    assert len(set(MODELS)) == len(MODELS) >= 40
