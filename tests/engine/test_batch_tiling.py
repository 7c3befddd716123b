"""Batch tiling: batches too large for the cache are computed a few images at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import corsac

#: Eight of these do not fit into a cache.
IMAGE = (32, 64, 64)


def block(channels: int = 32, out: int = 32, **kwargs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1, **kwargs), nn.BatchNorm2d(out))


def images(count: int, shape: tuple[int, ...] = IMAGE) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def seeded(model: nn.Module) -> nn.Module:
    """Set weights and statistics unlike those of a new module."""
    generator = torch.Generator().manual_seed(1)
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) / 4 + 0.01)
    return model.eval()


def steps_of(model: nn.Module, x: torch.Tensor) -> list[str]:
    """The steps of the program for ``x``, with results checked against eager's."""
    fast = corsac.compile(model)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    (program,) = fast.native_programs()
    return program.steps


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = block(), block(), block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x) + x)
        return torch.relu(self.third(x) + x).mean((2, 3))


@pytest.mark.parametrize(
    ("count", "times"), [(8, 4), (12, 6), (16, 8), (9, 9), (11, 11)], ids=lambda own: str(own)
)
def test_large_batches_are_divided(count: int, times: int) -> None:
    steps = steps_of(seeded(Residual()), images(count))
    convolutions = [step for step in steps if "= conv(" in step]
    assert len(convolutions) == 3
    assert all(step.endswith(f", {times} times") for step in convolutions)


@pytest.mark.parametrize("count", [1, 2])
def test_what_stays_in_the_cache_is_done_for_all_images(count: int) -> None:
    steps = steps_of(seeded(Residual()), images(count))
    assert not any("times" in step for step in steps)


def test_many_weights_are_read_once_for_all_images() -> None:
    model = nn.Sequential(*(block(256, 256) for _ in range(3)))
    steps = steps_of(seeded(model), images(16, (256, 14, 14)) / 256)
    assert not any("times" in step for step in steps)


class Squeeze(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep, self.less, self.more = block(groups=32), nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.project = nn.Conv2d(32, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.hardswish(self.deep(x))
        factors = self.more(torch.relu(self.less(x.mean((2, 3), keepdim=True))))
        return self.project(x * nn.functional.hardsigmoid(factors))


def test_what_is_done_for_one_image_is_done_for_each() -> None:
    steps = steps_of(seeded(nn.Sequential(Squeeze(), Squeeze())), images(11))
    assert (
        sum("channel_scaled_conv(" in step and step.endswith(", 11 times") for step in steps) == 2
    )


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = block(32, 16), block(48, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([x, torch.relu(self.first(x))], 1)
        x = torch.cat([x, torch.relu(self.second(x))], 1)
        return nn.functional.avg_pool2d(nn.functional.max_pool2d(x, 3, 2, 1), 2)


def test_images_are_joined_along_channels() -> None:
    steps = steps_of(seeded(Dense()), images(8))
    assert sum("concat(" in step and "times" in step for step in steps) == 2


class Mixing(nn.Module):
    """The result of an image depends on the others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = block(), block(), block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.relu(self.first(x)))
        return self.third(x - x.mean(0, keepdim=True))


def test_steps_that_mix_images_are_done_for_all() -> None:
    steps = steps_of(seeded(Mixing()), images(8))
    assert sum("= conv(" in step and step.endswith(", 2 times") for step in steps) == 3
    mixing = [step for step in steps if "reduce(" in step or "sub(" in step]
    assert len(mixing) == 2
    assert not any("times" in step for step in mixing)


class Tapped(nn.Module):
    """Returns an intermediate value."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = block(), block(), block()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = torch.relu(self.second(torch.relu(self.first(x))))
        return self.third(middle), middle


def test_results_on_the_way_are_whole() -> None:
    model, x = seeded(Tapped()), images(8)
    fast = corsac.compile(model)
    with torch.inference_mode():
        for found, expected in zip(fast(x), model(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_an_image_that_is_read_again_later() -> None:
    class Again(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = torch.relu(self.second(torch.relu(self.first(x))))
            return torch.relu(self.third(inner)) + x

    assert any("times" in step for step in steps_of(seeded(Again()), images(8)))


def test_a_factor_for_each_image_and_offsets_for_all() -> None:
    class Scaled(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.offset = nn.Parameter(torch.zeros(32, 1, 1))

        def forward(self, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
            return self.second((self.first(x) + self.offset) * factors)

    model, x, factors = seeded(Scaled()), images(8), images(8, (1, 1, 1))
    fast = corsac.compile(model)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x, factors), model(x, factors), rtol=1e-4, atol=1e-4)


def test_a_divided_batch_takes_less_memory() -> None:
    model = seeded(Residual())
    sizes = []
    for count in (2, 32):
        fast = corsac.compile(model)
        with torch.inference_mode():
            fast(images(count))
        (program,) = fast.native_programs()
        sizes.append(program.arena_bytes)
    assert 0 < sizes[1] < 2 * sizes[0]


def test_each_step_is_profiled() -> None:
    fast, x = corsac.compile(seeded(Residual())), images(8)
    with torch.inference_mode():
        fast(x)
        found = corsac.profile(fast, x)
    (program,) = fast.native_programs()
    assert [row.step for row in found.steps] == program.steps
    assert all(row.seconds > 0 for row in found.steps)


def test_a_file_runs_without_pytorch(tmp_path: Path) -> None:
    model, x = seeded(Residual()), images(8)
    corsac.save(model, tmp_path / "model.safetensors", x)
    loaded = corsac.load(tmp_path / "model.safetensors")
    with torch.inference_mode():
        found = loaded(x)
        torch.testing.assert_close(
            torch.as_tensor(np.asarray(found)), model(x), rtol=1e-4, atol=1e-4
        )


class Random(nn.Module):
    """Random steps over images, some of which mix images or return intermediate values."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.choices = torch.randint(0, 12, (10,), generator=torch.Generator().manual_seed(seed))
        self.dense = nn.ModuleList(block() for _ in self.choices)
        self.deep = nn.ModuleList(block(groups=32) for _ in self.choices)
        self.join = nn.ModuleList(nn.Conv2d(64, 32, 1) for _ in self.choices)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        functional = nn.functional
        earlier, results = x, []
        for at, choice in enumerate(self.choices.tolist()):
            before = x
            match choice:
                case 0 | 1 | 2:
                    x = torch.relu(self.dense[at](x))
                case 3:
                    x = functional.hardswish(self.deep[at](x))
                case 4:
                    x = x + earlier
                case 5:
                    x = self.join[at](torch.cat([x, earlier], 1))
                case 6:
                    x = x * torch.sigmoid(earlier.mean((2, 3), keepdim=True))
                case 7:
                    x = functional.max_pool2d(x, 3, 1, 1)
                case 8:
                    x = functional.avg_pool2d(x, 3, 1, 1)
                case 9:
                    x = x - 0.1 * x.mean(0, keepdim=True)
                case 10:
                    x = x.flatten(0, 1).sigmoid().unflatten(0, (-1, 32))
                case 11:
                    results.append(x)
            earlier = before
        return [x, *results]


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    model, x = seeded(Random(seed)), images(6 + seed % 5, (32, 56, 56)) / 16
    fast = corsac.compile(model)
    with torch.inference_mode():
        for found, expected in zip(fast(x), model(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
