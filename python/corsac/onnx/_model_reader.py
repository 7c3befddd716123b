"""Reads ONNX models from files, and tensors from models. Nothing is allocated before its size is checked."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corsac.onnx._types import ELEMENT_TYPES, Unsupported

#: A protobuf message has at most 2 GiB.
_LARGEST = 2**31
_DTYPES = {number: dtype for dtype, number in ELEMENT_TYPES.items()}
_DTYPES |= {
    4: torch.uint16, 12: torch.uint32, 13: torch.uint64, 14: torch.complex64, 15: torch.complex128,
    17: torch.float8_e4m3fn, 18: torch.float8_e4m3fnuz, 19: torch.float8_e5m2,
    20: torch.float8_e5m2fnuz, 21: torch.uint8, 22: torch.int8, 24: torch.float8_e8m0fnu,
    25: torch.uint8, 26: torch.int8,
}  # fmt: skip
#: Bits of integers of which a byte holds several, the first in the lowest bits, by their numbers of ONNX.
FEW_BITS = {21: 4, 22: 4, 25: 2, 26: 2}
_FIELDS = {
    1: "float_data",
    11: "double_data",
    7: "int64_data",
    12: "uint64_data",
    13: "uint64_data",
}


class OnnxImportError(ValueError):
    """An ONNX model cannot be read; the message names the node and the reason."""


def dtype_of(number: int) -> torch.dtype:
    """The dtype with this number in ONNX; integers of fewer than 8 bits are stored with 8."""
    if number not in _DTYPES:
        import onnx

        known = dict(
            zip(onnx.TensorProto.DataType.values(), onnx.TensorProto.DataType.keys(), strict=True)
        )
        name = known.get(number, number)
        raise Unsupported(f"tensors of element type {str(name).lower()}")
    return _DTYPES[number]


def read_model(source: Any) -> tuple[Any, Path | None]:
    """The message of a model, and the folder of the file; ``source`` is a path, bytes or a message."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        return source, None
    folder = None
    name = "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        folder, name = path.parent, str(path)
        size = path.stat().st_size
        if size > _LARGEST:
            raise OnnxImportError(f"{path}: a file of {size} bytes, expected at most {_LARGEST}")
        data = path.read_bytes()
    else:
        raise TypeError(
            f"an ONNX model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}"
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # of protobuf, whose class depends on its version
        raise OnnxImportError(f"{name}: this is no ONNX model ({error})") from error
    if not model.HasField("graph") or not model.opset_import:
        raise OnnxImportError(f"{name}: this is no ONNX model: it has no graph or no operator set")
    return model, folder


def tensor_of(proto: Any, folder: Path | None) -> torch.Tensor:
    """The tensor in a message."""
    dtype = dtype_of(proto.data_type)
    dims = tuple(proto.dims)
    if any(size < 0 for size in dims):
        raise Unsupported(f"a tensor of shape {list(dims)}")
    count = math.prod(dims)
    bits = FEW_BITS.get(proto.data_type)
    size_bytes = count * dtype.itemsize if bits is None else -(-count * bits // 8)
    if proto.data_location == 1:
        data = _external(proto, folder, size_bytes)
    elif proto.HasField("raw_data"):
        data = proto.raw_data
        if len(data) != size_bytes:
            raise Unsupported(
                f"{len(data)} bytes for a tensor of shape {list(dims)}, expected {size_bytes}"
            )
    else:
        return _listed(proto, dtype, dims, count)
    if not count:
        return torch.empty(dims, dtype=dtype)
    # A copy: torch warns about memory that it may not write to.
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    if bits is not None:
        return _integers(flat, bits, dtype, dims)
    return flat.view(dtype).reshape(dims)


def _listed(proto: Any, dtype: torch.dtype, dims: tuple[int, ...], count: int) -> torch.Tensor:
    """A tensor whose elements are in a field for its type."""
    field = _FIELDS.get(proto.data_type, "int32_data")
    if dtype.is_complex:
        field = "float_data" if dtype == torch.complex64 else "double_data"
    values = getattr(proto, field)
    bits = FEW_BITS.get(proto.data_type)
    expected = count * (2 if dtype.is_complex else 1) if bits is None else -(-count * bits // 8)
    if len(values) != expected:
        raise Unsupported(
            f"{len(values)} elements for a tensor of shape {list(dims)}, expected {expected}"
        )
    if bits is not None:
        flat = torch.from_numpy(np.asarray(values, dtype=np.int64).astype(np.uint8))
        return _integers(flat, bits, dtype, dims)
    if dtype.is_complex:
        real = torch.float32 if dtype == torch.complex64 else torch.float64
        return torch.view_as_complex(torch.tensor(values, dtype=real).reshape(*dims, 2))
    if dtype.is_floating_point and field == "int32_data":
        # Bits of types with 16 and 8.
        width = {2: np.uint16, 1: np.uint8}[dtype.itemsize]
        raw = np.asarray(values, dtype=np.int64).astype(width)
        return torch.from_numpy(raw).view(dtype).reshape(dims)
    return torch.tensor(list(values), dtype=dtype).reshape(dims)


def unpacked(data: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers of a few bits in bytes, the first in the lowest."""
    parts = [(data >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)


def _integers(
    packed: torch.Tensor, bits: int, dtype: torch.dtype, dims: tuple[int, ...]
) -> torch.Tensor:
    flat = unpacked(packed, bits)[: math.prod(dims)].reshape(dims).clone()
    if dtype == torch.uint8:
        return flat
    sign = 2 ** (bits - 1)
    return ((flat ^ sign).to(torch.int8)) - sign


def _external(proto: Any, folder: Path | None, size_bytes: int) -> bytes:
    """Bytes of a file beside the model."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise Unsupported(f"elements in the file {location!r}: give the path of the model")
    base = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(base / location))
    if not location or os.path.isabs(location) or not path.is_relative_to(base):
        raise Unsupported(f"elements in the file {location!r}, which is not in the model's folder")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size_bytes))
    except ValueError as error:
        raise Unsupported(f"elements in {location!r} at a place that is no number") from error
    if not path.is_file():
        raise Unsupported(f"elements in {location!r}: there is no such file")
    size = path.stat().st_size
    if length != size_bytes or offset < 0 or offset + length > size:
        raise Unsupported(
            f"{length} bytes from {offset} on of {location!r}, which has {size}; expected {size_bytes} bytes"
        )
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)
