"""Random sequences of edits, applied to a graph of each implementation at the same time."""

import copy
import math

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit import REFERENCE, SUBJECT
from kit.differential import differences
from kit.observe import Raised, attempt, clean, observe, observe_node

IMPLEMENTATIONS = (REFERENCE, SUBJECT)
# No operators: with unusual arguments they are written differently on purpose.
FUNCTIONS = [torch.relu, torch.neg, torch.add, torch.cat, math.floor, isinstance, len]
NAMES = ["x", "relu", "relu_1", "add", "value", "Camel", "len", "a_2", "class", "1st", ""]

index = st.integers(0, 1000)
leaves = st.one_of(
    index.map(lambda i: ("node", i)),
    st.integers(-3, 3),
    st.sampled_from([None, True, 1.5, "text", torch.float32, ...]),
)
arguments = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(lambda v: ("tuple", *v)),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        st.tuples(st.just("slice"), inner, inner),
    ),
    max_leaves=4,
)
positional = st.lists(arguments, max_size=3)
keyword = st.dictionaries(st.sampled_from(["dim", "other", "alpha"]), arguments, max_size=2)


class Edits(RuleBasedStateMachine):
    """Two graphs that must stay the same under the same edits."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs = [i.fx.Graph() for i in IMPLEMENTATIONS]

    def nodes(self, side: int) -> list:
        return list(self.graphs[side].nodes)

    def resolve(self, side: int, value):
        """An argument with the nodes of one side."""
        if isinstance(value, tuple) and value[:1] == ("node",):
            nodes = [n for n in self.nodes(side) if n.op != "output"]
            return nodes[value[1] % len(nodes)] if nodes else None
        if isinstance(value, tuple) and value[:1] == ("tuple",):
            return tuple(self.resolve(side, v) for v in value[1:])
        if isinstance(value, tuple) and value[:1] == ("slice",):
            return slice(*(self.resolve(side, v) for v in value[1:]))
        if isinstance(value, list):
            return [self.resolve(side, v) for v in value]
        if isinstance(value, dict):
            return {k: self.resolve(side, v) for k, v in value.items()}
        return value

    def both(self, action) -> None:
        """Apply an edit to both graphs; results or exceptions must agree."""
        outcomes = [attempt(action, side) for side in range(2)]
        reference, subject = outcomes
        if isinstance(reference, Raised) or isinstance(subject, Raised):
            assert isinstance(reference, Raised) and isinstance(subject, Raised), outcomes
            assert issubclass(subject.kind, reference.kind), outcomes
        else:
            names = [getattr(o, "name", o) for o in outcomes]
            assert names[0] == names[1]

    def pick(self, side: int, i: int):
        nodes = self.nodes(side)
        return nodes[i % len(nodes)]

    # -- creation ---------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def placeholder(self, name):
        self.both(lambda s: self.graphs[s].placeholder(name))

    @rule(function=st.sampled_from(FUNCTIONS), args=positional, kwargs=keyword)
    def call_function(self, function, args, kwargs):
        self.both(
            lambda s: self.graphs[s].call_function(
                function, tuple(self.resolve(s, args)), self.resolve(s, kwargs)
            )
        )

    # Pure methods only: dead-code elimination keeps possible writes, on purpose.
    @rule(method=st.sampled_from(["relu", "neg", "__abs__"]), args=positional)
    def call_method(self, method, args):
        self.both(lambda s: self.graphs[s].call_method(method, (0, *self.resolve(s, args))))

    @rule(path=st.sampled_from(["a", "a.b", "layers.0"]), name=st.sampled_from(NAMES))
    def get_attr(self, path, name):
        self.both(lambda s: self.graphs[s].create_node("get_attr", path, (), {}, name))

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, after=st.booleans(), function=st.sampled_from(FUNCTIONS), args=positional)
    def insert(self, at, after, function, args):
        def action(s):
            graph, node = self.graphs[s], self.pick(s, at)
            args_of_side = tuple(self.resolve(s, args))
            with graph.inserting_after(node) if after else graph.inserting_before(node):
                first = graph.call_function(function, args_of_side)
                return graph.call_function(function, (first,))

        self.both(action)

    # -- edits ------------------------------------------------------------------------------

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, args=positional)
    def assign_args(self, at, args):
        self.both(lambda s: setattr(self.pick(s, at), "args", tuple(self.resolve(s, args))))

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, key=st.sampled_from(["dim", "new"]), value=arguments)
    def update_kwarg(self, at, key, value):
        self.both(lambda s: self.pick(s, at).update_kwarg(key, self.resolve(s, value)))

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, position=st.integers(-1, 3), value=arguments)
    def update_arg(self, at, position, value):
        self.both(lambda s: self.pick(s, at).update_arg(position, self.resolve(s, value)))

    # Node.insert_arg orders users differently on purpose: see test_graph_edits.py.

    @precondition(lambda self: self.nodes(0))
    @rule(old=index, new=index, modulus=st.integers(1, 3))
    def replace_all_uses(self, old, new, modulus):
        def action(s):
            replaced = self.pick(s, old).replace_all_uses_with(
                self.pick(s, new), lambda user: len(user.name) % modulus == 0
            )
            return [n.name for n in replaced]

        self.both(action)

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, old=index, new=index)
    def replace_input(self, at, old, new):
        self.both(
            lambda s: self.pick(s, at).replace_input_with(self.pick(s, old), self.pick(s, new))
        )

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, moved=index, before=st.booleans())
    def move(self, at, moved, before):
        def action(s):
            node = self.pick(s, at)
            return (node.prepend if before else node.append)(self.pick(s, moved))

        self.both(action)

    @precondition(lambda self: self.nodes(0))
    @rule(at=index)
    def erase(self, at):
        self.both(lambda s: self.graphs[s].erase_node(self.pick(s, at)))

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, name=st.sampled_from(NAMES))
    def rename(self, at, name):
        self.both(lambda s: self.pick(s, at)._rename(name))

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, function=st.sampled_from(FUNCTIONS))
    def retarget(self, at, function):
        def action(s):
            node = self.pick(s, at)
            if node.op == "call_function":
                node.target = function

        self.both(action)

    @precondition(lambda self: self.nodes(0))
    @rule(at=index, value=st.integers())
    def annotate(self, at, value):
        def action(s):
            node = self.pick(s, at)
            node.meta["value"] = value
            node.colour = value

        self.both(action)

    # -- whole graph ------------------------------------------------------------------------

    @rule()
    def eliminate_dead_code(self):
        self.both(lambda s: self.graphs[s].eliminate_dead_code())

    @rule()
    def deep_copy(self):
        copies = [attempt(copy.deepcopy, graph) for graph in self.graphs]
        if any(isinstance(c, Raised) for c in copies):
            assert all(isinstance(c, Raised) for c in copies), copies
            return
        for before, after in zip(self.graphs, copies, strict=True):
            # Copies of torch.fx lose what was set on nodes (docs/compatibility.md).
            for node, copied in zip(before.nodes, after.nodes, strict=True):
                if hasattr(node, "colour"):
                    copied.colour = node.colour
        self.graphs = copies

    @rule()
    def copy_onto_the_end(self):
        def action(s):
            target = IMPLEMENTATIONS[s].fx.Graph()
            target.graph_copy(self.graphs[s], {})
            target.graph_copy(self.graphs[s], {})
            return str(target)

        self.both(action)

    @rule(function=st.sampled_from(FUNCTIONS))
    def find(self, function):
        self.both(
            lambda s: [
                n.name for n in self.graphs[s].find_nodes(op="call_function", target=function)
            ]
        )

    @rule()
    def lint(self):
        self.both(lambda s: self.graphs[s].lint())

    def parameters_keep_their_names(self) -> bool:
        """Parameters keep their names, or torch.fx might give a parameter and a value the same one."""
        return all(n.name == n.target for n in self.graphs[0].nodes if n.op == "placeholder")

    @precondition(parameters_keep_their_names)
    @rule()
    def generate_code(self):
        sides = zip(self.graphs, IMPLEMENTATIONS, strict=True)
        codes = [observe(attempt(graph.python_code, "self"), i) for graph, i in sides]
        found = differences("code", *codes)
        assert not found, "\n".join(str(difference) for difference in found)

    @invariant()
    def the_same(self):
        described = [attempt(self.describe, side) for side in range(2)]
        assert described[0] == described[1]

    def describe(self, side: int):
        graph, implementation = self.graphs[side], IMPLEMENTATIONS[side]
        return (
            clean(str(graph), implementation),
            [observe_node(n, implementation) for n in graph.nodes],
            [n.name for n in reversed(graph.nodes)],
            [(dict(n.meta), getattr(n, "colour", None)) for n in graph.nodes],
            len(graph.nodes),
        )

    def teardown(self) -> None:
        if self.nodes(0):
            self.both(lambda s: self.graphs[s].output(self.resolve(s, [("node", 1), 2])))
            if self.parameters_keep_their_names():
                self.generate_code()


Edits.TestCase.settings = settings(
    max_examples=60 if settings().max_examples < 100 else 600,
    stateful_step_count=30,
    report_multiple_bugs=False,
)
TestEdits = Edits.TestCase
