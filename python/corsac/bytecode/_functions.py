"""Functions with other parameters."""

from __future__ import annotations

from types import FunctionType

from corsac.bytecode._flags import CodeFlag


def patch_function(fn: FunctionType, n_args: int) -> FunctionType:
    """``fn`` with its first ``n_args`` local variables as plain parameters, as tracers need it.

    ``*args`` and ``**kwargs`` are variables like others to the code of a function, so that each can be
    given a value of its own.

    Raises:
        ValueError: if ``fn`` has fewer local variables, or ``n_args`` is negative.
    """
    code = fn.__code__
    if not 0 <= n_args <= code.co_nlocals:
        raise ValueError(
            f"{fn.__name__} has {code.co_nlocals} local variables, got n_args={n_args}"
        )
    code = code.replace(
        co_argcount=n_args,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(CodeFlag.VARARGS | CodeFlag.VARKEYWORDS),
    )
    return FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
