"""What single nodes do."""

from __future__ import annotations

from dataclasses import dataclass

from corsac import _core
from corsac.fx import Node
from corsac.fx._packages import expect_ours


@dataclass(frozen=True, slots=True)
class Effects:
    """What a node does besides computing its value, as far as it is known.

    Attributes:
        mutates: nodes whose values it writes to.
        aliases: nodes that its value may be, or share storage with.
        random: whether it draws random numbers.
        side_effect: whether it does something that is not seen in any value.
        reads_state: whether it reads state that is no argument, such as parameters of a module.
        writes_state: whether it writes to such state.
        opaque: whether nothing is known of what it calls: it may do anything.
    """

    mutates: list[Node]
    aliases: list[Node]
    random: bool
    side_effect: bool
    reads_state: bool
    writes_state: bool
    opaque: bool


def effects(node: Node) -> Effects:
    """What ``node`` does besides computing its value."""
    expect_ours(node, "effects")
    return Effects(*_core.node_effects(node))
