"""Texts about graphs for logs.

The functions only read attributes that nodes of both packages have, so they are PyTorch's.
"""

from torch.fx._utils import (
    first_call_function_nn_module_stack,
    get_node_context,
    lazy_format_graph_code,
)

__all__ = [
    "first_call_function_nn_module_stack",
    "get_node_context",
    "lazy_format_graph_code",
]
