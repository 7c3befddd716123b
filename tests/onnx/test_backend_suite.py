"""The test-suite of the ``onnx`` package for backends: the cases of single operators that are read and computed."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import corsac
import onnx
from corsac.onnx import OnnxImportError

_BITS = {
    "bfloat16": (np.uint16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
    "float8_e8m0fnu": (np.uint8, torch.float8_e8m0fnu),
}

#: Reasons why cases do not pass, with parts of error messages that stand for them.
MESSAGES = {
    "element type string": "strings",
    "element type float4e2m1": "floats of 4 bits",
    "its rank is not known": "sequences of tensors of any shape",
    "number of iterations is not known": "sequences whose length depends on elements",
    "no tensor but a optional": "optional values",
    "an optional value without an element": "optional values",
    "it uses random numbers": "random numbers",
    "a mode of training that depends on the inputs": "random numbers",
    "ImageDecoder of ai.onnx 20 has no translation": "pictures",
    "Scan of version 8": "no translation",
    "sequences from control flow": "sequences whose length depends on elements",
    "lengths of parts that depend on the inputs": "sequences whose length depends on elements",
}
#: The same, with beginnings of the names of cases.
NAMES = {
    "test_attention_4d_causal_fp16": "rounding of float16",
    "test_sequence_map_add_1_sequence_1_tensor": "one name for sizes of a tensor and of a sequence's tensors",
    "test_affine_grid_": "sizes that are computed from elements, and compared",
}


@functools.cache
def cases() -> list[Any]:
    """The cases of the default domain."""
    node = pytest.importorskip("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = node.collect_testcases(None)
    return [
        case
        for case in found
        if all(own.domain in ("", "ai.onnx") for own in case.model.opset_import)
    ]


def as_tensor(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [as_tensor(own) for own in value]
    array = np.asarray(value)
    name = array.dtype.name
    if name in _BITS:
        width, dtype = _BITS[name]
        return torch.from_numpy(array.view(width).copy()).view(dtype).reshape(array.shape)
    if name in ("int4", "uint4", "int2", "uint2"):
        return torch.from_numpy(array.astype(np.uint8 if name[0] == "u" else np.int8))
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape).copy())


def check(actual: Any, expected: Any, case: Any) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for own, theirs in zip(actual, expected, strict=True):
            check(own, theirs, case)
        return
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    tolerance: dict[str, float] = {"rtol": max(case.rtol, 1e-5), "atol": max(case.atol, 1e-6)}
    if expected.dtype in (torch.float16, torch.bfloat16):
        tolerance = {}
    if expected.dtype.itemsize == 1 and expected.dtype.is_floating_point:
        actual, expected = actual.float(), expected.float()
    torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False, **tolerance)


def run(case: Any) -> None:
    lengths = {
        info.name: len(own)
        for info, own in zip(case.model.graph.input, case.data_sets[0][0], strict=True)
        if info.type.HasField("sequence_type")
    }
    model = corsac.from_onnx(case.model, lengths=lengths)
    for inputs, outputs in case.data_sets:
        with torch.no_grad():
            results = model(*(as_tensor(own) for own in inputs))
        results = [results] if len(case.model.graph.output) == 1 else list(results)
        check(results, [as_tensor(own) for own in outputs], case)


def reason_of(case: Any, error: Exception) -> str | None:
    """The listed reason why a case does not pass."""
    if isinstance(error, OnnxImportError):
        for part, reason in MESSAGES.items():
            if part in str(error):
                return reason
    return next((own for name, own in NAMES.items() if case.name.startswith(name)), None)


def counted(chosen: list[Any]) -> tuple[int, dict[str, str]]:
    """The number of cases that pass, and those without a listed reason, with their errors."""
    passed, faults = 0, {}
    for case in chosen:
        try:
            run(case)
            passed += 1
        except Exception as error:
            if reason_of(case, error) is None:
                faults[case.name] = f"{type(error).__name__}: {str(error).strip()[:200]}"
    return passed, faults


@pytest.mark.slow
def test_cases_of_operators_pass_or_have_a_listed_reason():
    released = [case for case in cases() if _version(case) <= 23]
    others = [case for case in cases() if _version(case) > 23]
    passed, faults = counted(released)
    assert not faults
    assert passed >= 0.95 * len(released)
    passed_since, faults = counted(others)
    assert not faults
    assert passed + passed_since >= 0.95 * len(cases())


def test_a_part_of_the_cases():
    chosen = cases()[::12]
    passed, faults = counted(chosen)
    assert not faults
    assert passed >= math.floor(0.85 * len(chosen))


@pytest.mark.slow
def test_reasons_are_needed():
    """Every listed beginning of a name is that of a case that does not pass."""
    for name in NAMES:
        fitting = [case for case in cases() if case.name.startswith(name)]
        assert not all(_passes(case) for case in fitting), name


def _version(case: Any) -> int:
    return max(own.version for own in case.model.opset_import)


def _passes(case: Any) -> bool:
    try:
        run(case)
    except Exception:
        return False
    return True
