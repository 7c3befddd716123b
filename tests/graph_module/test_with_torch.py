"""Graph modules in the rest of PyTorch."""

import io

import pytest
import torch
import torch.fx
from torch import nn
from torch.package import PackageExporter, PackageImporter, PackagingError

import corsac.fx as fx
from corsac.fx.experimental.proxy_tensor import make_fx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return torch.relu(self.linear(x)) + 1


@pytest.fixture
def net():
    return Net()


@pytest.fixture
def gm(net):
    return fx.symbolic_trace(net)


def test_torch_compile_takes_it_whole(net, gm):
    x = torch.randn(2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(gm, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), net(x))
    torch._dynamo.reset()


def test_torch_export_takes_it(net, gm):
    x = torch.randn(2, 3)
    program = torch.export.export(gm, (x,))
    assert torch.equal(program.module()(x), net(x))
    assert list(program.state_dict) == ["linear.weight", "linear.bias"]


@pytest.mark.filterwarnings("ignore")
def test_torchscript_takes_it(net, gm):
    x = torch.randn(2, 3)
    assert torch.equal(torch.jit.script(gm)(x), net(x))
    assert torch.equal(torch.jit.trace(fx.symbolic_trace(net), x)(x), net(x))


def test_torch_fx_traces_it(net, gm):
    theirs = torch.fx.symbolic_trace(gm)
    assert theirs.code == gm.code
    assert fx.symbolic_trace(torch.fx.symbolic_trace(net)).code == gm.code


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_packages_have_to_be_told_that_corsac_stays_outside(gm):
    exporter = PackageExporter(io.BytesIO())
    exporter.save_pickle("model", "model.pkl", gm)
    with pytest.raises(PackagingError, match=r"corsac\.fx\.graph_module"):
        exporter.close()


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_packages(net, gm):
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = f"made {node.name}"
    x = torch.randn(2, 3)
    buffer = io.BytesIO()
    with PackageExporter(buffer) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", gm)
    buffer.seek(0)
    again = PackageImporter(buffer).load_pickle("model", "model.pkl")
    assert torch.equal(again(x), net(x))
    assert again.code == gm.code
    assert type(again).__name__ == "Net"
    assert [n.meta.get("stack_trace") for n in again.graph.nodes] == [
        f"made {n.name}" for n in gm.graph.nodes
    ]


def test_readable_code_is_that_of_torch_fx(net, gm, capsys):
    theirs = torch.fx.symbolic_trace(net)
    for graph_module in (gm, theirs):
        for node in graph_module.graph.nodes:
            if node.op == "call_module":
                node.meta["val"] = torch.empty(2, 3)
                node.meta["seq_nr"] = 3
    options = [
        {},
        {"include_stride": True, "include_device": True},
        {"colored": True},
        {"expanded_def": True},
        {"additional_meta": ["seq_nr"]},
        {"fast_sympy_print": True},
    ]
    for option in options:
        ours = gm.print_readable(False, **option)
        assert ours == theirs.print_readable(False, **option)
    assert capsys.readouterr().out == ""
    gm.print_readable()
    assert capsys.readouterr().out == theirs.print_readable(False) + "\n"


def test_readable_code_has_the_children(net):
    class Outer(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    texts = []
    for package in (fx, torch.fx):

        class Leaves(package.Tracer):
            def is_leaf_module(self, m, module_qualified_name):
                return True

        outer = Outer(package.symbolic_trace(net))
        texts.append(package.GraphModule(outer, Leaves().trace(outer)).print_readable(False))
    assert texts[0] == texts[1]
    assert "class inner(torch.nn.Module):" in texts[0]


def test_profiling_metadata_is_registered(gm):
    from torch.fx.experimental import _config
    from torch.fx.traceback import _FX_METADATA_REGISTRY

    x = torch.ones(2, 3)
    expected = gm(x)
    with _config.patch(enrich_profiler_metadata=True):
        gm.recompile()
        code = gm.code
    (name,) = [name for name in _FX_METADATA_REGISTRY if name in code]
    metadata = _FX_METADATA_REGISTRY.pop(name)
    assert [entry["name"] for entry in metadata["node_metadata"].values()] == [
        node.name for node in gm.graph.nodes
    ]
    assert f"_RecordFunctionFast('## {name} ##')" in code
    assert torch.equal(gm(x), expected)
    assert type(gm).forward.__code__.co_filename == name


def test_lazy_graph_modules_of_torch_fx_are_understood(net):
    from corsac.fx import _lazy_graph_module as lazy

    graph = fx.symbolic_trace(net).graph
    with lazy._use_lazy_graph_module(True):
        gm = lazy._make_graph_module(net, graph)
        assert isinstance(gm, lazy._LazyGraphModule)
        with lazy._force_skip_lazy_graph_module(), lazy._use_lazy_graph_module(True):
            assert lazy._get_graph_module_cls() is fx.GraphModule
    assert lazy._get_graph_module_cls() is fx.GraphModule
    assert gm._needs_recompile()
    lazy._LazyGraphModule.force_recompile(gm)
    assert not gm._needs_recompile()
    gm.recompile()
    assert gm._needs_recompile()
    plain = lazy._unwrap_lazy_graph_module(gm)
    assert not isinstance(plain, lazy._LazyGraphModule)
    x = torch.randn(2, 3)
    assert torch.equal(plain(x), net(x))
    assert lazy._LazyGraphModule.from_graphmodule(gm) is gm


def test_lazy_graph_modules_are_compiled_when_their_code_is_looked_at():
    from corsac.fx import _lazy_graph_module as lazy

    with lazy._use_lazy_graph_module(True):
        traced = fx.symbolic_trace(lambda x: x.sin())
        made = make_fx(traced)(torch.ones(2))
    assert isinstance(traced, lazy._LazyGraphModule) and isinstance(made, lazy._LazyGraphModule)
    assert not traced._needs_recompile() and made._needs_recompile()
    assert "sin" in made.code and not made._needs_recompile()
    assert not isinstance(make_fx(torch.sin)(torch.ones(2)), lazy._LazyGraphModule)
