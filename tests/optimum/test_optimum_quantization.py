"""Quantisation of models of Hugging Face on captured graphs."""

import copy
import io
import json
import pickle
import warnings

import pytest
import torch
from torch import nn

import corsac
from corsac.fx.proxy import TraceError
from corsac.optimum.quantization import (
    CalibrationError,
    GraphModel,
    QuantizationConfig,
    Quantizer,
    load_quantized,
    quantize,
    save_quantized,
)
from corsac.quantization import get_default_qconfig_mapping
from corsac.quantization.quantized import Linear as IntegerLinear
from kit.known import row

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.1,
}
#: Enough numbers of results for a ratio of noise.
LABELS = {"num_labels": 32}
#: Classes with their configurations, and the number of layers that the graph calls.
MODELS = {
    "BertForSequenceClassification": ({**SMALL, **LABELS}, 14),
    "DistilBertForSequenceClassification": (
        {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64} | LABELS,
        14,
    ),
    "GPT2LMHeadModel": (
        {
            "vocab_size": 100,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        9,
    ),
    "LlamaForCausalLM": (SMALL, 15),
    "ViTForImageClassification": (
        {**SMALL, **LABELS, "vocab_size": None, "image_size": 16, "patch_size": 4},
        14,
    ),
    "T5EncoderModel": (
        {
            "vocab_size": 100,
            "d_model": 32,
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 2,
        },
        12,
    ),
}


def made(name, **changes):
    torch.manual_seed(0)
    config = {key: own for key, own in MODELS[name][0].items() if own is not None} | changes
    kind = getattr(transformers, name)
    return kind(kind.config_class(**config)).eval()


def inputs_of(name, batch=3, length=9, seed=0):
    generator = torch.Generator().manual_seed(seed + 1000 * batch + length)
    if name.startswith("ViT"):
        return {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    ids = torch.randint(1, 100, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length - 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def batches_of(name):
    return [inputs_of(name, 3, 9), inputs_of(name, 4, 12), inputs_of(name, 2, 7)]


def decibels(expected, got):
    expected, got = expected.detach(), got.detach()
    noise = ((expected - got).double() ** 2).sum()
    return float(10 * torch.log10((expected.double() ** 2).sum() / noise))


def quiet(model, data=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return quantize(model, data, **options)


@row("models that are quantised")
@row("results of quantised models")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_results_are_close_and_of_the_models_class(name, approach):
    model = made(name)
    before = {key: own.clone() for key, own in model.state_dict().items()}
    quantised = quiet(model, batches_of(name), approach=approach)
    given = inputs_of(name, 5, 11, seed=1)
    with torch.no_grad():
        expected, got = model(**given), quantised(**given)
    assert type(got) is type(expected)
    names = [key for key in expected if key != "past_key_values"]
    assert list(got) == names
    for key in names:
        assert decibels(expected[key], got[key]) > 25.0
        assert not torch.equal(expected[key], got[key])
    layers = [own for own in quantised.modules() if isinstance(own, IntegerLinear)]
    count = MODELS[name][1]
    if name.startswith("ViT"):
        count -= 1
    assert len(layers) == count
    assert {own.weight.dtype for own in layers} == {torch.int8}
    # The float model is as it was.
    assert all(torch.equal(before[key], own) for key, own in model.state_dict().items())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_compiled_models_are_native_with_weights_of_bytes(name, approach):
    quantised = quiet(made(name), batches_of(name), approach=approach)
    # Positions of T5 are integers whose absolute values are native for known sizes.
    dynamic = False if name.startswith("T5") else None
    options = {"inference": "native"}
    fast = corsac.compile(quantised, options=options, fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for batch, length in [(5, 11), (2, 6), (4, 11)]:
            given = inputs_of(name, batch, length, seed=2)
            expected, got = quantised(**given), fast(**given)
            assert type(got) is type(expected)
            assert decibels(expected[0], got[0]) > 40.0
    text = str(fast.explain())
    assert "PyTorch" not in text
    # The weights that the program reads are bytes.
    graph = corsac.capture(quantised, **given)
    kept = [own.dtype for own in graph.state_dict().values() if own.dtype == torch.int8]
    layers = [own for own in quantised.modules() if hasattr(own, "weight_scale")]
    assert len(kept) == len(layers) > 0


def test_masks_count():
    name = "BertForSequenceClassification"
    model = made(name)
    quantised = quiet(model, batches_of(name))
    given = inputs_of(name, 3, 9)
    other = dict(given, input_ids=given["input_ids"].clone())
    other["input_ids"][0, -1] = 7  # It is masked.
    seen = dict(given, attention_mask=torch.ones_like(given["attention_mask"]))
    with torch.no_grad():
        result = quantised(**given).logits
        assert torch.equal(result, quantised(**other).logits)
        assert not torch.equal(result, quantised(**seen).logits)


@row("calibration")
def test_forms_of_batches():
    name = "BertForSequenceClassification"
    model = made(name)
    given = inputs_of(name)
    ids, mask = given.values()

    class Loader:
        """A loader, whose batches are objects of transformers, with a column that the model has not."""

        def __iter__(self):
            yield transformers.BatchEncoding(dict(given))
            yield transformers.BatchEncoding(dict(given))

    forms = [given, (ids, mask), [given], [(ids, mask)], (own for own in [given]), Loader()]
    results = []
    for form in forms:
        quantised = Quantizer(model).calibrate(form).convert()
        results.append(quantised(ids, mask).logits)
    assert all(torch.equal(results[0], own) for own in results[1:])
    only = Quantizer(model).calibrate([ids]).convert()
    assert [own.name for own in only.inputs.tensors] == ["input_ids"]
    with pytest.warns(UserWarning, match="has no inputs index: they are left out"):
        Quantizer(model).calibrate([{**given, "index": torch.arange(3)}])


def test_by_name():
    quantizer = Quantizer.from_name(
        "BertForSequenceClassification",
        {**SMALL, "num_labels": 3},
        QuantizationConfig(approach="dynamic"),
        input_names=["input_ids", "attention_mask", "token_type_ids"],
    )
    quantised = quantizer.convert()
    assert quantised.config.num_labels == 3
    given = inputs_of("BertForSequenceClassification")
    result = quantised(**given, token_type_ids=torch.zeros(3, 9, dtype=torch.long))
    assert result.logits.shape == (3, 3)
    own = transformers.BertConfig(**SMALL)
    assert isinstance(quantize("BertModel", model_config=own), GraphModel)


def test_a_cache_is_no_result():
    model = made("GPT2LMHeadModel")
    assert model.config.use_cache
    given = inputs_of("GPT2LMHeadModel")
    quantised = quiet(model, given)
    assert list(quantised(**given)) == ["logits"]
    assert list(quantised(**given, use_cache=False)) == ["logits"]
    with pytest.raises(ValueError, match="was captured with use_cache=False"):
        quantised(**given, use_cache=True)


class Small(nn.Module):
    """A convolution and two layers, of which one is called with the weight of the other."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x, scale=1.0, flag=False):
        hidden = torch.relu(self.conv(x).flatten(1)) * scale
        return {"result": self.second(self.first(hidden)), "hidden": (hidden, [hidden])}


def test_other_models():
    torch.manual_seed(0)
    model = Small().eval()
    x = torch.randn(8, 2, 4, 4)
    quantised = quiet(model, {"x": x, "scale": 2.0})
    expected, got = model(x, 2.0), quantised(x)
    assert got.keys() == expected.keys()
    assert got["hidden"][0] is got["hidden"][1][0]
    assert 30.0 < decibels(expected["result"], got["result"]) < 60.0
    names = [name for name, own in quantised.named_modules() if hasattr(own, "weight_scale")]
    assert names == ["graph_module.conv", "graph_module.first", "graph_module.second"]
    # Ranges of the convolution's input are not known in each call.
    dynamic = quiet(model, example_inputs=(x,))
    names = [name for name, own in dynamic.named_modules() if hasattr(own, "weight_scale")]
    assert names == ["graph_module.first", "graph_module.second"]
    with pytest.raises(ValueError, match=r"was captured with scale=2\.0"):
        quantised(x, 3.0)


def test_options_of_weights_and_inputs():
    name = "BertForSequenceClassification"
    model, data = made(name), batches_of(name)
    given = inputs_of(name, 5, 11, seed=1)
    expected = model(**given).logits
    results = {}
    for bits in (8, 6, 4):
        quantised = quiet(model, data, weights_bits=bits)
        layer = quantised.graph_module.get_submodule("bert.pooler.dense")
        high = 2 ** (bits - 1) - 1
        assert layer.weight.max() <= high and layer.weight.min() >= -high - 1
        assert layer.weight.abs().max() >= high
        results[bits] = decibels(expected, quantised(**given).logits)
    assert results[8] > results[6] + 1.5 > results[4] + 8
    whole = quiet(model, data, per_channel=False, activations_dtype="int8", method="minmax")
    layer = whole.graph_module.get_submodule("classifier")
    assert layer.weight_scale.numel() == 1 or len(layer.weight_scale.unique()) == 1
    dtypes = {
        node.args[-1]
        for node in whole.graph_module.graph.nodes
        if "quantize_per_tensor" in str(node.target)
    }
    assert dtypes == {torch.int8}
    assert decibels(expected, whole(**given).logits) > 24.0


def test_layers_that_are_chosen():
    name = "BertForSequenceClassification"
    model, data = made(name), batches_of(name)

    def layers(quantised):
        return {
            path.removeprefix("graph_module."): own
            for path, own in quantised.named_modules()
            if hasattr(own, "weight_scale")
        }

    some = layers(quiet(model, data, exclude=["bert.encoder.layer.0", "classifier"]))
    assert len(some) == 14 - 6 - 1
    assert not any(own.startswith("bert.encoder.layer.0.") for own in some)
    mixed = layers(quiet(model, data, overrides={"bert.encoder.layer.*": {"weights_bits": 4}}))
    assert mixed["bert.encoder.layer.1.output.dense"].weight.abs().max() == 8
    assert mixed["bert.pooler.dense"].weight.abs().max() == 127
    vit = made("ViTForImageClassification")
    only = layers(quiet(vit, batches_of("ViT"), operators_to_quantize=["Conv2d"]))
    assert list(only) == ["vit.embeddings.patch_embeddings.projection"]


@row("`QuantizationConfig`, `QConfig` and")
def test_a_mapping_in_place_of_a_configuration():
    name = "BertForSequenceClassification"
    model = made(name)
    mapping = get_default_qconfig_mapping().set_module_name("classifier", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantizer = Quantizer(model, qconfig_mapping=mapping)
        quantised = quantizer.calibrate(batches_of(name)).convert()
    given = inputs_of(name, 5, 11, seed=1)
    assert decibels(model(**given).logits, quantised(**given).logits) > 12.0
    assert isinstance(quantised.graph_module.classifier, nn.Linear)
    assert not isinstance(quantised.graph_module.classifier, IntegerLinear)
    with pytest.raises(TypeError, match="not quantised by a QuantizationConfig"):
        quantised.save_pretrained("never made")
    # Sums between layers are quantised, too, and sizes are not.
    graph = quantised.graph_module.graph
    rounded = {
        node.args[0].target for node in graph.nodes if "quantize_per_tensor" in str(node.target)
    }
    assert {"view", "transpose"} <= rounded
    assert "size" not in rounded


def trained(approach_options, steps=40):
    name = "BertForSequenceClassification"
    model = made(name)
    given = {**inputs_of(name, 8, 9), "labels": torch.arange(8) % 2}
    quantizer = Quantizer(model, QuantizationConfig(approach="qat", **approach_options))
    prepared = quantizer.prepare(given)
    optimizer = torch.optim.Adam(prepared.parameters(), 1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = prepared(**given).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return model, quantizer, given, losses


@row("training")
def test_training():
    model, quantizer, given, losses = trained({"weights_bits": 4})
    before = made("BertForSequenceClassification").state_dict()
    assert all(torch.equal(before[key], own) for key, own in model.state_dict().items())
    assert losses[-1] < 0.4 * losses[0]
    prepared = quantizer.prepared
    assert prepared.training and any(
        isinstance(own, nn.Dropout) and own.training for own in prepared.modules()
    )
    quantised = quantizer.convert()
    assert prepared.training and not quantised.training
    labels = given.pop("labels")
    with torch.no_grad():
        result = quantised(**given)
        assert list(result) == ["logits"]
        assert result.logits.argmax(1).tolist() == labels.tolist()
        with_loss = quantised(**given, labels=labels)
        assert list(with_loss) == ["loss", "logits"]
        assert torch.equal(with_loss.logits, result.logits)
        expected = nn.functional.cross_entropy(result.logits, labels)
        torch.testing.assert_close(with_loss.loss, expected)
        fast = corsac.compile(quantised, options={"inference": "native"}, fullgraph=True)
        assert decibels(result.logits, fast(**given).logits) > 50.0
    layer = quantised.graph_module.get_submodule("bert.pooler.dense")
    assert layer.weight.abs().max() == 8


def test_evaluation_of_a_model_that_is_trained():
    _, quantizer, given, _ = trained({}, steps=2)
    prepared = quantizer.prepared.eval()
    for own in prepared.modules():
        if hasattr(own, "disable_observer"):
            own.disable_observer()
    labels = given.pop("labels")
    with torch.no_grad():
        assert torch.equal(prepared(**given).logits, prepared(**given, labels=labels).logits)
        quantised = quantizer.convert()
        assert decibels(prepared(**given).logits, quantised(**given).logits) > 80.0
    assert not prepared.training


@pytest.mark.parametrize("name", ["BertForSequenceClassification", "ViTForImageClassification"])
@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_folders(tmp_path, name, approach):
    model = made(name)
    quantised = quiet(model, batches_of(name), approach=approach, exclude=["classifier"])
    assert save_quantized(quantised, tmp_path / "made") == tmp_path / "made"
    torch.manual_seed(7)
    loaded = load_quantized(tmp_path / "made")
    given = inputs_of(name, 5, 11, seed=1)
    with torch.no_grad():
        assert torch.equal(quantised(**given)[0], loaded(**given)[0])
    assert loaded.quantization_config == quantised.quantization_config
    weights = tmp_path / "made" / "model.safetensors"
    float_bytes = sum(own.nbytes for own in model.state_dict().values())
    assert weights.stat().st_size < (0.8 if name.startswith("Bert") else 0.55) * float_bytes
    graph = json.loads((tmp_path / "made" / "fx_graph.json").read_text())
    graph["ranges"] = {"other": [1.0, 0]}
    (tmp_path / "made" / "fx_graph.json").write_text(json.dumps(graph))
    with pytest.raises(ValueError, match="written by another version"):
        load_quantized(tmp_path / "made")


def test_a_folder_of_a_trained_model(tmp_path):
    _, quantizer, given, _ = trained({"weights_bits": 4}, steps=2)
    quantised = quantizer.convert()
    loaded = load_quantized(quantised.save_pretrained(tmp_path))
    given.pop("labels")
    assert torch.equal(quantised(**given).logits, loaded(**given).logits)


def test_copies_pickles_and_state():
    name = "LlamaForCausalLM"
    data = batches_of(name)
    quantised = quiet(made(name), data)
    given = inputs_of(name, 5, 11, seed=1)
    expected = quantised(**given).logits
    assert torch.equal(copy.deepcopy(quantised)(**given).logits, expected)
    assert torch.equal(pickle.loads(pickle.dumps(quantised))(**given).logits, expected)
    other = quiet(made(name), data)
    layer = other.graph_module.get_submodule("lm_head")
    layer.weight.zero_()
    assert not torch.equal(other(**given).logits, expected)
    file = io.BytesIO()
    torch.save(quantised.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(**given).logits, expected)
    prepared = Quantizer(made(name), example_inputs=data[0]).prepared
    again = pickle.loads(pickle.dumps(prepared))
    assert torch.equal(again(**given).logits, prepared(**given).logits)


@pytest.mark.parametrize("place", ["model", "parent", "graph"])
def test_results_without_a_loss_have_the_scales_of_a_loaded_state(place):
    name = "BertForSequenceClassification"
    labels = torch.arange(8) % 2
    first, second = (
        quiet(made(name), {**inputs_of(name, 8, 9, seed), "labels": labels}) for seed in (0, 1)
    )
    given = inputs_of(name, 5, 11)
    expected, before = second(**given).logits, first(**given).logits
    assert not torch.equal(before, expected)
    if place == "model":
        first.load_state_dict(second.state_dict())
    elif place == "parent":
        nn.ModuleList([first]).load_state_dict(nn.ModuleList([second]).state_dict())
    else:
        first.graph_module.load_state_dict(second.graph_module.state_dict())
    assert torch.equal(first(**given, labels=labels[:5]).logits, expected)
    assert torch.equal(first(**given).logits, expected)


def test_configurations(tmp_path):
    config = QuantizationConfig(
        approach="qat", weights_bits=4, exclude="lm_head", overrides={"a.*": {"weights_bits": 8}}
    )
    assert config.exclude == ("lm_head",)
    config.save_pretrained(tmp_path)
    assert QuantizationConfig.from_pretrained(tmp_path) == config
    assert QuantizationConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"approach": "statik"}, "approach: expected one of 'static', .* did you mean static"),
        ({"weights_bits": 9}, "weights_bits: expected 2 to 8, got 9"),
        ({"method": "entropy"}, "method: expected one of 'histogram'"),
        ({"activations_dtype": "int4"}, "activations_dtype: expected one of 'uint8', 'int8'"),
        ({"weight_bits": 4}, "QuantizationConfig: .* did you mean weights_bits"),
        ({"operators_to_quantize": ["Lineer"]}, "did you mean Linear"),
        ({"overrides": {"a": {"bits": 4}}}, "QuantizationConfig: expected one of"),
        ({"overrides": {"a": {"approach": "qat"}}}, "overrides of 'a': approach is the whole"),
    ],
)
def test_wrong_configurations(options, message):
    with pytest.raises(ValueError, match=message):
        QuantizationConfig.from_dict(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"exclude": ["bert.encoder.layers.0"]},
            r"exclude: the model has no module 'bert\.encoder\.layers\.0': did you mean bert\.encoder\.layer",
        ),
        (
            {"overrides": {"clasifier": {"weights_bits": 4}}},
            "overrides: the model has no module 'clasifier': did you mean classifier",
        ),
        (
            {"operators_to_quantize": ["Conv2d"]},
            "has no layer to quantise: Linear is none of operators_to_quantize",
        ),
    ],
)
def test_names_that_fit_nothing(options, message):
    name = "BertForSequenceClassification"
    with pytest.raises(ValueError, match=message):
        quantize(made(name), batches_of(name), **options)


def test_wrong_names_of_classes():
    with pytest.raises(ValueError, match="no model 'BertForSequenceClasification': did you mean"):
        Quantizer.from_name("BertForSequenceClasification")
    with pytest.raises(
        ValueError, match="BertConfig has no 'hiden_size': did you mean hidden_size"
    ):
        Quantizer.from_name("BertModel", {"hiden_size": 32})
    with pytest.raises(TypeError, match="BertModel: expected a BertConfig or a mapping, got GPT2C"):
        Quantizer.from_name("BertModel", transformers.GPT2Config())
    with pytest.raises(ValueError, match="BertModel has no input 'attention_maks': did you mean"):
        Quantizer.from_name("BertModel", SMALL, input_names=["attention_maks"]).prepare()


def test_wrong_batches():
    name = "BertForSequenceClassification"
    model, data = made(name), batches_of(name)
    for wrong, message in [
        (
            {"input_ids": data[0]["input_ids"]},
            "calibration batch 3: expected the inputs input_ids, attention_mask, got input_ids$",
        ),
        (
            {**data[0], "input_ids": torch.randn(3, 9)},
            r"calibration batch 3: expected input_ids int64\[3, 9\], .* got input_ids float32\[3, 9\]",
        ),
        (
            {**data[0], "input_ids": torch.ones(9, dtype=torch.long)},
            r"calibration batch 3: expected input_ids int64\[3, 9\], .* got input_ids int64\[9\]",
        ),
        (
            {**data[0], "attention_mask": torch.ones(3, 8, dtype=torch.long)},
            r"calibration batch 3 \(input_ids \[3, 9\], attention_mask \[3, 8\]\): the model does not",
        ),
        ({"inputs": data[0]["input_ids"]}, "calibration batch 3: no tensor of it is an input of"),
        ((1, 2), r"calibration batch 3 \(no tensor\): expected numbers, got none"),
    ]:
        with pytest.raises(ValueError, match=message):
            Quantizer(model).calibrate([*data, wrong])
    vit = made("ViTForImageClassification")
    images = inputs_of("ViTForImageClassification")
    bad = {"pixel_values": images["pixel_values"].clone()}
    bad["pixel_values"][0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="calibration batch 1: 'pixel_values' has NaN or infinity"):
        Quantizer(vit).calibrate([images, bad])
    larger = {"pixel_values": torch.randn(2, 3, 32, 32)}
    with pytest.raises(ValueError, match=r"calibration batch 1 .*: the model does not accept it"):
        Quantizer(vit).calibrate([images, larger])
    with pytest.raises(ValueError, match="the calibration data is empty"):
        Quantizer(model).calibrate([])
    with pytest.raises(TypeError, match="expected batches: mappings, tuples or tensors"):
        Quantizer(model).calibrate(3)
    long = inputs_of(name, 2, 600)
    with pytest.raises(ValueError, match="calibration batch 0: the model does not accept it"):
        Quantizer(model).calibrate([long])


def test_missing_calibration():
    name = "BertForSequenceClassification"
    model = made(name)
    with pytest.raises(CalibrationError, match="approach 'static' needs data: call calibrate"):
        Quantizer(model).convert()
    quantizer = Quantizer(model, example_inputs=inputs_of(name))
    with pytest.raises(CalibrationError, match="observers have seen no values"):
        quantizer.convert()
    with pytest.raises(CalibrationError, match=r"or prepare\(\) and train the model"):
        Quantizer(model, QuantizationConfig(approach="qat")).convert()
    with pytest.raises(ValueError, match="'dynamic' measures no ranges"):
        Quantizer(model, QuantizationConfig(approach="dynamic")).calibrate(batches_of(name))
    with pytest.raises(ValueError, match="approach 'qat' needs training"):
        quantize(model, approach="qat")


def test_wrong_calls_of_quantised_models():
    name = "BertForSequenceClassification"
    quantised = quiet(made(name), batches_of(name))
    given = inputs_of(name)
    with pytest.raises(TypeError, match="for the inputs input_ids, attention_mask, got no attent"):
        quantised(given["input_ids"])
    with pytest.raises(TypeError, match="got token_type_ids, too: quantise it with examples"):
        quantised(**given, token_type_ids=torch.zeros(3, 9, dtype=torch.long))
    with pytest.raises(TypeError, match="got two values for input_ids"):
        quantised(given["input_ids"], **given)
    one = {key: own[:, :1] for key, own in given.items()}
    with pytest.raises(ValueError, match="captured for inputs of other sizes, where"):
        quantised(**one)
    assert quantised(**given, token_type_ids=None).logits.shape == (3, 32)


def test_models_that_cannot_be_captured():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.count = nn.Linear(4, 4), 0

        def forward(self, x):
            self.count += 1
            return self.linear(x)

    with pytest.raises(TraceError, match="Counting changes state in Python"):
        quantize(Counting(), torch.randn(2, 4))
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got str"):
        Quantizer("bert")
    broken = made("BertForSequenceClassification")
    with torch.no_grad():
        broken.classifier.weight[0, 0] = float("inf")
    with pytest.raises(ValueError, match=r"classifier\.weight has NaN or infinity: 1 of 1024"):
        quantize(broken, batches_of("BertForSequenceClassification"))
    half = made("BertForSequenceClassification").to(torch.bfloat16)
    with pytest.raises(ValueError, match="no layer to quantise: its weight is bfloat16"):
        quantize(half, batches_of("BertForSequenceClassification"))


def test_folders_need_a_class_of_transformers(tmp_path):
    quantised = quiet(Small().eval(), torch.randn(2, 2, 4, 4))
    with pytest.raises(TypeError, match=r"Small is no class of transformers.*: use torch\.save"):
        save_quantized(quantised, tmp_path)
    with pytest.raises(TypeError, match="expected a quantised model"):
        save_quantized(nn.Linear(2, 2), tmp_path)
