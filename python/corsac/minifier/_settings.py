"""Settings from the environment for watching backends: ``CORSAC_REPRO`` and its companions."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corsac.backends._repro_switch import SWITCH
from corsac.minifier._backend_fails import LOOKS


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for watching backends.

    Attributes:
        look: how thoroughly; see :class:`corsac.minifier.BackendFails`.
        folder: the folder for scripts.
        seconds: limit for making a graph smaller.
        hang_seconds: limit for a backend, after which it counts as a hang.
        tolerance: allowed difference of values; see :class:`corsac.minifier.BackendFails`.
    """

    look: str
    folder: Path = Path("corsac_repro")
    seconds: float = 60.0
    hang_seconds: float = 30.0
    tolerance: float | None = None

    @classmethod
    def from_environment(cls) -> Settings | None:
        """Read the settings; None if ``CORSAC_REPRO`` is not set.

        Raises:
            ValueError: an unknown variable or value; the message lists the known ones.
        """
        known = (SWITCH, *_VARIABLES)
        for name in os.environ:
            if name.startswith(SWITCH) and name not in known:
                close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
                hint = f", did you mean {close[0]}?" if close else ""
                raise ValueError(f"there is no setting {name}{hint}; there are: {', '.join(known)}")
        look = os.environ.get(SWITCH, "")
        if not look:
            return None
        if look not in LOOKS:
            raise ValueError(f"{SWITCH} is {', '.join(LOOKS[:-1])} or {LOOKS[-1]}, not {look!r}")
        given = {
            attribute: read(name, os.environ[name])
            for name, (attribute, read) in _VARIABLES.items()
            if os.environ.get(name)
        }
        return cls(look, **given)


def _folder(name: str, text: str) -> Path:
    del name
    return Path(text)


def _positive(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number > 0:
        raise ValueError(f"{name} is a number above 0, not {text!r}")
    return number


# Variables besides the switch: the attribute of Settings, and the function that reads the text.
_VARIABLES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    f"{SWITCH}_DIR": ("folder", _folder),
    f"{SWITCH}_HANG_SECONDS": ("hang_seconds", _positive),
    f"{SWITCH}_SECONDS": ("seconds", _positive),
    f"{SWITCH}_TOLERANCE": ("tolerance", _positive),
}
