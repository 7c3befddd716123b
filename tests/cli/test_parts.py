"""Decisions of the command-line program, tested by function."""

from __future__ import annotations

import time

import pytest
import torch

from corsac._messages.report_text import duration, shortened, with_repeats
from corsac.cli.batch_norm import randomize, untrained
from corsac.cli.failure import Failure
from corsac.cli.inputs import Input
from corsac.cli.model import keywords
from corsac.cli.progress import working
from corsac.cli.timing import Comparison, compare
from corsac.passes._agreement import Agreement, compare_outputs


def test_inputs_are_read_and_shown():
    assert Input.parse("1,3,8,8") == Input((1, 3, 8, 8), torch.float32)
    assert Input.parse("2:int64") == Input((2,), torch.int64)
    assert Input.parse(":bool") == Input((), torch.bool)
    assert str(Input.parse("2,3:bfloat16")) == "2x3 bfloat16"
    for text in ("2,3", "4:int32", "4:bool", "4:complex64", "4:float16", ":int64"):
        given = Input.parse(text)
        tensor = given.random()
        assert (tuple(tensor.shape), tensor.dtype) == (given.shape, given.dtype)


def test_inputs_may_be_expressions():
    given = Input.parse("torch.arange(6).reshape(2, 3)")
    assert torch.equal(given.random(), torch.tensor([[0, 1, 2], [3, 4, 5]]))
    assert str(given) == "torch.arange(6).reshape(2, 3)"
    assert Input.parse("[1, 2.5]").random() == [1, 2.5]
    with pytest.raises(Failure, match=r"--input torch.aranje\(6\): AttributeError: "):
        Input.parse("torch.aranje(6)").random()


def test_keywords_are_json_where_they_can_be():
    given = ['{"a": 1, "b": [2]}', "a=3", "c=text", "d=1.5", "e=None", "f=True", "g=x=y", 'h="7"']
    assert keywords(given) == {
        "a": 3, "b": [2], "c": "text", "d": 1.5, "e": None, "f": True, "g": "x=y", "h": "7",
    }  # fmt: skip


def test_agreement_measures_the_largest_difference():
    one, two = torch.tensor([1.0, -8.0]), torch.tensor([1.5, -8.0])
    assert compare_outputs((one, 3), (two, 3)) == Agreement(0.5, 8.0)
    assert Agreement(0.5, 8.0).within(0.1) and not Agreement(0.5, 8.0).within(0.05)
    special = torch.tensor([float("nan"), float("inf")])
    assert compare_outputs(special, special.clone()) == Agreement(0.0, 0.0)
    assert "NaNs or infinities" in compare_outputs(special, torch.zeros(2))
    assert "NaNs or infinities" in compare_outputs(torch.zeros(2), special)
    assert "output 0 is (2,)" in compare_outputs(one, torch.zeros(3))
    assert "the original returns" in compare_outputs([one], (one,))
    assert "output 1 is 3" in compare_outputs((one, 3), (one, 4))
    assert compare_outputs(torch.zeros(0), torch.zeros(0)) == Agreement(0.0, 0.0)


def test_untrained_batch_norms_are_told_from_trained_ones():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
    assert untrained(model) == [model[1]]
    assert untrained(torch.nn.ReLU()) == []
    image = torch.randn(2, 3, 8, 8)
    assert randomize(model, [image]) == 1
    assert untrained(model) == []
    assert model[1].momentum == 0.1 and not model[1].training
    # Statistics are nine parts measured, so the result is roughly normal before weight and bias.
    out = (model(image) - model[1].bias.view(1, -1, 1, 1)) / model[1].weight.view(1, -1, 1, 1)
    assert out.mean().abs() < 0.3 and 0.7 < out.std() < 1.5


def test_batch_norms_over_single_values_get_random_statistics():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    assert randomize(model, [torch.randn(1, 3)]) == 1
    assert untrained(model) == [] and not model[1].training


def test_times_are_compared_by_their_medians():
    comparison = Comparison([3.0, 1.0, 2.0], [1.0, 0.5, 9.0])
    assert comparison.medians == (2.0, 1.0)
    assert comparison.minima == (1.0, 0.5)
    assert comparison.spread == 4.25 and comparison.ratio is None
    assert comparison.said == "no difference beyond the spread of 4.25 s"
    far = Comparison([3.0, 3.1, 2.9], [1.5, 1.4, 1.6])
    assert (far.ratio, far.said) == (2.0, "2.00 times as fast")
    assert Comparison(far.second, far.first).said == "2.00 times as slow"
    # Most rounds and the fastest calls have to agree.
    for times in [
        ([2.0, 2.01, 2.02], [1.0, 2.03, 0.99]),
        ([2.0, 2.01] * 3 + [1.8], [1.9] * 6 + [1.85]),
    ]:
        own = Comparison(*times)
        assert own.ratio is None and abs(own.medians[0] - own.medians[1]) > own.spread
        assert own.said == "no difference that shows in the fastest calls and in most rounds"
    few = Comparison([3.0, 3.0], [1.0, 1.0])
    assert few.ratio is None and few.said == "too few calls to compare"
    times = (2.5, 0.99999, 0.1234, 0.01234, 0.001234, 0.0001234, 0.0000123, 3e-7, 0.0)
    assert [duration(s) for s in times] == [
        "2.50 s", "1.00 s", "123 ms", "12.3 ms", "1.23 ms", "123 µs", "12.3 µs", "300 ns", "0 ns",
    ]  # fmt: skip


def test_comparisons_take_turns_and_stop_when_they_take_long():
    calls = []
    comparison = compare(lambda: calls.append(1), lambda: calls.append(2), 2)
    assert calls == [1, 2, 1, 2, 1, 2]
    assert (len(comparison.first), len(comparison.second)) == (2, 2)
    comparison = compare(lambda: None, lambda: None, 10, patience_seconds=-1.0)
    assert len(comparison.first) == 3


def test_progress_is_shown_only_after_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with working("quick"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("corsac.cli.progress.PATIENCE", 0.01)
    with working("slow"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "corsac: slow ...\n"


def test_what_repeats_in_lists_is_written_once():
    assert with_repeats(["a", "k", "v", "k", "v", "k", "v", "b"]) == "a, 3 × (k, v), b"
    assert with_repeats(["1", "1", "1", "2", "2"]) == "3 × 1, 2, 2"
    assert with_repeats(["a", "b", "a"]) == "a, b, a"
    assert with_repeats([]) == ""
    assert shortened("abcde") == "a, b, c, d, e"
    assert shortened("abcdefg") == "a, b, c, d and 3 others"
