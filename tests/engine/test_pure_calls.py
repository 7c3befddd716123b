"""Calls known to do nothing but compute are not watched again; all others are."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import corsac
from corsac import _core
from corsac._capture.recorder import Recorder

pytestmark = pytest.mark.recording
X = torch.linspace(-1, 1, 12).reshape(3, 4)


def known(function, *args, **kwargs):
    return _core.pure_call(function, args, kwargs)


def recorded(function, *args):
    with torch.no_grad():
        corsac.compile(function)(*args)


def test_calls_are_known_after_they_were_seen():
    assert known(torch.atan2, X, X + 5) is None
    recorded(lambda x: torch.atan2(x, x + 5), X)
    assert known(torch.atan2, X, X + 5) is True
    # Other sizes, types and strides are different calls.
    assert known(torch.atan2, X[:2], X[:2]) is None
    assert known(torch.atan2, X.t(), X.t()) is None
    assert known(torch.atan2, X.int(), X.int()) is None
    recorded(lambda x: x.unflatten(1, (2, 2)), X)
    assert known(torch.Tensor.unflatten, X, 1, (2, 2)) is False


def test_calls_of_tensors_that_are_stored_as_their_negatives_are_others():
    negative = torch.complex(X, X + 1).conj().imag
    plain = torch.complex(X, X + 1).imag
    assert negative.is_neg() and negative.stride() == plain.stride()
    # A copy of the one, and the other one itself.
    recorded(lambda x: x.resolve_neg() + 1, negative)
    assert known(torch.Tensor.resolve_neg, negative) is None
    assert known(torch.Tensor.resolve_neg, plain) is None
    recorded(lambda x: x.resolve_neg() + 1, plain)
    assert known(torch.Tensor.resolve_neg, plain) is False


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (F.dropout, (X, 0.5), {}),
        (torch.bernoulli, (X.abs(),), {}),
        (torch.nonzero, (X,), {}),
        (torch.where, (X > 0,), {}),
        (F.relu, (X, True), {}),
        (torch.Tensor.add_, (X, 1), {}),
        (F.one_hot, (torch.tensor([0, 2]),), {}),
        (torch.repeat_interleave, (X, torch.tensor([1, 2, 1])), {"dim": 0}),
    ],
)
def test_calls_that_do_more_are_never_known(function, args, kwargs):
    def program(*args):
        return function(*args, **kwargs)

    fresh = [own.clone() if isinstance(own, torch.Tensor) else own for own in args]
    for _ in range(2):
        recorded(program, *fresh)
    assert known(function, *args, **kwargs) is None


def test_a_call_that_writes_is_seen_after_one_that_does_not():
    def program(x, inplace):
        y = x * 2
        F.hardtanh(y, inplace=inplace)
        return y

    for inplace in (False, True, False, True):
        compiled = corsac.compile(program)
        torch.testing.assert_close(compiled(X * 3, inplace), program(X * 3, inplace))


def test_results_that_are_the_argument_or_a_copy_of_it():
    def program(x):
        y = x.contiguous()
        y.add_(1)
        return x, y

    for _ in range(2):
        for make in (X.clone, lambda: X.clone().t()):
            own, other = make(), make()
            compiled = corsac.compile(program)
            for _ in range(2):
                torch.testing.assert_close(compiled(own), program(other))
            torch.testing.assert_close(own, other)


def test_functions_of_the_program_are_watched_each_time():
    counted = []

    def ours(x):
        if torch.overrides.has_torch_function((x,)):
            return torch.overrides.handle_torch_function(ours, (x,), x)
        counted.append(1)
        return x + len(counted)

    assert known(ours, X) is None
    compiled = corsac.compile(lambda x: ours(x) * 2)
    found = [compiled(X) for _ in range(3)]
    for number, own in enumerate(found, 1):
        torch.testing.assert_close(own, (X + number) * 2)
    assert known(ours, X) is None


def test_no_more_calls_are_kept_than_are_of_use():
    for number in range(5000):
        _core.note_pure_call(torch.atan2, (X, number), {}, True)
    assert known(torch.atan2, X, 0) is None and known(torch.atan2, X, 4999) is True


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
        self.scale = torch.full((4,), 1.5)

    def forward(self, x):
        x = F.gelu(self.norm(self.layer(x)) * self.scale)
        first, *others = x.split(1, dim=0)
        x = 1 - x + torch.cat([*others, first])
        x = x[:, None, 1:][..., ::2] + torch.arange(x.shape[0], device=x.device).view(3, 1, 1)
        values, indices = torch.max(x, dim=-1, keepdim=True)
        mask = torch.zeros_like(x, dtype=torch.bool)
        mask[0] = True
        return torch.where(mask, values, indices.to(x.dtype)), x.transpose(0, 1)


def listing(module):
    return [(own.op, str(own.target), own.args, own.kwargs) for own in module.graph.nodes]


def test_calls_that_are_known_become_the_same_nodes(monkeypatch):
    model, looked_at = Model().eval(), []
    with torch.no_grad():
        first = corsac.capture(model, X)
        called = Recorder._called
        monkeypatch.setattr(
            Recorder,
            "_called",
            lambda self, func, *args: looked_at.append(func.__name__) or called(self, func, *args),
        )
        second = corsac.capture(model, X)
        # A write is looked at, and a view of an input or of a weight.
        assert looked_at == ["__setitem__"]
        other = Model().eval()
        other.load_state_dict({name: own * 2 for name, own in model.state_dict().items()})
        third = corsac.capture(other, X * 3)
    text = str(listing(first))
    assert "linear" in text and str(listing(second)) == text == str(listing(third))
    notes = [
        [(own.meta.get("several"), own.source) for own in module.graph.nodes]
        for module in (first, second)
    ]
    assert notes[0] == notes[1] and "forward" in str(notes[0])
    torch.testing.assert_close(second(X + 1), model(X + 1))
    torch.testing.assert_close(third(X), other(X))


def test_pure_calls_of_views_of_inputs_and_weights():
    weight = torch.nn.Parameter(torch.randn(4, 3))

    def program(x):
        y = x.t()
        return y.contiguous() * 2 + weight.t().sum(), y.mul_(3) if x.shape[0] == 2 else y + 1

    with torch.no_grad():
        for make in (lambda: X.clone(), lambda: X[:2].clone(), lambda: X.clone()):
            for _ in range(2):
                compiled, own, other = corsac.compile(program), make(), make()
                for _ in range(2):
                    torch.testing.assert_close(compiled(own), program(other))
                torch.testing.assert_close(own, other)


def test_pure_calls_in_other_circumstances():
    def program(x, kind):
        if kind == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x.t()
        if kind == "default":
            torch.set_default_dtype(torch.float64)
            try:
                return x @ x.t() + torch.arange(3) / 2
            finally:
                torch.set_default_dtype(torch.float32)
        if kind == "gradients":
            with torch.enable_grad():
                return x @ x.t()
        return x @ x.t() + torch.arange(3) / 2

    for kind in ("", "", "autocast", "default", "gradients", "", "vmap", "autocast"):
        compiled = corsac.compile(program)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "vmap":
                batch = torch.stack([X, X + 1])
                found = torch.vmap(compiled, (0, None))(batch, "")
                expected = torch.vmap(program, (0, None))(batch, "")
            else:
                found, expected = compiled(X, kind), program(X, kind)
        assert found.dtype == expected.dtype and found.requires_grad == expected.requires_grad
        torch.testing.assert_close(found, expected)


def test_errors_of_pure_calls_are_pytorchs():
    table = torch.randn(5, 3)

    def program(indices):
        try:
            return F.embedding(indices, table) * 2
        except IndexError as error:
            return torch.tensor(float(len(str(error))))

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for indices in ([1, 2], [3, 4], [1, 7], [0, 1]):
            own = torch.tensor(indices)
            for _ in range(2):
                compiled = corsac.compile(program)
                torch.testing.assert_close(compiled(own), program(own))
