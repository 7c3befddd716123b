"""Random graphs, patterns and replacements: the same matches and results as torch.fx."""

import operator
import random
from types import ModuleType

import pytest
import torch
import torch.fx
import torch.fx.passes.utils.matcher_utils as their_matcher
import torch.fx.subgraph_rewriter as their_rewriter

import corsac.fx.passes.utils.matcher_utils as our_matcher
import corsac.fx.subgraph_rewriter as our_rewriter
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule

OURS, THEIRS = (Graph, GraphModule), (torch.fx.Graph, torch.fx.GraphModule)
LITERALS = [0, 1, 1.0, True, None, "mode", (1, 2), [1, 2], slice(0, 2), torch.float32]


class Recipe:
    """A random program that can be built in both packages: one step per node."""

    def __init__(self, rng: random.Random, inputs: int, calls: int, returns: int) -> None:
        self.inputs = inputs
        self.steps = []
        for number in range(inputs, inputs + calls):
            # Mostly recent values, so that chains form.
            def operand(number=number):
                recent = range(max(0, number - 3), number)
                return ("value", rng.choice(recent if rng.random() < 0.8 else range(number)))

            kind = rng.choice(["unary", "unary", "unary", "binary", "literal", "list", "keyword"])
            self.steps.append(
                {
                    "unary": lambda: ("function", rng.choice([torch.relu, torch.neg]), [operand()]),
                    "binary": lambda: ("function", operator.add, [operand(), operand()]),
                    "literal": lambda: (
                        "function",
                        operator.mul,
                        [operand(), ("literal", rng.choice(LITERALS))],
                    ),
                    "list": lambda: (
                        "function",
                        torch.cat,
                        [("list", [operand() for _ in range(rng.randint(1, 2))])],
                    ),
                    "keyword": lambda: (
                        "method",
                        rng.choice(["sum", "mean"]),
                        [operand()],
                        {"dim": rng.choice([0, 1, (0, 1)])},
                    ),
                }[kind]()
            )
        last = inputs + calls
        self.returned = sorted(rng.sample(range(max(0, last - 4), last), k=min(returns, last, 4)))

    def without_dead_code(self) -> "Recipe":
        """The same program, returning everything that is unused."""
        used = set()

        def visit(operand):
            if operand[0] == "value":
                used.add(operand[1])
            elif operand[0] == "list":
                for item in operand[1]:
                    visit(item)

        for step in self.steps:
            for operand in step[2]:
                visit(operand)
        unused = set(range(self.inputs + len(self.steps))) - used
        self.returned = sorted(set(self.returned) | unused)
        return self

    def build(self, package):
        graph_class, module_class = package
        graph = graph_class()
        values = [graph.placeholder(f"x{number}") for number in range(self.inputs)]

        def read(operand):
            kind, content = operand
            if kind == "value":
                return values[content]
            if kind == "list":
                return [read(item) for item in content]
            return content

        for kind, target, args, *kwargs in self.steps:
            create = graph.call_function if kind == "function" else graph.call_method
            values.append(create(target, tuple(map(read, args)), *kwargs))
        results = tuple(values[number] for number in self.returned)
        graph.output(results[0] if len(results) == 1 else results)
        return module_class(torch.nn.Module(), graph)


def shown(value):
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return str(value)


def outcome(action):
    """The result of ``action``, or the class of its exception."""
    try:
        return action(), None
    except Exception as error:
        return None, type(error)


def matches(module: ModuleType, pattern, graph, options):
    found = module.SubgraphMatcher(pattern.graph, **options).match(graph.graph)
    return [
        (
            shown(match.anchors),
            [(str(key), shown(value)) for key, value in match.nodes_map.items()],
            shown(match.placeholder_nodes),
            shown(match.returning_nodes),
        )
        for match in found
    ]


def listing(graph):
    return [
        (str(node), node.op, node.target, str(node.args), str(node.kwargs)) for node in graph.nodes
    ]


def is_in_order(graph) -> bool:
    seen = set()
    for node in graph.nodes:
        if not seen.issuperset(node.all_input_nodes):
            return False
        seen.add(node)
    return True


def lacks_an_anchor(pattern, program) -> bool:
    """Whether a node that only the pattern's output uses has no counterpart in the program, where torch.fx
    raises KeyError, and corsac finds nothing."""
    present = {(node.op, node.target) for node in program.graph.nodes}
    output = next(iter(reversed(pattern.graph.nodes)))
    anchors = [node for node in output.all_input_nodes if len(node.users) == 1]
    return any(
        node.op != "placeholder" and (node.op, node.target) not in present for node in anchors
    )


@pytest.mark.parametrize("seed", range(400))
def test_the_same_matches(seed):
    rng = random.Random(seed)
    program = Recipe(rng, rng.randint(1, 2), rng.randint(4, 24), rng.randint(1, 3))
    pattern = Recipe(rng, rng.randint(1, 2), rng.randint(1, 3), 1).without_dead_code()
    options = {
        name: rng.random() < 0.25
        for name in ("match_output", "match_placeholder", "ignore_literals")
    }
    options["remove_overlapping_matches"] = rng.random() < 0.6
    theirs, their_error = outcome(
        lambda: matches(their_matcher, pattern.build(THEIRS), program.build(THEIRS), options)
    )
    ours, our_error = outcome(
        lambda: matches(our_matcher, pattern.build(OURS), program.build(OURS), options)
    )
    if their_error is KeyError and lacks_an_anchor(pattern.build(THEIRS), program.build(THEIRS)):
        assert ours == [] or our_error is KeyError
    else:
        assert (ours, our_error) == (theirs, their_error)


@pytest.mark.parametrize("seed", range(400))
def test_the_same_replacements(seed):
    rng = random.Random(seed)
    program = Recipe(rng, rng.randint(1, 2), rng.randint(4, 24), rng.randint(1, 3))
    inputs = rng.randint(1, 2)
    pattern = Recipe(rng, inputs, rng.randint(1, 3), 1).without_dead_code()
    replacement = Recipe(rng, inputs, rng.randint(0, 3), len(pattern.returned))
    options = {"ignore_literals": rng.random() < 0.25}
    if rng.random() < 0.3:
        # Takes the slow path, with callbacks into Python.
        options["match_filters"] = [lambda match, graph, pattern: len(match.nodes_map) % 2 == 0]

    def replace(module, package):
        gm = program.build(package)
        found = module.replace_pattern_with_filters(
            gm, pattern.build(package), replacement.build(package).graph, **options
        )
        return gm, [
            (
                str(match.anchor),
                [(str(key), shown(value)) for key, value in match.nodes_map.items()],
                shown(match.replacements),
            )
            for match in found
        ]

    theirs, their_error = outcome(lambda: replace(their_rewriter, THEIRS))
    ours, our_error = outcome(lambda: replace(our_rewriter, OURS))
    if ours is not None:
        assert is_in_order(ours[0].graph)
    if their_error is not None:
        if lacks_an_anchor(pattern.build(THEIRS), program.build(THEIRS)):
            assert ours[1] == []
        else:
            assert our_error is their_error
    elif not is_in_order(theirs[0].graph):
        # Graphs that cannot be sorted are rejected.
        assert our_error in (None, RuntimeError)
    else:
        assert our_error is None
        assert listing(ours[0].graph) == listing(theirs[0].graph)
        assert ours[1] == theirs[1]
        # torch.fx redirects a returned input to itself, which reorders its users.
        in_order = list if min(pattern.returned) >= inputs else sorted
        for node, other in zip(ours[0].graph.nodes, theirs[0].graph.nodes, strict=True):
            assert in_order(map(str, node.users)) == in_order(map(str, other.users))
