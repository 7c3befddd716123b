"""Constraints on types."""

from __future__ import annotations

__all__ = ["Equality"]


class Equality:
    """Equality of two types or sizes."""

    __slots__ = ("lhs", "rhs")

    def __init__(self, lhs: object, rhs: object) -> None:
        self.lhs, self.rhs = lhs, rhs

    def __repr__(self) -> str:
        return f"{self.lhs} = {self.rhs}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equality) and (self.lhs, self.rhs) == (other.lhs, other.rhs)

    __hash__ = None  # type: ignore[assignment]
