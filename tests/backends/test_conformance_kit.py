"""The conformance kit: built-in backends pass it, and each planted fault is caught."""

import functools
import importlib.util
import time

import pytest
import torch

from corsac import backends
from corsac.backends import check
from corsac.backends.conformance import PROGRAMS

BUILT_IN = ["engine", "eager", "debug", "aot_eager", "onnxruntime", "openvino"]
OF_TORCH = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("torch:eager", "torch:aot_eager")
]
#: Known deviations of runtimes, from docs/lowering.md.
KNOWN = {"openvino": {"largest_of_nan"}}


@functools.cache
def full_check(name):
    return check(name)


def test_there_are_sixty_programs_of_all_kinds():
    assert len(PROGRAMS) >= 60
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    kinds = {program.kind for program in PROGRAMS}
    assert {"dtypes", "views", "mutation", "sizes", "outputs", "constants"} <= kinds
    assert {"containers", "shapes", "exceptions", "threads", "gradients"} <= kinds


@pytest.mark.parametrize("name", [*BUILT_IN, *OF_TORCH])
def test_built_in_backends_pass(name):
    report = full_check(name)
    assert {row.program for row in report.failures} == KNOWN.get(name, set()), str(report)
    assert len(report.rows) == len(PROGRAMS)


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="it is there")
def test_a_runtime_that_is_missing_declines_and_says_how_to_install_it():
    report = full_check("tensorrt")
    assert report.ok and len(report.rows) == len(PROGRAMS), str(report)
    declined = {reason for row in report.rows for reason in row.declined}
    assert declined == {"tensorrt is missing: pip install tensorrt"}


def test_no_built_in_backend_is_left_out():
    known = [name for name in backends.list_backends(()) if not name.startswith("torch:")]
    assert set(known) == {*BUILT_IN, "tensorrt"}


def test_a_fallback_passes():
    report = check(backends.fallback(["engine", "onnxruntime", "eager"]))
    assert report.ok and len(report.rows) == len(PROGRAMS), str(report)
    # The last backend accepts everything that the others decline.
    assert not [row.program for row in report.rows if row.declined]


def test_what_the_engine_runs_itself():
    """A pass of the kit means that the engine ran the program."""
    report = full_check("engine")
    native = {row.program for row in report.rows if row.verdict == "passes"}
    wanted = {"float32_arithmetic", "int64_arithmetic", "casts", "broadcasting", "Attention"}
    wanted |= {"Convolutions", "WeightsWrittenBetweenCalls", "branch_on_values"}
    wanted |= {"called_by_threads", "ModuleCalledByThreads"}
    assert wanted <= native


def wrong_result(module, example_inputs):
    return lambda *args: tuple(
        own * 1.001 if isinstance(own, torch.Tensor) and own.is_floating_point() else own
        for own in module(*args)
    )


def writes_to_inputs(module, example_inputs):
    def run(*args):
        results = module(*args)
        with torch.no_grad():
            for own in args:
                if isinstance(own, torch.Tensor) and own.is_floating_point():
                    own.zero_()
        return results

    return run


def one_buffer(module, example_inputs):
    kept = []

    def run(*args):
        results = module(*args)
        if not kept:
            kept.extend(results)
        for own, result in zip(kept, results, strict=True):
            if isinstance(own, torch.Tensor) and own.shape == result.shape:
                with torch.no_grad():
                    own.copy_(result)
        return tuple(kept)

    return run


def returns_inputs(module, example_inputs):
    """Returns an input instead of a result with equal values."""

    def run(*args):
        tensors = [own for own in args if isinstance(own, torch.Tensor)]
        results = []
        for own in module(*args):
            alike = [x for x in tensors if isinstance(own, torch.Tensor) and x.shape == own.shape]
            same = [x for x in alike if x.dtype == own.dtype]
            results.append(same[0].detach().copy_(own.detach()) if same else own)
        return tuple(results)

    return run


def copies_views(module, example_inputs):
    return lambda *args: tuple(
        own.clone() if isinstance(own, torch.Tensor) else own for own in module(*args)
    )


def raises(module, example_inputs):
    raise NotImplementedError("no operator at all")


def raises_when_called(module, example_inputs):
    def run(*args):
        raise OSError("the device is gone")

    return run


def wrong_structure(module, example_inputs):
    return lambda *args: [own for own in module(*args) if own is not None][:1]


def wrong_dtype(module, example_inputs):
    return lambda *args: tuple(
        own.double() if isinstance(own, torch.Tensor) and own.dtype == torch.float32 else own
        for own in module(*args)
    )


def loses_gradients(module, example_inputs):
    def run(*args):
        with torch.no_grad():
            return module(*args)

    return run


def old_weights(module, example_inputs):
    state = {name: own.detach().clone() for name, own in module.named_parameters()}
    return lambda *args: torch.func.functional_call(module, state, args)


def first_sizes(module, example_inputs):
    """Always computes with the first input that it was given."""
    first = module(*example_inputs)
    return lambda *args: tuple(
        own.clone() if isinstance(own, torch.Tensor) else own for own in first
    )


@pytest.mark.parametrize(
    "backend, program, fault",
    [
        (wrong_result, "float32_arithmetic", "values differ by up to"),
        (writes_to_inputs, "float32_arithmetic", "input after the call: values differ"),
        (one_buffer, "rows_that_vary", None),
        (one_buffer, "constant_tensor", "was written to by a later call"),
        (returns_inputs, "float32_arithmetic", "input after the call"),
        (copies_views, "view_of_an_input", "does not share memory with input 0, as PyTorch's does"),
        (copies_views, "results_that_share", "result 0 does not share memory with result 1"),
        (raises, "float32_arithmetic", "NotImplementedError: no operator at all"),
        (raises_when_called, "float32_arithmetic", "OSError: the device is gone"),
        (wrong_structure, "several_results", "expected 5 results, got 1"),
        (wrong_dtype, "float32_arithmetic", "result 0 to be torch.float32, got torch.float64"),
        (loses_gradients, "gradients_of_inputs", "expected a gradient"),
        (old_weights, "WeightsWrittenBetweenCalls", "call 1: result: values differ"),
        (first_sizes, "constant_tensor", "call 1: result: values differ"),
    ],
)
def test_a_planted_fault_is_caught(backend, program, fault):
    report = check(backend, programs=[program])
    (row,) = report.rows
    if fault is None:
        assert row.ok
        return
    assert not report.ok and row.verdict == "fails"
    assert fault in row.fault
    assert f"{row.program} fails" in " ".join(str(report).split())
    assert str(report).endswith("1 programs: 0 pass, 0 pass with graphs that PyTorch runs, 1 fail")


@pytest.mark.parametrize("backend", [wrong_result, raises, wrong_structure, raises_when_called])
def test_the_kit_goes_on_after_a_failure(backend):
    report = check(backend, programs=["outputs", "sizes", "control flow"])
    assert len(report.rows) == 14
    assert len(report.failures) >= 9


def test_a_backend_that_hangs_is_left():
    def hangs(module, example_inputs):
        while True:
            time.sleep(0.01)

    start = time.perf_counter()
    report = check(hangs, programs=["scalars", "branch_on_values"], seconds=1)
    assert time.perf_counter() - start < 30
    assert [row.fault for row in report.rows] == ["it takes longer than 1 s"] * 2
    # No lock is left held.
    assert check("eager", programs=["scalars", "branch_on_values"]).ok


def test_a_backend_that_declines_everything_passes():
    report = check(lambda gm, inputs: None, programs="views")
    assert report.ok
    assert {row.verdict for row in report.rows} == {"declined"}
    assert "10 programs: 0 pass, 10 pass with graphs that PyTorch runs, 0 fail" in str(report)


def test_programs_that_there_are_not():
    with pytest.raises(ValueError, match="name or kind of a program, got 'nothing'"):
        check("eager", programs=["nothing"])
    with pytest.raises(backends.UnknownBackend):
        check("nothing")
