"""Training steps of programs that change state in Python: captured without Dynamo, with the same state as eager."""

import collections
import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from kit.twice import twice


class Model(nn.Module):
    """A linear layer, and the code of a case."""

    def __init__(self, function, **state):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self.names = tuple(state)

    def forward(self, x):
        return self.function(self, x)

    def state(self):
        """The state changed by the case, without autograd history."""
        return torch.utils._pytree.tree_map_only(
            torch.Tensor,
            lambda own: (own.detach().clone(), own.requires_grad, own.is_leaf),
            {name: getattr(self, name) for name in self.names},
        )


def counts(model, x):
    model.count += 1
    return model.linear(x) * model.count


def remembers(model, x):
    y = torch.tanh(model.linear(x))
    if model.last is not None and model.last.shape == y.shape:
        y = y + model.last
    model.last = y.detach()
    return y


def keeps_a_history(model, x):
    y = model.linear(x)
    model.history.append(y.mean().detach())
    if len(model.history) > 3:
        model.history.pop(0)
    return y + model.history[0]


def keeps_a_queue(model, x):
    model.queue.append(x.shape[0])
    return model.linear(x) * len(model.queue) + model.queue[0]


def keeps_losses(model, x):
    loss = model.linear(x).square().mean()
    model.losses.append(loss.item())
    return loss


def averages(model, x):
    y = model.linear(x)
    model.average = 0.9 * model.average + 0.1 * y.detach().mean(0)
    return y - model.average


def keeps_constants(model, x):
    rows = x.shape[0]
    if rows not in model.constants:
        model.constants[rows] = torch.arange(rows).float()[:, None]
    return model.linear(x) + model.constants[rows]


def keeps_another_loss(model, x):
    y = model.linear(x)
    model.other = y.abs().mean()
    return y


def keeps_its_input(model, x):
    before, model.last = model.last, x
    y = model.linear(x)
    return y if before is None or before.shape != x.shape else y + before


def draws(model, x):
    model.count += 1
    return F.dropout(model.linear(x), 0.5, True) * model.count


def decides(model, x):
    y = model.linear(x)
    if y.sum() > 0:
        model.count += 1
    else:
        model.count -= 1
    return y * 2 if model.count > 0 else y.exp()


def returns_state(model, x):
    model.scale = model.scale * 1.5
    return model.linear(x), model.scale


def catches(model, x):
    try:
        model.log.append(1)
        raise ValueError(x.shape[0])
    except ValueError as error:
        model.log.append(error.args[0])
    finally:
        model.log.append(3)
    return model.linear(x) * len(model.log)


def closes_a_generator(model, x):
    def rows():
        try:
            for number in range(5):
                yield model.linear(x) * number
        finally:
            model.log.append(1)

    for own in rows():
        if own.shape[0] > 2:
            break
    return own + len(model.log)


def orders(model, x):
    model.ordered.move_to_end("a" if x.shape[0] % 2 else "b")
    return model.linear(x) * next(iter(model.ordered.values()))


def calls_a_partial(model, x):
    return model.partial(model, x)


def _partial(state, model, x):
    state["count"] = state.get("count", 0) + 1
    return model.linear(x) * state["count"]


STATE = {
    counts: lambda: {"count": 0},
    remembers: lambda: {"last": None},
    keeps_a_history: lambda: {"history": []},
    keeps_a_queue: lambda: {"queue": collections.deque(maxlen=2)},
    keeps_losses: lambda: {"losses": []},
    averages: lambda: {"average": torch.zeros(4)},
    keeps_constants: lambda: {"constants": {}},
    keeps_another_loss: lambda: {"other": None},
    keeps_its_input: lambda: {"last": None},
    draws: lambda: {"count": 0},
    decides: lambda: {"count": 0},
    returns_state: lambda: {"scale": torch.ones(4)},
    catches: lambda: {"log": []},
    closes_a_generator: lambda: {"log": []},
    orders: lambda: {"ordered": collections.OrderedDict(a=1.0, b=2.0, c=3.0)},
    calls_a_partial: lambda: {"partial": functools.partial(_partial, {})},
}


def steps(model, run, inputs):
    """Losses, gradients and state of steps."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number, given in enumerate(inputs):
        torch.manual_seed(number)
        optimizer.zero_grad()
        result = run(given)
        result = result[0] if isinstance(result, tuple) else result
        loss = result.square().mean()
        if model.function is keeps_another_loss:
            loss = loss + model.other
        loss.backward()
        yield loss.detach(), [own.grad.clone() for own in model.parameters()], model.state()
        optimizer.step()


def pair(function):
    return twice(lambda: Model(function, **STATE[function]()))


def rows(*counts):
    return [torch.randn(count, 4) for count in counts]


def plain(found):
    """The same values, in containers that are compared by element."""
    if isinstance(found, collections.deque):
        return list(found)
    if isinstance(found, functools.partial):
        return found.args
    if isinstance(found, dict):
        return {name: plain(own) for name, own in found.items()}
    return [plain(own) for own in found] if isinstance(found, list | tuple) else found


@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
@pytest.mark.parametrize("function", STATE)
def test_steps_change_state_as_eager_does(function):
    torch._dynamo.reset()
    eager, ours = pair(function)
    compiled = corsac.compile(ours)
    inputs = rows(3, 3, 3, 3, 5, 5, 3, 3, 5, 5, 3, 4)
    for expected, found in zip(
        steps(eager, eager, inputs), steps(ours, compiled, inputs), strict=True
    ):
        torch.testing.assert_close(plain(found), plain(expected), rtol=1e-4, atol=1e-5)
    assert compiled._dynamo is None
    assert compiled._trained.captures.programs()


@pytest.mark.parametrize("function", [remembers, returns_state, keeps_losses])
def test_steps_with_state_are_native(function):
    eager, ours = pair(function)
    compiled = corsac.compile(ours, options={"training": "native"})
    inputs = rows(*[3] * 6)
    for expected, found in zip(
        steps(eager, eager, inputs), steps(ours, compiled, inputs), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    programs = compiled._trained.captures.programs()
    # The first call found another state, in one of them.
    assert len(programs) <= 2
    assert all(own.parts for program in programs for own in program.graphs()[0].graphs)
    known = len(programs)
    list(steps(ours, compiled, rows(3, 3)))
    assert len(compiled._trained.captures.programs()) == known


def test_state_that_autograd_goes_back_through():
    eager, ours = pair(remembers)

    def attached(model, x):
        y = torch.tanh(model.linear(x))
        if model.last is not None:
            y = y + model.last
        model.last = y
        return y

    compiled = corsac.compile(ours)
    found = []
    for model, run in ((eager, eager), (ours, compiled)):
        model.function = attached
        for x in rows_of_seed(5):
            result = run(x)
        result.square().sum().backward()
        found.append((result.detach(), [own.grad for own in model.parameters()]))
        assert model.last is result
    torch.testing.assert_close(found[1], found[0])
    assert compiled._dynamo is None


def test_state_that_is_only_moved_is_not_gone_back_through():
    _, ours = pair(counts)

    def moves(model, x):
        y = model.linear(x)
        model.table.update(last=y)
        model.history[:] = [y]
        model.before, model.now = model.now, y
        return y

    ours.function, ours.table, ours.history = moves, {}, []
    ours.before = ours.now = None
    compiled = corsac.compile(ours)
    for x in rows(*[3] * 6):
        before = ours.now
        result = compiled(x)
        # The graphs of earlier steps have been freed.
        result.square().sum().backward()
        assert ours.table["last"] is ours.history[0] is ours.now is result
        assert ours.before is before
    assert compiled._dynamo is None


def rows_of_seed(count):
    torch.manual_seed(7)
    return rows(*[3] * count)


def test_state_whose_tensors_come_to_want_gradients():
    _, ours = pair(counts)

    def scaled(model, x):
        model.count += 1
        return model.linear(x) * model.factors[0]

    ours.function, ours.factors = scaled, [torch.full((4,), 2.0)]
    compiled = corsac.compile(ours)
    for wants in (False, False, True, True, False):
        ours.factors[0] = torch.full((4,), 3.0, requires_grad=wants)
        x = torch.randn(3, 4)
        result = compiled(x)
        result.sum().backward()
        torch.testing.assert_close(result, ours.linear(x) * 3)
        if wants:
            torch.testing.assert_close(ours.factors[0].grad, ours.linear(x).sum(0))


@pytest.mark.parametrize("kind", [dict, list, tuple])
def test_containers_of_arguments(kind):
    def function(model, batch):
        x, y = batch.values() if isinstance(batch, dict) else batch
        loss = (model.linear(x) - y).square().mean()
        return {"loss": loss, "count": len(batch)} if isinstance(batch, dict) else (loss, y)

    _, ours = pair(counts)
    ours.function = function
    compiled = corsac.compile(ours)
    for number in range(6):
        x, y = rows(3 + number // 4, 3 + number // 4)
        batch = {"x": x, "y": y} if kind is dict else kind((x, y))
        result, expected = compiled(batch), function(ours, batch)
        loss, wanted = (own["loss"] if kind is dict else own[0] for own in (result, expected))
        torch.testing.assert_close(loss, wanted)
        grads = [torch.autograd.grad(own, ours.linear.weight)[0] for own in (loss, wanted)]
        torch.testing.assert_close(*grads)
        if kind is not dict:
            assert result[1] is y
    assert compiled._dynamo is None
    assert len(compiled._trained.captures.programs()) == 2


# Arguments that are written to.


def adds(model, x, q):
    q.add_(1)
    return model.linear(x) + q


def writes_to_a_row(model, x, q):
    q[0].mul_(2)
    return model.linear(x) * q


def copies_what_wants_gradients(model, x, q):
    y = model.linear(x)
    q.copy_(y)
    return y.exp() + q


def assigns_a_column(model, x, q):
    q[:, 1] = x.sum(1)
    return model.linear(q)


def returns_it(model, x, q):
    q.zero_()
    q += x
    return model.linear(x), q, q[1:]


def writes_to_both(model, x, q):
    x.mul_(2)
    q.sub_(x)
    return model.linear(x) + q


def turns_it(model, x, q):
    q.t_()
    return model.linear(x) + q.sum()


def writes_without_gradients(model, x, q):
    with torch.no_grad():
        q.add_(model.linear(x))
    return model.linear(x) * q


def writes_to_state(model, x, q):
    model.kept.add_(1)
    return model.linear(x) * q + model.kept


def writes_to_what_state_is(model, x, q):
    q.add_(1)
    return model.linear(x) + model.kept


WRITING = [adds, writes_to_a_row, copies_what_wants_gradients, assigns_a_column, returns_it]
WRITING += [writes_to_both, turns_it, writes_without_gradients]
WRITING += [writes_to_state, writes_to_what_state_is]


class Writing(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function
        self.kept = torch.ones(3, 4)

    def forward(self, x, q):
        return self.function(self, x, q)


@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
@pytest.mark.parametrize("training", ["native", "measured"])
@pytest.mark.parametrize("function", WRITING)
def test_arguments_that_are_written_to(function, training):
    torch._dynamo.reset()
    eager, ours = twice(lambda: Writing(function))
    compiled = corsac.compile(ours, options={"training": training})
    # The tensor written to has another layout, or is also read otherwise by the program, in some calls.
    kinds = [
        "plain",
        "plain",
        "turned",
        "plain",
        "the same",
        "state",
        "gaps",
        "plain",
        "state",
        "plain",
    ]
    for number, kind in enumerate(kinds):
        found = []
        for model, run in ((eager, eager), (ours, compiled)):
            torch.manual_seed(number)
            model.zero_grad()
            x, q = torch.randn(3, 4), torch.randn(3, 4)
            q = {
                "turned": lambda: torch.randn(4, 3).t(),
                "the same": lambda x=x: x,
                "state": lambda model=model: model.kept.view(3, 4),
                "gaps": lambda: torch.randn(6, 4)[::2],
            }.get(kind, lambda q=q: q)()
            version = q._version
            try:
                results = run(x, q)
                results = results if isinstance(results, tuple) else (results,)
                sum(own.square().sum() for own in results).backward()
            except RuntimeError as error:
                # Written to after it was read, or of another shape.
                model.kept = torch.ones(3, 4)
                found.append(((type(error), str(error).split(":")[0]), []))
                continue
            model.kept = model.kept.detach()
            values = [own.detach().clone() for own in (*results, x, q, model.kept)]
            places = [own.untyped_storage().data_ptr() for own in results]
            shared = [own == q.untyped_storage().data_ptr() for own in places]
            seen = [own.stride() for own in (*results, q)], shared, q._version > version
            found.append((seen, values, model.linear.weight.grad))
        assert found[1][0] == found[0][0], kind
        torch.testing.assert_close(found[1][1:], found[0][1:], rtol=1e-4, atol=1e-5)
    assert compiled._dynamo is None


# Programs for which Dynamo differs from eager are left to PyTorch.


class Place:
    """Records a place, and counts its uses."""

    def __init__(self):
        self.asked = 0

    def __index__(self):
        self.asked += 1
        return 1


def with_a_class():
    class Held:
        count = 0

    def function(x):
        Held.count += 1
        return x * Held.count

    return function, lambda: Held.count


def with_a_place():
    place = Place()
    return lambda x: x[place:] * place.asked, lambda: place.asked


def with_an_iterator():
    iterator = itertools.count()
    return lambda x: x * next(iterator), lambda: repr(iterator)


def with_a_generator():
    return lambda x: (x * number for number in range(3)), lambda: None


@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("make", [with_a_class, with_a_place, with_an_iterator, with_a_generator])
def test_what_dynamo_takes_for_something_else(make, gradients):
    torch._dynamo.reset()
    (eager, known), (function, state) = make(), make()
    compiled = corsac.compile(function)
    for count in (3, 3, 3, 4, 4, 5, 3):
        x = torch.randn(count, 2, requires_grad=gradients)
        found, expected = compiled(x), eager(x)
        assert type(found) is type(expected)
        if not torch.is_tensor(found):
            found, expected = list(found), list(expected)
        torch.testing.assert_close(found, expected)
        assert state() == known()
