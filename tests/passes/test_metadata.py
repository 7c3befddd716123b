"""No pass loses the origin of nodes: source lines, stack traces, metadata and names."""

import functools
import inspect
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.passes.shape_prop import TensorMetadata

import corsac.fx
import corsac.passes
from corsac import _core
from corsac.fx.passes.fake_tensor_prop import FakeTensorProp
from corsac.fx.passes.shape_prop import ShapeProp
from corsac.passes._registry import REGISTRY


class Everything(nn.Module):
    """A program that every pass changes."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Dropout()
        self.identity, self.linear, self.twin = nn.Identity(), nn.Linear(2, 2), nn.Linear(2, 2)
        self.weight, self.bias = nn.Parameter(torch.randn(2, 2)), nn.Parameter(torch.randn(2))
        self.third, self.before, self.norm = nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.kernel = nn.Parameter(torch.randn(2, 2, 1, 1))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("var", torch.ones(2))

    def forward(self, x):
        y = self.drop(self.bn(self.conv(x)))
        y = self.identity(y)
        y = F.batch_norm(F.conv2d(y, self.kernel), self.mean, self.var)
        a, b = torch.cos(y), torch.cos(y)
        torch.sin(a)
        scale = torch.exp(self.weight.t())
        scale = torch.mul(scale, 2)
        a, b = torch.matmul(a, self.weight), torch.matmul(b, self.weight)
        y = torch.abs(-torch.cat([F.relu(F.relu(a)), b], 0)) @ scale
        y = self.third(self.linear(y) + self.twin(y) / 3.0).mean(2)
        y = self.norm(self.before(y))
        return F.linear(torch.neg(y), self.weight, self.bias)


IMAGE = torch.randn(3, 2, 2, 2)


def softplus(x, inplace=False):
    return torch.log(1 + torch.exp(x))


def merge_matmul(gm, **options):
    for node in gm.graph.find_nodes(op="call_function", target=torch.cos):
        made_up = types.SimpleNamespace(shape=(3, 2), dtype=torch.float32)
        node.meta.setdefault("tensor_meta", made_up)
    return corsac.passes.merge_matmul(gm, **options)


#: A call of each pass. A new pass needs an entry.
CALLS = {
    "autocast": corsac.passes.autocast,
    "canonicalize": corsac.passes.canonicalize,
    "change_true_div_to_mul_by_inverse": REGISTRY["change_true_div_to_mul_by_inverse"],
    "common_subexpressions": corsac.passes.common_subexpressions,
    "decompose": functools.partial(corsac.passes.decompose, rules={F.relu: softplus}),
    "eliminate_dead_code": corsac.passes.eliminate_dead_code,
    "fold_constants": corsac.passes.fold_constants,
    "functions_to_modules": corsac.passes.functions_to_modules,
    "functions_to_operators": corsac.passes.functions_to_operators,
    "fuse_batch_norm_1d_in_linear": REGISTRY["fuse_batch_norm_1d_in_linear"],
    "fuse_batch_norm_2d_in_conv_2d": REGISTRY["fuse_batch_norm_2d_in_conv_2d"],
    "fuse_bias_in_linear": REGISTRY["fuse_bias_in_linear"],
    "fuse_conv_bn": corsac.passes.fuse_conv_bn,
    "keyword_arguments": corsac.passes.keyword_arguments,
    "merge_linears": REGISTRY["merge_linears"],
    "merge_matmul": merge_matmul,
    "modules_to_functions": corsac.passes.modules_to_functions,
    "optimize_layout": REGISTRY["optimize_layout"],
    "reinplace": functools.partial(corsac.passes.reinplace, gradients=False),
    "remove_dropout": corsac.passes.remove_dropout,
    "remove_no_ops": corsac.passes.remove_no_ops,
    "replace_op": functools.partial(corsac.passes.replace_op, table={torch.cos: torch.sin}),
    "rewrite": functools.partial(
        corsac.passes.rewrite, rules="relu(?x) => torch.mul(?x, torch.gt(?x, 0))"
    ),
    "saturate": functools.partial(
        corsac.passes.saturate,
        rules="neg(cat([?x, ?y], ?d)) => torch.mul(torch.cat([?x, ?y], ?d), -1)",
        cost={"neg": 9.0},
    ),
    "simplify": corsac.passes.simplify,
}


def test_every_pass_is_covered():
    assert CALLS.keys() == REGISTRY.keys()
    public = {
        name
        for name in corsac.passes.__all__
        if inspect.isfunction(function := getattr(corsac.passes, name))
        and "budget" in inspect.signature(function).parameters
    }
    assert public <= REGISTRY.keys(), "passes that take a budget belong into the registry"


def test_native_passes_are_called_by_registered_ones(monkeypatch):
    called, run_pass = set(), _core.run_pass

    def recording(name, *args, **options):
        called.add(name)
        return run_pass(name, *args, **options)

    monkeypatch.setattr(_core, "run_pass", recording)
    for transform in CALLS.values():
        transform(traced())
    assert called == set(_core.pass_names())


def traced():
    torch.manual_seed(0)
    tracer = corsac.fx.Tracer()
    tracer.record_stack_traces = True
    model = Everything().eval()
    gm = corsac.fx.GraphModule(model, tracer.trace(model))
    if REGISTRY:  # unsorted, so that there is something to sort
        (sin,) = gm.graph.find_nodes(op="call_function", target=torch.sin)
        gm.graph.output_node().prepend(sin)
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
        node.meta["tensor_meta_of"] = node.name
    return gm


@pytest.mark.parametrize("name", sorted(CALLS))
def test_origins_survive(name):
    gm = traced()
    before = {n.name: (n.source, n.stack_trace, n.op, n.target) for n in gm.graph.nodes}
    assert all(source for source, *_ in before.values() if _[1] != "output")
    report = CALLS[name](gm)
    assert report.changed, f"the example gives {name} nothing to do"
    gm.graph.lint()
    for node in gm.graph.nodes:
        origin = node.meta.get("mark")
        assert origin in before, f"{node.name} has lost its metadata"
        source, stack_trace, _, _ = before[origin]
        assert node.source == source, node.name
        assert node.stack_trace == stack_trace, node.name
    # Nodes that compute an existing value keep its name; new names are unused ones.
    names = {node.name for node in gm.graph.nodes}
    for node in gm.graph.nodes:
        if node.name in before and node.op == before[node.name][2] != "call_function":
            assert node.target == before[node.name][3]
    kept = {origin for origin in before if origin in names}
    assert len(kept) >= len(before) - len(report.applied) * 6


def propagate(gm):
    """Record the value of each node as metadata, real and as a fake tensor."""
    ShapeProp(gm).propagate(IMAGE)
    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(IMAGE)


def values(gm):
    """The metadata of nodes about their values."""
    found = {}
    for node in gm.graph.nodes:
        noted, stand_in = node.meta.get("tensor_meta"), node.meta.get("val")
        if isinstance(noted, TensorMetadata):
            found[node.name, "tensor_meta"] = noted
        if isinstance(stand_in, torch.Tensor):
            found[node.name, "val"] = (stand_in.shape, stand_in.dtype, stand_in.stride())
    return found


@pytest.mark.parametrize("name", sorted(CALLS))
def test_what_metadata_says_of_values_stays_true(name):
    """Metadata of a node whose value or strides change is removed or updated."""
    gm = traced()
    propagate(gm)
    CALLS[name](gm)
    told = values(gm)
    propagate(gm)
    measured = values(gm)
    wrong = {key: (said, measured[key]) for key, said in told.items() if said != measured[key]}
    assert not wrong
    assert told, "nothing is known any more"


@pytest.mark.parametrize("name", sorted(CALLS))
def test_budgets_are_respected(name):
    gm = traced()
    graph = str(gm.graph)
    report = CALLS[name](gm, budget=corsac.passes.Budget(0))
    if name != "autocast":  # layers become functions first, within the same budget
        assert not report.changed
    assert str(gm.graph) == graph
    budget = corsac.passes.Budget()
    CALLS[name](traced(), budget=budget)
    assert budget.spent > 0
    one = corsac.passes.Budget(1)
    gm = traced()
    CALLS[name](gm, budget=one)
    gm.graph.lint()
    assert one.spent == 1
