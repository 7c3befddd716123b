"""Loads models by references such as ``module:callable``."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.fx

from corsac._capture.exported_program import converted, with_plain_inputs
from corsac._messages.near_names import did_you_mean
from corsac.cli.failure import Failure, first_line, kind
from corsac.cli.weights import SUFFIXES as WEIGHTS

#: Suffixes of model files that corsac reads or writes.
FILES = (".safetensors", ".onnx", ".pt2", ".toml", ".json", ".graph", ".txt")
#: Suffixes of model files of other programs.
FOREIGN = (*WEIGHTS, ".yaml", ".yml", ".tflite", ".gguf", ".h5")
#: Advice for files that hold no model, by suffix.
_HINTS = dict.fromkeys(WEIGHTS, "; --weights reads weights")


def load(reference: str, keywords: dict[str, Any]) -> torch.nn.Module:
    """Load the model that ``reference`` names, in evaluation mode.

    ``reference`` is ``module:callable``, ``path/to/file.py:callable`` or a file with one class. A callable is
    called with ``keywords``; an ``nn.Module`` or a program of ``torch.export`` is used as it is.
    """
    if reference.endswith(".py") and Path(reference).is_file():
        names = [f"{reference}:{name}" for name in _classes(Path(reference))]
        if len(names) != 1:
            named = " or ".join(names) or f"{reference}:callable"
            raise Failure(f"which model of {reference}? Write {named}")
        reference = names[0]
    if reference.endswith((".py", "/")) and not Path(reference).exists():
        raise Failure(f"{reference}: no such {'file' if reference.endswith('.py') else 'folder'}")
    place, colon, attribute = reference.rpartition(":")
    suffix = Path(reference).suffix
    if not colon and (Path(reference).is_file() or suffix.lower() in FOREIGN):
        raise Failure(
            f"{reference}: expected a file *.py, *.safetensors, *.onnx, *.pt2, *.toml, *.json, *.graph or *.txt, "
            f"not *{suffix}{_HINTS.get(suffix.lower(), '')}"
        )
    if not colon or not place or not attribute:
        raise Failure(
            f"{reference!r} does not name a model: write module:callable or file.py:callable, "
            "such as torchvision.models:resnet50"
        )
    found = look_up(reference)
    if isinstance(found, (torch.nn.Module, torch.export.ExportedProgram)):
        if keywords:
            raise Failure(f"{reference} is a model already, so --kwargs has nothing to go to")
        return _evaluated(found)
    if not callable(found):
        raise Failure(f"{reference} is {kind(found)}, neither a model nor a callable")
    try:
        model = found(**keywords)
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in keywords.items())
        missing = isinstance(error, TypeError) and "missing" in str(error)
        hint = "; --kwargs KEY=VALUE gives an argument" if missing else ""
        raise Failure(f"calling {attribute}({given}) failed: {first_line(error)}{hint}") from error
    if not isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        raise Failure(f"{reference} returned {kind(model)}, not a torch.nn.Module")
    return _evaluated(model)


def _evaluated(model: torch.nn.Module | torch.export.ExportedProgram) -> torch.nn.Module:
    """Put a model into evaluation mode; convert programs of torch.export and graph modules of torch.fx."""
    if isinstance(model, torch.export.ExportedProgram | torch.fx.GraphModule):
        model = with_plain_inputs(converted(model))
    if "_modules" not in vars(model):
        raise Failure(
            f"{type(model).__name__}.__init__ does not call super().__init__(): no torch.nn.Module"
        )
    return model.eval()


def _classes(path: Path) -> list[str]:
    """Names of the classes in a file, without running it."""
    try:
        statements = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return []
    return [statement.name for statement in statements if isinstance(statement, ast.ClassDef)]


def keywords(given: list[str]) -> dict[str, Any]:
    """Values of ``--kwargs``: JSON objects and ``key=value`` pairs; later ones take precedence."""
    result: dict[str, Any] = {}
    for text in given:
        if text.lstrip().startswith("{"):
            try:
                result.update(json.loads(text))
            except json.JSONDecodeError as error:
                raise Failure(f"--kwargs {text}: not valid JSON: {error}") from error
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise Failure(f"--kwargs {text}: write a JSON object or key=value")
        try:
            result[key] = json.loads(value)
        except json.JSONDecodeError:
            result[key] = {"True": True, "False": False, "None": None}.get(value, value)
    return result


def look_up(reference: str) -> Any:
    """The object that ``module:attribute`` or ``path/to/file.py:attribute`` names."""
    place, _, attribute = reference.rpartition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    return _attribute(module, place, attribute)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Failure(f"{path}: no such file")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Failure(f"{path} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    # As if the file were run: it can import its neighbours, and its classes can be pickled.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise Failure(f"running {path} failed: {first_line(error)}") from error
    return module


def _from_name(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Failure(
                f"there is no module {name!r} here or on the Python path"
                + (" (a file needs its .py)" if Path(f"{name}.py").exists() else "")
            ) from error
        raise Failure(f"importing {name} failed: {first_line(error)}") from error
    except Exception as error:
        raise Failure(f"importing {name} failed: {first_line(error)}") from error


def _attribute(module: ModuleType, place: str, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            hint = did_you_mean(part, dir(found), after="; ")
            if not hint and found is module and place.endswith(".py"):
                names = _classes(Path(place))
                hint = f"; its classes are {', '.join(names)}" if names else ""
            raise Failure(f"{place} has no {attribute!r}{hint}") from error
    return found
