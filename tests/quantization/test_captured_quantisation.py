"""Graph mode on graphs of corsac.capture, whose sizes may be symbols."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

import corsac
from corsac.quantization import get_default_qat_qconfig_mapping, get_default_qconfig_mapping
from corsac.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx, prepare_qat_fx


class Reads(nn.Module):
    """Reads sizes, which tracing cannot follow."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        places = torch.arange(x.size(1), dtype=torch.float32)
        hidden = F.relu(self.first(x + places[:, None]))
        return self.second(hidden).flatten(0, 1)


def captured():
    torch.manual_seed(0)
    model = Reads().eval()
    return model, corsac.capture(model, torch.randn(2, 5, 8), dynamic_shapes={"x": [0, 1]})


def decibels(expected, got):
    return float(10 * torch.log10((expected**2).sum() / ((expected - got) ** 2).sum()))


def test_calibration_of_graphs_for_all_sizes():
    model, graph = captured()
    before = str(graph.graph)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        prepared = prepare_fx(graph, get_default_qconfig_mapping(), (torch.randn(2, 5, 8),))
        for batch, length in [(2, 5), (3, 7), (1, 9)]:
            prepared(torch.randn(batch, length, 8))
        quantised = convert_fx(prepared)
        assert str(graph.graph) == before
        x = torch.randn(4, 6, 8)
        assert decibels(model(x), quantised(x)) > 20.0
    targets = [str(node.target) for node in quantised.graph.nodes]
    assert sum("quantize_per_tensor" in own for own in targets) > 4
    integers = [own for own in quantised.state_dict().values() if own.dtype == torch.int8]
    assert [own.shape for own in integers] == [(16, 8), (4, 16)]


def test_training_of_graphs_for_all_sizes():
    _, graph = captured()
    graph.train()
    prepared = prepare_qat_fx(graph, get_default_qat_qconfig_mapping(), (torch.randn(2, 5, 8),))
    prepared(torch.randn(3, 4, 8)).sum().backward()
    gradients = [own.grad for own in prepared.parameters()]
    assert all(own is not None and bool((own != 0).any()) for own in gradients)


def test_fusion_leaves_the_graph_as_it_was():
    model, graph = captured()
    before = str(graph.graph)
    fused = fuse_fx(graph)
    x = torch.randn(3, 7, 8)
    assert torch.equal(fused(x), model(x))
    assert fused.graph is not graph.graph
    assert str(graph.graph) == before
