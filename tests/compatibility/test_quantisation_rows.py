"""The rows of docs/compatibility.md about quantised models, by graphs and module by module."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
import torch.ao.quantization as theirs
import torch.nn.functional as F
from torch import nn
from torch.ao.nn import quantizable as their_quantizable
from torch.ao.quantization import quantize_fx as their_fx
from torch.ao.quantization.fx import _equalize as their_equalize
from torch.ao.quantization.fx import custom_config as their_settings

import corsac.quantization as ours
from corsac.quantization import quantizable
from corsac.quantization import quantize_fx as our_fx
from corsac.quantization.fx import _equalize as our_equalize
from corsac.quantization.fx import custom_config as our_settings
from corsac.quantization.quantized import static
from kit import row

pytestmark = pytest.mark.filterwarnings("ignore")

#: The names of quantisation, graph mode and its settings.
PACKAGES = ((theirs, their_fx, their_settings), (ours, our_fx, our_settings))


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4)).eval()


def batch(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (4, 4), generator=torch.Generator().manual_seed(1))


def prepared(
    package: Any, fx: Any, model: nn.Module, config: Any = None, mapping: Any = None
) -> Any:
    mapping = package.get_default_qconfig_mapping("x86") if mapping is None else mapping
    return fx.prepare_fx(model, mapping, (batch(),), config)


def calibrated(package: Any, fx: Any, model: nn.Module, *config: Any, **mapping: Any) -> Any:
    gm = prepared(package, fx, model, *config, **mapping)
    gm(batch())
    return gm


def messages(call: Any) -> list[str]:
    """Warnings about what is ignored."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    texts = [str(one.message) for one in seen]
    return [text for text in texts if "reduce_range" not in text and "deprecat" not in text]


# Errors and warnings ----------------------------------------------------------------------------


@row("conversion without calibration")
def test_conversion_without_calibration() -> None:
    result = their_fx.convert_fx(prepared(theirs, their_fx, linear()))(batch())
    assert torch.equal(result, result.round())
    with pytest.raises(RuntimeError, match="2 of 2 observers have seen no values: activation_post"):
        our_fx.convert_fx(prepared(ours, our_fx, linear()))


def misspelt_mapping(package: Any, fx: Any, _: Any) -> None:
    mapping = package.QConfigMapping().set_module_name("00", package.default_qconfig)
    prepared(package, fx, linear(), mapping=mapping.set_module_name_regex("head", None))


def misspelt_module(package: Any, fx: Any, settings: Any) -> None:
    config = settings.PrepareCustomConfig().set_non_traceable_module_names(["00"])
    prepared(package, fx, linear(), config)


def misspelt_key(package: Any, fx: Any, settings: Any) -> None:
    package.QConfigMapping.from_dict({"module_nam": []})


def misspelt_setting(package: Any, fx: Any, settings: Any) -> None:
    settings.PrepareCustomConfig.from_dict({"module_nam": []})


def misspelt_type(package: Any, fx: Any, settings: Any) -> None:
    package.quantize_dynamic(linear(), {nn.LSTM})


@row("names, patterns, types and keys in configurations that match nothing")
@pytest.mark.parametrize(
    ("call", "texts"),
    [
        (
            misspelt_mapping,
            ["no module '00': did you mean 0?", "no module of the model matches 'head'"],
        ),
        (misspelt_module, ["the model has no module '00': did you mean 0?"]),
        (misspelt_key, ["unknown keys ['module_nam'] are ignored"]),
        (misspelt_setting, ["PrepareCustomConfig: unknown keys ['module_nam'] are ignored"]),
        (misspelt_type, ["the model has no module of type LSTM"]),
    ],
)
def test_names_that_match_nothing(call: Any, texts: list[str]) -> None:
    assert messages(lambda: call(*PACKAGES[0])) == []
    found = messages(lambda: call(*PACKAGES[1]))
    assert len(found) == len(texts)
    assert all(text in one for text, one in zip(texts, found, strict=True))


@row("`prepare_fx` with another object than a `QConfigMapping`")
def test_other_objects() -> None:
    with pytest.raises(AssertionError):
        their_fx.prepare_fx(linear(), 3, (batch(),))
    with pytest.raises(TypeError, match="expected a QConfigMapping, got int"):
        our_fx.prepare_fx(linear(), 3, (batch(),))
    with pytest.raises(AssertionError):
        their_fx.prepare_fx(linear(), None, (batch(),))
    assert "activation_post_process" not in our_fx.prepare_fx(linear(), None, (batch(),)).code


# Fusion -----------------------------------------------------------------------------------------


class Elsewhere(nn.Module):
    """A convolution that is called twice, or of which the weight is read, with a batch norm after one call."""

    def __init__(self, reads: bool):
        super().__init__()
        self.conv, self.bn, self.reads = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), reads

    def forward(self, x):
        y = self.bn(self.conv(x))
        return F.conv2d(y, self.conv.weight) if self.reads else self.conv(y)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))
    model[1].register_forward_hook(lambda module, args, result: result + 1)
    return model


@row("a layer to fuse that is also called elsewhere")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Elsewhere(False), "conv is called 2 times, with other layers after it"),
        (lambda: Elsewhere(True), "the graph reads conv.weight"),
        (hooked, "1 has hooks"),
    ],
)
def test_layers_that_are_not_fused(make: Any, reason: str) -> None:
    torch.manual_seed(0)
    model, x = make(), batch(2, 3, 8, 8)
    for _ in range(3):
        model(2 * x + 1)
    model.eval()
    assert (their_fx.fuse_fx(copy.deepcopy(model))(x) - model(x)).abs().max() > 1e-3
    with pytest.warns(UserWarning, match=reason):
        fused = our_fx.fuse_fx(model)
    assert torch.equal(fused(x), model(x))
    assert reason in fused.meta["fusion_report"].kept[0].reason


@row("`fuse_fx` and batch norms without running statistics")
def test_batch_norms_without_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3, track_running_stats=False)).eval()
    x = batch(2, 3, 8, 8)
    with pytest.raises(AssertionError):
        their_fx.fuse_fx(copy.deepcopy(model))
    with pytest.warns(UserWarning, match="1 keeps no running statistics"):
        assert torch.equal(our_fx.fuse_fx(model)(x), model(x))


@row("the hook before modules that `fuse_modules` fuses")
def test_hooks_of_fused_modules() -> None:
    for package, times in ((theirs, 2), (ours, 1)):
        calls: list[int] = []
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1), nn.ReLU()).eval()
        model[0].register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        package.fuse_modules(model, ["0", "1", "2"])(batch(1, 1, 2, 2))
        assert len(calls) == times


# Graph mode -------------------------------------------------------------------------------------


@row("configurations by type of layers that are fused")
def test_configurations_of_fused_layers() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    observed = []
    for package, fx, _ in PACKAGES:
        mapping = package.QConfigMapping().set_global(package.default_qconfig)
        mapping.set_object_type(nn.Linear, None)
        gm = prepared(package, fx, copy.deepcopy(model), mapping=mapping)
        observed.append("activation_post_process" in gm.code)
        mapping = package.QConfigMapping().set_object_type(nn.Linear, package.default_qconfig)
        if fx is their_fx:
            with pytest.raises(LookupError):
                prepared(package, fx, copy.deepcopy(model), mapping=mapping)
        else:
            assert "activation_post_process" in prepared(package, fx, model, mapping=mapping).code
        mapping.set_object_type(nn.ReLU, None)
        with pytest.raises(LookupError):
            prepared(package, fx, copy.deepcopy(model), mapping=mapping)
    assert observed == [True, False]


@row("`qconfig` attributes of the model that `prepare_fx` gets")
def test_the_model_that_is_prepared() -> None:
    changed = []
    for package, fx, _ in PACKAGES:
        model = linear()
        gm = prepared(package, fx, model)
        assert gm.get_parameter("0.weight") is model[0].weight
        changed.append(hasattr(model[0], "qconfig"))
    assert changed == [True, False]


@row("`qconfig` attributes that modules have before `prepare_qat_fx`")
def test_modules_that_have_configurations() -> None:
    found = []
    for package, fx, _ in PACKAGES:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].qconfig = None
        mapping = package.get_default_qat_qconfig_mapping("x86")
        gm = fx.prepare_qat_fx(model.train(), mapping, (batch(),))
        calls = [own for own in gm.graph.nodes if "activation_post_process" in str(own.target)]
        found.append((len(calls), hasattr(gm.get_submodule("1"), "weight_fake_quant")))
    assert found == [(3, False), (3, True)]


@row("the prepared model after `convert_fx`")
def test_a_second_conversion() -> None:
    gm = calibrated(theirs, their_fx, linear())
    their_fx.convert_fx(gm)
    assert type(gm.get_submodule("0")) is not nn.Linear
    with pytest.raises(RuntimeError):
        their_fx.convert_fx(gm)(batch())
    gm = calibrated(ours, our_fx, linear())
    first, second = our_fx.convert_fx(gm), our_fx.convert_fx(gm)
    assert type(gm.get_submodule("0")) is nn.Linear
    assert torch.equal(first(batch()), second(batch()))


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


@row("standalone modules by class")
def test_standalone_modules_by_class() -> None:
    observed = []
    for package, fx, settings in PACKAGES:
        inner = settings.PrepareCustomConfig().set_input_quantized_indexes([0])
        for kind, key in (("name", "inner"), ("class", Inner)):
            config = settings.PrepareCustomConfig()
            getattr(config, f"set_standalone_module_{kind}")(key, None, (batch(),), inner, None)
            gm = prepared(package, fx, Outer().eval(), config)
            observed.append("activation_post_process_0(x)" in gm.code)
    assert observed == [True, False, True, True]


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(self.fc(x))


@row("a layer of which one call is quantised")
def test_one_call_of_a_layer() -> None:
    torch.manual_seed(0)
    model, results = Twice().eval(), []
    for package, fx, _ in PACKAGES:
        mapping = package.QConfigMapping().set_global(package.default_qconfig)
        mapping.set_module_name_object_type_order("", nn.Linear, 0, None)
        gm = calibrated(package, fx, copy.deepcopy(model), mapping=mapping)
        results.append(fx.convert_fx(gm))
    with pytest.raises(NotImplementedError):
        results[0](batch())
    torch.testing.assert_close(results[1](batch()), model(batch()), rtol=0, atol=0.05)


class Written(nn.Module):
    """A weight that each call changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 4))

    def forward(self, x):
        y = F.linear(x, self.weight)
        self.weight.add_(x.abs().mean())
        return y


@row("weights that the program writes to")
def test_weights_that_are_written() -> None:
    changes = []
    for package, fx, _ in PACKAGES:
        mapping = package.QConfigMapping().set_global(package.default_qconfig)
        gm = fx.convert_fx(calibrated(package, fx, Written().eval(), mapping=mapping))
        changes.append(not torch.equal(gm(batch()), gm(batch())))
    assert changes == [False, True]


# The quantised form -----------------------------------------------------------------------------


@row("converted models")
def test_converted_models() -> None:
    their, our = (fx.convert_fx(calibrated(package, fx, linear())) for package, fx, _ in PACKAGES)
    assert type(their.get_submodule("0")).__module__.startswith("torch.ao.nn.quantized")
    assert not all(isinstance(value, torch.Tensor) for value in their.state_dict().values())
    file = io.BytesIO()
    torch.save(our.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    values = {name for name in state if name.endswith("_0")}
    assert {name.partition("_")[0] for name in values} == {"input", "0"}
    assert {name: state[name].dtype for name in state.keys() - values} == {
        "0.bias": torch.float32,
        "0.weight": torch.int8,
        "0.weight_scale": torch.float32,
        "0.weight_zero_point": torch.int32,
    }
    functions = {str(node.target) for node in our.graph.nodes if node.op == "call_function"}
    assert functions == {
        "corsac.quantize_per_tensor.default",
        "corsac.dequantize_per_tensor.default",
    }
    reference = our_fx.convert_to_reference_fx(calibrated(ours, our_fx, linear()))
    assert reference.code == our.code
    torch.testing.assert_close(our(batch()), their(batch()), rtol=0, atol=0.05)


@row("scales and zero points of activations in graph modules")
def test_scales_in_state_dicts() -> None:
    for package, fx, _ in PACKAGES:
        models = []
        for factor in (1, 5):
            gm = prepared(package, fx, linear())
            gm(factor * batch())
            models.append(fx.convert_fx(gm))
        before = models[1](batch())
        models[1].load_state_dict(models[0].state_dict())
        after = models[1](batch())
        assert not torch.equal(after, before)
        assert torch.equal(after, models[0](batch()))
        inputs = {name for name in models[0].state_dict() if name.endswith("input_scale_0")}
        assert inputs == ({"input_scale_0"} if package is ours else {"0_input_scale_0"})
        buffers = {name for name, _ in models[0].named_buffers()}
        assert inputs.isdisjoint(buffers) == (package is ours)


@row("results that stay quantised")
def test_results_that_stay_quantised() -> None:
    dtypes = []
    for package, fx, settings in PACKAGES:
        config = settings.PrepareCustomConfig().set_output_quantized_indexes([0])
        gm = calibrated(package, fx, linear(), config)
        dtypes.append(fx.convert_fx(gm)(batch()).dtype)
    assert dtypes == [torch.quint8, torch.uint8]


@row("values beyond the calibrated range")
def test_values_beyond_the_calibrated_range() -> None:
    results = []
    for package, fx, _ in PACKAGES:
        model = nn.Sequential(nn.Linear(1, 1, bias=False)).eval()
        nn.init.ones_(model[0].weight)
        gm = fx.prepare_fx(model, package.get_default_qconfig_mapping("x86"), (torch.ones(1, 1),))
        gm(torch.tensor([[-1.0], [1.0]]))
        results.append(float(fx.convert_fx(gm)(torch.tensor([[3.0]]))))
    assert results == pytest.approx([3, 1], abs=0.05)


@row("`keep_original_weights` of `convert_fx`")
def test_float_weights_that_are_kept() -> None:
    their, our = (
        fx.convert_fx(calibrated(package, fx, linear()), keep_original_weights=True)
        for package, fx, _ in PACKAGES
    )
    assert their.original_weights_lookup == {}
    assert torch.equal(our.original_weights_lookup["0.weight"], linear()[0].weight)


# Module by module -------------------------------------------------------------------------------


@row("values between modules that `convert` has swapped")
def test_values_between_modules() -> None:
    results = []
    for package, _, _ in PACKAGES:
        for stub in (True, False):
            model = nn.Sequential(*[package.QuantStub()] * stub, linear()).eval()
            model.qconfig = package.default_qconfig
            gm = package.prepare(model)
            gm(batch())
            converted = package.convert(gm)
            if package is theirs and not stub:
                with pytest.raises(NotImplementedError):
                    converted(batch())
            else:
                results.append(converted(batch()))
    assert [result.dtype for result in results] == [torch.quint8, torch.float32, torch.float32]
    # PyTorch's kernels round some halves to another integer.
    step = results[0].q_scale()
    torch.testing.assert_close(results[0].dequantize(), results[1], rtol=0, atol=1.01 * step)
    torch.testing.assert_close(results[1] / step, (results[1] / step).round())


@row("dynamic quantisation")
def test_dynamic_quantisation() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 8, bias=False)).eval(), batch(3, 64)
    x[0] *= 1000
    their, our = (package.quantize_dynamic(model) for package in (theirs, ours))
    off = [(gm(x) - model(x))[1:].abs().max() for gm in (their, our)]
    assert off[1] < 0.05 < off[0]
    assert their[0].weight().qscheme() == torch.per_tensor_affine
    assert our[0].weight_scale.shape == (8,)
    recurrent, x = nn.ModuleList([nn.LSTM(16, 16)]).eval(), batch(5, 2, 16)
    x[:, 0] *= 100
    off = [
        (package.quantize_dynamic(recurrent)[0](x)[0] - recurrent[0](x)[0]).abs().max()
        for package in (theirs, ours)
    ]
    assert off[1] < off[0] / 2


@row("`quantize_dynamic` on transformers")
def test_transformers() -> None:
    torch.manual_seed(0)
    model, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), batch(2, 5, 16)
    with torch.no_grad():
        with pytest.raises(AttributeError):
            theirs.quantize_dynamic(model)(x)
        result = ours.quantize_dynamic(model)(x)
        torch.testing.assert_close(result, model(x), rtol=0, atol=0.05)


@row("quantised `EmbeddingBag` with a mode other than")
def test_tables_of_embeddings() -> None:
    torch.manual_seed(0)
    model, i = (
        nn.Sequential(nn.EmbeddingBag(10, 12, mode="mean")).eval(),
        torch.arange(6).view(2, 3),
    )
    model[0].qconfig = theirs.float_qparams_weight_only_qconfig
    off = [
        (package.quantize_dynamic(model, dtype=torch.quint8)(i) - model(i)).abs().max()
        for package in (theirs, ours)
    ]
    assert off[1] < 0.05 < off[0]
    bounded = nn.Sequential(nn.Embedding(10, 12, max_norm=0.1)).eval()
    assert theirs.quantize_dynamic(bounded, dtype=torch.quint8)(i).norm(dim=-1).max() > 1
    with pytest.raises(ValueError, match="expected max_norm None"):
        ours.quantize_dynamic(bounded, dtype=torch.quint8)


@row("`prepare` on `nn.RNN` and `nn.GRU`")
def test_recurrent_layers() -> None:
    model = nn.ModuleList([nn.RNN(4, 4), nn.GRU(4, 4)]).eval()
    model.qconfig = theirs.default_qconfig
    with pytest.raises(AttributeError):
        theirs.prepare(model)[1](torch.randn(3, 2, 4))
    with pytest.warns(UserWarning, match="modules that stay floats: 0, 1"):
        kept = ours.prepare(model)
    assert [type(layer) for layer in kept] == [nn.RNN, nn.GRU]


def quantised_layer(package: Any, layer: nn.Module, *inputs: torch.Tensor) -> nn.Module:
    """A layer, quantised module by module."""
    model = nn.ModuleList([copy.deepcopy(layer)]).eval()
    model.qconfig = package.get_default_qconfig("fbgemm")
    prepared = package.prepare(model)
    prepared[0](*inputs)
    return package.convert(prepared)[0]


@row("quantised LSTM with two directions")
def test_ranges_of_joined_values() -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(4, 5, bidirectional=True), torch.randn(6, 3, 4)
    quantised = torch.quantize_per_tensor(x, 0.05, 64, torch.quint8)
    reference = quantised_layer(theirs, layer, x)(quantised)[0].dequantize()
    result, expected = quantised_layer(ours, layer, x)(quantised.dequantize())[0], layer(x)[0]
    assert (result - expected).abs().max() < (reference - expected).abs().max()
    attention, y = nn.MultiheadAttention(8, 2, add_bias_kv=True), torch.randn(5, 3, 8)
    made = quantised_layer(ours, attention, y, y, y)
    assert torch.equal(made.bias_k, attention.bias_k)


@row("quantizable attention with `batch_first`")
def test_attention_of_batches() -> None:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(3, 5, 8)
    layer.qconfig = theirs.default_qconfig
    expected = layer(x, x, x)[0]
    observed = their_quantizable.MultiheadAttention.from_float(layer)
    assert (observed(x, x, x)[0] - expected).abs().max() > 0.1
    own = quantizable.MultiheadAttention.from_float(layer)
    assert torch.allclose(own(x, x, x)[0], expected, atol=1e-6)
    causal = {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1), "is_causal": True}
    with pytest.raises(AssertionError):
        observed(x, x, x, **causal)
    assert torch.allclose(own(x, x, x, **causal)[0], layer(x, x, x, **causal)[0], atol=1e-6)
    padding = {"key_padding_mask": torch.randn(3, 5)}
    with pytest.raises(RuntimeError):
        observed(x, x, x, **padding)
    assert torch.allclose(own(x, x, x, **padding)[0], layer(x, x, x, **padding)[0], atol=1e-6)


@row("LSTM and attention as custom modules in graph mode")
def test_custom_modules_that_return_tuples() -> None:
    class Model(nn.Module):
        def __init__(self, layer: nn.Module, inputs: int) -> None:
            super().__init__()
            self.layer, self.inputs = layer, inputs

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(*[x] * self.inputs)[0]

    def configured(layer: nn.Module) -> tuple[Any, Any]:
        name = type(layer).__name__
        observed = getattr(their_quantizable, name)
        prepare = their_settings.PrepareCustomConfig().set_float_to_observed_mapping(
            type(layer), observed
        )
        convert = their_settings.ConvertCustomConfig()
        final = getattr(torch.ao.nn.quantized, name)
        return prepare, convert.set_observed_to_quantized_mapping(observed, final)

    mapping, x = theirs.get_default_qconfig_mapping("fbgemm"), torch.randn(5, 3, 8)
    for layer, inputs in ((nn.MultiheadAttention(8, 2), 3), (nn.LSTM(8, 8), 1)):
        model = Model(layer, inputs).eval()
        prepare, convert = configured(layer)
        with pytest.raises((AttributeError, AssertionError)):
            expected = their_fx.prepare_fx(copy.deepcopy(model), mapping, (x,), prepare)
            expected(x)
            their_fx.convert_fx(expected, convert)
        prepared = our_fx.prepare_fx(model, mapping, (x,), prepare)
        prepared(x)
        for config in (convert, None):
            converted = our_fx.convert_fx(prepared, config)
            assert type(converted.layer) is getattr(static, type(layer).__name__)
            assert torch.allclose(converted(x), model(x), atol=0.05)

    derived = type("Derived", (their_quantizable.LSTM,), {})
    config = their_settings.PrepareCustomConfig().set_float_to_observed_mapping(nn.LSTM, derived)
    with pytest.raises(NotImplementedError, match="layer: Derived derives from a class of torch"):
        our_fx.prepare_fx(Model(nn.LSTM(8, 8), 1).eval(), mapping, (x,), config)


@row("TorchScript (`quantize_jit`, …), sparse modules")
def test_what_is_not_there() -> None:
    for name in (
        "quantize_jit",
        "quantize_dynamic_jit",
        "get_default_static_sparse_quant_module_mappings",
        "get_quantized_operator",
    ):
        assert hasattr(theirs, name) and not hasattr(ours, name)


def ratio(expected: torch.Tensor, found: torch.Tensor) -> float:
    return float(10 * torch.log10(expected.square().mean() / (expected - found).square().mean()))


class AddedTwice(nn.Module):
    """A sum, through ReLU, between two linear layers, and a layer after the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(F.relu(self.a(x) + 1)))


@row("`_equalization_config`: ranges of results")
def test_equalisation() -> None:
    torch.manual_seed(0)
    model, x = AddedTwice().eval(), torch.randn(64, 4) * torch.tensor([0.01, 0.1, 1, 10])
    ratios = []
    for package, fx, equalize in ((theirs, their_fx, their_equalize), (ours, our_fx, our_equalize)):
        equalised = package.QConfigMapping().set_global(equalize.default_equalization_qconfig)
        mapping = package.QConfigMapping().set_global(package.default_qconfig)
        gm = fx.prepare_fx(copy.deepcopy(model), mapping, (x,), None, equalised)
        gm(x)
        ratios.append(ratio(model(x), fx.convert_fx(gm)(x)))
    assert ratios[0] < 20
    assert ratios[1] > 30
    tokens = torch.randn(2, 3, 4)
    found = []
    for package, fx, equalize in ((theirs, their_fx, their_equalize), (ours, our_fx, our_equalize)):
        equalised = package.QConfigMapping().set_global(equalize.default_equalization_qconfig)
        mapping = package.QConfigMapping().set_global(package.default_qconfig)
        gm = fx.prepare_fx(copy.deepcopy(linear()), mapping, (tokens,), None, equalised)
        gm(tokens)
        found.append((fx, gm))
    (their_convert, expected), (our_convert, gm) = found
    with pytest.raises(ValueError, match="same column dimension"):
        their_convert.convert_fx(expected)
    assert ratio(linear()(tokens), our_convert.convert_fx(gm)(tokens)) > 30


@row("configurations with `torch.int8` or `torch.uint8`")
def test_plain_types() -> None:
    for dtype in (torch.int8, torch.uint8):
        for package, fx, _ in PACKAGES:
            weight = package.MinMaxObserver.with_args(
                dtype=dtype, qscheme=torch.per_tensor_symmetric
            )
            qconfig = package.QConfig(package.MinMaxObserver, weight)
            mapping = package.QConfigMapping().set_global(qconfig)
            gm = prepared(package, fx, linear(), mapping=mapping)
            gm(batch())
            is_quantised = package is ours and dtype is torch.int8
            layer = getattr(fx.convert_fx(gm), "0")
            assert (type(layer) is not nn.Linear) is is_quantised
            told = messages(
                lambda fx=fx, m=mapping, p=package: prepared(p, fx, linear(), mapping=m)
            )
            assert [text[:12] for text in told] == (
                ["0 stay float"] if package is ours and dtype is torch.uint8 else []
            )
