"""Tracing modules: leaves, parameters, buffers, scopes and custom tracers."""

import torch
from torch import nn

from kit import differential, known_difference


class Affine(nn.Module):
    """A module with a parameter, a buffer and a plain tensor attribute."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.arange(3.0))
        self.plain = torch.full((3,), 2.0)
        self.number = 5

    def forward(self, x):
        return x * self.weight + self.offset + self.plain + self.number


class Block(nn.Module):
    """A module with leaves, a container and a module of its own kind inside."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(3, 3), Affine())
        self.list = nn.ModuleList([nn.Linear(3, 3), nn.Dropout(0.0)])
        self.named = nn.ModuleDict({"first layer": nn.Tanh(), "2nd": nn.Sigmoid()})

    def forward(self, x):
        x = self.layers(self.linear(x))
        for layer in self.list:
            x = layer(x)
        for layer in self.named.values():
            x = layer(x)
        return x + self.linear.weight.sum() + self.layers[2].weight


class Everything(nn.Module):
    """Calls one child twice and another through an attribute chain."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.shared = nn.Linear(3, 3)
        self.alias = self.shared

    def forward(self, x):
        return self.alias(self.shared(self.block(x))) + self.block.linear.bias


@differential
def test_parameters_and_buffers(fx, rec):
    traced = rec("traced", fx.symbolic_trace(Affine()))
    rec.call("result", traced, torch.randn(2, 3))


@differential
def test_containers_and_leaves(fx, rec):
    traced = rec("traced", fx.symbolic_trace(Block()))
    rec.call("result", traced, torch.randn(2, 3))


@differential
def test_shared_modules(fx, rec):
    module = Everything().eval()
    traced = rec("traced", fx.symbolic_trace(module))
    rec.call("result", traced, torch.randn(2, 3))
    rec("shared storage", traced.shared.weight is module.shared.weight)


@differential
def test_module_stack_in_the_metadata(fx, rec):
    graph = fx.Tracer().trace(Everything())
    rec("stacks", [(n.name, n.meta.get("nn_module_stack")) for n in graph.nodes])


@differential
def test_node_name_to_scope(fx, rec):
    tracer = fx.Tracer()
    tracer.trace(Everything())
    rec("scopes", tracer.node_name_to_scope)


@differential
def test_a_child_called_twice_is_numbered_in_the_stack(fx, rec):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Affine()

        def forward(self, x):
            return self.block(self.block(x))

    tracer = fx.Tracer()
    graph = rec("graph", tracer.trace(Twice()))
    rec("stacks", [(n.name, n.meta.get("nn_module_stack")) for n in graph.nodes])
    rec("calls", tracer.num_calls)


@differential
def test_tied_parameters_use_the_first_name(fx, rec):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = nn.Linear(2, 2)
            self.b.weight = self.a.weight

        def forward(self, x):
            return x @ self.b.weight + self.a.weight

    rec("traced", fx.symbolic_trace(Tied()))


@differential
def test_leaf_modules_of_a_custom_tracer(fx, rec):
    asked = []

    class OnlyAffine(fx.Tracer):
        def is_leaf_module(self, m, qualified_name):
            asked.append((qualified_name, type(m).__name__))
            return isinstance(m, Affine) or super().is_leaf_module(m, qualified_name)

    module = Everything()
    tracer = OnlyAffine()
    graph = rec("graph", tracer.trace(module))
    rec("module", fx.GraphModule(tracer.root, graph, "Everything"))
    rec("tracer class", graph._tracer_cls)
    rec("asked", asked)


@differential
def test_tracing_through_standard_modules(fx, rec):
    class NoLeaves(fx.Tracer):
        def is_leaf_module(self, m, qualified_name):
            return False

    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3), nn.GELU()).eval()
    tracer = NoLeaves()
    graph = rec("graph", tracer.trace(module))
    rec.call("result", fx.GraphModule(module, graph), torch.randn(2, 3))


@differential
def test_is_leaf_module_by_default(fx, rec):
    tracer = fx.Tracer()
    for module in (nn.Linear(1, 1), nn.Sequential(), Affine(), nn.ModuleList(), nn.Identity()):
        rec(type(module).__name__, tracer.is_leaf_module(module, "path"))


@differential
def test_overriding_call_module(fx, rec):
    class Counting(fx.Tracer):
        def __init__(self):
            super().__init__()
            self.called = []

        def call_module(self, m, forward, args, kwargs):
            self.called.append((self.path_of_module(m), len(args), sorted(kwargs)))
            return super().call_module(m, forward, args, kwargs)

    tracer = Counting()
    rec("graph", tracer.trace(Block()))
    rec("called", tracer.called)


@differential
def test_call_module_may_replace_the_call(fx, rec):
    class Skipping(fx.Tracer):
        def call_module(self, m, forward, args, kwargs):
            if isinstance(m, nn.Dropout):
                return args[0]
            return super().call_module(m, forward, args, kwargs)

    rec("graph", Skipping().trace(Block()))


@differential
def test_overriding_create_arg_and_create_node(fx, rec):
    class Boxed:
        def __init__(self, value):
            self.value = value

    class Unboxing(fx.Tracer):
        def create_arg(self, a):
            if isinstance(a, Boxed):
                return super().create_arg(a.value)
            return super().create_arg(a)

        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            node.meta["kind"] = kind
            return node

    graph = rec("graph", Unboxing().trace(lambda x: x.add(Boxed(3), alpha=Boxed(2))))
    rec("meta", [dict(n.meta) for n in graph.nodes])


@differential
def test_overriding_create_proxy_and_proxy(fx, rec):
    class Named(fx.Proxy):
        pass

    class Tracing(fx.Tracer):
        def proxy(self, node):
            return Named(node, self)

        def create_proxy(
            self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None
        ):
            name = f"named_{kind}" if name is None else f"named_{name}"
            return super().create_proxy(
                kind, target, args, kwargs, name, type_expr, proxy_factory_fn
            )

    kinds = []

    def f(x):
        y = x + 1
        kinds.append(type(y).__name__)
        return torch.relu(y).neg()

    rec("graph", Tracing().trace(f))
    rec("kinds", kinds)


@differential
def test_overriding_getattr(fx, rec):
    class Direct(fx.Tracer):
        def getattr(self, attr, attr_val, parameter_proxy_cache):
            rec(f"asked {attr} {len(rec.seen)}", type(attr_val).__name__)
            return super().getattr(attr, attr_val, parameter_proxy_cache)

    rec("graph", Direct().trace(Affine()))


@differential
def test_traced_func_name(fx, rec):
    class Encoder(nn.Module):
        def forward(self, x):
            return x

        def encode(self, x, y=2):
            return x * y

    class Encoding(fx.Tracer):
        traced_func_name = "encode"

    class Missing(fx.Tracer):
        traced_func_name = "nothing_of_this_name"

    tracer = Encoding()
    rec("graph", tracer.trace(Encoder()))
    rec.call("missing", Missing().trace, Encoder())


@differential
def test_param_shapes_constant(fx, rec):
    class Shapes(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3))

        def forward(self, x):
            if self.weight.shape[0] == 2 and self.weight.dim() == 2 and self.weight.ndim == 2:
                x = x + self.weight.numel() + self.weight.nelement() + self.weight.size()[1]
            return x + self.weight

    rec("constant", fx.Tracer(param_shapes_constant=True).trace(Shapes()))
    rec.call("symbolic", fx.Tracer().trace, Shapes())


@differential
def test_proxy_buffer_attributes(fx, rec):
    class Buffers(fx.Tracer):
        proxy_buffer_attributes = True

    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(3))

        def forward(self, x):
            return x + self.table.sum() + self.table

    rec("with", Buffers().trace(Uses()))
    rec("without", fx.Tracer().trace(Uses()))


@differential
def test_a_module_that_is_not_a_submodule(fx, rec):
    stray = nn.Linear(2, 2)

    class Uses(nn.Module):
        def forward(self, x):
            return stray(x)

    class UsesParameter(nn.Module):
        def forward(self, x):
            return x + stray.weight

    class Calls(nn.Module):
        def forward(self, x):
            return Affine()(x)

    rec.call("module", fx.symbolic_trace, Uses())
    rec.call("parameter", fx.symbolic_trace, UsesParameter())
    rec.call("fresh module", fx.symbolic_trace, Calls())


@differential
def test_path_of_module(fx, rec):
    module = Everything()
    tracer = fx.Tracer()
    tracer.trace(module)
    rec("nested", tracer.path_of_module(module.block.layers[2]))
    rec("alias", tracer.path_of_module(module.alias))
    rec("root", tracer.path_of_module(module))
    rec.call("stranger", tracer.path_of_module, nn.ReLU())


@differential
def test_module_passed_as_an_argument(fx, rec):
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = nn.Linear(2, 2)

        def forward(self, x):
            return torch.add(x, 1), [self.child]

    rec.call("traced", fx.symbolic_trace, Root())


@differential
def test_record_stack_traces(fx, rec):
    class Recording(fx.Tracer):
        record_stack_traces = True

    class Child(nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1

    graph = Recording().trace(nn.Sequential(Child()))
    rec("has", [(n.name, bool(n.stack_trace)) for n in graph.nodes])
    line = "return torch.relu(x) + 1"
    rec("lines", [(n.name, line in n.stack_trace) for n in graph.nodes if n.stack_trace])
    plain = fx.Tracer().trace(nn.Sequential(Child()))
    rec("plain", [n.stack_trace for n in plain.nodes])


@differential
def test_check_mutable_operations(fx, rec):
    class Checking(fx.Tracer):
        check_mutable_operations = True

    rec.call("mutable", Checking().trace, lambda x: torch.relu_(x))
    rec.call("pure", Checking().trace, lambda x: torch.relu(x))


@known_difference(
    "child",
    reason="the training flag of modules that only hold others, in traced modules and shallow copies",
)
@differential
def test_training_flag_is_kept(fx, rec):
    rec("train", fx.symbolic_trace(Block()).training)
    rec("eval", fx.symbolic_trace(Block().eval()).training)
    rec("child", fx.symbolic_trace(Block().eval()).layers.training)


@differential
def test_forward_hooks_of_leaves_stay(fx, rec):
    module = Block().eval()
    calls = []
    module.linear.register_forward_hook(lambda m, i, o: calls.append("hook"))
    traced = fx.symbolic_trace(module)
    rec("while tracing", list(calls))
    traced(torch.randn(1, 3))
    rec("after", list(calls))


@differential
def test_forward_hooks_of_inner_modules_are_traced(fx, rec):
    module = Block().eval()
    module.layers[2].register_forward_hook(lambda m, i, o: o * 2)
    module.register_forward_hook(lambda m, i, o: o * 3)
    rec("traced", fx.symbolic_trace(module))


@differential
def test_lazy_and_nested_graph_modules(fx, rec):
    inner = fx.symbolic_trace(Affine())

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + 1

    rec("traced", fx.symbolic_trace(Outer()))


@differential
def test_is_fx_tracing(fx, rec):
    seen = []

    def f(x):
        seen.append(fx._symbolic_trace.is_fx_tracing())
        seen.append(torch.fx._symbolic_trace.is_fx_tracing())
        return x

    fx.symbolic_trace(f)
    rec("during", seen)
    rec("after", fx._symbolic_trace.is_fx_tracing())
