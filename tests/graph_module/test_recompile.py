"""Generating code: its time, its results, and its traces in the process."""

import gc
import inspect
import linecache
import weakref

import pytest
import torch
from torch import nn

import corsac.fx as fx
from corsac.fx import _generated_code, _generated_source


class Relu(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def generated_files():
    return {name for name in linecache.cache if "eval_with_key" in name and "corsac" in name}


def test_code_is_compiled_when_it_is_needed(monkeypatch):
    compiled = []
    original = _generated_source._method_from_src
    monkeypatch.setattr(
        _generated_source,
        "_method_from_src",
        lambda *args: compiled.append(1) or original(*args),
    )
    gm = fx.symbolic_trace(Relu())
    gm.recompile()
    assert "torch.relu(x)" in gm.code
    assert compiled == []
    gm(torch.ones(1))
    gm(torch.ones(1))
    assert compiled == [1]
    gm.recompile()
    gm.forward(torch.ones(1))
    assert compiled == [1, 1]


def test_edits_do_not_show_before_recompile():
    gm = fx.symbolic_trace(Relu())
    (node,) = [n for n in gm.graph.nodes if n.op == "call_function"]
    node.target = torch.neg
    assert "torch.relu(x)" in gm.code
    assert torch.equal(gm(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))


def test_edits_show_after_recompile():
    gm = fx.symbolic_trace(Relu())
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(gm(x), torch.tensor([0.0, 2.0]))
    (node,) = [n for n in gm.graph.nodes if n.op == "call_function"]
    node.target = torch.neg
    assert torch.equal(gm(x), torch.tensor([0.0, 2.0]))
    code = gm.recompile()
    assert torch.equal(gm(x), torch.tensor([1.0, -2.0]))
    assert code.src == gm.code
    assert "torch.neg(x)" in code.src
    assert code.globals["torch"] is torch


def test_assigning_a_graph_recompiles():
    gm = fx.symbolic_trace(Relu())
    other = fx.symbolic_trace(lambda x: x + 1)
    gm.graph = other.graph
    assert gm.graph.owning_module is gm
    assert torch.equal(gm(torch.ones(1)), torch.tensor([2.0]))


def test_recompile_reaches_children():
    inner = fx.symbolic_trace(Relu())

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    outer = Outer()
    gm = fx.GraphModule(outer, Leaves().trace(outer))
    (node,) = [n for n in inner.graph.nodes if n.op == "call_function"]
    node.target = torch.neg
    gm.recompile()
    assert torch.equal(gm(torch.ones(1)), torch.tensor([-1.0]))


def test_forward_is_a_plain_function_to_those_who_look():
    gm = fx.symbolic_trace(lambda x, y=3: x + y)
    assert str(inspect.signature(gm.forward)) == "(x, y=3)"
    assert inspect.isfunction(type(gm).forward)
    assert inspect.getsource(type(gm).forward).startswith("def forward(self, x, y = 3):")
    assert type(gm).forward.__code__.co_filename in generated_files()


def test_own_forward_of_the_class_is_kept_until_recompile():
    gm = fx.symbolic_trace(Relu())
    type(gm).forward = lambda self, x: x * 10
    assert torch.equal(gm(torch.ones(1)), torch.tensor([10.0]))
    assert "torch.relu" in gm.code
    assert torch.equal(gm(torch.ones(1)), torch.tensor([10.0]))
    gm.recompile()
    assert torch.equal(gm(torch.ones(1)), torch.ones(1))


def test_own_call_of_a_subclass_is_called():
    class Doubled(fx.GraphModule):
        def __call__(self, *args):
            return super().__call__(*args) * 2

    root = Relu()
    gm = Doubled(root, fx.Tracer().trace(root))
    assert torch.equal(gm(torch.ones(1)), torch.tensor([2.0]))
    gm.recompile()
    assert torch.equal(gm(torch.ones(1)), torch.tensor([2.0]))


def test_source_text_goes_with_the_module():
    gc.collect()
    before = generated_files()
    sources = len(_generated_source._loader)
    for _ in range(20):
        gm = fx.symbolic_trace(Relu())
        gm(torch.ones(1))
        gm.recompile()
        gm(torch.ones(1))
    assert len(generated_files() - before) <= 40
    del gm
    gc.collect()
    assert generated_files() <= before
    assert len(_generated_source._loader) <= sources


def test_modules_and_their_classes_are_collected():
    gm = fx.symbolic_trace(Relu())
    gm(torch.ones(1))
    references = [weakref.ref(gm), weakref.ref(type(gm)), weakref.ref(gm.graph)]
    del gm
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_recompiling_keeps_one_text():
    gm = fx.symbolic_trace(Relu())
    for _ in range(10):
        gm.recompile()
        gm(torch.ones(1))
    gc.collect()
    name = type(gm).forward.__code__.co_filename
    assert "".join(linecache.getlines(name)).rstrip() == gm.code.rstrip()
    others = generated_files() - {name}
    del gm
    gc.collect()
    assert name not in generated_files()
    assert len(others & generated_files()) <= len(others)


def test_code_is_run_in_the_given_globals_only():
    with pytest.raises(TypeError, match="expected a dictionary of globals, got NoneType"):
        _generated_source._exec_with_source("stray = 42", None)
    assert not hasattr(_generated_source, "stray")


def test_code_that_does_not_compile_leaves_no_text():
    before = len(_generated_source._loader)
    with pytest.raises(SyntaxError):
        _generated_source._forward_from_src("def forward(:", {})
    assert len(_generated_source._loader) == before


def test_a_missing_attribute_in_generated_code_is_not_a_missing_forward():
    gm = fx.symbolic_trace(Relu())
    type(gm).forward = _generated_code._PendingForward(
        fx.graph.PythonCode("forward = torch.nothing_of_this_name", {"torch": torch}, None), {}
    )
    with pytest.raises(RuntimeError, match="the generated code cannot be loaded: module 'torch'"):
        gm(torch.ones(1))


def test_signatures_that_python_refuses_are_refused_at_once():
    def f(x, y=1, *, z):
        return x + y + z

    with pytest.raises(SyntaxError):
        fx.symbolic_trace(f)
    graph = fx.Graph()
    graph.output(graph.placeholder("x", default_value=Relu()))
    with pytest.raises((SyntaxError, NameError)):
        fx.GraphModule({}, graph)
