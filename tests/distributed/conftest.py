"""Processes that the tests of a module share."""

from __future__ import annotations

import pytest

from kit.ranks import Ranks


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with Ranks(2, tmp_path_factory.mktemp("two")) as own:
        yield own


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    with Ranks(4, tmp_path_factory.mktemp("four")) as own:
        yield own
