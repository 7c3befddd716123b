"""``CORSAC_REPRO`` in the environment, which switches on watching of backends, and its settings.

Its values are read by :mod:`corsac.minifier`, and documented in docs/minifier.md. This module is used for every
graph, so it does not import PyTorch.
"""

from __future__ import annotations

import os

#: The environment variable, and the prefix of the names of its settings.
SWITCH = "CORSAC_REPRO"


def is_in_environment() -> bool:
    """Whether the switch or one of its settings is set."""
    return bool(_names())


def environment_without() -> dict[str, str]:
    """The environment without the switch and its settings: no backend is watched."""
    names = _names()
    return {name: own for name, own in os.environ.items() if name not in names}


def remove_from_environment() -> None:
    """Remove the switch and its settings from this process: no backend is watched."""
    for name in _names():
        del os.environ[name]


def _names() -> list[str]:
    return [name for name in os.environ if name.startswith(SWITCH)]
