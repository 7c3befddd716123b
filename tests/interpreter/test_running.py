"""Running graphs node by node, and overrides in subclasses."""

import gc
import weakref

import pytest
import torch
from torch import nn

import corsac.fx as fx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x, scale=2.0):
        y = self.linear(x).relu() * self.weight
        return {"out": (torch.neg(y) * scale, [y])}


def same(left, right):
    assert torch.equal(left["out"][0], right["out"][0])
    assert torch.equal(left["out"][1][0], right["out"][1][0])


def test_runs_as_the_module_does():
    net = Net()
    gm = fx.symbolic_trace(net)
    x = torch.randn(2, 3)
    same(fx.Interpreter(gm).run(x), net(x))
    same(fx.Interpreter(gm).run(x, 3.0), net(x, 3.0))
    same(fx.Interpreter(gm, garbage_collect_values=False).run(x), net(x))


def test_values_are_dropped_after_their_last_use():
    gm = fx.symbolic_trace(Net())
    x = torch.randn(2, 3)
    kept = fx.Interpreter(gm, garbage_collect_values=False)
    kept.run(x)
    assert len(kept.env) == len(gm.graph.nodes)
    collected = fx.Interpreter(gm)
    collected.run(x)
    assert [node.op for node in collected.env] == ["output"]


def test_each_method_can_be_overridden():
    calls = []

    class Recorder(fx.Interpreter):
        def placeholder(self, target, args, kwargs):
            calls.append(("placeholder", target))
            return super().placeholder(target, args, kwargs)

        def get_attr(self, target, args, kwargs):
            calls.append(("get_attr", target))
            return super().get_attr(target, args, kwargs)

        def call_function(self, target, args, kwargs):
            calls.append(("call_function", target.__name__))
            return (
                torch.abs(args[0])
                if target is torch.neg
                else super().call_function(target, args, kwargs)
            )

        def call_method(self, target, args, kwargs):
            calls.append(("call_method", target))
            return super().call_method(target, args, kwargs)

        def call_module(self, target, args, kwargs):
            calls.append(("call_module", target))
            return super().call_module(target, args, kwargs)

        def output(self, target, args, kwargs):
            calls.append(("output", target))
            return super().output(target, args, kwargs)

    net = Net()
    x = torch.randn(2, 3)
    out = Recorder(fx.symbolic_trace(net)).run(x)
    assert torch.equal(out["out"][0], -net(x)["out"][0])
    assert calls == [
        ("placeholder", "x"),
        ("placeholder", "scale"),
        ("call_module", "linear"),
        ("call_method", "relu"),
        ("get_attr", "weight"),
        ("call_function", "mul"),
        ("call_function", "neg"),
        ("call_function", "mul"),
        ("output", "output"),
    ]


@pytest.mark.parametrize("part", ["run_node", "fetch_args_kwargs_from_env", "_set_current_node"])
def test_parts_of_running_a_node_can_be_overridden(part):
    seen = []
    original = getattr(fx.Interpreter, part)

    def override(self, node):
        seen.append(node.name)
        return original(self, node)

    cls = type("Noting", (fx.Interpreter,), {part: override})
    gm = fx.symbolic_trace(Net())
    cls(gm).run(torch.randn(2, 3))
    assert seen == [node.name for node in gm.graph.nodes]


def test_arguments_can_be_mapped_differently():
    class Doubled(fx.Interpreter):
        def map_nodes_to_values(self, args, n):
            mapped = super().map_nodes_to_values(args, n)
            if n.target is torch.neg and mapped:
                return tuple(value * 2 for value in mapped) if isinstance(mapped, tuple) else mapped
            return mapped

    gm = fx.symbolic_trace(lambda x: torch.neg(x))
    assert torch.equal(Doubled(gm).run(torch.ones(1)), torch.tensor([-2.0]))


def test_methods_set_on_an_instance_are_used():
    gm = fx.symbolic_trace(lambda x: torch.neg(x))
    interpreter = fx.Interpreter(gm)
    interpreter.call_function = lambda target, args, kwargs: 5
    assert interpreter.run(torch.ones(1)) == 5
    interpreter.run_node = lambda n: 6
    assert interpreter.run(torch.ones(1)) == 6


def test_known_values_are_not_computed():
    gm = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)))
    (relu,) = [n for n in gm.graph.nodes if n.target is torch.relu]
    result = fx.Interpreter(gm).run(torch.ones(1), initial_env={relu: torch.tensor([7.0])})
    assert torch.equal(result, torch.tensor([-7.0]))


def test_another_graph_can_be_run_on_the_module():
    gm = fx.symbolic_trace(Net())
    graph = fx.Graph()
    graph.output(graph.get_attr("weight"))
    assert fx.Interpreter(gm, graph=graph).run() is gm.weight


def test_star_arguments():
    def f(x, *rest, **options):
        return x, rest, options

    gm = fx.symbolic_trace(f)
    values = fx.Interpreter(gm).run(1, 2, 3, 4)
    assert values[0] == 1
    assert isinstance(values[1], list) or isinstance(values[2], list)


def test_missing_arguments_are_named():
    gm = fx.symbolic_trace(lambda x, y: x + y)
    with pytest.raises(RuntimeError, match="argument for parameter y, but one was not passed in"):
        fx.Interpreter(gm).run(1)


def test_errors_name_the_node():
    gm = fx.symbolic_trace(lambda x: torch.mm(x, x))
    with pytest.raises(RuntimeError) as raised:
        fx.Interpreter(gm).run(torch.randn(2, 3))
    message = str(raised.value)
    assert "shapes cannot be multiplied" in message
    assert "While executing %mm : [num_users=1] = call_function[target=torch.mm]" in message
    assert f'Original traceback:\nFile "{__file__}", line ' in message
    silent = fx.Interpreter(gm)
    silent.extra_traceback = False
    with pytest.raises(RuntimeError) as raised:
        silent.run(torch.randn(2, 3))
    assert "While executing" not in str(raised.value)


def test_key_errors_become_runtime_errors():
    def lookup(x):
        return {}[x]

    graph = fx.Graph()
    graph.output(graph.call_function(lookup, (graph.placeholder("x"),)))
    with pytest.raises(RuntimeError, match="While executing %lookup") as raised:
        fx.Interpreter(fx.GraphModule({}, graph)).run("missing")
    assert isinstance(raised.value.__cause__, KeyError)


def test_values_that_do_not_exist_are_reported():
    gm = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)))
    (relu,) = [n for n in gm.graph.nodes if n.target is torch.relu]

    class Forgetful(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            for node in list(self.env):
                if target is torch.relu:
                    del self.env[node]
            return super().call_function(target, args, kwargs)

    with pytest.raises(RuntimeError, match="Node neg referenced nonexistent value relu! Run"):
        interpreter = fx.Interpreter(gm, garbage_collect_values=False)
        interpreter.env = {}
        interpreter.map_nodes_to_values((relu,), next(iter(relu.users)))
    with pytest.raises(RuntimeError, match=r"nonexistent target weight\.data_of"):
        fx.Interpreter(fx.symbolic_trace(Net())).fetch_attr("weight.data_of")
    assert Forgetful(gm, garbage_collect_values=False).run(torch.ones(1)) is not None


def test_boxed_run_empties_the_list_and_frees_arguments():
    freed = []

    class Checked(fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if target is torch.neg:
                freed.append(reference() is None)
            return super().call_function(target, args, kwargs)

    gm = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)))
    x = torch.ones(1)
    reference = weakref.ref(x)
    arguments = [x]
    del x
    gc.collect()
    assert torch.equal(Checked(gm).boxed_run(arguments), torch.tensor([-1.0]))
    assert arguments == []
    assert freed == [True]


@pytest.mark.parametrize(("count", "detail"), [(0, "missing arguments"), (2, "extra arguments")])
def test_boxed_run_counts_arguments(count, detail):
    gm = fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(RuntimeError, match=rf"but received {count} \({detail}\)"):
        fx.Interpreter(gm).boxed_run([torch.ones(1)] * count)


def test_structured_arguments_pass_through_the_code_generator():
    gm = fx.symbolic_trace(
        lambda tree: {"sum": tree["a"] + tree["b"]},
        concrete_args={"tree": {"a": fx.PH, "b": fx.PH}},
    )
    tree = {"a": torch.ones(1), "b": torch.ones(1)}
    assert torch.equal(fx.Interpreter(gm).run(tree)["sum"], torch.tensor([2.0]))
    flat = fx.Interpreter(gm).run(*tree.values(), enable_io_processing=False)
    assert torch.equal(
        torch.as_tensor(flat["sum"] if isinstance(flat, dict) else flat[0]), torch.tensor([2.0])
    )
