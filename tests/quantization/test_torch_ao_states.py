"""State dicts of models that torch.ao has converted, with packed parameters, loaded into models of this package."""

from __future__ import annotations

import io

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn

import corsac.quantization as ours
from corsac.quantization import from_torch_ao

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fbgemm")]


class Layers(nn.Module):
    def __init__(self, package):
        super().__init__()
        self.stub, self.back = package.QuantStub(), package.DeQuantStub()
        self.conv, self.up = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 3, bias=False)
        self.fc, self.relu = nn.Linear(256, 5), nn.ReLU()

    def forward(self, x):
        return self.back(self.relu(self.fc(self.up(self.conv(self.stub(x))).flatten(1))))


def converted(package, seed, x):
    torch.manual_seed(seed)
    model = Layers(package).eval()
    model.qconfig = package.get_default_qconfig("fbgemm")
    model.up.qconfig = package.QConfig(package.default_observer, package.default_weight_observer)
    package.fuse_modules(model, [["fc", "relu"]], inplace=True)
    prepared = package.prepare(model)
    prepared(x * (1 + seed))
    return package.convert(prepared)


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("read", [lambda state: state, from_torch_ao], ids=["packed", "plain"])
def test_static_models(read):
    x = torch.randn(2, 3, 8, 8)
    source, own = converted(theirs, 0, x), converted(ours, 1, x)
    assert not torch.equal(own(x), source(x))
    state = saved(source.state_dict())
    if read is from_torch_ao:
        # Scales of a whole weight are expanded in the layer, where its channels are known.
        state = {name: one for name, one in state.items() if not name.startswith("up.")}
        own.up.load_state_dict(source.up.state_dict())
        assert not own.load_state_dict(read(state), strict=False).unexpected_keys
    else:
        own.load_state_dict(state)
    assert torch.equal(own(x), source(x))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.Linear, {}),
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (nn.GRU, {}),
        (nn.LSTMCell, {}),
        (nn.RNNCell, {}),
        (nn.GRUCell, {}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
def test_dynamic_layers(kind, options, dtype):
    source = nn.Sequential(kind(4, 4, **options))
    packed = theirs.quantize_dynamic(source, dtype=dtype)
    own = ours.quantize_dynamic(nn.Sequential(kind(4, 4, **options)), dtype=dtype)
    own.load_state_dict(packed.state_dict())
    expected = from_torch_ao(packed).state_dict()
    state = own.state_dict()
    assert {*expected} == {*state}
    assert all(torch.equal(state[name], value) for name, value in expected.items())


def test_tables():
    def table(package):
        model = nn.Sequential(nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True))
        model.qconfig = package.float_qparams_weight_only_qconfig
        return package.convert(package.prepare(model))

    source, own = table(theirs), table(ours)
    own.load_state_dict(source.state_dict())
    words, ends = torch.arange(6), torch.tensor([0, 2, 6])
    torch.testing.assert_close(own[0](words, ends), source[0](words, ends), atol=2e-6, rtol=1e-5)
