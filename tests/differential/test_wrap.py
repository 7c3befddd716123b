"""``wrap``: functions that are recorded as one call."""

import torch

from kit import differential, load_source

SOURCE = """
import math
import torch
from functools import partial

fx.wrap("len")
fx.wrap("helper")
fx.wrap("defined_later")

def helper(x, y=1):
    return x * y

@fx.wrap
def decorated(x):
    if x.sum() > 0:
        return x
    return -x

def defined_later(x):
    return x + 100

def uses_len(x):
    return x + len(x)

def uses_all(x):
    return helper(decorated(x), y=2) + defined_later(x)

def uses_constant(x):
    return x + helper(3) + len([1, 2])

def in_containers(x):
    return helper([x, {"k": x}], y=(x,))

def calls_itself(x):
    return uses_all(uses_all(x))
"""


def load(fx):
    return load_source(SOURCE, fx, "wrapped_functions")


@differential
def test_wrapped_functions(fx, rec):
    module = load(fx)
    for name in ("uses_len", "uses_all", "uses_constant", "in_containers", "calls_itself"):
        traced = rec(name, fx.symbolic_trace(getattr(module, name)))
        rec(f"{name}: meta", [n.meta.get("is_wrapped") for n in traced.graph.nodes])
    rec.call("run", fx.symbolic_trace(module.uses_all), torch.ones(3))
    rec.call("run len", fx.symbolic_trace(module.uses_len), torch.ones(3))


@differential
def test_nothing_stays_wrapped(fx, rec):
    module = load(fx)
    before = dict(module.__dict__)
    fx.symbolic_trace(module.uses_all)
    rec("same", all(module.__dict__[k] is v for k, v in before.items()))
    rec("len", "len" in module.__dict__)
    rec.call("plain", module.uses_len, torch.ones(2))


@differential
def test_nothing_stays_wrapped_after_an_error(fx, rec):
    module = load(fx)
    before = dict(module.__dict__)
    module_call = torch.nn.Module.__call__

    def fails(x):
        module.uses_all(x)
        raise ValueError("stop")

    rec.call("fails", fx.symbolic_trace, fails)
    rec("same", all(module.__dict__[k] is v for k, v in before.items()))
    rec("call", torch.nn.Module.__call__ is module_call)
    rec("len", "len" in module.__dict__)


@differential
def test_wrapping_away_from_module_level(fx, rec):
    rec.call("in a function", fx.wrap, "anything")
    rec.call("a number", fx.wrap, 3)


@differential
def test_wrap_returns_what_it_gets(fx, rec):
    module = load_source("name = fx.wrap('abs')\n@fx.wrap\ndef g(x):\n    return x\n", fx)
    rec("name", module.name)
    rec("function", module.g.__name__)


@differential
def test_code_of_wrapped_functions_says_wrap(fx, rec):
    module = load(fx)
    traced = fx.symbolic_trace(module.uses_all)
    rec("code", traced.code)
    rec("names", sorted(traced.graph.python_code("self").globals))


@differential
def test_functions_wrapped_with_torch_fx_are_honoured(fx, rec):
    module = load_source(
        "import torch\n"
        "@torch.fx.wrap\n"
        "def loop(x):\n"
        "    for row in x:\n"
        "        pass\n"
        "    return x\n"
        "def f(x):\n"
        "    return loop(x) + 1\n",
        fx,
    )
    rec("traced", fx.symbolic_trace(module.f))
    rec("reference", torch.fx.symbolic_trace(module.f).code)


@differential
def test_functions_wrapped_here_are_honoured_by_torch_fx(fx, rec):
    module = load_source(
        "@fx.wrap\ndef loop(x):\n    return [r for r in x]\ndef f(x):\n    return loop(x)\n", fx
    )
    rec("reference", torch.fx.symbolic_trace(module.f).code)


@differential
def test_proxyable_classes(fx, rec):
    class TensorPair(metaclass=fx.ProxyableClassMeta):
        def __init__(self, left, right):
            self.left, self.right = left, right

        def add(self, other):
            return TensorPair(self.left + other.left, self.right + other.right)

        def mul(self, other):
            return TensorPair(self.left * other.left, self.right * other.right)

    def f(x: TensorPair, y: torch.Tensor):
        return x.add(TensorPair(y, y)).mul(x)

    traced = rec("traced", fx.symbolic_trace(f))
    pair = TensorPair(torch.ones(2), torch.ones(2))
    result = traced(pair, torch.full((2,), 3.0))
    rec("left", result.left)
    constant = TensorPair(torch.ones(1), torch.ones(1))
    rec("constant", fx.symbolic_trace(lambda y: (constant, y)).code)
    rec("plain", TensorPair(1, 2).left)
    rec("no proxies", fx.symbolic_trace(lambda y: TensorPair(1, 2).left + y).code)
