"""Operators that are given tensors for their results (``out=``): these hold them afterwards, in all of the memory that
shows them, or the engine leaves the program to PyTorch."""

import collections
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import corsac
from corsac import _core, fx
from corsac._engine.native_graph import NativeGraph
from corsac.lowering import LoweringError
from kit.results_given import programs, turned
from kit.writers import difference, ran

FLOATS = (torch.float32,)
REFUSED = (corsac.CompileError, _core.ShapeInferenceError, LoweringError)


def native(function, inputs, *, strict=False, apart=False):
    """A program of the whole function, or why there is none."""
    graph = NativeGraph(fx.symbolic_trace(function), precision="f32", strict=strict)
    with torch.no_grad():
        try:
            return graph.compile(tuple(inputs), whole=True, apart=apart)[0]
        except REFUSED as error:
            return str(error)


def check(some, **options):
    """Run programs by the engine; those that differ, and for each operator how many ran."""
    failing, counts = [], collections.Counter()
    for program in some:
        expected = ran(program, program.inputs)
        if expected.values is None:
            continue
        made = native(program.function(), program.inputs, **options)
        if isinstance(made, str):
            continue
        counts[program.name] += 1
        found = difference(ran(made, program.inputs), expected)
        if found is not None:
            failing.append(f"{program}: {found}")
    return failing, counts


@pytest.mark.filterwarnings("ignore")
def test_results_are_where_they_were_to_be():
    failing, counts = check(programs(1, FLOATS, (turned,)))
    assert failing == []
    assert len(counts) > 90
    for name in ("add", "mm", "mean", "sort", "cumsum", "topk", "where", "gather", "amax"):
        assert counts[name], name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_results_of_all_samples_are_where_they_were_to_be():
    failing, _ = check(programs(12))
    assert failing == []
    failing, _ = check(programs(12, places=(None,)), strict=True, apart=True)
    assert failing == []


@pytest.mark.filterwarnings("ignore")
def test_results_are_written_to_inputs():
    failing, counts = check(programs(1, FLOATS, (None,)), strict=True, apart=True)
    assert failing == []
    assert len(counts) > 90


def check_saved(function, *inputs, path, native=True):
    """A program as a file gives what eager gives."""
    with torch.no_grad():
        expected = function(*(own.clone() for own in inputs))
        corsac.save(function, path, inputs)
    got = corsac.load(path, framework="numpy")(*(own.numpy() for own in inputs))
    expected = expected if isinstance(expected, tuple) else (expected,)
    got = got if isinstance(got, tuple) else (got,)
    for mine, eager in zip(got, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(np.asarray(mine)), eager, rtol=1e-4, atol=1e-5)


X, Y = torch.linspace(-2, 3, 12).reshape(3, 4), torch.linspace(4, -1, 12).reshape(3, 4)


def into_new(x, y):
    z = torch.empty(3, 4)
    torch.add(x, y, alpha=2, out=z)
    return z * 2


def into_product(x, y):
    buffer = torch.empty(3, 3)
    product = torch.mm(x, y.t(), out=buffer)
    product.add_(1)
    return buffer, product


def into_sum(x, y):
    total = x.new_zeros(4)
    torch.sum(x, 0, out=total)
    return total + y


def into_sorted(x, y):
    values, places = x * 1, torch.zeros(3, 4, dtype=torch.int64)
    again = torch.sort(x, 1, True, out=(values, places))
    values.mul_(y)
    return again[0], places, again.indices


def into_rows(x, y):
    whole = torch.zeros(5, 4)
    torch.sub(x, y, out=whole[1:4])
    torch.mul(x[0], y[1], out=whole[0])
    return whole, whole[2:].sum(0)


def into_columns(x, y):
    whole = torch.ones(4, 3)
    shown = whole[1]
    torch.maximum(x, y, out=whole.t())
    return whole, shown * 2


def into_itself(x, y):
    z = x * 2
    torch.add(z, y, out=z)
    torch.exp(z, out=z)
    return torch.clamp(z, max=4, out=z), z


def into_each_in_turn(x, y):
    state = torch.zeros(3, 4)
    for step in range(3):
        torch.add(state, x * step, out=state)
        state += y
    return state


def into_one_element(x, y):
    z = torch.zeros(2, dtype=torch.int64)
    torch.argmax(x, out=z[1])
    torch.any(y > 0, out=torch.empty((), dtype=torch.bool))
    return z


def into_functions_in_python(x, y):
    z = torch.empty_like(x)
    nn.functional.normalize(x - y, dim=1, out=z)
    return z.relu()


def into_stacked(x, y):
    z = torch.empty(2, 3, 4)
    torch.stack([x, y], out=z)
    return torch.cat([z, z + 1], out=torch.empty(4, 3, 4))


SAVED = {
    own.__name__: own
    for own in (
        into_new,
        into_product,
        into_sum,
        into_sorted,
        into_rows,
        into_columns,
        into_itself,
        into_each_in_turn,
        into_one_element,
        into_functions_in_python,
        into_stacked,
    )
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_programs_write_results(name, tmp_path):
    check_saved(SAVED[name], X, Y, path=tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", SAVED)
def test_compiled_programs_write_results(name):
    function = SAVED[name]
    compiled = corsac.compile(function, fullgraph=True, options={"inference": "native"})
    with torch.no_grad():
        for x, y in ((X, Y), (Y, X), (X + 1, Y)):
            torch.testing.assert_close(compiled(x, y), function(x, y), rtol=1e-4, atol=1e-5)


class Kept(nn.Module):
    """A buffer, and an input, that results are written to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3, 4))

    def forward(self, x, y):
        torch.add(self.state, x, out=self.state)
        torch.mul(x, self.state, out=y)
        return self.state * 2


def test_results_are_written_to_buffers_and_inputs():
    eager, model = Kept(), Kept()
    compiled = corsac.compile(model, fullgraph=True, options={"inference": "native"})
    with torch.no_grad():
        for number in range(4):
            x, y, other = X + number, Y.clone(), Y.clone()
            torch.testing.assert_close(compiled(x, y), eager(x, other))
            torch.testing.assert_close(model.state, eager.state)
            torch.testing.assert_close(y, other)


def refusal(function, *inputs, path):
    with warnings.catch_warnings(), pytest.raises((*REFUSED, corsac.ModelFileError)) as error:
        warnings.simplefilter("ignore")
        corsac.save(function, path, inputs)
    return str(error.value)


def test_what_is_refused_says_why(tmp_path):
    def resized(x):
        z = x.new_zeros(2)
        return torch.add(x, 1, out=z).sum()

    def of_another_type(x):
        z = x.new_zeros(3, 4)
        torch.gt(x, 0, out=z)
        return z

    def read(x):
        z = x[:, :3] * 2
        torch.mm(z, z + 1, out=z)
        return z

    def input_written(x):
        torch.add(x, 1, out=x)
        return x * 2

    def in_several_places(x):
        z = (x[:1] * 2).expand(3, 4)
        torch.add(x, 1, out=z[:, 0:1].expand(3, 4))
        return z

    for function, text in (
        (resized, "resized"),
        (of_another_type, "out= is of torch.float32, and its result of torch.bool"),
        (read, "it reads mul, which is given as out="),
    ):
        assert text in refusal(function, X, path=tmp_path / "model.safetensors")
    assert refusal(input_written, X, path=tmp_path / "model.safetensors")
    for function in (resized, of_another_type, input_written):
        compiled = corsac.compile(function)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(3):
                torch.testing.assert_close(compiled(X.clone()), function(X.clone()))
