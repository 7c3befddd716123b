"""The package in a PyTorch without ``torch.ao`` and without quantised types."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import warnings

import torch

for name in ("quint8", "qint8", "qint32", "quint4x2", "quint2x4"):
    delattr(torch, name)
for name in list(sys.modules):
    if name.startswith("torch.ao"):
        sys.modules[name] = None
sys.modules["torch.ao.quantization"] = None
del torch.ao

from torch import nn

from corsac.quantization import *
from corsac.quantization import backend_config, ns, qconfig, quantization_mappings, utils
from corsac.quantization.backend_config import native
from corsac.quantization.fx import custom_config
from corsac.quantization.qat import dynamic

warnings.simplefilter("ignore")
mapping = get_default_qconfig_mapping()
activation, weight = mapping.global_qconfig.activation(), mapping.global_qconfig.weight()
layer = nn.Linear(4, 3)
activation(torch.randn(5, 4))
weight(layer.weight)
print(activation.dtype, activation.quant_min, activation.quant_max, weight.dtype, len(weight.calculate_qparams()[0]))
print(default_float_qparams_observer_4bit().quant_max, default_embedding_fake_quant_4bit().quant_max)
layer.qconfig = get_default_qat_qconfig()
mapped = quantization_mappings.get_default_qat_module_mappings()[nn.Linear].from_float(layer)
print(mapped(torch.randn(5, 4)).shape)
qparams = utils.get_qparam_dict(weight)
print(quantization_mappings.get_default_static_quant_reference_module_mappings()[nn.Linear].from_float(layer, qparams)._get_name())
print([len(getattr(backend_config, f"get_{name}_backend_config")().configs) for name in ("native", "x86", "onednn", "executorch")])
print(utils.get_quant_type(qconfig.default_dynamic_qconfig).name)
model = nn.Sequential(QuantStub(), nn.Linear(4, 3), nn.ReLU(), DeQuantStub()).eval()
model.qconfig = get_default_qconfig()
prepared = prepare(model)
x = torch.randn(5, 4)
prepared(x)
converted = convert(prepared)
print(converted[1].weight.dtype, bool((converted(x) - model(x)).abs().max() < 0.05))
print(quantize_dynamic(model)[1].weight.dtype)
print(quantize_dynamic(model, dtype=torch.float16)[1].weight.dtype)
print(list(ns.extract_weights("a", model, "b", model)))
print(from_torch_ao(model) is model)
"""

EXPECTED = """\
torch.uint8 0 127 torch.int8 3
15 15
torch.Size([5, 3])
QuantizedLinear(Reference)
[194, 192, 221, 84]
DYNAMIC
torch.int8 True
torch.int8
torch.float16
['_1']
True
"""


def test_nothing_needs_torch_ao_or_quantised_types():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == EXPECTED
