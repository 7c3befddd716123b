"""Parameters of rounded weights: they are real in a module, and rounded when they are used."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization._dtypes import UNDERLYING, full_range, quint8

_PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
_DEFAULT = {"qscheme": torch.per_tensor_affine, "dtype": quint8, "scale": 1.0, "zero_point": 0}


class WithRoundedWeights(nn.Module):
    """A module of which weights have parameters, as attributes: ``weight_scale`` are the scales of ``weight``."""

    def _init_qparams(self, name: str, qparams: dict[str, Any] | None, device: Any) -> None:
        """Keep the parameters of a weight: qscheme, dtype, scale, zero_point, axis, quant_min, quant_max."""
        qparams = _DEFAULT if qparams is None else qparams
        qscheme, dtype = qparams["qscheme"], qparams["dtype"]
        if qscheme not in (None, torch.per_tensor_affine, *_PER_CHANNEL):
            raise AssertionError(
                f"{self._get_name()}: expected an affine qscheme of {name}, got {qscheme}"
            )
        rounded = qscheme is not None and dtype in UNDERLYING
        values = {
            "scale": (qparams["scale"] if rounded else 1.0, torch.float),
            "zero_point": (qparams["zero_point"] if rounded else 0, torch.int),
            "axis": (qparams["axis"] if rounded and qscheme in _PER_CHANNEL else 0, torch.int),
        }
        setattr(self, f"{name}_qscheme", qscheme)
        setattr(self, f"{name}_dtype", dtype)
        for field, (value, kind) in values.items():
            if isinstance(value, Tensor):
                value = value.detach().clone()
            else:
                value = torch.tensor(value, dtype=kind, device=device)
            self.register_buffer(f"{name}_{field}", value)
        setattr(self, f"{name}_axis_int", int(getattr(self, f"{name}_axis")))
        low, high = qparams.get("quant_min"), qparams.get("quant_max")
        if low is None or high is None:
            low, high = full_range(dtype) if rounded else (None, None)
        setattr(self, f"{name}_quant_min", low)
        setattr(self, f"{name}_quant_max", high)

    def _qparams(self, name: str) -> tuple[Tensor, Tensor, int, int, int]:
        return tuple(
            getattr(self, f"{name}_{field}")
            for field in ("scale", "zero_point", "axis_int", "quant_min", "quant_max")
        )

    def _is_rounded(self, name: str) -> bool:
        return getattr(self, f"{name}_quant_min") is not None

    def _rounded(self, name: str) -> Tensor:
        """A weight, quantised and dequantised."""
        weight = getattr(self, name)
        if not self._is_rounded(name):
            return weight
        scale, zero_point, axis, low, high = self._qparams(name)
        if getattr(self, f"{name}_qscheme") in _PER_CHANNEL:
            return torch.fake_quantize_per_channel_affine(
                weight, scale, zero_point, axis, low, high
            )
        return torch.fake_quantize_per_tensor_affine(
            weight, scale.reshape(()), zero_point.reshape(()), low, high
        )

    def _quantized(self, name: str) -> Tensor:
        """A weight as integers, or in float16."""
        weight, dtype = getattr(self, name), getattr(self, f"{name}_dtype")
        if not self._is_rounded(name):
            if dtype == torch.float16:
                return weight.to(dtype)
            raise ValueError(f"{self._get_name()}: {name} is not quantised: its dtype is {dtype}")
        scale, zero_point, axis, low, high = self._qparams(name)
        if getattr(self, f"{name}_qscheme") in _PER_CHANNEL:
            shape = [1] * weight.dim()
            shape[axis] = -1
            scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
        values = torch.round(weight * (1.0 / scale)) + zero_point
        if zero_point.is_floating_point():
            values = torch.round(weight * (1.0 / scale) + zero_point)
        return torch.clamp(values, low, high).to(UNDERLYING[dtype])


class ReferenceQuantizedModule(WithRoundedWeights):
    """A module with one weight, ``weight``, the parameters of which are in its state dict."""

    def _init_weight_qparams(self, weight_qparams: dict[str, Any] | None, device: Any) -> None:
        self._init_qparams("weight", weight_qparams, device)
        self.is_decomposed = bool((weight_qparams or {}).get("is_decomposed", False))

    def get_weight(self) -> Tensor:
        """The weight, quantised and dequantised."""
        return self._rounded("weight")

    def get_quantized_weight(self) -> Tensor:
        """The weight as integers of the plain type, or in float16."""
        return self._quantized("weight")

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for field in ("weight_qscheme", "weight_dtype"):
            destination[prefix + field] = getattr(self, field)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for field in ("weight_qscheme", "weight_dtype", "weight_scale", "weight_zero_point"):
            if prefix + field in state_dict:
                setattr(self, field, state_dict.pop(prefix + field))
                if field == "weight_dtype":
                    state = self.weight_qscheme, self.weight_dtype
                    known = state[0] is not None and state[1] in UNDERLYING
                    if known and self.weight_quant_min is None:
                        self.weight_quant_min, self.weight_quant_max = full_range(state[1])
        metadata, _, *lists = rest
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *lists)
