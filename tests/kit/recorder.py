"""The recorder that a program writes its observations to."""

import warnings
from collections.abc import Callable
from typing import Any

from .implementations import Implementation
from .observe import Raised, attempt, capture_output, clean, observe


class Recorder:
    """Keeps observations in order, each with its own label."""

    def __init__(self, implementation: Implementation) -> None:
        self.implementation = implementation
        self.seen: dict[str, Any] = {}
        self.tolerances: dict[str, tuple[float, float]] = {}
        self.graphs: list[tuple[str, str]] = []
        self.reads_back = False

    def __call__(self, label: str, value: Any) -> Any:
        """Record the present value; graphs and tensors are copied. Returns the value."""
        self._store(label, observe(value, self.implementation))
        graph = getattr(value, "graph", value)
        if isinstance(graph, self.implementation.fx.Graph):
            self.graphs.append((label, str(graph)))
        return value

    def close(self, label: str, value: Any, rtol: float = 1e-5, atol: float = 1e-6) -> Any:
        """Record a value whose tensors need only be close."""
        self.tolerances[label] = (rtol, atol)
        return self(label, value)

    def call(self, label: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Record the result of a call, or the type of its exception."""
        result = attempt(call, *args, **kwargs)
        self(label, result)
        return None if isinstance(result, Raised) else result

    def prints(self, label: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Record the output of a call."""
        text = attempt(capture_output, call, *args, **kwargs)
        self(label, text if isinstance(text, Raised) else clean(text, self.implementation))

    def warns(self, label: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Record the categories of the warnings of a call, and return its value."""
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            result = attempt(call, *args, **kwargs)
        self(label, [warning.category for warning in given])
        self(f"{label}: outcome", result if isinstance(result, Raised) else "returned")
        return None if isinstance(result, Raised) else result

    def _store(self, label: str, observation: Any) -> None:
        if label in self.seen:
            raise ValueError(f"the label {label!r} is used twice")
        self.seen[label] = observation
