"""Numbers in the code of graph modules that belong to their state: scales of quantised values, for example.

They are in state dicts, beside parameters and buffers, and loading a state dict writes them into the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["CodeState", "load", "names", "register", "save"]


@dataclass(frozen=True)
class CodeState:
    """A kind of numbers in code.

    Attributes:
        read: the numbers of a graph module, by name.
        write: puts numbers into the graph, some or all of them; returns messages about those that it cannot take.
        translate: puts what a state dict of another package has for a module under the names of this one, given the
            beginning of the module's names; returns messages about what it cannot take.
    """

    read: Callable[[Any], dict[str, torch.Tensor]]
    write: Callable[[Any, dict[str, torch.Tensor]], list[str]]
    translate: Callable[[Any, dict[str, Any], str], list[str]] = lambda module, state, prefix: []


_KINDS: list[CodeState] = []


def register(kind: CodeState) -> None:
    """Make a kind of numbers part of the state of all graph modules."""
    _KINDS.append(kind)


def names(module: Any) -> set[str]:
    """The names of a module's numbers in its state dict."""
    return {name for kind in _KINDS for name in kind.read(module)}


def save(module: Any, destination: dict[str, Any], prefix: str) -> None:
    """Put the numbers of a module into a state dict."""
    for kind in _KINDS:
        for name, value in kind.read(module).items():
            destination[prefix + name] = value


def load(
    module: Any, state: dict[str, Any], prefix: str, missing: list[str], errors: list[str]
) -> None:
    """Take the numbers of a module out of a state dict and write them into the graph."""
    for kind in _KINDS:
        errors += kind.translate(module, state, prefix)
        given, names = {}, [*kind.read(module)]
        for name in names:
            if prefix + name in state:
                given[name] = state.pop(prefix + name)
            else:
                missing.append(prefix + name)
        if given:
            errors += kind.write(module, given)
