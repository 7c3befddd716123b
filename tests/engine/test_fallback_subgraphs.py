"""Programs of which PyTorch runs a part: operators after it are still native."""

import pytest
import torch

import corsac
from corsac.lowering import lower, preview


@torch.library.custom_op("corsac_tests::middle", mutates_args=())
def middle(x: torch.Tensor) -> torch.Tensor:
    """An operator without a rule."""
    return x.sin() + x


@middle.register_fake
def _(x):
    return torch.empty_like(x)


def around(x, w):
    y = torch.relu(x @ w) * 2
    y = torch.ops.corsac_tests.middle.default(y)
    return torch.tanh(y @ w) - 1


def transposed_then_viewed(x, w):
    # PyTorch's product is in column order after the first transposition, in row order after the second.
    y = (torch.relu(x @ w) + 1).t()
    y = torch.ops.corsac_tests.middle.default(y)
    return y.t().view(-1) * 2


def by_place(x, w):
    y = (torch.relu(x @ w) + 1).t()
    y = torch.ops.corsac_tests.middle.default(y)
    return torch.as_strided(y, (4, 4), (1, 4)) * 2


def inputs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, 4, generator=generator), torch.randn(4, 4, generator=generator)


def test_what_follows_an_operator_without_a_rule_is_native():
    found = preview(corsac.fx.symbolic_trace(around).eval(), "corsac", inputs())
    assert len(found.parts) == 2
    assert [row.target for row in found.host] == ["torch.ops.corsac_tests.middle.default"]
    assert "there is no rule" in found.host[0].reason


@pytest.mark.parametrize("function", [around, transposed_then_viewed, by_place])
@pytest.mark.parametrize("min_nodes", [1, 3])
def test_parts_around_the_host_compute_the_same(function, min_nodes):
    module = corsac.fx.symbolic_trace(function).eval()
    lowered = lower(module, "corsac", inputs(), min_nodes=min_nodes)
    torch.testing.assert_close(lowered(*inputs()), function(*inputs()))


def test_what_is_read_by_its_place_in_memory_stays():
    found = preview(corsac.fx.symbolic_trace(by_place).eval(), "corsac", inputs())
    reasons = {row.target: row.reason for row in found.host}
    assert reasons["torch.relu"] == "as_strided reads elements by their place in memory"


@pytest.mark.parametrize("function", [around, transposed_then_viewed, by_place])
@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
def test_compiled(function):
    compiled = corsac.compile(function)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs()), function(*inputs()))


def test_finding_types_draws_no_numbers():
    def function(x):
        return x.sin() * 2 + torch.normal(0.0, 1.0, (2, 3))

    compiled, x = corsac.compile(function), torch.zeros(2, 3)
    with torch.no_grad():
        torch.manual_seed(0)
        expected = [function(x) for _ in range(2)]
        torch.manual_seed(0)
        for one in expected:
            torch.testing.assert_close(compiled(x), one)


def unused(x):
    x.relu()
    return x.tensor_split(3, 2)[2], x * 2


def unused_too(x):
    x.relu(), x + 1, x + 2
    return x.chunk(3, 2)[0], x.split([1, 2], 1)[1], x * 2


@pytest.mark.recording
@pytest.mark.parametrize("function", [unused, unused_too])
@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
def test_parts_of_inputs_that_are_returned_are_views(function):
    compiled, x = corsac.compile(function, options={"inference": "native"}), torch.randn(2, 3, 17)
    with torch.no_grad():
        for _ in range(3):
            found, expected = compiled(x), function(x)
            for own, other in zip(found, expected, strict=True):
                assert torch.equal(own, other) and own.stride() == other.stride()
            for own, other in zip(found[:-1], expected[:-1], strict=True):
                assert own.data_ptr() == other.data_ptr()


class Keeps(torch.nn.Module):
    """Keeps and returns views of one value, beside native operators."""

    def __init__(self, kept, returned):
        super().__init__()
        self.mean = torch.tensor(0.0)
        self.views = kept, returned
        self.kept = None

    def forward(self, x):
        y = x * 1
        self.mean = self.mean * 0.9 + y.mean()
        kept, returned = self.views
        self.kept = kept(y)
        return returned(y)


@pytest.mark.recording
@pytest.mark.parametrize(
    ("kept", "returned"),
    [
        (lambda y: y.detach(), lambda y: y.t()),
        (lambda y: y[0], lambda y: y[1]),
        (lambda y: y.view(-1), lambda y: y.detach()),
        (lambda y: y, lambda y: y.t()),
        (lambda y: y.t()[1:], lambda y: y),
        (lambda y: [y[0], y[1]], lambda y: (y[2], y.t().detach())),
    ],
)
@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
def test_views_of_one_value_share_its_memory(kept, returned):
    model = Keeps(kept, returned)
    for options in ({"inference": "native"}, None):
        compiled = corsac.compile(model, options=options)
        with torch.no_grad():
            for _ in range(4):
                x = torch.randn(3, 4)
                leaves = torch.utils._pytree.tree_leaves((compiled(x), model.kept))
                expected = torch.utils._pytree.tree_leaves((returned(x), kept(x)))
                for own, other in zip(leaves, expected, strict=True):
                    assert torch.equal(own, other)
                assert len({own.untyped_storage().data_ptr() for own in leaves}) == 1
