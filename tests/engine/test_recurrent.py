"""Recurrent layers: native in evaluation, in all their forms."""

import random
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

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


class Padded(nn.Module):
    """A layer of sequences that are packed and padded again."""

    def __init__(self, layer, *, is_sorted=False, **options):
        super().__init__()
        self.layer, self.is_sorted, self.options = layer, is_sorted, options

    def forward(self, x, lengths, state=None):
        first = self.layer.batch_first
        packed = pack_padded_sequence(x, lengths, first, self.is_sorted)
        out, last = self.layer(packed, state)
        out, steps = pad_packed_sequence(out, batch_first=first, **self.options)
        return out * 2, steps, last


def lengths_of(count, most, seed, *, is_sorted=False):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, most + 1, (count,), generator=generator)
    lengths[seed % count] = most
    return lengths.sort(descending=True).values if is_sorted else lengths


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_that_are_packed_and_padded(kind, is_sorted):
    for options in (
        {},
        {"batch_first": True, "bidirectional": True, "num_layers": 2},
        {"bias": False, "batch_first": True},
        {"proj_size": 4, "bidirectional": True} if kind == "LSTM" else {"bidirectional": True},
    ):
        for padding in (0.0, -1.5):
            model = Padded(
                layers(kind, **options), is_sorted=is_sorted, padding_value=padding
            ).eval()
            compiled = corsac.compile(model, options={"inference": "native"})
            for seed in range(4):
                x = torch.randn((4, 6, 5) if model.layer.batch_first else (6, 4, 5))
                lengths = lengths_of(4, 6, seed, is_sorted=is_sorted)
                with torch.no_grad():
                    for _ in range(2):
                        got, expected = compiled(x, lengths), model(x, lengths)
                        torch.testing.assert_close(got, expected, **TOLERANCE)
                        assert got[0].stride() == expected[0].stride()
            told = compiled.explain()
            assert "PyTorch runs" not in told and "recompiled" not in told, told


def test_states_of_packed_sequences_are_sorted():
    model = Padded(layers("LSTM", batch_first=True, num_layers=2)).eval()
    compiled = corsac.compile(model, options={"inference": "native"})
    for seed in range(3):
        x, lengths = torch.randn(4, 6, 5), lengths_of(4, 6, seed)
        state = torch.randn(2, 4, 7), torch.randn(2, 4, 7)
        with torch.no_grad():
            expected = model(x, lengths, state)
            torch.testing.assert_close(compiled(x, lengths, state), expected, **TOLERANCE)
    assert "PyTorch runs" not in compiled.explain()


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_lengths_and_sizes_that_change(kind, is_sorted):
    """Of batches in which no sequence has all time steps, the result is as long as the longest one."""
    model = Padded(layers(kind, batch_first=True), is_sorted=is_sorted).eval()
    for options in ({}, {"inference": "native"}):
        compiled = corsac.compile(model, options=options)
        for count, size, most in (
            *((3, 6, 6), (3, 6, 5), (3, 6, 6), (3, 6, 2), (4, 7, 7), (2, 5, 5), (5, 9, 9)),
            *((4, 7, 3), (1, 6, 6), (1, 1, 1), (2, 5, 5)),
        ):
            x = torch.randn(count, size, 5)
            lengths = lengths_of(count, most, size, is_sorted=is_sorted)
            with torch.no_grad():
                for _ in range(2):
                    expected = model(x, lengths)
                    torch.testing.assert_close(compiled(x, lengths), expected, **TOLERANCE)


def test_padding_to_a_length():
    for total in (6, 8):
        model = Padded(layers("GRU", batch_first=True), total_length=total).eval()
        compiled = corsac.compile(model)
        for most in (6, 4, 6):
            x, lengths = torch.randn(3, 6, 5), lengths_of(3, most, 1)
            with torch.no_grad():
                for _ in range(3):
                    torch.testing.assert_close(compiled(x, lengths), model(x, lengths), **TOLERANCE)
    compiled = corsac.compile(Padded(layers("GRU", batch_first=True), total_length=5).eval())
    with torch.no_grad(), pytest.raises(ValueError, match="Expected total_length"):
        compiled(torch.randn(3, 6, 5), torch.tensor([6, 2, 2]))


def test_lengths_that_pytorch_refuses():
    model = Padded(layers("GRU", batch_first=True), is_sorted=True).eval()
    compiled = corsac.compile(model, options={"inference": "native"})
    x = torch.randn(3, 6, 5)
    with torch.no_grad():
        for lengths in ([6, 4, 2], [6, 6, 1]):
            expected = model(x, torch.tensor(lengths))
            torch.testing.assert_close(compiled(x, torch.tensor(lengths)), expected, **TOLERANCE)
    for lengths in ([6, 2, 4], [6, 4, 0], [6, 4, -1], [7, 6, 2], [6, 4], [6, 4, 2]):
        given = x, torch.tensor(lengths)
        assert outcome(compiled, given) == outcome(model, given)


def rows_doubled(x, lengths, gru):
    packed = pack_padded_sequence(x, lengths, True, False)
    packed = packed._replace(data=packed.data * 2)
    out, _ = gru(packed)
    return pad_packed_sequence(out, True)


def rows_of_results(x, lengths, gru):
    out, last = gru(pack_padded_sequence(x, lengths, True, False))
    return out.data.relu(), out.data.size(0), out.batch_sizes, last


def packed_results(x, lengths, gru):
    return gru(pack_padded_sequence(x, lengths, True, False))[0]


def sizes_as_list(x, lengths, gru):
    out, _ = gru(pack_padded_sequence(x, lengths, True, False))
    return pad_packed_sequence(out, True)[0] * sum(out.batch_sizes.tolist())


def packed_and_padded(x, lengths, gru):
    packed = pack_padded_sequence(x + 1, lengths, True, False)
    return pad_packed_sequence(packed, True), pad_packed_sequence(packed, False, -1.0)


def written_afterwards(x, lengths, gru):
    y = x * 2
    packed = pack_padded_sequence(y, lengths, True, False)
    y.zero_()
    return pad_packed_sequence(gru(packed)[0], True)[0] + y.sum()


def written_results(x, lengths, gru):
    out, _ = gru(pack_padded_sequence(x, lengths, True, False))
    first, _ = pad_packed_sequence(out, True)
    first.mul_(2)
    out.data.add_(1)
    return first, pad_packed_sequence(out, True)


def padded_of(x, lengths, gru, **options):
    out, _ = gru(pack_padded_sequence(x, lengths, True, False))
    return pad_packed_sequence(out, True, **options)


def sizes_asked(x, lengths, gru):
    out, steps = padded_of(x, lengths, gru)
    mask = torch.arange(out.size(1)) < steps[:, None]
    return out.masked_fill(~mask[..., None], 3.0), out.relu().shape, out.numel()


def pieces(x, lengths, gru):
    out, _ = padded_of(x, lengths, gru)
    return [own * number for number, own in enumerate(out.unbind(1))]


def loop(x, lengths, gru):
    out, _ = padded_of(x, lengths, gru)
    total = out[:, 0] * 0
    for step in range(len(out[0])):
        total = total.tanh() + out[:, step]
    return total


def flat(x, lengths, gru):
    out, _ = padded_of(x + 1, lengths, gru)
    return out.reshape(-1) * 2, out.flatten(1).sum(1), out.cumsum(1)


def largest(x, lengths, gru):
    out, _ = padded_of(x, lengths, gru, padding_value=-float("inf"))
    return out.amax(1), out.transpose(1, 2).contiguous().stride()


def last_steps(x, lengths, gru):
    out, steps = padded_of(x, lengths, gru, total_length=x.size(1))
    return out[torch.arange(len(x)), steps - 1], out.mean(1)


def attention(x, lengths, gru):
    out, _ = padded_of(x, lengths, gru)
    scores = out @ out.transpose(1, 2) / out.shape[-1] ** 0.5
    return torch.cat([scores.softmax(-1) @ out, out], -1)


def twice(x, lengths, gru):
    out, steps = padded_of(x, lengths, gru)
    return padded_of(out[..., :5] + 0.5, steps, gru)


def split_after(x, lengths, gru):
    return torch.tensor_split(x, lengths[:2])[0].sum(0)


@pytest.mark.parametrize(
    "program",
    [
        rows_doubled,
        rows_of_results,
        packed_results,
        sizes_as_list,
        packed_and_padded,
        written_afterwards,
        written_results,
        sizes_asked,
        pieces,
        loop,
        flat,
        largest,
        last_steps,
        attention,
        twice,
        split_after,
    ],
)
def test_what_else_is_done_with_packed_sequences(program):
    model = layers("GRU", batch_first=True).eval()
    for options in ({}, {"inference": "native"}):
        compiled = corsac.compile(lambda x, lengths: program(x, lengths, model), options=options)
        for most, seed in ((6, 0), (6, 1), (5, 2), (6, 3), (4, 1), (6, 0)):
            x, lengths = torch.randn(3, 6, 5), lengths_of(3, most, seed)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(2):
                    expected = program(x, lengths, model)
                    torch.testing.assert_close(compiled(x, lengths), expected, **TOLERANCE)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_of_packed_sequences(kind):
    def step(run, model, x, lengths):
        model.zero_grad()
        out, _, last = run(x, lengths)
        (out.sum() + last[0].sum()).backward()
        return out.detach(), [own.grad.clone() for own in model.parameters()]

    model = Padded(layers(kind, batch_first=True))
    compiled = corsac.compile(model)
    for most, seed in ((6, 0), (6, 1), (5, 2), (6, 3), (4, 1), (6, 0)):
        given = torch.randn(3, 6, 5), lengths_of(3, most, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                expected = step(model, model, *given)
                torch.testing.assert_close(step(compiled, model, *given), expected, **TOLERANCE)


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
