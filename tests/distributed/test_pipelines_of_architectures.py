"""Pipelines of Hugging Face's and torchvision's models on two, three and four processes."""

from __future__ import annotations

import pytest

from kit import pipelines
from kit.hugging_face import ARCHITECTURES
from kit.ranks import Ranks

pytestmark = pytest.mark.slow

MODELS = [*ARCHITECTURES, *pipelines.IMAGES]


@pytest.fixture(scope="module", params=[2, 3, 4])
def ranks(request, tmp_path_factory):
    with Ranks(request.param, tmp_path_factory.mktemp(f"ranks{request.param}")) as own:
        yield request.param, own


@pytest.mark.parametrize("schedule, several", [("1f1b", 1), ("interleaved1f1b", 2)])
@pytest.mark.parametrize("name", MODELS)
def test_is_the_whole_model(ranks, name, schedule, several):
    size, own = ranks
    stages = size * several
    found = own.run(pipelines.compare, name, schedule, stages, 4, 8, {})
    assert [one["stages"] for one in found] == [stages] * size
    assert all(one["parameters"] > 0 for one in found)
    assert max(one["gradient"] for one in found) <= 1e-4
    assert max(one["buffer"] for one in found) <= 1e-5
    (result,) = [one["result"] for one in found if "result" in one]
    assert result <= 1e-5
