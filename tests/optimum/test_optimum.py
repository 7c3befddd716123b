"""optimum's transformations: effects, undoing, and cases that they skip."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx
from corsac.optimum import (
    ChangeTrueDivToMulByInverse,
    DeepCopy,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    LintAndRecompile,
    MergeLinears,
    ReversibleTransformation,
    Transformation,
    compose,
)
from kit import row


class Attention(nn.Module):
    """Self-attention as in BERT."""

    def __init__(self, width=12, heads=3, bias=True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / (q.size(-1) ** 0.5)
        scores = scores / 3.0
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


class Block(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.attention = Attention(bias=bias)
        self.up, self.down = nn.Linear(12, 20), nn.Linear(20, 12)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(x)))


class Encoder(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.blocks = nn.Sequential(Block(bias), Block(bias))
        self.first, self.second = nn.Linear(12, 4), nn.Linear(12, 2, bias=False)

    def forward(self, x):
        x = self.blocks(x)
        return self.first(x), self.second(x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Encoder().eval()


@pytest.fixture
def x():
    return torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))


def state(module):
    return [(name, value.clone(), value.requires_grad) for name, value in
            (*module.named_parameters(), *module.named_buffers())]  # fmt: skip


def same_state(a, b):
    return len(a) == len(b) and all(
        n == m and torch.equal(v, w) and v.dtype == w.dtype and r == s
        for (n, v, r), (m, w, s) in zip(a, b, strict=True)
    )


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def targets(gm):
    return [node.target for node in gm.graph.nodes]


REVERSIBLE = [
    MergeLinears(),
    FuseBiasInLinear(),
    ChangeTrueDivToMulByInverse(),
    LintAndRecompile(),
    compose(ChangeTrueDivToMulByInverse(), MergeLinears()),
    compose(MergeLinears(), FuseBiasInLinear(), ChangeTrueDivToMulByInverse()),
    compose(FuseBiasInLinear(), MergeLinears()),
]


@row("`MergeLinears(reverse=True)`")
@row("names and order of submodules")
@row("the model that was traced")
@row("`ChangeTrueDivToMulByInverse(reverse=True)`")
@pytest.mark.filterwarnings("ignore:Not all the linear layers")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("number", range(len(REVERSIBLE)))
def test_graph_and_weights_come_back(number, bias, x):
    transformation = REVERSIBLE[number]
    torch.manual_seed(0)
    model = Encoder(bias).eval()
    original = state(model)
    gm = corsac.fx.symbolic_trace(model)
    before = (str(gm.graph), gm.code, list(gm.state_dict()))
    expected = model(x)
    assert transformation(gm) is gm
    close(gm(x), expected)
    changed = str(gm.graph) != before[0]
    assert changed == (number != 3)
    assert transformation.preserves_computation
    assert same_state(state(model), original), "the traced model keeps its weights"
    assert transformation(gm, reverse=True) is gm
    assert (str(gm.graph), gm.code, list(gm.state_dict())) == before
    assert same_state(state(gm), original)
    assert all(torch.equal(a, b) for a, b in zip(gm(x), expected, strict=True))
    assert not transformation.get_transformed_nodes(gm)


@row("`MergeLinears` on layers of the module itself")
def test_layers_with_one_input_are_merged(model, x):
    gm = corsac.fx.symbolic_trace(model)
    merge = MergeLinears()
    with pytest.warns(UserWarning, match="Not all the linear layers"):
        merge(gm)
    marked = [node.target for node in merge.get_transformed_nodes(gm)]
    assert marked == [
        "blocks.0.attention.query-key-value-merged",
        "blocks.1.attention.query-key-value-merged",
        "first-second-merged",
    ]
    merged = gm.get_submodule(marked[0])
    assert (merged.in_features, merged.out_features) == (12, 36)
    node = next(n for n in gm.graph.nodes if n.name == "blocks_0_attention_key")
    assert node.target is operator.getitem
    assert node.args[1] == (Ellipsis, slice(12, 24, None))
    assert not hasattr(gm.blocks, "first") and not hasattr(gm, "first")
    assert merge.report.count == 8
    reasons = {site.reason for site in merge.report.kept}
    assert any("no other linear layer" in reason for reason in reasons)


def test_training_goes_on_in_the_merged_layer(model, x):
    """The trained values of merged weights are kept when they are split again."""
    gm = corsac.fx.symbolic_trace(model)
    merge = MergeLinears()
    with pytest.warns(UserWarning):
        merge(gm)
    loss = sum(out.square().sum() for out in gm(x))
    loss.backward()
    with torch.no_grad():
        for parameter in gm.parameters():
            parameter -= 0.01 * parameter.grad
    trained = gm(x)
    merge(gm, reverse=True)
    close(gm(x), trained)
    assert gm.second.bias is not None  # training changed it from zero


@row("`FuseBiasInLinear`")
def test_biases_are_columns(model, x):
    gm = corsac.fx.symbolic_trace(model)
    fuse = FuseBiasInLinear()
    fuse(gm)
    assert gm.first.bias is None and gm.first.weight.shape == (4, 13)
    assert targets(gm).count(F.pad) == 11
    assert [site.reason for site in fuse.report.kept] == ["second has no bias"]
    half = copy.deepcopy(model).to(torch.bfloat16)
    gm = fuse(corsac.fx.symbolic_trace(half))
    for got, expected in zip(gm(x.bfloat16()), half(x.bfloat16()), strict=True):
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got, expected, rtol=0.1, atol=0.1)


def test_divisions_are_multiplications(model, x):
    gm = corsac.fx.symbolic_trace(model)
    change = ChangeTrueDivToMulByInverse()
    change(gm)
    nodes = change.get_transformed_nodes(gm)
    assert [node.args[1] for node in nodes] == [1 / 3.0, 1 / 3.0]
    # Divisions by the root of a size have a value of the program as divisor.
    assert targets(gm).count(operator.truediv) == 2


@row("`ChangeTrueDivToMulByInverse` on sizes")
@row("divisors that are zero")
def test_divisions_that_stay():
    gm = corsac.fx.symbolic_trace(lambda x: (x / 1e-300, x / 49, x.size(0) / 49, x.size(0) / 4))
    change = ChangeTrueDivToMulByInverse()
    change(gm)
    reasons = [site.reason for site in change.report.sites]
    assert reasons[1] is None and reasons[3] is None
    assert "no ordinary number" in reasons[0] and "may be a number" in reasons[2]
    assert gm(torch.ones(49))[2] == 1.0  # 49 * (1 / 49) is less
    gm = corsac.fx.symbolic_trace(lambda x: x / 0)
    change(gm)
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), torch.inf))


class Twice(nn.Module):
    """A layer called twice, weights that two layers share, weights that are read."""

    def __init__(self):
        super().__init__()
        self.twice, self.once = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.tied.weight
        self.read = nn.Linear(4, 4)

    def forward(self, x):
        a = self.twice(x) + self.once(x) + self.tied(x) + self.other(x)
        return self.twice(a) + self.read(x) * self.read.bias


@row("layers that are called twice")
@pytest.mark.parametrize("transformation", [MergeLinears(), FuseBiasInLinear()])
def test_layers_that_others_use_stay(transformation):
    torch.manual_seed(0)
    model, x = Twice(), torch.randn(3, 4)
    gm = corsac.fx.symbolic_trace(model)
    transformation(gm)
    close(gm(x), model(x))
    reasons = {site.node: site.reason for site in transformation.report.sites}
    assert reasons["twice"] == reasons["twice_1"] == "twice is called 2 times"
    assert reasons["tied"] == "a weight of tied is also another module's"
    assert reasons["read"] == "the graph uses read.bias besides read"
    assert (reasons["once"] is None) == isinstance(transformation, FuseBiasInLinear)


@row("the input of merged layers")
def test_hooks_and_writes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            a = self.a(x)
            x.mul_(2.0)
            return a, self.b(x), self.c(x)

    torch.manual_seed(0)
    model = Model()
    gm, merge = corsac.fx.symbolic_trace(model), MergeLinears()
    merge(gm)
    assert [n.target for n in merge.get_transformed_nodes(gm)] == ["b-c-merged"]
    x = torch.randn(3, 4)
    close(gm(x.clone()), model(x.clone()))
    model.b.register_forward_hook(lambda *_: None)
    merge(gm := corsac.fx.symbolic_trace(model))
    assert merge.report.count == 0 and gm.b is model.b


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.early, self.late = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        self.before, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 6)
        self.after, self.last = nn.BatchNorm1d(6), nn.Linear(6, 6)
        self.plain = nn.BatchNorm1d(6, affine=False)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        x = torch.relu(self.late(self.early(x))).mean((2, 3))
        x = torch.relu(self.linear(self.before(x)))
        return self.plain(self.last(torch.tanh(self.after(x))))


@pytest.fixture
def norms():
    torch.manual_seed(0)
    model = Norms()
    for _ in range(3):
        model(torch.randn(8, 3, 6, 6))
    return model.eval()


@row("a batch norm without affine")
@pytest.mark.parametrize(
    ("transformation", "gone"),
    [
        (FuseBatchNorm2dInConv2d(), ["bn"]),
        (FuseBatchNorm1dInLinear(), ["before", "plain"]),
        (compose(FuseBatchNorm2dInConv2d(), FuseBatchNorm1dInLinear()), ["bn", "before", "plain"]),
    ],
)
def test_batch_norms_are_folded(transformation, gone, norms):
    original = state(norms)
    x = torch.randn(4, 3, 6, 6)
    expected = norms(x)
    gm = corsac.fx.symbolic_trace(norms)
    transformation(gm)
    close(gm(x), expected)
    assert same_state(state(norms), original)
    kept = {"bn", "early", "before", "after", "plain"} - set(gone)
    called = {n.target for n in gm.graph.nodes if n.op == "call_module"}
    assert called & {"bn", "early", "before", "after", "plain"} == kept
    assert not any(hasattr(gm, name) for name in gone)
    assert not isinstance(transformation, ReversibleTransformation)


def test_a_batch_norm_before_a_convolution_stays_and_the_one_after_it_goes():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    for norm in (model[0], model[2]):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    gm = corsac.fx.symbolic_trace(model.eval())
    fuse = FuseBatchNorm2dInConv2d()
    fuse(gm)
    assert [(site.node, site.applied) for site in fuse.report.sites] == [
        ("_0", False),
        ("_2", True),
    ]
    x = torch.randn(2, 3, 4, 4)
    close(gm(x), model(x))


@row("batch norms in training mode")
def test_batch_norms_in_training_stay(norms):
    gm = corsac.fx.symbolic_trace(norms.train())
    fuse = compose(FuseBatchNorm2dInConv2d(), FuseBatchNorm1dInLinear())
    before = str(gm.graph)
    fuse(gm)
    assert str(gm.graph) == before
    assert any("training mode" in site.reason for site in fuse.report.kept)


def test_a_composition_can_leave_the_module_alone(model, x):
    gm = corsac.fx.symbolic_trace(model)
    before = str(gm.graph)
    both = compose(FuseBiasInLinear(), ChangeTrueDivToMulByInverse(), inplace=False)
    changed = both(gm)
    assert changed is not gm and str(gm.graph) == before
    close(changed(x), model(x))
    restored = both(changed, reverse=True)
    assert restored is not changed
    assert str(restored.graph) == before and same_state(state(restored), state(model))
    assert F.pad in targets(changed)


@row("undoing after `copy.deepcopy`")
@pytest.mark.parametrize("copying", [DeepCopy(), copy.deepcopy], ids=["DeepCopy", "deepcopy"])
def test_copies_can_be_undone(model, copying):
    gm = corsac.fx.symbolic_trace(model)
    before, fuse = str(gm.graph), FuseBiasInLinear()
    copied = copying(fuse(gm))
    assert copied is not gm and copied.first is not gm.first
    assert str(fuse(copied, reverse=True).graph) == before
    assert F.pad in targets(gm)


class Marks(ReversibleTransformation):
    """Marks every addition."""

    def __init__(self, number=0):
        self.number = number

    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.target in (operator.add,):
                self.mark_as_transformed(node)
        return graph_module

    def reverse(self, graph_module):
        for node in self.get_transformed_nodes(graph_module):
            self.mark_as_restored(node)
        return graph_module


@row("`signature`")
def test_marks(model):
    gm = corsac.fx.symbolic_trace(model)
    one, same, other = Marks(), Marks(), Marks(1)
    assert one.signature == one.signature == same.signature != other.signature
    one(gm)
    nodes = one.get_transformed_nodes(gm)
    assert len(nodes) == 4 and all(same.transformed(node) for node in nodes)
    assert not other.get_transformed_nodes(gm)
    other(gm)
    one(gm, reverse=True)
    assert not same.get_transformed_nodes(gm) and len(other.get_transformed_nodes(gm)) == 4
    with pytest.raises(ValueError, match="was not transformed"):
        one.mark_as_restored(nodes[0])
    assert not one.preserves_computation


def test_kinds_of_transformations():
    with pytest.raises(TypeError):
        Transformation()
    with pytest.raises(TypeError):
        compose()

    class Only(Transformation):
        def transform(self, graph_module):
            return graph_module

    assert isinstance(compose(MergeLinears(), DeepCopy()), ReversibleTransformation)
    mixed = compose(MergeLinears(), Only())
    assert not isinstance(mixed, ReversibleTransformation)
    assert not mixed.preserves_computation
    assert compose(MergeLinears(), FuseBiasInLinear()).preserves_computation


def test_recompilation_is_left_to_the_caller(model):
    gm = corsac.fx.symbolic_trace(model)
    code = gm.code
    ChangeTrueDivToMulByInverse()(gm, lint_and_recompile=False)
    assert gm.code == code
    LintAndRecompile()(gm)
    assert gm.code != code


class Joined(nn.Module):
    """Results of layers with one input in forms that join the last dimension with others."""

    def __init__(self, form):
        super().__init__()
        self.form, self.first, self.second = form, nn.Linear(4, 4), nn.Linear(4, 6)

    def forward(self, x):
        return self.form(self.first(x)), self.form(self.second(x))


JOINING = {
    "view": lambda y: y.view(-1),
    "view of a view": lambda y: y.unsqueeze(0).view(3, -1),
    "view of no other": lambda y: F.dropout(y, 0.5, False).view(-1),
    "operator": lambda y: torch.ops.aten.view.default(y, [-1]),
    "two views": lambda y: y.view(2, 3, 1, -1).view(-1),
    "view by shape": lambda y: y.view(size=(-1,)),
    "view as bytes": lambda y: y.view(torch.int32),
    "in place": lambda y: y.mul_(2).view(-1),
}


@pytest.mark.parametrize("form", JOINING)
def test_merged_results_take_every_form(form):
    torch.manual_seed(0)
    model = Joined(JOINING[form]).eval()
    tracer = corsac.fx.Tracer()
    gm = corsac.fx.GraphModule(model, tracer.trace(model))
    before, x = str(gm.graph), torch.randn(2, 3, 4)
    expected = model(x)
    merge = MergeLinears()
    close(merge(gm)(x), expected)
    assert len(merge.report.applied) == 2
    assert str(merge(gm, reverse=True).graph) == before
    assert all(torch.equal(a, b) for a, b in zip(gm(x), expected, strict=True))


class Pair(nn.Module):
    """Two layers with one input, and a use of one of them."""

    def __init__(self, form):
        super().__init__()
        self.form, self.first, self.second = form, nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.form(self.first(x)), self.second(x) * 1


def written(write, read=lambda y: y):
    """A value read after a write."""

    def form(y):
        write(y)
        return read(y) * 1

    return form


def attended(y):
    heads = y.view(2, 4, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(2, 4, 8)


#: Uses of a result, and whether each needs a copy of its columns.
USES = {
    "used": (lambda y: y * 2, False),
    "split": (lambda y: torch.cat(y.split(4, -1)), False),
    "transposed": (lambda y: F.relu(y.transpose(0, 1)), False),
    "cloned": (lambda y: y.transpose(0, 1).clone(), False),
    "made alike": (lambda y: torch.zeros_like(y.transpose(0, 1)), False),
    "attended to": (attended, False),
    "viewed": (lambda y: y.view(-1) * 1, False),
    "flattened": (lambda y: y.flatten(1) * 1, False),
    "normalised": (lambda y: F.layer_norm(y, (8,)), False),
    "sorted": (lambda y: y.sort(-1)[0], False),
    "written to": (written(lambda y: y.add_(1)), False),
    "written to by out=": (written(lambda y: torch.add(y, 1, out=y)), False),
    "written to through a slice": (written(lambda y: y[0].mul_(2)), False),
    "written to through a transpose": (written(lambda y: y.transpose(0, 1)[1].zero_()), False),
    "written to through view": (written(lambda y: y.view(-1).mul_(2)), True),
    "written to through reshape": (written(lambda y: y.reshape(-1).mul_(2)), True),
    "written to through flatten": (written(lambda y: y.flatten().mul_(2)), True),
    "written to through ravel": (written(lambda y: torch.ravel(y).mul_(2)), True),
    "written to through contiguous": (written(lambda y: y.contiguous().mul_(2)), True),
    "written to before it is viewed": (written(lambda y: y.mul_(2), lambda y: y.view(-1)), True),
    "bytes": (lambda y: y.view(torch.int32) * 1, True),
    "wider bytes": (lambda y: y.view(torch.float64) * 1, True),
    "as_strided": (lambda y: torch.as_strided(y, (2, 4), (4, 1), 3) * 1, True),
    "as_strided of a view": (lambda y: y[0].as_strided((2, 4), (4, 1)) * 1, True),
    "as_strided of primitives": (
        lambda y: torch.ops.prims.as_strided.default(y, [2, 4], [4, 1], 3) * 1,
        True,
    ),
    "_reshape_alias": (
        lambda y: torch.ops.aten._reshape_alias.default(y, [2, 4], [4, 1]) * 1,
        True,
    ),
    "a stride": (lambda y: y * y.stride(0), True),
    "a symbolic stride": (lambda y: y * torch.ops.aten.sym_stride.int(y, 0), True),
    "strides": (lambda y: y * y.stride()[0], True),
    "an offset": (lambda y: y + y.storage_offset(), True),
    "is_contiguous": (lambda y: y * y.is_contiguous(), True),
    "view_as": (lambda y: y.view_as(torch.zeros(64)) * 1, True),
    "_unsafe_view": (lambda y: torch.ops.aten._unsafe_view.default(y, [-1]) * 1, True),
    "complex": (lambda y: torch.view_as_complex(y.view(2, 4, 4, 2)) * 1, True),
    "resized": (lambda y: y.resize_(2, 4) * 1, True),
    "returned": (lambda y: y, True),
    "returned in place": (lambda y: y.add_(1), True),
    "returned in part": (lambda y: y[0], True),
    "returned as heads": (lambda y: y.view(2, 4, 2, 4).transpose(1, 2), True),
    "returned in a dictionary": (lambda y: {"a": [y.detach()]}, True),
}


def leaves(result):
    found = torch.utils._pytree.tree_leaves(result)
    return [(t, t.stride(), t.storage_offset(), t.untyped_storage().nbytes()) for t in found]


@pytest.mark.parametrize("use", USES)
def test_no_use_of_a_merged_result_sees_other_strides(use):
    form, copied = USES[use]
    torch.manual_seed(0)
    model, x = Pair(form).eval().requires_grad_(False), torch.randn(2, 4, 8)
    # Small integers, so that layers are exact.
    for tensor in (x, *model.parameters()):
        tensor.copy_(torch.randint(-3, 4, tensor.shape))
    gm, merge = corsac.fx.symbolic_trace(model), MergeLinears()
    before, expected = str(gm.graph), leaves(model(x))
    merge(gm)
    assert len(merge.report.applied) == 2
    first = next(node for node in gm.graph.nodes if node.name == "first")
    assert (first.target == "contiguous") == copied
    for (value, *layout), (wanted, *laid_out) in zip(leaves(gm(x)), expected, strict=True):
        assert torch.equal(torch.nan_to_num(value), torch.nan_to_num(wanted))
        assert layout == laid_out
    assert str(merge(gm, reverse=True).graph) == before
    assert torch.equal(leaves(gm(x))[0][0].nan_to_num(), expected[0][0].nan_to_num())


def test_what_is_known_of_a_copied_result_stays_true():
    from corsac.fx.passes.shape_prop import ShapeProp

    model, x = Pair(lambda y: y).eval(), torch.randn(2, 4, 8)
    gm = corsac.fx.symbolic_trace(model)
    ShapeProp(gm).propagate(x)
    MergeLinears()(gm)
    said = {n.name: n.meta["tensor_meta"] for n in gm.graph.nodes if "tensor_meta" in n.meta}
    assert said["first"].stride == (32, 8, 1) and said["getitem"].stride == (64, 16, 1)
    ShapeProp(gm).propagate(x)
    known = {n.name: n.meta["tensor_meta"] for n in gm.graph.nodes}
    assert all(known[name] == meta for name, meta in said.items() if name != "output")


def test_what_is_known_of_merged_results_stays_true():
    from torch._subclasses import FakeTensorMode

    from corsac.fx.passes.fake_tensor_prop import FakeTensorProp
    from corsac.fx.passes.shape_prop import ShapeProp

    model, x = Joined(torch.relu).eval(), torch.randn(2, 3, 4)

    def known(gm):
        ShapeProp(gm).propagate(x)
        FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(x)
        return said(gm)

    def said(gm):
        nodes = [node for node in gm.graph.nodes if "tensor_meta" in node.meta]
        return {
            node.name: (node.meta["tensor_meta"], node.meta["val"].stride())
            for node in nodes
            if node.op != "output"
        }

    gm = corsac.fx.symbolic_trace(model)
    before = known(gm)
    MergeLinears()(gm)
    told = said(gm)
    assert told["first"][0].stride == (30, 10, 1) == told["first"][1]
    assert told.items() <= known(gm).items()
    gm = corsac.fx.symbolic_trace(model)
    known(gm)
    merge = MergeLinears()
    merge(merge(gm), reverse=True)
    assert said(gm) == before
