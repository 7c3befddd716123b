"""Dynamic quantisation module by module, against torch.ao.quantization on its own test models."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization as theirs
import torch.ao.quantization.quantization_mappings as their_mappings
from torch import nn
from torch.testing._internal import common_quantization as models

import corsac
import corsac.quantization as ours
from corsac.quantization.quantized import dynamic

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fbgemm")]


DYNAMIC = {
    "linear": (models.SingleLayerLinearDynamicModel, (6, 5)),
    "submodules": (models.LinearModelWithSubmodule, (6, 5)),
    "lstm": (lambda: models.RNNDynamicModel("LSTM"), (2, 2, 2)),
    "gru": (lambda: models.RNNDynamicModel("GRU"), (2, 2, 2)),
    "lstm cell": (lambda: models.RNNCellDynamicModel("LSTMCell"), (2, 2)),
    "gru cell": (lambda: models.RNNCellDynamicModel("GRUCell"), (2, 2)),
    "rnn cell": (lambda: models.RNNCellDynamicModel("RNNReLU"), (2, 2)),
}


def leaves(value):
    return torch.cat([leaf.flatten() for leaf in torch.utils._pytree.tree_leaves(value)])


@pytest.mark.parametrize("case", DYNAMIC)
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_dynamic_models_are_close_to_the_float_ones(case, dtype):
    """As close as those of torch.ao, which quantises activations of whole tensors, and of recurrent layers."""
    make, shape = DYNAMIC[case]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    left, right = (
        theirs.quantize_dynamic(model, dtype=dtype),
        ours.quantize_dynamic(model, dtype=dtype),
    )
    with torch.no_grad():
        expected, a, b = (leaves(one(x)) for one in (model, left, right))
    assert not torch.equal(b, expected)
    assert float((b - expected).abs().max()) <= max(2 * float((a - expected).abs().max()), 3e-3)
    if dtype == torch.float16:
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    kinds = {type(module).__module__ for module in right.modules()}
    assert "corsac.quantization.quantized.dynamic" in kinds


def test_weights_of_dynamic_layers_are_those_of_the_configuration():
    torch.manual_seed(0)
    model = models.TwoLayerLinearModel().eval()
    spec = {nn.Linear: theirs.per_channel_dynamic_qconfig}
    left, right = theirs.quantize_dynamic(model, spec), ours.quantize_dynamic(model, spec)
    by_default = ours.quantize_dynamic(model)
    for name in ("fc1", "fc2"):
        expected = getattr(left, name).weight()
        for one in (right, by_default):
            layer = getattr(one, name)
            assert type(layer) is dynamic.Linear
            assert torch.equal(layer.weight, expected.int_repr())
            assert torch.equal(layer.weight_scale.double(), expected.q_per_channel_scales())
            assert not layer.weight_zero_point.any()
    whole = {"fc1": theirs.default_dynamic_qconfig}
    left, right = theirs.quantize_dynamic(model, whole), ours.quantize_dynamic(model, whole)
    assert torch.equal(left.fc1.weight().int_repr(), right.fc1.weight)
    assert type(right.fc2) is nn.Linear


def test_rows_are_quantised_by_themselves():
    """A row of large values takes no accuracy from the others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 8, bias=False)).eval()
    x = torch.randn(3, 64)
    x[0] *= 1000
    expected = model(x)[1:]
    left = (theirs.quantize_dynamic(model)(x)[1:] - expected).abs().max()
    right = (ours.quantize_dynamic(model)(x)[1:] - expected).abs().max()
    assert right < 0.05 < left


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [(torch.quint8, (nn.Embedding, nn.EmbeddingBag)), (torch.quint4x2, (nn.EmbeddingBag,))],
)
def test_tables_of_embeddings(dtype, kinds):
    torch.manual_seed(0)
    model = nn.ModuleDict({kind.__name__: kind(10, 12) for kind in kinds}).eval()
    if "EmbeddingBag" in model:
        model["EmbeddingBag"].mode = "sum"
    left, right = (
        theirs.quantize_dynamic(model, dtype=dtype),
        ours.quantize_dynamic(model, dtype=dtype),
    )
    indices = torch.randint(0, 10, (4, 3))
    for name in model:
        assert right[name].weight.dtype == torch.uint8
        # PyTorch keeps the steps of four bits in half precision.
        close = 1e-5 if dtype == torch.quint8 else 3e-3
        torch.testing.assert_close(left[name](indices), right[name](indices), atol=close, rtol=0)


def test_dynamic_layers_trained_for_it():
    model = models.ManualLinearDynamicQATModel().train()
    torch.manual_seed(0)
    x = torch.randn(8, 5)
    both = (
        theirs.prepare_qat(model, mapping=dict(their_qat())),
        ours.prepare_qat(model, mapping=dict(our_qat())),
    )
    for one in both:
        one(x).sum().backward()
    assert torch.equal(both[0](x), both[1](x))
    left = theirs.convert(
        both[0], mapping=their_mappings.get_default_dynamic_quant_module_mappings()
    )
    right = ours.convert(both[1], mapping=ours.get_default_dynamic_quant_module_mappings())
    assert torch.equal(left.fc1.weight().int_repr(), right.fc1.weight)
    torch.testing.assert_close(left(x), right(x), atol=0.02, rtol=0)


def their_qat():
    import torch.ao.nn.qat.dynamic as qat

    return {nn.Linear: qat.Linear}


def our_qat():
    from corsac.quantization.qat import dynamic as qat

    return {nn.Linear: qat.Linear}


def test_transformers_take_no_fused_operators():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    right = ours.quantize_dynamic(model)
    x, mask = torch.randn(2, 5, 16), torch.zeros(2, 5, dtype=torch.bool)
    with torch.no_grad():
        for arguments in ({}, {"src_key_padding_mask": mask}):
            torch.testing.assert_close(right(x, **arguments), model(x), atol=0.03, rtol=0)
    assert type(right.layers[0].linear1) is dynamic.Linear


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", [torch.qint8, torch.float16])
def test_layers_keep_their_type(dtype, weights):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8)).to(dtype)
    x = torch.randn(3, 16).to(dtype)
    result = ours.quantize_dynamic(model, dtype=weights)(x)
    assert result.dtype == dtype
    torch.testing.assert_close(result, model(x), atol=0.03, rtol=0)


def test_compiled_layers_of_rows():
    torch.manual_seed(0)
    model = ours.quantize_dynamic(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)))
    compiled = corsac.compile(model)
    with torch.inference_mode():
        for rows in (1, 5):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-5)
