"""The tokenizer beside a model."""

from __future__ import annotations

import json
from pathlib import Path


def write_tokenizer(text: str, path: Path) -> None:
    """Write the ``tokenizer.json`` of the model that is to be at ``path``.

    Raises:
        FileExistsError: another one is there, of another model.
    """
    file = path.with_name("tokenizer.json")
    if file.exists() and json.loads(file.read_text("utf-8")) != json.loads(text):
        raise FileExistsError(
            f"{file} is of another model: write this one to another folder, or remove the file"
        )
    file.write_text(text, "utf-8")


__all__ = ["write_tokenizer"]
