"""Makes batch norms worth folding.

Untrained batch norms (weight 1, bias 0, mean 0, variance 1) are nearly identities, so that errors in folding
them would go unnoticed.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm


def untrained(model: torch.nn.Module) -> list[_BatchNorm]:
    """The model's batch norms if all of them have their initial values, else none."""
    found = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    found = [norm for norm in found if norm.track_running_stats]
    for norm in found:
        if not (norm.running_mean.eq(0).all() and norm.running_var.eq(1).all()):
            return []
        if norm.affine and not (norm.weight.eq(1).all() and norm.bias.eq(0).all()):
            return []
    return found


@torch.no_grad()
def randomize(model: torch.nn.Module, inputs: list[torch.Tensor]) -> int:
    """Give all batch norms random weights, and statistics measured on ``inputs``; return their number.

    Measured statistics keep the activations of a deep model in range, unlike random ones.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    norms = [norm for norm in norms if norm.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0.0, 0.1)
        norm.running_mean.normal_(0.0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)
        norm.train()
        norm.momentum = 0.9
    try:
        model(*inputs)
    except ValueError:
        # One value per channel has no variance: the random statistics stay.
        pass
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()
    return len(norms)
