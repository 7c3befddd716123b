"""Parts of which the slowest is as fast as possible: on models, under bounds on memory, and by what is measured."""

import itertools
import json
import re
import warnings

import pytest
import torch
import torchvision.models as vision
from torch import nn

import corsac
from corsac.analysis import Machine, cost
from corsac.analysis._subject import captured
from corsac.cli import main
from corsac.passes import BalanceError, split_balanced

PARTS = (2, 4, 8)
#: One model of each sort; the others are slow together.
QUICK = [
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "swin_t",
    "vit_b_16",
]


def best_balance(work, parts):
    """The mean part as a fraction of the slowest in the best cut with a border between any two calls: by bisection,
    where each part takes as many calls as fit."""
    low, high = max(max(work), -(-sum(work) // parts)), sum(work)
    while low < high:
        middle = (low + high) // 2
        needed, filled = 1, 0
        for own in work:
            if filled + own > middle:
                needed, filled = needed + 1, 0
            filled += own
        low, high = (low, middle) if needed <= parts else (middle + 1, high)
    return sum(work) / parts / low


def check_balance(gm, inputs, parts):
    """Balance as good as the best cut allows; returns the split module and the report."""
    split, report = split_balanced(gm, inputs, parts=parts)
    rows = [row for row in cost(gm, inputs).rows if row.op.startswith("call_")]
    best = best_balance([row.flops or 0 for row in rows], parts)
    assert report.balance >= 0.9 * best, (report.balance, best)
    assert [len(part.calls) > 0 for part in report.parts] == [True] * parts
    assert [name for part in report.parts for name in part.calls] == [row.name for row in rows]
    assert sum(part.flops for part in report.parts) == sum(row.flops or 0 for row in rows)
    assert report.balance == pytest.approx(
        sum(part.flops for part in report.parts) / parts / max(part.flops for part in report.parts)
    )
    return split, report


def of_vision(name):
    """A model of torchvision on the device meta, without weights, and an input."""
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    try:
        with torch.device("meta"):
            model = vision.get_model(name, **options)
    except NotImplementedError:
        # Its constructor reads elements of tensors.
        model = vision.get_model(name, **options).to("meta")
    size = 299 if name == "inception_v3" else 224
    x = torch.empty(1, 3, size, size, device="meta")
    return corsac.fx.symbolic_trace(model.eval()), x


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in vision.list_models(module=vision)
    ],
)
def test_torchvision(name):
    gm, x = of_vision(name)
    for parts in PARTS:
        _, report = check_balance(gm, x, parts)
        if name == "densenet121":
            # By number of calls, four parts are balanced to 42 %.
            assert report.balance > 0.9


def test_parts_of_densenet_compute_the_same():
    torch.manual_seed(0)
    gm = corsac.fx.symbolic_trace(vision.densenet121().eval())
    x = torch.randn(1, 3, 64, 64)
    split, report = check_balance(gm, x, 4)
    assert report.balance > 0.9
    with torch.no_grad():
        assert torch.equal(split(x), gm(x))
        value = x
        for at, part in enumerate(report.parts):
            value = split.get_submodule(part.name)(
                *(value if isinstance(value, tuple) else (value,))
            )
            assert at == 3 or len(part.outputs) == len(report.parts[at + 1].inputs)
        assert torch.equal(value, gm(x))


#: Architectures that take long, or are like others.
QUICK_TEXT = ["bert", "gpt2", "llama", "t5", "vit"]


def architectures():
    from kit.hugging_face import ARCHITECTURES

    return [
        name if name in QUICK_TEXT else pytest.param(name, marks=pytest.mark.slow)
        for name in ARCHITECTURES
    ]


@pytest.mark.parametrize("name", architectures())
def test_hugging_face(name):
    pytest.importorskip("transformers")
    from kit.hugging_face import ARCHITECTURES

    torch.manual_seed(0)
    architecture = ARCHITECTURES[name]
    model = architecture.make().eval()
    if "num_labels" in architecture.config:
        # The model would set it itself, and a graph changes no state.
        model.config.problem_type = "single_label_classification"
    gm, values = captured(model, (), architecture.inputs())
    with torch.no_grad():
        expected = corsac.fx.Interpreter(gm).run(*values)
    for parts in PARTS:
        split, _ = check_balance(gm, values, parts)
        with torch.no_grad():
            got = corsac.fx.Interpreter(split).run(*values)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


class Stack(nn.Module):
    """Layers of 16 by 16 numbers and their biases: 1,088 bytes each."""

    def __init__(self, layers=8):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(layers)))

    def forward(self, x):
        return self.layers(x)


X = torch.randn(4, 16)
LAYER, VALUE = 16 * 17 * 4, 4 * 16 * 4


def test_memory_counts_weights_and_activations():
    model = Stack()
    split, report = split_balanced(model, X, parts=2)
    assert [part.memory for part in report.parts] == [4 * LAYER + 2 * VALUE] * 2
    assert torch.equal(split(X), model(X))
    # Weights, gradients, two states of Adam; five activations of each microbatch, two of them and one in flight.
    _, report = split_balanced(Stack(), X, parts=2, training="adam", microbatches=8)
    assert [part.memory for part in report.parts] == [
        4 * 4 * LAYER + 2 * 5 * VALUE,
        4 * 4 * LAYER + 5 * VALUE,
    ]
    _, report = split_balanced(Stack(), X, parts=2, training="sgd", microbatches=1)
    assert [part.memory for part in report.parts] == [2 * 4 * LAYER + 5 * VALUE] * 2


def test_tied_weights_count_once_in_each_part():
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    model[2].weight = model[0].weight
    _, report = split_balanced(model, X, parts=1)
    assert report.parts[0].memory == LAYER + 16 * 4 + 2 * VALUE
    _, report = split_balanced(model, X, parts=2)
    assert [part.memory for part in report.parts] == [LAYER + 2 * VALUE] * 2


def test_a_bound_moves_borders():
    # A table of 6,400 bytes in front of the layers, without operations.
    model = nn.Sequential(nn.Embedding(100, 16), *(nn.Linear(16, 16) for _ in range(4)))
    ids = torch.arange(4)
    table = 100 * 16 * 4
    first = ids.nbytes + VALUE
    for memory, calls in [
        (None, [3, 2]),
        (table + 2 * LAYER + 2 * VALUE, [3, 2]),
        (table + 2 * LAYER + 2 * VALUE - 1, [2, 3]),
        (table + LAYER + 2 * VALUE - 1, [1, 4]),
        (table + first, [1, 4]),
    ]:
        split, report = split_balanced(model, ids, parts=2, memory=memory)
        assert [len(part.calls) for part in report.parts] == calls, memory
        assert torch.equal(split(ids), model(ids))
    with pytest.raises(BalanceError, match=f"needs {table + first} bytes"):
        split_balanced(model, ids, parts=2, memory=table + first - 1)


def test_what_does_not_fit_is_named():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 64), nn.Linear(64, 16))
    with pytest.raises(BalanceError) as refused:
        split_balanced(model, X, parts=2, memory=3000)
    # Weights and biases, argument and result.
    needed = 4 * (16 * 64 + 64 + 4 * 16 + 4 * 64)
    text = str(refused.value)
    assert text.startswith("node _1 (") or text.startswith("node _1 needs")
    assert f" needs {needed} bytes, expected at most 3000: the least memory" in text
    least = int(re.search(r"is (\d+) bytes", text)[1])
    split_balanced(model, X, parts=2, memory=least)
    with pytest.raises(BalanceError, match=f"is {least} bytes"):
        split_balanced(model, X, parts=2, memory=least - 1)
    with pytest.raises(BalanceError, match="2 parts of at most 3400 bytes cannot hold the program"):
        split_balanced(Stack(), X, parts=2, memory=3400)


def test_traffic_costs_time():
    class Wide(nn.Module):
        """The middle of the work is where most crosses."""

        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 256)
            self.c, self.d = nn.Linear(256, 16), nn.Linear(16, 16)

        def forward(self, x):
            return self.d(self.c(self.b(self.a(x))))

    speed = Machine(gflops=1e-6, gbytes=1e-6)
    _, free = split_balanced(Wide(), X, parts=2, bandwidth=1e9, speed=speed)
    assert [part.calls for part in free.parts] == [("a", "b"), ("c", "d")]
    assert free.in_seconds and free.parts[0].sent == free.parts[1].received == 4 * 256 * 4
    work, sent = 2 * 4 * 16 * 272 / 1e3, 4 * 256 * 4 / 1e9
    assert [part.time for part in free.parts] == pytest.approx([work + sent] * 2)
    # All but one layer in one part, and little traffic, is faster where sending is slow.
    _, slow = split_balanced(Wide(), X, parts=2, bandwidth=10.0, speed=speed)
    assert [len(part.calls) for part in slow.parts] in ([1, 3], [3, 1])
    assert slow.parts[0].sent == VALUE


def test_bytes_and_times_balance_too():
    gm = corsac.fx.symbolic_trace(Stack())
    _, report = split_balanced(gm, X, parts=4, by="bytes")
    assert [part.bytes for part in report.parts] == [2 * (LAYER + 2 * VALUE)] * 4
    assert report.balance == 1 and not report.in_seconds

    class Uneven(nn.Module):
        def forward(self, x):
            slow = torch.linalg.svd(x.expand(40, 40).contiguous() + torch.eye(40)).S
            return slow.sin().cos().exp()

    x = torch.ones(1, 40)
    split, report = split_balanced(Uneven(), x, parts=2, by="measured")
    assert report.in_seconds and report.parts[0].time > 0
    assert torch.equal(split(x), Uneven()(x))
    assert "linalg_svd" in max(report.parts, key=lambda part: part.time).calls


def test_calls_of_unknown_cost_are_said():
    def mine(x):
        return x @ x.sin()

    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    for function in (torch.relu, mine, torch.tanh):
        x = graph.call_function(function, (x,))
    graph.output(x)
    gm = corsac.fx.GraphModule(nn.Module(), graph)
    with pytest.warns(UserWarning, match="1 of 3 calls have no known cost .*: mine: "):
        split, report = split_balanced(gm, X[:4, :4], parts=2)
    assert [site.node for site in report.unknown] == ["mine"]
    assert torch.equal(split(X[:4, :4]), gm(X[:4, :4]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_balanced(gm, X[:4, :4], parts=2, by="measured")


def test_measuring_changes_nothing():
    model = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Dropout()).train()
    before, x = model[0].running_mean.clone(), X.clone()
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    split_balanced(corsac.fx.symbolic_trace(model), x, parts=2, by="measured")
    assert torch.equal(model[0].running_mean, before) and int(model[0].num_batches_tracked) == 0
    assert torch.equal(x, X) and torch.equal(torch.random.get_rng_state(), state)


class Writes(nn.Module):
    """Two names of a value around a write to it."""

    def forward(self, x):
        a = x * 2
        v = a.view(-1)
        b = torch.cos(x)
        v.add_(1)
        return a * b


class Counts(nn.Module):
    """An input is read, and written to later."""

    def forward(self, x, seen):
        y = (seen + x).sin()
        seen.add_(1)
        return y.cos().exp()


def test_no_border_stands_where_copies_would_differ():
    gm = corsac.fx.symbolic_trace(Writes())
    with pytest.raises(BalanceError, match="writes, and values that cannot cross, allow 3 parts"):
        split_balanced(gm, X, parts=4)
    split, report = split_balanced(gm, X, parts=3)
    assert [part.calls for part in report.parts] == [("mul",), ("view", "cos", "add_"), ("mul_1",)]
    assert torch.equal(split(X), Writes()(X))
    for parts in (2, 3):
        split, report = split_balanced(Counts(), (X, torch.zeros(())), parts=parts)
        assert {"add", "sin", "add_"} <= set(report.parts[0].calls)
        seen, expected = torch.zeros(()), torch.zeros(())
        for _ in range(2):
            assert torch.equal(split(X, seen), Counts()(X, expected))
        assert seen == expected == 2


def test_only_tensors_may_cross():
    class Chunks(nn.Module):
        def forward(self, x):
            a, b = x.exp().chunk(2, -1)
            return (a.sin() @ b.t().cos()).relu()

    gm = corsac.fx.symbolic_trace(Chunks())
    anything = sum(node.op.startswith("call_") for node in gm.graph.nodes)
    split_balanced(gm, X, parts=anything)
    split, report = split_balanced(gm, X, parts=anything - 2, only_tensors=True)
    assert ("chunk", "getitem", "getitem_1") in [part.calls for part in report.parts]
    assert torch.equal(split(X), Chunks()(X))
    with pytest.raises(BalanceError, match="cannot cross"):
        split_balanced(gm, X, parts=anything - 1, only_tensors=True)


def test_parts_without_results_and_modes():
    class Modes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            y = self.a(x)
            self.seen.add_(1)
            with torch.no_grad():
                z = self.b(y).relu()
            return z + y

    torch.manual_seed(0)
    gm = corsac.fx.symbolic_trace(Modes())
    for parts in range(1, len([n for n in gm.graph.nodes if n.op.startswith("call_")]) + 1):
        split, _ = split_balanced(gm, X, parts=parts)
        assert torch.equal(split(X), gm(X))


def test_fake_tensors_and_programs_of_torch_export():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.empty(4, 16)
    _, report = split_balanced(corsac.fx.symbolic_trace(Stack()), fake, parts=4)
    assert report.balance == 1
    program = torch.export.export(Stack(), (X,))
    split, report = split_balanced(program, X, parts=4)
    assert report.balance == 1
    assert torch.allclose(split(X)[0], program.module()(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 0}, "parts: expected at least 1, got 0"),
        ({"parts": 9}, "got 9: the graph has 8 calls"),
        ({"by": "calls"}, "by: expected 'flops', 'bytes' or 'measured', got 'calls'"),
        ({"training": "lion"}, "training: expected one of 'sgd', 'momentum', 'adam', got 'lion'"),
        ({"microbatches": 2}, "microbatches: expected only together with training"),
        ({"memory": -1}, "memory: expected at least 0 bytes, got -1"),
        ({"bandwidth": 0.0}, "a bandwidth of 0 bytes per second"),
        ({"inputs": corsac.analysis.TensorSpec(("n", 16))}, "sizes that are symbols: "),
    ],
)
def test_wrong_requests(options, message):
    options = {"parts": 2, "inputs": X} | options
    with pytest.raises(ValueError, match=re.escape(message)):
        split_balanced(corsac.fx.symbolic_trace(Stack()), **options)


def test_the_report_is_a_table():
    _, report = split_balanced(corsac.fx.symbolic_trace(Stack()), X, parts=2)
    text = str(report).splitlines()
    assert text[0].split() == [
        "part",
        "calls",
        "FLOPs",
        "bytes",
        "memory",
        "in",
        "out",
        "share",
        "values",
    ]
    assert text[1].split() == [
        "submod_0",
        "4",
        "8.19k",
        "6.40k",
        "4.86k",
        "1",
        "1",
        "(256B)",
        "50.0%",
        "x",
        "->",
        "layers_3",
    ]
    assert text[-1].startswith("balance 100.0% by flops")
    assert json.loads(json.dumps(report.to_dict()))["parts"][1]["received"] == VALUE
    assert set(report.part_of.values()) == {0, 1}


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(8)))

    def forward(self, x):
        return self.layers(x)
"""


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    given = ["split", "own.py:Net", "--input", "4,16"]
    assert main([*given, "--parts", "4", "--draw", "parts.html", "--memory", "4k"]) == 0
    out = capsys.readouterr().out
    assert "submod_3" in out and "balance 100.0% by flops" in out
    page = (tmp_path / "parts.html").read_text()
    assert '"overlay":"part"' in page and '"part":3' in page
    assert main([*given, "--draw", "parts.svg", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [len(part["calls"]) for part in report["parts"]] == [4, 4]
    svg = (tmp_path / "parts.svg").read_text()
    assert svg.count('class="node part-1"') == 4 and ">part 1<" in svg
    for more, message in [
        (["--memory", "1k"], "needs 1600 bytes, expected at most 1000"),
        (["--parts", "9"], "got 9: the graph has 8 calls"),
        (["--draw", "parts.png"], "--draw parts.png: expected a file *.html or *.svg"),
        (["--microbatches", "2"], "--microbatches needs --training"),
        (["--input", "4,16"], "--input is given 2 times"),
    ]:
        assert main([*given, *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["split", "own.py:Net"]) == 2
    assert "splitting needs the shape of each input; give --input SHAPE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 * 10**6),
        ("16G", 16 * 10**9),
        ("16Gi", 16 * 2**30),
        ("1.5KiB", 1536),
        ("100", 100),
        (".5t", 5 * 10**11),
        ("0", None),
        ("4i", None),
        ("-1", None),
        ("1e9", None),
        ("many", None),
    ],
)
def test_sizes_on_the_command_line(text, size):
    import argparse

    from corsac.cli.values import size_bytes

    if size is not None:
        assert size_bytes(text) == size
        return
    with pytest.raises(argparse.ArgumentTypeError):
        size_bytes(text)


def all_times(work, parts):
    """The time of the slowest part for each cut."""
    for inner in itertools.combinations(range(1, len(work)), parts - 1):
        ends = [0, *inner, len(work)]
        yield max(sum(work[a:b]) for a, b in itertools.pairwise(ends))


def test_the_best_cut_of_the_tests_is_the_best():
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        work = torch.randint(0, 9, (8,), generator=generator).tolist()
        work[0] += 1
        for parts in (1, 2, 3, 5):
            best = min(all_times(work, parts))
            assert best_balance(work, parts) == pytest.approx(sum(work) / parts / best)
