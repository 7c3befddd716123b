"""Reading and writing safetensors files with PyTorch alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch


def read_safetensors(
    path: str | os.PathLike[str],
    names: Iterable[str] | Callable[[Collection[str]], Iterable[str]] | None = None,
    ranges: Callable[[str, Sequence[int]], tuple[int, Sequence[tuple[int, int]]] | None]
    | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file: those of ``names``, which may be chosen from the names that it has, or all. No
    others are read.

    ``ranges`` takes a name and a shape, and returns a dimension with the starts and lengths of the ranges along it that
    are read, one after the other, or None for the whole tensor.

    Raises:
        ValueError: if it is not a safetensors file, or damaged.
        KeyError: if it has no tensor of a name.
    """
    dtypes = {
        "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
        "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
        "F32": "float32", "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
        "F8_E5M2": "float8_e5m2",
    }  # fmt: skip
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        begin = 8 + int.from_bytes(file.read(8), "little")
        if size < 8 or begin > size:
            raise ValueError(f"{path} is no safetensors file: its header is longer than the file")
        try:
            header = json.loads(file.read(begin - 8))
            entries = {
                name: (
                    getattr(torch, dtypes[entry["dtype"]]),
                    entry["shape"],
                    entry["data_offsets"],
                )
                for name, entry in header.items()
                if name != "__metadata__"
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{path} is no safetensors file: {reason}") from error
        tensors = {}
        if callable(names):
            names = names(entries.keys())
        for name in entries if names is None else names:
            if name not in entries:
                raise KeyError(f"{path} has no tensor {name}")
            dtype, shape, offsets = entries[name]
            numbers = [*shape, *offsets] if isinstance(shape, list) else [None]
            fits = all(type(number) is int and number >= 0 for number in numbers)
            fits = fits and len(offsets) == 2 and begin + offsets[1] <= size
            if not fits or offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{path} is damaged: tensor {name} does not fit its place")
            taken = None if ranges is None else ranges(name, shape)
            if taken is None:
                spans = [(0, offsets[1] - offsets[0])]
            else:
                dim, parts = taken
                inner = math.prod(shape[dim + 1 :]) * dtype.itemsize
                spans = [
                    ((row * shape[dim] + first) * inner, length * inner)
                    for row in range(math.prod(shape[:dim]))
                    for first, length in parts
                ]
                shape = [*shape[:dim], sum(length for _, length in parts), *shape[dim + 1 :]]
            data, at = bytearray(sum(length for _, length in spans)), 0
            for start, length in spans:
                file.seek(begin + offsets[0] + start)
                stop = at + length
                while at < stop:
                    count = file.readinto(memoryview(data)[at:stop])
                    if not count:
                        raise ValueError(f"{path} is damaged: it ends within tensor {name}")
                    at += count
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            tensors[name] = flat.reshape(shape)
    return tensors


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write ``tensors`` to a safetensors file, which replaces an old one only when complete.

    Raises:
        TypeError: if a tensor has an element type or a layout that the format does not support.
    """
    names = {
        torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16",
        torch.uint16: "U16", torch.int32: "I32", torch.uint32: "U32", torch.int64: "I64",
        torch.uint64: "U64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32",
        torch.float64: "F64", torch.complex64: "C64", torch.float8_e4m3fn: "F8_E4M3",
        torch.float8_e5m2: "F8_E5M2",
    }  # fmt: skip
    header, end = {}, 0
    # Larger elements first, as the format asks for alignment.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in names or tensor.layout != torch.strided or tensor.is_meta:
            kind = f"{tensor.layout}, {tensor.dtype}, on {tensor.device.type}"
            raise TypeError(f"{name}: a safetensors file cannot hold such a tensor ({kind})")
        start, end = end, end + tensor.numel() * tensor.dtype.itemsize
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = f"{os.fspath(path)}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                flat = tensors[name].detach().cpu().contiguous().resolve_conj().resolve_neg()
                file.write(flat.reshape(-1).view(torch.uint8).numpy())
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
