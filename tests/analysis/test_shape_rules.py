"""Rules of single operators, against PyTorch on meta tensors."""

from __future__ import annotations

import collections
import operator
import random
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_torch import check, infer
from torch.utils._pytree import tree_map_only

import corsac.fx as fx
from corsac import _core
from corsac.analysis import Dim, ShapeInferenceError, TensorSpec, propagate

T = torch.Tensor


def on_meta(value: Any) -> Any:
    return tree_map_only(T, lambda tensor: tensor.to("meta"), value)


def on_cpu(value: Any) -> Any:
    """The same shapes, strides and element types, filled with ones."""

    def filled(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).fill_(1)

    return tree_map_only(T, filled, value)


def compare(target: Any, *args: Any, **kwargs: Any) -> str | None:
    """The difference between rule and PyTorch. Calls that PyTorch rejects must be rejected only where the rule
    can detect it, so a type for them is no difference."""
    call = getattr(T, target) if isinstance(target, str) else target
    args, kwargs = on_meta(args), on_meta(kwargs)
    try:
        real = call(*on_meta(args), **on_meta(kwargs))
    except Exception:
        return None
    difference = check(target, args, kwargs, real)
    if difference is None:
        return None
    # Some kernels have other layouts on meta tensors; those of the CPU count.
    args, kwargs = on_cpu(args), on_cpu(kwargs)
    try:
        real = call(*on_cpu(args), **on_cpu(kwargs))
    except Exception:
        return None
    return check(target, args, kwargs, real)


# -- Random shapes, layouts and element types -----------------------------------------------------


def random_tensor(choose: random.Random, shape: list[int]) -> torch.Tensor:
    """A meta tensor of this shape, with a random layout."""
    dtype = choose.choice([torch.float32, torch.float32, torch.float64, torch.int64, torch.bool])
    way = choose.randrange(4)
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    if way == 1 and len(shape) > 1:
        order = choose.sample(range(len(shape)), len(shape))
        inverse = [order.index(at) for at in range(len(shape))]
        tensor = torch.empty([shape[at] for at in order], dtype=dtype, device="meta")
        return tensor.permute(inverse)
    if way == 2 and len(shape) == 4:
        return tensor.to(memory_format=torch.channels_last)
    if way == 3 and shape:
        wide = torch.empty([*shape[:-1], shape[-1] * 2], dtype=dtype, device="meta")
        return wide[..., : shape[-1]]
    return tensor


def random_shape(choose: random.Random) -> list[int]:
    return [choose.choice([1, 1, 2, 3, 5]) for _ in range(choose.randrange(5))]


def broadcastable(choose: random.Random, shape: list[int]) -> list[int]:
    other = [1 if choose.random() < 0.3 else size for size in shape]
    return other[choose.randrange(len(other) + 1) :] if choose.random() < 0.3 else other


BINARY = [
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.eq, torch.lt, torch.pow,
    torch.floor_divide, torch.remainder, torch.atan2, torch.logical_and, operator.add,
    operator.mul, operator.truediv, operator.sub, operator.gt, operator.and_,
]  # fmt: skip
UNARY = [
    torch.relu, torch.neg, torch.exp, torch.sigmoid, torch.abs, torch.isnan, torch.floor, F.gelu,
    F.silu, torch.clone, torch.zeros_like, torch.sqrt, torch.logical_not, F.softplus,
    F.hardswish, F.leaky_relu, torch.sign, torch.detach,
]  # fmt: skip
REDUCTIONS = [torch.sum, torch.mean, torch.amax, torch.all, torch.argmax, torch.std, torch.prod]


@pytest.mark.parametrize("seed", range(8))
def test_elementwise_rules_agree_on_random_arguments(seed: int) -> None:
    choose = random.Random(seed)
    wrong = []
    for _ in range(150):
        shape = random_shape(choose)
        first = random_tensor(choose, broadcastable(choose, shape))
        second = random_tensor(choose, broadcastable(choose, shape))
        number = choose.choice([2, 2.5, True, -1])
        other = number if choose.random() < 0.2 else second
        for target, args in [
            (choose.choice(BINARY), (first, other)),
            (choose.choice(UNARY), (first,)),
            (torch.where, (torch.empty(second.shape, dtype=torch.bool, device="meta"), first, second)),
        ]:  # fmt: skip
            if difference := compare(target, *args):
                shown = [
                    (tuple(a.shape), a.stride(), a.dtype) if isinstance(a, T) else a for a in args
                ]
                wrong.append(f"{target.__name__}{shown}: {difference}")
    assert wrong == []


@pytest.mark.parametrize(
    "target", [torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like]
)
def test_tensors_like_others_have_their_strides(target: Any) -> None:
    # On the CPU: meta tensors get other strides where a size is 1.
    for size, stride in [((1, 1), (2, 1)), ((3, 1), (2, 1)), ((1, 3), (7, 1)), ((2, 3), (1, 2))]:
        tensor = torch.empty_strided(size, stride)
        assert check(target, (tensor,), {}, target(tensor)) is None, (size, stride)


@pytest.mark.parametrize("seed", range(4))
def test_reductions_agree_on_random_arguments(seed: int) -> None:
    choose = random.Random(seed)
    wrong = []
    for _ in range(150):
        tensor = random_tensor(choose, [*random_shape(choose), 3])
        target = choose.choice(REDUCTIONS)
        dim: Any = choose.randrange(-tensor.dim(), tensor.dim())
        kwargs = {"keepdim": True} if choose.random() < 0.5 else {}
        if target in (torch.sum, torch.mean, torch.amax) and choose.random() < 0.5:
            dim = tuple(choose.sample(range(tensor.dim()), choose.randrange(1, tensor.dim() + 1)))
        if difference := compare(target, tensor, dim, **kwargs):
            wrong.append(f"{target.__name__} {tuple(tensor.shape)} {dim} {kwargs}: {difference}")
    assert wrong == []


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_differences_agree(n: int) -> None:
    input, beside = torch.ones(5, 4), torch.ones(2, 4)
    for given in (input, input.t().contiguous().t()):
        assert not compare(torch.diff, given, n, 0)
        assert not compare(torch.diff, given, n, 0, beside, beside)
        assert not compare(torch.diff, given, n=n, dim=0, append=beside)


@pytest.mark.parametrize("seed", range(4))
def test_views_agree_on_random_arguments(seed: int) -> None:
    choose = random.Random(seed)
    wrong = []
    for _ in range(200):
        tensor = random_tensor(choose, [*random_shape(choose), choose.choice([2, 4, 6])])
        rank = tensor.dim()
        axis = choose.randrange(-rank, rank)
        flat = tensor.numel()
        factor = choose.choice([size for size in (1, 2, 3, 4, 6) if flat % size == 0])
        index = tuple(
            choose.choice([slice(None), slice(0, 1), 0, -1, None, slice(None, None, 2), Ellipsis])
            for _ in range(choose.randrange(1, rank + 1))
        )
        if sum(item is Ellipsis for item in index) > 1:
            index = (slice(None),)
        calls: list[tuple[Any, ...]] = [
            ("reshape", tensor, (factor, -1)),
            ("view", tensor, -1, factor),
            ("flatten", tensor, 0, axis),
            ("transpose", tensor, axis, 0),
            ("permute", tensor, *choose.sample(range(rank), rank)),
            ("unsqueeze", tensor, axis),
            ("squeeze", tensor),
            ("squeeze", tensor, axis),
            ("expand", tensor, 2, *tensor.shape),
            ("contiguous", tensor),
            ("chunk", tensor, 2, axis),
            ("split", tensor, 2, axis),
            ("unbind", tensor, axis),
            ("select", tensor, axis, 0),
            ("narrow", tensor, axis, 0, 1),
            ("repeat", tensor, 2, *[1] * rank),
            ("flip", tensor, [axis]),
            ("clone", tensor),
            ("movedim", tensor, axis, 0),
            (operator.getitem, tensor, index),
        ]
        for target, *args in choose.sample(calls, 6):
            if difference := compare(target, *args):
                shown = [tuple(tensor.shape), tensor.stride(), *args[1:]]
                wrong.append(f"{target} {shown}: {difference}")
    assert wrong == []


@pytest.mark.parametrize("seed", range(4))
def test_windows_agree_on_random_arguments(seed: int) -> None:
    choose = random.Random(seed)
    wrong = []
    for _ in range(100):
        groups = choose.choice([1, 1, 2])
        image = torch.empty(2, 4, choose.randrange(5, 12), choose.randrange(5, 12), device="meta")
        if choose.random() < 0.3:
            image = image.to(memory_format=torch.channels_last)
        kernel = choose.choice([1, 2, 3, (3, 2)])
        taps = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        common = {"stride": choose.choice([1, 2, (2, 1)]), "padding": choose.choice([0, 1])}
        weight = torch.empty(6, 4 // groups, *taps, device="meta")
        back = torch.empty(4, 6 // groups, *taps, device="meta")
        dilated = common | {"dilation": choose.choice([1, 2]), "groups": groups}
        ceil = {"ceil_mode": choose.random() < 0.5}
        size = choose.choice([1, 3, (2, 3), (None, 2)])
        for target, *args, kwargs in [
            (F.conv2d, image, weight, dilated),
            (F.conv_transpose2d, image, back, dilated),
            (F.max_pool2d, image, kernel, common | ceil),
            (F.avg_pool2d, image, kernel, common | ceil),
            (F.adaptive_avg_pool2d, image, size, {}),
            (F.adaptive_max_pool2d, image, size, {}),
            (F.interpolate, image, {"scale_factor": choose.choice([2, 0.5, 1.7])}),
            (F.pad, image, (1, 2, 0, 1), {}),
            (F.unfold, image, kernel, common),
        ]:
            if difference := compare(target, *args, **kwargs):
                wrong.append(
                    f"{target.__name__} {tuple(image.shape)} {args[1:]} {kwargs}: {difference}"
                )
    assert wrong == []


@pytest.mark.parametrize("seed", range(2))
def test_products_agree_on_random_arguments(seed: int) -> None:
    choose = random.Random(seed)
    wrong = []
    for _ in range(100):
        m, k, n, b = (choose.randrange(1, 5) for _ in range(4))
        batch = [choose.choice([1, b]) for _ in range(choose.randrange(3))]
        empty = lambda *shape: torch.empty(*shape, device="meta")  # noqa: E731
        for target, *args in [
            (torch.matmul, empty(*batch, m, k), empty(k, n)),
            (torch.matmul, empty(b, m, k), empty(*batch[:1], k, n)),
            (torch.matmul, empty(k), empty(*batch, k, n)),
            (torch.matmul, empty(*batch, m, k), empty(k)),
            (torch.mm, empty(m, k), empty(k, n)),
            (torch.bmm, empty(b, m, k), empty(b, k, n)),
            (torch.addmm, empty(n), empty(m, k), empty(k, n)),
            (F.linear, empty(*batch, m, k), empty(n, k), empty(n)),
            (torch.einsum, "bmk,kn->bmn", empty(b, m, k), empty(k, n)),
            (torch.outer, empty(m), empty(n)),
            (torch.tensordot, empty(m, k), empty(k, n), 1),
        ]:
            if difference := compare(target, *args):
                wrong.append(f"{target.__name__}: {difference}")
    assert wrong == []


# -- PyTorch's own samples ------------------------------------------------------------------------

#: Operators whose samples the rules may differ on, with the reason.
EXCUSED = {
    "as_strided": "views of the whole storage",
    "nn.functional.batch_norm": "PyTorch takes a tensor of one dimension if it is empty",
}


def differences_on_samples(dtype: torch.dtype, most: int) -> tuple[dict[str, str], int, int]:
    from torch.testing._internal.common_methods_invocations import op_db

    wrong: dict[str, str] = {}
    seen = ruled = 0
    for op in op_db:
        if op.op is None or op.name in EXCUSED or dtype not in op.dtypes:
            continue
        had_rule = False
        try:
            samples = list(op.sample_inputs("cpu", dtype))
        except Exception:
            continue
        for sample in samples[:most]:
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            try:
                difference = compare(op.op, *args, **kwargs)
            except ShapeInferenceError as error:
                difference = f"refused: {error}"
            if difference and difference.startswith("unknown: there is no rule"):
                break
            had_rule = True
            seen += 1
            # An unknown type is allowed; a wrong one is not.
            if difference and not difference.startswith("unknown"):
                wrong.setdefault(op.name, difference)
        ruled += had_rule
    return wrong, ruled, seen


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_rules_agree_on_the_samples_of_pytorch(dtype: torch.dtype) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong, ruled, seen = differences_on_samples(dtype, 40)
    assert wrong == {}
    assert ruled > 150 and seen > 1500


# -- Rejected calls, and unknown types ------------------------------------------------------------


def test_a_wrong_call_is_refused_with_its_place() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + y

    traced = fx.symbolic_trace(program)
    with pytest.raises(ShapeInferenceError) as caught:
        propagate(traced, torch.empty(2, 3), torch.empty(4))
    text = str(caught.value)
    assert text.startswith(
        "node add (operator.add): expected shapes that broadcast, got [2, 3] and [4]"
    )
    assert "test_shape_rules.py" in text


@pytest.mark.parametrize(
    ("target", "args", "message"),
    [
        (F.linear, (torch.empty(2, 3), torch.empty(5, 4)), r"expected an input with 4 features"),
        (F.conv2d, (torch.empty(1, 2, 8, 8), torch.empty(4, 3, 3, 3)), r"with 3 channels"),
        (torch.matmul, (torch.empty(2, 3), torch.empty(4, 5)), r"inner sizes are equal"),
        (torch.mean, (torch.empty(2, dtype=torch.int64),), r"floating-point or complex"),
        (torch.cat, ([torch.empty(2, 3), torch.empty(2, 4)],), r"but for dimension 0"),
        (torch.sum, (torch.empty(2, 3), 2), r"a dimension from -2 to 1, got 2"),
        (torch.reshape, (torch.empty(6), (4, -1)), r"a shape of 6 elements, got \[4, -1\]"),
        (F.max_pool2d, (torch.empty(1, 1, 2, 2), 3), r"a window of at most 2, got 3"),
    ],
)
def test_wrong_arguments_are_refused(target: Any, args: Any, message: str) -> None:
    with pytest.raises(Exception):  # noqa: B017  whatever PyTorch raises
        target(*args)
    with pytest.raises(ShapeInferenceError, match=message):
        infer(target, *args)


def test_what_is_not_known_is_not_guessed() -> None:
    x = torch.empty(4, 4)
    assert infer(torch.nonzero, x) == "the result's size depends on the elements"
    assert infer(operator.getitem, x, x > 0).startswith("the result's size depends")
    assert infer(print_nothing, x).startswith("there is no rule for")
    assert infer(torch.add, x, x, nothing=1) == "the rule has no parameter nothing"
    n = TensorSpec(("n", 4))
    assert infer(torch.add, n, torch.empty(3, 4)) == "it depends on whether n is 3"


def print_nothing(x: torch.Tensor) -> torch.Tensor:
    return x


def test_what_has_no_rule_is_run_on_meta_tensors() -> None:
    def twice(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.repeat(2, 1), 7

    graph = fx.Graph()
    x = graph.placeholder("x")
    pair = graph.call_function(twice, (x,))
    first = graph.call_function(operator.getitem, (pair, 0))
    graph.output(graph.call_function(torch.relu, (first,)))
    found = propagate(graph, torch.empty(2, 3))
    assert [site.node for site in found.fallbacks] == ["twice"]
    assert found.unknown == ()
    assert found.rows[3].text == "float32[4, 3]"
    alone = propagate(graph, torch.empty(2, 3), fallback=False)
    assert [site.node for site in alone.unknown] == ["twice", "getitem", "relu", "output"]
    assert alone.unknown[0].reason.startswith("there is no rule for")


# -- Symbols --------------------------------------------------------------------------------------


def test_sizes_are_computed_with() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        heads = x.view(b, t, 4, c // 4).transpose(1, 2)
        scores = heads @ heads.transpose(-2, -1)
        return (scores.softmax(-1) @ heads).transpose(1, 2).reshape(b, -1)[:, : t // 2]

    graph = fx.Graph()
    x = graph.placeholder("x")
    shape = graph.call_function(getattr, (x, "shape"))
    b, t, c = (graph.call_function(operator.getitem, (shape, at)) for at in range(3))
    quarter = graph.call_function(operator.floordiv, (c, 4))
    heads = graph.call_method("view", (x, b, t, 4, quarter))
    heads = graph.call_method("transpose", (heads, 1, 2))
    flat = graph.call_method("reshape", (heads, b, -1))
    half = graph.call_function(operator.floordiv, (t, 2))
    graph.output(graph.call_function(operator.getitem, (flat, (slice(None), slice(None, half)))))
    found = propagate(graph, TensorSpec(("batch", "time", 64)))
    texts = {row.name: row.text for row in found.rows}
    assert texts["view"] == "float32[batch, time, 4, 16]"
    assert texts["transpose"] == "float32[batch, 4, time, 16]"
    assert texts["reshape"] == "float32[batch, 64*time]"
    assert found.unknown == ()
    assert program(torch.empty(2, 6, 64)).shape == (2, 3)
    shape = found.rows[-1].value.shape
    assert [s if isinstance(s, int) else s.evaluate({"batch": 2, "time": 6}) for s in shape] == [
        2,
        3,
    ]


def test_a_dim_is_a_value() -> None:
    n, m = Dim("n"), Dim("m")
    assert n + m == m + n and hash(n + m) == hash(m + n)
    assert (n + 1) * (n - 1) == n * n - 1
    assert (4 * n) // 2 == 2 * n and n - n == 0
    assert str(3 * n + 1) == "3*n + 1" and n == "n" and n != 5
    assert (n * m // 2).evaluate({"n": 3, "m": 5}) == 7
    with pytest.raises(KeyError):
        n.evaluate({})
    with pytest.raises(ZeroDivisionError):
        n // 0


def test_every_name_has_one_rule() -> None:
    names = collections.Counter(name for _, names, _ in _core.shape_rules() for name in names)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 600
