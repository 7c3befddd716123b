"""Writes functions and backends as source code for a script."""

from __future__ import annotations

import ast
import inspect
import site
import sys
import sysconfig
import textwrap
import types
from pathlib import Path
from typing import Any

from corsac.backends._fallback import Fallback
from corsac.backends._registry import lookup_backend, registered
from corsac.minifier._backend_fails import BackendFails
from corsac.minifier._fault import Fails


class Source:
    """Statements that a script needs before its expressions.

    Attributes:
        imports: import statements, in order, each once.
        definitions: definitions by name, in order of use.
    """

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.definitions: dict[str, str] = {}

    def expression(self, fails: Fails) -> str:
        """``fails`` as an expression of the script.

        Raises:
            ValueError: it cannot be written as source code, and why.
        """
        if isinstance(fails, BackendFails):
            self.imports["from corsac.minifier import BackendFails"] = None
            return f"BackendFails({fails.arguments(self._backend(fails.backend))})"
        return self._function(fails)

    def _backend(self, backend: Any) -> str:
        if isinstance(backend, str):
            own = registered(backend)
            if own is None:
                return repr(backend).replace("'", '"')
            backend = own
        if isinstance(backend, Fallback):
            self.imports["from corsac.backends import fallback"] = None
            inner = ", ".join(self._backend(own) for _, own in backend.backends)
            return f"fallback([{inner}])"
        if isinstance(backend, types.FunctionType | type):
            return self._function(backend)
        name = getattr(backend, "name", None)
        if isinstance(name, str) and registered(name) is None:
            try:
                known = lookup_backend(name)
            except ValueError:
                known = None
            if known is backend or (known is not None and type(known) is type(backend)):
                return f'"{name}"'
        found = _variable(backend)
        if found is None:
            raise ValueError(f"the backend is a {type(backend).__name__} without a name of its own")
        return self._imported(*found)

    def _function(self, function: Any) -> str:
        name = getattr(function, "__name__", type(function).__name__)
        if not isinstance(function, types.FunctionType | type) or not name.isidentifier():
            raise ValueError(f"{name} is no function that is defined by its name")
        module = sys.modules.get(function.__module__)
        if module is not None and _is_installed(module) and function.__qualname__ == name:
            return self._imported(module.__name__, name)
        try:
            self._define(function)
        except ValueError:
            if module is None or getattr(module, name, None) is not function:
                raise
            return self._imported(module.__name__, name)
        return name

    def _imported(self, module: str, name: str) -> str:
        if module == "__main__":
            raise ValueError(f"{name} is a value of the program itself")
        loaded = sys.modules[module]
        if not _is_installed(loaded):
            folder = Path(getattr(loaded, "__file__", None) or ".").resolve().parent
            for _ in module.split(".")[1:]:
                folder = folder.parent
            self.imports[f'sys.path.insert(0, "{folder}")'] = None
        self.imports[f"from {module} import {name}"] = None
        return name

    def _define(self, defined: Any) -> None:
        """Add a function or class, and the globals and closure variables that it uses."""
        name = defined.__name__
        try:
            source = textwrap.dedent(inspect.getsource(defined)).rstrip()
            names = _names(source)
        except (OSError, TypeError, SyntaxError) as error:
            raise ValueError(f"the source of {name} is not known") from error
        around = dict(vars(sys.modules[defined.__module__]))
        if isinstance(defined, types.FunctionType):
            around |= inspect.getclosurevars(defined).nonlocals
        elif defined.__qualname__ != name:
            raise ValueError(f"{name} is a class that is defined in a function")
        self.definitions[name] = ""
        for used in names:
            if used not in self.definitions and used in around:
                self._use(name, used, around[used], defined.__module__)
        # Definitions that it uses come first.
        del self.definitions[name]
        self.definitions[name] = source

    def _use(self, by: str, used: str, value: Any, module: str) -> None:
        if isinstance(value, types.ModuleType):
            whole = value.__name__
            self.imports[f"import {whole}" if whole == used else f"import {whole} as {used}"] = None
        elif isinstance(value, types.FunctionType | type) and value.__module__ == module:
            self._define(value)
        elif hasattr(value, "__module__") and hasattr(value, "__qualname__"):
            renamed = "" if value.__qualname__ == used else f" as {used}"
            self.imports[f"from {value.__module__} import {value.__qualname__}{renamed}"] = None
        elif value is None or isinstance(value, bool | int | float | str):
            self.definitions[used] = f"{used} = {value!r}"
        else:
            raise ValueError(f"{by} uses {used}, a {type(value).__name__}")


def _names(source: str) -> list[str]:
    """Names used in a definition, each once."""
    nodes = ast.walk(ast.parse(source))
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name)))


def _is_installed(module: types.ModuleType) -> bool:
    """Whether other programs can import the module too."""
    if module.__name__.partition(".")[0] in ("corsac", "torch"):
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ != "__main__"
    folders = {*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()}
    return any(Path(file).is_relative_to(folder) for folder in folders)


def _variable(value: Any) -> tuple[str, str] | None:
    """Module and name of a variable that holds this value."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name, own in list(names.items()):
            if own is value and name.isidentifier() and module.__name__ != "__main__":
                return module.__name__, name
    return None
