"""Plans as files."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from corsac.distributed._errors import PipelineError


class PlanFile(ABC):
    """A plan that can be a JSON file."""

    __slots__ = ()

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """The plan as values of JSON, with the graph and the constants of the program, but without its weights.

        Raises:
            PipelineError: a constant of the model is on ``meta``.
        """

    @classmethod
    @abstractmethod
    def of_content(cls, content: Mapping[str, Any], name: str) -> Self:
        """The plan of :meth:`content`, which was read from the file ``name``.

        Raises:
            PipelineError: it is none, or was changed.
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`content` to a file, which is there complete or not at all. The results of pipelines made from the
        file are tuples and dictionaries, without classes of the model.

        Raises:
            PipelineError: a constant of the model is on ``meta``.
        """
        content = self.content()
        partial = f"{os.fspath(path)}.partial"
        with open(partial, "w") as file:
            json.dump(content, file, indent=1)
        os.replace(partial, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan file.

        Raises:
            PipelineError: it is none, or was changed.
        """
        name = os.fspath(path)
        try:
            with open(path) as file:
                content = json.load(file)
        except ValueError as error:
            raise PipelineError(
                f"{name} is no plan of a pipeline: {type(error).__name__}: {error}"
            ) from error
        return cls.of_content(content, name)


__all__ = ["PlanFile"]
