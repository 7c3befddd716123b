"""Graphs: programs as lists of nodes."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

from corsac import _core
from corsac.fx.node import Argument, Node

if TYPE_CHECKING:
    import torch

    from corsac.fx._symbolic_trace import Tracer
    from corsac.fx.graph_module import GraphModule

__all__ = ["Graph"]


class Graph(_core.Graph):
    """A program as a list of nodes.

    Nodes are created at the insertion point (the end, unless :meth:`inserting_before` or
    :meth:`inserting_after` says otherwise) by :meth:`placeholder`, :meth:`get_attr`,
    :meth:`call_function`, :meth:`call_method`, :meth:`call_module` and :meth:`output`, and each
    returns the :class:`Node` that stands for its value::

        graph = Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.relu, (x,))
        graph.output(y)
        module = GraphModule(torch.nn.Module(), graph)

    Args:
        owning_module: the module that runs the graph, if one does.
        tracer_cls: the class of the tracer that recorded it.
        tracer_extras: what that tracer wants to remember.
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: type[Tracer] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._co_fields: dict[str, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        """A graph with the same nodes, names, metadata and attributes.

        Values that nodes refer to, such as functions and tensors, are shared. Nodes after the
        output node are left out, as in torch.fx.
        """
        memo = {} if memo is None else memo
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new._fill_from(self)
        for name, value in self.__dict__.items():
            new.__dict__[name] = (
                value if name in ("_tracer_cls", "_tracer_extras") else copy.deepcopy(value, memo)
            )
        return new

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """Insert a ``get_attr`` node: the attribute of the module hierarchy called
        ``qualified_name``, such as ``"encoder.weight"``.

        Warns if the owning module, where there is one, has no such parameter, buffer or module.
        """
        owner = self.owning_module
        if owner is not None and not _refers_to_something(owner, qualified_name):
            warnings.warn(
                f"get_attr node for {qualified_name!r}: the owning GraphModule has no parameter, "
                "buffer or module of that name; add it with add_submodule, register_parameter or "
                "register_buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Insert a ``call_module`` node: a call of the submodule called ``module_name``.

        Raises:
            AttributeError: if the owning module, where there is one, has no such submodule.
        """
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)


def _refers_to_something(module: torch.nn.Module, qualified_name: str) -> bool:
    """Whether a parameter, buffer or submodule of ``module`` has this name."""
    import torch

    path, _, name = qualified_name.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return False
    if not hasattr(owner, name):
        return False
    value = getattr(owner, name)
    return isinstance(value, (torch.nn.Module, torch.nn.Parameter)) or name in owner._buffers
