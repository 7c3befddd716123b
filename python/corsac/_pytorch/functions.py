"""Functions of PyTorch as nodes of a graph: their targets, and functions that cannot be nodes."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from corsac import _core

_Tensor = torch.Tensor


def getters(*names: str) -> Iterator[Any]:
    for name in names:
        found = getattr(_Tensor, name, None)
        if found is not None:
            yield found.__get__


#: Functions that return properties of a tensor that are the same in all calls that a graph is valid for.
METADATA = frozenset(
    [
        *getters("shape", "dtype", "device", "ndim", "layout", "itemsize", "nbytes", "names"),
        *getters("is_cpu", "is_cuda", "is_mps", "is_xpu", "is_xla", "is_hpu", "is_mtia", "is_ipu"),
        *getters("is_vulkan", "is_maia", "is_quantized", "is_sparse", "is_sparse_csr"),
        *getters("is_mkldnn", "is_nested"),
        _Tensor.size,
        _Tensor.dim,
        _Tensor.ndimension,
        _Tensor.numel,
        _Tensor.nelement,
        _Tensor.element_size,
        _Tensor.get_device,
        _Tensor.__len__,
        _Tensor.is_floating_point,
        _Tensor.is_complex,
        _Tensor.is_signed,
        torch.numel,
        torch.is_floating_point,
        torch.is_complex,
        torch.is_signed,
        torch.result_type,
    ]
)

#: Functions that return properties of a tensor that can differ between calls with the same types and sizes.
FORM = {
    own: own
    for own in (
        *getters("requires_grad", "is_leaf", "grad", "grad_fn", "retains_grad"),
        _Tensor.is_contiguous,
        _Tensor.stride,
        _Tensor.storage_offset,
        _Tensor.is_inference,
        _Tensor.is_conj,
        _Tensor.is_neg,
    )
}

#: Attributes that are tensors.
_VIEWS = {getattr(_Tensor, name).__get__: name for name in ("T", "mT", "H", "mH", "real", "imag")}
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_SHIFTS = ("lshift", "rshift", "xor")
_OTHERS = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem", "setitem")
#: Methods of tensors behind Python's operators, with the function of each; True if operands are swapped.
_OPERATORS: dict[str, tuple[Callable[..., Any], bool]] = {
    **{
        f"__{name}__": (getattr(operator, name), False)
        for name in (*_ARITHMETIC, *_SHIFTS, *_OTHERS)
    },
    **{f"__r{name}__": (getattr(operator, name), True) for name in (*_ARITHMETIC, *_SHIFTS)},
    **{f"__i{name}__": (getattr(operator, f"i{name}"), False) for name in _SHIFTS},
    "__and__": (operator.and_, False),
    "__or__": (operator.or_, False),
    "__div__": (operator.truediv, False),
    "__rand__": (operator.and_, True),
    "__ror__": (operator.or_, True),
    "__rdiv__": (operator.truediv, True),
    "__iand__": (operator.iand, False),
    "__ior__": (operator.ior, False),
    "__ipow__": (operator.ipow, False),
}
#: The same by method, since the name of some methods differs.
_METHODS = {
    getattr(_Tensor, name): found for name, found in _OPERATORS.items() if hasattr(_Tensor, name)
}
#: Functions that may write to running statistics, which their schemas do not declare.
NORMS = frozenset(["batch_norm", "instance_norm"])
#: Functions that change more than values: state that autograd, other threads or the caller can observe.
REFUSED = frozenset(
    [
        *("requires_grad_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook"),
        *("backward", "share_memory_", "pin_memory", "set_", "resize_", "resize_as_", "resize"),
        *("rename_", "rename", "refine_names", "align_to", "as_subclass", "new", "to_sparse"),
        *("map_", "map2_", "apply_", "cuda", "xpu", "ipu", "mtia", "hpu", "storage", "data_ptr"),
        *("untyped_storage", "module_load"),
    ]
)
#: Methods that only read values, or only return a tensor with the same memory.
_READERS = frozenset(
    [
        *(
            "__get__",
            "__bool__",
            "__int__",
            "__float__",
            "__complex__",
            "__index__",
            "__contains__",
        ),
        *("__len__", "__iter__", "__array__", "__repr__", "__format__", "__hash__"),
    ]
)
#: Functions that only return Python numbers that depend on values.
VALUES = frozenset(
    [
        _Tensor.item,
        _Tensor.tolist,
        _Tensor.__bool__,
        _Tensor.__int__,
        _Tensor.__float__,
        _Tensor.__complex__,
        _Tensor.__index__,
        _Tensor.__contains__,
        _Tensor.is_nonzero,
        _Tensor.equal,
        _Tensor.allclose,
        torch.is_nonzero,
        torch.equal,
        torch.allclose,
    ]
)
#: Types of arguments of nodes, besides tensors.
CONSTANTS = frozenset(
    [
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        type(Ellipsis),
    ]
)


def takes_statistics(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a norm only reads the given statistics, or has none; its schema does not declare that."""
    mean = args[1] if len(args) > 1 else kwargs.get("running_mean")
    if mean is None:
        return True
    if func is not torch.nn.functional.batch_norm:
        return False
    training = args[5] if len(args) > 5 else kwargs.get("training", False)
    return training is False


#: Operators on bits under the names of special methods, which graphs of ``torch.export`` have.
BITWISE = {
    getattr(getattr(torch.ops.aten, f"__{name}__"), kind): getattr(
        getattr(torch.ops.aten, f"bitwise_{name}"), kind
    )
    for name in ("and", "or", "xor")
    for kind in ("Tensor", "Scalar")
}


def target_of(func: Any, name: str) -> tuple[str, Any, bool] | None:
    """Opcode and target for a function, and whether its first two arguments are swapped; None if there is no target."""
    if func in _VIEWS:
        return "call_function", getattr, False
    found = _METHODS.get(func)
    if found is not None:
        return "call_function", *found
    if _is_special(func, name):
        return None
    if getattr(_Tensor, name, None) is func:
        return "call_method", name, False
    return "call_function", BITWISE.get(func, func), False


def _is_special(func: Any, name: str) -> bool:
    """Whether a function is a special method of Python; the effects of operators are in their schemas."""
    return name.startswith("__") and not isinstance(func, torch._ops.OpOverload)


def reads_values(func: Any) -> bool:
    """Whether a method of tensors returns their values to Python."""
    return getattr(func, "__name__", "") in _READERS


def is_sized_by_values(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the sizes of a function's result depend on values, although its operators have no tag for that."""
    if name == "tensor_split":
        return len(args) > 1 and isinstance(args[1], _Tensor)
    return name in ("_pack_padded_sequence", "_pad_packed_sequence")


def takes_type(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a call uses only dtype and sizes of its first argument."""
    return bool(args) and isinstance(args[0], _Tensor) and _reads_only_type(name)


@functools.cache
def _reads_only_type(name: str) -> bool:
    return "type" in _core.operator_classes("call_method", name)


def is_of_torch(function: Any) -> bool:
    """Whether a function is a part of PyTorch."""
    return (function.__module__ or "").partition(".")[0] == "torch"


def only_checks_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function that reads values, as ``F.gaussian_nll_loss`` does, reads them for errors alone: the type of what it
    gives follows from those of its arguments."""
    if type(func) is not types.FunctionType:
        return False
    try:
        return isinstance(_core.infer_type(func, args, kwargs), tuple)
    except _core.ShapeInferenceError:
        return False


def changes_more(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function may change something besides the writes of its operators."""
    name = getattr(func, "__name__", "")
    if _is_special(func, name):
        return func not in _METHODS and name not in _READERS
    return name in REFUSED or (name in NORMS and not takes_statistics(func, args, kwargs))


def name_of(func: Any) -> str:
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") in ("__get__", "__set__") and owner is not None:
        return f"Tensor.{owner.__name__}"
    name = getattr(func, "__qualname__", None) or str(func)
    # Functions of C, by their public names.
    return name.replace("TensorBase.", "Tensor.").replace("_VariableFunctionsClass.", "torch.")


def drops_between_layers(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a function is a recurrent layer with dropout between layers, which PyTorch's decomposition for autograd
    leaves out (``torch._decomp.decompositions._rnn_helper``)."""
    if name not in ("gru", "lstm", "rnn_tanh", "rnn_relu"):
        return False
    # In this order: has_biases, num_layers, dropout, train.
    at = next((number for number, own in enumerate(args) if type(own) is bool), None)
    return at is not None and bool(args[at + 1] > 1 and args[at + 2] and args[at + 3])


def global_state(trains: bool) -> tuple[Any, ...]:
    """Global state that PyTorch's functions depend on besides arguments and autocast; with ``trains`` also that of
    autograd."""
    of_autograd: tuple[Any, ...] = ()
    if trains:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        of_autograd = (torch.is_inference_mode_enabled(), hooks)
    return (
        *of_autograd,
        torch.get_default_dtype(),
        torch._C._len_torch_dispatch_stack(),
        torch._C._functorch.maybe_current_level(),
    )


__all__ = [
    "CONSTANTS",
    "FORM",
    "METADATA",
    "NORMS",
    "REFUSED",
    "VALUES",
    "changes_more",
    "drops_between_layers",
    "getters",
    "global_state",
    "is_of_torch",
    "is_sized_by_values",
    "name_of",
    "only_checks_values",
    "reads_values",
    "takes_statistics",
    "takes_type",
    "target_of",
]
