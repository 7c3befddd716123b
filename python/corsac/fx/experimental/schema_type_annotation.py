"""Types of values from the signatures of the functions that compute them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch._jit_internal import boolean_dispatched

from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Transformer
from corsac.fx.node import Argument, Node, Target
from corsac.fx.operator_schemas import _torchscript_type_to_python_type
from corsac.fx.proxy import Proxy

__all__ = ["AnnotateTypesWithSchema"]


class AnnotateTypesWithSchema(Transformer):
    """Annotates nodes that have no type with the return type of what they call.

    Supported are modules of ``torch.nn``, functions of ``torch.nn.functional``, and attributes, from their
    values. Existing types, names and metadata of nodes are kept. ::

        traced = AnnotateTypesWithSchema(traced).transform()

    Args:
        module: the module.
        annotate_functionals: whether calls of ``torch.nn.functional`` get their return type.
        annotate_modules: whether calls of modules do.
        annotate_get_attrs: whether attributes do.
    """

    def __init__(
        self,
        module: GraphModule,
        annotate_functionals: bool = True,
        annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:
        super().__init__(module)
        self.annotate_functionals = annotate_functionals
        self.annotate_modules = annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def run_node(self, n: Node) -> Any:
        out = super().run_node(n)
        if n.op != "output" and isinstance(out, Proxy):
            out.node.meta = dict(n.meta)
            if n.type is not None:
                out.node.type = n.type
        return out

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        result = super().call_function(target, args, kwargs)
        functional = getattr(target, "__module__", None) == torch.nn.functional.__name__
        if self.annotate_functionals and functional:
            _annotate(result, _returned_by_function(target))
        return result

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not isinstance(target, str):
            raise AssertionError(f"Expected str target, got {type(target)}")
        result = super().call_module(target, args, kwargs)
        module = self.fetch_attr(target)
        if self.annotate_modules and getattr(torch.nn, type(module).__name__, None) is type(module):
            _annotate(result, _returned_by(module.forward))
        return result

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        result = super().get_attr(target, args, kwargs)
        if self.annotate_get_attrs:
            inferred = torch._C._jit_try_infer_type(self.fetch_attr(target))
            if inferred.success():
                _annotate(result, _torchscript_type_to_python_type(inferred.type()))
        return result


def _annotate(result: Any, type_: Any) -> None:
    if isinstance(result, Proxy) and result.node.type is None and type_ is not None:
        result.node.type = type_


def _returned_by(function: Any) -> Any:
    """The return type in the signature of a function; None if it has none."""
    try:
        returned = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return None
    return None if returned is inspect.Signature.empty else returned


def _returned_by_function(function: Any) -> Any:
    """The return type of a function that may dispatch to one of two, by a flag; both have to agree."""
    if function not in boolean_dispatched:
        return _returned_by(function)
    forms = boolean_dispatched[function]
    types = [_returned_by(forms[key]) for key in ("if_true", "if_false")]
    return types[0] if types[0] == types[1] else None
