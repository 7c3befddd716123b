"""deep_copy has the result of copy.deepcopy, for modules that it copies itself and for others."""

import copy

import pytest
import torch
from torch import nn

from corsac.passes._weights import deep_copy


def storages(module):
    return {t.untyped_storage().data_ptr() for t in module.state_dict().values() if t.numel()}


def tied():
    module = nn.BatchNorm2d(4)
    module.running_mean = module.running_var
    return module


def views():
    module = nn.BatchNorm2d(4)
    whole = torch.arange(8.0)
    module.running_mean, module.running_var = whole[:4], whole[4:]
    return module


def same_storage():
    module = nn.BatchNorm2d(4)
    module.running_mean = module.running_var.view(2, 2)
    return module


def with_attribute_on_a_buffer():
    module = nn.BatchNorm2d(4)
    module.running_mean.note = ["a list"]
    return module


def frozen():
    module = nn.Linear(3, 2)
    module.weight.requires_grad_(False)
    return module


def hooked():
    module = nn.Linear(3, 2)
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    "make",
    [
        nn.ReLU,
        lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2),
        lambda: nn.ConvTranspose1d(4, 6, 3),
        lambda: nn.BatchNorm2d(4).eval(),
        lambda: nn.BatchNorm2d(4, track_running_stats=False, affine=False),
        lambda: nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
        lambda: nn.MultiheadAttention(8, 2),
        lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        lambda: nn.LSTM(3, 4),
        frozen,
        hooked,
        tied,
        views,
        same_storage,
        with_attribute_on_a_buffer,
    ],
)
def test_what_copy_gives(make):
    module = make()
    expected, copied = copy.deepcopy(module), deep_copy(module, {})
    assert type(copied) is type(expected)
    assert list(copied.__dict__) == list(expected.__dict__)
    for name, value in expected.__dict__.items():
        own = copied.__dict__[name]
        assert type(own) is type(value), name
        if type(value) in (dict, list, set):
            assert own is not module.__dict__[name], name
    assert repr(copied) == repr(expected)
    assert copied.training == expected.training
    for name, tensor in expected.state_dict(keep_vars=True).items():
        own = copied.state_dict(keep_vars=True)[name]
        assert type(own) is type(tensor)
        assert own.requires_grad == tensor.requires_grad
        assert own.stride() == tensor.stride()
        assert own.__dict__ == tensor.__dict__
        torch.testing.assert_close(own, tensor, rtol=0, atol=0)
    assert not storages(copied) & storages(module)
    assert len(storages(copied)) == len(storages(expected))


def test_what_is_shared_stays_shared():
    memo = {}
    first, second = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    second.running_mean = first.running_mean
    a, b = deep_copy(first, memo), deep_copy(second, memo)
    assert a.running_mean is b.running_mean
    assert a.running_mean is not first.running_mean
    assert deep_copy(first, memo) is a
    # The rest of the model is copied by copy itself, with the same memo.
    assert copy.deepcopy([first.running_mean, second], memo) == [a.running_mean, b]
