"""What the environment says of faults of backends: ``CORSAC_REPRO`` and what goes with it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corsac._repro_switch import SWITCH
from corsac.minifier._backend_fails import LOOKS


@dataclass(frozen=True, slots=True)
class Settings:
    """How backends are watched.

    Attributes:
        look: how closely; see :class:`corsac.minifier.BackendFails`.
        folder: where scripts are written.
        seconds: how long a graph may be made smaller.
        hang_seconds: how long a backend may take before it counts as one that hangs.
        tolerance: of values; see :class:`corsac.minifier.BackendFails`.
    """

    look: str
    folder: Path = Path("corsac_repro")
    seconds: float = 60.0
    hang_seconds: float = 30.0
    tolerance: float | None = None

    @classmethod
    def from_environment(cls) -> Settings | None:
        """What is set; None if the switch is not.

        Raises:
            ValueError: a variable or a value that there is not; the text lists those that there are.
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


# What may be set besides the switch: the attribute of Settings that it is, and how its text is read.
_VARIABLES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    f"{SWITCH}_DIR": ("folder", _folder),
    f"{SWITCH}_HANG_SECONDS": ("hang_seconds", _positive),
    f"{SWITCH}_SECONDS": ("seconds", _positive),
    f"{SWITCH}_TOLERANCE": ("tolerance", _positive),
}
