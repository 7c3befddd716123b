"""Channel factors are folded into the weights of the layer before them."""

import pytest
import torch
from torch import nn

import corsac


class Scaled(nn.Module):
    """A layer, and the operations on its result and a factor."""

    def __init__(self, layer, factor, after):
        super().__init__()
        self.layer, self.after = layer, after
        self.factor = nn.Parameter(torch.randn(factor))

    def forward(self, x):
        return self.after(self.layer(x), self.factor)


def compiled(model, *inputs):
    """A compiled model whose results are PyTorch's, and the names of its steps."""
    fast = corsac.compile(model.eval(), fullgraph=True)
    with torch.inference_mode():
        torch.testing.assert_close(fast(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)
    (program,) = fast.native_programs()
    return fast, [str(step) for step in program.steps]


def channels_first(y):
    return y.permute(0, 3, 1, 2)


FOLDED = [
    pytest.param(nn.Linear(8, 12), [12], lambda y, s: y * s, id="linear"),
    pytest.param(nn.Linear(8, 12, bias=False), [12], lambda y, s: s * y, id="without a bias"),
    pytest.param(
        nn.Linear(8, 12), [12, 1, 1], lambda y, s: s * channels_first(y), id="permuted"
    ),
    pytest.param(
        nn.Linear(8, 12), [12, 1], lambda y, s: (y.transpose(2, 3) * s).relu(), id="exchanged"
    ),
    pytest.param(nn.Linear(8, 12), [1, 1, 1, 12], lambda y, s: (y * s) * s, id="twice"),
    pytest.param(nn.Conv2d(5, 7, 3), [7, 1, 1], lambda y, s: y * s, id="convolution"),
    pytest.param(
        nn.Conv2d(4, 6, 3, groups=2), [1, 6, 1, 1], lambda y, s: torch.relu(s * y), id="groups"
    ),
    pytest.param(
        nn.Sequential(nn.Conv2d(5, 7, 3), nn.BatchNorm2d(7)), [7, 1, 1],
        lambda y, s: y * s, id="norm",
    ),
]  # fmt: skip


def example(model):
    layer = model.layer[0] if isinstance(model.layer, nn.Sequential) else model.layer
    shape = (2, 5, 6, 8) if isinstance(layer, nn.Linear) else (2, layer.in_channels, 9, 8)
    return torch.randn(shape)


@pytest.mark.parametrize(("layer", "factor", "after"), FOLDED)
def test_factors_are_folded(layer, factor, after):
    torch.manual_seed(0)
    model = Scaled(layer, factor, after)
    x = example(model)
    fast, steps = compiled(model, x)
    assert not any("mul" in step or "fused" in step for step in steps), steps
    # The sources of the weights may change.
    with torch.inference_mode():
        model.factor.mul_(-2)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)


KEPT = [
    pytest.param(nn.Linear(8, 12), [6, 1], lambda y, s: y * s, id="factors of rows"),
    pytest.param(nn.Linear(8, 12), [6, 12], lambda y, s: y * s, id="two dimensions"),
    pytest.param(nn.Linear(8, 12), [12], lambda y, s: torch.relu(y) * s, id="after an activation"),
    pytest.param(nn.Linear(8, 12), [12], lambda y, s: y + y * s, id="read twice"),
    pytest.param(nn.Linear(8, 12), [12], lambda y, s: y[..., :1] * s, id="repeated"),
    pytest.param(nn.Linear(8, 12), [5], lambda y, s: y[..., 2:7] * s, id="a part"),
    pytest.param(nn.Linear(8, 12), [12], lambda y, s: y.flip(3) * s, id="the other way round"),
    pytest.param(
        nn.Linear(8, 12), [6], lambda y, s: y.reshape(2, 5, 12, 6) * s, id="another shape"
    ),
    pytest.param(nn.Conv2d(5, 6, 3), [6], lambda y, s: y * s, id="factors of columns"),
]


@pytest.mark.parametrize(("layer", "factor", "after"), KEPT)
def test_other_factors_stay(layer, factor, after):
    torch.manual_seed(0)
    model = Scaled(layer, factor, after)
    _, steps = compiled(model, example(model))
    assert any("mul" in step or "fused" in step for step in steps), steps


def test_a_factor_that_is_an_input_stays():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 12)

        def forward(self, x, factor):
            return self.layer(x) * factor

    _, steps = compiled(Gated(), torch.randn(3, 8), torch.randn(12))
    assert any("mul" in step or "fused" in step for step in steps), steps


def test_a_layer_that_two_read_keeps_its_weights_for_the_other():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.factor = nn.Parameter(torch.randn(8))

        def forward(self, x):
            return self.layer(x) * self.factor, self.layer(x + 1)

    compiled(Shared(), torch.randn(3, 8))
