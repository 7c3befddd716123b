"""Operators that the engine composes of others, against PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from kit.on_engine import agree, random

X = torch.cat(
    [
        random(3, 40) * 3,
        torch.tensor([[0.0, -0.0, 1.0, -1.0, 30.0, -30.0, 0.5, -0.5, 1.5, 2.5] * 4] * 3),
    ]
)

UNARY = [
    torch.sin, torch.cos, torch.tan, torch.atan, torch.sinh, torch.cosh, torch.asinh, torch.exp2,
    torch.expm1, torch.floor, torch.ceil, torch.round, torch.trunc, torch.frac, torch.sign,
    F.softplus, F.mish, F.softsign, F.logsigmoid, F.softshrink, F.hardshrink, F.tanhshrink,
    lambda x: F.softplus(x, 2.0, 5.0), lambda x: F.threshold(x, 0.3, -2.0),
    lambda x: F.celu(x, 0.7), torch.deg2rad, torch.rad2deg, lambda x: F.softshrink(x, 1.5),
]  # fmt: skip


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_functions_of_one_number(function):
    agree(function, X)
    agree(function, X[:0])


@pytest.mark.parametrize(
    "function",
    [torch.sin, torch.exp2, torch.expm1, torch.floor, torch.round, torch.sign, F.softplus, F.mish,
     F.softsign, F.softshrink, F.hardshrink, lambda x: F.threshold(x, 0.3, -2.0), torch.log1p],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_is_not_finite(function):
    agree(function, torch.tensor([float("nan"), float("inf"), -float("inf")]))


@pytest.mark.parametrize("function", [torch.log1p, torch.log2, torch.log10, torch.acosh])
def test_functions_of_positive_numbers(function):
    agree(function, random(300).abs() + 1.0)


@pytest.mark.parametrize("function", [torch.asin, torch.acos, torch.atanh])
def test_functions_of_small_numbers(function):
    agree(function, random(300).tanh())


def test_what_is_infinite():
    x = torch.tensor([[float("nan"), float("inf"), -float("inf")], [0.0, -2.0, 3e38]])
    for of in (x, x.new_zeros(0), torch.tensor([0, -5]), torch.tensor([True, False])):
        agree(torch.isinf, of)
        agree(torch.isfinite, of)


def test_least_and_largest_elements():
    x = random(3, 4, 5)
    x[0, 1, 2] = float("nan")
    for of in (x, (x.nan_to_num() * 9).long(), x > 0, torch.tensor(2.5)):
        agree(lambda x: tuple(torch.aminmax(x)), of)
        agree(lambda x: tuple(torch.aminmax(x, dim=-1)), of)
        agree(lambda x: tuple(torch.aminmax(x, dim=0, keepdim=True)), of)


def test_numbers_of_elements_that_are_not_zero():
    x = random(3, 4, 5).relu()
    x[0, 1, :3] = torch.tensor([float("nan"), -0.0, float("inf")])
    for of in (x, (x.nan_to_num() * 3).int(), x > 0.5, x[:0]):
        agree(torch.count_nonzero, of)
        agree(lambda x: torch.count_nonzero(x, 1), of)


def test_functions_of_several_tensors():
    x, y, z = random(3, 4), random(4), random(3, 1) + 4
    agree(torch.addcmul, x, y, z)
    agree(lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), x, y, z)
    agree(lambda x, y: torch.lerp(x, y, 0.3), x, y)
    agree(lambda x, y: torch.lerp(x, y, 0.7), x, y)
    agree(torch.atan2, x, y)
    agree(torch.hypot, x, y)
    agree(torch.pow, x.abs(), y)
    agree(lambda x: 2**x, x)
    agree(torch.fmax, x, torch.tensor([float("nan"), 0, 1, -1]))
    agree(lambda x, y: (torch.remainder(x, y), torch.fmod(x, y), x // y, x % 0.7), x * 5, y)
    agree(lambda x, y: torch.div(x, y, rounding_mode="trunc"), x * 5, y)


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
def test_statistics(dim):
    x = random(3, 4, 5)
    agree(lambda x: torch.var(x, dim), x)
    agree(lambda x: torch.std(x, dim, correction=0, keepdim=True), x)
    agree(lambda x: torch.var(x, dim, unbiased=False), x)
    agree(lambda x: torch.var_mean(x, dim), x)
    for p in (2, 1, 3, 0, float("inf"), -float("inf")):
        agree(lambda x, p=p: torch.linalg.vector_norm(x, p, dim), x)
    if dim is not None:
        agree(lambda x: torch.norm(x, 2, dim, keepdim=True), x)
        agree(lambda x: torch.logsumexp(x, dim), x * 30)
    agree(lambda x: torch.logsumexp(x, 0), torch.tensor([float("-inf")] * 3))


def test_normalisation():
    torch.manual_seed(0)
    for norm, shape in (
        (nn.GroupNorm(2, 6), (3, 6, 5)),
        (nn.GroupNorm(3, 6, affine=False), (3, 6, 5, 4)),
        (nn.GroupNorm(6, 6, eps=1e-3), (1, 6, 2, 3, 4)),
        (nn.InstanceNorm2d(6), (3, 6, 5, 4)),
        (nn.InstanceNorm2d(6), (6, 5, 4)),
        (nn.InstanceNorm1d(6, affine=True), (3, 6, 5)),
        (nn.RMSNorm(6), (3, 5, 6)),
        (nn.RMSNorm((5, 6), eps=1e-5, elementwise_affine=False), (3, 5, 6)),
    ):
        for parameter in norm.parameters():
            nn.init.uniform_(parameter, 0.5, 1.5)
        agree(norm.eval(), random(*shape))
    agree(lambda x: F.normalize(x, dim=1), random(3, 4, 5))
    agree(lambda x: F.normalize(x, 1.0, 0), random(3, 4))


def test_a_batch_norm_of_computed_statistics():
    x, mean, variance, weight, bias = (
        random(3, 4, 5),
        random(4),
        random(4).abs(),
        random(4),
        random(4) + 1,
    )
    agree(F.batch_norm, x, mean, variance)
    agree(lambda x, m, v, w: F.batch_norm(x, m, v, w), x, mean, variance, weight)
    agree(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, eps=0.1), x, mean, variance, weight, bias
    )
    agree(F.batch_norm, x[:, :0], mean[:0], variance[:0])


def test_a_number_among_weights():
    three = torch.tensor(3.0)
    agree(lambda x: x * three, random(3))


def test_numbers_without_dimensions():
    x = random()
    agree(lambda x: (F.normalize(x, p=1.2, dim=0), F.softmin(x, 0), x.transpose(0, 0) + 1), x)
    agree(F.prelu, x, random(1))
    agree(lambda x: (x.cumsum(0), x.std(0, correction=0), x.argmax(0)), x)


def test_what_is_left_out_is_an_error():
    compiled = corsac.compile(
        lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5), fullgraph=True
    )
    with torch.no_grad(), pytest.raises(corsac.CompileError, match="no tensor"):
        compiled(random(3, 4))


def test_activations_of_modules():
    torch.manual_seed(0)
    for module in (nn.PReLU(), nn.PReLU(4, 0.3), nn.Softplus(2), nn.Mish(), nn.CELU(0.5),
                   nn.Softshrink(0.2), nn.Hardshrink(0.2), nn.LogSigmoid(), nn.Threshold(0.1, 2),
                   nn.Softmin(1), nn.Tanhshrink(), nn.Softsign(), nn.GLU(1)):  # fmt: skip
        agree(module, random(3, 4, 5))


def test_products_of_other_names():
    agree(
        lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5, alpha=2),
        random(2, 3, 5),
        random(2, 3, 4),
        random(2, 4, 5),
    )
    agree(
        lambda a, b, c: torch.addmm(a, b, c, beta=0, alpha=2),
        random(5) / 0,
        random(3, 4),
        random(4, 5),
    )
    agree(torch.mv, random(3, 4), random(4))
    agree(torch.dot, random(4), random(4))
    agree(torch.outer, random(3), random(4))


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("B G H I D, B G H J D -> B G H I J", (2, 1, 3, 4, 5), (2, 1, 3, 6, 5)),
    ("i,j", (3,), (4,)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ij->ji", (3, 4)),
    ("bij->b", (2, 3, 4)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("ik,jkl,il->ij", (3, 4), (5, 4, 6), (3, 6)),
    ("bci,bcj->bij", (2, 3, 4), (2, 3, 5)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("ijk,k->ij", (2, 3, 4), (4,)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum(case):
    equation, *shapes = case
    operands = [random(*shape) + i for i, shape in enumerate(shapes)]
    names = ", ".join(f"x{i}" for i in range(len(shapes)))
    function = eval(
        f"lambda {names}: torch.einsum(equation, {names})", {"torch": torch, "equation": equation}
    )
    agree(function, *operands, tolerance=1e-4)


MOVED = {
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat more": lambda x: x.repeat(2, 1, 3, 1),
    "tile": lambda x: x.tile(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(3, dim=1),
    "repeat_interleave all": lambda x: x.repeat_interleave(2),
    "movedim": lambda x: x.movedim(0, 2),
    "movedims": lambda x: x.movedim((0, 1), (-1, 0)),
    "mT": lambda x: x.mT + 1,
    "T": lambda x: x[0].T + 1,
    "hstack": lambda x: torch.hstack([x, x]),
    "vstack": lambda x: torch.vstack([x[0, 0], x[0]]),
    "dstack": lambda x: torch.dstack([x[0], x[0]]),
    "column_stack": lambda x: torch.column_stack([x[0, :, 0], x[0]]),
    "unfold": lambda x: x.unfold(1, 2, 1) + 0,
    "unfold apart": lambda x: x.unfold(2, 2, 3) + 0,
    "diagonal": lambda x: x.diagonal() + 0,
    "diagonal below": lambda x: x.diagonal(-1, 1, 2) + 0,
    "diagonal above": lambda x: x.diagonal(2, 1, 2) + 0,
    "tensor_split": lambda x: torch.tensor_split(x, 3, 1)[1] + 0,
    "ravel": lambda x: torch.ravel(x) + 0,
    "swapaxes": lambda x: x.swapaxes(0, 1) + 0,
}


@pytest.mark.parametrize("name", MOVED)
def test_elements_that_are_moved(name):
    agree(MOVED[name], random(3, 4, 5))
    agree(MOVED[name], (random(3, 4, 5) * 9).long())


def test_pixels_and_channels():
    agree(lambda x: F.pixel_shuffle(x, 2), random(2, 8, 3, 4))
    agree(lambda x: F.pixel_unshuffle(x, 2), random(2, 3, 4, 6))
    agree(nn.ChannelShuffle(2), random(2, 6, 3, 4))


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"padding": 1}])
def test_pooling_of_lines(options):
    for shape in ((2, 3, 13), (3, 13)):
        agree(nn.MaxPool1d(3, **options), random(*shape))
        agree(nn.AvgPool1d(3, **options), random(*shape))
    agree(nn.AdaptiveAvgPool1d(4), random(2, 3, 13))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize(
    "to", [{"size": (7, 11)}, {"size": 3}, {"scale_factor": 2}, {"scale_factor": (1.6, 0.7)}]
)
def test_images_of_other_sizes(mode, to):
    x = random(2, 3, 5, 6)
    agree(lambda x: F.interpolate(x, mode=mode, **to), x)
    if mode in ("bilinear", "bicubic"):
        agree(lambda x: F.interpolate(x, mode=mode, align_corners=True, **to), x)
    if "scale_factor" in to:
        agree(lambda x: F.interpolate(x, mode=mode, recompute_scale_factor=True, **to), x)
    if mode in ("nearest", "bilinear"):
        agree(nn.Upsample(mode=mode, **to), x)


def test_lines_and_volumes_of_other_sizes():
    agree(lambda x: F.interpolate(x, scale_factor=3, mode="linear"), random(2, 3, 5))
    agree(lambda x: F.interpolate(x, 7), random(2, 3, 5))
    agree(lambda x: F.interpolate(x, (4, 3, 5), mode="trilinear"), random(1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"padding": 1}, {"dilation": 2, "stride": 3}, {"groups": 2, "bias": False}],
)
def test_transposed_convolutions(options):
    torch.manual_seed(0)
    for cls, shape in (
        (nn.ConvTranspose1d, (2, 4, 7)),
        (nn.ConvTranspose2d, (2, 4, 5, 6)),
        (nn.ConvTranspose3d, (1, 4, 3, 4, 5)),
    ):
        agree(cls(4, 6, 3, **options).eval(), random(*shape))
    if options.get("stride") == 2:
        agree(nn.ConvTranspose2d(4, 6, 3, output_padding=1, **options).eval(), random(4, 5, 6))


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2}, {"padding": 1}, {"dilation": (1, 2, 1)}, {"groups": 2, "bias": False},
     {"padding": "same"}],
)  # fmt: skip
def test_convolutions_of_volumes(options):
    torch.manual_seed(0)
    agree(nn.Conv3d(4, 6, (3, 2, 3), **options).eval(), random(2, 4, 5, 6, 7))
    agree(nn.Conv3d(4, 6, (3, 2, 3), **options).eval(), random(4, 5, 6, 7))


@pytest.mark.parametrize("name", ["swin_t", "swin_v2_t", "maxvit_t"])
def test_models_of_windows_are_whole(name):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    size = 224 if name == "maxvit_t" else 73
    agree(model, random(1, 3, size, size), tolerance=1e-4)


def test_weights_of_instance_norm_come_before_its_statistics():
    x, w = random(2, 3, 5, 5), random(3)
    agree(lambda x, w: torch.instance_norm(x, w, w, None, None, True, 0.1, 1e-5, False), x, w)
