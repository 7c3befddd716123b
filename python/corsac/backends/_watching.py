"""Whether backends are watched for faults: ``CORSAC_REPRO``; see docs/minifier.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_SWITCH = "CORSAC_REPRO"


def is_watched() -> bool:
    """Whether the environment has the switch.

    Raises:
        ValueError: a variable or a value that there is not.
    """
    if not any(name.startswith(_SWITCH) for name in os.environ):
        return False
    # It is not for everybody.
    from corsac.minifier._settings import Settings

    return Settings.from_environment() is not None


def watched(
    backend: Any,
    module: Any,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None,
    ask: Callable[[], Any],
) -> Any:
    """What ``ask`` answers, which asks ``backend`` for the graph; with a look at it if the switch is on."""
    if not is_watched():
        return ask()
    from corsac.minifier._watch import watched as look

    return look(backend, module, example_inputs, options, ask)
