"""Copying and pickling: attributes kept and shared by copies."""

import copy
import pickle

import torch
from torch import nn

import corsac.fx as fx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3), persistent=False)

    def forward(self, x):
        return torch.relu(self.linear(x)) + self.offset


class AllLeaves(fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return True


def note(module, args):
    module.seen = getattr(module, "seen", 0) + 1


def node_hook(node):
    pass


def attached():
    gm = fx.symbolic_trace(Net())
    gm.eval()
    gm.color = ["red"]
    gm.meta["stage"] = {"n": 1}
    gm.register_forward_pre_hook(note)
    gm._register_create_node_hook(node_hook)
    gm.spare = nn.Linear(2, 2)
    return gm


def test_deep_copies_keep_what_was_attached():
    gm = attached()
    twin = copy.deepcopy(gm)
    x = torch.randn(2, 3)
    assert torch.equal(twin(x), gm(x))
    assert twin.seen == 1
    assert not twin.training
    assert twin.color == ["red"] and twin.color is not gm.color
    assert twin.meta == {"stage": {"n": 1}} and twin.meta["stage"] is not gm.meta["stage"]
    assert twin._create_node_hooks == [node_hook]
    assert isinstance(twin.spare, nn.Linear) and twin.spare is not gm.spare
    assert twin.linear.weight is not gm.linear.weight
    assert torch.equal(twin.linear.weight, gm.linear.weight)


def test_deep_copies_have_a_graph_of_their_own():
    gm = attached()
    twin = copy.deepcopy(gm)
    assert twin.graph is not gm.graph
    assert twin.graph.owning_module is twin and gm.graph.owning_module is gm
    for node in twin.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.neg
    twin.recompile()
    assert "torch.neg" in twin.code and "torch.neg" not in gm.code


def test_deep_copy_hooks_get_the_copy():
    gm = attached()
    seen = []
    gm._register_deepcopy_hook(seen.append)
    twin = copy.deepcopy(gm)
    assert seen == [twin]
    gm._unregister_deepcopy_hook(seen.append)
    copy.deepcopy(gm)
    assert seen == [twin]


def test_preserved_attributes_are_set_on_the_copy():
    gm = attached()
    gm.meta["_user_preserved_attributes"] = {"level": 7}
    assert copy.deepcopy(gm).level == 7


def test_subclasses_choose_how_a_copy_is_made():
    class Tagged(fx.GraphModule):
        def __init__(self, root, graph, tag="made"):
            super().__init__(root, graph)
            self.tag = tag

        def _deepcopy_init(self):
            return Tagged.__init__

    root = Net()
    twin = copy.deepcopy(Tagged(root, fx.Tracer().trace(root), "first"))
    assert type(twin).__mro__[1] is Tagged
    assert twin.tag == "first"


def test_shallow_copies_share_graph_and_state():
    gm = attached()
    graph = gm.graph
    twin = copy.copy(gm)
    assert twin.graph is graph
    assert twin.linear is gm.linear
    assert twin.meta is gm.meta
    assert twin.color is gm.color
    twin.register_forward_pre_hook(lambda *_: None)
    assert len(gm._forward_pre_hooks) == 1 and len(twin._forward_pre_hooks) == 2


def test_pickled_modules_run_again():
    gm = attached()
    again = pickle.loads(pickle.dumps(gm))
    x = torch.randn(2, 3)
    assert torch.equal(again(x), gm(x))
    assert again.code == gm.code
    assert not again.training
    assert again.color == ["red"]
    assert "offset" not in again.state_dict()
    assert isinstance(again, fx.GraphModule)


def test_pickling_keeps_submodules_as_calls():
    root = nn.Sequential(Net(), Net())
    gm = fx.GraphModule(root, AllLeaves().trace(root))
    again = pickle.loads(pickle.dumps(gm))
    assert [n.op for n in again.graph.nodes] == [n.op for n in gm.graph.nodes]
    assert again.graph._tracer_cls is AllLeaves


def test_pickling_keeps_structured_arguments():
    def summed(tree):
        return {"sum": tree["a"] + tree["b"][0]}

    gm = fx.symbolic_trace(summed, concrete_args={"tree": {"a": fx.PH, "b": [fx.PH]}})
    one = torch.ones(1)
    again = pickle.loads(pickle.dumps(gm))
    tree = {"a": one, "b": [one]}
    assert torch.equal(gm(tree)["sum"], torch.tensor([2.0]))
    assert torch.equal(again(tree)["sum"], torch.tensor([2.0]))


def test_local_tracers_are_not_pickled():
    class Local(fx.Tracer):
        pass

    root = Net()
    gm = fx.GraphModule(root, Local().trace(root))
    assert gm._tracer_cls is None
    assert pickle.loads(pickle.dumps(gm)).graph._tracer_cls is fx.Tracer


def test_data_parallel_replicas_are_marked():
    gm = attached()
    replica = gm._replicate_for_data_parallel()
    assert replica._is_replica and not hasattr(gm, "_is_replica")
