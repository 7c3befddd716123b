"""Scattering elements to indices, and differences of neighbours."""

import pytest
import torch

import corsac


def check(function, *inputs):
    compiled = corsac.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-5, atol=1e-6)


INDEX = torch.tensor([[0, 2, 1], [3, 0, 2]])
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
SOURCE = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, s: x.scatter(0, i, s),
        lambda x, i, s: x.scatter(1, i, s),
        lambda x, i, s: x.scatter(-1, i, 2.5),
        lambda x, i, s: torch.scatter(x, 0, i, value=-1),
        lambda x, i, s: x.scatter_add(0, i, s),
        lambda x, i, s: torch.scatter_add(x, 1, i, s),
        lambda x, i, s: x.scatter_reduce(0, i, s, "sum"),
        lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
        lambda x, i, s: x.scatter_reduce(0, i, s, reduce="amax"),
        lambda x, i, s: x.scatter_reduce(1, i, s, "amin"),
        lambda x, i, s: x.scatter(0, i, s, reduce="add"),
        lambda x, i, s: x.index_add(0, i[0], x[:3]),
        lambda x, i, s: x.index_copy(1, i[1], x[:, :3]),
        lambda x, i, s: x.index_fill(0, i[0], 7.0),
        lambda x, i, s: (x * 10).long().scatter_add(0, i, (s * 10).long()),
        lambda x, i, s: (x > 0).scatter(1, i, s > 0),
        lambda x, i, s: (x * 0).scatter_(1, i, 1.0),
        lambda x, i, s: x[0].scatter(0, i[0], s[0]),
    ],
)
def test_scatter(function):
    check(function, X, INDEX, SOURCE)


def test_an_index_that_is_out_of_range():
    compiled = corsac.compile(lambda x, i: x.scatter(0, i, 1.0), fullgraph=True)
    with pytest.raises(RuntimeError, match="index 4 is out of bounds"):
        compiled(X, INDEX + 1)
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        compiled(X, INDEX - 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.diff(),
        lambda x: torch.diff(x, n=2),
        lambda x: torch.diff(x, dim=0),
        lambda x: torch.diff(x, n=9),
        lambda x: torch.diff(x, prepend=x[:, :1] - 1),
        lambda x: torch.diff(x, dim=0, prepend=x[:1], append=x[:2]),
        lambda x: (x * 10).long().diff(),
        lambda x: (x > 0).diff(dim=0),
    ],
)
def test_differences(function):
    check(function, X)


def test_products_with_weights():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(6, 20), requires_grad=False)
            self.bias = torch.nn.Parameter(torch.randn(20), requires_grad=False)

        def forward(self, x):
            sums = (
                torch.addmm(self.bias, x, self.weight),
                torch.addmm(self.bias, x, self.weight, beta=2),
            )
            return x @ self.weight, *sums, x[None] @ self.weight, x[0] @ self.weight

    model = Model().eval()
    compiled = corsac.compile(model, fullgraph=True)
    for rows in (1, 3, 17):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert sum("linear" in step for step in compiled.native_programs()[0].steps) >= 4
