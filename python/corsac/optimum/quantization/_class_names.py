"""Models of transformers by the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from corsac._messages.near_names import did_you_mean


def model_of(name: str, config: Any = None) -> nn.Module:
    """A model of transformers with random weights, in evaluation mode.

    Args:
        name: the name of its class.
        config: its configuration, or a mapping of the values that differ from the defaults.

    Raises:
        ImportError: transformers is not installed.
        ValueError: there is no such class, or it has no such value in its configuration.
    """
    import transformers

    found: Any = getattr(transformers, name, None)
    base = transformers.PreTrainedModel
    if not isinstance(found, type) or not issubclass(found, base):
        known = [own for own in dir(transformers) if own[:1].isupper()]
        hint = did_you_mean(name, known)
        raise ValueError(f"transformers has no model {name!r}{hint}")
    model: Any = found
    kind: Any = model.config_class
    if kind is None:
        raise ValueError(f"{name} has no class of configurations: give a model")
    if config is None:
        config = {}
    if isinstance(config, Mapping):
        default = kind()
        for key in config:
            if not hasattr(default, key):
                hint = did_you_mean(key, vars(default))
                raise ValueError(f"{kind.__name__} has no {key!r}{hint}")
        config = kind(**config)
    elif not isinstance(config, kind):
        raise TypeError(
            f"{name}: expected a {kind.__name__} or a mapping, got {type(config).__name__}"
        )
    made: nn.Module = model(config)
    return made.eval()
