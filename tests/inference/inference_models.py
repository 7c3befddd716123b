"""Models for the tests of inference."""

import torch
from torch import nn


class Block(nn.Module):
    """A residual block with a convolution in the other path."""

    def __init__(self, channels=8):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels)
        self.side = nn.Conv2d(channels, channels, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.bn(self.conv(x))
        out += self.side(x)
        return self.relu(out)


class Net(nn.Module):
    """Two blocks with an operator between them, then a head."""

    def __init__(self, between=None):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.first, self.second = Block(), Block()
        self.between = between or nn.Identity()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.first(self.stem(x))
        x = self.second(self.between(x))
        return self.head(self.dropout(torch.flatten(self.pool(x), 1)))
