"""Normal forms of calls, under the names of ``torch.fx.experimental.normalize``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from corsac.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Transformer
from corsac.fx.node import Argument, Node, Target, map_aggregate
from corsac.fx.operator_schemas import create_type_hint, normalize_function, normalize_module
from corsac.fx.proxy import Proxy

__all__ = ["NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """Passes every argument of PyTorch's functions and modules by keyword, defaults included.

    Calls whose form depends on types are normalised if the types (``node.meta["type"]``) decide; others are
    left unchanged. Names, types and metadata of nodes are kept. ::

        traced = NormalizeArgs(traced).transform()

    Args:
        module: the module.
        normalize_to_only_use_kwargs: whether positional arguments become keyword arguments too.
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)

        def type_of(arg: Any) -> Any:
            if isinstance(arg, Node):
                return arg.meta.get("type")
            return type(arg)

        if n.op == "call_function":
            arg_types = map_aggregate(n.args, type_of)
            arg_types = tuple(create_type_hint(i) for i in arg_types)
            kwarg_types = {k: type_of(v) for k, v in n.kwargs.items()}
            out = self.call_function(n.target, args, kwargs, arg_types, kwarg_types)
        else:
            out = super().run_node(n)
        if n.op != "output" and isinstance(out, Proxy):
            self.node_map[out] = n
            out.node.meta = dict(n.meta)
            out.node.type = n.type
            if out.node.name != n.name:
                out.node._rename(n.name)
        return out

    def call_function(
        self,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Any],
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
    ) -> Any:
        if not callable(target):
            raise AssertionError(f"Expected callable target, got {type(target)}")
        normal = normalize_function(
            target, args, kwargs, arg_types, kwarg_types, self.normalize_to_only_use_kwargs
        )
        if normal is None:
            return super().call_function(target, args, kwargs)
        return self.tracer.create_proxy("call_function", target, normal.args, normal.kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not isinstance(target, str):
            raise AssertionError(f"Expected str target, got {type(target)}")
        normal = normalize_module(
            self.module, target, args, kwargs, self.normalize_to_only_use_kwargs
        )
        if normal is None:
            return super().call_module(target, args, kwargs)
        return super().call_module(target, normal.args, normal.kwargs)


class NormalizeOperators(AnnotateTypesWithSchema):
    """Replaces functions of ``torch`` by Python operators where there is one: ``torch.add(x, y)`` becomes ``x
    + y``.

    Calls with further arguments (``alpha=2``, ``out=``, ``rounding_mode=``) have another meaning and are
    kept. Optionally annotates nodes with the return types of what they call.

    Args:
        module: the module.
        annotate_functionals: whether calls of ``torch.nn.functional`` get their return type.
        annotate_modules: whether calls of modules do.
        annotate_get_attrs: whether attributes do.
    """

    #: Functions and the operators that replace them.
    binary_magic_method_remap: ClassVar[dict[Callable[..., Any], Callable[..., Any]]] = {
        torch.add: operator.add,
        torch.mul: operator.mul,
        torch.sub: operator.sub,
        torch.div: operator.truediv,
        torch.floor_divide: operator.floordiv,
        torch.remainder: operator.mod,
        torch.eq: operator.eq,
        torch.ne: operator.ne,
        torch.lt: operator.lt,
        torch.le: operator.le,
        torch.gt: operator.gt,
        torch.ge: operator.ge,
    }

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        if target in self.binary_magic_method_remap and len(args) == 2 and not kwargs:
            target = self.binary_magic_method_remap[target]
        return super().call_function(target, args, kwargs)
