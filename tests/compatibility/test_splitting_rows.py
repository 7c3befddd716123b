"""The rows of docs/compatibility.md about splitting, partitioning and placing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import corsac.fx
from kit import row

PACKAGES = (torch.fx, corsac.fx)


def of(fx: ModuleType, name: str) -> Any:
    """A submodule of the package."""
    return importlib.import_module(f"{fx.__name__}.{name}")


def support(fx: ModuleType, names: Sequence[str]) -> Any:
    """Supports nodes of these names."""

    class Named(of(fx, "passes.operator_support").OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return node.name in names

    return Named()


def splitter(fx: ModuleType, model: Any, args: tuple[Any, ...], names: Sequence[str]) -> Any:
    base = of(fx, "passes.splitter_base")
    gm = fx.symbolic_trace(model)
    return base._SplitterBase(gm, args, support(fx, names), base._SplitterSettingBase())


def calls(gm: Any) -> list[Any]:
    return [node for node in gm.graph.nodes if node.op.startswith("call")]


def written_between_reads(x):
    y = x * 2
    a = torch.relu(x) + 1
    b = torch.relu(y)
    y.add_(1)
    return a * b, torch.neg(y)


@row("splitters and partitioners, where a value is written to")
def test_writes_between_parts() -> None:
    x = torch.ones(2)
    expected = written_between_reads(x)

    def parts(fx: ModuleType) -> Any:
        gm = fx.symbolic_trace(written_between_reads)
        number = {"mul": 0, "relu": 0, "add": 0, "add_": 1, "neg": 0, "relu_1": 2, "mul_1": 2}
        return of(fx, "passes.split_module").split_module(gm, gm, lambda node: number[node.name])

    theirs = parts(torch.fx)(x)
    assert not all(map(torch.equal, theirs, expected))
    with pytest.raises(RuntimeError, match="add_"):
        parts(corsac.fx)


@row("code of the submodules of `split_module`")
def test_code_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generated = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(lambda x: torch.sin(x).cos())
        number = {node: at for at, node in enumerate(calls(gm))}
        counted: list[Any] = []
        original = fx.Graph.python_code
        with monkeypatch.context() as patch:
            patch.setattr(
                fx.Graph,
                "python_code",
                lambda self, *a, c=counted, o=original, **k: c.append(self) or o(self, *a, **k),
            )
            whole = of(fx, "passes.split_module").split_module(gm, gm, number.__getitem__)
            before = len(counted)
        generated.append(before)
        assert torch.equal(whole(torch.ones(2)), torch.ones(2).sin().cos())
    assert generated[0] >= 3 and generated[1] <= 1


@row("a cycle of parts")
def test_cycles_of_parts() -> None:
    messages = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(lambda x: torch.cos(torch.sin(x)).tan())
        with pytest.raises(RuntimeError, match="cycle exists between partitions") as raised:
            of(fx, "passes.split_module").split_module(gm, gm, lambda n: int(n.name == "cos"))
        messages.append(str(raised.value))
    assert "sin -> cos -> sin" not in messages[0] and "sin -> cos -> sin" in messages[1]


@row("`split_module` with `partition_affix` and regions")
def test_affixes_and_modes() -> None:
    def split(fx: ModuleType) -> Any:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch._C._set_grad_enabled, (False,))
        y = graph.call_function(torch.sin, (x,))
        graph.output(graph.call_function(torch.cos, (y,)))
        gm = fx.GraphModule(nn.Module(), graph)
        return of(fx, "passes.split_module").split_module(
            gm, gm, lambda node: int(node.name.startswith("cos")), partition_affix="own"
        )

    with pytest.raises(KeyError):
        split(torch.fx)
    whole = split(corsac.fx)
    with torch.no_grad():  # restores the grad mode that the program sets
        assert torch.equal(whole(torch.ones(2)), torch.ones(2).sin().cos())
    assert all("own" in name for name, _ in whole.named_children())


@row("`fuse_by_partitions` with a part that cannot run at once")
def test_fusing_fails_at_once() -> None:
    changed = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(lambda x: torch.neg(x).abs().sin().cos().tan())
        nodes = {node.name: node for node in gm.graph.nodes}
        before = str(gm.graph)
        parts = [["neg", "abs_1"], ["sin", "tan"]]
        partitions = [{nodes[name]: None for name in names} for names in parts]
        with pytest.raises(Exception):  # noqa: B017
            of(fx, "passes.utils.fuser_utils").fuse_by_partitions(gm, partitions)
        changed.append(str(gm.graph) != before)
    assert changed == [True, False]


@row("`legalize_graph`, `stable_topological_sort`")
@pytest.mark.parametrize("sort", ["legalize_graph", "stable_topological_sort"])
def test_sorting_keeps_nodes(sort: str) -> None:
    kept = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(lambda x: torch.sin(x).cos())
        nodes = list(gm.graph.nodes)
        nodes[2].append(nodes[1])
        again = getattr(of(fx, "passes.tools_common"), sort)(gm)
        assert [node.name for node in again.graph.nodes] == ["x", "sin", "cos", "output"]
        kept.append(set(again.graph.nodes) == set(nodes))
    assert kept == [False, True]


@row("`getitem` whose index is computed")
def test_items_at_computed_places() -> None:
    def program(x, i):
        parts = torch.split(x, 1)
        place = torch.neg(i)
        return parts[place] + 1, place

    shown = []
    for fx in PACKAGES:
        gm = fx.symbolic_trace(program)
        # The item is not supported, and is in no partition until it joins that of its tuple.
        partitioner = of(fx, "passes.infra.partitioner").CapabilityBasedPartitioner(
            gm, support(fx, ["split"]), allows_single_node_partition=True
        )
        parts = partitioner.propose_partitions()
        shown.append([sorted(node.name for node in part.nodes) for part in parts])
    assert shown == [[["getitem", "split"]], [["split"]]]


@row("`_SplitterBase`, an input or attribute that is returned")
def test_returned_inputs() -> None:
    counts = []
    for fx in PACKAGES:
        split = splitter(fx, lambda x, y: (torch.sin(x), y), (torch.ones(2),) * 2, ["sin"])()
        counts.append(sum(not calls(part) for part in split.children()))
    assert counts[0] > 0 and counts[1] == 0


@row("`split_preview`")
def test_previews_say_why() -> None:
    texts = [
        splitter(fx, lambda x: torch.sin(x).cos(), (torch.ones(2),), ["sin"]).split_preview()
        for fx in PACKAGES
    ]
    assert "Why" not in texts[0]
    assert "Why nodes are where they are" in texts[1] and texts[1].startswith(texts[0].rstrip("\n"))


def findings(fx: ModuleType, **settings: Any) -> list[str]:
    """The nodes found where `sin` and `tanh` are computed wrongly."""
    base = of(fx, "passes.net_min_base")

    class Minimizer(base._MinimizerBase):
        def run_a(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
            return mod(*inputs)

        def run_b(self, mod: Any, inputs: Any, report_idx: int = -1) -> Any:
            wrong = {torch.sin, torch.tanh} & {node.target for node in mod.graph.nodes}
            return mod(*inputs) + len(wrong)

    gm = fx.symbolic_trace(lambda x: torch.tanh(torch.relu(torch.sin(x)).cos()))
    minimizer = Minimizer(
        gm,
        (torch.rand(3),),
        lambda a, b, names: (0.0, torch.equal(a, b)),
        base._MinimizerSettingBase(**settings),
    )
    return sorted(map(str, minimizer.minimize(skip_nodes=["relu"])))


@row('`_MinimizerBase`, `traverse_method="binary"`')
def test_minimizer_in_halves() -> None:
    settings = {"traverse_method": "binary", "find_all": True}
    assert findings(torch.fx, **settings) == ["tanh"]
    assert findings(corsac.fx, **settings) == ["sin", "tanh"]


@row('`_MinimizerBase`, `traverse_method="defined"`')
def test_minimizer_of_defined_nodes() -> None:
    assert findings(torch.fx, traverse_method="defined") == []
    assert findings(corsac.fx, traverse_method="defined") == ["cos", "relu", "sin", "tanh"]


@row('`_MinimizerBase`, `traverse_method="skip"`')
def test_minimizer_between_skipped_nodes() -> None:
    assert findings(torch.fx, traverse_method="skip") == ["cos", "tanh"]
    assert findings(corsac.fx, traverse_method="skip") == ["cos", "sin", "tanh"]


def placed(fx: ModuleType, mode: str, size_bytes: int) -> Any:
    """The placement of a small module on three devices."""
    utils = of(fx, "experimental.partitioner_utils")
    torch.manual_seed(0)
    root = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Sigmoid())
    gm = fx.symbolic_trace(root)
    of(fx, "passes.graph_manipulation").get_size_of_all_nodes(gm, [torch.rand(1, 4)])
    mapping = {n: i // 2 for i, n in enumerate(calls(gm))}
    partitioner = of(fx, "experimental.accelerator_partitioner").Partitioner()
    return partitioner.partition_graph(
        gm,
        root,
        utils.PartitionerConfig(
            [utils.Device(f"d{i}", size_bytes, i) for i in range(3)],
            utils.PartitionMode[mode],
            transfer_rate_bytes_per_sec=2.0,
            node_to_latency_mapping={n: utils.NodeLatency(1.0, 2.0) for n in gm.graph.nodes},
            node_to_partition_mapping=mapping,
            partition_to_logical_device_mapping={0: [0], 1: [1]},
        ),
    )


@row("`sparse_nn` placement of a module without embeddings")
def test_sparse_placement_without_embeddings() -> None:
    with pytest.raises(IndexError):
        placed(torch.fx, "sparse_nn", 150)
    assert placed(corsac.fx, "sparse_nn", 150).dag.nodes


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x, y):
        return self.c(self.a(x)), self.d(self.b(y))


@row("`kl_based` placement")
def test_placement_by_exchanges() -> None:
    """Exchanging nodes between two devices puts each branch on a device of its own."""
    found = []
    for fx in PACKAGES:
        utils = of(fx, "experimental.partitioner_utils")
        root = Branches()
        gm = fx.symbolic_trace(root)
        of(fx, "passes.graph_manipulation").get_size_of_all_nodes(gm, [torch.rand(1, 4)] * 2)
        at_first = {"a": 0, "b": 0, "c": 1, "d": 1}
        config = utils.PartitionerConfig(
            [utils.Device(f"d{i}", 400, i) for i in range(2)],
            utils.PartitionMode.kl_based,
            transfer_rate_bytes_per_sec=1.0,
            node_to_latency_mapping={n: utils.NodeLatency(1.0, 2.0) for n in gm.graph.nodes},
            node_to_partition_mapping={n: at_first[n.name] for n in calls(gm)},
            partition_to_logical_device_mapping={0: [0], 1: [1]},
        )
        partitioner = of(fx, "experimental.accelerator_partitioner").Partitioner()
        whole = partitioner.partition_graph(gm, root, config).module_with_submodules
        found.append(sorted(sorted(n.target for n in calls(p)) for p in whole.children()))
    assert found == [[["a", "b", "c"], ["d"]], [["a", "c"], ["b", "d"]]]
