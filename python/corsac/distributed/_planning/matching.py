"""A proof that what all ranks send, receive and reduce fits together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from corsac.distributed._errors import DistributedError


class Exchange(NamedTuple):
    """What a rank does together with others.

    Attributes:
        kind: ``"send"``, ``"receive"``, or the name of a collective.
        ranks: the one other rank of a send or receive; all ranks of a collective, in the order of the group.
        bytes: the size.
        what: what is sent, for messages.
        calls: the number of collectives of which ``bytes`` is the sum.
    """

    kind: str
    ranks: tuple[int, ...]
    bytes: float
    what: str
    calls: int = 1

    def __str__(self) -> str:
        to = {"send": "to ", "receive": "from "}.get(self.kind, "of ")
        return f"{self.kind} {self.what} {to}{', '.join(map(str, self.ranks[:8]))} ({self.bytes:,.0f} bytes)"


class MatchingError(DistributedError):
    """What the ranks send, receive and reduce does not fit together."""


def check_matching(programs: Sequence[Sequence[Exchange]]) -> int:
    """Check that each message is received with the size with which it is sent, in the order in which it is sent, that all
    ranks of a group have the same collectives in the same order, and that no ranks wait for each other for ever.

    A send does not wait. A receive waits for the next message of the other rank, a collective for all ranks of the group:
    if the ranks end in this order of events, they end in every other.

    Args:
        programs: what each rank does, in order.

    Returns:
        The number of messages and collectives.

    Raises:
        MatchingError: it does not fit; the message names the ranks and what they do.
    """
    on_the_way: dict[tuple[int, int], deque[Exchange]] = {}
    arrived: dict[tuple[int, ...], dict[int, Exchange]] = {}
    at = [0] * len(programs)
    runnable = deque(range(len(programs)))
    matched = 0
    while runnable:
        rank = runnable.popleft()
        while at[rank] < len(programs[rank]):
            own = programs[rank][at[rank]]
            _check_ranks(rank, own, len(programs))
            if own.kind == "send":
                to = own.ranks[0]
                on_the_way.setdefault((rank, to), deque()).append(own)
                runnable.append(to)
            elif own.kind == "receive":
                queue = on_the_way.get((own.ranks[0], rank))
                if not queue:
                    break
                _check_message(own.ranks[0], queue.popleft(), rank, own)
                matched += 1
            else:
                group = arrived.setdefault(own.ranks, {})
                group[rank] = own
                if len(group) < len(own.ranks):
                    break
                _check_collective(group)
                matched += 1
                del arrived[own.ranks]
                for other in own.ranks:
                    if other != rank:
                        at[other] += 1
                        runnable.append(other)
            at[rank] += 1
    stuck = [rank for rank, own in enumerate(programs) if at[rank] < len(own)]
    if stuck:
        shown = "; ".join(f"rank {rank} at: {programs[rank][at[rank]]}" for rank in stuck[:4])
        raise MatchingError(f"{len(stuck)} ranks wait for ever: {shown}")
    for (rank, to), left in on_the_way.items():
        if left:
            raise MatchingError(f"rank {to} never receives from rank {rank}: {left[0]}")
    return matched


def _check_ranks(rank: int, own: Exchange, count: int) -> None:
    is_pair = own.kind in ("send", "receive")
    outside = [other for other in own.ranks if not 0 <= other < count]
    if outside or (is_pair and own.ranks == (rank,)) or (not is_pair and rank not in own.ranks):
        raise MatchingError(f"rank {rank} of {count}: {own}")


def _check_message(rank: int, sent: Exchange, to: int, wanted: Exchange) -> None:
    if (sent.bytes, sent.what) != (wanted.bytes, wanted.what):
        raise MatchingError(f"rank {rank}: {sent}; but rank {to}: {wanted}")


def _check_collective(group: dict[int, Exchange]) -> None:
    first = next(iter(group))
    for rank, own in group.items():
        if own != group[first]:
            raise MatchingError(f"rank {first}: {group[first]}; but rank {rank}: {own}")


__all__ = ["Exchange", "MatchingError", "check_matching"]
