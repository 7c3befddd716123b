"""Real models: the runtimes' results against eager, relative to the largest output."""

from __future__ import annotations

import gc

import pytest
import timm
import torch
import torchvision
from torch import nn

import corsac
from kit.trained import as_if_trained

RUNTIMES = ("onnxruntime", "openvino")
TORCHVISION = torchvision.models.list_models(module=torchvision.models)
TIMM = (
    "convnext_atto", "deit_tiny_patch16_224", "efficientnet_lite0", "edgenext_xx_small",
    "fastvit_t8", "levit_128s", "mixer_s32_224", "mobilenetv3_small_050", "poolformer_s12",
    "pvt_v2_b0", "regnetx_002", "resnest14d", "swinv2_cr_tiny_224", "xcit_nano_12_p16_224",
)  # fmt: skip


def prepared(model: nn.Module) -> nn.Module:
    """Set evaluation mode, with heads that are not zero."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.Linear) and not module.weight.any():
            nn.init.normal_(module.weight, std=0.02, generator=generator)
    return as_if_trained(model)


@pytest.fixture(autouse=True)
def free_memory():
    """Collect garbage, since graph modules are parts of cycles and two large models should not overlap."""
    yield
    gc.collect()


def check(model: nn.Module, x: torch.Tensor, backend: str) -> None:
    lowered = corsac.lower(model, backend, x, strict=backend == "onnxruntime")
    # OpenVINO leaves the rounded quotients of some position encodings to the host.
    assert len(lowered.meta["lowering"].host) <= 2
    assert not lowered.state_dict()
    with torch.no_grad():
        expected, actual = model(x), lowered(x)
    error = (actual - expected).abs().max().item()
    scale = expected.abs().max().item()
    print(f"maximum absolute error {error:.1e} of {scale:.1e}")
    assert scale > 0 and error <= 2e-5 * scale


@pytest.mark.slow
@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(name, backend):
    torch.manual_seed(0)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = prepared(torchvision.models.get_model(name, **options))
    fixed = name.startswith(("vit", "maxvit")) or name == "inception_v3"
    check(model, torch.randn(1, 3, 224, 224) if fixed else torch.randn(1, 3, 64, 64), backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("name", TIMM)
def test_timm(name, backend):
    torch.manual_seed(0)
    model = prepared(timm.create_model(name))
    check(model, torch.randn(1, *model.default_cfg["input_size"]), backend)


def transformers_model(kind: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A small Hugging Face model, and its inputs."""
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(0, 90, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    if kind == "bert":
        config = transformers.BertConfig(vocab_size=99, intermediate_size=37, **sizes)
        return transformers.BertModel(config), (ids, mask)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=99, n_embd=32, n_layer=2, n_head=4, use_cache=False
        )
        return transformers.GPT2Model(config), (ids,)
    if kind == "t5":
        config = transformers.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4
        )
        return transformers.T5EncoderModel(config), (ids, mask)
    config = transformers.ViTConfig(intermediate_size=37, image_size=32, patch_size=8, **sizes)
    return transformers.ViTModel(config), (torch.randn(2, 3, 32, 32),)


class First(nn.Module):
    """The first result of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(*inputs)[0]


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "vit"])
def test_transformers(kind, backend):
    torch.manual_seed(0)
    model, inputs = transformers_model(kind)
    exported = torch.export.export(First(model).eval(), inputs).module()
    gm = corsac.fx.from_torch(exported)
    gm.training = False
    lowered = corsac.lower(gm, backend, inputs)
    preview = lowered.meta["lowering"]
    # On the host: the guards of torch.export, and with OpenVINO one product or sum of int64.
    assert len(preview.host) <= 1 + (backend == "openvino")
    assert len(preview.parts) <= 1 + (backend == "openvino")
    with torch.no_grad():
        expected, actual = gm(*inputs), lowered(*inputs)
    assert (actual - expected).abs().max() < 1e-5
