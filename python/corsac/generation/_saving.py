"""Writing language models to files."""

from __future__ import annotations

import json
import operator
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from corsac._engine.native_graph import CompileError
from corsac._files.saving import save as save_file
from corsac.generation._positions import longest_without_change, without_change
from corsac.generation._reader import TokenReader
from corsac.generation._text_model import TextModel
from corsac.generation._tokenizer import write_tokenizer

#: Most tokens that are read at once: with more, a weight that is read is not used much more often.
STEP = 128
#: Longest texts of models that do not say how long they may be.
LENGTH = 2048
#: How far the logit of a token that is chosen may be from the largest one, as a part of the largest number.
TOLERANCE = 1e-3


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    batch: int = 64,
    length: int | None = None,
    tokenizer: Any = None,
) -> None:
    """Write a causal language model of Hugging Face to a file that continues texts without Python.

    The file has a program that reads a prompt, in pieces, one that reads a token, and the key/value caches as state.
    Texts that it generates are compared with the model. If writing fails, the old file at ``path`` remains.

    Args:
        model: a model of ``transformers.AutoModelForCausalLM``, in evaluation mode, on the CPU. It may be quantised by
            :func:`corsac.quantize`.
        path: the file, by custom ``*.safetensors``.
        batch: most sequences that are continued at once.
        length: most tokens of a text: by default as many as the configuration says, or 2048. Rotary embeddings keep the
            frequencies of short texts, so that models with others for long ones (``longrope``) have texts up to there.
        tokenizer: a fast tokenizer of transformers, whose ``tokenizer.json`` is written beside the file, where
            ``corsac generate`` looks for it.

    Raises:
        ValueError: ``batch`` or ``length`` is out of its range.
        CompileError: the model keeps other state than keys and values of each token, or cannot be saved for other
            reasons; see :func:`corsac.save`.
        OSError: the file cannot be written.
    """
    length = _length(model, length)
    if batch < 1:
        raise ValueError(f"batch is {batch}, and a number from 1 on is needed")
    if model.training:
        raise CompileError("the model is in training mode: call model.eval() before it is saved")
    step = min(STEP, length // 2)
    path = Path(path)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "model.safetensors"
        with without_change(model):
            _write(model, made, (batch, length, step))
        _verify(model, made, (min(batch, 2), length, step))
        if tokenizer is not None:
            write_tokenizer(tokenizer.backend_tokenizer.to_str(pretty=True), path)
        made.replace(path)


def _length(model: nn.Module, length: int | None) -> int:
    """The number of tokens of the longest text."""
    config = getattr(model, "config", None)
    if config is None:
        raise TypeError(f"{type(model).__name__} is no model of Hugging Face")
    config = config.get_text_config()
    limits = getattr(config, "max_position_embeddings", None), longest_without_change(config)
    own = min((limit for limit in limits if limit is not None), default=None)
    found = length if length is not None else own or LENGTH
    if found < 8 or (length is not None and own is not None and found > own):
        most = "" if own is None else f", at most {own},"
        raise ValueError(f"length is {found}, and a number from 8 on{most} is needed")
    return operator.index(found)


def _write(model: nn.Module, path: Path, sizes: tuple[int, int, int]) -> None:
    batch, length, step = sizes
    rows, columns = min(batch, 2), min(step + 3, length)
    reader = TokenReader(model, rows, columns)
    row = {0: Dim("batch", min=1, max=batch)} if batch > 1 else {}
    several = {1: Dim("length", min=2, max=step)}
    column = Dim("capacity", min=step, max=length)
    shapes = {"mask": row | {1: column}, **dict.fromkeys(reader.names(), row | {2: column})}
    prompt = {"ids": row | several, "positions": row | several}
    token = {"ids": row, "positions": row}
    save_file(
        reader,
        path,
        programs={
            "prompt": _inputs(rows, columns, min(5, step)),
            "token": _inputs(rows, columns, 1),
        },
        state=reader.names(),
        dynamic_shapes={"prompt": prompt | shapes, "token": token | shapes},
        metadata={"generation": json.dumps({"stop": _stop(model), "length": length})},
    )


def _inputs(rows: int, columns: int, length: int) -> tuple[torch.Tensor, ...]:
    """The first tokens of texts."""
    ids = torch.arange(rows * length).reshape(rows, length)
    mask = torch.zeros(rows, columns, dtype=torch.long)
    mask[:, :length] = 1
    positions = torch.arange(length).repeat(rows, 1)
    return ids, mask, positions, torch.tensor(0)


def _stop(model: nn.Module) -> list[int]:
    """The tokens that end a text."""
    settings: Any = getattr(model, "generation_config", None) or model.config
    found = getattr(settings, "eos_token_id", None)
    if found is None:
        return []
    # Negative ones stand for none.
    return [int(token) for token in torch.as_tensor(found).flatten() if token >= 0]


def _verify(model: nn.Module, path: Path, sizes: tuple[int, int, int]) -> None:
    """Compare texts that the file generates with the model: of one token, and longer than a step; together."""
    rows, length, step = sizes
    text = TextModel(path)
    chosen = torch.Generator().manual_seed(0)
    lengths = [1, min(step + 2, length - 3), 3]
    prompts = [torch.randint(text.vocabulary, (own,), generator=chosen).tolist() for own in lengths]
    batch = text.batch(rows)
    texts = {batch.add(prompt, max_new_tokens=3, stop=()): prompt for prompt in prompts}
    while batch:
        for new in batch.step():
            own = texts[new.sequence]
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([own]), use_cache=False).logits[0, -1].float()
            best = logits.max()
            if new.finish == "invalid" or best - logits[new.token] > TOLERANCE * logits.abs().max():
                raise CompileError(
                    "a text that the file generates differs from that of the model: its caches do not work as those of "
                    "other models do, so that texts of several lengths cannot be continued together"
                )
            own.append(new.token)


__all__ = ["save"]
