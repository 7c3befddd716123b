"""Messages for programs that cannot be recorded: where, about which value, and what to try.

The first line of each message is that of torch.fx, for users who search for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corsac import _core

if TYPE_CHECKING:
    from corsac._core import Proxy


def where() -> str:
    """The user's line being executed, as a line of a message."""
    location = _core.user_location()
    if location is None:
        return ""
    file, line, function = location
    return f'\n  at: File "{file}", line {line}, in {function}'


def _value(proxy: Proxy) -> str:
    try:
        return f"\n  value: {proxy.node.format_node()}"
    except Exception:  # a message must not fail over its details
        return ""


def _message(first: str, proxy: Proxy | None, *advice: str) -> str:
    value = _value(proxy) if proxy is not None else ""
    return first + where() + value + "".join(f"\n  try: {line}" for line in advice)


def control_flow(proxy: Proxy) -> str:
    """Message for a branch or a loop that depends on a traced value."""
    return _message(
        "symbolically traced variables cannot be used as inputs to control flow",
        proxy,
        "fix the value while tracing: symbolic_trace(root, concrete_args={...})",
        "choose between values with torch.where, or move the branch into a function and "
        "keep that as one call with fx.wrap",
    )


def iteration(proxy: Proxy) -> str:
    """Message for a loop over a traced value."""
    return _message(
        "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop "
        "or as a *args or **kwargs function argument.",
        proxy,
        "loop over a range of known length and index the value: for i in range(n): x[i]",
        "unpack it into a known number of names: a, b = x",
        "move the loop into a function and keep that as one call with fx.wrap",
    )


def length(proxy: Proxy) -> str:
    """Message for ``len`` of a traced value."""
    return _message(
        "'len' is not supported in symbolic tracing by default. If you want this call to be "
        "recorded, please call torch.fx.wrap('len') at module scope",
        proxy,
        "use x.shape[0] or x.size(0), which are recorded",
    )


#: Messages of Python and NumPy for values that are not numbers.
_NO_NUMBER = {
    "index": "'Proxy' object cannot be interpreted as an integer",
    "int": "int() argument must be a string, a bytes-like object or a real number, not 'Proxy'",
    "float": "float() argument must be a string or a real number, not 'Proxy'",
    "complex": "complex() first argument must be a string or a number, not 'Proxy'",
    "round": "type Proxy doesn't define __round__ method",
    "numpy": "invalid __array_struct__",
    "format": "unsupported format string passed to Proxy.__format__",
}


def conversion(proxy: Proxy, kind: str) -> str:
    """Message for a traced value that would become a number, an index, an array or a text during tracing; for
    ``divmod`` with the types of both operands."""
    instead = {
        "index": "compute with the value instead: torch.arange(n) for range(n), x[i] of a tensor",
        "round": "use x.round() or torch.round(x), which are recorded",
        "numpy": "use the function of torch instead of NumPy's, torch.sin(x) for np.sin(x)",
        "format": 'leave the format out: f"{x}" is the name of the value',
        "divmod": "compute both: x // n, x % n, which are recorded",
    }
    name, _, operands = kind.partition("():")
    return _message(
        _NO_NUMBER.get(kind) or f"unsupported operand type(s) for {name}():{operands}",
        proxy,
        instead.get(name, "leave it a tensor: x.to(dtype), x.item(), which are recorded"),
        "fix the value while tracing: symbolic_trace(root, concrete_args={...})",
        "move what needs the number into a function and keep that as one call with fx.wrap",
    )


def hidden_parameters(function: Any) -> str:
    """Message for a decorator that hides parameters which cannot be passed through it."""
    code = function.__code__
    place = f'\n  at: File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}'
    return (
        "code: co_varnames is too small"
        + place
        + f"\n  value: *args and **kwargs of {code.co_name} stand for any number of values, and a "
        "decorator around it would have to unpack them"
        "\n  try: trace the function that is decorated, without its decorator"
        "\n  try: name the parameters, or fix them while tracing: concrete_args={...}"
    )


def unknown_argument(value: Any) -> str:
    """Message for a value that cannot be an argument of a node."""
    return _message(
        f"argument of type: {type(value)}",
        None,
        "override Tracer.create_arg, or give the class a method __fx_create_arg__(self, tracer)",
    )


def foreign_module(module: Any) -> str:
    """Message for a call of a module that is not in the module being traced."""
    return _message(
        "module is not installed as a submodule",
        None,
        f"the module called is a {type(module).__name__}: assign it to an attribute of the traced "
        "module (or of one of its submodules) before tracing",
    )


def foreign_parameter() -> str:
    """Message for a parameter that is not in the module being traced."""
    return _message(
        "parameter is not a member of this module",
        None,
        "assign it to an attribute of the traced module before tracing",
    )
