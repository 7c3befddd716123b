"""Normal forms of calls and merged matrix products, compared with torch.fx's."""

import inspect
import operator

import pytest
import torch
import torch.fx
import torch.fx.experimental.merge_matmul as their_merge
import torch.fx.experimental.normalize as their_normalize
import torch.fx.operator_schemas as their_schemas
import torch.nn.functional as F
from torch import nn

import corsac.analysis
import corsac.fx
import corsac.fx.experimental.merge_matmul as our_merge
import corsac.fx.experimental.normalize as our_normalize
import corsac.fx.operator_schemas as our_schemas
import corsac.passes


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.w = nn.Linear(2, 2), nn.Parameter(torch.randn(2, 2))

    def forward(self, x):
        a = torch.add(x, self.w) - torch.mul(x, 3)
        y = F.relu(a) * 2
        z = torch.max_pool2d(y[None], 1)[0]
        return self.linear(z) + F.leaky_relu(torch.div(y, 2), 0.3)


def listing(gm):
    return [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes]


def test_arguments_are_given_as_torch_fx_gives_them():
    model = Model()
    x = torch.randn(2, 2)
    for only_keywords in (True, False):
        theirs = their_normalize.NormalizeArgs(
            torch.fx.symbolic_trace(model), normalize_to_only_use_kwargs=only_keywords
        ).transform()
        ours = our_normalize.NormalizeArgs(
            corsac.fx.symbolic_trace(model), normalize_to_only_use_kwargs=only_keywords
        ).transform()
        assert [row[2:] for row in listing(ours)] == [row[2:] for row in listing(theirs)]
        assert torch.equal(ours(x), model(x))


def test_names_and_metadata_stay():
    gm = corsac.fx.symbolic_trace(Model())
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    for made in (
        our_normalize.NormalizeArgs(gm).transform(),
        our_normalize.NormalizeOperators(gm).transform(),
    ):
        for node, old in zip(made.graph.nodes, gm.graph.nodes, strict=True):
            assert node.meta["mark"] == old.name
            assert node.source == old.source


def test_operators_are_written_as_such():
    model = Model()
    theirs = their_normalize.NormalizeOperators(torch.fx.symbolic_trace(model)).transform()
    ours = our_normalize.NormalizeOperators(corsac.fx.symbolic_trace(model)).transform()
    assert [row[2:4] for row in listing(ours)] == [row[2:4] for row in listing(theirs)]
    x = torch.randn(2, 2)
    assert torch.equal(ours(x), model(x))


def test_further_arguments_are_not_lost():
    def program(x):
        return torch.add(x, x, alpha=3) + torch.div(x, 2, rounding_mode="floor")

    x = torch.randn(4)
    gm = our_normalize.NormalizeOperators(corsac.fx.symbolic_trace(program)).transform()
    assert torch.equal(gm(x), program(x))
    wrong = their_normalize.NormalizeOperators(torch.fx.symbolic_trace(program)).transform()
    assert not torch.equal(wrong(x), program(x)), "torch.fx has learnt this"


def test_schemas_are_complete():
    for name in (
        "ArgsKwargsPair",
        "check_for_mutable_operation",
        "create_type_hint",
        "get_signature_for_torch_op",
        "normalize_function",
        "normalize_module",
        "type_matches",
    ):
        assert hasattr(our_schemas, name) and hasattr(their_schemas, name)
    gm = corsac.fx.symbolic_trace(Model())
    (relu,) = gm.graph.find_nodes(op="call_function", target=F.relu)
    pair = our_schemas.normalize_function(
        F.relu, relu.args, relu.kwargs, normalize_to_only_use_kwargs=True
    )
    assert pair.args == () and pair.kwargs == {"input": relu.args[0], "inplace": False}
    (call,) = gm.graph.find_nodes(op="call_module")
    pair = our_schemas.normalize_module(gm, call.target, call.args, call.kwargs, True)
    assert pair.kwargs == {"input": call.args[0]}


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4))

    def forward(self, x, y, z):
        a = torch.matmul(x, self.w) + 1
        b = torch.matmul(y, self.w)
        return a, b.relu(), torch.matmul(z, torch.relu(self.w))


def test_products_with_one_right_hand_side_are_one():
    model = Products()
    inputs = torch.randn(2, 3), torch.randn(5, 3), torch.randn(1, 3)
    ours = our_merge.merge_matmul(model, example_inputs=inputs)
    for gm in (ours, their_merge.merge_matmul(model)):
        products = [n for n in gm.graph.nodes if n.target is torch.matmul]
        assert len(products) == 2
        for found, expected in zip(gm(*inputs), model(*inputs), strict=True):
            torch.testing.assert_close(found, expected)
    more = torch.randn(3, 3), torch.randn(1, 3), torch.randn(4, 3)
    for found, expected in zip(ours(*more), model(*more), strict=True):
        torch.testing.assert_close(found, expected)
    report = ours.meta["report"]
    assert report.count == 2 and len(report.sites) == 3


def test_products_of_unknown_shapes_stay():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 4))

        def forward(self, x, y):
            return torch.matmul(x, self.w), torch.matmul(y, self.w)

    model, inputs = Two(), (torch.randn(2, 3), torch.randn(2, 5, 3))
    gm = our_merge.merge_matmul(model)
    reasons = [site.reason for site in gm.meta["report"].sites]
    assert reasons == ["the shape of x is not known"] * 2
    for found, expected in zip(gm(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError):
        their_merge.merge_matmul(model)(*inputs)
    gm = our_merge.merge_matmul(model, example_inputs=inputs)
    reasons = {site.reason for site in gm.meta["report"].sites}
    assert reasons == {"its left-hand side does not fit to those of the others"}


def test_products_that_depend_on_each_other_stay():
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 3))

        def forward(self, x):
            return torch.matmul(torch.matmul(x, self.w), self.w)

    class Written(Chain):
        def forward(self, x):
            a = torch.matmul(x, self.w)
            x.mul_(2)
            return a, torch.matmul(x, self.w)

    x = torch.randn(2, 3)
    for model in (Chain(), Written()):
        gm = our_merge.merge_matmul(model, example_inputs=(x,))
        assert len([n for n in gm.graph.nodes if n.target is torch.matmul]) == 2
        torch.testing.assert_close(gm(x.clone()), model(x.clone()))


def test_shapes_that_do_not_fit_keep_products_apart():
    class Batched(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(2, 3, 4))

        def forward(self, x, y):
            return torch.matmul(x, self.w), torch.matmul(y, self.w)

    model, inputs = Batched(), (torch.randn(5, 3), torch.randn(7, 3))
    gm = our_merge.merge_matmul(model, example_inputs=inputs)
    assert {site.reason for site in gm.meta["report"].sites} == {"w has 3 dimensions"}
    for found, expected in zip(gm(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError):
        their_merge.merge_matmul(model)(*inputs)


def test_the_pass_takes_no_shape_for_granted():
    model, inputs = Products(), (torch.randn(2, 3), torch.randn(5, 3), torch.randn(1, 3))
    gm = corsac.fx.symbolic_trace(model)
    report = corsac.passes.merge_matmul(gm)
    reasons = [site.reason for site in report.sites]
    assert reasons[:2] == ["the shape of x is not known"] * 2
    assert reasons[2] == "no other product has its right-hand side"
    corsac.analysis.propagate(gm, *inputs)
    assert corsac.passes.merge_matmul(gm).count == 2
    (split,) = gm.graph.find_nodes(op="call_function", target=torch.split)
    assert split.args[1] == [2, 5]
    for found, expected in zip(gm(*inputs), model(*inputs), strict=True):
        torch.testing.assert_close(found, expected)


def test_keyword_arguments_have_the_names_that_pytorch_gives_them():
    model, x = Model(), torch.randn(2, 2)
    gm = corsac.fx.symbolic_trace(model)
    theirs = their_normalize.NormalizeArgs(torch.fx.symbolic_trace(model)).transform()
    report = corsac.passes.keyword_arguments(gm)
    assert report.count == 6, str(report)
    assert torch.equal(gm(x), model(x))
    expected = {node.name: node.kwargs for node in theirs.graph.nodes}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target.__module__ != "_operator":
            assert not node.args
            # torch.fx adds defaults if the overload is certain.
            known = expected[node.name] or node.kwargs
            assert list(node.kwargs) == list(known)[: len(node.kwargs)]


def test_every_name_that_is_known_is_one_of_pytorch():
    from torch.fx.operator_schemas import get_signature_for_torch_op

    names = [name for name in dir(torch) if callable(getattr(torch, name)) and name[0] != "_"]
    checked = 0
    for name in names:
        function = getattr(torch, name)
        try:
            signatures = [inspect.signature(function)]
        except (TypeError, ValueError):
            signatures = get_signature_for_torch_op(function) or []
        if not signatures or isinstance(function, type):
            continue
        for count in range(1, 5):
            graph = corsac.fx.Graph()
            values = [graph.placeholder(f"x{i}") for i in range(count)]
            graph.call_function(function, tuple(values))
            report = corsac.passes.keyword_arguments(graph)
            if not report:
                continue
            checked += 1
            given = set(list(graph.nodes)[-1].kwargs)
            every = [p for s in signatures for p in s.parameters.values()]
            takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in every)
            known = any(given <= set(s.parameters) for s in signatures)
            assert known or takes_any, (name, given)
    assert checked > 300, checked


def test_functions_are_written_as_operators_and_others_stay():
    def program(x):
        return torch.add(x, 1) - torch.add(x, x, alpha=3) + torch.div(x, 2, rounding_mode="floor")

    gm, x = corsac.fx.symbolic_trace(program), torch.randn(4)
    report = corsac.passes.functions_to_operators(gm)
    assert report.count == 1 and len(report.kept) == 2
    assert gm.graph.find_nodes(op="call_function", target=operator.add)[0].name == "add"
    assert torch.equal(gm(x), program(x))
