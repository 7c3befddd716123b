"""Programs that depend on the identity of tensors: lists of parameters, sets, dictionaries by weights, `id`."""

import pytest
import torch

import corsac

pytestmark = pytest.mark.recording


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.blocks = torch.nn.Sequential(torch.nn.Linear(4, 4))
        self.scales = {self.linear.weight: 2.0}
        self.names = {id(self.linear.weight): 3.0}
        self.seen = set()
        self.known = []
        self.first = self.second = torch.ones(4)
        for own in self.parameters():
            torch.nn.init.constant_(own, 0.2)


def dtype_of_the_first(self, x):
    return self.blocks(self.linear(x.to(next(self.parameters()).dtype)))


def count(self, x):
    return self.blocks(self.linear(x)) * len(list(self.parameters()))


def names(self, x):
    return self.linear(x) * len(dict(self.named_parameters()))


def scale(self, x):
    return self.linear(x) * self.scales.get(self.linear.weight, 5.0)


def has_scale(self, x):
    return self.linear(x) * (2 if self.linear.weight in self.scales else 7)


def seen_weight(self, x):
    factor = 2 if self.linear.weight in self.seen else 3
    self.seen.add(self.linear.weight)
    return self.linear(x) * factor


def identity(self, x):
    return self.linear(x) * self.names.get(id(self.linear.weight), 9.0)


def set_of_known(self, x):
    return self.linear(x) * (2 if self.first in set(self.known) else 3)


def counts_by_weight(self, x):
    counts = {}
    for own in (self.linear.weight, self.first, self.linear.weight):
        counts[own] = counts.get(own, 0) + 1
    return self.linear(x) * counts[self.linear.weight]


def replaced_and_asked(self, x):
    factor = 2 if self.first in {self.second} else 3
    self.first = self.linear(x).sum(0)
    return self.linear(x) * factor + self.first


def seen_input(self, x):
    factor = 2 if x in self.seen else 3
    self.seen.add(x)
    return self.linear(x) * factor


def seen_result(self, x):
    result = self.linear(x)
    self.seen.add(result)
    return result * len(self.seen)


def identity_of_input(self, x):
    return self.linear(x) * (2 if id(x) in self.names else 3)


def order_of_addresses(self, x):
    return self.linear(x) * len(sorted(self.parameters(), key=id))


def change(model, step):
    if step == 2:
        model.linear.weight = torch.nn.Parameter(torch.full((4, 4), 0.3))
    elif step == 3:
        model.scales[model.linear.weight] = 4.0
        model.names[id(model.linear.weight)] = 8.0
        model.second = torch.ones(4)
        model.known.append(model.first)
    elif step == 4:
        model.blocks.append(torch.nn.Linear(4, 4))
        torch.nn.init.constant_(model.blocks[1].weight, 0.1)
        model.seen.clear()
    elif step == 5:
        model.blocks[0].weight = model.linear.weight
        model.first = torch.zeros(4)
    elif step == 6:
        model.double()


RECORDED = [
    dtype_of_the_first,
    count,
    names,
    scale,
    has_scale,
    seen_weight,
    identity,
    set_of_known,
]
OTHERS = [
    counts_by_weight,
    replaced_and_asked,
    seen_input,
    seen_result,
    identity_of_input,
    order_of_addresses,
]


@pytest.mark.parametrize("function", [*RECORDED, *OTHERS], ids=lambda own: own.__name__)
def test_which_tensors_they_are(function):
    cls = type("Asking", (Model,), {"forward": function})
    with torch.no_grad():
        torch.manual_seed(0)
        model = cls().eval()
        torch.manual_seed(0)
        other = cls().eval()
        compiled = corsac.compile(model)
        kept = torch.randn(2, 4)
        for step in range(8):
            change(model, step)
            torch.manual_seed(step)
            change(other, step)
            other.load_state_dict(model.state_dict())
            if step == 5:
                assert "not compiled" not in str(compiled.explain()) or function in OTHERS
            x = kept if step % 2 else torch.ones(2, 4)
            x = x.double() if step >= 6 and function is not dtype_of_the_first else x
            result, expected = compiled(x), other(x)
            torch.testing.assert_close(result, expected)
            assert len(model.seen) == len(other.seen)
