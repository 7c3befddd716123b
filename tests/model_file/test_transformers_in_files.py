"""Transformer modules of ``torch.nn`` in model files: every mask and layout, fixed sizes and symbolic ones."""

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim

import corsac

pytestmark = pytest.mark.filterwarnings("ignore")
WIDTH, HEADS = 16, 4
B, T, S = Dim("b", min=1, max=4), Dim("t", min=2, max=8), Dim("s", min=2, max=9)


class Calls(nn.Module):
    """A module with the way in which it is called."""

    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, x, y=None, z=None):
        return self.call(self.module, x, y, z)


def sequences(batch, length, batch_first, number=0):
    torch.manual_seed(number)
    made = torch.randn(batch, length, WIDTH)
    return made if batch_first else made.transpose(0, 1).contiguous()


def causal(length):
    return nn.Transformer.generate_square_subsequent_mask(length)


def padding(batch, length):
    """Padding at the end of the last sequence."""
    made = torch.zeros(batch, length, dtype=torch.bool)
    made[-1, length // 2 + 1 :] = True
    return made


def check(path, module, call, batch_first, *kinds, dtype=torch.float32):
    """The file of a module gives what the module gives, for other sizes than those with which it was saved."""
    model = Calls(module, call).eval().to(dtype)
    (outer, inner) = (B, T) if batch_first else (T, B)
    shapes = {
        "sequences": {0: outer, 1: inner},
        "memory": {0: B if batch_first else S, 1: S if batch_first else B},
        "padding": {0: B, 1: T},
        "causal": {0: T, 1: T},
        "later": {0: T, 1: T},
    }

    def inputs(batch, length, memory):
        later = torch.ones(length, length).triu(1).bool()
        made = {
            "sequences": sequences(batch, length, batch_first).to(dtype),
            "memory": sequences(batch, memory, batch_first, 1).to(dtype),
            "padding": padding(batch, length),
            "causal": causal(length).to(dtype),
            "later": later,
        }
        return tuple(made[kind] for kind in kinds)

    names = dict(zip("xyz", kinds, strict=False))
    dynamic = {name: shapes[kind] for name, kind in names.items()}
    corsac.save(model, path, inputs(3, 5, 7), dynamic_shapes=dynamic)
    loaded = corsac.load(path)
    for sizes in ((3, 5, 7), (1, 8, 2), (4, 2, 9)):
        given = inputs(*sizes)
        with torch.inference_mode():
            expected, found = model(*given), loaded(*given)
        tolerance = 1e-4 if dtype is torch.float32 else 0.05
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


CALLS = [
    ("plain", lambda m, x, y, z: m(x), ["sequences"]),
    ("mask", lambda m, x, y, z: m(x, y), ["sequences", "causal"]),
    ("mask of bools", lambda m, x, y, z: m(x, y), ["sequences", "later"]),
    ("causal", lambda m, x, y, z: m(x, y, is_causal=True), ["sequences", "causal"]),
    ("padding", lambda m, x, y, z: m(x, src_key_padding_mask=y), ["sequences", "padding"]),
    (
        "both",
        lambda m, x, y, z: m(x, z, src_key_padding_mask=y),
        ["sequences", "padding", "later"],
    ),
    ("other types", lambda m, x, y, z: m(x, z, y), ["sequences", "padding", "causal"]),
]


@pytest.mark.parametrize("call", CALLS, ids=[name for name, *_ in CALLS])
@pytest.mark.parametrize("batch_first", [True, False])
def test_encoders_with_masks(batch_first, call, path):
    _, call, kinds = call
    for norm_first in (False, True):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 32, batch_first=batch_first, norm_first=norm_first
        )
        stack = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH))
        check(path, stack, call, batch_first, *kinds)
        if not norm_first:
            check(path, layer, call, batch_first, *kinds)


@pytest.mark.parametrize("batch_first", [True, False])
def test_decoders_and_whole_transformers(batch_first, path):
    torch.manual_seed(0)
    options = {"batch_first": batch_first}
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 32, activation="gelu", **options)
    decoder = nn.TransformerDecoder(layer, 2)
    kinds = "sequences", "memory", "causal"
    check(path, decoder, lambda m, x, y, z: m(x, y, z), batch_first, *kinds)
    whole = nn.Transformer(WIDTH, HEADS, 1, 1, 32, **options)
    check(path, whole, lambda m, x, y, z: m(y, x, tgt_mask=z), batch_first, *kinds)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_over_sizes(need_weights, batch_first, path):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)
    more = nn.MultiheadAttention(
        WIDTH, HEADS, add_bias_kv=True, add_zero_attn=True, batch_first=batch_first
    )

    def attend(m, *args, **options):
        result, weights = m(*args, need_weights=need_weights, **options)
        return (result, weights) if need_weights else result

    for own, (call, *kinds) in itertools.product(
        (attention, more),
        (
            (lambda m, x, y, z: attend(m, x, x, x), "sequences"),
            (lambda m, x, y, z: attend(m, x, y, y), "sequences", "memory"),
            (
                lambda m, x, y, z: attend(m, x, x, x, y, attn_mask=z),
                *("sequences", "padding", "later"),
            ),
        ),
    ):
        check(path, own, call, batch_first, *kinds)


def test_a_mask_that_the_model_makes(path):
    def call(m, x, y, z):
        return m(x, causal(x.shape[1]))

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    check(path, nn.TransformerEncoder(layer, 1), call, True, "sequences")


def test_transformers_in_bfloat16(path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    stack = nn.TransformerEncoder(layer, 2)
    _, call, kinds = CALLS[4]
    check(path, stack, call, True, *kinds, dtype=torch.bfloat16)


def test_padding_is_zero_where_it_is_at_the_end_only(path):
    """One file, for masks of both kinds; PyTorch packs the sequences for the first."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
    model = Calls(
        nn.TransformerEncoder(layer, 2), lambda m, x, y, z: m(x, src_key_padding_mask=y)
    ).eval()
    x, end = sequences(3, 6, True), padding(3, 6)
    scattered, none, begin = end.clone(), torch.zeros_like(end), end.flip(1)
    scattered[0, 1] = True
    for example in (end, scattered):
        corsac.save(model, path, (x, example))
        loaded, arrays = corsac.load(path), corsac.load(path, framework="numpy")
        with torch.inference_mode():
            for mask in (end, scattered, none, begin):
                expected = model(x, mask)
                torch.testing.assert_close(loaded(x, mask), expected, rtol=1e-4, atol=1e-5)
                found = torch.from_numpy(arrays(x.numpy(), mask.numpy()))
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert (loaded(x, end)[-1, 4:] == 0).all() and (loaded(x, scattered)[0, 1] != 0).all()


def test_layers_that_look_at_what_depends_on_values_are_refused(path):
    class Looks(nn.TransformerEncoderLayer):
        def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
            result = super().forward(src, src_mask, src_key_padding_mask, is_causal)
            return result * 2 if is_causal else result

    stack = nn.TransformerEncoder(Looks(WIDTH, HEADS, 32, batch_first=True), 1).eval()
    with pytest.raises(corsac.CompileError, match="the values of a tensor decide"):
        corsac.save(stack, path, (sequences(2, 5, True), causal(5)))


def test_what_a_model_prints_is_no_result_of_its_file(path, capsys):
    class Prints(nn.Module):
        def forward(self, x):
            print("sum", x.sum())
            return {"y": x * 2}

    corsac.save(Prints().eval(), path, torch.ones(3))
    assert capsys.readouterr().out == "sum tensor(3.)\n"
    found = corsac.load(path)(torch.ones(3))
    assert list(found) == ["y"] and torch.equal(found["y"], torch.full((3,), 2.0))
