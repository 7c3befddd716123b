"""Operations on code generators and generated code."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import corsac.fx.graph as fx

from .cases import foo, frees, list_code_gen, pytree_keywords, with_metadata


def test_the_code_is_data() -> None:
    code = frees(fx).python_code("self")
    assert isinstance(code, fx.PythonCode)
    assert code == frees(fx).python_code("self")
    again = fx.PythonCode(code.src, code.globals, {1: None})
    assert again._lineno_map == {1: None} and again._prologue_start == 0
    assert code != again
    code._lineno_map = None
    assert code._lineno_map is None
    assert copy.copy(again) == again
    lines = pickle.loads(pickle.dumps(frees(fx).python_code("self").__dict__["_lines"]))
    assert lines == frees(fx).python_code("self")._lineno_map


def test_transformers_are_taken_back() -> None:
    graph = frees(fx)
    plain = graph.python_code("self").src

    def adding(line: str) -> Any:
        return lambda before: lambda body: [line, *(before(body) if before else body)]

    with graph.on_generate_code(adding("a\n")):
        with graph.on_generate_code(adding("b\n")):
            assert graph.python_code("self").src.count("    b\n    a\n") == 1
        assert "    b\n" not in graph.python_code("self").src
    assert graph.python_code("self").src == plain
    graph.on_generate_code(adding("a\n"))
    gc.collect()
    assert "    a\n" in graph.python_code("self").src
    with pytest.raises(ZeroDivisionError), graph.on_generate_code(adding("b\n")):
        raise ZeroDivisionError
    assert "    b\n" not in graph.python_code("self").src


def test_inputs_and_outputs_are_processed() -> None:
    graph = frees(fx)
    assert graph.process_inputs(1, 2) == (1, 2)
    assert graph.process_outputs([1]) == [1]
    graph.set_codegen(list_code_gen(fx)())
    assert graph.process_inputs([1, 2]) == [1, 2]
    graph = pytree_keywords(fx)
    assert graph.process_inputs(([1, 2],), {"b": 3, "c": [4]}) == [1, 2, 3, 4]
    assert graph.process_outputs(5) == {"r": 5}
    info = graph._codegen.pytree_info
    assert info.out_spec == pytree.tree_flatten({"r": 0})[1]


def test_additional_globals_of_torch_are_there_too() -> None:
    class Own(fx.CodeGen):
        def additional_globals(self) -> list[tuple[str, Any]]:
            return [("relu", torch.relu), ("limit", 3)]

    graph = frees(fx)
    graph.set_codegen(Own())
    found = graph.python_code("self").globals
    assert found["relu"] is torch.relu and found["limit"] == 3


def test_overrides_on_an_instance() -> None:
    graph = frees(fx)
    graph._codegen.generate_output = lambda value: "return 1"
    assert "    return 1\n" in graph.python_code("self").src


def test_names_given_out_before_are_not_used() -> None:
    graph = frees(fx)
    names = fx._Namespace()
    assert names.create_name("x", None) == "x"
    src = graph._python_code("self", names).src
    assert "    x_1 = x\n" in src and "add = torch.add(x_1, y);" in src


def test_name_spaces() -> None:
    names = fx._Namespace()
    assert names.create_name("max", max) == "max"
    assert names.create_name("max", None) == "max_1"
    assert names.create_name("other", max) == "max"
    names.associate_name_with_obj("n", "object")
    assert names.create_name("m", "object") == "n"
    with pytest.raises(AssertionError):
        names.associate_name_with_obj("k", "object")
    names._rename_object("object", "k")
    assert names.create_name("k", None) == "k_1"
    with pytest.raises(AssertionError):
        names._rename_object("stranger", "k")


def test_deep_copies_have_their_own_code_generator() -> None:
    graph = pytree_keywords(fx)
    graph.on_generate_code(lambda _: lambda body: ["a\n", *body])
    twin = copy.deepcopy(graph)
    assert twin.python_code("self").src == graph.python_code("self").src
    assert twin._codegen is not graph._codegen
    twin._codegen._func_name = "other"
    assert "def forward" in graph.python_code("self").src


def test_symbolic_sizes_are_shown_as_asked() -> None:
    shape_env = pytest.importorskip("torch.fx.experimental.symbolic_shapes").ShapeEnv()
    from torch._dynamo.source import ConstantSource

    size = shape_env.create_unbacked_symint()
    del ConstantSource
    graph = with_metadata(fx)
    next(iter(graph.nodes)).meta["val"] = size
    assert f': "Sym({size!r})"' in graph.python_code("self", verbose=True).src
    with fx._override_sym_repr(lambda value: "N"):
        assert ': "Sym(N)"' in graph.python_code("self", verbose=True).src


def test_code_keeps_nothing_of_the_graph() -> None:
    graph = frees(fx)
    code = graph.python_code("self")
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
    assert code._lineno_map is not None


def test_functions_of_a_user_are_let_go() -> None:
    def build() -> Any:
        def local(x: Any) -> Any:
            return x

        graph = fx.Graph()
        graph.output(graph.call_function(local, (graph.placeholder("x"),)))
        graph.python_code("self")
        return weakref.ref(local)

    gone = build()
    gc.collect()
    assert gone() is None
    assert foo(1) == 1
