"""Gradients in buckets: positions of collectives in backward graphs, without processes."""

from __future__ import annotations

import pytest
import torch

from corsac.distributed import Bucket, average_gradients, plan_buckets
from corsac.distributed._program import Weight
from corsac.fx import Graph

REDUCE = torch.ops._c10d_functional.all_reduce.default
WAIT = torch.ops._c10d_functional.wait_tensor.default
MOVES = (
    torch.ops.aten.reshape.default,
    torch.ops.aten.cat.default,
    torch.ops.aten.mul.Tensor,
    REDUCE,
)


def weight(*shape: int, dtype: torch.dtype = torch.float32) -> Weight:
    return Weight(shape, dtype, "parameter", True)


def backward(order: str = "abcd") -> tuple[Graph, dict[str, int], dict[str, Weight]]:
    """A graph that computes the gradients ``a`` to ``d`` in the given order, a value behind each, and the gradient of an
    input at the end; its results are in another order."""
    graph = Graph()
    value = graph.placeholder("tangents")
    found = {}
    for name in order:
        found[name] = graph.call_function(torch.ops.aten.neg.default, (value,))
        value = graph.call_function(torch.ops.aten.sin.default, (value,))
    graph.output((found["c"], None, found["a"], value, found["d"], found["b"]))
    weights = {
        "a": weight(2, 3),
        "b": weight(6),
        "c": weight(1, 6),
        "d": weight(6),
        "unused": weight(6),
    }
    return graph, {"c": 0, "unused": 1, "a": 2, "d": 4, "b": 5}, weights


def is_early(graph: Graph, gradients: dict[str, int], buckets, results) -> bool:
    """Whether collectives stand directly behind the last gradient of their buckets, and waits behind all else."""
    nodes = list(graph.nodes)
    places = [at for at, node in enumerate(nodes) if node.target is REDUCE]
    for at, bucket in zip(places, buckets, strict=True):
        while nodes[at].target in MOVES:
            at -= 1
        if nodes[at] not in [results[gradients[name]] for name in bucket.names]:
            return False
    first = next(at for at, node in enumerate(nodes) if node.target is WAIT)
    views = (WAIT, torch.ops.aten.slice.Tensor, torch.ops.aten.view.default, "output")
    return all(node.target in views for node in nodes[first:])


def gradients_of(graph: Graph, original: Graph):
    """The results of ``original`` as nodes of a graph made from it."""
    named = {node.name: node for node in graph.nodes}
    return [None if own is None else named[own.name] for own in original.output_node().args[0]]


@pytest.mark.parametrize("order", ["abcd", "dbca", "cadb"])
@pytest.mark.parametrize(
    "limit, sizes", [(1, [1, 1, 1, 1]), (48, [2, 2]), (49, [3, 1]), (999, [4])]
)
def test_collectives_stand_behind_the_last_gradient_of_their_bucket(order, limit, sizes):
    graph, gradients, weights = backward(order)
    text = str(graph)
    buckets = plan_buckets(graph, gradients, weights, limit, limit)
    assert "".join(name for own in buckets for name in own.names) == order
    assert [len(own.names) for own in buckets] == sizes
    made = average_gradients(graph, gradients, buckets, "group", 2)
    assert is_early(made, gradients, buckets, gradients_of(made, graph))
    assert str(graph) == text
    (results,) = made.output_node().args
    assert results[1] is None and results[3].name == graph.output_node().args[0][3].name


def test_the_first_bucket_is_smaller():
    graph, gradients, weights = backward()
    assert [len(own.names) for own in plan_buckets(graph, gradients, weights, 72, 24)] == [1, 3]


def test_buckets_have_one_element_type():
    graph, gradients, weights = backward()
    weights["b"] = weight(6, dtype=torch.bfloat16)
    buckets = plan_buckets(graph, gradients, weights)
    assert [own.names for own in buckets] == [("b",), ("a", "c", "d")]
    assert [own.dtype for own in buckets] == [torch.bfloat16, torch.float32]
    made = average_gradients(graph, gradients, buckets, "group", 2)
    assert is_early(made, gradients, buckets, gradients_of(made, graph))


def test_another_order_of_gradients_keeps_the_order_of_collectives():
    graph, gradients, weights = backward("abcd")
    buckets = plan_buckets(graph, gradients, weights, 48, 48)
    other, *_ = backward("dcba")
    made = average_gradients(other, gradients, buckets, "group", 2)
    started = [node for node in made.nodes if node.target is REDUCE]
    assert [node.name for node in started] == ["averaged_0", "averaged_1"]
    for node, bucket in zip(started, buckets, strict=True):
        (cat,) = (own for own in node.args[0].all_input_nodes)
        copied = [own.args[0].name for own in cat.args[0]]
        wanted = gradients_of(made, other)
        assert copied == [wanted[gradients[name]].name for name in bucket.names]


def test_a_gradient_may_be_an_input_and_may_be_of_two_parameters():
    graph = Graph()
    tangents = graph.placeholder("tangents")
    graph.output((tangents, tangents))
    weights, gradients = {"a": weight(4), "b": weight(4)}, {"a": 0, "b": 1}
    buckets = plan_buckets(graph, gradients, weights, 1, 1)
    for accumulated in (False, True):
        made = average_gradients(graph, gradients, buckets, "group", 2, accumulated=accumulated)
        inputs = [node.name for node in made.find_nodes(op="placeholder")]
        assert inputs == ["tangents", *(["accumulated_a", "accumulated_b"] if accumulated else [])]
        assert [node.target for node in made.nodes].count(REDUCE) == 2


def test_scattered_buckets_are_further_results():
    graph, gradients, weights = backward()
    buckets = plan_buckets(graph, gradients, weights, 48, 48)
    made = average_gradients(graph, gradients, buckets, "group", 5, scattered=True)
    (results,) = made.output_node().args
    value = str(graph.output_node().args[0][3])
    wanted = [None, None, None, value, None, None, "wait_0", "wait_1"]
    assert [own if own is None else str(own) for own in results] == wanted
    # Each stands behind the copy, padded to five parts, of the last gradient of its bucket.
    nodes = [node for node in made.nodes if node.op == "call_function"]
    for number, bucket in enumerate(buckets):
        at = next(at for at, own in enumerate(nodes) if own.name == f"averaged_{number}")
        assert nodes[at].target is torch.ops._c10d_functional.reduce_scatter_tensor.default
        *last, reshape, other, cat, pad, mul = nodes[at - 6 : at]
        assert last[0].name == gradients_of(made, graph)[gradients[bucket.names[-1]]].name
        assert reshape.target is other.target is torch.ops.aten.reshape.default
        assert (pad.args, mul.args[1]) == ((cat, [0, 3]), 1 / 5)


@pytest.mark.parametrize(
    ("ranks", "pieces"),
    [
        (2, [[("a", 0, 0, 5)], [("b", 0, 0, 4)]]),
        (3, [[("a", 0, 0, 3)], [("a", 3, 0, 2), ("b", 0, 2, 1)], [("b", 1, 0, 3)]]),
        (8, [[("a", 0, 0, 2)], [("a", 2, 0, 2)], [("a", 4, 0, 1), ("b", 0, 1, 1)]]),
    ],
)
def test_parts_of_buckets_have_pieces_of_gradients(ranks, pieces):
    bucket = Bucket(("a", "b"), ((5,), (2, 2)), torch.float32)
    found = [list(bucket.own_pieces(rank, ranks)) for rank in range(ranks)]
    assert found[: len(pieces)] == pieces
    assert sum(length for own in found for *_, length in own) == 9


def test_buckets_of_other_gradients_are_refused():
    graph, gradients, weights = backward()
    buckets = plan_buckets(graph, gradients, weights, 48, 48)
    with pytest.raises(ValueError, match=r"gradients which the graph does not have: \['a', 'b'\]"):
        average_gradients(graph, {"c": 0, "d": 4}, buckets, "group", 2)
    with pytest.raises(ValueError, match=r"the graph has others: \['c', 'd'\]"):
        average_gradients(graph, gradients, buckets[:1], "group", 2)
