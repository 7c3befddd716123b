"""Programs on the engine whose control flow depends on values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corsac import _core
from corsac._capture.stages import StagedRun
from corsac._engine.native_graph import Compiled, hosted_nodes
from corsac._messages.report_text import duration
from corsac._native.call import NativeCall

if TYPE_CHECKING:
    from corsac.lowering import Preview


@dataclass(frozen=True, slots=True)
class HostedStage:
    """A stage that PyTorch runs in part, or completely.

    Attributes:
        run: the function that runs it.
        placement: the placement of its nodes, or the reason why nothing of it is native.
    """

    run: Callable[..., Any]
    placement: Preview | str

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)

    def __str__(self) -> str:
        if isinstance(self.placement, str):
            return f"  a stage: {self.placement}"
        return "\n".join(hosted_nodes(self.placement))


@dataclass
class CompiledStages(Compiled):
    """A compiled program in stages, each native where possible."""

    run: StagedRun

    def native_programs(self) -> list[_core.NativeProgram]:
        runs = self.run.programs()
        return [own.program for own in runs if isinstance(own, NativeCall)]

    def _hosted(self) -> list[HostedStage]:
        return [own for own in self.run.programs() if isinstance(own, HostedStage)]

    def why_not_native(self) -> str | None:
        """Reason why nothing of it is native; None if something is."""
        reasons = [own.placement for own in self._hosted() if isinstance(own.placement, str)]
        return reasons[0] if len(reasons) == len(self.run.programs()) and reasons else None

    def explain(self) -> str:
        steps = sum(own.step_count for own in self.native_programs())
        made = f"captured and compiled in {duration(self.seconds)}{self._measured_times()}"
        lines = [f"{len(self.run.stages)} stages with {steps} native steps, {made}"]
        hosted = list(dict.fromkeys(map(str, self._hosted())))
        if hosted:
            lines += ["PyTorch runs:", *hosted]
        lines += ["values decide:", *(f"  {own}" for own in self.run.reads())]
        return "\n".join(lines)


__all__ = ["CompiledStages", "HostedStage"]
