"""Layers, views and indexing, with their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from operator_cases import BOTH, OPENVINO, Case, booleans, floats, ints
from torch import nn


def _seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(7)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.3, 1.1, generator=generator)
            tensor.data.sub_(0.0 if tensor.ndim == 1 else 0.7)
    return nn.Sequential(module)


def _convolutions() -> Iterator[Case]:
    sizes = {1: (9,), 2: (9, 8), 3: (6, 5, 7)}
    settings: tuple[dict[str, Any], ...] = (
        {}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"groups": 2}, {"bias": False},
        {"padding": "same"}, {"padding": "same", "dilation": 2}, {"padding": "valid"},
        {"padding": 2, "padding_mode": "reflect"}, {"padding": 1, "padding_mode": "replicate"},
        {"padding": 2, "padding_mode": "circular"}, {"padding": "same", "padding_mode": "reflect"},
    )  # fmt: skip
    for rank, kind in ((1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)):
        image = floats(2, 4, *sizes[rank])
        for setting in settings:
            module = _seeded(kind(4, 6, 3 if rank > 1 else 4, **setting))
            yield Case(f"{kind.__name__} {setting}", module, (image,))
        yield Case(f"{kind.__name__} unbatched", _seeded(kind(4, 6, 2)), (image[0],))
    for rank, kind in ((1, nn.ConvTranspose1d), (2, nn.ConvTranspose2d), (3, nn.ConvTranspose3d)):
        image = floats(2, 4, *sizes[rank])
        for setting in ({}, {"stride": 2, "output_padding": 1}, {"padding": 1, "dilation": 2},
                        {"groups": 2, "bias": False}):  # fmt: skip
            yield Case(f"{kind.__name__} {setting}", _seeded(kind(4, 6, 3, **setting)), (image,))
    weight = floats(6, 4, 3, 3)
    yield Case(
        "F.conv2d", lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0)), (floats(2, 4, 9, 8), weight)
    )
    yield Case(
        "F.conv2d same", lambda x, w: F.conv2d(x, w, padding="same"), (floats(2, 4, 9, 8), weight)
    )


def _pooling() -> Iterator[Case]:
    image = floats(2, 3, 9, 10)
    for kind in (nn.MaxPool2d, nn.AvgPool2d):
        for setting in ({}, {"stride": 1}, {"padding": 1}, {"stride": 2, "ceil_mode": True},
                        {"stride": 2, "padding": 1, "ceil_mode": True},
                        {"kernel_size": (2, 3), "stride": (3, 2), "ceil_mode": True}):  # fmt: skip
            given = {"kernel_size": 3} | setting
            yield Case(f"{kind.__name__} {setting}", nn.Sequential(kind(**given)), (image,))
    yield Case("MaxPool2d dilated", nn.Sequential(nn.MaxPool2d(2, 1, dilation=2)), (image,))
    yield Case(
        "AvgPool2d without padding", nn.Sequential(nn.AvgPool2d(3, 2, 1, True, False)), (image,)
    )
    yield Case(
        "AvgPool2d divided", nn.Sequential(nn.AvgPool2d(3, 2, 1, divisor_override=5)), (image,)
    )
    yield Case(
        "pooling without a batch", nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2)), (image[0],)
    )
    yield Case("pooling of rank 1", nn.Sequential(nn.MaxPool1d(2), nn.AvgPool1d(2)), (image[0],))
    volume = floats(1, 2, 6, 7, 8)
    yield Case("pooling of rank 3", nn.Sequential(nn.MaxPool3d(2), nn.AvgPool3d(2)), (volume,))
    for size in (1, 3, (3, 5), (None, 2), (4, 7), 12):
        yield Case(f"AdaptiveAvgPool2d {size}", nn.Sequential(nn.AdaptiveAvgPool2d(size)), (image,))
        yield Case(f"AdaptiveMaxPool2d {size}", nn.Sequential(nn.AdaptiveMaxPool2d(size)), (image,))
    yield Case("adaptive of rank 1", nn.Sequential(nn.AdaptiveAvgPool1d(4)), (image[0],))
    yield Case("adaptive of rank 3", nn.Sequential(nn.AdaptiveAvgPool3d((2, 3, 1))), (volume,))
    yield Case("F.adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (1, 1)), (image,))
    yield Case("F.max_pool2d", lambda x: F.max_pool2d(x, 2, ceil_mode=True), (image,))
    with_indices = lambda x: F.max_pool2d(x, 2, return_indices=True)  # noqa: E731
    yield Case("max_pool2d with indices", with_indices, (image,), BOTH)


def _normalisation() -> Iterator[Case]:
    image, rows = floats(2, 6, 5, 4), floats(3, 6)
    for kind, given in ((nn.BatchNorm1d, rows), (nn.BatchNorm1d, floats(2, 6, 5)), (nn.BatchNorm2d, image),
                        (nn.BatchNorm3d, floats(2, 6, 3, 4, 2))):  # fmt: skip
        for setting in ({}, {"eps": 0.1}, {"affine": False}):
            yield Case(
                f"{kind.__name__} {given.ndim} {setting}", _seeded(kind(6, **setting)), (given,)
            )
    for shape in (4, (5, 4)):
        for setting in ({}, {"elementwise_affine": False}, {"bias": False}, {"eps": 0.1}):
            yield Case(
                f"LayerNorm {shape} {setting}", _seeded(nn.LayerNorm(shape, **setting)), (image,)
            )
        yield Case(f"RMSNorm {shape}", _seeded(nn.RMSNorm(shape)), (image,))
    yield Case("RMSNorm eps", _seeded(nn.RMSNorm(4, 0.1, elementwise_affine=False)), (image,))
    for groups in (1, 2, 3, 6):
        yield Case(f"GroupNorm {groups}", _seeded(nn.GroupNorm(groups, 6, 1e-3)), (image,))
    yield Case("GroupNorm without weights", _seeded(nn.GroupNorm(2, 6, affine=False)), (rows,))
    yield Case("InstanceNorm2d", _seeded(nn.InstanceNorm2d(6)), (image,))
    yield Case("InstanceNorm2d affine", _seeded(nn.InstanceNorm2d(6, affine=True)), (image,))
    tracked = nn.InstanceNorm2d(6, track_running_stats=True)
    yield Case("InstanceNorm2d tracked", _seeded(tracked), (image,))
    yield Case("InstanceNorm1d unbatched", _seeded(nn.InstanceNorm1d(6)), (floats(6, 7),))
    yield Case("LocalResponseNorm", nn.Sequential(nn.LocalResponseNorm(3, 0.5, 0.7, 1.5)), (image,))
    yield Case("an even LocalResponseNorm", nn.Sequential(nn.LocalResponseNorm(2)), (image,))
    batch = nn.BatchNorm2d(6, track_running_stats=False)
    yield Case("BatchNorm2d without statistics", _seeded(batch), (image,))
    by_batch = lambda x: F.batch_norm(x, None, None, training=True, eps=0.1)  # noqa: E731
    yield Case("F.batch_norm by the batch", by_batch, (image,))
    by_input = lambda x, w: torch.instance_norm(  # noqa: E731
        x, w, w, None, None, True, 0.1, 1e-5, False
    )
    yield Case("torch.instance_norm", by_input, (image, floats(6)))
    yield Case("F.group_norm", lambda x: F.group_norm(x, 3) + F.layer_norm(x, (4,)), (image,))
    yield Case(
        "F.batch_norm", lambda x, m, v: F.batch_norm(x, m, v.abs()), (image, floats(6), floats(6))
    )


def _views() -> Iterator[Case]:
    a = floats(2, 3, 4)
    yield Case("reshape", lambda x: (x.view(6, 4), x.reshape(-1), torch.reshape(x, (4, -1))), (a,))
    yield Case("view_copy", lambda x: torch.ops.aten.view_copy(x, [4, 3, 2]), (a,))
    yield Case("view after permute", lambda x: x.permute(2, 0, 1).reshape(4, 6), (a,))
    yield Case("flatten", lambda x: (x.flatten(), torch.flatten(x, 1), x.flatten(0, 1)), (a,))
    yield Case("unflatten", lambda x: x.unflatten(2, (2, 2)).unflatten(0, (-1, 1)), (a,))
    yield Case("squeeze", lambda x: (x.unsqueeze(0).squeeze(), x.unsqueeze(-1).squeeze(-1)), (a,))
    yield Case("transpose", lambda x: (x.transpose(0, -1), x.mT, x.swapaxes(1, 2), x[0].T), (a,))
    yield Case("permute", lambda x: (torch.permute(x, (2, 0, 1)), x.permute([1, 2, 0])), (a,))
    yield Case("movedim", lambda x: (x.movedim(0, 2), torch.movedim(x, (0, 1), (1, 2))), (a,))
    yield Case("expand", lambda x: (x[:, :1].expand(-1, 5, 4), x.expand(2, 2, 3, 4)), (a,))
    yield Case("expand_as", lambda x: x[:1].expand_as(x) + x, (a,))
    yield Case(
        "repeat", lambda x: (x.repeat(1, 2, 1), x.repeat(2, 1, 1, 3), torch.tile(x, (2,))), (a,)
    )
    yield Case(
        "repeat_interleave",
        lambda x: (x.repeat_interleave(2, 1), torch.repeat_interleave(x, 3)),
        (a,),
    )
    yield Case("flip", lambda x: (x.flip(0, 2), torch.flip(x, (1,))), (a,))
    yield Case("roll", lambda x: (x.roll(1, 0), torch.roll(x, (1, -2), (1, 2)), x.roll(5)), (a,))
    yield Case("triangles", lambda x: (x.tril(), torch.triu(x, 1), x.tril(-1)), (a,))
    yield Case("triangles of booleans", lambda x: torch.tril(x), (booleans(3, 4),))
    yield Case("clone", lambda x: x.clone().contiguous().detach() * 1, (a,))
    pixels = floats(2, 8, 3, 4)
    yield Case("PixelShuffle", nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), (pixels,))
    yield Case("ChannelShuffle", nn.Sequential(nn.ChannelShuffle(4)), (pixels,))
    yield Case("nn.Flatten", nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 12))), (pixels,))


def _indexing() -> Iterator[Case]:
    a, i = floats(4, 5, 6), ints(3, low=0, high=4)
    yield Case(
        "getitem", lambda x: (x[0], x[-1, 2], x[1:3], x[:, ::2], x[..., 1:-1], x[:, None, 2]), (a,)
    )
    yield Case(
        "getitem with steps", lambda x: (x[1::2, -3:, :-2], x[None, ..., None], x[:, :, 9:]), (a,)
    )
    yield Case(
        "getitem by a tensor", lambda x, i: (x[i], x[:, i], x[i, 1:], x[..., i], x[i[0]]), (a, i)
    )
    yield Case(
        "getitem by two tensors", lambda x, i: (x[i, i], x[:, i, i], x[1:, i, None, i]), (a, i)
    )
    yield Case("getitem by a list", lambda x: x[[0, 2]], (a,))
    yield Case("getitem by negative places", lambda x, i: x[i - 4], (a, i))
    yield Case("getitem by booleans", lambda x, i: x[i > 0].sum(), (floats(3, 2), i), BOTH)
    yield Case(
        "select", lambda x: (x.select(1, -1), x.narrow(2, 1, 3), torch.narrow(x, 0, -2, 2)), (a,)
    )
    yield Case("index_select", lambda x, i: torch.index_select(x, 1, i), (a, i))
    yield Case("gather", lambda x, i: torch.gather(x, 1, i), (a, ints(4, 3, 6, low=0, high=5)))
    yield Case(
        "gather of fewer", lambda x, i: x.gather(0, i), (a, ints(2, 3, 4, low=0, high=4)), OPENVINO
    )
    yield Case(
        "take_along_dim",
        lambda x, i: torch.take_along_dim(x, i, 1),
        (a, ints(4, 3, 1, low=0, high=5)),
    )
    yield Case("nn.Embedding", nn.Sequential(nn.Embedding(4, 3, padding_idx=0)), (i,))
    yield Case("F.embedding", F.embedding, (i, floats(4, 3)))
    yield Case("one_hot", lambda i: F.one_hot(i, 5), (i,))
    places = lambda x: torch.slice_scatter(x, x[:, 1:3] * 2, 1, 2, 4)  # noqa: E731
    yield Case("slice_scatter", places, (a,))
    yield Case("slice_scatter of all", lambda x: torch.slice_scatter(x, x * 2, 1), (a,))
    yield Case("select_scatter", lambda x: x.select_scatter(x[:, 0] * 2, 1, -2), (a,))
    yield Case("cat", lambda x, y: (torch.cat([x, y]), torch.cat((x, y), -2)[:1]), (a, a * 2))
    yield Case("cat of dtypes", lambda x, i: torch.cat([x[0, 0, :3], i]), (a, i))
    yield Case("cat with nothing", lambda x: torch.cat([x, x[:0]], 0), (a,))
    yield Case("stack", lambda x: (torch.stack([x, x * 2]), torch.stack((x, x), -1)), (a,))
    yield Case(
        "hstack and vstack",
        lambda x: (torch.hstack([x, x]), torch.vstack([x[0, 0], x[1, 0]])),
        (a,),
    )
    yield Case("split", lambda x: (x.split(2), torch.split(x, [1, 4], 1), x.chunk(4, -1)[1]), (a,))
    yield Case("chunk of one", lambda x: x.chunk(1)[0] * 2, (a,))
    yield Case("unbind", lambda x: (torch.stack(x.unbind(1)), torch.unbind(x)), (a,))
    yield Case(
        "meshgrid",
        lambda x, y: (torch.meshgrid(x, y, indexing="ij"), torch.meshgrid([x, y], indexing="xy")),
        (floats(3), floats(4)),
    )
    yield Case(
        "creation",
        lambda x: (
            x + torch.arange(6),
            torch.zeros_like(x),
            x.new_full((2,), 7),
            torch.ones(2, dtype=torch.int32),
        ),
        (a,),
    )
    yield Case(
        "arange by shapes", lambda x: torch.arange(1, 9, 2)[:, None] + x[0, 0, :1].long(), (a,)
    )
    yield Case(
        "dtypes",
        lambda x: (x.long(), x.int(), x.bool(), x.to(torch.int32), x.type_as(x.int())),
        (a * 3,),
    )
    yield Case("half", lambda x: (x.half() + 1).float(), (a,), BOTH)
    yield Case("double", lambda x: x.double() @ x.double().mT, (a,), OPENVINO)
    yield Case("int8", lambda x: x.to(torch.int8) + 1, (a * 3,), OPENVINO)


def _resampling() -> Iterator[Case]:
    image = floats(2, 3, 5, 6)
    for pads, mode in (((1, 2), "constant"), ((1, 2, 0, 3), "constant"), ((-1, 2), "constant"),
                       ((1, 2, 2, 1), "reflect"), ((1, 2, 2, 1), "replicate"),
                       ((1, 2, 2, 1), "circular")):  # fmt: skip
        yield Case(f"pad {pads} {mode}", lambda x, p=pads, m=mode: F.pad(x, p, mode=m), (image,))
    yield Case("pad with a number", lambda x: F.pad(x, (1, 1), value=2.5), (image,))
    yield Case("pad of integers", lambda x: F.pad(x, (1, 1), value=2), (ints(3, 4),))
    for name in (
        "ConstantPad2d",
        "ZeroPad2d",
        "ReflectionPad2d",
        "ReplicationPad2d",
        "CircularPad2d",
    ):
        given = (2, 1.5) if name == "ConstantPad2d" else (2,)
        yield Case(f"nn.{name}", nn.Sequential(getattr(nn, name)(*given)), (image,))
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for given in ({"size": (7, 11)}, {"scale_factor": 2}, {"size": (3, 4)}, {"scale_factor": (1.5, 0.5)},
                      {"size": 1}, {"scale_factor": 1.7, "recompute_scale_factor": True}):  # fmt: skip
            program = lambda x, m=mode, g=given: F.interpolate(x, mode=m, **g)  # noqa: E731
            yield Case(f"interpolate {mode} {given}", program, (image,))
    aligned = lambda x: F.interpolate(x, (7, 11), mode="bilinear", align_corners=True)  # noqa: E731
    yield Case("interpolate aligned", aligned, (image,))
    yield Case("interpolate linear", lambda x: F.interpolate(x[0], 9, mode="linear"), (image,))
    yield Case(
        "interpolate trilinear",
        lambda x: F.interpolate(x[None], (2, 7, 9), mode="trilinear"),
        (image,),
    )
    yield Case("nn.Upsample", nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear")), (image,))
    yield Case(
        "antialias", lambda x: F.interpolate(x, 3, mode="bilinear", antialias=True), (image,), BOTH
    )


def _attention() -> Iterator[Case]:
    q, k, v = floats(2, 4, 5, 8), floats(2, 4, 6, 8), floats(2, 4, 6, 8) * 2
    sdpa = F.scaled_dot_product_attention
    yield Case("attention", sdpa, (q, k, v))
    yield Case("attention scaled", lambda q, k, v: sdpa(q, k, v, scale=0.3), (q, k, v))
    yield Case("attention causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), (q, k, v))
    mask = booleans(5, 6)
    mask[2] = False
    yield Case("attention masked", sdpa, (q, k, v, mask))
    yield Case("attention with a bias", sdpa, (q, k, v, floats(2, 1, 5, 6)))
    grouped = lambda q, k, v: sdpa(q, k[:, :2], v[:, :2], enable_gqa=True)  # noqa: E731
    yield Case("attention of groups", grouped, (q, k, v))
    x = floats(2, 5, 16)
    for given in ({"batch_first": True}, {}, {"batch_first": True, "bias": False}):
        module = nn.MultiheadAttention(16, 4, **given)
        yield Case(f"MultiheadAttention {given}", _Attention(module, need_weights=False), (x,))
        yield Case(f"MultiheadAttention {given} weights", _Attention(module), (x,))
    for need in (True, False):
        attending = _Attending(nn.MultiheadAttention(16, 4, batch_first=True), need)
        yield Case(f"items of MultiheadAttention {need}", attending, (x,))
    module = nn.MultiheadAttention(16, 4, batch_first=True)
    masked = _Attention(module, attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1))
    yield Case("MultiheadAttention masked", masked, (x,))
    padded = _Attention(module, key_padding_mask=torch.tensor([[False] * 4 + [True]] * 2))
    yield Case("MultiheadAttention padded", padded, (x,))


class _Attending(nn.Module):
    def __init__(self, module: nn.Module, need_weights: bool) -> None:
        super().__init__()
        self.module, self.need_weights = module, need_weights

    def forward(self, x: torch.Tensor) -> Any:
        seen, weights = self.module(x, x, x, need_weights=self.need_weights)
        return seen + x, weights


class _Attention(nn.Module):
    def __init__(self, module: nn.Module, **given: Any) -> None:
        super().__init__()
        self.module = module
        self.given = {k: v for k, v in given.items() if not isinstance(v, torch.Tensor)}
        self.masks = [k for k, v in given.items() if isinstance(v, torch.Tensor)]
        for name in self.masks:
            self.register_buffer(name, given[name])

    def forward(self, x: torch.Tensor) -> Any:
        masks = {name: getattr(self, name) for name in self.masks}
        return self.module(x, x * 0.5, x + 1, **self.given, **masks)


def _composed() -> Iterator[Case]:
    a = floats(4, 5)
    yield Case("diff, taken apart", lambda x: torch.diff(x, dim=1), (a,))
    yield Case("tensordot, taken apart", lambda x: torch.tensordot(x, x, dims=([1], [1])), (a,))
    yield Case("mse_loss, taken apart", lambda x: F.mse_loss(x, x * 2), (a,))
    yield Case("smooth, taken apart", lambda x: F.cosine_similarity(x, x + 1, dim=1), (a,))


CASES = [
    *_convolutions(),
    *_pooling(),
    *_normalisation(),
    *_views(),
    *_indexing(),
    *_resampling(),
    *_attention(),
    *_composed(),
]
