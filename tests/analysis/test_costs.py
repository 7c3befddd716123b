"""Costs: against counts made by hand, against PyTorch's counter, and against measured memory."""

from __future__ import annotations

import operator
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import corsac.fx as fx
from corsac.analysis import TensorSpec, cost

A = torch.empty(2, 3, 4)
V = torch.empty(8)
IMAGE = torch.empty(2, 4, 8, 8)
MATRIX = torch.empty(5, 6)

#: Function, arguments, multiplications, operations. Sums start from the bias: no operation.
BY_HAND: list[tuple[str, Any, tuple[Any, ...], dict[str, Any], int, int]] = [
    ("add", torch.add, (A, A), {}, 0, 24),
    ("add a number", operator.add, (A, 1), {}, 0, 24),
    ("mul with broadcasting", torch.mul, (A, torch.empty(4)), {}, 0, 24),
    ("sub", operator.sub, (A, A), {}, 0, 24),
    ("div", operator.truediv, (A, 2.0), {}, 0, 24),
    ("pow", torch.pow, (A, 2), {}, 0, 24),
    ("exp", torch.exp, (A,), {}, 0, 24),
    ("relu", F.relu, (A,), {}, 0, 24),
    ("relu in place", F.relu, (A,), {"inplace": True}, 0, 24),
    ("gelu", F.gelu, (A,), {}, 0, 24),
    ("sigmoid", torch.sigmoid, (A,), {}, 0, 24),
    ("clamp", torch.clamp, (A, 0, 1), {}, 0, 24),
    ("where", torch.where, (torch.empty(4, dtype=torch.bool), A, A), {}, 0, 24),
    ("addcmul", torch.addcmul, (A, A, A), {}, 0, 72),
    ("glu", F.glu, (A,), {}, 0, 24),
    ("sum", torch.sum, (A,), {}, 0, 24),
    ("mean", torch.mean, (A, 1), {}, 0, 24),
    ("amax", torch.amax, (A, (1, 2)), {}, 0, 24),
    ("argmax", torch.argmax, (A, 1), {}, 0, 24),
    ("cumsum", torch.cumsum, (A, 1), {}, 0, 24),
    ("softmax", F.softmax, (A, -1), {}, 0, 120),
    ("layer_norm", F.layer_norm, (A, (4,)), {}, 0, 168),
    ("batch_norm", F.batch_norm, (IMAGE, torch.empty(4), torch.empty(4)), {}, 0, 1024),
    ("group_norm", F.group_norm, (IMAGE, 2), {}, 0, 3584),
    ("dropout in evaluation", F.dropout, (A, 0.5, False), {}, 0, 0),
    ("mm", torch.mm, (MATRIX, torch.empty(6, 7)), {}, 210, 420),
    ("matmul of batches", torch.matmul, (A, torch.empty(2, 4, 5)), {}, 120, 240),
    ("matmul operator", operator.matmul, (A, torch.empty(4, 5)), {}, 120, 240),
    ("bmm", torch.bmm, (A, torch.empty(2, 4, 5)), {}, 120, 240),
    ("mv", torch.mv, (MATRIX, torch.empty(6)), {}, 30, 60),
    ("dot", torch.dot, (V, V), {}, 8, 16),
    ("addmm", torch.addmm, (torch.empty(7), MATRIX, torch.empty(6, 7)), {}, 210, 420),
    ("linear", F.linear, (A, torch.empty(5, 4), torch.empty(5)), {}, 120, 240),
    ("einsum", torch.einsum, ("bij,bjk->bik", A, torch.empty(2, 4, 5)), {}, 120, 240),
    # 2 * 6 * 8 * 8 results, each of 4 * 9 products.
    ("conv2d", F.conv2d, (IMAGE, torch.empty(6, 4, 3, 3)), {"padding": 1}, 27648, 55296),
    # 2 * 4 * 8 * 8 results, each of 9 products.
    ("conv2d by channel", F.conv2d, (IMAGE, torch.empty(4, 1, 3, 3)), {"padding": 1, "groups": 4}, 4608, 9216),
    ("conv1d", F.conv1d, (A, torch.empty(5, 3, 2)), {}, 180, 360),
    # Every input element meets 6 * 2 * 2 weights.
    ("conv_transpose2d", F.conv_transpose2d, (IMAGE, torch.empty(4, 6, 2, 2)), {"stride": 2}, 12288, 24576),
    ("max_pool2d", F.max_pool2d, (IMAGE, 2), {}, 0, 512),
    ("avg_pool2d", F.avg_pool2d, (IMAGE, 4), {}, 0, 512),
    ("adaptive_avg_pool2d", F.adaptive_avg_pool2d, (IMAGE, 1), {}, 0, 512),
    # Two products of 8 queries, 8 keys, 8 wide for 2 * 4 heads, five operations a score.
    ("attention", F.scaled_dot_product_attention, (IMAGE, IMAGE, IMAGE), {}, 8192, 18944),
    ("cat", torch.cat, ([A, A],), {}, 0, 0),
    ("transpose", torch.transpose, (A, 0, 1), {}, 0, 0),
]  # fmt: skip


def one_call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """A graph of one call, and its inputs: the tensors among the arguments."""
    graph, inputs = fx.Graph(), []

    def placeholder(tensor: torch.Tensor) -> Any:
        inputs.append(tensor)
        return graph.placeholder(f"x{len(inputs)}")

    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, placeholder, (args, kwargs))
    graph.output(graph.call_function(target, args, kwargs))
    return graph, inputs


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "macs", "flops"),
    [case[1:] for case in BY_HAND],
    ids=[case[0] for case in BY_HAND],
)
def test_counts_are_those_made_by_hand(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], macs: int, flops: int
) -> None:
    graph, inputs = one_call(target, args, kwargs)
    report = cost(graph, *inputs)
    assert (report.macs, report.flops) == (macs, flops)
    assert report.unknown == ()


def traffic(target: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
    graph, inputs = one_call(target, args, kwargs)
    report = cost(graph, *inputs)
    return report.bytes_read, report.bytes_written


def test_traffic_is_each_argument_once_and_each_result_once() -> None:
    assert traffic(torch.add, A, torch.empty(4)) == (96 + 16, 96)
    assert traffic(torch.add, A, torch.empty(4).expand(2, 3, 4)) == (96 + 16, 96)
    assert traffic(torch.transpose, A, 0, 1) == (0, 0)
    assert traffic(torch.reshape, A, (6, 4)) == (0, 0)
    assert traffic(torch.reshape, A.transpose(0, 2), (6, 4)) == (96, 96)
    assert traffic(F.relu, A, inplace=True) == (96, 96)
    assert traffic(F.dropout, A, 0.5, False) == (0, 0)
    rows = torch.empty(10, dtype=torch.int64)
    assert traffic(F.embedding, rows, torch.empty(1000, 4)) == (80 + 160, 160)
    assert traffic(operator.getitem, A, (slice(None), 1)) == (0, 0)


def test_what_is_not_known_is_listed_and_in_no_sum() -> None:
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(mine, (graph.call_function(torch.relu, (x,)),)))
    report = cost(graph, torch.empty(3, 3))
    assert [site.node for site in report.unknown] == ["mine"]
    assert report.flops == 9
    assert report.rows[2].flops is None
    assert report.rows[2].output == "float32[3, 3]"
    assert "mine" in str(report)
    assert report.modules()[0].unknown == 1


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(x)))


def test_costs_belong_to_modules() -> None:
    model = nn.Sequential(Block(), Block())
    report = cost(fx.symbolic_trace(model), torch.empty(5, 8))
    by_path = {module.path: module for module in report.modules()}
    assert list(by_path) == ["", "0", "0.up", "0.down", "1", "1.up", "1.down"]
    assert by_path["0.up"].macs == 5 * 8 * 32
    assert by_path["0"].flops == 2 * 2 * 5 * 8 * 32 + 5 * 32 + 5 * 8
    assert by_path[""].flops == report.flops == 2 * by_path["0"].flops
    assert by_path[""].parameters == report.parameters == sum(p.numel() for p in model.parameters())


def test_shared_parameters_count_once() -> None:
    block = Block()
    report = cost(fx.symbolic_trace(nn.Sequential(block, block)), torch.empty(5, 8))
    assert report.parameters == sum(p.numel() for p in block.parameters())


def test_costs_are_expressions_over_symbols() -> None:
    report = cost(fx.symbolic_trace(Block()), TensorSpec(("batch", 8)))
    assert (
        report.flops.evaluate({"batch": 5})
        == cost(fx.symbolic_trace(Block()), torch.empty(5, 8)).flops
    )
    assert str(report.macs) == "512*batch"


def test_a_report_goes_into_other_forms() -> None:
    report = cost(fx.symbolic_trace(Block()), torch.empty(5, 8))
    assert report.to_dict()["totals"]["macs"] == report.macs
    assert list(report.to_dataframe()["name"]) == [row.name for row in report.rows]
    assert "held" in str(report)
    assert report.rows[1].intensity == pytest.approx(
        report.rows[1].flops / (report.rows[1].bytes_read + report.rows[1].bytes_written)
    )


def products_counted_by_torch(model: nn.Module, x: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    return counter.get_total_flops()


def check_against_torch(name: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.get_model(name, weights=None).eval().to("meta")
    x = torch.empty(1, 3, 224, 224, device="meta")
    report = cost(fx.symbolic_trace(model), x)
    assert 2 * report.macs == products_counted_by_torch(model, x)
    assert report.unknown == ()


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "squeezenet1_0"])
def test_products_are_those_that_torch_counts(name: str) -> None:
    check_against_torch(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet50", "densenet121", "efficientnet_b0", "convnext_tiny", "regnet_y_400mf"]
)
def test_products_of_large_models_are_those_that_torch_counts(name: str) -> None:
    check_against_torch(name)


class Live(TorchDispatchMode):
    """Counts the bytes of live storages."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def ignore(self, tensors: list[torch.Tensor]) -> None:
        self._seen |= {tensor.untyped_storage()._cdata for tensor in tensors}

    def track(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        self._seen.add(key)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.track(tensor)
        return result


class Chain(nn.Module):
    """Views, in-place operators, a value with a long live range, results of different sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.cat([x, x, x], 1)
        kept = wide[:, :2].exp()
        y = torch.relu(wide.transpose(0, 1)).mul_(2)
        y = y.reshape(-1).sin().cos()
        return y.sum() + kept.sum()


def measured_peak(gm: fx.GraphModule, x: torch.Tensor) -> int:
    with torch.no_grad(), Live() as live:
        # Views of weights are results too.
        live.ignore([*gm.parameters(), *gm.buffers()])
        live.track(x)
        fx.Interpreter(gm).run(x)
    return live.peak


def test_peak_memory_is_the_measured_one() -> None:
    gm, x = fx.symbolic_trace(Chain()), torch.rand(64, 64)
    report = cost(gm, x)
    assert report.peak_unknown == ()
    assert report.peak_bytes == pytest.approx(measured_peak(gm, x), rel=0.01)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_peak_memory_of_models_is_the_measured_one(name: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.get_model(name, weights=None).eval()
    gm, x = fx.symbolic_trace(model), torch.rand(2, 3, 64, 64)
    assert cost(gm, x).peak_bytes == pytest.approx(measured_peak(gm, x), rel=0.02)
