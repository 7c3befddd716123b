"""Options of compilation, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

#: Precision of the products in convolutions and linear layers.
Precision: TypeAlias = Literal["f32", "bf16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
#: The modes of :func:`torch.compile`.
Mode: TypeAlias = Literal[
    "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"
]
MODES: tuple[Mode, ...] = get_args(Mode)
#: Execution of graphs that autograd records: natively where measured to be faster, natively wherever the engine can,
#: or by PyTorch.
TRAINING = ("measured", "native", "host")
#: Execution of graphs for inference: natively unless PyTorch was measured to be faster, or always natively.
INFERENCE = ("measured", "native")
#: Tensors saved for backward: as corsac's partitioner chooses so that no step takes longer, the fewest bytes that are
#: possible if cheap operators are recomputed, or all intermediate values.
PARTITIONS = ("min_cut", "fewest_bytes", "default")
#: Options of ``torch.compile(options=…)``, with their values.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "precision": PRECISIONS,
    "inference": INFERENCE,
    "training": TRAINING,
    "partition": PARTITIONS,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a compiled model: options, and arguments of :func:`corsac.compile`."""

    precision: Precision = "f32"
    inference: str = INFERENCE[0]
    training: str = TRAINING[0]
    partition: str = PARTITIONS[0]
    dynamic: bool | None = None
    fullgraph: bool = False


def checked_options(options: Mapping[str, Any] | None) -> None:
    """Raise ``ValueError`` for unknown options or values."""
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            raise ValueError(f"corsac has no option {name!r}; there are: {known}")
        if value not in OPTIONS[name]:
            known = ", ".join(map(repr, OPTIONS[name]))
            raise ValueError(f"option {name!r} is {known}, not {value!r}")
