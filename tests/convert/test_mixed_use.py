"""Objects of torch.fx given to corsac, and vice versa: converted, or an error with a hint how to convert."""

import importlib

import pytest
import torch
import torch.fx
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import corsac
import corsac.analysis
import corsac.fx
import corsac.optimum
import corsac.passes

X = torch.randn(2, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        y = self.norm(self.linear(x))
        return y.cos() + y.cos()


@pytest.fixture
def net():
    return Net().eval()


def module(package, name):
    return importlib.import_module(f"{package}.{name}")


def support(package):
    return module(package, "passes.operator_support").OperatorSupport()


def tagged(gm):
    for node in gm.graph.nodes:
        node.tag = "all"
    return gm


def cosines(gm):
    return [node for node in gm.graph.nodes if node.target == "cos"]


def naming(gm):
    """The module with its result renamed, and the result's name."""
    (output,) = gm.graph.find_nodes(op="output")
    output.args = ((output.args[0], {"result": output.args[0]}),)
    return gm


#: The module of each function, and a call of it with a graph module.
TAKERS = {
    "Interpreter": ("interpreter", lambda m, gm: m.Interpreter(gm).run(X)),
    "Transformer": ("interpreter", lambda m, gm: m.Transformer(gm).transform()),
    "ShapeProp": ("passes.shape_prop", lambda m, gm: m.ShapeProp(gm).propagate(X)),
    "FakeTensorProp": (
        "passes.fake_tensor_prop",
        lambda m, gm: m.FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(X),
    ),
    "CSEPass": ("passes.dialect.common.cse_pass", lambda m, gm: m.CSEPass()(gm)),
    "split_module": ("passes.split_module", lambda m, gm: m.split_module(gm, gm, lambda node: 0)),
    "reinplace": ("passes.reinplace", lambda m, gm: m.reinplace(gm, X)),
    "legalize_graph": ("passes.tools_common", lambda m, gm: m.legalize_graph(gm)),
    "replace_pattern": (
        "subgraph_rewriter",
        lambda m, gm: m.replace_pattern(gm, lambda x: x.cos(), lambda x: x.sin()),
    ),
    "CapabilityBasedPartitioner": (
        "passes.infra.partitioner",
        lambda m, gm: m.CapabilityBasedPartitioner(
            gm, support(m.__name__.split(".fx")[0] + ".fx")
        ).propose_partitions(),
    ),
    "split_by_tags": ("passes.split_utils", lambda m, gm: m.split_by_tags(tagged(gm), ["all"])),
    "fuse_by_partitions": (
        "passes.utils.fuser_utils",
        lambda m, gm: m.fuse_by_partitions(gm, [dict.fromkeys(cosines(gm))]),
    ),
    "fuse_as_graphmodule": (
        "passes.utils.fuser_utils",
        lambda m, gm: m.fuse_as_graphmodule(gm, cosines(gm), "part"),
    ),
    "SubgraphMatcherWithNameNodeMap": (
        "passes.utils.matcher_with_name_node_map_utils",
        lambda m, gm: m.SubgraphMatcherWithNameNodeMap(naming(gm)),
    ),
    "get_size_of_all_nodes": (
        "passes.graph_manipulation",
        lambda m, gm: m.get_size_of_all_nodes(gm, [X]),
    ),
}
OF_GRAPHS = {
    "lift_subgraph_as_module": (
        "passes.utils.common",
        lambda m, g: m.lift_subgraph_as_module(corsac.fx.symbolic_trace(Net()), g),
    ),
    "SubgraphMatcher": ("passes.utils.matcher_utils", lambda m, g: m.SubgraphMatcher(g)),
    "get_source_partitions": (
        "passes.utils.source_matcher_utils",
        lambda m, g: m.get_source_partitions(g, [nn.Linear]),
    ),
    "rename_nodes_to_canonical": (
        "passes.canonicalize",
        lambda m, g: m.rename_nodes_to_canonical(g),
    ),
    "GraphModule": ("graph_module", lambda m, g: m.GraphModule(Net(), g)),
}


@pytest.mark.parametrize("name", TAKERS)
def test_corsac_refuses_modules_of_torch_fx(name, net):
    home, call = TAKERS[name]
    gm = torch.fx.symbolic_trace(net)
    before = gm.code
    with pytest.raises(TypeError, match="from_torch"):
        call(module("corsac.fx", home), gm)
    assert name == "SubgraphMatcherWithNameNodeMap" or gm.code == before
    call(module("corsac.fx", home), corsac.fx.from_torch(gm))


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_corsac_refuses_graphs_of_torch_fx(name, net):
    home, call = OF_GRAPHS[name]
    with pytest.raises((TypeError, AssertionError), match="from_torch"):
        call(module("corsac.fx", home), torch.fx.symbolic_trace(net).graph)


@pytest.mark.parametrize("name", TAKERS)
def test_torch_fx_refuses_modules_of_corsac(name, net):
    home, call = TAKERS[name]
    gm = corsac.fx.symbolic_trace(net)
    with pytest.raises(TypeError, match="to_torch"):
        call(module("torch.fx", home), gm)
    # torch.fx's reinplace needs fake weights, and its matcher an exported pattern.
    if name not in ("reinplace", "SubgraphMatcherWithNameNodeMap"):
        call(module("torch.fx", home), corsac.fx.to_torch(gm))


GRAPHS_IN_TORCH = OF_GRAPHS | {
    "graph_copy": ("graph", lambda m, g: m.Graph().graph_copy(g, {})),
    "GraphTypeChecker": (
        "experimental.graph_gradual_typechecker",
        lambda m, g: m.GraphTypeChecker({}, g.owning_module).type_check(),
    ),
}
# Only takes attributes of a graph.
del GRAPHS_IN_TORCH["lift_subgraph_as_module"]


@pytest.mark.parametrize("name", GRAPHS_IN_TORCH)
def test_torch_fx_refuses_graphs_of_corsac(name, net):
    home, call = GRAPHS_IN_TORCH[name]
    gm = corsac.fx.symbolic_trace(net)
    with pytest.raises(TypeError, match="to_torch"):
        call(module("torch.fx", home), gm.graph)


def test_graphs_and_nodes_of_torch_fx_are_not_copied(net):
    theirs = torch.fx.symbolic_trace(net).graph
    graph = corsac.fx.Graph()
    with pytest.raises(TypeError, match=r"graph_copy takes .*from_torch"):
        graph.graph_copy(theirs, {})
    with pytest.raises(TypeError, match=r"node_copy takes .*from_torch"):
        graph.node_copy(next(iter(theirs.nodes)))
    with pytest.raises(TypeError, match="'int' object"):
        graph.node_copy(3)
    assert len(graph.nodes) == 0


OPTIMUM = [
    getattr(corsac.optimum, name)
    for name in corsac.optimum.__all__
    if isinstance(getattr(corsac.optimum, name), type)
    and name not in ("Transformation", "ReversibleTransformation")
]


@pytest.mark.parametrize("transformation", OPTIMUM)
def test_optimum_refuses_modules_of_torch_fx(transformation, net):
    with pytest.raises(TypeError, match="from_torch"):
        transformation()(torch.fx.symbolic_trace(net))


@pytest.mark.parametrize(
    "call",
    [
        corsac.passes.simplify,
        corsac.passes.eliminate_dead_code,
        corsac.passes.reinplace,
        corsac.passes.fold_constants,
        corsac.passes.fuse_conv_bn,
        corsac.passes.functions_to_modules,
        corsac.passes.modules_to_functions,
        lambda gm: corsac.passes.autocast(gm, torch.bfloat16),
        lambda gm: corsac.passes.replace_op(gm, {"cos": "sin"}),
        lambda gm: corsac.passes.effects(next(iter(gm.graph.nodes))),
        lambda gm: corsac.passes.extract_subgraph(gm, cosines(gm), [], cosines(gm)),
    ],
    ids=range(11),
)
def test_passes_refuse_modules_of_torch_fx(call, net):
    with pytest.raises(TypeError, match="from_torch"):
        call(torch.fx.symbolic_trace(net))


def test_what_traces_or_runs_takes_either(net):
    theirs, ours = torch.fx.symbolic_trace(net), corsac.fx.symbolic_trace(net)
    expected = net(X)
    assert torch.equal(corsac.fx.symbolic_trace(theirs)(X), expected)
    assert corsac.summary(theirs, X).to_dict() == corsac.summary(ours, X).to_dict()
    assert corsac.analysis.cost(theirs, X).macs == corsac.analysis.cost(ours, X).macs > 0
    assert corsac.analysis.profile(theirs, X, repeats=1, warmup=0).seconds > 0
    assert [*corsac.analysis.ranges(theirs, X)] == [*corsac.analysis.ranges(ours, X)]
    assert str(corsac.analysis.propagate(theirs, X)) == str(corsac.analysis.propagate(ours, X))
    types = [node.meta["tensor_meta"] for node in ours.graph.nodes]
    assert [node.meta["tensor_meta"] for node in theirs.graph.nodes] == types
    assert torch.equal(torch.fx.symbolic_trace(ours)(X), expected)
    torch.testing.assert_close(corsac.compile(theirs)(X), expected)
    drawer = module("torch.fx", "passes.graph_drawer").FxGraphDrawer
    assert drawer(ours, "net") is not None
    fuse = module("torch.fx", "experimental.optimization").fuse
    torch.testing.assert_close(fuse(ours)(X), expected)


def test_nodes_of_torch_fx_are_no_arguments():
    node = torch.fx.Graph().placeholder("x")
    graph = corsac.fx.Graph()
    with pytest.raises(TypeError, match="from_torch"):
        graph.call_function(torch.relu, (node,))
    with pytest.raises(TypeError, match="from_torch"):
        graph.call_function(torch.cat, ([node],), {"dim": node})
    assert len(graph.nodes) == 0
