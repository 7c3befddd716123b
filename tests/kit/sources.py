"""Load a module from source text, once for each implementation."""

import itertools
import linecache
import sys
from types import ModuleType
from typing import Any

_numbers = itertools.count()


def load_source(source: str, fx: Any, name: str = "program_module") -> ModuleType:
    """Run ``source`` as a module whose global ``fx`` is the implementation.

    Top-level code of a module, such as ``fx.wrap``, can be tested under both implementations in this way. The
    module has the same name under both.
    """
    path = f"<{name}-{next(_numbers)}>"
    module = ModuleType(name)
    module.__file__ = path
    module.__dict__["fx"] = fx
    sys.modules[name] = module
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), module.__dict__)
    return module
