"""The element types of what a graph returns, which those of a backend's results have to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from corsac import _core


class ResultTypes:
    """The element types of the results of a graph, as far as they are known.

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
        """What is wrong with the element types of ``results``, which were computed from ``args``."""
        for at, (result, expected) in enumerate(zip(results, self._expected, strict=False)):
            if expected is None or not isinstance(result, torch.Tensor) or result.dtype == expected:
                continue
            # Autocast and other modes count as well: PyTorch says what they make of the graph.
            sure = self._of_pytorch(args)
            if sure is not None and sure[at] not in (None, result.dtype):
                return f"expected result {at} to be {sure[at]}, got {result.dtype}"
            self._expected[at] = None
        return None

    def _of_pytorch(self, args: Sequence[Any]) -> list[torch.dtype | None] | None:
        """The element types that PyTorch gives, without computing values; None where it does not say."""
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fakes = [
                    mode.from_tensor(own) if isinstance(own, torch.Tensor) else own for own in args
                ]
                results = self._module(*fakes)
        except Exception:
            return None
        return [own.dtype if isinstance(own, torch.Tensor) else None for own in results]


def _declared(node: Any) -> torch.dtype | None:
    """The element type that Dynamo noted."""
    return getattr(getattr(node, "meta", {}).get("example_value"), "dtype", None)


def _propagated(module: Any, example_inputs: Sequence[Any]) -> dict[str, torch.dtype]:
    """By name of the node, where there is a rule."""
    if not isinstance(module.graph, _core.Graph):
        return {}
    try:
        with torch.no_grad():
            types = _core.propagate_types(module.graph, tuple(example_inputs), None, fill=False)
        values = types.values()
    except Exception:
        return {}
    dtypes = (
        (n.name, getattr(v, "dtype", None)) for n, v in zip(module.graph.nodes, values, strict=True)
    )
    return {name: dtype for name, dtype in dtypes if isinstance(dtype, torch.dtype)}
