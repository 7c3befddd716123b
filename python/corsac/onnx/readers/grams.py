"""n-grams of integers."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Value
from corsac.onnx.grams import gram_weights

# Columns of a result, and n-grams that skip elements.
_WIDEST, _FARTHEST = 2**24, 2**16


@reads("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    g: Emitter,
    input: Value,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: Any = None,
    weights: list[float] | None = None,
) -> Value:
    if pool_int64s is None:
        raise Unsupported("tensors of element type string")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Unsupported(f"the mode {mode!r}, expected TF, IDF or TFIDF")
    width = max(ngram_indexes, default=-1) + 1
    if not 0 < width <= _WIDEST or min(ngram_indexes) < 0 or not 0 <= max_skip_count <= _FARTHEST:
        raise Unsupported("columns or numbers of skipped elements that are out of range")
    if weights and len(weights) != len(ngram_indexes):
        raise Unsupported(f"{len(weights)} weights for {len(ngram_indexes)} n-grams")
    if weights and width > len(weights):
        raise Unsupported(f"{len(weights)} weights for {width} columns")
    grams, columns = [], []
    place = 0
    bounds = itertools.pairwise([*ngram_counts, len(pool_int64s)])
    for length, (start, end) in enumerate(bounds, 1):
        if not 0 <= start <= end <= len(pool_int64s) or (end - start) % length:
            raise Unsupported(f"n-grams of length {length} at {start} to {end} of the pool")
        count = (end - start) // length
        own = ngram_indexes[place : place + count]
        if len(own) != count:
            raise Unsupported(f"{len(ngram_indexes)} columns for more n-grams")
        place += count
        if not count or not min_gram_length <= length <= max_gram_length:
            continue
        table = torch.tensor(pool_int64s[start:end]).reshape(count, length)
        if len(table.unique(dim=0)) != count:
            raise Unsupported("the same n-gram twice in the pool")
        grams.append(g.literal(table))
        columns.append(g.literal(torch.tensor(own)))
    factors = None
    if weights and mode != "TF":
        factors = g.literal(torch.tensor(weights[:width]))
    return g.call(
        gram_weights, input, grams, columns, width, max_skip_count, factors, mode != "IDF"
    )
