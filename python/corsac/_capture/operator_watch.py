"""Dispatch mode that watches the operators of PyTorch while a program is recorded."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from corsac import _core
from corsac._capture.refusal import Kind
from corsac._pytorch.aten import (
    IS_RANDOM,
    READS_VALUES,
    is_taking_places,
    storage_of,
    storages_in,
    what_it_does,
    written_tensors,
)

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder


def _drops_nothing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator is random only through its dropout, with probability zero."""
    for number, own in enumerate(func._schema.arguments):
        if own.name == "dropout_p":
            given = (
                args[number] if number < len(args) else kwargs.get("dropout_p", own.default_value)
            )
            return bool(given == 0)
    return False


@functools.cache
def names_region(func: Any) -> bool:
    """Whether an operator marks a region for profilers, which native programs leave out."""
    return str(func).startswith("profiler.")


class OperatorWatch(TorchDispatchMode):
    """Watches the operators that functions of PyTorch call, and those called by code that is not seen."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        #: Whether all operators of the present call have only computed their results.
        self._is_quiet = True
        #: Whether the results of the last call are new memory; None if it has done more than compute them.
        self.is_new: bool | None = None
        #: Whether that was known before.
        self.is_known = False

    #: Higher-order operators reach this mode, too, if unknown code calls them.
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would import Dynamo.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        recorder = self._recorder
        if isinstance(func, torch._ops.HigherOrderOperator):
            recorder.refuse(f"it calls {func}, which PyTorch runs", Kind.HOST)
            return func(*args, **kwargs)
        if names_region(func):
            self._is_quiet = False
            return func(*args, **kwargs)
        if recorder.refusal is not None:
            return self._run(func, args, kwargs)
        if not recorder.depth:
            recorder.refuse(f"{func} is called by code that is not seen", Kind.HOST)
            return self._run(func, args, kwargs)
        recorder.refuse_inner_cast(func)
        reason, written, _ = what_it_does(func)
        if reason == IS_RANDOM and not _drops_nothing(func, args, kwargs):
            self._is_quiet = False
        if reason == IS_RANDOM and (
            recorder.trains
            or recorder.values.nodes is not None
            or _drops_nothing(func, args, kwargs)
        ):
            reason = None
        if is_taking_places(func, args):
            reason = None
        if reason is not None or written:
            self._is_quiet = False
        if reason in READS_VALUES and (recorder.values.nodes is not None or recorder.only_checks()):
            recorder.values_read = True
            reason = None
        if reason is not None:
            if func._can_decompose():
                # The parts may be harmless: dropout in evaluation mode, for instance.
                with self:
                    return func.decompose(*args, **kwargs)
            recorder.refuse(f"{func} {reason}")
            return self._run(func, args, kwargs)
        for own in written_tensors(func, args, kwargs):
            if not recorder.writes(own, turns=torch.Tag.inplace_view in func.tags):
                recorder.refuse(f"{func} writes to a tensor that the program did not make")
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, and note its changes."""
        reason, _, is_new = what_it_does(func)
        if reason == IS_RANDOM and not _drops_nothing(func, args, kwargs):
            self._recorder.saw_change = self._recorder.uses_random = True
        for own in written_tensors(func, args, kwargs):
            if own.layout is not torch.strided or not self._is_made(storage_of(own)):
                self._recorder.changes(own)
        result = func(*args, **kwargs)
        if is_new:
            self._note_made(result)
        return result

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function, with its operators watched, unless the call is known to only compute its result."""
        self.is_new = None
        if self._recorder.trains or torch._C._len_torch_dispatch_stack() != 1:
            return func(*args, **kwargs)
        # In autocast, its operators tell whether they are cast.
        in_autocast = torch.is_autocast_enabled("cpu")
        is_new = None if in_autocast else _core.pure_call(func, args, kwargs)
        self.is_known = is_new is not None
        if self.is_known:
            unwatched = torch._C._DisableTorchDispatch()
            try:
                result = func(*args, **kwargs)
            finally:
                del unwatched
            if is_new:
                self._note_made(result)
            self.is_new = is_new
            return result
        self._is_quiet = True
        result = func(*args, **kwargs)
        if self._is_quiet and self._recorder.refusal is None:
            given = set(storages_in(args, kwargs))
            kinds = {
                "given" if storage in given else "new" if self._is_made(storage) else "other"
                for storage in storages_in(result)
            }
            if kinds == {"given"} or kinds == {"new"}:
                self.is_new = kinds == {"new"}
        return result

    def _note_made(self, result: Any) -> None:
        """Note that the tensors in a result are new memory."""
        self._recorder.made(self._recorder.tensors.note_made(result))

    def _is_made(self, storage: int | None) -> bool:
        return storage is not None and self._recorder.tensors.is_made(storage)


__all__ = ["OperatorWatch", "names_region"]
