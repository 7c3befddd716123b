"""Transformers of Hugging Face, captured by Dynamo: each one program, without fallback subgraphs."""

import warnings

import pytest
import torch

import corsac

TOKENS = torch.randint(0, 90, (2, 12), generator=torch.Generator().manual_seed(0))
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


def models(transformers):
    bert = transformers.BertConfig(**SMALL, vocab_size=90)
    gpt2 = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=90)
    llama = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=90)
    vit = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    mask = torch.ones_like(TOKENS).tril(6)
    return {
        "bert": (transformers.BertModel(bert), {"input_ids": TOKENS}),
        "bert with a mask": (
            transformers.BertModel(bert),
            {"input_ids": TOKENS, "attention_mask": mask},
        ),
        "gpt2": (transformers.GPT2LMHeadModel(gpt2), {"input_ids": TOKENS, "use_cache": False}),
        "llama": (transformers.LlamaForCausalLM(llama), {"input_ids": TOKENS, "use_cache": False}),
        "vit": (transformers.ViTModel(vit), {"pixel_values": torch.ones(2, 3, 32, 32)}),
    }


@pytest.mark.parametrize("name", ["bert", "bert with a mask", "gpt2", "llama", "vit"])
def test_transformers_are_whole(name):
    transformers = pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = models(transformers)[name]
    compiled = corsac.compile(model.eval())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", corsac.HostWarning)
        # Code that reads values only when not compiling is recorded in the second call.
        compiled(**inputs)
        found, expected = compiled(**inputs)[0], model(**inputs)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    text = compiled.explain()
    assert "steps" in text
    assert "PyTorch" not in text


def test_keys_and_values_that_heads_share():
    torch.manual_seed(0)
    query, shared = torch.randn(2, 4, 8, 16), torch.randn(2, 1, 8, 16)

    def attention(query, shared):
        keys = shared.expand(2, 4, 8, 16)
        return (query @ keys.transpose(2, 3)).softmax(-1) @ shared.expand(2, 4, 8, 16)

    found = corsac.compile(attention)(query, shared)
    torch.testing.assert_close(found, attention(query, shared), rtol=1e-4, atol=1e-5)
