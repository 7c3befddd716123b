"""Describes models as configurations."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import torch

from corsac import _core
from corsac.config._format import Format, format_of
from corsac.fx.graph_module import GraphModule

# Tensors of more elements are described by their shape only.
_WRITTEN_OUT = 64
# Constructor arguments that modules store under another name or in another form.
_KEPT_AS = {
    (torch.nn.MultiheadAttention, "bias"): lambda m: m.in_proj_bias is not None,
    (torch.nn.MultiheadAttention, "add_bias_kv"): lambda m: m.bias_k is not None,
} | {
    (layer, name): kept
    for layer in (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
    for name, kept in {
        "d_model": lambda m: m.self_attn.embed_dim,
        "nhead": lambda m: m.self_attn.num_heads,
        "dim_feedforward": lambda m: m.linear1.out_features,
        "dropout": lambda m: m.dropout.p,
        "activation": lambda m: getattr(m.activation, "__name__", m.activation),
        "layer_norm_eps": lambda m: m.norm1.eps,
        "batch_first": lambda m: m.self_attn.batch_first,
        "bias": lambda m: m.linear1.bias is not None,
    }.items()
}
# The constructor parameter that only RNN has among recurrent layers.
_NONLINEARITY = inspect.Parameter("nonlinearity", inspect.Parameter.KEYWORD_ONLY, default="tanh")


def describe(
    gm: GraphModule, file: str | os.PathLike[str] | None = None, *, format: Format | None = None
) -> str:
    """Describe a graph module as a configuration, from which :func:`build` makes it again.

    Args:
        gm: the model. Each module that its graph calls must be of :mod:`torch.nn`, or one that stores its
            constructor's arguments as attributes and is allowed when it is built again.
        file: the file to write the configuration to, if any.
        format: "graph" (unless ``file`` has another suffix), "toml" or "json".

    Weights are not part of a configuration: ``build(...)`` gives the modules new ones under the same names;
    ``load_state_dict(gm.state_dict())`` then restores the old ones. Parameters and buffers that the graph
    uses directly are written out if they are small; larger ones are described as ``normal``, ``zeros`` or
    ``ones``.

    Returns the text. Raises :class:`ConfigError` if a part of the model cannot be described.
    """
    notation = format_of(file, format) if file is not None else (format or "graph")
    modules: dict[str, tuple[str, str, list[Any], dict[str, Any]]] = {}
    for node in gm.graph.find_nodes(op="call_module"):
        if node.target not in modules:
            args, kwargs = constructor_arguments(node.target, gm.get_submodule(node.target))
            class_name = _class_name(type(gm.get_submodule(node.target)))
            modules[node.target] = (node.target, class_name, args, kwargs)
    tensors: dict[str, tuple[str, bool, torch.dtype, list[int], Any]] = {}
    for node in gm.graph.find_nodes(op="get_attr"):
        if node.target not in tensors:
            tensors[node.target] = _describe_tensor(gm, node.target)
    inputs = [(node.target, _example(node)) for node in gm.graph.find_nodes(op="placeholder")]
    name = type(gm).__name__
    text = _core.write_config(
        gm.graph,
        name if name.isidentifier() else None,
        list(modules.values()),
        list(tensors.values()),
        inputs,
        notation,
    )
    if file is not None:
        Path(file).write_text(text, encoding="utf-8")
    return text


def constructor_arguments(path: str, module: torch.nn.Module) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with which ``module`` was constructed, recovered from its attributes.

    Those without a default come first, by position. The result is checked: a module constructed with it has
    the same ``repr`` and the same tensors.

    Raises:
        ConfigError: they cannot be recovered.
    """
    cls = type(module)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    # Constructors of recurrent layers forward to RNNBase.
    recurrent = issubclass(cls, torch.nn.RNNBase)
    constructor = torch.nn.RNNBase.__init__ if recurrent else cls.__init__
    parameters = dict(inspect.signature(constructor).parameters)
    if cls is torch.nn.RNN:
        parameters["nonlinearity"] = _NONLINEARITY
    for name, parameter in parameters.items():
        if name in ("self", "device") or name.startswith("_") or (recurrent and name == "mode"):
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _argument(module, name, parameter)
        if value is parameter.empty:
            continue
        if parameter.default is parameter.empty and parameter.kind != parameter.KEYWORD_ONLY:
            args.append(value)
        elif not _same(value, parameter.default):
            kwargs[name] = value
    try:
        with torch.device("meta"):
            again = cls(*args, **kwargs)
    except Exception as error:
        raise _unknown(path, cls, f"{error}") from error
    if repr(again) != repr(module) or _tensors(again) != _tensors(module):
        raise _unknown(path, cls, f"they give {again!r} for {module!r}")
    return args, kwargs


def _argument(module: torch.nn.Module, name: str, parameter: inspect.Parameter) -> Any:
    kept = _KEPT_AS.get((type(module), name))
    if kept is not None:
        return kept(module)
    if name == "dtype":
        dtypes = {t.dtype for t in module.state_dict().values() if t.is_floating_point()}
        return dtypes.pop() if len(dtypes) == 1 and dtypes != {torch.get_default_dtype()} else None
    value = getattr(module, name, parameter.default)
    if name == "bias" and (value is None or isinstance(value, torch.Tensor)):
        return value is not None
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return parameter.default
    return value


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _tensors(module: torch.nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (t.shape, t.dtype) for name, t in module.state_dict().items()}


def _unknown(path: str, cls: type, reason: str) -> _core.ConfigError:
    error = _core.ConfigError(
        f"module {path}: the attributes of this {cls.__qualname__} do not tell the arguments of "
        f"its constructor: {reason}"
    )
    error.line = error.column = None
    return error


def _class_name(cls: type) -> str:
    if getattr(torch.nn, cls.__name__, None) is cls:
        return cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}"


def _describe_tensor(
    gm: GraphModule, path: str
) -> tuple[str, bool, torch.dtype, list[int], str | list[Any]]:
    owner_path, _, name = path.rpartition(".")
    tensor = getattr(gm.get_submodule(owner_path), name)
    if not isinstance(tensor, torch.Tensor):
        error = _core.ConfigError(f"{path}: expected a tensor, got a {type(tensor).__qualname__}")
        error.line = error.column = None
        raise error
    initial: str | list[Any] = "normal" if tensor.is_floating_point() else "zeros"
    plain = tensor.detach()
    if plain.is_meta:
        pass
    elif plain.numel() <= _WRITTEN_OUT:
        initial = plain.flatten().tolist()
    elif bool((plain == 0).all()):
        initial = "zeros"
    elif bool((plain == 1).all()):
        initial = "ones"
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return path, is_parameter, tensor.dtype, list(tensor.shape), initial


def _example(node: Any) -> tuple[torch.dtype, list[int]] | None:
    """The dtype and shape of an input, if its metadata has them."""
    known = node.meta.get("tensor_meta")
    shape, dtype = getattr(known, "shape", None), getattr(known, "dtype", None)
    if dtype is None or not all(isinstance(size, int) for size in shape):
        return None
    return dtype, list(shape)
