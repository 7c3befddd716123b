"""Backends that return other element types or sizes than the graph are caught."""

import pytest
import torch
from torch import nn

import corsac
from corsac.backends import BackendError


def widening(gm, example_inputs):
    return lambda *args: tuple(own.double() for own in gm(*args))


def faithful(gm, example_inputs):
    return gm.forward


@pytest.mark.parametrize("dynamic", [None, True])
def test_another_element_type_is_an_error(dynamic):
    model = nn.Linear(3, 3).eval()
    with torch.no_grad():
        for _ in range(2):
            compiled = corsac.compile(model, backend=widening, dynamic=dynamic)
            with pytest.raises(
                BackendError,
                match=r"widening: expected result 0 to be torch.float32, got torch.float64",
            ):
                compiled(torch.ones(2, 3))


def test_modes_that_decide_element_types_count():
    model, x = nn.Linear(3, 3).eval(), torch.ones(2, 3)
    compiled = corsac.compile(model, backend=faithful)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert compiled(x).dtype == model(x).dtype == torch.bfloat16
    with torch.no_grad():
        assert compiled(x).dtype == torch.float32


def test_results_without_element_type_are_left_alone():
    def program(x):
        return x + 1, x.shape[0], None

    compiled = corsac.compile(program, backend=faithful)
    result, size, nothing = compiled(torch.ones(2, dtype=torch.int32))
    assert (result.dtype, size, nothing) == (torch.int32, 2, None)


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda own: own[:1], r"torch.float32 \[2, 3\], got torch.float32 \[1, 3\]"),
        (lambda own: own.unsqueeze(0), r"torch.float32 \[2, 3\], got torch.float32 \[1, 2, 3\]"),
        (lambda own: own.t(), r"torch.float32 \[2, 3\], got torch.float32 \[3, 2\]"),
    ],
)
def test_another_size_is_an_error(change, text, dynamic):
    def changing(gm, example_inputs):
        return lambda *args: tuple(change(own) for own in gm(*args))

    model = nn.Linear(3, 3).eval()
    with torch.no_grad():
        compiled = corsac.compile(model, backend=changing, dynamic=dynamic)
        # The choice of symbolic sizes is not checked: sizes fixed in the graph are.
        if dynamic is not True or "1, 3" not in text:
            with pytest.raises(BackendError, match=rf"changing: expected result 0 to be {text}"):
                compiled(torch.ones(2, 3))


def test_sizes_that_differ_between_calls_are_no_fault():
    model = nn.Linear(3, 3).eval()
    for dynamic in (None, True):
        compiled = corsac.compile(model, backend=faithful, dynamic=dynamic)
        with torch.no_grad():
            for rows in (2, 5, 2, 7, 1):
                assert compiled(torch.ones(rows, 3)).shape == (rows, 3)
