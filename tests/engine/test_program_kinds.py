"""Programs of all kinds, each called several times with changes in between.

Each program is made anew and called by PyTorch, and made anew and called compiled. The comparison covers
results, with their types, strides and shared memory, gradients, exceptions, output and warnings, random
numbers used, and changes that the calls leave in objects, variables and inputs.
"""

import importlib

import pytest

from corsac._compile import verify
from kit.kinds.driver import PROGRAMS, check

GROUPS = [
    "functions",
    "builtins_of_python",
    "classes",
    "objects",
    "containers",
    "contexts",
    "modules",
    "modes",
    "tensors",
    "library",
    "values",
    "numbers",
    "transforms",
    "trained",
]
for group in GROUPS:
    importlib.import_module(f"kit.kinds.{group}")

#: Known faults: the reason, the programs, and the settings of the run.
FAULTS = {
    "a second operator of higher order finds the recorder, which looks at nothing any more": {
        "flex_attention with a score function and a mask": ("native", "backend", "grads"),
    },
    "results of recurrent layers whose batches come first have other strides": {
        "a GRU whose batches come first": ("grads",),
    },
    "dropout of everything uses no random numbers": {
        "dropout of nothing and of everything": ("grads",),
    },
    "random numbers of the way forward are not put back for the way back": {
        "checkpoints with dropout": ("grads backend",),
        "a checkpoint with dropout in a module": ("grads backend",),
    },
    "second derivatives of results are refused (torch.compile with aot_autograd does so, too)": {
        "a double backward of the result": ("grads",),
    },
    "recording calls the cached function again, which is counted": {
        "lru_cache and cache_clear between calls": ("native", "backend", "grads"),
        "lru_cache of a tensor constant": ("native", "backend", "grads"),
    },
    "an exception of PyTorch has one of corsac as its context": {
        "embeddings, bags and one-hot numbers": ("grads backend",),
    },
    "empty results have other strides": {
        "sizes that decide, are printed and are computed with": ("grads",),
    },
    "Dynamo, to which the program is handed, takes it for something else: the largest length of a deque": {
        "a deque, a default dictionary and a counter as state": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: one list as two arguments": {
        "two arguments that are the same list, and then are not": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: attributes of functions that others wrap": {
        "a decorator that wraps and counts": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: what __del__ changes": {
        "a finalizer that runs while the program does": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: a keyword that is given twice": {
        "arguments that are unpacked from nested calls": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: modes that are entered around the call": {
        "a TorchFunctionMode in the program and around it": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: hooks of all modules": {
        "hooks of all modules, put on and taken off between calls": ("grads backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: gradients that are None": {
        "gradients of a function of which only the second result is used": (
            "grads",
            "grads backend",
        ),
    },
    "Dynamo, to which the program is handed, takes it for something else: numbers of NumPy, which become arrays": {
        "NumPy arrays as arguments and results": ("backend",),
        "NumPy numbers, dtypes and in-place changes": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: texts of exceptions": {
        "zip that is strict": ("backend",),
        "exceptions of Python that are asked for their text": ("backend",),
    },
    "Dynamo, to which the program is handed, takes it for something else: the type of an exception": {
        "subclasses of list, dict, tuple, str and int": ("grads backend",),
    },
    "Dynamo, to which the program is handed, fails, and its error reaches the caller: local variables for eval": {
        "eval and exec of text": ("backend",),
    },
    "Dynamo, to which the program is handed, fails, and its error reaches the caller: an object with __index__": {
        "user numbers: __index__, __int__, __float__, __hash__ and __format__": ("backend",),
    },
    "Dynamo, to which the program is handed, fails, and its error reaches the caller: a flag that depends on a size": {
        "set_grad_enabled with a computed flag": ("backend",),
    },
    "Dynamo, to which the program is handed, fails, and its error reaches the caller: asyncio": {
        "async functions that are run in the program": ("backend",),
    },
    "Dynamo, to which the program is handed, fails, and its error reaches the caller: buffers of bytes": {
        "dlpack, buffers of bytes and arrays of tensors": ("backend",),
    },
}
#: Programs whose gradients are also checked with a backend; for others that takes long and adds little.
TRAINED_BY_BACKENDS = [
    "a GRU with dropout between its layers",
    "a checkpoint with dropout in a module",
    "a closure that counts its calls",
    "a custom autograd function",
    "a double backward of the result",
    "checkpoints",
    "checkpoints with dropout",
    "dropout that decides",
    "embeddings, bags and one-hot numbers",
    "experts that are mixed",
    "gradients of a function of which only the second result is used",
    "hooks of all modules, put on and taken off between calls",
    "jvp of a module",
    "subclasses of list, dict, tuple, str and int",
    "values that decide, with state on every way",
]


#: Of the settings other than "native", one program in so many is always run, or all of those above; the others are slow.
SHARE = 4


def cases():
    reasons = {
        (name, setting): reason
        for reason, programs in FAULTS.items()
        for name, settings in programs.items()
        for setting in settings
    }
    for number, name in enumerate(PROGRAMS):
        for setting in ("native", "backend", "grads", "grads backend"):
            is_trained = name in TRAINED_BY_BACKENDS
            if setting == "grads backend" and not is_trained:
                continue
            reason = reasons.get((name, setting))
            # Verified calls return the results of PyTorch.
            marks = [pytest.mark.xfail(strict=not verify.ON, reason=reason)] if reason else []
            if setting != "native" and not is_trained and number % SHARE:
                marks.append(pytest.mark.slow)
            yield pytest.param(name, setting, id=f"{name} ({setting})", marks=marks)


@pytest.mark.recording
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "setting"), list(cases()))
def test_a_compiled_program_does_what_it_does_uncompiled(name, setting):
    """Results, gradients, exceptions, output and state are those of PyTorch."""
    check(name, setting)
