"""``corsac.optimum.parallelization``: layers by hand, and models of folders, on two processes."""

from __future__ import annotations

import re

import pytest

from kit import parallel_optimum
from kit.pipelines import made
from kit.ranks import Ranks


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with Ranks(2, tmp_path_factory.mktemp("two")) as own:
        yield own


def test_layers_are_the_whole_ones(two):
    for found in two.run(parallel_optimum.layers):
        assert len(found) == 9
        assert max(found.values()) <= 1e-5, found


def test_models_of_folders(two, tmp_path):
    model, _ = made("llama", 2)
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    for found in two.run(parallel_optimum.of_folder, str(tmp_path)):
        assert found.keys() == {"evaluated", "trained"}
        assert max(found.values()) <= 1e-5, found


def test_parts_of_sequences(two):
    for difference, scattered in two.run(parallel_optimum.sequences):
        assert difference <= 1e-5
        assert scattered >= 4


@pytest.mark.parametrize("trains", [True, False])
def test_modes_that_read_other_weights(two, trains):
    for found in two.run(parallel_optimum.modes, trains):
        names = found.pop("names")
        assert names == [
            f"{part}.{own}" for part in ("aux", "down", "up") for own in ("bias", "weight")
        ]
        assert f"trains {trains}" in found
        assert max(found.values()) <= 1e-5


def test_mistakes(two, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    expected = [
        r"ValueError: 2 ranks do not divide the 5 outputs of a linear layer",
        r"ValueError: a part of an embedding has no max_norm",
        r"ValueError: reduction: expected 'mean', 'sum' or 'none', got 'median'",
        r"ValueError: expected a folder with a config\.json, got meta-llama/Llama",
        r"TypeError: a module takes no further arguments, got sharded",
        r"ValueError: .*config\.json names no class of transformers",
    ]
    for found in two.run(parallel_optimum.mistakes, str(tmp_path)):
        assert len(found) == len(expected)
        for message, pattern in zip(found, expected, strict=True):
            assert re.search(pattern, message), message
