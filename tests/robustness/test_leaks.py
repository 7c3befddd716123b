"""Memory use is constant, and dropped objects are collected."""

import gc
import linecache
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from kit import SUBJECT, needs_subject

pytestmark = needs_subject

ROUNDS = 1000
# Memory that the allocator may keep between rounds; a leak of one graph per round would be 20 times this.
SLACK_BYTES = 6 * 2**20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def net() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(10)))


def assert_flat(work) -> None:
    """Run ``work`` ``ROUNDS`` times: memory, source cache and object counts must not grow.

    Other threads of the process may allocate meanwhile, so memory has to grow three times in a row to count:
    leaks grow every time.
    """
    for _ in range(ROUNDS // 5):
        work()
    grown = []
    while len(grown) < 3:
        gc.collect()
        memory, sources, objects = resident_bytes(), len(linecache.cache), len(gc.get_objects())
        for _ in range(ROUNDS):
            work()
        gc.collect()
        assert len(linecache.cache) <= sources + 5
        kinds = Counter(type(o).__name__ for o in gc.get_objects())
        assert len(gc.get_objects()) <= objects + 500, kinds.most_common(8)
        grown.append(resident_bytes() - memory)
        if grown[-1] <= SLACK_BYTES:
            return
    raise AssertionError(f"memory grew by {grown} bytes in {ROUNDS} rounds each")


def test_tracing_and_dropping():
    model = net()
    assert_flat(lambda: SUBJECT.fx.symbolic_trace(model))


def test_transforming_and_recompiling():
    model = net()

    def work():
        traced = SUBJECT.fx.symbolic_trace(model)
        for node in traced.graph.nodes:
            if node.op == "call_module":
                node.meta["owner"] = node
                with traced.graph.inserting_after(node):
                    new = traced.graph.call_function(torch.relu, (node,))
                node.replace_all_uses_with(new, lambda user, new=new: user is not new)
        traced.graph.eliminate_dead_code()
        traced.recompile()
        traced(torch.ones(1, 2))

    assert_flat(work)


def test_recompiling_one_module():
    traced = SUBJECT.fx.symbolic_trace(net())
    assert_flat(traced.recompile)


def test_copies_and_transformers():
    traced = SUBJECT.fx.symbolic_trace(net())

    def work():
        graph = SUBJECT.fx.Graph()
        graph.output(graph.graph_copy(traced.graph, {}))
        SUBJECT.fx.Transformer(traced).transform()

    assert_flat(work)


def test_failing_traces():
    def fails(x):
        y = x + 1
        return y if y else x

    def work():
        with pytest.raises(SUBJECT.fx.proxy.TraceError):
            SUBJECT.fx.symbolic_trace(fails)

    assert_flat(work)


def test_replacing_patterns():
    def work():
        traced = SUBJECT.fx.symbolic_trace(lambda x: torch.relu(x) + torch.relu(x))
        SUBJECT.fx.replace_pattern(traced, lambda x: torch.relu(x), lambda x: torch.neg(x))

    assert_flat(work)


def collected(make) -> bool:
    """Whether the object that ``make`` returns is freed once it is dropped."""
    reference = weakref.ref(make())
    gc.collect()
    return reference() is None


def test_graphs_are_collected():
    assert collected(lambda: SUBJECT.fx.symbolic_trace(net()))
    assert collected(lambda: SUBJECT.fx.symbolic_trace(net()).graph)
    assert collected(lambda: SUBJECT.fx.Tracer().trace(net()))
    assert collected(SUBJECT.fx.Graph)


def test_cycles_through_nodes_are_collected():
    def node_in_its_own_meta():
        graph = SUBJECT.fx.Graph()
        node = graph.placeholder("x")
        node.meta["self"] = [node, graph]
        node.mine = node
        graph.first = node
        return graph

    def callable_that_knows_its_graph():
        graph = SUBJECT.fx.Graph()

        def target(x):
            return graph

        graph.call_function(target, (graph.placeholder("x"),))
        return graph

    def module_in_its_meta():
        traced = SUBJECT.fx.symbolic_trace(net())
        traced.meta["self"] = traced
        next(iter(traced.graph.nodes)).meta["module"] = traced
        return traced

    assert collected(node_in_its_own_meta)
    assert collected(callable_that_knows_its_graph)
    assert collected(module_in_its_meta)


def test_interpreters_and_proxies_are_collected():
    def interpreter():
        traced = SUBJECT.fx.symbolic_trace(net())
        made = SUBJECT.fx.Interpreter(traced, garbage_collect_values=False)
        made.run(torch.ones(1, 2))
        return made

    def proxy():
        graph = SUBJECT.fx.Graph()
        return SUBJECT.fx.Proxy(graph.placeholder("x")) + 1

    assert collected(interpreter)
    assert collected(proxy)


def test_a_node_keeps_its_graph_alive():
    graph = SUBJECT.fx.Graph()
    node = graph.placeholder("x")
    graph.output(graph.call_function(torch.relu, (node,)))
    del graph
    gc.collect()
    assert [user.name for user in node.users] == ["relu"]
    assert [n.name for n in node.graph.nodes] == ["x", "relu", "output"]


def test_handles_keep_their_identity():
    graph = SUBJECT.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    y.colour = "red"
    identity = id(y)
    del y
    gc.collect()
    (again,) = x.users
    assert id(again) == identity
    assert again.colour == "red"
