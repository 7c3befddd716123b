"""Reasons for recompilations: why an existing program did not apply to a call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from corsac._messages.lines import in_brackets
from corsac._messages.logs import RECOMPILES

if TYPE_CHECKING:
    from corsac._capture.calls import Call
    from corsac._capture.recordings import Entry

#: Number of reasons that are remembered.
REMEMBERED = 64


@dataclass(slots=True)
class Recompilations:
    """The last reasons for recompilations of a program.

    Attributes:
        model: the owner of the weights.
        program: the recorded callable, the root of paths in guards.
    """

    model: torch.nn.Module
    program: Callable[..., Any]
    #: Pairs of the changed thing and its change.
    _reasons: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def reason(self, entry: Entry, call: Call, *, trains: bool) -> tuple[str, str]:
        """Reason why a program does not apply to a call: the changed thing, and its old and new value."""
        if not trains and torch.is_grad_enabled() and entry.model_guards.requires_grad():
            return "gradients", "were off, are on"
        if (found := entry.guards.failure(self.program)) is not None:
            place, then, now, line = found
            return f"{place}{in_brackets(line)}", f"was {then}, is {now}"
        if (tensor := entry.model_guards.failure()) is not None:
            return self._name(tensor[0]), tensor[1]
        if entry.form is not None:
            return "the inputs", "have other strides, or others of them want gradients"
        if entry.finds_inputs(call, trains):
            if not entry.may_write(call):
                return "what it writes to", "is of another type or size, or shares memory"
            if (failure := entry.decided()) is not None:
                return failure()
        return "state or arguments", "hold something else"

    def _name(self, own: Any) -> str:
        """Description of a tensor, with the name of a weight, or of a module."""
        if isinstance(own, torch.Tensor):
            named = [*self.model.named_parameters(), *self.model.named_buffers()]
            name = next((name for name, known in named if known is own), None)
            return "a tensor that it reads" if name is None else f"weight {name}"
        return f"a {type(own).__name__}"

    def add(self, what: str, how: str) -> None:
        """Note that a call was recorded again because ``what`` changed as ``how`` describes."""
        self._reasons.append((what, how))
        RECOMPILES.debug("recompiled: %s %s", what, how)

    def explain(self) -> list[str]:
        """Number of recompilations by changed thing, with the last change, one per line."""
        counts: dict[str, tuple[int, str]] = {}
        for what, how in self._reasons:
            counts[what] = counts.get(what, (0, ""))[0] + 1, how
        return [
            f"recompiled {'once' if count == 1 else f'{count} times'}: {what} {how}"
            for what, (count, how) in counts.items()
        ]


__all__ = ["Recompilations"]
