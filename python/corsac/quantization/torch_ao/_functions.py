"""Functions of values of quantised types: which keep the steps of their input, and which round."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from corsac.quantization.torch_ao._values import Steps


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Functions whose results are among the numbers of the input.
SELECTING = _names(
    """
    relu flatten reshape view view_as permute transpose t squeeze unsqueeze contiguous clone detach expand expand_as
    repeat index_select select narrow getitem dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout flip
    unflatten pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle movedim moveaxis swapaxes swapdims
    tile repeat_interleave identity max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d amax amin
    """
)
#: Functions whose results are in the steps of the input, to which they are rounded.
ROUNDING = _names(
    """
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean std interpolate
    upsample upsample_nearest upsample_bilinear upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_bilinear2d hardtanh relu6 clamp clamp_min clamp_max clip leaky_relu threshold pad masked_fill
    constant_pad_nd reflectionpad1d reflectionpad2d replicationpad2d upsamplingnearest2d upsamplingbilinear2d
    """
)
#: Functions that join values, in the steps of the first one if no others are given.
JOINING = _names("cat concat concatenate stack")
#: Functions with a tuple of results in the steps of the input.
SEVERAL = _names("chunk split unbind tensor_split unsafe_chunk unsafe_split split_with_sizes")
#: Functions with a tuple of numbers of the input, and of places.
WITH_PLACES = _names("topk sort max min kthvalue median")
#: Functions whose results are of other types: those of the floats.
PLAIN = _names(
    """
    size dim numel getattr gt lt ge le eq ne greater less greater_equal less_equal not_equal stride is_contiguous ndim
    equal element_size len ndimension
    """
)
#: Functions with results in steps of their own, which do not depend on those of the input.
FIXED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "tanh": torch.tanh,
}


@functools.cache
def fixed_steps(name: str, steps: Steps) -> Steps:
    """The steps of the result of a function of :data:`FIXED`, as PyTorch has them."""
    probe = torch.quantize_per_tensor(torch.zeros(1), steps.scale, steps.zero_point, steps.dtype)
    result = FIXED[name](probe)
    return Steps(result.q_scale(), result.q_zero_point(), result.dtype)


def scalar_steps(name: str, number: float, steps: Steps) -> Steps:
    """The steps of the sum, or the product, of a value and a number, as PyTorch has them.

    Args:
        name: "add" or "mul".
        number: the number.
        steps: those of the value.
    """
    probe = torch.quantize_per_tensor(torch.zeros(1), steps.scale, steps.zero_point, steps.dtype)
    operators = torch.ops.quantized
    result = (operators.add_scalar if name == "add" else operators.mul_scalar)(probe, number)
    return Steps(result.q_scale(), result.q_zero_point(), result.dtype)


#: Names of functions by those of classes that differ from them.
_CLASSES = {
    **{
        f"{kind}pool{rank}d": f"{name}_pool{rank}d"
        for kind, name in (
            ("avg", "avg"),
            ("max", "max"),
            ("adaptiveavg", "adaptive_avg"),
            ("adaptivemax", "adaptive_max"),
        )
        for rank in (1, 2, 3)
    },
    "leakyrelu": "leaky_relu",
    "pixelshuffle": "pixel_shuffle",
    "pixelunshuffle": "pixel_unshuffle",
    "channelshuffle": "channel_shuffle",
    "constantpad1d": "pad",
    "constantpad2d": "pad",
    "zeropad2d": "pad",
}


def of_class(name: str) -> str:
    """The name of the function that a module of a class of ``torch.nn`` computes."""
    return _CLASSES.get(name.lower(), name.lower())
