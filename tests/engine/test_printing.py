"""Programs that print, log and warn: each call does so once, with the values of that call."""

import contextlib
import functools
import io
import logging
import sys
import warnings

import pytest
import torch

import corsac
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
LINEAR = torch.nn.Linear(4, 4)
with torch.no_grad():
    for own in LINEAR.parameters():
        # Sums are exact, in whatever order, since the texts are compared.
        own.copy_(torch.arange(own.numel()).reshape(own.shape) % 7 / 4 - 0.5)
LOGGER = logging.getLogger("corsac.tests.printing")


class Watched:
    """Records output to one buffer, to a logger, and warnings."""

    def __init__(self):
        self.buffer = io.StringIO()
        self.handler = logging.StreamHandler(self.buffer)
        text = "%(levelname)s %(name)s %(filename)s:%(lineno)d %(funcName)s %(message)s"
        self.handler.setFormatter(logging.Formatter(text))

    def call(self, function, *args):
        self.buffer.seek(0)
        self.buffer.truncate()
        LOGGER.addHandler(self.handler)
        LOGGER.setLevel(logging.INFO)
        try:
            with (
                contextlib.redirect_stdout(self.buffer),
                warnings.catch_warnings(record=True) as caught,
                torch.no_grad(),
            ):
                warnings.simplefilter("always")
                # Not a warning of the program.
                warnings.filterwarnings("ignore", category=corsac.HostWarning)
                result = function(*args)
        finally:
            LOGGER.removeHandler(self.handler)
        seen = [(str(own.message), own.category, own.filename, own.lineno) for own in caught]
        return result, self.buffer.getvalue(), seen


def check(function, *, calls=5, recorded=True):
    compiled = corsac.compile(function, options={"inference": "native"})
    watched = Watched()
    for call in range(calls):
        torch.manual_seed(call)
        x = torch.randint(-4, 5, (3, 4)) / 2
        expected, found = watched.call(function, x), watched.call(compiled, x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:]
    module = module_of(compiled)
    if recorded:
        assert module._recorded.programs() and module._dynamo is None, compiled.explain()
        assert not module._reasons, compiled.explain()
    return compiled


def test_constants_numbers_and_tensors_are_printed():
    def function(x, n=3):
        print("shape", x.shape, x.dtype, sep="|")
        y = LINEAR(x).relu()
        print("y", y[0], (n, y.sum()), end="!\n")
        print("number", y.max().item() > -1)
        return y * 2

    check(function)


def test_numbers_of_values():
    def function(x):
        total = (x > 0).sum().item()
        print("total", total, total + 1)
        return LINEAR(x).relu() * 2

    compiled = check(function, calls=8)
    assert len(module_of(compiled)._recorded.programs()) == 1


def test_what_is_written():
    def function(x):
        y = LINEAR(x).relu()
        sys.stdout.write("written\n")
        return y * 2

    check(function)


def test_logs():
    def function(x):
        y = LINEAR(x).relu()
        LOGGER.info("sum %s of %d", y.sum(), 3)
        LOGGER.debug("never %s", y)
        LOGGER.warning("plain")
        return y * 2

    check(function)


def test_levels_of_loggers_are_guarded():
    def function(x):
        y = LINEAR(x).relu()
        LOGGER.debug("sum %s", y.sum())
        return y * 2

    compiled = corsac.compile(function, options={"inference": "native"})
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    LOGGER.addHandler(handler)
    try:
        with torch.no_grad():
            for level in (logging.INFO, logging.INFO, logging.DEBUG, logging.DEBUG, logging.INFO):
                LOGGER.setLevel(level)
                compiled(torch.ones(3, 4))
    finally:
        LOGGER.removeHandler(handler)
    assert len(lines) == 2 and all(line.startswith("sum tensor(") for line in lines)


def warns_others():
    warnings.warn("inner", DeprecationWarning, stacklevel=2)


def test_warnings():
    def function(x):
        warnings.warn("careful", stacklevel=1)
        warns_others()
        return LINEAR(x).relu() * 2

    check(function)


def test_a_warning_that_is_shown_once():
    def function(x):
        warnings.warn("once", stacklevel=1)
        return LINEAR(x).relu() * 2

    counts = []
    for run in (function, corsac.compile(function, options={"inference": "native"})):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("default")
            for _ in range(5):
                run(torch.ones(3, 4))
        counts.append([str(own.message) for own in caught])
    assert counts == [["once"], ["once"]]


def test_warnings_that_are_exceptions():
    def function(x):
        try:
            warnings.warn("careful", RuntimeWarning, stacklevel=1)
        except RuntimeWarning:
            return LINEAR(x).relu() * 3
        return LINEAR(x).relu() * 2

    compiled = corsac.compile(function, options={"inference": "native"})
    x = torch.ones(3, 4)
    for action in ("ignore", "ignore", "error", "error", "ignore"):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter(action)
            warnings.filterwarnings("ignore", category=corsac.HostWarning)
            torch.testing.assert_close(compiled(x), function(x))


def test_warnings_are_ignored_in_a_part():
    def function(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("unheard", stacklevel=1)
        return LINEAR(x).relu() * 2

    check(function, recorded=False)

    def quiet(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = LINEAR(x).relu()
        return y * 2

    check(quiet)


def test_what_changes_after_it_was_printed():
    def tensor(x):
        y = LINEAR(x).relu()
        print(y)
        y.mul_(2)
        return y + 1

    def container(x):
        found = [1, 2]
        print(found)
        found.append(3)
        return LINEAR(x).relu() * len(found)

    def given(x):
        print(x)
        x = x.clone()
        x.add_(1)
        print(x)
        return LINEAR(x).relu() * 2

    for function in (tensor, container):
        check(function, recorded=False)
    check(given)


def test_files_that_the_program_opens():
    def function(x):
        file = io.StringIO()
        print("text", file=file)
        with contextlib.redirect_stdout(file):
            print("more")
        return LINEAR(x).relu() * len(file.getvalue())

    check(function, recorded=False)


class Collects(io.TextIOBase):
    """Printing runs its own Python code."""

    def __init__(self):
        self.texts = []

    def write(self, text):
        self.texts.append(text)
        return len(text)


def test_streams_of_users():
    def function(x):
        print("one", "two")
        return LINEAR(x).relu() * 2

    compiled = corsac.compile(function, options={"inference": "native"})
    stream = Collects()
    with contextlib.redirect_stdout(stream), torch.no_grad():
        for _ in range(4):
            compiled(torch.ones(3, 4))
    assert "".join(stream.texts) == "one two\n" * 4


def test_nothing_is_printed_by_ways_that_are_given_up():
    """Prints come last: a call that takes another path has printed nothing."""

    def function(x):
        print("begin")
        y = LINEAR(x).relu()
        if x.sum() > 0:
            print("more")
            return y * 2
        print("less")
        return y - 1

    compiled = check(function, calls=12)
    assert len(module_of(compiled)._recorded.programs()) == 2


def test_an_operator_that_fails_after_prints():
    table = torch.nn.Embedding(4, 4)

    def function(x, at):
        print("before")
        y = LINEAR(x).relu() + table(at)
        print("after")
        return y * 2

    compiled = corsac.compile(function, options={"inference": "native"})
    texts = []
    for run in (function, compiled):
        buffer = io.StringIO()
        with contextlib.redirect_stdout(buffer), torch.no_grad():
            for at in (0, 1, 9, 2):
                with contextlib.suppress(IndexError):
                    run(torch.ones(3, 4), torch.tensor([at]))
        texts.append(buffer.getvalue())
    assert texts[0] == texts[1]


def test_printed_tensors_are_not_kept():
    import gc
    import weakref

    kept = []

    def function(x):
        y = LINEAR(x).relu()
        kept.append(weakref.ref(y))
        print(y.sum())
        return y.sum() * 2

    compiled = corsac.compile(function, options={"inference": "native"})
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        for _ in range(2):
            compiled(torch.ones(3, 4))
    gc.collect()
    assert all(own() is None for own in kept)


def test_training_prints_too():
    def function(x):
        print("training")
        return LINEAR(x).relu().sum()

    compiled = corsac.compile(function)
    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            compiled(torch.ones(3, 4)).backward()
    assert buffer.getvalue() == "training\n" * 5


SEPARATED = functools.partial(print, sep="|")


def by_map(x):
    list(map(print, [1, 2]))
    return LINEAR(x).relu() * 2


def by_partial(x):
    SEPARATED("a", "b", end="!\n")
    return LINEAR(x).relu() * 2


def by_filter(x):
    [*filter(print, [1, 2])]
    return LINEAR(x).relu() * 2


def by_key(x):
    sorted([1], key=print)
    return LINEAR(x).relu() * 2


def by_another_name(x):
    out = print
    for number in range(2):
        out(number, 1, end=" ")
    return LINEAR(x).relu() * 2


@pytest.mark.parametrize("function", [by_map, by_partial, by_filter, by_key, by_another_name])
def test_prints_that_something_else_calls(function):
    check(function, recorded=function is by_another_name)
