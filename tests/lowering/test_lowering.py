"""Placement of nodes, and unchanged results."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import corsac
from corsac import backends, fx, lowering
from corsac.analysis import TensorSpec
from corsac.lowering import Backend, LoweredPart, LoweringError

RUNTIMES = ("onnxruntime", "openvino")


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-6, check_stride=False)


def check(model: nn.Module, *inputs: Any, backend: str = "onnxruntime", **options: Any) -> Any:
    """Lower, compare, and return the lowered module; fresh inputs for each call."""
    lowered = corsac.lower(model.eval(), backend, inputs, **options)
    mine, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
    with torch.no_grad():
        close(lowered(*mine), model(*theirs))
    for a, b in zip(mine, theirs, strict=True):
        close(a, b)
    return lowered


def where(model: nn.Module, *inputs: Any, backend: str = "onnxruntime", **options: Any) -> dict:
    """The part of each node."""
    rows = lowering.preview(model.eval(), backend, inputs, **options).placements
    return {row.node: row.part for row in rows}


class WithFallback(nn.Module):
    """An operator without a translation in the middle."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.before(x).relu()
        y = torch.linalg.matrix_exp(y @ y.mT)
        return self.after(y)


@pytest.mark.parametrize("backend", RUNTIMES)
def test_unsupported_operators_stay_on_the_host(backend):
    model, x = WithFallback(), torch.randn(2, 4, 4) * 0.1
    lowered = check(model, x, backend=backend)
    assert [n.op for n in lowered.graph.nodes] == [
        "placeholder", "call_module", "call_function", "call_module", "output",
    ]  # fmt: skip
    assert [n.target for n in lowered.graph.find_nodes(op="call_module")] == [
        "lowered_0", "lowered_1",
    ]  # fmt: skip
    assert list(lowered.state_dict()) == []
    assert list(model.state_dict()) == [
        "before.weight",
        "before.bias",
        "after.weight",
        "after.bias",
    ]


def test_a_preview_says_where_and_why():
    preview = lowering.preview(WithFallback().eval(), "onnxruntime", torch.randn(2, 4, 4))
    rows = {row.node: row for row in preview.placements}
    assert [row.part for row in preview.placements] == [0, 0, 0, 0, None, 1]
    assert rows["linalg_matrix_exp"].reason.startswith("no translation of torch")
    assert "test_lowering.py:" in rows["linalg_matrix_exp"].source
    assert preview.parts[0].inputs == ("x: float32[2, 4, 4]",)
    assert preview.parts[0].input_bytes == 128 and preview.parts[1].output_bytes == 64
    assert preview.transfers == 4
    text = str(preview)
    assert "host: no translation of torch" in text
    assert text.endswith("5 of 6 calls on onnxruntime in 2 parts, 4 transfers")
    assert preview.to_dict()["transfers"] == 4
    assert [row.node for row in preview.host] == ["linalg_matrix_exp"]


@pytest.mark.parametrize("backend", [*RUNTIMES, "corsac"])
def test_what_was_lowered_keeps_its_preview(backend):
    def program(x):
        return torch.linalg.matrix_exp(x).view(-1).exp() + x.mT.reshape(-1).view(16)

    model, x = fx.symbolic_trace(program).eval(), torch.randn(4, 4) * 0.1
    preview = lowering.preview(model, backend, x)
    assert [row.target for row in preview.placements if row.op == "call_method"].count("view") == 2
    lowered = corsac.lower(model, backend, x)
    assert lowered.meta["lowering"] == preview
    close(lowered(x), program(x))


def test_strict_names_the_first_node_that_stays():
    with pytest.raises(LoweringError, match=r"linalg_matrix_exp .*test_lowering.py:\d+: no trans"):
        corsac.lower(WithFallback().eval(), "onnxruntime", torch.randn(2, 4, 4), strict=True)
    corsac.lower(nn.Linear(2, 2).eval(), "onnxruntime", torch.randn(2, 2), strict=True)


def test_parts_that_are_too_small_stay():
    model, x = WithFallback(), torch.randn(2, 4, 4) * 0.1
    assert len(lowering.preview(model.eval(), "onnxruntime", x, min_nodes=2).parts) == 1
    lowered = check(model, x, min_nodes=2)
    assert lowered.get_submodule("after") is model.after
    assert len(lowering.preview(model.eval(), "onnxruntime", x, min_nodes=9).parts) == 0
    check(model, x, min_nodes=9)


def test_diamonds_make_no_cycle():
    class Diamond(nn.Module):
        def forward(self, x):
            a = x.relu()
            b = torch.linalg.matrix_exp(a)
            c = a.sigmoid()
            return b + c, (a * c).tanh()

    model, x = Diamond(), torch.randn(3, 3)
    check(model, x)
    parts = where(model, x)
    assert parts["relu"] == 0 and parts["add"] == 1 and parts["linalg_matrix_exp"] is None


def test_results_keep_their_structure():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x, y, scale: float = 2.0, *, flag: bool = False):
            z = self.layer(x) * scale
            return {"z": z, "pair": (x, [y + z, None]), "size": x.size(0), "again": z}

    model, x, y = Nested().eval(), torch.randn(2, 3), torch.randn(2, 3)
    lowered = corsac.lower(model, "onnxruntime", x, kwargs={"y": y})
    with torch.no_grad():
        expected = model(x, y)
    actual = lowered(x, y=y)
    close(actual, expected)
    assert actual["pair"][0] is x and actual["size"] == 2
    with pytest.raises(LoweringError, match=r"scale: lowered for 2.0, got 3.0"):
        lowered(x, y, 3.0)


def test_inputs_have_to_be_of_the_types_in_the_example():
    lowered = corsac.lower(nn.Linear(3, 3).eval(), "onnxruntime", torch.randn(2, 3))
    with pytest.raises(
        LoweringError, match=r"input: lowered for float32\[2, 3\], got float32\[4, 3\]"
    ):
        lowered(torch.randn(4, 3))
    with pytest.raises(LoweringError, match=r"lowered for float32\[2, 3\], got float64\[2, 3\]"):
        lowered(torch.randn(2, 3).double())
    with pytest.raises(LoweringError, match=r"got a int"):
        lowered(3)
    with pytest.raises(LoweringError, match="no example of the input input"):
        corsac.lower(nn.Linear(3, 3).eval(), "onnxruntime", ())
    with pytest.raises(LoweringError, match="there is no input nothing; there are input"):
        corsac.lower(nn.Linear(3, 3).eval(), "onnxruntime", (), kwargs={"nothing": 1})


@pytest.mark.parametrize("backend", RUNTIMES)
def test_sizes_may_be_symbols(backend):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            b, half = x.size(0), x.size(1) // 2
            y = self.layer(x.transpose(1, 2)).reshape(b, -1)
            return y.view(b, -1, 4) + torch.arange(b).view(b, 1, 1), y[:half], b * 2

    model = Rows().eval()
    lowered = corsac.lower(model, backend, TensorSpec(("b", 6, "s")))
    for b, s in ((2, 3), (5, 9), (7, 4)):
        x = torch.randn(b, 6, s)
        with torch.no_grad():
            close(lowered(x), model(x))
    with pytest.raises(LoweringError, match=r"\(b is any size from 2\)"):
        lowered(torch.randn(1, 6, 3))


def test_sizes_bind_once():
    model = fx.symbolic_trace(lambda x, y: x + y)
    lowered = corsac.lower(model.eval(), "onnxruntime", (TensorSpec(("b",)), TensorSpec(("b",))))
    close(lowered(torch.ones(3), torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(LoweringError, match=r"y: lowered for float32\[b\], got float32\[4\]"):
        lowered(torch.ones(3), torch.ones(4))


# -- writes and other order dependencies -----------------------------------------------------------


class Writes(nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, x):
        return self.program(self, x)


def _view_written(self, x):
    y = x * 2
    row = y[0]
    row.add_(1)
    return y.relu()


def _written_after_a_view(self, x):
    y = x * 2
    row = y[0]
    y.mul_(3)
    return row + y.sigmoid()[1]


def _input_written(self, x):
    before = x.exp()
    x.add_(1)
    return before + x.exp()


def _setitem(self, x):
    y = x * 2
    before = y.exp()
    y[0] = 5.0
    return before, y.exp()


def _read_before_an_unsupported_write(self, x):
    y = x * 2
    before = y.exp()
    y.erfinv_()
    return before.nan_to_num(), y.nan_to_num()


def _harmless(self, x):
    return (x * 2).relu_().add_(1).clamp_(max=2).view(-1).mul_(3)


@pytest.mark.parametrize(
    "program",
    [_view_written, _written_after_a_view, _input_written, _setitem, _read_before_an_unsupported_write,
     _harmless],
)  # fmt: skip
@pytest.mark.parametrize("backend", RUNTIMES)
def test_writes_are_seen_as_in_eager(program, backend):
    x = torch.rand(3, 4)
    model, other = Writes(program).eval(), Writes(program).eval()
    lowered = corsac.lower(model, backend, x)
    for _ in range(2):
        mine, theirs = x.clone(), x.clone()
        with torch.no_grad():
            close(lowered(mine), other(theirs))
        close(mine, theirs)
    parts = where(Writes(program), x, backend=backend)
    assert (None in parts.values()) == (program is not _harmless)


def test_a_buffer_that_is_written_to_stays():
    root = nn.Module()
    root.register_buffer("state", torch.zeros(4))
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_method("add_", (graph.get_attr("state"), 1))
    graph.output(graph.call_function(torch.add, (x, graph.get_attr("state"))))
    model = fx.GraphModule(root, graph).eval()
    lowered = corsac.lower(model, "onnxruntime", torch.zeros(4))
    assert [lowered(torch.zeros(4))[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert [row.part for row in lowered.meta["lowering"].placements] == [None, 0]


def test_random_operators_stay_and_keep_their_order():
    class Noise(nn.Module):
        def forward(self, x):
            y = x.relu() + torch.randn_like(x)
            z = (y * 2).sigmoid()
            return z + torch.rand_like(x), y

    model, x = Noise().eval(), torch.randn(3, 4)
    lowered = corsac.lower(model, "onnxruntime", x)
    torch.manual_seed(3)
    expected = model(x)
    torch.manual_seed(3)
    close(lowered(x), expected)
    assert where(model, x)["randn_like"] is None


def test_dropout_in_training_is_not_lowered():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    model[1].train()
    preview = lowering.preview(model, "onnxruntime", torch.randn(2, 3))
    assert preview.placements[1].reason == "it uses random numbers"
    norm = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()).eval()
    norm[1].train()
    rows = lowering.preview(norm, "onnxruntime", torch.randn(2, 2, 3, 3)).placements
    assert [row.part for row in rows] == [0, None, 1]
    assert rows[1].reason == "it writes to buffers of a module"
    check_training = corsac.lower(norm, "onnxruntime", torch.randn(2, 2, 3, 3))
    assert check_training.get_submodule("1") is norm[1]


def test_hooked_modules_stay():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    lowered = check(model, torch.randn(2, 3))
    assert lowered.get_submodule("0") is model[0]


# -- the resulting module --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", RUNTIMES)
def test_results_are_memory_of_their_own(backend):
    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.same = nn.Parameter(torch.arange(4.0)), nn.Identity()

        def forward(self, x):
            return x.view(-1) + 0, x.reshape(4), self.same(self.table), x * 2

    model = Through()
    x = torch.randn(2, 2)
    lowered = corsac.lower(model.eval(), backend, x, min_nodes=0)
    first = lowered(x)
    kept = [y.clone() for y in first]
    assert not any(row.part is None for row in lowered.meta["lowering"].placements)
    for y in lowered(torch.randn(2, 2)):
        y.fill_(7)
    for y, z in zip(first, kept, strict=True):
        close(y, z)
        assert y.data_ptr() not in (x.data_ptr(), model.table.data_ptr())
    close(lowered(x), tuple(kept))


def test_inputs_need_not_be_contiguous():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    x = torch.randn(2, 3, 6, 5)
    lowered = corsac.lower(model, "onnxruntime", x)
    with torch.no_grad():
        for y in (
            x.to(memory_format=torch.channels_last),
            torch.randn(2, 3, 5, 6).mT,
            torch.randn(2, 3, 12, 5)[:, :, ::2],
            torch.randn(2, 1, 6, 5).expand(2, 3, 6, 5),
        ):
            close(lowered(y), model(y))


@pytest.mark.parametrize("backend", RUNTIMES)
def test_threads_may_call_at_once(backend):
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).eval()
    lowered = corsac.lower(model, backend, torch.randn(8, 16))
    wrong: list[int] = []

    def work(number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        for _ in range(20):
            x = torch.randn(8, 16, generator=generator)
            with torch.no_grad():
                if not torch.allclose(lowered(x), model(x), atol=1e-5):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_have_no_gradient():
    model = nn.Linear(3, 3).eval()
    x = torch.randn(2, 3, requires_grad=True)
    result = corsac.lower(model, "onnxruntime", x)(x)
    assert not result.requires_grad and result.grad_fn is None
    with pytest.raises(LoweringError, match=r"in training mode.*model.eval\(\)"):
        corsac.lower(model.train(), "onnxruntime", x)
    lowered = corsac.lower(model.eval(), "onnxruntime", x)
    with pytest.raises(LoweringError, match="lowered for evaluation"):
        lowered.train()


def test_copies_work_and_pickles_say_why_not():
    model, x = WithFallback().eval(), torch.randn(2, 4, 4) * 0.1
    lowered = corsac.lower(model, "onnxruntime", x)
    copied = copy.deepcopy(lowered)
    close(copied(x), lowered(x))
    with pytest.raises(LoweringError):
        copied(torch.randn(3, 4, 4))
    with pytest.raises(TypeError, match="lowered_0 holds what onnxruntime has made"):
        pickle.dumps(lowered)
    assert "onnxruntime" in repr(lowered.lowered_0)


def test_a_graph_of_torch_fx_is_lowered_too():
    model, x = torch.fx.symbolic_trace(WithFallback().eval()), torch.randn(2, 4, 4) * 0.1
    close(corsac.lower(model, "onnxruntime", x)(x), model(x).detach())


# -- backends --------------------------------------------------------------------------------------


class Plain(Backend):
    """Runs relu and add, without other packages."""

    def __init__(self, only: str | None = None):
        self.only = only
        self.compiled: list[list[Any]] = []

    def supports(self, node: fx.Node, types: Mapping[fx.Node, Any]) -> bool | str:
        name = getattr(node.target, "__name__", str(node.target))
        if self.only is not None:
            return name == self.only or f"only {self.only} runs here"
        return name in ("relu", "add")

    def compile(self, part: fx.GraphModule, types: Sequence[Any]) -> Any:
        self.compiled.append(list(types))
        return part


@pytest.fixture
def plain():
    backends.register_backend(Plain, "plain")
    yield
    backends.unregister_backend("plain")


def test_a_backend_can_be_registered(plain):
    with pytest.raises(ValueError, match="there is a backend 'plain'"):
        backends.register_backend(Plain, "plain")
    assert lowering.backends()["plain"] is None
    model, x = fx.symbolic_trace(lambda x: (x.relu() + 1).exp()).eval(), torch.randn(3)
    lowered = corsac.lower(model, "plain", x)
    close(lowered(x), (x.relu() + 1).exp())
    assert isinstance(lowered.lowered_0, LoweredPart) and lowered.lowered_0.backend == "plain"
    rows = lowering.preview(model, "plain", x).placements
    assert rows[2].reason == "the backend does not support it"
    rows = lowering.preview(model, "plain", x, options={"only": "exp"}).placements
    assert [row.reason for row in rows] == ["only exp runs here"] * 2 + [None]
    made = Plain()
    corsac.lower(model, made, x)
    (types,) = made.compiled
    assert (types[0].dtype, types[0].shape) == (torch.float32, (3,))
    with pytest.raises(TypeError, match="options are for names and classes of backends"):
        corsac.lower(model, made, x, options={"only": "exp"})


def test_registered_backends_compile_parts_of_programs(plain):
    model, x = fx.symbolic_trace(lambda x: (x.relu() + 1).exp()).eval(), torch.randn(3)
    assert "plain" in backends.list_backends()
    for backend in ("plain", Plain, Plain()):
        compiled = corsac.compile(model, backend=backend)
        with torch.no_grad():
            for _ in range(2):
                close(compiled(x), (x.relu() + 1).exp())
        assert "the backend does not support it" in compiled.explain()
    close(corsac.lower(model, Plain, x, options={"only": "exp"})(x), (x.relu() + 1).exp())
    with pytest.raises(ValueError, match="there is a backend 'onnxruntime'"):
        backends.register_backend(Plain, "onnxruntime")


def test_compiled_models_keep_a_backend_that_is_unregistered():
    backends.register_backend(Plain, "once")
    model = fx.symbolic_trace(lambda x: (x.relu() + 1).exp()).eval()
    compiled = corsac.compile(model, backend="once")
    try:
        compiled(torch.randn(3))
    finally:
        backends.unregister_backend("once")
    x = torch.randn(2, 4)
    with torch.no_grad():
        close(compiled(x), (x.relu() + 1).exp())


def test_backends_without_a_name_have_that_of_their_class():
    assert backends.register_backend(made := Plain()) is made
    try:
        assert "Plain" in backends.list_backends() and lowering.backends()["Plain"] is None
        lowered = corsac.lower(
            fx.symbolic_trace(lambda x: x.relu()).eval(), "Plain", torch.randn(3)
        )
        assert lowered.lowered_0.backend == "Plain"
    finally:
        backends.unregister_backend("Plain")


def test_packages_that_fail_are_listed_with_the_reason(monkeypatch):
    import importlib.metadata

    point = importlib.metadata.EntryPoint("broken", "nowhere.at.all:Backend", "corsac_backends")
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda *, group, name="broken": [point] if name == "broken" else [],
    )
    assert lowering.backends()["broken"].startswith("ModuleNotFoundError")
    with pytest.raises(ValueError, match="no backend 'nowhere'; there are broken, corsac"):
        corsac.lower(nn.Linear(2, 2).eval(), "nowhere", torch.randn(2, 2))


def test_unfolding_images_is_a_computation():
    model = fx.symbolic_trace(lambda x: nn.functional.unfold(x, 2)).eval()
    preview = lowering.preview(model, "corsac", torch.randn(1, 1, 4, 4))
    assert [row.reason for row in preview.placements] == [None]
    model = fx.symbolic_trace(lambda x: x.flatten()).eval()
    preview = lowering.preview(model, "corsac", torch.randn(2, 4))
    assert [row.reason for row in preview.placements] == ["its part computes nothing"]


def test_backends_of_whole_graphs_lower_no_parts():
    backends.register_backend(lambda gm, inputs: gm.forward, "whole")
    try:
        assert "whole" not in lowering.backends()
        with pytest.raises(ValueError, match="no backend for parts of programs 'whole'"):
            corsac.lower(nn.Linear(2, 2).eval(), "whole", torch.randn(2, 2))
    finally:
        backends.unregister_backend("whole")


def test_what_is_missing_is_said():
    with pytest.raises(
        ValueError, match="there is no backend 'nowhere'; there are corsac, onnxruntime, o"
    ):
        corsac.lower(nn.Linear(2, 2).eval(), "nowhere", torch.randn(2, 2))
    reason = lowering.backends()["tensorrt"]
    if reason is not None:
        with pytest.raises(LoweringError, match=r"tensorrt cannot be used here: .*pip install"):
            corsac.lower(nn.Linear(2, 2).eval(), "tensorrt", torch.randn(2, 2))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_packages_are_named(package, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else real(name)
    )
    message = rf"onnxruntime cannot be used here: {package} is missing: pip install {package}"
    with pytest.raises(LoweringError, match=message):
        corsac.lower(nn.Linear(2, 2).eval(), "onnxruntime", torch.randn(2, 2))
    assert lowering.backends()["onnxruntime"] == f"{package} is missing: pip install {package}"


def test_entry_points_are_found(monkeypatch):
    import importlib.metadata

    point = importlib.metadata.EntryPoint(
        "fromafar", f"{Plain.__module__}:Plain", "corsac_backends"
    )
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda *, group, name="fromafar": [point] if name == "fromafar" else [],
    )
    assert "fromafar" in lowering.backends() and "fromafar" in backends.list_backends()
    x = torch.randn(3)
    model = fx.symbolic_trace(lambda x: x.relu()).eval()
    close(corsac.lower(model, "fromafar", x)(x), x.relu())


def test_openvino_refuses_integers_that_it_would_cut():
    model = fx.symbolic_trace(lambda x: x + 1).eval()
    lowered = corsac.lower(model, "openvino", torch.tensor([1]))
    assert lowered(torch.tensor([5])).tolist() == [6]
    with pytest.raises(LoweringError, match=r"integers from 2\*\*30"):
        lowered(torch.tensor([2**40]))


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "swin_t"])
def test_models_are_one_part(name, backend):
    import torchvision

    from kit.trained import as_if_trained

    torch.manual_seed(0)
    model = as_if_trained(torchvision.models.get_model(name))
    x = torch.randn(1, 3, 64, 64)
    lowered = corsac.lower(model, backend, x, strict=True)
    assert len(lowered.meta["lowering"].parts) == 1
    with torch.no_grad():
        expected, actual = model(x), lowered(x)
    assert (actual - expected).abs().max() < 1e-5 * expected.abs().max() + 1e-6


def test_arguments_that_nest_keep_their_shape():
    class Nested(nn.Module):
        def forward(self, pair, *, scale):
            return {"sum": pair[0] + pair[1] * scale["by"], "first": pair[0]}

    pair, scale = (torch.randn(3), torch.randn(3)), {"by": torch.tensor(2.0)}
    exported = torch.export.export(Nested(), (pair,), {"scale": scale}).module()
    gm = fx.from_torch(exported)
    gm.training = False
    lowered = corsac.lower(gm, "onnxruntime", (pair,), kwargs={"scale": scale})
    close(lowered(pair, scale=scale), gm(pair, scale=scale))
    with pytest.raises(LoweringError, match=r"lowered for float32\[3\], got float32\[4\]"):
        lowered((torch.randn(4), torch.randn(3)), scale=scale)


class Deciding(nn.Module):
    """Decides by sizes and by what is given by name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        scale: float = 1.0,
        *,
        bias: torch.Tensor,
        squash: bool = False,
    ) -> torch.Tensor:
        y = self.layer(x) * scale + bias
        if mask is not None:
            y = y * mask
        if x.shape[0] > 1:
            y = y.relu()
        return y.sigmoid() if squash else y


ROWS, MASK, BIAS = torch.linspace(-1, 1, 6).view(2, 3), torch.eye(2, 3), torch.tensor([1.0, 2, 3])


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((ROWS,), {"bias": BIAS}),
        ((ROWS,), {"bias": BIAS, "mask": MASK}),
        ((ROWS, MASK), {"bias": BIAS}),
        ((), {"bias": BIAS, "mask": MASK, "x": ROWS}),
        ((ROWS,), {"squash": True, "bias": BIAS, "scale": 2.0}),
        ((ROWS, None, 0.5), {"bias": BIAS}),
    ],
    ids=lambda own: str(len(own)) if isinstance(own, tuple) else "-".join(own),
)
def test_models_that_decide_take_arguments_by_name(args: Any, kwargs: Any) -> None:
    model = Deciding().eval()
    lowered = corsac.lower(model, "corsac", args, kwargs=kwargs)
    assert len(lowered.meta["lowering"].parts) == 1
    with torch.no_grad():
        expected = model(*args, **kwargs)
        close(lowered(*args, **kwargs), expected)
        close(lowered(*args, **dict(reversed(kwargs.items()))), expected)
    assert lowering.preview(model, "corsac", args, kwargs=kwargs).parts


def test_models_that_decide_are_for_the_arguments_in_the_example() -> None:
    model = Deciding().eval()
    lowered = corsac.lower(model, "corsac", ROWS, kwargs={"bias": BIAS, "mask": MASK, "scale": 2.0})
    with torch.no_grad():
        close(lowered(ROWS, MASK, 2.0, BIAS), model(ROWS, MASK, 2.0, bias=BIAS))
    with pytest.raises(LoweringError, match=r"scale: lowered for 2.0, got 1.0"):
        lowered(ROWS, MASK, bias=BIAS)
    with pytest.raises(LoweringError, match=r"mask: lowered for float32\[2, 3\], got a NoneType"):
        lowered(ROWS, scale=2.0, bias=BIAS)
    with pytest.raises(LoweringError, match=r"bias: lowered for float32\[3\], got a NoneType"):
        lowered(ROWS, MASK, 2.0)
    with pytest.raises(TypeError, match="example input bias is a list, not a tensor or a plain"):
        corsac.lower(model, "corsac", ROWS, kwargs={"bias": [BIAS]})


def test_models_of_hugging_face_take_arguments_by_name() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
    )
    model = transformers.BertModel(config).eval()
    ids, mask = torch.arange(24).view(2, 12), torch.ones(2, 12, dtype=torch.int64)
    mask[0, 8:] = 0
    kwargs = {"attention_mask": mask, "input_ids": ids}
    lowered = corsac.lower(model, "corsac", (), kwargs=kwargs)
    with torch.no_grad():
        torch.testing.assert_close(lowered(**kwargs)[0], model(**kwargs)[0], rtol=1e-4, atol=1e-5)


def test_models_of_any_number_of_inputs_are_lowered_for_those_in_the_example() -> None:
    class Stacked(nn.Module):
        def forward(self, *xs: torch.Tensor, by: float = 1.0) -> torch.Tensor:
            return torch.stack(xs).sum(0) * by

    lowered = corsac.lower(Stacked().eval(), "corsac", (ROWS, MASK), kwargs={"by": 2.0})
    assert len(lowered.meta["lowering"].parts) == 1
    close(lowered(ROWS, MASK, by=2.0), (ROWS + MASK) * 2)
    with pytest.raises(LoweringError, match=r"by: lowered for 2.0, got 3.0"):
        lowered(ROWS, MASK, by=3.0)


@pytest.mark.parametrize("decomposed", [False, True])
def test_exported_programs_take_arguments_by_name(decomposed: bool) -> None:
    class Named(nn.Module):
        def forward(
            self, x: torch.Tensor, mask: torch.Tensor, *, bias: torch.Tensor, by: dict[str, Any]
        ) -> torch.Tensor:
            return x * mask + bias * by["factor"]

    model, by = Named(), {"factor": torch.full((2, 1), 3.0)}
    kwargs = {"bias": BIAS, "by": by}
    program = torch.export.export(model, (ROWS, MASK), kwargs)
    program = program.run_decompositions() if decomposed else program
    expected = model(ROWS, MASK, **kwargs)
    for given in (kwargs, {"by": by, "bias": BIAS}):
        lowered = corsac.lower(program, "corsac", (ROWS, MASK), kwargs=given)
        close(lowered(ROWS, MASK, **kwargs), expected)
        close(lowered(ROWS, MASK, by=by, bias=BIAS), expected)
    lowered = corsac.lower(program, "corsac", ROWS, kwargs={**kwargs, "mask": MASK})
    close(lowered(ROWS, mask=MASK, **kwargs), expected)


def test_defaults_that_were_not_those_of_the_example_are_refused() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return x.relu() * scale

    lowered = corsac.lower(Scaled().eval(), "corsac", (ROWS, 2.0))
    close(lowered(ROWS, 2.0), ROWS.relu() * 2)
    with pytest.raises(LoweringError, match=r"scale: lowered for 2.0, got 1.0"):
        lowered(ROWS)
    with pytest.raises(LoweringError, match="the input x is given twice"):
        corsac.lower(Scaled().eval(), "corsac", ROWS, kwargs={"x": ROWS})


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(3, 4), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear(x)).relu()


class Decomposed(nn.Module):
    """Functions that PyTorch's decompositions make others of."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.norm.running_mean.uniform_()
        self.norm.running_var.uniform_(1, 2)
        self.bare = nn.BatchNorm2d(4, affine=False)
        self.groups, self.each = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.bare(self.norm(x).relu()))
        x = self.each(self.groups(x))
        x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.interpolate(x, scale_factor=2)
        return nn.functional.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True)


@pytest.mark.parametrize("backend", ["corsac", "onnxruntime"])
def test_programs_after_decompositions(backend: str) -> None:
    torch.manual_seed(0)
    model, x = Decomposed().eval(), torch.randn(2, 4, 9, 9)
    program = torch.export.export(model, (x,)).run_decompositions()
    targets = {str(node.target) for node in program.graph.nodes}
    assert "aten._native_batch_norm_legit_no_training.default" in targets
    for own in (program, program.module(check_guards=False)):
        lowered = corsac.lower(own, backend, x)
        assert len(lowered.meta["lowering"].parts) == 1
        with torch.no_grad():
            close(lowered(x), model(x))


def test_operators_of_which_all_results_are_used_stay() -> None:
    class Indices(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            pooled, where = nn.functional.max_pool2d(x, 2, return_indices=True)
            return pooled.relu(), where

    x = torch.randn(1, 2, 4, 4)
    program = torch.export.export(Indices().eval(), (x,)).run_decompositions()
    lowered = corsac.lower(program, "corsac", x)
    close(lowered(x), Indices()(x))
    names = {row.target for row in lowered.meta["lowering"].placements}
    assert "torch.ops.aten.max_pool2d_with_indices.default" in names


def test_what_torch_export_gives_trains_nothing() -> None:
    model, x = Dropping().eval(), torch.randn(2, 3)
    exported = torch.export.export(model, (x,)).module(check_guards=False)
    assert exported.training
    lowered = corsac.lower(exported, "onnxruntime", (x,), strict=True)
    with torch.no_grad():
        close(lowered(x), model(x))


def test_a_graph_that_calls_a_module_in_training_mode_is_refused() -> None:
    traced = fx.symbolic_trace(Dropping().eval())
    traced.training = True
    x = torch.randn(2, 3)
    corsac.lower(traced, "onnxruntime", (x,))
    traced.dropout.train()
    with pytest.raises(LoweringError, match=r"in training mode.*model.eval\(\)"):
        corsac.lower(traced, "onnxruntime", (x,))


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_weights_may_be_larger_than_a_message(backend, monkeypatch, tmp_path):
    import tempfile

    from corsac.lowering import _onnx_backend
    from corsac.onnx import _export

    monkeypatch.setattr(_export, "LARGE", 4000)
    monkeypatch.setattr(_onnx_backend, "LARGE", 4000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    saved, save = [], _export.save
    monkeypatch.setattr(
        _onnx_backend, "save", lambda *given: (save(*given), saved.append(given[1].parent))
    )
    model, x = (
        nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)).eval(),
        torch.ones(2, 40),
    )
    lowered = corsac.lower(model, backend, x)
    close(lowered(x), model(x))
    assert len(saved) == 1 and not saved[0].exists()
    assert list(tmp_path.iterdir()) == []
