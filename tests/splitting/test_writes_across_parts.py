"""Programs that write to values: splitters keep the order of reads and writes, or raise an error with the reason."""

import pytest
import torch

import corsac.fx as fx
from corsac import _core
from corsac.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from corsac.fx.passes.operator_support import OperatorSupportBase
from corsac.fx.passes.split_module import split_module
from corsac.fx.passes.split_utils import split_by_tags
from corsac.fx.passes.splitter_base import _SplitterBase, _SplitterSettingBase
from corsac.fx.passes.utils.fuser_utils import fuse_by_partitions


def written_between_reads(x):
    y = x * 2
    a = torch.relu(y)
    y.add_(1)
    b = torch.relu(y)
    return a + b


def written_through_a_view(x):
    y = x * 2
    a = torch.relu(x)
    y.view(-1).zero_()
    b = torch.relu(y)
    return a + b


def given_as_out(x):
    y = x * 2
    a = torch.relu(y)
    torch.exp(a, out=y)
    b = torch.relu(y)
    return a + b


def item_set(x):
    y = x * 2
    y[0] = 5
    a = torch.relu(y)
    y[1] = 7
    b = torch.relu(y)
    return a, b


def input_written(x):
    a = torch.relu(x)
    x.mul_(2)
    b = torch.relu(x)
    return a * b


def written_later_in_one_part(x):
    y = x * 2
    z = torch.relu(x)
    y.add_(1)
    return z + y.sum(), torch.relu(y)


PROGRAMS = [
    written_between_reads,
    written_through_a_view,
    given_as_out,
    item_set,
    input_written,
    written_later_in_one_part,
]
SUPPORTED = [["relu"], ["relu", "mul"], ["relu", "add"], ["zero", "add_", "exp", "setitem", "mul_"]]


class Names(OperatorSupportBase):
    """Supports calls whose names contain any of some texts."""

    def __init__(self, names):
        self.names = names

    def is_node_supported(self, submodules, node):
        return node.op.startswith("call_") and any(name in node.name for name in self.names)


class Splitter(_SplitterBase):
    def __init__(self, module, inputs, support):
        settings = _SplitterSettingBase(min_acc_module_size=1, allow_non_tensor=True)
        super().__init__(module, inputs, support, settings)


def partitioned(gm, support, x):
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    return partitioner.partition_and_fuse()


def split_in_two(gm, support, x):
    return split_module(gm, gm, lambda node: int(support.is_node_supported({}, node)))


def tagged(gm, support, x):
    for node in gm.graph.nodes:
        if node.op.startswith("call_"):
            node.tag = "b" if support.is_node_supported({}, node) else "a"
    return split_by_tags(gm, ["a", "b"])


def on_accelerator(gm, support, x):
    return Splitter(gm, (x.clone(),), support)()


def results(module, x):
    x = x.clone()
    return module(x), x


@pytest.mark.parametrize("split", [partitioned, split_in_two, tagged, on_accelerator])
@pytest.mark.parametrize("names", SUPPORTED, ids="-".join)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_stay_or_the_order_is_refused(program, names, split):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    gm = fx.symbolic_trace(program)
    expected = results(program, x)
    try:
        parts = split(gm, Names(names), x)
    except (AssertionError, RuntimeError) as refused:
        # A split required by the caller cannot be kept; a found one can.
        assert split in (split_in_two, tagged)
        assert "cycle exists between partitions" in str(refused) or "later part" in str(refused)
        return
    torch.testing.assert_close(results(parts, x), expected, rtol=0, atol=0)


def test_parts_are_called_where_their_reads_are_right():
    def program(x, w):
        y = x * 2
        first = torch.relu(y)
        y.add_(1)
        return first + torch.relu(w), y

    gm = fx.symbolic_trace(program)
    x, w = torch.randn(3), torch.randn(3)
    expected = program(x, w)
    relus = [node for node in gm.graph.nodes if node.target is torch.relu]
    # The call would come after the last of its nodes, and thus after the write.
    fused = fuse_by_partitions(gm, [dict.fromkeys(reversed(relus))])
    names = [node.name for node in fused.graph.nodes]
    assert names.index("fused_0") < names.index("add_")
    torch.testing.assert_close(fused(x, w), expected, rtol=0, atol=0)


def test_parts_that_write_run_in_the_order_of_the_program():
    def program(x):
        y = x * 2
        y.add_(1)
        return torch.relu(y)

    gm = fx.symbolic_trace(program)
    # Only the first partition's values are used by others.
    parts = {"mul": 2, "add_": 1, "relu": 0}
    whole = split_module(gm, gm, lambda node: parts[node.name])
    called = [node.target for node in whole.graph.find_nodes(op="call_module")]
    assert called == ["submod_2", "submod_1", "submod_0"]
    x = torch.randn(3)
    assert torch.equal(whole(x), program(x))


def test_a_part_that_cannot_run_at_once_names_the_write():
    gm = fx.symbolic_trace(written_between_reads)
    relus = [node for node in gm.graph.nodes if node.target is torch.relu]
    with pytest.raises(AssertionError, match=r"dependency cycles: .*add_"):
        fuse_by_partitions(gm, [dict.fromkeys(relus)])
    assert [node.name for node in gm.graph.nodes if "fused" in node.name] == []
    with pytest.raises(AssertionError, match="add_ is in part 0, but has to run after relu"):
        for node in gm.graph.nodes:
            node.tag = "b" if node.name == "relu" else "a"
        split_by_tags(gm, ["a", "b"])


def test_which_nodes_wait():
    gm = fx.symbolic_trace(written_between_reads)
    pairs = [(a.name, b.name) for a, b in _core.effect_pairs(gm.graph)]
    assert pairs == [("relu", "add_"), ("add_", "relu_1")]
    assert _core.effect_pairs(fx.symbolic_trace(lambda x: torch.relu(x * 2)).graph) == []
