"""Breakpoints in generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corsac.fx.graph_module import GraphModule

__all__ = ["set_trace"]

Body = Callable[[Sequence[str]], Sequence[str]]


def set_trace(gm: GraphModule) -> GraphModule:
    """Recompile ``gm`` once with a breakpoint at the start of its code, for ``pdb``.

    The graph is not changed: the next ``recompile`` generates code without the breakpoint.
    """

    def with_breakpoint(inner: Body | None) -> Body:
        def write(body: Sequence[str]) -> Sequence[str]:
            return ["import pdb; pdb.set_trace()\n", *(inner(body) if inner else body)]

        return write

    with gm.graph.on_generate_code(with_breakpoint):
        gm.recompile()
    return gm
