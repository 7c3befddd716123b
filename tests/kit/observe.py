"""Turns a program's observations into plain values that can be compared across implementations."""

import contextlib
import enum
import io
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch

from .implementations import REFERENCE, SUBJECT, Implementation

NODES = tuple({i.fx.Node for i in (REFERENCE, SUBJECT)})
GRAPHS = tuple({i.fx.Graph for i in (REFERENCE, SUBJECT)})
GRAPH_MODULES = tuple({i.fx.GraphModule for i in (REFERENCE, SUBJECT)})
PROXIES = tuple({i.fx.Proxy for i in (REFERENCE, SUBJECT)})

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_SOURCE_KEY = re.compile(r"<eval_with_key>\.\d+[^\n>\"]*")


@dataclass
class Raised:
    """A call that raised."""

    kind: type[BaseException]
    message: str

    def __repr__(self) -> str:
        return f"raised {self.kind.__module__}.{self.kind.__qualname__}: {self.message}"


@dataclass
class TensorSeen:
    """A tensor as it was when recorded."""

    value: torch.Tensor

    def __repr__(self) -> str:
        return f"tensor({self.value.dtype}, {tuple(self.value.shape)}, {self.value})"


@dataclass
class CodeSeen:
    """Generated source, the names that it needs, its line table, and whether it compiles."""

    src: str
    globals: Any
    lines: Any
    prologue: Any
    is_python: bool


def compiles(source: str) -> bool:
    """Whether text is a valid Python program."""
    try:
        compile(source, "generated", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def clean(text: str, implementation: Implementation) -> str:
    """Remove differences between two runs of the same program: addresses and source keys."""
    text = _SOURCE_KEY.sub("<generated>", _ADDRESS.sub("0x", text))
    return implementation.normalise(text)


def qualified_name(value: Any, implementation: Implementation) -> str:
    """The dotted name of a class or function, or its text if it has none."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return clean(repr(value), implementation)
    return clean(f"{getattr(value, '__module__', '')}.{name}", implementation)


def capture_output(call: Any, *args: Any, **kwargs: Any) -> str:
    """The output of a call."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        call(*args, **kwargs)
    return stream.getvalue()


def attempt(call: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or a :class:`Raised` with its exception."""
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return Raised(type(error), str(error))
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # a test failure that can be reduced
            raise AssertionError(f"panic: {error}") from error
        raise


def observe_node(node: Any, implementation: Implementation) -> dict[str, Any]:
    """All public properties of a node."""
    return {
        "op": node.op,
        "name": node.name,
        "target": observe(node.target, implementation),
        "args": observe(node.args, implementation),
        "kwargs": observe(node.kwargs, implementation),
        "users": [user.name for user in node.users],
        "inputs": [used.name for used in node.all_input_nodes],
        "type": None if node.type is None else clean(str(node.type), implementation),
        "text": clean(str(attempt(node.format_node)), implementation),
    }


def observe_code(code: Any, implementation: Implementation) -> CodeSeen:
    """A ``PythonCode`` in a form that can be compared."""
    return CodeSeen(
        src=clean(code.src, implementation),
        globals=[
            (clean(name, implementation), observe(value, implementation))
            for name, value in code.globals.items()
        ],
        lines=dict(code._lineno_map or {}),
        prologue=code._prologue_start,
        is_python=compiles(code.src),
    )


def observe_graph(graph: Any, implementation: Implementation) -> dict[str, Any]:
    """A graph: its text, its table, its nodes, its code and whether it is well formed."""
    code = attempt(graph.python_code, "self")
    lint = attempt(graph.lint)
    table = attempt(capture_output, graph.print_tabular)
    return {
        "text": clean(str(graph), implementation),
        "table": table if isinstance(table, Raised) else clean(table, implementation),
        "nodes": [observe_node(node, implementation) for node in graph.nodes],
        "length": len(graph.nodes),
        "backwards": [node.name for node in reversed(graph.nodes)],
        "code": code if isinstance(code, Raised) else observe_code(code, implementation),
        "lint": lint,
    }


def observe_graph_module(module: Any, implementation: Implementation) -> dict[str, Any]:
    """A graph module: its class, code, graph, state and children."""
    code = clean(module.code, implementation)
    return {
        "class": type(module).__name__,
        "code": CodeSeen(code, None, None, None, compiles(code)),
        "graph": observe_graph(module.graph, implementation),
        "state": sorted(module.state_dict()),
        "children": [(n, type(m).__name__) for n, m in module.named_modules()],
        "training": module.training,
    }


def observe(value: Any, implementation: Implementation) -> Any:
    """A plain, comparable form of any value that a program can record."""
    if isinstance(value, Raised | TensorSeen):
        return value
    if type(value).__name__ == "PythonCode":
        return observe_code(value, implementation)
    if isinstance(value, NODES):
        return f"%{value.name}"
    if isinstance(value, GRAPHS):
        return observe_graph(value, implementation)
    if isinstance(value, GRAPH_MODULES):
        return observe_graph_module(value, implementation)
    if isinstance(value, PROXIES):
        return clean(repr(value), implementation)
    if isinstance(value, torch.Tensor):
        return TensorSeen(value.detach().clone())
    if isinstance(value, str):
        return clean(value, implementation)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | bytes):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, tuple | list):
        return (type(value).__name__, [observe(item, implementation) for item in value])
    if isinstance(value, Mapping):
        pairs = [(observe(k, implementation), observe(v, implementation)) for k, v in value.items()]
        return (type(value).__name__, pairs)
    if isinstance(value, Set):
        return (type(value).__name__, sorted(str(observe(v, implementation)) for v in value))
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return ("slice", [observe(part, implementation) for part in parts])
    if isinstance(value, torch.nn.Module):
        return f"module {type(value).__name__}"
    if isinstance(value, type) or callable(value):
        return qualified_name(value, implementation)
    return clean(f"{type(value).__name__} {value!r}", implementation)
