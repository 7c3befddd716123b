"""Compiled models that torch.ao has quantised: the engine runs what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac._models.wrapper import ModelWrapper
from corsac._native.options import Settings
from corsac._pytorch.quantised_parts import (
    is_graph,
    is_static,
    parts,
    place,
    quantised_attributes,
)


class ReadModule(ModelWrapper):
    """A model with quantised modules of torch.ao, which is read by :func:`corsac.quantization.from_torch_ao` and
    compiled. Parameters, buffers and submodules are those of the model; it is read again if it has got other weights.

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
        state["_reason"], state["_read"], state["_inside"] = None, None, None
        state["_is_static"] = is_static(model)
        state["_quantised"] = [own for own in parts(model) if place(own)]
        state["_users"] = [
            own
            for own in parts(model)
            if not place(own)
            and not is_graph(own)
            and not type(own).__module__.startswith("torch.")
        ]
        state["_attributes"] = [
            (own.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2])
            for own in parts(model)
            if is_graph(own)
            for path in quantised_attributes(own)
        ]
        self._current()

    def __reduce__(self) -> Any:
        return ReadModule, (self._model, self._settings, self._compile)

    def _values(self) -> list[Any]:
        """Objects and numbers of quantised modules, functions and users' modules: the same as long as the model is."""
        values: list[Any] = [self._model.training]
        for module in self._quantised:
            own = vars(module)
            for name in _STATE:
                if name in own:
                    values.append(own[name])
            for name in ("scale", "zero_point"):
                if name in module._buffers:
                    values.append(module._buffers[name])
            for child in module._modules.values():
                values += [vars(child).get(name) for name in _STATE if name in vars(child)]
        for module in self._users:
            values += [own for own in vars(module).values() if isinstance(own, _SIMPLE)]
        values += [getattr(owner, name, None) for owner, name in self._attributes]
        return values

    def _tensors(self) -> list[torch.Tensor | None]:
        """The tensors of users' modules. Their numbers matter only where they become constants of a graph."""
        found: list[torch.Tensor | None] = []
        for module in self._users:
            found += [own for own in vars(module).values() if isinstance(own, torch.Tensor)]
            found += module._buffers.values()
        return found

    def _current(self) -> Any:
        """The compiled form of what is read of the present model."""
        values, tensors = self._values(), self._tensors()
        state = [*map(_version, values), *map(_version if self._is_static else id, tensors)]
        if self._inside is None or state != self._read:
            # Not at the top: most models are not quantised.
            from corsac.quantization.torch_ao import from_torch_ao

            found: Any = self._model
            self.__dict__["_reason"] = None
            try:
                found = from_torch_ao(self._model)
            except Exception as error:
                # Whatever the reason, PyTorch can run the model.
                self.__dict__["_reason"] = str(error) or type(error).__name__
            self.__dict__["_inside"] = self._compile(found, self._settings)
            self.__dict__["_read"] = state
            # As long as they are held, no other objects have their identities.
            self.__dict__["_kept"] = values, tensors
        return self._inside

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._current()(*args, **kwargs)

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


def _version(value: Any) -> Any:
    """A value that is another for another object, and for a tensor that has been written to."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor) and not value.is_inference():
        return id(value), value._version
    return id(value)


#: Types of attributes of users' modules that what is read may depend on.
_SIMPLE = (bool, int, float, str)

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
