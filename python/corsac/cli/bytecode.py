"""``corsac bytecode``."""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from corsac.bytecode import Bytecode, code_info, dis
from corsac.cli.failure import Failure, first_line
from corsac.cli.json_output import print_json


def run(options: argparse.Namespace) -> bool:
    """Print the instructions, or the fields, of a code object; the file is not run."""
    code = _code(options.function)
    if options.json:
        print_json({**code_info(code).to_dict(), "instructions": _instructions(code)})
    elif options.info:
        print(code_info(code))
    else:
        text = io.StringIO()
        dis(code, file=text, depth=options.depth)
        print(text.getvalue(), end="")
    return True


def _code(subject: str) -> CodeType:
    """The code object of ``FILE``, ``FILE:function`` or ``module:function``."""
    place, _, function = subject.replace(".<locals>", "").partition(":")
    module = _compiled(place)
    if not function:
        return module
    known = dict(_inner(module, ""))
    if function in known:
        return known[function]
    near = difflib.get_close_matches(function, [it for it in known if "<" not in it], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise Failure(f"{place} has no function or class {function!r}{hint}")


def _inner(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    """The functions and classes in ``code`` by qualified name, without ``<locals>``; the last one of each
    name."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            name = prefix + const.co_name
            yield name, const
            yield from _inner(const, f"{name}.")


def _compiled(place: str) -> CodeType:
    """The code of a file or a module, compiled and not run."""
    path = Path(place)
    if path.suffix != ".py":
        path = _source_of(place)
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise Failure(f"{place}: {error.strerror or error}".lower()) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Failure(f"{path} does not compile: {first_line(error)}") from error


def _source_of(module: str) -> Path:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        spec = None
    origin = spec.origin if spec is not None else None
    if origin == "frozen":
        # Modules that the interpreter has in itself, such as os, have a file, too.
        origin = getattr(spec.loader_state, "filename", None)
    if origin is None or not origin.endswith(".py"):
        raise Failure(
            f"there is no module {module!r} with a source here or on the Python path"
            + (" (a file needs its .py)" if Path(f"{module}.py").exists() else "")
        )
    return Path(origin)


def _instructions(code: CodeType) -> list[dict[str, object]]:
    return [
        {
            "offset": it.offset,
            "opname": it.opname,
            "arg": it.arg,
            "argrepr": it.argrepr,
            "line": it.line_number,
            "label": it.label,
        }
        for it in Bytecode(code)
    ]
