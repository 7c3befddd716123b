"""Models are as before after they were saved, or refused."""

import pytest
import torch
from torch import nn

import corsac


class Changing(nn.Module):
    """Changes tensors in place, memory, attributes and containers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(16.0).view(4, 4))
        self.register_buffer("count", torch.zeros(4))
        self.calls, self.last, self.names, self.more = 0, None, [1], {"a": [1]}
        self.table = torch.ones(3)

    def forward(self, x):
        self.calls += 1
        self.names.append(x)
        self.more["a"].append(2)
        self.more["b"] = 3
        self.weight.clamp_(-0.1, 0.1)
        self.count.add_(1)
        self.table[0] = 7
        self.last = x * 2
        self.count = self.count + 1
        self.layer = nn.Linear(2, 2)
        self.weight.data = torch.zeros(2, 2)
        return x + self.count + torch.rand(4)


@pytest.mark.parametrize("state", [False, True, ["count"]])
def test_a_refused_model_is_as_before(state, tmp_path):
    model = Changing().eval()
    weight, count, names, random = model.weight, model.count, model.names, torch.get_rng_state()
    attributes = dict(vars(model))
    with pytest.raises(corsac.CompileError):
        corsac.save(model, tmp_path / "model", torch.ones(4), state=state)
    assert vars(model) == attributes and not list(model.children())
    assert model.weight is weight and torch.equal(weight, torch.arange(16.0).view(4, 4))
    assert model.count is count and torch.equal(count, torch.zeros(4))
    assert torch.equal(model.table, torch.ones(3))
    assert model.names is names and names == [1] and model.more == {"a": [1]}
    assert torch.equal(torch.get_rng_state(), random)
    assert not (tmp_path / "model").exists()


def test_a_saved_model_is_as_before(tmp_path):
    class Lazy(nn.Module):
        """Makes a table in its first call, and keeps it."""

        table = None

        def forward(self, x):
            if self.table is None:
                self.table = torch.arange(3.0)
            return x + self.table

    model = Lazy().eval()
    corsac.save(model, tmp_path / "model", torch.ones(3))
    assert "table" not in vars(model)
    loaded = corsac.load(tmp_path / "model")
    assert torch.equal(loaded(torch.ones(3)), torch.tensor([1.0, 2.0, 3.0]))


def test_modules_that_a_function_calls_are_as_before(tmp_path):
    model = Changing().eval()
    with pytest.raises(corsac.CompileError):
        corsac.save(lambda x: model(x), tmp_path / "model", torch.ones(4))
    assert model.calls == 0 and torch.equal(model.weight, torch.arange(16.0).view(4, 4))


class SettingUp(nn.Module):
    """Sets up attributes, a container and a module in its first call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(4))
        self.cache, self.several = None, [None]

    def forward(self, x):
        if self.cache is None:
            self.cache, self.extra = torch.ones(4), nn.Identity()
        if self.several[0] is None:
            self.several[0] = torch.ones(4)
        y = x * self.cache * self.several[0]
        return y + self.counted()

    def counted(self):
        return self.count.add_(1)


class SettingUpAlone(SettingUp):
    def counted(self):
        return self.count


@pytest.mark.parametrize("sizes", [None, {0: {0: "batch"}}])
@pytest.mark.parametrize("kind", [SettingUp, SettingUpAlone])
def test_what_a_first_call_sets_up_is_gone(tmp_path, kind, sizes):
    model = kind().eval()
    state = kind is SettingUp
    x = torch.randn(3, 4)
    corsac.save(model, tmp_path / "m.safetensors", (x,), dynamic_shapes=sizes, state=state)
    assert model.cache is None and model.several == [None]
    assert list(model._modules) == [] and not hasattr(model, "extra")
    assert model.count.tolist() == [0.0] * 4


class Counting(nn.Module):
    """Counts its calls in a buffer of the given memory."""

    def __init__(self, count):
        super().__init__()
        self.register_buffer("count", count)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.norm(x)
        self.count.add_(1)
        return y * self.count


MEMORY = {
    "shared": lambda: torch.zeros(4).share_memory_(),
    "of others": lambda: torch.frombuffer(bytearray(16), dtype=torch.float32),
    "its own": lambda: torch.zeros(4),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("state", [False, True])
def test_buffers_of_any_memory_and_statistics_stay(tmp_path, memory, state):
    count = MEMORY[memory]()
    model = Counting(count).eval()
    model.norm.train(not state)
    address = count.data_ptr()
    x = torch.randn(8, 4)
    if state:
        corsac.save(model, tmp_path / "m.safetensors", (x,), state=True)
    else:
        with pytest.raises(corsac.CompileError):
            corsac.save(model, tmp_path / "m.safetensors", (x,))
    assert model.count is count and count.data_ptr() == address
    assert count.tolist() == [0.0] * 4
    assert model.norm.running_mean.tolist() == [0.0] * 4
    assert model.norm.running_var.tolist() == [1.0] * 4
