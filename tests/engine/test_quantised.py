"""Quantised numbers and weights of integers in native programs, against the same operators in PyTorch."""

from __future__ import annotations

import ctypes
import gc
import random
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import corsac
import corsac.quantization
from corsac.quantization._operators import pack_int4

ops = torch.ops.corsac
UNSIGNED, SIGNED = (0, 255, torch.uint8), (-128, 127, torch.int8)
kinds = pytest.mark.parametrize("kind", [UNSIGNED, SIGNED], ids=["uint8", "int8"])


def rounded(x, scale, zero_point, kind):
    """Numbers as their levels give them."""
    levels = ops.quantize_per_tensor(x, scale, zero_point, *kind)
    return ops.dequantize_per_tensor(levels, scale, zero_point, *kind)


def integers(weight):
    """Integers of 8 bits and scales for each output of a weight."""
    scales = weight.detach().flatten(1).abs().amax(1) / 127
    shape = [-1] + [1] * (weight.dim() - 1)
    return (weight.detach() / scales.reshape(shape)).round().to(torch.int8), scales


class Layer(nn.Module):
    """A linear layer or a convolution with a weight of integers."""

    def __init__(self, layer, zero_points=None):
        super().__init__()
        self.layer = [layer]
        weight, scales = integers(layer.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.register_buffer("zero_points", zero_points)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())

    def forward(self, x):
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zero_points, 0, *SIGNED)
        layer = self.layer[0]
        if isinstance(layer, nn.Linear):
            return F.linear(x, weight, self.bias)
        function = F.conv1d if isinstance(layer, nn.Conv1d) else F.conv2d
        geometry = (layer.stride, layer.padding, layer.dilation, layer.groups)
        return function(x, weight, self.bias, *geometry)


class Rounds(nn.Module):
    """Rounds its input to levels that fit numbers of about unit size."""

    def __init__(self, kind=UNSIGNED, scale=0.03, zero_point=None):
        super().__init__()
        middle = 120 if kind is UNSIGNED else -5
        self.levels = (scale, middle if zero_point is None else zero_point, kind)

    def forward(self, x):
        return rounded(x, *self.levels)


def native(model):
    return corsac.compile(model, options={"inference": "native"})


def check(model, *inputs, steps=None, scale=None):
    """Compare with PyTorch: equal up to rounding of sums, or by one level at most for few numbers."""
    fast = native(model.eval())
    with torch.no_grad():
        expected = model(*inputs)
        fast(*inputs)
        found = fast(*inputs)
    for own, other in zip(
        *[x if isinstance(x, tuple) else (x,) for x in (found, expected)], strict=True
    ):
        assert own.dtype == other.dtype
        assert own.shape == other.shape
        difference = (own.double() - other.double()).abs()
        rounding = 1e-5 * max(other.double().abs().max().item(), 1e-3)
        if scale is not None:
            assert difference.max() <= scale * 1.01 + rounding
            assert (difference > rounding).double().mean() < 0.1
        else:
            assert difference.max() <= rounding
    if steps is not None:
        text = str(fast.profile(*inputs)) if hasattr(fast, "profile") else names(fast, *inputs)
        for step in steps:
            assert step in text, text
    return fast


def names(fast, *inputs):
    from corsac._engine.profile import profile

    with torch.no_grad():
        return "\n".join(step.step for step in profile(fast, *inputs, repeats=1).steps)


@kinds
@pytest.mark.parametrize("rows", [1, 3, 130])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 32), (67, 33), (1, 1), (257, 70)])
def test_linear_layers_over_levels(kind, rows, inputs, outputs):
    torch.manual_seed(rows)
    model = nn.Sequential(Rounds(kind), Layer(nn.Linear(inputs, outputs)), nn.ReLU())
    check(model, torch.randn(rows, inputs), steps=["quantised_linear"])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 150])
def test_linear_layers_over_rows_with_their_own_range(rows, bias):
    class Dynamic(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer(nn.Linear(70, 40, bias=bias))

        def forward(self, x):
            scales, zeros = ops.choose_qparams_per_token(x, -128, 127)
            levels = ops.quantize_per_token(x, scales, zeros, *SIGNED)
            x = ops.dequantize_per_token(levels, scales, zeros, *SIGNED, torch.float32)
            return self.layer(x)

    x = torch.randn(rows, 70) * torch.logspace(-3, 3, rows).reshape(-1, 1)
    fast = check(Dynamic(), x[:1] if rows == 1 else x, steps=["quantised_linear"])
    # Rows of zeros, of one sign, and rows that are no numbers.
    special = torch.stack(
        [torch.zeros(70), torch.rand(70), -torch.rand(70), torch.full((70,), 2.0)]
    )
    broken = special.clone()
    broken[1, 3], broken[2, 5] = torch.nan, torch.inf
    model = Dynamic()
    fast = native(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(special), model(special))
        assert torch.equal(fast(broken).isnan().any(1), torch.tensor([False, True, True, False]))
        assert torch.equal(model(broken).isnan().any(1), torch.tensor([False, True, True, False]))


def test_three_dimensions_and_shared_rows():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.round = Rounds()
            self.q, self.k = Layer(nn.Linear(32, 48)), Layer(nn.Linear(32, 16, bias=False))

        def forward(self, x):
            x = self.round(x)
            return self.q(x), self.k(x), x

    check(Shared(), torch.randn(2, 9, 32), steps=["quantised_linear"])


CONVOLUTIONS = {
    "1x1": (16, 32, 1, {}),
    "channels": (30, 34, 1, {}),
    "3x3": (16, 32, 3, {"padding": 1}),
    "stride": (16, 40, 3, {"padding": 1, "stride": 2}),
    "dilation": (8, 16, 3, {"padding": 2, "dilation": 2}),
    "picture": (3, 64, 7, {"padding": 3, "stride": 2}),
    "no bias": (16, 16, 3, {"bias": False}),
    "rectangle": (5, 7, (3, 5), {"padding": (2, 1), "stride": (1, 2)}),
    "depthwise": (40, 40, 3, {"padding": 1, "groups": 40}),
    "depthwise 5x5": (18, 18, 5, {"padding": 2, "groups": 18, "stride": 2}),
    "groups": (16, 32, 3, {"groups": 4}),
}


@kinds
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_over_levels(kind, name):
    inputs, outputs, size, rest = CONVOLUTIONS[name]
    torch.manual_seed(1)
    model = nn.Sequential(Rounds(kind), Layer(nn.Conv2d(inputs, outputs, size, **rest)), nn.ReLU())
    steps = None if name == "groups" else ["quantised_conv"]
    check(model, torch.randn(2, inputs, 13, 17), steps=steps)


@kinds
def test_images_stay_bytes_between_layers(kind):
    torch.manual_seed(2)
    model = nn.Sequential(
        Rounds(kind),
        Layer(nn.Conv2d(3, 24, 3, padding=1)),
        nn.ReLU(),
        Rounds(kind),
        nn.MaxPool2d(3, 2, 1),
        Rounds(kind),
        Layer(nn.Conv2d(24, 24, 3, padding=1, groups=24)),
        Rounds(kind),
        nn.Hardswish(),
        Rounds(kind, 0.02),
        Layer(nn.Conv2d(24, 30, 1)),
        Rounds(kind),
    )
    steps = ["max_pool", "map_levels", "quantised_conv"]
    fast = check(model, torch.randn(2, 3, 16, 20), steps=steps, scale=0.03)
    with torch.no_grad():
        assert "dequantise" not in "\n".join(
            names(fast, torch.randn(2, 3, 16, 20)).splitlines()[:-1]
        )


class Residual(nn.Module):
    def __init__(self, channels, kind, activation=nn.ReLU):
        super().__init__()
        self.body = nn.Sequential(Layer(nn.Conv2d(channels, channels, 3, padding=1)), Rounds(kind))
        self.after = Rounds(kind)
        self.activation = activation()

    def forward(self, x):
        return self.after(self.activation(self.body(x) + x))


@kinds
@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.SiLU, nn.Identity])
@pytest.mark.parametrize("channels", [16, 18])
def test_sums_of_levels(kind, activation, channels):
    torch.manual_seed(3)
    model = nn.Sequential(
        Rounds(kind), Residual(channels, kind, activation), Residual(channels, kind, activation)
    )
    check(model, torch.randn(2, channels, 7, 9), scale=0.07)


def test_an_image_of_levels_that_a_linear_layer_reads():
    torch.manual_seed(8)
    layers = [
        Rounds(),
        Layer(nn.Conv2d(3, 5, 3)),
        Rounds(),
        nn.Flatten(),
        Layer(nn.Linear(5 * 36, 7)),
    ]
    check(nn.Sequential(*layers), torch.randn(2, 3, 8, 8), scale=0.05)
    layers = [Rounds(), Layer(nn.Conv2d(3, 8, 8)), Rounds(), nn.Flatten(), Layer(nn.Linear(8, 7))]
    check(nn.Sequential(*layers), torch.randn(2, 3, 8, 8), scale=0.05)


def test_levels_that_several_read():
    """Levels as results, in other operators, and in layers, with rows and images from one value."""

    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Layer(nn.Conv2d(8, 8, 3, padding=1))
            self.linear = Layer(nn.Linear(8 * 25, 10))

        def forward(self, x):
            levels = ops.quantize_per_tensor(x * 2, 0.05, 100, *UNSIGNED)
            x = ops.dequantize_per_tensor(levels, 0.05, 100, *UNSIGNED)
            y = self.conv(x)
            z = self.linear(x.flatten(1))
            again = ops.quantize_per_tensor(torch.relu(y + x), 0.05, 100, *UNSIGNED)
            back = ops.dequantize_per_tensor(again, 0.05, 100, *UNSIGNED)
            return levels, y, z, levels.to(torch.int32) + 1, again, self.conv(back), back + y

    check(Several(), torch.randn(2, 8, 5, 5), scale=0.05)


def test_numbers_that_are_none():
    """NaN has the level 0, and infinities have the bounds, as in PyTorch."""
    x = torch.tensor([[1.0, torch.nan, torch.inf, -torch.inf, 1e30, 0.0, -0.5, 3e38]])
    for kind in (UNSIGNED, SIGNED):
        check(nn.Sequential(Rounds(kind), Layer(nn.Linear(8, 4))), x)
        model = nn.Sequential(Rounds(kind))
        check(model, x)


def test_weights_with_zero_points():
    torch.manual_seed(4)
    zero_points = torch.randint(-20, 20, (16,), dtype=torch.int32)
    x = torch.randn(3, 8, 6, 6)
    for zeros in (zero_points, torch.zeros(16, dtype=torch.int32), zero_points.float()):
        check(nn.Sequential(Rounds(), Layer(nn.Conv2d(8, 16, 3), zeros), nn.ReLU()), x)
        check(nn.Sequential(Rounds(), Layer(nn.Conv2d(8, 16, 3), zeros), Rounds()), x, scale=0.03)
        check(nn.Sequential(Rounds(), Layer(nn.Linear(6, 16), zeros), Rounds()), x, scale=0.03)
        check(nn.Sequential(Layer(nn.Linear(6, 16), zeros)), x)


class Grouped(nn.Module):
    def __init__(self, inputs, outputs, group, packed, zeros):
        super().__init__()
        weight = torch.randn(outputs, inputs)
        groups = weight.reshape(outputs, -1, group)
        scales = groups.abs().amax(-1) / 7
        levels = (
            (groups / scales[..., None])
            .round()
            .clamp(-8, 7)
            .to(torch.int8)
            .reshape(outputs, inputs)
        )
        self.register_buffer("weight", pack_int4(levels) if packed else levels)
        self.register_buffer("scales", scales)
        zeros = torch.randint(-8, 8, scales.shape, dtype=torch.int8) if zeros else None
        self.register_buffer("zeros", zeros)
        self.group, self.packed = group, packed

    def forward(self, x):
        weight = ops.unpack_int4(self.weight) if self.packed else self.weight
        weight = ops.dequantize_per_channel_group(
            weight, self.scales, self.zeros, -8, 7, torch.int8, self.group, torch.float32
        )
        return F.linear(x, weight)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("group", [32, 64, 12])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_weights_in_groups(rows, group, packed, zeros):
    torch.manual_seed(5)
    model = Grouped(192, 50, group, packed, zeros)
    check(model, torch.randn(rows, 192))


@pytest.mark.parametrize("rows", [(1, 40, 256, 3), (256, 1, 7), (5, 600, 1)])
def test_integers_that_bytes_do_not_hold_for_any_number_of_rows(rows):
    """One model called with few rows and many, whose packed weights are of different form."""
    torch.manual_seed(5)
    model = Grouped(192, 170, 12, False, True)
    model.zeros = torch.randint(-90, 90, model.scales.shape, dtype=torch.int8)
    fast = native(model)
    for count in rows:
        x = torch.randn(count, 192)
        with torch.no_grad():
            fast(x)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-3)
        assert "linear" in names(fast, x)


def test_bfloat16_models_with_weights_of_integers():
    """The integers stay such in memory, not numbers of 16 bits."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            weight = torch.randint(-127, 128, (2048, 2048), dtype=torch.int8)
            self.register_buffer("weight", weight)
            self.register_buffer("scales", torch.rand(2048) / 4096)

        def forward(self, x):
            weight = ops.dequantize_per_channel(
                self.weight, self.scales, None, 0, *SIGNED, out_dtype=torch.bfloat16
            )
            return F.linear(x, weight)

    torch.manual_seed(6)
    model, x = Model(), torch.randn(3, 2048).bfloat16()
    programs = []
    for _ in range(3):
        fast, before = native(model), _resident()
        programs.append(fast)
        with torch.no_grad():
            fast(x)
            found, expected = fast(x), model(x)
        grown = _resident() - before
    assert grown < 6 * 2**20
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    assert "linear" in names(fast, x)


@pytest.mark.parametrize(("bits", "most"), [(8, 20), (4, 11)])
def test_weights_stay_integers_in_memory(bits, most):
    """16 million weights: one byte each, or half a byte and a scale of 2 bytes for 32 of them."""
    if bits == 8:
        model = Layer(nn.Linear(4096, 4096))
    else:
        model = Grouped(4096, 4096, 32, True, False)
        model.scales = model.scales.half().float()
    x, programs = torch.randn(1, 4096), []
    for _ in range(3):
        before = _resident()
        programs.append(native(model))
        with torch.no_grad():
            programs[-1](x)
            programs[-1](x)
        after = _resident()
    assert after - before < most * 2**20


def _resident():
    """Bytes in memory, without those that were freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_weights_that_change_are_seen():
    model = nn.Sequential(Rounds(), Layer(nn.Linear(16, 8)))
    fast = native(model)
    x = torch.randn(4, 16)
    with torch.no_grad():
        fast(x), fast(x)
        model[1].weight.neg_()
        model[1].scales.mul_(2)
        torch.testing.assert_close(fast(x), model(x))
        model[1].weight = torch.zeros_like(model[1].weight)
        torch.testing.assert_close(fast(x), model(x))


def test_threads_do_not_change_a_bit():
    torch.manual_seed(6)
    model = nn.Sequential(
        Rounds(),
        Layer(nn.Conv2d(16, 64, 3, padding=1)),
        nn.ReLU(),
        Rounds(),
        Residual(64, UNSIGNED),
    ).eval()
    x = torch.randn(2, 16, 40, 40)
    results, count = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            fast = native(model)
            with torch.no_grad():
                fast(x)
                results.append(fast(x))
    finally:
        torch.set_num_threads(count)
    assert torch.equal(*results)
    fast, found = native(model), [None] * 4
    with torch.no_grad():
        fast(x)

    def run(at):
        with torch.no_grad():
            found[at] = fast(x)

    workers = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert all(torch.equal(own, results[0]) for own in found)


def test_lines_of_images_are_computed_as_numbers():
    check(nn.Sequential(Rounds(), Layer(nn.Conv1d(8, 16, 3, padding=1))), torch.randn(2, 8, 20))
    check(nn.Sequential(Rounds(), Layer(nn.Conv2d(8, 16, 3, padding=1))), torch.randn(8, 6, 6))


def test_pools_of_levels_with_gaps():
    pool = nn.MaxPool2d(3, 1, 1, dilation=2)
    first, last = (Layer(nn.Conv2d(8, 16, 3, padding=1)), Layer(nn.Conv2d(16, 8, 3)))
    check(nn.Sequential(Rounds(), first, Rounds(), pool, last), torch.randn(2, 8, 12, 12))


def test_long_chains_of_functions_between_levels():
    """The number of functions is bounded by memory, not by the stack."""
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    quantised = (0.05, 0, -128, 127, torch.int8)

    def levels(node):
        node = graph.call_function(ops.quantize_per_tensor.default, (node, *quantised))
        return graph.call_function(ops.dequantize_per_tensor.default, (node, *quantised))

    node = levels(x)
    for _ in range(50_000):
        node = graph.call_function(torch.neg, (node,))
    graph.output(levels(node))
    model = corsac.fx.GraphModule(nn.Module(), graph)
    x = torch.randn(4, 8)
    expected = rounded(x, 0.05, 0, SIGNED)
    with torch.no_grad():
        torch.testing.assert_close(native(model)(x), expected)


def test_integers_of_two_halves():
    class Unpacks(nn.Module):
        def forward(self, packed):
            integers = ops.unpack_int4(packed)
            return integers, integers.to(torch.float32) * 2

    check(Unpacks(), torch.arange(256, dtype=torch.uint8).reshape(2, 128))


def test_levels_by_channel():
    scales, zeros = torch.rand(5) + 0.1, torch.randint(-9, 9, (5,))

    class Channels(nn.Module):
        def forward(self, x):
            levels = ops.quantize_per_channel(x, scales, zeros, 1, *SIGNED)
            return levels, ops.dequantize_per_channel(levels, scales, zeros, 1, *SIGNED)

    check(Channels(), torch.randn(3, 5, 2))


def test_programs_of_pt2e():
    """Graphs with PyTorch's own operators of the same meaning run natively, too."""
    import torch.ao.quantization.fx._decomposed

    theirs = torch.ops.quantized_decomposed

    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = Layer(nn.Linear(24, 12))

        def forward(self, x):
            levels = theirs.quantize_per_tensor(x, 0.04, 3, -128, 127, torch.int8)
            x = theirs.dequantize_per_tensor(levels, 0.04, 3, -128, 127, torch.int8)
            own = self.linear
            weight = theirs.dequantize_per_channel(own.weight, own.scales, None, 0, *SIGNED)
            return F.linear(x, weight, own.bias)

    check(Program(), torch.randn(6, 24), steps=["quantised_linear"])


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed):
    """Networks of layers, activations, pools and sums, each followed by levels."""
    random.seed(seed)
    torch.manual_seed(seed)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            kind = random.choice([UNSIGNED, SIGNED])
            self.first = Rounds(kind)
            self.steps = nn.ModuleList()
            channels = first = random.choice([3, 8, 12, 18])
            self.channels = first
            for _ in range(random.randint(2, 6)):
                choice = random.choice(["conv", "depthwise", "residual", "pool", "activation"])
                if choice == "conv":
                    new = random.choice([6, 16, 33])
                    size = random.choice([1, 3])
                    conv = nn.Conv2d(channels, new, size, padding=size // 2)
                    self.steps.append(
                        nn.Sequential(Layer(conv), random.choice([nn.ReLU, nn.Identity])())
                    )
                    channels = new
                elif choice == "depthwise":
                    self.steps.append(
                        Layer(nn.Conv2d(channels, channels, 3, padding=1, groups=channels))
                    )
                elif choice == "residual":
                    self.steps.append(Residual(channels, kind, random.choice([nn.ReLU, nn.SiLU])))
                elif choice == "pool":
                    self.steps.append(nn.MaxPool2d(2, 1))
                else:
                    self.steps.append(random.choice([nn.Hardswish, nn.ReLU6, nn.Sigmoid])())
                self.steps.append(Rounds(kind))

        def forward(self, x):
            x, kept = self.first(x), []
            for step in self.steps:
                x = step(x)
                kept.append(x)
            return x, kept[len(kept) // 2]

    model = Network()
    check(model, torch.randn(2, model.channels, 12, 12), scale=0.1)
