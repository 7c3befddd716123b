"""Compiles generated source text and keeps it readable for tracebacks.

Python shows source lines in tracebacks, ``inspect.getsource`` and TorchScript by asking
:mod:`linecache`. Generated functions register their text there for as long as the function
object lives: when the last reference to the function goes, so does the text.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from typing import Any

#: Prefix of all generated file names; tools recognise FX code by it.
GENERATED_PREFIX = "<eval_with_key>"

_serial = itertools.count()


class _SourceLoader:
    """Provides the text to linecache (the ``get_source`` part of PEP 302)."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def add(self, key: str, source: str) -> None:
        self._sources[key] = source
        linecache.cache.pop(key, None)
        linecache.lazycache(key, {"__name__": key, "__loader__": self})

    def discard(self, key: str, source: str) -> None:
        # The key may belong to a newer text by now (metadata file names are hashes of the content); only the
        # text that was registered is removed.
        if self._sources.get(key) is source:
            del self._sources[key]
            linecache.cache.pop(key, None)

    def get_source(self, name: str) -> str | None:
        return self._sources.get(name)

    def __len__(self) -> int:
        return len(self._sources)


_loader = _SourceLoader()


def _file_name(co_fields: dict[str, Any] | None) -> str:
    """The file name for a new text, with the traced function if ``co_fields`` has it."""
    if co_fields and "co_filename" in co_fields:
        if "co_firstlineno" not in co_fields or "co_name" not in co_fields:
            return co_fields["co_filename"]
        # For linecache a name that ends in ">", as "<lambda>" does, has no source text.
        function = co_fields["co_name"].strip("<>")
        origin = f" from {co_fields['co_filename']}:{co_fields['co_firstlineno']} in {function}"
    else:
        origin = ""
    return f"{GENERATED_PREFIX}.corsac.{next(_serial)}{origin}"


def is_generated(filename: str) -> bool:
    """Whether ``filename`` names generated code rather than a file."""
    return "eval_with_key" in filename


def _exec_with_source(
    src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> str:
    """Run ``src`` in ``globals`` and return the file name of its code objects."""
    if not isinstance(globals, dict):  # `exec` would run the code in this module
        raise TypeError(f"expected a dictionary of globals, got {type(globals).__name__}")
    key = _file_name(co_fields)
    _loader.add(key, src)
    try:
        # The generated code has its own future imports.
        exec(compile(src, key, "exec", dont_inherit=True), globals)
    except BaseException:
        _loader.discard(key, src)
        raise
    return key


def _method_from_src(
    method_name: str,
    src: str,
    globals: dict[str, Any],
    co_fields: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile ``src`` and return the function it defines as ``method_name``.

    ``globals`` is copied, never written to.
    """
    scope = globals.copy()
    key = _exec_with_source(src, scope, co_fields)
    fn = scope.pop(method_name)
    weakref.finalize(fn, _loader.discard, key, src).atexit = False
    return fn


def _forward_from_src(
    src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile ``src`` and return its ``forward``."""
    return _method_from_src("forward", src, globals, co_fields)
