"""Sizes of inputs that are names: ``--input batch,3,224,224 --dynamic batch=1..64``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac._files.dynamic_shapes import Size
from corsac.cli.failure import Failure
from corsac.cli.inputs import EXPRESSION_SIGNS
from corsac.fx import GraphModule

_RANGE = re.compile(r"([^\W\d]\w*)(?:=(\d+)\.\.(\d+)?)?")


@dataclass(frozen=True)
class NamedSize:
    """A size that may differ between calls; the range is None where the program finds it."""

    name: str
    least: int | None
    most: int | None

    @classmethod
    def parse(cls, text: str) -> NamedSize:
        """Parse ``batch=1..64``, ``batch=1..`` or ``batch``."""
        found = _RANGE.fullmatch(text)
        if found is None:
            raise Failure(f"--dynamic {text}: expected a name with a range, such as batch=1..64")
        least, most = (None if own is None else int(own) for own in found.group(2, 3))
        if least == 0:
            raise Failure(f"--dynamic {text}: the least size is 1")
        if least is not None and most is not None and least >= most:
            reason = (
                f"{least} is more than {most}" if least > most else f"--input takes {most} itself"
            )
            raise Failure(f"--dynamic {text}: {reason}")
        return cls(found[1], least, most)

    def example(self, number: int) -> int:
        """A size in the range for the example input: another one for each name, and not 0 or 1 where that is possible,
        since these may be special."""
        value = max(self.least or 0, (2, 3, 5, 7, 11, 13)[number % 6])
        return value if self.most is None else min(value, self.most)

    def dim(self) -> Any:
        """As ``dynamic_shapes`` of :func:`corsac.save` has it."""
        return torch.export.Dim(self.name, min=self.least, max=self.most)


def sized_inputs(
    texts: Sequence[str], named: Sequence[str]
) -> tuple[list[str], dict[int, dict[int, Any]]]:
    """The texts of ``--input`` with numbers in the place of names, and ``dynamic_shapes`` of :func:`corsac.save`."""
    sizes: dict[str, NamedSize] = {}
    for text in named:
        size = NamedSize.parse(text)
        if sizes.setdefault(size.name, size) is not size:
            raise Failure(f"--dynamic {text}: {size.name} has a range already")
    examples = {name: own.example(number) for number, (name, own) in enumerate(sizes.items())}
    numbered, shapes, used = [], {}, set()
    for number, text in enumerate(texts):
        if any(sign in text for sign in EXPRESSION_SIGNS):
            numbered.append(text)
            continue
        shape, colon, dtype = text.partition(":")
        found = {
            dim: size
            for dim, own in enumerate(shape.split(","))
            if (size := Size.parse(own)) is not None
        }
        used.update(size.symbol for size in found.values())
        dims = shape.split(",")
        for dim, size in found.items():
            dims[dim] = str(_at(size, examples, text))
        numbered.append(",".join(dims) + colon + dtype)
        shapes[number] = {dim: size.as_dim(sizes[size.symbol].dim()) for dim, size in found.items()}
    for name in sizes:
        if name not in used:
            raise Failure(
                f"--dynamic {name}: no --input has this size, as in --input {name},3,224,224"
            )
    return numbered, shapes


def declared_sizes(module: GraphModule, named: Sequence[str]) -> tuple[list[str], list[str]]:
    """The inputs of a module that was read from a file as texts of ``--input``, and ``--dynamic`` for the sizes that
    the file leaves open; ``named`` has those of the command line."""
    texts, ranges = [], list(named)
    known = {NamedSize.parse(text).name for text in named}
    for node in module.graph.find_nodes(op="placeholder"):
        declared = node.meta.get("declared_input")
        if declared is None:
            raise Failure(f"the input {node.target} is no tensor: give --input for the others")
        sizes = []
        for own in declared["sizes"]:
            size = Size.parse(own) if isinstance(own, str) else None
            least, most = (1, None) if size is None else _range(size, declared)
            sizes.append(str(own) if size is None or least != most else str(size.at(least)))
            if size is not None and least != most and size.symbol not in known:
                known.add(size.symbol)
                has_range = size.symbol in declared.get("ranges", {})
                ranges.append(f"{size.symbol}={least}..{most or ''}" if has_range else size.symbol)
        texts.append(f"{','.join(sizes)}:{str(declared['dtype']).removeprefix('torch.')}")
    return texts, ranges


def _range(size: Size, declared: Mapping[str, Any]) -> tuple[int, int | None]:
    least, most = declared.get("ranges", {}).get(size.symbol, (1, None))
    return max(least, 1), most


def _at(size: Size, examples: Mapping[str, int], text: str) -> int:
    if size.symbol not in examples:
        raise Failure(
            f"--input {text}: {size.symbol} is no number; --dynamic {size.symbol}=1..64 makes it a size that may "
            "differ between calls"
        )
    return size.at(examples[size.symbol])
