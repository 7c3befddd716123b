"""Formulas over symbolic sizes become nodes that compute them."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import corsac.fx as fx


def _dynamic_tensor(shape):
    env = ShapeEnv()
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(shape))
    return FakeTensorMode(shape_env=env).from_tensor(torch.empty(shape), symbolic_context=context)


def test_a_formula_is_recorded_over_the_dimensions_of_an_input():
    tensor = _dynamic_tensor((5, 7))
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = tensor
    sizes = graph.materialize_symints([tensor.shape[0] * tensor.shape[1] + 3, tensor.shape[0], 4])
    graph.output(tuple(sizes))
    assert sizes[2] == 4
    dims = graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)
    assert sorted(node.args[1] for node in dims) == [0, 1]
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert module(torch.empty(2, 9)) == (2 * 9 + 3, 2, 4)


def test_size_nodes_carry_the_example_value():
    tensor = torch.empty(3, 4)
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = tensor
    size, stride = graph.create_size_node(x, 1), graph.create_stride_node(x, 0)
    offset = graph.create_storage_offset_node(x)
    assert [n.meta["example_value"] for n in (size, stride, offset)] == [4, 4, 0]
    assert size.target is torch.ops.aten.sym_size.int


def test_a_symbol_that_no_node_produces_is_an_error():
    tensor = _dynamic_tensor((5,))
    graph = fx.Graph()
    graph.placeholder("x")
    with pytest.raises(AssertionError, match="no node produces"):
        graph.materialize_symints([tensor.shape[0] + 1])
    with pytest.raises(TypeError, match="expected SymInt or int"):
        graph.materialize_symints([1.5])
    assert len(graph.nodes) == 1
