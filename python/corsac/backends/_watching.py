"""Watching of backends for faults: ``CORSAC_REPRO``; see docs/minifier.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corsac.backends import _repro_switch

if TYPE_CHECKING:
    from corsac.minifier._settings import Settings


def watch_settings() -> Settings | None:
    """The settings for watching backends; None if they are not watched.

    Raises:
        ValueError: the environment has an unknown variable or value.
    """
    if not _repro_switch.is_in_environment():
        return None
    # Not at the top: rarely needed.
    from corsac.minifier._settings import Settings

    return Settings.from_environment()


def watched(
    backend: Any,
    module: Any,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None,
    ask: Callable[[], Any],
) -> Any:
    """The result of ``ask``, which compiles the graph with ``backend``; watched for faults if the switch is on.

    Raises:
        ValueError: see :func:`watch_settings`.
    """
    own = watch_settings()
    if own is None:
        return ask()
    from corsac.minifier._watch import watched as look

    return look(own, backend, module, example_inputs, options, ask)
