"""Smaller graphs with the same fault; see :func:`corsac.minify` and docs/backends.md."""

from corsac.minifier._case import Case, fault
from corsac.minifier._minify import Minified, minify

__all__ = ["Case", "Minified", "fault", "minify"]
