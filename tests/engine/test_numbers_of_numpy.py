"""Programs that compute numbers with NumPy, and parse strings."""

import re

import numpy as np
import pytest
import torch

import corsac
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
LINEAR = torch.nn.Linear(4, 4)
PATTERN = re.compile(r"(\w+)_(\d+)")


class Settings:
    def __init__(self):
        self.size, self.name, self.scales = 64, "layer_12", [1, 2, 3]


def check(function, changes=(), recorded=True):
    settings = Settings()
    compiled = corsac.compile(lambda x: function(x, settings), options={"inference": "native"})
    with torch.no_grad():
        for change in (*(lambda own: None,) * 3, *changes):
            change(settings)
            for _ in range(2):
                x = torch.randn(3, 4)
                torch.testing.assert_close(compiled(x), function(x, settings))
    module = module_of(compiled)
    assert not recorded or (module._recorded.programs() and not module._reasons), compiled.explain()


def test_functions_of_numbers():
    def function(x, settings):
        y = LINEAR(x) / np.sqrt(settings.size)
        y = y.reshape(-1, int(np.prod(x.shape[1:]))) * np.log(10000.0) * 2
        y = y + np.float32(1.5) - np.mean(settings.scales)
        return y * (np.sqrt(16) * 2 - 1) + np.maximum(settings.size, 32)

    def resize(own):
        own.size = 16

    def rescale(own):
        own.scales.append(10)

    check(function, [resize, rescale])


def test_comparisons_and_keys():
    def function(x, settings):
        table = {np.int64(64): 1.0, np.int64(16): 2.0}
        y = LINEAR(x) * table[np.int64(settings.size)]
        return y.relu() if np.float64(settings.size) > 20 else y.tanh()

    def resize(own):
        own.size = 16

    check(function, [resize])


def test_texts():
    def function(x, settings):
        found = PATTERN.match(settings.name)
        y = LINEAR(x) * int(found.group(2)) + len(found.groups())
        return y.relu() if re.search("lay", settings.name) else y

    def rename(own):
        own.name = "block_7"

    check(function, [rename])


def test_arrays_are_nothing_that_is_followed():
    def function(x, settings):
        scales = np.arange(4, dtype=np.float32)
        scales[0] = settings.size
        return LINEAR(x).relu() * torch.from_numpy(scales)

    def resize(own):
        own.size = 16

    check(function, [resize], recorded=False)


def test_numbers_that_numpy_draws():
    def function(x, settings):
        return LINEAR(x).relu() * np.random.rand()

    np.random.seed(0)
    expected = [np.random.rand() for _ in range(4)]
    compiled = corsac.compile(lambda x: function(x, None), options={"inference": "native"})
    np.random.seed(0)
    x = torch.ones(3, 4)
    with torch.no_grad():
        for factor in expected:
            torch.testing.assert_close(compiled(x), LINEAR(x).relu() * factor)
