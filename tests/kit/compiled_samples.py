"""Samples of torch's own operator tests through ``torch.compile(backend="corsac")``, forward and backward."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

from kit.operator_samples import TOLERANCES, Call, described, full_name, kind, samples
from kit.placement import Pieces, recorded

#: Tolerance of gradients, which are sums for repeated tensors: relative to the element, and to the largest of
#: its tensor.
GRADIENTS = (1e-4, 1e-5)
#: Allowed distance from float64 for results that differ from eager's, in multiples of eager's distance.
NEARER = 1.0
#: Where the graphs of a sample ran.
PLACES = ("native", "partly native", "by PyTorch")
#: Everything that can be native is, whether that is faster or not.
OPTIONS = {"training": "native"}


@dataclass
class Compared:
    """Results for the samples of an operator.

    Attributes:
        name: the operator.
        places: number of samples by :data:`PLACES`.
        exact: number of samples with eager's bits.
        close: number of samples that differ within the tolerance.
        gradients: number of samples also run backward.
        reasons: the reasons why PyTorch ran calls, with numbers of graphs.
        failing: samples that differ, or that raise when they are compiled.
    """

    name: str
    places: Counter[str] = field(default_factory=Counter)
    exact: int = 0
    close: int = 0
    gradients: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failing: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """Number of samples run."""
        return self.exact + self.close + len(self.failing)

    @property
    def place(self) -> str:
        """The place of the operator: that of all its samples, or partly native."""
        return next(iter(self.places)) if len(self.places) == 1 else PLACES[1]


def compare(op: Any, limit: int) -> Compared:
    """Run up to ``limit`` samples of float32, twice, with gradients where the operator has them.

    Args:
        op: an entry of ``op_db``.
        limit: maximum number of samples.
    """
    found = Compared(full_name(op))
    given = samples(op, torch.float32, limit, requires_grad=op.supports_autograd)
    with mock.patch.object(common_methods_invocations, "wrapper_set_seed", _as_seeded):
        for sample in given:
            _compare(op, sample, found)
    return found


def _as_seeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Replaces torch's ``wrapper_set_seed``, which sets a seed where a call is traced, and in no call after."""
    return function(*args, **kwargs)


def _compare(op: Any, sample: Any, found: Compared) -> None:
    call, bounds = Call(op, sample), TOLERANCES[kind(op.name)]
    torch._dynamo.reset()
    compiled = torch.compile(_function(call), backend="corsac", options=OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = _results(call, call.tensors)
        except Exception:
            return
        try:
            with recorded() as pieces:
                exact = [
                    _judged(_results(compiled, call.tensors), expected, call, bounds)
                    for _ in range(2)
                ]
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic is not an Exception
            found.failing.append(described(sample, call, f"{type(error).__name__}: {error}"))
            return
    found.exact += all(exact)
    found.close += not all(exact)
    found.gradients += bool(expected.gradients)
    found.places[_place(pieces)] += 1
    found.reasons += pieces.reasons() if pieces else Counter(["Dynamo makes no graph of it"])


def _function(call: Call) -> Callable[..., Any]:
    """``call`` as a function for Dynamo."""
    return lambda *given: call(*given)


def _place(pieces: Pieces) -> str:
    placed = pieces.placed()
    native, calls = placed.native.total(), placed.calls.total()
    if not native:
        return PLACES[2]
    return PLACES[0] if native == calls else PLACES[1]


@dataclass(frozen=True)
class _Results:
    """Results of a call.

    Attributes:
        values: tensors that it returned.
        inputs: its tensors afterwards, since it may write to them.
        gradients: gradients of the tensors that require them.
    """

    values: Sequence[torch.Tensor]
    inputs: Sequence[torch.Tensor]
    gradients: Sequence[torch.Tensor | None]


def _results(run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> _Results:
    given = [_copied(own) for own in tensors]
    torch.manual_seed(1)
    values = _tensors(run(*given))
    wanted = [own for own in given if own.requires_grad]
    roots = [own for own in values if own.requires_grad]
    gradients: Sequence[torch.Tensor | None] = ()
    if wanted and roots:
        generator = torch.Generator().manual_seed(2)
        weights = [
            torch.randn(own.shape, dtype=own.dtype, generator=generator)
            if own.layout is torch.strided
            else torch.ones_like(own)
            for own in roots
        ]
        gradients = torch.autograd.grad(roots, wanted, weights, allow_unused=True)
    return _Results([own.detach() for own in values], [own.detach() for own in given], gradients)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the elements and strides of ``tensor``, and memory of its own."""
    return copy.deepcopy(tensor.detach()).requires_grad_(tensor.requires_grad)


def _tensors(results: Any) -> list[torch.Tensor]:
    return [own for own in pytree.tree_leaves(results) if isinstance(own, torch.Tensor)]


def _judged(
    own: _Results,
    expected: _Results,
    call: Call,
    bounds: tuple[float, float],
) -> bool:
    """Whether two calls have the same bits; raises an error if one is wrong."""
    try:
        return _same(own, expected, *bounds)
    except AssertionError as error:
        # Remainders of large numbers that cancel are mostly rounding: compare distances to the exact result.
        try:
            truth = _results(call, [_doubled(tensor) for tensor in call.tensors])
            near = _distance(own, truth) <= NEARER * _distance(expected, truth)
        except Exception:
            raise error from None
        if not near:
            raise
        return False


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is not torch.float32:
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def _distance(own: _Results, truth: _Results) -> float:
    """The largest difference of an element from its value in float64."""
    worst = 0.0
    for a, b in zip((*own.values, *own.gradients), (*truth.values, *truth.gradients), strict=True):
        if a is not None and a.numel():
            worst = max(worst, (a.to(b.dtype) - b).abs().max().item())
    return worst


def _same(own: _Results, other: _Results, rtol: float, atol: float) -> bool:
    """Whether two calls have the same bits; raises an error if they differ by more than allowed."""
    exact = True
    for name, bounds in (
        ("values", (rtol, atol)),
        ("inputs", (rtol, atol)),
        ("gradients", GRADIENTS),
    ):
        pairs = getattr(own, name), getattr(other, name)
        assert len(pairs[0]) == len(pairs[1]), f"{len(pairs[0])} {name}, not {len(pairs[1])}"
        for number, (a, b) in enumerate(zip(*pairs, strict=True)):
            exact &= _close(a, b, *bounds, f"{name}[{number}]", name == "gradients")
    return exact


def _close(a: Any, b: Any, rtol: float, atol: float, name: str, scaled: bool) -> bool:
    if a is None or b is None:
        assert a is b, f"{name}: {a}, not {b}"
        return True
    assert a.shape == b.shape, f"{name}: {list(a.shape)}, not {list(b.shape)}"
    assert a.dtype == b.dtype, f"{name}: {a.dtype}, not {b.dtype}"
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if torch.allclose(a, b, rtol=0, atol=0, equal_nan=True):
        return True
    if scaled:
        largest = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
        atol *= max(1.0, largest)
    torch.testing.assert_close(
        a, b, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )
    return False
