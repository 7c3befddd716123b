"""Placeholders for every kind of parameter: defaults, annotations, stars and keyword-only."""

import functools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import pytest
import torch
from torch import nn

from kit import differential


class Pair(NamedTuple):
    left: torch.Tensor
    right: int


def every_kind(a, b=1, *args, c, d=None, **kwargs):
    return a + b, args, c, d, kwargs


def defaults(a, b=1, c=None, d=2.5, e="text", f=(1, 2), g=True, h=-1, i=float("inf")):
    return a, b, c, d, e, f, g, h, i


def positional_only(a, b=2, /, c=3, *, d=4):
    return a + b + c + d


def only_stars(*args, **kwargs):
    return args, kwargs


def star_unpacked(*args):
    return args[0] + args[1]


def keywords_read(**kwargs):
    return kwargs["x"] + kwargs["y"]


def keyword_only(*, x, y=2):
    return x * y


def annotated(
    x: torch.Tensor,
    y: int = 3,
    z: Optional[torch.Tensor] = None,
    w: "str" = "a",
) -> torch.Tensor:
    return x * y


def typing_annotated(
    a: List[int],
    b: Dict[str, torch.Tensor],
    c: Tuple[int, ...],
    d: Tuple[()],
    e: Union[int, torch.Tensor],
    f: Any,
) -> Tuple[torch.Tensor, List[int]]:
    return b, a


def pep_annotated(
    a: list[int],
    b: dict[str, list[torch.Tensor]],
    c: int | None,
    d: tuple[int, str] | None = None,
    e: tuple[()] = (),
    f: type = int,
) -> tuple[int, ...] | None:
    return a


def own_annotated(a: Pair, b: nn.Linear, c: List[Pair]) -> Pair:
    return a


def star_annotated(*args: int, **kwargs: str):
    return args


FUNCTIONS = [
    every_kind,
    defaults,
    positional_only,
    only_stars,
    star_unpacked,
    keywords_read,
    keyword_only,
    annotated,
    typing_annotated,
    pep_annotated,
    own_annotated,
    star_annotated,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@differential
def test_signature(fx, rec, function):
    rec.call("traced", fx.symbolic_trace, function)
    rec.call("graph", fx.Tracer().trace, function)
    rec.call("compiled", lambda: bool(fx.symbolic_trace(function).forward))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@differential
def test_signature_of_a_module(fx, rec, function):
    class Module(nn.Module):
        forward = function

    rec.call("traced", fx.symbolic_trace, Module())


@differential
def test_calling_with_defaults_and_keywords(fx, rec):
    x = torch.ones(2)
    stars = fx.symbolic_trace(only_stars)
    rec.call("stars", stars, x, 2, 3, c=5, z=6)
    rec.call("nothing", stars)
    simple = fx.symbolic_trace(positional_only)
    rec.call("defaults", simple, x)
    rec.call("by name", simple, x, d=10, c=3)
    rec.call("too many", simple, 1, 2, 3, 4, 5)


@differential
def test_module_with_stars(fx, rec):
    class Stars(nn.Module):
        def forward(self, *args, scale=2, **kwargs):
            return args[0] * scale + kwargs["y"]

    traced = rec("traced", fx.symbolic_trace(Stars()))
    rec.call("result", traced, torch.ones(2), y=3)


@differential
def test_a_star_parameter_that_is_unpacked(fx, rec):
    def f(*args):
        return torch.cat([*args])

    def g(**kwargs):
        return dict(**kwargs)

    rec.call("args", fx.symbolic_trace, f)
    rec.call("kwargs", fx.symbolic_trace, g)


@differential
def test_decorated_functions_are_unwrapped_for_their_signature(fx, rec):
    def doubled(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return inner

    @doubled
    def f(x, y: int = 3):
        return x + y

    class Module(nn.Module):
        @doubled
        def forward(self, x, y=4):
            return x - y

    rec.call("function", fx.symbolic_trace, f)
    rec.call("module", fx.symbolic_trace, Module())


@differential
def test_methods_and_callables_that_are_not_functions(fx, rec):
    class Holder:
        def method(self, x):
            return x + 1

        def __call__(self, x):
            return x

        @staticmethod
        def static(x):
            return x * 2

        @classmethod
        def of_class(cls, x):
            return x

    rec.call("bound method", fx.symbolic_trace, Holder().method)
    rec.call("static", fx.symbolic_trace, Holder.static)
    rec.call("class method", fx.symbolic_trace, Holder.of_class)
    rec.call("callable", fx.symbolic_trace, Holder())
    rec.call("partial", fx.symbolic_trace, functools.partial(annotated, y=2))


@differential
def test_self_by_another_name(fx, rec):
    class Module(nn.Module):
        def forward(this, x):
            return this.train and x + 1

    rec.call("traced", fx.symbolic_trace, Module())


@differential
def test_module_without_arguments_and_without_self(fx, rec):
    class NoInput(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self):
            return self.weight + 1

    class OnlyStar(nn.Module):
        def forward(*args):
            return args

    rec.call("no input", fx.symbolic_trace, NoInput())
    rec.call("only star", fx.symbolic_trace, OnlyStar())


@differential
def test_annotated_locals_do_not_matter(fx, rec):
    def f(x):
        y: torch.Tensor = x + 1
        z: int
        return y

    rec.call("traced", fx.symbolic_trace, f)


@differential
def test_placeholder_types_are_kept(fx, rec):
    graph = fx.Tracer().trace(annotated)
    rec("types", [(n.name, n.type is None, str(n.type)) for n in graph.nodes])
