"""A model and data for ``corsac.quantize``, and the forms of the layers of what it returns."""

import torch
from torch import nn


def mlp(features=64):
    layers = [nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 8)]
    return nn.Sequential(*layers).eval()


def data(*shape, count=4):
    return [torch.randn(shape) for _ in range(count)]


def forms(model):
    return {row.layer: row.form for row in model.quantization_report.rows}
