"""Parameters, buffers and constants of an archive."""

from __future__ import annotations

import math
from typing import Any

import torch

from corsac.pt2._archive import Archive, Pt2ImportError

#: Element types by their numbers in archives.
DTYPES = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16,
    7: torch.float32, 8: torch.float64, 9: torch.complex32, 10: torch.complex64, 11: torch.complex128,
    12: torch.bool, 13: torch.bfloat16, 28: torch.uint16, 29: torch.float8_e4m3fn,
    30: torch.float8_e5m2, 31: torch.float8_e4m3fnuz, 32: torch.float8_e5m2fnuz,
    33: torch.float8_e8m0fnu, 34: torch.uint32, 35: torch.uint64,
}  # fmt: skip
_STRIDED = 7
# Bytes of a tensor beyond those of its elements in the file, where strides are 0.
_REPEATED = 2**24


class Weights:
    """The tensors of a program, by their names. What is one tensor in the program is one here."""

    def __init__(self, archive: Archive, model: str) -> None:
        self._archive = archive
        self._payloads: dict[str, tuple[str, dict[str, Any]]] = {}
        for kind in ("weights", "constants"):
            part = f"data/{kind}/{model}_{kind}_config.json"
            if archive.has(part):
                for name, payload in archive.json(part)["config"].items():
                    self._payloads[name] = f"data/{kind}", payload
        self._storages: dict[tuple[str, str], torch.Tensor] = {}
        self._tensors: dict[Any, torch.Tensor] = {}

    def tensor(self, name: str, *, is_parameter: bool = False) -> torch.Tensor:
        """The parameter or tensor with this name."""
        if name not in self._payloads:
            raise Pt2ImportError(f"there is no tensor {name!r} in the archive")
        folder, payload = self._payloads[name]
        meta = payload["tensor_meta"]
        if payload["use_pickle"] or meta is None:
            raise Pt2ImportError(f"{name!r} is an object of a class, which only pickle reads")
        path = payload["path_name"]
        sizes, strides = _numbers(meta["sizes"]), _numbers(meta["strides"])
        (offset,) = _numbers([meta["storage_offset"]])
        key = (folder, path, meta["dtype"], sizes, strides, offset, is_parameter)
        if key not in self._tensors:
            if meta["layout"] != _STRIDED or meta["dtype"] not in DTYPES:
                raise Pt2ImportError(f"{name!r} is a sparse tensor, or of an unknown type")
            found = _view(
                self._storage(folder, path), DTYPES[meta["dtype"]], sizes, strides, offset
            )
            if is_parameter:
                found = torch.nn.Parameter(found, requires_grad=bool(meta["requires_grad"]))
            self._tensors[key] = found
        return self._tensors[key]

    def _storage(self, folder: str, path: Any) -> torch.Tensor:
        key = (folder, path)
        if key not in self._storages:
            self._storages[key] = self._archive.storage(folder, path)
        return self._storages[key]


def _numbers(sizes: Any) -> tuple[int, ...]:
    found = tuple(own.get("as_int") for own in sizes)
    if not all(type(own) is int and 0 <= own < 2**62 for own in found):
        raise Pt2ImportError(f"a tensor with the sizes, strides or offset {sizes!r:.200}")
    return found


def _view(
    storage: torch.Tensor,
    dtype: torch.dtype,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
) -> torch.Tensor:
    """Part of a storage as a tensor."""
    stored, count = storage.numel() // dtype.itemsize, math.prod(sizes)
    if len(sizes) != len(strides) or len(sizes) > 64:
        raise Pt2ImportError(f"a tensor of shape {list(sizes)} with strides {list(strides)}")
    if not count:
        return torch.empty(sizes, dtype=dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last >= stored or count > stored + _REPEATED:
        raise Pt2ImportError(
            f"{storage.numel()} bytes for a tensor of shape {list(sizes)} and {dtype} with strides {list(strides)}"
        )
    whole = storage[: stored * dtype.itemsize].view(dtype)
    return whole.as_strided(sizes, strides, offset)


__all__ = ["DTYPES", "Weights"]
