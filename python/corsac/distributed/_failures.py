"""Failures of a rank: what they are called, and how the other ranks learn of them."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.checkpoint import _StopRecomputationError

from corsac.distributed._errors import DistributedError
from corsac.distributed._values import summary

#: Seconds to wait for the reason of another rank, once a connection has failed.
_GRACE = 3.0
#: What precedes the reason of another rank.
_OTHER = "another rank failed: "
#: Tag of a message that is never sent.
_CLOSING = 2**20 - 7
#: Numbers of keys, by the name of the group.
_numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


def failure_keys(groups: Iterable[Any]) -> dict[Any, str]:
    """A new key of the store of each group for the first reason of a failure. All ranks of a group call it equally
    often."""
    return {own: f"corsac/failures/{next(_numbers[own.group_name])}" for own in groups}


class Watch:
    """Watches calls of this rank that exchange tensors with others, so that all ranks end with one reason.

    Args:
        kind: the class of errors.
        own: the rank, and what else of it is to be named.
        silent: whom it may have waited for, if no rank has left a reason.
        keys: the process groups whose ranks are to learn of failures, with keys from :func:`failure_keys`.
    """

    def __init__(
        self,
        kind: type[DistributedError],
        own: str,
        silent: str,
        keys: Mapping[Any, str],
    ) -> None:
        self._kind, self._own, self._silent = kind, own, silent
        self._keys = keys

    @contextlib.contextmanager
    def __call__(self, place: Callable[[Exception], str] | None = None) -> Iterator[None]:
        """Name the rank in errors of the block, and let the other ranks end.

        Args:
            place: the node at which an exception was raised, as text that follows the rank.

        Raises:
            DistributedError: the block raised an exception.
        """
        try:
            yield
        except _StopRecomputationError:
            # A checkpoint has all that it needs of a call.
            raise
        except Exception as error:
            own = self._own if place is None else f"{self._own}{place(error)}"
            reason, is_own = _cause(error)
            if not is_own and _OTHER not in reason and self._silent not in reason:
                reason = f"{reason or own}: {self._reason_of_others(error)}"
            elif not reason.startswith("rank "):
                reason = f"{own}: {reason}"
            for group in self._keys:
                self._tell(group, reason.rpartition(_OTHER)[2])
            raise self._kind(reason) from error

    def _tell(self, group: Any, reason: str) -> None:
        """Leave the first reason of a failure for the other ranks, and close the connections that they wait for."""
        with contextlib.suppress(Exception):
            _store(group).compare_set(self._keys[group], "", reason)
        if dist.get_backend(group) != "gloo":
            with contextlib.suppress(Exception):
                group.abort()
            return
        for rank in range(dist.get_world_size(group)):
            if rank == dist.get_rank(group):
                continue
            # Gloo closes a connection when an operation on it times out, and in no other way while the process lives.
            with contextlib.suppress(Exception):
                other = dist.get_global_rank(group, rank)
                nothing = dist.irecv(torch.empty(1), other, group=group, tag=_CLOSING)
                nothing.wait(datetime.timedelta(milliseconds=10))

    def _reason_of_others(self, error: Exception) -> str:
        """What another rank has left; or else that a connection failed."""
        until = time.monotonic() + _GRACE
        with contextlib.suppress(Exception):
            while time.monotonic() < until:
                for group, key in self._keys.items():
                    if _store(group).check([key]):
                        return _OTHER + _store(group).get(key).decode()
                time.sleep(0.05)
        lines = str(_root(error)).strip().splitlines()
        return f"{self._silent}: {lines[0] if lines else type(error).__name__}"


def _store(group: Any) -> Any:
    return dist.distributed_c10d._get_process_group_store(group)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


#: Parts of messages of errors that a failed connection has.
_CONNECTION = (
    "connection",
    "timed out",
    "timeout",
    "gloo",
    "socket",
    "peer",
    "broken pipe",
    "nccl",
)


def _cause(error: BaseException) -> tuple[str, bool]:
    """What failed, as text, and whether it was on this rank: no connection."""
    root = _root(error)
    text = str(root).lower()
    is_own = not (isinstance(root, dist.DistError) or any(own in text for own in _CONNECTION))
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, DistributedError):
            return str(found), is_own
        found = found.__cause__
    return summary(root) if is_own else "", is_own


__all__ = ["Watch", "failure_keys"]
