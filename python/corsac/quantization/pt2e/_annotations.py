"""The annotations of a graph: specifications by value, checked against the graph.

Specifications are read by what they have, so that those of ``torch.ao`` and of torchao are taken as well.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from corsac.quantization._dtypes import UNDERLYING
from corsac.quantization._qparams import PER_CHANNEL
from corsac.quantization.pt2e._nodes import described, is_node
from corsac.quantization.quantizer.quantizer import Q_ANNOTATION_KEY


class AnnotationError(ValueError):
    """An annotation that does not fit the graph, or specifications that contradict each other."""


def annotation_of(node: Any) -> Any:
    """The annotation of a node; None if there is none."""
    return node.meta.get(Q_ANNOTATION_KEY)


def is_shared(spec: Any) -> bool:
    """Whether a specification is the observer of another value."""
    return hasattr(spec, "edge_or_node")


def is_derived(spec: Any) -> bool:
    """Whether parameters are computed from those of other values."""
    return hasattr(spec, "derive_qparams_fn")


def is_fixed(spec: Any) -> bool:
    """Whether scale and zero point are given."""
    return hasattr(spec, "scale") and hasattr(spec, "zero_point")


def shown(value: Any) -> str:
    """A value, or the edge from it to a user, for messages."""
    if isinstance(value, tuple):
        return " -> ".join(described(one) if is_node(one) else repr(one) for one in value)
    return described(value) if is_node(value) else repr(value)


class Annotations:
    """The specifications of a graph, by :data:`EdgeOrNode`, in the order of the graph."""

    def __init__(self, graph: Any) -> None:
        self._nodes = {*graph.nodes}
        #: Specifications, None for a value that stays as it is.
        self.specs: dict[Any, Any] = {}
        for node in graph.nodes:
            annotation = annotation_of(node)
            if annotation is not None:
                self._read(node, annotation)
        for place, spec in self.specs.items():
            self._check(place, spec)

    def _read(self, node: Any, annotation: Any) -> None:
        inputs = {*node.all_input_nodes}
        for own, spec in annotation.input_qspec_map.items():
            if own not in self._nodes:
                raise AnnotationError(
                    f"the annotation of {described(node)} has an input {shown(own)}, expected a node of the graph"
                )
            if own not in inputs:
                warnings.warn(
                    f"the annotation of {described(node)} has an input {shown(own)}, which it does not read: "
                    f"its inputs are {', '.join(one.name for one in inputs)}",
                    stacklevel=6,
                )
            self.specs[own, node] = spec
        if annotation.output_qspec is not None:
            self.specs[node] = annotation.output_qspec

    def _check(self, place: Any, spec: Any) -> None:
        if spec is None:
            return
        if is_shared(spec):
            self._require(place, spec.edge_or_node, "shares the observer of")
            self.root(place)
            return
        if is_derived(spec):
            for other in spec.derived_from:
                self._require(place, other, "derives its parameters from")
        elif not is_fixed(spec) and not hasattr(spec, "observer_or_fake_quant_ctr"):
            raise AnnotationError(f"{shown(place)}: expected a quantisation spec, got {spec!r}")
        self._check_numbers(place, spec)

    def _require(self, place: Any, other: Any, does: str) -> None:
        if self.specs.get(other) is None:
            raise AnnotationError(
                f"{shown(place)} {does} {shown(other)}, expected a value with a specification"
            )

    def _check_numbers(self, place: Any, spec: Any) -> None:
        low, high = spec.quant_min, spec.quant_max
        plain = UNDERLYING.get(spec.dtype)
        if plain is not None and not plain.is_floating_point:
            limits = torch.iinfo(plain)
            for name, bound in (("quant_min", low), ("quant_max", high)):
                if bound is not None and not limits.min <= bound <= limits.max:
                    raise AnnotationError(
                        f"{shown(place)}: {name} {bound} contradicts {spec.dtype}, expected {limits.min} to "
                        f"{limits.max}"
                    )
        if low is not None and high is not None and low > high:
            raise AnnotationError(f"{shown(place)}: quant_min {low} is above quant_max {high}")
        per_channel = spec.qscheme in PER_CHANNEL
        if per_channel and getattr(spec, "is_dynamic", False):
            raise AnnotationError(
                f"{shown(place)}: is_dynamic contradicts {spec.qscheme}, expected a qscheme per tensor"
            )
        if per_channel and is_fixed(spec):
            raise AnnotationError(
                f"{shown(place)}: one scale contradicts {spec.qscheme}, expected a qscheme per tensor"
            )
        self._check_axis(place, spec, per_channel)

    def _check_axis(self, place: Any, spec: Any, per_channel: bool) -> None:
        axis = getattr(spec, "ch_axis", None)
        value = (place[0] if isinstance(place, tuple) else place).meta.get("val")
        if not per_channel or axis is None or not isinstance(value, torch.Tensor):
            return
        if axis >= value.dim():
            raise AnnotationError(
                f"{shown(place)}: ch_axis {axis} contradicts its shape {list(value.shape)}"
            )

    def root(self, place: Any) -> Any:
        """The value whose specification is not shared that a value shares."""
        seen = [place]
        while is_shared(self.specs[place]):
            place = self.specs[place].edge_or_node
            if self.specs.get(place) is None:
                break
            if place in seen:
                circle = ", ".join(shown(one) for one in [*seen, place])
                raise AnnotationError(f"specifications share each other in a circle: {circle}")
            seen.append(place)
        return place
