"""Programs of ``torch.export`` as graph modules."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_unflatten

from corsac._capture.result_template import is_plain
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch
from corsac.fx.graph import CodeGen

#: Name of the call that checks the inputs of an exported module.
_GUARDS = "_guards_fn"


def is_exported(model: Any) -> bool:
    """Whether ``model`` is a program of :func:`torch.export.export`, or the module of one that checks its inputs."""
    if isinstance(model, torch.fx.GraphModule):
        return _GUARDS in model._modules
    return isinstance(model, torch.export.ExportedProgram)


def converted(program: torch.export.ExportedProgram | torch.fx.GraphModule) -> GraphModule:
    """Convert a program to a graph module of corsac, without the checks of inputs that ``torch.export`` adds."""
    if isinstance(program, torch.export.ExportedProgram):
        program = program.module(check_guards=False)
    module = from_torch(program)
    for node in module.graph.find_nodes(op="call_module", target=_GUARDS):
        module.graph.erase_node(node)
        module.delete_submodule(_GUARDS)
        module.recompile()
    for name in ("train", "eval"):
        # Of what torch.export makes they refuse: modes change nothing there.
        if _is_of_export(module.__dict__.get(name)):
            del module.__dict__[name]
    for key, hook in list(module._forward_pre_hooks.items()):
        if _is_of_export(hook):
            del module._forward_pre_hooks[key]
            module._forward_pre_hooks_with_kwargs.pop(key, None)
    return module


def _is_of_export(function: Any) -> bool:
    return str(getattr(function, "__module__", None)).startswith("torch.export.")


def with_plain_inputs(module: GraphModule) -> GraphModule:
    """Change ``module`` to take the leaves of its arguments as separate inputs, and return it. Results in classes become
    a tuple of their leaves."""
    graph = module.graph
    spec = getattr(getattr(graph._codegen, "pytree_info", None), "out_spec", None)
    if spec is None:
        return module
    output = graph.output_node()
    leaves = list(output.args[0])
    # Instances of classes are no arguments of nodes.
    if is_plain(tree_unflatten([torch.empty(0)] * spec.num_leaves, spec)):
        output.args = (tree_unflatten(leaves, spec),)
    graph.set_codegen(CodeGen())
    for node in reversed(graph.find_nodes(op="placeholder")):
        next(iter(graph.nodes)).prepend(node)
    module.recompile()
    return module


__all__ = ["converted", "is_exported", "with_plain_inputs"]
