"""The description of PyTorch's own operators, as in ``torch.ao.quantization.backend_config.native``."""

from corsac.quantization.backend_config import _backends
from corsac.quantization.backend_config._backends import (
    get_native_backend_config,
    get_native_backend_config_dict,
    get_test_only_legacy_native_backend_config,
    get_test_only_legacy_native_backend_config_dict,
)

__all__ = [
    "default_dynamic_float16_dtype_config",
    "default_dynamic_int8_dtype_config",
    "default_op_fp16_dtype_config",
    "default_op_quint8_dtype_config",
    "get_native_backend_config",
    "get_native_backend_config_dict",
    "get_test_only_legacy_native_backend_config",
    "get_test_only_legacy_native_backend_config_dict",
    "input_output_only_quint8_dtype_config",
    "weight_only_quint4x2_dtype_config",
    "weight_only_quint8_dtype_config",
    "weighted_op_quint8_dtype_config",
]

weighted_op_quint8_dtype_config = _backends.WEIGHTED
default_op_quint8_dtype_config = _backends.PLAIN
default_op_fp16_dtype_config = _backends.FLOAT16
default_dynamic_int8_dtype_config = _backends.DYNAMIC
default_dynamic_float16_dtype_config = _backends.DYNAMIC_FLOAT16
input_output_only_quint8_dtype_config = _backends.REAL_WEIGHT
weight_only_quint8_dtype_config = _backends.EMBEDDING
weight_only_quint4x2_dtype_config = _backends.EMBEDDING_4_BIT
