"""Attention and encoders of ``torch.nn``: which parts are native, and that results are eager's."""

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


def check_calls(program, *calls, native=True):
    """Results and strides of consecutive calls are eager's, from the first one on."""
    compiled = corsac.compile(program, options={"inference": "native"})
    with torch.no_grad():
        for inputs in calls:
            for found, expected in zip(compiled(*inputs), program(*inputs), strict=True):
                if expected is not None:
                    torch.testing.assert_close(
                        found, expected, rtol=1e-4, atol=1e-5, equal_nan=True
                    )
                    assert found.stride() == expected.stride()
    assert ("PyTorch" not in compiled.explain()) == native
    return compiled


def encoder(**options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16)).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoders_that_pack_padded_sequences(norm_first, activation):
    """Masked positions are zero before the last norm if they are at the end of sequences, else not."""
    own = encoder(norm_first=norm_first, activation=activation)
    longer, scattered, nothing = PADDED.clone(), PADDED.clone(), torch.ones_like(PADDED)
    longer[0, 2:] = True
    scattered[2, 1] = True
    nothing[0, 0] = False
    masks = [PADDED, PADDED, longer, scattered, longer, PADDED, nothing, scattered, nothing, PADDED]

    def program(x, mask):
        return (own(x, src_key_padding_mask=mask),)

    compiled = check_calls(program, *[(X + number, own) for number, own in enumerate(masks)])
    # With norm first, nothing is packed.
    assert ("values decide" in compiled.explain()) != norm_first
    floats = [torch.zeros(mask.shape).masked_fill(mask, float("-inf")) for mask in masks]
    check_calls(program, *[(X + number, own) for number, own in enumerate(floats)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_lies_as_its_fast_path_has_it(need_weights, average):
    torch.manual_seed(0)
    options = {"need_weights": need_weights, "average_attn_weights": average}
    for own in (
        nn.MultiheadAttention(16, 4, batch_first=True),
        # These have no fast path.
        nn.MultiheadAttention(16, 4, batch_first=True, bias=False),
        nn.MultiheadAttention(16, 4),
        nn.MultiheadAttention(15, 3, batch_first=True),
    ):
        own = own.eval()
        width = own.embed_dim
        x = X[..., :width]
        length = x.shape[1 if own.batch_first else 0]
        padded = PADDED if own.batch_first else PADDED.T
        hidden = HIDDEN[:length, :length]

        def program(x, padded=None, hidden=None, own=own):
            return own(x, x, x, padded, attn_mask=hidden, **options)

        check_calls(program, *[(x + number,) for number in range(3)])
        check_calls(program, *[(x + number, padded.clone()) for number in range(3)])
        check_calls(program, *[(x + number, None, hidden.clone()) for number in range(3)])
        check_calls(program, *[(x + number, padded, hidden) for number in range(3)])
        # A fully masked row is NaN.
        check_calls(program, *[(x, torch.ones_like(padded))] * 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
def test_masks_of_layers_hide_whatever_is_not_zero():
    own = encoder().layers[0]
    added = torch.randn(6, 6, generator=torch.Generator().manual_seed(2)).triu(1)
    check_calls(lambda x, mask: (own(x, mask),), *[(X, added)] * 3)
    check_calls(lambda x, mask: (own(x, mask, PADDED),), *[(X, added > 0)] * 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
def test_programs_that_look_at_packed_sequences():
    own = encoder()
    own.layers[1] = nn.Sequential()
    own.layers[1].forward = lambda x, **_: x * 2 if x.is_nested else x * 3

    def program(x, mask):
        return (own(x, src_key_padding_mask=mask),)

    check_calls(program, *[(X + number, PADDED) for number in range(3)], native=False)
    own = encoder()
    seen = []
    own.layers[0].linear1.register_forward_hook(lambda module, args, result: seen.append(args))
    check_calls(program, *[(X + number, PADDED) for number in range(3)], native=False)
    assert [args[0].is_nested for args in seen] == [True] * 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
def test_padding_that_nobody_checks():
    """Without the check, the first positions are packed, as many as are not masked."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    own = nn.TransformerEncoder(layer, 2, mask_check=False).eval()
    scattered = PADDED.clone()
    scattered[2, 1] = True

    def program(x, mask):
        return (own(x, src_key_padding_mask=mask),)

    masks = [PADDED, PADDED, scattered, PADDED, scattered]
    check_calls(program, *[(X + number, own) for number, own in enumerate(masks)], native=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
@pytest.mark.parametrize("shape", [(1, 0, 16), (0, 6, 16), (1, 1, 16), (6, 16)])
def test_sequences_of_no_or_one_element(shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    layer = encoder().layers[0]
    compiled = corsac.compile(attention), corsac.compile(layer)
    with torch.no_grad():
        for _ in range(3):
            found, expected = compiled[0](x, x, x), attention(x, x, x)
            assert (found[1] is None) == (expected[1] is None)
            torch.testing.assert_close(found[0], expected[0])
            torch.testing.assert_close(compiled[1](x), layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.recording
def test_fast_paths_that_are_switched_off():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    own, compiled = encoder(), None
    for module, given in ((attention, (X, X, X)), (own, (X, None, PADDED))):
        compiled = corsac.compile(module)
        for enabled in (True, False, True):
            torch.backends.mha.set_fastpath_enabled(enabled)
            try:
                with torch.no_grad():
                    for _ in range(2):
                        found, expected = compiled(*given), module(*given)
                        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
                        if isinstance(found, tuple):
                            assert found[0].stride() == expected[0].stride()
            finally:
                torch.backends.mha.set_fastpath_enabled(True)


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
