"""Dead-code elimination removes what cannot be observed, and nothing else."""

import operator

import pytest
import torch
import torch.fx
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import corsac.fx
from corsac.fx.graph_module import GraphModule
from corsac.passes import eliminate_dead_code, pure


def fill_masked(x):
    m = x.clone()
    m.masked_fill_(x > 0, 7.0)
    return m


def add_in_place(x):
    m = torch.zeros_like(x)
    m.add_(x)
    return m * 2


def write_to_out(x):
    m = torch.zeros_like(x)
    torch.add(x, 1, out=m)
    return m


def write_through_a_view(x):
    m = x.clone()
    row = m.view(3, 1)[1]
    row.fill_(5.0)
    return m


def write_through_one_view_and_read_another(x):
    m = x.clone()
    a, b = m.view(-1), m.t()
    a.mul_(3.0)
    return b + 1


def write_to_a_chunk(x):
    m = x.clone()
    first, _ = m.chunk(2)
    first.zero_()
    return m


def write_to_the_input(x):
    x.add_(1)
    return None


def activate_in_place(x):
    m = x.clone()
    torch.nn.functional.relu(m, inplace=True)
    return m


def write_to_a_list_of_tensors(x):
    m = x.clone()
    torch._foreach_mul_([m], 2.0)
    return m


UNSOUND_IN_TORCH_FX = [
    fill_masked,
    add_in_place,
    write_to_out,
    write_through_a_view,
    write_through_one_view_and_read_another,
    write_to_a_chunk,
    write_to_the_input,
    activate_in_place,
    write_to_a_list_of_tensors,
]


def run_and_look(fn):
    """The result of ``fn`` on an input, and the input afterwards."""
    x = torch.tensor([1.0, -2.0, 3.0])
    return fn(x), x


def same(a, b):
    return all(p is q or torch.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("program", UNSOUND_IN_TORCH_FX)
def test_writes_that_torch_fx_drops_stay(program):
    expected = run_and_look(program)

    theirs = torch.fx.symbolic_trace(program)
    theirs.graph.eliminate_dead_code()
    theirs.recompile()
    assert not same(run_and_look(theirs), expected), "torch.fx has learnt this"

    ours = corsac.fx.symbolic_trace(program)
    ours.graph.eliminate_dead_code()
    ours.recompile()
    assert same(run_and_look(ours), expected)


def names(graph):
    return [node.name for node in graph.nodes]


def test_writes_that_nobody_sees_go():
    def program(x):
        m = x.clone()
        total = m.sum()
        m.add_(1)
        view = m.view(-1)
        view.zero_()
        other = torch.zeros_like(x)
        other.fill_(1)
        return total

    gm = corsac.fx.symbolic_trace(program)
    report = eliminate_dead_code(gm)
    assert names(gm.graph) == ["x", "clone", "sum_1", "output"]
    assert report.changed
    assert report.kept == ()
    assert torch.equal(gm(torch.ones(3)), torch.tensor(3.0))


def test_the_report_says_why_a_node_stays():
    def program(x):
        x.add_(1)
        m = x.clone()
        m.mul_(2)
        torch.rand_like(x)
        torch._assert(m.sum() > 0, "message")
        x + 1
        return m

    gm = corsac.fx.symbolic_trace(program)
    report = eliminate_dead_code(gm)
    assert [site.node for site in report.applied] == ["add"]
    assert {site.node: site.reason for site in report.kept} == {
        "add_": "writes to an input, an attribute or the state of a module",
        "mul_": "writes to a value that is used later",
        "rand_like": "uses random numbers",
        "_assert": "has a side effect",
    }
    assert str(report).splitlines()[0] == "dead code: 1 of 5 sites, 10 -> 9 nodes"
    assert report.count == 1 and bool(report)


def unknown(x):
    return x


def declared_pure(x):
    return x


def test_unknown_functions_stay_unless_declared_pure():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(unknown, (x,))
    graph.call_function(declared_pure, (x,))
    graph.output(x)
    pure(declared_pure)
    graph.eliminate_dead_code()
    assert names(graph) == ["x", "unknown", "output"]


def registered(x):
    return x


def test_registered_side_effects_stay():
    torch.fx.node.has_side_effect(registered)
    pure(registered)
    try:
        graph = corsac.fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(registered, (x,))
        graph.output(x)
        assert not graph.eliminate_dead_code()
    finally:
        torch.fx.node._side_effectful_functions.discard(registered)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x


def graph_calling(module):
    root = nn.Module()
    root.child = module
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    graph.call_module("child", (x,))
    graph.output(x)
    return GraphModule(root, graph)


def hooked():
    module = nn.ReLU()
    module.register_forward_hook(lambda *_: None)
    return module


def declared(impure):
    module = Counter()
    module._is_impure = impure
    return module


@pytest.mark.parametrize(
    ("module", "stays"),
    [
        (nn.ReLU(), False),
        (nn.ReLU(inplace=True), True),
        (nn.Conv2d(1, 1, 1), False),
        (nn.BatchNorm2d(1), True),
        (nn.BatchNorm2d(1).eval(), False),
        (nn.BatchNorm2d(1, track_running_stats=False), False),
        (nn.Dropout(), True),
        (nn.Dropout().eval(), False),
        (nn.Embedding(2, 2), False),
        (nn.Embedding(2, 2, max_norm=1.0), True),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.5), True),
        (nn.LSTM(2, 2), False),
        (hooked(), True),
        (Counter(), True),
        (declared(True), True),
        (declared(False), False),
        (nn.Sequential(nn.ReLU()), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules(module, stays):
    gm = graph_calling(module)
    assert gm.graph.eliminate_dead_code() is not stays


def test_a_graph_module_does_what_its_graph_does():
    def clean(x):
        return x + 1

    def writes(x):
        return x.add_(1)

    assert graph_calling(corsac.fx.symbolic_trace(clean)).graph.eliminate_dead_code()
    assert not graph_calling(corsac.fx.symbolic_trace(writes)).graph.eliminate_dead_code()


@torch.library.custom_op("corsac_tests::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("corsac_tests::bump_", mutates_args=("x",))
def bump_(x: torch.Tensor) -> None:
    x.add_(1)


def test_custom_operators_are_known_by_their_schema():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.corsac_tests.scale.default, (x,))
    graph.call_function(torch.ops.corsac_tests.bump_.default, (x,))
    copy = graph.call_method("clone", (x,))
    graph.call_function(torch.ops.corsac_tests.bump_.default, (copy,))
    graph.output(None)
    report = eliminate_dead_code(graph)
    assert [site.node for site in report.applied] == ["scale_default", "clone", "bump__default_1"]


def test_a_predicate_alone_decides():
    def build(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.placeholder("unused")
        m = graph.call_method("clone", (x,))
        graph.call_method("add_", (m, 1))
        kept = graph.call_function(torch.relu, (x,))
        graph.call_function(torch.neg, (kept,))
        graph.output(x)
        return graph

    def is_impure(node):
        return node.op == "output" or node.target is torch.relu

    theirs, ours = build(torch.fx), build(corsac.fx)
    seen = []

    def recorded(node):
        seen.append(node.name)
        return is_impure(node)

    assert ours.eliminate_dead_code(recorded) == theirs.eliminate_dead_code(is_impure)
    assert names(ours) == names(theirs) == ["x", "relu", "output"]
    assert seen == ["output", "neg", "relu", "add_", "clone", "unused", "x"]
    assert not ours.eliminate_dead_code(is_impure)


def test_children_named_as_attributes_are_cleaned():
    def inner(x):
        x + 1
        return x * 2

    root = nn.Module()
    root.child = corsac.fx.symbolic_trace(inner)
    root.other = corsac.fx.symbolic_trace(inner)
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    child = graph.get_attr("child")
    graph.call_function(torch.ops.higher_order.invoke_subgraph, (child, "inner", x))
    graph.output(x)
    gm = GraphModule(root, graph)
    gm.add_submodule("other", corsac.fx.symbolic_trace(inner))
    assert gm.graph.eliminate_dead_code()
    assert "+ 1" not in gm.child.code
    assert "+ 1" in gm.other.code


def test_erase_hooks_are_called():
    def program(x):
        y = x + 1
        y * 2
        return x

    gm = corsac.fx.symbolic_trace(program)
    erased = []
    gm._register_erase_node_hook(lambda node: erased.append(node.name))
    gm.graph.eliminate_dead_code()
    assert erased == ["mul", "add"]


def test_what_stays_keeps_its_handle_and_metadata():
    def program(x):
        y = x + 1
        y * 2
        return y

    gm = corsac.fx.symbolic_trace(program)
    add = next(node for node in gm.graph.nodes if node.name == "add")
    dead = next(node for node in gm.graph.nodes if node.name == "mul")
    add.meta["mark"] = 3
    add.color = "red"
    gm.graph.eliminate_dead_code()
    assert next(node for node in gm.graph.nodes if node.name == "add") is add
    assert (add.meta["mark"], add.color) == (3, "red")
    assert list(add.users) == [gm.graph.output_node()]
    assert dead._erased


def test_a_graph_out_of_order_is_refused():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.neg, (x,))
    x.prepend(y)
    with pytest.raises(RuntimeError, match="neg uses x before it is defined"):
        eliminate_dead_code(graph)
    assert names(graph) == ["neg", "x"]


def test_what_is_no_graph_is_refused():
    with pytest.raises(TypeError, match=r"expected a corsac\.fx\.Graph or GraphModule"):
        eliminate_dead_code(nn.Linear(1, 1))


# Targets without side effects.
PURE = [
    ("call_function", torch.add, 2),
    ("call_function", operator.mul, 2),
    ("call_function", torch.relu, 1),
    ("call_function", torch.nn.functional.gelu, 1),
    ("call_function", torch.ops.aten.sin.default, 1),
    ("call_function", torch.cat, 0),
    ("call_function", getattr, -1),
    ("call_method", "view", 1),
    ("call_method", "chunk", 1),
    ("call_module", "layer", 1),
    ("get_attr", "weight", 0),
    ("placeholder", "p", 0),
]


def build_pure(fx, steps, returned):
    root = nn.Module()
    root.layer = nn.Linear(2, 2)
    root.weight = nn.Parameter(torch.ones(2))
    graph = fx.Graph()
    values = [graph.placeholder("x")]
    for kind, a, b in steps:
        op, target, arity = PURE[kind]
        first, second = values[a % len(values)], values[b % len(values)]
        args = {1: (first,), 2: (first, second), 0: (), -1: (first, "shape")}[arity]
        if target is torch.cat:
            args = ([first, second],)
        if op == "placeholder":
            target = f"p{len(values)}"
        values.append(graph.create_node(op, target, args, {}))
    graph.output(tuple(values[i % len(values)] for i in returned))
    module = fx.GraphModule(root, graph)
    return module.graph


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(PURE) - 1), st.integers(0, 30), st.integers(0, 30)),
        max_size=25,
    ),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_pure_programs_come_out_as_from_torch_fx(steps, returned):
    theirs = build_pure(torch.fx, steps, returned)
    ours = build_pure(corsac.fx, steps, returned)
    assert ours.eliminate_dead_code() == theirs.eliminate_dead_code()
    assert names(ours) == names(theirs)
    for a, b in zip(ours.nodes, theirs.nodes, strict=True):
        assert [user.name for user in a.users] == [user.name for user in b.users]
