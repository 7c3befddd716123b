"""Text from language models that run without Python.

:func:`save` writes a causal model of Hugging Face to a file, with its key/value caches as state, and :func:`load`
reads it; so do ``corsac generate`` and, in Rust, ``corsac_generate::TextModel``::

    corsac.generation.save(model, "gpt2.safetensors")
    text = corsac.generation.load("gpt2.safetensors")
    tokens = text.generate(tokenizer("The fox").input_ids, max_new_tokens=20)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac.generation._saving import save
    from corsac.generation._text_model import Batch, NewToken, TextModel, candidates, load

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_saving": ("save",),
        "_text_model": ("Batch", "NewToken", "TextModel", "candidates", "load"),
    },
)

__all__ = ["Batch", "NewToken", "TextModel", "candidates", "load", "save"]
