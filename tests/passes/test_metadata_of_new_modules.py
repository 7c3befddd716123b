"""Transforms under the names of torch.fx and optimum keep the origin of nodes too; and every public transform
is covered."""

import importlib
import inspect
import pkgutil
import re
import unittest.mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode

import corsac.fx
import corsac.fx.experimental
import corsac.fx.passes
import corsac.optimum
import corsac.passes
from corsac.fx.experimental.accelerator_partitioner import Partitioner
from corsac.fx.experimental.const_fold import split_const_subgraphs
from corsac.fx.experimental.merge_matmul import merge_matmul
from corsac.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from corsac.fx.experimental.optimization import fuse, optimize_for_inference, remove_dropout
from corsac.fx.experimental.partitioner_utils import Device, PartitionerConfig
from corsac.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from corsac.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from corsac.fx.passes.backends.cudagraphs import partition_cudagraphs
from corsac.fx.passes.canonicalize import canonicalize_graph
from corsac.fx.passes.dialect.common.cse_pass import CSEPass
from corsac.fx.passes.fake_tensor_prop import FakeTensorProp
from corsac.fx.passes.graph_manipulation import get_size_of_all_nodes, replace_target_nodes_with
from corsac.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from corsac.fx.passes.operator_support import OperatorSupport
from corsac.fx.passes.reinplace import reinplace
from corsac.fx.passes.shape_prop import ShapeProp
from corsac.fx.passes.split_module import split_module, split_module_simple
from corsac.fx.passes.split_utils import split_by_tags
from corsac.fx.passes.tools_common import legalize_graph, stable_topological_sort
from corsac.fx.passes.utils.fuser_utils import fuse_as_graphmodule, fuse_by_partitions
from corsac.fx.subgraph_rewriter import replace_pattern, replace_pattern_with_filters
from corsac.passes._registry import REGISTRY

IMAGE = torch.randn(2, 2, 4, 4)
FAKES = FakeTensorMode(allow_non_fake_inputs=True)


class Everything(nn.Module):
    """A program that every transform changes."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Dropout()
        self.linear, self.twin, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(2)
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        y = self.drop(self.bn(self.conv(x)))
        scale = torch.exp(self.weight.t())
        a = torch.matmul(torch.cos(y), self.weight)
        b = torch.matmul(F.relu(y), self.weight)
        z = torch.add(self.linear(a) + self.twin(a), b @ scale) / 4.0
        z = torch.split(z, 2, dim=2)[1]
        return self.norm(self.third(z.mean(2)))


def traced():
    torch.manual_seed(0)
    tracer = corsac.fx.Tracer()
    tracer.record_stack_traces = True
    model = Everything().eval()
    gm = corsac.fx.GraphModule(model, tracer.trace(model))
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    return gm


def invert(_):
    gm = corsac.fx.symbolic_trace(lambda x: torch.exp(x) * 2)
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    return corsac.passes.invert(gm), gm


def split_simply(_):
    gm = corsac.fx.symbolic_trace(lambda x: torch.sin(torch.exp(x) * 2))
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    parts = {node: int(node.name == "sin") for node in gm.graph.nodes if "call" in node.op}
    return split_module_simple(gm, parts), gm


def extract(gm):
    nodes = [n for n in gm.graph.nodes if n.name in ("conv", "bn", "drop")]
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return corsac.passes.extract_subgraph(gm, nodes, inputs, nodes[-1:])


def halves(gm):
    """Nodes other than inputs, attributes and outputs, in two halves."""
    nodes = enumerate(gm.graph.nodes)
    others = ("placeholder", "get_attr", "output")
    return {node: int(place >= 8) for place, node in nodes if node.op not in others}


def tagged(gm):
    for node, half in halves(gm).items():
        node.tag = ("first", "second")[half]
    return split_by_tags(gm, ["first", "second"])


class Convolutions(OperatorSupport):
    def is_node_supported(self, submodules, node):
        return node.op == "call_module"


def partitioned(gm):
    return CapabilityBasedPartitioner(
        gm, Convolutions(), allows_single_node_partition=True
    ).partition_and_fuse()


def on_devices(gm):
    get_size_of_all_nodes(gm, (IMAGE,))
    devices = [Device("one", 10**9, 0), Device("two", 10**9, 1)]
    return Partitioner().partition_graph(gm, gm, PartitionerConfig(devices)).module_with_submodules


def fused_parts(gm):
    nodes = [n for n in gm.graph.nodes if n.name in ("conv", "bn", "drop")]
    return fuse_by_partitions(gm, [dict.fromkeys(nodes)])


def first_of(make):
    def transform(gm):
        return make(gm)[0]

    return transform


def in_place(change):
    def transform(gm):
        change(gm)
        return gm

    return transform


def replaced(gm):
    replace_target_nodes_with(gm, "call_function", torch.cos, "call_function", torch.sin)


def matmul_relu(x, y):
    return torch.matmul(F.relu(x), y)


def bmm_clamp(x, y):
    clamped = torch.clamp(x, min=0)
    return torch.transpose(torch.matmul(y.t(), clamped.transpose(-1, -2)), -1, -2)


def merged(gm):
    corsac.fx.passes.shape_prop.ShapeProp(gm).propagate(IMAGE)
    return merge_matmul(gm)


def in_place_operators(gm):
    return reinplace(gm, IMAGE)


def for_cuda_graphs(gm):
    FakeTensorProp(gm, FAKES).propagate(IMAGE)
    with unittest.mock.patch.object(FakeTensorProp, "propagate"):
        return partition_cudagraphs(gm, [IMAGE])


#: Calls of transforms that make another module, or that change one under a name of torch.fx or optimum.
CALLS = {
    AnnotateTypesWithSchema: lambda gm: AnnotateTypesWithSchema(gm).transform(),
    CSEPass: lambda gm: CSEPass()(gm).graph_module,
    CapabilityBasedPartitioner: partitioned,
    FakeTensorProp: in_place(lambda gm: FakeTensorProp(gm, FAKES).propagate(IMAGE)),
    NormalizeArgs: lambda gm: NormalizeArgs(gm).transform(),
    NormalizeOperators: lambda gm: NormalizeOperators(gm).transform(),
    Partitioner: on_devices,
    ShapeProp: in_place(lambda gm: ShapeProp(gm).propagate(IMAGE)),
    annotate_getitem_nodes: in_place(lambda gm: annotate_getitem_nodes(gm.graph)),
    canonicalize_graph: in_place(
        lambda gm: canonicalize_graph(
            gm.graph,
            lambda node, places: (0, node.name),
            lambda node: True,
            skip_rename_ops=frozenset(n.op for n in gm.graph.nodes),
        )
    ),
    corsac.optimum.ChangeTrueDivToMulByInverse: corsac.optimum.ChangeTrueDivToMulByInverse(),
    corsac.optimum.DeepCopy: corsac.optimum.DeepCopy(),
    corsac.optimum.FuseBatchNorm1dInLinear: corsac.optimum.FuseBatchNorm1dInLinear(),
    corsac.optimum.FuseBatchNorm2dInConv2d: corsac.optimum.FuseBatchNorm2dInConv2d(),
    corsac.optimum.FuseBiasInLinear: corsac.optimum.FuseBiasInLinear(),
    corsac.optimum.LintAndRecompile: corsac.optimum.LintAndRecompile(),
    corsac.optimum.MergeLinears: corsac.optimum.MergeLinears(),
    corsac.passes.extract_subgraph: extract,
    corsac.passes.invert: invert,
    corsac.passes.split_balanced: first_of(
        lambda gm: corsac.passes.split_balanced(gm, IMAGE, parts=3)
    ),
    fuse: lambda gm: fuse(gm, no_trace=True),
    fuse_as_graphmodule: first_of(
        lambda gm: fuse_as_graphmodule(
            gm, [n for n in gm.graph.nodes if n.name in ("conv", "bn")], "part"
        )
    ),
    fuse_by_partitions: fused_parts,
    legalize_graph: legalize_graph,
    merge_matmul: merged,
    optimize_for_inference: lambda gm: optimize_for_inference(gm),
    partition_cudagraphs: for_cuda_graphs,
    reinplace: in_place_operators,
    remove_dropout: remove_dropout,
    replace_pattern: in_place(lambda gm: replace_pattern(gm, matmul_relu, bmm_clamp)),
    replace_pattern_with_filters: in_place(
        lambda gm: replace_pattern_with_filters(gm, matmul_relu, bmm_clamp, [lambda *_: True])
    ),
    replace_target_nodes_with: in_place(replaced),
    split_by_tags: tagged,
    split_const_subgraphs: split_const_subgraphs,
    split_module: lambda gm: split_module(gm, gm, halves(gm).get),
    split_module_simple: split_simply,
    stable_topological_sort: stable_topological_sort,
}

#: Functions of modules or graphs that are not transforms: they inspect, convert, or make something else.
NO_TRANSFORMS = [
    "accelerator_partitioner.Partition",
    "const_fold.FoldedGraphModule",
    "const_fold.get_unique_attr_name_in_module",
    "_mkldnn_layout.MklSubgraph",
    "_mkldnn_modules.matches_module_pattern",
    "_mkldnn_modules.modules_to_mkldnn",
    "_model.ParallelModel",
    "_model.parallelize_model",
    "_mkldnn_modules.replace_node_module",
    "_mkldnn_modules.reset_modules",
    "debug.set_trace",
    "graph_gradual_typechecker.GraphTypeChecker",
    "rewriter.RewritingTracer",
    "unify_refinements.check_for_type_equality",
    "unify_refinements.infer_symbolic_types",
    "unify_refinements.infer_symbolic_types_single_pass",
    "unify_refinements.substitute_all_types",
    "graph.Graph",
    "graph_module.GraphModule",
    "graph_drawer.FxGraphDrawer",
    "graph_manipulation.get_size_of_all_nodes",
    "graph_manipulation.get_size_of_node",
    "graph_transform_observer.GraphTransformObserver",
    "pass_base.PassBase",
    "pass_manager.PassManager",
    "_manager.PassManager",
    "_manager.Outcome",
    # PyTorch's, on the program converted to torch.fx, whose nodes have no source locations.
    "regional_inductor.regional_inductor",
    "regional_inductor_invoke_subgraph.regional_inductor_invoke_subgraph",
    "runtime_assert.insert_deferred_runtime_asserts",
    # Its nodes are the existing ones, renamed.
    "canonicalize.rename_nodes_to_canonical",
    "cudagraphs.CudaGraphsSupport",
    "operator_support.OperatorSupport",
    "operator_support.OperatorSupportBase",
    "param_fetch.extract_attrs_for_lowering",
    "param_fetch.lift_lowering_attrs_to_nodes",
    "split_utils.Component",
    "splitter_base.FxNetAccNodesFinder",
    "splitter_base.generate_inputs_for_submodules",
    "tools_common.FxNetAccFusionsFinder",
    "tools_common.get_node_target",
    "common.HolderModule",
    "common.compare_graphs",
    "common.lift_subgraph_as_module",
    "fuser_utils.erase_nodes",
    "fuser_utils.insert_subgm",
    "_matcher.SubgraphMatcher",
    "matcher_with_name_node_map_utils.SubgraphMatcherWithNameNodeMap",
    "source_matcher_utils.get_source_partitions",
    "_transformation.Transformation",
    "_transformation.ReversibleTransformation",
    "_rules.Rule",
    "report.BalanceReport",
    # They capture a model of Hugging Face.
    "_model.GraphModel",
    "_quantizer.Quantizer",
    "_quantizer.quantize",
]

_PROGRAM = re.compile(r"\b(GraphModule|Graph|Module)\b")


def takes_a_program(thing):
    """Whether a function, or a method of a class, is annotated as taking a graph or module."""

    def takes(function):
        parameters = inspect.signature(function).parameters.values()
        return any(_PROGRAM.search(str(parameter.annotation)) for parameter in parameters)

    if not inspect.isclass(thing):
        return takes(thing)
    classes = [cls for cls in thing.__mro__ if cls.__module__.startswith("corsac")]
    methods = [(name, value) for cls in classes for name, value in vars(cls).items()]
    return any(
        takes(value)
        for name, value in methods
        if inspect.isfunction(value) and (name[0] != "_" or name in ("__init__", "__call__"))
    )


def public_transforms():
    packages = corsac.passes, corsac.optimum, corsac.fx.passes, corsac.fx.experimental
    found = set()
    for package in (*packages, corsac.fx.subgraph_rewriter):
        modules = [package]
        inside = getattr(package, "__path__", ())
        for info in pkgutil.walk_packages(inside, f"{package.__name__}."):
            if not info.name.rpartition(".")[2].startswith("_"):
                modules.append(importlib.import_module(info.name))
        for module in modules:
            names = getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"])
            for thing in (getattr(module, name) for name in names):
                own = (getattr(thing, "__module__", None) or "").startswith("corsac.")
                if own and callable(thing) and takes_a_program(thing):
                    found.add(thing)
    return found


def short(thing):
    return f"{thing.__module__.rpartition('.')[2]}.{thing.__qualname__}"


def test_no_public_transform_is_forgotten():
    known = {*CALLS, *REGISTRY.values()}
    others = {short(thing) for thing in public_transforms() - known}
    forgotten = others - set(NO_TRANSFORMS)
    assert not forgotten, "transforms belong into CALLS here or in test_metadata.py"


def nodes_of(gm):
    """The nodes of a module and of the graph modules in it."""
    for module in gm.modules():
        if isinstance(module, corsac.fx.GraphModule):
            yield from module.graph.nodes


@pytest.mark.parametrize("transform", CALLS, ids=short)
def test_origins_survive(transform):
    gm = traced()
    before = {n.name: (n.source, n.stack_trace) for n in gm.graph.nodes}
    made = CALLS[transform](gm)
    if isinstance(made, tuple):
        made, gm = made
        before = {n.name: (n.source, n.stack_trace) for n in gm.graph.nodes}
    made.graph.lint()
    found = 0
    for node in nodes_of(made):
        mark = node.meta.get("mark")
        if mark is None:
            # Nodes without a counterpart in the traced program: outputs of partitions, calls of partitions
            # with several results, conversions of the layout.
            part = node.op == "call_module" and isinstance(
                node.graph.owning_module.get_submodule(node.target), corsac.fx.GraphModule
            )
            assert node.op in ("output", "placeholder") or part, node.name
            continue
        found += 1
        assert mark in before, node.name
        assert (node.source, node.stack_trace) == before[mark], node.name
    assert found >= min(3, len(before) - 2)
