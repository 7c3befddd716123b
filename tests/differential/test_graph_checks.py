"""Lint, dead-code elimination, and side effects."""

import operator

import torch
from torch import nn

from kit import SUBJECT, differential, known_difference, needs_subject
from kit.known import WRITES_STAY

WITHOUT_AN_OWNER = "`eliminate_dead_code` and `call_module` in a graph without an owning module"


@differential
def test_lint_of_good_graphs(fx, rec):
    rec.call("empty", fx.Graph().lint)
    rec.call("traced", fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1), nn.ReLU())).graph.lint)


@differential
def test_use_before_definition(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.neg, (a,))
    graph.output(b)
    a.prepend(b)
    rec.call("lint", graph.lint)


@known_difference("create", "lint", reason="Nodes of another graph as arguments")
@differential
def test_argument_of_another_graph(fx, rec):
    other = fx.Graph()
    stranger = other.placeholder("stranger")
    graph = fx.Graph()
    rec.call("create", lambda: graph.call_function(torch.relu, (stranger,)).name)
    rec.call("lint", graph.lint)


@differential
def test_duplicate_names(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    graph.output(y)
    y.name = "x"
    rec.call("lint", graph.lint)


@differential
def test_targets_are_checked_against_the_module(fx, rec):
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1)))
    with module.graph.inserting_before(module.graph.output_node()):
        node = module.graph.create_node("call_module", "missing.child")
        rec.call("missing module", module.graph.lint)
        module.graph.erase_node(node)
        node = module.graph.create_node("get_attr", "0.nothing")
        rec.call("missing attribute", module.graph.lint)
        module.graph.erase_node(node)
        node = module.graph.create_node("call_module", "0.weight")
        rec.call("not a module", module.graph.lint)
        module.graph.erase_node(node)
    rec.call("fine again", module.graph.lint)


@differential
def test_dead_code(fx, rec):
    def f(x, unused):
        a = x + 1
        b = a * 2
        torch.relu(b)
        return x

    module = fx.symbolic_trace(f)
    rec("changed", module.graph.eliminate_dead_code())
    rec("graph", module.graph)
    rec("again", module.graph.eliminate_dead_code())


@differential
def test_dead_attributes_and_modules(fx, rec):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            self.linear(x)
            self.weight + 1
            return x

    module = fx.symbolic_trace(Module())
    rec("changed", module.graph.eliminate_dead_code())
    rec("graph", module.graph)


@differential
def test_impure_modules_stay(fx, rec):
    class Counter(nn.Module):
        _is_impure = True

        def forward(self, x):
            return x

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.counter = Counter()

        def forward(self, x):
            self.counter(x)
            return x

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, qualified_name):
            return True

    module = Module()
    traced = fx.GraphModule(module, Leaves().trace(module))
    rec("changed", traced.graph.eliminate_dead_code())
    rec("graph", traced.graph)


@differential
def test_functions_with_side_effects_stay(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._assert, (x, "message"))
    graph.call_function(operator.setitem, (x, 0, 1))
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.call_function(torch.ops.profiler._record_function_enter, ("name",))
    graph.output(x)
    rec("impure", [(n.name, n.is_impure()) for n in graph.nodes])
    rec("changed", graph.eliminate_dead_code())
    rec("graph", graph)


@differential
def test_registering_a_side_effect(fx, rec):
    def log(x):
        return x

    rec("returns", fx.has_side_effect(log) is log)
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(log, (x,))
    graph.output(x)
    rec("changed", graph.eliminate_dead_code())
    rec("graph", graph)
    rec("shared", log in torch.fx.node._side_effectful_functions)
    torch.fx.node._side_effectful_functions.discard(log)


@differential
def test_a_condition_for_what_is_impure(fx, rec):
    def f(x):
        torch.relu(x)
        torch.neg(x)
        return x

    graph = fx.Tracer().trace(f)
    changed = graph.eliminate_dead_code(
        lambda n: n.op in ("placeholder", "output") or n.target is torch.neg
    )
    rec("changed", changed)
    rec("graph", graph)


@differential
def test_random_functions(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.rand, ((2, 3),))
    graph.call_function(torch.ops.aten.rand.default, ([2],))
    graph.call_function(torch.ops.aten.bernoulli.default, (x,))
    graph.output(x)
    rec("impure", [(n.name, n.is_impure()) for n in graph.nodes])
    graph.eliminate_dead_code()
    rec("graph", graph)


@differential
def test_operators_that_mutate_by_schema(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.aten.add_.Tensor, (x, 1))
    graph.call_function(torch.ops.aten.add.out, (x, x), {"out": x})
    graph.call_function(torch.ops.aten.add.Tensor, (x, 1))
    graph.output(x)
    rec("changed", graph.eliminate_dead_code())
    rec("graph", graph)


@differential
def test_elimination_checks_the_graph_first(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.neg, (a,))
    graph.output(b)
    a.prepend(b)
    rec.call("elimination", graph.eliminate_dead_code)
    rec("order", [n.name for n in graph.nodes])


@known_difference("elimination", reason=WITHOUT_AN_OWNER)
@differential
def test_modules_without_an_owner(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_module("child", (x,))
    graph.output(x)
    rec.call("elimination", graph.eliminate_dead_code)


@known_difference("after method", "after fill", "after out", "after operator", reason=WRITES_STAY)
@differential
def test_mutations_without_users(fx, rec):
    def method(x):
        x.add_(1)
        return x

    def fill(x):
        x.masked_fill_(x > 0, 0.0)
        return x

    def out(x, y):
        torch.add(x, 1, out=y)
        return y

    def in_place(x):
        torch.ops.aten.add_(x, 1)
        torch.relu_(x)
        return x

    for label, function in {"method": method, "fill": fill, "out": out}.items():
        module = fx.symbolic_trace(function)
        module.graph.eliminate_dead_code()
        rec(f"after {label}", module.graph)
    module = fx.symbolic_trace(in_place)
    module.graph.eliminate_dead_code()
    rec("after operator", module.graph)


def eliminated(function):
    """The names of the call nodes that elimination keeps in the subject."""
    module = SUBJECT.fx.symbolic_trace(function)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module, [n.name for n in module.graph.nodes if n.op.startswith("call")]


@needs_subject
def test_mutations_are_kept():
    def f(x, m):
        m.add_(1)
        m.masked_fill_(x > 0, 0.0)
        torch.add(x, 1, out=m)
        x[0] = 3
        return m

    module, kept = eliminated(f)
    assert kept == ["add_", "gt", "masked_fill_", "add", "setitem"]
    x, m = torch.ones(2), torch.zeros(2)
    expected = f(x.clone(), m.clone())
    assert torch.equal(module(x.clone(), m.clone()), expected)


@needs_subject
def test_mutations_through_views_are_kept():
    def f(x):
        x[0].add_(1)
        x.view(-1).mul_(2)
        return x

    module, kept = eliminated(f)
    x = torch.ones(2, 2)
    assert torch.equal(module(x.clone()), f(x.clone()))
    assert "add_" in kept and "mul_" in kept


@needs_subject
def test_random_calls_are_kept():
    def f(x):
        torch.rand(3)
        torch.nn.functional.dropout(x, 0.5)
        x.bernoulli()
        return x

    graph = SUBJECT.fx.Tracer().trace(lambda x: (torch.bernoulli(x), x)[1])
    graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "bernoulli", "output"]


@needs_subject
def test_pure_calls_are_still_removed():
    def f(x):
        torch.add(x, 1)
        x.relu()
        x.view(-1)
        return x

    _, kept = eliminated(f)
    assert kept == []
