"""The models traced under both implementations, and cheap constructors for them."""

import contextlib
import functools
from collections.abc import Iterator

import timm
import torch
import torchvision.models as vision
from torch import nn

CLASSIFICATION = vision.list_models(module=vision)
SEGMENTATION = vision.list_models(module=vision.segmentation)
VIDEO = vision.list_models(module=vision.video)

# A small model of each family of torchvision.
FAMILIES = [
    "alexnet",
    "convnext_tiny",
    "deeplabv3_resnet50",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "fcn_resnet50",
    "googlenet",
    "inception_v3",
    "lraspp_mobilenet_v3_large",
    "maxvit_t",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mvit_v1_b",
    "r3d_18",
    "regnet_x_400mf",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "s3d",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "swin3d_t",
    "swin_t",
    "swin_v2_t",
    "vgg11_bn",
    "vit_b_32",
    "wide_resnet50_2",
]

# One model of each family of timm that torch.fx can trace.
TIMM = [
    "beit_base_patch16_224",
    "caformer_s18",
    "cait_xxs24_224",
    "coat_tiny",
    "convformer_s18",
    "convmixer_768_32",
    "convnext_atto",
    "cspresnet50",
    "davit_tiny",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla34",
    "dpn68",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientformerv2_s0",
    "efficientnet_lite0",
    "ese_vovnet19b_dw",
    "eva02_tiny_patch14_224",
    "fasternet_t0",
    "fastvit_t8",
    "focalnet_tiny_srf",
    "gcvit_xxtiny",
    "ghostnet_100",
    "gmlp_s16_224",
    "hgnet_tiny",
    "hrnet_w18_small",
    "inception_next_tiny",
    "inception_v4",
    "iformer_t",
    "lcnet_035",
    "levit_128s",
    "mambaout_femto",
    "maxvit_rmlp_pico_rw_256",
    "mixer_s32_224",
    "mobilenetv3_small_050",
    "nextvit_small",
    "nfnet_f0",
    "pit_ti_224",
    "poolformer_s12",
    "pvt_v2_b0",
    "rdnet_tiny",
    "regnetx_002",
    "repghostnet_050",
    "repvgg_a0",
    "repvit_m0_9",
    "res2net50_26w_4s",
    "resmlp_12_224",
    "resnest14d",
    "resnet18",
    "resnetv2_50",
    "rexnet_100",
    "selecsls42",
    "sequencer2d_s",
    "seresnet18",
    "shvit_s1",
    "skresnet18",
    "starnet_s1",
    "swiftformer_xs",
    "swin_tiny_patch4_window7_224",
    "swinv2_cr_tiny_224",
    "swinv2_tiny_window8_256",
    "tnt_s_patch16_224",
    "tresnet_m",
    "visformer_tiny",
    "vit_relpos_small_patch16_224",
    "vit_tiny_patch16_224",
    "vitamin_small_224",
    "volo_d1_224",
    "xception41",
    "xcit_nano_12_p16_224",
]

# Models that torch.fx cannot trace, mostly because their control flow depends on the input.
TIMM_UNTRACEABLE = [
    "bat_resnext26ts",
    "convit_tiny",
    "crossvit_tiny_240",
    "efficientvit_b0",
    "efficientvit_m0",
    "hiera_tiny_224",
    "mobilevit_xxs",
    "mvitv2_tiny",
    "naflexvit_base_patch16_gap",
    "nasnetalarge",
    "nest_tiny",
    "pnasnet5large",
    "samvit_base_patch16",
    "tiny_vit_5m_224",
    "twins_svt_small",
    "vgg11",
]

# Models that are also run, with an input size that is small but valid for them.
RUN = {
    "torchvision:alexnet": (1, 3, 64, 64),
    "torchvision:convnext_tiny": (1, 3, 32, 32),
    "torchvision:densenet121": (1, 3, 32, 32),
    "torchvision:efficientnet_b0": (1, 3, 32, 32),
    "torchvision:googlenet": (1, 3, 64, 64),
    "torchvision:mobilenet_v3_small": (1, 3, 32, 32),
    "torchvision:resnet18": (1, 3, 32, 32),
    "torchvision:shufflenet_v2_x0_5": (1, 3, 32, 32),
    "torchvision:squeezenet1_1": (1, 3, 64, 64),
    "torchvision:swin_t": (1, 3, 64, 64),
    "torchvision:vit_b_32": (1, 3, 224, 224),
    "torchvision:lraspp_mobilenet_v3_large": (1, 3, 64, 64),
    "torchvision:r3d_18": (1, 3, 4, 32, 32),
    "timm:mixer_s32_224": (1, 3, 224, 224),
    "timm:xcit_nano_12_p16_224": (1, 3, 64, 64),
}


@functools.cache
def names_of_initialisers() -> tuple[str, ...]:
    return tuple(n for n in dir(nn.init) if n.endswith("_") and not n.startswith("_"))


@contextlib.contextmanager
def without_initialisation() -> Iterator[None]:
    """Parameters stay as allocated: their memory is not touched."""
    saved = {name: getattr(nn.init, name) for name in names_of_initialisers()}
    for name in saved:
        setattr(nn.init, name, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for name, function in saved.items():
            setattr(nn.init, name, function)


def create(source: str) -> nn.Module:
    """A randomly initialised model in evaluation mode, from ``library:name``."""
    library, name = source.split(":")
    if library == "timm":
        return timm.create_model(name, pretrained=False).eval()
    options = {"weights_backbone": None} if name in SEGMENTATION else {}
    return vision.get_model(name, weights=None, **options).eval()


def create_without_weights(source: str) -> nn.Module:
    """The same model on the meta device, or uninitialised if its constructor computes."""
    try:
        with torch.device("meta"):
            return create(source)
    except NotImplementedError:
        with without_initialisation():
            return create(source)
