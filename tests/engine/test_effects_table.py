"""Each C function in the table of effects, in a program that uses it on state that changes between calls:
results are PyTorch's."""

import _abc
import _bisect
import _collections
import _contextvars
import _functools
import _heapq
import _io
import _operator
import _struct
import _thread
import _warnings
import abc
import builtins
import cmath
import collections
import importlib
import io
import itertools
import math
import re
import sys
import types
import warnings
from types import SimpleNamespace

import pytest
import torch

import corsac
from corsac import _core

pytestmark = pytest.mark.recording


class Plain:
    k = 1


class Abstract(abc.ABC):  # noqa: B024
    pass


def countdown(count):
    while count:
        yield count
        count -= 1


def state():
    """The variables of samples, with short names."""
    made = SimpleNamespace(
        n=3,
        z=-2,
        y=0.5,
        c=1 + 2j,
        w=True,
        t="ab c",
        b=b"ab c",
        u=(3, 1, 2),
        l=[3, 1, 2],
        d={"a": 1, "b": 2},
        e={1, 2},
        fz=frozenset({1, 2}),
        od=collections.OrderedDict(a=1, b=2),
        q=collections.deque([3, 1, 2]),
        r=range(4),
        sl=slice(1, 3),
        o=Plain(),
        f=len,
        cls=Plain,
        size=torch.Size([2, 3]),
        var=_contextvars.ContextVar("var", default=1),
        lock=_thread.allocate_lock(),
        rlock=_thread.RLock(),
        er=ValueError("of the sample"),
        name="k",
    )
    made.m = types.MappingProxyType(made.d)
    return made


def change(s, step):
    """A change that a program has to notice."""
    s.n, s.z, s.y, s.c = 5 + step, -7, 0.25, 3 - 1j
    s.w, s.t, s.b = False, f"xyz a{step}", b"xyz"
    s.u = (9, 3, 2, 1)
    s.l[:] = [9, 3, 1, 2, step]
    s.d.clear()
    s.d.update(b=7, a=step, z=3)
    s.e.update([3, 10 + step])
    s.fz = frozenset({3, 4})
    s.od.clear()
    s.od.update(b=3, a=4, k=step)
    s.q.extend([5, 1, 3, 2])
    s.r, s.sl = range(7), slice(0, 2)
    s.o.k = 10 + step
    s.f = 3 if step else len
    s.cls = Abstract
    s.size = torch.Size([4, 3, 1])
    s.var.set(20 + step)
    s.er = ValueError("of another one")
    Plain.k = 30 + step


#: Values for the first argument, by the owner of a method.
RECEIVERS = {
    "str": "s.t",
    "bytes": "s.b",
    "int": "s.n",
    "float": "s.y",
    "bool": "s.w",
    "complex": "s.c",
    "range": "s.r",
    "slice": "s.sl",
    "frozenset": "s.fz",
    "tuple": "s.u",
    "list": "s.l",
    "dict": "s.d",
    "set": "s.e",
    "collections.OrderedDict": "s.od",
    "collections.deque": "s.q",
    "torch.Size": "s.size",
    "types.MappingProxyType": "s.m",
    "_thread.LockType": "s.lock",
    "_thread.RLock": "s.rlock",
    "_contextvars.ContextVar": "s.var",
    "object": "s.o",
    "type": "s.cls",
    "BaseException": "s.er",
    "Exception": "s.er",
    "types.GeneratorType": "made",
}
#: Arguments to try, until a call succeeds.
ARGUMENTS = [
    "",
    "s.n",
    "1",
    "s.l",
    "s.y",
    "'a'",
    "b'a'",
    "s.t",
    "s.u",
    "s.d",
    "s.e",
    "s.n, 2",
    "s.n, 1",
    "'a', 'b'",
    "b'a', b'b'",
    "0, s.n",
    "'a', s.n",
    "'k'",
    "'k', s.n",
    "['a', s.t]",
    "[b'a', s.b]",
    "s.fz",
    "s.c",
    "s.l, 1",
    "s.l, 1, s.n",
    "s.l, 0",
    "s.u, s.u",
    "s.d, 'b'",
    "s.e, s.e",
    "s.l, s.l",
    "s.o",
    "s.f",
    "s.cls",
    "s.r",
    "{'a': s.n}",
    "s.w, s.w",
    "s.y, 2, 1",
    "'__doc__'",
    "'5'",
    "'ab12'",
    "'float'",
    "s.b, 'big'",
    "x, x",
    "None",
]
#: Statements for functions that need more.
SAMPLES = {
    "builtins.globals": "r = globals()['s'].n",
    "builtins.locals": "y = s.n\nr = locals()['y']",
    "builtins.iter": "r = [*iter(s.l)]",
    "builtins.id": "r = id(s.o) == id(s.o)",
    "builtins.hash": "r = hash(s.n)",
    "builtins.repr": "r = repr(s.d)",
    "builtins.chr": "r = chr(s.n + 60)",
    "builtins.ord": "r = ord(s.t[0])",
    "builtins.getattr": "r = getattr(s.o, s.name)",
    "builtins.hasattr": "r = hasattr(s, s.t)",
    "builtins.setattr": "r = setattr(s.o, s.name, s.n)",
    "builtins.delattr": "s.gone = 1\nr = delattr(s, 'gone')",
    "builtins.isinstance": "r = isinstance(s.o, s.cls)",
    "builtins.issubclass": "r = issubclass(s.cls, Plain)",
    "builtins.next": "made = iter(s.l)\nr = next(made)",
    "builtins.print": "r = print(s.n)",
    "sys.exc_info": "try: {}[s.n]\nexcept KeyError: r = sys.exc_info()[1].args",
    "object.__new__": "r = object.__new__(Plain).k",
    "object.__init__": "r = object.__init__(s.o)",
    "object.__init_subclass__": "r = object.__init_subclass__()",
    "object.__reduce_ex__": "r = object.__reduce_ex__(s.o, 2)[2]",
    "object.__getstate__": "r = object.__getstate__(s.o)",
    "object.__setattr__": "r = object.__setattr__(s.o, 'k', s.n)",
    "object.__delattr__": "s.gone = 1\nr = object.__delattr__(s, 'gone')",
    "type.mro": "r = [own.__name__ for own in type.mro(s.cls)]",
    "type.__instancecheck__": "r = type.__instancecheck__(s.cls, s.o)",
    "type.__subclasscheck__": "r = type.__subclasscheck__(s.cls, Plain)",
    "type.__setattr__": "r = type.__setattr__(Plain, 'other', s.n)",
    "type.__delattr__": "Plain.gone = 1\nr = type.__delattr__(Plain, 'gone')",
    "_thread.LockType.acquire": "_thread.LockType.acquire(s.lock)\ns.lock.release()\nr = s.n",
    "_thread.LockType.release": "s.lock.acquire()\nr = _thread.LockType.release(s.lock)",
    "_thread.LockType.__enter__": "_thread.LockType.__enter__(s.lock)\ns.lock.release()\nr = s.n",
    "_thread.LockType.__exit__": "s.lock.acquire()\n_thread.LockType.__exit__(s.lock)\nr = s.n",
    "_thread.RLock.acquire": "_thread.RLock.acquire(s.rlock)\ns.rlock.release()\nr = s.n",
    "_thread.RLock.release": "s.rlock.acquire()\nr = _thread.RLock.release(s.rlock)",
    "_thread.RLock.__enter__": "_thread.RLock.__enter__(s.rlock)\ns.rlock.release()\nr = s.n",
    "_thread.RLock.__exit__": "s.rlock.acquire()\n_thread.RLock.__exit__(s.rlock)\nr = s.n",
    "_thread.get_ident": "r = _thread.get_ident() > 0",
    "torch._C._log_api_usage_once": "r = torch._C._log_api_usage_once('tests')",
    "torch.set_autocast_enabled": "r = torch.set_autocast_enabled('cpu', False)",
    "torch.set_autocast_dtype": "r = torch.set_autocast_dtype('cpu', torch.bfloat16)",
    "torch.set_autocast_cache_enabled": "r = torch.set_autocast_cache_enabled(True)",
    "torch.autocast_increment_nesting": (
        "torch.autocast_increment_nesting()\nr = torch.autocast_decrement_nesting()"
    ),
    "torch.autocast_decrement_nesting": (
        "torch.autocast_increment_nesting()\nr = torch.autocast_decrement_nesting() + s.n"
    ),
    # True while any call is recorded: this is how operators written in Python are noticed.
    "torch._C._has_torch_function": "torch._C._has_torch_function((x, s.n))\nr = s.n",
    "torch._C._has_torch_function_unary": "torch._C._has_torch_function_unary(x)\nr = s.n",
    "torch._C._has_torch_function_variadic": "torch._C._has_torch_function_variadic(x, x)\nr = s.n",
    "torch._C._FunctionBase.apply": "r = Twice.apply(x)",
    "BaseException.with_traceback": "r = BaseException.with_traceback(ValueError(s.t), None).args",
    "BaseException.add_note": "made = ValueError()\nmade.add_note(s.t)\nr = made.__notes__",
    "BaseException.__init__": "made = ValueError()\nBaseException.__init__(made, s.n)\nr = made.args",
    "Exception.__init__": "made = ValueError()\nException.__init__(made, s.n)\nr = made.args",
    "types.GeneratorType.send": "r = types.GeneratorType.send(countdown(s.n), None)",
    "types.GeneratorType.__next__": "r = types.GeneratorType.__next__(countdown(s.n))",
    "types.GeneratorType.close": "r = types.GeneratorType.close(countdown(s.n))",
    "types.GeneratorType.throw": (
        "try: types.GeneratorType.throw(countdown(s.n), ValueError(s.t))\n"
        "except ValueError as error: r = error.args"
    ),
    "_contextvars.ContextVar.set": (
        "token = _contextvars.ContextVar.set(s.var, s.n)\nr = s.var.get()\ns.var.reset(token)"
    ),
    "_contextvars.ContextVar.reset": (
        "token = s.var.set(s.n)\n_contextvars.ContextVar.reset(s.var, token)\nr = s.var.get()"
    ),
    "_abc.get_cache_token": "r = _abc.get_cache_token() >= 0",
    "_abc._abc_instancecheck": "r = _abc._abc_instancecheck(Abstract, s.o)",
    "_abc._abc_subclasscheck": "r = _abc._abc_subclasscheck(Abstract, s.cls)",
    "_functools.reduce": "r = _functools.reduce(lambda a, b: a * s.n + b, s.l)",
    "_io.TextIOWrapper.write": "r = _io.TextIOWrapper.write(OUT, s.t)",
    "_io.TextIOWrapper.flush": "r = _io.TextIOWrapper.flush(OUT)",
    "_io.StringIO.write": "r = _io.StringIO.write(TEXT, s.t)",
    "re.Pattern.match": "r = re.Pattern.match(PATTERN, s.t).group()",
    "re.Pattern.search": "r = re.Pattern.search(PATTERN, s.t).group()",
    "re.Pattern.fullmatch": "r = re.Pattern.fullmatch(PATTERN, s.t).group()",
    "re.Pattern.findall": "r = re.Pattern.findall(PATTERN, s.t)",
    "re.Pattern.split": "r = re.Pattern.split(PATTERN, s.t)",
    "re.Pattern.sub": "r = re.Pattern.sub(PATTERN, 'a', s.t)",
    "re.Match.group": "r = re.Match.group(PATTERN.match(s.t))",
    "re.Match.groups": "r = re.Match.groups(PATTERN.match(s.t))",
    "re.Match.groupdict": "r = re.Match.groupdict(PATTERN.match(s.t))",
    "re.Match.start": "r = re.Match.start(PATTERN.search(s.t), 1)",
    "re.Match.end": "r = re.Match.end(PATTERN.search(s.t), 1)",
    "re.Match.span": "r = re.Match.span(PATTERN.search(s.t), 1)",
    "re.Match.__getitem__": "r = re.Match.__getitem__(PATTERN.match(s.t), 1)",
    "_warnings.warn": "r = _warnings.warn('of the sample')",
    "_warnings.warn_explicit": "r = _warnings.warn_explicit('of the sample', UserWarning, 'a', 1)",
    "str.format_map": "r = str.format_map('{a}', s.d)",
    "_functools.cmp_to_key": "r = sorted(s.l, key=_functools.cmp_to_key(lambda a, b: (a - b) % s.n))",
    "_struct.calcsize": "r = _struct.calcsize('b' * s.n)",
    "_struct.pack": "r = _struct.pack('b', s.n)",
    "_struct.unpack": "r = _struct.unpack('b' * len(s.b), s.b)",
    "itertools.chain.from_iterable": "r = [*itertools.chain.from_iterable([s.l, s.u])]",
    "_bisect.bisect_left": "r = _bisect.bisect_left(sorted(s.l), s.n)",
    "_bisect.bisect_right": "r = _bisect.bisect_right(sorted(s.l), s.n)",
    "_bisect.insort_left": "_bisect.insort_left(s.l, s.n)\nr = s.l[0]",
    "_bisect.insort_right": "_bisect.insort_right(s.l, s.n)\nr = s.l[0]",
    "_collections._count_elements": "_collections._count_elements(s.d, s.t)\nr = len(s.d)",
    "_heapq.heapify": "_heapq.heapify(s.l)\nr = s.l[0]",
    "_heapq.heappush": "_heapq.heappush(s.l, s.n)\nr = s.l[0]",
    "_heapq.heappop": "s.l.append(s.n)\nr = _heapq.heappop(s.l)",
    "_heapq.heappushpop": "r = _heapq.heappushpop(s.l, s.n)",
    "_heapq.heapreplace": "r = _heapq.heapreplace(s.l, s.n)",
    "_heapq._heapify_max": "_heapq._heapify_max(s.l)\nr = s.l[0]",
    "_heapq._heappop_max": "s.l.append(s.n)\nr = _heapq._heappop_max(s.l)",
    "_heapq._heapreplace_max": "r = _heapq._heapreplace_max(s.l, s.n)",
    "_operator.call": "r = _operator.call(s.f, s.l) if callable(s.f) else 0",
}


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


MODULES = {
    "_abc": _abc,
    "_bisect": _bisect,
    "_collections": _collections,
    "_heapq": _heapq,
    "_struct": _struct,
    "itertools": itertools,
    "_contextvars": _contextvars,
    "_functools": _functools,
    "_io": _io,
    "_operator": _operator,
    "_thread": _thread,
    "_warnings": _warnings,
    "cmath": cmath,
    "collections": collections,
    "math": math,
    "sys": sys,
    "torch": torch,
    "types": types,
    "re": re,
    "PATTERN": re.compile("(?P<first>.)(.*)"),
    "OUT": io.TextIOWrapper(io.BytesIO()),
    "TEXT": io.StringIO(),
    "Plain": Plain,
    "Abstract": Abstract,
    "countdown": countdown,
    "Twice": Twice,
}
OF_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
#: Functions that do not depend on state: they make classes, or are called by C only.
PARTS = ("__init_subclass__", "__subclasshook__", "__new__", "__class_getitem__")
VIEWS = ("dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items")
PATHS = [path for _, path in _core.Recording.effects()]


def owner_of(path):
    names = path.split(".")
    found = getattr(builtins, names[0], None) or importlib.import_module(names[0])
    for name in names[1:-1]:
        found = getattr(found, name)
    return found


def functions(path):
    """The functions for a path of the table."""
    owner, name = path.rsplit(".", 1)
    if name != "*":
        return [path]
    found = vars(owner_of(path)).items()
    names = sorted(own for own, value in found if isinstance(value, OF_C) and own not in PARTS)
    return [f"{owner}.{own}" for own in names]


def variables(made):
    return {**MODULES, "s": made, "x": torch.ones(3), "made": None}


def sample(path):
    """A program that calls the function; None if no arguments work."""
    if path in SAMPLES:
        return SAMPLES[path]
    owner, name = path.rsplit(".", 1)
    is_of_class = isinstance(vars(owner_of(path)).get(name), types.ClassMethodDescriptorType)
    receiver = None if is_of_class else RECEIVERS.get(owner)
    called = path.removeprefix("builtins.")
    if name == "__new__":
        return f"r = {owner}.__new__({owner})"
    for arguments in ARGUMENTS:
        given = ", ".join(own for own in (receiver, arguments) if own)
        text = f"r = {called}({given})"
        here = variables(state())
        try:
            exec(text, here)
        except Exception:
            continue
        if here["r"] is NotImplemented and arguments != ARGUMENTS[-1]:
            continue
        kind = type(here["r"]).__name__
        if hasattr(here["r"], "__next__") or kind in VIEWS:
            text += "\nr = [*r]"
        return text
    return None


def shown(value):
    if isinstance(value, set | frozenset):
        # In an arbitrary order.
        value = sorted(value, key=repr)
    return f"{type(value).__name__} {value!r}"


def outcomes(path, compile):
    """Results and state of calls before and after changes."""
    made = state()
    Plain.k = 1
    here = variables(made)
    lines = sample(path).split("\n")
    exec(
        "def program(x):\n" + "".join(f"    {own}\n" for own in lines) + "    return x * 2, r", here
    )
    program, found = compile(here["program"]), []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(3):
            for _ in range(3):
                x = torch.full((3,), float(step))
                try:
                    doubled, result = program(x)
                    assert torch.equal(doubled, x * 2)
                    found.append(shown(result))
                except Exception as error:
                    found.append(f"{type(error).__name__} {error}")
                held = vars(made).items()
                plain = int | float | complex | str | bytes | tuple | list | dict | set | frozenset
                found.append(
                    [
                        (name, shown(own))
                        for name, own in held
                        if isinstance(own, plain | collections.deque | range)
                    ]
                )
                found.append((vars(made.o).copy(), made.var.get()))
            change(made, step)
    return found


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    Plain.k = 1


@pytest.mark.parametrize("path", PATHS)
def test_it_does_what_it_does_in_pytorch(path, capsys):
    for own in functions(path):
        name = own.rsplit(".", 1)[1]
        if not hasattr(owner_of(own), name):
            # A function of another version of Python or PyTorch.
            continue
        assert sample(own) is not None, f"{own} has no sample"
        expected = outcomes(own, lambda program: program)
        assert outcomes(own, corsac.compile) == expected, sample(own)
