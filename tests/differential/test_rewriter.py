"""Subgraph matching and replacement."""

import operator

import torch
from torch import nn

from kit import differential


def matches_of(found):
    """A list of matches by names of nodes."""
    return [(m.anchor, [(k.name, v) for k, v in m.nodes_map.items()]) for m in found]


def rewrite(fx, rec, function, pattern, replacement, *inputs, **options):
    traced = fx.symbolic_trace(function)
    if options:
        found = fx.subgraph_rewriter.replace_pattern_with_filters(
            traced, pattern, replacement, **options
        )
    else:
        found = fx.replace_pattern(traced, pattern, replacement)
    rec("matches", matches_of(found))
    rec("rewritten", traced)
    if options:
        rec("replacements", [m.replacements for m in found])
    if inputs:
        rec.call("result", traced, *inputs)
    return traced


@differential
def test_one_call(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.relu(x) + torch.relu(x * 2),
        lambda x: torch.relu(x),
        lambda x: torch.sigmoid(x),
        torch.ones(2),
    )


@differential
def test_several_calls_and_inputs(fx, rec):
    def f(x, w1, w2):
        m1 = torch.cat([w1, w2]).sum()
        m2 = torch.cat([w1, w2]).sum()
        return x + torch.max(m1) + torch.max(m2)

    rewrite(
        fx,
        rec,
        f,
        lambda w1, w2: torch.cat([w1, w2]).sum(),
        lambda w1, w2: torch.stack([w1, w2]),
        torch.ones(1),
        torch.ones(1),
        torch.ones(1),
    )


@differential
def test_overlapping_matches(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.relu(torch.relu(torch.relu(x))),
        lambda x: torch.relu(torch.relu(x)),
        lambda x: torch.neg(x),
    )


@differential
def test_no_match(fx, rec):
    rewrite(fx, rec, lambda x: x + 1, lambda x: torch.relu(x), lambda x: torch.neg(x))


@differential
def test_a_value_used_outside_of_the_match(fx, rec):
    def f(x):
        a = torch.relu(x)
        return torch.neg(a) + a

    rewrite(fx, rec, f, lambda x: torch.neg(torch.relu(x)), lambda x: torch.sigmoid(x))


@differential
def test_several_results(fx, rec):
    def f(x, y):
        a = torch.relu(x)
        b = torch.neg(y)
        return a + b

    rewrite(
        fx,
        rec,
        f,
        lambda x, y: (torch.relu(x), torch.neg(y)),
        lambda x, y: (torch.sigmoid(x), torch.abs(y)),
    )


@differential
def test_literals_must_match(fx, rec):
    def f(x):
        return torch.add(x, 1) + torch.add(x, 2)

    rewrite(fx, rec, f, lambda x: torch.add(x, 1), lambda x: torch.mul(x, 10))


@differential
def test_ignoring_literals(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.add(x, 1) + torch.add(x, 2),
        lambda x: torch.add(x, 7),
        lambda x: torch.mul(x, 10),
        ignore_literals=True,
    )


@differential
def test_placeholders_match_literals_in_the_graph(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.add(x, 3) * torch.add(x, x),
        lambda x, y: torch.add(x, y),
        lambda x, y: torch.sub(x, y),
    )


@differential
def test_keywords(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.sum(x, dim=0) + torch.sum(x, 0),
        lambda x: torch.sum(x, dim=0),
        lambda x: torch.mean(x, dim=0),
    )


@differential
def test_nested_containers(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x, y: torch.cat([x, y, x]) + torch.cat((x, y, x)),
        lambda a, b: torch.cat([a, b, a]),
        lambda a, b: torch.stack([b, a]),
    )


@differential
def test_filters(fx, rec):
    def only_first(match, original, pattern):
        return any(n.name == "relu" for n in match.nodes_map.values())

    rewrite(
        fx,
        rec,
        lambda x: torch.relu(x) + torch.relu(x * 2),
        lambda x: torch.relu(x),
        lambda x: torch.sigmoid(x),
        match_filters=[only_first],
    )


@differential
def test_replacement_made_for_each_match(fx, rec):
    def make(match, original, pattern):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(torch.mul, (x, len(original.nodes))))
        return graph

    traced = fx.symbolic_trace(lambda x: torch.relu(x) + torch.relu(x * 2))
    found = fx.subgraph_rewriter.replace_pattern_with_filters(
        traced, lambda x: torch.relu(x), replacement_callback=make
    )
    rec("matches", matches_of(found))
    rec("rewritten", traced)
    rec.call(
        "nothing to insert",
        fx.subgraph_rewriter.replace_pattern_with_filters,
        traced,
        lambda x: torch.mul(x, 3),
    )


@differential
def test_graphs_and_modules_as_patterns(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.relu(x).neg())
    pattern = fx.symbolic_trace(lambda x: torch.relu(x))
    replacement = fx.Tracer().trace(lambda x: torch.abs(x))
    found = fx.subgraph_rewriter.replace_pattern_with_filters(traced, pattern.graph, replacement)
    rec("matches", matches_of(found))
    rec("rewritten", traced)
    second = fx.replace_pattern(
        traced, fx.symbolic_trace(lambda x: torch.abs(x)), fx.symbolic_trace(lambda x: x.sin())
    )
    rec("second", matches_of(second))
    rec("after", traced)


class Pattern(nn.Module):
    """A pattern with modules inside."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.linear(x))


class Replacement(nn.Module):
    """A replacement with a module and parameter of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.linear = nn.Linear(2, 2)
        self.fresh = nn.Linear(2, 2)
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.fresh(self.linear(x)) * self.weight


@differential
def test_modules_in_patterns(fx, rec):
    traced = fx.symbolic_trace(Pattern())
    found = fx.replace_pattern(
        traced, fx.symbolic_trace(Pattern()), fx.symbolic_trace(Replacement())
    )
    rec("matches", matches_of(found))
    rec("rewritten", traced)
    rec("modules", [n for n, _ in traced.named_modules()])


@differential
def test_methods_and_attributes_in_patterns(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: x.view(2, -1).sum() + x.size(0),
        lambda x: x.view(2, -1).sum(),
        lambda x: x.reshape(-1).mean(),
    )


@differential
def test_replacement_that_returns_its_input(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.relu(x).neg().abs(),
        lambda x: torch.relu(x).neg(),
        lambda x: x,
    )


@differential
def test_match_at_the_output(fx, rec):
    rewrite(fx, rec, lambda x: torch.relu(x), lambda x: torch.relu(x), lambda x: torch.neg(x).neg())


@differential
def test_unused_parameters_of_the_replacement(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x, y: torch.neg(x) + torch.relu(y),
        lambda x, y: torch.neg(x) + torch.relu(y),
        lambda x, y: torch.relu(x),
    )


@differential
def test_wrong_number_of_parameters(fx, rec):
    traced = fx.symbolic_trace(lambda x, y: torch.add(x, y))
    rec.call(
        "fewer", fx.replace_pattern, traced, lambda a, b: torch.add(a, b), lambda a: torch.neg(a)
    )


@differential
def test_chained_matches_share_a_value(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x: torch.relu(x + 1) + torch.relu(x + 1) * torch.relu(x + 2),
        lambda x: torch.relu(x),
        lambda x: torch.clamp(x, min=0),
        torch.ones(2),
    )


@differential
def test_matches_that_feed_each_other(fx, rec):
    def f(x):
        for _ in range(4):
            x = torch.relu(torch.neg(x))
        return x

    rewrite(fx, rec, f, lambda x: torch.relu(torch.neg(x)), lambda x: torch.neg(torch.relu(x)))


@differential
def test_a_diamond(fx, rec):
    def diamond(x):
        a = torch.relu(x)
        return torch.neg(a) + torch.abs(a)

    rewrite(fx, rec, lambda x: diamond(diamond(x)), diamond, lambda x: torch.sin(x))


@differential
def test_same_placeholder_twice(fx, rec):
    rewrite(
        fx,
        rec,
        lambda x, y: operator.add(x, x) + operator.add(x, y),
        lambda a: operator.add(a, a),
        lambda a: a * 2,
    )


@differential
def test_after_rewriting_the_graph_is_usable(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    fx.replace_pattern(traced, lambda x: torch.relu(x), lambda x: torch.neg(x))
    with traced.graph.inserting_before(traced.graph.output_node()):
        traced.graph.call_function(torch.relu, (next(iter(traced.graph.nodes)),))
    rec("edited", traced.graph)


@differential
def test_match_type(fx, rec):
    match = fx.subgraph_rewriter.Match(1, {2: 3})
    rec("fields", match._fields)
    rec("values", (match.anchor, match.nodes_map))
    replaced = fx.subgraph_rewriter.ReplacedPatterns(1, {}, [])
    rec("replaced", (replaced.anchor, replaced.nodes_map, replaced.replacements))
