"""Types of any number of arguments: PyTorch's own."""

from torch.fx.experimental.unification.multipledispatch.variadic import (
    Variadic,
    VariadicSignatureMeta,
    VariadicSignatureType,
    isvariadic,
)

__all__ = [
    "Variadic",
    "VariadicSignatureMeta",
    "VariadicSignatureType",
    "isvariadic",
]
