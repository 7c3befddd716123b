"""The classes of operators, which passes and backends ask for instead of keeping lists."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.nn import functional as F

from corsac import _core

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "target", "classes"),
    [
        ("call_method", "view", ["view"]),
        ("call_function", torch.flatten, ["view"]),
        ("call_function", aten.expand.default, ["view"]),
        ("call_function", operator.getitem, ["view"]),
        ("call_function", torch.as_strided, ["view", "places"]),
        ("call_method", "as_strided_", ["view", "places"]),
        ("call_function", torch.ops.prims.as_strided.default, ["view", "places"]),
        ("call_function", torch.ops.prims.as_strided_scatter.default, ["places"]),
        ("call_function", aten._reshape_alias.default, ["view", "strides"]),
        ("call_function", aten.sym_stride.int, ["strides"]),
        ("call_function", aten.sym_storage_offset.default, ["strides"]),
        ("call_method", "data_ptr", ["places"]),
        ("call_method", "is_contiguous", ["strides"]),
        ("call_method", "resize_", ["strides"]),
        ("call_method", "double", ["conversion"]),
        ("call_method", "to", ["conversion"]),
        ("call_function", aten._to_copy.default, ["conversion"]),
        ("call_function", torch.zeros_like, ["type"]),
        ("call_function", torch.rand_like, []),
        ("call_function", F.dropout, ["dropout"]),
        ("call_function", aten.native_dropout_backward.default, []),
        ("call_module", "Flatten", ["view"]),
        ("call_module", "Dropout2d", ["dropout"]),
        ("call_module", "Linear", []),
        ("call_function", torch.relu, []),
        ("call_function", torch.cat, []),
        ("call_method", "unheard_of", []),
    ],
)
def test_classes_are_those_of_the_row(op: str, target: object, classes: list[str]) -> None:
    assert _core.operator_classes(op, target) == classes


def test_views_share_memory_with_a_contiguous_input_and_are_its_elements() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    calls = {
        "detach": (), "expand": (2, 3, 4), "flatten": (), "movedim": (0, 1), "narrow": (1, 0, 2), "permute": (2, 0, 1),
        "ravel": (), "reshape": (4, 6), "select": (0, 1), "squeeze": (), "swapaxes": (0, 1), "transpose": (0, 2),
        "unflatten": (2, (2, 2)), "unsqueeze": (0,), "view": (6, 4), "view_as": (x.flatten(),), "contiguous": (),
    }  # fmt: skip
    for name, arguments in calls.items():
        assert "view" in _core.operator_classes("call_method", name), name
        result = getattr(x, name)(*arguments)
        assert result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), name
    for name in ("clone", "repeat", "roll", "relu", "tril", "flip"):
        assert "view" not in _core.operator_classes("call_method", name), name


def test_conversions_convert_to_the_type_they_are_named_after() -> None:
    x = torch.zeros(2)
    dtypes = {
        "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
        "int": torch.int32, "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
        "bool": torch.bool,
    }  # fmt: skip
    for name, dtype in dtypes.items():
        assert "conversion" in _core.operator_classes("call_method", name)
        assert getattr(x, name)().dtype == dtype
        inferred = _core.infer_type(getattr(torch.Tensor, name), (x,), {})
        assert inferred[0].dtype == dtype
