"""Quantised models of every kind in the program without Python: its results are those of ``corsac.load`` to the bit."""

from __future__ import annotations

import json
import subprocess

import numpy
import pytest
import torch
from torch import nn

import corsac
from corsac.quantization import from_torch_ao, get_default_qconfig_mapping
from corsac.quantization.quantize_fx import convert_fx, prepare_fx
from kit.trained import as_if_trained

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def layers():
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64), nn.Tanh())


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 1, 1)
        self.apart, self.fc = nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Linear(16, 5)

    def forward(self, x):
        x = self.first(x).relu()
        x = (x + self.second(x)).relu()
        return self.fc(self.apart(x).mean((2, 3)))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(50, 32), nn.Linear(32, 50)

    def forward(self, ids):
        return self.out(self.table(ids))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(32, 24, batch_first=True), nn.GRU(24, 16, batch_first=True)
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return self.out(self.gru(y)[0]), h, c


def rows():
    return torch.randn(5, 64)


def ids():
    return torch.randint(50, (3, 7))


def in_graph(model, *inputs):
    prepared = prepare_fx(as_if_trained(model).eval(), get_default_qconfig_mapping("x86"), inputs)
    prepared(*inputs)
    return convert_fx(prepared)


def of_torch_ao(model, *inputs):
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    mapping = get_default_qconfig_mapping("x86")
    prepared = quantize_fx.prepare_fx(as_if_trained(model).eval(), mapping, inputs)
    prepared(*inputs)
    return from_torch_ao(quantize_fx.convert_fx(prepared))


def dynamic_of_torch_ao(model, *inputs):
    del inputs
    kinds = {nn.Linear, nn.LSTM, nn.GRU}
    return from_torch_ao(
        torch.ao.quantization.quantize_dynamic(model.eval(), kinds, dtype=torch.qint8)
    )


def exported(model, *inputs):
    from corsac.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    from corsac.quantization.quantizer import x86_inductor_quantizer as x86

    quantiser = x86.X86InductorQuantizer()
    quantiser.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model.eval(), inputs).module(), quantiser)
    prepared(*inputs)
    return convert_pt2e(prepared)


def one_call(**options):
    def quantise(model, *inputs):
        calibrates = "dtype" not in options or options["dtype"] == "int8"
        if {"dynamic", "weights"} & {*options}:
            calibrates = False
        data = [inputs] if calibrates else None
        return corsac.quantize(model.eval(), data, measure=False, **options)

    return quantise


CASES = {
    "graph": (layers, rows, in_graph),
    "graph of images": (Images, lambda: torch.randn(2, 3, 12, 12), in_graph),
    "torch.ao": (layers, rows, of_torch_ao),
    "torch.ao, images": (Images, lambda: torch.randn(2, 3, 12, 12), of_torch_ao),
    "torch.ao, dynamic": (layers, rows, dynamic_of_torch_ao),
    "torch.ao, recurrent": (Recurrent, lambda: torch.randn(2, 6, 32), dynamic_of_torch_ao),
    "exported": (layers, rows, exported),
    "static": (layers, rows, one_call()),
    "images": (Images, lambda: torch.randn(2, 3, 12, 12), one_call()),
    "dynamic": (layers, rows, one_call(dynamic=True)),
    "bfloat16": (layers, rows, one_call(dtype="bfloat16")),
    "weights of 8 bits": (layers, rows, one_call(weights="int8")),
    "weights of 4 bits": (layers, rows, one_call(weights="int4:32")),
    "table of 8 bits": (Words, ids, one_call(weights="int8")),
    "table of 4 bits": (Words, ids, one_call(weights="int4:32")),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_loaded_models(name, programs, tmp_path):
    make, inputs, quantise = CASES[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    with torch.no_grad():
        quantised = quantise(model, x)
        expected = quantised(x)
    path = tmp_path / "model.safetensors"
    corsac.save(quantised, path, x)
    arrays = corsac.load(path, framework="numpy")
    found = arrays(x.numpy())
    found = found if isinstance(found, tuple) else (found,)
    numpy.save(tmp_path / "x.npy", x.numpy())
    files = [tmp_path / f"y{number}.npy" for number in range(len(found))]
    named = [part for file in files for part in ("--output", file)]
    command = [programs["corsac"], "run", path, "--input", tmp_path / "x.npy", *named]
    for threads in ("1", "2"):
        done = subprocess.run([*command, "--threads", threads], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        for own, file in zip(found, files, strict=True):
            assert numpy.array_equal(own, numpy.load(file))
    # Which are those of PyTorch, up to a level where a number is half-way between two.
    for own, its in zip(found, torch.utils._pytree.tree_leaves(expected), strict=True):
        assert own.dtype == numpy.float32 and own.shape == tuple(its.shape)
        difference = numpy.abs(own - its.numpy()).max() / numpy.abs(its.numpy()).max()
        assert difference < 0.02 and numpy.unique(own).size > 5, difference
    header = path.read_bytes()
    length = int.from_bytes(header[:8], "little")
    kinds = {own.get("dtype") for own in json.loads(header[8 : 8 + length]).values()}
    assert kinds & {"I8", "U8", "BF16"}


def edited(path, old, new):
    """The file with a part of its header replaced."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length].decode()
    assert old in text, text
    text = text.replace(old, new, 1).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


FAULTS = {
    "a scale too few": ("dynamic", '"shape":[96]', '"shape":[95]'),
    "scales of fewer groups": ("weights of 4 bits", '"shape":[96,2]', '"shape":[96,1]'),
    "a group that does not divide": ("weights of 4 bits", "torch.int8, 32,", "torch.int8, 48,"),
    "a group of zero": ("weights of 4 bits", "torch.int8, 32,", "torch.int8, 0,"),
    "a zero point out of range": ("graph", ", 0, 255, torch.uint8", ", 256, 255, torch.uint8"),
    "a huge weight": ("weights of 8 bits", '"shape":[96,64]', '"shape":[9223372036854775807,64]'),
    "a huge group": ("weights of 4 bits", "torch.int8, 32,", "torch.int8, 9223372036854775807,"),
    "bytes of another type": ("bfloat16", '"BF16"', '"F16"'),
    "another version": ("graph", '"corsac.format":"2"', '"corsac.format":"9"'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_files_are_one_line_and_code_2(fault, programs, tmp_path):
    name, old, new = FAULTS[fault]
    make, inputs, quantise = CASES[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    path, bad = tmp_path / "model.safetensors", tmp_path / "bad.safetensors"
    with torch.no_grad():
        corsac.save(quantise(model, x), path, x)
    numpy.save(tmp_path / "x.npy", x.numpy())
    whole = edited(path, old, new)
    for data in (whole, path.read_bytes()[:-1], path.read_bytes()[: path.stat().st_size // 2]):
        bad.write_bytes(data)
        command = [programs["corsac"], "run", bad, "--input", tmp_path / "x.npy"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2, (done.returncode, done.stderr, done.stdout)
        assert done.stderr.startswith(f"corsac: error: {bad}: ") and done.stderr.count("\n") == 1
        assert "panic" not in done.stderr and not done.stdout
