"""Writes a graph module as Python source and weights, for ``--out``."""

from __future__ import annotations

import importlib
import inspect
import keyword
import math
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx.graph import _custom_builtins
from torch.package import sys_importer

from corsac._core import ConfigError
from corsac._files.safetensors import read_safetensors
from corsac.cli.failure import Failure
from corsac.config._describe import constructor_arguments
from corsac.fx import GraphModule
from corsac.fx.graph_module import _format_import_statement
from corsac.passes._replace_op import _has_hooks

#: The file with the weights, beside the source.
WEIGHTS = "weights.safetensors"


def place(
    root: torch.nn.Module,
    path: str,
    value: torch.nn.Module | torch.Tensor,
    persistent: bool = True,
) -> None:
    """Make ``value`` the attribute ``path`` of ``root``, adding the modules in between."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, torch.nn.Module())
        root = root._modules[parent]
    if isinstance(value, torch.nn.Module):
        root.add_module(name, value)
    elif isinstance(value, torch.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value, persistent)


def load_weights(
    root: torch.nn.Module, file: Path, prefix: str, shared: dict[str, str], frozen: set[str]
) -> None:
    """Load the tensors of ``root`` that have no data yet from ``file``.

    Names in the file begin with ``prefix``; tensors in ``shared`` have another tensor's name.
    """
    missing = {
        path: (shared.get(path, prefix + path), isinstance(tensor, torch.nn.Parameter))
        for tensors in (root.named_parameters, root.named_buffers)
        for path, tensor in tensors(remove_duplicate=False)
        if tensor.is_meta
    }
    stored = read_safetensors(file, {name for name, _ in missing.values()})
    parameters: dict[str, torch.nn.Parameter] = {}
    for path, (name, is_parameter) in missing.items():
        owner, _, attribute = path.rpartition(".")
        value = stored[name]
        if is_parameter:
            trained = name not in frozen and (value.is_floating_point() or value.is_complex())
            value = parameters.setdefault(name, torch.nn.Parameter(value, trained))
        setattr(root.get_submodule(owner), attribute, value)


@dataclass
class Source:
    """The text of ``module.py`` and the tensors that belong to it."""

    classes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    #: The name in the file of each tensor added so far.
    stored: dict[int, str] = field(default_factory=dict)
    #: The class of each graph module written so far.
    written: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        functions = "\n\n".join(
            inspect.getsource(function) for function in (read_safetensors, place, load_weights)
        )
        imports = "\n".join(sorted(set(self.imports.values())))
        classes = "\n\n".join(self.classes)
        return (
            f'"""Written by corsac. The weights are in {WEIGHTS}, beside this file."""\n\n'
            "from __future__ import annotations\n\n"
            "import json\nimport math\nimport os\nfrom collections.abc import Iterable\n"
            "from pathlib import Path\n\n"
            f"import torch\n{imports}\n\n__all__ = {self.names!r}\n\n\n{functions}\n\n{classes}"
        )


def module_source(module: GraphModule, class_name: str) -> Source:
    """Write ``module`` as a class ``class_name``, and each graph module in it as another class.

    Raises:
        Failure: a part of the module cannot be written as source.
    """
    source = Source()
    for name, builtin in _custom_builtins.items():
        source.imports[name] = builtin.import_str
    _add_class(source, module, class_name, "")
    return source


def _add_class(source: Source, module: GraphModule, name: str, prefix: str) -> None:
    """Add the class of ``module``, whose tensors have names that begin with ``prefix``."""
    if not name.isidentifier() or keyword.iskeyword(name) or name in source.names:
        name = f"Model{len(source.names)}"
    source.names.append(name)
    source.written[id(module)] = name
    lines: list[str] = []
    placed: dict[int, str] = {}
    paths: list[str] = []
    nodes = [node for node in module.graph.nodes if node.op in ("call_module", "get_attr")]
    # Modules before tensors, and outer ones before inner ones, which they contain.
    values = {node.target: _value(module, node.target) for node in nodes}
    order = sorted(values, key=lambda path: (not isinstance(values[path], nn.Module), path))
    parts: list[str] = []
    for path in order:
        if any(path == other or path.startswith(f"{other}.") for other in paths):
            continue
        paths.append(path)
        value = values[path]
        if id(value) in placed:
            lines.append(f"place(self, {path!r}, self.{placed[id(value)]})")
            continue
        if all(step.isidentifier() for step in path.split(".")):
            placed[id(value)] = path
        if isinstance(value, GraphModule):
            if id(value) not in source.written:
                _add_class(source, value, path.rpartition(".")[2], f"{prefix}{path}.")
            parts.append(f"place(self, {path!r}, {source.written[id(value)]}())")
        else:
            transient = "" if _is_persistent(module, path) else ", persistent=False"
            lines.append(f"place(self, {path!r}, {_constructed(source, path, value)}{transient})")
    shared, frozen, joined = _add_weights(source, module, paths, prefix)
    body = ["super().__init__()", *parts]
    if lines:
        body += ['with torch.device("meta"):', *(f"    {line}" for line in lines)]
        body.append(
            f"load_weights(self, Path(__file__).with_name({WEIGHTS!r}), {prefix!r}, {shared!r}, "
            f"{frozen!r})"
        )
    body += [f"place(self, {path!r}, self.get_{kind}({other!r}))" for path, kind, other in joined]
    if not module.training:
        body.append("self.eval()")
    code = module.graph.python_code("self")
    _add_imports(source, code.globals)
    # Calls of ``wrap`` belong at the top of the file.
    top, definition, rest = code.src.partition("def forward(")
    for line in filter(None, map(str.strip, top.splitlines())):
        source.imports[line] = line
    constructor = "def __init__(self) -> None:\n" + textwrap.indent("\n".join(body), "    ")
    text = textwrap.indent(f"{constructor}\n\n{definition}{rest.strip()}\n", "    ")
    source.classes.append(f"class {name}(torch.nn.Module):\n{text}")


def _value(module: nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def _is_persistent(module: nn.Module, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    return name not in module.get_submodule(owner)._non_persistent_buffers_set


def _add_weights(
    source: Source, module: GraphModule, paths: list[str], prefix: str
) -> tuple[dict[str, str], set[str], list[tuple[str, str, str]]]:
    """Add the tensors at ``paths``. Return the names of those shared in the file, those without
    ``requires_grad``, and the ones that parts share: path, kind, and path of the first."""
    shared: dict[str, str] = {}
    frozen: set[str] = set()
    joined: list[tuple[str, str, str]] = []
    own: dict[int, str] = {}
    kinds = (("parameter", module.named_parameters), ("buffer", module.named_buffers))
    for kind, tensors in kinds:
        for path, tensor in tensors(remove_duplicate=False):
            if not any(path == other or path.startswith(f"{other}.") for other in paths):
                continue
            name = source.stored.setdefault(id(tensor), prefix + path)
            source.weights[name] = tensor
            first = own.setdefault(id(tensor), path)
            in_part = any(
                isinstance(module.get_submodule(path[:at]), GraphModule)
                for at, letter in enumerate(path)
                if letter == "."
            )
            if in_part and first != path:
                joined.append((path, kind, first))
            elif not in_part and name != prefix + path:
                shared[path] = name
            if kind == "parameter" and not tensor.requires_grad:
                frozen.add(name)
    return shared, frozen, joined


def _constructed(source: Source, path: str, value: Any) -> str:
    """The expression that constructs ``value`` again, without its data."""
    if isinstance(value, torch.Tensor):
        made = f"torch.empty({list(value.shape)}, dtype={value.dtype})"
        is_parameter = isinstance(value, nn.Parameter)
        return f"torch.nn.Parameter({made}, False)" if is_parameter else made
    if not isinstance(value, nn.Module):
        kind = type(value).__name__
        raise Failure(f"{path} cannot be written: it is a {kind}, neither a module nor a tensor")
    if _has_hooks(value):
        raise Failure(f"module {path} cannot be written as source: it has hooks")
    cls = type(value)
    if isinstance(value, (nn.TransformerEncoder, nn.TransformerDecoder)):
        layer, norm = value.layers[0], value.norm
        given = [_constructed(source, f"{path}.layers.0", layer), repr(value.num_layers)]
        if norm is not None:
            given.append(f"norm={_constructed(source, f'{path}.norm', norm)}")
        if isinstance(value, nn.TransformerEncoder):
            given.append(f"enable_nested_tensor={value.enable_nested_tensor}")
        return f"{_class(source, path, cls)}({', '.join(given)})"
    try:
        args, kwargs = constructor_arguments(path, value)
    except ConfigError as error:
        raise Failure(f"{error}, so that it cannot be written as source") from error
    written = [_literal(path, one) for one in args]
    written += [f"{name}={_literal(path, one)}" for name, one in kwargs.items()]
    return f"{_class(source, path, cls)}({', '.join(written)})"


def _class(source: Source, path: str, cls: type) -> str:
    if getattr(nn, cls.__name__, None) is cls:
        return f"torch.nn.{cls.__name__}"
    found: Any = importlib.import_module(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not cls:
        raise Failure(
            f"module {path} cannot be written as source: its class {cls.__qualname__} cannot be "
            f"imported from {cls.__module__}"
        )
    source.imports[cls.__module__] = f"import {cls.__module__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def _literal(path: str, value: Any) -> str:
    """``value`` as a Python expression."""
    if isinstance(value, (tuple, list)):
        items = [_literal(path, item) for item in value]
        if isinstance(value, list):
            return f"[{', '.join(items)}]"
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, str, torch.dtype):
        return repr(value)
    raise Failure(
        f"module {path} cannot be written as source: an argument of its constructor is a "
        f"{type(value).__name__}"
    )


def _add_imports(source: Source, names: dict[str, Any]) -> None:
    """Import the functions and types that generated code uses."""
    for name, value in names.items():
        if isinstance(value, str):
            statement = f"{name} = {value!r}"
        else:
            try:
                statement = _format_import_statement(name, value, sys_importer)
            except Exception as error:
                raise Failure(
                    f"the graph calls {name}, which cannot be imported by name: define it at the top "
                    "of a module"
                ) from error
        if source.imports.setdefault(name, statement) != statement:
            raise Failure(f"two parts call different functions of the name {name}")
