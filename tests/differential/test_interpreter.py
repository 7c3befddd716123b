"""Interpreter and Transformer: running, overriding, freeing values and rebuilding."""

import operator
import weakref

import torch
from torch import nn

from kit import differential
from kit.swapping import swapping


class Net(nn.Module):
    """Each opcode once."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x, y=2):
        return {"out": [(self.linear(x) + self.weight).relu() * y]}


@differential
def test_run(fx, rec):
    traced = fx.symbolic_trace(Net())
    x = torch.ones(1, 3)
    rec.call("both", fx.Interpreter(traced).run, x, 3)
    rec.call("default", fx.Interpreter(traced).run, x)
    rec.call("too few", fx.Interpreter(traced).run)
    rec.call("too many", fx.Interpreter(traced).run, x, 1, 2, 3)
    rec.call("kwargs", fx.Interpreter(traced).run, x, y=3)


@differential
def test_every_step_may_be_overridden(fx, rec):
    class Logging(fx.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.events = []

        def run_node(self, n):
            self.events.append(("run_node", n.name))
            return super().run_node(n)

        def placeholder(self, target, args, kwargs):
            self.events.append(("placeholder", target, len(args)))
            return super().placeholder(target, args, kwargs)

        def get_attr(self, target, args, kwargs):
            self.events.append(("get_attr", target))
            return super().get_attr(target, args, kwargs)

        def call_function(self, target, args, kwargs):
            self.events.append(("call_function", target.__name__, len(args)))
            return super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            self.events.append(("call_method", target))
            return super().call_method(target, args, kwargs)

        def call_module(self, target, args, kwargs):
            self.events.append(("call_module", target))
            return super().call_module(target, args, kwargs)

        def output(self, target, args, kwargs):
            self.events.append(("output", target))
            return super().output(target, args, kwargs)

    interpreter = Logging(fx.symbolic_trace(Net()))
    rec.call("result", interpreter.run, torch.ones(1, 3))
    rec("events", interpreter.events)


@differential
def test_swapping_operators(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.sigmoid(x).neg())
    rec.call("result", swapping(fx.Interpreter)(traced).run, torch.ones(2))


@differential
def test_initial_environment(fx, rec):
    traced = fx.symbolic_trace(lambda x: torch.relu(x).neg())
    relu = next(n for n in traced.graph.nodes if n.name == "relu")
    rec.call("given", fx.Interpreter(traced).run, torch.ones(1), initial_env={relu: torch.ones(2)})


@differential
def test_values_are_freed_after_their_last_use(fx, rec):
    alive = []

    class Watching(fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            alive.append((n.name, sorted(k.name for k in self.env)))
            return result

    traced = fx.symbolic_trace(lambda x: torch.relu(x).neg().abs())
    rec.call("result", Watching(traced).run, torch.ones(2))
    rec("alive", list(alive))
    alive.clear()
    interpreter = Watching(traced, garbage_collect_values=False)
    interpreter.run(torch.ones(2))
    rec("kept", alive)
    rec("environment", [k.name for k in interpreter.env])


@differential
def test_freed_tensors_are_really_gone(fx, rec):
    seen = []

    def remember(x):
        seen.append(weakref.ref(x))
        return x + 1

    def check(x):
        return x * (1 if seen[0]() is None else 100)

    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.neg, (x,))
    b = graph.call_function(remember, (a,))
    c = graph.call_function(torch.neg, (b,))
    graph.output(graph.call_function(check, (c,)))
    rec.call("interpreter", fx.Interpreter(fx.GraphModule({}, graph)).run, torch.ones(1))


@differential
def test_boxed_run(fx, rec):
    traced = fx.symbolic_trace(lambda x, y: x + y)
    args = [torch.ones(1), torch.ones(1)]
    rec.call("result", fx.Interpreter(traced).boxed_run, args)
    rec("cleared", args)
    rec.call("too few", fx.Interpreter(traced).boxed_run, [1])
    rec.call("too many", fx.Interpreter(traced).boxed_run, [1, 2, 3])


@differential
def test_star_placeholders(fx, rec):
    def f(x, *args):
        return x, args

    traced = fx.symbolic_trace(f)
    rec.call("result", fx.Interpreter(traced).run, 1, 2, 3)


@differential
def test_errors_name_the_node(fx, rec):
    class Special(Exception):
        pass

    def fails(x):
        raise Special("inside", 3)

    def missing(x):
        raise KeyError("k")

    for label, function in {"special": fails, "key": missing}.items():
        graph = fx.Graph()
        graph.output(graph.call_function(function, (graph.placeholder("x"),)))
        module = fx.GraphModule({}, graph)
        rec.call(label, fx.Interpreter(module).run, 1)
        try:
            fx.Interpreter(module).run(1)
        except Exception as error:
            rec(f"{label}: has the node", "While executing" in str(error.args[0]))
            rec(f"{label}: arguments", len(error.args))
    quiet = fx.Interpreter(fx.symbolic_trace(lambda x: torch.relu(x)))
    quiet.extra_traceback = False
    try:
        quiet.run("text")
    except Exception as error:
        rec("quiet", "While executing" in str(error))


@differential
def test_missing_attributes_and_values(fx, rec):
    graph = fx.Graph()
    graph.output(graph.create_node("get_attr", "missing.deep"))
    holder = nn.Module()
    rec.call("attribute", fx.Interpreter(holder, graph=graph).run)
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    z = graph.call_function(torch.neg, (y,))
    graph.output(z)
    y.prepend(z)
    rec.call("out of order", fx.Interpreter(holder, graph=graph).run, torch.ones(1))


@differential
def test_running_another_graph(fx, rec):
    net = Net()
    graph = fx.Tracer().trace(net)
    rec.call("module and graph", fx.Interpreter(net, graph=graph).run, torch.ones(1, 3), 2)
    rec.call("module without graph", fx.Interpreter, net)


@differential
def test_fetching(fx, rec):
    traced = fx.symbolic_trace(Net())
    interpreter = fx.Interpreter(traced, garbage_collect_values=False)
    interpreter.run(torch.ones(1, 3), 2)
    node = next(n for n in traced.graph.nodes if n.op == "call_function")
    rec("arguments", interpreter.fetch_args_kwargs_from_env(node))
    rec("attribute", interpreter.fetch_attr("linear.bias"))
    rec.call("nothing", interpreter.fetch_attr, "linear.nothing")
    rec("values", interpreter.map_nodes_to_values([node, {"k": 1}], node))


@differential
def test_without_an_output(fx, rec):
    graph = fx.Graph()
    graph.call_function(torch.neg, (graph.placeholder("x"),))
    rec.call("result", fx.Interpreter(fx.GraphModule({}, graph)).run, torch.ones(1))


@differential
def test_the_current_node_is_known_while_running(fx, rec):
    seen = []

    def look(x):
        seen.append(fx.traceback.get_current_meta().get("mark"))
        return x

    graph = fx.Graph()
    node = graph.call_function(look, (graph.placeholder("x"),))
    node.meta["mark"] = "here"
    graph.output(node)
    module = fx.GraphModule({}, graph)
    with fx.traceback.preserve_node_meta():
        fx.Interpreter(module).run(1)
    fx.Interpreter(module).run(1)
    rec("seen", seen)


@differential
def test_transformer_copies(fx, rec):
    traced = fx.symbolic_trace(Net())
    next(n for n in traced.graph.nodes if n.name == "relu").meta["note"] = 1
    changed = rec("changed", fx.Transformer(traced).transform())
    rec.call("result", changed, torch.ones(1, 3))
    rec("shares", changed.linear is traced.linear)


@differential
def test_transformer_replaces(fx, rec):
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is operator.add:
                return torch.sub(*args, **kwargs)
            return super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            if target == "relu":
                return args[0].sigmoid().neg()
            return super().call_method(target, args, kwargs)

        def call_module(self, target, args, kwargs):
            result = super().call_module(target, args, kwargs)
            return result + 1

        def get_attr(self, target, args, kwargs):
            return super().get_attr(target, args, kwargs) * 5

        def placeholder(self, target, args, kwargs):
            return super().placeholder(target, args, kwargs)

    traced = fx.symbolic_trace(Net())
    changed = rec("changed", Swap(traced).transform())
    rec.call("result", changed, torch.ones(1, 3))
    rec("original", traced.code)


@differential
def test_transformer_with_constants_and_other_results(fx, rec):
    class Folding(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is torch.relu:
                return args[0]
            return super().call_function(target, args, kwargs)

        def output(self, target, args, kwargs):
            return [args[0], 3]

    traced = fx.symbolic_trace(lambda x: torch.relu(x) + torch.ones(2))
    rec("changed", Folding(traced).transform())


@differential
def test_transformer_keeps_metadata_and_names(fx, rec):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x).relu()

    traced = fx.symbolic_trace(nn.Sequential(Block(), Block()))
    for index, node in enumerate(traced.graph.nodes):
        node.meta["custom"] = {"index": index}
        node.meta["other"] = index
    changed = fx.Transformer(traced).transform()
    rec("names", [n.name for n in changed.graph.nodes])
    rec("meta", [sorted(n.meta) for n in changed.graph.nodes])
    rec("custom", [n.meta.get("custom") for n in changed.graph.nodes])


@differential
def test_transformer_with_pytrees_and_defaults(fx, rec):
    def f(x):
        return {"sum": x["a"] + x["b"]}

    traced = fx.symbolic_trace(f, concrete_args={"x": {"a": fx.PH, "b": fx.PH}})
    changed = rec("tree", fx.Transformer(traced).transform())
    rec.call("result", changed, {"a": 1, "b": 2})
    rec("defaults", fx.Transformer(fx.symbolic_trace(lambda x, y=3, z=None: x + y)).transform())


@differential
def test_transformer_attributes(fx, rec):
    transformer = fx.Transformer(fx.symbolic_trace(Net()))
    rec("graph", type(transformer.new_graph).__name__)
    rec("tracer", type(transformer.tracer).__name__)
    rec("name", transformer.name)
