"""What the environment says of faults of backends: ``CORSAC_REPRO`` and what goes with it."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from corsac._repro_switch import SWITCH
from corsac.minifier._backend_fails import LOOKS

# What may be set besides the switch.
_DIR, _SECONDS = f"{SWITCH}_DIR", f"{SWITCH}_SECONDS"
_HANG, _TOLERANCE = f"{SWITCH}_HANG_SECONDS", f"{SWITCH}_TOLERANCE"
_KNOWN = (SWITCH, _DIR, _HANG, _SECONDS, _TOLERANCE)


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
        for name in os.environ:
            if name.startswith(SWITCH) and name not in _KNOWN:
                close = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8)
                hint = f", did you mean {close[0]}?" if close else ""
                raise ValueError(
                    f"there is no setting {name}{hint}; there are: {', '.join(_KNOWN)}"
                )
        look = os.environ.get(SWITCH, "")
        if not look:
            return None
        if look not in LOOKS:
            raise ValueError(f"{SWITCH} is {', '.join(LOOKS[:-1])} or {LOOKS[-1]}, not {look!r}")
        return cls(
            look,
            Path(os.environ.get(_DIR) or cls.__dataclass_fields__["folder"].default),
            _positive(_SECONDS, 60.0),
            _positive(_HANG, 30.0),
            _positive(_TOLERANCE, None),
        )


def _positive(name: str, default: float | None) -> float | None:
    text = os.environ.get(name)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number > 0:
        raise ValueError(f"{name} is a number above 0, not {text!r}")
    return number
