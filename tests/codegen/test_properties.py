"""Properties of generated code that hold for all values and texts."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx.graph
from hypothesis import given, settings
from hypothesis import strategies as st

import corsac.fx.graph as fx

from .cases import foo
from .test_differences import Anything, run

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**60), 10**60),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.sampled_from([..., torch.float16, torch.channels_last, torch.sparse_coo]),
    st.builds(torch.device, st.sampled_from(["cpu", "meta", "cuda:1", "cuda"])),
    st.text(st.characters(categories=["Cs"]), min_size=1),
)
containers = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.builds(slice, inner, inner, inner),
    ),
    max_leaves=12,
)


def graph_of(package: Any, value: Any) -> Any:
    graph = package.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(foo, (x, value), {"key": value}))
    return graph


@settings(max_examples=300, deadline=None)
@given(containers)
def test_literals_are_written_as_torch_fx_writes_them(value: Any) -> None:
    expected = graph_of(torch.fx.graph, value).python_code("self")
    actual = graph_of(fx, value).python_code("self")
    assert actual.src == expected.src


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, signs of zeros included; a NaN equals a NaN."""
    if type(a) is not type(b):
        return isinstance(a, list | dict) and isinstance(b, type(a)) and same(type(a)(b), a)
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and repr(a) == repr(b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return a == b


@settings(max_examples=300, deadline=None)
@given(st.one_of(containers, st.dictionaries(st.text(), containers, max_size=3)))
def test_literals_read_back(value: Any) -> None:
    graph = fx.Graph()
    graph.output([value])
    assert same(run(graph)[0], value)


texts = st.one_of(
    st.text(),
    st.text("ab.0'\"\\\n#(){} ;:=,*"),
    st.sampled_from(
        ["self", "torch", "forward", "_rf", "args_list", "print", "lambda", "*", "**x"]
    ),
)


@settings(max_examples=400, deadline=None)
@given(texts, texts, texts, texts)
def test_texts_stay_in_their_places(input_: str, name: str, target: str, key: str) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    if input_.startswith("*"):
        other = graph.placeholder(input_)
    else:
        other = graph.placeholder(input_, default_value=name)
    attribute = graph.create_node("get_attr", target, (), {})
    module = graph.create_node("call_module", target, (name,), {key: 1})
    method = graph.call_method(target, (x, target), {key: 2})
    for node in (attribute, module, method):
        node.name = name
    graph.output([attribute, module, method, other])
    names = tuple(target.split("."))
    for record_func in (False, True):
        code = graph.python_code("self", record_func=record_func)
        compile(code.src, "<test>", "exec")
    attribute, module, method, _ = run(graph, Anything(("x",)), root=Anything())
    assert attribute.path == names
    assert module == (names, (name,), {key: 1})
    assert method == (("x", *names), (target,), {key: 2})
