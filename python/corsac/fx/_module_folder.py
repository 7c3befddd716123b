"""Writes a graph module to a folder as an importable Python package."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
from torch import nn
from torch.fx.graph import _custom_builtins
from torch.nn.modules.module import _addindent
from torch.package import Importer, sys_importer

from . import _code_state

#: Modules whose ``repr`` is the expression that constructs them.
_REBUILT_FROM_REPR = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
)

_TAB = " " * 4


def _path_literal(path: Path) -> str:
    """``path`` as a Python string literal."""
    text = str(path)
    plain = text.isprintable() and not set(text) & {"'", "\\"}
    return f"r'{text}'" if plain else repr(text)


def _save(value: object, folder: Path, name: str) -> Path:
    """Save ``value`` in ``folder`` in a file named after the attribute ``name``."""
    file = folder / f"{quote(name, safe='')}.pt"
    torch.save(value, file)
    return file


def _format_import_statement(name: str, obj: object, importer: Importer) -> str:
    """The statement that binds ``obj`` to ``name`` in a saved module."""
    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    module_name, attribute = importer.get_name(obj)
    return f"from {module_name} import {attribute} as {name}"


def _extra_imports(names: dict[str, Any]) -> str:
    """Imports for the user's functions and types that the generated code uses."""
    lines = []
    for name, value in names.items():
        if name in _custom_builtins:
            continue
        if isinstance(value, str):
            lines.append(f"{name} = {value!r}")
            continue
        try:
            lines.append(_format_import_statement(name, value, sys_importer))
        except Exception:
            # A local function or lambda cannot be imported; the module is written nevertheless, for reading
            # or for defining the name by hand.
            warnings.warn(
                f"the generated code uses {name!r}, which cannot be imported by name: "
                "define it in the written module before calling forward",
                stacklevel=4,
            )
    return "".join(f"{line}\n" for line in sorted(set(lines)))


def write_folder(module: torch.nn.Module, folder: str | os.PathLike[str], module_name: str) -> None:
    """Write ``module`` to ``folder``: ``module.py``, ``__init__.py`` and its weights.

    Raises :class:`ValueError` if ``module_name`` is not a Python identifier.
    """
    if not module_name.isidentifier():
        raise ValueError(f"module_name {module_name!r} is not a Python identifier")
    names = module.graph.python_code("self").globals
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    state = module.state_dict()
    for name in _code_state.names(module):
        # They are in the code, and the class of the folder is no graph module.
        del state[name]
    torch.save(state, folder / "state_dict.pt")

    builtins = "\n".join(builtin.import_str for builtin in _custom_builtins.values())
    text = [
        f"\nimport torch\n{builtins}\n{_extra_imports(names)}\n"
        "from torch.nn import *\n"
        f"class {module_name}(torch.nn.Module):\n"
        f"{_TAB}def __init__(self):\n"
        f"{_TAB * 2}super().__init__()\n"
    ]
    pickled: list[str] = []
    for name, child in module.named_children():
        if type(child) in _REBUILT_FROM_REPR:
            text.append(f"{_TAB * 2}setattr(self, {name!r}, {child!r})\n")
            continue
        file = _save(child, folder, name)
        pickled.append(name)
        comment = repr(child).replace("\r", " ").replace("\n", " ")
        load = f"torch.load({_path_literal(file)}, weights_only=False)"
        text.append(f"{_TAB * 2}setattr(self, {name!r}, {load}) # {comment}\n")
    for name, buffer in module._buffers.items():
        if buffer is None:
            continue
        if name in module._non_persistent_buffers_set:
            # Not part of the state dict: its values are stored in a separate file.
            load = f"torch.load({_path_literal(_save(buffer, folder, name))})"
            text.append(f"{_TAB * 2}self.register_buffer({name!r}, {load}, persistent=False)\n")
        else:
            empty = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
            text.append(f"{_TAB * 2}self.register_buffer({name!r}, {empty})\n")
    for name, parameter in module._parameters.items():
        if parameter is not None:
            empty = f"torch.empty({list(parameter.shape)}, dtype={parameter.dtype})"
            if not (parameter.is_floating_point() or parameter.is_complex()):
                empty += ", requires_grad=False"  # integer tensors cannot have a gradient
            text.append(f"{_TAB * 2}setattr(self, {name!r}, torch.nn.Parameter({empty}))\n")
    weights = _path_literal(folder / "state_dict.pt")
    text.append(f"{_TAB * 2}self.load_state_dict(torch.load({weights}))\n")
    text.append(f"{_addindent(module.code, 4)}\n")

    (folder / "module.py").write_text("".join(text))
    (folder / "__init__.py").write_text("from .module import *")
    if pickled:
        warnings.warn(
            "Was not able to save the following children modules as reprs -"
            f"saved as pickled files instead: {pickled}",
            stacklevel=3,
        )
