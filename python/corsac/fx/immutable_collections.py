"""Immutable lists and dicts, used for ``node.args`` and ``node.kwargs``."""

from __future__ import annotations

from typing import Any, NoReturn, Self, TypeVar

from torch.utils._pytree import (
    Context,
    _dict_flatten,
    _dict_flatten_with_keys,
    _list_flatten,
    _list_flatten_with_keys,
    register_pytree_node,
)

__all__ = ["immutable_dict", "immutable_list"]

_T = TypeVar("_T")
_KT = TypeVar("_KT")
_VT = TypeVar("_VT")

_ADVICE = """\
If you are attempting to modify the kwargs or args of a corsac.fx.Node object,
instead create a new copy of it and assign the copy to the node:

    new_args = ...  # copy and mutate args
    node.args = new_args"""


def _no_mutation(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object does not support mutation. {_ADVICE}")


class immutable_list(list[_T]):
    """A :class:`list` whose methods that change it raise :class:`TypeError`.

    It is hashable if its elements are, and pickles and copies as itself.
    """

    __delitem__ = _no_mutation
    __iadd__ = _no_mutation
    __imul__ = _no_mutation
    __setitem__ = _no_mutation
    append = _no_mutation
    clear = _no_mutation
    extend = _no_mutation
    insert = _no_mutation
    pop = _no_mutation
    remove = _no_mutation
    reverse = _no_mutation
    sort = _no_mutation

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[_T, ...]]]:
        return (type(self), (tuple(self),))


class immutable_dict(dict[_KT, _VT]):
    """A :class:`dict` whose methods that change it raise :class:`TypeError`.

    It is hashable if its values are, and pickles and copies as itself.
    """

    __delitem__ = _no_mutation
    __ior__ = _no_mutation
    __setitem__ = _no_mutation
    clear = _no_mutation
    pop = _no_mutation
    popitem = _no_mutation
    setdefault = _no_mutation
    update = _no_mutation  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[tuple[_KT, _VT], ...]]]:
        return (type(self), (tuple(self.items()),))


def _unflatten_list(values: Any, context: Context) -> immutable_list[Any]:
    return immutable_list(values)


def _unflatten_dict(values: Any, context: Context) -> immutable_dict[Any, Any]:
    return immutable_dict(zip(context, values, strict=True))


register_pytree_node(
    immutable_list,
    _list_flatten,
    _unflatten_list,
    serialized_type_name="corsac.fx.immutable_collections.immutable_list",
    flatten_with_keys_fn=_list_flatten_with_keys,
)
register_pytree_node(
    immutable_dict,
    _dict_flatten,
    _unflatten_dict,
    serialized_type_name="corsac.fx.immutable_collections.immutable_dict",
    flatten_with_keys_fn=_dict_flatten_with_keys,
)
