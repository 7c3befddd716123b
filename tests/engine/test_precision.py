"""Programs with matrix products in bfloat16, against PyTorch in double precision."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac


def in_tiles():
    """Whether this processor has tile instructions for bfloat16."""
    fast = corsac.compile(nn.Linear(4, 4), precision="bf16")
    with torch.no_grad():
        fast(torch.zeros(1, 4))
    return fast.native_programs()[0].precision == "bf16"


TILES = in_tiles()


class Net(nn.Module):
    """Convolutions of all forms, with operators between them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.depthwise = nn.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.wide = nn.Conv2d(32, 72, 3, 2, 1)
        self.dilated = nn.Conv2d(72, 72, 3, 1, 2, dilation=2)
        self.point = nn.Conv2d(72, 40, 1, 2)
        self.grouped = nn.Conv2d(40, 40, 3, 1, 1, groups=2)
        self.head = nn.Linear(40, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        x = F.hardswish(self.depthwise(x)) + x
        x = self.wide(x)
        x = F.relu(self.dilated(x) + x)
        x = self.grouped(self.point(x))
        return self.head(x.mean((2, 3)))


def as_if_trained(model):
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


def distance(got, expected):
    """Error of results, relative to their size."""
    assert got.dtype == torch.float32
    assert got.shape == expected.shape
    return float((got.double() - expected).norm() / expected.norm())


def check(model, *inputs, within=0.02):
    fast = corsac.compile(model, precision="bf16", fullgraph=True)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        got = fast(*inputs)
        expected = exact(*(x.double() for x in inputs))
        plain = distance(model(*inputs), expected)
    error = distance(got, expected)
    assert error < (within if TILES else 1e-4)
    if TILES:
        # Rounded, and only to eight bits.
        assert error > 3 * plain
    (program,) = fast.native_programs()
    assert program.precision == ("bf16" if TILES else "f32")
    return fast


@pytest.mark.parametrize("size", [(1, 3, 64, 64), (3, 3, 57, 90)])
def test_convolutions(size):
    torch.manual_seed(1)
    fast = check(as_if_trained(Net()), torch.randn(size))
    assert ("products in bfloat16" in fast.explain()) == TILES


@pytest.mark.parametrize("rows", [1, 5, 33, 300])
def test_linear_layers(rows):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(70, 200), nn.GELU(), nn.Linear(200, 33, bias=False))
    check(model, torch.randn(rows, 70))


def test_small_whole_numbers_are_exact():
    conv, linear = nn.Conv2d(33, 47, 3, 2, 1), nn.Linear(130, 21)
    with torch.no_grad():
        for parameter in (*conv.parameters(), *linear.parameters()):
            parameter.copy_(torch.randint(-8, 9, parameter.shape))
        image = torch.randint(-8, 9, (2, 33, 19, 23)).float()
        rows = torch.randint(-8, 9, (4, 7, 130)).float()
        for model, x in ((conv, image), (linear, rows)):
            fast = corsac.compile(model, precision="bf16", fullgraph=True)
            assert torch.equal(fast(x), model(x))


def test_what_is_no_number_stays_where_it_is():
    model = nn.Conv2d(16, 16, 3, padding=1)
    x = torch.randn(1, 16, 12, 40)
    x[0, 3, 5, 20] = torch.nan
    x[0, 9, 0, 0] = torch.inf
    with torch.no_grad():
        got, expected = corsac.compile(model, precision="bf16")(x), model(x)
    assert torch.equal(got.isfinite(), expected.isfinite())
    assert torch.equal(got.isnan(), expected.isnan())


def test_models():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(3)
    x = torch.randn(1, 3, 96, 96)
    check(as_if_trained(torchvision.models.resnet18(weights=None)), x, within=0.03)
    vit = torchvision.models.VisionTransformer(96, 16, 2, 4, 64, 128, num_classes=20).eval()
    nn.init.normal_(vit.heads.head.weight)
    check(vit, x, within=0.03)


def test_weights_that_change_are_seen():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    fast = check(model, torch.randn(9, 64))
    with torch.no_grad():
        x = torch.randn(9, 64)
        model[0].weight.mul_(3)
        assert distance(fast(x), model(x).double()) < 0.02
        model[2] = nn.Linear(64, 5)
        assert distance(fast(x), model(x).double()) < 0.02


def test_copies_keep_it():
    fast = corsac.compile(nn.Linear(64, 64), precision="bf16")
    with torch.no_grad():
        x = torch.randn(3, 64)
        expected = fast(x)
        assert torch.equal(pickle.loads(pickle.dumps(fast))(x), expected)


def test_torch_compile():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    fast = torch.compile(model, backend="corsac", options={"precision": "bf16"})
    x = torch.randn(5, 64)
    with torch.no_grad():
        assert torch.equal(fast(x), corsac.compile(model, precision="bf16")(x))


def test_unknown_precisions_are_refused():
    with pytest.raises(ValueError, match="precision is 'f32' or 'bf16', not 'bf8'"):
        corsac.compile(nn.Linear(2, 2), precision="bf8")
