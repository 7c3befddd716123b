"""Signatures of PyTorch operators and normal forms of calls to them.

The schemas are PyTorch's, and so are the functions that read them.
"""

from torch.fx.operator_schemas import (
    ArgsKwargsPair,
    _args_kwargs_to_normalized_args_kwargs,
    _torchscript_schema_to_signature,
    _torchscript_type_to_python_type,
    check_for_mutable_operation,
    create_type_hint,
    get_signature_for_torch_op,
    normalize_function,
    normalize_module,
    type_matches,
)

__all__ = [
    "ArgsKwargsPair",
    "_args_kwargs_to_normalized_args_kwargs",
    "_torchscript_schema_to_signature",
    "_torchscript_type_to_python_type",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]
