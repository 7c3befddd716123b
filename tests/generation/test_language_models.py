"""Texts that files generate are those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

import corsac
from kit.language_models import CONFIGS, language_model, prompts
from kit.new_process import BLOCKED, printed


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Path]]:
    """Models with their files, by name of the configuration."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for name in ("gpt2", "gemma2"):
        model, path = language_model(name), folder / f"{name}.safetensors"
        corsac.generation.save(model, path, batch=4)
        made[name] = model, path
    return made


def expected(model: Any, prompt: list[int], **settings: Any) -> list[int]:
    """The tokens that transformers generates."""
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None} | settings
    ids = torch.tensor([prompt])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return found[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_greedy_tokens_are_those_of_transformers(saved: Any, name: str) -> None:
    model, path = saved[name]
    text = corsac.generation.load(path)
    for prompt in prompts(1, 2, 7, 70, 100):
        assert text.generate(prompt, max_new_tokens=12, stop=()) == expected(model, prompt)


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_prompts_that_are_continued_together_have_the_tokens_that_they_have_alone(
    saved: Any, name: str
) -> None:
    model, path = saved[name]
    text = corsac.generation.load(path, threads=2)
    given = prompts(5, 90, 1, 30, 64, 3)
    assert text.generate(given, max_new_tokens=12, stop=()) == [
        expected(model, prompt) for prompt in given
    ]


def test_texts_as_long_as_the_model_takes_are_generated(saved: Any) -> None:
    model, path = saved["gpt2"]
    text = corsac.generation.load(path)
    assert (text.longest_text, text.vocabulary, text.most_rows) == (128, 97, 4)
    (prompt,) = prompts(120)
    found = text.generate(prompt, stop=())
    assert found[:8] == expected(model, prompt, max_new_tokens=8)
    assert len(found) == 9


def test_sequences_come_and_go(saved: Any) -> None:
    model, path = saved["gpt2"]
    batch = corsac.generation.load(path).batch(2)
    first, second, third = prompts(9, 40, 20)
    texts = {batch.add(first, max_new_tokens=10, stop=()): (first, [])}
    for _ in range(3):
        for new in batch.step():
            texts[new.sequence][1].append(new.token)
    texts |= {
        batch.add(prompt, max_new_tokens=10, stop=()): (prompt, []) for prompt in (second, third)
    }
    removed = batch.add(third)
    assert len(batch) == 4
    assert batch.remove(removed)
    assert not batch.remove(removed)
    while batch:
        for new in batch.step():
            texts[new.sequence][1].append(new.token)
            assert new.finish == ("length" if len(texts[new.sequence][1]) == 10 else None)
    for prompt, found in texts.values():
        assert found == expected(model, prompt, max_new_tokens=10)


def test_tokens_that_end_texts_end_them(saved: Any) -> None:
    model, path = saved["gpt2"]
    text = corsac.generation.load(path)
    assert text.stop == [96]
    (prompt,) = prompts(9)
    tokens = expected(model, prompt)
    end = next(at for at, token in enumerate(tokens) if token not in tokens[:at] and at > 2)
    assert text.generate(prompt, stop=[tokens[end]]) == tokens[: end + 1]


def test_repetitions_are_penalised_as_transformers_does(saved: Any) -> None:
    model, path = saved["gpt2"]
    text = corsac.generation.load(path)
    (prompt,) = prompts(9)
    found = text.generate(prompt, max_new_tokens=12, stop=(), repetition_penalty=1.5)
    assert found == expected(model, prompt, repetition_penalty=1.5)


def test_equal_seeds_give_equal_texts(saved: Any) -> None:
    text = corsac.generation.load(saved["gpt2"][1])
    (prompt,) = prompts(9)
    settings = {"temperature": 5.0, "max_new_tokens": 20, "stop": ()}
    found = [text.generate(prompt, seed=seed, **settings) for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]
    assert text.generate([prompt, prompt], seed=3, **settings) == [found[0], found[2]]
    assert list(text.stream(prompt, seed=3, **settings)) == found[0]


def test_texts_are_generated_without_torch(saved: Any) -> None:
    model, path = saved["gpt2"]
    program = f"""{BLOCKED}
import corsac
print(corsac.generation.load(sys.argv[1]).generate([5, 6, 7], max_new_tokens=12, stop=()))
"""
    assert printed(program, path) == f"{expected(model, [5, 6, 7])}\n"


def test_texts_that_are_not_finite_leave_others_alone(tmp_path: Path) -> None:
    model = language_model("llama")
    with torch.no_grad():
        # Free rows are fed with token 0.
        model.model.embed_tokens.weight[[0, 7]] = float("inf")
    path = tmp_path / "model.safetensors"
    corsac.generation.save(model, path, batch=8, length=40)
    text = corsac.generation.load(path)
    alone = text.generate([5, 6], max_new_tokens=6, stop=())
    assert len(alone) == 6
    batch = text.batch(8)
    for first in (10, 20, 30, 40, 50):
        batch.add([first, first + 1], max_new_tokens=30, stop=())
    batch.step()
    bad = batch.add([5, 7, 7, 7, 7], max_new_tokens=30, stop=())
    found = {new.sequence: new.finish for _ in range(2) for new in batch.step()}
    assert found[bad] == "invalid"
    late = batch.add([5, 6], max_new_tokens=6, stop=())
    tokens = [new.token for _ in range(7) for new in batch.step() if new.sequence == late]
    assert tokens == alone


def test_prompts_are_any_sequences_of_integers(saved: Any) -> None:
    text = corsac.generation.load(saved["gpt2"][1])
    expected = text.generate([5, 6, 7], max_new_tokens=4)
    for prompt in ((5, 6, 7), torch.tensor([5, 6, 7]), np.array([5, 6, 7]), iter([5, 6, 7])):
        assert text.generate(prompt, max_new_tokens=4) == expected
    several = [[5, 6, 7], (5, 6, 7)]
    for given in (several, torch.tensor(several), np.array(several), map(np.array, several)):
        assert text.generate(given, max_new_tokens=4) == [expected, expected]
    found = text.generate(list(np.array([5, 6, 7])), max_new_tokens=4)
    assert found == text.generate(list(torch.tensor([5, 6, 7])), max_new_tokens=4) == expected
    assert text.generate([5, 6, 7], max_new_tokens=4, temperature=1.0, top_k=1, top_p=1e-9) == (
        expected
    )
    for wrong in ({"seed": -1}, {"top_k": -1}, {"max_new_tokens": -1}, {"stop": [-1]}):
        with pytest.raises(ValueError, match="negative or too large"):
            text.batch(1).add([5], **wrong)
    with pytest.raises(ValueError, match="negative or too large"):
        text.generate([5, 2**32])


def test_a_tokenizer_of_another_model_is_not_replaced(tmp_path: Path) -> None:
    class Tokenizer:
        def __init__(self, text: str) -> None:
            self.backend_tokenizer = self
            self.to_str = lambda pretty: text

    model, path = language_model("gpt2"), tmp_path / "model.safetensors"
    for text in ('{"a": 1}', '{"a":1}'):
        corsac.generation.save(model, path, batch=1, tokenizer=Tokenizer(text))
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"tokenizer\.json is of another model"):
        corsac.generation.save(model, path, batch=1, tokenizer=Tokenizer('{"a": 2}'))
    assert path.read_bytes() == before
    assert sorted(own.name for own in tmp_path.iterdir()) == ["model.safetensors", "tokenizer.json"]


def test_what_a_model_does_not_take_is_an_error(saved: Any) -> None:
    text = corsac.generation.load(saved["gpt2"][1])
    with pytest.raises(ValueError, match="has 129 tokens, and the model takes 128"):
        text.generate([1] * 129)
    with pytest.raises(ValueError, match="has the token 97, and those of the model are below 97"):
        text.generate([5, 97])
    with pytest.raises(ValueError, match="has no tokens"):
        text.generate([])
    with pytest.raises(ValueError, match="top_p is 2, and a number above 0, at most 1 is needed"):
        text.generate([5], top_p=2.0)
    with pytest.raises(ValueError, match="rows is 5"):
        text.batch(5)


def test_models_with_other_caches_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(corsac.CompileError, match="MambaForCausalLM has no caches"):
        corsac.generation.save(language_model("mamba"), path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(corsac.CompileError, match=r"call model\.eval"):
        corsac.generation.save(language_model("gpt2").train(), path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("mixtral", "is a mixture of experts"), ("bart", "files hold models that continue one text")],
)
def test_models_with_experts_or_encoders_are_refused(tmp_path: Path, kind: str, text: str) -> None:
    model = language_model("mixtral", num_local_experts=4)
    if kind == "bart":
        config = BartConfig(vocab_size=97, d_model=16, encoder_layers=1, decoder_layers=1)
        model = BartForConditionalGeneration(config).eval()
    with pytest.raises(corsac.CompileError, match=text):
        corsac.generation.save(model, tmp_path / "model.safetensors")


def test_frequencies_of_short_texts_are_kept(tmp_path: Path) -> None:
    """Models that have others for long texts have texts up to there."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    rope = {"rope_type": "longrope", "rope_theta": 1e4}
    settings = {"rope_parameters": factors | rope, "original_max_position_embeddings": 40}
    model = language_model("phi3", **settings)
    rotary, path = model.model.rotary_emb, tmp_path / "model.safetensors"
    # It was called with a long text before.
    model(torch.arange(60).reshape(1, 60))
    before = rotary.inv_freq.clone()
    assert not torch.equal(before, rotary.original_inv_freq)
    with pytest.raises(ValueError, match="length is 60, and a number from 8 on, at most 40,"):
        corsac.generation.save(model, path, length=60)
    corsac.generation.save(model, path, batch=2)
    given = prompts(25, 3)
    texts = corsac.generation.load(path).generate(given, max_new_tokens=12, stop=())
    assert texts == [expected(model, prompt) for prompt in given]
    with pytest.raises(ValueError, match="has 41 tokens, and the model takes 40"):
        corsac.generation.load(path).generate(*prompts(41))


def test_saving_leaves_rotary_embeddings_as_they_were(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    model = language_model("llama", rope_parameters=rope)
    before = dict(vars(model.model.rotary_emb))
    corsac.generation.save(model, tmp_path / "model.safetensors", batch=2)
    assert vars(model.model.rotary_emb) == before


def test_files_without_a_language_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    corsac.save(torch.nn.Linear(2, 2).eval(), path, torch.ones(1, 2))
    with pytest.raises(corsac.ModelFileError, match='the file has no program "prompt"'):
        corsac.generation.load(path)


@pytest.mark.slow
def test_models_that_depend_on_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(corsac.CompileError, match="a text that the file generates differs"):
        corsac.generation.save(language_model("gpt_neo"), tmp_path / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"gpt2", "gemma2", "gpt_neo", "mamba"}))
def test_other_architectures_generate_the_tokens_of_transformers(tmp_path: Path, name: str) -> None:
    model, path = language_model(name), tmp_path / "model.safetensors"
    corsac.generation.save(model, path, batch=4, length=120)
    given = prompts(5, 90, 1, 30)
    assert corsac.generation.load(path).generate(given, max_new_tokens=12, stop=()) == [
        expected(model, prompt) for prompt in given
    ]
