"""Traced values that a program converts to numbers or arrays: one kind of error, with advice."""

import functools
import math
import operator

import numpy as np
import pytest
import torch
import torch.fx

import corsac.fx
from corsac.fx.proxy import TraceError

#: The conversion, torch.fx's exception, the first line, and a word of the advice.
CONVERSIONS = {
    "range": (lambda x: range(x.shape[0]), TypeError, "as an integer", "torch.arange"),
    "index of a list": (lambda x: [1, 2][x], TypeError, None, "torch.arange"),
    "slice of a list": (lambda x: [1, 2][: x.size(0)], TypeError, None, "torch.arange"),
    "operator.index": (lambda x: operator.index(x), TypeError, "as an integer", "torch.arange"),
    "int": (lambda x: int(x), TypeError, "int() argument must be", "x.to(dtype)"),
    "float": (lambda x: float(x), TypeError, "float() argument must be", "x.to(dtype)"),
    "complex": (lambda x: complex(x), TypeError, "complex() first argument", "x.to(dtype)"),
    "round": (lambda x: round(x), TypeError, "__round__", "torch.round"),
    "round to digits": (lambda x: round(x, 2), TypeError, "__round__", "torch.round"),
    "format": (lambda x: f"{x:.2f}", TypeError, "passed to Proxy.__format__", "leave the format"),
    "divmod": (lambda x: divmod(x, 2), TypeError, "'Proxy' and 'int'", "x // n"),
    "divmod from the right": (lambda x: divmod(2, x), TypeError, "'int' and 'Proxy'", "x // n"),
    "np.sin": (lambda x: np.sin(x), ValueError, "invalid __array_struct__", "torch.sin"),
    "np.array": (lambda x: np.array(x), ValueError, "invalid __array_struct__", "torch.sin"),
    "array + x": (lambda x: np.ones(3) + x, ValueError, "invalid __array_struct__", "torch.sin"),
}


@pytest.mark.parametrize("what", CONVERSIONS)
def test_the_error_says_where_what_and_what_to_try(what):
    function, error, first, advice = CONVERSIONS[what]
    with pytest.raises(error):
        torch.fx.symbolic_trace(function)
    with pytest.raises(error) as raised:
        corsac.fx.symbolic_trace(function)
    text = str(raised.value)
    assert isinstance(raised.value, TraceError), text
    assert first is None or first in text.splitlines()[0]
    assert f'at: File "{__file__}"' in text and "value: %" in text and advice in text


def test_programs_may_catch_what_they_catch():
    def function(x):
        try:
            return x + int(x)
        except TypeError:
            return x * 2

    for fx in (torch.fx, corsac.fx):
        assert fx.symbolic_trace(function)(torch.ones(1)).item() == 2


def test_what_is_recorded_stays_recorded():
    def function(x):
        zeros = torch.zeros((x.shape[0], x.size(1)))
        picked = torch.arange(4)[x.long()]
        return math.sqrt(x.shape[0]), zeros, picked, 2 * x, [0] * 2, torch.full((x.shape[0],), 1.0)

    texts = [str(fx.symbolic_trace(function).graph) for fx in (torch.fx, corsac.fx)]
    assert texts[0] == texts[1]


def hiding(function):
    """A decorator that hides the parameters of a function."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def test_parameters_that_a_decorator_hides():
    @hiding
    def function(x, y, *, scale, offset=1):
        return x * scale + offset * y

    gm = corsac.fx.symbolic_trace(function)
    x = torch.ones(2)
    assert torch.equal(gm(x, 3, 4, 5), function(x, 3, scale=4, offset=5))

    class Decorated(torch.nn.Module):
        @hiding
        def forward(self, x, *, scale):
            return x * scale

    gm = corsac.fx.symbolic_trace(Decorated())
    assert torch.equal(gm(x, 3), x * 3)


def test_parameters_that_no_decorator_can_pass_on():
    @hiding
    def function(x, *rest, **named):
        return x

    with pytest.raises(ValueError, match="co_varnames is too small") as raised:
        corsac.fx.symbolic_trace(function)
    assert __file__ in str(raised.value) and "without its decorator" in str(raised.value)


def test_first_lines_of_messages_are_those_of_torch_fx():
    def order(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.neg, (x,))
        y.prepend(graph.call_function(torch.abs, (y,)))
        graph.lint()

    def names(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch.neg, (x,)).name = "x"
        graph.lint()

    def erased(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch.neg, (x,))
        graph.call_function(torch.neg, (x,))
        graph.erase_node(x)

    def moved(fx):
        fx.Graph().placeholder("x").append(fx.Graph().placeholder("y"))

    def inserted(fx):
        fx.Graph().inserting_after(fx.Graph().placeholder("y"))

    def wrong_graph(fx):
        fx.Graph().erase_node(fx.Graph().placeholder("y"))

    def opcode(fx):
        fx.Graph().create_node("call", "x")

    for program in (order, names, erased, moved, inserted, wrong_graph, opcode):
        lines = []
        for fx in (torch.fx, corsac.fx):
            with pytest.raises((RuntimeError, AssertionError)) as raised:
                program(fx)
            lines.append(str(raised.value).splitlines()[0])
        assert lines[0] == lines[1]


def test_the_warning_of_an_attribute_that_is_not_there():
    texts = []
    for fx in (torch.fx, corsac.fx):
        gm = fx.GraphModule(torch.nn.Module(), fx.Graph())
        with pytest.warns(UserWarning) as raised:
            gm.graph.get_attr("nothing")
        texts.append(str(raised[0].message).splitlines()[0])
    assert texts[0] == texts[1]
