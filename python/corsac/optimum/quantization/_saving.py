"""Folders of quantised models: configurations as JSON, and weights as safetensors. Nothing in them is run when they are
read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from corsac._files.safetensors import read_safetensors, write_safetensors
from corsac.optimum.quantization._class_names import model_of
from corsac.optimum.quantization._config import QuantizationConfig
from corsac.optimum.quantization._model import GraphModel
from corsac.optimum.quantization._observers import observers_of
from corsac.optimum.quantization._quantizer import Quantizer
from corsac.quantization.observer import FixedQParamsObserver

_GRAPH, _WEIGHTS, _CONFIG = "fx_graph.json", "model.safetensors", "config.json"


def save_quantized(model: GraphModel, directory: str | os.PathLike[str]) -> Path:
    """Write a quantised model of transformers to a folder; return its path.

    The folder has the model's configuration, the quantisation's, the ranges of inputs, and the weights.

    Args:
        model: the result of :meth:`Quantizer.convert`.
        directory: the folder, which is made if it does not exist.

    Raises:
        TypeError: ``model`` is none, was quantised by a ``QConfigMapping``, or is of a class that transformers has not.
    """
    if not isinstance(model, GraphModel):
        raise TypeError(
            f"expected a quantised model of Quantizer.convert(), got {type(model).__name__}"
        )
    if model.quantization_config is None:
        raise TypeError(
            f"{model.name} is not quantised by a QuantizationConfig, which a folder needs to make it again: use "
            "torch.save(model)"
        )
    home = sys.modules.get("transformers")
    if home is None or model.config is None or not hasattr(home, model.name):
        raise TypeError(
            f"{model.name} is no class of transformers, which a folder needs to make it again: use torch.save(model)"
        )
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(path)
    model.quantization_config.save_pretrained(path)
    graph = {
        "class": model.name,
        "inputs": {
            own.name: [str(own.dtype).removeprefix("torch."), list(own.shape)]
            for own in model.inputs.tensors
        },
        "constants": model.inputs.constants,
        "ranges": model.ranges,
    }
    (path / _GRAPH).write_text(json.dumps(graph, indent=2) + "\n", encoding="utf-8")
    write_safetensors(path / _WEIGHTS, _tensors(model.graph_module))
    return path


def _tensors(module: Any) -> dict[str, torch.Tensor]:
    """Parameters and buffers in the state dict of a graph module. The numbers in its code are the ranges."""
    stored = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    stored |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    return {name: own for name, own in module.state_dict().items() if name in stored}


def load_quantized(directory: str | os.PathLike[str]) -> GraphModel:
    """Read a model that :func:`save_quantized` has written.

    The model is made by its class and configuration, captured and converted again, and gets the weights of the folder.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the files do not fit each other, or this version of the libraries.
    """
    path = Path(directory)
    graph = json.loads((path / _GRAPH).read_text(encoding="utf-8"))
    config = QuantizationConfig.from_pretrained(path)
    values = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    model = model_of(graph["class"], _model_config(graph["class"], values))
    example: dict[str, Any] = {
        name: _example(name, getattr(torch, dtype), shape)
        for name, (dtype, shape) in graph["inputs"].items()
    }
    quantizer = Quantizer(model, config, example_inputs={**example, **graph["constants"]})
    prepared = quantizer.prepared
    assert prepared is not None
    module = prepared.graph_module
    observers = observers_of(module)
    ranges = graph["ranges"]
    found = {name for name, own in observers.items() if not getattr(own, "is_dynamic", False)}
    if found != ranges.keys():
        raise ValueError(
            f"{path / _GRAPH}: expected ranges of {len(found)} values of {graph['class']}, got {len(ranges)}: it was written by "
            "another version of corsac or transformers"
        )
    for name, (scale, zero_point) in ranges.items():
        own: Any = observers[name]
        fixed = FixedQParamsObserver(
            scale, zero_point, own.dtype, quant_min=own.quant_min, quant_max=own.quant_max
        )
        module.add_submodule(name, fixed)
    made = quantizer.convert()
    tensors = read_safetensors(path / _WEIGHTS)
    own_names = _tensors(made.graph_module).keys()
    if own_names != tensors.keys():
        wrong = sorted(own_names ^ tensors.keys())
        raise ValueError(
            f"{path / _WEIGHTS}: expected the tensors of {graph['class']}, got others: {', '.join(wrong[:5])}"
        )
    # Numbers in the code have been made from the ranges.
    made.graph_module.load_state_dict(tensors, strict=False)
    return made


def _model_config(name: str, values: dict[str, Any]) -> Any:
    import transformers

    model: Any = getattr(transformers, name, None)
    if model is None:
        return values
    return model.config_class.from_dict(values)


def _example(name: str, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    fill = torch.ones if name.endswith("mask") else torch.zeros
    return fill(shape, dtype=dtype)
