"""Smaller graphs with the same fault; see :func:`corsac.minify` and docs/minifier.md."""

from corsac.minifier._backend_fails import BackendFails
from corsac.minifier._case import Case
from corsac.minifier._fault import Fails, Fault
from corsac.minifier._minify import Minified, NoFault, minify
from corsac.minifier._script import show

__all__ = ["BackendFails", "Case", "Fails", "Fault", "Minified", "NoFault", "minify", "show"]
