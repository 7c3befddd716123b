"""Text generation by Hugging Face models with a compiled ``forward`` and a cache of keys and values."""

import pytest
import torch

import corsac
from corsac._models.function import module_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.recording
TOKENS = torch.tensor([[3, 14, 15, 92, 65, 35]])


def gpt2():
    config = transformers.GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def made(make):
    torch.manual_seed(0)
    model = make().eval()
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
    return model


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_the_same_tokens_as_without(make, cache):
    torch._dynamo.reset()
    model, other = made(make), made(make)
    model.forward = corsac.compile(model.forward)
    settings = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache}
    for tokens in (TOKENS, TOKENS, TOKENS, TOKENS[:, :4], TOKENS):
        expected = other.generate(tokens, **settings)
        assert torch.equal(model.generate(tokens, **settings), expected)
    assert not module_of(model.forward)._reasons, model.forward.explain()
    module = module_of(model.forward)
    recorded = module._recorded.programs()
    assert recorded and all(own.compiled.preview is None for own in recorded)
    assert module._dynamo is None, model.forward.explain()


def generated_with_a_growing_cache(make):
    """A model that has generated texts from prompts of several lengths, equal to those without corsac."""
    torch._dynamo.reset()
    model, other = made(make), made(make)
    model.forward = corsac.compile(model.forward, options={"inference": "native"})
    settings = {"max_new_tokens": 12, "do_sample": False}
    for length in (4, 6, 3, 8, 5):
        tokens = torch.randint(1, 100, (1, length), generator=torch.Generator().manual_seed(length))
        expected = other.generate(tokens, **settings)
        assert torch.equal(model.generate(tokens, **settings), expected)
    return model


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_cache_that_grows_is_recorded_for_all_its_lengths(make):
    """A growing cache needs few programs, also after compiled training in the same process."""
    layer = corsac.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))
    for _ in range(2):
        layer(torch.ones(2, 3)).sum().backward()
    model = generated_with_a_growing_cache(make)
    module = module_of(model.forward)
    assert module._dynamo is None, model.forward.explain()
    graphs = {id(own.graph) for own in module._recorded.programs()}
    # Of prompts and of tokens, for the first cache and for all, for one length and for all; and of the
    # cache's used part.
    assert graphs and len(graphs) <= 7


def test_static_caches_are_written_where_they_are():
    """Static caches are written in place, natively, in one program for all layers."""
    torch._dynamo.reset()
    model = made(llama)
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    expected = model.generate(TOKENS, **options)
    model.forward = corsac.compile(model.forward, options={"inference": "native"})
    for _ in range(3):
        assert torch.equal(model.generate(TOKENS, **options), expected)
    module = module_of(model.forward)
    known = module._recorded.programs()
    assert all(own.compiled.preview is None for own in known)
    assert any(own.compiled.run.program.writes for own in known)
    assert module._dynamo is None
    # Of the prompt and of tokens, for the first cache and for all.
    assert len({id(own.graph) for own in known}) <= 4


def test_a_cache_that_shares_memory_with_a_weight():
    """Writes to the cache change the weight in the middle of the program."""
    torch._dynamo.reset()
    linear = torch.nn.Linear(4, 4)

    class Holder:
        cache = torch.zeros(4, 4)

    def program(x, holder):
        y = linear(x).relu() + 1
        holder.cache.add_(1)
        return linear(y).relu() * 2 + holder.cache.sum()

    compiled = corsac.compile(program)
    with torch.no_grad():
        start = linear.weight.clone()
        for cache in (Holder.cache, Holder.cache, linear.weight.detach(), Holder.cache):
            holder = Holder()
            holder.cache = cache
            for _ in range(3):
                results = []
                for run in (program, compiled):
                    linear.weight.copy_(start)
                    cache = holder.cache
                    if cache.data_ptr() != linear.weight.data_ptr():
                        cache.zero_()
                    results.append(run(torch.ones(2, 4), holder))
                torch.testing.assert_close(*results)
