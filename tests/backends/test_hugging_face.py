"""Architectures of Hugging Face through ``torch.compile(backend="corsac")``, without downloads.

They are trained through ``corsac.compile`` too, which captures most of them without Dynamo. Each is called
for results and trained for two steps with SGD, with dropout, from the same seeds as eager. Most operators
must be native. A gradient agrees if it differs by at most ``TOLERANCE`` of the largest element of its
parameter, and ``OF_ALL`` of the largest of the model: that of the bias of keys is zero in exact arithmetic,
since softmax is invariant to it, and a difference of sums in practice.
"""

import copy
import warnings

import pytest
import torch
from torch.utils import _pytree as pytree

import corsac
from corsac._models.function import module_of
from kit.hugging_face import ARCHITECTURES
from kit.placement import recorded

TOLERANCE, OF_ALL = 2e-5, 2e-6
#: Always run: one of each family. The others together are slow.
QUICK = [
    "bert",
    "bloom",
    "gpt2",
    "llama",
    "mixtral",
    "t5",
    "swin",
    "whisper",
    "mamba",
]


@pytest.fixture(autouse=True)
def fresh():
    pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        # In training, a graph of Wav2Vec2 is a view of its input and nothing else.
        warnings.filterwarnings("ignore", ".*shares memory with the input l_input_values_")
        yield


def tensors(output):
    """The tensors in a model's output."""
    leaves = pytree.tree_leaves(dict(output))
    return [own for own in leaves if isinstance(own, torch.Tensor)]


def same_gradients(model, other):
    largest = max(own.grad.abs().max().item() for own in other.parameters() if own.grad is not None)
    for (name, own), its in zip(model.named_parameters(), other.parameters(), strict=True):
        if its.grad is None:
            assert own.grad is None, name
            continue
        bound = TOLERANCE * its.grad.abs().max().item() + OF_ALL * largest
        difference = (own.grad - its.grad).abs().max().item()
        assert difference <= bound, f"{name}: {difference:.2e}, and {bound:.2e} is allowed"


def check(name):
    architecture = ARCHITECTURES[name]
    model = architecture.make()
    other, inputs = copy.deepcopy(model), architecture.inputs()
    compiled = torch.compile(model, backend="corsac", options={"training": "native"})

    model.eval(), other.eval()
    with torch.no_grad(), recorded() as pieces:
        found, expected = tensors(compiled(**inputs)), tensors(other(**inputs))
    assert len(found) == len(expected)
    for own, its in zip(found, expected, strict=True):
        torch.testing.assert_close(own, its, rtol=1e-4, atol=1e-5)
    placed = pieces.placed()
    assert placed.share("inference") >= architecture.inference, placed
    assert len(pieces) == architecture.graphs

    with recorded() as pieces:
        train(model, compiled, other, inputs)
    placed = pieces.placed()
    assert placed.share("forward") >= architecture.forward, placed
    assert placed.share("backward") >= architecture.backward, placed


def train(model, compiled, other, inputs):
    """Compare training steps of both."""
    model.train(), other.train()
    optimisers = [torch.optim.SGD(own.parameters(), lr=0.05) for own in (model, other)]
    for step in range(2):
        losses = []
        for run, optimiser in zip((compiled, other), optimisers, strict=True):
            optimiser.zero_grad()
            # Dropout uses the same random numbers.
            torch.manual_seed(step)
            losses.append(run(**inputs).loss)
            losses[-1].backward()
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        same_gradients(model, other)
        for optimiser in optimisers:
            optimiser.step()
    for (key, own), its in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(own, its, rtol=1e-4, atol=1e-5, msg=key)


#: Models with data-dependent control flow, a custom backward, or hooks.
BY_DYNAMO = {"deberta-v2", "bloom", "wav2vec2"}


def check_captured(name):
    architecture = ARCHITECTURES[name]
    model = architecture.make()
    other, inputs = copy.deepcopy(model), architecture.inputs()
    compiled = corsac.compile(model, options={"training": "native"})
    train(model, compiled, other, inputs)
    assert bool(module_of(compiled)._trained_graphs()) == (name not in BY_DYNAMO)


@pytest.mark.parametrize("name", QUICK)
def test_families(name):
    check(name)


@pytest.mark.parametrize("name", QUICK)
def test_families_are_trained_without_dynamo(name):
    check_captured(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in QUICK])
def test_other_members_are_trained_without_dynamo(name):
    check_captured(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in QUICK])
def test_other_members(name):
    check(name)
