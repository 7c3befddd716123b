"""Kernels of single operators against eager, at sizes and with numbers that take special paths."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac

INFINITY, NAN = float("inf"), float("nan")


def check(function, *inputs, close=1e-5, steps=None):
    """Compiled natively, ``function`` has the same results as eager, including signs of zeros."""
    compiled = corsac.compile(function)
    with torch.inference_mode():
        compiled(*inputs)
        found, expected = compiled(*inputs), function(*inputs)
    said = compiled.explain()
    assert "PyTorch" not in said and "steps" in said, said
    if steps is not None:
        assert f" {steps} steps" in said, said
    torch.testing.assert_close(found, expected, rtol=close, atol=close, equal_nan=True)
    for ours, theirs in zip(*map(_tensors, (found, expected)), strict=True):
        zeros = (theirs == 0) & (ours == 0)
        assert torch.equal(ours.signbit()[zeros], theirs.signbit()[zeros])


def _tensors(result):
    return result if isinstance(result, tuple) else (result,)


def _numbers(*shape):
    """Numbers including infinities, NaN and both zeros."""
    x = torch.randn(shape)
    special = torch.tensor([INFINITY, -INFINITY, NAN, 0.0, -0.0])
    places = torch.randint(0, x.numel(), (max(1, x.numel() // 50),))
    x.view(-1)[places] = special[torch.arange(len(places)) % 5]
    return x


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("channels", [1, 7, 64, 130])
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_batch_norms_of_rows_and_short_lines(channels, rows):
    norm = nn.BatchNorm1d(channels).eval()
    nn.init.normal_(norm.running_mean)
    nn.init.normal_(norm.weight)
    check(norm, _numbers(rows, channels))
    for length in (1, 5, 31, 32):
        check(norm, torch.randn(rows, channels, length))


def _trained(norm):
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norms_become_part_of_linear_layers(bias):
    model = nn.Sequential(nn.Linear(20, 33, bias), _trained(nn.BatchNorm1d(33)), nn.ReLU()).eval()
    check(model, torch.randn(9, 20), close=1e-4, steps=1)
    # With three dimensions, the second is the channels, which the layer does not compute.
    square = nn.Sequential(nn.Linear(20, 33, bias), _trained(nn.BatchNorm1d(9))).eval()
    check(square, torch.randn(4, 9, 20), close=1e-4)


@pytest.mark.parametrize("shape", [(2, 5, 6, 7), (3, 20), (4, 16, 9, 9), (8,)])
def test_prelu(shape):
    x = _numbers(*shape)
    check(nn.PReLU(), x)
    if len(shape) > 1:
        slopes = torch.randn(shape[1])
        check(lambda x, slopes: F.prelu(x, slopes), x, slopes)
    conv = nn.Sequential(nn.Conv2d(5, 20, 3), nn.PReLU(20))
    check(conv, torch.randn(1, 5, 8, 8), close=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(12, 14), (5, 21), (13, 4), (6, 7), (1, 1), (6, 20)])
def test_images_of_other_sizes(mode, size):
    x = torch.randn(2, 3, 6, 7)
    if mode.startswith("nearest"):
        x = _numbers(2, 3, 6, 7)
    check(lambda x: F.interpolate(x, size=size, mode=mode), x, close=1e-4)
    if mode in ("bilinear", "bicubic"):
        corners = {"mode": mode, "align_corners": True}
        check(lambda x: F.interpolate(x, size=size, **corners), x, close=1e-4)


def test_lines_and_volumes_of_other_sizes():
    for dtype in (torch.float32, torch.float64):
        # Sizes at which the order of roundings decides.
        for size, count in ((2, 49), (2, 98), (6, 94), (14, 110), (2, 41), (4, 82), (4, 110)):
            line = torch.arange(float(size)).to(dtype)
            for mode in ("nearest", "nearest-exact"):
                check(lambda x, n=count, m=mode: F.interpolate(x, n, mode=m), line.view(1, 1, -1))
                check(
                    lambda x, n=count, m=mode: F.interpolate(x, (1, n), mode=m),
                    line.view(1, 1, 1, -1),
                )
    check(lambda x: F.interpolate(x, scale_factor=2.5), _numbers(2, 3, 9))
    check(lambda x: F.interpolate(x, size=5, mode="linear"), torch.randn(2, 3, 9))
    check(lambda x: F.interpolate(x, scale_factor=2.0), _numbers(1, 2, 3, 4, 5))
    check(lambda x: F.interpolate(x, size=(4, 3, 9), mode="trilinear"), torch.randn(1, 2, 3, 4, 5))


POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": (2, 5), "stride": (3, 4), "padding": (1, 2)},
    {"kernel_size": (6, 7), "stride": 1},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
]


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("columns", [7, 8, 33])
def test_windows(pool, columns):
    x = _numbers(2, 3, 9, columns)
    finite = torch.randn(2, 3, 9, columns)
    check(lambda x: F.max_pool2d(x, **pool), x)
    check(lambda x: F.avg_pool2d(x, **pool), finite)
    check(lambda x: F.avg_pool2d(x, **pool, count_include_pad=False), finite)
    check(lambda x: F.avg_pool2d(x, **pool, divisor_override=3), finite)


def test_windows_with_gaps_and_of_lines():
    x = _numbers(2, 3, 11, 12)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2), x)
    check(lambda x: F.max_pool2d(x, 2, 1, 0, dilation=(1, 3)), x)
    check(lambda x: F.max_pool1d(x, 3, 2, 1), _numbers(4, 5, 17))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        (2, 2, 0, 1),
        (3, 2, 1, 1),
        ((3, 5), (1, 3), (1, 2), 1),
        (3, 1, 1, 2),
        ((4, 3), (3, 2), (2, 1), (1, 3)),
    ],
)
def test_places_of_largest_elements_are_pytorchs(
    kernel, stride, padding, dilation, ceil_mode, dtype
):
    """Also of equal elements, NaN, and windows of minus infinity."""
    x = torch.randint(0, 4, (2, 3, 13, 17)).to(dtype)
    x[0, 0, 2:7, 3:12] = -torch.inf
    x[1, :, 4:6, 5:8] = torch.nan
    function = torch.ops.aten.max_pool2d_with_indices.default
    arguments = (kernel, stride, padding, dilation)
    arguments = [[own, own] if isinstance(own, int) else list(own) for own in arguments]

    def pooled(x):
        return function(x, *arguments, ceil_mode)

    check(pooled, x, close=0)
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), x, close=0)
    check(lambda x: F.avg_pool1d(x, 3, 2, 1), torch.randn(4, 5, 17))


ROWS = [1, 2, 15, 16, 17, 100, 511, 512, 700]


@pytest.mark.parametrize("size", ROWS)
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_softmax(function, size):
    x = torch.randn(37, size) * 10
    check(lambda x: function(x, -1), x)
    check(lambda x: function(x, 0), x)
    special = _numbers(37, size)
    special[3] = -INFINITY
    special[5, : size // 2] = -INFINITY
    special[7] = 3e38
    special[9] = -NAN
    check(lambda x: function(x, -1), special)
    check(lambda x: function(x, 0), special)
    check(lambda x: function(x, 1), torch.randn(2, size, 3))
    check(lambda x: function(x, 1), torch.randn(2, 3, size))


@pytest.mark.parametrize("size", [1, 2, 31, 127, 128, 129, 1000])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_keeps_the_order_of_equal_numbers(size, descending):
    options = {"descending": descending, "stable": True}
    for x in (
        _numbers(3, size),
        torch.randint(-3, 3, (3, size)).float(),
        torch.randint(-9, 9, (3, size)),
        torch.randn(3, size) > 0,
        torch.tensor([0.0, -0.0, NAN, -NAN])[torch.randint(0, 4, (3, size))],
        torch.ones(3, size),
    ):
        check(lambda x: torch.sort(x, **options).indices, x)
        check(lambda x: torch.sort(x, dim=0, **options).indices, x)
    check(lambda x: torch.sort(x, **options), torch.randn(2, 3, size))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("size", "count"), [(5, 5), (100, 3), (1000, 30), (1000, 31), (1000, 999)])
def test_topk(size, count, largest):
    x = torch.randperm(3 * size).float().reshape(3, size)
    check(lambda x: x.topk(count, largest=largest), x)
    check(lambda x: x.topk(count, dim=1, largest=largest), x.reshape(3, size, 1))
    x[:, 1] = NAN
    check(lambda x: x.topk(1, largest=largest).values, x)


def test_places():
    x = _numbers(7, 9)
    for dim in (0, 1):
        index = torch.randint(0, x.shape[dim], (5, 8))
        check(lambda x, index, dim=dim: x.gather(dim, index), x, index)
        add = torch.randn(5, 8)
        check(lambda x, i, y, d=dim: x.scatter_add(d, i, y), torch.randn(7, 9), index, add)
        check(lambda x, i, y, d=dim: x.scatter(d, i, y), x, index[:1], add)
    three = torch.randn(3, 4, 5)
    index = torch.randint(0, 3, (2, 3, 4))
    check(lambda x, index: x.gather(1, index), three, index)
    check(lambda x, index: x.scatter_add(1, index, torch.ones(2, 3, 4)), three, index)
    compiled = corsac.compile(lambda x, index: x.gather(1, index))
    with torch.inference_mode():
        for index in ([[0, 1]], [[0, 8]]):
            compiled(x, torch.tensor(index))
        for index in ([[0, 9]], [[-1, 0]]):
            with pytest.raises(RuntimeError, match="out of"):
                compiled(x, torch.tensor(index))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_permutations(order):
    for shape in ((2, 3, 4, 5), (3, 2, 17, 33), (1, 20, 40, 2), (18, 1, 3, 16)):
        x = _numbers(*shape)
        check(lambda x: x.permute(order).contiguous(), x)
        check(lambda x: x.long().permute(order).contiguous(), torch.randn(shape))
        check(lambda x: (x > 0).permute(order).contiguous(), x)
    check(lambda x: x.permute(order)[:, ::2].contiguous(), torch.randn(4, 6, 8, 10))
    check(lambda x: x.flip(1).permute(order).contiguous(), torch.randn(4, 6, 8, 10))
    check(lambda x: x.permute(order).flip(-1).contiguous(), torch.randn(4, 6, 8, 10))


@pytest.mark.parametrize("factor", [2, 3, 4, 5])
def test_pixels_in_channels(factor):
    x = _numbers(2, 3 * factor**2, 5, 19)
    check(lambda x: F.pixel_shuffle(x, factor), x)
    check(lambda x: F.pixel_unshuffle(x, factor), _numbers(2, 3, 4 * factor, 7 * factor))


def test_slices_and_turns():
    x = _numbers(9, 70)
    check(lambda x: x.t().contiguous(), x)
    check(lambda x: x[:, ::2].contiguous(), x)
    check(lambda x: x[::3, 5::7].contiguous(), x)
    check(lambda x: x.flip(0, 1), x)
    check(lambda x: x.unfold(1, 5, 3).contiguous(), x)
    check(lambda x: x[:, :1].expand(9, 40).contiguous(), x)
    check(lambda x: x[0].expand(40, 70).contiguous(), x)
    check(lambda x: x.diagonal().contiguous(), x)


GROUPS = [
    # Groups, channels of input and result, kernel, stride, padding, dilation.
    (4, 8, 8, 3, 1, 1, 1),
    (2, 4, 12, 3, 2, 1, 1),
    (3, 5, 7, (1, 3), 1, (0, 1), 2),
    (6, 1, 2, 3, 1, 1, 1),
    (2, 15, 1, 5, 2, 2, 1),
    (8, 2, 2, 2, 3, 0, 1),
]


@pytest.mark.parametrize("case", GROUPS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions_in_small_groups(case, bias):
    groups, inputs, outputs, kernel, stride, padding, dilation = case
    conv = nn.Conv2d(
        groups * inputs, groups * outputs, kernel, stride, padding, dilation, groups, bias
    )
    for rows, columns in ((9, 11), (20, 50)):
        x = torch.randn(2, groups * inputs, rows, columns)
        check(nn.Sequential(conv, nn.ReLU()), x, close=1e-4)
        # An infinity in one group must not affect another.
        x[:, 0] = INFINITY
        check(conv, x, close=1e-4)
    weight = torch.randn_like(conv.weight)
    options = (None, stride, padding, dilation, groups)
    check(lambda x, weight: F.conv2d(x, weight, *options), x, weight, close=1e-4)


@pytest.mark.parametrize("shape", [(5,), (3, 33), (4, 100), (2, 3, 64), (0, 3), (3, 0)])
def test_reductions(shape):
    x = torch.rand(shape) + 0.5
    for dim in range(len(shape)):
        check(lambda x, dim=dim: x.prod(dim), x)
        check(lambda x, dim=dim: (x > 1).any(dim), x)
        check(lambda x, dim=dim: (x > 1).all(dim), x)
        check(lambda x, dim=dim: (x * 9).long().sum(dim), x)
        check(lambda x, dim=dim: x.sum(dim), x)
        if shape[dim]:
            check(lambda x, dim=dim: x.amax(dim), x)
            check(lambda x, dim=dim: (x * 9).long().amin(dim), x)
    if x.numel():
        special = _numbers(40, 130)
        check(lambda x: x.amax(-1), special)
        check(lambda x: x.amin(-1), special)
        check(lambda x: x.amax(0), special)


BINARY = [torch.fmod, torch.remainder, torch.floor_divide, torch.pow, torch.atan2, torch.hypot]


@pytest.mark.parametrize("function", BINARY, ids=lambda own: own.__name__)
def test_functions_of_two_numbers(function):
    values = torch.tensor(
        [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 7.5, 1e30, -1e30, 1e-30, INFINITY, -INFINITY, NAN]
    )  # fmt: skip
    if function in (torch.fmod, torch.remainder, torch.floor_divide):
        # PyTorch's vectorised remainder of quotients that are too large is neither exact nor consistent.
        values = values[~((values.abs() == 1e30) | (values == 1e-30))]
    count = len(values)
    x, y = values[:, None].expand(-1, count).contiguous(), values.expand(count, -1).contiguous()
    check(function, x, y)
    check(function, values[:, None], values)
    check(function, torch.randn(300, 7) * 9, torch.randn(300, 7))
    check(function, torch.randn(300, 7) * 9, torch.randn(7))
    check(function, torch.randn(300, 1) * 9, torch.randn(7))
    for number in (2.0, -3.0, 0.5, 1.5):
        check(lambda x, y=number: function(x, torch.full_like(x, y)), values)


def test_integers_and_truth_values():
    a, b = torch.randint(-9, 9, (70, 33)), torch.randint(1, 9, (70, 33))
    for function in (torch.add, torch.mul, torch.floor_divide, torch.remainder):
        check(function, a, b)
        check(function, a, b[:, :1])
        check(function, a, b[0])
    check(lambda x: ~(x > 0), a)
    check(lambda x: ~x, a)


@pytest.mark.parametrize("size", [1, 5, 16, 33, 127, 128, 300])
@pytest.mark.parametrize("weights", [(), ("weight",), ("bias",), ("weight", "bias")])
def test_layer_norms(size, weights):
    own = {name: torch.randn(size) for name in weights}
    check(lambda x: F.layer_norm(x, (size,), **own), torch.randn(70, size) * 3 + 2, close=1e-4)
    check(lambda x: F.layer_norm(x, (size,), **own), _numbers(70, size), close=1e-4)


@pytest.mark.parametrize("size", [1, 5, 64, 65, 300])
def test_places_of_extremes(size):
    for x in (
        _numbers(40, size),
        torch.randint(-2, 2, (40, size)).float(),
        torch.full((3, size), -INFINITY),
        torch.full((3, size), NAN),
        torch.randint(-2, 2, (40, size)),
    ):
        for dim in (0, 1):
            check(lambda x, dim=dim: x.argmax(dim), x)
            check(lambda x, dim=dim: x.argmin(dim), x)
        check(lambda x: x.max(-1), x)
        check(lambda x: x.min(-1), x)


def test_choices():
    flags, x, y = torch.randn(9, 70) > 0, _numbers(9, 70), _numbers(9, 70)
    check(torch.where, flags, x, y)
    check(torch.where, flags[:1], x, y[:, :1])
    check(torch.where, flags[:, :1], x[:, :1], y)
    check(torch.where, flags, x[0, :1], y)
    check(lambda flags, x: x.masked_fill(flags, 0.5), flags, x)
    check(torch.where, flags, x.nan_to_num().long(), y.nan_to_num().long())
    check(torch.tril, x)


SHAPES = [
    ((4, 5, 6), (5, 1)),
    ((4, 5, 6), (4, 1, 6)),
    ((1, 5, 1), (4, 1, 6)),
    ((6, 1), (1,)),
    ((0, 3), (3,)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_operands_that_are_repeated(a, b):
    x, y = _numbers(*a) if 0 not in a else torch.randn(a), torch.randn(b)
    for function in (torch.add, torch.sub, torch.div, torch.maximum):
        check(function, x, y)
        check(function, y, x)


@pytest.mark.parametrize("columns", [1, 5, 16, 17, 40, 100])
def test_rows_and_columns_in_other_places(columns):
    x = _numbers(2, 3, 6, columns)
    for shifts, dims in [(3, -1), ((1, -2), (2, 3)), ((5, 1, -7), (3, 1, 3)), ((1, 2), (0, 1))]:
        check(lambda x, s=shifts, d=dims: x.roll(s, d), x)
    most = min(columns - 1, 17)
    for mode, widths in [
        ("reflect", (most, most // 2, 3, 5)),
        ("reflect", (0, most)),
        ("replicate", (20, 1, 0, 2)),
        ("replicate", (0, 0, 0, 0)),
        ("circular", (most, columns, 6, 1)),
    ]:
        image = x if len(widths) == 4 else x[0]
        check(lambda x, m=mode, w=widths: F.pad(x, w, mode=m), image)
    volume = x[None]
    check(lambda x: F.pad(x, (most, 1, 2, 0, 1, 2), mode="replicate"), volume)
    check(lambda x: F.pad(x, (most, 1, 2, 0, 1, 2), value=-0.0), volume)
    for size in [(3, 7), (6, 2 * columns), (11, columns + 9), (6, columns)]:
        check(lambda x, s=size: F.interpolate(x, s, mode="nearest"), x)
        check(lambda x, s=size: F.interpolate(x, s, mode="nearest-exact"), x)
    # Many planes, whose rows are divided among threads.
    many = torch.randn(8, 4, 64, 64)
    check(lambda x: F.interpolate(x, scale_factor=1.7), many)
    check(lambda x: x.roll((9, 30), (2, 3)), many)


@pytest.mark.parametrize(
    "shapes", [[(5, 70)] * 3, [(5, 70), (70,), (5, 1)], [(1,), (600,), (3, 1)]]
)
def test_functions_of_three_numbers(shapes):
    a, b, c = (_numbers(*shape) for shape in shapes)
    for function in (
        torch.lerp,
        torch.addcmul,
        lambda a, b, c: torch.addcmul(a, b, c, value=-0.3),
        lambda a, b, c: torch.addcdiv(a, b, c, value=2),
    ):
        check(function, a, b, c)
        # In a chain, with scalars.
        check(lambda a, b, c, f=function: f(a.sin(), b, c).abs() + 1, a, b, c)
        check(lambda a, b, c, f=function: f(a * 2, b, c.sum(-1, keepdim=True)), a, b, c)


def test_squares_of_rows():
    for shape in [(3, 2), (7, 64), (40, 129), (2, 3, 500)]:
        x = torch.randn(shape)
        check(lambda x: x.square().sum(-1, keepdim=True) * x, x)
        check(lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt(), x)
        check(lambda x: (x.square() + x.square().sum(-1, keepdim=True)).sqrt(), x)
        check(F.normalize, x)
        check(F.normalize, _numbers(*shape))


def test_extremes_of_rows():
    for size in (1, 31, 32, 33, 64, 100, 1000):
        for make in (torch.randn, _numbers):
            x = make(6, size)
            check(lambda x: (x.amax(-1), x.amin(-1)), x)
        for special in (NAN, -NAN, INFINITY, -INFINITY):
            for place in {0, size // 2, size - 1}:
                x = torch.randn(4, size)
                x[1, place] = special
                check(lambda x: (x.amax(-1), x.amin(-1)), x)
        check(lambda x: (x.amax(-1), x.amin(-1)), torch.full((3, size), -INFINITY))
        check(lambda x: (x.amax(-1), x.amin(-1)), torch.full((3, size), INFINITY))


def test_numbers_as_integers():
    special = [0.0, -0.0, 0.9, -0.9, 1e10, -1e10, 9.3e18, -9.3e18, NAN, INFINITY, -INFINITY]
    for count in (1, 7, 8, 100, 40_000):
        x = torch.tensor(special).repeat(count)[:count]
        compiled = corsac.compile(lambda x: x.long(), options={"inference": "native"})
        with torch.inference_mode():
            compiled(x)
            assert torch.equal(compiled(x), x.long())


def test_extremes_of_rows_with_opposite_infinities():
    for size in (2, 64, 65, 200):
        x = torch.randn(3, size)
        x[1, 0], x[1, size - 1] = INFINITY, -INFINITY
        x[2] = 3e38
        check(lambda x: (x.amax(-1), x.amin(-1)), x)


def test_products_of_special_numbers():
    for size in (1, 7, 64, 65, 128, 300):
        for special in (NAN, INFINITY, -INFINITY, 0.0, -0.0):
            for place in {0, size // 2, size - 1}:
                x = torch.ones(4, size)
                x[1, place] = special
                x[2, place], x[2, 0] = special, -1.0
                x[3], x[3, place] = 0.9, special
                check(lambda x: x.prod(-1), x)
                check(lambda x: x.t().contiguous().prod(0), x)
    # In single precision, like PyTorch: overflow and underflow.
    check(lambda x: (x.prod(-1), x.prod(0), x.prod()), torch.full((65, 130), 10.0))
    check(lambda x: (x.prod(-1), x.prod(0), x.prod()), torch.full((65, 130), -0.1))
    x = torch.rand(40, 130) + 0.5
    exact = x.double().prod(-1)
    for result in (x.prod(-1), corsac.compile(lambda x: x.prod(-1))(x)):
        assert ((result.double() - exact) / exact).abs().max() < 130 * 2**-24
    check(lambda x: x.prod(-1), torch.randn(3, 0))
    check(lambda x: x.prod(-1), torch.randint(-3, 4, (5, 70)))


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 100])
def test_reductions_of_columns(rows):
    for shape in [(rows, 5), (rows, 300), (2, rows, 7)]:
        for x in (torch.randn(shape), _numbers(*shape)):
            dims = tuple(range(len(shape) - 1))
            check(lambda x, dims=dims: (x.sum(dims), x.mean(dims)), x, close=1e-5)
            check(lambda x, dims=dims: (x.amax(dims), x.amin(dims)), x)
    check(lambda x: (x.sum(0), x.mean(0)), torch.randn(rows, 0))
    check(lambda x: x.sum(0), torch.randn(0, rows))


def test_sums_of_columns_are_close():
    x = torch.rand(4000, 33)
    exact = x.double().sum(0)
    found = corsac.compile(lambda x: x.sum(0))(x)
    assert ((found.double() - exact) / exact).abs().max() < 1e-6


LONG = {
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "abs": torch.abs,
    "mul": lambda x: x * 1.7,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "div": lambda x: x / 3,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "sign": torch.sign,
    "softsign": F.softsign,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "leaky_relu": F.leaky_relu,
    "sqrt": lambda x: x.abs().sqrt(),
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("function", list(LONG.values()), ids=list(LONG))
def test_functions_of_many_elements(function):
    for length in (131_071, 131_072, 140_003):
        check(function, _numbers(length))


@pytest.mark.parametrize(
    "function",
    [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, F.prelu],
)
def test_pairs_of_many_elements(function):
    x = _numbers(3, 130, 401)
    others = [
        _numbers(3, 130, 401),
        _numbers(401),
        _numbers(130, 1),
        _numbers(3, 1, 401),
        _numbers(1),
    ]
    if function is F.prelu:
        others = [torch.tensor([0.25]), torch.randn(130)]
        check(function, x[:, :, :3].contiguous(), others[1])
    for other in others:
        check(function, x, other)
        if function is not F.prelu:
            check(function, other, x)
            # Short rows.
            if other.dim() < 3:
                check(function, x[:, :, :3].contiguous(), other[..., :3].contiguous())


def test_three_of_many_elements():
    a, b, c = (_numbers(3, 130, 401) for _ in range(3))
    check(torch.lerp, a.nan_to_num(), b.nan_to_num(), torch.rand(3, 130, 401))
    check(torch.addcmul, a, b, c)
    check(lambda a, b, c: torch.addcdiv(a, b, c, value=2), a, b, c)


def test_indices_out_of_range_of_scatter():
    x, index, y = torch.zeros(3, 5), torch.zeros(3, 5, dtype=torch.int64), torch.ones(3, 5)
    compiled = corsac.compile(lambda x, index, y: x.scatter_add(1, index, y))
    for _ in range(2):
        assert torch.equal(compiled(x, index, y), x.scatter_add(1, index, y))
    for wrong in (5, -1):
        bad = index.clone()
        bad[2, 3] = wrong
        with pytest.raises(RuntimeError, match="out of bounds"):
            compiled(x, bad, y)
        assert torch.equal(x, torch.zeros(3, 5))
    assert torch.equal(compiled(x, index, y), x.scatter_add(1, index, y))


@pytest.mark.parametrize(
    "exponent",
    [1, 3, 4, 5, 7, 8, 16, 31, 32, 33, 101, -1, -2, -3, -4, -31, 0.5, 1.5, -0.5, -1.5, 2.25, 1e10],
)
def test_powers(exponent):
    special = [0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-20, -1e-20, 3e38, -3e38, 1e-45, -1e-45, 1.0]
    special = torch.tensor([*special, -1.0, 2.0, -2.0, 0.5, -0.5])
    for x in (special, torch.randn(5), torch.randn(700), -torch.rand(64), special.repeat(30)):
        check(lambda x: x**exponent, x)
        check(lambda x: (x * 2) ** exponent * x + 1, x)
    x = (torch.randn(1000) * 2).clamp(-10, 10)
    exact = x.double() ** exponent
    with torch.inference_mode():
        compiled = corsac.compile(lambda x: x**exponent)
        compiled(x)
        found = compiled(x).double()
    normal = (exact.abs() > 1e-37) & (exact.abs() < 3e38)
    assert (((found - exact) / exact)[normal].abs() < 2e-7).all()


@pytest.mark.parametrize("features", [1, 2, 3, 4, 5, 6, 8, 12, 13, 16])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_of_a_few_features(features, bias):
    layer = nn.Linear(features, features, bias)
    for shape in [(1,), (7,), (3, 5), (40, 200)]:
        x = torch.randn(*shape, features)
        check(layer, x)
        check(nn.Sequential(layer, nn.ReLU(), layer), x)
        check(lambda x: x + layer(x).sigmoid(), x)
    x[3, 5] = NAN
    x[4, 0] = INFINITY
    check(layer, x)
    check(lambda x, w: F.linear(x, w), x, torch.randn(features, features))


@pytest.mark.parametrize("widths", [(70, 100), (64, 64, 64), (70, 5), (1, 200), (300,), (0, 80)])
def test_parts_of_rows(widths):
    parts = [_numbers(3, width, 2) if width else torch.randn(3, 0, 2) for width in widths]
    check(lambda *parts: torch.cat(parts, 1), *parts)
    check(lambda *parts: torch.cat([own.relu() for own in parts], 1) * 2, *parts)
    check(lambda *parts: torch.cat([*parts, parts[0]], 1), *parts)
    check(lambda *parts: torch.cat([own.flatten(1) for own in parts], -1), *parts)
