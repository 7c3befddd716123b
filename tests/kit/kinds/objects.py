"""Objects of every kind, their identity and their lifetime."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B905, E742

import collections
import copy
import dataclasses
import enum
import gc
import threading
import types
import typing
import weakref

import torch
from torch import nn

from kit.kinds.driver import _SETTING, program, t


@program("a data class with a factory, post-init, frozen and replace")
def _():
    @dataclasses.dataclass
    class A:
        x: torch.Tensor
        k: int = 2
        log: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.log.append(self.k)
            self.y = self.x * self.k

    @dataclasses.dataclass(frozen=True, order=True)
    class B:
        n: int
        m: int = 0

    def f(x, k):
        a = A(x, k)
        b = dataclasses.replace(a, k=k + 1)
        c = B(k)
        try:
            c.n = 4
        except dataclasses.FrozenInstanceError as error:
            text = str(error)
        return (
            a,
            b.y,
            c,
            B(1) < c,
            text,
            [fd.name for fd in dataclasses.fields(a)],
            dataclasses.asdict(c),
            c == B(k),
        )

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("a data class as an argument that is changed")
def _():
    @dataclasses.dataclass
    class State:
        h: torch.Tensor
        step: int = 0

    s = State(t(2))

    def f(x, s):
        s.h = s.h * 0.5 + x
        s.step += 1
        return s

    def go(run):
        return run(t(2), State(t(2)))

    x = t(2)
    return f, [(x, s), (x, s), go, (x, s), go], lambda: s


@program("named tuples of both kinds")
def _():
    P = collections.namedtuple("P", "a b", defaults=[3])

    class Q(typing.NamedTuple):
        a: torch.Tensor
        n: int = 2

        def go(self):
            return self.a * self.n

    def f(p, q):
        r = p._replace(a=q.go())
        a, b = r
        return r, a + b, P(a), Q(a, n=5), p._asdict(), P._fields, P._make([1, 2]), q[0] is q.a

    x = t(2)
    return f, [(P(x, 1), Q(x)), (P(x, 2), Q(x, 3)), (P(x), Q(x))]


@program("enums that decide and flags that are combined")
def _():
    class Mode(enum.Enum):
        SIN = "sin"
        COS = "cos"

        @property
        def fn(self):
            return getattr(torch, self.value)

    class Opt(enum.Flag):
        A = enum.auto()
        B = enum.auto()

    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 5

    def f(x, mode, opt, level):
        y = mode.fn(x)
        if Opt.A in opt:
            y = y + 1
        if opt & Opt.B:
            y = y * 2
        return (
            y * level,
            mode.name,
            Mode("sin") is mode,
            [m.value for m in Mode],
            level > Level.LOW,
            Mode["COS"],
            Opt.A | opt,
        )

    x = t(2)
    return f, [
        (x, Mode.SIN, Opt.A, Level.LOW),
        (x, Mode.COS, Opt.B, Level.HIGH),
        (x, Mode.COS, Opt.A | Opt.B, Level.HIGH),
        (x, Mode.SIN, Opt(0), Level.LOW),
    ]


@program("an iterator class that is made in the program")
def _():
    class Count:
        def __init__(self, n):
            self.n, self.i = n, 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.i >= self.n:
                raise StopIteration
            self.i += 1
            return self.i

    def f(x, n):
        c = Count(n)
        first = next(c, None)
        rest = [x * i for i in c]
        return first, rest, list(c), c.i, sum(Count(n)), dict(zip("ab", Count(n)))

    x = t(2)
    return f, [(x, 3), (x, 1), (x, 0), (x, 2)]


@program("an iterator that is an argument")
def _():
    def f(x, it):
        out = [x * next(it)]
        for v in it:
            if v > 2:
                break
            out.append(x + v)
        return out

    x = t(2)
    return f, [
        lambda run: (lambda it: (run(x, it), list(it)))(iter([1, 2, 3, 4])),
        lambda run: (lambda it: (run(x, it), list(it)))(iter((1,))),
        lambda run: (lambda it: (run(x, it), list(it)))(n for n in range(5)),
        lambda run: (lambda it: (run(x, it), list(it)))(iter([])),
    ]


@program("old iteration by __getitem__, and __reversed__ and __missing__")
def _():
    class Old:
        def __init__(self, xs):
            self.xs = xs

        def __getitem__(self, i):
            return self.xs[i]

        def __reversed__(self):
            return iter(["r"])

    class D(dict):
        def __missing__(self, key):
            self[key] = len(self)
            return self[key]

    d = D()

    def f(x, key):
        o = Old([x, x * 2])
        return (
            [v + 1 for v in o],
            list(reversed(o)),
            x * d[key],
            x in Old([1, 2]) if x.dim() > 5 else None,
        )

    x = t(2)
    return f, [(x, "a"), (x, "b"), (x, "a"), (x, "c")], lambda: d


@program("subclasses of list, dict, tuple, str and int")
def _():
    class L(list):
        def total(self):
            return sum(self)

    class D(dict):
        def __getattr__(self, name):
            return self[name]

        __setattr__ = dict.__setitem__

    class T(tuple):
        @property
        def first(self):
            return self[0]

    class S(str):
        def twice(self):
            return S(self + self)

    class I(int):
        tag = "i"

    def f(x, d):
        a = L([x, x * 2])
        a.append(x)
        d.k = a.total()
        d.n += 1
        s = S("ab").twice()
        return a, d.k, T((x, 1)).first, s, type(s) is S, x * I(3), I(3).tag, d

    x = t(2)
    return f, [
        lambda run: run(x, D(n=1)),
        lambda run: run(x, D(n=2)),
        lambda run: run(x, D(n=x)),
        lambda run: run(x, D()),
    ]


@program("a callable object that is compiled")
def _():
    class A:
        def __init__(self):
            self.n = 0

        def __call__(self, x):
            self.n += 1
            return x * self.n

    a = A()
    return a, [(t(2),), (t(2),), (t(3),)], lambda: a


@program("a bound method that is compiled, and changed attributes")
def _():
    class A:
        def __init__(self):
            self.k = 2
            self.seen = {}

        def go(self, x):
            self.seen[x.shape[0]] = self.seen.get(x.shape[0], 0) + 1
            return x * self.k

    a = A()

    def change(run):
        a.k = 3.5

    return a.go, [(t(2),), (t(3),), change, (t(2),)], lambda: a


@program("static and class methods through instances and classes")
def _():
    class A:
        k = 2

        @staticmethod
        def add(x, y):
            return x + y

        @classmethod
        def scaled(cls, x):
            return x * cls.k

    class B(A):
        k = 3

    def f(x):
        return A.add(x, 1), B().add(x, 2), A.scaled(x), B().scaled(x), B.scaled.__self__ is B

    def change(run):
        A.add = staticmethod(lambda x, y: x - y)

    return f, [(t(2),), (t(2),), change, (t(2),)]


@program("a method that is replaced on the instance and on the class")
def _():
    class A:
        def go(self, x):
            return x + 1

    a = A()

    def f(x):
        return a.go(x)

    def on_instance(run):
        a.go = types.MethodType(lambda self, x: x + 2, a)

    def on_class(run):
        a.__dict__.pop("go", None)
        A.go = lambda self, x: x + 3

    x = t(2)
    return f, [(x,), on_instance, (x,), on_class, (x,)]


@program("an object whose class is changed")
def _():
    class A:
        def go(self, x):
            return x + 1

    class B:
        def go(self, x):
            return x * 5

    a = A()

    def f(x):
        return a.go(x)

    def change(run):
        a.__class__ = B if type(a) is A else A

    x = t(2)
    return f, [(x,), change, (x,), change, (x,)]


@program("getattr, setattr, hasattr and delattr with computed names")
def _():
    a = types.SimpleNamespace(w0=1.0, w1=2.0)

    def f(x, n):
        out = x
        for i in range(n):
            name = f"w{i}"
            if hasattr(a, name):
                out = out * getattr(a, name)
            setattr(a, f"seen{i}", i)
        if hasattr(a, "gone"):
            delattr(a, "gone")
        return out + getattr(a, "bias", 10)

    def change(run):
        a.bias = 3
        a.gone = 1

    x = t(2)
    return f, [(x, 1), (x, 3), change, (x, 2)], lambda: a


@program("objects of users among results")
def _():
    class Out:
        def __init__(self, y, n):
            self.y, self.n, self.me = y, n, self

    def f(x, n):
        out = Out(x * n, n)
        out.parts = [out.y, {"y": out.y, "v": out.y[0]}]
        return out

    x = t(2)
    return f, [(x, 2), (x, 3), (t(3), 2), (x, 2)]


@program("a linked list of nodes as state")
def _():
    class Node:
        def __init__(self, v, after):
            self.v, self.after = v, after

    head = None

    def f(x):
        nonlocal head
        head = Node(x.detach().sum(), head)
        total, at, n = 0, head, 0
        while at is not None:
            total = total + at.v
            at = at.after
            n += 1
        return x * total, n

    return f, [(t(2),), (t(2),), (t(3),)], lambda: head


@program("weak references to objects and tensors")
def _():
    class A:
        k = 3

    a = A()
    r = weakref.ref(a)

    def f(x):
        it = r()
        y = x * (it.k if it is not None else 10)
        wy = weakref.ref(y)
        return y, wy() is y, wy().shape[0]

    def change(run):
        nonlocal a
        a = None
        gc.collect()

    def back(run):
        nonlocal a, r
        a = A()
        r = weakref.ref(a)

    x = t(2)
    return f, [(x,), change, (x,), back, (x,)]


@program("weak dictionaries and sets")
def _():
    class A:
        pass

    keys = [A(), A()]
    table = weakref.WeakKeyDictionary({keys[0]: 2})
    values = weakref.WeakValueDictionary({"a": keys[1]})

    def f(x):
        n = table.get(keys[0], 5)
        table[keys[1]] = n + 1
        return x * n + len(table), "a" in values

    return f, [(t(2),), (t(2),), (t(3),)], lambda: list(table.values())


@program("thread local values")
def _():
    local = threading.local()
    local.k = 2

    def f(x):
        local.n = getattr(local, "n", 0) + 1
        return x * local.k + local.n

    def change(run):
        local.k = 7

    def elsewhere(run):
        out = []

        def work():
            local.k = 5
            with torch.set_grad_enabled(_SETTING["grads"]):
                out.append(run(t(2)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return out

    return f, [(t(2),), (t(2),), elsewhere, change, (t(2),)], lambda: vars(local)


@program("context variables")
def _():
    import contextvars

    var = contextvars.ContextVar("var", default=2)

    def f(x):
        k = var.get()
        token = var.set(k + 1)
        y = x * var.get()
        var.reset(token)
        return y, var.get()

    def change(run):
        var.set(9)

    return f, [(t(2),), (t(2),), change, (t(2),)], lambda: var.get()


@program("locks and conditions of threading")
def _():
    lock, rlock = threading.Lock(), threading.RLock()

    def f(x):
        with lock:
            y = x + 1
        with rlock, rlock:
            y = y * 2
        return y, lock.locked()

    return f, [(t(2),), (t(2),), (t(3),)], lambda: lock.locked()


@program("a thread that the program starts")
def _():
    def f(x):
        out = []
        thread = threading.Thread(target=lambda: out.append(x.detach() * 2))
        thread.start()
        thread.join()
        return x + out[0]

    return f, [(t(2),), (t(2),), (t(3),)]


@program("copy and deepcopy of what the program has")
def _():
    class A:
        def __init__(self, w):
            self.w, self.xs = w, [1, 2]

        def __copy__(self):
            new = A(self.w)
            new.copied = True
            return new

    a = A(torch.ones(2))

    def f(x):
        b, c = copy.copy(a), copy.deepcopy(a)
        c.xs.append(3)
        c.w.add_(1)
        return x * b.w + c.w, b.copied, c.xs, copy.copy([x]), c

    return f, [(t(2),), (t(2),), (t(2),)], lambda: a


@program("identity of objects and is")
def _():
    a, b = [1], [1]

    def f(x, y, p, q):
        return x + (1 if x is y else 2), p is q, p == q, x is not y, id(x) == id(y)

    x, y = t(2), t(2)
    return f, [(x, x, a, a), (x, y, a, b), (y, y, b, b), (y, x, a, b)]


@program("hash and repr of values")
def _():
    def f(x, key):
        table = {hash(key) % 7: 1}
        return (
            x * len(table),
            repr([key]),
            str((key, 1)),
            ascii("ü"),
            repr(torch.float32),
            f"{x.shape}",
        )

    x = t(2)
    return f, [(x, 1), (x, (1, "a")), (x, frozenset([2])), (x, [])]


@program("isinstance, type and callable on everything")
def _():
    def f(x, v):
        kinds = [
            isinstance(v, k)
            for k in (
                int,
                float,
                (str, bool),
                torch.Tensor,
                nn.Module,
                collections.abc.Mapping,
                typing.Callable,
            )
        ]
        return (
            x + sum(kinds),
            type(v).__name__,
            callable(v),
            type(x) is torch.Tensor,
            isinstance(x, torch.FloatTensor),
        )

    x = t(2)
    return f, [(x, 1), (x, True), (x, "s"), (x, x), (x, nn.ReLU()), (x, {}), (x, len)]


@program("a finalizer that runs while the program does")
def _():
    log = []

    class A:
        def __del__(self):
            log.append("gone")

    def f(x):
        a = A()
        y = x * 2
        del a
        log.append("after")
        return y + len(log)

    return f, [(t(2),), (t(2),), (t(3),)], lambda: log
