"""``corsac.draw``, ``corsac.draw_diff``, ``gm.show()`` and pictures in notebooks."""

import copy
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn

import corsac
import corsac.fx
import corsac.passes

SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)) + x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x):
        return self.second(self.first(x)).flatten(1)


@pytest.fixture
def gm():
    return corsac.fx.symbolic_trace(Net().eval())


def page_data(path):
    page = path.read_text()
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page)[1])


def texts(path):
    return [text.text for text in ElementTree.parse(path).iter(f"{SVG}text")]


def test_an_svg_shows_every_node_and_shape(gm, tmp_path):
    path = corsac.draw(gm, tmp_path / "net.svg", inputs=(torch.zeros(1, 3, 8, 8),))
    shown = texts(path)
    assert shown.count("Conv2d") == 2 and shown.count("add") == 2
    assert "1×3×8×8" in shown and "1×192" in shown
    assert shown.count("first") == shown.count("second") == 1


def test_depth_closes_modules(gm, tmp_path):
    shown = texts(corsac.draw(gm, tmp_path / "net.svg", depth=0))
    assert "Conv2d" not in shown
    assert "Block · 4 nodes" in shown


def test_the_page_has_what_is_known(gm, tmp_path):
    annotations = {"first_conv": {"flops": 5184, "bytes": 2000, "time": 1e-4, "cache": "cold"}}
    path = corsac.draw(
        gm,
        tmp_path / "net.html",
        overlay="flops",
        annotations=annotations,
        inputs=(torch.zeros(1, 3, 8, 8),),
    )
    data = page_data(path)
    node = next(node for node in data["nodes"] if node["name"] == "first_conv")
    assert node["kind"] == "convolution"
    assert node["class"] == "torch.nn.modules.conv.Conv2d"
    assert "kernel_size=(3, 3)" in node["settings"]
    assert (node["shape"], node["dtype"]) == ("1×3×8×8", "float32")
    assert (node["flops"], node["bytes"], node["time"]) == (5184, 2000, 1e-4)
    assert node["more"] == [["cache", "cold"]]
    assert node["source"].startswith(f"{__file__}:")
    assert data["overlay"] == "flops"
    # Unknown numbers are omitted, and sums contain the known ones.
    assert "flops" not in next(node for node in data["nodes"] if node["name"] == "second_conv")
    assert [group.get("flops") for group in data["groups"]] == [5184, None]


def test_sources_of_installed_packages_are_short(gm, tmp_path):
    (node,) = gm.graph.find_nodes(op="call_module", target="first.conv")
    trace = 'File "/home/me/env/lib/python3.11/site-packages/vision/models/net.py", line 7'
    node.meta["stack_trace"] = trace
    nodes = page_data(corsac.draw(gm, tmp_path / "net.html"))["nodes"]
    (source,) = (n["source"] for n in nodes if n["name"] == node.name)
    assert source == "vision/models/net.py:7"


def test_shapes_come_from_meta(gm, tmp_path):
    for node in gm.graph.nodes:
        if node.name == "first_conv":
            node.meta["tensor_meta"] = torch.fx.passes.shape_prop._extract_tensor_metadata(
                torch.zeros(2, 3)
            )
        if node.name == "second_conv":
            node.meta["val"] = (torch.zeros(5), torch.zeros((), dtype=torch.int64))
    shown = texts(corsac.draw(gm, tmp_path / "net.svg"))
    assert "2×3" in shown and "5, scalar" in shown


def test_dot_text(gm, tmp_path):
    text = corsac.draw(gm, tmp_path / "net.dot").read_text()
    pydot = pytest.importorskip("pydot")
    (graph,) = pydot.graph_from_dot_data(text)
    clusters = graph.get_subgraphs()
    assert [cluster.get_label() for cluster in clusters] == ['"first Block"', '"second Block"']
    assert len(graph.get_edges()) == sum(len(node.users) for node in gm.graph.nodes)


def test_a_difference_shows_what_a_pass_did(gm, tmp_path):
    before = copy.deepcopy(gm)
    corsac.passes.fuse_conv_bn(gm)
    data = page_data(corsac.draw_diff(before, gm, tmp_path / "diff.html"))
    states = {node["name"]: node["change"]["state"] for node in data["nodes"] if node.get("change")}
    assert {"first_bn", "second_bn"} <= {n for n, state in states.items() if state == "removed"}
    changed = next(n for n in data["nodes"] if n.get("change", {}).get("state") == "changed")
    assert "bn" in changed["change"]["before"] and "bn" not in changed["change"]["after"]
    assert re.fullmatch(r"2 removed, \d+ changed", data["summary"])
    assert "removed" in texts(corsac.draw_diff(before, gm, tmp_path / "diff.svg"))


def test_what_can_be_drawn(gm, tmp_path):
    path = tmp_path / "net.svg"
    expected = corsac.draw(gm, path, title="t").read_text()
    assert corsac.draw(gm.graph, path, title="t").read_text() == expected
    module = torch.fx.symbolic_trace(Net().eval())
    assert "Conv2d" in texts(corsac.draw(module, path))
    assert "Conv2d" in texts(corsac.draw(Net().eval(), path))
    with pytest.raises(TypeError, match="expected a graph module"):
        corsac.draw(3, path)
    with pytest.raises(ValueError, match=r"not '\.png'"):
        corsac.draw(gm, tmp_path / "net.png")
    with pytest.raises(ValueError, match="overlay"):
        corsac.draw(gm, path, overlay="weight")
    with pytest.raises(TypeError, match="annotations"):
        corsac.draw(gm, path, annotations=[1])


def test_hostile_text_stays_text(tmp_path):
    hostile = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(1)>"
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_method(hostile, (x, hostile))
    y.meta["nn_module_stack"] = {hostile: (hostile, hostile)}
    y.meta["stack_trace"] = f'  File "{hostile[:20]}", line 1, in f\n'
    graph.output(y)
    gm = corsac.fx.GraphModule({}, graph)
    # An annotation may contain what a graph cannot: half a surrogate pair.
    half = hostile + "\ud800"
    annotations = {y: {"shape": half, half: half, "flops": float("nan")}}
    page = corsac.draw(gm, tmp_path / "a.html", annotations=annotations, title=half)
    markup = page.read_text()
    assert markup.count("<script") == 2 and "<img" not in markup
    svg = corsac.draw(gm, tmp_path / "a.svg", annotations=annotations, title=hostile)
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.parse(svg).iter()}
    assert tags == {"svg", "style", "rect", "g", "title", "path", "text"}


def test_inputs_are_a_tensor_or_a_tuple(gm, tmp_path):
    image = torch.zeros(1, 3, 8, 8)
    one = corsac.draw(gm, tmp_path / "one.svg", inputs=image).read_text()
    assert one == corsac.draw(gm, tmp_path / "several.svg", inputs=(image,)).read_text()
    assert "1×3×8×8" in one


def test_shape_arithmetic_can_be_hidden(tmp_path):
    def program(x):
        rows = x.shape[0] * x.size(1)
        return x.reshape(rows // 2, -1) + 1

    gm = corsac.fx.symbolic_trace(program)
    names = {own["name"] for own in page_data(corsac.draw(gm, tmp_path / "a.html"))["nodes"]}
    assert {"getattr_1", "size", "mul", "floordiv"} < names
    page = corsac.draw(gm, tmp_path / "b.html", hide_shape_arithmetic=True)
    assert [own["name"] for own in page_data(page)["nodes"]] == ["x", "reshape", "add", "output"]


def test_notebooks_show_a_frame(gm):
    shown = gm._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts allow-downloads"')
    # The page is in an attribute, in which no quote must end it.
    attribute = re.search(r'srcdoc="([^"]*)"', shown)[1]
    assert "<" not in attribute and "first_conv" in attribute


def test_notebooks_show_graphs_and_nodes(gm):
    shown = gm.graph._repr_html_()
    assert (
        shown.startswith('<iframe sandbox="allow-scripts allow-downloads"')
        and "first_conv" in shown
    )
    node = gm.graph.find_nodes(op="call_module")[0]
    node.meta["tensor_meta"] = torch.empty(1, 3, device="meta")
    node.target = "<b>first_conv"
    table = node._repr_html_()
    assert table.startswith("<table>") and "<code>&lt;b&gt;first_conv</code>" in table
    assert "<code>1×3</code>" in table and "<code>float32</code>" in table


def test_show_opens_the_browser(gm, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = gm.show()
    assert opened == [page.as_uri()]
    assert page_data(page)["title"] == "Net"
