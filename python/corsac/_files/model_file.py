"""``corsac.load``: loads a model file, with PyTorch or without."""

from __future__ import annotations

import functools
import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from corsac import _core
from corsac._files.arrays import COMPUTED_AS, flat, held_as, shape_text, shown
from corsac._files.sessions import SessionModel

if TYPE_CHECKING:
    import torch

    from corsac._engine.compiled_graph import CompiledGraph


#: Modules that the graph of a file may name. Its operators are checked before against the catalogue,
#: which has none that read files or run code.
_NAMES = ("torch", "operator", "_operator", "builtins", "math", "torchvision.ops")


def load(
    path: str | os.PathLike[str], *, framework: Literal["torch", "numpy"] | None = None
) -> CompiledGraph | NumpyModel | SessionModel:
    """Load the model in the file at ``path``, which :func:`corsac.save` wrote.

    The file is data: everything in it is checked, no code in it is run, and it has no pickles. A file with state or
    several programs gives a :class:`SessionModel`.

    Args:
        path: the file.
        framework: ``"torch"`` for a module of PyTorch, with the weights as its state, for tensors of
            the types and shapes that the file is for; ``"numpy"`` for a :class:`NumpyModel`, which does not
            need PyTorch. By default the first if PyTorch is installed.

    Raises:
        ModelFileError: (a ``ValueError``) the file is not a model file, is damaged, or needs more memory than
            allowed.
        CompileError: the graph has operators that the engine does not support.
        OSError: the file cannot be read.
    """
    if framework not in (None, "torch", "numpy"):
        raise ValueError(f"framework is 'torch' or 'numpy', not {framework!r}")
    file = _core.ModelFile(os.fspath(path))
    if framework is None:
        framework = "numpy" if importlib.util.find_spec("torch") is None else "torch"
    if file.has_sessions:
        return SessionModel(_core.SessionModel(os.fspath(path)), framework)
    return NumpyModel(file) if framework == "numpy" else _module(file)


class NumpyModel:
    """A model as a function of numpy arrays. Results are new arrays.

    numpy has no bfloat16: inputs of that type are float32, and are rounded; results are float32.

    Calls from many threads at once are safe, and Python is free while one runs.
    """

    def __init__(self, file: _core.ModelFile) -> None:
        #: Its inputs: names, element types, shapes with expressions for sizes that may differ between calls.
        self.inputs = file.inputs
        #: Its outputs: places in the result, element types, shapes.
        self.outputs = file.outputs
        #: The names of sizes that may differ between calls, with their least and largest values.
        self.sizes = {name: (least, most) for name, least, most in file.symbols}
        self._file = file
        #: For files without such sizes.
        self._program: _core.NativeProgram | None = None
        if not self.sizes:
            shapes: list[Any] = [shape for _, _, shape in self.inputs]
            self._program = file.program(shapes)

    def __call__(self, *arrays: Any) -> Any:
        import numpy

        if len(arrays) != len(self.inputs):
            raise TypeError(f"the model takes {len(self.inputs)} arrays, not {len(arrays)}")
        arrays = tuple(map(numpy.asarray, arrays))
        for (name, dtype, shape), array in zip(self.inputs, arrays, strict=True):
            is_own = array.ndim == len(shape) if self.sizes else list(array.shape) == shape
            if str(array.dtype) != held_as(dtype) or not is_own:
                got = f"{array.dtype}{list(array.shape)}"
                raise TypeError(f"input {name} is {held_as(dtype)}{shape_text(shape)}, not {got}")
        program = self._program
        if program is None:
            program = self._file.program([list(array.shape) for array in arrays])
        given = [
            flat(numpy.ascontiguousarray(array, COMPUTED_AS.get(dtype)))
            for (_, dtype, _), array in zip(self.inputs, arrays, strict=True)
        ]
        dtypes = program.output_dtypes
        results = [
            numpy.empty(shape, COMPUTED_AS.get(dtype, dtype))
            for dtype, shape in zip(dtypes, program.output_shapes, strict=True)
        ]
        program.run(given, [flat(result) for result in results])
        own = zip(results, dtypes, strict=True)
        return program.returned(
            [result.astype(held_as(dtype), copy=False) for result, dtype in own]
        )

    def __deepcopy__(self, _: dict[int, Any]) -> NumpyModel:
        # Nothing in it changes.
        return self

    def __reduce__(self) -> Any:
        file = self._file
        inputs = [(name, dtype, list(shape)) for name, dtype, shape in file.inputs]
        program = ("", file.text, inputs, [], list(file.symbols), list(file.conditions))
        weights = [(spec, file.weight_bytes(number)) for number, spec in enumerate(file.weights)]
        return _rewritten, (program, weights, file.graphs)

    def __repr__(self) -> str:
        return f"NumpyModel({shown(self.inputs)} -> {shown(self.outputs)})"


def _rewritten(program: Any, weights: Any, graphs: Any) -> NumpyModel:
    """The model of a file with this program, these weights, and graphs that it calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        _core.write_model_file(path, [program], weights, {}, graphs)
        return NumpyModel(_core.ModelFile(path))


def _module(file: _core.ModelFile) -> CompiledGraph:
    import torch

    from corsac._engine.compiled_graph import CompiledGraph
    from corsac.fx import Graph, GraphModule
    from corsac.fx._module_attributes import _assign_attr

    root = torch.nn.Module()
    for number, (name, dtype, shape) in enumerate(file.weights):
        tensor = _tensor(file.weight_bytes(number), getattr(torch, dtype), shape)
        if tensor.is_floating_point():
            tensor = torch.nn.Parameter(tensor, requires_grad=False)
        _assign_attr(tensor, root, name)
    texts = dict(file.graphs)

    def made(text: str, name: str) -> GraphModule:
        """The module of a graph, with those that it calls, which do not call it."""
        graph = Graph.parse(text, allow=_NAMES)
        for target in {str(node.target) for node in graph.find_nodes(op="get_attr")}:
            if target in texts and target not in called:
                called.add(target)
                _assign_attr(made(texts[target], "CalledGraph"), root, target)
        return GraphModule(root, graph, name).eval()

    called: set[str] = set()
    module = made(file.text, "LoadedModel")
    sizes = None
    if file.symbols:
        sizes = _Sizes(file.text, file.inputs, file.weights, file.symbols, file.conditions)
    check = functools.partial(_check, file.inputs, sizes)
    capture = functools.partial(_itself, module)
    return CompiledGraph(module, capture, strict=False, any_rows=sizes is not None, check=check)


def _itself(module: Any) -> Any:
    return module


class _Sizes:
    """Checks the sizes of inputs; takes the arguments of :class:`corsac._core.ModelDraft`."""

    def __init__(self, *given: Any) -> None:
        self._given = given
        self._draft = _core.ModelDraft(*given)

    def __call__(self, shapes: list[list[int]]) -> None:
        """Check these shapes.

        Raises:
            ValueError: the model does not take them.
        """
        self._draft.check_shapes(shapes)

    def __reduce__(self) -> Any:
        return _Sizes, self._given


def _check(
    specs: Sequence[tuple[str, str, list[int | str]]],
    sizes: Callable[[list[list[int]]], None] | None,
    given: Sequence[Any],
) -> None:
    """Check the inputs of a model: for other sizes its graph may be wrong. ``sizes`` checks symbolic ones.

    Raises:
        TypeError: their number, element types or shapes differ from ``specs``.
        ValueError: their sizes are out of range, or contradict each other.
    """
    if len(given) != len(specs):
        raise TypeError(f"the model takes {len(specs)} tensors, not {len(given)}")
    for (name, dtype, shape), own in zip(specs, given, strict=True):
        found = str(getattr(own, "dtype", type(own).__name__)).removeprefix("torch.")
        sizes_given = list(getattr(own, "shape", ()))
        is_own = sizes_given == shape if sizes is None else len(sizes_given) == len(shape)
        if found != dtype or not is_own:
            raise TypeError(f"input {name} is {dtype}{shape_text(shape)}, not {found}{sizes_given}")
    if sizes is not None:
        sizes([list(own.shape) for own in given])


def _tensor(data: bytes, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    import torch

    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
