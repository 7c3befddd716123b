"""Backends: families of patterns, and the types that each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac.quantization._dtypes import qint8, quint4x2, quint8
from corsac.quantization.backend_config import _layers, _rows
from corsac.quantization.backend_config.backend_config import (
    BackendConfig,
    DTypeConfig,
    DTypeWithConstraints,
)

FLOAT = torch.float

# Types of input, output, weight and bias.
WEIGHTED = DTypeConfig(quint8, quint8, qint8, FLOAT)
PLAIN = DTypeConfig(quint8, quint8)
FLOAT16 = DTypeConfig(torch.float16, torch.float16, torch.float16, torch.float16)
DYNAMIC = DTypeConfig(quint8, FLOAT, qint8, FLOAT, is_dynamic=True)
DYNAMIC_FLOAT16 = DTypeConfig(torch.float16, FLOAT, torch.float16, FLOAT, is_dynamic=True)
# Layer norms keep a real weight.
REAL_WEIGHT = DTypeConfig(quint8, quint8, FLOAT, FLOAT)
EMBEDDING = DTypeConfig(FLOAT, FLOAT, quint8)
EMBEDDING_4_BIT = DTypeConfig(FLOAT, FLOAT, quint4x2)
EMBEDDING_SIGNED = DTypeConfig(FLOAT, FLOAT, qint8)
SIGNED_WEIGHTED = DTypeConfig(qint8, qint8, qint8, FLOAT)
SIGNED_PLAIN = DTypeConfig(qint8, qint8)
# XNNPACK: scales of at least 2**-12, weights without -128.
_ACTIVATION = DTypeWithConstraints(qint8, scale_min_lower_bound=2**-12)
_WEIGHT = DTypeWithConstraints(
    qint8, quant_min_lower_bound=-127, quant_max_upper_bound=127, scale_min_lower_bound=2**-12
)
XNNPACK_WEIGHTED = DTypeConfig(_ACTIVATION, _ACTIVATION, _WEIGHT, FLOAT)
XNNPACK_PLAIN = DTypeConfig(_ACTIVATION, _ACTIVATION)
XNNPACK_DYNAMIC = DTypeConfig(_ACTIVATION, FLOAT, _WEIGHT, FLOAT, is_dynamic=True)

Family = Callable[[list[DTypeConfig]], list[Any]]
Table = dict[Family, list[DTypeConfig]]


def _common(
    plain: list[DTypeConfig],
    weighted: list[DTypeConfig],
    *,
    binary: list[DTypeConfig] | None = None,
    fixed: list[DTypeConfig] | None = None,
    facts: bool = True,
    norm: bool = False,
    dynamic: list[DTypeConfig] | None = None,
    linear: list[DTypeConfig] | None = None,
    embedding: list[DTypeConfig] | None = None,
) -> Table:
    """The families that PyTorch's own backends have, in the order in which patterns are looked at."""
    dynamic = [DYNAMIC, DYNAMIC_FLOAT16] if dynamic is None else dynamic
    linear = weighted + dynamic if linear is None else linear
    binary = plain if binary is None else binary
    table: Table = {
        _layers.convolutions: weighted,
        _layers.linear: linear,
        _layers.fused_linear: linear,
        _rows.binary: binary,
        _rows.matmul: binary,
        _rows.cat: plain,
        _rows.default: plain,
        _rows.fixed: plain if fixed is None else fixed,
        _rows.sharing: plain,
    }
    if facts:
        table[_rows.tensor_facts] = plain
    table[_layers.batch_norm] = plain
    if norm:
        table[_rows.layer_norm] = [REAL_WEIGHT]
    table[_layers.recurrent] = dynamic
    table[_layers.embeddings] = [EMBEDDING, EMBEDDING_4_BIT] if embedding is None else embedding
    return table


_WITH_FLOAT16 = [PLAIN, FLOAT16]
_XNNPACK = [XNNPACK_PLAIN, PLAIN]
_EXECUTORCH_WEIGHTED = [XNNPACK_WEIGHTED, WEIGHTED]


def _between(table: Table, after: Family, more: Table) -> Table:
    """A table with rows after those of a family."""
    found: Table = {}
    for family, types in table.items():
        found[family] = types
        if family is after:
            found |= more
    return found


_NATIVE = _common([PLAIN], [WEIGHTED], norm=True)
_ONEDNN = _common(
    [PLAIN], [WEIGHTED], facts=False, norm=True, dynamic=[DYNAMIC], embedding=[EMBEDDING_SIGNED]
)

#: Families of patterns and their types, by backends.
BACKENDS: dict[str, Table] = {
    "native": _NATIVE,
    "_native_and_fp16": _NATIVE
    | {
        _layers.linear: [WEIGHTED, DYNAMIC, DYNAMIC_FLOAT16, FLOAT16],
        _layers.fused_linear: [WEIGHTED, DYNAMIC, DYNAMIC_FLOAT16, FLOAT16],
        _rows.binary: _WITH_FLOAT16,
        _rows.matmul: _WITH_FLOAT16,
        _rows.fixed: _WITH_FLOAT16,
        _rows.sharing: _WITH_FLOAT16,
    },
    "x86": _common([PLAIN], [WEIGHTED], binary=[WEIGHTED], fixed=[WEIGHTED]),
    "fbgemm": _common([PLAIN], [WEIGHTED]),
    "qnnpack": _common(_XNNPACK, _EXECUTORCH_WEIGHTED, facts=False),
    "onednn": _between(
        _between(_ONEDNN, _layers.convolutions, {_layers.convolution_sums: [WEIGHTED]}),
        _layers.fused_linear,
        {_layers.linear_activations: [WEIGHTED, DYNAMIC]},
    ),
    "tensorrt": {
        _layers.convolutions: [SIGNED_WEIGHTED],
        _rows.addmm: [SIGNED_WEIGHTED],
        _rows.cat: [SIGNED_PLAIN],
        _layers.linear: [SIGNED_WEIGHTED],
        _layers.fused_linear: [SIGNED_WEIGHTED],
        _rows.binary: [SIGNED_WEIGHTED],
        _rows.matmul: [SIGNED_WEIGHTED],
        _rows.sharing: [SIGNED_PLAIN],
        _rows.tensor_facts: [SIGNED_PLAIN],
    },
    "executorch": {
        _layers.linear: [*_EXECUTORCH_WEIGHTED, DYNAMIC, XNNPACK_DYNAMIC, DYNAMIC_FLOAT16],
        _layers.convolution_2d: _EXECUTORCH_WEIGHTED,
        _rows.executorch_binary: [XNNPACK_PLAIN, WEIGHTED],
        _rows.executorch_sharing: _XNNPACK,
        _layers.batch_norm_2d: _XNNPACK,
        _rows.executorch_cat: _XNNPACK,
        _layers.executorch_embeddings: [EMBEDDING],
    },
}


def backend_config(name: str) -> BackendConfig:
    """The description of a backend of :data:`BACKENDS`; each call makes a new one."""
    backend = BackendConfig(name)
    for family, types in BACKENDS[name].items():
        backend.set_backend_pattern_configs(family(list(types)))
    return backend


def get_native_backend_config() -> BackendConfig:
    """PyTorch's own operators, of FBGEMM and QNNPACK."""
    return backend_config("native")


def get_native_backend_config_dict() -> dict[str, Any]:
    return get_native_backend_config().to_dict()


def get_test_only_legacy_native_backend_config() -> BackendConfig:
    """PyTorch's own operators, and more of them in float16."""
    return backend_config("_native_and_fp16")


def get_test_only_legacy_native_backend_config_dict() -> dict[str, Any]:
    return get_test_only_legacy_native_backend_config().to_dict()


def get_x86_backend_config() -> BackendConfig:
    """x86 processors."""
    return backend_config("x86")


def get_fbgemm_backend_config() -> BackendConfig:
    """FBGEMM."""
    return backend_config("fbgemm")


def get_qnnpack_backend_config() -> BackendConfig:
    """QNNPACK and XNNPACK."""
    return backend_config("qnnpack")


def get_onednn_backend_config() -> BackendConfig:
    """oneDNN."""
    return backend_config("onednn")


def get_tensorrt_backend_config() -> BackendConfig:
    """TensorRT."""
    return backend_config("tensorrt")


def get_tensorrt_backend_config_dict() -> dict[str, Any]:
    return get_tensorrt_backend_config().to_dict()


def get_executorch_backend_config() -> BackendConfig:
    """ExecuTorch."""
    return backend_config("executorch")
