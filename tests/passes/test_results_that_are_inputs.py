"""Passes and operators whose result may be their input itself, or a view of it."""

import pytest
import torch
import torch.nn.functional as F

import corsac.analysis
import corsac.fx
from corsac import passes

#: Operators without effect here.
NOTHING_TO_DO = {
    "dropout": lambda x: F.dropout(x, 0.0, True),
    "dropout by keyword": lambda x: F.dropout(x, p=0.0),
    "dropout in evaluation": lambda x: F.dropout(x, 0.5, False),
    "torch.dropout": lambda x: torch.dropout(x, 0.0, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.0, True),
    "torch.alpha_dropout": lambda x: torch.alpha_dropout(x, 0.0, True),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.0, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.0, True),
    "aten.dropout": lambda x: torch.ops.aten.dropout.default(x, 0.0, True),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float32),
    "float": lambda x: x.float(),
    "type_as": lambda x: x.type_as(x),
    "reshape": lambda x: x.reshape(2, 3),
    "reshape_as": lambda x: x.reshape_as(x),
    "expand": lambda x: x.expand(2, 3),
    "broadcast_to": lambda x: torch.broadcast_to(x, (2, 3)),
    "flatten": lambda x: x.flatten(0, 0),
    "squeeze": lambda x: x.squeeze(),
    "movedim": lambda x: torch.movedim(x, 0, 0),
    "narrow": lambda x: x.narrow(0, 0, 2),
    "einsum": lambda x: torch.einsum("ij->ij", x),
    "ravel": lambda x: x.ravel().reshape(2, 3),
    "positive": lambda x: torch.positive(x),
    "+x": lambda x: +x,
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x)[0],
    "unfold": lambda x: x.unfold(0, 1, 1),
    "real": lambda x: torch.real(x),
    "resolve_conj": lambda x: x.resolve_conj(),
    "native_channel_shuffle": lambda x: torch.channel_shuffle(x[None, :, :, None], 1)[0, :, :, 0],
    "lift": lambda x: torch.ops.aten.lift.default(x),
    "pad": lambda x: F.pad(x, (0, 0)),
    "tile": lambda x: torch.tile(x, (1, 1)),
    "repeat_interleave": lambda x: x.repeat_interleave(1, 0),
    "block_diag": lambda x: torch.block_diag(x),
    "cat": lambda x: torch.cat([x]),
    "tensor_split": lambda x: torch.tensor_split(x, 1)[0],
    "interpolate": lambda x: F.interpolate(x[None], 3)[0],
    "normalize": lambda x: F.normalize(x, dim=0),
    "roll": lambda x: torch.roll(x, 0, 0),
    "rot90": lambda x: torch.rot90(x, 0),
    "flip": lambda x: torch.flip(x, ()),
    "matrix_power": lambda x: torch.matrix_power(x[:, :2], 1),
    "chain_matmul": lambda x: torch.linalg.multi_dot([x, x.t(), x]),
    "cumsum": lambda x: x[:1].cumsum(0),
    "sum": lambda x: x.sum(()),
    "combinations": lambda x: torch.combinations(x[0], 1),
    "resize": lambda x: x.resize(2, 3),
    "nan_to_num": lambda x: x.nan_to_num(),
    "clone": lambda x: x.clone(),
}


def module(p):
    class Drops(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(p)

        def forward(self, x):
            y = self.drop(x)
            y.add_(1)
            return x * 2

    return Drops()


@pytest.mark.parametrize("name", NOTHING_TO_DO)
def test_a_write_to_the_result_is_not_dead(name):
    def function(x):
        y = NOTHING_TO_DO[name](x)
        y.add_(1)
        return x * 2

    x = torch.arange(6.0).reshape(2, 3)
    gm = corsac.fx.symbolic_trace(function)
    passes.eliminate_dead_code(gm)
    mine, theirs = x.clone(), x.clone()
    assert torch.equal(gm(mine), function(theirs))
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", NOTHING_TO_DO)
@pytest.mark.parametrize(
    "after", [lambda y: y * 2, lambda y: y.relu() + 1, lambda y: y.add(1)], ids=range(3)
)
def test_what_is_read_later_is_not_overwritten(name, after):
    def function(x):
        x = x + 0
        return after(NOTHING_TO_DO[name](x)), x + 1

    def of_input(x):
        return after(NOTHING_TO_DO[name](x)), x + 1

    for program in (function, of_input):
        x = torch.arange(6.0).reshape(2, 3)
        gm = corsac.fx.symbolic_trace(program)
        corsac.analysis.propagate(gm, x)
        with torch.no_grad():
            passes.reinplace(gm)
            mine = x.clone()
            for got, wanted in zip(gm(mine), program(x.clone()), strict=True):
                assert torch.equal(got, wanted)
            assert torch.equal(mine, x)


@pytest.mark.parametrize("name", NOTHING_TO_DO)
def test_a_result_is_not_shared_where_one_copy_is_written_to(name):
    def function(x):
        first = NOTHING_TO_DO[name](x + 0)
        x = x + 0
        second, third = NOTHING_TO_DO[name](x), NOTHING_TO_DO[name](x)
        second.mul_(3)
        return first, second, third, x + 0

    x = torch.arange(6.0).reshape(2, 3)
    gm = corsac.fx.symbolic_trace(function)
    passes.common_subexpressions(gm)
    for got, wanted in zip(gm(x), function(x), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("p", [0.0, 0])
def test_dropout_modules_that_drop_nothing(p):
    model = module(p).train()
    gm = corsac.fx.symbolic_trace(model)
    passes.eliminate_dead_code(gm)
    x = torch.arange(6.0)
    assert torch.equal(gm(x.clone()), model(x.clone()))
