"""``CORSAC_LOGS``: messages, by :mod:`logging`, about guards, programs that are not captured, and recompilations."""

from __future__ import annotations

import functools
import logging
import os

#: The environment variable, a list of names separated by commas.
SWITCH = "CORSAC_LOGS"

GUARDS = logging.getLogger("corsac.guards")
BREAKS = logging.getLogger("corsac.breaks")
RECOMPILES = logging.getLogger("corsac.recompiles")
_LOGGERS = {"guards": GUARDS, "breaks": BREAKS, "recompiles": RECOMPILES}


def switch_on() -> None:
    """Set the loggers that the environment names to level DEBUG.

    Raises:
        ValueError: the environment names an unknown logger.
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
    """Whether messages to a logger are handled."""
    return logger.isEnabledFor(logging.DEBUG)
