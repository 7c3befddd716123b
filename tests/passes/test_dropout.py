"""Dropouts that are the identity are removed."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import corsac.fx
from corsac.passes import remove_dropout


class Net(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = dropout

    def forward(self, x):
        return self.drop(self.linear(x)).relu()


KINDS = [
    nn.Dropout(),
    nn.Dropout(inplace=True),
    nn.Dropout1d(),
    nn.Dropout2d(),
    nn.Dropout3d(),
    nn.AlphaDropout(),
    nn.FeatureAlphaDropout(),
]


@pytest.mark.parametrize("dropout", KINDS, ids=lambda m: type(m).__name__)
def test_modules_in_evaluation_go(dropout):
    model = Net(dropout).eval()
    gm = corsac.fx.symbolic_trace(model)
    report = remove_dropout(gm)
    assert [site.node for site in report.applied] == ["drop"]
    assert [node.name for node in gm.graph.nodes] == ["x", "linear", "relu", "output"]
    x = torch.randn(2, 3)
    assert torch.equal(gm(x), model(x))
    assert not hasattr(gm, "drop")
    assert model.drop is dropout


def test_modules_in_training_stay_unless_asked_for():
    gm = corsac.fx.symbolic_trace(Net(nn.Dropout()).train())
    report = remove_dropout(gm)
    assert [site.reason for site in report.kept] == ["it is in training mode"]
    assert remove_dropout(gm, in_training=True).changed


def test_functions_go_where_they_are_known_not_to_train():
    def program(x):
        a = F.dropout(x, training=False)
        b = F.dropout(a)
        c = F.alpha_dropout(b)
        d = torch.dropout(c, 0.5, False)
        return F.dropout2d(d, 0.5, False)

    gm = corsac.fx.symbolic_trace(program)
    report = remove_dropout(gm)
    assert [site.node for site in report.kept] == ["dropout_1"]
    assert [node.name for node in gm.graph.nodes] == ["x", "dropout_1", "output"]


def test_a_copy_that_is_written_to_is_needed():
    class Writes(Net):
        def forward(self, x):
            y = self.linear(x)
            return self.drop(y).add_(1) + y

    gm = corsac.fx.symbolic_trace(Writes(nn.Dropout(0.0)).train())
    report = remove_dropout(gm, in_training=True)
    assert [site.reason for site in report.kept] == [
        "its input or its result is written to, and they would be one tensor"
    ]
