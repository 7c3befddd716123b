"""Weights of modules: folding of batch norms into them, and copies of modules."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from corsac.fx._module_attributes import get_submodule
from corsac.passes._derive import unique_attribute

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


#: The reason to keep a batch norm that could be folded, by batch norm and layer, None where they are functions, and
#: whether the layer comes first; None to fold it.
FoldRefusal = Callable[[torch.nn.Module | None, torch.nn.Module | None, bool], str | None]


class FoldedLayers:
    """Layers with batch norms folded into their weights.

    Modules get new modules in their places (:attr:`layers`, by qualified name), functions get new
    parameters (:attr:`parameters`). ``root`` stays as it is until :meth:`install`.
    """

    def __init__(self, root: torch.nn.Module, refusal: FoldRefusal | None = None) -> None:
        self._root, self._own_refusal = root, refusal
        self.layers: dict[str, torch.nn.Module] = {}
        self.parameters: dict[str, torch.nn.Parameter] = {}
        # The present names of weight and bias of functions, by the key of the layer.
        self._renamed: dict[int, tuple[str, str]] = {}

    def fold(self, plans: list[dict[str, Any]]) -> list[str | tuple[str, str]]:
        """Compute the folded weights of ``plans``, in this order.

        Returns the names of the new weight and bias, or the reason why they cannot be folded, for each.
        """
        answers: list[str | tuple[str, str]] = []
        # Layers followed by a batch norm that stays: later norms cannot be folded into them.
        blocked: set[int] = set()
        with torch.no_grad():
            for plan, affine in zip(plans, _Affine.of_plans(self._root, plans), strict=True):
                answer: str | tuple[str, str]
                if plan["after"] and plan["key"] in blocked:
                    answer = f"the batch norm between {plan['layer']} and {plan['norm']} stays"
                elif isinstance(affine, str):
                    answer = affine
                else:
                    answer = self._refusal(plan) or self._fold(plan, affine)
                if isinstance(answer, str) and plan["after"]:
                    blocked.add(plan["key"])
                answers.append(answer)
        return answers

    def _refusal(self, plan: dict[str, Any]) -> str | None:
        if self._own_refusal is None:
            return None
        paths = (plan["norm_module"], plan["layer_module"])
        norm, layer = (None if path is None else get_submodule(self._root, path) for path in paths)
        return self._own_refusal(norm, layer, plan["after"])

    def _fold(self, plan: dict[str, Any], affine: _Affine) -> str | tuple[str, str]:
        layer, path = plan["layer"], plan["layer_module"]
        before = None
        if path is not None:
            before = self.layers.get(path) or get_submodule(self._root, path)
            weight, bias = before._parameters.get("weight"), before._parameters.get("bias")
            if weight is None:
                return f"{layer} has no weight"
        else:
            names = self._renamed.get(plan["key"], (plan["weight"], plan["bias"]))
            weight, bias = (
                None if name is None else self.parameters.get(name, _tensor(self._root, name))
                for name in names
            )
            if not isinstance(weight, torch.Tensor):
                return f"{layer} has no weight"
        channels = _Channels(weight, plan["transposed"], plan["groups"])
        if weight.dtype not in _FLOATS:
            return f"the weight of {layer} is {weight.dtype}"
        count = channels.outputs if plan["after"] else channels.inputs
        if affine.factor.numel() != count:
            verb = "makes" if plan["after"] else "takes"
            return f"{plan['norm']} normalises {affine.factor.numel()} channels, {layer} {verb} {count}"
        if weight.device != affine.factor.device:
            return f"{layer} is on {weight.device}, {plan['norm']} on {affine.factor.device}"

        if plan["after"]:
            new_weight = weight * channels.per_output(affine.factor)
            # A copy: the offsets of all norms are views of one tensor.
            new_bias = affine.offset.clone() if bias is None else affine.offset_with(bias)
        else:
            # In a wide type: a sum of many products must not be rounded in between.
            wide = torch.promote_types(weight.dtype, torch.float32)
            factor, offset = (channels.per_input(x.to(wide)) for x in affine)
            new_weight = weight * factor
            new_bias = channels.sum_of_inputs(weight.to(wide) * offset)
            new_bias = new_bias if bias is None else new_bias + bias
        bias_dtype = weight.dtype if bias is None else bias.dtype
        if new_weight.dtype != weight.dtype:
            new_weight = new_weight.to(weight.dtype)
        if new_bias.dtype != bias_dtype:
            new_bias = new_bias.to(bias_dtype)
        trained = bias is not None and bias.requires_grad
        made = (
            torch.nn.Parameter(new_weight, weight.requires_grad),
            torch.nn.Parameter(new_bias, trained),
        )
        if before is not None:
            after = shallow_copy(before)
            after._parameters["weight"], after._parameters["bias"] = made
            self.layers[path] = after
            return plan["weight"], plan["bias"]
        names = self._renamed.get(plan["key"])
        if names is None:
            # In the root: submodules may be the model's own.
            wish = f"{plan['weight'].replace('.', '_')}_folded"
            wanted = (wish, f"{wish}_bias")
            weight_name, bias_name = (
                unique_attribute(self._root, w, self.parameters) for w in wanted
            )
            names = self._renamed[plan["key"]] = (weight_name, bias_name)
        self.parameters.update(zip(names, made, strict=True))
        return names

    def install(self, root: torch.nn.Module) -> None:
        """Put the new modules and parameters into ``root``."""
        for path, layer in self.layers.items():
            install(root, path, layer)
        for path, parameter in self.parameters.items():
            owner, _, name = path.rpartition(".")
            get_submodule(root, owner).register_parameter(name, parameter)


def _tensor(root: torch.nn.Module, path: str) -> torch.Tensor | None:
    """The parameter, buffer or plain attribute with this qualified name, if it is a tensor."""
    owner, _, name = path.rpartition(".")
    found = getattr(get_submodule(root, owner), name, None)
    return found if isinstance(found, torch.Tensor) else None


class _Channels:
    """The channels of a weight, in its first two dimensions.

    The shape is ``(outputs, inputs of a group, ...)``, or ``(inputs, outputs of a group, ...)`` for a
    transposed convolution.
    """

    def __init__(self, weight: torch.Tensor, transposed: bool, groups: int) -> None:
        self.shape, self.groups, self.transposed = weight.shape, groups, transposed
        first, second = self.shape[0], self.shape[1] * groups
        self.outputs, self.inputs = (second, first) if transposed else (first, second)
        self._taps = [1] * (len(self.shape) - 2)

    def per_output(self, values: torch.Tensor) -> torch.Tensor:
        """``values``, one per output channel, in a shape that broadcasts to the weight."""
        return self._of_groups(values) if self.transposed else self._of_rows(values)

    def per_input(self, values: torch.Tensor) -> torch.Tensor:
        """``values``, one per input channel, in a shape that broadcasts to the weight."""
        return self._of_rows(values) if self.transposed else self._of_groups(values)

    def _of_rows(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(-1, *[1] * (len(self.shape) - 1))

    def _of_groups(self, values: torch.Tensor) -> torch.Tensor:
        if self.groups == 1:
            return values.reshape(1, -1, *self._taps)
        rows = values.reshape(self.groups, -1)
        rows = rows.repeat_interleave(self.shape[0] // self.groups, 0)
        return rows.reshape(self.shape[0], -1, *self._taps)

    def sum_of_inputs(self, products: torch.Tensor) -> torch.Tensor:
        """Sums over input channels and taps, one per output channel; not for transposed convolutions."""
        return products.flatten(1).sum(1)


@dataclass(slots=True)
class _Affine:
    """A batch norm in evaluation as ``factor * x + offset``, per channel.

    Computed in the order in which torch.nn.utils.fusion does it, so that results are the same to
    the last bit.
    """

    mean: torch.Tensor
    gamma: torch.Tensor | None
    beta: torch.Tensor | None
    root: torch.Tensor  # 1 / sqrt(variance + eps)
    factor: torch.Tensor
    offset: torch.Tensor

    @classmethod
    def of_plans(cls, root: torch.nn.Module, plans: list[dict[str, Any]]) -> list[_Affine | str]:
        """The batch norms of ``plans``, computed together: a model has many, and each is small.

        A message instead if a tensor is missing or not of a floating-point type.
        """
        found: list[Any] = [None] * len(plans)
        alike: dict[Any, list[tuple[int, _Statistics]]] = {}
        for i, plan in enumerate(plans):
            statistics = _Statistics.of_plan(root, plan)
            if isinstance(statistics, str):
                found[i] = statistics
                continue
            key = (plan["eps"], *(None if t is None else (t.dtype, t.device) for t in statistics))
            alike.setdefault(key, []).append((i, statistics))
        for group in alike.values():
            means, variances, gammas, betas = zip(*(members for _, members in group), strict=True)
            inverse = torch.rsqrt(torch.cat(variances) + plans[group[0][0]]["eps"])
            factor, offset = inverse, -torch.cat(means) * inverse
            if gammas[0] is not None:
                scale = torch.cat(gammas)
                factor, offset = scale * inverse, offset * scale
            if betas[0] is not None:
                offset = offset + torch.cat(betas)
            sizes = [mean.numel() for mean in means]
            parts = (whole.split(sizes) for whole in (inverse, factor, offset))
            for (i, _), *rest in zip(group, means, gammas, betas, *parts, strict=True):
                found[i] = cls(*rest)
        return found

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield factor and offset."""
        return iter((self.factor, self.offset))

    def offset_with(self, bias: torch.Tensor) -> torch.Tensor:
        """The new bias of a preceding layer with this ``bias``."""
        offset = (bias - self.mean) * self.root
        if self.gamma is not None:
            offset = offset * self.gamma
        return offset if self.beta is None else offset + self.beta


class _Statistics(NamedTuple):
    """The tensors of a batch norm."""

    mean: torch.Tensor
    variance: torch.Tensor
    gamma: torch.Tensor | None
    beta: torch.Tensor | None

    @classmethod
    def of_plan(cls, root: torch.nn.Module, plan: dict[str, Any]) -> _Statistics | str:
        if (path := plan["norm_module"]) is not None:
            norm = get_submodule(root, path)
            buffers, parameters = norm._buffers, norm._parameters
            return cls(
                buffers["running_mean"],
                buffers["running_var"],
                parameters["weight"],
                parameters["bias"],
            )
        names = [plan[name] for name in ("mean", "variance", "gamma", "beta")]
        tensors = [None if name is None else _tensor(root, name) for name in names]
        for name, tensor in zip(names, tensors, strict=True):
            if name is not None and (tensor is None or tensor.dtype not in _FLOATS):
                return f"{name} is no floating-point tensor"
        return cls(*tensors)


_CONTAINERS = frozenset({dict, OrderedDict, list, set})


def shallow_copy(module: torch.nn.Module) -> Any:
    """A module of the same class with the same parameters, in containers of its own."""
    copied = type(module).__new__(type(module))
    state = copied.__dict__
    state.update(module.__dict__)
    for name, value in state.items():
        if type(value) in _CONTAINERS:
            state[name] = value.copy() if value else type(value)()
    return copied


def deep_copy(module: torch.nn.Module, memo: dict[int, Any]) -> Any:
    """``copy.deepcopy``, faster for modules that hold plain values and tensors."""
    if not type(module).__module__.startswith("torch.nn.modules.") or not _is_simple(module):
        return copy.deepcopy(module, memo)
    if id(module) not in memo:
        memo[id(module)] = copied = shallow_copy(module)
        # As in copy: objects are known by address, so they have to stay alive.
        memo.setdefault(id(memo), []).append(module)
        state = copied.__dict__
        for tensors in (state["_parameters"], state["_buffers"]):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = _copy_tensor(tensor, memo)
    return memo[id(module)]


def _copy_tensor(tensor: Any, memo: dict[Any, Any]) -> Any:
    """``copy.deepcopy``, faster for parameters and for tensors that do not share their storage."""
    known = memo.get(id(tensor))
    if known is not None:
        return known
    kind = type(tensor)
    if tensor.__dict__ or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return copy.deepcopy(tensor, memo)
    if kind is torch.nn.Parameter:
        # Its storage is not shared with other copied tensors.
        copied = torch.nn.Parameter(tensor.detach().clone(), tensor.requires_grad)
    elif kind is not torch.Tensor or tensor.requires_grad or tensor.is_quantized:
        return copy.deepcopy(tensor, memo)
    else:
        storage, storages = tensor.untyped_storage(), memo.setdefault("torch", {})
        if storage._cdata in storages or storage.nbytes() != tensor.nbytes:
            return copy.deepcopy(tensor, memo)
        copied = tensor.clone()
        # Copies of views of one storage share theirs, as with copy.
        storages[storage._cdata] = copied.untyped_storage()
    memo[id(tensor)] = copied
    memo.setdefault(id(memo), []).append(tensor)
    return copied


def _is_simple(module: torch.nn.Module) -> bool:
    """Whether a shallow copy of ``module`` is a deep one but for its tensors."""
    for name, value in module.__dict__.items():
        kind = type(value)
        if kind in _SCALARS or (not value and kind in _CONTAINERS) or name in _TENSORS:
            continue
        if kind not in _SEQUENCES or not all(type(item) in _SCALARS for item in value):
            return False
    return True


_TENSORS = frozenset({"_parameters", "_buffers"})
_SEQUENCES = frozenset({tuple, list, set})
_SCALARS = frozenset({bool, int, float, str, type(None)})


def install(root: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    """Put ``module`` in the place of the submodule called ``path``."""
    parent, _, name = path.rpartition(".")
    get_submodule(root, parent)._modules[name] = module
