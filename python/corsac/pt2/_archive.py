"""Reads archives: zip files with parts that are not compressed. Nothing is allocated before its size is checked."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import torch

# Texts of JSON; a graph of 100,000 nodes has about 100 MiB.
_LARGEST_TEXT = 2**28
_FORMAT = "archive_format"
_MODEL = re.compile(r"models/([\w.-]+)\.json", re.ASCII)
_PART = re.compile(r"[\w.-]+", re.ASCII)


class Pt2ImportError(ValueError):
    """A program of ``torch.export`` cannot be read; the message names the node and the reason."""


@contextmanager
def opened(source: str | os.PathLike[str] | bytes) -> Iterator[Archive]:
    """The archive at a path, or in bytes."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield Archive("the program", io.BytesIO(source))
    elif isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            yield Archive(os.fspath(source), file)
    else:
        raise TypeError(f"a program is a path or bytes, not {type(source).__name__}")


class Archive:
    """An open archive.

    Attributes:
        name: its name for messages.
    """

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._size = file.seek(0, os.SEEK_END)
        # Parts that overlap would be more than the file.
        self._unread = self._size
        try:
            self._zip = zipfile.ZipFile(file)
        except Exception as error:  # zipfile has several for damaged files
            raise Pt2ImportError(f"{self.name}: this is no archive ({error})") from error
        names = self._zip.namelist()
        roots = [own.removesuffix(_FORMAT) for own in names if own.endswith(f"/{_FORMAT}")]
        if len(roots) != 1:
            raise Pt2ImportError(
                f"{self.name}: this is no archive of torch.export, or of a version before 2.8"
            )
        self._root = roots[0]
        self._parts = {own.removeprefix(self._root) for own in names if own.startswith(self._root)}
        if self._read(_FORMAT, 16).strip() != b"pt2":
            raise Pt2ImportError(f"{self.name}: this is no archive of torch.export")
        if "byteorder" in self._parts and self._read("byteorder", 16).strip() != b"little":
            raise Pt2ImportError(f"{self.name}: its numbers are not little-endian")

    def models(self) -> list[str]:
        """The names of the programs."""
        return sorted(found[1] for own in self._parts if (found := _MODEL.fullmatch(own)))

    def has(self, part: str) -> bool:
        return part in self._parts

    def json(self, part: str) -> Any:
        """The value in a part in JSON."""
        text = self._read(part, _LARGEST_TEXT)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Pt2ImportError(f"{self.name}: {part} is no JSON ({error})") from error

    def storage(self, folder: str, name: Any) -> torch.Tensor:
        """The bytes of a part."""
        if not isinstance(name, str) or not _PART.fullmatch(name):
            raise Pt2ImportError(f"{self.name}: {name!r} is no name of a part")
        info = self._checked(f"{folder}/{name}", self._size)
        result = torch.empty(info.file_size, dtype=torch.uint8)
        self._fill(info, memoryview(result.numpy()))
        return result

    def _read(self, part: str, most: int) -> bytes:
        info = self._checked(part, most)
        data = bytearray(info.file_size)
        self._fill(info, memoryview(data))
        return bytes(data)

    def _checked(self, part: str, most: int) -> zipfile.ZipInfo:
        if part not in self._parts:
            raise Pt2ImportError(f"{self.name}: there is no {part}")
        info = self._zip.getinfo(self._root + part)
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise Pt2ImportError(f"{self.name}: {part} is compressed or encrypted")
        if info.file_size > min(most, self._unread):
            raise Pt2ImportError(
                f"{self.name}: {part} has {info.file_size} bytes, expected at most {min(most, self._unread)}"
            )
        self._unread -= info.file_size
        return info

    def _fill(self, info: zipfile.ZipInfo, target: memoryview) -> None:
        try:
            with self._zip.open(info) as part:
                done = 0
                while done < len(target):
                    count = part.readinto(target[done : done + 2**24])
                    if not count:
                        break
                    done += count
                # The checksum is compared at the end.
                rest = part.read(1)
        except Exception as error:
            raise Pt2ImportError(f"{self.name}: {info.filename} is damaged ({error})") from error
        if done != len(target) or rest:
            raise Pt2ImportError(f"{self.name}: {info.filename} has {done} bytes")


__all__ = ["Archive", "Pt2ImportError", "opened"]
