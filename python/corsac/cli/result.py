"""Writes a model to a folder."""

from __future__ import annotations

from pathlib import Path

from corsac import fx
from corsac._files.safetensors import write_safetensors
from corsac.cli.failure import Failure, file_error, first_line
from corsac.cli.model import FILES, FOREIGN
from corsac.cli.module_source import WEIGHTS, module_source

#: Suffixes that suggest that a file was meant instead of a folder.
NO_FOLDERS = (*FOREIGN, *FILES, ".py", ".zip", ".tar", ".tgz")

#: The file that marks a folder as written by this program.
GRAPH = "graph.txt"


def check_folder(folder: Path) -> None:
    """Check that ``folder`` can be written without losing data."""
    if folder.exists() and not folder.is_dir():
        raise Failure(f"--out {folder}: there is a file of that name")
    suffix = folder.suffix.lower()
    if suffix in NO_FOLDERS and not folder.is_dir():
        raise Failure(f"--out {folder}: a folder is written, not a file *{suffix}")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / GRAPH).exists():
        raise Failure(f"--out {folder}: the folder holds something else; name an empty or new one")


def write(module: fx.GraphModule, folder: Path, class_name: str) -> None:
    """Write ``module`` as an importable package with its weights, and its graph as text.

    The folder can be moved, and used without corsac: ``module.py`` needs only torch.
    """
    source = module_source(module, class_name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_safetensors(folder / WEIGHTS, source.weights)
        (folder / "module.py").write_text(source.text, encoding="utf-8")
        (folder / "__init__.py").write_text("from .module import *\n", encoding="utf-8")
        (folder / GRAPH).write_text(f"{module.graph}\n", encoding="utf-8")
    except OSError as error:
        raise Failure(f"--out {folder}: {file_error(error)}") from error
    except TypeError as error:
        raise Failure(f"--out {folder} cannot be written: {first_line(error)}") from error
