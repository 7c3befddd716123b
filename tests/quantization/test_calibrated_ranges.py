"""Ranges of inputs for ``corsac.quantize``: histograms, and methods that choose a range by one."""

import pytest
import torch

from corsac.quantization.one_call._ranges import Histogram, steps


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def filled(*parts):
    histogram = Histogram()
    for part in parts:
        histogram.add(part)
    return histogram


def test_histograms_count_exactly_when_bounds_grow():
    parts = [torch.randn(1000), 7 * torch.randn(1000), 300 * torch.rand(1000)]
    together, alone = filled(*parts), filled(torch.cat(parts))
    assert torch.equal(together.counts, alone.counts) and together.bound == alone.bound == 512.0
    assert together.numbers == 3000
    assert filled(torch.zeros(3), torch.ones(2)).counts.sum() == 5


def test_ranges_by_method():
    numbers = torch.randn(100_000)
    numbers[0] = 100.0
    histogram = filled(numbers)
    assert histogram.range("minmax") == (numbers.min().item(), 100.0)
    low, high = histogram.range("percentile", 99.9)
    assert -3.6 < low < -3.1 and 3.1 < high < 3.6
    low, high = histogram.range("mse")
    assert 80.0 < high < 100.0 and numbers.min().item() == pytest.approx(low, rel=0.2)
    low, high = histogram.range("entropy")
    assert 3.0 < high < 30.0 and -5.0 < low < -3.0
    positive = filled(torch.relu(torch.randn(100_000)))
    for method in ("minmax", "percentile", "mse", "entropy"):
        low, high = positive.range(method)
        assert low == 0.0 and 2.5 < high <= positive.high, method
    assert steps(-1.0, 1.0) == (2 / 255, 128)
    assert steps(0.0, 5.1) == (5.1 / 255, 0)


def test_the_search_finds_less_error_than_all_numbers():
    numbers = torch.randn(50_000)
    numbers[:5] = 60.0
    histogram = filled(numbers)

    def error(low, high):
        scale, zero = steps(low, high)
        levels = torch.clamp(torch.round(numbers / scale) + zero, 0, 255)
        return float((((levels - zero) * scale - numbers) ** 2).sum())

    assert error(*histogram.range("mse")) < error(*histogram.range("minmax"))
