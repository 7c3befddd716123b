"""A case as a Python program of its own."""

from __future__ import annotations

import ast
import base64
import inspect
import subprocess
import sys
import tempfile
import textwrap
import types
import zlib
from pathlib import Path
from typing import Any

import torch

from corsac.minifier._case import Case, Fails

#: Inputs of more elements are not written out.
LARGEST = 200_000
#: Inputs of more elements are written as compressed bytes.
READABLE = 64

_SCRIPT = '''\
"""A graph with a fault: {title}"""

import base64
import sys
import zlib
from math import inf, nan

import torch

{imports}
from corsac.fx import Graph, GraphModule
from corsac.minifier import fault

{source}
GRAPH = r"""
{graph}
"""

root = torch.nn.Module()
{attributes}module = GraphModule(root, Graph.parse(GRAPH))
inputs = [
{inputs}]

found = fault(module, inputs, {fails})
print("fault:", found)
sys.exit(0 if found is None else 1)
'''


def script_of(case: Case, fails: Fails, signature: str) -> str:
    """A program that shows the fault of ``case``; it ends with status 1 if the fault is there.

    Raises:
        ValueError: a part of it cannot be written down; the text says which.
    """
    graph = case.module.graph
    if graph.find_nodes(op="call_module"):
        names = ", ".join(str(node.target) for node in graph.find_nodes(op="call_module"))
        raise ValueError(f"the graph calls modules: {names}")
    attributes = {}
    for node in graph.find_nodes(op="get_attr"):
        name = str(node.target)
        if "." in name:
            raise ValueError(f"the graph reads {name} of a module")
        attributes[name] = _written(getattr(case.module, name), name)
    given = [_written(own, f"input {number}") for number, own in enumerate(case.inputs)]
    imports, sources = _sources(fails)
    return _SCRIPT.format(
        title=signature.replace("\\", "\\\\").replace('"', "'"),
        imports="\n".join(imports) or "import corsac",
        source="\n\n".join([*sources, ""]),
        graph=str(graph).strip(),
        attributes="".join(f"root.{name} = {text}\n" for name, text in attributes.items()),
        inputs="".join(f"    {text},\n" for text in given),
        fails=getattr(fails, "__name__", "fails"),
    )


def run_script(script: str, signature: str, timeout: float) -> str | None:
    """Run a program of :func:`script_of` in a process of its own: None if it shows the fault."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fault.py"
        path.write_text(script)
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it takes longer than {timeout:g} s"
    if done.returncode == 1 and f"fault: {signature}\n" in done.stdout:
        return None
    said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    return f"expected status 1 and {signature!r}, got {done.returncode} and {said!r}"


def _written(value: Any, place: str) -> str:
    """``value`` as an expression."""
    if not isinstance(value, torch.Tensor):
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        raise ValueError(f"{place} is a {type(value).__name__}")
    own, wants = value.detach(), ".requires_grad_()" if value.requires_grad else ""
    if own.numel() > LARGEST or own.device.type != "cpu" or own.layout is not torch.strided:
        raise ValueError(f"{place} is a tensor of {own.numel()} elements on {own.device}")
    shape, dtype = tuple(own.shape), own.dtype
    if own.numel() and bool((own == 1).all()):
        return f"torch.ones({shape}, dtype={dtype}){wants}"
    if bool((own == 0).all()):
        return f"torch.zeros({shape}, dtype={dtype}){wants}"
    if own.numel() <= READABLE:
        return f"torch.tensor({own.tolist()}, dtype={dtype}){wants}"
    data = own.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    unpacked = f'bytearray(zlib.decompress(base64.b64decode("{text}")))'
    return f"torch.frombuffer({unpacked}, dtype={dtype}).reshape({shape}){wants}"


def _sources(fails: Any) -> tuple[list[str], list[str]]:
    """The imports and definitions that a function needs, its own last."""
    imports: dict[str, None] = {"import corsac": None}
    sources: dict[str, str] = {}
    _add(fails, imports, sources)
    for own in ("import base64", "import sys", "import torch", "import zlib"):
        imports.pop(own, None)
    return sorted(imports), list(sources.values())


def _add(defined: Any, imports: dict[str, None], sources: dict[str, str]) -> None:
    """Add a function or class, and what of its module it uses."""
    name = getattr(defined, "__name__", type(defined).__name__)
    if not isinstance(defined, types.FunctionType | type) or defined.__qualname__ != name:
        raise ValueError(f"{name} is no function at the top level of a module")
    try:
        source = textwrap.dedent(inspect.getsource(defined)).rstrip()
        names = _names(source)
    except (OSError, TypeError, SyntaxError) as error:
        raise ValueError(f"the source of {name} is not known") from error
    if not name.isidentifier():
        raise ValueError(f"{name} is no function at the top level of a module")
    around = vars(sys.modules[defined.__module__])
    sources[name] = ""
    for used in names:
        if used in sources or used not in around:
            continue
        value = around[used]
        if isinstance(value, types.ModuleType):
            whole = value.__name__
            imports[f"import {whole}" if whole == used else f"import {whole} as {used}"] = None
        elif getattr(value, "__module__", None) == defined.__module__ and isinstance(
            value, types.FunctionType | type
        ):
            _add(value, imports, sources)
        elif hasattr(value, "__module__") and hasattr(value, "__qualname__"):
            imports[f"from {value.__module__} import {value.__qualname__} as {used}"] = None
        elif isinstance(value, bool | int | float | str):
            sources[used] = f"{used} = {value!r}"
        else:
            raise ValueError(f"{name} uses {used}, a {type(value).__name__}")
    # What it uses comes first.
    del sources[name]
    sources[name] = source


def _names(source: str) -> list[str]:
    """The names in a definition, each once."""
    nodes = ast.walk(ast.parse(source))
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name)))
