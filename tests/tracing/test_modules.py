"""Recording of modules, their parameters and their scopes, compared with torch.fx."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from recording import assert_same, node_list, record

import corsac.fx


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.register_buffer("buf", torch.ones(2))
        self.lin = nn.Linear(2, 2)
        self.const = torch.ones(3)
        self.seq = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))

    def forward(self, x):
        return self.seq(self.lin(x) + self.w + self.buf + self.const) * self.w


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block()
        self.b = Block()
        self.shared = self.a
        self.many = nn.ModuleList([nn.ReLU(), Block()])
        self.named = nn.ModuleDict({"k": nn.Tanh()})
        self.params = nn.ParameterList([nn.Parameter(torch.ones(1))])

    def forward(self, x):
        x = self.a(x) + self.b(x) + self.shared(x)
        for module in self.many:
            x = module(x)
        x = self.named["k"](x) + self.params[0]
        x = F.linear(x, self.a.lin.weight, bias=self.a.lin.bias)
        return self.a(x), torch.tensor([1.0, 2.0]) + x


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.ReLU())
        self.block.register_forward_hook(lambda module, args, result: result * 3)
        self.block.register_forward_pre_hook(lambda module, args: (args[0] - 1,))

    def forward(self, x):
        return self.block(x)


class Keywords(nn.Module):
    class Inner(nn.Module):
        def forward(self, x, y=1):
            return x + y

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()
        self.lin = nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x, y=2) + self.lin(input=x)


class ModuleArgument(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, x):
        return x.foo(self.lin, self.lin.weight)


class Foreign(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use = use
        self.others = [nn.Linear(2, 2)]

    def forward(self, x):
        return self.use(self.others[0], x)


class Missing(nn.Module):
    def forward(self, x):
        return self.nowhere(x)


MODULES = {
    "nested": Net,
    "hooks": Hooked,
    "keywords": Keywords,
    "module as argument": ModuleArgument,
    "sequential root": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
    "leaf root": lambda: nn.Linear(2, 2),
    "foreign module": lambda: Foreign(lambda other, x: other(x)),
    "foreign parameter": lambda: Foreign(lambda other, x: x + other.weight),
    "missing attribute": Missing,
    "scripted child": lambda: nn.Sequential(torch.jit.script(nn.Linear(2, 2))),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_record_what_torch_fx_records(name):
    torch.manual_seed(0)
    assert_same(lambda fx: record(fx, MODULES[name]()))


def test_a_tracer_can_be_used_twice():
    def program(fx):
        tracer, net = fx.Tracer(), Net()
        tracer.trace(net)
        return node_list(tracer.trace(net))

    assert_same(program)


def test_buffers_can_be_proxies():
    def program(fx):
        class Buffers(fx.Tracer):
            proxy_buffer_attributes = True

        return record(fx, Net(), tracer=Buffers)

    assert_same(program)


def test_shapes_of_parameters_can_be_constants():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, 4))

        def forward(self, x):
            w = self.w
            if (w.shape[0], w.dim(), w.ndim, w.size()[1]) == (3, 2, 2, 4) and w.numel() == 12:
                x = x + w
            return x * w.T

    assert_same(lambda fx: record(fx, Net(), param_shapes_constant=True))


def test_hooks_for_all_modules_run():
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, result: result + 1)
    try:
        assert_same(lambda fx: record(fx, Net()))
    finally:
        handle.remove()


def test_many_parameters_are_found_in_linear_time():
    class Wide(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.ps = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(count)])

        def forward(self, x):
            for p in self.ps:
                x = x + p
            return x

    graph = corsac.fx.Tracer().trace(Wide(2_000))
    assert len(graph.nodes) == 4_002
    last = [n for n in graph.nodes if n.op == "get_attr"][-1]
    assert last.target == "ps.1999"


def test_a_module_that_contains_itself_is_an_error():
    net = nn.Sequential(nn.ReLU())
    net.inner = nn.Sequential()
    net.inner.add_module("back", net)
    corsac.fx.Tracer().trace(nn.ReLU())
    with pytest.raises(RecursionError):
        corsac.fx.Tracer().trace(net)


def test_nested_traces():
    def program(fx):
        inner = []

        class Nesting(fx.Tracer):
            def call_module(self, m, forward, args, kwargs):
                if isinstance(m, Block):
                    inner.append(node_list(fx.Tracer().trace(m)))
                return super().call_module(m, forward, args, kwargs)

        return record(fx, Net(), tracer=Nesting), inner

    assert_same(program)
