"""Runs programs uncompiled and compiled, and compares everything that can be observed."""

import collections
import contextlib
import dataclasses
import enum
import functools
import io
import math
import random
import re
import types
import warnings
import weakref

import numpy as np
import torch

import corsac

PROGRAMS = {}
#: Programs with known faults, and the reason.
FAULTS = {}
#: The input tensors of a program.
_INPUTS = []
_SETTING = {"grads": False}
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def program(name):
    """Register a function that makes a program, its calls, and (optionally) a function that returns its state."""

    def keep(make):
        assert name not in PROGRAMS, name
        PROGRAMS[name] = make
        return make

    return keep


def t(*shape):
    """A new input, which requires gradients if the program is run with them."""
    made = torch.randn(*shape).requires_grad_(_SETTING["grads"])
    _INPUTS.append(made)
    return made


def plain(*shape, make=torch.randn):
    """A new input that does not require gradients."""
    made = make(*shape)
    _INPUTS.append(made)
    return made


def set_global(variables, name, value):
    """A change between calls."""

    def change(run):
        variables[name] = value

    return change


# --- Observations of values ---------------------------------------------------------------------


class Seen:
    """Values as plain data: objects and storages are numbered in the order in which they are found."""

    def __init__(self):
        self.objects = {}
        self.storages = {}
        self.kept = []

    def __call__(self, value):
        kind = type(value).__qualname__
        if value is None or (
            isinstance(value, bool | int | float | complex) and not isinstance(value, enum.Enum)
        ):
            return (kind, value)
        if isinstance(value, str):
            return (kind, _ADDRESS.sub("0x", value))
        if isinstance(
            value,
            bytes
            | range
            | slice
            | enum.Enum
            | torch.dtype
            | torch.device
            | torch.layout
            | np.generic,
        ):
            return (kind, repr(value))
        if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            return (kind, getattr(value, "__qualname__", None) or value.__name__)
        if isinstance(value, tuple):
            return (kind, [self(each) for each in value])
        if id(value) in self.objects:
            return ("again", self.objects[id(value)])
        self.objects[id(value)] = len(self.objects)
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return (kind, self.tensor(value))
        if isinstance(value, set | frozenset):
            return (kind, sorted((self(each) for each in value), key=repr))
        if isinstance(value, dict):
            return (
                kind,
                [(self(key), self(own)) for key, own in value.items()],
                self.attributes(value),
            )
        if isinstance(value, list | collections.deque):
            return (kind, [self(each) for each in value], self.attributes(value))
        if isinstance(value, np.ndarray):
            return (kind, str(value.dtype), value.shape, value.strides, value.tolist())
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return (kind, value.__qualname__, self(cells), self(value.__defaults__))
        if isinstance(value, types.MethodType):
            return (kind, value.__name__, self(value.__self__))
        if isinstance(value, BaseException):
            return (kind, self(value.args), self(value.__cause__))
        if isinstance(value, functools.partial):
            return (kind, self(value.func), self(value.args), self(value.keywords))
        if isinstance(value, weakref.ref):
            return (kind, self(value()))
        return (kind, self.attributes(value))

    def attributes(self, value):
        own = dict(getattr(value, "__dict__", {}))
        for name in getattr(type(value), "__slots__", ()):
            if hasattr(value, name) and name not in ("__weakref__", "__dict__"):
                own[name] = getattr(value, name)
        own.pop("_compiled_call_impl", None)
        return [(name, self(each)) for name, each in own.items() if not name.startswith("_dynamo_")]

    def tensor(self, value):
        about = {
            "dtype": str(value.dtype),
            "shape": tuple(value.shape),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "attributes": self.attributes(value),
        }
        if value.layout is not torch.strided:
            return about | {"layout": str(value.layout), "value": value.detach().to_dense().clone()}
        plain_value = value.detach()
        about["strides"] = value.stride()
        storage = value.untyped_storage()
        self.kept.append(storage)
        about["memory"] = self.storages.setdefault(storage._cdata, len(self.storages))
        about["inference"] = value.is_inference()
        about["value"] = plain_value.clone()
        if value.is_leaf and value.requires_grad:
            about["grad"] = (
                torch.zeros_like(plain_value) if value.grad is None else value.grad.detach().clone()
            )
        return about


def difference(expected, got, path="", *, rounded=False):
    """The place where two observations differ, as text, or None; ``rounded`` if numbers were rounded to 16 bits."""
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        if expected.dtype != got.dtype or expected.shape != got.shape:
            return f"{path}: {expected.dtype} {expected.shape} / {got.dtype} {got.shape}"
        expected_numbers, numbers = expected.to(torch.complex128), got.to(torch.complex128)
        relative, absolute = 1e-4, 1e-5
        if rounded or expected.dtype in (torch.bfloat16, torch.float16):
            # Sums may cancel: their errors are those of the largest numbers.
            sizes = expected_numbers.abs().nan_to_num(0, 0, 0)
            relative = 1e-2
            absolute = max(absolute, 1e-2 * (sizes.max().item() if sizes.numel() else 0.0))
        if not torch.allclose(expected_numbers, numbers, relative, absolute, True):
            return f"{path}: {expected} / {got}"
        return None
    if type(expected) is not type(got):
        return f"{path}: {expected!r} / {got!r}"
    if isinstance(expected, float):
        close = math.isclose(expected, got, rel_tol=1e-4, abs_tol=1e-5) or (
            expected != expected and got != got
        )
        return None if close else f"{path}: {expected!r} / {got!r}"
    if isinstance(expected, dict):
        if list(expected) != list(got):
            return f"{path}: {list(expected)} / {list(got)}"
        pairs = [(f"{path}.{key}", expected[key], got[key]) for key in expected]
    elif isinstance(expected, list | tuple):
        if len(expected) != len(got):
            return f"{path}: {expected!r} / {got!r}"
        pairs = [
            (f"{path}[{at}]", one, other)
            for at, (one, other) in enumerate(zip(expected, got, strict=False))
        ]
    else:
        return None if expected == got else f"{path}: {expected!r} / {got!r}"
    for where, one, other in pairs:
        found = difference(one, other, where, rounded=rounded)
        if found:
            return found
    return None


# --- Running programs ---------------------------------------------------------------------------

_NATIVE = {"inference": "native", "training": "native"}
COMPILERS = {
    "native": lambda f: corsac.compile(f, options=_NATIVE),
    "backend": lambda f: corsac.compile(f, backend="eager"),
    "grads": lambda f: corsac.compile(f, options=_NATIVE),
    # Not among the tests: the choice of PyTorch depends on time, and so do Dynamo's graphs.
    "measured": lambda f: corsac.compile(f),
    "grads measured": lambda f: corsac.compile(f),
    "grads backend": lambda f: corsac.compile(f, backend="eager"),
    "dynamo": lambda f: torch.compile(f, backend="eager"),
    "grads dynamo": lambda f: torch.compile(f, backend="eager"),
}


def leaves(value, found):
    """The tensors among results that have gradients."""
    if isinstance(value, torch.Tensor):
        if (
            value.requires_grad
            and value.grad_fn is not None
            and not any(value is each for each in found)
        ):
            found.append(value)
    elif isinstance(value, dict):
        for each in value.values():
            leaves(each, found)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            leaves(each, found)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        leaves(vars(value), found)
    return found


def one_call(call, run):
    """The result of a call, or its exception."""
    try:
        result = call(run) if callable(call) else run(*call)
        if _SETTING["grads"]:
            found = leaves(result, [])
            if found:
                sum(
                    each.sum() if not each.is_complex() else each.abs().sum() for each in found
                ).backward()
        return result
    except Exception as error:
        chain, at = [], error
        while at is not None:
            chain.append((type(at).__qualname__, str(at)))
            at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
        return ["raised", *chain]


def modes():
    """The modes of PyTorch."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
        len(torch.overrides._get_current_function_mode_stack()),
    )


def everything_seen(make, compiled, grads):
    """The observations of each call of a program."""
    torch._dynamo.reset()
    _SETTING["grads"] = grads
    _INPUTS.clear()
    torch.manual_seed(0)
    made = make()
    f, calls, state = (*made, lambda: None)[:3]
    run = compiled(f)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    everything = []
    with torch.set_grad_enabled(grads):
        for call in [*calls, *calls]:
            printed = io.StringIO()
            with (
                warnings.catch_warnings(record=True) as warned,
                contextlib.redirect_stdout(printed),
            ):
                warnings.simplefilter("always")
                result = one_call(call, run)
            see = Seen()
            everything.append(
                {
                    "result": see(result),
                    "inputs": see(_INPUTS),
                    "state": see(state()),
                    "printed": _ADDRESS.sub("0x", printed.getvalue()),
                    "warned": [
                        (w.category.__name__, str(w.message))
                        for w in warned
                        if w.filename == __file__ and not issubclass(w.category, corsac.HostWarning)
                    ],
                    "random": (
                        hash(bytes(torch.get_rng_state())),
                        hash(random.getstate()),
                        np.random.get_state()[2],
                    ),
                    "modes": modes(),
                }
            )
            for each in _INPUTS:
                if each.is_leaf:
                    each.grad = None
            del result
    return everything


@functools.lru_cache(maxsize=4)
def uncompiled(name, grads):
    """The observations of a program run by PyTorch."""
    return everything_seen(PROGRAMS[name], lambda f: f, grads)


def check(name, setting):
    """Compare a compiled program with the same program run by PyTorch."""
    make = PROGRAMS[name]
    grads = "grads" in setting
    try:
        expected = uncompiled(name, grads)
        got = everything_seen(make, COMPILERS[setting], grads)
    finally:
        _SETTING["grads"] = False
        _INPUTS.clear()
    for at, (one, other) in enumerate(zip(expected, got, strict=False)):
        found = difference(one, other, f"call {at + 1}: ", rounded="autocast" in name)
        assert not found, found
