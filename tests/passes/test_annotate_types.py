"""Types from signatures, as torch.fx annotates them."""

import pytest
import torch
import torch.fx
import torch.fx.experimental.schema_type_annotation as theirs
import torch.nn.functional as F
import torchvision
from torch import nn

import corsac.fx
import corsac.fx.experimental.schema_type_annotation as ours


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.pool = nn.Linear(4, 4), nn.MaxPool1d(2)
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor):
        y = F.relu(self.linear(x)) + self.inner.weight
        y = F.max_pool1d(self.pool(y), 1)
        y = F.dropout(y, training=False)
        return F.softmax(torch.cos(y), dim=-1)


def types(fx, module, model, **options):
    gm = module.AnnotateTypesWithSchema(fx.symbolic_trace(model), **options).transform()
    # torch.fx drops the types of parameters.
    return [(n.name, n.type) for n in gm.graph.nodes if n.op != "placeholder"], gm


@pytest.mark.parametrize(
    "model", [Everything, torchvision.models.resnet18, torchvision.models.googlenet]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"annotate_functionals": False},
        {"annotate_modules": False},
        {"annotate_get_attrs": False},
    ],
)
def test_types_are_those_of_torch_fx(model, options):
    model = model(**({} if model is not torchvision.models.googlenet else {"init_weights": False}))
    model.eval()
    reference, _ = types(torch.fx, theirs, model, **options)
    subject, gm = types(corsac.fx, ours, model, **options)
    assert subject == reference
    assert options or any(type_ is not None for _, type_ in subject)
    gm.graph.lint()


def test_names_types_and_metadata_stay():
    gm = corsac.fx.symbolic_trace(Everything())
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    relu = gm.graph.find_nodes(op="call_function", target=F.relu)[0]
    relu.type = int
    made = ours.AnnotateTypesWithSchema(gm).transform()
    assert [n.name for n in made.graph.nodes] == [n.name for n in gm.graph.nodes]
    assert made.graph.find_nodes(op="call_function", target=F.relu)[0].type is int
    assert all(n.meta.get("mark") == n.name for n in made.graph.nodes if n.op != "output")
