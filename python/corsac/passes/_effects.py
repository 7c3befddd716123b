"""Effects of single nodes."""

from __future__ import annotations

from dataclasses import dataclass

from corsac import _core
from corsac.fx import Node
from corsac.fx._packages import expect_ours


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of a node besides computing its value, as far as they are known.

    Attributes:
        mutates: nodes whose values it writes to.
        aliases: nodes that its value may be, or share storage with.
        random: whether it uses random numbers.
        side_effect: whether it has an effect that does not show in any value.
        reads_state: whether it reads state that is not an argument, such as parameters of a module.
        writes_state: whether it writes to such state.
        opaque: whether its target is unknown: it may do anything.
    """

    mutates: list[Node]
    aliases: list[Node]
    random: bool
    side_effect: bool
    reads_state: bool
    writes_state: bool
    opaque: bool


def effects(node: Node) -> Effects:
    """The effects of ``node`` besides computing its value."""
    expect_ours(node, "effects")
    return Effects(*_core.node_effects(node))
