"""Models that are saved, and their graphs."""

from __future__ import annotations

from typing import Any

from torch import nn

from corsac._capture.called_graphs import graphs_in
from corsac._engine.native_graph import CompileError
from corsac._models.function import check_callable, module_of
from corsac._models.wrapper import ModelWrapper, root_of
from corsac._pytorch.quantised_parts import is_converted
from corsac.fx import GraphModule, Node
from corsac.lowering._decompositions import undo_decompositions
from corsac.lowering._lower import is_training
from corsac.passes import eliminate_dead_code, fold_constants, remove_no_ops


def readable(model: Any) -> tuple[Any, nn.Module]:
    """The model in a form that can be captured, and the module that has its weights.

    Raises:
        TypeError: it cannot be called.
        CompileError: it is in training mode.
    """
    check_callable(model)
    model = _read(model)
    root = root_of(module_of(model))
    if is_training(root):
        raise CompileError("the model is in training mode: call model.eval() before it is saved")
    return model, root


def _read(model: Any) -> Any:
    """The quantised form of a model that torch.ao has quantised; other models as they are."""
    own = model._model if isinstance(model, ModelWrapper) else model
    if not isinstance(own, nn.Module) or not is_converted(own):
        return model
    # Not at the top: most models are not quantised.
    from corsac.quantization.torch_ao import UnreadableError, from_torch_ao

    try:
        return from_torch_ao(own)
    except UnreadableError as error:
        raise CompileError(str(error)) from error


def simplified(module: GraphModule, truths: list[Node]) -> list[Node]:
    """Simplify a graph whose ``truths`` have to be true. Returns these nodes as they are then."""
    result = module.graph.output_node().args[0]
    if truths:
        # So that passes keep them.
        module.graph.output_node().args = ((result, *truths),)
    undo_decompositions(module.graph)
    fold_constants(module)
    remove_no_ops(module)
    eliminate_dead_code(module)
    if truths:
        result, *truths = module.graph.output_node().args[0]
        module.graph.output_node().args = (result,)
    for _, called in graphs_in(module):
        simplified(called, [])
    return truths


__all__ = ["readable", "simplified"]
