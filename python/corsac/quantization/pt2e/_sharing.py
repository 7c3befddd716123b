"""Values that use the same observer."""

from __future__ import annotations

from typing import Any

from corsac.quantization.pt2e._annotations import Annotations, annotation_of, is_shared

#: Attributes that specifications have in common if one observer can do for both.
_FIELDS = (
    "dtype",
    "is_dynamic",
    "quant_min",
    "quant_max",
    "qscheme",
    "ch_axis",
    "scale",
    "zero_point",
)
_NOTHING = object()


def _alike(left: Any, right: Any) -> bool:
    return all(getattr(left, name, _NOTHING) == getattr(right, name, _NOTHING) for name in _FIELDS)


class Sharing:
    """Sets of values with one observer: those that say so, and those that are the same tensor, quantised alike.

    Each set is a tree. The specification at its root is the one that a value is compared by, so that the direction in
    which two trees are joined matters.
    """

    def __init__(self, annotations: Annotations) -> None:
        self._annotations, self._specs = annotations, annotations.specs
        self._parents = {place: place for place in self._specs}
        for place, spec in self._specs.items():
            if isinstance(place, tuple) and annotation_of(place[1]).allow_implicit_sharing:
                self._join_same_tensor(place)
            if is_shared(spec):
                self._join(spec.edge_or_node, place)

    def representative(self, place: Any) -> Any:
        """One value for all that share an observer."""
        while self._parents[place] != place:
            place = self._parents[place]
        return place

    def _join(self, parent: Any, child: Any) -> None:
        parent, child = self.representative(parent), self.representative(child)
        spec = self._specs[parent]
        if is_shared(spec) and spec.edge_or_node == child:
            parent, child = child, parent
        self._parents[child] = parent

    def _unwrapped(self, place: Any) -> Any:
        """The specification that a value is compared by."""
        spec, seen = self._specs[place], set()
        while is_shared(spec):
            root = self.representative(spec.edge_or_node)
            if root in seen:
                return self._specs[self._annotations.root(place)]
            seen.add(root)
            spec = self._specs[root]
        return spec

    def _join_same_tensor(self, edge: Any) -> None:
        value, node = edge
        own = self._unwrapped(edge)
        # Other users come first: the value itself may point to one of them.
        for other in [*((value, user) for user in value.users if user is not node), value]:
            root = None if self._specs.get(other) is None else self._unwrapped(other)
            if root is not None and _alike(root, own):
                self._join(other, edge)
