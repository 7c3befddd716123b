"""``FxGraphDrawer`` and ``GraphTransformObserver``, compared with torch.fx's."""

import xml.etree.ElementTree as ElementTree

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import graph_drawer as torch_drawer
from torch.fx.passes import graph_transform_observer as torch_observer

import corsac.fx
from corsac.fx.passes.graph_drawer import FxGraphDrawer
from corsac.fx.passes.graph_transform_observer import GraphTransformObserver


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, x, scale=2.0):
        y = self.norm(self.linear(x)).clamp(min=0.0, max=1.0) + self.bias
        y = torch.cat([y, y], 1)[:, None, 1 : {"a": 2}["a"]]
        return {"sum": y.sum((0, 1)) * scale, "odd {} | <> \\ ~": torch.nn.functional.relu(y)}


class Outer(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class KeepGraphModules:
    def is_leaf_module(self, m, name):
        return hasattr(m, "graph") or super().is_leaf_module(m, name)


def traced(fx, nested):
    gm = fx.symbolic_trace(Net().eval())
    for node in gm.graph.nodes:
        if node.op == "call_module":
            node.meta["tensor_meta"] = torch.fx.passes.shape_prop._extract_tensor_metadata(
                torch.zeros(2, 3)
            )
        node.meta["stack_trace"] = '  File "/a/b/c.py", line 3, in f\n    return x + y\n'
    if not nested:
        return gm
    outer = Outer(gm)
    tracer = type("Tracer", (KeepGraphModules, fx.Tracer), {})()
    return fx.GraphModule(outer, tracer.trace(outer))


def parts(text):
    """The lines of a graph; both packages' classes by one name."""
    return text.replace("corsac.fx.", "torch.fx.").split("\n")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ignore_getattr": True, "ignore_parameters_and_buffers": True},
        {"skip_node_names_in_args": False, "normalize_args": True},
        {"parse_stack_trace": True, "dot_graph_shape": "box"},
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_dot_text_is_that_of_torch(options, nested):
    pytest.importorskip("pydot", reason="torch.fx's drawer needs pydot")
    theirs = torch_drawer.FxGraphDrawer(traced(torch.fx, nested), "net", **options)
    ours = FxGraphDrawer(traced(corsac.fx, nested), "net", **options)
    their_graphs, our_graphs = theirs.get_all_dot_graphs(), ours.get_all_dot_graphs()
    assert list(our_graphs) == list(their_graphs)
    for name, graph in their_graphs.items():
        assert parts(our_graphs[name].to_string()) == parts(graph.to_string())
    assert ours.get_dot_graph() is ours.get_main_dot_graph()
    if nested:
        assert ours.get_dot_graph("inner") is ours.get_submod_dot_graph("inner")


def test_dot_text_is_read_back():
    pydot = pytest.importorskip("pydot")
    drawn = FxGraphDrawer(traced(corsac.fx, False), 'a "quoted" name \\').get_dot_graph()
    for node in drawn.get_node_list()[:2]:
        node.set("tooltip", 'x"];\nevil [label="\\')
    (graph,) = pydot.graph_from_dot_data(drawn.to_string())
    assert [n.get_name().strip('"') for n in graph.get_node_list()] == [
        n.get_name() for n in drawn.get_node_list()
    ]


def test_what_people_call_on_a_graph(tmp_path):
    graph = FxGraphDrawer(traced(corsac.fx, False), "net").get_dot_graph()
    assert graph.write_svg(tmp_path / "a.svg")
    shown = [t.text for t in ElementTree.parse(tmp_path / "a.svg").iter() if t.text]
    assert "linear" in shown and "op_code=call_module" in shown
    assert "torch.nn.modules.linear.Linear" in shown
    assert graph.create_svg() == (tmp_path / "a.svg").read_bytes()
    for write in (graph.write, graph.write_dot, graph.write_raw):
        write(tmp_path / "a.dot")
        assert (tmp_path / "a.dot").read_text() == graph.to_string() == str(graph)
    (node,) = graph.get_node("linear")
    assert node.get_fillcolor() == node.get("fillcolor") == "LemonChiffon1"
    node.set_fillcolor("yellow")
    assert node.obj_dict["attributes"]["fillcolor"] == "yellow"
    with pytest.raises(ValueError, match="needs Graphviz"):
        graph.write_png(tmp_path / "a.png")


def observed(fx, observer_class, folder):
    gm = fx.symbolic_trace(Net().eval())
    with observer_class(gm, "swap", log_url=str(folder)) as observer:
        (relu,) = gm.graph.find_nodes(op="call_function", target=torch.nn.functional.relu)
        with gm.graph.inserting_after(relu):
            gelu = gm.graph.call_function(torch.nn.functional.gelu, relu.args)
        relu.replace_all_uses_with(gelu)
        gm.graph.erase_node(relu)
    sources = [(s.name, s.pass_name, s.action) for s in gelu.meta["from_node"]]
    return gm, observer, [(name, p, [a.name for a in action]) for name, p, action in sources]


def test_the_observer_sees_what_that_of_torch_sees(tmp_path):
    gm, observer, sources = observed(corsac.fx, GraphTransformObserver, tmp_path)
    assert (observer.created_nodes, observer.erased_nodes) == ({"gelu"}, {"relu"})
    assert sources == [("relu", "swap", ["REPLACE", "CREATE"])]
    assert not (gm._create_node_hooks or gm._erase_node_hooks or gm._replace_hooks)
    count = GraphTransformObserver.get_current_pass_count()
    files = sorted(path.name for path in tmp_path.iterdir())
    stem = f"pass_{count}_swap"
    assert files == [
        f"{stem}_{which}_graph.{end}" for which in ("input", "output") for end in ("dot", "svg")
    ]
    marked = (tmp_path / f"{stem}_input_graph.dot").read_text()
    assert [line.split()[0] for line in marked.splitlines() if "fillcolor=yellow" in line] == [
        "relu"
    ]
    svg = ElementTree.parse(tmp_path / f"{stem}_output_graph.svg")
    assert any("changed" in (e.get("class") or "") for e in svg.iter())

    pytest.importorskip("pydot", reason="torch.fx's observer needs pydot to log")
    theirs = tmp_path / "torch"
    theirs.mkdir()
    _, peer, peer_sources = observed(torch.fx, torch_observer.GraphTransformObserver, theirs)
    assert peer_sources == sources
    assert (peer.created_nodes, peer.erased_nodes) == (
        observer.created_nodes,
        observer.erased_nodes,
    )
    for which in ("input", "output"):
        (expected,) = theirs.glob(f"*_swap_{which}_graph.dot")
        assert (tmp_path / f"{stem}_{which}_graph.dot").read_text() == expected.read_text()


@pytest.mark.parametrize(
    ("fx", "observer"),
    [
        (torch.fx, torch_observer.GraphTransformObserver),
        (corsac.fx, GraphTransformObserver),
    ],
)
def test_the_history_of_nodes_that_patterns_make(fx, observer):
    from torch._inductor import config

    def history(sources):
        return [(s.name, s.pass_name, len(s.action), history(s.from_node)) for s in sources]

    gm = fx.symbolic_trace(lambda x: torch.add(torch.neg(x), 1))
    with config.patch({"trace.provenance_tracking_level": 1}), observer(gm, "one"):
        fx.replace_pattern(gm, lambda x: torch.neg(x), lambda x: torch.relu(x))
    (relu,) = gm.graph.find_nodes(op="call_function", target=torch.relu)
    with config.patch({"trace.provenance_tracking_level": 1}), observer(gm, "two"):
        fx.replace_pattern(gm, lambda x: torch.relu(x), lambda x: torch.cos(x))
    (cos,) = gm.graph.find_nodes(op="call_function", target=torch.cos)
    first = [("neg", "one", 2, [])]
    assert history(cos.meta["from_node"]) == [("relu", "two", 2, first)]
    assert history(relu.meta["from_node"]) == first


def test_an_observer_without_a_folder_does_nothing(tmp_path):
    gm = corsac.fx.symbolic_trace(Net().eval())
    observer = GraphTransformObserver(gm, "nothing")
    assert not observer.active
    assert observer.apply_gm_pass(lambda module: module is gm)
    assert observer.apply_graph_pass(lambda graph: graph is gm.graph)


def test_a_disabled_pass_is_not_run(monkeypatch):
    from torch._inductor import config

    gm = corsac.fx.symbolic_trace(Net().eval())
    monkeypatch.setattr(config, "disabled_passes", "swap")
    assert GraphTransformObserver(gm, "swap").apply_gm_pass(lambda module: 1) is None
