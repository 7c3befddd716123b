"""The same capture and fusion by torch.fx."""

from __future__ import annotations

import warnings

import torch
import torch.fx.experimental.optimization

from corsac import fx, passes
from corsac.cli.failure import first_line
from corsac.cli.timing import Comparison, compare

#: Rounds of the comparison: enough for a median, few enough for a large model.
ROUNDS = 5


def torch_fx(model: torch.nn.Module) -> torch.nn.Module:
    """Capture and fuse with torch.fx; the model is shared, as in :func:`corsac_fx`."""
    traced = torch.fx.symbolic_trace(model)
    return torch.fx.experimental.optimization.fuse(traced, inplace=True, no_trace=True)


def corsac_fx(model: torch.nn.Module) -> torch.nn.Module:
    """Capture and fuse with corsac."""
    module = fx.symbolic_trace(model)
    passes.fuse_conv_bn(module)
    module.recompile()
    return module


def compare_with_torch_fx(model: torch.nn.Module) -> Comparison | str:
    """Compare the times of torch.fx and corsac; return the reason if torch.fx fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch_fx(model)
        except Exception as error:
            return first_line(error)
        return compare(lambda: torch_fx(model), lambda: corsac_fx(model), ROUNDS)
