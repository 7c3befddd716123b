"""Layers with fake-quantised weights, for training. The names are those of ``torch.ao.nn.qat``.

A layer has ``weight_fake_quant``, made by ``qconfig.weight``, between its weight and its operator.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import (
    is_parametrized,
    transfer_parametrizations_and_params,
    type_before_parametrizations,
)

from corsac.quantization._kinds import is_a, same_class

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


class _FakeQuantizedWeight:
    """A layer that has a configuration, and was or becomes a layer of ``torch.nn``."""

    #: The class that :meth:`from_float` takes.
    _FLOAT_MODULE: ClassVar[type[nn.Module]]

    def _set_qconfig(self, qconfig: Any, **arguments: Any) -> None:
        if not qconfig:
            raise AssertionError(f"{type(self).__name__}: expected a qconfig, got {qconfig}")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(**arguments)

    @classmethod
    def _checked(cls, mod: nn.Module) -> tuple[nn.Module, Any]:
        """The layer of ``mod``, its first module if it is fused, and its configuration."""
        kind = type_before_parametrizations(mod)
        if not same_class(kind, cls._FLOAT_MODULE):
            raise AssertionError(
                f"{cls.__name__}.from_float: expected a {cls._FLOAT_MODULE.__name__}, got {kind.__name__}"
            )
        qconfig = getattr(mod, "qconfig", None)
        if not qconfig:
            raise AssertionError(
                f"{cls.__name__}.from_float: the {kind.__name__} has no qconfig, or none that is set"
            )
        layer = mod[0] if is_a(mod, "_FusedModule") else mod
        return layer, getattr(layer, "qconfig", None) or qconfig


def _transfer(source: nn.Module, target: nn.Module, *names: str) -> None:
    """Share parameters, and move their parametrisations."""
    for name in names:
        if is_parametrized(source, name):
            transfer_parametrizations_and_params(source, target, name)
        else:
            setattr(target, name, getattr(source, name))


def _detached(source: nn.Module, target: nn.Module, *names: str) -> nn.Module:
    """``target`` with the values of parameters of ``source``, in its mode."""
    for name in names:
        value = getattr(source, name)
        if value is not None:
            setattr(target, name, nn.Parameter(value.detach()))
    return target.train(source.training)


class Linear(_FakeQuantizedWeight, nn.Linear):
    """A linear layer with a fake-quantised weight.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.qat.Linear.html
    """

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self._set_qconfig(qconfig, factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Linear:
        """The layer for training of a layer with a ``qconfig``; parameters are shared."""
        layer, qconfig = cls._checked(mod)
        made = cls(layer.in_features, layer.out_features, layer.bias is not None, qconfig)
        _transfer(layer, made, "weight", "bias")
        return made

    def to_float(self) -> nn.Module:
        """The layer without fake quantisation, with copies of the parameters."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        return _detached(self, layer, "weight", "bias")


def _float_conv(source: Any) -> nn.Module:
    """A convolution of the arguments of a QAT convolution."""
    return source._FLOAT_CONV_MODULE(
        source.in_channels,
        source.out_channels,
        source.kernel_size,
        source.stride,
        source.padding,
        source.dilation,
        source.groups,
        source.bias is not None,
        source.padding_mode,
    )


class _Conv(_FakeQuantizedWeight):
    """A convolution with a fake-quantised weight."""

    _FLOAT_CONV_MODULE: ClassVar[type[nn.Module]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        qconfig: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )
        self._set_qconfig(qconfig, factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer for training of a layer with a ``qconfig``; parameters are shared."""
        conv, qconfig = cls._checked(mod)
        made = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
            conv.bias is not None,
            conv.padding_mode,
            qconfig,
        )
        made.weight = conv.weight
        made.bias = conv.bias
        return made

    def to_float(self) -> nn.Module:
        """The layer without fake quantisation, with copies of the parameters."""
        return _detached(self, _float_conv(self), "weight", "bias")


class Conv1d(_Conv, nn.Conv1d):
    """A convolution with a fake-quantised weight."""

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = nn.Conv1d
    _FLOAT_CONV_MODULE = nn.Conv1d


class Conv2d(_Conv, nn.Conv2d):
    """A convolution with a fake-quantised weight.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.qat.Conv2d.html
    """

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = nn.Conv2d
    _FLOAT_CONV_MODULE = nn.Conv2d


class Conv3d(_Conv, nn.Conv3d):
    """A convolution with a fake-quantised weight.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.qat.Conv3d.html
    """

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = nn.Conv3d
    _FLOAT_CONV_MODULE = nn.Conv3d


class _Embeddings(_FakeQuantizedWeight):
    """Embeddings with a fake-quantised weight, the zero points of which are real."""

    #: The arguments before and after the weight.
    _arguments: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]]

    def _set_qconfig(self, qconfig: Any, **arguments: Any) -> None:
        super()._set_qconfig(qconfig, **arguments)
        qscheme = self.weight_fake_quant.qscheme
        if qscheme != torch.per_channel_affine_float_qparams:
            raise AssertionError(
                f"{type(self).__name__}: expected weights of qscheme torch.per_channel_affine_float_qparams, "
                f"got {qscheme}"
            )

    def _like(self, cls: type[nn.Module], weight: Tensor | None, **more: Any) -> Any:
        before, after = type(self)._arguments if isinstance(self, _Embeddings) else cls._arguments
        return cls(
            *(getattr(self, name) for name in before),
            weight,
            *(getattr(self, name) for name in after),
            **more,
        )

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer for training of a layer with a ``qconfig``; the weight is shared."""
        layer, qconfig = cls._checked(mod)
        return _Embeddings._like(layer, cls, layer.weight, qconfig=qconfig)

    def to_float(self) -> nn.Module:
        """The layer without fake quantisation, with a copy of the weight."""
        return _detached(self, self._like(self._FLOAT_MODULE, None), "weight")


class Embedding(_Embeddings, nn.Embedding):
    """An embedding with a fake-quantised weight."""

    _FLOAT_MODULE = nn.Embedding
    _arguments = (
        (
            "num_embeddings",
            "embedding_dim",
            "padding_idx",
            "max_norm",
            "norm_type",
            "scale_grad_by_freq",
            "sparse",
        ),
        (),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        qconfig: Any = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            device=device,
            dtype=dtype,
        )
        self._set_qconfig(qconfig, factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight_fake_quant(self.weight),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Embeddings, nn.EmbeddingBag):
    """Sums, means or maxima of embeddings with a fake-quantised weight."""

    _FLOAT_MODULE = nn.EmbeddingBag
    _arguments = (
        (
            "num_embeddings",
            "embedding_dim",
            "max_norm",
            "norm_type",
            "scale_grad_by_freq",
            "mode",
            "sparse",
        ),
        ("include_last_offset", "padding_idx"),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        qconfig: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            _weight,
            include_last_offset,
            padding_idx,
            device,
            dtype,
        )
        self._set_qconfig(qconfig, factory_kwargs={"device": device, "dtype": dtype})

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight_fake_quant(self.weight),
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
