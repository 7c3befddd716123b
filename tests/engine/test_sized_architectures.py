"""Architectures of Hugging Face through ``corsac.compile``: all are captured for sizes."""

import warnings

import pytest
import torch
from torch.utils import _pytree as pytree

import corsac
from corsac._models.function import module_of
from kit.hugging_face import ARCHITECTURES, words

QUICK = ["bert", "gpt2", "llama", "mistral", "bloom", "t5", "vit", "clip", "mamba", "deberta-v2"]


@pytest.fixture(autouse=True)
def fresh():
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(found, expected):
    assert type(found) is type(expected) and list(found) == list(expected)
    mine, its = (
        [own for own in pytree.tree_leaves(dict(all_)) if isinstance(own, torch.Tensor)]
        for all_ in (found, expected)
    )
    assert len(mine) == len(its) > 0
    for own, other in zip(mine, its, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def check(name):
    architecture = ARCHITECTURES[name]
    model, inputs = architecture.make().eval(), architecture.inputs()
    compiled = corsac.compile(model)
    with torch.no_grad():
        # Code that reads values only when not compiling is recorded in the second call.
        for _ in range(3):
            same(compiled(**inputs), model(**inputs))
    is_captured = (
        bool(module_of(compiled)._recorded.programs()) and module_of(compiled)._dynamo is None
    )
    assert is_captured, compiled.explain()


@pytest.mark.parametrize("name", QUICK)
def test_families(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in QUICK])
def test_other_members(name):
    check(name)


@pytest.mark.parametrize("name", ["bert", "llama", "mistral"])
def test_masks_are_not_taken_for_others(name):
    """A mask of ones, for which PyTorch's attention would need none, is captured like any other."""
    architecture = ARCHITECTURES[name]
    model, ids = architecture.make().eval(), words()
    compiled = corsac.compile(model)
    masks = torch.ones(3, *ids.shape, dtype=torch.int64)
    masks[1, 1, -3:] = masks[2, 0, :5] = 0
    with torch.no_grad():
        for mask in (masks[0], masks[1], masks[2], None, None):
            options = {} if name == "bert" else {"use_cache": False}
            found = compiled(ids, attention_mask=mask, **options)
            same(found, model(ids, attention_mask=mask, **options))
    assert (
        len(module_of(compiled)._recorded.programs()) == 2 and module_of(compiled)._dynamo is None
    )


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_caches_are_given_back(name):
    model, ids = ARCHITECTURES[name].make().eval(), words()
    compiled = corsac.compile(model)
    options = {"decoder_input_ids": ids} if name == "t5" else {}
    with torch.no_grad():
        for _ in range(2):
            found, expected = compiled(ids, **options), model(ids, **options)
            torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
            mine, its = found.past_key_values, expected.past_key_values
            assert type(mine) is type(its) and mine.get_seq_length() == its.get_seq_length()
            if name == "t5":
                continue
            for own, other in zip(mine.layers, its.layers, strict=True):
                assert type(own) is type(other)
                torch.testing.assert_close(own.keys, other.keys, rtol=1e-4, atol=1e-5)
            # The next call uses the cache that it returned.
            token = ids[:, -1:]
            after, other = model(token, past_key_values=mine), model(token, past_key_values=its)
            torch.testing.assert_close(after.logits, other.logits, rtol=1e-4, atol=1e-5)
    assert module_of(compiled)._recorded.programs() and module_of(compiled)._dynamo is None
