"""Writes crates/corsac-bytecode/tests/fixtures: the samples as compiled by each version of CPython.

    python scripts/generate_bytecode_fixtures.py PYTHON... [PYODIDE/package ...]

A PYTHON is the program of CPython 3.11 to 3.14. A folder is an unpacked npm package ``pyodide``, a
CPython in WebAssembly, which ``node`` runs: ``npm pack pyodide`` downloads it. With ``--library FILE``,
the functions of the standard library go to FILE instead, for the test ``the_library`` of the crate.

A fixture is a JSON list: opcodes with their effects on the stack, then code objects with the bytes, the stack
size and the text that ``dis`` of that version prints.
"""

from __future__ import annotations

import dis
import io
import json
import opcode
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import warnings

FOLDER = os.path.join("crates", "corsac-bytecode", "tests")

#: Arguments for which the stack effects are recorded.
ARGS = [0, 1, 2, 3, 4, 5, 8, 15, 255]

NODE = """
const { loadPyodide } = await import(process.argv[2] + "/pyodide.mjs");
const py = await loadPyodide({ indexURL: process.argv[2] + "/", stdout: console.log });
py.FS.mkdirTree("/host");
py.FS.mount(py.FS.filesystems.NODEFS, { root: process.cwd() }, "/host");
py.runPython(`import os, sys; os.chdir("/host"); sys.argv = ${process.argv[4]}`);
py.runPython((await import("fs")).readFileSync(process.argv[3], "utf8"));
"""


def opcodes() -> list:
    """The opcodes of the interpreter: number, name, has an argument, cache units, effects on the stack
    of each of `ARGS` without and with a jump."""
    specialised = getattr(opcode, "_specialized_opmap", None)
    if specialised is None:
        specialised = opcode._specialized_instructions
    caches = opcode._inline_cache_entries
    rows = []
    for name, number in sorted(dis.opmap.items(), key=lambda item: item[1]):
        if name in specialised or name.startswith("INSTRUMENTED") or number > 255:
            continue
        has_arg = number in dis.hasarg if hasattr(dis, "hasarg") else number >= dis.HAVE_ARGUMENT
        units = caches[number] if isinstance(caches, list) else caches.get(name, 0)
        effects = []
        for jump in (False, True):
            for arg in ARGS if has_arg else [None]:
                try:
                    effects.append(dis.stack_effect(number, arg, jump=jump))
                except ValueError:
                    effects.append(None)
        rows.append([number, name, has_arg, units, effects])
    return rows


def without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", " at 0x0", text)


def walk(code: types.CodeType):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from walk(const)


def parameter(code: types.CodeType, index: int) -> str:
    """The kind of a parameter that the checks need: those with a dot in their names are made by the compiler."""
    name = code.co_varnames[index] if index < code.co_argcount else ""
    if name == ".0":
        steps = list(dis.get_instructions(code))
        loads = [
            at for at, it in enumerate(steps) if "LOAD_FAST" in it.opname and it.argval == ".0"
        ]
        asynchronous = all(steps[at + 1].opname == "GET_ANEXT" for at in loads)
        return "async iterator" if asynchronous else "iterator"
    return {".defaults": "tuple", ".type_params": "tuple", ".kwdefaults": "dict"}.get(name, "")


def const_kind(value: object) -> list:
    """The kind of a constant, as the checks distinguish them."""
    if value is None:
        return ["none"]
    if type(value) is str:
        return ["str"]
    if type(value) is tuple:
        return ["tuple", len(value) if all(type(it) is str for it in value) else None]
    if isinstance(value, types.CodeType):
        slots = [parameter(value, index) for index in (0, 1)]
        return ["code", len(value.co_freevars), bool(value.co_flags & 0x20), slots]
    return ["other"]


def fields(code: types.CodeType) -> dict:
    text = io.StringIO()
    dis.dis(code, file=text, depth=0)
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    variable = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return {
        "version": f"3.{sys.version_info[1]}",
        "name": f"{code.co_filename}:{code.co_qualname}",
        "code": code.co_code.hex(),
        "exceptions": code.co_exceptiontable.hex(),
        "lines": code.co_linetable.hex(),
        "first_line": code.co_firstlineno,
        "flags": code.co_flags,
        "stack_size": code.co_stacksize,
        "parameters": code.co_argcount + code.co_kwonlyargcount + variable,
        "first_parameters": [parameter(code, index) for index in (0, 1)],
        "consts": [without_addresses(repr(const)) for const in code.co_consts],
        "kinds": [const_kind(const) for const in code.co_consts],
        "names": code.co_names,
        "locals": [*code.co_varnames, *cells, *code.co_freevars],
        "free": len(code.co_freevars),
        "text": without_addresses(text.getvalue()),
    }


def samples() -> str:
    """The samples that the running version can parse, and functions too long to be written out."""
    with open(os.path.join(FOLDER, "samples.py"), encoding="utf-8") as file:
        parts = re.split(r"^# from 3\.(\d+)$", file.read(), flags=re.MULTILINE)
    text = parts[0]
    for minor, part in zip(parts[1::2], parts[2::2]):  # noqa: B905
        if sys.version_info[1] >= int(minor):
            text += part
    items = ", ".join(f"n{number}" for number in range(270))
    return text + f"\n\ndef long(x):\n    while x:\n        x = {items}\n    return x\n"


def library_sources(root: str):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - {"site-packages", "__pycache__"})
        for name in sorted(files):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    yield os.path.relpath(os.path.join(folder, name), root), file.read()
    if root.endswith(".zip"):
        import zipfile

        with zipfile.ZipFile(root) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".py"):
                    yield name, archive.read(name)


def collect(target: str, library: bool) -> None:
    """Write the samples, or the standard library, as compiled by the running interpreter."""
    warnings.simplefilter("ignore")
    root = os.path.dirname(os.__file__)
    sources = library_sources(root) if library else [("samples.py", samples())]
    with open(target, "w", encoding="utf-8") as out:
        if not library:
            out.write(json.dumps(opcodes()) + "\n")
        for name, source in sources:
            try:
                code = compile(source, name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError):
                continue
            for each in walk(code):
                out.write(json.dumps(fields(each)) + "\n")


def main(arguments: list[str]) -> int:
    library = None
    if arguments[:1] == ["--library"]:
        library, arguments = arguments[1], arguments[2:]
    if not arguments:
        print(__doc__)
        return 2
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    for python in arguments:
        # In the current folder, the only one that a CPython in WebAssembly can access.
        target = tempfile.mktemp(dir=".")
        words = ["fixtures", "--collect", os.path.relpath(target), "library" if library else ""]
        if os.path.isdir(python):
            with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=".") as program:
                program.write(NODE)
                program.flush()
                command = [
                    "node",
                    program.name,
                    os.path.abspath(python),
                    __file__,
                    json.dumps(words),
                ]
                subprocess.run(command, check=True)
        else:
            subprocess.run([python, __file__, *words[1:]], check=True, env=environment)
        if library is not None:
            shutil.move(target, library)
        else:
            with open(target, encoding="utf-8") as file:
                version = json.loads(file.readlines()[1])["version"]
            os.replace(target, os.path.join(FOLDER, "fixtures", f"{version}.jsonl"))
            print(version)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--collect"]:
        collect(sys.argv[2], sys.argv[3] == "library")
    else:
        sys.exit(main(sys.argv[1:]))
