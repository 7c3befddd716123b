"""Signatures of operators and normal forms of calls, beside torch.fx's."""

import contextlib
import inspect
import itertools
import numbers
import re
import typing
import warnings

import pytest
import torch
import torch.fx.operator_schemas as theirs
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db

import corsac.fx.operator_schemas as ours

#: Every fifth operator, which suffices to find faults of all; the others together are slow.
OPERATORS = [
    pytest.param(op, id=op.formatted_name, marks=() if at % 5 == 0 else pytest.mark.slow)
    for at, op in enumerate(op_db)
]
PACKETS = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.isidentifier()]
PACKETS = [packet for packet in PACKETS if isinstance(packet, torch._ops.OpOverloadPacket)]


def outcome(function, *args, **kwargs):
    """The result of a call, or the type of its exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return type(error)


def same(a, b):
    """Whether two values are equal; for tensors, the same object."""
    if isinstance(a, list | tuple):
        pairs = zip(a, b, strict=True)
        return type(b) is type(a) and len(a) == len(b) and all(same(x, y) for x, y in pairs)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a is b or (type(a) is type(b) and (a == b) is True)


def same_outcome(a, b):
    """Whether two outcomes of normalisation are the same."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return same(tuple(a), tuple(b))
    return a is b


def callables(op):
    """The functions of an entry of ``op_db``."""
    packet = getattr(torch.ops.aten, op.aten_name or op.name, None)
    overloads = [getattr(packet, name) for name in packet.overloads()] if packet else []
    found = [op.op, op.inplace_variant, packet, *overloads]
    return [function for function in found if callable(function)]


def samples(op):
    dtypes = sorted(op.supported_dtypes("cpu"), key=lambda t: (t is not torch.float32, str(t)))
    if not dtypes:
        return
    dtype = dtypes[0]
    with warnings.catch_warnings(), contextlib.suppress(pytest.skip.Exception):
        warnings.simplefilter("ignore")
        yield from itertools.islice(op.sample_inputs("cpu", dtype), 6)


@pytest.mark.parametrize("op", OPERATORS)
def test_calls_of_operators_have_the_same_normal_form(op):
    for function in callables(op):
        expected = outcome(theirs.get_signature_for_torch_op, function, return_schemas=True)
        found = outcome(ours.get_signature_for_torch_op, function, return_schemas=True)
        assert str(found) == str(expected), function
    for sample in samples(op):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        types = tuple(ours.create_type_hint(type(a)) for a in args)
        named = {key: type(value) for key, value in kwargs.items()}
        given = (None, None), (types, named), (types, None)
        for function, (arg_types, kwarg_types), only in itertools.product(
            callables(op), given, (True, False)
        ):
            call = function, args, kwargs, arg_types, kwarg_types, only
            expected = outcome(theirs.normalize_function, *call)
            found = outcome(ours.normalize_function, *call)
            assert same_outcome(found, expected), (function, args, kwargs, found, expected)
            expected = outcome(theirs.check_for_mutable_operation, function, args, kwargs)
            assert outcome(ours.check_for_mutable_operation, function, args, kwargs) is expected


def test_signatures_of_all_operators_are_those_of_torch_fx():
    checked = 0
    for packet in PACKETS:
        expected = outcome(theirs.get_signature_for_torch_op, packet)
        found = outcome(ours.get_signature_for_torch_op, packet)
        if isinstance(expected, type):  # a type without a Python equivalent
            assert found is expected
            continue
        # TorchScript's classes are made anew on each access: compare the text without addresses.
        texts = [re.sub("0x[0-9a-f]+", "", str(signatures)) for signatures in (found, expected)]
        assert texts[0] == texts[1], packet
        checked += len(found)
    assert checked > 2400, checked


class Color:
    pass


TYPES = [
    *(int, float, bool, complex, str, torch.Tensor, nn.Parameter, torch.dtype, numbers.Number),
    *(typing.Any, Color, type(None), 3, "int", None, ...),
    *(
        list[int],
        tuple[int, ...],
        tuple[int, bool],
        tuple[()],
        list[torch.Tensor],
        list[typing.Any],
    ),
    *(tuple[nn.Parameter, ...], tuple[typing.Any, ...], list[list[int]], dict[str, int]),
    *(typing.List[int], typing.List[float], typing.List[torch.Tensor], typing.Tuple[int]),
    *(typing.Optional[int], typing.Optional[typing.List[int]], typing.Union[int, str]),
    *(typing.List[typing.Optional[torch.Tensor]], typing.List[numbers.Number]),
]


@pytest.mark.parametrize("wanted", TYPES, ids=str)
def test_types_match_as_in_torch_fx(wanted):
    for given in TYPES:
        expected = outcome(theirs.type_matches, wanted, given)
        assert outcome(ours.type_matches, wanted, given) is expected, (wanted, given)


@pytest.mark.parametrize(
    "types",
    [
        *([], (), [int], [int, bool], [bool, int], (int, float), [nn.Parameter, torch.Tensor]),
        *([int, 3], [3], (None,), [int, str, bool], int, None, "text", [[int]], [typing.Any]),
        *([typing.Any, int], [int, typing.Any], ([int], int), {int: int}, [object, int]),
    ],
    ids=str,
)
def test_type_hints_are_those_of_torch_fx(types):
    assert outcome(ours.create_type_hint, types) == outcome(theirs.create_type_hint, types)


def python_function(x, y=2, *, z=3):
    return x + y + z


def variadic(x, *rest, **named):
    return x


def positional(x, /, y):
    return x


class Wrapper:
    _op = torch.ops.aten.add.Tensor

    def __call__(self):
        raise AssertionError


X = torch.ones(2)
CALLS = [
    *((python_function, (1,), {}), (python_function, (1, 5), {"z": 4}), (python_function, (), {})),
    *((python_function, (1, 2, 3), {}), (python_function, (1,), {"x": 1})),
    *((python_function, (1,), None), (python_function, (1,), {"w": 1}), (len, (X,), {})),
    *((variadic, (1, 2), {"a": 3}), (positional, (1, 2), {}), (positional, (1,), {"y": 2})),
    *((F.max_pool2d, (X, 2), {"return_indices": True}), (F.fractional_max_pool2d, (X, 2), {})),
    *((F.relu, (X,), {"inplace": True}), (F.relu, (), {}), (F.linear, (X, X), {})),
    *((Wrapper(), (X, X), {}), (Wrapper(), (X,), {}), (3, (X,), {}), ("relu", (X,), {})),
    *((torch.nonzero, (X,), {}), (torch.nonzero, (X,), {"as_tuple": True})),
    *((torch.add, (X, X), {"out": X}), (torch.add, (X, X), {}), (torch.add, (), {})),
    *((torch.ops.aten.uniform, (X,), {}), (torch.ops.aten.uniform, (X, 0.0, 1.0), {})),
    *((torch.ops.aten.uniform, (X,), {"from": 0.0}), (torch.ops.aten.random_, (X, 0, 1), {})),
    *((torch.ops.aten.random_, (X, 2), {}), (torch.ops.prims.sin, (X,), {})),
    *((torch.ops.aten.add_.Tensor, (X, X), {}), (torch.ops.aten.add.out, (X, X), {"out": X})),
    *((torch.ops.aten.relu.default, (), {"input": X}), (torch.ops.aten.relu, (), {"self": X})),
    *((torch.manual_seed, (3,), {}), (torch.Tensor.add, (X, X), {}), (torch.randn, (2, 3), {})),
]


@pytest.mark.parametrize("only_keywords", [True, False])
@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_calls_of_any_function_have_the_same_normal_form(call, only_keywords):
    for types in ((), ((torch.Tensor,),), ((torch.Tensor, torch.Tensor), {"out": torch.Tensor})):
        given = *call, *types, *[None] * (2 - len(types)), only_keywords
        expected = outcome(theirs.normalize_function, *given)
        assert same_outcome(outcome(ours.normalize_function, *given), expected), expected
        wanted = RuntimeError if expected is None else expected
        assert same_outcome(outcome(ours._normalize_function_or_error, *given), wanted)
    if call[2] is not None:
        expected = outcome(theirs.check_for_mutable_operation, *call)
        assert outcome(ours.check_for_mutable_operation, *call) is expected


def test_calls_of_modules_have_the_same_normal_form():
    class Relu(nn.ReLU):
        pass

    root = nn.Sequential(nn.Linear(2, 2), nn.MultiheadAttention(2, 1), Relu(), nn.Sequential())
    root.quantized = nn.LSTM(2, 2)
    calls = [(X,), (X, X, X), (), (X, X, X, X, X, X, X, X)], [None, {}, {"hx": None}, {"bad": 1}]
    for name in ("0", "1", "2", "3", "quantized", "missing", ""):
        for args, kwargs, only in itertools.product(*calls, (True, False)):
            expected = outcome(theirs.normalize_module, root, name, args, kwargs, only)
            found = outcome(ours.normalize_module, root, name, args, kwargs, only)
            assert same_outcome(found, expected), (name, args, kwargs)


def test_what_libraries_register_counts_for_both():
    def renamed(data: torch.Tensor) -> None: ...

    assert ours._manual_overrides is theirs._manual_overrides
    signatures = [inspect.signature(renamed)]
    try:
        ours._manual_overrides[torch.sin] = signatures
        for module in (ours, theirs):
            assert module.get_signature_for_torch_op(torch.sin, True) == (signatures, None)
            assert module.normalize_function(torch.sin, (X,)) is None
    finally:
        del ours._manual_overrides[torch.sin]


def test_operators_that_are_defined_anew_have_their_new_signature():
    for schema, signature in (
        ("(Tensor x) -> Tensor", "(x: torch.Tensor) -> torch.Tensor"),
        ("(Tensor y, int n=2) -> int", "(y: torch.Tensor, n: int = 2) -> int"),
    ):
        with torch.library._scoped_library("corsac_test", "DEF") as library:
            library.define(f"redefined{schema}")
            (schema,) = torch._C._jit_get_schemas_for_operator("corsac_test::redefined")
            assert str(ours._torchscript_schema_to_signature(schema)) == signature


def test_errors_say_what_to_give():
    with pytest.raises(RuntimeError, match=r"(?s)ambiguous.*arg_types.*\(input: torch.Tensor"):
        ours.normalize_function(torch.div, (1, 2))
    with pytest.raises(RuntimeError, match=r"mutable operation aten::add_\.Tensor"):
        ours.check_for_mutable_operation(torch.ops.aten.add_.Tensor, (X, X), {})
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        ours.normalize_function(python_function, ())
