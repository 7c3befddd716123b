"""Operators overwrite their inputs where it cannot be observed, and nowhere else."""

import operator

import pytest
import torch
import torch.nn.functional as F
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import corsac.analysis
import corsac.fx
from corsac.fx.passes.shape_prop import ShapeProp
from corsac.passes import Budget, PassManager, reinplace
from kit.trained import as_if_trained

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@corsac.fx.wrap
def keep(x):
    """An unknown function: it could keep its argument."""
    return x


def changed(program, *inputs, gradients=False):
    """Run the pass on a program; check that it computes the same and does not change its inputs."""
    inputs = inputs or (X,)
    gm = corsac.fx.symbolic_trace(program)
    expected = gm(*(x.clone() for x in inputs))
    corsac.analysis.propagate(gm, *inputs)
    report = reinplace(gm, gradients=gradients)
    gm.graph.lint()
    given = [x.clone() for x in inputs]
    before = {name: w.clone() for name, w in gm.state_dict().items()}
    torch.testing.assert_close(gm(*given), expected, rtol=0, atol=0, equal_nan=True)
    assert all(torch.equal(a, b) for a, b in zip(given, inputs, strict=True))
    assert all(torch.equal(before[name], w) for name, w in gm.state_dict().items())
    return gm, {site.node: site.reason for site in report.sites}


def reason(program, node, *inputs):
    return changed(program, *inputs)[1][node]


@pytest.mark.parametrize(
    ("program", "target"),
    [
        (lambda x: F.relu(x @ x.t()), F.relu),
        (lambda x: F.leaky_relu(x @ x.t(), 0.3), F.leaky_relu),
        (lambda x: F.hardtanh(x @ x.t(), -1.0, 1.0, False), F.hardtanh),
        (lambda x: torch.relu(x @ x.t()), "relu_"),
        (lambda x: torch.add(input=x @ x.t(), other=1, alpha=2), "add_"),
        (lambda x: (x @ x.t()).sigmoid(), "sigmoid_"),
        (lambda x: (x @ x.t()) + 1, operator.iadd),
        (lambda x: (x @ x.t()) / 2, operator.itruediv),
        (lambda x: torch.ops.aten.mul.Tensor(x @ x.t(), 2), torch.ops.aten.mul_.Tensor),
        (lambda x: torch.ops.aten.relu(x @ x.t()), torch.ops.aten.relu_),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), F.relu),
        (nn.Sequential(nn.Linear(4, 4), nn.SiLU()), F.silu),
        (lambda x: torch.cos(x).index_fill(0, torch.tensor([1]), 7.0), "index_fill_"),
        (lambda x: torch.cos(x).masked_fill(x > 0, 7.0), "masked_fill_"),
    ],
)
def test_each_way_of_calling(program, target):
    gm, _ = changed(program)
    assert target in {node.target for node in gm.graph.nodes}
    assert "relu" not in dict(gm.named_modules())


def used_later(x):
    y = torch.exp(x)
    return torch.tanh(y) + y.sum()


def used_through_a_view(x):
    y = torch.exp(x)
    row = y[0]
    return torch.tanh(y) + row.sum()


def written_to_a_view_of_an_input(x):
    return torch.relu(x.view(-1))


def result_is_broadcast(x):
    return x.sum(0) + x


def expanded(x):
    return torch.tanh(x.sum(0).expand(3, 4))


def promoted(x):
    return (x > 0).long() + 0.5


def promoted_by_another(x):
    return x.long().abs() * x


def input_returned(x):
    y = torch.exp(x)
    return torch.tanh(y), y


def view_returned(x):
    y = torch.exp(x)
    return torch.tanh(y), y.t()


def in_a_list(x):
    y = torch.exp(x)
    held = operator.add([y], [x])
    return torch.tanh(y), torch.cat(held)


def overlapping(x):
    y = torch.exp(x[:, :3])
    return y + y.t()


def one_number(x):
    return x.sum() * x.mean()


def a_number(x):
    return x.reshape(x.size(0) + 1 - 1, -1)


@pytest.mark.parametrize(
    ("program", "node", "says"),
    [
        (used_later, "tanh", "used later, by sum"),
        (used_through_a_view, "tanh", "used later, by sum"),
        (written_to_a_view_of_an_input, "relu", "comes from outside"),
        (lambda x: torch.relu(x), "relu", "comes from outside"),
        (result_is_broadcast, "add", "has the shape [4], the result [3, 4]"),
        (expanded, "tanh", "not known to have the strides"),
        (promoted, "add", "its input is torch.int64, the result torch.float32"),
        (promoted_by_another, "mul", "its input is torch.int64"),
        (input_returned, "tanh", "used later, by output"),
        (view_returned, "tanh", "used later, by output"),
        (in_a_list, "tanh", "used later, by "),
        (overlapping, "add", "another argument too"),
        (one_number, "mul", "no dimensions"),
        (a_number, "add", "types and shapes are not known"),
        (lambda x: torch.exp(x).abs().to(torch.complex64).abs(), "abs_2", "complex"),
        (nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.3)), "_1", "module has settings"),
        (lambda x: F.relu(torch.exp(x).reshape(-1)), "relu", None),
        (lambda x: torch.exp(x) * torch.exp(x), "mul", None),
    ],
)
def test_traps(program, node, says):
    found = reason(program, node)
    if says is None:
        assert found is None
    else:
        assert says in found


def test_the_same_tensor_twice():
    def program(x):
        y = torch.exp(x)
        return y * y

    gm, sites = changed(program)
    assert sites["mul"] is None
    assert operator.imul in {n.target for n in gm.graph.nodes}


def test_a_parameter_is_never_written_to():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))
            self.b = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return torch.relu(self.w) + torch.sign(self.b) + x

    _, sites = changed(Net())
    assert "outside" in sites["relu"] and "outside" in sites["sign"]
    assert "has the shape" in sites["add_1"]


def test_hooks_and_unknown_functions_keep_their_arguments():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    seen = []
    model[0].register_forward_hook(lambda m, args, y: seen.append(y))
    _, sites = changed(model)
    assert "outside" in sites["_1"]
    _, sites = changed(lambda x: torch.relu(keep(torch.exp(x))))
    assert "outside" in sites["relu"]


def test_without_metadata_only_what_keeps_its_type():
    gm = corsac.fx.symbolic_trace(lambda x: torch.sigmoid(torch.relu(torch.mm(x, x.t()))))
    report = reinplace(gm, gradients=False)
    assert [(s.node, s.applied) for s in report.sites] == [("relu", True), ("sigmoid", False)]


def test_gradients_are_those_of_the_original():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x):
            a = F.relu(self.layers[0](x))
            b = torch.sigmoid(self.layers[1](a) + a)
            c = torch.tanh(torch.exp(self.layers[2](b)))
            return self.layers[3](c) * 2 + c

    torch.manual_seed(0)
    model = Net()
    gm = corsac.fx.symbolic_trace(model)
    corsac.analysis.propagate(gm, X)
    report = reinplace(gm)
    reasons = {site.node: site.reason for site in report.sites}
    assert reasons["relu"] is None and reasons["sigmoid"] is None
    assert "gradients" in reasons["tanh"]
    model(X).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    gm(X).sum().backward()
    for a, b in zip(gm.parameters(), expected, strict=True):
        torch.testing.assert_close(a.grad, b, rtol=0, atol=0)


PRODUCERS = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul": lambda x, w: torch.matmul(x, w.t()),
    "mm": lambda x, w: torch.mm(x, w.t()),
    "add": lambda x, w: x[:, :3] + w[:3, :3],
    "sub": lambda x, w: torch.sub(x, w[:3]),
    "mul": lambda x, w: torch.mul(x, w[:3]),
    "neg": lambda x, w: torch.neg(w),
    "cat": lambda x, w: torch.cat([x, w]),
    "stack": lambda x, w: torch.stack([w, w]),
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (4,), w[0], w[1]),
    "group_norm": lambda x, w: F.group_norm((x @ w).reshape(3, 2, 2), 2),
    "batch_norm": lambda x, w: F.batch_norm(x @ w, None, None, w[0], w[1], True),
    "conv1d": lambda x, w: F.conv1d(x[None], w[:3, None, :3][:, :1].expand(3, 3, 3)),
    "bmm": lambda x, w: torch.bmm(x[None], w[None]),
    "addmm": lambda x, w: torch.addmm(x, x, w),
    "embedding": lambda x, w: F.embedding(torch.tensor([0, 1]), w),
    "avg_pool2d": lambda x, w: F.avg_pool2d((x @ w)[None], 2),
    "adaptive_avg_pool2d": lambda x, w: F.adaptive_avg_pool2d((x @ w)[None], 2),
    "exp": lambda x, w: torch.exp(x @ w),
    "sigmoid": lambda x, w: torch.sigmoid(x @ w),
    "softmax": lambda x, w: torch.softmax(x @ w, 1),
    "div": lambda x, w: torch.div(x @ w, w[:3] + 3),
}


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize("consumer", [torch.relu, torch.sigmoid, torch.mul, torch.add, "pow"])
def test_what_gradients_need_is_kept(name, consumer):
    """Backward has the same result, after each producer of a value and each use of it."""

    def program(x, w):
        y = PRODUCERS[name](x, w)
        if consumer == "pow":
            return y.pow(2)
        return consumer(y) if consumer in (torch.relu, torch.sigmoid) else consumer(y, 3.0)

    w = torch.linspace(-1, 1, 16).reshape(4, 4)
    gm = corsac.fx.symbolic_trace(program)
    grads = []
    for change in (False, True):
        if change:
            corsac.analysis.propagate(gm, X, w)
            reinplace(gm, gradients=True)
        weight = w.clone().requires_grad_()
        gm(X, weight).sum().backward()
        grads.append(weight.grad)
    torch.testing.assert_close(*grads, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32"])
def test_models(name):
    torch.manual_seed(0)
    model = as_if_trained(torchvision.models.get_model(name, weights=None))
    size = 224 if name == "vit_b_32" else 64
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        expected = model(x)
        gm = corsac.fx.symbolic_trace(model)
        corsac.analysis.propagate(gm, x)
        report = reinplace(gm)
        assert torch.equal(gm(x), expected)
    assert report.changed


def test_shape_prop_serves_as_well():
    gm = corsac.fx.symbolic_trace(lambda x: torch.sigmoid(torch.mm(x, x.t())))
    ShapeProp(gm).propagate(X)
    assert reinplace(gm, gradients=False).count == 1


def test_the_mode_says_whether_there_are_gradients():
    def sites():
        gm = corsac.fx.symbolic_trace(lambda x: torch.relu(torch.exp(x)))
        return reinplace(gm).count

    assert sites() == 0
    with torch.no_grad():
        assert sites() == 1
    with torch.inference_mode():
        assert sites() == 1


def test_the_manager_verifies_it():
    model = torchvision.models.resnet18(weights=None).eval()
    gm = corsac.fx.symbolic_trace(model)
    x = torch.randn(1, 3, 64, 64)
    corsac.analysis.propagate(gm, x)
    outcome = PassManager([reinplace], verify=(x,))(gm)
    assert outcome.changes == 8
    assert outcome.steps[0].agreement.error == 0.0


def test_the_budget():
    gm = corsac.fx.symbolic_trace(lambda x: torch.relu(torch.relu(torch.exp(x))))
    report = reinplace(gm, gradients=False, budget=Budget(1))
    assert [site.applied for site in report.sites][-2:] == [True, False]


UNARY = [
    torch.relu, torch.sigmoid, torch.tanh, torch.neg, torch.exp, torch.abs, F.relu, F.silu,
    F.hardtanh, lambda x: x.clamp(-1, 1), lambda x: x.round(), lambda x: x.logical_not(),
]  # fmt: skip
BINARY = [
    torch.add, torch.mul, operator.add, operator.sub, operator.mul, operator.truediv,
    torch.ops.aten.add.Tensor, lambda x, y: x.add(y, alpha=2), torch.atan2,
    lambda x, y: torch.where(x > y, x, y), lambda x, y: x.masked_fill(y > 0, 2),
]  # fmt: skip
VIEWS = [
    lambda x: x.t() if x.dim() <= 2 else x, lambda x: x.reshape(-1), lambda x: x[:1],
    lambda x: x.unsqueeze(0), lambda x: x.expand(2, *x.shape), lambda x: x.contiguous(),
    lambda x: x.flatten(), lambda x: x.chunk(2, 0)[0], lambda x: x.detach(),
    lambda x: x.sum(0) if x.dim() else x, lambda x: x.transpose(0, -1) if x.dim() else x,
]  # fmt: skip
CASTS = [torch.long, torch.float64, torch.bool, torch.float32]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_programs(data):
    """Results, their strides, and inputs are those of the original, whatever is overwritten."""
    steps = data.draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 50), st.integers(0, 3), st.integers(0, 3)),
            min_size=2,
            max_size=12,
        )
    )
    dtype = data.draw(st.sampled_from([torch.float32, torch.int64]))
    x = torch.arange(-3, 5).reshape(2, 4).to(dtype)
    y = data.draw(st.sampled_from([x.clone() * 2, x[:1] + 1, torch.ones((), dtype=dtype)]))
    outputs = data.draw(st.integers(1, 3))

    def run(x, y):
        values = [x, y]
        for kind, which, first, second in steps:
            a, b = (values[-1 - k % len(values)] for k in (first, second))
            if kind <= 1:
                values.append(UNARY[which % len(UNARY)](a))
            elif kind == 2:
                values.append(BINARY[which % len(BINARY)](a, b))
            elif kind == 3:
                values.append(VIEWS[which % len(VIEWS)](a))
            else:
                values.append(a.to(CASTS[which % len(CASTS)]))
        return tuple(values[-outputs:])

    try:
        run(x, y)
    except (RuntimeError, IndexError):
        return  # the program is not valid
    # Shapes decide which views are possible, so each call is recorded with known shapes.
    graph = corsac.fx.Graph()
    nodes = [(graph.placeholder(name), value) for name, value in (("x", x), ("y", y))]
    for kind, which, first, second in steps:
        (an, av), (bn, bv) = (nodes[-1 - k % len(nodes)] for k in (first, second))
        table = {0: UNARY, 1: UNARY, 2: BINARY, 3: VIEWS}.get(kind)
        if table is None:
            made = traced_into(graph, lambda a, w=which: a.to(CASTS[w % len(CASTS)]), [(an, av)])
        else:
            function = table[which % len(table)]
            operands = [(an, av), (bn, bv)] if kind == 2 else [(an, av)]
            made = traced_into(graph, function, operands)
        nodes.append(made)
    graph.output(tuple(node for node, _ in nodes[-outputs:]))
    gm = corsac.fx.GraphModule(nn.Module(), graph)
    check_random(gm, x, y, data.draw(st.booleans()))


def traced_into(graph, function, operands):
    """Record a call of ``function`` on nodes, whose values decide its branches."""
    values = [value for _, value in operands]
    result = function(*values)

    class Known(corsac.fx.Proxy):
        def dim(self):
            return values[0].dim()

        @property
        def shape(self):
            return values[0].shape

    tracer = corsac.fx.proxy.GraphAppendingTracer(graph)
    proxies = [Known(node, tracer) for node, _ in operands]
    made = function(*proxies)
    return made.node, result


def check_random(gm, x, y, with_strides):
    expected = gm(x.clone(), y.clone())
    if with_strides:
        ShapeProp(gm).propagate(x, y)
    else:
        corsac.analysis.propagate(gm, x, y)
    before = gm.code
    report = reinplace(gm, gradients=False)
    gm.graph.lint()
    a, b = x.clone(), y.clone()
    found = gm(a, b)
    text = f"{before}\n{gm.code}\n{report}"
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype and left.stride() == right.stride(), text
        assert torch.equal(left.nan_to_num(), right.nan_to_num()), text
    assert torch.equal(a, x) and torch.equal(b, y), text
