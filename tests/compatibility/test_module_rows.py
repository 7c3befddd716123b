"""The rows of docs/compatibility.md about graph modules and interpreters."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib
import io
import linecache
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.package import PackageExporter
from torch.package.package_exporter import PackagingError

import corsac.fx
from corsac.fx import _compatibility
from kit import row

PACKAGES = (torch.fx, corsac.fx)


class Relu(nn.Module):
    def forward(self, x):
        return torch.relu(x)


@row("when generated code is compiled")
def test_when_code_is_compiled() -> None:
    files = []
    for fx in PACKAGES:
        before = set(linecache.cache)
        gm = fx.symbolic_trace(Relu())
        written = {name for name in set(linecache.cache) - before if "eval_with_key" in name}
        gm(torch.ones(1))
        files.append((bool(written), "eval_with_key" in type(gm).forward.__code__.co_filename))
    assert files[1] == (False, True)
    graph = torch.fx.Graph()
    graph.output(graph.placeholder("x", default_value=1))
    gm = torch.fx.GraphModule({}, graph)
    graph.on_generate_code(lambda _: lambda body: ["1 +\n", *body])
    with pytest.raises(SyntaxError):
        gm.recompile()
    graph = corsac.fx.Graph()
    graph.output(graph.placeholder("x", default_value=1))
    gm = corsac.fx.GraphModule({}, graph)
    graph.on_generate_code(lambda _: lambda body: ["1 +\n", *body])
    gm.recompile()
    with pytest.raises(SyntaxError):
        gm(1)


@row("source text in `linecache`")
def test_source_text_in_linecache() -> None:
    """Texts are found as tracebacks find them, by file name and the module's globals."""
    counts = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(Relu())
        gm(torch.ones(1))
        name, names = type(gm).forward.__code__.co_filename, type(gm).forward.__globals__
        assert "torch.relu" in "".join(linecache.getlines(name, names))
        del gm
        names = None
        gc.collect()
        counts.append("torch.relu" in "".join(linecache.getlines(name)))
    assert counts == [True, False]


@row("the file name of generated code")
def test_file_names() -> None:
    theirs, ours = (fx.symbolic_trace(Relu()) for fx in PACKAGES)
    assert theirs.forward.__code__.co_filename.startswith("<eval_with_key>.")
    # It ends with the file of the program, whatever its folder.
    name, _, _ = theirs.forward.__code__.co_filename.partition(" from ")
    assert "corsac" not in name
    assert ours.forward.__code__.co_filename.startswith("<eval_with_key>.corsac.")


@row("`copy.deepcopy`, `copy.copy`")
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy])
def test_copies_keep_what_users_set(copied: Any) -> None:
    found = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(Relu())
        gm.own = "attribute"
        gm.register_forward_hook(lambda module, inputs, result: result + 1)
        again = copied(gm)
        found.append((hasattr(again, "own"), again(torch.ones(1)).item()))
    assert found == [(False, 1.0), (True, 2.0)]


@row("Attributes of nodes in deep copies")
@pytest.mark.parametrize("of", ["module", "graph"])
def test_deep_copies_keep_what_users_attached_to_nodes(of: str) -> None:
    found = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(Relu())
        _, relu, _ = gm.graph.nodes
        relu.colour, relu.names = 3, ["a"]
        again = copy.deepcopy(gm).graph if of == "module" else copy.deepcopy(gm.graph)
        copied = list(again.nodes)[1]
        found.append([hasattr(copied, name) for name in ("colour", "names")])
    assert found == [[False, False], [True, True]]
    assert copied.colour == 3
    assert copied.names == ["a"]
    assert copied.names is not relu.names


def test_what_is_attached_to_nodes_is_copied_with_them() -> None:
    gm = corsac.fx.symbolic_trace(Relu())
    x, relu, output = gm.graph.nodes
    lock, result = threading.Lock(), torch.ones(2, requires_grad=True) + 1
    relu.before, relu.both = x, {"nodes": [relu, output]}
    relu.lock, relu.result, relu.owner = lock, result, gm
    relu.shared = output.shared = ["one list"]
    again = copy.deepcopy(gm)
    copied_x, copied, copied_output = again.graph.nodes
    assert copied.before is copied_x
    assert copied.both["nodes"] == [copied, copied_output]
    assert copied.lock is lock and copied.result is result
    assert copied.owner is again
    assert copied.shared is copied_output.shared is not relu.shared
    assert copied.shared == ["one list"]


def test_a_chain_of_attached_nodes_is_copied_without_recursion() -> None:
    graph = corsac.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(3000):
        before, node = node, graph.call_function(torch.relu, (node,))
        node.before = before
    graph.output(node)
    again = list(copy.deepcopy(graph).nodes)
    assert all(node.before is again[place] for place, node in enumerate(again[1:-1]))


@row("the training flag of modules that only hold others")
def test_training_flags() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Module()
            self.inner.linear = nn.Linear(1, 1)

        def forward(self, x):
            return self.inner.linear(x)

    flags = [fx.symbolic_trace(Held().eval()).inner.training for fx in PACKAGES]
    assert flags == [True, False]


def mismatched(x):
    y = torch.relu(x)
    return torch.mm(y, x)


@row("an error of a node in `Interpreter`")
def test_errors_of_nodes_say_where_these_are_from() -> None:
    told = []
    for fx in PACKAGES:
        with pytest.raises(RuntimeError) as raised:
            fx.Interpreter(fx.symbolic_trace(mismatched)).run(torch.randn(3, 4))
        told.append(str(raised.value))
    assert "Original traceback:\nNone\n" in told[0]
    assert f'Original traceback:\nFile "{__file__}", line ' in told[1]


@row("an error in a generated line")
def test_errors_in_generated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for fx in PACKAGES:
        with pytest.raises(RuntimeError):
            fx.symbolic_trace(mismatched)(torch.randn(3, 4))
        shown.append(capsys.readouterr().err)
    assert all("<--- HERE" in text for text in shown)
    origin = "return torch.mm(y, x)"
    assert origin not in shown[0] and origin in shown[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("rows_")]:
        del sys.modules[name]


def written(gm: Any, folder: Path, name: str) -> Any:
    """The module that ``to_folder`` wrote, imported."""
    gm.to_folder(folder / name)
    importlib.invalidate_caches()
    return importlib.import_module(name).FxModule()


def package(fx: ModuleType) -> str:
    return fx.__name__.replace(".", "_")


@row("`to_folder`: functions of the user")
def test_to_folder_with_functions(folder: Path) -> None:
    (folder / "rows_functions.py").write_text("def twice(x):\n    return x + x\n")
    twice = importlib.import_module("rows_functions").twice

    def run(fx: ModuleType) -> Any:
        graph = fx.Graph()
        graph.output(graph.call_function(twice, (graph.placeholder("x"),)))
        return written(fx.GraphModule({}, graph), folder, f"rows_user_{package(fx)}")(3)

    with pytest.raises(NameError):
        run(torch.fx)
    assert run(corsac.fx) == 6


@row("`to_folder`: names of submodules with quotes")
def test_to_folder_with_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(fx: ModuleType) -> str:
        gm = fx.GraphModule(nn.Module(), fx.symbolic_trace(lambda x: x).graph)
        gm.add_module("a', print('injected'), '", nn.Linear(1, 1))
        with contextlib.suppress(Exception):
            written(gm, folder, f"rows_names_{package(fx)}")
        return capsys.readouterr().out

    assert "injected" in run(torch.fx)
    assert "injected" not in run(corsac.fx)


@row("`to_folder`: integer parameters")
def test_to_folder_with_integers(folder: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = nn.Parameter(torch.arange(2), requires_grad=False)
            self.register_buffer("passing", torch.full((2,), 5), persistent=False)

        def forward(self, x):
            return x + self.whole + self.passing

    def run(fx: ModuleType) -> Any:
        gm = fx.GraphModule(Net(), fx.Tracer().trace(Net()), "FxModule")
        return written(gm, folder, f"rows_integers_{package(fx)}")(torch.zeros(2))

    with pytest.raises(Exception):  # noqa: B017
        run(torch.fx)
    assert torch.equal(run(corsac.fx), torch.tensor([5.0, 6.0]))


@row("`to_folder(module_name=...)`")
def test_to_folder_with_a_module_name(folder: Path) -> None:
    name = "A(object): pass\nprint('injected')\nclass B"
    torch.fx.symbolic_trace(Relu()).to_folder(folder / "theirs", name)
    assert "\nprint('injected')\n" in (folder / "theirs" / "module.py").read_text()
    with pytest.raises(ValueError, match="identifier"):
        corsac.fx.symbolic_trace(Relu()).to_folder(folder / "ours", name)


@row("`torch.package`")
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_packages() -> None:
    def package(fx: ModuleType, *patterns: str) -> None:
        with PackageExporter(io.BytesIO()) as exporter:
            for pattern in patterns:
                exporter.extern(pattern)
            exporter.save_pickle("model", "model.pkl", fx.symbolic_trace(Relu()))

    own = __name__
    package(torch.fx, own)
    with pytest.raises(PackagingError, match=r"corsac\.fx"):
        package(corsac.fx, own)
    package(corsac.fx, own, "corsac.**")


@row("`_compatibility._MARKED_WITH_COMPATIBILITY`")
def test_marks_of_compatibility() -> None:
    theirs = torch.fx._compatibility
    assert torch.fx.Graph in theirs._BACK_COMPAT_OBJECTS
    assert corsac.fx.Graph not in _compatibility._BACK_COMPAT_OBJECTS

    @_compatibility.compatibility(is_backward_compatible=True)
    def own() -> None: ...

    assert own in _compatibility._BACK_COMPAT_OBJECTS
    assert own in _compatibility._MARKED_WITH_COMPATIBILITY


@row("where nodes made by a `Transformer` come from")
def test_sources_of_transformed_nodes() -> None:
    assert not hasattr(next(iter(torch.fx.symbolic_trace(mismatched).graph.nodes)), "source")
    gm = corsac.fx.symbolic_trace(mismatched)
    again = corsac.fx.Transformer(gm).transform()
    assert [n.source for n in again.graph.nodes] == [n.source for n in gm.graph.nodes]
    assert all(n.source for n in again.graph.nodes if n.op == "call_function")
