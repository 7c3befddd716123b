"""Adding, deleting and writing out submodules."""

import importlib
import sys
import warnings

import pytest
import torch
import torch.fx
from torch import nn

import corsac.fx as fx
from kit.known import row


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.linear = nn.Linear(3, 3)
        self.inner.relu = nn.ReLU()
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.arange(3.0))
        self.register_buffer("scratch", torch.full((3,), 2.0), persistent=False)

    def forward(self, x):
        x = self.inner.relu(self.inner.linear(x)) * self.weight
        return self.seq(x) + self.offset + self.scratch


def test_add_makes_the_containers_on_the_way():
    gm = fx.symbolic_trace(Net())
    relu = nn.ReLU()
    assert gm.add_submodule("a.b.c", relu)
    assert gm.a.b.c is relu
    assert gm.get_submodule("a.b.c") is relu
    assert not gm.add_submodule("weight.x", nn.ReLU())


def test_delete_says_whether_there_was_one():
    gm = fx.symbolic_trace(Net())
    assert gm.delete_submodule("inner.linear")
    assert not hasattr(gm.inner, "linear")
    assert not gm.delete_submodule("inner.linear")
    assert not gm.delete_submodule("nowhere.at.all")
    assert not gm.delete_submodule("weight")
    assert hasattr(gm, "weight")


def test_unused_submodules_are_deleted_and_used_ones_kept():
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()
            self.holder = nn.Module()
            self.holder.value = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.net(x) + self.holder.value

    root = Reader()
    gm = fx.GraphModule(root, Leaves().trace(root))
    gm.add_submodule("extra.deep", nn.ReLU())
    gm.add_submodule("other", nn.ReLU())
    before = {name for name, _ in gm.named_modules()}
    gm.delete_all_unused_submodules()
    after = {name for name, _ in gm.named_modules()}
    assert before - after == {"extra", "extra.deep", "other"}
    assert "net.inner.linear" in after and "holder" in after


@row("`delete_all_unused_submodules` where a `get_attr` node reads a module")
def test_modules_inside_of_one_that_is_read_stay():
    root = nn.Module()
    root.branch = fx.symbolic_trace(Net().eval())
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_method("__call__", (graph.get_attr("branch"), x)))
    gm = fx.GraphModule(root, graph)
    before = {name for name, _ in gm.named_modules()}
    gm.delete_all_unused_submodules()
    assert {name for name, _ in gm.named_modules()} == before
    assert "branch.inner.linear" in before
    assert torch.equal(gm(torch.ones(2, 3)), root.branch(torch.ones(2, 3)))


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("written_")]:
        del sys.modules[name]


def test_to_folder_can_be_imported(on_path):
    net = Net().eval()
    gm = fx.symbolic_trace(net)
    with pytest.warns(UserWarning, match=r"saved as pickled files instead: \['inner', 'seq'\]"):
        gm.to_folder(on_path / "written_net", "Written")
    loaded = importlib.import_module("written_net").Written()
    x = torch.randn(2, 3)
    assert torch.equal(loaded.eval()(x), net(x))
    files = sorted(path.name for path in (on_path / "written_net").iterdir())
    assert (
        files
        == [
            "__init__.py",
            "inner.pt",
            "module.py",
            "scratch.pt",
            "seq.pt",
            "state_dict.pt",
        ]
        or "__pycache__" in files
    )


def test_to_folder_writes_what_torch_fx_writes(tmp_path):
    root = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    fx.symbolic_trace(root).to_folder(tmp_path / "ours")
    torch.fx.symbolic_trace(root).to_folder(tmp_path / "theirs")
    ours = (tmp_path / "ours" / "module.py").read_text().replace("ours", "_")
    theirs = (tmp_path / "theirs" / "module.py").read_text().replace("theirs", "_")
    assert ours == theirs


def test_to_folder_imports_the_functions_of_the_user(on_path, monkeypatch):
    (on_path / "written_functions.py").write_text("def twice(x):\n    return x + x\n")
    functions = importlib.import_module("written_functions")
    graph = fx.Graph()
    graph.output(graph.call_function(functions.twice, (graph.placeholder("x"),)))
    fx.GraphModule({}, graph).to_folder(on_path / "written_user")
    loaded = importlib.import_module("written_user").FxModule()
    assert torch.equal(loaded(torch.ones(1)), torch.tensor([2.0]))


def test_names_cannot_carry_code_into_the_folder(tmp_path):
    name = "a', print('injected'), '"
    gm = fx.GraphModule(nn.Module(), fx.symbolic_trace(lambda x: x).graph)
    gm.add_module(name, nn.Linear(1, 1))
    gm.add_module("a/%2e/b", nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gm.to_folder(tmp_path / "written")
    text = (tmp_path / "written" / "module.py").read_text()
    assert f"setattr(self, {name!r}, Linear(" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["written"]
    with pytest.raises(ValueError, match="is not a Python identifier"):
        gm.to_folder(tmp_path / "other", "A: pass #")
    assert not (tmp_path / "other").exists()
