"""Generated code equals torch.fx's, character for character."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.fx.graph

import corsac.fx.graph

from .cases import CASES, with_metadata, with_pytree

warnings.filterwarnings("ignore", message=".*get_attr.*|.*owning GraphModule.*")


def assert_same_code(build: Any, **style: Any) -> None:
    expected = build(torch.fx.graph).python_code("self", **style)
    actual = build(corsac.fx.graph).python_code("self", **style)
    assert actual.src == expected.src
    assert list(actual.globals) == list(expected.globals)
    for name, value in expected.globals.items():
        # Cases make some values anew in each graph.
        same = actual.globals[name] is value or actual.globals[name] == value
        assert same or getattr(value, "__name__", None) == actual.globals[name].__name__
    assert actual._lineno_map == expected._lineno_map
    assert actual._prologue_start == expected._prologue_start


@pytest.mark.parametrize("name", CASES)
def test_code(name: str) -> None:
    assert_same_code(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_verbose_code(name: str) -> None:
    assert_same_code(CASES[name], verbose=True)


@pytest.mark.parametrize(
    "style",
    [
        {"include_stride": True},
        {"include_device": True},
        {"include_stride": True, "include_device": True, "colored": True},
        {"expanded_def": True},
        {"additional_meta": ["tag", "seq_nr"]},
        {"record_func": True},
    ],
    ids=str,
)
def test_styles_of_verbose_code(style: dict[str, Any]) -> None:
    assert_same_code(with_metadata, verbose=True, **style)


# Cases in which torch.fx makes variables of names that are not identifiers.
NO_VARIABLES = {"names_that_people_set", "own_old_output"}


@pytest.mark.parametrize("name", sorted(set(CASES) - NO_VARIABLES))
def test_code_marked_for_the_profiler(name: str) -> None:
    assert_same_code(CASES[name], record_func=True)


@pytest.mark.parametrize("name", CASES)
def test_expanded_code(name: str) -> None:
    assert_same_code(CASES[name], expanded_def=True)


def test_expanded_code_with_a_structure() -> None:
    def build(fx: Any) -> Any:
        graph = with_pytree(fx, ["a", "b"], [[1, 2], 3], [1], annotated=True)
        *inputs, _, output = graph.nodes
        for index, node in enumerate(inputs):
            node.meta["desc"] = f"input {index}"
        output.meta["desc"] = ["the result"]
        return graph

    assert_same_code(build, expanded_def=True)


# torch.fx colours a dictionary that contains nodes as one literal, and so does corsac; values inside of it
# that are not literals are not coloured by either.
@pytest.mark.parametrize("name", CASES)
def test_colored_code(name: str) -> None:
    assert_same_code(CASES[name], colored=True)


@pytest.mark.parametrize("variable", ["META", "STRIDE", "DEVICE"])
def test_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(f"FX_GRAPH_SHOW_{variable}", "1")
    assert_same_code(with_metadata, verbose=True)
    assert_same_code(with_metadata)


def test_other_root() -> None:
    for name in ("targets", "parameters"):
        expected = CASES[name](torch.fx.graph).python_code("module.inner").src
        assert CASES[name](corsac.fx.graph).python_code("module.inner").src == expected
