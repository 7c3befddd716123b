"""Guards as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from corsac import _core
from corsac._messages.lines import Line, in_brackets
from corsac._messages.report_text import shortened

#: Families of guards, in the order of listing, with their headings.
_FAMILIES = {
    "value": "values",
    "contents": "contents",
    "type": "classes of objects",
    "class": "attributes of classes",
    "function": "functions",
    "setting": "settings",
}
#: A path, and its last name.
_LAST = re.compile(r"(?:.*\.)?([^.\[\]()]+)\)?$")


def guards_as_text(guards: _core.Guards, program: Callable[..., Any]) -> list[str]:
    """All guards of a program, one per line; guards that differ only in their object share a line."""
    families: dict[str, dict[Any, list[str]]] = {own: {} for own in _FAMILIES}
    counts = dict.fromkeys(_FAMILIES, 0)
    for family, place, condition, line in guards.list(program):
        counts[family] += 1
        families[family].setdefault(_likeness(family, place, condition, line), []).append(place)
    lines = []
    for family, name in _FAMILIES.items():
        if counts[family]:
            lines.append(f"{name}: {counts[family]}")
        for (_, condition, line), places in families[family].items():
            count = f"{len(places)} × " if len(places) > 1 else ""
            lines.append(f"  {count}{shortened(places)} {condition}{in_brackets(line)}")
    return lines


def _likeness(family: str, place: str, condition: str, line: Line | None) -> Any:
    """Key by which guards are grouped into one line."""
    if family == "function":
        return "", condition, line
    if family == "class":
        return "", condition, line
    last = _LAST.match(place)
    return place if last is None or family == "setting" else last[1], condition, line


__all__ = ["guards_as_text"]
