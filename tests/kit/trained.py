"""Models as if trained, since weights cannot be downloaded."""

import torch
from torch import nn


def as_if_trained(model: nn.Module, spread: float = 0.2) -> nn.Module:
    """``model`` in evaluation mode, with batch norms that are not the identity.

    Means and biases come from ±``spread``, variances and scales from around one.
    """
    generator = torch.Generator().manual_seed(0)
    for norm in model.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None:
            norm.running_mean.uniform_(-spread, spread, generator=generator)
            norm.running_var.uniform_(0.5, 2.0, generator=generator)
            if norm.affine:
                nn.init.uniform_(norm.weight, 0.5, 1.5, generator=generator)
                nn.init.uniform_(norm.bias, -spread, spread, generator=generator)
    return model.eval()


def with_usual_scores(model: nn.Module) -> nn.Module:
    """A ResNet whose scores have a deviation of 1. Those of random weights are huge: all probabilities would be 0 or 1."""
    with torch.no_grad():
        scores = model(torch.randn(8, 3, 224, 224))
        model.fc.weight.div_(scores.std())
        model.fc.bias.sub_(scores.mean(0)).div_(scores.std())
    return model
