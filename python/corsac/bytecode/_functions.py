"""Changes the parameters of functions."""

from __future__ import annotations

from types import FunctionType

from corsac.bytecode._flags import CodeFlag


def patch_function(fn: FunctionType, n_args: int) -> FunctionType:
    """``fn`` with its first ``n_args`` local variables as plain parameters, as tracers need it.

    The code of a function treats ``*args`` and ``**kwargs`` like other variables, so that each can be passed
    a value of its own.

    Raises:
        ValueError: ``fn`` has fewer local variables, or ``n_args`` is negative.
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
