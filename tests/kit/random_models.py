"""Random models of layers and functions that are quantised, fused or left alone."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

SHAPE = (2, 4, 8, 8)


class RandomModel(nn.Module):
    """``count`` random calls, each of one of the last four values; all values are of one shape."""

    def __init__(self, seed: int, count: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.seed, self.count = seed, count
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))
        self.transposed, self.linear = nn.ConvTranspose2d(4, 4, 3, padding=1), nn.Linear(8, 8)
        self.layers = nn.ModuleList(
            [
                nn.ReLU(),
                nn.ReLU6(),
                nn.MaxPool2d(3, 1, 1),
                nn.Dropout(),
                nn.Hardswish(),
                nn.Sigmoid(),
                nn.Identity(),
                nn.PReLU(),
                nn.InstanceNorm2d(4),
                nn.LayerNorm(8),
            ]
        )
        self.matrix, self.kernel = (
            nn.Parameter(torch.randn(8, 8)),
            nn.Parameter(torch.randn(4, 4, 1, 1)),
        )

    def forward(self, x, y):
        choice = random.Random(self.seed)
        values = [x, y]
        for _ in range(self.count):
            a, b = (choice.choice(values[-4:]) for _ in range(2))
            values.append(choice.choice(self._calls(choice))(a, b))
        return values[-1], values[-2]

    def _calls(self, choice: random.Random) -> list[Callable[..., torch.Tensor]]:
        conv, norm = choice.choice(self.convs), choice.choice(self.norms)
        layer = choice.choice(self.layers)
        return [
            lambda a, b: conv(a),
            lambda a, b: norm(conv(a)),
            lambda a, b: norm(a),
            lambda a, b: layer(a),
            lambda a, b: self.layers[0](conv(a)),
            lambda a, b: F.relu(norm(conv(a))),
            lambda a, b: self.transposed(a),
            lambda a, b: self.linear(a),
            lambda a, b: F.linear(a, self.matrix),
            lambda a, b: F.conv2d(a, self.kernel),
            lambda a, b: F.relu(F.conv2d(a, self.kernel)),
            lambda a, b: F.relu(a),
            lambda a, b: F.relu(a + b),
            lambda a, b: F.hardtanh(a),
            lambda a, b: a + b,
            lambda a, b: a + 2,
            lambda a, b: a * b,
            lambda a, b: torch.add(a, b),
            lambda a, b: torch.mul(a, 3),
            lambda a, b: torch.matmul(a, b),
            lambda a, b: torch.cat([a, b], 1)[:, :4],
            lambda a, b: torch.stack([a, b])[0],
            lambda a, b: torch.sigmoid(a),
            lambda a, b: torch.tanh(a),
            lambda a, b: torch.where(a > 0, a, b),
            lambda a, b: operator.sub(a, b),
            lambda a, b: a.reshape(a.size(0), 4, 8, 8),
            lambda a, b: torch.flatten(a, 1).view(-1, 4, 8, 8),
            lambda a, b: a.permute(0, 1, 3, 2),
            lambda a, b: a.clamp(-1, 1),
            lambda a, b: a.mean((2, 3), keepdim=True) + b,
        ]
