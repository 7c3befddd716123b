"""Expected types and sizes of the results of a graph, for the check of a backend's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from corsac import _core


class _Form(NamedTuple):
    """Element type and sizes of a result; sizes that differ between calls are None."""

    dtype: torch.dtype
    sizes: tuple[int | None, ...] | None

    def is_of(self, result: torch.Tensor) -> bool:
        if result.dtype != self.dtype:
            return False
        if self.sizes is None:
            return True
        return len(self.sizes) == result.dim() and all(
            own is None or own == size for own, size in zip(self.sizes, result.shape, strict=True)
        )

    def __str__(self) -> str:
        return str(self.dtype) if self.sizes is None else f"{self.dtype} {list(self.sizes)}"


class ResultTypes:
    """The types and sizes of the results of a graph, as far as they are known.

    Args:
        module: the graph, which returns a tuple.
        example_inputs: one for each of its inputs.
    """

    def __init__(self, module: Any, example_inputs: Sequence[Any]) -> None:
        self._module = module
        (output,) = module.graph.find_nodes(op="output")
        returned = output.args[0]
        returned = list(returned) if isinstance(returned, tuple | list) else []
        known = _propagated(module, example_inputs)
        self._expected = [_declared(own) or known.get(getattr(own, "name", "")) for own in returned]

    def fault(self, results: Sequence[Any], args: Sequence[Any]) -> str | None:
        """Description of a fault in the types or sizes of ``results``, computed from ``args``, or None."""
        for at, (result, expected) in enumerate(zip(results, self._expected, strict=False)):
            if expected is None or not isinstance(result, torch.Tensor) or expected.is_of(result):
                continue
            # Expectations may be wrong under autocast and other modes, or for other inputs: PyTorch decides.
            sure = self._of_pytorch(args)
            own = None if sure is None else sure[at]
            if own is not None and not own.is_of(result):
                wanted = own if own.dtype == result.dtype else own._replace(sizes=None)
                found = _form_of(result)._replace(sizes=wanted.sizes and tuple(result.shape))
                return f"expected result {at} to be {wanted}, got {found}"
            self._expected[at] = None
        return None

    def _of_pytorch(self, args: Sequence[Any]) -> list[_Form | None] | None:
        """Types and sizes of PyTorch's results, found with fake tensors; None if that fails."""
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fakes = [
                    mode.from_tensor(own) if isinstance(own, torch.Tensor) else own for own in args
                ]
                results = self._module(*fakes)
        except Exception:
            return None
        return [_form_of(own) if isinstance(own, torch.Tensor) else None for own in results]


def _form_of(own: torch.Tensor) -> _Form:
    return _Form(own.dtype, _known_sizes(own.shape))


def _known_sizes(shape: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(size if type(size) is int else None for size in shape)


def _declared(node: Any) -> _Form | None:
    """Type and sizes in Dynamo's metadata of a node, if any."""
    value = getattr(node, "meta", {}).get("example_value")
    return _form_of(value) if isinstance(value, torch.Tensor) else None


def _propagated(module: Any, example_inputs: Sequence[Any]) -> dict[str, _Form]:
    """Types and sizes by shape inference, by name of the node; sizes are those for the example inputs."""
    if not isinstance(module.graph, _core.Graph):
        return {}
    try:
        with torch.no_grad():
            types = _core.propagate_types(module.graph, tuple(example_inputs), None, fill=False)
        values = types.values()
    except Exception:
        return {}
    found = {}
    for node, value in zip(module.graph.nodes, values, strict=True):
        dtype = getattr(value, "dtype", None)
        if isinstance(dtype, torch.dtype):
            shape = getattr(value, "shape", None)
            found[node.name] = _Form(dtype, None if shape is None else _known_sizes(shape))
    return found
