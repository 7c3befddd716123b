"""Random programs that write to inputs, values and views of both, natively and by PyTorch."""

import operator
import random
from dataclasses import dataclass, field

import pytest
import torch

from corsac._engine.dynamo_graph import Piece

ROWS, COLUMNS, TAKEN = 4, 6, 3


@dataclass
class Program:
    """A graph of tensors with two dimensions or one."""

    draw: random.Random
    graph: torch.fx.Graph = field(default_factory=torch.fx.Graph)
    shapes: dict[torch.fx.Node, tuple[int, ...]] = field(default_factory=dict)

    def pick(self, shape=None):
        fitting = [own for own, known in self.shapes.items() if shape in (None, known)]
        return self.draw.choice(fitting)

    def add(self, name, shape, *args):
        node = self.graph.call_method(name, args)
        self.shapes[node] = shape
        return node

    def view(self, of, shape):
        choices = ["reshape", "unsqueeze and squeeze", "detach"]
        if len(shape) == 2:
            choices += ["row", "columns", "transpose", "narrow", "expand"]
        match self.draw.choice(choices):
            case "reshape":
                self.add("reshape", (torch.Size(shape).numel(),), of, -1)
            case "unsqueeze and squeeze":
                self.add("squeeze", shape, self.graph.call_method("unsqueeze", (of, 0)), 0)
            case "detach":
                self.add("detach", shape, of)
            case "row":
                self.add("select", shape[1:], of, 0, self.draw.randrange(-shape[0], shape[0]))
            case "columns":
                every = (slice(None), slice(1, None, 2))
                node = self.graph.call_function(operator.getitem, (of, every))
                self.shapes[node] = (shape[0], shape[1] // 2)
            case "transpose":
                self.add("t", shape[::-1], of)
            case "narrow":
                self.add("narrow", (shape[0], shape[1] - 1), of, 1, 1, shape[1] - 1)
            case "expand":
                row = self.graph.call_method("select", (of, 0, 0))
                self.add("expand", shape, row, *shape)

    def write(self, to, shape, index):
        choices = ["add", "multiply", "copy", "relu", "zero", "assign", "where"]
        if shape[0] >= ROWS:
            choices += ["index_copy", "index_add", "assign at indices", "index_fill"]
        match self.draw.choice(choices):
            case "add":
                self.add("add_", shape, to, 1.5)
            case "multiply":
                self.add("mul_", shape, to, self.pick(shape))
            case "copy":
                self.add("copy_", shape, to, self.pick(shape))
            case "relu":
                self.add("relu_", shape, to)
            case "zero":
                self.add("zero_", shape, to)
            case "assign":
                place = self.draw.randrange(shape[0])
                self.graph.call_function(operator.setitem, (to, place, 3.0))
            case "where":
                mask = self.graph.call_method("gt", (self.pick(shape), 0.0))
                self.add("masked_fill_", shape, to, mask, 2.0)
            case "assign at indices":
                self.graph.call_function(operator.setitem, (to, index, 0.5))
            case "index_fill":
                self.add("index_fill_", shape, to, 0, index, -1.0)
            case name:
                rows = self.graph.call_method("narrow", (to, 0, 0, TAKEN))
                copied = self.add("clone", (TAKEN, *shape[1:]), rows)
                self.add(f"{name}_", shape, to, 0, index, copied)

    def read(self, of, shape):
        match self.draw.choice(["double", "copy", "sum"]):
            case "double":
                self.add("mul", shape, of, 2.0)
            case "copy":
                self.add("clone", shape, of)
            case "sum":
                self.add("sum", shape[1:] if len(shape) == 2 else (1,), of, 0, len(shape) == 1)


def program(seed):
    own = Program(random.Random(seed))
    for name in ("a", "b"):
        own.shapes[own.graph.placeholder(name)] = (ROWS, COLUMNS)
    own.shapes[own.graph.placeholder("c")] = (COLUMNS,)
    index = own.graph.placeholder("index")
    for _ in range(own.draw.randint(3, 9)):
        of = own.pick()
        kind = own.draw.choice(["view", "write", "write", "read"])
        if kind == "write":
            own.write(of, own.shapes[of], index)
        else:
            getattr(own, kind)(of, own.shapes[of])
    known = list(own.shapes)
    own.graph.output(tuple(own.draw.sample(known, own.draw.randint(1, 3))))
    return torch.fx.GraphModule({}, own.graph)


def inputs(kind):
    """Separate tensors, or identical, overlapping, transposed, expanded ones."""
    make = torch.Generator().manual_seed(7)
    a, b = torch.randn(2, ROWS, COLUMNS, generator=make)
    c, index = torch.randn(COLUMNS, generator=make), torch.tensor([0, 2, 3])
    match kind:
        case 1:
            b = a
        case 2:
            base = torch.randn(2 * ROWS, COLUMNS, generator=make)
            a, b = base[:ROWS], base[ROWS - 1 : -1]
        case 3:
            a = torch.randn(COLUMNS, ROWS, generator=make).t()
        case 4:
            c = a[1]
        case 5:
            index = torch.tensor([3, 3, 1])
        case 6:
            b = b[:1].expand(ROWS, COLUMNS)
    return a.clone() if kind == 0 else a, b, c, index


def shared(tensors, others):
    def place(own):
        return own.untyped_storage()._cdata

    return [[place(own) == place(other) for other in others] for own in tensors]


def outcome(function, kind):
    given = inputs(kind)
    try:
        with torch.no_grad():
            results = function(*given)
    except RuntimeError as error:
        # Writes to tensors with several elements at one address.
        return type(error), None, None, None
    sharing = shared(results, given), shared(results, results)
    return None, [own.clone() for own in results], [own.clone() for own in given], sharing


def check(seed):
    module = program(seed)
    compiled = Piece(module)
    kind = seed % 9
    expected = outcome(module, kind)
    for _ in range(2):
        found = outcome(compiled, kind)
        assert found[0] == expected[0]
        if expected[0] is None:
            torch.testing.assert_close(found[1:3], expected[1:3], rtol=1e-5, atol=1e-5)
            assert found[3][1] == expected[3][1]
    return "steps" in compiled.explain()


@pytest.mark.parametrize("part", range(4))
@pytest.mark.filterwarnings("ignore::corsac.HostWarning", "ignore:Use of:UserWarning")
def test_results_and_what_is_written(part):
    native = sum(check(50 * part + number) for number in range(50))
    assert native > 15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::corsac.HostWarning", "ignore:Use of:UserWarning")
def test_many():
    assert sum(map(check, range(1000, 4000))) > 900
