"""Passes run in sequence and checked; a wrong change is found by bisection."""

import functools
import operator
import textwrap

import pytest
import torch
from torch import nn

import corsac.fx
import corsac.optimum
from corsac.passes import (
    PassManager,
    VerificationError,
    common_subexpressions,
    eliminate_dead_code,
    fuse_conv_bn,
    remove_dropout,
    rewrite,
    rewrite_budget,
    simplify,
)
from kit.trained import as_if_trained


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Dropout()

    def forward(self, x):
        y = self.drop(self.bn(self.conv(x)))
        a, b = torch.cos(y), torch.cos(y)
        return (a + b).relu() - torch.sin(a)


def traced(model=None):
    torch.manual_seed(0)
    return corsac.fx.symbolic_trace(as_if_trained(model or Model()))


def sub_for_add(gm):
    """A wrong pass without a budget."""
    for node in gm.graph.find_nodes(op="call_function", target=operator.add):
        node.target = operator.sub
    gm.recompile()


X = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(0))
PASSES = [remove_dropout, fuse_conv_bn, common_subexpressions, eliminate_dead_code]


def test_right_passes_pass_and_report():
    gm = traced()
    expected = gm(X)
    outcome = PassManager(PASSES, verify=(X,))(gm)
    assert outcome.graph_module is gm and outcome.modified
    assert [report.count for report in outcome.reports] == [1, 1, 1, 0]
    assert all(step.agreement.error < 1e-5 for step in outcome.steps)
    assert "conv-bn fusion: 1 of 1 sites" in str(outcome)
    torch.testing.assert_close(gm(X), expected)


def test_the_first_wrong_pass_and_node_are_named():
    passes = [remove_dropout, fuse_conv_bn, sub_for_add, eliminate_dead_code]
    with pytest.raises(VerificationError) as caught:
        PassManager(passes, verify=X)(traced())
    assert caught.value.pass_name == "sub_for_add"
    assert caught.value.node == "add"
    assert "the first value that differs is that of add" in str(caught.value)


def test_a_node_that_takes_the_place_of_another_is_not_blamed():
    def fuse_and_spoil(gm):
        fuse_conv_bn(gm)
        sub_for_add(gm)

    with pytest.raises(VerificationError) as caught:
        PassManager([fuse_and_spoil], verify=(X,))(traced())
    assert caught.value.node == "add"


def test_bisection_finds_the_change():
    gm = traced()
    text = str(gm.graph)
    culprit = PassManager([*PASSES[:3], sub_for_add], verify=(X,)).bisect(gm)
    assert (culprit.pass_name, culprit.change) == ("sub_for_add", 4)
    assert str(gm.graph) == text, "the module given stays as it is"
    assert PassManager(PASSES, verify=(X,)).bisect(gm) is None


class Chain(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(6):
            y = torch.cos(y) + torch.cos(y)
        return y


def test_bisection_finds_one_site_of_many():
    def wrong_where_sines_are_merged(gm):
        report = common_subexpressions(gm)
        if any(site.target == "torch.sin" for site in report.applied):
            output = gm.graph.output_node()
            with gm.graph.inserting_before(output):
                output.args = (gm.graph.call_function(torch.neg, (output.args[0],)),)
            gm.recompile()
        return report

    gm = traced(Chain())
    assert PassManager([common_subexpressions], verify=(X,)).bisect(gm) is None
    for node in gm.graph.find_nodes(op="call_function", target=torch.cos)[6:8]:
        node.target = torch.sin
    gm.recompile()
    culprit = PassManager([wrong_where_sines_are_merged], verify=(X,)).bisect(gm)
    # Six pairs in order; the fourth is the one of sines.
    assert culprit.change == 4
    assert culprit.site.target == "torch.sin"
    assert culprit.pass_name == "wrong_where_sines_are_merged"
    assert "torch.sin" in str(culprit)


def test_bisection_finds_one_rewrite_of_many():
    def program(x):
        for _ in range(3):
            x = torch.relu(torch.relu(x)) + torch.neg(torch.neg(x))
        return torch.tanh(x) - torch.sigmoid(x)

    wrong = """
        relu_twice: relu(?y:relu(_)) => ?y
        double_negation: neg(neg(?x)) => ?x
        tanh: tanh(?x) => torch.sin(?x)
    """
    gm = corsac.fx.symbolic_trace(program)
    rewriting = functools.partial(rewrite, rules=textwrap.dedent(wrong))
    whole = PassManager([simplify, rewriting])(corsac.fx.symbolic_trace(program))
    assert [report.count for report in whole.reports] == [6, 1]
    for passes in ([rewriting], [rewriting, simplify]):
        culprit = PassManager(passes, verify=(X,)).bisect(gm)
        assert culprit.pass_name == "rewrite"
        assert culprit.site.target == "torch.tanh"
    for allowed in range(8):
        outcome = PassManager([simplify, rewriting], stop_after=allowed)(
            corsac.fx.symbolic_trace(program)
        )
        assert outcome.changes == min(allowed, 7)


def test_transformations_of_optimum_report_and_spend():
    def program(x):
        return (x / 3.0 + x / 5.0) / 7.0

    division = corsac.optimum.ChangeTrueDivToMulByInverse()
    for allowed, made in [(None, 3), (2, 2), (0, 0)]:
        gm = corsac.fx.symbolic_trace(program)
        outcome = PassManager([division], verify=(X,), stop_after=allowed)(gm)
        assert [report.count for report in outcome.reports] == [made]
        assert len(gm.graph.find_nodes(op="call_function", target=operator.mul)) == made


def test_no_more_changes_are_made_than_allowed():
    for allowed in range(6):
        gm = traced()
        outcome = PassManager(PASSES, verify=(X,), stop_after=allowed)(gm)
        assert outcome.changes == min(allowed, 3)
    kept = outcome.reports[0]
    assert kept.count == 1
    gm = traced()
    report = PassManager(PASSES, stop_after=0)(gm).reports[2]
    assert report.kept[0].reason == "the budget of changes is used up"


def test_a_budget_counts_over_passes():
    gm = traced()
    with rewrite_budget() as budget:
        for transform in PASSES:
            transform(gm)
    assert budget.spent == 3 and budget.left is None


def test_results_of_every_kind_are_taken():
    class Result:
        def __init__(self, gm):
            self.graph_module, self.modified = gm, True

    def returns_module(gm):
        return corsac.fx.GraphModule(gm, gm.graph)

    partial = functools.partial(fuse_conv_bn, linear=True)
    gm = traced()
    outcome = PassManager([Result, returns_module, partial, lambda gm: None], verify=(X,))(gm)
    assert outcome.graph_module is not gm
    assert [step.name for step in outcome.steps] == [
        "Result",
        "returns_module",
        "fuse_conv_bn",
        "<lambda>",
    ]
    assert [report.changed for report in outcome.reports] == [True, True, True, False]


def test_random_numbers_and_buffers_are_the_same_in_every_run():
    model = Model()
    gm = corsac.fx.symbolic_trace(model.train())
    before = {name: value.clone() for name, value in gm.state_dict().items()}
    x = torch.randn(4, 2, 3, 3)
    torch.manual_seed(3)
    outcome = PassManager(PASSES, verify=(x,))(gm)
    # Dropout and batch norm in training are kept; the random numbers are the same, so that nothing differs.
    assert [report.count for report in outcome.reports] == [0, 0, 1, 0]
    assert outcome.steps[2].agreement.error == 0
    after = gm.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_graph_that_is_not_well_formed_is_found():
    def breaks_order(gm):
        nodes = list(gm.graph.nodes)
        nodes[1].append(nodes[0])

    with pytest.raises(VerificationError, match="breaks_order left a graph"):
        PassManager([breaks_order])(traced())


def test_a_program_that_fails_afterwards_is_found():
    def renames(gm):
        node = gm.graph.find_nodes(op="call_function", target=torch.sin)[0]
        node.target = torch.linalg.inv
        gm.recompile()

    with pytest.raises(VerificationError, match=r"after renames the program fails|renames changed"):
        PassManager([renames], verify=(torch.randn(1, 2, 3, 2),))(traced())


def test_writes_to_inputs_count():
    class Writes(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x.clone()

    def drops_the_write(gm):
        (clone,) = gm.graph.find_nodes(op="call_method", target="clone")
        (write,) = gm.graph.find_nodes(op="call_method", target="add_")
        with gm.graph.inserting_before(clone):
            clone.args = (gm.graph.call_function(operator.add, (write.args[0], 1)),)
        gm.graph.erase_node(write)
        gm.recompile()

    with pytest.raises(VerificationError, match="an input that was written to differs by 1"):
        PassManager([drops_the_write], verify=(torch.zeros(3),))(traced(Writes()))


def test_bisection_needs_inputs():
    with pytest.raises(ValueError, match="verify=inputs"):
        PassManager(PASSES).bisect(traced())
