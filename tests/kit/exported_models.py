"""Small models for quantisation of exported programs, with inputs, by name."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """Convolutions with and without bias and batch norm, sums, concatenations, pools, products."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.third = nn.Conv2d(6, 6, 1)
        self.other = nn.BatchNorm2d(6)
        self.act, self.relu, self.swish = nn.ReLU(), nn.ReLU(), nn.Hardswish()
        self.pool, self.last = nn.MaxPool2d(2), nn.MaxPool2d(2)
        self.linear = nn.Linear(48, 5)

    def forward(self, x):
        x = self.pool(self.act(self.norm(self.first(x))))
        y = self.relu(self.other(self.third(x)) + x)
        z = torch.cat([y, self.swish(self.second(y))], 1)
        return self.linear(torch.flatten(self.last(z), 1))


class Layers(nn.Module):
    """Linear layers with activations, sums and products."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        self.gelu, self.relu = nn.GELU(), nn.ReLU()

    def forward(self, x):
        x = self.gelu(self.a(x))
        y = self.relu(self.b(x) + x)
        return torch.matmul(self.c(y) * y, x.transpose(0, 1))


class Shared(nn.Module):
    """A convolution that is called twice, with a batch norm behind one call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(self.conv(x)) + F.relu(self.conv(x))


def exported_model(name: str, training: bool = False) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A seeded model with batch norms that have seen data, and its inputs."""
    torch.manual_seed(7)
    kinds = {
        "residual": (Residual, (2, 3, 8, 8)),
        "layers": (Layers, (4, 8)),
        "shared": (Shared, (2, 3, 6, 6)),
        "conv1d": (
            lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU()),
            (2, 3, 9),
        ),
        "transposed": (
            lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)),
            (2, 3, 5, 5),
        ),
        "linear_norm": (lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6)), (7, 5)),
    }
    kind, shape = kinds[name]
    model = kind()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            module.running_mean.uniform_(-0.3, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    return model.train(training), (torch.randn(*shape),)


#: Cases of the recorded programs: the model, the kind of quantisation.
CASES = [
    ("residual", "static"),
    ("residual", "training"),
    ("residual", "dynamic"),
    ("layers", "static"),
    ("layers", "dynamic"),
    ("layers", "training"),
    ("conv1d", "static"),
    ("linear_norm", "static"),
    ("transposed", "static"),
    ("layers", "mobile"),
    ("conv1d", "mobile"),
    ("transposed", "mobile"),
]


def observed_and_converted(packages, name: str, kind: str):
    """The code of a prepared model, its result and gradients, the code of the converted one and its result.

    Args:
        packages: ``quantize_pt2e``, ``x86_inductor_quantizer``, ``xnnpack_quantizer`` and the package with
            ``move_exported_model_to_eval``.
        name: the model.
        kind: "static", "dynamic" or "training" for x86 processors; "mobile" for XNNPACK, static, per channel.
    """
    quantize, x86, xnnpack, pt2e = packages
    model, inputs = exported_model(name, kind == "training")
    exported = torch.export.export(model, inputs).module()
    if kind == "mobile":
        config = xnnpack.get_symmetric_quantization_config(is_per_channel=name != "transposed")
        quantizer = xnnpack.XNNPACKQuantizer().set_global(config)
    else:
        config = x86.get_default_x86_inductor_quantization_config(
            is_qat=kind == "training", is_dynamic=kind == "dynamic"
        )
        quantizer = x86.X86InductorQuantizer().set_global(config)
    prepare = quantize.prepare_qat_pt2e if kind == "training" else quantize.prepare_pt2e
    prepared = prepare(exported, quantizer)
    code, result = prepared.code, prepared(*inputs)
    gradients = {}
    if kind == "training":
        result.sum().backward()
        gradients = {own: one.grad for own, one in prepared.named_parameters()}
        pt2e.move_exported_model_to_eval(prepared)
    converted = quantize.convert_pt2e(prepared)
    with torch.no_grad():
        return code, result.detach(), gradients, converted.code, converted(*inputs)
