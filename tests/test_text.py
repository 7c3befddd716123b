"""Graphs as text: equal to torch.fx's, and parsed back."""

import collections
import contextlib
import io
import math
import operator
import typing

import pytest
import torch
import torch.fx

import corsac.fx
from corsac._core import GraphTextError

Point = collections.namedtuple("Point", "a b")


class Custom:
    def __init__(self, text):
        self.text = text

    def __str__(self):
        return f"str {self.text}"

    def __repr__(self):
        return f"repr {self.text}"


class CustomShown(Custom):
    def _custom_fx_repr_fn(self):
        return "as it likes"


class Raises:
    def __str__(self):
        raise KeyError("no text")

    __repr__ = __str__


CUSTOM = Custom("x")

VALUES = [
    lambda x: 1,
    lambda x: -12345678901234567890123,
    lambda x: 2.5,
    lambda x: 1e16,
    lambda x: 1e-5,
    lambda x: math.nan,
    lambda x: math.inf,
    lambda x: -0.0,
    lambda x: 1j,
    lambda x: complex(1, -2),
    lambda x: True,
    lambda x: None,
    lambda x: ...,
    lambda x: "it's",
    lambda x: 'a"b\n\t\\',
    lambda x: "é\x00\u200b😀",
    lambda x: b"ab'\x00",
    lambda x: torch.float32,
    lambda x: torch.device("cuda", 1),
    lambda x: torch.device("cpu"),
    lambda x: torch.strided,
    lambda x: torch.channels_last,
    lambda x: x,
    lambda x: slice(x, None, 2),
    lambda x: slice(None, x, "a"),
    lambda x: slice(torch.device("cpu"), [x, "q"], {"k": x}),
    lambda x: range(3),
    lambda x: range(1, 5, 2),
    lambda x: Point(x, "s"),
    lambda x: (),
    lambda x: (x,),
    lambda x: [x, "s", (1,), []],
    lambda x: {"a": x, "b": {1: x}, (1, "q"): 2},
    lambda x: torch.Size([1, 2]),
    lambda x: torch.Tensor,
    lambda x: operator.add,
    lambda x: torch.nn.Parameter(torch.ones(2)),
    lambda x: CUSTOM,
    lambda x: CustomShown("y"),
    lambda x: (CUSTOM, [CustomShown("z")], slice(CUSTOM, None, None)),
]

TYPES = [
    torch.Tensor,
    int,
    list[int],
    typing.List[int],  # noqa: UP006
    typing.Optional[torch.Tensor],  # noqa: UP045
    torch.Tensor | None,
    "text",
    Point,
]

FUNCTIONS = [
    torch.add,
    operator.getitem,
    getattr,
    torch.ops.aten.add.Tensor,
    torch.nn.functional.relu,
    torch.nn.functional.gelu,
    torch.Tensor.add,
    torch.Tensor.__rsub__,
    torch.segment_reduce,
    math.sqrt,
]


def example(fx):
    graph = fx.Graph()
    x = graph.placeholder("x", type_expr=torch.Tensor)
    graph.placeholder("y", default_value=None)
    graph.placeholder("*args")
    for type_expr in TYPES:
        graph.placeholder("typed", type_expr=type_expr)
        graph.create_node("get_attr", "a.b", type_expr=type_expr)
        graph.call_method("neg", (x,)).type = type_expr
    for value in VALUES:
        graph.create_node("placeholder", "p", args=(value(x),))
        graph.call_function(torch.add, (value(x),), {"k": value(x)})
        graph.call_module("m.0", ((value(x), [value(x)]),), {"k": {"z": value(x)}})
    for function in FUNCTIONS:
        graph.call_function(function, (x,))
    graph.output((x, *(value(x) for value in VALUES)))
    return graph


def table(graph):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        graph.print_tabular()
    return out.getvalue()


def test_text_is_torch_fx_text():
    theirs, ours = example(torch.fx), example(corsac.fx)
    assert str(ours).splitlines() == str(theirs).splitlines()
    for our_node, their_node in zip(ours.nodes, theirs.nodes, strict=True):
        assert our_node.format_node() == their_node.format_node()


@pytest.mark.parametrize("value", VALUES)
def test_each_value_as_default_argument_and_result(value):
    def lines(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        nodes = [
            graph.create_node("placeholder", "p", args=(value(x),)),
            graph.call_method("m", (x, value(x))),
            graph.output(value(x)),
        ]
        return [node.format_node() for node in nodes]

    assert lines(corsac.fx) == lines(torch.fx)


def test_the_table_is_torch_fx_table():
    pytest.importorskip("tabulate")
    assert table(example(corsac.fx)).splitlines() == table(example(torch.fx)).splitlines()
    assert table(corsac.fx.Graph()) == table(torch.fx.Graph())


def test_format_node_for_signatures():
    def signature(fx):
        graph = fx.Graph()
        plain = graph.placeholder("x")
        typed = graph.placeholder("y", type_expr=int)
        result = graph.output(plain, type_expr=torch.Tensor)
        names, typename = ["self"], [""]
        lines = [node.format_node(names, typename) for node in (plain, typed, result)]
        return lines, names, typename

    assert signature(corsac.fx) == signature(torch.fx)


def test_format_node_with_tensor_metadata():
    def line(fx, value):
        graph = fx.Graph()
        node = graph.call_function(torch.relu, (graph.placeholder("x"),), type_expr=int)
        node.meta["val"] = value
        return node.format_node(include_tensor_metadata=True)

    for value in (
        torch.ones(2, 3),
        torch.ones(2, dtype=torch.bool),
        3,
        torch.eye(2).to_sparse_csr(),
    ):
        assert line(corsac.fx, value) == line(torch.fx, value)


def test_an_error_in_str_is_raised_as_it_is():
    graph = corsac.fx.Graph()
    node = graph.call_method("m", (Raises(),))
    with pytest.raises(KeyError, match="no text"):
        str(graph)
    with pytest.raises(KeyError, match="no text"):
        node.format_node()


def test_str_may_change_the_graph_that_it_is_part_of():
    graph = corsac.fx.Graph()

    class Meddles:
        def __str__(self):
            graph.placeholder("new")
            return "meddled"

    graph.call_method("m", (Meddles(),))
    assert "args = (meddled,)" in str(graph)
    assert [node.name for node in graph.nodes] == ["m", "new"]


# Lint ----------------------------------------------------------------------------------------


def test_lint_reports_every_fault_in_its_place():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_method("neg", (x,))
    b = graph.call_method("abs", (a,))
    graph.output(b)
    graph.lint()
    a.append(x)
    b.name = "neg"
    with pytest.raises(RuntimeError) as raised:
        graph.lint()
    text = str(raised.value)
    assert "node neg: argument x is used before it has been defined" in text
    assert "node neg: an earlier node has the same name" in text
    assert "#   ^ error: an earlier node has the same name\n    return neg" in text


def test_lint_looks_for_targets_in_the_owning_module():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))

    def outcome(fx, create):
        graph = fx.Graph(owning_module=module)
        create(graph)
        try:
            graph.lint()
        except RuntimeError as error:
            return str(error)
        return None

    cases = [
        lambda g: g.create_node("get_attr", "0.weight"),
        lambda g: g.create_node("get_attr", "0.wait"),
        lambda g: g.create_node("get_attr", "1.weight"),
        lambda g: g.create_node("call_module", "0"),
        lambda g: g.create_node("call_module", "0.weight"),
        lambda g: g.create_node("call_module", "2"),
    ]
    for case in cases:
        assert outcome(corsac.fx, case) == outcome(torch.fx, case)


# Reading -------------------------------------------------------------------------------------


def readable():
    """A graph without unnamed values."""
    graph = corsac.fx.Graph()
    x = graph.placeholder("x", type_expr=torch.Tensor)
    for type_expr in (*TYPES[:-1], None):
        graph.placeholder("typed", type_expr=type_expr)
    for function in FUNCTIONS[:8]:
        graph.call_function(function, (x,), {"k": "v"})
    graph.call_function(print, (x, torch.Tensor, operator.add, int))
    for value in VALUES:
        if value(x) is not CUSTOM:
            with contextlib.suppress(GraphTextError):
                corsac.fx.Graph.parse(with_value(value).to_lossless())
                graph.call_method("m", (value(x),))
    graph.output({"a": [x]})
    return graph


def with_value(value):
    graph = corsac.fx.Graph()
    graph.call_method("m", (value(graph.placeholder("x")),))
    return graph


def test_the_lossless_form_reads_back():
    graph = readable()
    text = graph.to_lossless()
    again = corsac.fx.Graph.parse(text)
    assert again.to_lossless() == text
    assert str(again) == str(graph)
    assert not graph.diff(again), str(graph.diff(again))
    for ours, theirs in zip(again.nodes, graph.nodes, strict=True):
        assert (ours.op, ours.name, ours.target) == (theirs.op, theirs.name, theirs.target)
        assert ours.type == theirs.type
        assert repr((ours.args, ours.kwargs)) == repr((theirs.args, theirs.kwargs))
    again.lint()


def test_most_values_can_be_read():
    unreadable = 0
    for value in VALUES:
        try:
            corsac.fx.Graph.parse(with_value(value).to_lossless())
        except GraphTextError:
            unreadable += 1
    assert unreadable == 4  # a tensor and objects


def test_the_printed_form_reads_back():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    graph = corsac.fx.Graph(owning_module=module)
    x = graph.placeholder("x")
    y = graph.call_module("0", (x,))
    z = graph.call_function(
        torch.nn.functional.interpolate, (y,), {"mode": "bilinear", "size": (1, 2)}
    )
    graph.output((z, graph.call_method("to", (z, torch.float16))))
    again = corsac.fx.Graph.parse(str(graph))
    assert str(again) == str(graph)
    assert [n.target for n in again.nodes] == [n.target for n in graph.nodes]
    assert not graph.diff(again)


def test_a_graph_that_was_read_runs():
    graph = corsac.fx.Graph.parse(
        """graph():
    %x : [num_users=1] = placeholder[target=x]
    %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
    %add : [num_users=1] = call_function[target=operator.add](args = (%relu, 2), kwargs = {})
    return add"""
    )
    names = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = torch.tensor([-1.0, 1.0])
        elif node.op == "call_function":
            names[node] = node.target(*(names.get(a, a) for a in node.args), **node.kwargs)
    assert names[next(reversed(list(names)))].tolist() == [2.0, 3.0]


def test_errors_say_where():
    with pytest.raises(GraphTextError, match="expected the name of a node, found `%y`") as raised:
        corsac.fx.Graph.parse("graph v1:\n  %x = call_method[target=f](args = (%y,), kwargs = {})")
    error = raised.value
    assert isinstance(error, ValueError)
    assert (error.line, error.column, error.found) == (2, 38, "`%y`")


@pytest.mark.parametrize(
    "name",
    [
        "torch.nothing_like_that",
        "torch.ops.aten.nothing.Tensor",
        "not_imported_module.f",
        "operator.",
        ".add",
        "torch",
        "math.pi",
        "__import__('os').system",
    ],
)
def test_names_that_lead_nowhere(name):
    text = f"graph v1:\n%f = call_function[target='{name}'](args = (), kwargs = {{}})"
    if "'" in name:
        text = text.replace(f"'{name}'", f'"{name}"')
    with pytest.raises(GraphTextError, match="node f refers to"):
        corsac.fx.Graph.parse(text)


def test_reading_does_not_import(tmp_path, monkeypatch):
    (tmp_path / "corsac_test_side_effect.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for target in ("corsac_test_side_effect.f", "corsac_test_side_effect"):
        with pytest.raises(GraphTextError, match=r"not found|no function"):
            corsac.fx.Graph.parse(
                f"graph v1:\n%f = call_function[target={target}](args = (), kwargs = {{}})"
            )


def test_a_tensor_cannot_be_read():
    graph = corsac.fx.Graph()
    graph.call_method("m", (torch.ones(2),))
    with pytest.raises(GraphTextError, match="a value without a name"):
        corsac.fx.Graph.parse(graph.to_lossless())
    with pytest.raises(GraphTextError, match=r"tensor\(\[1., 1.\]\)"):
        corsac.fx.Graph.parse(str(graph))


# Differences and order ---------------------------------------------------------------------------


def chain(*functions):
    graph = corsac.fx.Graph()
    node = graph.placeholder("x")
    for function in functions:
        node = graph.call_function(function, (node,))
    graph.output(node)
    return graph


def test_diff_says_what_changed():
    before, after = chain(torch.relu, torch.abs, torch.neg), chain(torch.relu, torch.exp, torch.neg)
    diff = before.diff(after)
    assert bool(diff)
    assert [n.name for n in diff.added] == ["exp"]
    assert [n.name for n in diff.removed] == ["abs_1"]
    assert [(a.name, b.name, what) for a, b, what in diff.changed] == [("neg", "neg", ["args"])]
    assert diff.moved == []
    assert diff.added[0] is list(after.nodes)[2]
    assert repr(diff) == "<GraphDiff: 1 added, 1 removed, 1 changed>"
    assert str(diff).splitlines()[6:8] == [
        "-    %abs_1 = call_function[target=torch.abs](args = (%relu,), kwargs = {})",
        "+    %exp = call_function[target=torch.exp](args = (%relu,), kwargs = {})",
    ]
    assert not before.diff(before)
    assert str(before.diff(chain(torch.relu, torch.abs, torch.neg))) == ""


def test_diff_knows_objects_by_identity():
    shared, other = Custom("a"), Custom("a")

    def graph(value):
        graph = corsac.fx.Graph()
        graph.call_method("m", (value,))
        return graph

    assert not graph(shared).diff(graph(shared))
    assert graph(shared).diff(graph(other))


def test_topological_sort():
    graph = chain(torch.relu, torch.abs)
    x, relu, abs_1, output = graph.nodes
    output.append(x)
    assert graph.topological_sort() == 3
    assert list(graph.nodes) == [x, relu, abs_1, output]
    relu.args = (abs_1,)
    with pytest.raises(RuntimeError, match="cycle: relu -> abs_1 -> relu"):
        graph.topological_sort()
