"""Models that torch.ao has quantised, compiled: changes of the model are followed, and what calls write is the model's."""

import copy

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn

import corsac

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fbgemm")]


class Rounding(nn.Module):
    """A module of the user's with the scale of its result as a number, or as a buffer."""

    def __init__(self, buffer):
        super().__init__()
        if buffer:
            self.register_buffer("scale", torch.tensor(0.05))
        else:
            self.scale = 0.05
        self.zero_point, self.calibrating = 10, True

    def forward(self, x):
        if self.calibrating:
            return x
        return torch.quantize_per_tensor(x, self.scale, self.zero_point, torch.quint8)


@pytest.mark.parametrize("buffer", [False, True])
def test_scales_of_modules_of_the_user_are_followed(buffer):
    torch.manual_seed(0)
    model = nn.Sequential(Rounding(buffer), nn.Linear(8, 4), theirs.DeQuantStub()).eval()
    model[1].qconfig = model[2].qconfig = theirs.get_default_qconfig("fbgemm")
    prepared, x = theirs.prepare(model), torch.randn(3, 8)
    prepared(x)
    model = theirs.convert(prepared)
    rounding = model[0]
    rounding.calibrating = False
    with torch.inference_mode():
        fast = corsac.compile(model, options={"inference": "native"})
        fast(x)
        assert torch.equal(fast(x), model(x))
    before = model(x)
    with torch.no_grad():
        if buffer:
            rounding.scale.mul_(4)
        else:
            rounding.scale = 0.2
    assert not torch.equal(model(x), before)
    with torch.inference_mode():
        assert torch.equal(fast(x), model(x))
        rounding.zero_point = 100
        assert torch.equal(fast(x), model(x))


class Cached(nn.Module):
    """A layer that keeps its result in a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x):
        result = self.linear(x)
        self.cache.add_(result)
        return result + self.cache


def test_models_that_write_to_their_buffers_are_read_once():
    torch.manual_seed(0)
    model = theirs.quantize_dynamic(Cached().eval(), {nn.Linear}, torch.qint8)
    other, x = copy.deepcopy(model), torch.randn(3, 8)
    with torch.inference_mode():
        fast = corsac.compile(model, options={"inference": "native"})
        inside = fast._current()
        for _ in range(4):
            torch.testing.assert_close(fast(x), other(x), atol=0.2, rtol=0)
            torch.testing.assert_close(model.cache, other.cache, atol=0.2, rtol=0)
    assert fast._current() is inside


class Stateful(nn.Module):
    """Reads attributes of many kinds, and writes to some."""

    def __init__(self):
        super().__init__()
        self.l, self.act = nn.Linear(4, 4), nn.ReLU()
        self.gain = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))
        self.sizes, self.options, self.pair, self.number = [1.0], {"k": 1.0}, (1.0, 2.0), 1.0
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape[0])
        y = self.l(x) * self.gain * self.sizes[0] * self.options["k"] * self.pair[0]
        return self.act(y * self.number + self.shift)


def _assigned(name, value):
    return lambda model: setattr(model, name, value())


CHANGES = {
    "parameter": _assigned("gain", lambda: nn.Parameter(torch.full((4,), 5.0))),
    "numbers of a parameter": lambda model: model.gain.mul_(3),
    "submodule": _assigned("act", nn.Softplus),
    "buffer": _assigned("shift", lambda: torch.full((4,), 7.0)),
    "numbers of a buffer": lambda model: model.shift.mul_(-3),
    "item of a list": lambda model: model.sizes.__setitem__(0, 5.0),
    "list": _assigned("sizes", lambda: [5.0]),
    "item of a dictionary": lambda model: model.options.update(k=5.0),
    "tuple": _assigned("pair", lambda: (5.0, 1.0)),
    "number": _assigned("number", lambda: -4.0),
    "hook": lambda model: model.register_forward_hook(lambda own, args, out: out * 5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_dynamic_models_are_followed(name):
    torch.manual_seed(0)
    model = theirs.quantize_dynamic(Stateful().eval(), {nn.Linear})
    compiled = corsac.compile(model, options={"inference": "native"})
    x, results = torch.randn(3, 4), []
    with torch.no_grad():
        for number in range(5):
            if number == 3:
                CHANGES[name](model)
            found, calls = compiled(x), model.calls
            expected = model(x)
            # Calls of the compiled model write to attributes, too.
            assert model.calls == calls + 1 == 2 * number + 2
            assert model.seen == [3] * model.calls
            torch.testing.assert_close(found, expected, rtol=0, atol=0.2)
            results.append(found)
    assert not torch.allclose(results[2], results[3], rtol=0, atol=0.3)


class Rounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out, self.act = theirs.QuantStub(), theirs.DeQuantStub(), nn.ReLU()
        self.l, self.f = nn.Linear(4, 4), nn.Linear(4, 4)
        self.f.qconfig = None
        self.gain, self.sizes = nn.Parameter(torch.ones(4)), [1.0]

    def forward(self, x):
        return self.act(self.f(self.out(self.l(self.inside(x)))) * self.gain * self.sizes[0])


STATIC_CHANGES = {
    "parameter": CHANGES["parameter"],
    "submodule": CHANGES["submodule"],
    "item of a list": CHANGES["item of a list"],
    "float layer": _assigned("f", lambda: nn.Linear(4, 4)),
    "numbers of a float layer": lambda model: model.f.weight.mul_(-5),
    "quantised layer": lambda model: setattr(model, "l", _rounded().l),
}


def _rounded():
    model = Rounded().eval()
    model.qconfig = theirs.get_default_qconfig("x86")
    with torch.no_grad():
        prepared = theirs.prepare(model)
        prepared(torch.randn(64, 4))
        return theirs.convert(prepared)


@pytest.mark.parametrize("name", STATIC_CHANGES)
def test_changes_of_static_models_are_followed(name):
    torch.manual_seed(0)
    model = _rounded()
    compiled = corsac.compile(model, options={"inference": "native"})
    x, results = torch.randn(16, 4), []
    with torch.no_grad():
        for number in range(5):
            if number == 3:
                STATIC_CHANGES[name](model)
            found = compiled(x)
            torch.testing.assert_close(found, model(x), rtol=0, atol=0.15)
            results.append(found)
    assert not torch.allclose(results[2], results[3], rtol=0, atol=0.2)
