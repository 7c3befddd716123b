"""Which parts of training are native, seen in the steps themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac import _core
from corsac._panic import EngineError, told
from corsac._race import Race
from corsac._unhooked import UnhookedModule

#: A part is native if it takes less than this of PyTorch's time, and saves so many seconds: times differ from step to
#: step.
MARGIN, GAIN = 0.9, 1e-5


class Trial(UnhookedModule):
    """A part of a graph that runs natively and by PyTorch in turn, until it is plain which is faster.

    Args:
        native: runs it natively.
        host: runs it by PyTorch.
        over: as for :class:`corsac._race.Race`.
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
        """What has become of it; None as long as it is tried."""
        return self._race.outcome

    def forward(self, *arguments: torch.Tensor) -> Any:
        native, host = self._ways

        def natively() -> Any:
            try:
                return native(*arguments)
            except (_core.PanicException, EngineError) as panic:
                self._race.end(told(panic, "it ran a part of a graph"))
                return host(*arguments)

        return self._race.run(natively, lambda: host(*arguments))


def is_worth_it(native: float, host: float) -> bool:
    """Whether a part that takes so many seconds natively, and by PyTorch, is native."""
    return native < min(MARGIN * host, host - GAIN)


__all__ = ["Trial", "is_worth_it"]
