"""GraphModule: construction, recompilation, copies, pickles, folders and submodules."""

import copy
import importlib
import io
import pickle
import sys

import torch
from torch import nn

from kit import differential


class Net(nn.Module):
    """Children, a nested child, a parameter, a buffer and an attribute."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(3, 4)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.scale = nn.Parameter(torch.full((2,), 2.0))
        self.register_buffer("shift", torch.ones(2))
        self.register_buffer("hidden", torch.ones(2), persistent=False)
        self.unused = nn.Linear(1, 1)

    def forward(self, x):
        return self.inner(self.first(x)) * self.scale + self.shift + self.hidden


def input_of_net():
    return torch.arange(6.0).reshape(2, 3)


@differential
def test_from_a_module(fx, rec):
    module = Net()
    traced = rec("traced", fx.GraphModule(module, fx.Tracer().trace(module)))
    rec("class", (type(traced).__name__, type(traced).__mro__[1].__name__))
    rec("state", {k: v for k, v in traced.state_dict().items()})
    rec("buffers", [n for n, _ in traced.named_buffers()])
    rec("shared", traced.first is module.first)
    rec("unused", hasattr(traced, "unused"))
    rec.call("result", traced, input_of_net())
    rec("meta", traced.meta)


@differential
def test_class_name(fx, rec):
    module = fx.GraphModule(nn.Module(), fx.Graph(), "Special")
    rec("name", module._get_name())
    rec("text", str(module))
    rec("repr", repr(module))


@differential
def test_from_a_dictionary(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_module("a.b.linear", (x,))
    w = graph.get_attr("a.weight")
    graph.output(graph.call_function(torch.add, (y, w)))
    torch.manual_seed(3)
    root = {"a.b.linear": nn.Linear(2, 2), "a.weight": nn.Parameter(torch.ones(2)), "other": 1}
    module = rec("module", fx.GraphModule(root, graph))
    rec.call("result", module, torch.ones(1, 2))
    rec.call("missing", fx.GraphModule, {"a.weight": torch.ones(2)}, graph)


@differential
def test_roots_that_are_refused(fx, rec):
    rec.call("list", fx.GraphModule, [], fx.Graph())
    rec.call("no graph", fx.GraphModule, nn.Module(), None)
    graph = fx.Graph()
    graph.call_module("missing", ())
    rec.call("missing", fx.GraphModule, nn.Module(), graph)


@differential
def test_recompile(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.relu(x))
    for node in traced.graph.nodes:
        if node.op == "call_function":
            node.target = torch.neg
    rec.call("before", traced, torch.ones(2))
    rec("old code", traced.code)
    code = traced.recompile()
    rec("kind", type(code).__name__)
    rec("source", code.src)
    rec("new code", traced.code)
    rec.call("after", traced, torch.ones(2))


@differential
def test_assigning_a_graph(fx, rec):
    traced = fx.symbolic_trace(lambda x: x + 1)
    graph = fx.Tracer().trace(lambda x: x * 3)
    traced.graph = graph
    rec("traced", traced)
    rec("owner", graph.owning_module is traced)
    rec.call("result", traced, torch.ones(1))
    rec.call("refused", setattr, traced, "graph", "text")


@differential
def test_each_instance_has_its_own_class(fx, rec):
    first = fx.symbolic_trace(lambda x: x + 1)
    second = fx.symbolic_trace(lambda x: x + 2)
    rec("different", type(first) is type(second))
    rec("results", (first(1), second(1)))
    rec("module", isinstance(first, nn.Module))


@differential
def test_subclassing(fx, rec):
    class Special(fx.GraphModule):
        def __init__(self, root, graph, name="Special"):
            super().__init__(root, graph, name)
            self.extra = 3

        def describe(self):
            return f"special {self.extra}"

    module = Special(nn.Module(), fx.Tracer().trace(lambda x: x + 1))
    rec("module", module)
    rec("method", module.describe())
    rec("instance", isinstance(module, Special))
    rec("of instance", [c.__name__ for c in type(module).__mro__[:4]])


@differential
def test_own_call_method(fx, rec):
    class Calls(fx.GraphModule):
        def __call__(self, x):
            return super().__call__(x + 100)

    module = Calls(nn.Module(), fx.Tracer().trace(lambda x: x + 1))
    rec.call("result", module, 1)


@differential
def test_deepcopy(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced.meta["note"] = {"k": [1]}
    next(iter(traced.graph.nodes)).meta["m"] = 1
    copied = rec("copied", copy.deepcopy(traced))
    rec("meta", (copied.meta, copied.meta["note"] is traced.meta["note"]))
    rec("node meta", [dict(n.meta) for n in copied.graph.nodes][0])
    rec("shares", copied.first is traced.first)
    with torch.no_grad():
        copied.first.weight.zero_()
    rec.call("original", traced, input_of_net())
    rec.call("copy", copied, input_of_net())
    rec("owner", copied.graph.owning_module is copied)


@differential
def test_shallow_copy(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced.meta["note"] = 1
    copied = copy.copy(traced)
    rec("copied", copied)
    rec("shares", (copied.first is traced.first, copied.meta is traced.meta))
    rec("graph", copied.graph is traced.graph)


@differential
def test_pickling(fx, rec):
    traced = fx.symbolic_trace(Net())
    restored = rec("restored", pickle.loads(pickle.dumps(traced)))
    rec.call("result", restored, input_of_net())
    rec("hidden", restored.hidden)


@differential
def test_pickling_with_values_that_need_imports(fx, rec):
    def f(x):
        return torch.clamp(x, min=-float("inf"), max=float("inf")).to(torch.device("cpu"))

    restored = pickle.loads(pickle.dumps(fx.symbolic_trace(f)))
    rec("restored", restored)
    rec.call("result", restored, torch.ones(2))


@differential
def test_saving_and_loading(fx, rec):
    stream = io.BytesIO()
    torch.save(fx.symbolic_trace(Net()), stream)
    stream.seek(0)
    restored = torch.load(stream, weights_only=False)
    rec.call("result", restored, input_of_net())


@differential
def test_pickling_an_edited_pytree_module(fx, rec):
    def f(x):
        return {"sum": x["a"] + x["b"]}

    traced = fx.symbolic_trace(f, concrete_args={"x": {"a": fx.PH, "b": fx.PH}})
    restored = rec.call("restored", lambda: pickle.loads(pickle.dumps(traced)))
    if restored is not None:
        rec.call("result", restored, {"a": 1, "b": 2})


@differential
def test_attributes_survive_pickling(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced.extra = {"k": 1}
    restored = pickle.loads(pickle.dumps(traced))
    rec("extra", restored.extra)


@differential
def test_to_folder(fx, rec, tmp_path):
    traced = fx.symbolic_trace(Net())
    del traced.hidden
    traced.register_buffer("hidden", torch.ones(2))
    folder = tmp_path / f"folder_{rec.implementation.name.replace('.', '_')}"
    traced.to_folder(folder, "Exported")
    rec("files", sorted(path.name for path in folder.iterdir()))
    source = (folder / "module.py").read_text().replace(str(folder), "FOLDER")
    rec("source", source)
    sys.path.insert(0, str(tmp_path))
    try:
        module = importlib.import_module(folder.name).Exported()
    finally:
        sys.path.remove(str(tmp_path))
    rec.call("result", module, input_of_net())


@differential
def test_to_folder_with_a_child_that_has_no_source(fx, rec, tmp_path):
    traced = fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Tanh()))
    folder = tmp_path / rec.implementation.name
    rec.warns("warns", traced.to_folder, folder)
    rec("files", sorted(path.name for path in folder.iterdir()))


@differential
def test_adding_and_deleting_submodules(fx, rec):
    traced = fx.symbolic_trace(Net())
    rec("added", traced.add_submodule("new.child.relu", nn.ReLU()))
    rec("over", traced.add_submodule("first", nn.Tanh()))
    rec("through a parameter", traced.add_submodule("scale.child", nn.ReLU()))
    rec("names", [n for n, _ in traced.named_modules()])
    rec("deleted", traced.delete_submodule("new.child"))
    rec("again", traced.delete_submodule("new.child"))
    rec("parameter", traced.delete_submodule("scale"))
    rec("deep", traced.delete_submodule("scale.deep.deeper"))
    rec("remaining", [n for n, _ in traced.named_modules()])


@differential
def test_deleting_unused_submodules(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced.add_submodule("spare.deep", nn.Linear(1, 1))
    traced.add_submodule("first.extra", nn.Linear(1, 1))
    traced.delete_all_unused_submodules()
    rec("names", [n for n, _ in traced.named_modules()])
    for node in traced.graph.nodes:
        if node.op == "call_module" and node.target == "first":
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
            break
    traced.delete_all_unused_submodules()
    rec("fewer", [n for n, _ in traced.named_modules()])


@differential
def test_hooks_on_nodes(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.relu(x).neg())
    events = []

    def created(node):
        events.append(("create", node.name, node.op))

    def erased(node):
        events.append(("erase", node.name, len(node.users)))

    def replaced(old, new, user):
        events.append(("replace", old.name, new, user.name))

    traced._register_create_node_hook(created)
    traced._register_erase_node_hook(erased)
    nodes = {n.name: n for n in traced.graph.nodes}
    with traced._set_replace_hook(replaced):
        with traced.graph.inserting_before(nodes["neg"]):
            new = traced.graph.call_function(torch.abs, (nodes["relu"],))
        nodes["relu"].replace_all_uses_with(new, lambda user: user is not new)
        nodes["neg"].replace_input_with(new, nodes["x"])
        traced.graph.erase_node(new)
        nodes["relu"].name = "renamed"
        nodes["x"].name = "input"
    nodes["neg"].replace_input_with(nodes["x"], nodes["relu"])
    traced._unregister_create_node_hook(created)
    traced._unregister_erase_node_hook(erased)
    traced.graph.erase_node(traced.graph.call_function(torch.abs, (nodes["x"],)))
    rec("events", events)
    rec.call("not callable", traced._register_create_node_hook, 3)
    rec.call("unknown", traced._unregister_create_node_hook, created)


@differential
def test_training_flag_of_copies(fx, rec):
    traced = fx.symbolic_trace(Net()).eval()
    rec("pickled", pickle.loads(pickle.dumps(traced)).training)
    rec("shallow", copy.copy(traced).training)
    rec("training", copy.deepcopy(traced).training)


@differential
def test_hooks_survive_deepcopy(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced._register_create_node_hook(created_hook)
    traced._register_deepcopy_hook(deepcopy_hook)
    copied = copy.deepcopy(traced)
    rec("create hooks", len(copied._create_node_hooks))
    rec("marked", getattr(copied, "marked", None))


def created_hook(node):
    """Does nothing."""


def deepcopy_hook(module):
    """Marks the copy."""
    module.marked = True


@differential
def test_preserved_user_attributes(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced.meta["_user_preserved_attributes"] = {"kept": 3}
    rec("kept", copy.deepcopy(traced).kept)


@differential
def test_errors_in_generated_code(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.relu(x) + torch.ones(3))
    rec.call("shape", traced, torch.ones(2))
    rec.call("type", traced, "text")
    rec.call("arity", traced)


@differential
def test_state_dict_round_trip(fx, rec):
    first, second = fx.symbolic_trace(Net()), fx.symbolic_trace(Net())
    with torch.no_grad():
        first.scale.fill_(7.0)
    rec("keys", second.load_state_dict(first.state_dict()))
    rec.call("result", second, input_of_net())
    rec("double", [str(p.dtype) for p in second.double().parameters()])


@differential
def test_gradients(fx, rec):
    traced = fx.symbolic_trace(Net())
    traced(input_of_net()).sum().backward()
    rec.close("gradient", traced.scale.grad)
    rec.close("first", traced.first.weight.grad)


@differential
def test_module_hooks_and_calls(fx, rec):
    traced = fx.symbolic_trace(lambda x: x + 1)
    events = []
    traced.register_forward_pre_hook(lambda m, args: events.append("pre"))
    traced.register_forward_hook(lambda m, args, out: out * 2)
    rec.call("result", traced, 1)
    rec("events", events)
    rec("forward", traced.forward(1))


@differential
def test_lists_in_the_module_table(fx, rec):
    traced = fx.symbolic_trace(Net())
    rec("children", [n for n, _ in traced.named_children()])
    rec("parameters", [n for n, _ in traced.named_parameters()])
    rec("get", type(traced.get_submodule("inner.1")).__name__)


@differential
def test_codes_of_nested_graph_modules_are_recompiled(fx, rec):
    inner = fx.symbolic_trace(lambda x: x + 1)
    graph = fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    outer = fx.GraphModule({"inner": inner}, graph)
    for node in inner.graph.nodes:
        if node.op == "call_function":
            node.update_arg(1, 41)
    outer.recompile()
    rec.call("result", outer, 1)


@differential
def test_reduce_functions(fx, rec):
    traced = fx.symbolic_trace(Net())
    function, (body, imports) = traced.__reduce__()
    rec("function", function.__name__)
    rec("imports", imports)
    rec("body", sorted(k for k in body if not k.startswith("_graph")))
    rec.call("again", lambda: function(dict(body), imports)(input_of_net()))
