"""Model files with state, and with several programs: ``corsac.save(..., state=True, programs=...)`` and sessions."""

import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import corsac


class Mean(nn.Module):
    """The mean of all inputs so far."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.register_buffer("total", torch.tensor([0.5, 0.0], dtype=dtype))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.total += x
        self.count.add_(1)
        return {"mean": self.total / self.count, "count": self.count}


class Cache(nn.Module):
    def __init__(self, capacity, width, dtype):
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, capacity, width, dtype=dtype))
        self.register_buffer("values", torch.zeros(1, capacity, width, dtype=dtype))


class Decoder(nn.Module):
    """Attention over a cache, of the tokens at ``positions``."""

    def __init__(self, capacity=8, width=16, dtype=torch.float32):
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.projection = nn.Linear(width, 3 * width)
        self.cache = Cache(capacity, width, dtype)

    def forward(self, ids, positions):
        query, key, value = self.projection(self.embedding(ids)).chunk(3, -1)
        keys = self.cache.keys.index_copy_(1, positions, key.to(self.cache.keys.dtype))
        values = self.cache.values.index_copy_(1, positions, value.to(self.cache.keys.dtype))
        seen = torch.arange(keys.shape[1]) <= positions[:, None]
        mixed = nn.functional.scaled_dot_product_attention(
            query, keys.to(query.dtype), values.to(query.dtype), seen
        )
        return mixed @ self.embedding.weight.T


class Last(nn.Module):
    """The scores of the last token only."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, ids, positions):
        return self.decoder(ids, positions)[:, -1]


def tokens(*ids):
    return torch.tensor([ids])


SHAPES = {
    "prompt": {
        "ids": {0: "batch", 1: Dim("length", min=2, max=8)},
        "positions": {0: "length"},
        "cache.keys": {0: "batch", 1: Dim("capacity", min=8, max=64)},
        "cache.values": {0: "batch", 1: "capacity"},
    },
    "token": {"ids": {0: "batch"}},
}


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    return Decoder().eval()


@pytest.fixture(scope="module")
def decoder_file(decoder, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "decoder.safetensors"
    programs = {
        "prompt": (tokens(1, 2, 3).repeat(2, 1), torch.arange(3)),
        "token": (Last(decoder).eval(), (tokens(4).repeat(2, 1), torch.tensor([3]))),
    }
    decoder.cache.keys.data = decoder.cache.keys.data.repeat(2, 1, 1)
    decoder.cache.values.data = decoder.cache.values.data.repeat(2, 1, 1)
    corsac.save(decoder, path, programs=programs, state=True, dynamic_shapes=SHAPES)
    return path


def expected(decoder, ids, capacity):
    decoder.cache.keys = torch.zeros(len(ids), capacity, 16)
    decoder.cache.values = torch.zeros(len(ids), capacity, 16)
    with torch.no_grad():
        return decoder(ids, torch.arange(ids.shape[1]))


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_tokens_one_by_one_are_those_of_the_whole_sequence(decoder, decoder_file, framework):
    model = corsac.load(decoder_file, framework=framework)
    assert list(model.programs) == ["prompt", "token"]
    assert model.programs["token"].state == ["cache.keys", "cache.values"]
    assert model.programs["token"].written == ["cache.keys", "cache.values"]
    assert model.sizes == {"batch": (1, None), "capacity": (8, 64)}
    given = (lambda own: own.numpy()) if framework == "numpy" else (lambda own: own)
    for batch, capacity in [(1, 8), (3, 12)]:
        ids = torch.randint(0, 11, (batch, 8))
        whole = expected(decoder, ids, capacity)
        session = model.session(batch=batch, capacity=capacity)
        begin = session.run(given(ids[:, :5]), given(torch.arange(5)))
        assert type(begin) is (np.ndarray if framework == "numpy" else torch.Tensor)
        torch.testing.assert_close(torch.as_tensor(begin), whole[:, :5])
        for at in range(5, 8):
            own = session.run(
                given(ids[:, at : at + 1]), given(torch.tensor([at])), program="token"
            )
            torch.testing.assert_close(torch.as_tensor(own), whole[:, at])
        torch.testing.assert_close(torch.as_tensor(session.state["cache.keys"]), decoder.cache.keys)


def test_weights_of_several_programs_are_stored_once(decoder, decoder_file):
    weights = sum(own.numel() * 4 for own in decoder.parameters())
    assert decoder_file.stat().st_size < weights + 20_000


def test_state_is_kept_and_returned_as_the_model_does(tmp_path):
    model, path = Mean().eval(), tmp_path / "mean.safetensors"
    corsac.save(model, path, torch.ones(2), state=True)
    assert model.total.tolist() == [0.5, 0.0]
    assert model.count == 0
    session = corsac.load(path).session()
    for _ in range(3):
        x = torch.rand(2)
        own = session.run(x)
        want = model(x)
        assert own["count"].dtype == torch.int64
        torch.testing.assert_close(own, want)
        torch.testing.assert_close(dict(session.state), dict(model.named_buffers()))
    session.reset()
    assert session.state["total"].tolist() == [0.5, 0.0]
    assert session.state["count"] == 0


def test_state_can_be_read_replaced_forked_and_enlarged(decoder_file):
    session = corsac.load(decoder_file, framework="numpy").session(batch=1, capacity=8)
    session.run(tokens(1, 2), torch.arange(2))
    assert session.sizes == {"batch": 1, "capacity": 8}
    assert list(session.state) == ["cache.keys", "cache.values"]
    fork = session.fork()
    first = fork.run(tokens(3), torch.tensor([2]), program="token")
    assert not session.state["cache.keys"][0, 2].any()
    session.resize(capacity=16)
    keys = session.state["cache.keys"]
    assert keys.shape == (1, 16, 16)
    assert keys[0, :2].any()
    assert not keys[0, 2:].any()
    again = session.run(tokens(3), torch.tensor([2]), program="token")
    np.testing.assert_allclose(first, again, rtol=1e-5, atol=1e-6)
    session.state["cache.keys"] = np.ones((1, 16, 16), np.float32)
    assert (session.state["cache.keys"] == 1).all()
    with pytest.raises(ValueError, match=r"cache.keys: float32\[1, 16, 16\] is needed"):
        session.state["cache.keys"] = np.ones((1, 8, 16), np.float32)
    with pytest.raises(TypeError, match=r"state cache\.keys is float32, not int64"):
        session.state["cache.keys"] = np.ones((1, 16, 16), np.int64)
    with pytest.raises(KeyError):
        session.state["keys"]
    with pytest.raises(ValueError, match="8 is less than 16: state can grow only"):
        session.resize(capacity=8)


def test_wrong_calls_leave_the_state_as_it_was(decoder_file):
    model = corsac.load(decoder_file)
    session = model.session(batch=1, capacity=8)
    session.run(tokens(1, 2), torch.arange(2))
    before = session.state["cache.keys"]
    for error, text, call in [
        (ValueError, "no program 'x'|no program \"x\"", ((tokens(1), torch.tensor([2])), "x")),
        (ValueError, "takes 2 inputs, not 1", ((tokens(1),), None)),
        (TypeError, "input ids is int64, not float32", ((torch.ones(1, 1), tokens(1)), None)),
        (
            ValueError,
            "input cache.keys, dimension 0: batch is 1 here, and 2 in input ids, dimension 0",
            ((tokens(1, 2).repeat(2, 1), torch.arange(2)), None),
        ),
        (ValueError, "out of range", ((tokens(3), torch.tensor([8])), "token")),
        (ValueError, "length: 1 is less than 2", ((tokens(3), torch.tensor([8])), "prompt")),
    ]:
        with pytest.raises(error, match=text):
            session.run(*call[0], program=call[1])
        assert torch.equal(session.state["cache.keys"], before)
    with pytest.raises(ValueError, match="capacity: a value is missing"):
        model.session(batch=1)
    with pytest.raises(TypeError, match="make a session"):
        model(tokens(1, 2), torch.arange(2))


def test_sessions_of_one_model_run_in_threads(decoder_file):
    model = corsac.load(decoder_file)
    alone = model.session(batch=1, capacity=64)
    want = [alone.run(tokens(at % 11), torch.tensor([at]), program="token") for at in range(64)]
    failed = []

    def work():
        session = model.session(batch=1, capacity=64)
        for at in range(64):
            own = session.run(tokens(at % 11), torch.tensor([at]), program="token")
            if not torch.equal(own, want[at]):
                failed.append(at)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_state_of_16_bits_is_rounded_as_pytorch_does(dtype, tmp_path):
    torch.manual_seed(0)
    model, path = Decoder(dtype=dtype).eval(), tmp_path / "half.safetensors"
    corsac.save(model, path, (tokens(1, 2), torch.arange(2)), state=True)
    session = corsac.load(path).session()
    with torch.no_grad():
        for at in range(4):
            inputs = tokens(at, at + 1), torch.arange(at, at + 2)
            torch.testing.assert_close(session.run(*inputs), model(*inputs), rtol=2e-2, atol=2e-2)
    keys = session.state["cache.keys"]
    assert keys.dtype == dtype
    torch.testing.assert_close(keys, model.cache.keys)


def test_names_choose_the_state(tmp_path):
    path = tmp_path / "mean.safetensors"
    corsac.save(Mean().eval(), path, torch.ones(2), state=["count", "total"])
    assert [name for name, _, _ in corsac.load(path).state] == ["total", "count"]
    for state, error, text in [
        (["total"], corsac.CompileError, "writes to its buffer count: state="),
        (["total", "counts"], ValueError, "'counts' is no buffer of the model; near it are count"),
        (False, corsac.CompileError, "writes to a tensor that the program did not make"),
        ("total", TypeError, "state is True or a list of names"),
    ]:
        with pytest.raises(error, match=text):
            corsac.save(Mean().eval(), path, torch.ones(2), state=state)


def test_state_that_is_only_read_is_shared_by_programs(tmp_path):
    class Peek(nn.Module):
        def __init__(self, mean):
            super().__init__()
            self.own = mean

        def forward(self, scale):
            return self.own.total * scale

    mean, path = Mean().eval(), tmp_path / "peek.safetensors"
    programs = {"add": torch.ones(2), "peek": (Peek(mean).eval(), torch.tensor(2.0))}
    corsac.save(mean, path, programs=programs, state=True)
    model = corsac.load(path, framework="numpy")
    assert model.programs["peek"].state == ["total"]
    assert model.programs["peek"].written == []
    session = model.session()
    session.run(np.array([1, 2], np.float32))
    assert session.run(np.float32(2), program="peek").tolist() == [3, 4]


def test_programs_without_state_share_weights(tmp_path):
    path = tmp_path / "two.safetensors"
    layer = nn.Linear(4, 4).eval()
    x = torch.rand(1, 4)
    twice = nn.Sequential(layer, layer).eval()
    programs = {"one": x, "twice": (twice, x), "thrice": (lambda x: layer(twice(x)), x)}
    corsac.save(layer, path, programs=programs)
    session = corsac.load(path).session()
    torch.testing.assert_close(session.run(x), layer(x))
    torch.testing.assert_close(session.run(x, program="twice"), twice(x))
    torch.testing.assert_close(session.run(x, program="thrice"), layer(twice(x)))
    assert len(corsac._core.ModelFile(path).weights) == 2


def test_programs_that_are_none_are_refused(tmp_path):
    path = tmp_path / "none.safetensors"
    layer = nn.Linear(4, 4).eval()
    for programs, shapes, error, text in [
        ({}, None, TypeError, "with at least one"),
        ({"a": nn.Dropout(0.5)}, None, TypeError, "is a Dropout, not a tensor"),
        ({"a": torch.ones(1, 4)}, {"b": {}}, ValueError, "there is no program 'b'"),
        ({"a": (nn.Linear(4, 4), torch.ones(1, 4))}, None, corsac.CompileError, "eval"),
    ]:
        with pytest.raises(error, match=text):
            corsac.save(layer, path, programs=programs, dynamic_shapes=shapes)
    with pytest.raises(TypeError, match="either example_inputs or programs"):
        corsac.save(layer, path)
    assert not path.exists()


def test_what_no_file_can_keep_is_refused(tmp_path):
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = [torch.zeros(2)]

        def forward(self, x):
            self.seen[0].add_(x)
            return x * 2

    class Replaced(Mean):
        def forward(self, x):
            self.total = self.total + x
            return self.total * 1

    class Random(Mean):
        def forward(self, x):
            self.total += x
            return torch.rand(2) + self.total

    class Shared(Mean):
        def __init__(self):
            super().__init__()
            self.part = self.total[:1]

        def forward(self, x):
            self.total += x
            return self.part * 2

    path = tmp_path / "refused.safetensors"
    for model, text in [
        (Hidden(), "is no buffer of it: register it with register_buffer|containers"),
        (Replaced(), "changes state in Python: set 'total'"),
        (Random(), "uses random numbers|random"),
        (Shared(), "shares memory"),
    ]:
        before = {name: own.clone() for name, own in model.named_buffers()}
        with pytest.raises(corsac.CompileError, match=text):
            corsac.save(model.eval(), path, torch.ones(2), state=True)
        torch.testing.assert_close(dict(model.named_buffers()), before)
        assert not path.exists()


def test_state_that_cannot_be_repeated_has_no_symbolic_size(tmp_path):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

        def forward(self, x):
            return self.rows.add_(x) * 2

    path = tmp_path / "rows.safetensors"
    shapes = {"x": {0: "n"}, "rows": {0: "n"}}
    with pytest.raises(corsac.CompileError, match="rows has other elements along dimension 0"):
        corsac.save(Rows().eval(), path, torch.ones(2, 2), state=True, dynamic_shapes=shapes)
    model = Rows().eval()
    model.rows[1] = model.rows[0]
    corsac.save(model, path, torch.ones(2, 2), state=True, dynamic_shapes=shapes)
    session = corsac.load(path).session(n=3)
    assert session.run(torch.zeros(3, 2)).tolist() == [[2, 4]] * 3


class Adding(nn.Module):
    """Adds 1 to a part of a tensor that is a buffer, too."""

    def __init__(self, whole):
        super().__init__()
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[1:3])

    def forward(self, x):
        self.part.add_(1)
        return self.part + x


class Summing(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.other = other

    def forward(self, x):
        return self.other.whole.sum(0) + x


def test_state_that_shares_memory_is_refused_in_other_programs_too(tmp_path):
    own, x = Adding(torch.arange(12.0).reshape(4, 3)).eval(), torch.ones(2, 3)
    with pytest.raises(corsac.CompileError, match=r"state part shares memory with Adding\.whole"):
        corsac.save(
            None,
            tmp_path / "model.safetensors",
            programs={"add": (own, (x,)), "sum": (Summing(own).eval(), (x,))},
            state=True,
        )
    assert torch.equal(own.whole, torch.arange(12.0).reshape(4, 3))


@pytest.mark.parametrize(
    "begin", [[float("nan"), 0.0, 0.0], [0.0, -0.0, 0.0], [float("inf"), 3.4028e38, float("inf")]]
)
def test_initial_values_are_compared_bit_by_bit(begin, tmp_path):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.tensor(begin))

        def forward(self, x):
            return x.sum() + self.b.mul_(1)

    with pytest.raises(corsac.CompileError, match="state b has other elements along dimension 0"):
        corsac.save(
            Scaled().eval(),
            tmp_path / "model.safetensors",
            torch.ones(2),
            state=True,
            dynamic_shapes={"b": {0: Dim("n", min=2, max=9)}},
        )


def test_expanded_buffers_do_not_keep_others_from_being_restored(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.arange(3.0).expand(2, 3))
            self.register_buffer("calls", torch.zeros(3))

        def forward(self, x):
            self.calls.add_(1)
            return self.scale + x + self.calls

    path, x = tmp_path / "model.safetensors", torch.ones(2, 3)
    model = Counting().eval()
    corsac.save(model, path, x, state=True)
    assert torch.equal(model.calls, torch.zeros(3))
    session = corsac.load(path).session()
    for _ in range(3):
        torch.testing.assert_close(session.run(x), model(x))
