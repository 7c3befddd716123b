"""Functions, closures and arguments."""

# Programs are written the way users write them: what they do matters, not how they say it.
# ruff: noqa: B006, B023, B905

import dataclasses
import functools
import inspect
import itertools
import operator

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
