"""Channel factors folded into the next convolution's weights: squeeze and excitation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import corsac


class Squeeze(nn.Module):
    """A depthwise convolution, factors of its channels from their means, and a pointwise convolution."""

    def __init__(self, channels: int, out: int, stride: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.deep = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.less = nn.Conv2d(channels, 8, 1)
        self.more = nn.Conv2d(8, channels, 1)
        self.project = nn.Conv2d(channels, out, 1, stride=stride, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.deep(x))
        factors = torch.sigmoid(self.more(torch.relu(self.less(x.mean((2, 3), keepdim=True)))))
        return self.project(factors * x)


def steps_of(model: nn.Module, x: torch.Tensor) -> list[str]:
    """The steps of the program for ``x``, with results checked against eager's."""
    fast = corsac.compile(model.eval())
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    (program,) = fast.native_programs()
    return program.steps


@pytest.mark.parametrize("channels", [16, 24, 40])
@pytest.mark.parametrize("size", [(4, 4), (7, 7), (14, 14), (13, 29)])
def test_weights_are_multiplied_instead_of_the_image(channels: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    steps = steps_of(Squeeze(channels, 24), torch.randn(1, channels, *size))
    assert sum("channel_scaled_conv(" in step for step in steps) == 1
    assert not any("mul(" in step for step in steps)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        pytest.param(Squeeze(16, 24), (2, 16, 8, 8), id="factors of several images"),
        pytest.param(Squeeze(16, 24), (1, 16, 3, 3), id="few pixels"),
        pytest.param(Squeeze(16, 24, stride=2), (1, 16, 8, 8), id="not every pixel"),
    ],
)
def test_other_images_are_multiplied(model: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    steps = steps_of(model, torch.randn(shape))
    assert not any("channel_scaled_conv(" in step for step in steps)
    assert any("mul(" in step for step in steps)


def test_an_image_that_others_read_is_multiplied() -> None:
    class Both(Squeeze):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            product = torch.sigmoid(self.more(self.less(x.mean((2, 3), keepdim=True)))) * self.deep(
                x
            )
            return self.project(product) + product

    torch.manual_seed(0)
    steps = steps_of(Both(16, 16), torch.randn(1, 16, 8, 8))
    assert not any("channel_scaled_conv(" in step for step in steps)
