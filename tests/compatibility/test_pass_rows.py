"""The rows of docs/compatibility.md about passes."""

from __future__ import annotations

import copy
import importlib
import io
import logging
import operator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import corsac.fx
import corsac.passes
from kit import row

PACKAGES = (torch.fx, corsac.fx)


def of(fx: ModuleType, name: str) -> Any:
    """A submodule of the package."""
    return importlib.import_module(f"{fx.__name__}.{name}")


def optimization(fx: ModuleType) -> Any:
    return of(fx, "experimental.optimization")


def targets(gm: Any) -> list[Any]:
    return [node.target for node in gm.graph.nodes if node.op.startswith("call")]


def count_after(fx: ModuleType, program: Any, change: Any) -> int:
    """Number of calls of a program after a change of its graph module."""
    gm = fx.symbolic_trace(program)
    changed = change(gm)
    return len(targets(changed if isinstance(changed, nn.Module) else gm))


def trained(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, with statistics as after training."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


def close(a: Any, b: Any) -> bool:
    return torch.allclose(a, b, atol=1e-4)


# Dead code -----------------------------------------------------------------------------------------


def eliminate(gm: Any) -> None:
    gm.graph.eliminate_dead_code()
    gm.recompile()


@row("`eliminate_dead_code` and writes whose result nobody uses")
@pytest.mark.parametrize(
    "write",
    [
        lambda m: m.add_(1),
        lambda m: m.masked_fill_(m > 0, 5.0),
        lambda m: torch.add(m, 1, out=m),
        lambda m: F.relu(m.sub_(1), inplace=True),
    ],
)
def test_writes_that_are_observed(write: Any) -> None:
    def program(x):
        m = x * 2
        write(m)
        return m.view(-1) + 1

    results = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(program)
        eliminate(gm)
        results.append(torch.equal(gm(torch.ones(2)), program(torch.ones(2))))
    assert results == [False, True]


@row("`eliminate_dead_code` and writes that nobody can observe")
@pytest.mark.parametrize("target", [torch.ops.aten.add_.Tensor, operator.setitem])
def test_writes_that_nobody_observes(target: Any) -> None:
    left = []
    for fx in PACKAGES:
        graph = fx.Graph()
        x = graph.placeholder("x")
        m = graph.call_function(torch.mul, (x, 2))
        graph.call_function(target, (m, 0, 1) if target is operator.setitem else (m, 1))
        graph.output(x)
        gm = fx.GraphModule({}, graph)
        gm.graph.eliminate_dead_code()
        left.append(target in targets(gm))
    assert left == [True, False]


def recorded(x):
    return x


torch.fx.wrap("recorded")


class Leaf(nn.Module):
    def forward(self, x):
        return x


class OwnLeaves(nn.Module):
    def __init__(self, pure: bool = False) -> None:
        super().__init__()
        self.leaf = Leaf()
        if pure:
            self.leaf._is_impure = False

    def forward(self, x):
        self.leaf(x)
        return x + 1


def with_leaves(fx: ModuleType, root: nn.Module) -> Any:
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return True

    return fx.GraphModule(root, Leaves().trace(root))


@row("`eliminate_dead_code` and calls of which nothing is known")
def test_unknown_calls() -> None:
    def program(x):
        recorded(x)
        return x + 1

    hooked = nn.Sequential(nn.ReLU())
    hooked[0].register_forward_hook(lambda *_: None)
    for fx, kept in zip(PACKAGES, (False, True), strict=True):
        for gm in (fx.symbolic_trace(program), with_leaves(fx, OwnLeaves())):
            eliminate(gm)
            assert (len(targets(gm)) == 2) == kept
    gm = with_leaves(corsac.fx, OwnLeaves(pure=True))
    eliminate(gm)
    assert targets(gm) == [operator.add]


@row("`eliminate_dead_code` and `nn.Dropout` or `F.dropout` in training")
def test_random_numbers_stay() -> None:
    def program(x):
        F.dropout(x, training=True)
        return x + 1

    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout()

        def forward(self, x):
            self.dropout(x)
            return x + 1

    assert [count_after(fx, program, eliminate) for fx in PACKAGES] == [1, 2]
    assert [count_after(fx, Dropping(), eliminate) for fx in PACKAGES] == [1, 2]


@row("`eliminate_dead_code` and `call_module` in a graph without an owning module")
def test_calls_without_an_owning_module() -> None:
    def graph_of(fx: ModuleType) -> Any:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_module("layer", (x,))
        graph.output(x)
        return graph

    with pytest.raises(AssertionError):
        graph_of(torch.fx).eliminate_dead_code()
    graph = graph_of(corsac.fx)
    graph.eliminate_dead_code()
    assert [node.name for node in graph.nodes] == ["x", "layer", "output"]


# Folding -------------------------------------------------------------------------------------------


class ReadWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

    def forward(self, x):
        return self.bn(self.conv(x)) + self.conv.weight.sum()


@row("`optimization.fuse` where the convolution is called twice")
def test_fusion_of_layers_that_others_use() -> None:
    model, x = trained(ReadWeight()), torch.randn(1, 2, 3, 3)
    with torch.no_grad():
        right = [close(optimization(fx).fuse(model)(x), model(x)) for fx in PACKAGES]
    assert right == [False, True]
    hooked = trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)))
    hooked[0].register_forward_hook(lambda module, args, result: result * 2)
    with torch.no_grad():
        right = [close(optimization(fx).fuse(hooked)(x), hooked(x)) for fx in PACKAGES]
    assert right == [False, True]


@row("`optimization.fuse` and batch norms before a layer")
@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)),
        nn.Sequential(nn.ConvTranspose2d(2, 2, 1), nn.BatchNorm2d(2)),
    ],
)
def test_more_batch_norms_are_folded(model: nn.Module) -> None:
    model, x = trained(model), torch.randn(1, 2, 3, 3)
    counts = []
    for fx in PACKAGES:
        fused = optimization(fx).fuse(model)
        counts.append(len(targets(fused)))
        with torch.no_grad():
            assert close(fused(x), model(x))
    assert counts == [2, 1]


@row("`optimization.fuse`, layers that are folded")
def test_folded_layers_share_what_is_no_weight() -> None:
    model = trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)))
    model[0].note = note = type("Note", (), {})()
    same = [optimization(fx).fuse(model).get_submodule("0").note is note for fx in PACKAGES]
    assert same == [False, True]


@row(
    "`fuse`, `remove_dropout` and `optimize_for_inference` of a graph module that calls leaves only"
)
def test_graph_modules_are_not_traced_again() -> None:
    kept = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(
            trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()))
        )
        (relu,) = gm.graph.find_nodes(op="call_module", target="2")
        relu.meta["mark"], relu.name = "mark", "own"
        fused = optimization(fx).fuse(gm)
        (relu,) = fused.graph.find_nodes(op="call_module", target="2")
        kept.append((relu.name, relu.meta.get("mark")))
    assert kept == [("_2", None), ("own", "mark")]


@row("`NormalizeOperators` and further arguments")
def test_further_arguments() -> None:
    x = torch.tensor([5.0, -7.0])
    for program in (
        lambda x: torch.add(x, x, alpha=2),
        lambda x: torch.div(x, 2, rounding_mode="floor"),
    ):
        right = []
        for fx in PACKAGES:
            gm = of(fx, "experimental.normalize").NormalizeOperators(fx.symbolic_trace(program))
            right.append(torch.equal(gm.transform()(x), program(x)))
        assert right == [False, True]


@row("`remove_dropout` (`experimental.optimization`) and dropouts with hooks")
def test_dropouts_that_do_more() -> None:
    model = nn.Sequential(nn.Dropout(), nn.ReLU()).eval()
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    counts = [len(targets(optimization(fx).remove_dropout(model))) for fx in PACKAGES]
    assert counts == [1, 2]


@row("`split_const_subgraphs` and constants that the caller gets")
def test_constants_that_are_random() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1000))

        def forward(self, x):
            return x + torch.nn.functional.dropout(self.weight, 0.5, True)

    same = []
    for fx in PACKAGES:
        folded = of(fx, "experimental.const_fold").split_const_subgraphs(Net())
        if hasattr(folded, "run_folding") and folded.const_subgraph_module is not None:
            folded.run_folding()
        x = torch.zeros(1000)
        same.append(torch.equal(folded(x), folded(x)))
    assert same == [True, False]


@row("`merge_matmul` where something is written to or drawn in between")
def test_products_with_a_write_in_between() -> None:
    def program(x, y, w):
        a = torch.matmul(x, w)
        x.add_(1)
        return a, torch.matmul(y, w)

    args = [torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2)]
    right = []
    for fx in PACKAGES:
        merged = of(fx, "experimental.merge_matmul").merge_matmul(fx.symbolic_trace(program))
        expected = program(*copy.deepcopy(args))
        try:
            result = merged(*copy.deepcopy(args))
        except Exception:
            right.append(False)
            continue
        right.append(all(map(torch.equal, result, expected)))
    assert right == [False, True]
    reasons = {site.reason for site in merged.meta["report"].sites}
    assert reasons == {"add_ comes in between and does more than compute a value"}


@row("`get_size_of_node` of several tensors")
def test_sizes_of_several_tensors() -> None:
    def size(fx: ModuleType) -> Any:
        gm = fx.symbolic_trace(lambda x: torch.split(x, 1)[0])
        of(fx, "passes.shape_prop").ShapeProp(gm).propagate(torch.ones(2, 3))
        (split,) = gm.graph.find_nodes(op="call_function", target=torch.split)
        return of(fx, "passes.graph_manipulation").get_size_of_node(gm, split)

    with pytest.raises(AttributeError):
        size(torch.fx)
    assert size(corsac.fx).output_size == 2 * 3 * 4


# Common subexpressions -----------------------------------------------------------------------------


def cse(fx: ModuleType, program: Any, *args: Any) -> int:
    """Number of remaining calls of a program of ATen operators."""
    gm = program if isinstance(program, nn.Module) else make_fx(program)(*args)
    gm = gm if fx is torch.fx else corsac.fx.from_torch(gm)
    return len(targets(of(fx, "passes.dialect.common.cse_pass").CSEPass()(gm).graph_module))


@row("`CSEPass` without banned operators")
def test_random_numbers_are_drawn_twice() -> None:
    def program(x):
        return torch.bernoulli(x) + torch.bernoulli(x)

    assert [cse(fx, program, torch.rand(2)) for fx in PACKAGES] == [2, 3]


@row("`CSEPass` and numbers that are equal")
def test_numbers_of_different_types() -> None:
    def program(x):
        return torch.add(x, 1), torch.add(x, 1.0)

    assert [cse(fx, program, torch.arange(2)) for fx in PACKAGES] == [1, 2]


@row("`CSEPass` and functions of which nothing is known")
def test_unknown_functions_are_called_twice() -> None:
    graphs = []
    for fx in PACKAGES:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output((graph.call_function(recorded, (x,)), graph.call_function(recorded, (x,))))
        gm = fx.GraphModule({}, graph)
        result = of(fx, "passes.dialect.common.cse_pass").CSEPass()(gm)
        graphs.append(len(targets(result.graph_module)))
    assert graphs == [1, 2]


# Passes of PyTorch's compiler ----------------------------------------------------------------------


@row("`passes.runtime_assert`")
def test_passes_about_symbolic_shapes() -> None:
    def program(x):
        return x * 2

    kept = []
    for fx in PACKAGES:
        gm = make_fx(program, tracing_mode="symbolic")(torch.ones(3, 4))
        env = next(iter(gm.graph.nodes)).meta["val"].fake_mode.shape_env
        gm = gm if fx is torch.fx else corsac.fx.from_torch(gm)
        nodes = list(gm.graph.nodes)
        of(fx, "passes.runtime_assert").insert_deferred_runtime_asserts(gm, env, "test")
        kept.append(nodes[0] in list(gm.graph.nodes))
        assert torch.equal(gm(torch.ones(3, 4)), torch.full((3, 4), 2.0))
    assert kept == [True, False]


@row("`_graph_pickler`")
def test_pickles_of_graphs() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    for fx in PACKAGES:
        gm = fx.symbolic_trace(lambda x: torch.relu(x))
        pickler = of(fx, "_graph_pickler").GraphPickler
        data = pickler.dumps(gm)
        again = pickler.loads(data, FakeTensorMode(shape_env=ShapeEnv()))
        assert type(again).__mro__[1] is fx.GraphModule or isinstance(again, fx.GraphModule)
        assert again.code == gm.code
        theirs = torch.fx._graph_pickler.GraphPickler
        assert isinstance(theirs.loads(data, FakeTensorMode(shape_env=ShapeEnv())), nn.Module)


@row("`passes.tests`")
def test_tests_of_passes() -> None:
    assert importlib.util.find_spec("torch.fx.passes.tests") is not None
    assert importlib.util.find_spec("corsac.fx.passes.tests") is None


# In place ------------------------------------------------------------------------------------------


def in_place(fx: ModuleType, program: Any, *args: Any) -> list[str]:
    """The names of the operators after reinplacing a program of ATen operators."""
    gm = program if isinstance(program, nn.Module) else make_fx(program)(*args)
    gm = gm if fx is torch.fx else corsac.fx.from_torch(gm)
    changed = of(fx, "passes.reinplace").reinplace(gm, *args)
    assert torch.equal(changed(*copy.deepcopy(args)), program(*copy.deepcopy(args)))
    return [str(target) for target in targets(changed)]


@row("`passes.reinplace.reinplace`: one tensor twice")
def test_one_tensor_twice_in_place() -> None:
    def program(x):
        y = x + 1
        return y * y

    theirs, ours = (in_place(fx, program, torch.ones(2)) for fx in PACKAGES)
    assert "aten.mul.Tensor" in theirs and "aten.mul_.Tensor" in ours


@row("`passes.reinplace.reinplace`: the second operand of a sum or product")
def test_second_operands_in_place() -> None:
    def program(x):
        return x * (x + 1)

    theirs, ours = (in_place(fx, program, torch.ones(2)) for fx in PACKAGES)
    assert "aten.mul.Tensor" in theirs and "aten.mul_.Tensor" in ours


@row("`passes.reinplace.reinplace`: views with other strides than the result")
def test_views_with_other_strides_in_place() -> None:
    def program(x):
        every_second = torch.ops.aten.slice.Tensor(x + 1, 1, 0, 8, 2)
        return torch.ops.aten.neg.default(every_second)

    strides = []
    for fx in PACKAGES:
        gm = make_fx(program)(torch.ones(3, 8))
        gm = gm if fx is torch.fx else corsac.fx.from_torch(gm)
        changed = of(fx, "passes.reinplace").reinplace(gm, torch.ones(3, 8))
        strides.append(changed(torch.ones(3, 8)).stride())
    assert strides == [(8, 2), (4, 1)] and program(torch.ones(3, 8)).stride() == (4, 1)


@row("`passes.reinplace.reinplace`: functions and methods besides `torch.ops`")
def test_functions_and_methods_in_place() -> None:
    program = lambda x: torch.relu(torch.exp(x)).neg()  # noqa: E731
    shown = []
    for fx in PACKAGES:
        changed = of(fx, "passes.reinplace").reinplace(fx.symbolic_trace(program), torch.ones(2))
        assert torch.equal(changed(torch.ones(2)), program(torch.ones(2)))
        shown.append(targets(changed))
    assert shown == [[torch.exp, torch.relu, "neg"], [torch.exp, "relu_", "neg_"]]


@row("`passes.reinplace.reinplace`: a view that is changed and written back")
def test_scatters_in_place() -> None:
    def program(x):
        base = x + 0
        part = torch.ops.aten.select.int(base, 0, 0)
        changed = torch.ops.aten.add.Tensor(part, 1)
        return torch.ops.aten.select_scatter.default(base, changed, 0, 0)

    theirs, ours = (in_place(fx, program, torch.ones(2, 2)) for fx in PACKAGES)
    assert theirs == ["aten.add.Tensor", "aten.select.int", "aten.add_.Tensor"]
    assert ours[2:] == ["aten.add.Tensor", "aten.select.int", "aten.copy_.default"]


# Inference -----------------------------------------------------------------------------------------

ALWAYS = {"mkldnn_layout_optimize": {"heuristic": lambda graph: True}}


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.bn, self.b = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
        self.dropout = nn.Dropout()

    def forward(self, x):
        y = F.gelu(self.bn(self.a(x)))
        y += x
        return self.dropout(self.b(y))


def optimized(fx: ModuleType, model: nn.Module, *args: Any) -> Any:
    return optimization(fx).optimize_for_inference(model, *args)


def images() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@row("`optimize_for_inference`, what a subgraph runs on")
@row("weights of the layers that run on oneDNN")
def test_weights_are_plain_buffers() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))
    theirs, ours = (optimized(fx, model, ALWAYS) for fx in PACKAGES)
    assert "to_mkldnn" in targets(theirs) and "to_mkldnn" not in targets(ours)
    with pytest.raises(Exception):  # noqa: B017
        torch.save(theirs.state_dict(), io.BytesIO())
    torch.save(ours.state_dict(), io.BytesIO())
    assert set(ours.state_dict()) == set(model.state_dict())
    with torch.no_grad():
        assert close(copy.deepcopy(ours)(images()), model(images()))


@row("`optimize_for_inference`, how large subgraphs are")
def test_sizes_of_subgraphs() -> None:
    ends = []
    for fx in PACKAGES:
        sizes: list[int] = []
        heuristic = {"heuristic": lambda graph, own=sizes: own.append(len(graph.nodes)) or True}
        optimized(fx, trained(Convolutions()), {"mkldnn_layout_optimize": heuristic})
        ends.append(len(sizes))
    assert ends == [2, 1]


@row("`optimize_for_inference` and writes to values that others use")
def test_writes_in_subgraphs() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x):
            a = self.a(x)
            a.mul_(2.0)
            return self.b(a)

    model = Writes().eval()
    right = []
    for fx in PACKAGES:
        with torch.no_grad():
            try:
                right.append(close(optimized(fx, model, ALWAYS)(images()), model(images())))
            except RuntimeError:
                right.append(False)
    assert right == [False, True]


@row("`optimize_for_inference` with half or bfloat16 weights")
def test_half_precision() -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())).bfloat16()
    with pytest.raises(AssertionError):
        optimized(torch.fx, model, ALWAYS)
    x = images().bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(optimized(corsac.fx, model, ALWAYS)(x), model(x))


@row("`optimize_for_inference` with double weights")
def test_double_precision(caplog: pytest.LogCaptureFixture) -> None:
    model = trained(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())).double()
    with pytest.raises(AssertionError):
        optimized(torch.fx, model, ALWAYS)
    with caplog.at_level(logging.INFO), torch.no_grad():
        result = optimized(corsac.fx, model, ALWAYS)
        assert torch.equal(result(images().double()), model(images().double()))
    assert "float64" in caplog.text


@row("`optimize_for_inference` on a graph of a `tracer`")
def test_tracers_of_ones_own() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.branch = nn.Conv2d(3, 3, 1), Branching()

        def forward(self, x):
            return self.branch(self.conv(x))

    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    def run(fx: ModuleType) -> Any:
        class Leaves(fx.Tracer):
            def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
                return isinstance(m, Branching) or super().is_leaf_module(m, module_qualified_name)

        model = Model().eval()
        with torch.no_grad():
            return close(optimized(fx, model, ALWAYS, Leaves)(images()), model(images()))

    with pytest.raises(torch.fx.proxy.TraceError):
        run(torch.fx)
    assert run(corsac.fx)


@row("`optimize_for_inference` without `conv_bn_fuse` and `remove_dropout`")
def test_the_model_is_not_changed() -> None:
    changed = []
    for fx in PACKAGES:
        model = trained(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))
        conv = model[0]
        optimized(fx, model, {"conv_bn_fuse": False, "remove_dropout": False, **ALWAYS})
        changed.append(model[0] is not conv)
    assert changed == [True, False]


@row("subgraphs without a convolution or linear layer")
def test_subgraphs_without_layers() -> None:
    model = trained(nn.Sequential(nn.MaxPool2d(2), nn.ReLU()))
    asked = []
    for fx in PACKAGES:
        seen: list[Any] = []
        heuristic = {"heuristic": lambda graph, own=seen: bool(own.append(graph))}
        optimized(fx, model, {"mkldnn_layout_optimize": heuristic})
        asked.append(len(seen))
    assert asked == [1, 0]


@row("`gen_mkl_autotuner`")
def test_the_autotuner(tmp_path: Any) -> None:
    model = torchvision.models.resnet18().eval()
    x = torch.randn(1, 3, 32, 32)

    def tune(fx: ModuleType, **options: Any) -> Any:
        heuristic = optimization(fx).gen_mkl_autotuner([x], iters=1, warmup=0, **options)
        return optimized(fx, model, {"mkldnn_layout_optimize": {"heuristic": heuristic}})

    with pytest.raises((RuntimeError, TypeError)):
        tune(torch.fx)
    file = tmp_path / "decisions.json"
    with torch.no_grad():
        assert close(tune(corsac.fx, decisions=file)(x), model(x))
    assert file.exists()


@row("`GraphTransformObserver` with a folder to log to")
def test_observers_draw_pictures(tmp_path: Any) -> None:
    suffixes = []
    for fx in PACKAGES:
        gm, folder = fx.symbolic_trace(lambda x: torch.neg(x)), tmp_path / fx.__name__
        folder.mkdir()
        observer = of(fx, "passes.graph_transform_observer").GraphTransformObserver
        with observer(gm, "own", log_url=str(folder)):
            fx.replace_pattern(gm, lambda x: torch.neg(x), lambda x: torch.relu(x))
        suffixes.append({path.suffix for path in folder.iterdir()})
    assert suffixes == [{".dot"}, {".dot", ".svg"}]
