"""Classes."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: F841, RUF012

import abc
import types
import typing

import torch

from kit.kinds.driver import program, t


@program("a property with a setter")
def _():
    class A:
        def __init__(self):
            self._k = 1

        @property
        def k(self):
            return self._k

        @k.setter
        def k(self, v):
            self._k = v * 2

    a = A()

    def f(x):
        a.k = a.k + 1
        return x * a.k

    def change(run):
        a._k = 0

    return f, [(t(2),), (t(2),), change, (t(3),)], lambda: a


@program("a property that raises AttributeError, and __getattr__")
def _():
    class A:
        def __init__(self, ok):
            self.ok = ok

        @property
        def k(self):
            if self.ok:
                return 3
            raise AttributeError("not now")

        def __getattr__(self, name):
            if name == "k":
                return 5
            raise AttributeError(name)

    a, b = A(True), A(False)
    x = t(2)
    return lambda x, a: (x * a.k, getattr(a, "none", 7), hasattr(a, "gone")), [
        (x, a),
        (x, b),
        (x, a),
    ]


@program("__getattr__ and __setattr__ that delegate")
def _():
    class Proxy:
        def __init__(self, inner):
            object.__setattr__(self, "inner", inner)
            object.__setattr__(self, "log", [])

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def __setattr__(self, name, value):
            self.log.append(name)
            setattr(self.inner, name, value)

        def __delattr__(self, name):
            delattr(self.inner, name)

    inner = types.SimpleNamespace(k=2, w=torch.ones(2))
    p = Proxy(inner)

    def f(x):
        p.last = x.sum()
        p.k += 1
        p.tmp = 1
        del p.tmp
        return x * p.k + p.w

    def change(run):
        inner.w = torch.zeros(2)

    return f, [(t(2),), (t(2),), change, (t(2),)], lambda: p


@program("__getattribute__ that counts")
def _():
    class A:
        k = 2

        def __init__(self):
            self.reads = 0

        def __getattribute__(self, name):
            if name != "reads" and not name.startswith("__"):
                object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
            return object.__getattribute__(self, name)

    a = A()

    def f(x):
        return x * a.k + a.k

    return f, [(t(2),), (t(2),), (t(3),)], lambda: a.__dict__["reads"]


@program("data descriptors and other descriptors")
def _():
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, kind=None):
            if obj is None:
                return self
            return getattr(obj, self.name)

        def __set__(self, obj, value):
            if value < 0:
                raise ValueError(f"{self.name} is negative")
            setattr(obj, self.name, value)

    class Lazy:
        def __init__(self, fn):
            self.fn = fn

        def __get__(self, obj, kind=None):
            value = self.fn(obj)
            obj.__dict__[self.fn.__name__] = value
            return value

    class A:
        k = Positive()

        def __init__(self, k):
            self.k = k

        @Lazy
        def table(self):
            return self.k * 10

    a = A(1)

    def f(x, v):
        try:
            a.k = v
        except ValueError as error:
            return str(error), a.table
        return x * a.k + a.table

    x = t(2)
    return f, [(x, 2), (x, -1), (x, 3), (x, 2)], lambda: a


@program("__slots__, with and without a dictionary")
def _():
    class A:
        __slots__ = ("k", "w")

        def __init__(self, k):
            self.k = k

    class B(A):
        pass

    a, b = A(2), B(3)

    def f(x):
        a.w = x * a.k
        b.extra = a.k
        a.k += 1
        try:
            a.other = 1
        except AttributeError as error:
            return a.w + b.k, str(error), hasattr(b, "w")

    return f, [(t(2),), (t(2),), (t(3),)], lambda: (a, b)


@program("class attributes that are read through instances")
def _():
    class A:
        k = 2
        shared = []

        def go(self, x):
            self.shared.append(1)
            return x * self.k + len(self.shared)

    class B(A):
        pass

    a, b = A(), B()

    def f(x):
        return a.go(x) + b.go(x)

    def change(run):
        A.k = 5

    def change_b(run):
        B.k = 7

    def change_a(run):
        a.k = 11

    x = t(2)

    def back(run):
        A.k = 2
        del B.k, a.k

    return f, [(x,), change, (x,), change_b, (x,), change_a, (x,), back, (x,)], lambda: A.shared


@program("an attribute of a class that the program changes")
def _():
    class A:
        n = 0

        def __init__(self):
            type(self).n += 1

    def f(x):
        A()
        return x + A.n

    return f, [(t(2),), (t(2),), (t(3),), (t(2),)], lambda: A.n


@program("super() in every form")
def _():
    class A:
        def __init__(self, k):
            self.k = k

        def go(self, x):
            return x + self.k

        @classmethod
        def make(cls, k):
            return cls(k)

        @property
        def size(self):
            return 2

    class B(A):
        def go(self, x):
            return super().go(x) * 2

        @classmethod
        def make(cls, k):
            return super().make(k + 1)

        @property
        def size(self):
            return super().size + 1

    class C(B):
        def go(self, x):
            return super(B, self).go(x) - super().go(x) + A.go(self, x)

    def f(x, k):
        c = C.make(k)
        return c.go(x) * c.size, isinstance(c, A), issubclass(B, A), type(c).__mro__[1].__name__

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("diamond inheritance and cooperative constructors")
def _():
    class Base:
        def __init__(self, **kw):
            self.order = ["Base"]

    class L(Base):
        def __init__(self, left=1, **kw):
            super().__init__(**kw)
            self.left = left
            self.order.append("L")

    class R(Base):
        def __init__(self, right=2, **kw):
            super().__init__(**kw)
            self.right = right
            self.order.append("R")

    class D(L, R):
        pass

    def f(x, **kw):
        d = D(**kw)
        return x * d.left + d.right, d

    x = t(2)
    return f, [(x,), lambda run: run(x, left=3), lambda run: run(x, right=x)]


@program("a metaclass with __call__, __instancecheck__ and __iter__")
def _():
    class Meta(type):
        made = 0

        def __call__(cls, *args):
            obj = super().__call__(*args)
            obj.tag = cls.__name__
            return obj

        def __instancecheck__(cls, other):
            return hasattr(other, "tag")

        def __iter__(cls):
            return iter([1, 2])

        @property
        def width(cls):
            return 4

    class A(metaclass=Meta):
        def __init__(self, k):
            self.k = k

    def f(x, k):
        a = A(k)
        return x * a.k + sum(A) + A.width, a.tag, isinstance(a, A), isinstance(k, A)

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("__init_subclass__ and __class_getitem__")
def _():
    registry = {}

    class A:
        def __init_subclass__(cls, key=None, **kw):
            registry[key] = cls

        def __class_getitem__(cls, item):
            return registry[item]

    class Sin(A, key="sin"):
        def go(self, x):
            return x.sin()

    class Cos(A, key="cos"):
        def go(self, x):
            return x.cos()

    def f(x, key):
        return A[key]().go(x)

    def change(run):
        registry["sin"] = Cos

    x = t(2)
    return f, [(x, "sin"), (x, "cos"), change, (x, "sin"), (x, "tan")]


@program("a class that is made in the program")
def _():
    def f(x):
        class Local:
            k = 3

            def go(self, y):
                return y * self.k

        Other = type("Other", (Local,), {"k": 5})
        return Local().go(x), Other().go(x), Other.__name__

    return f, [(t(2),), (t(2),), (t(3),)]


@program("abstract classes, protocols and typing at run time")
def _():
    class A(abc.ABC):
        @abc.abstractmethod
        def go(self, x): ...

    class B(A):
        def go(self, x):
            return x + 1

    @typing.runtime_checkable
    class Goes(typing.Protocol):
        def go(self, x): ...

    def f(x, make):
        try:
            thing = (A if make == "A" else B)()
        except TypeError as error:
            return "abstract"
        return thing.go(x), isinstance(thing, Goes), typing.cast(int, x)

    x = t(2)
    return f, [(x, "A"), (x, "B"), (x, "B")]


@program("operators of a user's class")
def _():
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return V(self.v + (o.v if isinstance(o, V) else o))

        def __radd__(self, o):
            return V(o + self.v * 2)

        def __iadd__(self, o):
            self.v = self.v + o
            return self

        def __neg__(self):
            return V(-self.v)

        def __getitem__(self, i):
            return self.v[i]

        def __len__(self):
            return len(self.v)

        def __bool__(self):
            return self.v.shape[0] > 2

        def __eq__(self, o):
            return "eq"

        def __contains__(self, n):
            return n == self.v.shape[0]

        def __matmul__(self, o):
            return self.v @ o.v

        def __call__(self, k):
            return self.v * k

    def f(x):
        a = V(x)
        b = 1 + a + a + 2
        a += 5
        return b.v, (-a).v, a[0], len(a), bool(a), a == b, 3 in a, a @ b, a(2)

    return f, [(t(2),), (t(3),), (t(2),)]


@program("reflected operators that give NotImplemented")
def _():
    class A:
        def __add__(self, o):
            return NotImplemented

        def __lt__(self, o):
            return NotImplemented

        def __eq__(self, o):
            return NotImplemented

    class B:
        def __radd__(self, o):
            return 4

        def __gt__(self, o):
            return True

    a, b = A(), B()

    def f(x):
        try:
            a + 1
        except TypeError as error:
            text = str(error)
        return x * (a + b), a < b, a == b, a != b, text

    return f, [(t(2),), (t(2),), (t(3),)]


@program("user numbers: __index__, __int__, __float__, __hash__ and __format__")
def _():
    class N:
        def __init__(self, n):
            self.n = n

        def __index__(self):
            return self.n

        def __float__(self):
            return self.n + 0.5

        def __hash__(self):
            return 1

        def __eq__(self, o):
            return isinstance(o, N) and o.n == self.n

        def __format__(self, spec):
            return f"<{self.n}:{spec}>"

        def __repr__(self):
            return f"N({self.n})"

    def f(x, n):
        d = {N(1): "one", N(2): "two"}
        return (
            x[N(0)] + [10, 20, 30][n],
            float(n),
            int(n),
            d.get(n),
            f"{n:>3} {n!r} {n}",
            list(range(n)),
        )

    return f, [(t(2), N(1)), (t(2), N(2)), (t(3), N(1)), (t(3), N(0))]
