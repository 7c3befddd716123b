"""Single operators: eager against corsac, worst first.

    python benches/operators.py [--only PATTERN] [--sizes NAMES] [--seconds S] [--rounds N]

Each operator is compiled by itself and called on one thread, at three sizes: tensors of about a thousand
elements, where call overhead dominates, 65 thousand, which fit in the second-level cache, and a million,
which do not; as rows, images and indices that are typical of the operator. Results are compared with eager's
first. Then samples of several calls are taken in turn; the table has the minima in microseconds and the ratio
of corsac to eager, worst first. ``PyTorch`` means that corsac leaves the operator to PyTorch, wholly or in
part, so that the ratio is that of call overhead.

Writes target/bench/operators.json: by operator and size, ``steady`` and ``median`` in seconds by peer, ``ratio``, and
``native``.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corsac
from in_turn import samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "operators.json"
SIZES = ("small", "medium", "large")
#: Target duration of a sample, in seconds; it contains as many calls as fit.
SAMPLE = 300e-6
#: Tolerance: sums of a thousand elements are computed in another order.
CLOSE = {"rtol": 1e-4, "atol": 2e-4}

Inputs = Callable[[int], tuple[Tensor, ...]]
#: Makes the function or module to call for a size.
Made = Callable[[int], Callable[..., Any]]

ROWS = ((32, 32), (256, 256), (1024, 1024))
SHORT_ROWS = ((64, 16), (4096, 16), (65536, 16))
IMAGES = ((1, 16, 8, 8), (1, 32, 48, 48), (4, 64, 64, 64))
LINES = ((1, 16, 64), (4, 32, 512), (16, 64, 1024))
VOLUMES = ((1, 4, 4, 8, 8), (1, 8, 8, 32, 32), (1, 16, 16, 64, 64))
MATRICES = (16, 64, 256)
INDICES = (32, 1024, 8192)


def _rows(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(ROWS[size]),)


def _positive(size: int) -> tuple[Tensor, ...]:
    return (torch.rand(ROWS[size]) + 0.1,)


def _within(size: int) -> tuple[Tensor, ...]:
    return (torch.rand(ROWS[size]) * 1.8 - 0.9,)


def _pair(size: int) -> tuple[Tensor, ...]:
    return torch.randn(ROWS[size]), torch.rand(ROWS[size]) + 0.5


def _row_pair(size: int) -> tuple[Tensor, ...]:
    return torch.randn(ROWS[size]), torch.randn(ROWS[size][1])


def _column_pair(size: int) -> tuple[Tensor, ...]:
    return torch.randn(ROWS[size]), torch.randn(ROWS[size][0], 1)


def _three(size: int) -> tuple[Tensor, ...]:
    return (*_pair(size), torch.randn(ROWS[size]))


def _flags(size: int) -> tuple[Tensor, ...]:
    return torch.randn(ROWS[size]) > 0, torch.randn(ROWS[size]), torch.randn(ROWS[size])


def _short_rows(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(SHORT_ROWS[size]),)


def _images(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(IMAGES[size]),)


def _lines(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(LINES[size]),)


def _volumes(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(VOLUMES[size]),)


def _integers(size: int) -> tuple[Tensor, ...]:
    return torch.randint(-99, 99, ROWS[size]), torch.randint(1, 99, ROWS[size])


def _products(size: int) -> tuple[Tensor, ...]:
    n = MATRICES[size]
    return torch.randn(n, n), torch.randn(n, n)


def _stacks(size: int) -> tuple[Tensor, ...]:
    n = MATRICES[size]
    return torch.randn(8, n, n // 2), torch.randn(8, n // 2, n)


def _heads(size: int) -> tuple[Tensor, ...]:
    shape = ((1, 2, 8, 16), (1, 4, 64, 32), (1, 8, 256, 64))[size]
    return torch.randn(shape), torch.randn(shape), torch.randn(shape)


def _distinct(size: int) -> tuple[Tensor, ...]:
    """Rows without equal elements: for these PyTorch does not define an order."""
    rows, columns = ROWS[size]
    return (torch.randperm(rows * columns).float().reshape(rows, columns),)


def _gathered(size: int) -> tuple[Tensor, ...]:
    rows, columns = ROWS[size]
    return torch.randn(rows, columns), torch.randint(0, columns, (rows, columns))


def _selected(size: int) -> tuple[Tensor, ...]:
    return torch.randn(ROWS[size]), torch.randint(0, ROWS[size][0], (INDICES[size] // 4,))


def _scattered(size: int) -> tuple[Tensor, ...]:
    rows, columns = ROWS[size]
    index = torch.randint(0, columns, (rows, columns))
    return torch.randn(rows, columns), index, torch.randn(rows, columns)


def _tokens(size: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, 1000, (INDICES[size] // 4,)),)


def _of(function: Callable[..., Any]) -> Made:
    """A function that is the same for all sizes."""
    return lambda size: function


def _wide(make: Callable[[int], nn.Module], shapes: tuple[tuple[int, ...], ...]) -> Made:
    """A module for the number of channels, or columns, of the inputs."""
    return lambda size: make(shapes[size][1])


def _settled(norm: nn.Module) -> nn.Module:
    """Give a batch norm statistics and weights as if it had been trained."""
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.normal_()
        norm.bias.normal_()
    return norm


def _conv(channels: int, kernel: int = 3, **keywords: Any) -> nn.Module:
    return nn.Conv2d(channels, channels, kernel, **keywords)


def _grouped(width: int) -> Made:
    return _wide(lambda c: _conv(c, padding=1, groups=max(1, c // width)), IMAGES)


def _image_module(make: Callable[[int], nn.Module]) -> tuple[Inputs, Made]:
    return _images, _wide(make, IMAGES)


def _row_module(make: Callable[[int], nn.Module]) -> tuple[Inputs, Made]:
    return _rows, _wide(make, ROWS)


def _elementwise(*functions: Callable[..., Any], inputs: Inputs = _rows) -> dict[str, Any]:
    return {own.__name__.removeprefix("special_"): (inputs, _of(own)) for own in functions}


def _resized(scale: float | None = None, **keywords: Any) -> tuple[Inputs, Made]:
    def made(size: int) -> Callable[..., Any]:
        if scale is not None:
            return lambda x: F.interpolate(x, scale_factor=scale, **keywords)
        rows = IMAGES[size][2] * 3 // 2
        return lambda x: F.interpolate(x, size=(rows, rows + 1), **keywords)

    return _images, made


OPERATORS: dict[str, tuple[Inputs, Made]] = {
    # Elementwise functions.
    **_elementwise(
        torch.abs, torch.neg, torch.exp, torch.exp2, torch.expm1, torch.sin, torch.cos, torch.tan, torch.atan,
        torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.erf, torch.sigmoid, torch.floor, torch.round,
        torch.sign, torch.square, F.relu, F.relu6, F.leaky_relu, F.elu, F.celu, F.selu, F.gelu, F.silu, F.mish,
        F.hardswish, F.hardsigmoid, F.hardtanh, F.softplus, F.softsign, F.logsigmoid, F.softshrink, F.hardshrink,
        F.tanhshrink,
    ),
    **_elementwise(torch.log, torch.log2, torch.log10, torch.log1p, torch.sqrt, torch.rsqrt, torch.reciprocal,
                   inputs=_positive),
    **_elementwise(torch.asin, torch.acos, torch.atanh, inputs=_within),
    "gelu tanh": (_rows, _of(lambda x: F.gelu(x, approximate="tanh"))),
    "clamp": (_rows, _of(lambda x: x.clamp(-0.5, 0.5))),
    "pow 1.5": (_positive, _of(lambda x: x**1.5)),
    "prelu": _row_module(lambda c: nn.PReLU()),
    "prelu of channels": _image_module(nn.PReLU),
    # Elementwise functions of two and three operands.
    **_elementwise(torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.pow, torch.atan2, torch.fmod,
                   torch.remainder, torch.hypot, torch.lt, torch.eq, torch.floor_divide,
                   inputs=lambda size: tuple(x.abs() for x in _pair(size))),
    "add a row": (_row_pair, _of(torch.add)),
    "add a column": (_column_pair, _of(torch.add)),
    "mul a number": (_rows, _of(lambda x: x * 1.7)),
    "where": (_flags, _of(torch.where)),
    "masked_fill": (_flags, _of(lambda flags, x, y: x.masked_fill(flags, 0.5))),
    "lerp": (_three, _of(torch.lerp)),
    "addcmul": (_three, _of(torch.addcmul)),
    "add integers": (_integers, _of(torch.add)),
    "to integers": (_rows, _of(lambda x: x.long())),
    "logical_not": (_flags, _of(lambda flags, x, y: ~flags)),
    # Rows.
    "softmax": (_rows, _of(lambda x: x.softmax(-1))),
    "softmax of short rows": (_short_rows, _of(lambda x: x.softmax(-1))),
    "softmax of columns": (_rows, _of(lambda x: x.softmax(0))),
    "log_softmax": (_rows, _of(lambda x: x.log_softmax(-1))),
    "log_softmax of short rows": (_short_rows, _of(lambda x: x.log_softmax(-1))),
    "logsumexp": (_rows, _of(lambda x: x.logsumexp(-1))),
    "layer_norm": _row_module(nn.LayerNorm),
    "layer_norm of short rows": (_short_rows, _wide(nn.LayerNorm, SHORT_ROWS)),
    "rms_norm": _row_module(nn.RMSNorm),
    "group_norm": _image_module(lambda c: nn.GroupNorm(4, c)),
    "instance_norm": _image_module(lambda c: nn.InstanceNorm2d(c)),
    "batch_norm of rows": _row_module(lambda c: _settled(nn.BatchNorm1d(c))),
    "batch_norm of images": _image_module(lambda c: _settled(nn.BatchNorm2d(c))),
    "normalize": (_rows, _of(F.normalize)),
    # Reductions.
    "sum": (_rows, _of(torch.sum)),
    "sum of rows": (_rows, _of(lambda x: x.sum(-1))),
    "sum of columns": (_rows, _of(lambda x: x.sum(0))),
    "mean of images": (_images, _of(lambda x: x.mean((2, 3)))),
    "amax of rows": (_rows, _of(lambda x: x.amax(-1))),
    "max of rows": (_rows, _of(lambda x: x.max(-1))),
    "argmax": (_rows, _of(lambda x: x.argmax(-1))),
    "var of rows": (_rows, _of(lambda x: x.var(-1))),
    "norm of rows": (_rows, _of(lambda x: x.norm(dim=-1))),
    "prod of rows": (_rows, _of(lambda x: x.prod(-1))),
    "any of rows": (_flags, _of(lambda flags, x, y: flags.any(-1))),
    "cumsum": (_rows, _of(lambda x: x.cumsum(-1))),
    "sort": (_distinct, _of(lambda x: x.sort(-1))),
    "argsort": (_distinct, _of(lambda x: x.argsort(-1))),
    "topk": (_distinct, _of(lambda x: x.topk(5))),
    # Gathering, scattering, moving elements.
    "gather": (_gathered, _of(lambda x, index: x.gather(1, index))),
    "index_select": (_selected, _of(lambda x, index: x.index_select(0, index))),
    "index": (_selected, _of(lambda x, index: x[index])),
    "scatter_add": (_scattered, _of(lambda x, index, y: x.scatter_add(1, index, y))),
    "embedding": (_tokens, _of(nn.Embedding(1000, 64))),
    "cat": (_pair, _of(lambda x, y: torch.cat([x, y], 1))),
    "stack": (_pair, _of(lambda x, y: torch.stack([x, y], -1))),
    "transpose": (_rows, _of(lambda x: x.t().contiguous())),
    "permute": (_images, _of(lambda x: x.permute(0, 2, 3, 1).contiguous())),
    "flip": (_rows, _of(lambda x: x.flip(-1))),
    "roll": (_rows, _of(lambda x: x.roll(3, -1))),
    "repeat": (_rows, _of(lambda x: x.repeat(2, 1))),
    "pad": (_images, _of(lambda x: F.pad(x, (1, 1, 1, 1)))),
    "pad by reflection": (_images, _of(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"))),
    "slice": (_rows, _of(lambda x: x[:, ::2].contiguous())),
    "tril": (_rows, _of(torch.tril)),
    "pixel_shuffle": (_images, _of(lambda x: F.pixel_shuffle(x, 2))),
    "pixel_unshuffle": (_images, _of(lambda x: F.pixel_unshuffle(x, 2))),
    "channel_shuffle": (_images, _of(lambda x: F.channel_shuffle(x, 4))),
    "unfold": (_images, _of(lambda x: F.unfold(x, 3, padding=1))),
    # Images.
    "nearest x2": _resized(2.0),
    "nearest": _resized(),
    "bilinear x2": _resized(2.0, mode="bilinear"),
    "bilinear": _resized(mode="bilinear"),
    "bilinear by corners": _resized(mode="bilinear", align_corners=True),
    "bicubic": _resized(mode="bicubic"),
    "max_pool 2x2": (_images, _of(lambda x: F.max_pool2d(x, 2))),
    "max_pool 3x3": (_images, _of(lambda x: F.max_pool2d(x, 3, 2, 1))),
    "avg_pool 2x2": (_images, _of(lambda x: F.avg_pool2d(x, 2))),
    "avg_pool 3x3": (_images, _of(lambda x: F.avg_pool2d(x, 3, 1, 1))),
    "adaptive_avg_pool": (_images, _of(lambda x: F.adaptive_avg_pool2d(x, 4))),
    "max_pool of lines": (_lines, _of(lambda x: F.max_pool1d(x, 2))),
    # Matrix products.
    "linear": _row_module(lambda c: nn.Linear(c, c)),
    "linear and batch_norm": _row_module(
        lambda c: nn.Sequential(nn.Linear(c, c), _settled(nn.BatchNorm1d(c)))
    ),
    "matmul": (_products, _of(torch.matmul)),
    "bmm": (_stacks, _of(torch.bmm)),
    "attention": (_heads, _of(F.scaled_dot_product_attention)),
    "conv 1x1": _image_module(lambda c: _conv(c, 1)),
    "conv 3x3": _image_module(lambda c: _conv(c, padding=1)),
    "conv 3x3 stride 2": _image_module(lambda c: _conv(c, padding=1, stride=2)),
    "conv 3x3 dilated": _image_module(lambda c: _conv(c, padding=2, dilation=2)),
    "conv groups of 8": (_images, _grouped(8)),
    "conv groups of 16": (_images, _grouped(16)),
    "conv depthwise": (_images, _grouped(1)),
    "conv of lines": (_lines, _wide(lambda c: nn.Conv1d(c, c, 3, padding=1), LINES)),
    "conv of volumes": (_volumes, _wide(lambda c: nn.Conv3d(c, c, 3, padding=1), VOLUMES)),
    "conv_transpose 2x2": _image_module(lambda c: nn.ConvTranspose2d(c, c, 2, stride=2)),
    "conv_transpose 3x3": _image_module(lambda c: nn.ConvTranspose2d(c, c, 3, stride=2, padding=1)),
}  # fmt: skip


def _calls(call: Callable[[], object]) -> int:
    """Number of calls in a sample."""
    start = time.perf_counter()
    call()
    return max(1, min(100, int(SAMPLE / (time.perf_counter() - start))))


def measure(name: str, size: int, seconds: float) -> dict[str, Any]:
    """Times of an operator at a size, after its results have been compared."""
    torch.manual_seed(0)
    inputs, make = OPERATORS[name]
    tensors, eager = inputs(size), make(size)
    if isinstance(eager, nn.Module):
        eager.eval()
    compiled = corsac.compile(eager, options={"inference": "native"})
    with torch.inference_mode():
        expected = eager(*tensors)
        # The first call is recorded while PyTorch runs it.
        for _ in range(3):
            torch.testing.assert_close(
                compiled(*tensors),
                expected,
                **CLOSE,
                msg=lambda why: f"{name}, {SIZES[size]}: {why}",
            )
        calls = {"eager": partial(eager, *tensors), "corsac": partial(compiled, *tensors)}
        # In two parts at different times: a slow spell of the machine may outlast all samples of an operator.
        samples = samples_in_turn(calls, seconds, repeat=_calls(calls["eager"]))
    said = compiled.explain()
    return {
        **summary(samples),
        "native": "PyTorch" not in said and "steps" in said,
        "explained": said,
    }


def _merge(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The shorter times of two runs."""
    for kind in ("steady", "median"):
        now[kind] = {peer: min(own, before[kind][peer]) for peer, own in now[kind].items()}
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name matches this")
    parser.add_argument("--sizes", default=",".join(SIZES), help="which sizes, with commas")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each, in each round")
    parser.add_argument("--rounds", type=int, default=2, help="through all of them")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", corsac.HostWarning)  # the table says it
    names = [name for name in OPERATORS if re.search(chosen.only, name)]
    sizes = chosen.sizes.split(",")
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    for _ in range(chosen.rounds):
        for name in names:
            for size in sizes:
                now = measure(name, SIZES.index(size), chosen.seconds)
                before = results[name].get(size)
                results[name][size] = _merge(before, now) if before else now
    for own in (own for by_size in results.values() for own in by_size.values()):
        own["ratio"] = own["steady"]["corsac"] / own["steady"]["eager"]
    print(f"{machine()}, one thread; minima in µs")
    print(f"{'operator':26} {'size':6} {'eager':>9} {'corsac':>9} {'ratio':>6}")
    table = [(own["ratio"], name, size) for name in names for size, own in results[name].items()]
    for ratio, name, size in sorted(table, reverse=True):
        own = results[name][size]
        eager, ours = (own["steady"][peer] * 1e6 for peer in ("eager", "corsac"))
        by = "" if own["native"] else "  PyTorch"
        print(f"{name:26} {size:6} {eager:9.1f} {ours:9.1f} {ratio:6.2f}{by}")
    slower = sum(ratio > 1 for ratio, _, _ in table)
    print(f"{len(names)} operators, {len(table)} rows, {slower} slower than eager")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"machine": machine(), "operators": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
