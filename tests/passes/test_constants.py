"""Values that do not depend on the inputs are computed once."""

import pytest
import torch
import torch.fx.experimental.const_fold as theirs
from torch import nn

import corsac.fx
import corsac.fx.experimental.const_fold as ours
from corsac.passes import Budget, fold_constants


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 3))
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        a = self.w + self.v.t()
        b = self.linear(torch.relu(a))
        return x @ a + b * x


def traced(model):
    torch.manual_seed(0)
    return corsac.fx.symbolic_trace(model.eval())


X = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))


def test_results_are_buffers_and_what_made_them_is_gone():
    model = Model()
    gm = traced(model)
    report = fold_constants(gm)
    assert [site.node for site in report.applied] == ["add", "linear"]
    assert sorted(gm.state_dict()) == ["_constant_add", "_constant_linear"]
    assert torch.equal(gm(X), model(X))
    assert len(gm.graph.nodes) == 7


def test_some_stay_when_asked():
    gm = traced(Model())
    report = fold_constants(gm, skip=lambda node: node.op == "call_module")
    assert [site.reason for site in report.kept] == ["it is to stay"]
    model = Model()
    gm = traced(model)
    one = fold_constants(gm, budget=Budget(1))
    assert one.count == 1 and one.kept[-1].reason == "the budget of changes is used up"
    assert torch.equal(gm(X), model(X))


def split(fx, model):
    return fx.split_const_subgraphs(model)


@pytest.mark.parametrize("several", [False, True])
def test_split_gives_what_torch_fx_gives(several):
    class One(Model):
        def forward(self, x):
            a = self.w + self.v.t()
            return x @ a

    torch.manual_seed(0)
    model = (Model() if several else One()).eval()
    a, b = ours.split_const_subgraphs(model), theirs.split_const_subgraphs(model)
    assert a.fx_const_folded_attrs_name == b.fx_const_folded_attrs_name
    assert not a.has_folding_been_run
    assert torch.equal(a(X), b(X)) and torch.equal(a(X), model(X))
    assert a.has_folding_been_run
    shape = [(n.op, str(n.target)) for n in a.graph.nodes if n.op != "get_attr"]
    assert shape == [(n.op, str(n.target)) for n in b.graph.nodes if n.op != "get_attr"]
    with pytest.raises(AssertionError):
        a.run_folding()
    with pytest.raises(AssertionError):
        b.run_folding()


def test_weights_that_change_before_the_first_call_count():
    model = Model().eval()
    folded = ours.split_const_subgraphs(model)
    with torch.no_grad():
        model.w.fill_(2.0)
    assert torch.equal(folded(X), model(X))


class Sums(nn.Module):
    """Sums with the input, whose operands might be lists, judging by the operator."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.w = nn.Parameter(torch.randn(3, 3))
        self.v = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        return x + (self.v + self.inner.w)


def test_sums_of_tensors_hold_no_other_values():
    model = Sums()
    folded = ours.split_const_subgraphs(model)
    assert folded.const_subgraph_module is not None
    assert torch.equal(folded(X), model(X))
    gm = corsac.fx.symbolic_trace(model)
    assert [site.node for site in fold_constants(gm).applied] == ["add"]
    assert torch.equal(gm(X), model(X))


def test_sums_of_lists_stay():
    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.rest = nn.Parameter(torch.randn(3)), []

        def forward(self, x):
            return x + [self.w.exp()]  # noqa: RUF005

    model = Lists()
    folded = ours.split_const_subgraphs(model)
    assert folded.const_subgraph_module is None
    kept = folded([])
    kept[0].data.zero_()
    assert torch.equal(folded([])[0], model.w.exp())


def test_folded_constants_record_what_the_program_records():
    model = Sums()
    a, b = ours.split_const_subgraphs(model), theirs.split_const_subgraphs(model)
    with torch.no_grad():
        a(X)
    assert a(X).requires_grad and b(X).requires_grad and model(X).requires_grad
    model.requires_grad_(False)
    assert not ours.split_const_subgraphs(model)(X).requires_grad


def test_nothing_to_fold():
    class Plain(nn.Module):
        def forward(self, x):
            return x + 1

    folded = ours.split_const_subgraphs(Plain())
    assert folded.const_subgraph_module is None
    assert torch.equal(folded(X), X + 1)


def test_what_may_not_be_folded():
    class Kept(Model):
        def forward(self, x):
            noise = torch.rand_like(self.w)
            return x + noise, self.v.exp()

    report = fold_constants(traced(Kept()))
    assert {site.target: site.reason for site in report.kept} == {
        "torch.rand_like": "does more than computing its value, or may do",
        "exp": "the caller gets it and may write to it",
    }
    assert not report.changed


@pytest.mark.parametrize(
    "name", ["x", "x_1", "y_3", "a.b", "1x", "z", "sub.w", "q.r", "forward", "é", "y_03"]
)
def test_names_of_new_attributes_are_those_of_torch_fx(name):
    module = nn.Module()
    module.x, module.x_1, module.y_3, module.a_b = 1, 2, 3, 4
    module.sub = nn.Linear(2, 2)
    expected = theirs.get_unique_attr_name_in_module(module, name)
    assert ours.get_unique_attr_name_in_module(module, name) == expected
