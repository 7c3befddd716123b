"""Decides which nodes a backend can run."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from ..node import Node
from .shape_prop import TensorMetadata
from .tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
]

TargetTypeName = str
"""The target of a node, as from :func:`.tools_common.get_node_target`."""

SupportedArgumentDTypes = (
    tuple[Sequence[Sequence[torch.dtype]], dict[str, Sequence[torch.dtype]]] | None
)
"""The dtypes of positional and of keyword arguments; None for any."""

SupportDict = Mapping[TargetTypeName, SupportedArgumentDTypes]

IsNodeSupported = Callable[[Mapping[str, torch.nn.Module], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Base class: decides which nodes a backend can run."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: t.Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether ``node`` is supported. ``submodules`` maps names to the modules that nodes call."""
        raise NotImplementedError


class OperatorSupport(OperatorSupportBase):
    """Decides by a table from targets to the dtypes supported for their arguments.

    A value of the table is None (any dtype), or a pair: a list of dtypes for each positional argument (None:
    any), and one for each keyword argument to check. Arguments that are not nodes are ignored. Nodes that are
    not calls are supported.

    Dtypes are those recorded by :class:`.shape_prop.ShapeProp`.

    Example::

        OperatorSupport({"torch.add": (([torch.float32], [torch.float32]), {}), "torch.relu": None})
    """

    _support_dict: SupportDict

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: t.Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether the table contains the target of ``node``, with the dtypes of its arguments."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        try:
            supported = self._support_dict[get_node_target(submodules, node)]
        except KeyError:
            return False
        if supported is None:
            return True
        by_position, by_name = supported
        pairs = list(zip(node.args, by_position, strict=False))
        pairs += [
            (node.kwargs[name], dtypes) for name, dtypes in by_name.items() if name in node.kwargs
        ]
        return all(
            _get_arg_dtype(arg) in dtypes
            for arg, dtypes in pairs
            if dtypes is not None and isinstance(arg, Node)
        )


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """An :class:`OperatorSupportBase` that calls the function ``is_node_supported``."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(
            self, submodules: t.Mapping[str, torch.nn.Module], node: Node
        ) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports nodes that all of ``op_support`` support, called in order until one returns False."""
    return _combined(all, op_support)


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports nodes that any of ``op_support`` supports, called in order until one returns True."""
    return _combined(any, op_support)


def _combined(
    combine: Callable[[Iterable[bool]], bool], supports: Sequence[OperatorSupportBase]
) -> OperatorSupportBase:
    return create_op_support(
        lambda modules, node: combine(s.is_node_supported(modules, node) for s in supports)
    )


class OpSupports:
    """Conditions to combine with :func:`chain` and :func:`any_chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: torch.dtype) -> OperatorSupportBase:
        """Supports nodes none of whose inputs is of ``dtype``."""
        return create_op_support(
            lambda _, node: all(_get_arg_dtype(arg) != dtype for arg in node.all_input_nodes)
        )

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Supports nodes whose names are not in ``disallow_set``."""
        return create_op_support(lambda _, node: node.name not in disallow_set)


def _get_arg_dtype(arg: Node) -> t.Any:
    """The dtype of a tensor, or the type of any other value, as recorded by ShapeProp."""
    if not isinstance(arg, Node):
        raise AssertionError(f"Expected a Node, got {type(arg)}")
    described = arg.meta.get("tensor_meta")
    return described.dtype if isinstance(described, TensorMetadata) else arg.meta["type"]
