"""``split_module`` against torch.fx: graphs, code, names, results, errors."""

import copy
import pickle
import random

import pytest
import torch
from torch import nn

from kit.implementations import REFERENCE, SUBJECT
from kit.parts import BOTH, PROGRAMS, calls, described, module_of, random_program

OPTIONS = [
    {},
    {"keep_original_order": True},
    {"keep_original_node_name": True},
    {"keep_original_input_name": False},
    {"partition_affix": "pp"},
    {"tuple_return": True},
]


def split(implementation, gm, part_of, **options):
    """The result as text, the module, and the map of names."""
    names: dict[str, str] = {}
    keys = {node: part_of(number, node) for number, node in enumerate(calls(gm))}
    split_module = module_of(implementation, "passes.split_module").split_module
    try:
        whole = split_module(gm, gm, keys.__getitem__, qualname_map=names, **options)
    except Exception as error:
        return type(error).__name__, None, {}
    return described(whole, implementation.normalise), whole, names


def both(make, part_of, **options):
    results = [split(i, make(i.fx), part_of, **options) for i in BOTH]
    (expected, _, names), (found, whole, own_names) = results
    assert found == expected
    assert own_names == names
    return whole, results[0][1]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "mutating"])
def test_programs(name, options):
    cls, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    root, args = cls(), inputs()
    for width in (1, 2, 3, 100):
        whole, reference = both(
            lambda fx: fx.symbolic_trace(root), lambda i, _, w=width: i // w, **options
        )
        expected = reference(*(pickle.loads(pickle.dumps(args))))
        found = whole(*(pickle.loads(pickle.dumps(args))))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert whole.meta["partition_names"] == reference.meta["partition_names"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_parts_that_write_run_where_they_did(options):
    cls, inputs = PROGRAMS["mutating"]
    root, args = cls(), inputs()
    expected, wrong = root(*args), []
    for width in (1, 2, 3, 100):
        part_of = lambda number, _, w=width: number // w  # noqa: E731
        theirs, ours = (split(i, i.fx.symbolic_trace(root), part_of, **options) for i in BOTH)
        torch.testing.assert_close(ours[1](*args), expected, rtol=0, atol=0)
        if torch.equal(theirs[1](*args), expected):
            assert ours[0] == theirs[0]
        else:
            wrong.append(width)
    in_order = options.get("keep_original_order", False)
    assert wrong == ([] if in_order else [1, 2]), "torch.fx has learnt this"


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_and_parts(seed):
    dice = random.Random(seed)
    thrown = [dice.randrange(4) for _ in range(64)]
    kinds = [
        lambda i, _: thrown[i],  # cycles, mostly
        lambda i, _: sorted(thrown)[i * 2 % 64],
        lambda i, _: i // 5,
        lambda i, _: -(i // 7),
    ]
    options = OPTIONS[seed % len(OPTIONS)]
    for part_of in kinds:
        whole, reference = both(lambda fx: random_program(fx, seed), part_of, **options)
        if whole is not None:
            args = torch.rand(2, 4), torch.rand(4)
            torch.testing.assert_close(whole(*args), reference(*args), rtol=0, atol=0)


def test_a_cycle_says_where_it_is():
    gm = SUBJECT.fx.symbolic_trace(lambda x: torch.cos(torch.sin(x)).tan())
    with pytest.raises(RuntimeError, match=r"cycle exists between partitions.*sin -> cos -> sin"):
        module_of(SUBJECT, "passes.split_module").split_module(
            gm, gm, lambda node: int(node.name == "cos")
        )


def test_submodules_that_are_read_stay_in_their_parts():
    def make(fx):
        root = nn.Module()
        root.part = nn.Module()
        root.part.body = nn.Linear(4, 4)
        graph = fx.Graph()
        x = graph.placeholder("x")
        body = graph.get_attr("part.body")
        y = graph.call_function(torch.func.functional_call, (body, {}, (x,)))
        graph.output(graph.call_function(torch.relu, (y,)))
        return fx.GraphModule(root, graph)

    both(make, lambda i, _: i)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_modes_extend_over_parts(width):
    def make(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch._C._set_grad_enabled, (False,))
        y = graph.call_function(torch.sin, (x,))
        enter = graph.call_function(torch.amp._enter_autocast, ("cpu", torch.bfloat16, True, False))
        z = graph.call_function(torch.mm, (y, y))
        z = graph.call_function(torch.cos, (z,))
        graph.call_function(torch.amp._exit_autocast, (enter,))
        graph.call_function(torch._C._set_grad_enabled, (True,))
        graph.output(graph.call_function(torch.add, (z, 1)))
        return fx.GraphModule(nn.Module(), graph)

    both(make, lambda i, _: i // width)
    both(make, lambda i, _: -i)


def test_symbols_come_along():
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        ShapeEnv,
        StatelessSymbolicContext,
    )

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    fake = mode.from_tensor(
        torch.rand(5, 4),
        symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC, DimDynamic.STATIC]),
        source=ConstantSource("x"),
    )

    def make(fx):
        graph = fx.Graph()
        size, x = graph.placeholder("s"), graph.placeholder("x")
        size.meta["example_value"] = fake.shape[0]
        x.meta["example_value"] = fake
        y = graph.call_function(torch.sin, (x,))
        y.meta["example_value"] = fake
        z = graph.call_function(torch.cos, (y,))
        graph.output(z)
        return fx.GraphModule(nn.Module(), graph)

    whole, _ = both(make, lambda i, _: i)
    names = [n.name for n in whole.submod_1.graph.find_nodes(op="placeholder")]
    assert "s" in names


def test_everything_known_of_nodes_is_carried_along():
    """Names, metadata, sources, stack traces and types are kept, for nodes and for the inputs that replace them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: torch.Tensor):
            y = self.layer(x)
            return torch.sin(y) + y

    gm = SUBJECT.fx.symbolic_trace(Model())
    original = {}
    for number, node in enumerate(gm.graph.nodes):
        node.meta["note"] = {"number": number}
        node.meta["stack_trace"] = f'  File "model.py", line {number}, in forward\n'
        node.type = torch.Tensor
        original[node.name] = node
    splitter = module_of(SUBJECT, "passes.split_module").split_module
    numbers = {node: number for number, node in enumerate(calls(gm))}
    whole = splitter(gm, gm, numbers.__getitem__, keep_original_node_name=True)
    tagged = {node: str(number) for node, number in numbers.items()}
    for node, tag in tagged.items():
        node.tag = tag
    by_tag = module_of(SUBJECT, "passes.split_utils").split_by_tags(gm, list(tagged.values()))
    seen = 0
    for split_gm in (whole, by_tag):
        for part in split_gm.children():
            for node in part.graph.nodes:
                if node.op == "output":
                    continue
                old = original[node.name]
                assert node.meta == old.meta and node.meta is not old.meta
                assert node.meta["note"] is old.meta["note"]
                assert node.stack_trace == old.stack_trace
                assert node.type is torch.Tensor
                assert str(node.source) == str(old.source)
                assert node.source is not None or node.op in ("placeholder", "get_attr")
                seen += 1
    assert seen > 12


def test_the_simple_splitter():
    texts = []
    for implementation in BOTH:

        def program(x):
            return torch.sin(x).cos() + x

        gm = implementation.fx.symbolic_trace(program)
        parts = {node: number // 2 for number, node in enumerate(calls(gm))}
        simple = module_of(implementation, "passes.split_module").split_module_simple
        whole = simple(gm, parts, partition_affix="a")
        x = torch.ones(3)
        assert torch.equal(whole(x), program(x))
        texts.append("\n".join(str(m.graph) for m in (whole, *whole.children())))
    assert texts[0] == texts[1]


def test_code_that_is_put_off_is_there_when_asked_for():
    gm = SUBJECT.fx.symbolic_trace(lambda x: torch.sin(x).cos() + 1)
    splitter = module_of(SUBJECT, "passes.split_module").split_module

    def fresh():
        numbers = {node: number for number, node in enumerate(calls(gm))}
        return splitter(gm, gm, numbers.__getitem__).submod_0

    x = torch.rand(3)
    assert torch.equal(fresh()(x), torch.sin(x))
    assert torch.equal(fresh().forward(x), torch.sin(x))
    part = fresh()
    assert torch.equal(type(part).forward(part, x), torch.sin(x))
    assert "torch.sin" in fresh().code
    assert torch.equal(pickle.loads(pickle.dumps(fresh()))(x), torch.sin(x))
    import copy

    assert torch.equal(copy.deepcopy(fresh())(x), torch.sin(x))
    part = fresh()
    graph = part.graph
    for node in calls(part):
        node.target = torch.neg
    # Changes take effect after recompiling, and not before.
    assert torch.equal(part(x), torch.sin(x))
    part.recompile()
    assert torch.equal(part(x), -x)
    assert graph.owning_module is part


FAST = ["resnet18", "mobilenet_v3_small", "squeezenet1_1"]


def check_model(name, count):
    import torchvision

    torch.manual_seed(0)
    root = torchvision.models.get_model(name, weights=None).eval()

    def part_of(total):
        return lambda i, _: i * count // total

    def trace(fx):
        # A copy each: tracing adds the constants that it finds to the module.
        return fx.symbolic_trace(copy.deepcopy(root))

    total = len(calls(trace(REFERENCE.fx)))
    whole, reference = both(trace, part_of(total))
    return whole, reference


@pytest.mark.parametrize("name", FAST)
def test_models(name):
    whole, reference = check_model(name, 9)
    image = torch.rand(1, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(whole(image), reference(image), rtol=0, atol=0)


@pytest.mark.slow
def test_all_models_of_torchvision():
    import torchvision

    for name in torchvision.models.list_models(module=torchvision.models):
        check_model(name, 20)
