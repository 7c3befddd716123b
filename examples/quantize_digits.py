"""Quantise a small convolutional network to 8, 4 and 3 bits, after training and while training.

Weights of 8 bits cost nothing. With fewer, rounding the weights of a trained network costs accuracy, which a few epochs
of training with rounded weights win back. The data are scikit-learn's handwritten digits, or drawn ones without it.

    python examples/quantize_digits.py
"""

import copy
import sys
import warnings
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

import corsac
from corsac.quantization import (
    FakeQuantize,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    default_fake_quant,
    default_histogram_observer,
    get_default_qconfig_mapping,
)
from corsac.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx

#: Digits of 7 rows of 5 squares, two hexadecimal figures for each row.
FONT = """
0E11131519110E 040C040404040E 0E11010204081F 1F02040201110E 02060A121F0202
1F101E0101110E 06081E1111110E 1F010204080808 0E11110E11110E 0E11110F01020C
"""


def weights_of(bits: int) -> dict[str, object]:
    """The arguments of observers of weights with so many bits, in steps of a scale for each channel."""
    return {
        "dtype": torch.qint8,
        "qscheme": torch.per_channel_symmetric,
        "quant_min": -(2 ** (bits - 1)),
        "quant_max": 2 ** (bits - 1) - 1,
    }


def drawn_digits(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits, [number, 1, 12, 12], turned, sheared, moved, and with noise; and which they are."""
    rows = torch.tensor([[*bytes.fromhex(digit)] for digit in FONT.split()])
    font = (rows.unsqueeze(2) >> torch.arange(4, -1, -1) & 1).float()
    font = F.pad(font, (4, 3, 3, 2))
    labels = torch.randint(0, 10, (number,))
    turns = 0.75 * torch.eye(2) + 0.15 * torch.randn(number, 2, 2)
    grid = F.affine_grid(
        torch.cat([turns, 0.1 * torch.randn(number, 2, 1)], 2), [number, 1, 12, 12], False
    )
    images = F.grid_sample(font[labels].unsqueeze(1), grid, align_corners=False)
    return images + 0.2 * torch.randn_like(images), labels


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images, [number, 1, height, width], and labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return drawn_digits(2600)
    data = load_digits()
    order = torch.randperm(len(data.target))
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return images[order], torch.tensor(data.target)[order]


def separable(inputs: int, outputs: int) -> list[nn.Module]:
    """A convolution of each channel by itself, and one between channels."""
    return [
        nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *separable(16, 32),
        nn.MaxPool2d(2),
        *separable(32, 32),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def progress(name: str, steps: int) -> Iterator[int]:
    """Count to ``steps``, and show a bar on a terminal."""
    for step in range(steps):
        done = 30 * (step + 1) // steps
        if sys.stderr.isatty():
            print(f"\r{name:<22} [{'#' * done}{'.' * (30 - done)}]", end="", file=sys.stderr)
        yield step
    if sys.stderr.isatty():
        print(file=sys.stderr)


def train(
    name: str, model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], epochs: int, rate: float
) -> None:
    images, labels = data
    batches = len(labels) // 64
    optimiser = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, epochs * batches)
    for _ in progress(name, epochs):
        for batch in torch.randperm(len(labels))[: batches * 64].split(64):
            optimiser.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()


def accuracy(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The part of the images that a compiled model knows, in percent."""
    images, labels = data
    with torch.inference_mode():
        known = corsac.compile(model.eval())(images).argmax(1) == labels
    return 100 * float(known.float().mean())


def quantised(model: nn.Module, mapping: QConfigMapping, images: torch.Tensor) -> nn.Module:
    """The model with rounded weights and activations, calibrated on some images."""
    prepared = prepare_fx(model.eval(), mapping, (images[:1],))
    with torch.no_grad():
        prepared(images[:256])
    return convert_fx(prepared)


def compare(epochs: int = 9) -> dict[str, float]:
    """Accuracies of a float network and of quantised ones."""
    images, labels = digits()
    cut = 3 * len(labels) // 4
    known, unknown = (images[:cut], labels[:cut]), (images[cut:], labels[cut:])
    model = network()
    train("training", model, known, epochs, 1e-2)
    int8 = quantised(model, get_default_qconfig_mapping(), known[0])
    found = {"float": accuracy(model, unknown), "int8": accuracy(int8, unknown)}
    for bits in (4, 3):
        weight = PerChannelMinMaxObserver.with_args(**weights_of(bits))
        mapping = QConfigMapping().set_global(QConfig(default_histogram_observer, weight))
        after = quantised(model, mapping, known[0])
        rounded = FakeQuantize.with_args(
            observer=MovingAveragePerChannelMinMaxObserver, **weights_of(bits)
        )
        mapping = QConfigMapping().set_global(QConfig(default_fake_quant, rounded))
        prepared = prepare_qat_fx(copy.deepcopy(model).train(), mapping, (images[:1],))
        train(f"training with {bits} bits", prepared, known, epochs // 2, 2e-3)
        found[f"int{bits} after training"] = accuracy(after, unknown)
        found[f"int{bits} while training"] = accuracy(convert_fx(prepared.eval()), unknown)
    return found


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*reduce_range")
    torch.manual_seed(0)
    print(f"{'weights':<20} {'accuracy':>9}")
    for name, percent in compare().items():
        print(f"{name:<20} {percent:>8.1f}%")
