"""The transformations on transformers of other libraries."""

import pytest
import torch
import torchvision

import corsac.fx
from corsac.optimum import (
    ChangeTrueDivToMulByInverse,
    FuseBiasInLinear,
    MergeLinears,
    compose,
)


def there_and_back(model, *inputs):
    """Apply and undo; return the number of changed layers, with results and weights compared."""
    gm = corsac.fx.symbolic_trace(model.eval())
    before = (str(gm.graph), gm.code)
    weights = {name: value.clone() for name, value in gm.state_dict().items()}
    with torch.no_grad():
        expected = model(*inputs)
        all_three = compose(ChangeTrueDivToMulByInverse(), MergeLinears(), FuseBiasInLinear())
        all_three(gm)
        torch.testing.assert_close(gm(*inputs), expected, rtol=1e-4, atol=1e-4)
        count = all_three.report.count
        all_three(gm, reverse=True)
        assert torch.equal(gm(*inputs), expected)
    assert (str(gm.graph), gm.code) == before
    after = gm.state_dict()
    assert list(after) == list(weights)
    assert all(torch.equal(after[name], value) for name, value in weights.items())
    return count


def test_vit_of_torchvision():
    torch.manual_seed(0)
    model = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32
    )
    assert there_and_back(model, torch.randn(2, 3, 32, 32)) == 5


def test_vit_of_timm():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5
    )
    assert there_and_back(model, torch.randn(2, 3, 32, 32)) == 9


@pytest.mark.slow
def test_layers_of_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
    )
    layer = transformers.models.bert.modeling_bert.BertLayer(config)

    class Layer(torch.nn.Module):
        """The computation of BertLayer on hidden states alone.

        Its own forward unpacks the sizes of its input, which symbolic tracing cannot.
        """

        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            own = self.layer.attention.self
            query, key, value = (
                part(x).view(2, 5, 3, 8).transpose(1, 2) for part in (own.query, own.key, own.value)
            )
            weights = torch.softmax(query @ key.transpose(-1, -2) / 8**0.5, dim=-1)
            mixed = own.dropout(weights) @ value
            attended = self.layer.attention.output(mixed.transpose(1, 2).reshape(2, 5, 24), x)
            return self.layer.feed_forward_chunk(attended)

    x = torch.randn(2, 5, 24)
    expected = layer.eval()(x)
    torch.testing.assert_close(
        Layer().eval()(x), expected[0] if isinstance(expected, tuple) else expected
    )
    assert there_and_back(Layer(), x) >= 6
