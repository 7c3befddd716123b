"""LSTM and attention of statically quantised models, made of observed ones."""

from __future__ import annotations

from typing import Any

from corsac.quantization import quantizable
from corsac.quantization._kinds import is_a


class _Converted:
    """A layer with quantised layers in it, the other base class."""

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"a quantised {cls.__name__} is made of an observed one by from_observed; "
            f"corsac.quantization.quantizable.{cls.__name__} observes a float one"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantised layer of an observed one of :mod:`corsac.quantization.quantizable`, which has to be calibrated."""
        from corsac.quantization.quantize import convert

        if not is_a(other, cls.__name__):
            raise AssertionError(f"expected an observed {cls.__name__}, got {type(other).__name__}")
        made = convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        return made


class LSTM(_Converted, quantizable.LSTM):
    """An LSTM with quantised weights and rounded results.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.LSTM.html
    """


class MultiheadAttention(_Converted, quantizable.MultiheadAttention):
    """Attention with quantised weights and rounded results of projections.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantizable.MultiheadAttention.html
    """
