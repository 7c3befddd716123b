"""Layers that run on oneDNN, with prepacked weights.

Weights are packed at the first call for each shape of input, since the best layout depends on it, and again
when the weights change. The plain weights are kept too: they are the ones that are copied, saved and loaded.
Source: oneDNN's operators for PyTorch's compiler, ``aten/src/ATen/native/mkldnn``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.fx.node import Node

__all__ = [
    "MkldnnBatchNorm",
    "MkldnnConv2d",
    "MkldnnLinear",
    "PostOp",
    "matches_module_pattern",
    "mkldnn_map",
    "modules_to_mkldnn",
    "replace_node_module",
    "reset_modules",
    "unfit",
]

#: Number of input shapes for which a layer keeps packed weights. Further shapes use those of the first.
MAX_PACKED: Final = 4
#: Number of rows from which packed weights are faster in a float32 product. Measured on one core with
#: AVX-512: 0.32 against 0.34 ms for one row, 0.28 against 0.23 ms for 64 (512 x 512).
MIN_ROWS: Final = 16


class PostOp:
    """An activation that is applied to a result before it is written to memory (an epilogue).

    Args:
        name: as in ``torch.nn.functional``.
        module: the original module, if it was one, with the parameters.
    """

    def __init__(self, name: str, module: nn.Module | None = None) -> None:
        self.name = name
        self.scalars: list[float] = []
        self.algorithm = ""
        if name == "hardtanh" and module is not None:
            self.scalars = [float(module.min_val), float(module.max_val)]
        elif name == "relu6":
            self.scalars = [0.0, 6.0]
        elif name == "leaky_relu" and module is not None:
            self.scalars = [float(module.negative_slope)]
        elif name == "gelu":
            self.algorithm = "none" if module is None else module.approximate

    #: oneDNN's names, if different.
    _ATTRIBUTES: Final = {"relu6": "hardtanh", "silu": "swish"}

    @property
    def attribute(self) -> str:
        """The name in oneDNN's operators."""
        return self._ATTRIBUTES.get(self.name, self.name)

    def __call__(self, x: Tensor) -> Tensor:
        if self.name == "gelu":
            return F.gelu(x, approximate=self.algorithm)
        if self.name in ("hardtanh", "leaky_relu"):
            return getattr(F, self.name)(x, *self.scalars)
        return getattr(F, self.name)(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PostOp) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.name, *self.scalars, self.algorithm))

    def __repr__(self) -> str:
        return self.name + (f"{tuple(self.scalars)}" if self.scalars else "")


class _Layer(nn.Module):
    """A layer with weights and their packed copies."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, dense_module: nn.Module, activation: PostOp | None) -> None:
        super().__init__()
        weight, bias = dense_module.weight, dense_module.bias
        self.register_buffer("weight", weight.detach())
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.activation = activation
        self.training = dense_module.training
        self._packed: dict[Any, Tensor] = {}
        self._packed_from: Any = None

    def _identity(self) -> Any:
        """A value that changes when the weights change."""
        weight = self.weight
        version = 0 if weight.is_inference() else weight._version
        return (version, weight.data_ptr(), weight.dtype)

    def _packed_for(self, shape: Any, pack: Callable[[Any], Tensor]) -> Tensor:
        identity = self._identity()
        if identity != self._packed_from:
            self._packed, self._packed_from = {}, identity
        packed = self._packed.get(shape)
        if packed is None:
            if len(self._packed) >= MAX_PACKED:
                return next(iter(self._packed.values()))
            with torch.no_grad():
                packed = self._packed[shape] = pack(shape)
        return packed

    def _runs_packed(self, x: Tensor) -> bool:
        """Whether oneDNN's operators can compute it; they do not compute gradients."""
        return (
            x.dtype == self.weight.dtype
            and _computes(x.dtype)
            and x.device.type == "cpu"
            and not (x.requires_grad and torch.is_grad_enabled())
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._packed, self._packed_from = {}, None
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": {}, "_packed_from": None}


class MkldnnConv2d(_Layer):
    """A ``Conv2d``, then the sum or product with a second input, then an activation.

    Input ``(N, C, H, W)`` in float32, bfloat16 or float16; results are in channels-last format. Opaque
    tensors (``x.to_mkldnn()``) give opaque tensors. Cases that oneDNN does not support (gradients, other
    dtypes and devices, a second input of another shape than the result) run on plain operators.

    Args:
        dense_module: the convolution. Its weights are shared, not copied.
        dtype: dtype of the weights; None to keep theirs.
        activation: the activation, if there is one.
        binary: "add" or "mul" if there is a second input.
    """

    def __init__(
        self,
        dense_module: nn.Conv2d,
        dtype: torch.dtype | None = None,
        *,
        activation: PostOp | None = None,
        binary: str | None = None,
    ) -> None:
        super().__init__(dense_module, activation)
        padding = _symmetric_padding(dense_module)
        if padding is None:
            raise ValueError(f"the padding of {dense_module} is none that oneDNN knows")
        if dtype is not None and dtype != self.weight.dtype:
            self.weight = self.weight.to(dtype)
        self.padding = padding
        self.stride = list(dense_module.stride)
        self.dilation = list(dense_module.dilation)
        self.groups = dense_module.groups
        self.binary = binary

    def _geometry(self) -> tuple[list[int], list[int], list[int], int]:
        return self.padding, self.stride, self.dilation, self.groups

    def _pack(self, shape: torch.Size) -> Tensor:
        return torch.ops.mkldnn._reorder_convolution_weight(
            self.weight, *self._geometry(), list(shape)
        )

    def forward(self, input: Tensor, other: Any = None) -> Tensor:
        if input.is_mkldnn:
            return self._opaque(input)
        if input.dim() != 4 or not self._runs_packed(input):
            return self._plain(input, other)
        if self.binary is not None and not self._fits(input, other):
            return self._plain(input, other)
        weight = self._packed_for(input.shape, self._pack)
        post = self.activation
        if self.binary is None:
            if post is None:
                return torch.ops.mkldnn._convolution_pointwise(
                    input, weight, self.bias, *self._geometry(), "none", [], ""
                )
            return torch.ops.mkldnn._convolution_pointwise(
                input,
                weight,
                self.bias,
                *self._geometry(),
                post.attribute,
                post.scalars,
                post.algorithm,
            )
        return torch.ops.mkldnn._convolution_pointwise.binary(
            input,
            other,
            weight,
            self.bias,
            *self._geometry(),
            self.binary,
            1.0,
            None if post is None else post.attribute,
            [],
            "",
        )

    def _fits(self, input: Tensor, other: Any) -> bool:
        """Whether the second input has the shape of the result."""
        if not isinstance(other, Tensor) or other.dtype != input.dtype or other.dim() != 4:
            return False
        if other.requires_grad and torch.is_grad_enabled():
            return False
        batch, channels, *sizes = other.shape
        if batch != input.shape[0] or channels != self.weight.shape[0]:
            return False
        for axis in (0, 1):
            reach = self.dilation[axis] * (self.weight.shape[axis + 2] - 1) + 1
            padded = input.shape[axis + 2] + 2 * self.padding[axis]
            if sizes[axis] != (padded - reach) // self.stride[axis] + 1:
                return False
        return True

    def _plain(self, input: Tensor, other: Any) -> Tensor:
        padding, stride, dilation, groups = self._geometry()
        out = F.conv2d(input, self.weight, self.bias, stride, padding, dilation, groups)
        if self.binary is not None:
            out = out + other if self.binary == "add" else out * other
        return out if self.activation is None else self.activation(out)

    def _opaque(self, input: Tensor) -> Tensor:
        if self.binary is not None or self.activation is not None:
            raise RuntimeError("fused convolutions take dense tensors: call to_dense() first")
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            self.weight.to_mkldnn(), *self._geometry()
        )
        bias = torch.zeros(self.weight.shape[0]) if self.bias is None else self.bias
        return torch.mkldnn_convolution(input, packed, bias.to_mkldnn(), *self._geometry())

    def extra_repr(self) -> str:
        out, per_group, *kernel = self.weight.shape
        text = f"{per_group * self.groups}, {out}, kernel_size={tuple(kernel)}"
        text += f", stride={tuple(self.stride)}, padding={tuple(self.padding)}"
        for name, plain in (("dilation", [1, 1]), ("groups", 1)):
            if getattr(self, name) != plain:
                text += f", {name}={getattr(self, name)}"
        if self.binary is not None:
            text += f", binary={self.binary}"
        return text if self.activation is None else f"{text}, activation={self.activation}"


class MkldnnLinear(_Layer):
    """A ``Linear``, then an activation.

    Input ``(*, in_features)``. Opaque tensors (``x.to_mkldnn()``) give opaque tensors.

    Args:
        dense_module: the layer. Its weights are shared, not copied.
        dtype: dtype of the weights; None to keep theirs.
        activation: the activation, if there is one.
    """

    def __init__(
        self,
        dense_module: nn.Linear,
        dtype: torch.dtype | None = None,
        *,
        activation: PostOp | None = None,
    ) -> None:
        super().__init__(dense_module, activation)
        if dtype is not None and dtype != self.weight.dtype:
            self.weight = self.weight.to(dtype)

    def _pack_mkl(self, rows: int) -> Tensor:
        return torch.ops.mkl._mkl_reorder_linear_weight(self.weight, rows)

    def _pack(self, rows: int) -> Tensor:
        return torch.ops.mkldnn._reorder_linear_weight(self.weight, rows)

    def forward(self, input: Tensor) -> Tensor:
        if input.is_mkldnn:
            return self._opaque(input)
        rows = math.prod(input.shape[:-1])
        dtype, post = self.weight.dtype, self.activation
        if (
            not self._runs_packed(input)
            or (rows < MIN_ROWS and dtype != torch.bfloat16)
            or input.dim() < 2
            or rows == 0
            or (dtype == torch.float32 and not torch._C.has_mkl)
        ):
            out = F.linear(input, self.weight, self.bias)
            return out if post is None else post(out)
        if dtype == torch.float32:
            packed = self._packed_for(rows, self._pack_mkl)
            out = torch.ops.mkl._mkl_linear(input, packed, self.weight, self.bias, rows)
            return out if post is None else post(out)
        packed = self._packed_for(rows, self._pack)
        if post is None:
            return torch.ops.mkldnn._linear_pointwise(input, packed, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise(
            input, packed, self.bias, post.attribute, post.scalars, post.algorithm
        )

    def _opaque(self, input: Tensor) -> Tensor:
        if self.activation is not None:
            raise RuntimeError("fused layers take dense tensors: call to_dense() first")
        bias = torch.zeros(self.weight.shape[0]) if self.bias is None else self.bias
        return torch._C._nn.mkldnn_linear(input, self.weight.to_mkldnn(), bias.to_mkldnn())

    def extra_repr(self) -> str:
        out_features, in_features = self.weight.shape
        text = f"{in_features}, {out_features}, bias={self.bias is not None}"
        return text if self.activation is None else f"{text}, activation={self.activation}"


class MkldnnBatchNorm(nn.Module):
    """A batch norm in evaluation, for dense tensors and opaque ones.

    Raises:
        AssertionError: the batch norm is in training mode or has no running statistics.
    """

    def __init__(self, dense_module: nn.Module) -> None:
        super().__init__()
        if dense_module.training:
            raise AssertionError("Only support eval mode batchnorm for mkldnn path now")
        if dense_module.running_mean is None or dense_module.running_var is None:
            raise AssertionError("Only support track_running_stats=True for mkldnn path now")
        self.training = False
        self.eps = dense_module.eps
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(dense_module, name)
            self.register_buffer(name, None if value is None else value.detach())

    def forward(self, input: Tensor) -> Tensor:
        parameters = [self.weight, self.bias, self.running_mean, self.running_var]
        if input.is_mkldnn:
            ones = torch.ones_like(self.running_mean)
            weight = ones if self.weight is None else self.weight
            bias = torch.zeros_like(ones) if self.bias is None else self.bias
            parameters = [
                value.to_mkldnn() for value in (weight, bias, self.running_mean, self.running_var)
            ]
        return torch.batch_norm(input, *parameters, False, 0.0, self.eps, False)

    def extra_repr(self) -> str:
        return f"{self.running_mean.shape[0]}, eps={self.eps}"


#: Constructors of modules that run on oneDNN, by class: called with the module and a dtype or None.
mkldnn_map: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.Conv2d: MkldnnConv2d,
    nn.Linear: MkldnnLinear,
    nn.BatchNorm2d: lambda module, _: MkldnnBatchNorm(module),
}


def _symmetric_padding(conv: nn.Conv2d) -> list[int] | None:
    """Zero padding on each side of both axes; None if the sides differ or padding is not with zeros."""
    if conv.padding_mode != "zeros":
        return None
    if conv.padding == "valid":
        return [0, 0]
    if conv.padding == "same":
        totals = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return None if any(t % 2 for t in totals) else [t // 2 for t in totals]
    return list(conv.padding)


@functools.cache
def _computes(dtype: torch.dtype) -> bool:
    """Whether oneDNN supports ``dtype`` on this machine."""
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    return dtype == torch.float32


def unfit(module: nn.Module) -> str | None:
    """The reason why a module cannot run on oneDNN here; None if it can, or has no weights."""
    weight = module._parameters.get("weight")
    if weight is None:
        return None
    if type(weight) is not nn.Parameter or weight.layout != torch.strided:
        return f"its weight is a {type(weight).__name__} with layout {weight.layout}"
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}"
    if not torch.backends.mkldnn.is_available():
        return "this PyTorch has no oneDNN"
    if not _computes(weight.dtype):
        return f"its weight is {weight.dtype}, which oneDNN does not compute on this machine"
    if type(module) is nn.Conv2d and _symmetric_padding(module) is None:
        return f"its padding is {module.padding}, mode {module.padding_mode}"
    return None


def matches_module_pattern(
    pattern: Iterable[type], node: Node, modules: dict[str, torch.nn.Module]
) -> bool:
    """Whether the first argument of ``node``, then ``node`` itself, call modules of the two classes of
    ``pattern``."""
    if not node.args:
        return False
    for expected, called in zip(pattern, (node.args[0], node), strict=False):
        if not isinstance(called, Node) or called.op != "call_module":
            return False
        if type(modules.get(called.target)) is not expected:
            return False
    return True


def replace_node_module(
    node: Node, modules: dict[str, torch.nn.Module], new_module: torch.nn.Module
) -> None:
    """Replace the module that ``node`` calls by ``new_module``, in its parent and in ``modules``, which maps
    qualified names to modules.

    Raises:
        AssertionError: the target of ``node`` is not a name.
    """
    if not isinstance(node.target, str):
        raise AssertionError(f"Expected str target, got {type(node.target)}")
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def modules_to_mkldnn(
    nodes: list[Node], modules: dict[str, nn.Module]
) -> dict[nn.Module, nn.Module]:
    """Replace modules that ``nodes`` call by modules that run on oneDNN, if there are any.

    They take dense and opaque tensors.

    Returns:
        The replaced modules, by the new ones.
    """
    old_modules: dict[nn.Module, nn.Module] = {}
    for node in nodes:
        if node.op != "call_module":
            continue
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected str target, got {type(node.target)}")
        module = modules[node.target]
        make = mkldnn_map.get(type(module))
        if make is not None:
            new_module = make(module, None)
            old_modules[new_module] = module
            replace_node_module(node, modules, new_module)
    return old_modules


def reset_modules(
    nodes: Iterable[Node],
    modules: dict[str, nn.Module],
    old_modules: dict[nn.Module, nn.Module],
) -> None:
    """Undo :func:`modules_to_mkldnn` for the modules that ``nodes`` call."""
    for node in nodes:
        if node.op != "call_module":
            continue
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected str target, got {type(node.target)}")
        before = old_modules.get(modules[node.target])
        if before is not None:
            replace_node_module(node, modules, before)
