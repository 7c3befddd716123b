"""Operators that write to their arguments: values and inputs are eager's afterwards, or the engine leaves
them to PyTorch."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import corsac
from corsac import _core, fx
from corsac._engine.native_graph import NativeGraph
from corsac.lowering import LoweringError
from kit.writers import (
    PLACES,
    Holder,
    Program,
    all_in_place_methods,
    difference,
    methods,
    ran,
    writes,
)

FLOATS = (torch.float32,)
REFUSED = (corsac.CompileError, _core.ShapeInferenceError, LoweringError)
#: An operator of each kind, for the slower ways.
KINDS = frozenset(
    [
        "add_",
        "clamp_",
        "cumsum_",
        "eq_",
        "fill_",
        "logical_not_",
        "relu_",
        "t_",
        "uniform_",
        "zero_",
    ]
)


def native(function, inputs, *, whole):
    """The native program of a function; None if there is none."""
    module = fx.symbolic_trace(function)
    graph = NativeGraph(module, precision="f32", strict=False)
    with torch.no_grad():
        try:
            return graph.compile(tuple(inputs), whole=whole)[0]
        except REFUSED:
            return None


def check(some):
    """Run writes of all kinds on the engine; return the programs that differ, and the number that ran."""
    failing, count = [], 0
    for write in some:
        for place in PLACES:
            program = Program(write, place)
            expected = ran(program, program.inputs)
            for whole in (True, False):
                made = native(program.function(), program.inputs, whole=whole)
                if made is None:
                    continue
                count += 1
                found = difference(ran(made, program.inputs), expected)
                if found is not None:
                    failing.append(f"{program} ({whole=}): {found}")
    return failing, count


def check_way(way, some):
    """The same for programs compiled by ``way``."""
    failing = []
    for write in some:
        for place in PLACES:
            program = Program(write, place)
            expected = ran(program, program.inputs)
            found = difference(ran(way(program), program.inputs), expected)
            if found is not None:
                failing.append(f"{program}: {found}")
    return failing


def of_kinds(dtypes=FLOATS):
    return [write for write in writes(1, dtypes) if write.name in KINDS]


def by_dynamo(program):
    torch._dynamo.reset()
    return torch.compile(program.function(), backend="corsac")


def saved_in(folder):
    """A way through a file; PyTorch runs programs that cannot be saved."""

    def way(program):
        path = folder / "program.safetensors"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                corsac.save(program.function(), path, tuple(program.inputs))
        except Exception:
            return program
        return corsac.load(path)

    return way


def test_every_method_that_writes_is_tried():
    assert all_in_place_methods() - methods() == set()


@pytest.mark.filterwarnings("ignore")
def test_writes_are_seen_wherever_they_are_made(capsys):
    failing, count = check(writes(1, FLOATS))
    capsys.readouterr()
    assert failing == []
    assert count > 300


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_writes_of_all_samples_are_seen(capsys):
    failing, _ = check(writes(12))
    capsys.readouterr()
    assert failing == []


@pytest.mark.filterwarnings("ignore")
def test_writes_in_graphs_of_dynamo_are_seen(capsys):
    failing = check_way(by_dynamo, of_kinds())
    capsys.readouterr()
    assert failing == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_writes_in_graphs_of_dynamo_are_seen(capsys):
    failing = check_way(by_dynamo, writes(1))
    capsys.readouterr()
    assert failing == []


@pytest.mark.filterwarnings("ignore")
def test_writes_in_saved_programs_are_seen(capsys, tmp_path):
    failing = check_way(saved_in(tmp_path), of_kinds())
    capsys.readouterr()
    assert failing == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_writes_in_saved_programs_are_seen(capsys, tmp_path):
    failing = check_way(saved_in(tmp_path), writes(1))
    capsys.readouterr()
    assert failing == []


@pytest.mark.filterwarnings("ignore")
def test_writes_to_attributes_are_seen(capsys):
    for write in writes(1, FLOATS):
        program = Program(write, PLACES[-1])
        if write.name not in KINDS or len(program.inputs) > 1:
            continue
        eager, own = Holder(program), Holder(program)
        expected = ran(eager, [])
        tracer = fx.Tracer()
        tracer.proxy_buffer_attributes = True
        module = fx.GraphModule(own, tracer.trace(own))
        try:
            run, _ = NativeGraph(module, precision="f32", strict=False).compile((), whole=False)
        except REFUSED:
            continue
        assert difference(ran(run, []), expected) is None, str(program)
        assert torch.equal(own.own, eager.own)
    capsys.readouterr()


def engine(function, *inputs):
    """Compile a function with everything native that can be."""
    made = native(function, inputs, whole=False)
    return function if made is None else made


def check_program(function, *inputs):
    run = engine(function, *inputs)
    for given in (inputs, tuple(columns(own) for own in inputs), inputs):
        assert difference(ran(run, given), ran(function, given)) is None


def columns(tensor):
    """The same elements in column order."""
    return tensor.t().contiguous().t() if tensor.ndim == 2 else tensor


def test_filled_values_are_filled():
    def zeroed(x):
        y = x * 2
        y.zero_()
        return y + 1

    def filled(x):
        y = x * 2
        torch.fill_(y, 7)
        return y.relu() + x

    for function in (zeroed, filled):
        assert native(function, [torch.ones(2, 3)], whole=True) is not None
        check_program(function, torch.randn(2, 3))


def test_filled_parts_are_seen_in_the_whole():
    def part(x):
        y = x * 2
        y[0].fill_(3)
        return y

    assert native(part, [torch.ones(2, 3)], whole=True) is not None
    check_program(part, torch.randn(2, 3))


def test_saved_programs_fill(tmp_path):
    def program(x):
        y = x * 2
        y.zero_()
        return y + 1

    path = tmp_path / "filled.safetensors"
    corsac.save(program, path, (torch.ones(3),))
    loaded = corsac.load(path, framework="numpy")
    assert loaded(np.ones(3, "f")).tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "le_", "gt_", "ge_"])
def test_comparisons_in_place_keep_the_type(name):
    def program(x):
        return getattr(x * 2, name)(2) / 2

    for x in (torch.arange(4.0), torch.arange(4, dtype=torch.float32)):
        check_program(program, x)
        assert native(program, [x], whole=True) is not None


def test_logic_in_place_keeps_the_type():
    def program(x, y):
        return (x * 2).logical_not_() + (y * 2).logical_and_(x)

    check_program(program, torch.tensor([0.0, 1.0]), torch.tensor([3, 0]))


def test_reshapes_are_views_or_copies_as_strides_make_them():
    def read_before(x):
        y = nn.functional.elu(x)
        z = y.reshape(-1)
        y[:1].mul_(2)
        return z.tanh()

    def flattened(x, v):
        y = x.clone()
        y.flatten()[:2].mul_(3)
        return y.permute(1, 0).sum() - v.relu()

    def contiguous(x):
        y = (x * 2).t()
        z = y.contiguous()
        z.add_(1)
        return y.relu() * 2 - 1

    check_program(read_before, torch.randn(3, 7))
    check_program(flattened, torch.randn(17, 3), torch.randn(17, 3))
    check_program(contiguous, torch.randn(5, 5))


@pytest.mark.parametrize("equation", ["ij->ji", "ij->ij", "ii->i"])
def test_what_einsum_gives_may_be_a_view(equation):
    def program(x):
        y = x * 2
        z = torch.einsum(equation, y)
        z.add_(1)
        return y.relu() + 0

    check_program(program, torch.randn(3, 3))


def test_a_tensor_under_two_names_changes_its_sizes_under_both():
    def program(x):
        y = x * 2
        z = y.contiguous()
        y.t_()
        return (z + 1).relu() * 3

    check_program(program, torch.randn(2, 3))


def test_nothing_is_written_where_elements_have_several_places():
    def program(x):
        y = (x * 2).expand(3, 4)
        y.add_(1)
        return y.relu() * 2

    x = torch.randn(1, 4)
    with pytest.raises(RuntimeError):
        program(x)
    assert native(program, [x], whole=True) is None


def test_writes_beside_native_parts():
    def program(x):
        v = x.remainder(0.7)
        v.cumsum_(-1)
        return ((x - x).swapaxes(0, -1) - 0.5).any(-1).float() + v.sum()

    def transposed(x, y):
        y.transpose_(0, -1)
        return x.nan_to_num().clamp(-9, 9).char() // 2

    check_program(program, torch.randn(7, 1, 5, 7))
    check_program(transposed, torch.randn(3, 4), torch.randn(3, 4))


@pytest.mark.parametrize("name", ["add", "clamp", "cumsum", "eq", "max", "sum", "where"])
def test_results_given_by_name_are_written(name):
    # Tensors of the result's sizes, of others, and of another type.
    def program(x, out):
        arguments = {"clamp": (0,), "cumsum": (0,), "sum": (0,), "max": (x + 1,), "where": (x, x)}
        rest = arguments.get(name, (2,))
        call = getattr(torch, name)
        given = (x > 0, *rest) if name == "where" else (x, *rest)
        result = call(*given, out=out)
        return out.float() * 2, result.float()

    x = torch.randn(3, 4)
    for out in (torch.empty(3, 4), torch.zeros(4), torch.zeros(3, 4, dtype=torch.bool)):
        # The sizes of an out tensor may change: copies are deep.
        check_program(program, x, out)


@pytest.mark.parametrize("place", ["a value", "a view", "an input"])
def test_results_given_by_name_to_functions_in_python(place, tmp_path):
    """The writes are noticed, although no schema declares them."""

    def program(o, x):
        y = torch.stack([o, o])
        given = {"a value": y, "a view": y[1], "an input": o}[place]
        nn.functional.normalize(torch.stack([x, x]) if given is y else x, out=given)
        return y + 1, o * 2

    o, x = torch.linspace(1, 2, 20).reshape(2, 1, 10), torch.linspace(-3, 4, 20).reshape(2, 1, 10)
    with torch.no_grad():
        kept = o.clone()
        expected = program(kept, x)
        for compiled in (
            corsac.compile(program),
            torch.compile(program, backend="corsac"),
            fx.symbolic_trace(program),
        ):
            for _ in range(3):
                own = o.clone()
                torch.testing.assert_close(compiled(own, x), expected)
                torch.testing.assert_close(own, kept)
        path = tmp_path / "model.safetensors"
        try:
            corsac.save(fx.symbolic_trace(program), path, (o.clone(), x))
        except REFUSED:
            return
        torch.testing.assert_close(corsac.load(path, framework="torch")(o.clone(), x), expected)


def test_results_of_unfolding_modules_are_written_to():
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.unfold = nn.Unfold(2)

        def forward(self, x):
            y = self.unfold(x)
            y.add_(1)
            return y * 2

    x = torch.randn(1, 2, 4, 4)
    module = fx.symbolic_trace(Blocks().eval())
    program, _ = NativeGraph(module, precision="f32", strict=False).compile((x,), whole=True)
    assert program is not None
    with torch.no_grad():
        torch.testing.assert_close(corsac.compile(Blocks().eval())(x), Blocks().eval()(x))


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "half"), (torch.bfloat16, "bfloat16")])
def test_a_write_to_what_had_the_type_already_is_a_write_to_it(
    dtype: torch.dtype, name: str
) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.mul, (x, 2))
    same = graph.call_method(name, (y,))
    graph.call_method("add_", (same, 1))
    graph.output(graph.call_function(torch.add, (y, same)))
    module = fx.GraphModule(nn.Module(), graph)
    given = torch.randn(3, 4).to(dtype)
    assert torch.equal(_core.compile_graph(module.graph, (given,))(given), module(given))
