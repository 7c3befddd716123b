"""``CORSAC_LOGS``: what is said, by :mod:`logging`, of guards, of what is not captured, and of recompilations."""

from __future__ import annotations

import functools
import logging
import os

#: The switch in the environment.
SWITCH = "CORSAC_LOGS"

GUARDS = logging.getLogger("corsac.guards")
BREAKS = logging.getLogger("corsac.breaks")
RECOMPILES = logging.getLogger("corsac.recompiles")
_LOGGERS = {"guards": GUARDS, "breaks": BREAKS, "recompiles": RECOMPILES}


def switch_on() -> None:
    """Has those loggers say all that they can which the environment names.

    Raises:
        ValueError: it names one that there is not.
    """
    _switched(os.environ.get(SWITCH, ""))


@functools.cache
def _switched(value: str) -> None:
    names = [own.strip() for own in value.split(",") if own.strip()]
    for name in names:
        if name not in _LOGGERS:
            raise ValueError(f"{SWITCH} is a list of {', '.join(_LOGGERS)}, not {name!r}")
    for name in names:
        logger = _LOGGERS[name]
        logger.setLevel(logging.DEBUG)
        if not logger.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
            logger.addHandler(handler)


def is_on(logger: logging.Logger) -> bool:
    """Whether somebody listens."""
    return logger.isEnabledFor(logging.DEBUG)
