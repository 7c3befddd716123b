"""Rules whose results call modules and read weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx
from corsac.passes import Rule, Rules, rewrite, saturate


class Model(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=bias), nn.Linear(3, 3, bias=bias)
        self.norm, self.drop = nn.LayerNorm(3), nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.rand(3) + 0.5)

    def forward(self, x):
        return self.second(self.norm(self.first(x)).relu()) * 2


X = torch.randn(4, 3)


def traced(model):
    return corsac.fx.symbolic_trace(model.eval())


def test_weights_of_what_was_matched():
    model = Model()
    gm = traced(model)
    rule = "?m@nn.Linear(?x) => torch.nn.functional.linear(?x, ?m.weight, ?m.bias)"
    report = rewrite(gm, rule)
    assert report.count == 2
    assert [n.target for n in gm.graph.find_nodes(op="get_attr")] == [
        "first.weight",
        "first.bias",
        "second.weight",
        "second.bias",
    ]
    assert gm.graph.find_nodes(op="call_function", target=F.linear)[0].source.module == "first"
    assert torch.equal(gm(X), model(X))
    assert gm.first.weight is model.first.weight
    gm.graph.lint()


def test_a_bias_that_is_not_there():
    model = Model(bias=False)
    gm = traced(model)
    rule = "?m@nn.Linear(?x) => torch.nn.functional.linear(?x, ?m.weight, ?m.bias)"
    report = rewrite(gm, rule)
    reasons = [site.reason for site in report.kept]
    assert reasons == ["bias of second is None", "bias of first is None"]
    rule = "?m@nn.Linear(?x, bias=None) => torch.nn.functional.linear(?x, ?m.weight)"
    assert rewrite(gm, rule).count == 2
    assert torch.equal(gm(X), model(X))


def test_the_matched_module_is_called_elsewhere():
    model = Model()
    gm = traced(model)
    report = rewrite(gm, "mul(?m@nn.Linear(?x), 2) => ?m(torch.mul(?x, 2))")
    assert [site.node for site in report.applied] == ["mul"]
    (last,) = (n for n in gm.graph.nodes if n.target == "second")
    assert last.args[0].target is torch.mul
    expected = model.second(model.norm(model.first(X)).relu() * 2)
    torch.testing.assert_close(gm(X), expected)
    assert rewrite(gm, "?m@nn.Linear(mul(?x, 2)) => torch.mul(?m(?x), 2)").count == 1
    assert torch.equal(gm(X), model(X))


def test_one_name_is_one_module():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x, y):
            return self.a(x) + self.a(y), self.a(x) + self.b(y)

    model = Two()
    gm = traced(model)
    rule = "add(?m@nn.Linear(?x), ?m@nn.Linear(?y)) => torch.cat([?m(?x), ?m(?y)])"
    report = rewrite(gm, rule)
    assert [site.node for site in report.applied] == ["add"]


def test_modules_and_attributes_by_path():
    model = Model()
    gm = traced(model)
    gm.scale = model.scale
    rule = "mul(?x, 2) => torch.mul(self.norm(?x), self.scale)"
    assert rewrite(gm, rule).count == 1
    hidden = model.second(model.norm(model.first(X)).relu())
    assert torch.equal(gm(X), model.norm(hidden) * model.scale)
    with pytest.raises(ValueError, match=r"there is no nothing\.weight in what is rewritten"):
        rewrite(gm, "mul(?x, 3) => torch.mul(?x, self.nothing.weight)")
    gm = traced(model)
    gm.scale = model.scale
    gm.norm.register_forward_hook(lambda *_: None)
    (site,) = rewrite(gm, rule).kept
    assert site.reason == "norm does more than compute a value"


def test_modules_that_were_not_called_before():
    model = Model()
    rules = (
        "a: mul(?x, 2) => self.drop(?x)\nb: nn.Dropout(?x, p=0.5, training=False) => torch.abs(?x)"
    )
    gm = traced(model)
    gm.drop = model.drop
    assert rewrite(gm, rules).counts == {"a": 1, "b": 1}
    assert torch.equal(gm(X), model.second(model.norm(model.first(X)).relu()).abs())
    gm = traced(model)
    gm.drop = model.drop
    gm.drop.register_forward_hook(lambda *_: None)
    (site,) = rewrite(gm, rules.splitlines()[0]).kept
    assert site.reason == "drop does more than compute a value"

    # The same for a replacement built per match.
    graph = corsac.fx.Graph()
    graph.output(graph.call_module("act", (graph.placeholder("x"),)))
    rules = [
        Rule(lambda x: x * 2, build=lambda _: graph),
        *Rules.parse("b: nn.ReLU(?x) => torch.abs(?x)"),
    ]
    gm = traced(Model())
    gm.act = nn.ReLU()
    assert rewrite(gm, rules).count == 2
    assert not gm.graph.find_nodes(op="call_module", target="act")


def test_what_is_built_names_what_is_there():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.mul, (x, graph.get_attr("norm.nothing"))))
    gm = traced(Model())
    before = str(gm.graph)
    says = r"what rule twice built: there is no norm\.nothing in what is rewritten"
    with pytest.raises(ValueError, match=says):
        rewrite(gm, [Rule(lambda x: x * 2, build=lambda _: graph, name="twice")])
    assert str(gm.graph) == before
    gm(X)


def test_pairs_of_modules():
    class Pattern(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x) * 2

    class Replacement(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return F.linear(x, self.linear.weight * 2, self.linear.bias * 2)

    model = Model()
    gm = traced(model)
    assert rewrite(gm, [Rule(Pattern(), Replacement())]).count == 1
    assert {n.target for n in gm.graph.find_nodes(op="get_attr")} == {
        "second.weight",
        "second.bias",
    }
    torch.testing.assert_close(gm(X), model(X))

    class Own(Replacement):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(3, 3)

        def forward(self, x):
            return self.other(self.linear(x))

    with pytest.raises(ValueError, match="uses its own other, which the pattern does not call"):
        Rule(Pattern(), Own())


def test_what_is_built_for_a_match_may_read_weights():
    class Pattern(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x)

    class Built(Pattern):
        def forward(self, x):
            return F.linear(x, self.linear.weight) + self.linear.bias

    model = Model()
    gm = traced(model)
    assert rewrite(gm, [Rule(Pattern(), build=lambda _: Built())]).count == 2
    torch.testing.assert_close(gm(X), model(X))


def test_weights_that_are_written_to_keep_what_reads_them_where_it_is():
    class Writes(Model):
        def forward(self, x):
            y = self.first(x)
            self.first.weight.data.mul_(2)
            return y.relu()

    gm = traced(Writes())
    rule = "relu(?m@nn.Linear(?x)) => ?m(torch.relu(?x))"
    (site,) = rewrite(gm, rule).kept
    assert "written to between" in site.reason or "may change" in site.reason


def test_nobody_gets_a_weight():
    gm = traced(nn.Sequential(nn.Linear(3, 3)))
    (site,) = rewrite(gm, "?m@nn.Linear(?x) => ?m.bias").kept
    assert site.reason == "_0 would share storage with an attribute"
    (site,) = rewrite(gm, "?m@nn.Linear(?x) => torch.t(?m.weight)").kept
    assert site.reason == "_0 would share storage with an attribute"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("?m@relu(?x) => ?x", "expected a call of a module"),
        ("?m@nn.Linear(?x) => ?m", "stands for a module: call it, or read an attribute"),
        ("add(?m@nn.Linear(?x), ?m) => ?x", "stands for a module, not for a value"),
        ("add(?m, ?m@nn.Linear(?x)) => ?x", "stands for a value, not for a module"),
    ],
)
def test_modules_are_no_values(text, says):
    with pytest.raises(ValueError, match=says):
        Rules.parse(text)


def test_saturation_leaves_such_rules_out():
    report = saturate(traced(Model()), "?m@nn.Linear(?x) => torch.mul(?m(?x), 1)")
    assert dict(report.left_out) == {"line 1": "its result calls modules or reads attributes"}
