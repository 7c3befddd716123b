"""``corsac minify``."""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch

from corsac.backends import UnknownBackend, lookup_backend
from corsac.cli.failure import Failure, check_file, first_line, kind, written
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.model import look_up
from corsac.cli.subject import captured
from corsac.fx import GraphModule
from corsac.lowering._backend import is_lowering_backend, name_of
from corsac.minifier import BackendFails, Minified, NoFault, minify

#: Names that a script of the minifier defines.
_NAMES = ("module", "inputs", "fails")
# The purpose of a model and its inputs, for error messages.
_PURPOSE = "looking for a fault"


def run(options: argparse.Namespace) -> bool:
    """Make a graph with a fault smaller; return whether a script shows the fault."""
    out = Path(options.out)
    check_file(options.out, (".py",))
    module, inputs, fails = _case(options)
    try:
        found = minify(
            module,
            inputs,
            fails,
            seconds=options.seconds,
            hang_seconds=options.hang_seconds,
            progress=not options.json,
        )
    except NoFault:
        _say(options, f"no fault of {_shown(fails)} was found", {"found": False})
        return False
    except ValueError as error:
        raise Failure(first_line(error)) from error
    written = _write(found, out)
    if options.json:
        print_json(_summary(found, written))
    else:
        print(found)
        print(f"written to {written}" if written else f"no script: {found.reason}")
    return found.verified


def _case(options: argparse.Namespace) -> tuple[GraphModule, list[Any], Any]:
    """The graph, its inputs, and the function that detects the fault."""
    path = Path(options.model)
    if path.suffix == ".py" and path.is_file():
        return _from_script(path)
    if options.backend is None:
        raise Failure("--backend NAME says which backend has the fault: engine, openvino, ...")
    backend = _backend(options.backend)
    module = captured(options.model, options).runnable(_PURPOSE)
    inputs = list(given_inputs(options.input, module, _PURPOSE))
    with accepted(), torch.no_grad():
        module(*copy.deepcopy(inputs))
    try:
        own = None if options.options is None else json.loads(options.options)
    except json.JSONDecodeError as error:
        raise Failure(f"--options {options.options}: not valid JSON: {error}") from error
    if own is not None and not isinstance(own, dict):
        raise Failure(f"--options {options.options}: a JSON object is needed, not {kind(own)}")
    return module, inputs, BackendFails(backend, options.look, own, options.tolerance)


def _backend(text: str) -> Any:
    """A backend by its name, or a function as ``file.py:function`` or ``module:function``."""
    try:
        lookup_backend(text)
    except UnknownBackend as error:
        if ":" not in text or text.startswith("torch:"):
            raise Failure(str(error)) from error
    else:
        return text
    backend = look_up(text)
    if not callable(backend) and not is_lowering_backend(backend):
        raise Failure(f"--backend {text} is {kind(backend)}, not a function")
    return backend


def _from_script(path: Path) -> tuple[GraphModule, list[Any], Any]:
    """The graph, inputs and function that a script of the minifier defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Failure(f"running {path} failed: {first_line(error)}") from error
    missing = [name for name in _NAMES if not hasattr(module, name)]
    if missing:
        raise Failure(
            f"{path} is no script of the minifier: it does not define {', '.join(missing)}; "
            "a model is given as file.py:callable"
        )
    return module.module, list(module.inputs), module.fails


def _write(found: Minified, out: Path) -> str | None:
    if found.script is None:
        return None
    with written(f"--out {out}"):
        found.save(out)
    return str(out)


def _shown(fails: Any) -> str:
    if isinstance(fails, BackendFails):
        return f"backend {name_of(fails.backend)}"
    return str(getattr(fails, "__name__", "this kind"))


def _say(options: argparse.Namespace, text: str, summary: dict[str, Any]) -> None:
    print_json(summary) if options.json else print(text)


def _summary(found: Minified, written: str | None) -> dict[str, Any]:
    return {
        "found": True,
        "signature": found.signature,
        "said": found.fault.text,
        "calls_before": found.before,
        "calls": found.calls,
        "tests": found.tests,
        "seconds": found.seconds,
        "finished": found.finished,
        "verified": found.verified,
        "reason": found.reason,
        "script": written,
        "graph": str(found.module.graph),
    }
