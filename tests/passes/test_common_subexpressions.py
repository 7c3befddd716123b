"""Repeated computations are done once, where the difference cannot be observed."""

import operator

import pytest
import torch
from torch import nn

import corsac.fx
from corsac.fx.graph_module import GraphModule
from corsac.passes import common_subexpressions


def names(graph):
    return [node.name for node in graph.nodes]


def check(program, *inputs):
    """Trace ``program``, merge, and compare results, inputs and parameters; the report."""
    gm = corsac.fx.symbolic_trace(program)
    copies = [x.clone() for x in inputs]
    expected = program(*copies)
    report = common_subexpressions(gm)
    actual = gm(*inputs)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    torch.testing.assert_close(list(inputs), copies, rtol=0, atol=0)
    return gm, report


def test_chains_merge_and_the_first_stays():
    def program(x):
        a = torch.cos(x) + 1
        b = torch.cos(x) + 1
        return a * b

    gm, report = check(program, torch.randn(3))
    assert names(gm.graph) == ["x", "cos", "add", "mul", "output"]
    assert [(site.node, site.other) for site in report.applied] == [
        ("cos_1", "cos"),
        ("add_1", "add"),
    ]
    assert "cos * " not in gm.code
    assert str(report) == (
        "common subexpressions: 2 of 2 sites, 7 -> 5 nodes\n"
        "  cos_1  done, cos takes its place\n"
        "  add_1  done, add takes its place"
    )


def test_a_write_in_between_keeps_both():
    def program(x):
        m = x.clone()
        a = m.sum()
        m.view(-1).mul_(2)
        return a + m.sum()

    _, report = check(program, torch.randn(3))
    assert [site.reason for site in report.kept] == ["what it reads is written to in between"]


def test_a_write_through_one_input_may_change_another():
    def program(x, y):
        a = y + 1
        x.add_(1)
        return a * (y + 1)

    gm, report = check(program, torch.ones(2), torch.ones(2))
    assert not report.changed
    shared = torch.ones(2)
    assert torch.equal(gm(shared, shared), torch.full((2,), 6.0))


def test_results_that_are_written_to_stay_apart():
    def program(x):
        a = torch.cos(x)
        b = torch.cos(x)
        a.add_(1)
        return a * b

    _, report = check(program, torch.randn(3))
    assert [site.reason for site in report.kept] == ["one of the two results is written to later"]


def test_two_results_stay_two():
    def program(x):
        return torch.cos(x), torch.cos(x)

    gm, report = check(program, torch.randn(3))
    first, second = gm(torch.zeros(2))
    first.add_(1)
    assert torch.equal(second, torch.ones(2))
    assert [site.reason for site in report.kept] == [
        "the caller gets both results and may write to one of them"
    ]


def test_numbers_of_different_types_are_different():
    def program(x):
        return torch.cat([x * 1, x * 1.0, x * True, x / 2, x // 2, x**0.0, x**-0.0])

    _, report = check(program, torch.arange(3))
    assert not report.changed


def test_random_numbers_are_drawn_twice():
    def program(x):
        return torch.rand_like(x) - torch.rand_like(x), nn.functional.dropout(
            x
        ) + nn.functional.dropout(x)

    gm = corsac.fx.symbolic_trace(program)
    assert not common_subexpressions(gm).changed


def test_keywords_have_no_order_and_annotations_count():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_method("clamp", (x,), {"min": 0, "max": 1})
    b = graph.call_method("clamp", (x,), {"max": 1, "min": 0})
    c = graph.call_method("clamp", (x,), {"min": 0, "max": 1}, type_expr=torch.Tensor)
    graph.output(graph.call_function(torch.cat, ([a, b, c],)))
    report = common_subexpressions(graph)
    assert [site.node for site in report.applied] == ["clamp_1"]
    assert [
        n.name for n in graph.find_nodes(op="call_function", target=torch.cat)[0].all_input_nodes
    ] == [
        "clamp",
        "clamp_2",
    ]


def test_attributes_are_read_once_unless_replaced():
    root = nn.Module()
    root.weight = nn.Parameter(torch.ones(2))
    graph = corsac.fx.Graph()
    a = graph.get_attr("weight")
    graph.call_method("mul_", (a, 2))
    b = graph.get_attr("weight")
    graph.output(graph.call_function(operator.add, (a, b)))
    gm = GraphModule(root, graph)
    with torch.no_grad():
        report = common_subexpressions(gm)
        assert [site.node for site in report.applied] == ["weight_1"]
        assert torch.equal(gm(), torch.full((2,), 4.0))


@pytest.mark.parametrize(
    ("module", "merged"),
    [
        (nn.Linear(3, 3), True),
        (nn.BatchNorm1d(3).eval(), True),
        (nn.BatchNorm1d(3), False),
        (nn.Dropout(), False),
        (nn.Dropout().eval(), True),
        (nn.ReLU(inplace=True), False),
        (nn.Sequential(nn.ReLU()), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_modules(module, merged):
    root = nn.Module()
    root.layer = module
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    calls = [graph.call_module("layer", (x,)) for _ in range(2)]
    graph.output(graph.call_function(torch.cat, (calls,)))
    assert common_subexpressions(GraphModule(root, graph)).changed is merged


def test_a_module_whose_weight_is_written_to_in_between_is_called_twice():
    root = nn.Module()
    root.layer = nn.Linear(2, 2)
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_module("layer", (x,))
    weight = graph.get_attr("layer.weight")
    graph.call_method("zero_", (weight,))
    b = graph.call_module("layer", (x,))
    graph.output(graph.call_function(operator.sub, (a, b)))
    report = common_subexpressions(GraphModule(root, graph))
    assert [site.reason for site in report.kept] == ["what it reads is written to in between"]


def test_hooks_see_replacements_and_erasures():
    def program(x):
        return torch.cos(x) * torch.cos(x)

    gm = corsac.fx.symbolic_trace(program)
    seen = []
    gm._register_erase_node_hook(lambda node: seen.append(("erased", node.name)))
    gm._register_replace_node_hook(
        lambda old, new, user: seen.append(("replaced", old.name, new, user.name))
    )
    common_subexpressions(gm)
    assert seen == [("replaced", "cos_1", "cos", "mul"), ("erased", "cos_1")]


def test_metadata_of_the_first_stays():
    def program(x):
        return torch.cos(x) * torch.cos(x)

    gm = corsac.fx.symbolic_trace(program)
    for i, node in enumerate(gm.graph.nodes):
        node.meta["place"] = i
    common_subexpressions(gm)
    assert [node.meta["place"] for node in gm.graph.nodes] == [0, 1, 3, 4]
