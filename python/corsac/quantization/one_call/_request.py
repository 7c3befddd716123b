"""The checked arguments of a quantisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from corsac._engine.module import EngineModule
from corsac.quantization._prepared_before import require_no_observers
from corsac.quantization.one_call._forms import HALF, Form
from corsac.quantization.one_call._layers import (
    Layer,
)
from corsac.quantization.one_call._ranges import METHODS
from corsac.quantization.one_call._selection import Metric
from corsac.quantization.one_call._weights import WeightForm

#: Classes of compiled models, whose layers cannot be replaced.
_COMPILED = (EngineModule, torch.jit.ScriptModule)


_NO_PRODUCT = "tables have no products"


class Request:
    """The checked arguments."""

    smooth_quant: float | None = None
    equalize: bool = False

    def __init__(
        self,
        dtype: str,
        dynamic: bool,
        weights: str | None,
        method: str,
        percentile: float,
        max_drop: float | None,
        metric: Metric | None,
    ) -> None:
        if dtype not in ("int8", "bfloat16"):
            raise ValueError(
                f"dtype: expected 'int8' or 'bfloat16', got {dtype!r} (weights='int4:32' has 4 bits)"
            )
        if dtype == "bfloat16" and (dynamic or weights is not None):
            raise ValueError("dtype: 'bfloat16' has no ranges: expected no dynamic and no weights")
        self.is_half = dtype == "bfloat16"
        if method not in METHODS:
            raise ValueError(
                f"method: expected one of {', '.join(map(repr, METHODS))}, got {method!r}"
            )
        if not 50.0 < percentile <= 100.0:
            raise ValueError(f"percentile: expected a number above 50, up to 100, got {percentile}")
        if max_drop is not None and metric is None:
            raise ValueError("max_drop is given without metric: expected a function of the model")
        if max_drop is not None and not max_drop >= 0.0:
            raise ValueError(f"max_drop: expected at least 0, got {max_drop}")
        self.saves_bytes = weights is not None
        form = WeightForm.parse(weights) if weights is not None else WeightForm()
        self.form = Form("dynamic" if dynamic else "float" if self.saves_bytes else "static", form)
        if self.is_half:
            self.form = HALF
        self.method, self.percentile = method, percentile
        self.metric, self.max_drop = metric, max_drop

    def check(self, model: Any, calibration_data: Any) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        if isinstance(model, _COMPILED) or type(model).__module__.startswith("torch._dynamo"):
            raise TypeError(
                f"{type(model).__name__} is compiled: quantise the model that it was made of, and compile the result"
            )
        if model.training:
            raise ValueError(
                "the model is in training mode: call model.eval() before it is quantised"
            )
        require_no_observers(model, "quantise")
        if any(isinstance(own, UninitializedParameter) for own in model.parameters()):
            raise ValueError("the model has parameters without a shape: call it once before")
        if calibration_data is None and self.form.inputs == "static":
            raise ValueError(
                "calibration_data is missing: static quantisation measures ranges on it; dynamic=True or weights='int8' "
                "need none"
            )
        if self.smooth_quant is not None and not 0.0 <= self.smooth_quant <= 1.0:
            raise ValueError(f"smooth_quant: expected 0 to 1, got {self.smooth_quant}")
        if calibration_data is None and (self.smooth_quant is not None or self.equalize):
            option = "equalize" if self.equalize else "smooth_quant"
            raise ValueError(f"{option} is given without calibration_data")

    def forms(self, layer: Layer) -> tuple[list[Form], str]:
        """Forms for a layer, the wanted one first; and why that is another than was asked for, or none."""
        form = self.form
        if self.is_half:
            # Tables are looked up, not multiplied.
            return ([], _NO_PRODUCT) if layer.is_table else ([HALF], "")
        if layer.is_table and self.saves_bytes:
            form = Form("float", form.weights)
        first, why = form.fitting(layer)
        if first is None:
            return [], why
        if first.weights.bits == 4:
            return [first, Form(first.inputs, WeightForm())], why
        return [first], why
