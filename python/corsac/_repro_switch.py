"""``CORSAC_REPRO`` in the environment, which has backends watched, and the settings that go with it.

What it says is read by :mod:`corsac.minifier`, and told in docs/minifier.md. This is looked at on the way
to every graph, so it imports no PyTorch.
"""

from __future__ import annotations

import os

#: The switch; the names of its settings begin so.
SWITCH = "CORSAC_REPRO"


def is_in_environment() -> bool:
    """Whether the switch is set, or anything that begins as it does."""
    return bool(_names())


def environment_without() -> dict[str, str]:
    """The environment of a program in which no backend is watched."""
    names = _names()
    return {name: own for name, own in os.environ.items() if name not in names}


def remove_from_environment() -> None:
    """Have no backend watched in this process."""
    for name in _names():
        del os.environ[name]


def _names() -> list[str]:
    return [name for name in os.environ if name.startswith(SWITCH)]
