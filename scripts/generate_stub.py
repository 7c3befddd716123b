"""Writes python/corsac/_core.pyi from the built extension module.

Names, parameters, defaults and docstrings come from the module itself; types come from the tables below, by
the name of the parameter or of the member, since the module does not contain them. Run it with the
interpreter that has the freshly built extension, after a change of the binding::

    python scripts/generate_stub.py            # rewrites the stub
    python scripts/generate_stub.py --check    # exits with 1 if the stub is out of date
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path

from corsac import _core

STUB = Path(__file__).parent.parent / "python" / "corsac" / "_core.pyi"

# Types of parameters, by name.
PARAMETERS = {
    "a": "Any",
    "args": "Any",
    "arg_transform": "Callable[[Node], Any] | None",
    "arg_types": "tuple[Any, ...] | None",
    "body": "str",
    "candidate": "str",
    "delete_user_cb": "Callable[[Node], bool] | None",
    "fn": "Callable[..., Any]",
    "forward": "Callable[..., Any] | None",
    "g": "Graph",
    "graph": "Graph",
    "idx": "int",
    "ignore_literals": "bool",
    "impure_random": "bool",
    "index": "int",
    "is_impure_node": "Callable[[Node], bool] | None",
    "is_module": "bool",
    "key": "Any",
    "kind": "str",
    "kwarg_types": "dict[str, Any] | None",
    "kwargs": "Any",
    "make": "Callable[[list[dict[str, Any]]], list[Any]] | None",
    "match_output": "bool",
    "match_placeholder": "bool",
    "may_shadow": "bool",
    "memo": "dict[int, Any]",
    "method_name": "str",
    "module": "torch.nn.Module",
    "n": "Node | None",
    "name": "str | None",
    "names": "Any",
    "new_input": "Node",
    "node": "Node",
    "node_name_match": "str",
    "normalize_to_only_use_kwargs": "bool",
    "old_input": "Node",
    "op": "str",
    "own_output": "bool",
    "pattern": "Graph",
    "prologue": "str",
    "propagate_meta": "bool",
    "remove_overlapping_matches": "bool",
    "replace_with": "Node",
    "return_output_node": "bool",
    "sort": "bool",
    "text": "str",
    "the_function": "Callable[..., Any]",
    "to_erase": "Node",
    "val_map": "dict[Node, Node]",
    "x": "Node",
}

# Types of results of methods and functions, and of attributes, by qualified or own name.
RESULTS = {
    "pass_names": "list[str]",
    "named_arguments_of": "dict[str, Any] | None",
    "operator_named": "str",
    "operator_of": "tuple[str | None, bool]",
    "operator_of_module": "str | None",
    "operator_classes": "list[str]",
    "grow_parts": "list[list[Node]]",
    "training_parts": "tuple[list[list[Node]], list[str | None]]",
    "why_not_split": "str | None",
    "is_view": "bool",
    "run_pass": "list[tuple[str, str, str | None, str | None]]",
    "has_effects": "bool",
    "node_effects": "tuple[list[Node], list[Node], bool, bool, bool, bool, bool]",
    "graph_effects": (
        "list[tuple[tuple[list[Node], list[Node], bool, bool, bool, bool, bool], bool, int]]"
    ),
    "CacheFolder.get": "tuple[str, dict[str, float]] | None",
    "CacheFolder.put": "None",
    "CacheFolder.contents": "tuple[int, int]",
    "CacheFolder.clear": "int",
    "CacheFolder.limit_bytes": "int",
    "Instructions.decode": "Instructions",
    "Instructions.from_parts": "Instructions",
    "Instructions.oriented": "Instructions",
    "Instructions.parts": (
        "tuple[list[tuple[str, int | None, int | None, tuple[int | None, ...]]], list[int], "
        "list[tuple[int, int, int, int, bool]]]"
    ),
    "Instructions.assemble": "list[bytes]",
    "Instructions.stack_size": "int",
    "Instructions.stack_depths": "list[int | None]",
    "Instructions.verify": "int",
    "Instructions.text": "str",
    "Instructions.rows": "list[tuple[Any, ...]]",
    "Instructions.exception_entries": "list[tuple[int, int, int, int, bool]]",
    "Instructions.blocks": "list[tuple[int, int, list[int], list[int]]]",
    "opcode_table": "list[tuple[int, str, str, int]]",
    "opcode_effect": "int",
    "opcode_operand": "int | None",
    "Graph.portable_hash": "str | None",
    "Graph.create_node": "Node",
    "Graph.placeholder": "Node",
    "Graph.call_function": "Node",
    "Graph.call_method": "Node",
    "Graph.output": "Node",
    "Graph.node_copy": "Node",
    "Graph.erase_node": "None",
    "Graph.eliminate_dead_code": "bool",
    "Graph.inserting_before": "InsertPoint",
    "Graph.inserting_after": "InsertPoint",
    "Graph.find_nodes": "list[Node]",
    "Graph.output_node": "Node",
    "Graph.nodes": "Nodes",
    "Graph._root": "Node",
    "Graph._len": "int",
    "Graph._fill_from": "None",
    "Graph.lint": "None",
    "Graph.print_tabular": "None",
    "InsertPoint.__enter__": "None",
    "InsertPoint.__exit__": "None",
    "Namespace.create": "str",
    "Namespace.mark_used": "None",
    "Node._sort_key": "tuple[int, ...]",
    "Node.all_input_nodes": "list[Node]",
    "Node.args": "tuple[Any, ...]",
    "Node._args": "tuple[Any, ...]",
    "Node.kwargs": "dict[str, Any]",
    "Node._kwargs": "dict[str, Any]",
    "Node._erased": "bool",
    "Node._input_nodes": "dict[Node, None]",
    "Node.graph": "Graph",
    "Node.is_impure": "bool",
    "Node.meta": "dict[str, Any]",
    "Node.name": "str",
    "Node.next": "Node",
    "Node._next": "Node",
    "Node.prev": "Node",
    "Node._prev": "Node",
    "Node.op": "str",
    "Node.target": "Callable[..., Any] | str",
    "Node.users": "Users",
    "Node.stack_trace": "str | None",
    "Node.prepend": "None",
    "Node.append": "None",
    "Node._prepend": "None",
    "Node.update_arg": "None",
    "Node.insert_arg": "None",
    "Node.update_kwarg": "None",
    "Node.replace_all_uses_with": "list[Node]",
    "Node.replace_input_with": "None",
    "Node.format_node": "str | None",
    "NodeIterator.__next__": "Node",
    "NodeIterator.__iter__": "NodeIterator",
    "Nodes.__iter__": "NodeIterator",
    "Nodes.__reversed__": "NodeIterator",
    "Proxy.node": "Node",
    "Users.keys": "KeysView[Node]",
    "Users.values": "ValuesView[None]",
    "Users.items": "ItemsView[Node, None]",
    "Users.copy": "dict[Node, None]",
    "__bool__": "bool",
    "__contains__": "bool",
    "__eq__": "bool",
    "__hash__": "int",
    "__len__": "int",
    "__ne__": "bool",
    "__repr__": "str",
    "__str__": "str",
    "__dir__": "list[str]",
    "__setattr__": "None",
    "__delattr__": "None",
    "__setitem__": "None",
    "__delitem__": "None",
    "active_traces": "int",
    "is_internal_file": "bool",
}

HEADER = '''"""The native half of corsac: handles on the Rust graph, and what works on them.

Written by scripts/generate_stub.py from the built module.
"""

from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any, ClassVar, final

from typing_extensions import disjoint_base

import torch

__version__: str
'''

# Methods of every object that the module does not override.
INHERITED = {"__getattribute__", "__doc__", "__module__", "__weakref__", "__class__"}


def documentation(value: object, indent: str) -> str:
    text = inspect.getdoc(value) or ""
    if not text:
        return ""
    text = text.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    lines = textwrap.indent(text, indent).strip().splitlines()
    end = "" if len(lines) == 1 else f"\n{indent}"
    body = "\n".join(line.rstrip() for line in lines)
    return f'{indent}"""{body}{end}"""\n'


def result_of(owner: str, name: str) -> str:
    return RESULTS.get(f"{owner}.{name}" if owner else name) or RESULTS.get(name) or "Any"


def parameters(signature: str) -> str:
    """The text signature with a type for each parameter; defaults as they are."""
    written = []
    for parameter in signature.strip("()").split(", "):
        if not parameter:
            continue
        name, _, default = parameter.partition("=")
        bare = name.lstrip("*$")
        if name in ("/", "*") or bare in ("self", "cls", "type"):
            written.append("cls" if bare == "type" else bare if bare else name)
        elif default:
            written.append(f"{name}: {PARAMETERS.get(bare, 'Any')} = {default}")
        else:
            kind = PARAMETERS.get(bare, "Any").removesuffix(" | None")
            written.append(f"{name}: {kind}")
    return ", ".join(written)


def function(name: str, value: object, owner: str = "") -> str:
    indent = "    " if owner else ""
    is_static = isinstance(value, staticmethod)
    value = value.__func__ if is_static else value
    signature = getattr(value, "__text_signature__", None) or "($self, /, *args, **kwargs)"
    decorator = f"{indent}@staticmethod\n" if is_static else ""
    if isinstance(value, classmethod) or signature.startswith("($cls"):
        decorator = f"{indent}@classmethod\n"
    head = f"{indent}def {name}({parameters(signature)}) -> {result_of(owner, name)}:"
    doc = documentation(value, indent + "    ") if not name.startswith("__") else ""
    return f"{decorator}{head}\n{doc}{indent}    ...\n" if doc else f"{decorator}{head} ...\n"


def attribute(name: str, value: object, owner: str) -> str:
    kind = result_of(owner, name)
    doc = documentation(value, "        ")
    head = f"    @property\n    def {name}(self) -> {kind}:"
    text = f"{head}\n{doc}        ...\n" if doc else f"{head} ...\n"
    return text + f"    @{name}.setter\n    def {name}(self, value: {kind}) -> None: ...\n"


def is_final(kind: type) -> bool:
    return not kind.__flags__ & (1 << 10)


def class_(kind: type) -> str:
    name = kind.__name__
    # Exceptions have the layout of their base; other classes contain data of Rust.
    is_exception = issubclass(kind, BaseException)
    base = f"({kind.__base__.__name__})" if is_exception else ""
    lines = ["@final\n" if is_final(kind) else "" if is_exception else "@disjoint_base\n"]
    lines.append(f"class {name}{base}:\n{documentation(kind, '    ')}")
    # A private base counts as part of the class.
    hidden = kind.__base__ if kind.__base__.__name__.startswith("_") else object
    own = {**(vars(hidden) if hidden is not object else {}), **vars(kind)}
    for member, value in sorted(own.items()):
        if member in INHERITED:
            continue
        if member in ("__new__", "__init__"):
            first, result = ("cls", name) if member == "__new__" else ("self", "None")
            inside = ", ".join(filter(None, (first, parameters(kind.__text_signature__ or "()"))))
            lines.append(f"    def {member}({inside}) -> {result}: ...\n")
        elif member.startswith("__") and not member.endswith("__"):
            continue  # A stub would mangle the name.
        elif member == "__hash__" and value is None:
            lines.append("    __hash__: ClassVar[None]  # type: ignore[assignment]\n")
        elif inspect.isgetsetdescriptor(value) or inspect.ismemberdescriptor(value):
            if member != "__dict__":
                lines.append(attribute(member, value, name))
        elif callable(value) or isinstance(value, classmethod):
            lines.append(function(member, value, name))
    return "".join(lines)


def stub() -> str:
    parts = [HEADER]
    for name, value in sorted(vars(_core).items()):
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            parts.append(class_(value))
        elif callable(value):
            parts.append(function(name, value))
        else:
            parts.append(f"{name}: Any\n")
    return "\n".join(parts)


def main() -> int:
    text = stub()
    if "--check" in sys.argv[1:]:
        if STUB.read_text() == text:
            return 0
        print(f"{STUB}: out of date, run scripts/generate_stub.py", file=sys.stderr)
        return 1
    STUB.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
