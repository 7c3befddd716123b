"""Training and evaluation of exported models, whose mode is written into the graph.

The names are those of ``torch.ao.quantization.pt2e.export_utils``.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from corsac.quantization.pt2e._nodes import aten

__all__ = [
    "WrapperModule",
    "allow_exported_model_train_eval",
    "model_is_exported",
    "move_exported_model_to_eval",
    "move_exported_model_to_train",
]

#: The argument that says whether an operator is of a model in training.
_MODES = {aten.batch_norm.default: 5, aten.dropout.default: 2, aten.dropout_.default: 2}


class WrapperModule(torch.nn.Module):
    """A function as a module, for export."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def model_is_exported(m: Any) -> bool:
    """Whether ``m`` is a graph module of an exported program: its nodes have example values."""
    graph = getattr(m, "graph", None)
    return graph is not None and any("val" in node.meta for node in graph.nodes)


def _move(model: Any, training: bool) -> Any:
    for node in model.graph.nodes:
        place = _MODES.get(node.target) if node.op == "call_function" else None
        if place is not None:
            node.args = (*node.args[:place], training, *node.args[place + 1 :])
    model._exported_training = training
    model.recompile()
    return model


def move_exported_model_to_eval(model: Any) -> Any:
    """Switch batch norms and dropout of an exported model to evaluation; returns the model."""
    return _move(model, False)


def move_exported_model_to_train(model: Any) -> Any:
    """Switch batch norms and dropout of an exported model to training; returns the model."""
    return _move(model, True)


def _train(self: Any, mode: bool = True) -> Any:
    return _move(self, mode)


def _eval(self: Any) -> Any:
    return _move(self, False)


def allow_exported_model_train_eval(model: Any) -> Any:
    """Let ``model.train()`` and ``model.eval()`` switch batch norms and dropout of an exported model."""
    model.train = types.MethodType(_train, model)
    model.eval = types.MethodType(_eval, model)
    return model


# The names of torch.ao.
_allow_exported_model_train_eval = allow_exported_model_train_eval
_move_exported_model_to_eval = move_exported_model_to_eval
_move_exported_model_to_train = move_exported_model_to_train


class _Refusal:
    """The methods ``train`` and ``eval`` of an exported model, which do not do what they do for others."""

    def __call__(self, mode: bool = True) -> Any:
        raise NotImplementedError(
            "train() and eval() do not change exported models: use "
            "corsac.quantization.pt2e.move_exported_model_to_train (or _to_eval), or let them switch batch norms and "
            "dropout by corsac.quantization.pt2e.allow_exported_model_train_eval"
        )


def refuse_train_eval(model: Any) -> Any:
    """Let ``train`` and ``eval`` of a model raise ``NotImplementedError``; returns the model."""
    model.train = _Refusal()
    model.eval = _Refusal()
    return model
