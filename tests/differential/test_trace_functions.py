"""Tracing free functions: names, constants, containers and the resulting graph."""

import math
from math import sqrt

import pytest
import torch
from torch.nn import functional as F

from kit import differential


def show(fx, rec, function, *inputs, label="traced"):
    """Trace a function, record the module, and run it on the inputs."""
    traced = rec.call(label, fx.symbolic_trace, function)
    if inputs and traced is not None:
        rec.call(f"{label}: result", traced, *inputs)
    return traced


@differential
def test_arithmetic(fx, rec):
    def f(x, y):
        return (x + y) * 2 - y / 3 + x**2

    show(fx, rec, f, torch.randn(3), torch.randn(3))


@differential
def test_functions_methods_and_operators(fx, rec):
    def f(x):
        a = torch.relu(x)
        b = F.gelu(a)
        c = b.view(-1).sum(dim=0, keepdim=True)
        d = torch.nn.functional.softmax(c, dim=-1)
        return d, torch.cat([a, b]), a.size(0)

    show(fx, rec, f, torch.randn(2, 3))


@differential
def test_names_are_unique_and_snake_case(fx, rec):
    def f(x):
        y = x.relu()
        z = y.relu()
        w = torch.relu(z)
        return torch.nn.functional.hardtanh(w) + torch.add(y, z) + torch.add(z, w)

    show(fx, rec, f, torch.randn(2))


@differential
def test_argument_names_that_are_builtins_or_keywords_of_functions(fx, rec):
    def f(input, len, list, max, sum):
        return torch.max(input + len, list) + max * sum

    show(fx, rec, f, *torch.randn(5, 3))


@differential
def test_argument_named_like_a_generated_name(fx, rec):
    def f(add, add_1, relu, x):
        y = add + add_1
        z = y + relu
        return z.relu() + x

    show(fx, rec, f, *torch.randn(4, 2))


@differential
def test_no_arguments(fx, rec):
    def f():
        return 4

    show(fx, rec, f)


@differential
def test_unused_arguments(fx, rec):
    def f(x, unused, y=3):
        return x

    show(fx, rec, f, torch.randn(1), 2)


@differential
def test_returns_nested_containers(fx, rec):
    def f(x, y):
        return {"a": [x, (y, None)], "b": (x + y,), "c": {"d": 1.5, "e": "text"}, 3: ()}

    show(fx, rec, f, torch.randn(2), torch.randn(2))


@pytest.mark.parametrize("value", [None, 1, 2.5, "text", True, (), [], {}, (1, [2, {"k": 3}])])
@differential
def test_returns_a_constant(fx, rec, value):
    show(fx, rec, lambda x: value, 1)


@differential
def test_returns_an_argument_twice(fx, rec):
    show(fx, rec, lambda x: (x, x), torch.randn(2))


@differential
def test_tensor_constant(fx, rec):
    constant = torch.arange(3.0)

    def f(x):
        return x + constant + torch.ones(3) + constant

    traced = show(fx, rec, f, torch.randn(3))
    rec("constants", sorted(k for k in traced.__dict__["_buffers"]))


@differential
def test_tensor_made_inside_the_function_from_no_proxy(fx, rec):
    def f(x):
        zero = torch.zeros(2, 3)
        return zero @ x

    show(fx, rec, f, torch.randn(3, 2))


@differential
def test_constant_folding_of_python_values(fx, rec):
    def f(x):
        size = 3 * 4
        if size > 10:
            x = x + size
        for i in range(3):
            x = x * i
        return x

    show(fx, rec, f, torch.randn(3))


@differential
def test_math_functions_are_wrapped_automatically(fx, rec):
    def f(x):
        return math.sqrt(x.size(0)) + math.floor(x.size(1)) + sqrt(x.size(0)) + math.sqrt(4)

    show(fx, rec, f, torch.randn(4, 2))


@differential
def test_autowrapped_functions_and_modules(fx, rec):
    def f(x):
        return math.floor(x) + helper(x)

    tracer = fx.Tracer(autowrap_modules=(math,), autowrap_functions=(helper,))
    rec("graph", tracer.trace(f))


def helper(x):
    """A function that a tracer may be configured to record as one call."""
    return x.relu().neg()


@differential
def test_shape_access_and_unpacking(fx, rec):
    def f(x):
        b, c, h = x.shape
        n = x.size()
        first, *_ = (x.size(0), x.size(1))
        return x.reshape(b, c * h), n[1:], first

    show(fx, rec, f, torch.randn(2, 3, 4))


@differential
def test_slicing(fx, rec):
    def f(x, i):
        a = x[0]
        b = x[:, 1]
        c = x[..., 1:2]
        d = x[i]
        e = x[i : i + 1, ::2]
        g = x[None, :, [0, 1]]
        return a, b, c, d, e, g, x[-1:], x[slice(None, 2, 1)]

    show(fx, rec, f, torch.arange(12).reshape(3, 4), 1)


@differential
def test_in_place_operators_become_plain_ones(fx, rec):
    def f(x):
        y = x + 1
        y += 2
        y *= x
        y -= 1
        y /= 2
        y //= 3
        y **= 2
        y %= 5
        return y

    show(fx, rec, f, torch.tensor([1.0, 2.0]))


@differential
def test_nested_function_and_closure(fx, rec):
    scale = 3

    def inner(x):
        return x * scale

    def f(x):
        return inner(inner(x))

    show(fx, rec, f, torch.randn(2))


@differential
def test_lambda(fx, rec):
    show(fx, rec, lambda x, y=2: x * y, torch.randn(2))


@differential
def test_functions_given_as_arguments_of_operators(fx, rec):
    def f(x):
        return torch.zeros_like(x, dtype=torch.float64, device=torch.device("cpu")).to(
            torch.float32, memory_format=torch.contiguous_format
        )

    show(fx, rec, f, torch.randn(2))


@differential
def test_symbolic_trace_keeps_the_function_name(fx, rec):
    def interesting_name(x):
        return x

    traced = fx.symbolic_trace(interesting_name)
    rec("name", type(traced).__name__)
    rec("text", str(traced))
    rec("fields", {k: v for k, v in traced.graph._co_fields.items() if k == "co_name"})


@differential
def test_tracing_a_builtin_fails(fx, rec):
    rec.call("builtin", fx.symbolic_trace, len)
    rec.call("torch function", fx.symbolic_trace, torch.relu)
    rec.call("number", fx.symbolic_trace, 3)
    rec.call("none", fx.symbolic_trace, None)


@differential
def test_argument_types_that_cannot_be_recorded(fx, rec):
    class Strange:
        pass

    rec.call("object", fx.symbolic_trace, lambda x: torch.add(x, Strange()))
    rec.call("set", fx.symbolic_trace, lambda x: torch.add(x, {1, 2}))
    rec.call("returned object", fx.symbolic_trace, lambda x: Strange())
    rec.call("proxy as key", fx.symbolic_trace, lambda x: {x: 1})


@differential
def test_the_exception_of_the_function_is_passed_on(fx, rec):
    class Special(KeyError):
        pass

    def f(x):
        raise Special("inside")

    rec.call("special", fx.symbolic_trace, f)
    rec.call("afterwards", fx.symbolic_trace, lambda x: x + 1)


@differential
def test_get_fresh_qualname(fx, rec):
    tracer = fx.Tracer()
    tracer.trace(lambda x: x + torch.ones(2) + torch.zeros(2))
    rec("next", tracer.get_fresh_qualname("_tensor_constant"))
    rec("again", tracer.get_fresh_qualname("_tensor_constant"))
    rec("other", tracer.get_fresh_qualname("_other"))


@differential
def test_retracing_a_traced_module(fx, rec):
    first = fx.symbolic_trace(lambda x, *, k=3: torch.relu(x) * k)
    second = show(fx, rec, first, torch.randn(2), label="second")
    show(fx, rec, second, torch.randn(2), label="third")


@differential
def test_large_and_special_numbers(fx, rec):
    def f(x):
        a = x + 2**70 + -(2**65)
        b = torch.clamp(x, min=-math.inf, max=math.inf)
        c = x * math.nan
        d = x * 1e-30 + 1e22 + 0.1 + -0.0
        return a, b, c, d, x + (1 + 2j)

    show(fx, rec, f)
