"""Tables of functions by types: PyTorch's own."""

from torch.fx.experimental.unification.multipledispatch.dispatcher import (
    Dispatcher,
    MDNotImplementedError,
    MethodDispatcher,
    ambiguity_warn,
    halt_ordering,
    restart_ordering,
    source,
    str_signature,
    variadic_signature_matches,
    variadic_signature_matches_iter,
    warning_text,
)

__all__ = [
    "Dispatcher",
    "MDNotImplementedError",
    "MethodDispatcher",
    "ambiguity_warn",
    "halt_ordering",
    "restart_ordering",
    "source",
    "str_signature",
    "variadic_signature_matches",
    "variadic_signature_matches_iter",
    "warning_text",
]
