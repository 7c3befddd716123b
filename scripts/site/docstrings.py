"""Docstrings as Markdown: roles and literal blocks of reStructuredText are written in Markdown's way."""

from __future__ import annotations

import re

import griffe

ROLE = re.compile(r":(?:mod|class|func|meth|attr|data|exc|obj):`~?([^`<]+?)(?: <[^`]+>)?`")
LITERAL = re.compile(r"^(\s*)(.*?)::[ ]*$", re.M)


def as_markdown(text: str) -> str:
    """``text`` with roles as code, with a colon before blocks of code, and with its summary on one line."""
    text = ROLE.sub(r"`\1`", text)
    text = LITERAL.sub(lambda found: found[1] + (found[2] + ":" if found[2] else ""), text)
    summary, gap, rest = text.partition("\n\n")
    return " ".join(summary.split("\n")) + gap + rest


class Markdown(griffe.Extension):
    """Rewrites each docstring when its object has been read. Hooks of `isinstance` are left out."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: object) -> None:
        cls.members.pop("__subclasshook__", None)
