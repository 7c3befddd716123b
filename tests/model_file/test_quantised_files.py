"""Files of quantised models: contents, sizes, results with and without Python, and damaged ones."""

from __future__ import annotations

import json
import subprocess

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
import corsac.fx
from corsac.quantization import (
    QConfigMapping,
    default_dynamic_qconfig,
    get_default_qconfig_mapping,
)
from corsac.quantization._operators import pack_int4
from corsac.quantization.quantize_fx import convert_fx, prepare_fx
from kit.trained import as_if_trained

pytestmark = pytest.mark.filterwarnings("ignore:.*reduce_range")

STATIC = get_default_qconfig_mapping("x86")
DYNAMIC = QConfigMapping().set_global(default_dynamic_qconfig)


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm, self.pool, self.fc = nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.Linear(8, 4)

    def forward(self, x):
        y = (x + self.b(self.norm(self.a(x)).relu())).relu()
        return self.fc(self.pool(self.depthwise(y)).amax((2, 3)))


class Packed(nn.Module):
    """A linear layer with a weight of 4 bits and a scale for each group of 64 elements of a row."""

    def __init__(self, rows, columns):
        super().__init__()
        levels = torch.randint(-8, 8, (rows, columns), generator=torch.Generator().manual_seed(1))
        self.weight = nn.Parameter(pack_int4(levels.to(torch.int8)), requires_grad=False)
        self.scales = nn.Parameter(torch.rand(rows, columns // 64) / 8 + 0.01)

    def forward(self, x):
        levels = torch.ops.corsac.unpack_int4(self.weight)
        weight = torch.ops.corsac.dequantize_per_channel_group(
            levels, self.scales, None, -8, 7, torch.int8, 64
        )
        return F.linear(x, weight).relu()


def quantised(model, x, mapping):
    prepared = prepare_fx(as_if_trained(model), mapping, (x,))
    with torch.no_grad():
        prepared(x)
    return convert_fx(prepared)


def layers():
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 8))


CASES = {
    "static": lambda: (quantised(layers(), random(4, 32), STATIC), random(4, 32)),
    "dynamic": lambda: (quantised(layers(), random(4, 32), DYNAMIC), random(4, 32)),
    "convolutions": lambda: (quantised(Residual(), random(2, 8, 8, 8), STATIC), random(2, 8, 8, 8)),
    "packed": lambda: (Packed(24, 256).eval(), random(3, 256)),
}


@pytest.fixture(params=CASES)
def case(request):
    torch.manual_seed(0)
    return CASES[request.param]()


def header_of(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def edited(path, old, new):
    """The file with a part of its header replaced."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length].decode()
    assert old in text, text
    text = text.replace(old, new).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def compiled(model, x):
    """The result of the engine's program for ``model``."""
    native = corsac.compile(model, options={"inference": "native"})
    with torch.no_grad():
        native(x)
        return native(x)


def step_of(model):
    """The scale of the result; None where it has none."""
    target = torch.ops.corsac.dequantize_per_tensor.default
    nodes = model.graph.nodes if isinstance(model, corsac.fx.GraphModule) else []
    return ([None] + [node.args[1] for node in nodes if node.target is target])[-1]


def close_to_pytorch(got, model, x):
    """Within a step of the result, where it has steps."""
    with torch.no_grad():
        expected = model(x)
    step = step_of(model)
    atol = 1e-5 if step is None else 1.001 * step
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=atol)
    assert got.unique().numel() > 5


def test_a_loaded_model_gives_the_bits_of_the_compiled_one(case, tmp_path):
    model, x = case
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, x)
    arrays = corsac.load(path, framework="numpy")
    got = torch.from_numpy(arrays(x.numpy()))
    assert torch.equal(got, compiled(model, x))
    assert torch.equal(got, torch.from_numpy(arrays(x.numpy())))
    close_to_pytorch(got, model, x)
    loaded = corsac.load(path, framework="torch")
    with torch.no_grad():
        close_to_pytorch(loaded(x), model, x)
    assert torch.equal(compiled(loaded, x), got)


def test_weights_stay_integers(case, tmp_path):
    model, x = case
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, x)
    header = header_of(path)
    assert header.pop("__metadata__")["corsac.format"] == "2"
    state = {name: own for name, own in model.state_dict().items() if "weight" in name}
    stored = {name: entry["dtype"] for name, entry in header.items() if name in state}
    names = {torch.int8: "I8", torch.uint8: "U8", torch.int32: "I32", torch.float32: "F32"}
    assert stored == {name: names[own.dtype] for name, own in state.items()}
    assert {"I8", "U8"} & set(stored.values())
    loaded = corsac.load(path, framework="torch").state_dict()
    for name, own in state.items():
        assert torch.equal(loaded[name], own) and loaded[name].dtype == own.dtype


def test_models_without_narrow_integers_are_in_the_first_version(tmp_path):
    path = tmp_path / "model.safetensors"
    corsac.save(layers().eval(), path, random(4, 32))
    assert header_of(path)["__metadata__"]["corsac.format"] == "1"


def test_files_are_a_quarter_and_an_eighth(tmp_path):
    plain, small, packed = (tmp_path / name for name in ("plain", "small", "packed"))
    wide = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).eval()
    x = random(1, 1024)
    corsac.save(wide, plain, x)
    corsac.save(quantised(wide, x, DYNAMIC), small, x)
    corsac.save(nn.Sequential(Packed(1024, 1024), Packed(1024, 1024)).eval(), packed, x)
    whole = plain.stat().st_size
    assert small.stat().st_size < 0.26 * whole
    # 4 bits, and a scale of 32 bits for each 64 elements: 4.5 of 32.
    assert packed.stat().st_size < 0.142 * whole


def test_the_program_runs_quantised_models(case, programs, tmp_path):
    model, x = case
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, x)
    numpy.save(tmp_path / "x.npy", x.numpy())
    arguments = ["--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy"]
    subprocess.run([programs["corsac"], "run", path, *arguments], check=True)
    got = torch.from_numpy(numpy.load(tmp_path / "y.npy"))
    close_to_pytorch(got, model, x)
    bench = [programs["corsac"], "bench", path, "--repeat", "2", "--json"]
    report = subprocess.run(bench, check=True, capture_output=True, text=True)
    assert json.loads(report.stdout)["min_seconds"] > 0


def test_resnet_18(tmp_path):
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    plain, x = as_if_trained(models.resnet18()), random(1, 3, 64, 64)
    corsac.save(plain, tmp_path / "plain", x)
    model = quantised(plain, x, STATIC)
    corsac.save(model, tmp_path / "small", x)
    sizes = [(tmp_path / name).stat().st_size for name in ("small", "plain")]
    assert sizes[0] < 0.26 * sizes[1]
    arrays = corsac.load(tmp_path / "small", framework="numpy")
    got = torch.from_numpy(arrays(x.numpy()))
    assert torch.equal(got, compiled(model, x))
    with torch.no_grad():
        apart = (got - model(x)).abs() / step_of(model)
    assert apart.mean() < 1 and apart.max() <= 4.001


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"I8"', '"U8"'),
        ('"I8"', '"BOOL"'),
        ("torch.int8", "torch.uint8"),
        ("torch.int8", "torch.float32"),
        ('"shape":[8]', '"shape":[4,2]'),
        (", 0, -128, 127, torch.int8", ", 1, -128, 127, torch.int8"),
        (", 0, -128, 127, torch.int8", ", 9, -128, 127, torch.int8"),
        (", 0, -128, 127, torch.int8", ", 0, 127, -128, torch.uint8"),
        ('"corsac.format":"2"', '"corsac.format":"3"'),
    ],
)
def test_damaged_files_are_errors(old, new, tmp_path):
    path, bad = tmp_path / "model", tmp_path / "bad"
    corsac.save(quantised(layers(), random(4, 32), DYNAMIC), path, random(4, 32))
    bad.write_bytes(edited(path, old, new))
    with pytest.raises((corsac.ModelFileError, corsac.CompileError)) as error:
        corsac.load(bad)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("group", ["0", "-1", "3", "32", "512", "9223372036854775807"])
def test_groups_that_do_not_divide_are_errors(group, tmp_path):
    path, bad = tmp_path / "model", tmp_path / "bad"
    corsac.save(Packed(24, 256).eval(), path, random(3, 256))
    bad.write_bytes(edited(path, "torch.int8, 64)", f"torch.int8, {group})"))
    with pytest.raises(corsac.CompileError, match="dequantize_per_channel_group"):
        corsac.load(bad)


def test_files_that_are_cut_off_are_errors(tmp_path):
    path, bad = tmp_path / "model", tmp_path / "bad"
    corsac.save(Packed(24, 256).eval(), path, random(3, 256))
    whole = path.read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        bad.write_bytes(whole[:length])
        with pytest.raises(corsac.ModelFileError):
            corsac.load(bad)
