"""Text generation on ONNX Runtime: a language model whose caches are inputs and outputs."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import nn
from transformers.cache_utils import DynamicCache


class _Step(nn.Module):
    """Reads tokens after those of the caches: the logits after the last one, and the caches with all of them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        caches = DynamicCache(config=self.model.config)
        for layer, pair in enumerate(zip(past[::2], past[1::2], strict=True)):
            caches.update(*pair, layer)
        result = self.model(input_ids=ids, past_key_values=caches, use_cache=True, logits_to_keep=1)
        return result.logits, *(own for each in caches.layers for own in (each.keys, each.values))


def _export(model: Any, names: list[str], path: Path) -> tuple[int, ...]:
    """Write the model, for one text; the shape of its empty caches."""
    config = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    shape = (1, heads, 5, config.hidden_size // config.num_attention_heads)
    sizes = {"ids": {1: "length"}} | {name: {2: "past"} for name in names}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Step(model).eval(),
            (torch.zeros(1, 3, dtype=torch.int64), *(torch.zeros(shape) for _ in names)),
            path,
            dynamo=False,
            input_names=["ids", *names],
            output_names=["logits", *(f"{name}.new" for name in names)],
            dynamic_axes=sizes,
            opset_version=18,
        )
    return (*shape[:2], 0, shape[3])


def on_onnx_runtime(model: Any, threads: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """The function that continues a text, [1, length], by so many of the most probable tokens.

    The model is exported by torch.onnx, and its caches stay in memory of ONNX Runtime between steps.
    """
    names = [f"{kind}.{layer}" for layer in range(model.config.num_hidden_layers) for kind in "kv"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        shape = _export(model, names, path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    empty = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, "float32")

    def generate(given: torch.Tensor, tokens: int) -> torch.Tensor:
        found, caches = given, [empty] * len(names)
        last = given
        for _ in range(tokens):
            binding = session.io_binding()
            binding.bind_cpu_input("ids", last.numpy())
            for name, cache in zip(names, caches, strict=True):
                binding.bind_ortvalue_input(name, cache)
            for output in session.get_outputs():
                binding.bind_output(output.name)
            session.run_with_iobinding(binding)
            logits, *caches = binding.get_outputs()
            last = torch.from_numpy(logits.numpy())[:, -1].argmax(-1, keepdim=True)
            found = torch.cat([found, last], dim=1)
        return found

    return generate


__all__ = ["on_onnx_runtime"]
