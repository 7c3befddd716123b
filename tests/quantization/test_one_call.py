"""``corsac.quantize``: models that compute with integers, faults of what is given, the report, and the way back."""

import copy
import io
import json
import pickle
import warnings

import pytest
import torch
from torch import nn

import corsac
from corsac.quantization import quantized
from corsac.quantization.one_call import (
    Point,
    _selection,
)
from corsac.quantization.one_call._data import batches, noise_ratio, sqnr
from corsac.quantization.one_call._weights import WeightForm, groups_of, steps_of
from corsac.quantization.quantized.attention import SplitAttention
from corsac.quantization.quantized.inputs import DynamicInput, StaticInput
from corsac.quantization.quantized.integer_layers import (
    GroupedLinear,
    IntegerConv2d,
    IntegerLinear,
)
from kit.one_call import data, forms, mlp


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, stride=2)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(x))
        return self.head(x.mean((2, 3)))


class Language(nn.Module):
    """An embedding whose table is also the weight of the last layer."""

    def __init__(self, words=64, size=32):
        super().__init__()
        self.table = nn.Embedding(words, size)
        self.inner = nn.Linear(size, size)
        self.head = nn.Linear(size, words, bias=False)
        self.head.weight = self.table.weight

    def forward(self, words):
        return self.head(torch.tanh(self.inner(self.table(words))))


def compiled_result(model, *args, **kwargs):
    fast = corsac.compile(model, options={"inference": "native"})
    with torch.no_grad():
        for _ in range(3):
            result = fast(*args, **kwargs)
        assert fast.native_programs(), fast.explain()
        return result


# -- forms ---------------------------------------------------------------------------------------


def test_static_layers_round_inputs_and_weights():
    model = nn.Sequential(nn.Linear(16, 8)).eval()
    batch = torch.randn(64, 16)
    made = corsac.quantize(model, batch, measure=False, method="minmax", bias_correction=False)
    layer = made[0]
    assert type(layer) is IntegerLinear and type(layer.input_quantiser) is StaticInput
    low, high = min(batch.min().item(), 0.0), max(batch.max().item(), 0.0)
    scale = (high - low) / 255
    zero_point = round(-low / scale)
    levels = torch.clamp(torch.round(batch * (1.0 / torch.tensor(scale))) + zero_point, 0, 255)
    rounded = (levels - zero_point) * scale
    weight_scale = model[0].weight.abs().amax(1, keepdim=True) / 127
    weight = torch.round(model[0].weight / weight_scale) * weight_scale
    expected = nn.functional.linear(rounded, weight, model[0].bias)
    torch.testing.assert_close(made(batch), expected, rtol=1e-5, atol=1e-5)
    assert layer.integers.dtype == torch.int8 and layer.integers.abs().max() == 127
    torch.testing.assert_close(layer.weight, weight)


def test_dynamic_layers_round_each_row():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU()).eval()
    made = corsac.quantize(model, dynamic=True)
    assert type(made[0].input_quantiser) is DynamicInput
    rows = torch.randn(4, 16) * torch.tensor([[1e-3], [1.0], [100.0], [1e4]])
    error = (made[0](rows) - model[0](rows)).norm(dim=1) / rows.norm(dim=1)
    assert error.max() < 0.01


@pytest.mark.parametrize("group", [32, 64, 128])
def test_groups_have_half_precision_scales_of_least_error(group):
    weight = torch.randn(16, 256)
    weight[3, :group] = 0.0
    levels, scales = groups_of(weight, group)
    assert levels.dtype == torch.int8 and (levels.min(), levels.max()) == (-8, 7)
    assert torch.equal(scales, scales.half().float()) and scales.shape == (16, 256 // group)
    got = (levels.reshape(16, -1, group) * scales[..., None]).reshape(weight.shape)
    largest = weight.reshape(16, -1, group).abs().amax(2)
    naive = (largest / 7).clamp(min=1e-6)[..., None]
    rounded = torch.clamp(torch.round(weight.reshape(16, -1, group) / naive), -8, 7) * naive
    errors = ((got - weight) ** 2).reshape(16, -1, group).sum(2)
    naive_errors = ((rounded.reshape(weight.shape) - weight) ** 2).reshape(16, -1, group).sum(2)
    assert errors.sum() < 0.9 * naive_errors.sum()
    assert torch.equal(got[3, :group], torch.zeros(group))


@pytest.mark.parametrize(
    ("options", "least", "largest_ratio"),
    [
        ({}, 30.0, 0.27),
        ({"dynamic": True}, 30.0, 0.27),
        ({"weights": "int8"}, 35.0, 0.27),
        ({"weights": "int4:32"}, 15.0, 0.17),
        ({"weights": "int4:128"}, 12.0, 0.15),
        ({"dynamic": True, "weights": "int4:64"}, 12.0, 0.16),
    ],
)
def test_compiled_models_give_the_results_of_eager_ones(options, least, largest_ratio, tmp_path):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).eval()
    batch = data(8, 256)
    made = corsac.quantize(model, batch, measure=False, **options)
    assert all(form != "float" for form in forms(made).values())
    expected = made(batch[0])
    # A number between two levels may be rounded to the other one.
    assert sqnr(expected, compiled_result(made, batch[0])) > 45.0
    assert made.quantization_report.sqnr > least
    report = made.quantization_report
    assert report.bytes / report.float_bytes < largest_ratio
    sizes = {}
    for name, own in (("float", model), ("quantised", made)):
        path = tmp_path / f"{name}.safetensors"
        corsac.save(own, path, batch[0])
        sizes[name] = path.stat().st_size
    assert sizes["quantised"] / sizes["float"] < largest_ratio + 0.01
    loaded = corsac.load(tmp_path / "quantised.safetensors", framework="torch")
    with torch.no_grad():
        assert sqnr(expected, loaded(batch[0])) > 45.0


def test_convolutions_are_quantised_in_models_of_any_kind():
    model = Convolutions().eval()
    batch = data(2, 3, 16, 16)
    made = corsac.quantize(model, batch, measure=False)
    assert type(made) is Convolutions and type(made.first) is IntegerConv2d
    assert set(forms(made).values()) == {"int8 static"}
    assert made.quantization_report.sqnr > 28.0
    assert sqnr(made(batch[0]), compiled_result(made, batch[0])) > 45.0


def test_models_that_look_at_weights_see_floats():
    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4, 4)

        def forward(self, x):
            x = self.image(x.to(self.image.weight.dtype)).mean((2, 3))
            return self.linear(x) + nn.functional.linear(x, self.linear.weight)

    model, batch = Looking().eval(), torch.randn(2, 3, 8, 8)
    for options in ({}, {"weights": "int8"}):
        made = corsac.quantize(model, batch, measure=False, **options)
        assert set(forms(made).values()) == {"int8" if options else "int8 static"}
        assert sqnr(model(batch), made(batch)) > 30.0
        assert sqnr(made(batch), compiled_result(made, batch)) > 40.0


def test_image_models():
    torchvision = pytest.importorskip("torchvision")
    from corsac.cli.batch_norm import randomize

    image = torch.randn(2, 3, 64, 64)
    for name in ("resnet18", "mobilenet_v2"):
        model = getattr(torchvision.models, name)().eval()
        randomize(model, [image])
        made = corsac.quantize(model, [image], measure=False)
        report = made.quantization_report
        assert all(row.form == "int8 static" and row.sqnr > 25.0 for row in report.rows), name
        assert report.sqnr > 20.0 and report.bytes / report.float_bytes < 0.3
        assert sqnr(made(image), compiled_result(made, image)) > 25.0


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_language_models_that_cannot_be_traced(name):
    transformers = pytest.importorskip("transformers")
    made = {
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_layer=1, n_embd=64, n_head=2, vocab_size=128, bos_token_id=0, eos_token_id=0
            )
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                num_hidden_layers=1,
                hidden_size=64,
                intermediate_size=128,
                num_attention_heads=2,
                vocab_size=128,
            )
        ),
        "bert": lambda: transformers.BertForMaskedLM(
            transformers.BertConfig(
                num_hidden_layers=1,
                hidden_size=64,
                intermediate_size=128,
                num_attention_heads=2,
                vocab_size=128,
            )
        ),
    }
    model = made[name]().eval()
    words = {"input_ids": torch.randint(0, 128, (2, 12))}
    for options, least in (({"dynamic": True}, 28.0), ({"weights": "int8"}, 28.0), ({}, 25.0)):
        given = words if options == {} else None
        own = corsac.quantize(model, given, measure=False, **options)
        expected, got = model(**words).logits, own(**words).logits
        assert type(own) is type(model) and sqnr(expected, got) > least, options
        tables = [row for row in own.quantization_report.rows if row.kind == "Embedding"]
        assert {row.form for row in tables} == ({"int8"} if "weights" in options else {"float"})
        assert sqnr(got, compiled_result(own, **words).logits) > 40.0


def test_encoder_layers_of_torch_call_their_quantised_layers():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2)
    model = encoder.eval()
    batch = torch.randn(2, 5, 32)
    made = corsac.quantize(model, batch, measure=False)
    report = made.quantization_report
    assert forms(made)["layers.0.linear1"] == "int8 static"
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        assert report[f"layers.0.self_attn.{name}"].form == "int8 static"
    with torch.no_grad():
        assert sqnr(model(batch), made(batch)) > 30.0
    # The model itself stays as it is.
    assert model.layers[0].activation_relu_or_gelu == 1


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_split_attentions_compute_the_same(batch_first, bias):
    attention = nn.MultiheadAttention(16, 4, bias=bias, batch_first=batch_first).eval()
    if bias:
        nn.init.normal_(attention.in_proj_bias)
    split = SplitAttention(attention)
    shape = (3, 5, 16) if batch_first else (5, 3, 16)
    keys = (3, 7, 16) if batch_first else (7, 3, 16)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 4:] = True
    query, key = torch.randn(shape), torch.randn(keys)
    for options in (
        {},
        {"need_weights": False},
        {"average_attn_weights": False},
        {"key_padding_mask": padding},
        {"key_padding_mask": padding, "need_weights": False},
        {"attn_mask": torch.randn(5, 7)},
        {"attn_mask": torch.randn(12, 5, 7), "key_padding_mask": padding.float() * -2.0},
        {"attn_mask": torch.ones(5, 7).triu(1).bool(), "is_causal": True, "need_weights": False},
    ):
        expected, got = attention(query, key, key, **options), split(query, key, key, **options)
        torch.testing.assert_close(got[0], expected[0], rtol=1e-4, atol=1e-5)
        assert (got[1] is None) == (expected[1] is None)
        if got[1] is not None:
            torch.testing.assert_close(got[1], expected[1], rtol=1e-4, atol=1e-5)
    one, other = torch.randn(5, 16), torch.randn(7, 16)
    for expected, got in zip(attention(one, other, other), split(one, other, other), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert split.merged().state_dict().keys() == attention.state_dict().keys()
    for name, own in split.merged().state_dict().items():
        assert torch.equal(own, attention.state_dict()[name])


def test_attentions_that_stay_float_stay_whole():
    class Attending(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True, **options)
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            return self.head(self.attention(x, x, x)[0])

    batch = torch.randn(2, 5, 16)
    model = Attending().eval()
    made = corsac.quantize(model, batch, measure=False, exclude="attention")
    assert type(made.attention) is nn.MultiheadAttention
    assert torch.equal(made.attention.in_proj_weight, model.attention.in_proj_weight)
    made = corsac.quantize(model, batch, measure=False, keep_float=False)
    assert type(made.attention) is SplitAttention and sqnr(model(batch), made(batch)) > 25.0
    assert sqnr(made(batch), compiled_result(made, batch)) > 40.0
    assert made.dequantize().state_dict().keys() == model.state_dict().keys()
    odd = corsac.quantize(Attending(kdim=16, add_zero_attn=True).eval(), batch, measure=False)
    row = odd.quantization_report["attention.out_proj"]
    assert row.reason == "attention: it adds keys and values"


# -- what is left alone, and why -----------------------------------------------------------------


def test_groups_that_do_not_fit_and_convolutions_have_8_bits():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(36, 32), nn.Linear(32, 4))
    made = corsac.quantize(model.eval(), weights="int4:32")
    assert forms(made) == {"0": "int8", "2": "int8", "3": "int4:32"}
    assert made.quantization_report["0"].reason == "int4 is for linear layers and tables"
    assert "rows of 36 features are not in groups of 32" in made.quantization_report["2"].reason
    assert isinstance(made[3], GroupedLinear) and made[3].weight.shape == (4, 32)


def test_shared_layers_are_replaced_at_all_places():
    shared = nn.Linear(16, 16)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(16, 4)).eval()
    made = corsac.quantize(model, data(4, 16), measure=False)
    assert made[0] is made[2] and type(made[0]) is IntegerLinear
    assert [row.layer for row in made.quantization_report.rows] == ["0", "3"]
    assert model[0] is model[2] is shared and type(shared) is nn.Linear


@pytest.mark.parametrize(
    ("weights", "name", "least"), [("int8", "integers", 30.0), ("int4:32", "packed", 14.0)]
)
def test_tied_weights_stay_tied(weights, name, least):
    model = Language().eval()
    words = torch.randint(0, 64, (2, 5))
    made = corsac.quantize(model, weights=weights)
    assert set(forms(made).values()) == {weights}

    def place(layer):
        return getattr(layer, name).data_ptr()

    assert place(made.head) == place(made.table)
    assert "tied with table.weight" in made.quantization_report["head"].remark
    assert sqnr(model(words), made(words)) > least
    copied = copy.deepcopy(made)
    assert place(copied.head) == place(copied.table)
    float_again = copied.dequantize()
    assert type(float_again.table) is nn.Embedding and type(float_again.head) is nn.Linear
    assert torch.equal(float_again.table.weight, float_again.head.weight)
    excluded = corsac.quantize(model, weights=weights, exclude=("table", "head"))
    assert excluded.head.weight is excluded.table.weight


@pytest.mark.parametrize("sizes", [(), (5,), (2, 5), (2, 0), (2, 3, 4)])
def test_rows_of_tables_of_4_bits(sizes, tmp_path):
    model = nn.Sequential(nn.Embedding(64, 128, padding_idx=3), nn.Linear(128, 8)).eval()
    made = corsac.quantize(model, weights="int4:64", measure=False)
    assert forms(made) == {"0": "int4:64", "1": "int4:64"}
    words = torch.randint(0, 64, sizes)
    rows = made[0](words)
    assert torch.equal(rows, made[0].weight[words]) and rows.shape == (*sizes, 128)
    if words.numel():
        assert sqnr(model[0](words), rows) > 15.0
        assert sqnr(made(words), compiled_result(made, words)) > 100.0
        path = tmp_path / "table.safetensors"
        corsac.save(made, path, (words,))
        assert sqnr(made(words), corsac.load(path)(words)) > 100.0


def test_a_language_model_of_4_bits_takes_at_most_a_sixth():
    made = corsac.quantize(Language(512, 256).eval(), weights="int4:32", measure=False)
    report = made.quantization_report
    assert report.bytes / report.float_bytes <= 0.16


def test_a_quantised_layer_leaves_the_table_it_is_tied_with_float():
    model = Language().eval()
    made = corsac.quantize(model, [torch.randint(0, 64, (2, 5))], measure=False)
    assert forms(made) == {"table": "float", "inner": "int8 static", "head": "int8 static"}
    assert type(made.table) is nn.Embedding
    assert made.table.weight.dtype == torch.float32
    assert "tied with table.weight" in made.quantization_report["head"].notes


def test_hooks_parametrisations_and_subclasses_are_left_alone():
    class Own(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)), Own(8, 8), nn.Linear(8, 8)).eval()
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    nn.utils.parametrizations.weight_norm(model[1])
    model[2].to(torch.bfloat16)
    made = corsac.quantize(model, weights="int8")
    reasons = [row.reason for row in made.quantization_report.rows]
    assert "it has hooks" in reasons[0]
    assert "parametrised" in reasons[1]
    assert "bfloat16, expected float32" in reasons[2]
    assert "Own is a subclass" in reasons[3]
    assert [row.form for row in made.quantization_report.rows] == ["float"] * 4 + ["int8"]
    assert len(made[0]._forward_hooks) == 1


def test_layers_that_the_data_do_not_reach_stay_float():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.unused(x) if x.shape[0] == 77 else self.used(x)

    made = corsac.quantize(Branch().eval(), torch.randn(2, 8), measure=False)
    assert forms(made) == {"used": "int8 static", "unused": "float"}
    assert made.quantization_report["unused"].reason == "the calibration data did not reach it"


def test_the_float_model_is_copied_only_as_far_as_it_stays_float():
    model = nn.Sequential(mlp(), nn.LayerNorm(8)).eval()
    made = corsac.quantize(model, data(4, 64), measure=False, exclude="0.4")
    theirs = {own.data_ptr() for own in model.parameters()}
    assert not any(own.data_ptr() in theirs for own in made.parameters())
    state = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for own in made.parameters():
            own.zero_()
    assert all(torch.equal(state[name], own) for name, own in model.state_dict().items())


def test_quantised_layers_stay_as_they_are():
    first = corsac.quantize(mlp(), data(4, 64), measure=False, exclude="4")
    second = corsac.quantize(first, weights="int8")
    assert forms(second) == {"0": "float", "2": "float", "4": "int8"}
    assert second.quantization_report["0"].reason == "it is quantised already"
    assert type(second[0]) is IntegerLinear


def test_exclude_takes_names_patterns_and_classes():
    model = nn.Sequential(mlp(), Convolutions()).eval()
    for exclude in ("1", "1*", ["1"], ["1.first", "1.second", "1.head"]):
        made = corsac.quantize(model, weights="int8", exclude=exclude)
        assert {name for name, form in forms(made).items() if form == "float"} == {
            "1.first", "1.second", "1.head",
        }  # fmt: skip
    made = corsac.quantize(model, weights="int8", exclude=nn.Conv2d)
    assert made.quantization_report["1.first"].reason == "excluded by Conv2d"
    assert forms(made)["1.head"] == "int8"


# -- faults of what is given ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ("frist", r"no module 'frist': did you mean first\?"),
        (["first", "nothing.*"], r"no module 'nothing\.\*'"),
        (nn.Conv1d, r"the model has no Conv1d: did you mean Conv2d"),
    ],
)
def test_exclude_that_fits_nothing(exclude, message):
    with pytest.raises(ValueError, match=message):
        corsac.quantize(Convolutions().eval(), weights="int8", exclude=exclude)


def test_wrong_requests():
    model = mlp()
    for options, message in (
        ({}, "calibration_data is missing"),
        ({"dtype": "int3"}, "dtype: expected 'int8' or 'bfloat16', got 'int3'"),
        ({"weights": "int4:48"}, "weights: expected 'int8', 'int4:32'"),
        ({"weights": "int8", "method": "best"}, "method: expected one of 'minmax'"),
        ({"weights": "int8", "max_drop": 1.0}, "max_drop is given without metric"),
        ({"dynamic": True, "metric": lambda own: float("nan")}, "metric: expected a finite"),
        ({"dynamic": True, "metric": len, "max_drop": -1.0}, "max_drop: expected at least 0"),
        ({"dynamic": True, "smooth_quant": 0.5}, "smooth_quant is given without calibration_data"),
        ({"dynamic": True, "smooth_quant": 2.0}, "smooth_quant: expected 0 to 1, got 2"),
        ({"weights": "int8", "percentile": 3.0}, "percentile: expected a number above 50"),
    ):
        with pytest.raises(ValueError, match=message):
            corsac.quantize(model, **options)
    with pytest.raises(ValueError, match=r"in training mode: call model\.eval"):
        corsac.quantize(mlp().train(), data(2, 64))
    with pytest.raises(ValueError, match="parameters without a shape: call it once"):
        corsac.quantize(nn.Sequential(nn.LazyLinear(8)).eval(), dynamic=True)
    with pytest.raises(ValueError, match="ReLU has nothing to quantise"):
        corsac.quantize(nn.ReLU().eval(), torch.randn(3))
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got function"):
        corsac.quantize(lambda x: x, torch.randn(3))
    with pytest.raises(TypeError, match="CompiledModule is compiled: quantise the model"):
        corsac.quantize(corsac.compile(model), weights="int8")
    with pytest.raises(TypeError, match="OptimizedModule is compiled"):
        corsac.quantize(torch.compile(model), weights="int8")
    with pytest.raises(TypeError, match="exclude: expected names"):
        corsac.quantize(model, weights="int8", exclude=[3])


def test_wrong_calibration_data():
    model = mlp()
    bad = data(2, 64)
    bad[1][1, 5] = float("nan")
    with pytest.raises(ValueError, match="batch 1: input 0 has NaN or infinity: 1 of 128 numbers"):
        corsac.quantize(model, bad)
    with pytest.raises(ValueError, match="batch 0: 'x' has NaN or infinity"):
        corsac.quantize(model, {"x": torch.full((2, 64), float("inf"))})
    shape = r"batch 1 \(input 0 float32\[2, 63\]\): the model does not accept it: RuntimeError: "
    with pytest.raises(ValueError, match=shape):
        corsac.quantize(model, [torch.randn(2, 64), torch.randn(2, 63)])
    with pytest.raises(ValueError, match="calibration_data is empty"):
        corsac.quantize(model, [])
    with pytest.raises(TypeError, match="batch 0: expected tensors, got"):
        corsac.quantize(model, ["text"])
    with pytest.raises(TypeError, match="calibration_data: expected a tensor"):
        corsac.quantize(model, 3)


def test_weights_that_are_not_finite():
    model = mlp()
    with torch.no_grad():
        model[2].weight[3, 4] = float("inf")
    with pytest.raises(ValueError, match=r"2\.weight has NaN or infinity: 1 of 12288 numbers"):
        corsac.quantize(model, data(2, 64))
    # What stays float may be anything.
    corsac.quantize(model, weights="int8", exclude="2")


def test_calibration_data_of_all_kinds():
    tensor = torch.zeros(2)
    assert [own.args for own in batches(tensor)] == [(tensor,)]
    assert len(batches([tensor, tensor])) == 2
    assert len(batches((tensor, tensor))[0].args) == 2
    assert batches({"x": tensor})[0].kwargs == {"x": tensor}
    assert len(batches({"x": tensor} for _ in range(3))) == 3
    assert [name for name, _ in batches(((tensor, [tensor]),))[0].tensors()] == [
        "input 0 0", "input 0 1 0",
    ]  # fmt: skip


# -- warnings ------------------------------------------------------------------------------------


def test_a_range_that_one_batch_decides():
    batches = data(32, 64)
    batches[2][0, 0] = 1e3
    with pytest.warns(UserWarning, match="0: batch 2 alone decides the range of its input: 1000,"):
        corsac.quantize(mlp(), batches, measure=False, method="minmax")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corsac.quantize(mlp(), data(32, 64), measure=False)


def test_constant_inputs_and_noisy_layers():
    with pytest.warns(UserWarning, match="0: all numbers of its input are 1"):
        corsac.quantize(mlp(), torch.ones(4, 64), measure=False)
    with pytest.warns(UserWarning, match="all numbers of its input are 0"):
        made = corsac.quantize(mlp(), torch.zeros(4, 64), measure=False)
    assert made.quantization_report["0"].reason == "its input is always 0"
    spread = torch.randn(64, 64)
    spread[:, 0] = 1e5
    model = nn.Sequential(nn.Linear(64, 8)).eval()
    with torch.no_grad():
        model[0].weight[:, 0] = 0.0
    with pytest.warns(UserWarning, match=r"0: SQNR is -?\d+\.\d dB, less than 15"):
        corsac.quantize(model, spread, measure=False, method="minmax", bias_correction=False)


# -- metrics -------------------------------------------------------------------------------------


def test_layers_are_taken_until_the_metric_drops():
    model, batches = mlp(), data(16, 64)
    costs = {"0": 1.0, "2": 0.1, "4": 0.2}

    def metric(own):
        return 10.0 - sum(costs[name] for name in costs if type(own[int(name)]) is not nn.Linear)

    made = corsac.quantize(model, batches, measure=False, metric=metric, max_drop=0.5)
    assert forms(made) == {"0": "float", "2": "int8 static", "4": "int8 static"}
    report = made.quantization_report
    assert report["0"].reason == "the metric would drop by more than 0.5"
    assert (report.float_metric, report.metric) == (10.0, pytest.approx(9.7))
    assert all(row.sensitivity > 20.0 for row in report.rows)
    assert [point.metric for point in report.pareto] == sorted(
        (point.metric for point in report.pareto), reverse=True
    )
    assert report.pareto[0] == Point(0, report.float_bytes, 10.0)
    everything = corsac.quantize(model, batches, measure=False, metric=metric, max_drop=2.0)
    assert set(forms(everything).values()) == {"int8 static"}
    unbounded = corsac.quantize(model, batches, measure=False, metric=metric)
    assert unbounded.quantization_report.metric == pytest.approx(8.7)


def test_weights_fall_back_to_8_bits_before_floats():
    def metric(own):
        return -float(sum(isinstance(module, GroupedLinear) for module in own.modules()))

    made = corsac.quantize(mlp(), weights="int4:32", metric=metric, max_drop=1.0)
    assert sorted(forms(made).values()) == ["int4:32", "int8", "int8"]
    reasons = {row.form: row.reason for row in made.quantization_report.rows}
    assert reasons["int8"] == "int4:32: the metric would drop by more than 1"


def test_pareto_points_are_those_that_none_beats():
    points = [Point(0, 100, 5.0), Point(1, 80, 5.0), Point(2, 60, 3.0), Point(2, 70, 2.0)]
    assert _selection.pareto(points) == [Point(1, 80, 5.0), Point(2, 60, 3.0)]


# -- the report, and the way back ----------------------------------------------------------------


def test_reports_are_tables_json_and_pages(tmp_path):
    model = mlp()
    made = corsac.quantize(model, data(16, 64), exclude="4", measure=False)
    report = made.quantization_report
    lines = str(report).splitlines()
    assert lines[0].split()[:3] == ["layer", "form", "SQNR"] and "excluded by 4" in lines[3]
    assert lines[5].startswith("2 of 3 layers quantised, ")
    read = json.loads(report.to_json())
    assert [row["form"] for row in read["rows"]] == ["int8 static", "int8 static", "float"]
    row = report["0"]
    assert row.bytes == 64 * 128 + 128 * 12 + 8 and row.float_bytes == 4 * (64 * 128 + 128)
    assert 0.9 < row.use <= 1.0 and 0.0 <= row.clipped < 0.01
    assert read["rows"][0]["sqnr"] == pytest.approx(row.sqnr)
    with pytest.raises(KeyError):
        report["5"]
    page = report.save_html(tmp_path / "report.html", model).read_text()
    assert "<td>excluded by 4</td>" in page and "<iframe" in page and "http://" not in page
    assert "<iframe" not in report.save_html(tmp_path / "table.html").read_text()


def test_dequantize_gives_the_float_model():
    model, batch = mlp(), torch.randn(4, 64)
    state = copy.deepcopy(model.state_dict())
    made = corsac.quantize(model, batch, measure=False)
    back = made.dequantize()
    assert all(torch.equal(value, state[name]) for name, value in back.state_dict().items())
    assert type(back[0]) is nn.Linear and torch.equal(back(batch), model(batch))
    assert torch.equal(copy.deepcopy(made).dequantize()(batch), model(batch))


@pytest.mark.parametrize("weights", ["int8", "int4:32"])
def test_dequantize_without_the_float_model(weights):
    model = nn.Sequential(mlp(), nn.Conv2d(1, 2, 3, padding=1), nn.Embedding(4, 8)).eval()
    made = corsac.quantize(model, weights=weights, keep_float=False)
    back = made.dequantize()
    assert [type(own) for own in back[0]] == [type(own) for own in model[0]]
    assert set(back.state_dict()) == set(model.state_dict())
    for name, value in model.state_dict().items():
        assert value.equal(back.state_dict()[name]) or sqnr(value, back.state_dict()[name]) > 18.0
    batch = torch.randn(3, 64)
    assert torch.equal(back[0](batch), made[0](batch))
    assert torch.equal(back[1](torch.ones(1, 1, 5, 5)), made[1](torch.ones(1, 1, 5, 5)))
    assert not hasattr(back, "quantization_report")


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"weights": "int4:32"}])
def test_copies_pickles_and_state_dicts(options):
    model, batch = mlp(), torch.randn(16, 64)
    made = corsac.quantize(model, batch, measure=False, **options)
    expected = made(batch)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(copied(batch), expected)
        assert str(copied.quantization_report) == str(made.quantization_report)
        assert sqnr(model(batch), copied.dequantize()(batch)) > 15.0
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = corsac.quantize(mlp(), 3 * torch.randn(16, 64), measure=False, **options)
    assert not torch.equal(other(batch), expected)
    # Corrected biases are parameters as others.
    other.load_state_dict(state)
    assert torch.equal(other(batch), expected)


def test_pickles_have_no_float_weights():
    model = nn.Sequential(nn.Linear(512, 512)).eval()
    made = corsac.quantize(model, weights="int8")
    assert len(pickle.dumps(made)) < 0.3 * len(pickle.dumps(model))


def test_a_layer_is_a_model():
    model = nn.Linear(16, 4).eval()
    batch = torch.randn(8, 16)
    made = corsac.quantize(model, batch, measure=False)
    assert type(made) is IntegerLinear and isinstance(made, nn.Linear)
    assert sqnr(model(batch), made(batch)) > 30.0 and made.dequantize() is model


def test_ratios_and_forms():
    assert noise_ratio(100.0, 1.0) == 20.0
    assert noise_ratio(1.0, 0.0) == float("inf") and noise_ratio(0.0, 1.0) == float("-inf")
    assert str(WeightForm.parse("int4")) == "int4:32"
    found = steps_of(torch.tensor([[127.0, -3.0], [0.0, 0.0]]))
    assert found.scales[0] == 1.0 and found.quantise(torch.tensor([[127.0, -3.0], [0, 0]])).tolist() == [
        [127, -3], [0, 0],
    ]  # fmt: skip
    table = quantized.Embedding.from_float(nn.Embedding(4, 8), steps_of(torch.ones(4, 8)))
    assert table(torch.tensor([[0, 3]])).shape == (1, 2, 8)
