"""Base class of backends that read ONNX models."""

from __future__ import annotations

import importlib.util
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from corsac.analysis import Dim
from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.lowering._backend import Backend
from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._export import DEFAULT_OPSET, LARGE, Written, save, weights_bytes
from corsac.onnx._translate import explain, spec_of


class OnnxBackend(Backend):
    """A backend that runs ONNX models.

    It supports what corsac's table translates to ONNX, less what :meth:`refuses`.
    """

    #: The package that it needs: name of the module, and name to install.
    package = ("", "")
    opset = DEFAULT_OPSET

    def __init__(self) -> None:
        self._root: torch.nn.Module | None = None

    def available(self) -> str | None:
        for module, package in (self.package, ("onnx", "onnx")):
            if importlib.util.find_spec(module) is None:
                return f"{module} is missing: pip install {package}"
        return None

    def prepare(self, module: GraphModule) -> None:
        self._root = module

    def supports(self, node: Node, types: Mapping[Node, Any]) -> bool | str:
        builder, reason = explain(node, types, self._root, self.opset)
        if builder is None:
            return reason or "no translation"
        return self.refuses(builder) or True

    def refuses(self, builder: Builder) -> str | None:
        """Reason why the runtime does not compute these operations as torch does; None if it does."""
        del builder
        return None

    def compile(self, part: GraphModule, types: Sequence[Any]) -> Callable[..., Any]:
        inputs = tuple(spec_of(type_) for type_ in types)
        # Writes were checked in the whole program.
        written = Written.of_module(part, inputs, self.opset, own_inputs=True)
        model = written.proto()
        names = [x.name if x is not None else None for x in written.inputs]
        if not model.graph.output:
            return OnnxCall(lambda feed: [], names, written)
        if weights_bytes(model) < LARGE:
            return OnnxCall(self.load(model.SerializeToString()), names, written)
        # More than an ONNX message can hold: the weights are in a file beside the model's. The runtime may
        # have mapped it into memory, and Windows does not remove mapped files.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "part.onnx"
            save(model, path)
            del model
            return OnnxCall(self.load(path), names, written)

    @abstractmethod
    def load(self, model: bytes | Path) -> Callable[[dict[str, torch.Tensor]], list[torch.Tensor]]:
        """A function from inputs by name to the outputs, in order. ``model`` is a serialised model, or a file
        with one, which is deleted afterwards."""


class OnnxCall:
    """Calls an ONNX model with the signature of the part it was exported from.

    Args:
        run: runs the model.
        names: the names of the inputs; None for those that the model does not have.
        written: the exported graph of the part.
    """

    def __init__(self, run: Callable[..., Any], names: list[str | None], written: Written) -> None:
        self._run, self._names = run, names
        leaves, self._spec = torch.utils._pytree.tree_flatten(written.result)
        # Leaves of the result: the next tensor, the next tensor as a size, or a constant.
        self._leaves: list[tuple[str, Any]] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                self._leaves.append(("tensor", None))
            elif isinstance(leaf, Dim):
                self._leaves.append(("size", None))
            else:
                self._leaves.append(("constant", leaf))

    def __call__(self, *arguments: Any) -> Any:
        feed = {}
        for name, value in zip(self._names, arguments, strict=True):
            if name is not None:
                tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
                feed[name] = tensor.detach().contiguous()
        results = iter(self._run(feed))
        leaves = []
        for kind, constant in self._leaves:
            if kind == "constant":
                leaves.append(constant)
            else:
                tensor = next(results)
                leaves.append(tensor if kind == "tensor" else int(tensor))
        return torch.utils._pytree.tree_unflatten(leaves, self._spec)
