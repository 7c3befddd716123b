"""Writes to inputs, to views of values, and at indices: native and in place."""

import pytest
import torch

import corsac
from corsac import fx
from corsac._engine.native_graph import NativeGraph


def compiled(function, inputs):
    """A native program for the whole function, which may write to its inputs."""
    graph = NativeGraph(fx.symbolic_trace(function), precision="f32", strict=True)
    with torch.no_grad():
        return graph.compile(tuple(inputs), whole=True, apart=True)[0]


def check(function, *inputs):
    """Run it natively and by PyTorch: results and inputs are the same afterwards."""
    native, host = ([own.clone() for own in inputs] for _ in range(2))
    program = compiled(function, inputs)
    for _ in range(2):
        with torch.no_grad():
            got, expected = program(*native), function(*host)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        for own, other in zip(native, host, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)
    return program.program


CACHE = torch.randn(2, 3, 8, 4, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(2, 3, 2, 4, generator=torch.Generator().manual_seed(1))
PLACES = torch.tensor([5, 2])


def assign(index, value=None):
    def function(cache, rows, places):
        cache[index] = rows.sum() if value is None else value
        return cache * 2

    return function


def by(change):
    """A function that changes its first argument, and reads it afterwards."""

    def function(cache, rows, places):
        change(cache, rows, places)
        return cache.sum(-1)

    return function


def put_rows(cache, rows, places):
    cache[:, :, places] = rows


def put_slice(cache, rows, places):
    cache[:, :, 3:5] = rows


def put_steps(cache, rows, places):
    cache[:, 1:, ::4, 1] = rows[:, 1:, :, 0]


def put_broadcast(cache, rows, places):
    cache[..., places - 2] = rows[0, 0, 0, :2]


def put_apart(cache, rows, places):
    cache[places - 4, :, places] = rows[:, :, 0]


def put_two(cache, rows, places):
    cache[:, places - 3, places] = rows[:, 0]


def put_masked(cache, rows, places):
    cache[cache > 0] = 0.5


def copy_to_view(cache, rows, places):
    cache[:, :, :2].copy_(rows)


def copy_to_transposed(cache, rows, places):
    view = cache.transpose(1, 2)[:, 4:6]
    view.copy_(rows.transpose(1, 2))


def add_to_view(cache, rows, places):
    view = cache[1]
    other = cache[:, 0]
    view.mul_(2).add_(1)
    cache[0, 0, 0, 0] = other.sum()


def chained(cache, rows, places):
    layer = cache[1].unsqueeze(0)
    layer.index_copy_(2, places, rows[:1])
    layer.relu_()


def shown_elsewhere(cache, rows, places):
    flat = cache.view(6, 8, 4)
    cache.index_fill_(2, places, -1.0)
    cache.add_(flat.view(2, 3, 8, 4).clone())


CHANGES = [
    put_rows,
    put_slice,
    put_steps,
    put_broadcast,
    put_apart,
    put_two,
    put_masked,
    copy_to_view,
    copy_to_transposed,
    add_to_view,
    chained,
    shown_elsewhere,
    lambda cache, rows, places: cache.index_copy_(2, places, rows),
    lambda cache, rows, places: cache.index_add_(2, places, rows),
    lambda cache, rows, places: cache.index_add_(-2, places, rows, alpha=0.5),
    lambda cache, rows, places: cache.index_fill_(3, places - 3, 2.0),
    lambda cache, rows, places: cache.index_fill_(2, places - 8, 2.0),
    lambda cache, rows, places: cache.index_put_((places - 4,), rows[0, 0, 0]),
    lambda cache, rows, places: cache.index_put_((places * 0,), rows[:, :, :1], accumulate=True),
    lambda cache, rows, places: cache.scatter_(2, places.view(1, 1, 2, 1).expand(2, 3, 2, 4), rows),
    lambda cache, rows, places: cache.scatter_add_(
        2, places.view(1, 1, 2, 1).expand(2, 3, 2, 4), rows
    ),
    lambda cache, rows, places: cache.masked_fill_(cache < 0, -2.0),
    lambda cache, rows, places: cache.copy_(cache.flip(0)),
    lambda cache, rows, places: cache.zero_(),
    lambda cache, rows, places: cache[0].fill_(3),
    lambda cache, rows, places: cache.mul_(2),
]


@pytest.mark.parametrize("change", CHANGES)
def test_writes_to_inputs(change):
    check(by(change), CACHE, ROWS, PLACES)


@pytest.mark.parametrize("change", CHANGES)
def test_writes_to_values(change):
    def function(cache, rows, places):
        own = cache + 1
        change(own, rows, places)
        return own.sum(-1), own

    check(function, CACHE, ROWS, PLACES)


@pytest.mark.parametrize(
    "index", [0, -1, slice(1, None), (0, slice(None), 2), (..., 1), (None, 1), None, ...]
)
@pytest.mark.parametrize("value", [None, 3, 2.5, True])
def test_assignments(index, value):
    check(assign(index, value), CACHE, ROWS, PLACES)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("change", [put_rows, put_slice, copy_to_transposed, CHANGES[12]])
def test_other_types(change, dtype):
    check(by(change), (CACHE > 0).to(dtype), (ROWS > 0).to(dtype), PLACES)


def test_a_cache_is_written_where_it_is():
    program = check(by(put_rows), CACHE, ROWS, PLACES)
    # The sums are computed in the result's memory.
    assert program.arena_bytes == 0
    assert program.writes


def test_what_was_there_is_kept_where_it_is_read():
    def function(cache, rows, places):
        before = cache.clone()
        cache.index_copy_(2, places, rows)
        return before + cache

    check(function, CACHE, ROWS, PLACES)


def test_two_inputs_change_places():
    def function(a, b):
        before = a.clone()
        a.copy_(b)
        b.copy_(before)
        return a - b

    check(function, CACHE, CACHE.flip(0))


def test_one_write_is_seen_in_another():
    def function(a, b):
        a.add_(1)
        b.copy_(a)
        a.add_(1)
        return a * b

    check(function, CACHE, CACHE.flip(0))


def test_nothing_is_written():
    def function(cache, rows, places):
        cache.index_copy_(2, places, rows)
        cache[:, :, 3:3] = 1.0
        return cache.sum()

    check(function, CACHE, ROWS[:, :, :0], PLACES[:0])
    check(function, CACHE[:0], ROWS[:0], PLACES)


def run_dynamo(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="corsac", options={"inference": "native"}, dynamic=False)


def both(function, *inputs):
    """Results or errors of a Dynamo graph and of PyTorch for the same inputs, and the inputs."""
    found = []
    for way in (run_dynamo(function), function):
        own = [tensor.clone() for tensor in inputs]
        try:
            with torch.no_grad():
                result = way(*own)
        except Exception as error:
            result = type(error)
        found.append((result, own))
    return found


def test_indices_that_are_out_of_range():
    def function(cache, rows, places):
        cache.index_copy_(2, places, rows)
        return cache + 1

    (got, cache), (expected, before) = both(function, CACHE, ROWS, PLACES + 4)
    assert got is expected is IndexError
    assert torch.equal(cache[0], before[0])

    def later(change):
        def function(cache, rows, places):
            cache.add_(1)
            change(cache, rows, places)
            return cache + 1

        return function

    (got, cache), (expected, before) = both(later(put_rows), CACHE, ROWS, PLACES + 4)
    assert got is expected is IndexError
    assert torch.equal(cache[0], before[0])


def test_inputs_that_share_memory_and_versions():
    def function(cache, other):
        cache.add_(1)
        return cache * other

    run = run_dynamo(function)
    with torch.no_grad():
        for make in (lambda a: (a, a[:]), lambda a: (a, a.clone()), lambda a: (a.mT, a.mT.clone())):
            (a, b), (c, d) = make(torch.ones(3, 3)), make(torch.ones(3, 3))
            version = a._version
            assert torch.equal(run(a, b), function(c, d))
            assert torch.equal(a, c)
            assert a._version > version
    with torch.inference_mode():
        made = torch.ones(3, 3)
        run(made, torch.ones(3, 3))
        assert torch.equal(made, torch.full((3, 3), 2.0))
    with torch.no_grad(), pytest.raises(RuntimeError, match="inference"):
        run(made, torch.ones(3, 3))


def test_a_static_cache_of_a_model():
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))
            self.register_buffer("keys", torch.zeros(2, 4, 32, 4))
            self.register_buffer("values", torch.zeros(2, 4, 32, 4))

        def forward(self, x, at):
            q, k, v = (f(x).view(2, -1, 4, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
            self.keys.index_copy_(2, at, k)
            self.values[:, :, at] = v
            mask = torch.arange(32) <= at[:, None]
            out = torch.nn.functional.scaled_dot_product_attention(q, self.keys, self.values, mask)
            return out.transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    model = Attention().eval()
    expected_model = Attention().eval()
    expected_model.load_state_dict(model.state_dict())
    fast = corsac.compile(model, options={"inference": "native"})
    with torch.no_grad():
        for step in range(6):
            x, at = torch.randn(2, 1, 16), torch.tensor([step])
            torch.testing.assert_close(fast(x, at), expected_model(x, at), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(model.keys, expected_model.keys)
            torch.testing.assert_close(model.values, expected_model.values)
    assert "PyTorch runs" not in fast.explain(), fast.explain()


@pytest.mark.parametrize(
    "change, raised",
    [
        (lambda x, rows, places: x.index_copy_(2, places, rows), IndexError),
        (lambda x, rows, places: x.index_fill_(2, places, 1.0), IndexError),
        (lambda x, rows, places: x.index_add_(2, places, rows), IndexError),
        (lambda x, rows, places: x.scatter_(2, places.expand(2, 3, 1, 2), 1.0), RuntimeError),
    ],
)
def test_what_is_raised_after_another_write(change, raised):
    def function(cache, rows, places):
        cache.add_(1)
        change(cache, rows, places)
        return cache + 1

    (got, _), (expected, _) = both(function, CACHE, ROWS, PLACES + 4)
    assert got is expected is raised


def test_names_that_an_assignment_went_through_are_read_anew():
    def function(cache, rows, places):
        row = cache[0, 0]
        row[1] = 3.0
        part = row.relu_()
        part[0] = -1.0
        return part * 2 + row

    check(function, CACHE, ROWS, PLACES)


def test_the_memory_of_one_input_is_not_used_for_another():
    def function(a, b, places):
        a.add_(1)
        b.masked_fill_(a.gt(0), 2.0)
        b.index_add_(2, places, b[:, :, :2].clone())
        a.zero_()
        return b.sum()

    check(function, CACHE, CACHE * 2 - 1, PLACES)


@pytest.mark.recording
def test_results_that_are_copies_are_apart():
    def function(x):
        y = x * 2 + 1
        return y, y.clone(), y

    for way in (corsac.compile(function, options={"inference": "native"}), run_dynamo(function)):
        with torch.no_grad():
            for _ in range(3):
                first, copied, again = way(ROWS)
                first.zero_()
                assert again is first
                torch.testing.assert_close(copied, ROWS * 2 + 1)


@pytest.mark.recording
def test_views_of_inputs_are_returned_beside_native_parts():
    def function(x):
        view = x.unsqueeze(0)
        y = (x * 2 + 1).relu() - 3
        return view.squeeze(0), y, torch.special.i0e(y)

    compiled = corsac.compile(function, options={"inference": "native"})
    x = ROWS.clone()
    with torch.no_grad():
        for _ in range(3):
            view, y, _ = compiled(x)
            view[0] = 7.0
            assert torch.equal(x[0], torch.full_like(x[0], 7.0))
            torch.testing.assert_close(y[1:], (ROWS[1:] * 2 + 1).relu() - 3)
    assert "1 native part" in compiled.explain()
