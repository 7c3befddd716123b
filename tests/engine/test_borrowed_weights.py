"""Borrowed weights: large weights that programs read from PyTorch's memory; of embeddings, no copy is made."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import corsac

#: Weights of a mebibyte and more are borrowed.
SIZES = (5000, 64)
WORDS = torch.tensor([[3, 4999, 0], [17, 17, 2]])


class Words(nn.Module):
    """Embeddings whose weight is shared with the last layer."""

    def __init__(self, sizes: tuple[int, int] = SIZES) -> None:
        super().__init__()
        self.embedding = nn.Embedding(*sizes)
        self.inner = nn.Linear(sizes[1], sizes[1])
        self.last = nn.Linear(sizes[1], sizes[0], bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.inner(self.embedding(words))))


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Words().eval()


def check(fast: nn.Module, model: nn.Module, words: torch.Tensor = WORDS) -> None:
    with torch.inference_mode():
        torch.testing.assert_close(fast(words), model(words), rtol=1e-4, atol=1e-4)


def program_text(fast: nn.Module) -> str:
    (program,) = fast.native_programs()
    return str(program)


def test_an_embedding_is_read_where_it_lies(model: nn.Module) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    # The input after the caller's; the last layer has the same weight packed.
    assert "= index_select(in1, in0)" in program_text(fast)
    assert "w0)" in program_text(fast)


def test_small_weights_are_kept() -> None:
    torch.manual_seed(0)
    model = Words((100, 64)).eval()
    fast = corsac.compile(model)
    check(fast, model, WORDS % 100)
    assert "in1" not in program_text(fast)


def test_each_weight_is_borrowed_once() -> None:
    class Twice(Words):
        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.embedding(words) + torch.relu(self.embedding(words.flip(0)))

    torch.manual_seed(0)
    model = Twice().eval()
    fast = corsac.compile(model)
    check(fast, model)
    assert program_text(fast).count("in1") == 2
    assert "in2" not in program_text(fast)


def test_weights_that_change_are_seen(model: nn.Module) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    with torch.no_grad():
        model.embedding.weight.mul_(2)
    check(fast, model)
    model.load_state_dict({name: own / 3 for name, own in model.state_dict().items()})
    check(fast, model)
    model.embedding.weight.data = torch.randn(SIZES)
    check(fast, model)
    model.embedding.weight = nn.Parameter(torch.randn(SIZES))
    check(fast, model)
    # Of another size, for which the index is out of range.
    model.embedding = nn.Embedding(4500, 64)
    with pytest.raises(IndexError), torch.inference_mode():
        fast(WORDS)
    check(fast, model, WORDS % 4500)


def test_weights_of_other_strides_are_copied(model: nn.Module) -> None:
    model.embedding.weight = nn.Parameter(torch.randn(SIZES[::-1]).t())
    fast = corsac.compile(model)
    check(fast, model)
    assert "in1" not in program_text(fast)


def test_weights_that_become_of_other_strides(model: nn.Module) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    model.embedding.weight.data = torch.randn(SIZES[::-1]).t()
    check(fast, model)


def test_indices_out_of_range_are_errors(model: nn.Module) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    with pytest.raises(IndexError, match="out of range"), torch.inference_mode():
        fast(torch.tensor([[5000]]))
    check(fast, model)


def test_a_sum_with_a_large_weight() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset = nn.Parameter(torch.randn(600, 600))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ x + self.offset)

    torch.manual_seed(0)
    model, x = Sum().eval(), torch.randn(600, 600) / 30
    fast = corsac.compile(model)
    for _ in range(2):
        with torch.inference_mode():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
            model.offset.add_(1)


def test_a_weight_goes_with_its_model() -> None:
    model = Words().eval()
    fast = corsac.compile(model)
    check(fast, model)
    weight = weakref.ref(model.embedding.weight)
    del fast, model
    gc.collect()
    assert weight() is None


def test_copies_have_their_own(model: nn.Module) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    other = copy.deepcopy(fast)
    with torch.no_grad():
        model.embedding.weight.zero_()
    check(fast, model)
    with torch.inference_mode():
        assert other(WORDS).abs().max() > 0.1


def test_a_file_has_all_weights(model: nn.Module, tmp_path: Path) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    corsac.save(fast, tmp_path / "model.safetensors", WORDS)
    check(corsac.load(tmp_path / "model.safetensors"), model)


def test_steps_are_profiled(model: nn.Module) -> None:
    fast = corsac.compile(model)
    check(fast, model)
    with torch.inference_mode():
        found = corsac.profile(fast, WORDS)
    assert any("select(in1, in0)" in row.step for row in found.steps)
