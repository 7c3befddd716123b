"""Training steps of captured programs in which graphs could differ from eager."""

import copy
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import corsac
from corsac._models.function import module_of


class Program(nn.Module):
    """A function of a linear layer's result."""

    def __init__(self, function, rows=8):
        super().__init__()
        self.first = nn.Linear(6, rows)
        self.register_buffer("factor", torch.linspace(0.5, 1.5, rows))
        self.function = function

    def forward(self, x):
        return self.function(self.first(x), self.factor)


def pair(model, **options):
    torch._dynamo.reset()
    eager, ours = copy.deepcopy(model), copy.deepcopy(model)
    return eager, ours, corsac.compile(ours, options={"training": "native", **options})


def of_eager_and_ours(model, step):
    """Results of ``step`` with a model uncompiled and compiled, with the gradients of parameters."""
    eager, ours, compiled = pair(model)
    found = []
    for own, run in ((eager, eager), (ours, compiled)):
        values = [value.clone() for value in step(run, own)]
        found.append(([*values], [weight.grad for weight in own.parameters()]))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    return compiled


def three_steps(run, model, shape=(5, 6), seed=3):
    """Results of three steps."""
    for at in range(3):
        torch.manual_seed(seed + at)
        x = torch.randn(*shape, requires_grad=True)
        result = run(x)
        result = result[0] if isinstance(result, tuple) else result
        result.square().sum().backward()
        yield result.detach()
        yield x.grad


def _compared(h, factor):
    # A mask of floats: 2.0 counts twice.
    mask = (h * 2).detach().clone().gt_(0)
    return (mask + mask) * h


def _negated(h, factor):
    mask = h.detach().clone().logical_not_()
    return (mask + mask + 1) * h


def _rounded(h, factor):
    return (h * 2).detach().half().mul_(factor) * h


def _transposed(h, factor):
    doubled = h * 2
    kept = doubled.exp()
    doubled.t_()
    return doubled * kept


@pytest.mark.parametrize("function", [_compared, _negated, _rounded, _transposed])
def test_writes_whose_results_have_another_type_or_lie_otherwise(function):
    torch.manual_seed(0)
    rows = 6 if function is _transposed else 8
    of_eager_and_ours(
        Program(function, rows), lambda *own: three_steps(*own, shape=(rows if rows == 6 else 5, 6))
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda h, factor: F.dropout(h),
        lambda h, factor: F.dropout2d(h[None, :, :, None])[0, :, :, 0],
        # The input of dropout is laid out in columns.
        lambda h, factor: F.dropout(h.T, 0.2),
        lambda h, factor: F.dropout(h.reshape(5, 4, 2).permute(2, 0, 1), 0.2),
    ],
)
def test_dropout_draws_what_eager_does(function):
    torch.manual_seed(0)
    compiled = of_eager_and_ours(Program(function).train(), three_steps)
    assert not module_of(compiled)._pieces


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind):
    torch.manual_seed(0)
    of_eager_and_ours(
        kind(6, 5, bidirectional=True).train(), lambda *own: three_steps(*own, shape=(4, 3, 6))
    )


@pytest.mark.filterwarnings("ignore")
def test_gradients_that_a_program_leaves_off():
    def leaving(h, factor):
        torch.set_grad_enabled(False)
        return h * 2

    torch.manual_seed(0)
    compiled = corsac.compile(Program(leaving))
    for _ in range(2):
        try:
            result = compiled(torch.randn(5, 6))
            assert not torch.is_grad_enabled()
            assert not result.requires_grad or result.grad_fn is not None
        finally:
            torch.set_grad_enabled(True)
    assert not module_of(compiled)._trained_graphs()


@pytest.mark.parametrize("penalty", [torch.Tensor.sum, lambda own: (own.norm() - 1) ** 2])
def test_second_derivatives_are_an_error(penalty):
    torch.manual_seed(0)
    _, _, compiled = pair(Program(lambda h, factor: h.tanh()))
    x = torch.randn(5, 6, requires_grad=True)
    # The first call is PyTorch's own.
    compiled(x)
    result = compiled(x)
    (gradient,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        (result.mean() + penalty(gradient)).backward()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.functional.hessian(lambda own: compiled(own).square().sum(), x.detach())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "function", [lambda h, factor: h.tanh() * factor, lambda h, factor: F.dropout(h, 0.5)]
)
def test_checkpoints_around_a_compiled_model(function, reentrant):
    def step(run, model):
        for at in range(3):
            torch.manual_seed(at)
            x = torch.randn(5, 6, requires_grad=True)
            checkpoint(run, x, use_reentrant=reentrant).square().sum().backward()
            yield x.grad

    torch.manual_seed(0)
    compiled = of_eager_and_ours(Program(function).train(), step)
    # A hook that counts saved tensors must not count those of a program compiled in between.
    assert len(module_of(compiled)._trained_graphs()) == int(reentrant)


def test_hooks_of_saved_tensors_see_nothing_of_the_capture():
    torch.manual_seed(0)
    _, _, compiled = pair(Program(lambda h, factor: h.tanh() * factor))
    counts = []
    for _ in range(2):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda own, seen=seen: (seen.append(type(own)), own)[1], lambda own: own
        ):
            result = compiled(torch.randn(5, 6))
        result.sum().backward()
        assert set(seen) <= {torch.Tensor, nn.Parameter}
        counts.append(len(seen))
    assert counts[0] == counts[1] > 0


def test_results_that_are_views_can_be_written_to():
    def step(run, model):
        result = run(torch.ones(5, 6))
        result.mul_(2)
        result.square().sum().backward()
        yield result.detach()

    torch.manual_seed(0)
    for function in (lambda h, factor: h.T, lambda h, factor: (h * 2).view(-1)):
        of_eager_and_ours(Program(function), step)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.split(1, 1)[0],
        lambda x: x.unbind(1)[1],
        lambda x: (x.chunk(2, 1)[1], x * 2),
        lambda x: list(x),
        lambda x: (x * 2).split([1, 3], 1),
        lambda x: [piece[1:] for piece in (x * 2).unbind(1)],
        lambda x: ((x * 2).t().unbind(0)[1], x.sum(0)),
        lambda x: torch.tensor_split(x.exp(), (1, 2), 1),
    ],
)
@pytest.mark.parametrize("training", ["native", "measured"])
def test_pieces_share_memory(function, training):
    compiled = corsac.compile(function, options={"training": training})
    for _ in range(5):
        x = torch.randn(3, 4, requires_grad=True)
        found = []
        for run in (function, compiled):
            pieces = run(x)
            pieces = [pieces] if torch.is_tensor(pieces) else list(pieces)
            memory = [own.untyped_storage().data_ptr() for own in (x, *pieces)]
            places = [(own.storage_offset(), own.stride()) for own in pieces]
            sum(own.square().sum() for own in pieces).backward()
            found.append(([memory.index(own) for own in memory], places, pieces, x.grad))
            x.grad = None
        assert found[0][:2] == found[1][:2]
        torch.testing.assert_close(found[1][2:], found[0][2:])


def _views_without_gradients(h, factor):
    with torch.no_grad():
        part = h[1:]
    return h, part


def _values_of_views_without_gradients(h, factor):
    with torch.no_grad():
        part, turned = h[1:], h.t()
    return (part * 2).sum() + (turned * 3).sum() + h.exp().sum()


@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
@pytest.mark.parametrize("function", [_views_without_gradients, _values_of_views_without_gradients])
@pytest.mark.parametrize("training", ["native", "measured"])
def test_views_made_without_gradients(function, training):
    """The views require gradients, and pass none on."""
    torch.manual_seed(0)
    eager, _, compiled = pair(Program(function), training=training)
    for _ in range(4):
        x = torch.randn(5, 6)
        found = []
        for run, model in ((eager, eager), (compiled, module_of(compiled))):
            model.zero_grad()
            results = run(x)
            results = results if isinstance(results, tuple) else (results,)
            sum(own.square().sum() for own in results).backward()
            kinds = [(own.requires_grad, own.is_leaf) for own in results]
            found.append((kinds, model.first.weight.grad))
        assert found[0][0] == found[1][0]
        torch.testing.assert_close(found[1][1], found[0][1])


def test_results_in_another_order_of_memory_can_be_written_to():
    torch.manual_seed(0)

    def step(run, model):
        for _ in range(3):
            turned, twice = run(torch.ones(5, 6))
            assert twice.stride() == (1, 8) and not twice._is_view()
            twice.mul_(3)
            (turned.sum() + twice.square().sum()).backward()
            yield twice.detach()

    of_eager_and_ours(Program(lambda h, factor: (h.t(), h.t() * 2)), step)


def test_conjugated_gradients():
    def step(run, model):
        result = run(torch.ones(5, 6))
        (result.conj() * 1j).real.sum().backward()
        yield torch.view_as_real(result.detach())

    torch.manual_seed(0)
    of_eager_and_ours(Program(lambda h, factor: torch.complex(h, h * 2)), step)


def test_conjugated_and_negated_inputs_after_others():
    values = torch.randn(5, 6, dtype=torch.complex64)

    def step(run, model):
        for own in (values, values.conj(), values):
            result = run(own.imag)
            result.sum().backward()
            yield result.detach()

    torch.manual_seed(0)
    of_eager_and_ours(Program(lambda h, factor: h.tanh()), step)


def test_inputs_of_a_class_of_their_own_after_others():
    class Own(torch.Tensor):
        pass

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, _, compiled = pair(Program(lambda h, factor: h.tanh()))
        x = torch.randn(5, 6)
        assert type(compiled(x)) is torch.Tensor
        assert type(compiled(x.as_subclass(Own))) is Own
        assert type(compiled(x)) is torch.Tensor


@pytest.mark.filterwarnings("ignore")
def test_hooks_of_all_modules_that_come_later():
    def step(run, model):
        x = torch.ones(5, 6)
        yield run(x).detach()
        hook = nn.modules.module.register_module_forward_hook(
            lambda module, args, result: result * 2 if isinstance(module, nn.Linear) else None
        )
        try:
            result = run(x)
            result.sum().backward()
        finally:
            hook.remove()
        yield result.detach()
        yield run(x).detach()

    torch.manual_seed(0)
    of_eager_and_ours(Program(lambda h, factor: h.tanh()), step)


@pytest.mark.parametrize("training", ["native", "measured"])
@pytest.mark.parametrize("compile", ["corsac", "torch"])
def test_hooks_of_all_modules_are_not_for_parts(compile, training):
    def function(x):
        return (x * 2).exp().tanh()

    torch._dynamo.reset()
    options = {"training": training}
    if compile == "corsac":
        compiled = corsac.compile(function, options=options)
    else:
        compiled = torch.compile(function, backend="corsac", options=options)
    x = torch.randn(3, 4, requires_grad=True)
    seen = []
    for hooked in (False, False, True, True):
        register = nn.modules.module.register_module_forward_hook
        hook = register(lambda module, *_: seen.append(module)) if hooked else None
        compiled(x).sum().backward()
        if hook is not None:
            hook.remove()
    assert seen == []


@pytest.mark.parametrize("training", ["native", "measured"])
@pytest.mark.parametrize(
    ("function", "index"),
    [
        (lambda w, i: w.gather(0, i).exp().sum(), [[7, 0, 0, 0]]),
        (lambda w, i: F.embedding(i, w).exp().sum(), [7]),
        (lambda w, i: w[i].exp().sum(), [7]),
        (lambda w, i: w.index_select(0, i).exp().sum(), [7]),
        (lambda w, i: F.cross_entropy(w, i), [7, 0, 0, 0, 0]),
        (lambda w, i: w.scatter(0, i, 1.0).exp().sum(), [[7, 0, 0, 0]]),
        (lambda w, i: w.index_add(0, i, w[:1]).exp().sum(), [7]),
    ],
)
def test_indices_out_of_range(function, index, training):
    wrong = torch.tensor(index)
    weight = torch.randn(5, 4, requires_grad=True)
    compiled = corsac.compile(function, options={"training": training})
    with pytest.raises((RuntimeError, IndexError)) as expected:
        function(weight, wrong)
    for _ in range(3):
        compiled(weight, torch.zeros_like(wrong)).backward()
        for _ in range(2):
            with pytest.raises(type(expected.value)) as raised:
                compiled(weight, wrong)
            assert str(raised.value) == str(expected.value)
            assert raised.value.__context__ is None


def test_ways_back_in_another_thread():
    def step(run, model):
        result = run(torch.ones(5, 6)).square().sum()
        thread = threading.Thread(target=result.backward)
        thread.start()
        thread.join()
        yield result.detach()

    torch.manual_seed(0)
    of_eager_and_ours(Program(lambda h, factor: h.tanh()), step)


@pytest.mark.parametrize("name", ["weight", "input", "result"])
def test_what_was_saved_and_then_changed(name):
    torch.manual_seed(0)
    eager, ours, compiled = pair(
        nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3), nn.Tanh())
    )
    for model, run in ((eager, eager), (ours, compiled)):
        x = torch.randn(5, 6)
        result = run(x)
        with torch.no_grad():
            {"weight": model[2].weight, "input": x, "result": result}[name].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
