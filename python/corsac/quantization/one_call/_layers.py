"""Layers of a model that can be quantised, and reasons against others."""

from __future__ import annotations

import copy
import fnmatch
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from corsac._messages.near_names import did_you_mean
from corsac.quantization._finite import infinite_numbers
from corsac.quantization.one_call._subclasses import computes_as
from corsac.quantization.quantized._weight import QuantisedWeight
from corsac.quantization.quantized.attention import SplitAttention

#: Classes that are quantised, with subclasses that compute the same.
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Embedding)
#: Least likeness of the names of modules that errors list.
_ALIKE = 0.4


@dataclass
class Layer:
    """A layer at all its places in the model.

    Attributes:
        names: the paths.
        module: the float layer, of the copy.
        reason: why it stays float; empty where it may be quantised.
    """

    names: list[str]
    module: nn.Module
    reason: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The first path."""
        return self.names[0]

    @property
    def is_table(self) -> bool:
        """Whether the layer looks up rows, so that its input is no floats."""
        return isinstance(self.module, nn.Embedding)

    @property
    def is_matrix(self) -> bool:
        """Whether the layer multiplies the rows of its input by a matrix."""
        return isinstance(self.module, nn.Linear) or is_transposed(self.module)

    def weight(self) -> Tensor:
        """The weight, output channels first."""
        weight: Any = self.module.weight
        return weight.t() if is_transposed(self.module) else weight


def base_of(module: nn.Module) -> type[nn.Module]:
    """The class of layers that a module is of, or derives from."""
    return next(kind for kind in LAYERS if isinstance(module, kind))


def is_transposed(module: nn.Module) -> bool:
    """Whether a module is ``transformers``' Conv1D, a linear layer with the weight [in, out]."""
    home = sys.modules.get("transformers.pytorch_utils")
    return home is not None and type(module) is home.Conv1D


def split_attentions(model: nn.Module) -> nn.Module:
    """Replace attentions that read the weights of their layers by those that call them; return the model."""
    made: dict[int, nn.Module] = {}
    for name, module in [*model.named_modules(remove_duplicate=False)]:
        is_whole = isinstance(module, nn.MultiheadAttention) and not isinstance(
            module, SplitAttention
        )
        if is_whole and not SplitAttention.reason(module):
            own = made.setdefault(id(module), SplitAttention(module))
            model = replace(model, Layer([name], module), own)
    return model


def merge_attentions(model: nn.Module) -> nn.Module:
    """Undo :func:`split_attentions` for those without quantised layers; return the model."""
    made: dict[int, nn.Module] = {}
    for name, module in [*model.named_modules(remove_duplicate=False)]:
        if not isinstance(module, SplitAttention):
            continue
        if all(type(own) is nn.Linear for own in module.children()):
            own = made.setdefault(id(module), module.merged())
            model = replace(model, Layer([name], module), own)
    return model


def find_layers(model: nn.Module) -> list[Layer]:
    """The layers of a model in the order of their paths, and subclasses of these, each once."""
    modules: dict[int, Layer] = {}
    readers: dict[int, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.MultiheadAttention) and not isinstance(module, SplitAttention):
            for own in module.modules():
                readers[id(own)] = f"{name}: {SplitAttention.reason(module)}"
        if not isinstance(module, LAYERS) and not is_transposed(module):
            continue
        if id(module) in modules:
            modules[id(module)].names.append(name)
        else:
            modules[id(module)] = Layer([name], module)
    for key, layer in modules.items():
        layer.reason = readers.get(key) or _reason(layer.module)
    return [*modules.values()]


def _reason(module: nn.Module) -> str:
    """Why a layer stays float, as far as it tells itself."""
    kind = type(module)
    if isinstance(module, QuantisedWeight):
        return "it is quantised already"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its weight is parametrised"
    if "forward" in vars(module):
        return "its forward was replaced"
    if not is_transposed(module) and not computes_as(module, base_of(module)):
        return f"{kind.__name__} is a subclass, which may compute something else"
    own: Any = module
    weight = own._parameters.get("weight")
    if weight is None:
        return "its weight is no parameter: something computes it"
    if module._forward_hooks or module._forward_pre_hooks:
        return "it has hooks, which may change what it computes"
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}"
    if weight.dtype != torch.float32:
        return f"its weight is {str(weight.dtype).removeprefix('torch.')}, expected float32"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm changes the table in each call"
    return ""


def check_weights(layers: Iterable[Layer]) -> None:
    """Check that all numbers of the weights to quantise are finite.

    Raises:
        ValueError: they are not; the message has the tensor's name.
    """
    for layer in layers:
        for name, tensor in layer.module.named_parameters(recurse=False):
            wrong = "" if layer.reason else infinite_numbers(tensor)
            if wrong:
                path = f"{layer.name}.{name}" if layer.name else name
                raise ValueError(f"{path} has NaN or infinity: {wrong} numbers")


def exclude_layers(model: nn.Module, layers: Iterable[Layer], exclude: Any) -> None:
    """Give the layers that ``exclude`` names a reason: by names and patterns of modules, which are whole, or classes.

    Raises:
        ValueError: a name or a class fits no module of the model.
        TypeError: an item is neither.
    """
    items = [exclude] if isinstance(exclude, (str, type)) else [*exclude]
    for item in items:
        found = modules_named(model, item, "exclude")
        for layer in layers:
            if any(is_within(path, found) for path in layer.names):
                shown = item if isinstance(item, str) else item.__name__
                layer.reason = f"excluded by {shown}"


def modules_named(model: nn.Module, item: Any, option: str) -> set[str]:
    """The paths of the modules that a name, a pattern or a class stands for.

    Args:
        model: has the modules.
        item: the name, pattern or class.
        option: begins the texts of errors.

    Raises:
        ValueError: it fits no module of the model.
        TypeError: it is something else.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if isinstance(item, str):
        found = {name for name in modules if fnmatch.fnmatchcase(name, item)}
        shown, known = f"module {item!r}", [*modules]
    elif isinstance(item, type):
        found = {name for name, module in modules.items() if isinstance(module, item)}
        shown, known = item.__name__, sorted({type(own).__name__ for own in modules.values()})
    else:
        raise TypeError(f"{option}: expected names, patterns or classes, got {item!r}")
    if not found:
        text = item if isinstance(item, str) else item.__name__
        hint = did_you_mean(text, known, cutoff=_ALIKE)
        raise ValueError(f"{option}: the model has no {shown}{hint}")
    return found


def is_within(path: str, modules: set[str]) -> bool:
    """Whether a path is one of ``modules``, or inside one."""
    parts = path.split(".")
    return any(".".join(parts[:end]) in modules for end in range(len(parts) + 1)) or path in modules


def copy_around(model: nn.Module) -> nn.Module:
    """A copy of a model that has the same parameters, so that the memory is not needed twice."""
    return copy.deepcopy(model, {id(own): own for own in model.parameters()})


def own_parameters(made: nn.Module, original: nn.Module) -> None:
    """Give a copy its own parameters, tied as those of the original are, in place of the original's."""
    known: dict[int, nn.Parameter | None] = {id(own): None for own in original.parameters()}
    for module in made.modules():
        for name, parameter in module._parameters.items():
            if parameter is None or id(parameter) not in known:
                continue
            own = known[id(parameter)]
            if own is None:
                own = known[id(parameter)] = copy.deepcopy(parameter)
            module._parameters[name] = own


def tied(model: nn.Module) -> dict[int, list[str]]:
    """The paths of each parameter that modules have under several names, by the parameter's identity."""
    owners: dict[int, list[str]] = {}
    seen: set[tuple[int, str]] = set()
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if (id(module), name) not in seen:
                seen.add((id(module), name))
                owners.setdefault(id(parameter), []).append(f"{path}.{name}" if path else name)
    return {key: paths for key, paths in owners.items() if len(paths) > 1}


def replace(model: nn.Module, layer: Layer, module: nn.Module) -> nn.Module:
    """Put ``module`` at all places of a layer; return the model, which may be the layer itself."""
    for name in layer.names:
        if not name:
            model = module
            continue
        parent, _, own = name.rpartition(".")
        model.get_submodule(parent)._modules[own] = module
    return model
