"""Names in programs, which become names in code."""

from __future__ import annotations

import keyword
import re
from typing import Any

import torch

from corsac.pt2._archive import Pt2ImportError


def checked_name(name: Any) -> str:
    """The name of a value, which has to be an identifier of Python."""
    is_name = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not is_name or keyword.iskeyword(name) or name == "self":
        raise Pt2ImportError(f"{name!r:.100} is no name of a value")
    return name


def register(root: torch.nn.Module, path: str, tensor: torch.Tensor, *, persistent: bool) -> None:
    """Make a tensor a parameter or buffer of a module inside ``root``."""
    *owners, name = path.split(".")
    if any(re.fullmatch(r"\w+", part, re.ASCII) is None for part in (*owners, name)):
        raise Pt2ImportError(f"{path!r:.100} is no name of a tensor")
    owner = root
    for part in owners:
        if part not in owner._modules:
            owner.add_module(part, torch.nn.Module())
        owner = owner.get_submodule(part)
    if isinstance(tensor, torch.nn.Parameter):
        owner.register_parameter(name, tensor)
    else:
        owner.register_buffer(name, tensor, persistent=persistent)


def described(source: Any) -> str:
    """A node for messages."""
    name = source.get("name") if isinstance(source, dict) else None
    if not name:
        return f"node {source!r:.60}"
    return f"node {name!r:.100} ({source.get('target')!s:.100})"


__all__ = ["checked_name", "described", "register"]
