"""Flattens nested arguments by a known structure.

Generated code calls these functions by their name in ``torch.fx``, and libraries register container types
there: the registry is PyTorch's own.
"""

from torch.fx._pytree import (
    SUPPORTED_NODES,
    SUPPORTED_NODES_EXACT_MATCH,
    FlattenFnExactMatchSpec,
    FlattenFnSpec,
    FlattenFuncExactMatchSpec,
    FlattenFuncSpec,
    _deregister_pytree_flatten_spec,
    register_pytree_flatten_spec,
    tree_flatten_spec,
)

__all__ = [
    "SUPPORTED_NODES",
    "SUPPORTED_NODES_EXACT_MATCH",
    "FlattenFnExactMatchSpec",
    "FlattenFnSpec",
    "FlattenFuncExactMatchSpec",
    "FlattenFuncSpec",
    "_deregister_pytree_flatten_spec",
    "register_pytree_flatten_spec",
    "tree_flatten_spec",
]
