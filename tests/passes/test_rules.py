"""Rewrite rules as data: text form, traced form, matching, reports; compared with torch.fx."""

import operator

import hypothesis
import pytest
import torch
import torch.fx
import torch.nn.functional as F
from hypothesis import strategies as st

import corsac.fx
from corsac.fx import Node
from corsac.passes import Match, Rule, Rules, pure, rewrite
from passes.rule_kit import assert_same_bits, reasons, traced


def called(gm):
    return [
        n.target if isinstance(n.target, str) else n.target.__name__
        for n in gm.graph.nodes
        if n.op.startswith("call")
    ]


# -- text ------------------------------------------------------------------------------------------

ERRORS = [
    ("neg(?x) => ?y", "line 1, column 13: ?y does not occur in the pattern"),
    ("neg(?x) = ?x", "line 1, column 9: expected `=>` or `<=>`, got `=`"),
    ("neg(?x => ?x", "line 1, column 8: expected `,`, got `=`"),
    ("a: ?x => ?x", "line 1, column 4: a pattern must be a call of an operator"),
    ("neg(?x) => ?x\nabs(?x) => ?x if even(?x)", "line 2, column 18: there is no condition even"),
    ("neg(?x) => ?x if same_dtype(?x)", "line 1, column 18: same_dtype takes 2 operands, got 1"),
    ("neg(?x) => $root(?x)", "line 1, column 13: there is no function $root"),
    ("neg(?x) => $add(?x)", "line 1, column 13: $add takes 2 values, got 1"),
    ("add(?x, ?y, beta=1) => ?x", "line 1, column 13: add has no parameter beta"),
    ("neg(?x, ?y) => ?x", "line 1, column 1: neg takes no more than 1 arguments"),
    ("add(?x, input=1) => ?x", "line 1, column 9: this parameter is given twice"),
    ("neg(?x) ; abs(?x) => ?x", "line 1, column 22: the pattern has 2 roots, the result 1 values"),
    ("neg('a) => 1", "line 1, column 5: the string has no end"),
    ("neg(?x) => f(a=?x, ?x)", "line 1, column 20: a positional argument after a keyword argument"),
    ("neg(?x) => ?x  ?x", "line 1, column 16: expected the end of the rule, got `?`"),
    ("neg(?x) => ?x\n  if ?x", "line 2, column 8: expected a comparison, got the end of the text"),
    ("neg(" * 80, "line 1, column 257: nested deeper than 64"),
    ("neg(1e) => 1", "line 1, column 5: 1e is no number"),
]


@pytest.mark.parametrize("text, message", ERRORS)
def test_an_error_names_line_and_column(text, message):
    with pytest.raises(ValueError) as raised:
        Rules.parse(text)
    assert str(raised.value) == message


@hypothesis.given(st.text(alphabet="neg(?x,0)=>:;if $a|[]*'#\n .-", max_size=40))
def test_any_text_is_rules_or_an_error(text):
    try:
        Rules.parse(text)
    except ValueError as error:
        assert str(error).startswith("line ")


def test_rules_are_read_with_names_comments_and_continued_lines():
    rules = Rules.parse(
        """
        # negation
        """.strip()
        + """
one: neg(neg(?x)) => ?x   # twice

two:
    add(?x,
        0)
    => ?x  # nothing
    if dtype(?x,
             integral)
abs(?y:abs(_)) => ?y"""
    )
    assert [rule.name for rule in rules] == ["one", "two", "line 10"]
    assert rules[0].variables == ["x"]
    assert len(rules + rules[:1]) == 4


# -- matching --------------------------------------------------------------------------------------


def test_spellings_of_an_operator_are_one():
    def function(x, y):
        spelled = [
            x + y,
            x.add(y),
            torch.add(x, y),
            operator.add(x, y),
            torch.add(input=x, other=y),
            torch.add(x, other=y, alpha=1),
            torch.ops.aten.add.Tensor(x, y),
            x.__add__(y),
        ]
        return [value.sin() for value in spelled]

    x, y = torch.randn(3), torch.randn(3)
    gm = corsac.fx.symbolic_trace(function)
    report = rewrite(gm, "sum: add(?x, ?y) => torch.sub(?x, ?y)")
    assert report.count == 8
    for value in gm(x, y):
        assert_same_bits((x - y).sin(), value)
    other = corsac.fx.symbolic_trace(lambda x, y: torch.add(x, y, alpha=2).sin())
    assert not rewrite(other, "sum: add(?x, ?y) => torch.sub(?x, ?y)")
    assert rewrite(other, "sum: add(?x, ?y, alpha=?a) => torch.sub(?x, ?y)")


def test_sizes_are_one_list_however_they_are_given():
    def function(x):
        return x.permute(1, 0).sin(), x.permute((1, 0)).sin(), torch.permute(x, dims=[1, 0]).sin()

    gm = corsac.fx.symbolic_trace(function)
    assert rewrite(gm, "permute(?x, [1, 0]) => torch.t(?x)").count == 3


def test_a_commutative_operator_matches_in_both_orders_and_others_do_not():
    rules = "add(relu(?x), ?y) => torch.mul(?x, ?y)\nsub(relu(?x), ?y) => torch.mul(?x, ?y)"
    gm = corsac.fx.symbolic_trace(lambda x, y: (x + y.relu()) * (x - y.relu()))
    report = rewrite(gm, rules)
    assert report.counts == {"line 1": 1}


def test_a_repeated_variable_is_the_same_value():
    gm = corsac.fx.symbolic_trace(lambda x, y: torch.mul(x, x) + torch.mul(x, y) + torch.add(2, 2))
    assert rewrite(gm, "mul(?x, ?x) => torch.square(?x)").count == 1


def test_literals_match_by_value_and_zeros_by_sign():
    def function(x):
        return x * 2, x * 2.0, x * True, x + 0, x + -0.0

    gm = corsac.fx.symbolic_trace(function)
    assert rewrite(gm, "mul(?x, 2) => torch.add(?x, ?x)").count == 2
    assert rewrite(gm, "add(?x, -0.0) => torch.abs(?x)").count == 1
    assert rewrite(gm, "add(?x, 0) => torch.abs(?x)").count == 1


def test_any_of_several_operators_and_defaults_of_keywords():
    gm = corsac.fx.symbolic_trace(
        lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + torch.softmax(x, 1)
    )
    assert rewrite(gm, "gelu|silu(?x) => torch.relu(?x)").count == 2
    assert rewrite(gm, 'gelu(?x, approximate="tanh") => torch.relu(?x)').count == 1
    assert rewrite(gm, "softmax(?x, 1, dtype=None) => torch.sin(?x)").count == 1


def test_a_list_is_matched_item_by_item_and_spliced():
    gm = corsac.fx.symbolic_trace(lambda a, b, c: torch.cat([a, torch.relu(b), c], 1))
    rule = "cat([*?before, relu(?x), *?after], ?d) => torch.cat([*?after, ?x, *?before], ?d)"
    assert rewrite(gm, rule)
    a, b, c = torch.randn(3, 2, 1).unbind()
    assert_same_bits(torch.cat([c, b, a], 1), gm(a, b, c))


def test_several_roots_are_replaced_at_once():
    rule = Rule(
        lambda x: (torch.sin(x), torch.cos(x)), lambda x: (torch.neg(x), torch.abs(x)), name="both"
    )
    gm = corsac.fx.symbolic_trace(lambda x: torch.cos(x) + 2 * torch.sin(x))
    assert rewrite(gm, [rule]).counts == {"both": 1}
    x = torch.randn(4)
    assert_same_bits(x.abs() + 2 * -x, gm(x))
    only_one = corsac.fx.symbolic_trace(lambda x, y: torch.cos(x) + torch.sin(y))
    assert not rewrite(only_one, [rule])
    text = "both: sin(?x) ; cos(?x) => torch.neg(?x) ; torch.abs(?x)"
    gm = corsac.fx.symbolic_trace(lambda x: torch.cos(x) + 2 * torch.sin(x))
    assert rewrite(gm, text)
    assert_same_bits(x.abs() + 2 * -x, gm(x))


def test_a_value_in_the_pattern_used_twice_is_one_value():
    def pattern(x):
        y = torch.sin(x)
        return y * y

    rule = Rule(pattern, lambda x: torch.cos(x))
    gm = corsac.fx.symbolic_trace(pattern)
    assert rewrite(gm, [rule])
    assert called(gm) == ["cos"]
    other = corsac.fx.symbolic_trace(lambda x: torch.sin(x) * torch.sin(x + 1))
    assert not rewrite(other, [rule])


def test_the_condition_is_asked_and_its_answer_reported():
    seen = []

    def condition(match: Match):
        seen.append((match["x"].name, match["n"], match.root.name))
        return match["n"] > 2 or "the exponent is small"

    rule = Rule(
        lambda x, n: torch.pow(x, n), lambda x, n: torch.exp(x), condition=condition, name="p"
    )
    gm = corsac.fx.symbolic_trace(lambda x: x**3 + x**2)
    report = rewrite(gm, [rule])
    assert report.counts == {"p": 1}
    assert reasons(report, "p").count("the exponent is small") == 1
    assert ("x", 3, "pow_1") in seen


def test_what_a_condition_raises_is_raised():
    def condition(match):
        raise KeyError("mine")

    gm = corsac.fx.symbolic_trace(lambda x: torch.relu(x))
    with pytest.raises(KeyError, match="mine"):
        rewrite(gm, [Rule(lambda x: torch.relu(x), lambda x: -x, condition=condition)])


def test_a_condition_cannot_change_the_graph():
    def condition(match):
        match.root.graph.erase_node(match.root)

    gm = corsac.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    rule = Rule(lambda x: torch.relu(x), lambda x: x, condition=condition)
    with pytest.raises(RuntimeError):
        rewrite(gm, [rule])
    gm.graph.lint()


def test_functions_with_one_name_are_told_apart():
    def make(factor):
        def scaled(x):
            return x * factor

        return pure(scaled)

    one, two = make(1), make(2)
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(one, (x,)), graph.call_function(two, (x,))))
    gm = corsac.fx.GraphModule({}, graph)
    pattern = corsac.fx.Graph()
    y = pattern.placeholder("y")
    pattern.output(pattern.call_function(two, (y,)))
    assert rewrite(gm, [Rule(pattern, lambda y: torch.neg(y))]).count == 1
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [one, torch.neg]


def test_an_unknown_function_may_do_more_than_compute():
    def unknown(x):
        return x

    graph = corsac.fx.Graph()
    graph.output(graph.call_function(unknown, (graph.placeholder("x"),)))
    pattern = corsac.fx.Graph()
    pattern.output(pattern.call_function(unknown, (pattern.placeholder("x"),)))
    report = rewrite(graph, [Rule(pattern, lambda x: torch.neg(x))])
    assert [site.reason for site in report.sites] == ["unknown does more than compute a value"]


REFUSED = [
    (lambda x: x, lambda x: x, "must return what calls compute"),
    (lambda x: torch.relu(x), lambda x: (x, x), "returns 1 values, the replacement 2"),
    (lambda x: torch.relu(x), lambda a, b: a, "has the inputs (a, b), the pattern (x)"),
    (lambda x: torch.add(x, 1j), lambda x: x, "cannot have anything but nodes, numbers"),
]


@pytest.mark.parametrize("pattern, replacement, message", REFUSED)
def test_what_is_no_rule_is_refused(pattern, replacement, message):
    with pytest.raises(ValueError) as raised:
        Rule(pattern, replacement)
    assert message in str(raised.value)


def test_rules_without_an_end_are_stopped():
    gm = corsac.fx.symbolic_trace(lambda x: torch.sin(x))
    report = rewrite(gm, "sin(?x) => torch.cos(?x)\ncos(?x) => torch.sin(?x)")
    assert "may not come to an end" in report.kept[0].reason
    gm.graph.lint()


def test_a_rewrite_enables_the_next_above_and_below():
    gm = corsac.fx.symbolic_trace(lambda x: torch.sin(torch.cos(torch.tan(x)) + 0))
    rules = """
    last:   add(?x, 0) => ?x
    middle: sin(cos(tan(?x))) => torch.neg(?x)
    """.replace("\n    ", "\n")
    assert rewrite(gm, rules).counts == {"last": 1, "middle": 1}
    gm = corsac.fx.symbolic_trace(lambda x: (torch.sin(x) + torch.sin(x * 1)).relu())
    assert rewrite(gm, "mul(?x, 1) => ?x\nadd(sin(?x), sin(?x)) => torch.cos(?x)").count == 2


def test_a_use_that_goes_enables_a_rule_on_single_uses():
    rules = "tan(?y:sin(?x)) => torch.neg(?x) if single_use(?y)\ncos(sin(?x)) => torch.abs(?x)"
    gm = corsac.fx.symbolic_trace(lambda x: (lambda s: torch.tan(s) * torch.cos(s))(torch.sin(x)))
    assert rewrite(gm, rules).counts == {"line 1": 1, "line 2": 1}


def test_random_and_in_place_calls_are_not_covered():
    gm = corsac.fx.symbolic_trace(lambda x: F.dropout(F.dropout(x, 0.5), 0.5))
    report = rewrite(gm, "dropout(dropout(?x)) => dropout(?x)")
    assert not report
    assert "does more than compute a value" in report.kept[0].reason


def test_hooks_see_what_comes_and_goes():
    gm = traced(lambda x: torch.relu(torch.sin(x)), torch.randn(2))
    seen = []
    gm._register_create_node_hook(lambda node: seen.append(("new", node.name)))
    gm._register_erase_node_hook(lambda node: seen.append(("gone", node.name)))
    rewrite(gm, "relu(sin(?x)) => torch.cos(?x)")
    assert seen == [("new", "cos"), ("gone", "relu"), ("gone", "sin")]


# -- comparison with torch.fx ----------------------------------------------------------------------

UNARY = [torch.sin, torch.cos, torch.neg, torch.abs, torch.relu, torch.tanh]

# Matches of one pattern do not overlap, so that the order of rewrites makes no difference.
PAIRS = [
    (lambda x: torch.relu(torch.neg(x)), lambda x: torch.neg(torch.abs(x))),
    (lambda x: torch.cos(torch.sin(x)), lambda x: torch.tanh(x)),
    (lambda x, y: torch.add(torch.neg(x), y), lambda x, y: torch.sub(y, x)),
    (lambda x: torch.abs(torch.mul(x, 2)), lambda x: torch.mul(torch.abs(x), 2)),
    (lambda x: torch.tanh(torch.tanh(torch.abs(x))), lambda x: torch.relu(x)),
]


@st.composite
def chains(draw):
    """Chains of calls, by function, so that both engines have the same targets."""
    calls = draw(st.lists(st.sampled_from([*UNARY, torch.add, torch.mul]), min_size=1, max_size=24))
    return [(call, {torch.add: "y", torch.mul: 2}.get(call)) for call in calls]


def build(fx, calls):
    graph = fx.Graph()
    value, other = graph.placeholder("x"), graph.placeholder("y")
    for target, operand in calls:
        operands = () if operand is None else (other if operand == "y" else operand,)
        value = graph.call_function(target, (value, *operands))
    graph.output(value)
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("number", range(len(PAIRS)))
@hypothesis.settings(max_examples=60)
@hypothesis.given(calls=chains())
def test_the_result_is_what_replace_pattern_makes_of_it(number, calls):
    pattern, replacement = PAIRS[number]
    peer, ours = build(torch.fx, calls), build(corsac.fx, calls)
    # torch.fx traverses the graph once.
    while torch.fx.replace_pattern(peer, pattern, replacement):
        pass
    rewrite(ours, [Rule(pattern, replacement)])
    ours.graph.lint()
    assert called(ours) == called(peer)
    x, y = torch.rand(8), torch.rand(8)
    assert_same_bits(peer(x, y), ours(x, y))


@hypothesis.settings(max_examples=40)
@hypothesis.given(calls=chains())
def test_many_rules_at_once_end_where_one_at_a_time_does(calls):
    """All rules together end in the same program as applying them one by one until none matches."""
    ours = build(corsac.fx, calls)
    rules = [Rule(*pair, name=str(number)) for number, pair in enumerate(PAIRS)]
    rewrite(ours, rules)
    for pattern, _ in PAIRS:
        assert not torch.fx.replace_pattern(to_torch(ours), pattern, pattern)


def to_torch(gm):
    graph, values = torch.fx.Graph(), {}
    for node in gm.graph.nodes:
        args = torch.fx.node.map_aggregate(
            node.args, lambda arg: values[arg] if isinstance(arg, corsac.fx.Node) else arg
        )
        values[node] = graph.create_node(node.op, node.target, tuple(args), {})
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_a_replacement_is_built_for_each_match():
    def scaled(x, factor):
        return torch.mul(torch.relu(x), factor)

    def build(match):
        factor = match["factor"]
        if isinstance(factor, Node):
            return "the factor is no number"
        if factor == 1:
            return lambda x, factor: torch.relu(x)
        if factor == 0:
            return None
        inverse = 1 / factor
        return lambda x, factor: torch.div(torch.relu(x), inverse)

    def program(x, y):
        a = torch.relu(x) * 1
        b = 4 * torch.relu(y)
        c = torch.relu(a + b) * 0
        return torch.relu(c) * y

    gm = traced(program, torch.randn(3), torch.randn(3))
    report = rewrite(gm, [Rule(scaled, build=build)])
    assert report.counts == {"scaled": 2}
    reasons = {site.node: site.reason for site in report.kept}
    assert set(reasons.values()) == {"the factor is no number", "no replacement was built for it"}
    assert [n.args[1] for n in gm.graph.find_nodes(op="call_function", target=torch.div)] == [0.25]
    x, y = torch.randn(2, 3).unbind()
    torch.testing.assert_close(gm(x, y), program(x, y))


def test_a_replacement_that_cannot_be_built_leaves_the_rest_alone():
    def raises(match):
        raise KeyError("no")

    gm = corsac.fx.symbolic_trace(lambda x: torch.abs(torch.neg(x)) + 1)
    text = str(gm.graph)
    for build, error, message in [
        (raises, KeyError, "no"),
        (
            lambda match: lambda x: (x, x),
            ValueError,
            "the pattern returns 1 values, the replacement 2",
        ),
        (lambda match: lambda a, b: a, ValueError, r"the replacement has the inputs \(a, b\)"),
    ]:
        with pytest.raises(error, match=message):
            rewrite(gm, [Rule(lambda x: torch.abs(torch.neg(x)), build=build)])
        assert str(gm.graph) == text
    with pytest.raises(ValueError, match="a replacement, or something that builds one"):
        Rule(lambda x: torch.abs(x))


def test_the_built_replacement_is_that_of_its_own_operands():
    """Of the two operand orders of a sum, the first is declined."""

    def build(match):
        return None if match["a"].name == "x" else (lambda a, b: torch.sub(b, torch.neg(a)))

    gm = corsac.fx.symbolic_trace(lambda x, y: torch.tanh(torch.add(x, y)))
    rewrite(gm, [Rule(lambda a, b: torch.add(a, b), build=build)])
    (neg, *_) = gm.graph.find_nodes(op="call_function", target=torch.neg)
    assert neg.args[0].name == "y"
    x, y = torch.randn(2, 3).unbind()
    torch.testing.assert_close(gm(x, y), torch.tanh(x + y))


def test_slices_and_indices_match_by_their_parts():
    def program(x):
        a = torch.relu(x[1:3])
        b = torch.relu(x[1:3, 0])
        c = torch.relu(x[..., 0:2:1])
        d = torch.relu(x[[0, 1]])
        return a.sum() + b.sum() + c.sum() + d.sum()

    x = torch.randn(4, 4)
    for text, count in [
        ("relu(?x[1:?n]) => torch.relu(?x)[1:?n]", 1),
        ("relu(?x[1:?n, 0]) => torch.relu(?x)[1:?n, 0]", 1),
        ("relu(?x[?i]) => torch.relu(?x)[?i]", 4),
        ("relu(?x[..., ?a:?b:?c]) => torch.relu(?x)[..., ?a:?b:?c]", 1),
        ("relu(?x[0, 1]) => torch.relu(?x)[0, 1]", 0),
        ("relu(?x[:3]) => torch.relu(?x)[:3]", 0),
    ]:
        gm = corsac.fx.symbolic_trace(program)
        report = rewrite(gm, text)
        assert report.count == count, text
        torch.testing.assert_close(gm(x), program(x))


def test_slices_in_pairs_of_functions():
    def program(x, n):
        return torch.cat([torch.tanh(x[:n]), torch.tanh(x[n:])]), torch.tanh(x[0, 1:]).sum()

    x = torch.randn(4, 3)
    gm = corsac.fx.symbolic_trace(program)
    halves = Rule(
        lambda x, n: torch.cat([torch.tanh(x[:n]), torch.tanh(x[n:])]),
        lambda x, n: torch.tanh(x),
    )
    moved = Rule(lambda x: torch.tanh(x[0, 1:]), lambda x: torch.tanh(x)[0, 1:], name="moved")
    report = rewrite(gm, [halves, moved])
    assert report.count == 2
    for found, wanted in zip(gm(x, 2), program(x, 2), strict=True):
        torch.testing.assert_close(found, wanted)
    with pytest.raises(ValueError, match="a list of indices"):
        Rule(lambda x: torch.tanh(x[[0, 1]]), lambda x: x)


def test_slices_are_exchanged_by_saturation():
    def program(x):
        return torch.exp(torch.exp(x)[:, 0:1])

    x = torch.randn(256, 256)
    gm = traced(program, x)
    expected = gm(x)
    report = corsac.passes.saturate(gm, "late: exp(?x)[?i] <=> torch.exp(?x[?i])")
    assert report.cost_after < report.cost_before
    calls = [n.target for n in gm.graph.nodes if n.op == "call_function"]
    assert calls == [operator.getitem, torch.exp, torch.exp]
    assert torch.equal(gm(x), expected)


# -- modules ---------------------------------------------------------------------------------------


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.some, self.tenth = torch.nn.Dropout(0.5), torch.nn.Dropout(0.1)
        self.exact, self.fast = torch.nn.GELU(), torch.nn.GELU("tanh")
        self.pool = torch.nn.AvgPool2d(2, stride=(2, 2))

    def forward(self, x):
        return self.fast(self.tenth(self.some(self.exact(self.pool(x)))))


def layers():
    return corsac.fx.symbolic_trace(Layers().eval())


@pytest.mark.parametrize(
    "rule, expected",
    [
        ("nn.Dropout(?x) => ?x", ["some", "tenth"]),
        ("nn.Dropout(?x, p=0.5) => ?x", ["some"]),
        ("torch.nn.Dropout(?x, p=?p, training=False) => ?x  if ?p < 0.2", ["tenth"]),
        ("nn.Dropout(?x, training=True) => ?x", []),
        ("nn.Dropout(nn.Dropout(?x, p=?p), p=?q) => ?x", ["tenth"]),
        ("nn.AvgPool2d(?x, stride=[2, 2]) => torch.nn.functional.avg_pool2d(?x, 2)", ["pool"]),
        ("nn.Dropout|nn.GELU(?x) => torch.neg(?x)", ["exact", "some", "tenth", "fast"]),
        ("nn.Dropout2d(?x) => ?x", []),
    ],
)
def test_modules_are_matched_by_class_and_settings(rule, expected):
    gm = layers()
    report = rewrite(gm, rule)
    assert sorted(site.node for site in report.applied) == sorted(expected)
    left = {name for name, _ in gm.named_children()}
    assert not left & set(expected), "modules that nothing calls go"
    gm(torch.randn(1, 1, 4, 4))


def test_a_setting_is_captured():
    gm, x = layers(), torch.randn(1, 1, 4, 4)
    expected = gm(x)
    rule = "nn.GELU(?x, approximate=?a) => torch.nn.functional.gelu(?x, approximate=?a)"
    assert rewrite(gm, rule).count == 2
    given = [n.kwargs["approximate"] for n in gm.graph.nodes if n.kwargs]
    assert given == ["none", "tanh"]
    assert torch.equal(gm(x), expected)


def test_a_pattern_that_is_a_module():
    class Half(torch.nn.Module):
        def __init__(self, p):
            super().__init__()
            self.drop = torch.nn.Dropout(p)

        def forward(self, x):
            return self.drop(x)

    def identity(x):
        return x

    gm = layers()
    report = rewrite(gm, [Rule(Half(0.5), identity, name="half")])
    assert [site.node for site in report.applied] == ["some"]
    gm = layers()
    assert rewrite(gm, [Rule(Half(0.5), identity, settings=())]).count == 2
    assert not gm.graph.find_nodes(op="call_module", target="tenth")


def test_modules_that_stay():
    gm = layers()
    gm.some.register_forward_hook(lambda *_: None)
    gm.tenth.train()
    report = rewrite(gm, "nn.Dropout(?x) => ?x")
    assert not report
    assert [site.node for site in report.kept] == ["tenth"]

    class Mine(torch.nn.Dropout):
        pass

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mine, self.linear = Mine(), torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.mine(self.linear(x))

    gm = corsac.fx.symbolic_trace(Model().eval())
    report = rewrite(gm, "nn.Dropout|nn.Linear(?x) => ?x")
    assert [site.node for site in report.kept] == ["linear"]
