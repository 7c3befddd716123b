"""Builds models from configurations."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from corsac import _core
from corsac.config._format import Format, format_of
from corsac.config._limits import Limits, Meter, TooLarge
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule

Allowed = Mapping[str, Callable[..., Any]]


def build(
    file: str | os.PathLike[str],
    *,
    text: str | None = None,
    format: Format | None = None,
    allow: Allowed | None = None,
    limits: Limits | None = None,
) -> GraphModule:
    """Build a model from a configuration.

    Args:
        file: the configuration: ``*.graph``, ``*.toml`` or ``*.json``. With ``text``, only its name in error
            messages.
        text: the text of the configuration, if it is in no file.
        format: "graph", "toml" or "json", if the file's suffix is none of these.
        allow: functions and module classes that the configuration may use besides modules of :mod:`torch.nn`
            and operators of torch, by name.
        limits: limits on the size of the model; see :class:`corsac.config.Limits`. By default, tensors may
            take 16 GiB. Each module is first constructed on the meta device, where tensors take no memory, so
            that nothing too large is ever allocated.

    The modules are constructed with the arguments in the configuration and have the weights of new modules:
    seed the generator before, or load a state dict afterwards.

    Raises:
        ConfigError: the text is no configuration, uses a name that is not allowed, a module rejects its
            arguments, or the model is too large; with file, line and column.
        OSError: the file cannot be read.
    """
    allowed = dict(allow or {})
    limits = limits or Limits()
    name = os.fspath(file)
    notation = format_of(file, format)
    content = Path(file).read_text(encoding="utf-8") if text is None else text
    graph = Graph()
    try:
        model, modules, tensors, inputs = _core.read_config(
            graph, content, notation, allowed, limits.nodes
        )
    except _core.ConfigError as error:
        raise _in_file(error, name) from None
    meter = Meter(limits)
    for path, class_name, args, kwargs, line in modules:
        with _located(name, line, f"module {path}: {class_name}: "):
            _measure(meter, class_name, _class(class_name, allowed), args, kwargs)
    for path, _, dtype, shape, _, line in tensors:
        with _located(name, line, f"{path}: "):
            meter.add_tensor(math.prod(shape) * dtype.itemsize)
    root = torch.nn.Module()
    for path, class_name, args, kwargs, line in modules:
        with _located(name, line, f"module {path}: {class_name}: "):
            module = _class(class_name, allowed)(*args, **kwargs)
        _place(root, path, module, name, line)
    for path, is_parameter, dtype, shape, initial, line in tensors:
        with _located(name, line, f"{path}: "):
            value = _tensor(dtype, shape, initial)
            if is_parameter:
                value = torch.nn.Parameter(value, value.is_floating_point())
        _place(root, path, value, name, line)
    gm = GraphModule(root, graph, class_name=model or "Model")
    _note_inputs(gm, inputs)
    return gm


@contextmanager
def _located(file: str, line: int, what: str) -> Iterator[None]:
    """Add file and line to errors."""
    try:
        yield
    except Exception as error:
        raise _error(file, line, f"{what}{error}") from error


def _measure(
    meter: Meter, name: str, construct: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Count the tensors and modules that a constructor makes."""
    try:
        meter.try_out(lambda: construct(*args, **kwargs))
    except TooLarge:
        raise
    except Exception:
        # A class that the caller allows may be unable to run on meta tensors, and is the caller's
        # responsibility.
        if getattr(torch.nn, name.removeprefix("torch.nn."), None) is construct:
            raise


def _class(name: str, allowed: Allowed) -> Callable[..., Any]:
    """The constructor of modules of the class ``name``."""
    found = allowed.get(name)
    if found is None:
        found = getattr(torch.nn, name.removeprefix("torch.nn."), None)
        if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
            raise ValueError(f"torch.nn has no module class {name}")
    return found


def _place(root: torch.nn.Module, path: str, value: Any, file: str, line: int) -> None:
    """Make ``value`` the attribute ``path`` of ``root``, adding the modules in between."""
    *parents, last = path.split(".")
    owner = root
    for parent in parents:
        if parent not in owner._modules:
            owner.add_module(parent, torch.nn.Module())
        owner = owner._modules[parent]
    if hasattr(owner, last):
        raise _error(file, line, f"{path} is the name of something else")
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        owner.register_buffer(last, value)
    elif isinstance(value, torch.nn.Module):
        owner.add_module(last, value)
    elif isinstance(value, torch.nn.Parameter):
        owner.register_parameter(last, value)
    else:
        raise _error(file, line, f"{path}: expected a module, got a {type(value).__qualname__}")


def _tensor(dtype: torch.dtype, shape: list[int], initial: str | list[Any]) -> torch.Tensor:
    if isinstance(initial, list):
        return torch.tensor(initial, dtype=dtype).reshape(shape)
    if initial == "normal":
        return torch.randn(shape, dtype=dtype)
    return (torch.ones if initial == "ones" else torch.zeros)(shape, dtype=dtype)


def _note_inputs(
    gm: GraphModule, inputs: list[tuple[str, torch.dtype | None, list[int | None] | None]]
) -> None:
    """Write the declared types of the inputs to their placeholders' metadata."""
    declared = {name: (dtype, shape) for name, dtype, shape in inputs if dtype is not None}
    for node in gm.graph.find_nodes(op="placeholder"):
        if node.target in declared:
            dtype, shape = declared[node.target]
            node.meta["declared_input"] = {"dtype": dtype, "shape": tuple(shape)}


def _error(file: str, line: int, message: str) -> _core.ConfigError:
    error = _core.ConfigError(f"{file}, line {line}: {message}")
    error.line, error.column = line, 1
    return error


def _in_file(error: _core.ConfigError, file: str) -> _core.ConfigError:
    located = _core.ConfigError(f"{file}, {error}")
    located.line, located.column = error.line, error.column
    return located
