"""The tokens that may come next are those of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import corsac

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"top_k": 7},
    {"top_p": 0.7},
    {"top_p": 0.05},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.5, "temperature": 2.0, "top_k": 50, "top_p": 0.9},
    {"temperature": 10.0, "top_k": 500, "top_p": 0.999},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_probabilities_are_those_of_transformers(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    for spread in (0.5, 3.0):
        scores = spread * torch.randn(1, 1000)
        text = torch.randint(1000, (1, 30))
        given = scores[0].tolist()
        steps: list[Any] = []
        if "repetition_penalty" in settings:
            steps.append(RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
        if "temperature" in settings:
            steps.append(TemperatureLogitsWarper(settings["temperature"]))
        if "top_k" in settings:
            steps.append(TopKLogitsWarper(settings["top_k"]))
        if "top_p" in settings:
            steps.append(TopPLogitsWarper(settings["top_p"]))
        for step in steps:
            scores = step(text, scores)
        expected = scores.double().softmax(-1)[0]
        found = corsac.generation.candidates(given, text[0].tolist(), **settings)
        assert sorted(token for token, _ in found) == expected.nonzero().flatten().tolist()
        for token, probability in found:
            assert probability == pytest.approx(float(expected[token]), rel=1e-4)
        assert [own for _, own in found] == sorted((own for _, own in found), reverse=True)


def test_logits_that_are_no_numbers_are_an_error() -> None:
    with pytest.raises(ValueError, match="logits that are not finite"):
        corsac.generation.candidates([1.0, float("nan")])
    with pytest.raises(ValueError, match="temperature is -1, and a number from 0 on is needed"):
        corsac.generation.candidates([1.0], temperature=-1.0)
