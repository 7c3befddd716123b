"""Cache of facts about compiled programs, shared between processes.

Off unless ``CORSAC_CACHE_DIR`` names a folder, which is made if it does not exist. ``CORSAC_CACHE_LIMIT`` is its
largest size (``64M``). docs/engine.md describes its contents and benefits.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corsac import _core

__all__ = ["CacheInfo", "CacheWarning", "clear", "info"]

#: Environment variables for the folder and its largest size.
FOLDER, LIMIT = "CORSAC_CACHE_DIR", "CORSAC_CACHE_LIMIT"


class CacheWarning(UserWarning):
    """Compiled programs are not cached, for the reason in the message. Everything else works."""


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Contents of the cache, and its use by this process.

    Attributes:
        folder: the folder; None if there is no cache.
        limit_bytes: largest size of all entries.
        entries: number of entries.
        bytes: their size on the disk.
        found: number of programs that this process has found in it.
        missed: number of programs that it has not found, and compiled and measured itself.
    """

    folder: str | None = None
    limit_bytes: int = 0
    entries: int = 0
    bytes: int = 0
    found: int = 0
    missed: int = 0

    def __str__(self) -> str:
        if self.folder is None:
            return f"compiled programs are not kept: {FOLDER} names no folder that can be used"
        return (
            f"{self.folder}: {self.entries:,} entries, {self.bytes:,} of {self.limit_bytes:,} bytes; "
            f"in this process, {self.found} found and {self.missed} not"
        )


class Cache:
    """The cache folder, with the counts of this process."""

    def __init__(self, path: str, limit: str | None) -> None:
        self.folder: _core.CacheFolder | None = None
        self.path = path = os.path.abspath(os.path.expanduser(path))
        self.found = self.missed = 0
        self._writes = True
        try:
            self.folder = _core.CacheFolder(path, limit)
        except (OSError, ValueError) as error:
            _warn(error)

    def get(self, facts: Sequence[tuple[str, str]]) -> tuple[str, dict[str, float]] | None:
        return None if self.folder is None else self.folder.get(facts)

    def knows(self, facts: Sequence[tuple[str, str]], program: str) -> bool:
        """Whether ``program`` is the cached one for these facts; if not, it is stored."""
        known = self.get(facts)
        if known is not None and known[0] == program:
            self.found += 1
            return True
        self.missed += 1
        self.put(facts, program, {})
        return False

    def put(
        self, facts: Sequence[tuple[str, str]], program: str, seconds: Mapping[str, float]
    ) -> None:
        if self.folder is None or not self._writes:
            return
        try:
            self.folder.put(facts, program, seconds)
        except OSError as error:
            # Warn once, and do not try again.
            self._writes = False
            _warn(error)


def _warn(error: Exception) -> None:
    warnings.warn(f"compiled programs are not kept: {error}", CacheWarning, stacklevel=2)


_caches: dict[tuple[str, str | None], Cache] = {}


def current() -> Cache | None:
    """The cache that the environment names; None if it names none."""
    path = os.environ.get(FOLDER)
    if not path:
        return None
    limit = os.environ.get(LIMIT) or None
    cache = _caches.get((path, limit))
    if cache is None:
        cache = _caches.setdefault((path, limit), Cache(path, limit))
    return cache


def info() -> CacheInfo:
    """Contents of the cache.

    Raises:
        OSError: the folder cannot be listed.
    """
    cache = current()
    if cache is None or cache.folder is None:
        return CacheInfo()
    entries, size = cache.folder.contents()
    own = CacheInfo(cache.path, cache.folder.limit_bytes, entries, size)
    return replace(own, found=cache.found, missed=cache.missed)


def clear() -> int:
    """Remove all entries, also those of other processes, and return their number.

    Programs that this process has compiled stay in memory.

    Raises:
        OSError: the folder cannot be listed, or an entry cannot be removed.
    """
    cache = current()
    return 0 if cache is None or cache.folder is None else cache.folder.clear()


def digest(value: Any) -> str:
    """Hash of a value, to represent a long list among facts."""
    return hashlib.sha256(str(value).encode()).hexdigest()


def surroundings() -> list[tuple[str, str]]:
    """Facts that times of a program depend on, besides the program, the processor and the version of corsac."""
    import torch

    backends = torch.backends
    built = os.stat(_core.__file__)
    facts: dict[str, Any] = {
        # Development builds share one version number.
        "build": f"{built.st_size} bytes, {built.st_mtime_ns}",
        "torch": torch.__version__,
        "torch_processor": backends.cpu.get_cpu_capability(),
        "processors": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "corsac_threads": os.environ.get("CORSAC_NUM_THREADS", ""),
        "mkldnn": backends.mkldnn.enabled,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    return [(name, str(value)) for name, value in facts.items()]
