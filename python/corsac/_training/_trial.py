"""Trials of native parts against PyTorch, in the training steps themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac import _core
from corsac._native.panic import EngineError, panic_message
from corsac._native.race import Race
from corsac._pytorch.unhooked import UnhookedModule

#: A part is native if it takes less than this fraction of PyTorch's time, and saves at least so many seconds: times
#: vary from step to step.
MARGIN, GAIN = 0.9, 1e-5


class Trial(UnhookedModule):
    """A part of a graph that runs alternately natively and by PyTorch, until it is clear which is faster.

    Args:
        native: the native part.
        host: the same part, run by PyTorch.
        over: as for :class:`corsac._native.race.Race`.
    """

    def __init__(
        self,
        native: torch.nn.Module,
        host: torch.nn.Module,
        over: Callable[[float, float, str | None], Any],
    ) -> None:
        super().__init__()
        self._ways = native.forward, host.forward
        self._race = Race(MARGIN, over)

    @property
    def outcome(self) -> Any:
        """The outcome; None as long as the trial is running."""
        return self._race.outcome

    def forward(self, *arguments: torch.Tensor) -> Any:
        native, host = self._ways

        def natively() -> Any:
            try:
                return native(*arguments)
            except (_core.PanicException, EngineError) as panic:
                self._race.end(panic_message(panic, "it ran a part of a graph"))
                return host(*arguments)

        return self._race.run(natively, lambda: host(*arguments))


def is_worth_it(native: float, host: float) -> bool:
    """Whether a part with these times in seconds, natively and by PyTorch, is to be native."""
    return native < min(MARGIN * host, host - GAIN)


__all__ = ["Trial", "is_worth_it"]
