"""A causal model with its caches as buffers."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from corsac._engine.native_graph import CompileError

#: Caches of these kinds have a column for each token.
_KINDS = (DynamicLayer, DynamicSlidingWindowLayer)


class BufferLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers has no types
    """The keys and values of a layer, in tensors of a fixed size that are written to.

    Args:
        keys: [batch, heads, capacity, width]
        values: [batch, heads, capacity, width]
        start: the column of the first token that is written.
    """

    # Masks are computed, even if they have no zeros.
    is_compileable = True
    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, start: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.start = keys, values, start
        self.is_initialized = True

    def lazy_initialization(self, *_: Any) -> None:
        """The tensors are there."""

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns; returns all."""
        columns = torch.arange(keys.shape[2]) + self.start
        self.keys.index_copy_(2, columns, keys)
        self.values.index_copy_(2, columns, values)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The number of columns, and the first one."""
        return self.keys.shape[2], 0

    def get_seq_length(self) -> torch.Tensor:
        """The column of the first new token."""
        return self.start

    def get_max_length(self) -> int:
        """The number of columns."""
        return self.keys.shape[2]


class TokenReader(nn.Module):
    """Reads tokens, and gives the logits after the last one.

    Args:
        model: a causal model of Hugging Face.
        rows: the number of sequences.
        columns: the number of tokens for which the caches have memory.

    Raises:
        CompileError: the model has an encoder or experts, or keeps other state than keys and values of each token.
    """

    def __init__(self, model: nn.Module, rows: int, columns: int) -> None:
        super().__init__()
        _check_kind(model)
        self.model = model
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_kept = "logits_to_keep" in accepted
        self._layers = 0
        for layer in _caches(model):
            for name, own in (("keys", layer.keys), ("values", layer.values)):
                shape = (rows, own.shape[1], columns, own.shape[3])
                zeros = torch.zeros(shape, dtype=own.dtype)
                self.register_buffer(f"{name}_{self._layers}", zeros)
            self._layers += 1
        # Not by eval(): modules of the model stay in their mode.
        self.training = False

    def names(self) -> list[str]:
        """The names of the caches."""
        return [f"{name}_{at}" for at in range(self._layers) for name in ("keys", "values")]

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        start: torch.Tensor,
    ) -> torch.Tensor:
        """Read ``ids``, [batch, length], at ``positions`` of their texts, into the columns from ``start`` on. ``mask``,
        [batch, capacity], is 1 for columns of the text, also the new ones. Returns the logits, [batch, vocabulary].
        """
        layers = [
            BufferLayer(getattr(self, f"keys_{at}"), getattr(self, f"values_{at}"), start)
            for at in range(self._layers)
        ]
        settings: dict[str, Any] = {}
        if self._takes_positions:
            settings["position_ids"] = positions
        if self._takes_kept:
            settings["logits_to_keep"] = 1
        found = self.model(
            input_ids=ids,
            attention_mask=mask,
            past_key_values=Cache(layers=layers),
            use_cache=True,
            return_dict=True,
            **settings,
        )
        return found.logits[:, -1]


def _check_kind(model: nn.Module) -> None:
    """Refuse kinds of models that files cannot hold.

    Raises:
        CompileError: the model has an encoder, or experts.
    """
    kind = type(model).__name__
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise CompileError(
            f"{kind} has an encoder, and a decoder that reads its results; files hold models that continue one text"
        )
    for name, own in model.named_modules():
        if hasattr(own, "_is_expert_parallel"):
            raise CompileError(
                f"{kind} is a mixture of experts ({name}): the values of a token choose the weights that it is "
                "multiplied with, which the engine does not support"
            )


def _caches(model: nn.Module) -> list[Any]:
    """The caches of the layers after a few tokens."""
    ids = torch.zeros(1, 2, dtype=torch.long)
    with torch.no_grad():
        found = getattr(model(input_ids=ids, use_cache=True), "past_key_values", None)
    layers = getattr(found, "layers", [])
    for at, layer in enumerate(layers):
        if type(layer) not in _KINDS:
            raise CompileError(
                f"the cache of layer {at} is a {type(layer).__name__}; files hold keys and values of each token only"
            )
    if not layers:
        raise CompileError(f"{type(model).__name__} has no caches of keys and values")
    return list(layers)


__all__ = ["TokenReader"]
