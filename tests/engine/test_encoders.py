"""Attention and encoders of ``torch.nn``: what is native, and what is as without."""

import pytest
import torch
from torch import nn

import corsac

X = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(0))
PADDED = torch.zeros(3, 6, dtype=torch.bool)
PADDED[1, 4:] = True
HIDDEN = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)) > 0.7
HIDDEN.fill_diagonal_(False)
ADDED = torch.zeros(6, 6).masked_fill(HIDDEN, float("-inf"))
CAUSAL = nn.Transformer.generate_square_subsequent_mask(6)


def check(program, *inputs):
    """Native results are eager's."""
    compiled = corsac.compile(program, fullgraph=True, options={"inference": "native"})
    with torch.no_grad():
        expected = program(*inputs)
        compiled(*inputs)
        torch.testing.assert_close(compiled(*inputs), expected, rtol=1e-4, atol=1e-5)
    assert "PyTorch" not in compiled.explain()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_encoders_that_pack_padded_sequences(norm_first):
    """What was left out is zero, from the first call on: where somebody looks at its operators, the encoder packs
    nothing."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    compiled = corsac.compile(encoder)
    with torch.no_grad():
        expected = encoder(X, src_key_padding_mask=PADDED)
        for _ in range(4):
            found = compiled(X, src_key_padding_mask=PADDED)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention(batch_first, need_weights):
    torch.manual_seed(0)
    x = X if batch_first else X.transpose(0, 1)
    options = {"batch_first": batch_first}
    plain = nn.MultiheadAttention(16, 4, **options).eval()
    wide = nn.MultiheadAttention(16, 4, kdim=8, vdim=12, **options).eval()
    more = nn.MultiheadAttention(16, 4, add_bias_kv=True, add_zero_attn=True, **options).eval()
    given = {"need_weights": need_weights}
    for program, *inputs in (
        (lambda q: plain(q, q, q, **given), x),
        (lambda q, m: plain(q, q, q, attn_mask=m, **given), x, HIDDEN),
        (lambda q, m: plain(q, q, q, attn_mask=m, **given), x, ADDED),
        (lambda q, m: plain(q, q, q, key_padding_mask=m, **given), x, PADDED),
        (lambda q, m: plain(q, q, q, attn_mask=m, is_causal=True, **given), x, CAUSAL),
        (lambda q: plain(q, q, q, average_attn_weights=False, **given), x),
        (lambda q: wide(q, q[..., :8], q[..., :12], **given), x),
        (lambda q: more(q, q, q, **given), x),
    ):
        check(program, *inputs)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_and_stacks(batch_first, norm_first):
    torch.manual_seed(0)
    x = X if batch_first else X.transpose(0, 1)
    options = {"batch_first": batch_first, "norm_first": norm_first}
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", **options).eval()
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    for program, *inputs in (
        (layer, x),
        (layer, x, HIDDEN),
        (layer, x, ADDED),
        (lambda x, m: layer(x, src_key_padding_mask=m), x, PADDED),
        (lambda x, m: layer(x, m, is_causal=True), x, CAUSAL),
        (stack, x),
        (lambda x, m: stack(x, m, is_causal=True), x, CAUSAL),
        (lambda x, m: stack(x, m, is_causal=False), x, ADDED),
    ):
        check(program, *inputs)
    decoder = nn.TransformerDecoderLayer(16, 4, 32, **options)
    check(nn.TransformerDecoder(decoder, 2).eval(), x, x + 1)
