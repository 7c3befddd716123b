"""Packages of corsac import each other in one direction, in functions, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import corsac

FOLDER = Path(corsac.__file__).parent
#: Packages and modules, from the ground up. A module is of the longest name that it begins with; those of one line may
#: not import each other.
ORDER = """
_core _lazy _padded
_messages _pytorch bytecode cache
_native
fx
_models
passes
_capture
analysis
fx.passes config
_splitting
fx.experimental
quantization
onnx optimum
lowering
_drawing _engine
_files _training
generation pt2
backends
minifier
distributed
_compile
quantization.one_call
optimum.quantization optimum.parallelization
_dynamo
corsac
cli
__main__
"""
LEVELS = {name: level for level, line in enumerate(ORDER.split("\n")) for name in line.split()}
#: Imports that run up, by the importing module; this list only gets shorter.
UP = {
    # Methods that draw.
    "fx.graph": {"_drawing.pictures"},
    "fx.graph_module": {"_drawing.pictures"},
    # Backends are watched where the environment says so.
    "backends._watching": {"minifier._settings", "minifier._watch"},
}


def modules() -> dict[str, Path]:
    """The modules of the package, by their names without ``corsac.``; "corsac" is the package."""
    found = {"corsac": FOLDER / "__init__.py", "_core": FOLDER / "_core.pyi"}
    for path in FOLDER.rglob("*.py"):
        parts = path.relative_to(FOLDER).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


def imports_of(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of corsac that a module imports."""
    package = ["corsac", *([] if name == "corsac" else name.split("."))]
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            wanted = [own.name for own in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            wanted = [".".join([*base, own.name]) for own in node.names]
        else:
            continue
        for own in wanted:
            if own.split(".")[0] != "corsac":
                continue
            # Names that are no modules are of the module that defines them.
            own = own.removeprefix("corsac.")
            while own not in known and "." in own:
                own = own.rpartition(".")[0]
            yield own if own in known else "corsac"


def room_of(name: str) -> str:
    """The package or module of :data:`ORDER` that a module is of."""
    while name not in LEVELS:
        name = name.rpartition(".")[0]
    return name


def test_each_module_has_a_place_in_the_order():
    assert {name for name in modules() if name.split(".")[0] not in LEVELS} == set()


def test_imports_run_down():
    known = modules()
    up: dict[str, set[str]] = {}
    for name, path in known.items():
        room = room_of(name)
        # Names of the package itself are imported when they are asked for.
        if room in ("corsac", "_core"):
            continue
        for own in imports_of(name, path, known):
            target = room_of(own)
            if target != room and LEVELS[target] >= LEVELS[room]:
                up.setdefault(name, set()).add(own)
    assert up == UP
