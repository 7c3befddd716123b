"""Containers and generators."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B007, B905, F601, F841, RUF015

import bisect
import collections
import heapq
import types

import torch
from torch import nn

from kit.kinds.driver import program, t


@program("list methods of every kind")
def _():
    def f(x, ns):
        xs = [x, x * 2]
        xs.append(x * 3)
        xs.extend([x * 4])
        xs.insert(1, x * 5)
        last = xs.pop()
        second = xs.pop(1)
        xs.reverse()
        ns = list(ns)
        ns.sort(key=lambda n: -n)
        ns.remove(2)
        at = ns.index(3)
        count = ns.count(3)
        copied = ns.copy()
        ns.clear()
        xs[1:2] = [x, x]
        xs *= 2
        del xs[::2]
        return (
            xs,
            last,
            second,
            at,
            count,
            copied,
            ns,
            xs[-1] is xs[0],
            [0] * 3 + [1],
            [1, 2] < [1, 3],
        )

    x = t(2)
    return f, [(x, (1, 2, 3)), (x, (3, 2, 2)), (x, (1, 3)), (x, (2, 3))]


@program("lists of arguments that are changed in place")
def _():
    def f(x, xs):
        xs.append(x * 2)
        xs[0] = xs[0] + 1
        xs.sort(key=lambda v: v.shape[0])
        return len(xs)

    return f, [
        lambda run: (lambda xs: (run(t(2), xs), xs))([t(2)]),
        lambda run: (lambda xs: (run(t(3), xs), xs))([t(2), t(4)]),
        lambda run: (lambda xs: (run(t(2), xs), xs))([t(2)]),
        lambda run: (lambda xs: (run(t(2), xs), xs))([]),
    ]


@program("two arguments that are the same list, and then are not")
def _():
    def f(x, a, b):
        a.append(1)
        return x * len(b), a is b

    x = t(2)

    def same(run):
        a = []
        return run(x, a, a), a

    def other(run):
        a, b = [], []
        return run(x, a, b), a, b

    return f, [same, other, same, other]


@program("a list that holds itself")
def _():
    def f(x):
        xs = [x + 1]
        xs.append(xs)
        return xs[1][1][0], len(xs[1]), xs

    return f, [(t(2),), (t(2),), (t(3),)]


@program("dictionary methods of every kind")
def _():
    def f(x, d):
        d = dict(d)
        d.setdefault("a", x)
        d.setdefault("new", x * 2)
        d.update(b=3, **{"c": x})
        e = d | {"z": 1}
        d |= {"y": 2}
        gone = d.pop("a", None)
        none = d.pop("nothing", "default")
        last = d.popitem()
        keys, values = list(d.keys()), list(d.values())
        items = [(k, v) for k, v in sorted(d.items(), key=lambda kv: kv[0])]
        f = dict.fromkeys(["p", "q"], x)
        try:
            d["missing"]
        except KeyError as error:
            text = repr(error)
        return (
            d,
            e,
            gone,
            none,
            last,
            keys,
            values,
            items,
            f,
            text,
            d.keys() & {"b"},
            d.get("b"),
            list(reversed(d)),
            "b" in d,
        )

    x = t(2)
    return f, [(x, {"a": 1}), (x, {}), (x, {"b": x, "a": x}), (x, [("k", 2)])]


@program("dictionary views, their set operations and changes")
def _():
    def f(x, d):
        ks, vs = d.keys(), d.items()
        d["more"] = x * 2
        n = len(ks), len(vs)
        try:
            for k in d:
                d[k + "2"] = 1
        except RuntimeError as error:
            return (
                n,
                str(error),
                sorted(ks | {"q"}),
                sorted(ks - {"more"}),
                sorted(ks ^ {"more"}),
                ks <= {"more", "a"},
            )

    x = t(2)
    return f, [
        lambda run: run(x, {"a": 1}),
        lambda run: run(x, {"b": 1, "c": 2}),
        lambda run: run(x, {}),
    ]


@program("keys of dictionaries that are numbers, tuples, types, functions and modules")
def _():
    lin = nn.Linear(2, 2)

    def g():
        return 2

    table = {
        1: "one",
        1.5: "float",
        (1, "a"): "tuple",
        int: "type",
        g: "function",
        lin: "module",
        None: "none",
        True: "yes",
    }

    def f(x, key):
        d = {x.dtype: 1, torch.relu: 2, lin.weight: 3}
        return (
            table.get(key),
            table[int],
            table[g],
            table[lin],
            x * d[lin.weight],
            d[torch.float32],
            1.0 in table,
        )

    def change(run):
        table[int] = "changed"

    x = t(2)
    return f, [(x, 1), (x, (1, "a")), change, (x, None), (x, g), (x, 2)]


@program("tensors as keys and in sets")
def _():
    w = torch.ones(2)

    def f(x):
        y = x * 2
        d = {x: "x", y: "y"}
        s = {x, y, x}
        return d[x], d[y], len(s), w in {w: 1}, y, x in s

    return f, [(t(2),), (t(2),), (t(3),)]


@program("set methods of every kind")
def _():
    def f(x, a, b):
        s = set(a)
        s.add(9)
        s.discard(100)
        s.update(b, [7])
        out = [
            sorted(s | b), sorted(s & b), sorted(s - b), sorted(s ^ b), b <= s, s.isdisjoint(b), s.issuperset(b),
            sorted(s.union([1], [2])), sorted(s.difference(b)), len(s), 9 in s, frozenset(b) == b, sorted({n % 3 for n in s}),
        ]  # fmt: skip
        t2 = s.copy()
        t2 -= b
        t2 &= {9, 7}
        t2 ^= {1}
        try:
            s.remove(1000)
        except KeyError as error:
            out.append(error.args)
        return x * len(s), out, t2

    x = t(2)
    return f, [(x, [1, 2], frozenset({3})), (x, [3], frozenset({3, 4})), (x, [], frozenset())]


@program("a set as state that decides")
def _():
    seen = set()

    def f(x, name):
        if name in seen:
            return x * 2
        seen.add(name)
        return x + len(seen)

    x = t(2)
    return f, [(x, "a"), (x, "a"), (x, "b"), lambda run: seen.discard("a"), (x, "a")], lambda: seen


@program("collections of every kind")
def _():
    def f(x, words):
        c = collections.Counter(words)
        c.update(["z"])
        c.subtract(["z", "z"])
        dd = collections.defaultdict(list)
        for i, w in enumerate(words):
            dd[w].append(x * i)
        od = collections.OrderedDict((w, i) for i, w in enumerate(words))
        if od:
            od.move_to_end(next(iter(od)))
            first = od.popitem(last=False)
        else:
            first = None
        dq = collections.deque([x, x * 2], maxlen=3)
        dq.append(x * 3)
        dq.appendleft(x * 4)
        dq.rotate(1)
        cm = collections.ChainMap({"a": 1}, dict(c))
        return (
            c,
            c.most_common(1),
            dd,
            od,
            first,
            dq,
            cm["a"],
            sorted(cm),
            c["nothing"],
            c.total(),
            c + c,
        )

    x = t(2)
    return f, [(x, ["a", "b", "a"]), (x, ["b"]), (x, []), (x, ["a", "a"])]


@program("a deque, a default dictionary and a counter as state")
def _():
    window = collections.deque(maxlen=2)
    table = collections.defaultdict(lambda: torch.zeros(2))
    counts = collections.Counter()

    def f(x, key):
        window.append(x.sum())
        table[key] = table[key] + x.detach()
        counts[key] += 1
        return x * len(window) + counts[key], torch.stack(list(window)).detach().sum()

    x = t(2)
    return f, [(x, "a"), (x, "a"), (x, "b"), (x, "a")], lambda: (len(window), table, counts)


@program("an ordered dictionary and a mapping proxy")
def _():
    od = collections.OrderedDict(a=1, b=2)
    proxy = types.MappingProxyType({"k": 2})

    def f(x):
        od.move_to_end("a")
        return x * proxy["k"] + list(od.values())[0], list(od), dict(proxy), next(reversed(od))

    return f, [(t(2),), (t(2),), (t(3),)], lambda: od


@program("heapq and bisect")
def _():
    def f(x, ns):
        h = list(ns)
        heapq.heapify(h)
        heapq.heappush(h, 3)
        low = heapq.heappop(h)
        s = sorted(ns)
        at = bisect.bisect_left(s, 3)
        bisect.insort(s, 2)
        return x * low, h, at, s, heapq.nlargest(2, ns), heapq.nsmallest(1, ns, key=lambda n: -n)

    x = t(2)
    return f, [(x, (5, 1)), (x, (4, 2, 9)), (x, ()), (x, (3,))]


@program("comprehensions that are nested and filtered")
def _():
    def f(x, n):
        a = [[x * i + j for j in range(i)] for i in range(n) if i % 2]
        b = {k: v for k, v in zip(range(n), x.unbind(0))}
        c = {i // 2 for i in range(n)}
        d = sum(x * i for i in range(n) if i)
        return a, b, c, d, [y for row in a for y in row]

    return f, [(t(3), 2), (t(3), 4), (t(2), 1), (t(3), 0)]


@program("slices of containers with computed bounds")
def _():
    def f(x, xs, i, j):
        s = slice(i, j)
        return (
            xs[i:j],
            xs[::-1],
            x[s],
            xs[s],
            x[i:j:1],
            s.indices(len(xs)),
            x[..., None],
            x[None, i],
            (1, 2, 3)[-i:],
        )

    x = t(4)
    return f, [(x, [1, 2, 3], 0, 2), (x, [x, x], 1, 3), (x, [], 2, None), (x, [1], 3, 1)]


@program("range objects")
def _():
    def f(x, n, step):
        r = range(0, n, step)
        return (
            x * len(r),
            list(r),
            r[-1] if r else None,
            4 in r,
            r == range(0, n, step),
            r.index(0) if n > 0 else None,
            r[1:],
            sum(reversed(r)),
        )

    x = t(2)
    return f, [(x, 5, 1), (x, 6, 2), (x, 0, 1), (x, 5, -1), (x, 5, 0)]


# --- Generators ---------------------------------------------------------------------------------


@program("a generator that is used up")
def _():
    def gen(x, n):
        for i in range(n):
            yield x * i
        return "end"

    def f(x, n):
        g = gen(x, n)
        out = list(g)
        try:
            next(g)
        except StopIteration as stop:
            return out, stop.value, list(g)

    x = t(2)
    return f, [(x, 1), (x, 3), (x, 0)]


@program("a generator that is closed early")
def _():
    log = []

    def gen(x):
        try:
            yield x
            yield x * 2
        finally:
            log.append("closed")

    def f(x):
        g = gen(x)
        first = next(g)
        g.close()
        return first + 1, list(g)

    return f, [(t(2),), (t(2),), (t(3),)], lambda: log


@program("a generator that is sent values and exceptions")
def _():
    def gen(x):
        total = x
        while True:
            try:
                got = yield total
                if got is None:
                    return total
                total = total + got
            except ValueError as error:
                total = total * int(str(error))

    def f(x, n):
        g = gen(x)
        next(g)
        a = g.send(2)
        b = g.throw(ValueError(str(n)))
        try:
            g.send(None)
        except StopIteration as stop:
            return a, b, stop.value

    x = t(2)
    return f, [(x, 2), (x, 3), (x, 2)]


@program("yield from, with what it returns")
def _():
    def inner(x, n):
        for i in range(n):
            got = yield x + i
            if got:
                return got
        return x.sum()

    def outer(x, n):
        a = yield from inner(x, n)
        b = yield from [1, 2]
        yield a
        yield from (v for v in "ab")

    def f(x, n):
        g = outer(x, n)
        out = [next(g)]
        if n > 2:
            out.append(g.send(5))
        return out + list(g)

    x = t(2)
    return f, [(x, 1), (x, 3), (x, 2)]


@program("a generator that is returned")
def _():
    def f(x, n):
        y = x * 2
        return (y + i for i in range(n))

    x = t(2)
    return f, [
        lambda run: list(run(x, 2)),
        lambda run: list(run(x, 3)),
        lambda run: next(run(x, 1)),
        lambda run: list(run(x, 2)),
    ]


@program("a generator function that is compiled")
def _():
    def f(x):
        y = x + 1
        yield y
        yield y * 2

    return f, [
        lambda run: list(run(t(2))),
        lambda run: list(run(t(2))),
        lambda run: [next(run(t(3)))],
    ]


@program("a generator as state that goes on in each call")
def _():
    def gen():
        n = 1
        while True:
            yield n
            n *= 2

    g = gen()

    def f(x):
        return x * next(g)

    return f, [(t(2),), (t(2),), (t(3),), (t(2),)], lambda: g.gi_frame.f_locals["n"]


@program("generators that feed each other")
def _():
    def numbers(n):
        yield from range(n)

    def squares(it):
        for v in it:
            yield v * v

    def f(x, n):
        pipeline = squares(v + 1 for v in numbers(n))
        a = next(pipeline, None)
        return (
            a,
            [x * v for v in pipeline],
            any(v > 3 for v in squares(numbers(n))),
            max(squares(numbers(n)), default=-1),
        )

    x = t(2)
    return f, [(x, 3), (x, 5), (x, 0)]


@program("a generator whose side effects are interleaved")
def _():
    def f(x, n):
        log = []

        def gen():
            for i in range(n):
                log.append(f"make {i}")
                yield x * i

        for y in gen():
            log.append("use")
            if len(log) > 4:
                break
        return y if n else None, log

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 5), (x, 0)]


@program("a generator that raises, and StopIteration inside of one")
def _():
    def gen(x, way):
        yield x
        if way == 1:
            raise ValueError("inside")
        if way == 2:
            raise StopIteration
        yield x * 2

    def f(x, way):
        return list(gen(x, way))

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 0)]
