"""torch.compile with the engine as its backend, and models that only Dynamo can capture."""

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import corsac


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.second(self.drop(self.norm(self.first(x)).relu()))


def agree(compiled, function, *inputs):
    """The engine runs everything: falling back to PyTorch is an error."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", corsac.HostWarning)
        found, expected = compiled(*inputs), function(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    return found


def branches(x, y):
    a = (x.relu() + y) * 2
    b = a.sigmoid() - 1 if a.sum() > 0 else a.tanh() + 3
    return {"b": b * y + 1, "rest": [a, 3]}


def test_the_backend_is_known_by_name():
    assert "corsac" in torch._dynamo.list_backends()
    net = Net().eval()
    compiled = torch.compile(net, backend="corsac", fullgraph=True)
    agree(compiled, net, torch.randn(4, 5))


def test_importing_corsac_imports_no_dynamo():
    code = "import torch, sys, corsac; assert 'torch._dynamo' not in sys.modules\n"
    code += "assert 'corsac' in torch._dynamo.list_backends()\n"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import corsac, sys; assert 'torch' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_options():
    net, x = Net().eval(), torch.randn(4, 5)
    agree(torch.compile(net, backend="corsac", options={"precision": "f32"}), net, x)
    for options, message in (
        ({"presicion": "f32"}, "no option 'presicion'; there are: inference, partition, precision"),
        ({"precision": "f8"}, "'precision' is 'f32', 'bf16', not 'f8'"),
    ):
        with pytest.raises(Exception, match=message), torch.no_grad():
            torch.compile(net, backend="corsac", options=options)(x)


def test_programs_are_made_for_new_shapes_and_weights():
    net = Net().eval()
    compiled = torch.compile(net, backend="corsac")
    for rows in (4, 5, 6, 1, 4):
        agree(compiled, net, torch.randn(rows, 5))
    x = torch.randn(4, 5)
    with torch.no_grad():
        net.first.weight.mul_(2)
        agree(compiled, net, x)
        net.norm.running_mean.add_(1)
        agree(compiled, net, x)
    net.second = nn.Linear(6, 3)
    agree(compiled, net, x)
    net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()})
    agree(compiled, net, x)


def test_two_models_of_one_class():
    nets = [Net().eval(), Net().eval()]
    compiled = [torch.compile(net, backend="corsac") for net in nets]
    for _ in range(2):
        for one, net in zip(compiled, nets, strict=True):
            agree(one, net, torch.randn(4, 5))


def test_graph_breaks():
    x, y = torch.randn(4, 5), torch.randn(5)
    compiled = torch.compile(branches, backend="corsac")
    for sign in (1, -1, 1, -1):
        agree_with_host(compiled, sign * x.abs() * 9, y)


def agree_with_host(compiled, *inputs):
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), branches(*inputs))


def test_compile_falls_back_to_dynamo():
    """A write to a view that was made before data-dependent control flow is captured by Dynamo."""
    x, y = torch.randn(4, 5), torch.randn(5)

    def function(x, y):
        first = x[:1]
        results = branches(x, y)
        first.mul_(1)
        return results

    compiled = corsac.compile(function)
    for sign in (1, -1, 1):
        agree_with_host(compiled, sign * x.abs() * 9, y)
    assert "graph 0 of Dynamo" in compiled.explain()
    assert "steps" in compiled.explain()


def test_arguments_that_are_no_tensors():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, batch, factor, *, shift=None):
            y = self.fc(batch["x"]) * factor
            return y if shift is None else y + shift

    net = Scaled().eval()
    compiled = corsac.compile(net)
    x = torch.randn(2, 5)
    agree(compiled, net, {"x": x}, 3)
    agree(compiled, net, {"x": x}, 4)
    with torch.no_grad():
        found = compiled({"x": x}, 2, shift=1)
        torch.testing.assert_close(found, net({"x": x}, 2, shift=1))


def test_training_and_evaluation_of_one_model():
    net, other = Net(), Net()
    other.load_state_dict(net.state_dict())
    compiled = torch.compile(net, backend="corsac")
    x = torch.randn(8, 5)
    net.drop.p = other.drop.p = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        compiled(x).square().sum().backward()
    other(x).square().sum().backward()
    for mine, its in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad)
    torch.testing.assert_close(net.norm.running_mean, other.norm.running_mean)
    net.eval(), other.eval()
    agree(compiled, other, x)


def test_autograd_switched_inside():
    net = Net().eval()

    def frozen(x):
        with torch.no_grad():
            y = net(x)
        return y

    def half(x):
        with torch.no_grad():
            y = net(x)
        return y * net.second.bias

    x = torch.randn(4, 5)
    compiled = torch.compile(frozen, backend="corsac")
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        found = compiled(x)
        assert torch.is_grad_enabled() and not found.requires_grad
    torch.testing.assert_close(found, frozen(x))
    compiled = torch.compile(half, backend="corsac")
    found = compiled(x)
    assert found.requires_grad
    torch.testing.assert_close(found, half(x))
    agree(compiled, half, x)


def test_autocast_is_left_to_pytorch():
    net, x = Net().eval(), torch.randn(4, 5)
    compiled = torch.compile(net, backend="corsac")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(x).dtype is torch.bfloat16

    def off(x):
        with torch.autocast("cpu", enabled=False):
            return x @ x.T + 1

    agree(torch.compile(off, backend="corsac"), off, x)


def test_results_that_share_memory():
    def views(x):
        y = x * 2
        return x, x[0], y, y.view(-1), y

    compiled = torch.compile(views, backend="corsac")
    x = torch.randn(4, 5)
    with torch.no_grad():
        same, row, y, flat, again = compiled(x)
    assert same is x and again is y
    row.fill_(7)
    flat.fill_(8)
    assert x[0].eq(7).all() and y.eq(8).all()


def test_inputs_that_are_written_to():
    def grows(x):
        x.add_(1)
        return x * 2 + 1

    x = torch.zeros(3)
    with torch.no_grad():
        assert torch.compile(grows, backend="corsac")(x).tolist() == [3, 3, 3]
    assert x.tolist() == [1, 1, 1]


def energy(x):
    return (x.exp() * 2).tanh().sum()


TRANSFORMED = {
    "vmap": lambda x: torch.vmap(energy)(x * 3) + 1,
    "grad": lambda x: torch.func.grad(energy)(x * 3) + 1,
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(energy))(x),
    "jacrev": lambda x: torch.func.jacrev(lambda x: x.tanh().sum(0))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_of_functions(name):
    # Inside of a transform, tensors have one dimension more than is visible.
    function = TRANSFORMED[name]
    x = torch.randn(4, 5)
    compiled = corsac.compile(function, options={"training": "native"})
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", corsac.HostWarning)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-5)
    assert compiled.native_programs()


@pytest.mark.parametrize("first", [nn.Linear(8, 8), nn.Identity()])
def test_statistics_of_batch_norms_are_seen(first):
    """Writes to the statistics are noticed although PyTorch does not count them."""
    model = nn.Sequential(first, nn.BatchNorm1d(8)).eval()
    compiled = torch.compile(model, backend="corsac", options={"inference": "native"})
    x = torch.randn(6, 8) * 3 + 1
    with torch.no_grad():
        for _ in range(2):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
            model.train()
            model(x * 5)
            model.eval()


@pytest.mark.parametrize("inference", ["native", "measured"])
def test_writes_before_a_native_part_that_fails_are_done_once(inference):
    embedding = nn.Embedding(10, 8)

    def program(x, i):
        x.add_(1.0)
        return (embedding(i).sin() * 2).relu() + x

    compiled = torch.compile(program, backend="corsac", options={"inference": inference})
    with torch.no_grad():
        x = torch.zeros(8)
        for _ in range(3):
            compiled(x, torch.tensor([1, 2, 3]))
        for _ in range(2):
            x.zero_()
            with pytest.raises(IndexError):
                compiled(x, torch.tensor([1, 2, 99]))
            assert torch.equal(x, torch.ones(8))


@pytest.mark.parametrize("dynamic", [True, False, None])
def test_results_lie_as_those_of_eager(dynamic):
    def function(x):
        permuted = x.permute(2, 0, 1)
        return torch.selu(permuted), x[:, ::2].amax(1), permuted * 2, (x * 2).transpose(0, 2), x

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="corsac", dynamic=dynamic)
    for shape in [(2, 3, 4), (2, 3, 4), (5, 3, 6), (3, 4, 5), (3, 4, 5)]:
        x = torch.randn(shape)
        for found, expected in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
