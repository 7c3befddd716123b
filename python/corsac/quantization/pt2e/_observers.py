"""Observers and fake quantisers of an exported graph: made of specifications, and inserted into the graph."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch

from corsac.quantization._kinds import is_activation_post_process
from corsac.quantization.fake_quantize import FixedQParamsFakeQuantize
from corsac.quantization.observer import FixedQParamsObserver
from corsac.quantization.observer._fixed import (
    _DerivedObserverOrFakeQuantize as DerivedObserverOrFakeQuantize,
)
from corsac.quantization.pt2e._annotations import (
    AnnotationError,
    Annotations,
    annotation_of,
    is_derived,
    is_fixed,
    is_shared,
    shown,
)
from corsac.quantization.pt2e._nodes import attribute, described, mapped, sources, writes_first
from corsac.quantization.pt2e._sharing import Sharing

_PREFIX = "activation_post_process_"


def _given(spec: Any, *names: str) -> dict[str, Any]:
    return {name: copy.deepcopy(getattr(spec, name)) for name in names if hasattr(spec, name)}


def _made(spec: Any, is_qat: bool) -> Any:
    """The observer or fake quantiser of a specification that has its own."""
    if is_fixed(spec):
        given = _given(spec, "dtype", "scale", "zero_point", "quant_min", "quant_max", "qscheme")
        given = {name: value for name, value in given.items() if value is not None}
        constructor = FixedQParamsObserver.with_args(**given, is_dynamic=spec.is_dynamic)
        return FixedQParamsFakeQuantize(constructor) if is_qat else constructor()
    constructor = spec.observer_or_fake_quant_ctr
    kind = constructor
    while hasattr(kind, "p"):
        kind = kind.p.func
    names = ["dtype", "quant_min", "quant_max", "qscheme", "is_dynamic"]
    if "PerChannel" in getattr(kind, "__name__", ""):
        names.append("ch_axis")
    return functools.partial(constructor, **_given(spec, *names))()


def _derived(spec: Any, others: list[Any]) -> Any:
    given = _given(spec, "dtype", "quant_min", "quant_max", "qscheme", "ch_axis")
    return DerivedObserverOrFakeQuantize(
        obs_or_fqs=others, derive_qparams_fn=spec.derive_qparams_fn, **given
    )


def observers_of(graph: Any, is_qat: bool) -> dict[Any, Any]:
    """The observers, or fake quantisers, of all annotated values of a graph; None for those that stay as they are."""
    annotations = Annotations(graph)
    sharing = Sharing(annotations)
    made: dict[Any, Any] = {}
    firsts: dict[Any, Any] = {}
    for place in annotations.specs:
        firsts.setdefault(sharing.representative(place), place)

    def observer(place: Any, waiting: tuple[Any, ...] = ()) -> Any:
        group = sharing.representative(place)
        if group in made:
            return made[group]
        if group in waiting:
            raise AnnotationError(f"{shown(place)} derives its parameters from itself")
        first = firsts[group]
        spec = annotations.specs[first]
        if is_shared(spec):
            spec = annotations.specs[annotations.root(first)]
        if spec is None:
            made[group] = None
        elif is_derived(spec):
            others = [observer(one, (*waiting, group)) for one in spec.derived_from]
            made[group] = _derived(spec, others)
        else:
            try:
                made[group] = _made(spec, is_qat)
            except (AssertionError, TypeError, ValueError, NotImplementedError) as error:
                raise AnnotationError(f"{shown(first)}: {error}") from error
        _name(made[group], first)
        return made[group]

    return {place: observer(place) for place in annotations.specs}


def _name(observer: Any, place: Any) -> None:
    """Tell an observer what it observes, for messages."""
    for one in (observer, getattr(observer, "activation_post_process", None)):
        if one is not None and hasattr(one, "observed_name"):
            one.observed_name = described(place[0] if isinstance(place, tuple) else place)


def device_of(model: torch.nn.Module) -> torch.device | None:
    """The device of all parameters and buffers, if it is one."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return devices.pop() if len(devices) == 1 else None


class Insertion:
    """Insertion of observers into the graph of a module.

    Args:
        model: the graph module, which is changed.
        observers: observers by :data:`EdgeOrNode`.
    """

    def __init__(self, model: Any, observers: dict[Any, Any]) -> None:
        self._model, self._observers = model, observers
        self._device = device_of(model)
        self._buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
        self._free = 0
        #: Observers by the calls of them.
        self._calls: dict[Any, Any] = {}

    def run(self) -> None:
        """Insert them, node by node."""
        for node in [*self._model.graph.nodes]:
            if annotation_of(node) is not None:
                self._observe_inputs(node)
                self._observe_output(node)

    def _observe_inputs(self, node: Any) -> None:
        def change(value: Any) -> Any:
            return self._observed(value, node)

        args, kwargs = mapped(node.args, change), mapped(dict(node.kwargs), change)
        node.args, node.kwargs = args, kwargs

    def _observed(self, value: Any, node: Any) -> Any:
        """The node that ``node`` reads in place of ``value``."""
        original = value
        while original in self._calls:
            original = original.args[0]
        observer = self._observers.get((original, node))
        if observer is None or self._observers.get(original) is observer:
            return value
        if self._is_written_buffer(node, original):
            return value
        for user in value.users:
            if self._calls.get(user) is observer:
                return user
        return self._insert(value, observer)

    def _is_written_buffer(self, node: Any, value: Any) -> bool:
        """Whether ``node`` writes to ``value``, which is a buffer or part of one."""
        if not writes_first(node) or node.args[0] is not value:
            return False
        found = [*sources(value)]
        return all(one.op == "get_attr" for one in found) and any(
            one.target in self._buffers for one in found
        )

    def _observe_output(self, node: Any) -> None:
        observer = self._observers.get(node)
        value = node.meta.get("val")
        if observer is None or not isinstance(value, torch.Tensor):
            return
        users = [*node.users]
        call = self._insert(node, observer)
        if "from_node" in node.meta:
            call.meta["from_node"] = node.meta["from_node"]
        for user in users:
            user.replace_input_with(node, call)

    def _insert(self, value: Any, observer: Any) -> Any:
        while hasattr(self._model, f"{_PREFIX}{self._free}"):
            self._free += 1
        name = f"{_PREFIX}{self._free}"
        if self._device is not None:
            observer.to(self._device)
        setattr(self._model, name, observer)
        graph = self._model.graph
        with graph.inserting_after(value):
            call = graph.call_module(name, (value,))
        self._calls[call] = observer
        return call


def has_observers(model: Any) -> bool:
    """Whether a graph module calls observers."""
    return any(
        node.op == "call_module" and is_activation_post_process(attribute(model, node.target))
        for node in model.graph.nodes
    )
