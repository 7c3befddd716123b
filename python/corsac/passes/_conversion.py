"""From modules to functions of their parameters, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as _module

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._derive import derived, unique_attribute
from corsac.passes._report import Report, Site
from corsac.passes._weights import drop_unused

#: For each class: the function, and how it is called: names of parameters and buffers, given as
#: attributes of the program, and keyword arguments that are values.
_Call = tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]


def _convolution(function: Callable[..., Any]) -> Callable[[Any], _Call | str]:
    def call(m: Any) -> _Call | str:
        if m.padding_mode != "zeros":
            return f"it pads by {m.padding_mode}"
        options = {"stride": m.stride, "padding": m.padding, "dilation": m.dilation}
        return function, ("weight", "bias"), {**options, "groups": m.groups}

    return call


def _transposed(function: Callable[..., Any]) -> Callable[[Any], _Call | str]:
    def call(m: Any) -> _Call | str:
        options = {"stride": m.stride, "padding": m.padding, "output_padding": m.output_padding}
        return (
            function,
            ("weight", "bias"),
            {**options, "groups": m.groups, "dilation": m.dilation},
        )

    return call


def _batch_norm(m: Any) -> _Call | str:
    if m.training:
        return "it is in training mode"
    if m.running_mean is None or m.running_var is None:
        return "it normalises with the statistics of each batch"
    options = {"training": False, "momentum": m.momentum or 0.0, "eps": m.eps}
    return F.batch_norm, ("running_mean", "running_var", "weight", "bias"), options


def _in_evaluation(function: Callable[..., Any]) -> Callable[[Any], _Call | str]:
    def call(m: Any) -> _Call | str:
        return function, (), {"p": m.p, "training": m.training, "inplace": m.inplace}

    return call


def _plain(function: Callable[..., Any], *names: str, **renamed: str) -> Callable[[Any], _Call]:
    keywords = {name: name for name in names} | renamed

    def call(m: Any) -> _Call:
        return function, (), {key: getattr(m, attribute) for key, attribute in keywords.items()}

    return call


_FUNCTIONS: dict[type[nn.Module], Callable[[Any], _Call | str]] = {
    nn.Linear: lambda m: (F.linear, ("weight", "bias"), {}),
    nn.Conv1d: _convolution(F.conv1d),
    nn.Conv2d: _convolution(F.conv2d),
    nn.Conv3d: _convolution(F.conv3d),
    nn.ConvTranspose1d: _transposed(F.conv_transpose1d),
    nn.ConvTranspose2d: _transposed(F.conv_transpose2d),
    nn.ConvTranspose3d: _transposed(F.conv_transpose3d),
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm3d: _batch_norm,
    nn.LayerNorm: lambda m: (
        F.layer_norm,
        ("weight", "bias"),
        {"normalized_shape": m.normalized_shape, "eps": m.eps},
    ),
    nn.GroupNorm: lambda m: (
        F.group_norm,
        ("weight", "bias"),
        {"num_groups": m.num_groups, "eps": m.eps},
    ),
    nn.ReLU: _plain(F.relu, "inplace"),
    nn.ReLU6: _plain(F.relu6, "inplace"),
    nn.SiLU: _plain(F.silu, "inplace"),
    nn.Hardswish: _plain(F.hardswish, "inplace"),
    nn.Hardsigmoid: _plain(F.hardsigmoid, "inplace"),
    nn.LeakyReLU: _plain(F.leaky_relu, "negative_slope", "inplace"),
    nn.ELU: _plain(F.elu, "alpha", "inplace"),
    nn.GELU: _plain(F.gelu, "approximate"),
    nn.Softplus: _plain(F.softplus, "beta", "threshold"),
    nn.Sigmoid: _plain(torch.sigmoid),
    nn.Tanh: _plain(torch.tanh),
    nn.Softmax: lambda m: (
        "its dimension depends on the shape" if m.dim is None else (F.softmax, (), {"dim": m.dim})
    ),
    nn.LogSoftmax: lambda m: (
        "its dimension depends on the shape"
        if m.dim is None
        else (F.log_softmax, (), {"dim": m.dim})
    ),
    nn.Dropout: _in_evaluation(F.dropout),
    nn.Dropout1d: _in_evaluation(F.dropout1d),
    nn.Dropout2d: _in_evaluation(F.dropout2d),
    nn.Dropout3d: _in_evaluation(F.dropout3d),
    nn.Flatten: _plain(torch.flatten, "start_dim", "end_dim"),
    nn.MaxPool1d: _plain(
        F.max_pool1d, "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"
    ),
    nn.MaxPool2d: _plain(
        F.max_pool2d, "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"
    ),
    nn.AvgPool2d: _plain(
        F.avg_pool2d,
        "kernel_size",
        "stride",
        "padding",
        "ceil_mode",
        "count_include_pad",
        "divisor_override",
    ),
    nn.AdaptiveAvgPool1d: _plain(F.adaptive_avg_pool1d, "output_size"),
    nn.AdaptiveAvgPool2d: _plain(F.adaptive_avg_pool2d, "output_size"),
    nn.AdaptiveAvgPool3d: _plain(F.adaptive_avg_pool3d, "output_size"),
}


def modules_to_functions(
    target: GraphModule,
    *,
    classes: tuple[type[nn.Module], ...] | None = None,
    budget: Budget | None = None,
) -> Report:
    """Call the functions that modules of ``torch.nn`` call, on their parameters.

    ``self.linear(x)`` becomes ``F.linear(x, self.linear.weight, self.linear.bias)``. Parameters
    stay where they are. Modes count as they are now.

    Args:
        target: the module to change.
        classes: which classes; all that are known by default.
        budget: how many calls may be changed; see :class:`Budget`.

    The report lists every call of a module, and why it stays: it has hooks, is of another class, or
    computes something that no single function does.
    """
    graph, before, sites = target.graph, len(target.graph.nodes), []
    budget = current_budget(budget)
    wanted = tuple(_FUNCTIONS) if classes is None else classes
    for node in graph.find_nodes(op="call_module"):
        module = target.get_submodule(node.target)
        if type(module) not in wanted and classes is not None:
            continue
        call = _function_of(module)
        if not isinstance(call, str) and (len(node.args) != 1 or node.kwargs):
            call = "it is called with other arguments than one tensor"
        if not isinstance(call, str) and budget is not None and not budget.take():
            call = "the budget of changes is used up"
        if isinstance(call, str):
            sites.append(Site(node.name, node.target, None, call))
            continue
        path = node.target
        function, parameters, values = call
        attributes: list[Node | None] = []
        with graph.inserting_before(node):
            for name in parameters:
                if getattr(module, name) is None:
                    attributes.append(None)
                    continue
                wish = f"{path}.{name}".replace(".", "_")
                attributes.append(derived(node, "get_attr", f"{path}.{name}", name=wish))
        keywords = dict(zip(parameters, attributes, strict=True))
        new_kwargs: dict[str, Any]
        if function is F.batch_norm:
            new_kwargs = {**keywords, **values}
            new_args = node.args
        elif set(parameters) <= {"weight", "bias"} and function not in (F.layer_norm, F.group_norm):
            new_args, new_kwargs = (*node.args, *attributes), values
        else:
            new_args, new_kwargs = node.args, {**values, **keywords}
        node.op, node.target = "call_function", function
        node.args, node.kwargs = new_args, new_kwargs
        sites.append(Site(node.name, path, getattr(function, "__name__", str(function)), None))
    report = Report("modules to functions", tuple(sites), before, len(graph.nodes))
    if report.changed:
        drop_unused(target, [site.target for site in report.applied])
        target.recompile()
    return report


def _function_of(module: nn.Module) -> _Call | str:
    known = _FUNCTIONS.get(type(module))
    if known is None:
        return f"no function is known for {type(module).__qualname__}"
    if has_hooks(module):
        return "it has hooks"
    return known(module)


def has_hooks(module: nn.Module) -> bool:
    """Whether calling a module runs more, or something else, than the forward of its class."""
    own = module.__dict__
    return bool(
        "forward" in own
        or own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or _module._global_forward_hooks
        or _module._global_forward_pre_hooks
    )


def functions_to_modules(target: GraphModule, *, budget: Budget | None = None) -> Report:
    """Call modules of ``torch.nn`` where functions are called on attributes of the program.

    ``F.linear(x, w, b)`` with parameters ``w`` and ``b``, and activations such as ``F.relu(x)``.
    Modules share their parameters with the attributes; those that nothing names any more go.

    The report lists every call of such a function, and why it stays: a weight is no parameter, or
    arguments are given that are no literals.
    """
    graph, before, sites = target.graph, len(target.graph.nodes), []
    budget = current_budget(budget)
    attributes: set[str] = set()
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _MODULES:
            continue
        label = node._pretty_print_target(node.target)
        made = _module_of(target, node)
        if not isinstance(made, str) and budget is not None and not budget.take():
            made = "the budget of changes is used up"
        if isinstance(made, str):
            sites.append(Site(node.name, label, None, made))
            continue
        name = unique_attribute(target, node.name)
        target.add_submodule(name, made)
        attributes.update(n.target for n in node.all_input_nodes if n.op == "get_attr")
        inputs = list(node.all_input_nodes)
        first = node.args[0]
        node.op, node.target = "call_module", name
        node.args, node.kwargs = (first,), {}
        for used in inputs:
            if used.op == "get_attr" and not used.users:
                graph.erase_node(used)
        sites.append(Site(node.name, label, name, None))
    report = Report("functions to modules", tuple(sites), before, len(graph.nodes))
    if report.changed:
        left = {node.target for node in graph.find_nodes(op="get_attr")}
        gone = attributes - left
        owners = {attribute.rpartition(".")[0] for attribute in gone} - {""}
        drop_unused(target, [*gone, *owners])
        target.recompile()
    return report


_ACTIVATIONS: dict[Any, type[nn.Module]] = {
    F.relu: nn.ReLU,
    torch.relu: nn.ReLU,
    F.relu6: nn.ReLU6,
    F.silu: nn.SiLU,
    F.hardswish: nn.Hardswish,
    F.hardsigmoid: nn.Hardsigmoid,
    F.leaky_relu: nn.LeakyReLU,
    F.elu: nn.ELU,
    F.gelu: nn.GELU,
    F.softplus: nn.Softplus,
    torch.sigmoid: nn.Sigmoid,
    F.sigmoid: nn.Sigmoid,
    torch.tanh: nn.Tanh,
    F.tanh: nn.Tanh,
}
_MODULES: dict[Any, Any] = {F.linear: nn.Linear, F.conv2d: nn.Conv2d, **_ACTIVATIONS}


def _module_of(gm: GraphModule, node: Node) -> nn.Module | str:
    cls = _MODULES[node.target]
    if not node.args or not isinstance(node.args[0], Node):
        return "its input is not given by position"
    if node.target in _ACTIVATIONS:
        literals = (*node.args[1:], *node.kwargs.values())
        if len(node.args) > 1 or any(isinstance(value, Node) for value in literals):
            return "it has arguments besides its input that are no keyword literals"
        made = cls(**node.kwargs)
        return made.train(gm.training)
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    tensors = {}
    for name in ("weight", "bias"):
        value = given.pop(name, None)
        if value is None:
            tensors[name] = None
            continue
        if not isinstance(value, Node) or value.op != "get_attr":
            return f"its {name} is no attribute"
        owner, _, attribute = value.target.rpartition(".")
        tensors[name] = gm.get_submodule(owner)._parameters.get(attribute)
        if tensors[name] is None:
            return f"its {name} is no parameter"
    given.pop("input")
    if any(isinstance(value, Node) for value in given.values()):
        return "it has arguments that are no literals"
    weight = tensors["weight"]
    if weight is None:
        return "it has no weight"
    with torch.device("meta"):
        if cls is nn.Linear:
            made = nn.Linear(weight.shape[1], weight.shape[0], tensors["bias"] is not None)
        else:
            groups = given.get("groups", 1)
            made = nn.Conv2d(
                weight.shape[1] * groups,
                weight.shape[0],
                tuple(weight.shape[2:]),
                bias=tensors["bias"] is not None,
                **given,
            )
    made._parameters["weight"], made._parameters["bias"] = weight, tensors["bias"]
    return made.train(gm.training)


__all__ = ["functions_to_modules", "modules_to_functions"]
