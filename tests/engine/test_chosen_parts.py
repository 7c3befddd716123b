"""Indexing with a tensor of one integer gives a view, whose offset is known only at run time."""

import pytest
import torch

import corsac

pytestmark = pytest.mark.recording


def written(x, i):
    y = x * 2
    y[i].mul_(3)
    return y


def written_around(x, i):
    y = x * 2
    part = y[i]
    y.mul_(3)
    return part


def written_inside(x, i):
    y = x * 2
    y[i][0].add_(1)
    return y


def added(x, i):
    y = x * 2
    y[i] += 1
    return y


def returned(x, i):
    return x[i]


def returned_too(x, i):
    y = x * 2
    return y, y[i]


def returned_alone(x, i):
    return (x * 2)[i]


def read(x, i):
    return x[i] * 2 + x[:, i - i].sum()


def put(x, i):
    y = x * 2
    y[i] = 1
    return y


NATIVE = [returned_alone, read, put]


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "function",
    [written, written_around, written_inside, added, returned, returned_too, *NATIVE],
)
@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
def test_they_are_views_as_in_pytorch(function, trains):
    def results(run):
        found = []
        with torch.set_grad_enabled(trains):
            for k in range(4):
                x = (torch.arange(6.0).view(3, 2) + 1).requires_grad_(trains)
                given = run(x, torch.tensor(k % 3))
                given = given if isinstance(given, tuple) else (given,)
                places = [own.untyped_storage().data_ptr() for own in given]
                is_shared = [own == x.untyped_storage().data_ptr() for own in places]
                found.append(([own.tolist() for own in given], is_shared, len(set(places))))
                if trains:
                    sum(own.sum() for own in given).backward()
                    found.append(x.grad.tolist())
        return found

    torch._dynamo.reset()
    assert results(torch.compile(function, backend="corsac")) == results(function)
    compiled = corsac.compile(function, options={"inference": "native"})
    assert results(compiled) == results(function)
    if function in NATIVE and not trains:
        assert "PyTorch" not in compiled.explain(), compiled.explain()
