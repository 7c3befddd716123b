"""Random programs over images: operators in the blocked channel layout agree with PyTorch."""

import random

import pytest
import torch
from torch import nn

import corsac


def layer(r, channels, size):
    """A layer for images of ``channels`` planes, possibly invalid for ``size``."""
    kind = r.choice(
        ["conv", "conv", "conv", "alone", "groups", "max", "mean", "adaptive", "act", "norm"]
    )
    least = min(size)
    if kind == "conv":
        kernel, dilation = r.choice([1, 1, 2, 3, 3, 5]), r.choice([1, 1, 2])
        outputs = r.choice([4, 8, 16, 17, 32, 48])
        stride, padding = r.choice([1, 1, 2, 3]), r.choice([0, 1, kernel // 2])
        if least + 2 * padding < dilation * (kernel - 1) + 1:
            return None
        bias = r.random() < 0.5
        return nn.Conv2d(channels, outputs, kernel, stride, padding, dilation, bias=bias)
    if kind == "alone":
        kernel = r.choice([3, 5])
        stride = r.choice([1, 2])
        return nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels)
    if kind == "groups":
        groups = r.choice([2, 4])
        outputs = groups * r.choice([4, 16])
        return None if channels % groups else nn.Conv2d(channels, outputs, 3, 1, 1, groups=groups)
    if kind == "max":
        if least < 3:
            return None
        return nn.MaxPool2d(r.choice([2, 3]), r.choice([1, 2]), 1, ceil_mode=r.random() < 0.3)
    if kind == "mean":
        if least < 3:
            return None
        options = {"ceil_mode": r.random() < 0.3, "count_include_pad": r.random() < 0.5}
        return nn.AvgPool2d(r.choice([2, 3]), r.choice([1, 2]), r.choice([0, 1]), **options)
    if kind == "adaptive":
        return nn.AdaptiveAvgPool2d((r.randint(1, size[0]), r.randint(1, size[1])))
    if kind == "act":
        return r.choice([nn.ReLU(), nn.SiLU(), nn.Sigmoid(), nn.Hardswish(), nn.GELU()])
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x):
        return self.up(self.down(x.mean((2, 3), keepdim=True)).relu()).sigmoid() * x


class LastNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Scale(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return self.weight - x


class Part(nn.Module):
    def forward(self, x):
        return x[:, 1:3] + 0.5


class Net(nn.Module):
    """Layers on random previous values; some join two."""

    def __init__(self, r, channels, size):
        super().__init__()
        self.layers, self.sources = nn.ModuleList(), []
        values = [torch.zeros(2, channels, *size)]
        for _ in range(r.randint(3, 10)):
            at = r.randrange(max(0, len(values) - 3), len(values))
            x = values[at]
            join = r.choice(["add", "mul", "cat", None, None, None, None])
            other = None
            if join is not None:
                fits = [
                    v.shape[2:] == x.shape[2:] if join == "cat" else v.shape == x.shape
                    for v in values
                ]
                other = r.choice([number for number, fit in enumerate(fits) if fit])
                made = nn.Identity()
            else:
                special = r.choice([Squeeze, LastNorm, Scale, Part, None, None, None, None, None])
                if special is Part:
                    made = Part() if x.shape[1] >= 3 else None
                elif special is LastNorm:
                    # For few, nearly equal channels, rounding dominates the result.
                    made = LastNorm(x.shape[1]) if x.shape[1] >= 8 else None
                elif special is not None:
                    made = special(x.shape[1])
                else:
                    made = layer(r, x.shape[1], x.shape[2:])
            if made is None:
                continue
            self.layers.append(made.eval())
            self.sources.append((at, join, other))
            values.append(self.step(len(self.layers) - 1, values))
        last = len(values) - 1
        self.results = sorted({r.randint(0, last), r.randint(0, last), last})

    def step(self, number, values):
        at, join, other = self.sources[number]
        x = self.layers[number](values[at])
        if join == "cat":
            return torch.cat([x, values[other]], 1)
        if join is not None:
            return x + values[other] if join == "add" else x * values[other]
        return x

    def forward(self, x):
        values = [x]
        for number in range(len(self.layers)):
            values.append(self.step(number, values))
        return [values[number] for number in self.results]


def check(seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    channels, size = r.choice([1, 3, 5, 8, 16, 24]), (r.randint(5, 20), r.randint(5, 20))
    with torch.no_grad():
        net = Net(r, channels, size).eval()
        x = torch.randn(r.choice([1, 2, 3]), channels, *size)
        compiled = corsac.compile(net, fullgraph=True)
        expected = net(x)
        for _ in range(2):
            for got, want in zip(compiled(x), expected, strict=True):
                scale = max(1.0, want.abs().max().item())
                torch.testing.assert_close(
                    got, want, rtol=2e-4, atol=2e-4 * scale, msg=f"seed {seed}"
                )


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_programs_over_images(start):
    for seed in range(start, start + 50):
        check(seed)


@pytest.mark.slow
def test_many_programs_over_images():
    for seed in range(1000, 9000):
        check(seed)
