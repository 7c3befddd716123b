"""Context managers, exceptions and texts."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B007, B009, B012, B018, B028, B904, F841, UP031, UP032

import contextlib
import io
import json
import logging
import math
import re
import string
import sys
import warnings

import torch
from torch import nn

from kit.kinds.driver import plain, program, set_global, t


@program("a context manager class that counts and swallows")
def _():
    class Ctx:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("in")
            return len(self.log)

        def __exit__(self, kind, value, trace):
            self.log.append(kind.__name__ if kind else "out")
            return kind is ValueError

    ctx = Ctx()

    def f(x, way):
        with ctx as n:
            y = x * n
            if way == 1:
                raise ValueError("swallowed")
            if way == 2:
                raise KeyError("not swallowed")
            return y
        return x - 1

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 0)], lambda: ctx.log


@program("contextlib.contextmanager with arguments, yields and exceptions")
def _():
    log = []

    @contextlib.contextmanager
    def scope(name, k):
        log.append(f"enter {name}")
        try:
            yield k * 2
        except ZeroDivisionError:
            log.append("caught")
        finally:
            log.append(f"leave {name}")

    def f(x, n):
        with scope("a", n) as k, scope("b", k) as j:
            x = x * j
            x = x + 1 / n
        return x

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 0), (x, 1)], lambda: log


@program("ExitStack, nullcontext, suppress, closing and redirect_stdout")
def _():
    log = []

    class Thing:
        def close(self):
            log.append("closed")

    def f(x, n):
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "called")
            for i in range(n):
                stack.enter_context(contextlib.closing(Thing()))
            x = x * n
        with contextlib.nullcontext(3) as k:
            x = x + k
        with contextlib.suppress(KeyError, ZeroDivisionError):
            x = x + 1
            1 // n
            x = x * 10
        return x

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 0), (x, 1)], lambda: log


@program("a context manager as a decorator")
def _():
    log = []

    class Ctx(contextlib.ContextDecorator):
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, *info):
            log.append("out")
            return False

    @Ctx()
    def g(x):
        return x * 2

    @contextlib.contextmanager
    def other():
        log.append("other")
        yield

    @other()
    def f(x):
        return g(x) + 1

    return f, [(t(2),), (t(2),), (t(3),)], lambda: log


@program("a context manager that changes a global while it is entered")
def _():
    globals()["SCALE"] = 2.0

    @contextlib.contextmanager
    def scaled(k):
        global SCALE
        before = SCALE
        SCALE = k
        try:
            yield
        finally:
            SCALE = before

    def f(x, k):
        with scaled(k):
            y = x * SCALE
        return y + SCALE

    x = t(2)
    return f, [(x, 3), (x, 4), set_global(globals(), "SCALE", 1.0), (x, 3)], lambda: SCALE


@program("a context manager around the call of what is compiled")
def _():
    state = {"k": 1}

    @contextlib.contextmanager
    def setting(k):
        state["k"], before = k, state["k"]
        yield
        state["k"] = before

    def f(x):
        return x * state["k"]

    def call(k):
        def go(run):
            with setting(k):
                return run(t(2))

        return go

    return f, [call(2), call(3), call(2), (t(2),)], lambda: state


@program("returns, breaks and continues out of with blocks")
def _():
    log = []

    @contextlib.contextmanager
    def scope(i):
        yield log.append(i)
        log.append(-i)

    def f(x, n):
        for i in range(1, 5):
            with scope(i):
                if i == n:
                    return x * i
                if i == 3:
                    break
                if i == 1:
                    continue
            x = x + 1
        return x

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 3), (x, 4)], lambda: log


# --- Exceptions ---------------------------------------------------------------------------------


@program("try, except, else and finally on every way")
def _():
    log = []

    def f(x, d, key):
        try:
            y = x * d[key]
        except KeyError as error:
            log.append(error.args[0])
            return x - 1
        except (TypeError, ValueError):
            log.append("type")
            raise
        else:
            log.append("else")
            return y
        finally:
            log.append("finally")

    x = t(2)
    return (
        f,
        [(x, {"a": 2}, "a"), (x, {}, "a"), (x, {"a": "s"}, "a"), (x, {"a": 3}, "a")],
        lambda: log,
    )


@program("a return in finally that swallows")
def _():
    def f(x, way):
        for i in range(3):
            try:
                if way == 0:
                    raise ValueError("lost")
                if way == 1:
                    return x * 2
                if way == 2:
                    continue
                break
            finally:
                if way < 2:
                    return x + i
        return x - i

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 3)]


@program("raise from, chained and suppressed causes")
def _():
    class Mine(Exception):
        def __init__(self, code, text):
            super().__init__(text)
            self.code = code

    def f(x, way):
        y = x * 2
        try:
            try:
                {}["k"]
            except KeyError as error:
                if way == 0:
                    raise Mine(3, "from") from error
                if way == 1:
                    raise Mine(4, "context")
                if way == 2:
                    raise Mine(5, "none") from None
                raise
        except Mine as error:
            if way == 2:
                raise
            return (
                y * error.code,
                str(error),
                error.__cause__ is None,
                type(error.__context__).__name__,
                error.__suppress_context__,
            )

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 3)]


@program("exceptions of operators that the program catches")
def _():
    def f(x, y):
        try:
            return x @ y
        except RuntimeError as error:
            return x * 2, "size" in str(error) or "shape" in str(error) or "match" in str(error)

    return f, [(t(2, 3), t(3, 2)), (t(2, 3), t(2, 3)), (t(2, 3), t(3, 2)), (t(2, 3), t(4))]


@program("exceptions of operators that nobody catches")
def _():
    log = []

    def f(x, y):
        log.append(1)
        z = x + y
        log.append(2)
        return z

    return f, [(t(2), t(2)), (t(2), t(3)), (t(2), t(2)), (t(2), t(4))], lambda: log


@program("an exception that leaves half of the changes")
def _():
    state = {"n": 0}

    def f(x, n):
        state["n"] += 1
        state["x"] = x * 2
        if n > 2:
            raise ValueError(f"too many: {n}")
        state["n"] += 10
        return x + state["n"]

    x = t(2)
    return f, [(x, 1), (x, 3), (x, 1), (x, 5)], lambda: state


@program("an exception that depends on a value")
def _():
    log = []

    def f(x):
        y = x.exp() + 1
        if x.sum() > 0:
            log.append("positive")
            raise ValueError("positive")
        log.append("negative")
        return y

    up, down = torch.ones(2), -torch.ones(2)
    return f, [(up,), (down,), (up,), (down * 2,)], lambda: log


@program("assert with and without messages, on values and sizes")
def _():
    def f(x, n):
        assert n > 0, f"n is {n}"
        assert x.shape[0] > 1
        assert (x == x).all(), "not a number"
        return x * n

    return f, [(t(2), 1), (t(2), 0), (t(1), 1), (torch.full((2,), math.nan), 1), (t(2), 1)]


@program("exception groups and notes")
def _():
    def f(x, way):
        out = []
        try:
            raise ExceptionGroup("many", [ValueError(1), KeyError("k")][: way + 1])
        except* ValueError as group:
            out.append(len(group.exceptions))
        except* KeyError as group:
            out.append("key")
        error = ValueError("noted")
        error.add_note("a note")
        return x * len(out), out, error.__notes__

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 0)]


@program("sys.exc_info and the deletion of the caught name")
def _():
    def f(x, n):
        error = "before"
        try:
            x / 1
            [][n]
        except IndexError as error:
            kind = sys.exc_info()[0].__name__
        after = sys.exc_info()
        try:
            return x * 2, kind, after, error
        except UnboundLocalError as e:
            return x + 1, kind, str(e)

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("exceptions of Python that are asked for their text")
def _():
    def f(x, way):
        try:
            if way == 0:
                int("a")
            if way == 1:
                [1][5]
            if way == 2:
                None.foo
            if way == 3:
                "a" + 1
            if way == 4:
                1 / 0
            if way == 5:
                a, b = [1]
            if way == 6:
                next(iter([]))
            if way == 7:
                x.no_such_attribute
            if way == 8:
                nn.Linear(2, 2).nothing
            if way == 9:
                {}[x]
            if way == 10:
                x.view(7)
            if way == 11:
                raise NotImplementedError
            if way == 12:
                getattr(math, "nothing")
        except Exception as error:
            return x + 1, type(error).__name__, str(error)

    x = t(2)
    return f, [(x, way) for way in range(13)]


@program("exceptions that user classes raise in protocols")
def _():
    class Bad:
        def __len__(self):
            raise ValueError("no length")

        def __bool__(self):
            raise TypeError("no truth")

        def __iter__(self):
            raise OSError("no iteration")

        def __getitem__(self, key):
            raise LookupError(key)

    def f(x, way):
        b = Bad()
        try:
            if way == 0:
                len(b)
            if way == 1 and b:
                pass
            if way == 2:
                list(b)
            if way == 3:
                b["k"]
        except Exception as error:
            return x * (way + 2), repr(error)

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 3)]


# --- Texts --------------------------------------------------------------------------------------


@program("format strings with sizes, dtypes and specifications")
def _():
    def f(x, name, v):
        return (
            x + 1,
            f"{name!r:>8}|{v:08.3f}|{x.shape}|{x.dtype}|{x.device}|{x.dim()=}|{{}}",
            "{0} {k}".format(name, k=v),
            "%s-%05.1f" % (name, v),
        )

    return f, [(t(2), "a", 1.5), (t(3), "bc", 2.0), (t(2, 2), "a", math.inf), (t(2), "a", 1)]


@program("string methods of every kind")
def _():
    def f(x, s):
        out = [
            s.upper(), s.lower(), s.title(), s.strip(), s.split(), s.split("."), s.rsplit(".", 1), s.partition("."), s.replace("a", "o"),
            s.startswith(("a", "b")), s.endswith("z"), s.find("b"), s.count("a"), s.join(["1", "2"]), s.zfill(8), s.center(9, "*"),
            s.isdigit(), s.isidentifier(), s.encode(), s.encode().decode(), s[::-1], s * 2, s in "abc", sorted(s), s.splitlines(),
            s.removeprefix("a"), s.translate(str.maketrans("a", "b")), s.casefold(), ord(s[0]) if s else 0, chr(97), s.swapcase(), s < "b",
        ]  # fmt: skip
        return x * len(s), out

    x = t(2)
    return f, [(x, "abc"), (x, "a.b.c"), (x, ""), (x, "12")]


@program("regular expressions, json, and templates of strings")
def _():
    pattern = re.compile(r"(\w+)\.(\d+)")

    def f(x, s):
        m = pattern.match(s)
        if m is None:
            return x, re.sub("a", "b", s), re.split(r"\W", s)
        data = json.loads(json.dumps({"k": [1, 2], "n": m.group(1)}))
        return (
            x * int(m.group(2)),
            data,
            string.Template("$a!").substitute(a=s),
            re.findall(r"\d", s),
        )

    x = t(2)
    return f, [(x, "layer.3"), (x, "layer.4"), (x, "other a"), (x, "layer.3")]


@program("print of numbers, sizes and tensors")
def _():
    def f(x, n):
        print("n", n, x.shape, sep="|", end=";\n")
        y = x * n
        print(f"sum {y.sum():.3f}")
        print(y)
        return y

    return f, [(plain(2), 1), (plain(2), 2), (plain(3), 1), (plain(2), 1)]


@program("print between changes of a list")
def _():
    def f(x):
        xs = [1]
        print(xs)
        xs.append(2)
        print(xs)
        return x * 2

    return f, [(t(2),), (t(2),), (t(3),)]


@program("print before an exception")
def _():
    def f(x, n):
        print("before", n)
        if n > 1:
            raise ValueError(n)
        print("after", n)
        return x * n

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1), (x, 2)]


@program("sys.stdout.write and print to a file")
def _():
    def f(x, n):
        sys.stdout.write(f"n={n}\n")
        out = io.StringIO()
        print("inside", n, file=out)
        return x * n, out.getvalue()

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("logging with levels that are changed")
def _():
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append((record.levelname, record.getMessage()))

    logger = logging.getLogger("kinds")
    logger.handlers[:] = [Keep()]
    logger.propagate = False
    logger.setLevel(logging.INFO)

    def f(x, n):
        logger.debug("debug %d", n)
        if logger.isEnabledFor(logging.INFO):
            logger.info("info %s", x.shape)
        logger.warning("sum %.2f", n * 2.0)
        return x * n

    def louder(run):
        logger.setLevel(logging.DEBUG)

    def quieter(run):
        logger.setLevel(logging.ERROR)

    x = t(2)
    return f, [(x, 1), (x, 2), louder, (x, 1), quieter, (x, 3)], lambda: records


@program("warnings.warn, and filters that make them errors")
def _():
    def f(x, n):
        y = x * 2
        if n > 1:
            warnings.warn(f"n is {n}", UserWarning)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return y + n

    def as_errors(run):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return run(t(2), 3)

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 2), as_errors, (x, 1)]


@program("warnings that are caught in the program")
def _():
    def f(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("inside", UserWarning)
        return x * 2, len(caught)

    return f, [(t(2),), (t(2),), (t(3),)]
