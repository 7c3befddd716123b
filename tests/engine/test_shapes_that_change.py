"""One model called with changing shapes: weights are packed once, graphs captured once."""

import resource
import warnings

import pytest
import torch
from torch import nn

import corsac
from corsac._models.function import module_of


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.unverified
def test_programs_share_packed_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 2048)).eval()
    size = sum(own.numel() * 4 for own in model.parameters())
    compiled = corsac.compile(model)
    with torch.inference_mode():
        x = torch.randn(20, 2048)
        # The first comparison imports a lot.
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        before = resident_bytes()
        for rows in range(21, 30):
            x = torch.randn(rows, 2048)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert resident_bytes() - before < size / 2
    assert len(compiled.native_programs()) == 10


@pytest.mark.unverified
def test_images_of_several_batches_share_packed_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(512, 512, 3, padding=1), nn.BatchNorm2d(512), nn.ReLU()).eval()
    size = 512 * 512 * 9 * 4
    compiled = corsac.compile(model)
    with torch.inference_mode():
        x = torch.randn(1, 512, 4, 4)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        before = resident_bytes()
        for batch in range(2, 9):
            x = torch.randn(batch, 512, 4, 4)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        assert resident_bytes() - before < 4 * size


def test_weights_that_change_are_not_taken_from_another_program():
    model = nn.Linear(32, 32).eval()
    compiled = corsac.compile(model)
    with torch.no_grad():
        for rows in range(1, 6):
            x = torch.randn(rows, 32)
            model.weight.mul_(1.5)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_the_memory_of_programs_is_shared():
    compiled = corsac.compile(lambda x, y: ((x @ y).relu() + 1).softmax(-1).sum(-1))
    sizes = [64, 256, 8, 100, 257]
    for size in [*sizes, *reversed(sizes)]:
        x, y = torch.randn(size, 16), torch.randn(16, size)
        expected = ((x @ y).relu() + 1).softmax(-1).sum(-1)
        torch.testing.assert_close(compiled(x, y), expected, rtol=1e-4, atol=1e-5)


CONFIG = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 90}
CONFIG |= {"bos_token_id": 0, "eos_token_id": 0}


class Uncached(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


class Cached(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, *past):
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        logits = self.model(ids, past_key_values=cache, use_cache=True).logits
        return logits, *[own for layer in cache.layers for own in (layer.keys, layer.values)]


@pytest.fixture
def gpt2():
    transformers = pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)).eval()


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_sequence_that_grows(gpt2, dynamic):
    model = Uncached(gpt2).eval()
    compiled = corsac.compile(model, dynamic=dynamic)
    ids = torch.randint(0, 90, (1, 4))
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        for _ in range(9):
            found, expected = compiled(ids), model(ids)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            ids = torch.cat([ids, expected[:, -1:].argmax(-1)], 1)
    assert len(module_of(compiled)._pieces) <= 2
    assert "PyTorch" not in compiled.explain()


def test_a_cache_that_grows(gpt2):
    model = Cached(gpt2).eval()
    compiled = corsac.compile(model)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        found = compiled(torch.randint(0, 90, (1, 4)))
        for _ in range(9):
            token, past = found[0][:, -1:].argmax(-1), found[1:]
            found, expected = compiled(token, *past), model(token, *past)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(module_of(compiled)._pieces) <= 3
    assert "PyTorch" not in compiled.explain()
