"""Backends of :func:`corsac.compile`: functions that compile graphs.

::

    from corsac.backends import register_backend

    @register_backend
    def mine(module, example_inputs):
        module.graph.print_tabular()
        return module.forward

    fast = corsac.compile(model, backend="mine")

See docs/backends.md.
"""

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac._training._partition import min_cut_partition
    from corsac.backends._aot import aot_autograd, make_boxed_func
    from corsac.backends._contract import (
        CONTRACT_VERSION,
        Backend,
        BackendError,
        Declined,
        hand_over,
    )
    from corsac.backends._explain import explain
    from corsac.backends._explanation import Break, ExplainedGraph, Explanation, Guard, Operator
    from corsac.backends._fallback import fallback
    from corsac.backends._hosted import HostedModule
    from corsac.backends._registry import (
        UnknownBackend,
        get_default_backend,
        list_backends,
        lookup_backend,
        register_backend,
        set_default_backend,
        unregister_backend,
    )
    from corsac.backends.conformance import Report, check

__all__ = [
    "CONTRACT_VERSION",
    "Backend",
    "BackendError",
    "Break",
    "Declined",
    "ExplainedGraph",
    "Explanation",
    "Guard",
    "HostedModule",
    "Operator",
    "Report",
    "UnknownBackend",
    "aot_autograd",
    "check",
    "explain",
    "fallback",
    "get_default_backend",
    "hand_over",
    "list_backends",
    "lookup_backend",
    "make_boxed_func",
    "min_cut_partition",
    "register_backend",
    "set_default_backend",
    "unregister_backend",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_aot": (
            "aot_autograd",
            "make_boxed_func",
        ),
        "_contract": (
            "CONTRACT_VERSION",
            "Backend",
            "BackendError",
            "Declined",
            "hand_over",
        ),
        "_explain": ("explain",),
        "_explanation": (
            "Break",
            "ExplainedGraph",
            "Explanation",
            "Guard",
            "Operator",
        ),
        "_fallback": ("fallback",),
        "_hosted": ("HostedModule",),
        "corsac._training._partition": ("min_cut_partition",),
        "_registry": (
            "UnknownBackend",
            "get_default_backend",
            "list_backends",
            "lookup_backend",
            "register_backend",
            "set_default_backend",
            "unregister_backend",
        ),
        "conformance": (
            "Report",
            "check",
        ),
    },
)
