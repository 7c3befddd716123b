"""Names that torch.ao gives the scales of values, and the packed weights of functions, of a graph that both convert."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F

from corsac.quantization._kinds import is_a
from corsac.quantization._requests import Conversion

#: The attribute of a converted graph module that holds the names.
NAMES = "_torch_ao_names"

#: Functions whose weights torch.ao packs, with the number of dimensions of a convolution.
_WEIGHTED: dict[Any, int | None] = {
    F.linear: None,
    F.conv1d: 1,
    F.conv2d: 2,
    F.conv3d: 3,
    F.conv_transpose1d: 1,
    F.conv_transpose2d: 2,
    F.conv_transpose3d: 3,
}


@dataclass(frozen=True)
class ValueNames:
    """The places where torch.ao may keep the steps of a value.

    Attributes:
        scale: the name of the scale in the graph module.
        zero_point: that of the zero point.
        fixed: whether the configuration has the steps.
    """

    scale: str
    zero_point: str
    fixed: bool


@dataclass(frozen=True)
class PackedNames:
    """The packed parameters of a call of a function.

    Attributes:
        prefix: the beginning of their name, which ends with a number.
        number: the number among those of the same beginning.
        rank: the number of dimensions of a convolution; None for a linear function.
        bias: the path of the bias, if it is an attribute.
    """

    prefix: str
    number: int
    rank: int | None
    bias: str | None


@dataclass(frozen=True)
class WeightNames:
    """The names of a weight of functions.

    Attributes:
        scale: the name of its scales in a reference model.
        zero_point: that of the zero points.
        conversion: the names of the integers, scales and zero points here.
        source: the path of the float weight, if it is an attribute.
        calls: the functions that it is a weight of.
    """

    scale: str
    zero_point: str
    conversion: Conversion
    source: str | None
    calls: tuple[PackedNames, ...]


@dataclass
class GraphNames:
    """Names of torch.ao for the values and weights of a converted graph module.

    Attributes:
        keys: the names and numbers of all values in state dicts of this package.
        values: by such a name and number; None where they are not known.
        weights: those of functions.
        halves: weights of half precision: the path of the float weight, and their packed parameters.
    """

    keys: set[tuple[str, int]] = field(default_factory=set)
    values: dict[tuple[str, int], ValueNames | None] = field(default_factory=dict)
    weights: list[WeightNames] = field(default_factory=list)
    halves: list[tuple[str | None, PackedNames]] = field(default_factory=list)


class ObservedNames:
    """The names for an observed graph, before it is converted.

    Follows ``torch.ao.quantization.fx.convert``: each observer, in the order of the graph, makes attributes that are
    named after the module in which the value is computed; or after that of its first reader, with ``_input``, if only
    readers want it to be quantised.

    Args:
        model: the observed graph module.
        attributes: the module that has its attributes only, none that conversion has made.
        qconfigs: the configurations by name of the node.
        scopes: by name of a node, the path of the module in which it was recorded.
        conversions: the conversions of observers, by path.
        observers: the observers, by path.
    """

    def __init__(
        self,
        model: Any,
        attributes: Any,
        qconfigs: dict[str, Any],
        scopes: dict[str, Any],
        conversions: dict[str, Conversion],
        observers: dict[str, Any],
    ) -> None:
        self._model, self._attributes = model, attributes
        self._qconfigs, self._scopes = qconfigs, scopes
        self._taken: set[str] = set()
        self._packed: dict[str, int] = {}
        self._weights: list[WeightNames] = []
        self._halves: list[tuple[str | None, PackedNames]] = []
        #: The names for each value, in the order of its observers.
        self._values: dict[Any, list[ValueNames]] = {}
        packed = self._packed_names(conversions)
        for node in model.graph.find_nodes(op="call_module"):
            conversion = conversions.get(node.target)
            calls = tuple(packed[user] for user in node.users if user in packed)
            if conversion is not None and conversion.kind == "half" and calls:
                self._halves += [(self._source(node), call) for call in calls]
            if conversion is None or conversion.kind not in ("static", "constant"):
                continue
            if all(self._is_left(other) for other in (*node.args, *node.users)):
                continue
            stem = self._stem(node)
            names = self._free(f"{stem}_scale_"), self._free(f"{stem}_zero_point_")
            if conversion.kind == "constant":
                self._weights.append(WeightNames(*names, conversion, self._source(node), calls))
                continue
            self._values.setdefault(node.args[0], []).append(
                ValueNames(*names, _is_fixed(observers[node.target]))
            )

    def _is_left(self, node: Any) -> bool:
        """Whether a node stays as it is."""
        return node.name in self._qconfigs and self._qconfigs[node.name] is None

    def _source(self, node: Any) -> str | None:
        """The path of the attribute that an observer sees; None if it sees something that is computed."""
        (value,) = node.args
        return value.target if value.op == "get_attr" else None

    def _stem(self, node: Any) -> str:
        """The beginning of the names that the observer ``node`` makes."""
        (value,) = node.args
        if not self._is_left(value):
            return self._path(value)
        users = [*node.users]
        first = next(
            (user for user in users if user.target is F.linear), users[0] if users else None
        )
        return f"{'' if first is None else self._path(first)}_input"

    def _path(self, node: Any) -> str:
        return self._scopes.get(node.name, ("", None))[0]

    def _free(self, prefix: str) -> str:
        prefix, number = prefix.replace(".", "_"), 0
        while f"{prefix}{number}" in self._taken or hasattr(self._attributes, f"{prefix}{number}"):
            number += 1
        self._taken.add(f"{prefix}{number}")
        return f"{prefix}{number}"

    def _packed_names(self, conversions: dict[str, Conversion]) -> dict[Any, PackedNames]:
        """The names of packed parameters, by the call of a function that has an observed weight."""
        constant = {path for path, own in conversions.items() if own.kind in ("constant", "half")}
        found = {}
        for node in self._model.graph.nodes:
            weight = node.args[1] if node.op == "call_function" and len(node.args) > 1 else None
            if getattr(weight, "target", None) not in constant or node.target not in _WEIGHTED:
                continue
            bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
            prefix = f"{self._path(node)}_packed_weight_".replace(".", "_")
            number = self._packed[prefix] = self._packed.get(prefix, -1) + 1
            attribute = bias.target if getattr(bias, "op", None) == "get_attr" else None
            found[node] = PackedNames(prefix, number, _WEIGHTED[node.target], attribute)
        return found

    def converted(self, values: dict[tuple[str, int], list[Any]]) -> GraphNames:
        """The names for the graph once it is converted, given the nodes of values by name and number."""
        names = GraphNames({*values}, weights=self._weights, halves=self._halves)
        nodes: dict[Any, list[tuple[str, int]]] = {}
        for key, own in values.items():
            if own[0].args[0].op != "get_attr":
                nodes.setdefault(own[0].args[0], []).append(key)
        for value, keys in nodes.items():
            known = self._values.get(value, [])
            of_keys = known if len(known) == len(keys) else [None] * len(keys)
            names.values.update(zip(keys, of_keys, strict=True))
        return names


def _is_fixed(observer: Any) -> bool:
    inner = getattr(observer, "activation_post_process", observer)
    return is_a(inner, "FixedQParamsObserver")
