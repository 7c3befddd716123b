"""Quantise a small language model to 8, 4 and 3 bits, after training and while training.

A transformer reads the text of Python's own documentation, character by character, and gives the probabilities of the
next one. How well it does is in bits per character: the fewer, the better. Weights of 8 bits cost nothing; those of
fewer bits cost some, most of which is won back by a few steps of training with rounded weights. All steps are compiled.

    python examples/quantize_text.py
"""

import copy
import math
import pydoc_data.topics
import sys
import warnings
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import corsac
from corsac.quantization import (
    FusedMovingAvgObsFakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    default_histogram_observer,
)
from corsac.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx

#: Characters that the model sees at once, its width, and the number of attention heads.
LENGTH, WIDTH, HEADS = 64, 64, 4
#: Sequences of a step.
BATCH = 16
#: Characters: printable ones, and the end of a line. All others are question marks.
ALPHABET = "".join(map(chr, range(32, 127))) + "\n"


def text() -> Tensor:
    """The numbers of the characters of the documentation, shuffled by topic."""
    topics = [*pydoc_data.topics.topics.values()]
    order = torch.randperm(len(topics), generator=torch.Generator().manual_seed(0))
    numbers = {character: number for number, character in enumerate(ALPHABET)}
    unknown = numbers["?"]
    whole = "".join(topics[at] for at in order)
    return torch.tensor([numbers.get(character, unknown) for character in whole])


class Block(nn.Module):
    """Attention to the characters before, and a layer of each character by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        heads = [
            layer(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Logits of the next character, [batch, length, characters], of characters, [batch, length]."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.characters(x) + self.places)))


def progress(name: str, steps: int) -> Iterator[int]:
    """Count to ``steps``, and show a bar on a terminal."""
    for step in range(steps):
        done = 30 * (step + 1) // steps
        if sys.stderr.isatty():
            print(f"\r{name:<22} [{'#' * done}{'.' * (30 - done)}]", end="", file=sys.stderr)
        yield step
    if sys.stderr.isatty():
        print(file=sys.stderr)


def sequences(data: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences of characters, and of those that follow them."""
    parts = data[starts.unsqueeze(1) + torch.arange(LENGTH + 1)]
    return parts[:, :-1], parts[:, 1:]


def train(name: str, model: nn.Module, data: Tensor, steps: int, rate: float) -> None:
    """Train a model; its steps are compiled."""
    compiled = corsac.compile(model)
    optimiser = torch.optim.AdamW(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, steps)
    for _ in progress(name, steps):
        x, following = sequences(data, torch.randint(len(data) - LENGTH, (BATCH,)))
        optimiser.zero_grad()
        F.cross_entropy(compiled(x).flatten(0, 1), following.flatten()).backward()
        optimiser.step()
        schedule.step()


def bits(model: nn.Module, data: Tensor) -> float:
    """Bits per character of a compiled model on some text."""
    compiled = corsac.compile(model.eval())
    losses = []
    with torch.inference_mode():
        for starts in torch.arange(0, len(data) - LENGTH, LENGTH).split(BATCH):
            x, following = sequences(data, starts)
            if len(x) == BATCH:
                losses.append(F.cross_entropy(compiled(x).flatten(0, 1), following.flatten()))
    return float(torch.stack(losses).mean()) / math.log(2)


def weights_of(number: int) -> dict[str, object]:
    """The arguments of observers of weights with so many bits, in steps of a scale for each channel."""
    return {
        "dtype": torch.qint8,
        "qscheme": torch.per_channel_symmetric,
        "quant_min": -(2 ** (number - 1)),
        "quant_max": 2 ** (number - 1) - 1,
    }


def of_layers(activation: object, weight: object) -> QConfigMapping:
    """A configuration of all layers but the table of characters, which stays as it is."""
    mapping = QConfigMapping().set_global(QConfig(activation, weight))
    return mapping.set_object_type(nn.Embedding, None)


def after_training(model: nn.Module, number: int, data: Tensor) -> nn.Module:
    """The model with weights of so many bits and activations of 8, calibrated on some text."""
    weight = PerChannelMinMaxObserver.with_args(**weights_of(number))
    mapping = of_layers(default_histogram_observer, weight)
    x, _ = sequences(data, torch.randint(len(data) - LENGTH, (BATCH,)))
    prepared = prepare_fx(copy.deepcopy(model).eval(), mapping, (x,))
    with torch.no_grad():
        prepared(x)
    return convert_fx(prepared)


def while_training(model: nn.Module, number: int, data: Tensor, steps: int) -> nn.Module:
    """The model with weights of so many bits and activations of 8, trained with both rounded."""
    activation = FusedMovingAvgObsFakeQuantize.with_args(
        observer=MovingAverageMinMaxObserver, dtype=torch.quint8, quant_min=0, quant_max=255
    )
    weight = FusedMovingAvgObsFakeQuantize.with_args(
        observer=MovingAveragePerChannelMinMaxObserver, averaging_constant=1, **weights_of(number)
    )
    x, _ = sequences(data, torch.arange(BATCH))
    mapping = of_layers(activation, weight)
    prepared = prepare_qat_fx(copy.deepcopy(model).train(), mapping, (x,))
    train(f"training with {number} bits", prepared, data, steps, 1e-3)
    return convert_fx(prepared.eval())


def compare(steps: int = 700, evaluated: int = 10000) -> dict[str, float]:
    """Bits per character of a float model and of quantised ones, on text that they have not seen."""
    data = text()
    cut = 9 * len(data) // 10
    known, unknown = data[:cut], data[cut : cut + evaluated]
    model = Transformer()
    train("training", model, known, steps, 4e-3)
    found = {
        "float": bits(model, unknown),
        "int8": bits(after_training(model, 8, known), unknown),
    }
    for number in (4, 3):
        found[f"int{number} after training"] = bits(after_training(model, number, known), unknown)
        trained = while_training(model, number, known, steps // 4)
        found[f"int{number} while training"] = bits(trained, unknown)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    print(f"{'weights':<20} {'bits per character':>18}")
    for name, number in compare().items():
        print(f"{name:<20} {number:>18.3f}")
