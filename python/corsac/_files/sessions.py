"""Models of files with state or several programs: calls are made in sessions."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Literal, NamedTuple

from corsac import _core
from corsac._files.arrays import COMPUTED_AS, flat, held_as, shape_text, shown

#: Where tensors come from and go to.
Framework = Literal["torch", "numpy"]
#: Name, element type, and sizes, which may be expressions of names.
Spec = tuple[str, str, list[int | str]]


class Program(NamedTuple):
    """A program of a model.

    Attributes:
        inputs, outputs: names, element types, shapes with expressions for sizes that may differ between calls.
        state: the names of the state that it reads or writes.
        written: the names of the state that it writes.
    """

    inputs: list[Spec]
    outputs: list[Spec]
    state: list[str]
    written: list[str]


class SessionModel:
    """A model of a file with state or several programs, which runs in sessions.

    Sessions share its weights. Any number of threads may make and use some at once.
    """

    def __init__(self, model: _core.SessionModel, framework: Framework) -> None:
        #: The programs by name; the first is the default one, and an only one may have an empty name.
        self.programs = {name: Program(*parts) for name, *parts in model.programs}
        #: The state: names, element types, shapes with expressions for sizes that a session chooses.
        self.state: list[Spec] = model.state
        #: The names of these sizes, with their least and largest values.
        self.sizes = {name: (least, most) for name, least, most in model.sizes}
        #: What sessions take and return: tensors of PyTorch or arrays of numpy.
        self.framework = framework
        self._model = model

    def session(self, **sizes: int) -> Session:
        """A session whose state has these sizes and its initial values.

        Raises:
            ValueError: the state has no such sizes, or they are missing or out of range.
            ModelFileError: the state needs more memory than allowed.
        """
        return Session(self, self._model.session(list(sizes.items())))

    def __deepcopy__(self, _: dict[int, Any]) -> SessionModel:
        # Nothing in it changes.
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "models with state cannot be pickled: load the file where the model is needed"
        )

    def __call__(self, *inputs: Any) -> Any:
        raise TypeError("the model keeps state: make a session, and call session.run(...)")

    def __repr__(self) -> str:
        programs = [
            f"{name}({shown(own.inputs)} -> {shown(own.outputs)})"
            for name, own in self.programs.items()
        ]
        state = f"; state {shown(self.state)}" if self.state else ""
        return f"SessionModel({', '.join(programs)}{state})"


class Session:
    """State between calls of the programs of a model.

    Calls from several threads wait for each other. A call that fails leaves the state as it was; one that fails after
    it has written, by an index that is out of range, ends the session until :meth:`reset`.
    """

    def __init__(self, model: SessionModel, session: _core.Session) -> None:
        #: The model.
        self.model = model
        self._session = session

    def run(self, *inputs: Any, program: str | None = None) -> Any:
        """The results of a program, by default of the first, which reads and writes the state.

        Raises:
            TypeError: inputs are no tensors or arrays, or of other element types.
            ValueError: there is no such program, their number or sizes are wrong, or an index is out of range.
        """
        programs = self.model.programs
        own = next(iter(programs.values())) if program is None else programs.get(program)
        # The session reports another number of inputs, and an unknown program.
        specs = [] if own is None else own.inputs
        given = []
        for number, array in enumerate(inputs):
            name, dtype = specs[number][:2] if number < len(specs) else (str(number), None)
            given.append(_given(array, f"input {name}", dtype))
        framework = self.model.framework
        return self._session.run(program, given, lambda own: _returned(own, framework))

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The state by name: reading copies it, and assigning replaces it."""
        return _State(self)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the state."""
        return dict(self._session.sizes)

    def reset(self) -> None:
        """Set the state to its initial values, for the same sizes."""
        self._session.reset()

    def resize(self, **sizes: int) -> None:
        """Enlarge the state to these sizes; others stay. Elements keep their places, and new ones have their initial
        values.

        Raises:
            ValueError: the state has no such sizes, or they are out of range or less than they are.
        """
        self._session.resize(list(sizes.items()))

    def fork(self) -> Session:
        """Another session of the model, with a copy of the state."""
        return Session(self.model, self._session.fork())

    def __copy__(self) -> Session:
        return self.fork()

    def __deepcopy__(self, _: dict[int, Any]) -> Session:
        return self.fork()

    def __reduce__(self) -> Any:
        raise TypeError(
            "sessions cannot be pickled: make one where it is needed, and assign to its state"
        )

    def __repr__(self) -> str:
        return f"Session({shown(self._session.specs)})"


class _State(MutableMapping[str, Any]):
    """The state of a session by name."""

    def __init__(self, session: Session) -> None:
        self._session, self._own = session, session._session

    def _types(self) -> dict[str, str]:
        return {name: dtype for name, dtype, _ in self._own.specs}

    def __getitem__(self, name: str) -> Any:
        if name not in self._types():
            raise KeyError(name)
        return _returned(self._own.state(name), self._session.model.framework)

    def __setitem__(self, name: str, value: Any) -> None:
        dtype = self._types().get(name)
        if dtype is None:
            raise KeyError(name)
        self._own.set_state(name, _given(value, f"state {name}", dtype))

    def __delitem__(self, name: str) -> None:
        raise TypeError("state cannot be deleted; session.reset() sets it to its initial values")

    def __iter__(self) -> Iterator[str]:
        return iter(self._types())

    def __len__(self) -> int:
        return len(self._types())

    def __repr__(self) -> str:
        return f"{{{shown(self._own.specs)}}}"


def _given(array: Any, what: str, dtype: str | None) -> Any:
    """Element type, sizes and elements of a tensor or an array, for the engine."""
    import numpy

    own = None
    if type(array).__module__.partition(".")[0] == "torch" or hasattr(array, "detach"):
        own = str(array.dtype).removeprefix("torch.")
        array = array.detach().cpu()
        # numpy has no bfloat16.
        array = (array.float() if own == "bfloat16" else array).numpy()
    array = numpy.asarray(array)
    found = str(array.dtype) if own is None else own
    expected = found if dtype is None else dtype
    if found != expected and (own is not None or found != held_as(expected)):
        shape = shape_text(array.shape)
        raise TypeError(f"{what} is {expected}, not {found}{shape}")
    if expected not in ("float32", "float64", "int64", "bool", *COMPUTED_AS):
        raise TypeError(f"{what} has elements of {expected}, which the engine does not have")
    return (
        expected,
        list(array.shape),
        flat(numpy.ascontiguousarray(array, COMPUTED_AS.get(expected))),
    )


def _returned(own: tuple[str, list[int], bytearray], framework: Framework) -> Any:
    """A tensor or an array of these elements."""
    import numpy

    dtype, shape, elements = own
    array = numpy.frombuffer(elements, COMPUTED_AS.get(dtype, dtype)).reshape(shape)
    if framework == "numpy":
        return array.astype(held_as(dtype), copy=False)
    import torch

    return torch.from_numpy(array).to(getattr(torch, dtype))


__all__ = ["Framework", "Program", "Session", "SessionModel"]
