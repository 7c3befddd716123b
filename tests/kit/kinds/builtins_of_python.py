"""Functions of functools, inspect, itertools and operator, built-in functions, and statements."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B905

import functools
import inspect
import itertools
import operator

import torch

from kit.kinds.driver import program, t


@program("functools.partial with tensors and keywords")
def _():
    def g(a, b, *, c=1):
        return a - b * c

    p = functools.partial(g, c=3)

    def f(x, y):
        q = functools.partial(p, x)
        r = functools.partial(q, c=2)
        return q(y), r(y), r.keywords["c"], q.func is g

    def change(run):
        nonlocal p
        p = functools.partial(g, c=5)

    x, y = t(2), t(2)
    return f, [(x, y), (x, y), change, (x, y)]


@program("a partial that is compiled")
def _():
    def g(k, x, shift=0):
        return x * k + shift

    return functools.partial(g, 2, shift=1), [(t(2),), (t(2),), lambda run: run(t(3), shift=5)]


@program("functools.partialmethod and singledispatchmethod")
def _():
    class A:
        def act(self, x, k):
            return x * k

        double = functools.partialmethod(act, k=2)

        @functools.singledispatchmethod
        def show(self, v):
            return "other"

        @show.register
        def _(self, v: int):
            return "int"

        @show.register
        def _(self, v: torch.Tensor):
            return "tensor"

    a = A()

    def f(x, v):
        return a.double(x), a.show(v), a.show(x)

    x = t(2)
    return f, [(x, 1), (x, "s"), (x, 2)]


@program("functools.singledispatch")
def _():
    @functools.singledispatch
    def g(v, x):
        return x

    @g.register(int)
    def _(v, x):
        return x + v

    @g.register(list)
    def _(v, x):
        return x * len(v)

    def register(run):
        g.register(str, lambda v, x: x - len(v))

    def f(v, x):
        return g(v, x)

    x = t(2)
    return f, [(1, x), ([1, 2], x), ("abc", x), register, ("abc", x), (2.5, x)]


@program("lru_cache and cache_clear between calls")
def _():
    calls = []

    @functools.lru_cache(maxsize=2)
    def table(n):
        calls.append(n)
        return n * 2

    def f(x, n):
        return x * table(n)

    x = t(2)
    return (
        f,
        [(x, 1), (x, 1), (x, 2), (x, 3), (x, 1), lambda run: table.cache_clear(), (x, 1)],
        lambda: (list(calls), table.cache_info()),
    )


@program("lru_cache of a tensor constant")
def _():
    @functools.cache
    def mask(n):
        return torch.tril(torch.ones(n, n))

    def f(x):
        return x @ mask(x.shape[-1])

    return (
        f,
        [(t(2, 3),), (t(2, 3),), (t(2, 4),), lambda run: mask.cache_clear(), (t(2, 3),)],
        lambda: mask.cache_info(),
    )


@program("a cached property")
def _():
    class A:
        made = 0

        def __init__(self, k):
            self.k = k

        @functools.cached_property
        def table(self):
            A.made += 1
            return torch.ones(3) * self.k

    a = A(2)

    def f(x):
        return x + a.table

    def forget(run):
        a.__dict__.pop("table", None)
        a.k += 1

    return f, [(t(3),), (t(3),), forget, (t(3),), (t(3),)], lambda: (a, A.made)


@program("functools.reduce, cmp_to_key and total_ordering")
def _():
    @functools.total_ordering
    class V:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    def f(xs, ns):
        total = functools.reduce(lambda a, b: a * 2 + b, xs)
        order = sorted(ns, key=functools.cmp_to_key(lambda a, b: b - a))
        best = max(V(n) for n in ns)
        return total, order, best.n, V(1) >= V(ns[0])

    x, y = t(2), t(2)
    return f, [([x, y], [1, 3, 2]), ([x, y, x], [5]), ([x], [0, 9])]


@program("inspect.signature of an inner function")
def _():
    def g(a, b=2, *rest, key=None, **kw):
        return a

    def f(x):
        names = list(inspect.signature(g).parameters)
        bound = inspect.signature(g).bind(x, key=3)
        bound.apply_defaults()
        return x * len(names), names, bound.arguments["b"], bound.arguments["key"]

    return f, [(t(2),), (t(2),), (t(3),)]


@program("inspect.isfunction, ismethod, getmembers and getattr_static")
def _():
    class A:
        k = 2

        def m(self):
            return 1

    a = A()

    def f(x):
        n = sum(1 for name, v in inspect.getmembers(a) if inspect.ismethod(v))
        return x * n, inspect.isfunction(f), inspect.isclass(A), inspect.getattr_static(a, "k")

    def change(run):
        A.k = 5

    return f, [(t(2),), (t(2),), change, (t(2),)]


@program("the name and document of the running function")
def _():
    def f(x):
        """About it."""
        return (
            x + len(f.__name__),
            f.__doc__,
            f.__qualname__,
            f.__module__ == __name__,
            f.__code__.co_argcount,
        )

    return f, [(t(2),), (t(2),), (t(3),)]


@program("attributes of a function as state")
def _():
    def f(x):
        f.calls += 1
        f.last = x.sum()
        return x * f.scale

    f.calls, f.scale = 0, 2

    def change(run):
        f.scale = 3

    return f, [(t(2),), (t(2),), change, (t(2),)], lambda: (f.calls, f.last)


@program("locals, globals and vars")
def _():
    class A:
        def __init__(self):
            self.k = 2

    a = A()

    def f(x):
        k = 3
        names = sorted(locals())
        return x * locals()["k"] + vars(a)["k"], names, "SCALE" in globals()

    def change(run):
        a.k = 4

    return f, [(t(2),), (t(2),), change, (t(2),)]


@program("eval and exec of text")
def _():
    def f(x, text):
        own = {"x": x}
        exec("y = x * 2", own)
        return own["y"], eval(text)

    x = t(2)
    return f, [(x, "x + 1"), (x, "x + 1"), (x, "x - 1"), (x, "x.shape")]


@program("map, filter, zip, enumerate and reversed")
def _():
    def f(xs, ns):
        a = list(map(lambda v: v * 2, xs))
        b = [x * n for x, n in zip(xs, ns)]
        c = [x + i for i, x in enumerate(reversed(xs), start=1)]
        d = list(filter(None, ns))
        e = dict(zip("abc", map(torch.neg, xs)))
        return a, b, c, d, e

    x, y = t(2), t(2)
    return f, [([x, y], [1, 0]), ([x, y, x], [0, 0, 3]), ([], []), ((x,), (1, 2, 3))]


@program("zip that is strict")
def _():
    def f(xs, ns):
        try:
            return [x * n for x, n in zip(xs, ns, strict=True)]
        except ValueError as error:
            return str(error)

    x = t(2)
    return f, [([x, x], [1, 2]), ([x], [1, 2]), ([x, x], [1]), ([x], [5])]


@program("any, all, min, max, sum, sorted and abs")
def _():
    def f(x, ns):
        low, high = min(ns), max(ns, key=abs)
        s = sum(ns, start=1)
        return (
            x * low + high,
            any(n > 2 for n in ns),
            all(ns),
            s,
            sorted(ns, reverse=True),
            max(x.shape),
            divmod(s, 3),
        )

    x = t(2, 3)
    return f, [(x, [1, 2]), (x, [-5, 3]), (x, [0, 1.5]), (x, [])]


@program("itertools of every kind")
def _():
    def f(xs, ns):
        out = [
            list(itertools.chain(xs, xs)),
            list(itertools.chain.from_iterable([xs, xs[:1]])),
            list(itertools.product(ns, repeat=2)),
            list(itertools.combinations(ns, 2)),
            list(itertools.permutations(ns, 2)),
            list(itertools.accumulate(xs)),
            list(itertools.accumulate(ns, operator.mul, initial=2)),
            list(itertools.islice(itertools.count(3, 2), 3)),
            list(itertools.zip_longest(ns, xs, fillvalue=None)),
            list(itertools.takewhile(lambda n: n < 3, ns)),
            list(itertools.dropwhile(lambda n: n < 3, ns)),
            [(k, list(g)) for k, g in itertools.groupby(ns, lambda n: n % 2)],
            list(itertools.pairwise(ns)),
            list(itertools.compress(xs, [1, 0, 1])),
            list(itertools.starmap(torch.add, [(x, n) for x, n in zip(xs, ns)])),
            list(itertools.repeat(7, 2)),
            [n for n, _ in zip(itertools.cycle(ns), range(5))],
            [list(each) for each in itertools.tee(ns)],
            list(itertools.filterfalse(lambda n: n % 2, ns)),
        ]
        return out

    x, y = t(2), t(2)
    return f, [([x, y], [1, 2, 3]), ([x, y], [3, 1, 4]), ([y], [1]), ([x, y, x], [2, 2, 5])]


@program("an itertools.count that is kept between calls")
def _():
    numbers = itertools.count(1)

    def f(x):
        return x * next(numbers)

    return f, [(t(2),), (t(2),), (t(3),)], lambda: repr(numbers)


@program("the operator module")
def _():
    get = operator.attrgetter("shape")
    item = operator.itemgetter(0, 1)
    call = operator.methodcaller("mul", 3)

    def f(x, y):
        return (
            operator.add(x, y),
            operator.matmul(x, y.t()),
            get(x),
            item(x),
            call(x),
            operator.truth([]),
            operator.is_(x, y),
            operator.index(3),
            operator.contains([1, 2], 2),
            operator.iadd(x.clone(), y),
        )

    x, y = t(2, 3), t(2, 3)
    return f, [(x, y), (y, x), (x, x), (t(3, 3), t(3, 3))]


@program("chained comparisons and short circuits")
def _():
    log = []

    def note(v):
        log.append(v)
        return v

    def f(x, a, b):
        r = note(a) < note(b) < note(3) or note("end")
        k = note(a) and note(b)
        return x * (2 if r is True else 1), r, k

    x = t(2)
    return f, [(x, 1, 2), (x, 0, 5), (x, 3, 1), (x, 0, 0)], lambda: log


@program("conditional expressions on None and on emptiness")
def _():
    def f(x, m=None, xs=()):
        y = x if m is None else x * m
        if not xs:
            return y
        return y + sum(xs)

    x = t(2)
    return f, [(x,), (x, x), (x, None, [x, x]), (x, x, (1,)), (x, None, [])]


@program("while, else, break and continue")
def _():
    def f(x, n):
        i = 0
        while i < n:
            i += 1
            if i == 2:
                continue
            if i == 5:
                break
            x = x + i
        else:
            x = x * 10
        for k in range(n):
            if k == 7:
                break
        else:
            x = -x
        return x, i

    x = t(2)
    return f, [(x, 1), (x, 4), (x, 6), (x, 9), (x, 0)]


@program("augmented assignments that are and are not in place")
def _():
    def f(x, xs, n):
        y = x * 1
        z = y
        y += 1
        w = (1, 2)
        w += (n,)
        xs += [n]
        n *= 2
        s = "a"
        s += "b"
        return y, z, y is z, w, xs, n, s

    x = t(2)
    return f, [(x, [1], 2), (x, [], 2.5), (x, [3, 4], 7)]


@program("chained assignment and swaps through containers")
def _():
    def f(x, d):
        a = b = x + 1
        i, xs = 0, [1, 2, 3]
        i, xs[i] = 2, 9
        d["k"], d["j"] = d["j"], d["k"]
        a, b = b * 2, a
        return a, b, xs, d

    x = t(2)
    return f, [(x, {"k": 1, "j": 2}), (x, {"k": x, "j": 2}), (x, {"k": 0, "j": 0})]


@program("del of names, items and attributes")
def _():
    class A:
        pass

    a = A()

    def f(x, xs, d):
        a.k = x + 1
        y = a.k * 2
        del a.k
        del xs[0], d["a"]
        z = xs.pop()
        del x
        return y, z, xs, d, hasattr(a, "k")

    x = t(2)
    return f, [
        lambda run: run(x, [1, 2, 3], {"a": 1}),
        lambda run: run(x, [1, x], {"a": 1, "b": x}),
        lambda run: run(x, [1], {"a": 1}),
        lambda run: run(x, [1, 2], {"b": 1}),
    ]
