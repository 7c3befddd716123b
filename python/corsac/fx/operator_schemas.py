"""Signatures of PyTorch operators, and calls in normal form.

The overloads of an operator, with their order, types and defaults, come from PyTorch: they depend on its
version and on registrations of libraries. The normal form is computed here.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import numbers
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
import torch.fx.operator_schemas as _torch_schemas
from torch._jit_internal import boolean_dispatched
from torch._ops import OpOverload, OpOverloadPacket

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]

Parameter = inspect.Parameter
Signature = inspect.Signature

# Operators whose schemas do not describe their Python signatures. PyTorch's own dictionary, shared in both
# directions: libraries register with torch.fx.
_manual_overrides: dict[Callable[..., Any], list[Signature]] = _torch_schemas._manual_overrides

#: Python equivalents of the types in schemas; all others are names of :mod:`typing`.
_type_eval_globals: dict[str, Any] = {
    **{name: getattr(typing, name) for name in dir(typing)},
    **{t.__name__: t for t in (bool, int, float, complex, str)},
    "AnyEnumType": enum.Enum,
    "Device": torch.device,
    "Future": torch.jit.Future,
    "Layout": torch.layout,
    "NoneType": types.NoneType,
    "PyObject": Any,
    "QScheme": torch.qscheme,
    "Storage": torch.UntypedStorage,
    "Tensor": torch.Tensor,
    "__torch__": types.SimpleNamespace(torch=torch),
    "number": numbers.Number,
    "t": typing.TypeVar("t"),
}


class ArgsKwargsPair(NamedTuple):
    """The positional and keyword arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Parameters:
    """The parameters of a signature, prepared for binding calls."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        parameters = signature.parameters.values()
        self.names = tuple(signature.parameters)
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.required = [p.name for p in parameters if p.default is p.empty]
        self.positional = [p.name for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        self.keywords = {
            p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        }
        # Random fills, whose second parameter is named `from`, are still called by keyword.
        self.supported = len(self.keywords) == len(self.names) or self.names == (
            "input",
            "from",
            "to",
            "generator",
        )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments of a call by name of the parameter; None if they do not fit."""
        bound = dict(zip(self.positional, args, strict=False))
        if len(args) > len(self.positional) or not self.keywords.issuperset(kwargs):
            return None
        if not bound.keys().isdisjoint(kwargs):
            return None
        bound.update(kwargs)
        return bound if bound.keys() >= set(self.required) else None

    def normal(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], only_keywords: bool
    ) -> ArgsKwargsPair | None:
        """The call with all arguments, in the order of the parameters; None if the signature has
        positional-only parameters.

        Raises:
            TypeError: the arguments do not fit.
        """
        if not self.supported:
            return None
        bound = self.bind(args, kwargs)
        if bound is None:
            self.signature.bind(*args, **kwargs)  # raises with the reason
            raise TypeError("the arguments do not fit the signature")
        full = self.defaults | bound
        by_position = () if only_keywords else self.names[: len(args)]
        by_keyword = self.names[len(by_position) :]
        return ArgsKwargsPair(
            tuple(full[name] for name in by_position), {name: full[name] for name in by_keyword}
        )


def _python_type(expression: ast.expr) -> Any:
    """The Python type of an annotation in a schema."""
    match expression:
        case ast.Name(id=name):
            if name not in _type_eval_globals:
                raise NameError(f"name {name!r} is not defined")
            return _type_eval_globals[name]
        case ast.Attribute(value=owner, attr=name):
            return getattr(_python_type(owner), name)
        case ast.Subscript(value=generic, slice=argument):
            return _python_type(generic)[_python_type(argument)]
        case ast.Tuple(elts=items):
            return tuple(_python_type(item) for item in items)
    raise TypeError(f"{ast.unparse(expression)} is not the name of a type")


@functools.cache
def _python_type_of_text(annotation: str) -> Any:
    return _python_type(ast.parse(annotation, mode="eval").body)


def _torchscript_type_to_python_type(ts_type: torch._C.JitType) -> Any:
    """The Python type of a TorchScript type: ``typing.List[int]`` for ``int[]``.

    Raises:
        NameError: there is no such type in Python.
    """
    return _python_type_of_text(ts_type.annotation_str)


def _torchscript_schema_to_signature_impl(ts_schema: torch._C.FunctionSchema) -> Signature:
    """Compute the signature of a schema."""
    arguments = list(ts_schema.arguments)
    # `from` is a keyword of Python: it and the parameters before it are positional-only.
    last = max((at for at, arg in enumerate(arguments) if arg.name == "from"), default=-1)
    parameters = []
    for at, arg in enumerate(arguments):
        kind = Parameter.KEYWORD_ONLY if arg.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(
            Parameter(
                # The name of the first tensor in functions of `torch`.
                "input" if arg.name == "self" else arg.name,
                Parameter.POSITIONAL_ONLY if at <= last else kind,
                default=arg.default_value if arg.has_default_value() else Parameter.empty,
                annotation=_torchscript_type_to_python_type(arg.type),
            )
        )
    results = [_torchscript_type_to_python_type(result.type) for result in ts_schema.returns]
    if len(results) > 1:
        return Signature(parameters, return_annotation=tuple[tuple(results)])  # type: ignore[misc]
    return Signature(parameters, return_annotation=results[0] if results else None)


# By name, with the schema: a library may have redefined the operator. Some schemas are not hashable.
_known_schemas: dict[tuple[str, str], tuple[torch._C.FunctionSchema, _Parameters]] = {}


def _parameters_of_schema(ts_schema: torch._C.FunctionSchema) -> _Parameters:
    name = ts_schema.name, ts_schema.overload_name
    schema, parameters = _known_schemas.get(name, (None, None))
    if parameters is None or schema != ts_schema:
        parameters = _Parameters(_torchscript_schema_to_signature_impl(ts_schema))
        _known_schemas[name] = ts_schema, parameters
    return parameters


def _torchscript_schema_to_signature(ts_schema: torch._C.FunctionSchema) -> Signature:
    """The Python signature of an operator with this schema.

    Raises:
        NameError: a type of the schema has no Python equivalent.
    """
    return _parameters_of_schema(ts_schema).signature


def _schemas(op: Callable[..., Any]) -> list[torch._C.FunctionSchema] | None:
    """The schemas of an operator, in the order in which PyTorch tries them; None if it has none."""
    if isinstance(op, OpOverload):
        return [op._schema]
    if isinstance(op, OpOverloadPacket):
        return [overload._schema for overload in op.op_overloads()]
    name = torch.jit._builtins._find_builtin(op)
    return None if name is None else torch._C._jit_get_schemas_for_operator(name)


@typing.overload
def get_signature_for_torch_op(
    op: Callable[..., Any], return_schemas: Literal[True]
) -> tuple[list[Signature] | None, list[torch._C.FunctionSchema] | None]: ...


@typing.overload
def get_signature_for_torch_op(
    op: Callable[..., Any], return_schemas: Literal[False] = ...
) -> list[Signature] | None: ...


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of the overloads of an operator; None if PyTorch has no schema for it.

    Args:
        op: a function of ``torch``, or an operator of ``torch.ops``.
        return_schemas: whether to return a pair of the signatures and the schemas.
    """
    schemas = None if op in _manual_overrides else _schemas(op)
    signatures = _manual_overrides.get(op)
    if schemas is not None:
        signatures = [_torchscript_schema_to_signature(schema) for schema in schemas]
    if return_schemas:
        return signatures, schemas
    # Signatures from the table of overrides are only returned with ``return_schemas``.
    return None if schemas is None else signatures


def check_for_mutable_operation(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Check that a call does not write to its arguments, as far as its schema is certain.

    Raises:
        RuntimeError: the only overload for these arguments writes to some of them.
    """
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    if not signatures:
        return
    fitting = [s for s in schemas or () if _parameters_of_schema(s).bind(args, kwargs) is not None]
    if len(fitting) == 1 and fitting[0].is_mutable:
        raise RuntimeError(
            f"Tried to trace mutable operation {fitting[0]}. FX only supports functional code: "
            "operations that write to their operands, such as those with `out`, cannot be traced"
        )


def create_type_hint(x: object) -> object:
    """The type hint of an argument from the types in it: ``list[int]`` for ``[int, bool]``, ``tuple[Any,
    ...]`` without a common base. Values other than lists and tuples are returned unchanged."""
    if not isinstance(x, list | tuple):
        return x
    base: Any = x[0] if x else Any
    try:
        for item in x:
            if not issubclass(item, base):
                base = item if issubclass(base, item) else Any
            if base is Any:
                break
    except TypeError:
        warnings.warn(f"no type hint can be made of {x}", stacklevel=2)
        return x
    return list[base] if isinstance(x, list) else tuple[base, ...]


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether a parameter annotated with ``signature_type`` accepts a value of ``argument_type``."""
    if signature_type is argument_type:
        return True
    origin, inner = typing.get_origin(signature_type), typing.get_args(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(member, argument_type) for member in inner)
    if origin is list:
        return _list_takes(signature_type, inner[0], argument_type)
    # Schemas represent dtypes as integers, and all numbers by one type.
    if signature_type is int and argument_type is torch.dtype:
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    both = inspect.isclass(argument_type) and inspect.isclass(signature_type)
    return both and issubclass(argument_type, signature_type)


def _list_takes(list_type: Any, element: Any, argument_type: Any) -> bool:
    """Whether a parameter of type ``list[element]`` accepts a value of ``argument_type``: a list or tuple of
    such elements, or a single integer for all."""
    if element is int and argument_type is int:
        return True
    if not inspect.isclass(element):
        warnings.warn(f"{list_type} is not supported: its elements are of no class", stacklevel=3)
        return False
    given = typing.get_args(argument_type)
    match typing.get_origin(argument_type):
        case builtin if builtin is list:
            return issubclass(given[0], element)
        case builtin if builtin is tuple:
            return given == ((),) or all(t is ... or issubclass(t, element) for t in given)
    return False


def _is_operator(target: Any) -> bool:
    return isinstance(target, types.BuiltinFunctionType | OpOverloadPacket | OpOverload)


def _select(
    overloads: list[_Parameters], arg_types: tuple[Any, ...], kwarg_types: Mapping[str, Any]
) -> _Parameters | None:
    """The first overload that accepts arguments of these types."""

    def takes(overload: _Parameters) -> bool:
        bound = overload.bind(arg_types, kwarg_types)
        named = overload.signature.parameters
        try:
            return bound is not None and all(
                [type_matches(named[name].annotation, given) for name, given in bound.items()]
            )
        except TypeError:  # one of the arguments is not a type
            return False

    return next((overload for overload in overloads if takes(overload)), None)


def _normal_operator_call(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arg_types: tuple[Any, ...] | None,
    kwarg_types: dict[str, Any] | None,
    only_keywords: bool,
) -> ArgsKwargsPair | None:
    schemas = None if target in _manual_overrides else _schemas(target)
    overloads = [_parameters_of_schema(schema) for schema in schemas or ()]
    fitting = [overload for overload in overloads if overload.bind(args, kwargs) is not None]
    if not fitting:
        return None
    chosen: _Parameters | None = fitting[0]
    if len(fitting) > 1:
        if arg_types is None and kwarg_types is None:
            choices = "\n".join(str(overload.signature) for overload in fitting)
            raise RuntimeError(
                f"Tried to normalize arguments to {torch.typename(target)} but the schema match was "
                "ambiguous! Please provide argument types (arg_types, kwarg_types). "
                f"These signatures fit:\n{choices}"
            )
        chosen = _select(overloads, arg_types or (), kwarg_types or {})
    return None if chosen is None else chosen.normal(args, kwargs, only_keywords)


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """A call of a function with all of its arguments, including defaults, by parameter name.

    Args:
        target: a function of PyTorch, or one written in Python.
        args: the positional arguments.
        kwargs: the keyword arguments.
        arg_types: the types of ``args``, which select among several fitting overloads.
        kwarg_types: the types of ``kwargs``.
        normalize_to_only_use_kwargs: whether positional arguments become keyword arguments too.

    Returns:
        The arguments, or None if no signature is known or fits, or the fitting one has ``*args``,
        ``**kwargs`` or positional-only parameters.

    Raises:
        RuntimeError: several overloads fit, and no types are given.
        TypeError: the arguments do not fit a function written in Python.
    """
    kwargs = {} if kwargs is None else kwargs
    if not _is_operator(target) and hasattr(target, "_op"):
        target = target._op  # a wrapper around an operator, as in ExecuTorch
    if _is_operator(target):
        return _normal_operator_call(
            target, args, kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
        )
    if target in boolean_dispatched:
        # One of two functions, selected by a flag among the arguments.
        cases = boolean_dispatched[target]
        target = cases["if_true"]
        of_both = (inspect.signature(f).parameters for f in (target, cases["if_false"]))
        if next(of_both) != next(of_both):
            return None
    if not callable(target):
        raise AssertionError(f"what is called must be callable, not {type(target)}")
    signature = inspect.signature(inspect.unwrap(target))
    return _Parameters(signature).normal(args, kwargs, normalize_to_only_use_kwargs)


def _normalize_function_or_error(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair:
    """The result of :func:`normalize_function`.

    Raises:
        RuntimeError: it returns None.
    """
    pair = normalize_function(
        target, args, kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
    )
    if pair is None:
        raise RuntimeError(
            f"Failed to normalize function {target} with args {args} and kwargs {kwargs}"
        )
    return pair


def normalize_module(
    root: torch.nn.Module,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """A call of a module of ``torch.nn`` with all of its arguments, as from :func:`normalize_function`; None
    for modules of other classes.

    Raises:
        RuntimeError: ``root`` has no submodule ``target``.
        TypeError: the arguments do not fit the module.
    """
    try:
        module = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from error
    if getattr(torch.nn, type(module).__name__, None) is not type(module):
        return None
    return _args_kwargs_to_normalized_args_kwargs(
        inspect.signature(inspect.unwrap(module.forward)),
        args,
        {} if kwargs is None else kwargs,
        normalize_to_only_use_kwargs,
    )


def _args_kwargs_to_normalized_args_kwargs(
    sig: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    normalize_to_only_use_kwargs: bool,
) -> ArgsKwargsPair | None:
    """A call of a function with the signature ``sig``, as from :func:`normalize_function`.

    Raises:
        TypeError: the arguments do not fit.
    """
    return _Parameters(sig).normal(args, kwargs, normalize_to_only_use_kwargs)
