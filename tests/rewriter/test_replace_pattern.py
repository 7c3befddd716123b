"""Replacing patterns, compared with torch.fx."""

import pytest
import torch
import torch.fx
import torch.fx.subgraph_rewriter
from torch import nn

import corsac.fx as fx
from corsac.fx import subgraph_rewriter

THEIRS = torch.fx.subgraph_rewriter


def trace_both(root):
    return fx.symbolic_trace(root), torch.fx.symbolic_trace(root)


def replace_both(root, pattern, replacement, count=None, **options):
    """Replace in both packages, compare, and return corsac's module."""
    ours, theirs = trace_both(root)
    if options:
        found = subgraph_rewriter.replace_pattern_with_filters(
            ours, pattern, replacement, **options
        )
        expected = THEIRS.replace_pattern_with_filters(theirs, pattern, replacement, **options)
        assert [[n.name for n in m.replacements] for m in found] == [
            [n.name for n in m.replacements] for m in expected
        ]
    else:
        found = fx.replace_pattern(ours, pattern, replacement)
        expected = THEIRS.replace_pattern(theirs, pattern, replacement)
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)
    assert [m.anchor.name for m in found] == [m.anchor.name for m in expected]
    assert [names(m.nodes_map) for m in found] == [names(m.nodes_map) for m in expected]
    ours.graph.lint()
    if count is not None:
        assert len(found) == count
    return ours


def names(nodes_map):
    return {str(key): str(value) for key, value in nodes_map.items()}


def test_every_match_is_replaced():
    def f(x, w1, w2):
        m1 = torch.cat([w1, w2]).sum()
        m2 = torch.cat([w1, w2]).sum()
        return x + torch.max(m1) + torch.max(m2)

    gm = replace_both(
        f, lambda w1, w2: torch.cat([w1, w2]).sum(), lambda w1, w2: torch.stack([w1, w2]), 2
    )
    x = torch.ones(2)
    assert torch.equal(gm(x, x, 2 * x), x + 4)


def test_a_whole_program_can_be_replaced():
    replace_both(lambda x: torch.neg(x), lambda x: torch.neg(x), lambda x: torch.relu(x), 1)


def test_nothing_is_replaced_without_a_match():
    replace_both(lambda x: x + 1, lambda x: torch.neg(x), lambda x: torch.relu(x), 0)


def test_intermediate_values_that_are_used_elsewhere_prevent_a_match():
    def f(x):
        y = torch.neg(x)
        return torch.relu(y) + y

    replace_both(f, lambda x: torch.relu(torch.neg(x)), lambda x: torch.sigmoid(x), 0)


def test_overlapping_matches_are_replaced_once():
    def f(x):
        x = torch.neg(x)
        x = torch.neg(x)
        x = torch.neg(x)
        return torch.neg(x)

    replace_both(f, lambda x: torch.neg(torch.neg(x)), lambda x: torch.relu(x), 2)


def test_consecutive_matches_are_chained():
    def f(x):
        for _ in range(4):
            x = torch.relu(torch.neg(x))
        return x

    replace_both(f, lambda x: torch.relu(torch.neg(x)), lambda x: torch.sigmoid(x) + 1, 4)


def test_patterns_can_return_several_values():
    def f(x):
        a, b = torch.neg(x), torch.relu(x)
        return a + b

    def pattern(x):
        return torch.neg(x), torch.relu(x)

    def replacement(x):
        return torch.abs(x), torch.sigmoid(x)

    replace_both(f, pattern, replacement, 1)


def test_replacements_may_return_an_input():
    replace_both(lambda x: torch.neg(x) + 1, lambda x: torch.neg(x), lambda x: x, 1)


def test_literals_must_be_equal_unless_ignored():
    def f(x):
        return torch.add(x, 2) + torch.add(x, 3.0) + torch.add(x, True)

    replace_both(f, lambda x: torch.add(x, 2), lambda x: torch.neg(x), 1)
    replace_both(f, lambda x: torch.add(x, 7), lambda x: torch.neg(x), 3, ignore_literals=True)


def test_parameters_of_a_pattern_match_literals():
    replace_both(
        lambda x: torch.add(x, 2), lambda x, y: torch.add(x, y), lambda x, y: torch.mul(x, y), 1
    )


def test_the_same_parameter_matches_the_same_value():
    def f(x, y):
        return torch.add(x, x) + torch.add(x, y)

    replace_both(f, lambda a: torch.add(a, a), lambda a: a * 2, 1)


def test_keyword_arguments_are_matched_by_name():
    def f(x):
        return torch.sum(x, dim=0) + torch.sum(x, dim=1, keepdim=True) + torch.sum(x, 0)

    replace_both(f, lambda x: torch.sum(x, dim=0), lambda x: torch.amax(x, dim=0), 1)
    replace_both(
        f,
        lambda x: torch.sum(x, dim=1, keepdim=True),
        lambda x: torch.amax(x, dim=1, keepdim=True),
        1,
    )


def test_filters_decide():
    def f(x):
        return torch.neg(torch.relu(x)) + torch.neg(torch.sigmoid(x))

    def after_relu(match, graph, pattern):
        return match.placeholder_nodes[0].name == "relu"

    replace_both(
        f,
        lambda x: torch.neg(x),
        lambda x: torch.abs(x),
        1,
        match_filters=[after_relu],
    )


def test_callbacks_make_the_replacement():
    gm = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)) + torch.neg(x))
    seen = []

    def callback(match, graph, pattern):
        seen.append(match.placeholder_nodes[0].name)
        return fx.symbolic_trace(lambda x: x.abs() if len(seen) == 1 else x * 2).graph

    found = subgraph_rewriter.replace_pattern_with_filters(
        gm, lambda x: torch.neg(x), replacement_callback=callback
    )
    assert seen == ["relu", "x"]
    assert len(found) == 2
    assert torch.equal(gm(torch.tensor([-3.0])), torch.tensor([-6.0]))
    with pytest.raises(AssertionError, match="Must provide either a replacement"):
        subgraph_rewriter.replace_pattern_with_filters(gm, lambda x: torch.neg(x))


def test_a_replacement_needs_as_many_parameters():
    gm = fx.symbolic_trace(lambda x: torch.neg(x))
    with pytest.raises(AssertionError, match="Placeholder count mismatch: 1 vs 2"):
        fx.replace_pattern(gm, lambda x: torch.neg(x), lambda x, y: x + y)


def test_modules_of_the_replacement_are_copied():
    class Replacement(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.act(self.linear(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tanh = nn.Tanh()

        def forward(self, x):
            return self.tanh(x)

    class Pattern(nn.Module):
        def __init__(self):
            super().__init__()
            self.tanh = nn.Tanh()

        def forward(self, x):
            return self.tanh(x)

    replacement = Replacement()
    gm = fx.symbolic_trace(Net())
    found = fx.replace_pattern(gm, fx.symbolic_trace(Pattern()), fx.symbolic_trace(replacement))
    assert len(found) == 1
    assert not hasattr(gm, "tanh")
    assert gm.linear is not replacement.linear
    x = torch.randn(3, 2)
    assert torch.equal(gm(x), replacement(x))


def test_attributes_that_the_replacement_lacks_are_reported():
    gm = fx.symbolic_trace(lambda x: torch.neg(x))
    gm.add_submodule("missing", nn.ReLU())
    with gm.graph.inserting_before(gm.graph.output_node()):
        gm.graph.call_module("missing", ())
    gm.delete_submodule("missing")
    with pytest.raises(RuntimeError, match="target missing, but the referenced attribute does"):
        subgraph_rewriter._replace_attributes(gm, nn.Module())


def test_operator_defaults_do_not_matter():
    aten = torch.ops.aten
    build = {}
    for package in (fx, torch.fx):
        graph = package.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(aten.add.Tensor, (x, x), {"alpha": 1})
        graph.output(graph.call_function(aten.neg.default, (y,)))
        pattern = package.Graph()
        a, b = pattern.placeholder("a"), pattern.placeholder("b")
        pattern.output(pattern.call_function(aten.add.Tensor, (a, b)))
        build[package] = package.GraphModule({}, graph), package.GraphModule({}, pattern)
    ours, pattern = build[fx]
    theirs, their_pattern = build[torch.fx]
    found = fx.replace_pattern(ours, pattern, lambda a, b: a - b)
    expected = THEIRS.replace_pattern(theirs, their_pattern, lambda a, b: a - b)
    assert len(found) == len(expected)
    assert ours.code == theirs.code


def test_no_user_of_the_result_means_just_after():
    class Net(nn.Module):
        def forward(self, x):
            torch.neg(x)
            return torch.relu(x)

    replace_both(Net(), lambda x: torch.neg(x), lambda x: torch.abs(x))


def test_matches_grow_linearly():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(500):
        x = graph.call_function(torch.neg, (x,))
        x = graph.call_function(torch.relu, (x,))
    graph.output(x)
    gm = fx.GraphModule({}, graph)
    found = fx.replace_pattern(gm, lambda x: torch.relu(torch.neg(x)), lambda x: torch.abs(x))
    assert len(found) == 500
    assert len(gm.graph.nodes) == 502
