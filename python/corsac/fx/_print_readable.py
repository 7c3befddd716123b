"""The readable form of a graph module: its code as nested classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import _addindent

from .graph import Graph, _override_sym_repr


@contextlib.contextmanager
def fast_sympy_repr() -> Iterator[None]:
    """Within the context, symbolic sizes are printed by inductor's printer."""
    from torch._inductor.utils import sympy_str

    with _override_sym_repr(lambda value: sympy_str(value.node.expr)):
        yield


def _print_readable(
    module: torch.nn.Module,
    module_name: str,
    print_output: bool = True,
    include_stride: bool = False,
    include_device: bool = False,
    colored: bool = False,
    expanded_def: bool = False,
    additional_meta: list[str] | None = None,
) -> str:
    """The code of ``module`` as a class called ``module_name``."""
    from .graph_module import GraphModule

    graph: Any = module.graph
    if not isinstance(graph, Graph):
        raise AssertionError("print_readable must be used on a module with a graph")
    code = graph.python_code(
        root_module="self",
        verbose=True,
        include_stride=include_stride,
        include_device=include_device,
        colored=colored,
        expanded_def=expanded_def,
        additional_meta=additional_meta,
    ).src.lstrip("\n")
    own = _addindent(f"class {module_name}(torch.nn.Module):\n{code}", 4)
    children = [""]
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            children.append(
                _print_readable(
                    child,
                    name,
                    print_output=False,
                    include_stride=include_stride,
                    include_device=include_device,
                    colored=colored,
                    additional_meta=additional_meta,
                )
            )
    output = own + _addindent("\n".join(children), 4)
    if print_output:
        print(output)
    return output
