"""Recurrent layers: native in evaluation, in all their forms."""

import random

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import corsac
from corsac import fx

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def check(model, *inputs):
    """Results are eager's, and everything is native."""
    compiled = corsac.compile(model, fullgraph=True, options={"inference": "native"})
    with torch.no_grad():
        expected = model(*inputs)
        compiled(*inputs)
        torch.testing.assert_close(compiled(*inputs), expected, **TOLERANCE)
    assert "PyTorch" not in compiled.explain(), compiled.explain()
    return compiled


def layers(kind, **options):
    torch.manual_seed(0)
    if kind == "RNN":
        options.setdefault("nonlinearity", "tanh")
    return getattr(nn, kind)(5, 7, **options).eval()


KINDS = ["LSTM", "GRU", "RNN"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_layers(kind, bidirectional, batch_first, bias):
    model = layers(
        kind, num_layers=2, bidirectional=bidirectional, batch_first=batch_first, bias=bias
    )
    check(model, torch.randn(6, 3, 5))
    check(model, torch.randn(4, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_states_that_are_given(kind):
    model = layers(kind, num_layers=2, bidirectional=True)
    states = [torch.randn(4, 3, 7) for _ in range(2)]
    if kind == "LSTM":
        check(lambda x, h, c: model(x, (h, c)), torch.randn(6, 3, 5), *states)
    else:
        check(lambda x, h: model(x, h), torch.randn(6, 3, 5), states[0])


def test_projections_and_other_functions():
    check(layers("LSTM", proj_size=3, num_layers=2, bidirectional=True), torch.randn(6, 3, 5))
    check(layers("RNN", nonlinearity="relu", num_layers=2), torch.randn(6, 3, 5))
    check(layers("LSTM"), torch.randn(3, 6, 5).transpose(0, 1))
    check(layers("GRU", dropout=0.5, num_layers=2), torch.randn(6, 3, 5))
    check(layers("GRU"), torch.randn(6, 1, 5).expand(6, 3, 5))


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [False, True])
def test_cells(kind, bias):
    model = layers_of_cell(kind, bias)
    check(model, torch.randn(3, 5))
    check(model, torch.randn(5))
    states = [torch.randn(3, 7) for _ in range(2)]
    if kind == "LSTMCell":
        check(lambda x, h, c: model(x, (h, c)), torch.randn(3, 5), *states)
    else:
        check(lambda x, h: model(x, h), torch.randn(3, 5), states[0])


def layers_of_cell(kind, bias):
    torch.manual_seed(0)
    return getattr(nn, kind)(5, 7, bias=bias).eval()


def test_a_cell_that_is_called_again_and_again():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(5, 7)

        def forward(self, x):
            h = c = torch.zeros(3, 7)
            for step in x:
                h, c = self.cell(step, (h, c))
            return h

    check(Model().eval(), torch.randn(6, 3, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_many_sizes(kind):
    generator = random.Random(0)
    for _ in range(12):
        hidden, features, rows, steps = (generator.choice([1, 3, 16, 33]) for _ in range(4))
        torch.manual_seed(0)
        model = getattr(nn, kind)(
            features, hidden, generator.choice([1, 3]), bidirectional=generator.random() < 0.5
        )
        check(model.eval(), torch.randn(steps, rows, features))


class Packed(nn.Module):
    """A layer on packed sequences, whose sizes are among the inputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, data, sizes, h):
        state = (h, h * 2) if isinstance(self.layer, nn.LSTM) else h
        out, last = self.layer(PackedSequence(data, sizes), state)
        return out.data, last


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind):
    model = Packed(layers(kind, num_layers=2, bidirectional=True))
    compiled = corsac.compile(model, options={"inference": "native"})
    for lengths in ([6, 4, 4, 1], [6, 5, 3, 1], [9, 3, 2, 1]):
        packed = pack_padded_sequence(torch.randn(max(lengths), 4, 5), lengths)
        inputs = packed.data, packed.batch_sizes, torch.randn(4, 4, 7)
        with torch.no_grad():
            expected = model(*inputs)
            for _ in range(3):
                torch.testing.assert_close(compiled(*inputs), expected, **TOLERANCE)
    # Sizes are read at run time.
    assert "PyTorch runs" not in compiled.explain(), compiled.explain()
    for sizes in ([4, 3, 3, 3, 1], [4, 5, 3, 3], [4, 0, 8, 3]):
        inputs = torch.randn(15, 5), torch.tensor(sizes), torch.randn(4, 4, 7)
        assert outcome(compiled, inputs) == outcome(model, inputs)


def outcome(run, inputs):
    """The shapes of its result, or its exception."""
    with torch.no_grad():
        try:
            return [own.shape for own in torch.utils._pytree.tree_leaves(run(*inputs))]
        except RuntimeError as error:
            return type(error), str(error)


def test_modules_in_graphs():
    """Graphs that call the modules themselves."""
    for kind in KINDS:
        for options in ({}, {"batch_first": True, "bidirectional": True}):
            model = layers(kind, num_layers=2, **options)
            traced = fx.symbolic_trace(nn.Sequential(model))
            assert any(node.op == "call_module" for node in traced.graph.nodes)
            lowered = corsac.lower(traced, "corsac", torch.randn(6, 3, 5), min_nodes=1)
            x = torch.randn(6, 3, 5)
            with torch.no_grad():
                torch.testing.assert_close(lowered(x), model(x), **TOLERANCE)


def test_saved_models(tmp_path):
    model = layers("LSTM", num_layers=2, bidirectional=True, proj_size=4)
    x = torch.randn(6, 3, 5)
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, (x,))
    loaded = corsac.load(path, framework="numpy")
    with torch.no_grad():
        out, (h, c) = model(x)
    got, (last, memory) = loaded(x.numpy())
    for own, other in ((got, out), (last, h), (memory, c)):
        torch.testing.assert_close(torch.from_numpy(own), other, **TOLERANCE)


def test_what_is_left_to_pytorch():
    double = layers("LSTM").double()
    compiled = corsac.compile(double)
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    with torch.no_grad(), pytest.warns(corsac.HostWarning):
        torch.testing.assert_close(compiled(x), double(x))
    model = layers("GRU")
    compiled = corsac.compile(model)
    with torch.no_grad():
        for run in (model, compiled):
            with pytest.raises(RuntimeError):
                run(torch.randn(6, 3, 4))
            with pytest.raises(RuntimeError):
                run(torch.randn(0, 3, 5))
