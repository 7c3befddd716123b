"""Calls that PyTorch rejects have no results on the engine."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import corsac
from corsac import _core, fx
from corsac._engine.native_graph import NativeGraph
from corsac.lowering import LoweringError
from kit.operator_samples import Call, entries, full_name

OPERATORS = [op for op in entries() if op.error_inputs_func is not None]
#: Stride through the operators: all of them take a minute.
EVERY = 3


def native(function, *inputs):
    """The native program of a function; None if there is none."""
    module = fx.symbolic_trace(function)
    with torch.no_grad():
        try:
            return NativeGraph(module, precision="f32", strict=False).compile(inputs, whole=True)[0]
        except (corsac.CompileError, _core.ShapeInferenceError, LoweringError):
            return None


def check(function, *inputs):
    """Check that eager rejects a call, and the engine too."""
    with torch.no_grad(), pytest.raises(Exception):  # noqa: B017  whatever it is
        function(*inputs)
    run = native(function, *inputs)
    if run is not None:
        with pytest.raises(ValueError):
            run(*inputs)


def check_samples(op):
    for error in op.error_inputs("cpu"):
        sample = error.sample_input
        call = Call(op, sample)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call(*(tensor.clone() for tensor in call.tensors))
                continue
            except Exception:
                pass
            try:
                module = call.traced()
            except Exception:
                continue
            try:
                program = _core.compile_graph(module.graph, tuple(call.tensors))
            except Exception:
                continue
            with pytest.raises(ValueError):
                print(program(*call.tensors), call.tensors, sample.args, sample.kwargs)


@pytest.mark.parametrize("op", OPERATORS[::EVERY], ids=full_name)
def test_operators_refuse_what_pytorch_refuses(op):
    check_samples(op)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS, ids=full_name)
def test_all_operators_refuse_what_pytorch_refuses(op):
    check_samples(op)


X = torch.arange(12.0).reshape(3, 4)
FLAGS = torch.tensor([True, False])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.movedim((0, 0), (0, 1)),
        lambda x: x.movedim((0, 1), (1, 1)),
        lambda x: x.flip((0, 0)),
        lambda x: x.flip(2),
        lambda x: x[0].fliplr(),
        lambda x: x.gather(0, torch.tensor([[-1]])),
        lambda x: x.gather(0, torch.tensor([[0, 0, 0, 0, 0]])),
        lambda x: x.index_select(0, torch.tensor([[0]])),
        lambda x: x.index_select(0, torch.tensor([-1])),
        lambda x: x.index_add(0, torch.tensor([0]), x),
        lambda x: x.index_copy(0, torch.tensor([0]), x),
        lambda x: torch.where(x, x, x),
        lambda x: x.masked_fill(x, 1),
        lambda x: x.long().sort(-1, stable=True)[0],
        lambda x: x.narrow(0, 2, 2),
        lambda x: x.narrow(1, 0, -1),
        lambda x: x[:0].select(0, 0),
        lambda x: x[:0][0],
        lambda x: x & x,
        lambda x: ~x,
        lambda x: (x > 0) - (x > 1),
        lambda x: torch.hypot(x.long(), x.long()),
        lambda x: F.triplet_margin_loss(x, x + 1, x * 2, margin=-1.0),
        lambda x: F.triplet_margin_with_distance_loss(x, x + 1, x * 2, margin=0.0),
    ],
)
def test_calls_that_are_refused(function):
    check(lambda x: function(x), X)


def test_indices_that_count_from_the_end():
    for function in (
        lambda x: x.take_along_dim(torch.tensor([[-1, 1], [0, -2], [3, 0]]), 1),
        lambda x: x.take(torch.tensor([-1, 3])),
        lambda x: x[torch.tensor([-1, 0])],
    ):
        run = native(function, X)
        torch.testing.assert_close(run(X), function(X))


def test_dimensions_of_a_number():
    for function in (
        lambda x: (x.sum().movedim(0, -1) + 1).relu(),
        lambda x: (x.sum().movedim(-1, 0) * 2).transpose(0, -1),
    ):
        run = native(function, X)
        torch.testing.assert_close(run(X), function(X))


@pytest.mark.parametrize("name", ["all", "any", "sum", "amax", "amin", "mean"])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("x", [X, X > 2])
def test_no_dimensions(name, keepdim, x):
    def function(x):
        return getattr(x, name)(dim=(), keepdim=keepdim)

    run = native(function, x)
    if run is not None:
        torch.testing.assert_close(run(x), function(x))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.view(torch.int32) + 0, torch.randn(4)),
        (lambda x: x.view(dtype=torch.int32) + 0, torch.randn(4)),
        (lambda x: x.view(torch.float32) * 1, torch.arange(4, dtype=torch.int32)),
        (lambda x: x.view(torch.uint8) // 2, torch.tensor([-1, 5], dtype=torch.int8)),
        (lambda x: x.view(torch.int8) // 2, torch.tensor([True, False])),
        (lambda x: (x * 2).view(torch.int32) & 0x7FFFFFFF, torch.randn(4)),
    ],
)
def test_views_as_elements_of_another_type(function, x):
    expected = function(x)
    found = corsac.compile(lambda x: function(x))(x)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@pytest.mark.parametrize("beside", ["append", "prepend"])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_differences_of_what_is_joined(n, beside):
    def function(x):
        return torch.diff(x, n, 0, **{beside: x[:2]}) * 1

    run = native(function, X)
    torch.testing.assert_close(run(X), function(X))


def test_memory_that_is_not_there_is_an_error():
    def cube(x):
        return (x[:, None, None] * x[None, :, None] * x[None, None, :] * 2).sum()

    x = torch.ones(20000)
    run = native(cube, x)
    with pytest.raises(RuntimeError, match="memory"):
        run(x)


def test_sizes_that_no_memory_has_are_refused():
    def square(x):
        return x.expand(2**31, 2**31).reshape(-1).relu()

    assert native(square, torch.ones(1)) is None


def test_elements_may_lie_anywhere():
    for dtype in (torch.float32, torch.int64, torch.int32):
        bytes_ = bytearray(range(81))
        x = torch.frombuffer(bytes_, dtype=dtype, offset=1, count=8)
        y = torch.frombuffer(bytes_, dtype=dtype, offset=1, count=8).reshape(2, 4).t()
        for own in (x, y):
            found = corsac.compile(lambda x: x * 2 + 1)(own)
            assert torch.equal(found, own * 2 + 1)
