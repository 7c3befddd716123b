"""Results and state of training steps that are views: they share memory, and autograd has their bases."""

import pytest
import torch
from torch import nn

import corsac
from kit.twice import twice


class Model(nn.Module):
    """A linear layer, and the views of its result that a case returns and keeps."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function, self.kept = function, None

    def forward(self, x):
        return self.function(self, self.linear(x), x)


def keeps(value, of=lambda own: own.detach()):
    """A case that returns ``value`` of the result, and keeps it detached."""

    def function(model, y, x):
        result = value(y)
        model.kept = of(result)
        return result

    return function


def keeps_a_row(model, y, x):
    first, *others = iter(y)
    model.kept = first.detach()
    return first, others[0]


def keeps_what_is_written(model, y, x):
    model.kept = y[1:]
    model.kept.mul_(2)
    return y, model.kept


def written_before(model, y, x):
    z = y * 2
    part = z[0]
    z.add_(1)
    return part, z.t()


def turned(model, y, x):
    z = y * 2
    z.t_()
    return z, z[0]


CASES = {
    "slice": keeps(lambda y: y[1:]),
    "transposed": keeps(lambda y: y.t()),
    "transposed twice": keeps(lambda y: y.t().contiguous().t()),
    "computed": keeps(lambda y: (y * 2).t()),
    "last": keeps(lambda y: y[:, -1]),
    "the same": keeps(lambda y: y[:, -1], of=lambda own: own),
    "view of the detached": keeps(lambda y: y.view_as(y), of=lambda own: own.detach()[1:].t()),
    "a row": keeps_a_row,
    "several": lambda model, y, x: (y.max(1)[0], y.max(1).values.detach(), y.topk(2)[0][1:]),
    "pieces": lambda model, y, x: (*y.split(2), y.chunk(2, 1)[1].t(), y.unbind(1)[2]),
    "perhaps copies": lambda model, y, x: (
        y.contiguous(),
        y.reshape(2, 8),
        y.float(),
        y.t().reshape(-1),
    ),
    "expanded": lambda model, y, x: (y[0].expand(3, 4), y.expand(2, 4, 4)[1], y.unsqueeze(0)),
    "odd": lambda model, y, x: (y.real, torch.diagonal(y), y.as_strided((2, 2), (1, 4))),
    "of inputs": lambda model, y, x: (x, x[1:], x.t()[0], y),
    "of weights": lambda model, y, x: (model.linear.weight, model.linear.weight.t(), y),
    "only of inputs": lambda model, y, x: (x[1:], x.t()[0]),
    "written": keeps_what_is_written,
    "written before": written_before,
    "turned in place": turned,
}


def described(results, model):
    """Results and state, as far as they can be observed."""
    leaves = torch.utils._pytree.tree_leaves((results, model.kept))
    leaves = [own for own in leaves if own is not None]
    places = [own.untyped_storage().data_ptr() for own in leaves]
    seen = [
        (own.stride(), own.storage_offset(), own.requires_grad, own.is_leaf, places.index(place))
        for own, place in zip(leaves, places, strict=True)
    ]
    return leaves, seen


@pytest.mark.parametrize("training", ["native", "measured"])
@pytest.mark.parametrize("name", CASES)
def test_views_are_those_of_eager(name, training):
    torch._dynamo.reset()
    eager, ours = twice(lambda: Model(CASES[name]))
    compiled = corsac.compile(ours, options={"training": training})
    for number in range(5):
        found = []
        for model, run in ((eager, eager), (ours, compiled)):
            torch.manual_seed(number)
            model.zero_grad()
            x = torch.randn(4, 4, requires_grad=True)
            leaves, seen = described(run(x), model)
            sum((own * own).sum() for own in leaves if own.requires_grad).backward()
            values = [own.detach().clone() for own in leaves]
            found.append((seen, values, model.linear.weight.grad, x.grad))
        assert found[1][0] == found[0][0]
        torch.testing.assert_close(found[1][1:], found[0][1:], rtol=1e-4, atol=1e-5)
    assert compiled._dynamo is None


def test_views_can_be_written_to():
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = Model(lambda model, y, x: (y, y[1:], y.t()))
        run = corsac.compile(model, options={"training": "native"}) if compiles else model
        for _ in range(3):
            y, part, turned = run(torch.ones(4, 4))
            part.mul_(2)
            turned[0].add_(1)
            (y * y).sum().backward()
        found.append((y.detach(), part.detach(), turned.detach(), model.linear.weight.grad))
    torch.testing.assert_close(found[1], found[0])


def test_pieces_cannot_be_written_to():
    model = Model(lambda model, y, x: y.chunk(2))
    for run in [model, *[corsac.compile(model)] * 3]:
        first, _ = run(torch.randn(4, 4))
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            first.mul_(2)
