"""The configuration of a quantisation."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from corsac._messages.near_names import did_you_mean
from corsac.quantization._dtypes import qint8, quint8
from corsac.quantization.backend_config import BackendConfig, DTypeConfig
from corsac.quantization.backend_config._layers import Convolutions, fused_linear, linear
from corsac.quantization.fake_quantize import FakeQuantize
from corsac.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from corsac.quantization.qconfig import QConfig

Approach = Literal["static", "dynamic", "qat"]
#: The name of the file that :meth:`QuantizationConfig.save_pretrained` writes.
FILE = "fx_quantization_config.json"
_APPROACHES = ("static", "dynamic", "qat")
_OBSERVERS = {
    "histogram": HistogramObserver,
    "minmax": MinMaxObserver,
    "moving_average": MovingAverageMinMaxObserver,
}
#: The quantised type, the smallest and the largest integer of activations.
_ACTIVATIONS = {"uint8": (quint8, 0, 255), "int8": (qint8, -128, 127)}
_OPERATORS = ("Linear", "Conv1d", "Conv2d", "Conv3d")
#: Least number of bits of weights.
_LEAST_BITS = 2


@dataclass(frozen=True)
class QuantizationConfig:
    """Configuration of the quantisation of a model.

    Attributes:
        approach: ``"static"``: the ranges of the inputs of layers are measured on calibration data. ``"dynamic"``: each
            row's is found in each call; for linear layers. ``"qat"``: the model is trained with rounded weights and
            inputs.
        activations_dtype: the type of inputs of layers, ``"uint8"`` or ``"int8"``.
        activations_symmetric: whether their ranges are symmetric around 0.
        weights_bits: the number of bits of weights, 2 to 8; each is stored in a byte.
        weights_symmetric: whether the ranges of weights are symmetric around 0.
        per_channel: whether each output channel of weights has a range of its own.
        method: how ranges of inputs are chosen: ``"histogram"`` (least squared error), ``"minmax"`` or
            ``"moving_average"``. Training always has the last one.
        operators_to_quantize: the layers: ``"Linear"``, ``"Conv1d"``, ``"Conv2d"``, ``"Conv3d"``; linear layers of
            transformers' class Conv1D count as ``"Linear"``.
        exclude: names or patterns (``"encoder.layer.0.*"``) of modules that stay float, with all inside.
        overrides: other values of these attributes for some modules, by name or pattern.
    """

    approach: Approach = "static"
    activations_dtype: str = "uint8"
    activations_symmetric: bool = False
    weights_bits: int = 8
    weights_symmetric: bool = True
    per_channel: bool = True
    method: str = "histogram"
    operators_to_quantize: tuple[str, ...] = _OPERATORS
    exclude: tuple[str, ...] = ()
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _expect("approach", self.approach, _APPROACHES)
        _expect("activations_dtype", self.activations_dtype, _ACTIVATIONS)
        _expect("method", self.method, _OBSERVERS)
        bits = self.weights_bits
        if type(bits) is not int or not _LEAST_BITS <= bits <= 8:
            raise ValueError(f"weights_bits: expected 2 to 8, got {bits!r}")
        for name in ("operators_to_quantize", "exclude"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        for operator in self.operators_to_quantize:
            _expect("operators_to_quantize", operator, _OPERATORS)
        for pattern, changes in self.overrides.items():
            wrong = {"approach", "exclude", "overrides", "operators_to_quantize"} & set(changes)
            if wrong:
                raise ValueError(f"overrides of {pattern!r}: {min(wrong)} is the whole model's")
            self.overridden(changes)

    def overridden(self, changes: Mapping[str, Any]) -> QuantizationConfig:
        """The configuration with other values of some attributes."""
        known = [own.name for own in fields(self)]
        for name in changes:
            _expect("QuantizationConfig", name, known)
        return replace(self, **{"overrides": {}, "exclude": (), **changes})

    def qconfig(self) -> QConfig:
        """The observers, or for training the fake quantisers."""
        return QConfig(self._activation(), self._weight())

    def _activation(self) -> Any:
        dtype, low, high = _ACTIVATIONS[self.activations_dtype]
        if self.approach == "dynamic":
            return PlaceholderObserver.with_args(
                dtype=dtype, quant_min=low, quant_max=high, is_dynamic=True
            )
        affine, symmetric = torch.per_tensor_affine, torch.per_tensor_symmetric
        given = {
            "dtype": dtype,
            "qscheme": symmetric if self.activations_symmetric else affine,
            "quant_min": low,
            "quant_max": high,
        }
        if self.approach == "qat":
            return FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, **given)
        return _OBSERVERS[self.method].with_args(**given)

    def _weight(self) -> Any:
        high = 2 ** (self.weights_bits - 1) - 1
        # Of 8 bits, -128 is left out, so that sums of products stay in the range of the fastest instructions.
        low = -high if self.weights_bits == 8 else -high - 1
        scheme = "channel" if self.per_channel else "tensor"
        form = "symmetric" if self.weights_symmetric else "affine"
        given = {
            "dtype": qint8,
            "qscheme": getattr(torch, f"per_{scheme}_{form}"),
            "quant_min": low,
            "quant_max": high,
        }
        if self.approach == "qat":
            # PyTorch's fused one has other scales for symmetric ranges than conversion, by a step in the range.
            moving: Any = MovingAverageMinMaxObserver
            if self.per_channel:
                moving = MovingAveragePerChannelMinMaxObserver
            # The range is that of the weights as they are now.
            return FakeQuantize.with_args(observer=moving, averaging_constant=1.0, **given)
        observer: Any = PerChannelMinMaxObserver if self.per_channel else MinMaxObserver
        return observer.with_args(**given)

    def backend(self) -> BackendConfig:
        """The patterns that are quantised: layers, with what is fused into them."""
        types = []
        for dtype in (quint8, qint8):
            types += [
                DTypeConfig(dtype, dtype, qint8, torch.float32),
                DTypeConfig(dtype, torch.float32, qint8, torch.float32, is_dynamic=True),
            ]
        rows = []
        if "Linear" in self.operators_to_quantize:
            rows += [*linear(types), *fused_linear(types)]
        if self.approach != "dynamic":
            for dimensions in (1, 2, 3):
                if f"Conv{dimensions}d" in self.operators_to_quantize:
                    rows += Convolutions(dimensions).rows(types, transposed=False)
        return BackendConfig("layers").set_backend_pattern_configs(rows)

    def to_dict(self) -> dict[str, Any]:
        """The attributes, as values of JSON."""
        found = asdict(self)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QuantizationConfig:
        """Of the attributes.

        Raises:
            ValueError: there is no such attribute, or a value is none of those that it may have.
        """
        known = [own.name for own in fields(cls)]
        for name in values:
            _expect("QuantizationConfig", name, known)
        return cls(**values)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> Path:
        """Write the configuration to a file in ``directory``; return its path."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        path /= FILE
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike[str]) -> QuantizationConfig:
        """Read what :meth:`save_pretrained` has written."""
        return cls.from_dict(json.loads((Path(directory) / FILE).read_text(encoding="utf-8")))


def _expect(name: str, value: Any, known: Any) -> None:
    if value in known:
        return
    hint = did_you_mean(str(value), known, after="; ")
    raise ValueError(f"{name}: expected one of {', '.join(map(repr, known))}, got {value!r}{hint}")
