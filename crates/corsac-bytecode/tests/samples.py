"""Functions of all kinds, which scripts/generate_bytecode_fixtures.py compiles with each CPython.

What stands behind a line ``# from 3.N`` is compiled by 3.N and later only.
"""

import os.path as path
from math import *

limit: int = 3
flag = True


def parameters(a, /, b, c=1, *rest, d, e=2, **more) -> int:
    """With a docstring."""
    return a + b - c * len(rest) / d % e if more else -a // +b ** ~c


def operators(x, y):
    x += y; x -= y; x *= y; x /= y; x //= y; x %= y; x @= y
    x &= y; x |= y; x ^= y; x <<= y; x >>= y; x **= y
    return x @ y, x & y, x | y, x ^ y, x << y, x >> y, not x, x < y <= 3 != y > x >= 2 == y


def tests(x, y):
    assert x is not y, "why"
    if x is None or y is not None and x not in y:
        return x in y
    while x is not None:
        x = x.next
    return None


def containers(a, b):
    items = [a, *b, 1]
    kinds = {a, *b, "x"}
    table = {"a": a, **b, "c": {1: 2, 3: a}}
    first, *middle, last = items
    (one, two), three = b
    items[1:2] = items[a:b:2]
    del items[0], table["a"], a.name
    a.name, b[0] = b[0], a.name
    return items[1:], kinds, (a, b), [1, 2, 3, 4], {1, 2, 3}, f"{a!r:>{b}} {b!s} {a!a}", first, middle, last, one, two, three


def comprehensions(rows):
    total = [x * y for x in rows if x for y in rows]
    return {x for x in total}, {x: y for x, y in total}, (x + len(total) for x in total), any(x > 1 for x in rows)


def calls(f, *args, **kwargs):
    f(1, 2, key=3)
    f.method(1, *args, k=2, **kwargs)
    f(*args)
    return f.method(f, limit=limit, x=f(1)), print(f"{f}", end="")


def closures(n):
    count = 0

    def inner(step=n, *, other: int = 2):
        nonlocal count
        count += step + n
        return lambda: count + other
    del n
    return inner


def loops(rows):
    for i, row in enumerate(rows):
        for x in row:
            if x == 1:
                continue
            if x == 2:
                break
        else:
            return i
    while True:
        try:
            rows.pop()
        except (IndexError, ValueError) as error:
            raise RuntimeError("empty") from error
        except KeyError:
            pass
        else:
            continue
        finally:
            rows.close()


def empty_tries(rows):
    while rows:
        try:
            continue
        except OSError:
            rows = None
        finally:
            limit = 1
    return limit


def contexts(a, b):
    with a as x, b:
        with open(x) as file:
            return file.read()
    try:
        raise
    finally:
        with a:
            pass


def groups(f):
    try:
        f()
    except* ValueError as e:
        print(e)
    except* (OSError, TypeError):
        pass


def nested_groups(f):
    try:
        try:
            f()
        except* ValueError as e:
            pass
    except OSError:
        pass


def matching(x):
    match x:
        case {"a": 1, "b": [y, *_], **rest}:
            return y, rest
        case (1 | 2) as z if z > limit:
            return z
        case str(real=w) | int(w):
            return w
        case None:
            return 0
        case _:
            return -1


def generator(n):
    sent = yield n
    while sent:
        try:
            sent = yield from generator(n - 1)
        except GeneratorExit:
            return sent
    yield


async def coroutine(rows, lock):
    async with lock as held:
        async for row in rows:
            await row
            if row:
                break
        else:
            return [x async for x in rows if await x]
    return {await x: held async for x in rows}


async def asynchronous(rows):
    async for row in rows:
        got = yield row
        await got


class Base:
    """A class."""

    x: int = 1
    limit = limit

    def __init__(self, x):
        super().__init__()
        self.x = x
        super().x.y
        __class__

    class Inner:
        z = 2

    def method(self):
        global flag
        flag = self.x
        del flag
        import a.b as c, d
        from e import f as g, h
        return c, d, g, h


class Derived(Base, metaclass=type):
    name = [letter for letter in "ab"]


def unbound(x):
    if x:
        y = 1
    del x
    return y, (lambda z: (z, y))


if flag:
    conditional: "text" = 2

# from 3.12


def generic[T: int, *Ts, **P](x: T, y=1, *, z=2) -> T:
    return [lambda: (x, item) for item in y]


class Typed[T]:
    value: T


type Alias[T] = list[T]


class WithComprehension:
    both = [(i, j) for i in range(2) for j in range(i)]

# from 3.13


def defaults[T = int](x: T):
    return x

# from 3.14


def templates(a):
    return t"{a!r:>3} text {a}"


def common(rows):
    assert all(rows), any(x for x in rows)
    return tuple(x for x in rows), 7, 255, 256
