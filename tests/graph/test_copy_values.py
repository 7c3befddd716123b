"""Copying graphs in which some nodes are replaced by values."""

import torch
import torch.fx

import corsac.fx as fx


def copied(package):
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    added = graph.call_function(torch.add, (x, [y]), {"alpha": x})
    added.meta["note"] = 1
    graph.output((added, x))
    new = package.Graph()
    a = new.placeholder("a")
    values = {x: 3, y: (a, 1)}
    result = new.graph_copy(graph, values)
    copy = values[added]
    return str(result), str(copy.args), str(copy.kwargs), copy.meta, [n.name for n in new.nodes]


def test_nodes_may_stand_for_values_that_are_no_nodes():
    assert copied(fx) == copied(torch.fx)
    assert copied(fx)[0] == "(add, 3)"


def test_the_output_node_is_answered_where_it_is_asked_for():
    for package in (fx, torch.fx):
        graph = package.Graph()
        x = graph.placeholder("x")
        output = graph.output([x])
        new = package.Graph()
        assert new.graph_copy(graph, {x: 5}, return_output_node=True) == ([5], output)
