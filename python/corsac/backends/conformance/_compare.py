"""Outcomes of calls, and their comparison."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves

#: Relative and absolute tolerances, by element type.
TOLERANCES = {
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
    torch.float32: (1e-4, 1e-5),
    torch.float64: (1e-6, 1e-8),
    torch.complex64: (1e-4, 1e-5),
}


@dataclass(slots=True)
class Outcome:
    """The outcome of a call.

    Attributes:
        result: the returned value.
        error: the exception raised.
        inputs: its arguments, after the call.
        state: copies of the parameters and buffers of the model after the call.
        gradients: copies of the gradients of inputs and weights.
        seen: a copy of the result, made right after the call.
    """

    result: Any = None
    error: Exception | None = None
    inputs: tuple[Any, ...] = ()
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    seen: Any = None

    def freeze(self) -> None:
        """Copy the present result to ``seen``."""
        with torch.no_grad():
            leaves, spec = tree_flatten(self.result)
            kept = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in leaves]
            self.seen = torch.utils._pytree.tree_unflatten(kept, spec)


def difference(found: Outcome, expected: Outcome, exact: bool) -> str | None:
    """Description of the first difference between ``found`` and ``expected``; None if there is none."""
    if expected.error is not None or found.error is not None:
        return _of_errors(found.error, expected.error)
    return next(_differences(found, expected, exact), None)


def later_change(outcome: Outcome) -> str | None:
    """Description of a change of the result since the call; None if there is none."""
    pairs = zip(tree_leaves(outcome.result), tree_leaves(outcome.seen), strict=True)
    for number, (now, before) in enumerate(pairs):
        if isinstance(now, torch.Tensor) and not _equal(now.detach(), before):
            return f"result {number} was written to by a later call"
    return None


def _of_errors(found: Exception | None, expected: Exception | None) -> str | None:
    if found is None:
        return f"expected {_shown(expected)}, got a result"
    if expected is None:
        return f"expected a result, got {_shown(found)}"
    if not isinstance(found, type(expected)):
        return f"expected {_shown(expected)}, got {_shown(found)}"
    return None


def _shown(error: Exception | None) -> str:
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {said.strip()[:160]}"


def _differences(found: Outcome, expected: Outcome, exact: bool) -> Iterator[str]:
    yield from _of_values("result", found.seen, expected.seen, exact)
    pairs = zip(tree_leaves(found.result), tree_leaves(expected.result), strict=True)
    for number, (own, other) in enumerate(pairs):
        if isinstance(own, torch.Tensor) and own.requires_grad != other.requires_grad:
            wanted = "a" if other.requires_grad else "no"
            yield f"result {number}: expected {wanted} gradient, and it is the other way round"
    yield from _of_values("input after the call", found.inputs, expected.inputs, True)
    for name, own in expected.state.items():
        yield from _of_values(f"{name} after the call", found.state.get(name), own, True)
    for name, gradient in expected.gradients.items():
        yield from _of_values(f"gradient of {name}", found.gradients.get(name), gradient, True)
    yield from _of_sharing(found, expected)


def _of_values(what: str, found: Any, expected: Any, exact: bool) -> Iterator[str]:
    leaves, spec = tree_flatten(found)
    wanted, wanted_spec = tree_flatten(expected)
    if spec != wanted_spec:
        yield f"{what}: expected {_structure(expected)}, got {_structure(found)}"
        return
    for number, (own, other) in enumerate(zip(leaves, wanted, strict=True)):
        place = what if len(wanted) == 1 else f"{what} {number}"
        if type(own) is not type(other) and not isinstance(other, torch.Tensor):
            yield f"{place}: expected {other!r}, got a {type(own).__name__}"
        elif not isinstance(other, torch.Tensor):
            if own != other:
                yield f"{place}: expected {other!r}, got {own!r}"
        else:
            yield from _of_tensors(place, own, other, exact)


def _of_tensors(place: str, own: Any, other: torch.Tensor, exact: bool) -> Iterator[str]:
    if not isinstance(own, torch.Tensor):
        yield f"{place}: expected a tensor, got a {type(own).__name__}"
    elif (own.dtype, own.shape, own.device) != (other.dtype, other.shape, other.device):
        yield f"{place}: expected {_type(other)}, got {_type(own)}"
    elif exact and not _close(own.detach(), other.detach()):
        far = (own.detach().to(torch.complex128) - other.detach().to(torch.complex128)).abs().max()
        yield f"{place}: values differ by up to {float(far):.3g}"


def _of_sharing(found: Outcome, expected: Outcome) -> Iterator[str]:
    """Differences in the sharing of memory."""
    own, other = _sharing(found), _sharing(expected)
    for one, two in sorted(own - other):
        yield f"{one} shares memory with {two}, which PyTorch's does not"
    for one, two in sorted(other - own):
        yield f"{one} does not share memory with {two}, as PyTorch's does"


def _sharing(outcome: Outcome) -> set[tuple[str, str]]:
    named = [(f"result {n}", x) for n, x in enumerate(tree_leaves(outcome.result))]
    results = len(named)
    named += [(f"input {n}", x) for n, x in enumerate(tree_leaves(outcome.inputs))]
    places = [
        x.untyped_storage()._cdata if isinstance(x, torch.Tensor) and x.numel() else None
        for _, x in named
    ]
    return {
        (named[i][0], named[j][0])
        for i in range(results)
        for j in range(i + 1, len(named))
        if places[i] is not None and places[i] == places[j]
    }


def _close(own: torch.Tensor, other: torch.Tensor) -> bool:
    rtol, atol = TOLERANCES.get(other.dtype, (0.0, 0.0))
    if rtol == 0.0:
        return torch.equal(own, other)
    return torch.allclose(own, other, rtol=rtol, atol=atol, equal_nan=True)


def _equal(own: torch.Tensor, other: torch.Tensor) -> bool:
    return own.shape == other.shape and bool(torch.isclose(own, other, 0, 0, True).all())


def _type(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return f"{name}{list(tensor.shape)} on {tensor.device}"


def _structure(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if isinstance(value, tuple | list):
        inner = ", ".join(_structure(own) for own in value)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, dict):
        inner = ", ".join(f"{key!r}: {_structure(own)}" for key, own in value.items())
        return f"{{{inner}}}"
    return type(value).__name__


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of arguments for one call, which share memory among themselves as the originals do."""
    return copy.deepcopy(arguments)
