"""Programs that write to inputs, buffers and caches without gradients, captured by recording."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import corsac
from corsac._engine.native_graph import NativeGraph, Packed
from corsac._models.function import module_of
from corsac.fx import symbolic_trace

pytestmark = pytest.mark.recording


def native(model):
    return corsac.compile(model, options={"inference": "native"})


def is_recorded(compiled):
    module = module_of(compiled)
    return bool(module._recorded.programs()) and module._dynamo is None and not module._reasons


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.calls.add_(1)
        return self.linear(x) + self.mean


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3)

    def forward(self, x):
        x = self.norm(self.first(x.exp().sin())).relu()
        return (self.last(x) + 1).relu().exp()


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(4, 8))

    def forward(self, x, at):
        self.cache.index_copy_(0, at, self.linear(x))
        return (self.cache.sum(0) + x).relu()


def inputs_of(model, call):
    torch.manual_seed(call)
    if isinstance(model, Normed):
        return (torch.randn(2, 3, 6, 6),)
    x = torch.randn(1 if isinstance(model, Cache) else 4, 8)
    return (x, torch.tensor([call % 4])) if isinstance(model, Cache) else (x,)


@pytest.mark.parametrize("make", [Counts, Normed, Cache])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_buffers(make, mode):
    eager, model = make(), make()
    compiled = native(model)
    with mode():
        for call in range(6):
            same(compiled(*inputs_of(model, call)), eager(*inputs_of(model, call)))
            for own, expected in zip(model.buffers(), eager.buffers(), strict=True):
                same(own, expected)
    assert is_recorded(compiled), compiled.explain()


def test_buffers_that_others_write_to_meanwhile():
    eager, model = Counts(), Counts()
    compiled = native(model)
    with torch.no_grad():
        for call in range(8):
            same(compiled(*inputs_of(model, call)), eager(*inputs_of(model, call)))
            for own in (eager, model):
                own.mean.add_(call)
    assert len(module_of(compiled)._recorded.programs()) == 1


def test_buffers_that_are_only_read_and_change_in_each_call():
    """Buffers are read anew in each call after some programs; parameters are not."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(4))
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return (x * self.scale).relu() + self.weight

    model = Scaled()
    compiled = native(model)
    x = torch.randn(3, 4)
    with torch.no_grad():
        for call in range(12):
            model.scale.fill_(call)
            same(compiled(x), (x * call).relu() + 1)
            programs = module_of(compiled)._recorded.programs()
    before = list(map(id, programs))
    with torch.no_grad():
        model.scale.fill_(7)
        model.weight.fill_(2)
        same(compiled(x), (x * 7).relu() + 2)
        model.weight.fill_(3)
        model.scale.fill_(5)
        same(compiled(x), (x * 5).relu() + 3)
    assert len(programs) == 1 and is_recorded(compiled)
    assert before != list(map(id, module_of(compiled)._recorded.programs()))


def test_weights_that_are_loaded_stay_weights():
    model = Normed().eval()
    compiled = native(model)
    other = Normed().eval()
    with torch.no_grad():
        for own in other.parameters():
            own.mul_(1.5)
        for _ in range(5):
            model.load_state_dict(other.state_dict())
            for call in range(2):
                same(compiled(*inputs_of(model, call)), other(*inputs_of(model, call)))
            for own in other.state_dict().values():
                own.mul_(1.1 if own.is_floating_point() else 1)
    assert not module_of(compiled)._recorded.rewritten()


def test_inputs_are_written_to_and_returned():
    def function(x, y):
        x.add_(y)
        x[0].mul_(2)
        return x, (x * y).sum()

    compiled = native(function)
    with torch.no_grad():
        for call in range(5):
            torch.manual_seed(call)
            x, y = torch.randn(4, 8), torch.randn(4, 8)
            expected, own = function(x.clone(), y), x.clone()
            version = own._version
            found = compiled(own, y)
            same(found, expected)
            same(own, expected[0])
            assert found[0] is own
            assert own._version > version
    assert is_recorded(compiled), compiled.explain()


@pytest.mark.parametrize("views", [(0, 4, 2, 6), (0, 3, 3, 6), (0, 4, 0, 4)])
def test_inputs_that_are_parts_of_one(views):
    def function(x, y):
        x.add_(1)
        z = (y * 2).relu() + x
        y.mul_(0.5)
        return z - x

    compiled = native(function)
    with torch.no_grad():
        for call in range(3):
            compiled(torch.randn(4, 8), torch.randn(4, 8))
            torch.manual_seed(call)
            both = torch.randn(6, 8)
            copy_ = both.clone()
            start, stop, first, last = views
            expected = function(copy_[start:stop], copy_[first:last])
            same(compiled(both[start:stop], both[first:last]), expected)
            same(both, copy_)


def test_memory_of_others():
    """An array and a weight share memory with an input."""
    linear = nn.Linear(4, 4)

    def function(x, y):
        x.add_(1)
        return linear(y).relu() + x

    compiled = native(function)
    with torch.no_grad():
        for _ in range(2):
            compiled(torch.randn(4, 4), torch.randn(4, 4))
        array = np.ones((4, 4), np.float32)
        x, y = torch.from_numpy(array), torch.from_numpy(array)
        expected = linear(torch.full((4, 4), 2.0)).relu() + 2
        same(compiled(x, y), expected)
        other = copy.deepcopy(linear)
        given = torch.randn(4, 4)
        expected = nn.functional.linear(given, other.weight + 1, other.bias).relu()
        expected += other.weight + 1
        same(compiled(linear.weight, given), expected)


def test_layouts_and_modes_that_no_program_is_for():
    def function(x):
        x.mul_(2)
        return (x + 1).relu() * 3

    compiled = native(function)
    with torch.no_grad():
        for make in (
            lambda a: a,
            lambda a: a.mT,
            lambda a: a[:, ::2],
            lambda a: a[:1].expand(1, 4),
        ):
            for _ in range(3):
                whole, copied = torch.ones(4, 4), torch.ones(4, 4)
                same(compiled(make(whole)), function(make(copied)))
                same(whole, copied)
    with torch.inference_mode():
        made = torch.ones(4, 4)
        compiled(made)
    with torch.no_grad(), pytest.raises(RuntimeError, match="inference"):
        compiled(made)
    wanting = torch.ones(4, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        compiled(wanting)


def test_an_index_that_is_out_of_range():
    model, eager = Cache(), Cache()
    compiled = native(model)
    with torch.no_grad():
        for at in (0, 1, 2):
            compiled(torch.ones(1, 8), torch.tensor([at]))
            eager(torch.ones(1, 8), torch.tensor([at]))
        for _ in range(2):
            with pytest.raises(IndexError):
                compiled(torch.ones(1, 8), torch.tensor([9]))
            with pytest.raises(IndexError):
                eager(torch.ones(1, 8), torch.tensor([9]))
            same(model.cache, eager.cache)


def test_operators_that_fail_after_writes():
    """Earlier writes remain, as in PyTorch, and are not made twice."""

    class Looked(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.register_buffer("count", torch.zeros(8))
            self.table = nn.Embedding(4, 8)

        def forward(self, x, at):
            self.count.add_(x[0])
            return self.table(at) + self.count

    model, eager = Looked(), Looked()
    compiled = native(model)
    with torch.no_grad():
        for at in (0, 1, 2, 7, 3, 8):
            x, at = torch.ones(2, 8), torch.tensor([at])
            try:
                expected = eager(x, at)
            except IndexError:
                with pytest.raises(IndexError):
                    compiled(x, at)
            else:
                same(compiled(x, at), expected)
            same(model.count, eager.count)


def sampled(table, x, count):
    out = []
    for _ in range(count):
        chosen = int(torch.multinomial((x @ table).softmax(-1), 1))
        out.append(chosen)
        if chosen == 3:
            break
        x = x + table[:, chosen]
    return out, x


def dropped(x, y):
    mask = torch.rand(4)
    if (mask * x).sum() > 1:
        return x + torch.rand(4), mask
    y.add_(mask)
    if y.sum() > 2:
        y.mul_(0.1)
    return x - mask, torch.rand(2)


def stepped(x, y):
    """Writes before and after values are read, on every path."""
    x.add_(1)
    if x.sum() > 3:
        x.mul_(0.5)
        if (x + y).max() > 1:
            return x * 2 + y
        y.copy_(x)
        return y.relu() - 1
    return x.tanh() + 1


@pytest.mark.parametrize("function", [sampled, dropped, stepped])
def test_values_decide_after_something_was_changed(function):
    """A call that takes another path is not affected: writes and random numbers are undone."""
    compiled = native(function)
    torch.manual_seed(0)
    table = torch.randn(5, 5)
    with torch.no_grad(), warnings.catch_warnings():
        # On some paths the engine computes nothing.
        warnings.simplefilter("ignore")
        for call in range(40):
            torch.manual_seed(call)
            given = (
                (table, torch.randn(5), 3) if function is sampled else torch.randn(2, 4).unbind()
            )
            found, expected = [
                [own.clone() if isinstance(own, torch.Tensor) else own for own in given]
                for _ in range(2)
            ]
            torch.manual_seed(call)
            result = function(*expected)
            following = torch.rand(3)
            torch.manual_seed(call)
            same(compiled(*found), result)
            assert torch.equal(torch.rand(3), following)
            for own, other in zip(found, expected, strict=True):
                same(own, other)
    module = module_of(compiled)
    assert module._dynamo is None, compiled.explain()
    assert len(module._recorded.programs()) > 1


def test_what_is_faster_is_measured_without_traces():
    """While both ways are tried, each call runs once."""
    compiled = corsac.compile(stepped)
    with torch.no_grad():
        for call in range(40):
            torch.manual_seed(call % 5)
            found = torch.randn(2, 4).unbind()
            expected = [own.clone() for own in found]
            found = [own.clone() for own in found]
            same(compiled(*found), stepped(*expected))
            for own, other in zip(found, expected, strict=True):
                same(own, other)


def test_compiling_draws_no_random_numbers():
    def function(x):
        noise = torch.multinomial(x.softmax(0), 1)
        return (x + 1).relu().exp() * noise

    compiled = native(function)
    with torch.no_grad():
        for _ in range(3):
            for own in (function, compiled):
                torch.manual_seed(3)
                own(torch.ones(5))
                after = torch.rand(3)
                if own is function:
                    expected = after
            assert torch.equal(after, expected)


def test_graphs_that_share_packed_weights_number_them_apart():
    """Numbers differ for graphs made at the same time, whichever is compiled first."""
    packed = Packed()
    graphs = []
    for rows in (3, 12):
        model = nn.Module()
        model.table = nn.Parameter(torch.arange(float(rows)))
        model.forward = lambda x, model=model: x.sum() + model.table
        module = symbolic_trace(_Adds(rows))
        graphs.append(NativeGraph(module, precision="f32", strict=False, packed=packed))
    x = torch.ones(2)
    for graph, rows in zip(reversed(graphs), (12, 3), strict=True):
        run, _ = graph.compile((x,), whole=True)
        assert torch.equal(run(x), torch.arange(float(rows)) + 2)


class _Adds(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.table = nn.Parameter(torch.arange(float(rows)))

    def forward(self, x):
        return x.sum() + self.table


def test_marks_for_dynamo_are_no_attributes():
    def function(x):
        kept = torch.zeros(4)
        torch._dynamo.mark_static_address(kept)
        kept.add_(x.sum(0))
        return kept * 2

    compiled = native(function)
    with torch.no_grad():
        for call in range(4):
            x = torch.full((3, 4), float(call))
            same(compiled(x), x.sum(0) * 2)
    assert is_recorded(compiled), compiled.explain()
