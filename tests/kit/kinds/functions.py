"""Functions, closures and arguments."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B006, B023

import dataclasses
import functools

import torch

from kit.kinds.driver import program, set_global, t

SCALE = 2.0
HISTORY = []
SETTINGS = {"mode": "double", "bias": 1.0}
counter_of_calls = 0


@program("a closure that counts its calls")
def _():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * count

    x, y = t(2, 3), t(4, 3)
    return f, [(x,), (x,), (y,), (x,)], lambda: count


@program("a global number that is changed between calls")
def _():
    globals()["SCALE"] = 2.0
    x = t(2, 3)
    return lambda x: x * SCALE, [
        (x,),
        set_global(globals(), "SCALE", 3.0),
        (x,),
        set_global(globals(), "SCALE", 2),
        (x,),
    ]


@program("a global counter that the program increments")
def _():
    globals()["counter_of_calls"] = 0

    def f(x):
        global counter_of_calls
        counter_of_calls += 1
        if counter_of_calls > 3:
            return x - counter_of_calls
        return x + counter_of_calls

    x = t(3)
    return f, [(x,), (x,), (t(5),), (x,)], lambda: counter_of_calls


@program("a global that is deleted and set again")
def _():
    def f(x):
        global made_and_deleted
        made_and_deleted = x * 2
        y = made_and_deleted + 1
        del made_and_deleted
        return y

    return f, [(t(3),), (t(3),), (t(4),)], lambda: "made_and_deleted" in globals()


@program("a global list that grows")
def _():
    HISTORY.clear()

    def f(x):
        HISTORY.append(x.sum())
        return x + len(HISTORY)

    return f, [(t(2, 2),), (t(2, 2),), (t(3, 2),)], lambda: list(HISTORY)


@program("a global dictionary that decides")
def _():
    SETTINGS.clear()
    SETTINGS.update(mode="double", bias=1.0)

    def f(x):
        if SETTINGS["mode"] == "double":
            return x * 2 + SETTINGS["bias"]
        return x.relu() + SETTINGS.get("other", 7)

    def change(run):
        SETTINGS["mode"] = "relu"

    def change_again(run):
        SETTINGS["other"] = 0.5

    def change_back(run):
        SETTINGS.pop("other")
        SETTINGS["mode"] = "double"

    x = t(2, 3)
    return f, [(x,), change, (x,), change_again, (x,), change_back, (x,)]


@program("a closure over a tensor that is replaced")
def _():
    w = t(3)

    def f(x):
        return x * w

    def change(run):
        nonlocal w
        w = w.detach() + 1

    x = t(2, 3)
    return f, [(x,), change, (x,), change, (x,)]


@program("a closure that makes a closure")
def _():
    def outer(scale):
        def inner(x):
            return x * scale

        return inner

    def f(x, n):
        fns = [outer(i + 1) for i in range(n)]
        return [g(x) for g in fns]

    x = t(2)
    return f, [(x, 2), (x, 3), (x, 0), (x, 2)]


@program("a function that is returned and called outside")
def _():
    def f(x):
        y = x.sin()

        def later(z):
            return y + z

        return later

    x = t(3)
    return f, [lambda run: run(x)(1), lambda run: run(x)(2.0), lambda run: run(t(4))(3), (x,)]


@program("the late binding of loop variables in lambdas")
def _():
    def f(x):
        fns = [lambda: x * i for i in range(3)]
        bound = [lambda i=i: x * i for i in range(3)]
        return [g() for g in fns], [g() for g in bound]

    x = t(2)
    return f, [(x,), (x,), (t(3),)]


@program("a cell that is set after the closure is made")
def _():
    def f(x):
        def g():
            return x * k

        k = 3
        a = g()
        k = 4
        return a, g()

    x = t(2)
    return f, [(x,), (x,), (x,)]


@program("an unbound variable of an enclosing function")
def _():
    def f(x, flag):
        def g():
            return x + late

        if flag:
            late = 1
        return g()

    x = t(2)
    return f, [(x, True), (x, False), (x, True)]


@program("an unbound local variable")
def _():
    def f(x, flag):
        if flag:
            y = x + 1
        try:
            return y * 2
        except UnboundLocalError as error:
            return x, str(error)

    x = t(2)
    return f, [(x, True), (x, False), (x, True)]


@program("a default argument that is mutated")
def _():
    def f(x, seen=[]):
        seen.append(len(seen))
        return x * len(seen), seen

    x = t(2)
    return f, [(x,), (x,), lambda run: run(x, [1, 2]), (x,)]


@program("a default dictionary argument that caches tensors")
def _():
    def f(x, cache={}):
        key = tuple(x.shape)
        if key not in cache:
            cache[key] = torch.ones(key) * len(cache)
        return x + cache[key]

    return f, [(t(2),), (t(3),), (t(2),), (t(2, 2),)], lambda: f.__defaults__[0]


@program("defaults of a function that are replaced")
def _():
    def f(x, k=2.0, *, shift=1.0):
        return x * k + shift

    def change(run):
        f.__defaults__ = (5.0,)

    def change_more(run):
        f.__kwdefaults__ = {"shift": -1.0}

    x = t(2)

    def g(x):
        return f(x)

    return g, [(x,), change, (x,), change_more, (x,)]


@program("the code of a function that is replaced")
def _():
    def one(x):
        return x + 1

    def two(x):
        return x + 2

    def g(x):
        return one(x)

    def change(run):
        one.__code__ = two.__code__

    x = t(2)
    return g, [(x,), change, (x,)]


@program("star arguments of every kind")
def _():
    def f(x, /, y, *rest, scale=1.0, **more):
        out = x + y * scale
        for r in rest:
            out = out + r
        for k, v in more.items():
            out = out * v if k.startswith("m") else out - v
        return out, len(rest), sorted(more)

    x, y = t(2), t(2)
    return f, [
        (x, y),
        lambda run: run(x, y, 1, 2.0, scale=3),
        lambda run: run(x, y=y, m1=2, other=y),
        lambda run: run(x, y, *[x, x], **{"mm": x}),
        lambda run: run(x, *(y,)),
    ]


@program("wrong arguments")
def _():
    def f(x, *, k):
        return x * k

    x = t(2)
    return f, [
        lambda run: run(x),
        lambda run: run(x, k=2),
        lambda run: run(x, 3),
        lambda run: run(x, k=1, j=2),
    ]


@program("wrong arguments of an inner function")
def _():
    def g(a, b=1, *, c):
        return a + b + c

    def f(x, way):
        try:
            if way == 0:
                return g(x)
            if way == 1:
                return g(x, c=1, d=2)
            if way == 2:
                return g(x, 1, 2, c=3)
            return g(x, c=1)
        except TypeError as error:
            return x.sin(), str(error)

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 3)]


@program("arguments that are unpacked from nested calls")
def _():
    def g(*a, **k):
        return (a, k)

    def f(x, xs, ks):
        a, k = g(*xs, x, *[1, 2], **ks, z=x * 2)
        first, *middle, last = a
        return first, middle, last, k

    x = t(2)
    return f, [(x, (1, 2), {"p": 1}), (x, [x], {}), (x, (), {"q": x}), (x, (), {"z": x})]


@program("extended unpacking of tensors and strings")
def _():
    def f(x):
        a, *b = x
        (c, d), e = (x[0], x[1]), "xy"
        p, q = e
        *init, last = x.unbind(0)
        return a, b, c + d, p + q, init, last

    return f, [(t(3, 2),), (t(2, 2),), (t(4, 2),), (t(1, 2),)]


@program("the walrus operator")
def _():
    def f(x):
        if (n := x.shape[0]) > 2:
            return x * n
        total = [y := 1, y + 1, (z := y + 5)]
        return x + sum(total), [last := v for v in total], last, z

    return f, [(t(3),), (t(2),), (t(5),), (t(1),)]


@program("match statements")
def _():
    @dataclasses.dataclass
    class Point:
        x: int
        y: torch.Tensor

    def f(x, what):
        match what:
            case {"op": "add", "by": by, **rest}:
                return x + by, rest
            case [first, *rest] if len(rest) > 1:
                return x * first, rest
            case [only]:
                return x - only
            case Point(x=0, y=y):
                return x + y
            case Point(x=n):
                return x * n
            case str() as name:
                return x, name.upper()
            case 1 | 2 | 3 as small:
                return x * small
            case None:
                return x.neg()
            case _:
                return x.cos()

    x = t(2)
    return f, [
        (x, {"op": "add", "by": 2, "k": 1}),
        (x, [1, 2, 3]),
        (x, (4,)),
        (x, Point(0, x)),
        (x, Point(3, x)),
        (x, "name"),
        (x, 2),
        (x, None),
        (x, 2.5),
    ]


@program("recursion whose depth is an argument")
def _():
    def down(x, n):
        return x if n == 0 else down(x.sin() + n, n - 1)

    x = t(2)
    return lambda x, n: down(x, n), [(x, 1), (x, 4), (x, 0), (x, 2)]


@program("mutual recursion through cells")
def _():
    def even(x, n):
        return x if n == 0 else odd(x + 1, n - 1)

    def odd(x, n):
        return -x if n == 0 else even(x * 2, n - 1)

    x = t(2)
    return even, [(x, 1), (x, 4), (x, 5)]


@program("a decorator that wraps and counts")
def _():
    log = []

    def logged(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            log.append(fn.__name__)
            wrapper.calls = getattr(wrapper, "calls", 0) + 1
            return fn(*args, **kwargs)

        return wrapper

    @logged
    def inner(x):
        return x * 2

    @logged
    def f(x):
        return inner(inner(x)) + inner.calls

    return f, [(t(2),), (t(2),), (t(3),)], lambda: (log, inner.calls, f.__wrapped__.__name__)


@program("a decorator that is a class")
def _():
    class Twice:
        def __init__(self, fn):
            self.fn = fn
            self.n = 0

        def __call__(self, x):
            self.n += 1
            return self.fn(self.fn(x)) + self.n

    @Twice
    def g(x):
        return x.sin()

    def f(x):
        return g(x)

    return f, [(t(2),), (t(2),), (t(3),)], lambda: g.n
