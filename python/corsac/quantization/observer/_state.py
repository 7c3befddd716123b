"""States of observers, apart from those of the model."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import nn

from corsac.quantization._kinds import is_activation_post_process


def get_observer_state_dict(mod: nn.Module) -> OrderedDict[str, Any]:
    """The entries of a state dict that are of observers of activations.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.get_observer_state_dict.html
    """
    state = mod.state_dict()
    found = OrderedDict(
        (name, value) for name, value in state.items() if "activation_post_process" in name
    )
    found._metadata = state._metadata
    return found


def load_observer_state_dict(mod: nn.Module, obs_dict: dict[str, Any]) -> None:
    """Load what :func:`get_observer_state_dict` returned; ``RuntimeError`` if entries of an observer are missing.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.load_observer_state_dict.html
    """
    metadata = getattr(obs_dict, "_metadata", {})
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    state = OrderedDict(obs_dict)
    for name, module in mod.named_modules():
        if is_activation_post_process(module):
            module._load_from_state_dict(
                state,
                f"{name}." if name else "",
                metadata.get(name, {}),
                False,
                missing,
                unexpected,
                errors,
            )
    lost = [
        name
        for name in (*missing, *unexpected)
        if "observer" in name or "activation_post_process" in name
    ]
    if lost or errors:
        raise RuntimeError(
            f"observers and state dict differ: {'; '.join([*map(str, lost), *errors])}"
        )
