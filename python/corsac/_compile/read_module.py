"""Compiled models that torch.ao has quantised: the engine runs what is read of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from corsac._models.wrapper import ModelWrapper
from corsac._native.options import Settings
from corsac._pytorch.quantised_parts import is_static, parts, place


class ReadModule(ModelWrapper):
    """A model with quantised modules of torch.ao, which is read by :func:`corsac.quantization.from_torch_ao` and
    compiled. Parameters, buffers and submodules are those of the model; it is read again if it has got others.

    Where it cannot be read, PyTorch runs it.

    Args:
        model: the model.
        settings: the engine's.
        compiled: compiles what was read.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        settings: Settings,
        compiled: Callable[[Any, Settings], Any],
    ) -> None:
        super().__init__(model)
        state = self.__dict__
        state["_settings"], state["_compile"] = settings, compiled
        self._read_again()

    def __reduce__(self) -> Any:
        return ReadModule, (self._model, self._settings, self._compile)

    def _current(self) -> Any:
        """The compiled form of what is read of the present model."""
        if not self._read.is_current():
            self._read_again()
        return self._inside

    def _read_again(self) -> None:
        # Not at the top: most models are not quantised.
        from corsac.quantization.torch_ao import from_torch_ao

        found, reason, snapshot = self._model, None, _Snapshot(self._model)
        try:
            found = from_torch_ao(self._model)
        except Exception as error:
            # Whatever the reason, PyTorch can run the model.
            reason = str(error) or type(error).__name__
        state = self.__dict__
        state["_reason"], state["_copies"] = reason, list(_copies(self._model, found))
        state["_inside"] = self._compile(found, self._settings)
        # Last: until then, other threads read the model themselves.
        state["_read"] = snapshot

    def _take_back(self) -> None:
        """Give the model what a call has written to attributes of copies of its modules."""
        is_other = False
        for own, copied, before in self._copies:
            # A list: another thread may add attributes.
            for name, value in list(copied.items()):
                if before.get(name, _copies) is not value:
                    own[name] = before[name] = value
                    is_other = True
        if is_other:
            self._read.take()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inside = self._current()
        try:
            return inside(*args, **kwargs)
        finally:
            self._take_back()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._with_own_hooks(args, kwargs)

    def native_programs(self) -> list[Any]:
        """Native programs of whole graphs."""
        return self._current().native_programs()

    def explain(self, *, guards: bool = False) -> str:
        """Report of the compiled programs; see :meth:`CompiledModule.explain`."""
        text = self._current().explain(guards=guards)
        if self._reason is None:
            return text
        return f"not read from torch.ao: {self._reason}\n{text}"


def _copies(
    model: nn.Module, found: nn.Module
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """The attributes of users' modules, those of their copies in what was read, and these as they are now."""
    copies = dict(found.named_modules())
    for path, own in model.named_modules():
        copied = copies.get(path)
        is_user_s = not type(own).__module__.startswith("torch.nn.")
        if copied is not None and copied is not own and type(copied) is type(own) and is_user_s:
            yield vars(own), vars(copied), dict(vars(copied))


class _Snapshot:
    """The objects and numbers that reading a model depends on.

    Of a model without static layers, parts are copied with the same containers and tensors; of one with them, they
    become constants of a graph.
    """

    def __init__(self, model: nn.Module) -> None:
        self._deeply = is_static(model)
        #: Dictionaries of submodules; attributes of quantised modules; those of other modules.
        self._children: list[dict[str, Any]] = []
        self._quantised: list[tuple[dict[str, Any], str]] = []
        self._others: list[dict[str, Any]] = []
        for module in parts(model):
            if not isinstance(module, torch.jit.ScriptModule):
                self._watch(module, module is model)
        self.take()

    def _watch(self, module: Any, is_root: bool) -> None:
        own, kind = vars(module), type(module)
        self._children.append(own["_modules"])
        if place(module):
            self._quantised += [(own, name) for name in _STATE if name in own]
            steps = (name for name in ("scale", "zero_point") if name in own["_buffers"])
            self._quantised += [(own["_buffers"], name) for name in steps]
            for child in map(vars, own["_modules"].values()):
                self._quantised += [(child, name) for name in _STATE if name in child]
            return
        # Of other layers, what is read has the same objects.
        is_layer = kind.__module__.startswith("torch.nn.") and not own["_modules"]
        if is_root or kind is nn.Module or not (is_layer or kind in _CONTAINERS):
            self._others.append(own)

    def take(self) -> None:
        """Take the present objects and numbers."""
        self._numbers, self._objects = self._present()

    def is_current(self) -> bool:
        """Whether the model has the same objects and numbers still."""
        numbers, objects = self._present()
        return (
            len(objects) == len(self._objects)
            and all(map(operator.is_, objects, self._objects))
            and numbers == self._numbers
        )

    def _present(self) -> tuple[list[Any], list[Any]]:
        numbers: list[Any] = []
        objects: list[Any] = []
        for children in self._children:
            numbers += children
            objects += children.values()
        for own, name in self._quantised:
            _add(own.get(name), numbers, objects, deeply=True)
        for own in self._others:
            numbers += own
            for value in list(own.values()):
                _add(value, numbers, objects, deeply=self._deeply)
        return numbers, objects


def _add(
    value: Any, numbers: list[Any], objects: list[Any], depth: int = 0, *, deeply: bool
) -> None:
    """Add a value to numbers or objects; ``deeply`` with the items of containers, and the writes to tensors."""
    kind = type(value)
    if kind in _SIMPLE:
        numbers += (kind, value)
        if kind is float:
            numbers.append(math.copysign(1.0, value))
    elif deeply and isinstance(value, list | tuple | dict | set) and depth < _DEPTH:
        numbers += (kind, len(value))
        for item in value.items() if isinstance(value, dict) else value:
            _add(item, numbers, objects, depth + 1, deeply=True)
    else:
        objects.append(value)
        if deeply and isinstance(value, torch.Tensor) and not value.is_inference():
            numbers.append(value._version)


#: Types of values that are compared as such.
_SIMPLE = (bool, int, float, str, type(None))
#: Classes with nothing but submodules.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
#: Levels of containers in containers whose items are compared.
_DEPTH = 8

#: Attributes of quantised modules with weights and parameters of results.
_STATE = (
    "_packed_params",
    "_packed_weight",
    "_packed_weight_ih",
    "_packed_weight_hh",
    "param",
    "scale",
    "zero_point",
    "weight",
)
