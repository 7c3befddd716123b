"""Models that are prepared or converted already, which nothing prepares again."""

from __future__ import annotations

from torch import nn

from corsac._pytorch.quantised_parts import operator_name
from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.quantization._kinds import is_activation_post_process
from corsac.quantization.pt2e._nodes import described

_PART = "a part that is to stay as it is can be named in set_non_traceable_module_names"


def require_unprepared(traced: GraphModule) -> None:
    """Check that no value of a graph is observed or quantised.

    Raises:
        ValueError: one is; the message names the node.
    """
    for node in traced.graph.nodes:
        if node.op == "call_module":
            module = get_submodule(traced, node.target)
            if is_activation_post_process(module):
                raise ValueError(
                    f"the model is prepared already: {described(node)} is a {type(module).__name__}; convert it, or "
                    f"prepare the float model again; {_PART}"
                )
        elif node.op == "call_function" and operator_name(node.target).startswith("quantize_per_"):
            raise ValueError(
                f"the model is quantised already: {described(node)} rounds a value; prepare the float model; {_PART}"
            )


def require_no_observers(model: nn.Module, action: str) -> None:
    """Check that a model has no observers.

    Args:
        model: the model.
        action: what is going to be done, for the message.

    Raises:
        ValueError: it has some; the message names one.
    """
    for path, own in model.named_modules():
        if is_activation_post_process(own):
            raise ValueError(
                f"the model is prepared already: {path} is a {type(own).__name__}; convert it, or {action} the float "
                "model"
            )
