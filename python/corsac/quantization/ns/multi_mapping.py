"""Several configurations of each operator. The name is that of ``torch.ao.ns.fx.qconfig_multi_mapping``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corsac.quantization.qconfig import qconfig_equals
from corsac.quantization.qconfig_mapping import QConfigMapping

__all__ = ["QConfigMultiMapping"]

#: The tables of a mapping.
_TABLES = (
    "object_type_qconfigs",
    "module_name_regex_qconfigs",
    "module_name_qconfigs",
    "module_name_object_type_order_qconfigs",
)


class QConfigMultiMapping:
    """Several ``QConfigMapping``: the first has the first configuration of each list, the second the second one.

    Configurations that are None, and those that are in a list twice, do not count; a shorter list goes on with None.

    Attributes:
        qconfig_mappings_list: the mappings.
    """

    def __init__(self) -> None:
        self.qconfig_mappings_list: list[QConfigMapping] = [QConfigMapping()]

    @classmethod
    def from_list_qconfig_mapping(cls, qconfig_mapping_list: list[Any]) -> QConfigMultiMapping:
        """The configurations of several mappings."""
        made = cls()
        made._extend(len(qconfig_mapping_list))
        made.set_global([one.global_qconfig for one in qconfig_mapping_list])
        setters = ("set_object_type", "set_module_name_regex", "set_module_name")
        for table, setter in zip(_TABLES[:3], setters, strict=True):
            for key in _keys(qconfig_mapping_list, table):
                listed = [getattr(one, table).get(key) for one in qconfig_mapping_list]
                getattr(made, setter)(key, listed)
        for key in _keys(qconfig_mapping_list, _TABLES[3]):
            listed = [getattr(one, _TABLES[3]).get(key) for one in qconfig_mapping_list]
            made.set_module_name_object_type_order(*key, listed)
        return made

    def _extend(self, number: int) -> None:
        """Have so many mappings, those that are new with None for all that others have an entry for."""
        while len(self.qconfig_mappings_list) < number:
            first, made = self.qconfig_mappings_list[0], QConfigMapping()
            for table in _TABLES:
                getattr(made, table).update(dict.fromkeys(getattr(first, table)))
            self.qconfig_mappings_list.append(made)

    def _set(
        self, qconfig_list: list[Any], put: Callable[[QConfigMapping, Any], Any]
    ) -> QConfigMultiMapping:
        chosen: list[Any] = []
        for qconfig in qconfig_list:
            if qconfig is not None and not any(qconfig_equals(qconfig, one) for one in chosen):
                chosen.append(qconfig)
        self._extend(len(chosen))
        missing = len(self.qconfig_mappings_list) - len(chosen)
        for mapping, qconfig in zip(
            self.qconfig_mappings_list, [*chosen, *[None] * missing], strict=True
        ):
            put(mapping, qconfig)
        return self

    def set_global(self, global_qconfig_list: list[Any]) -> QConfigMultiMapping:
        """The default configurations."""
        return self._set(global_qconfig_list, lambda mapping, one: mapping.set_global(one))

    def set_object_type(self, object_type: Any, qconfig_list: list[Any]) -> QConfigMultiMapping:
        """The configurations of a module type, a function or the name of a method."""
        return self._set(
            qconfig_list, lambda mapping, one: mapping.set_object_type(object_type, one)
        )

    def set_module_name_regex(
        self, module_name_regex: str, qconfig_list: list[Any]
    ) -> QConfigMultiMapping:
        """The configurations of modules with names that match a regular expression."""
        return self._set(
            qconfig_list, lambda mapping, one: mapping.set_module_name_regex(module_name_regex, one)
        )

    def set_module_name(self, module_name: str, qconfig_list: list[Any]) -> QConfigMultiMapping:
        """The configurations of a module."""
        return self._set(
            qconfig_list, lambda mapping, one: mapping.set_module_name(module_name, one)
        )

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig_list: list[Any]
    ) -> QConfigMultiMapping:
        """The configurations of the call of this number of a type in a module."""
        return self._set(
            qconfig_list,
            lambda mapping, one: mapping.set_module_name_object_type_order(
                module_name, object_type, index, one
            ),
        )

    def __repr__(self) -> str:
        inner = "\n".join(f"{mapping!r}," for mapping in self.qconfig_mappings_list)
        return f"{type(self).__name__} [\n{inner}\n]"


def _keys(mappings: list[Any], table: str) -> list[Any]:
    return [*dict.fromkeys(key for one in mappings for key in getattr(one, table))]
