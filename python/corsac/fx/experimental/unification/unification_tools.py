"""Functions about dictionaries: PyTorch's own."""

from torch.fx.experimental.unification.unification_tools import (
    assoc,
    assoc_in,
    dissoc,
    first,
    get_in,
    getter,
    groupby,
    itemfilter,
    itemmap,
    keyfilter,
    keymap,
    merge,
    merge_with,
    update_in,
    valfilter,
    valmap,
)

__all__ = [
    "assoc",
    "assoc_in",
    "dissoc",
    "first",
    "get_in",
    "getter",
    "groupby",
    "itemfilter",
    "itemmap",
    "keyfilter",
    "keymap",
    "merge",
    "merge_with",
    "update_in",
    "valfilter",
    "valmap",
]
