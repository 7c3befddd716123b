"""Generated code of real models equals torch.fx's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx

from corsac.fx.graph import Graph

torchvision = pytest.importorskip("torchvision")

MODELS = [
    *("resnet18", "densenet121", "efficientnet_b0", "vit_b_16", "swin_t", "convnext_tiny"),
    *("mobilenet_v3_small", "googlenet", "shufflenet_v2_x0_5", "mnasnet0_5", "maxvit_t"),
]


def copied(source: torch.fx.Graph) -> Graph:
    """The same nodes in a graph of corsac."""
    graph, values = Graph(), {}

    def mapped(args: Any) -> Any:
        return torch.fx.node.map_arg(args, values.__getitem__)

    for node in source.nodes:
        values[node] = graph.create_node(
            node.op, node.target, mapped(node.args), mapped(node.kwargs), node.name, node.type
        )
        values[node].meta.update(node.meta)
    return graph


@pytest.mark.parametrize("name", MODELS)
def test_code_of_model(name: str) -> None:
    with torch.device("meta"):
        model = torchvision.models.get_model(name, weights=None)
    source = torch.fx.symbolic_trace(model).graph
    graph = copied(source)
    for style in ({}, {"verbose": True}, {"record_func": True}, {"colored": True}):
        expected = source.python_code("self", **style)
        actual = graph.python_code("self", **style)
        assert actual.src == expected.src
        assert actual.globals == expected.globals
        assert actual._lineno_map == expected._lineno_map
