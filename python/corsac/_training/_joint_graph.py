"""Joint graphs: a graph of PyTorch's functions and its backward pass as one graph of ATen operators.

AOTAutograd runs a program under four layers that see each operator one after the other: autograd,
functionalisation, recording, and fake tensors. The graphs that corsac captures for the sizes of a call write
to their own values and to whole buffers only, so that two layers are enough: autograd, over fake tensors, and
recording. That takes a fourth of the time. Graphs that are not that simple are left to AOTAutograd
(:class:`NotSimple`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from corsac._pytorch.aten import storage_of
from corsac._training._native_part import inverse, memory_order
from corsac._training._partition import OVERWRITTEN

_Operator = torch._ops.OpOverload
_aten = torch.ops.aten

#: Functional overloads that have another name than their in-place overload.
_ANEW = {_aten.bernoulli_.float: _aten.bernoulli.p}


class NotSimple(Exception):
    """The program needs AOTAutograd; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class JointGraph:
    """A program and its backward pass.

    Attributes:
        module: maps inputs and gradients of results to results, new values of inputs that are written to, and
            gradients of inputs, None for inputs that have none.
        results: fake tensors for the results, with ``requires_grad`` as in the program.
        written: indices of the inputs that are written to.
    """

    module: torch.fx.GraphModule
    results: list[torch.Tensor]
    written: list[int]

    @property
    def forward_outputs(self) -> int:
        """Number of outputs of the forward pass."""
        return len(self.results) + len(self.written)


def joint_graph(program: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> JointGraph:
    """The joint graph of ``program``, which returns a tuple of tensors.

    Args:
        program: a graph of calls of PyTorch's functions.
        inputs: its inputs, with ``requires_grad`` set as in the call.

    Raises:
        NotSimple: it writes to inputs that want gradients, or to parts of inputs, returns views of inputs, or needs
            AOTAutograd for another reason.
    """
    mode = FakeTensorMode(static_shapes=True)
    recorder = _Recorder()
    stands_for = [_fake_tensor(mode, own) for own in inputs]
    for number, own in enumerate(stands_for):
        recorder.given(f"primals_{number + 1}", own)
    try:
        with torch.enable_grad(), mode, recorder:
            results = program.forward(*stands_for)
        _check_results(results, stands_for, recorder)
        wanting = [own for own in results if own.requires_grad]
        if not wanting:
            raise NotSimple("no result wants a gradient")
        with mode:
            gradients = [torch.empty_like(own, requires_grad=False) for own in wanting]
        for number, own in enumerate(gradients):
            if own.stride() != wanting[number].stride():
                raise NotSimple("a result has gaps")
            recorder.given(f"tangents_{number + 1}", own)
        recorder.goes_back = True
        with mode, recorder:
            found = torch.autograd.grad(
                wanting,
                [own for own in stands_for if own.requires_grad],
                gradients,
                allow_unused=True,
            )
    except NotSimple:
        raise
    except Exception as error:
        # If the program is wrong, AOTAutograd raises the error.
        raise NotSimple(f"{type(error).__name__}: {error}") from error
    returned = iter(found)
    of_inputs = [next(returned) if own.requires_grad else None for own in stands_for]
    written = [at for at, own in enumerate(stands_for) if recorder.has_written(own)]
    module = recorder.module(results, [stands_for[at] for at in written], of_inputs)
    return JointGraph(module, list(results), written)


def _fake_tensor(mode: FakeTensorMode, own: torch.Tensor) -> torch.Tensor:
    made = mode.from_tensor(own.detach(), static_shapes=True)
    return made.requires_grad_(own.requires_grad)


def _check_results(results: Any, inputs: Sequence[torch.Tensor], recorder: _Recorder) -> None:
    if not isinstance(results, tuple):
        raise NotSimple(f"it returns a {type(results).__name__}")
    storages = {storage_of(own) for own in inputs}
    for own in results:
        if not recorder.knows(own):
            raise NotSimple("it returns what it did not compute")
        if storage_of(own) in storages:
            raise NotSimple("a result shares memory with an input or another result")
        if own._is_view():
            # It could not be written to: autograd does not know its base.
            raise NotSimple("a result is a view")
        storages.add(storage_of(own))


class _Recorder(TorchDispatchMode):
    """Records the operators that are called below autograd as nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_back = False
        self._graph = torch.fx.Graph()
        self._nodes: dict[int, torch.fx.Node] = {}
        #: Keeps the tensors alive, so that their ids stay unique.
        self._kept: list[torch.Tensor] = []
        #: Placeholders by the ids of inputs.
        self._inputs: dict[int, torch.fx.Node] = {}
        #: Ids of the tensors seen, by the memory that they share.
        self._sharing: dict[int, set[int]] = {}
        #: Ids of the tensors whose memory was written to by another one.
        self._stale: set[int] = set()

    def given(self, name: str, own: torch.Tensor) -> None:
        """Add an input."""
        node = self._graph.placeholder(name)
        node.meta["val"] = own
        self._inputs[id(own)] = node
        self._stands_for(own, node)

    def knows(self, own: Any) -> bool:
        """Whether a value is an input or was computed."""
        return isinstance(own, torch.Tensor) and id(own) in self._nodes

    def has_written(self, own: torch.Tensor) -> bool:
        """Whether an input was written to."""
        return self._nodes[id(own)] is not self._inputs[id(own)]

    def module(
        self,
        results: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
    ) -> torch.fx.GraphModule:
        """The recorded graph, with these results, new values of inputs, and gradients as outputs."""
        for own in gradients:
            if own is not None and not self.knows(own):
                raise NotSimple("a gradient is not computed")
        for own in written:
            self._inputs[id(own)].meta[OVERWRITTEN] = True
        returned = (*results, *written, *gradients)
        self._graph.output(tuple(None if own is None else self._node(own) for own in returned))
        for node in self._graph.nodes:
            node.meta["val"] = tree_map_only(
                torch.Tensor, torch.Tensor.detach, node.meta.get("val")
            )
        return torch.fx.GraphModule(torch.nn.Module(), self._graph)

    def _stands_for(self, own: torch.Tensor, node: torch.fx.Node) -> None:
        """Register ``own`` as the value of ``node``."""
        if id(own) not in self._nodes:
            self._kept.append(own)
            self._sharing.setdefault(storage_of(own), set()).add(id(own))
        self._nodes[id(own)] = node

    def _node(self, own: torch.Tensor) -> torch.fx.Node:
        node = self._nodes.get(id(own))
        if node is None:
            raise NotSimple("it reads a tensor that is neither given nor computed")
        if id(own) in self._stale:
            raise NotSimple("it reads a view of an input that was written to in the meantime")
        return node

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if func is _aten.detach.default:
            shown = func(*args, **kwargs)
            self._stands_for(shown, self._node(args[0]))
            return shown
        target, given = func, kwargs
        if func in _REPLACEMENTS and not kwargs:
            return self._replaced(func, args)
        if func._schema.is_mutable:
            target, given = self._written_anew(func, args, kwargs)
        elif "batch_norm" in func._schema.name and "backward" not in func._schema.name:
            raise NotSimple(f"{func} may write to running statistics")
        node_args, node_kwargs = tree_map_only(torch.Tensor, self._node, (args, given))
        order = None
        if target is _aten.bernoulli.p:
            # Its result is contiguous whatever the strides of its operand, which changes the order of random numbers.
            order = memory_order(args[0])
            if order is None and not args[0].is_contiguous():
                raise NotSimple(f"{func} writes to what has gaps")
        if order is not None:
            in_order = self._call(_aten.permute.default, (node_args[0], list(order)), {})
            in_order.meta["val"] = args[0].permute(order)
            node_args = (in_order, *node_args[1:])
        result = func(*args, **kwargs)
        node = self._call(target, node_args, node_kwargs)
        if order is not None:
            node.meta["val"] = result.permute(order)
            node = self._call(_aten.permute.default, (node, list(inverse(order))), {})
        if func._schema.is_mutable and id(result) in self._inputs:
            anew = torch.empty_like(result)
            self._results(anew, node)
            self._overwritten(result, anew)
        else:
            self._results(result, node)
        return result

    def _call(self, target: _Operator, args: Any, kwargs: Any) -> torch.fx.Node:
        node = self._graph.call_function(target, args, kwargs)
        if self.goes_back:
            node.meta["partitioner_tag"] = "is_backward"
        return node

    def _results(self, result: Any, node: torch.fx.Node) -> None:
        if isinstance(result, torch.Tensor):
            if not isinstance(result, FakeTensor):
                raise NotSimple(f"{node.target} gives a {type(result).__name__}")
            node.meta["val"] = result
            self._stands_for(result, node)
            return
        if isinstance(result, tuple | list):
            node.meta["val"] = result
            for number, own in enumerate(result):
                if own is None:
                    continue
                item = self._graph.call_function(operator.getitem, (node, number))
                if self.goes_back:
                    item.meta["partitioner_tag"] = "is_backward"
                self._results(own, item)
            return
        raise NotSimple(f"{node.target} gives a {type(result).__name__}")

    def _written_anew(
        self, func: _Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[_Operator, dict[str, Any]]:
        """The functional operator in the place of the in-place ``func``, and its keyword arguments.

        Raises:
            NotSimple: there is none, or other tensors share memory with the destination.
        """
        name = func._schema.name.removeprefix("aten::")
        packet = getattr(_aten, name.removesuffix("_"), None) if name.endswith("_") else None
        found = _ANEW.get(func) or getattr(packet, func._overloadname, None)
        own = args[0] if args else None
        if found is None or found._schema.is_mutable or not isinstance(own, torch.Tensor):
            raise NotSimple(f"{func} writes")
        sharing = self._sharing.get(storage_of(own), set())
        if not sharing.isdisjoint(self._inputs):
            self._check_is_writable(func, own, sharing)
        elif sharing != {id(own)}:
            raise NotSimple(f"{func} writes to what is seen elsewhere")
        if torch.Tag.inplace_view in func.tags:
            # The fake tensor of the value before would have other strides then.
            raise NotSimple(f"{func} changes how a value lies")
        # PyTorch leaves out arguments that equal their default.
        defaults = {
            it.name: it.default_value
            for it in func._schema.arguments[len(args) :]
            if it.has_default_value() and it.name not in kwargs
        }
        required = (it.name for it in found._schema.arguments if not it.has_default_value())
        kwargs = kwargs | {name: defaults[name] for name in required if name in defaults}
        if found is not _aten.bernoulli.p:
            anew = found(*args, **kwargs)
            if (anew.dtype, anew.shape, anew.stride()) != (own.dtype, own.shape, own.stride()):
                raise NotSimple(f"{found} gives another type or other strides than {func}")
        return found, kwargs

    def _check_is_writable(self, func: _Operator, own: torch.Tensor, sharing: set[int]) -> None:
        """Check that ``own`` is an input, alone in its memory but for views, that may be written to."""
        if self.goes_back or own.requires_grad:
            raise NotSimple(f"{func} writes to an input for which gradients matter")
        if sharing & self._inputs.keys() != {id(own)}:
            raise NotSimple(f"{func} writes to a part of an input, or to several inputs")

    def _overwritten(self, own: torch.Tensor, anew: torch.Tensor) -> None:
        """Let the node of ``anew`` stand for the input ``own``, and none for its views."""
        if anew.stride() != own.stride():
            raise NotSimple("it writes to an input with gaps")
        self._nodes[id(own)] = self._node(anew)
        self._stale |= self._sharing[storage_of(own)] - {id(own)}

    def _replaced(self, func: _Operator, args: tuple[Any, ...]) -> Any:
        """Record a functional operator in the place of one that writes to several inputs."""
        found = _REPLACEMENTS[func](args)
        for own in found.written:
            self._check_is_writable(func, own, self._sharing[storage_of(own)])
        node_args = tree_map_only(torch.Tensor, self._node, found.args)
        result = func(*args)
        anew = [torch.empty_like(own) for own in found.written]
        self._results((*result, *anew), self._call(found.target, node_args, {}))
        for own, value in zip(found.written, anew, strict=True):
            self._overwritten(own, value)
        return result


class _Functional(NamedTuple):
    """A call of a functional operator, which also returns new values of the tensors ``written``."""

    target: _Operator
    args: tuple[Any, ...]
    written: tuple[torch.Tensor, ...] = ()


def _fake_quantiser(args: tuple[Any, ...]) -> _Functional:
    target = _aten._fused_moving_avg_obs_fq_helper_functional.default
    return _Functional(target, args, args[3:7])


def _batch_norm(args: tuple[Any, ...]) -> _Functional:
    """The call in the place of ``native_batch_norm``.

    Raises:
        NotSimple: there is one of two statistics.
    """
    *given, mean, var, training, momentum, eps = args
    if not training:
        target = _aten._native_batch_norm_legit_no_training.default
        return _Functional(target, (*given, mean, var, momentum, eps))
    if mean is None and var is None:
        target = _aten._native_batch_norm_legit.no_stats
        return _Functional(target, (*given, training, momentum, eps))
    if mean is None or var is None:
        raise NotSimple("a batch norm has one of two statistics")
    return _Functional(_aten._native_batch_norm_legit_functional.default, args, (mean, var))


#: Functional calls in the place of operators that write to statistics; the schema of batch norms does not declare it.
_REPLACEMENTS: dict[_Operator, Callable[[tuple[Any, ...]], _Functional]] = {
    _aten.native_batch_norm.default: _batch_norm,
    _aten._fused_moving_avg_obs_fq_helper.default: _fake_quantiser,
}


__all__ = ["JointGraph", "NotSimple", "joint_graph"]
