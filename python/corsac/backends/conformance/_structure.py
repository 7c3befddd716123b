"""Programs about structured arguments and results, and about exceptions."""

from __future__ import annotations

from typing import NamedTuple

import torch

from corsac.backends.conformance._program import Programs, floats

outputs = Programs("outputs")
containers = Programs("containers")
exceptions = Programs("exceptions")


class Pair(NamedTuple):
    """A result with names."""

    first: torch.Tensor
    second: torch.Tensor


@outputs(lambda: [(floats(2, 6),)])
def several_results(x):
    return (*x.chunk(3, 1), x.max(), x.argmax())


@outputs(lambda: [(floats(3),)])
def none_among_the_results(x):
    return x + 1, None, x * 2, None


@outputs(lambda: [(floats(3),)])
def nothing_at_all(x):
    x * 2


@outputs(lambda: [(floats(3),)])
def list_of_one(x):
    return [x.exp()]


@outputs(lambda: [(floats(3, 4),)])
def sizes_among_the_results(x):
    return x * 2, x.shape[0], x.dim(), x + 1


@containers(lambda: [(floats(3), floats(3, seed=2))])
def nested_results(x, y):
    return {"sum": x + y, "rest": [x - y, (x * y, {"last": None})]}


@containers(lambda: [(floats(3), floats(3, seed=2))])
def named_tuple(x, y):
    return Pair(x + y, x - y)


@containers(lambda: [({"x": floats(3), "more": [floats(3, seed=2), (floats(1),)]},)])
def nested_arguments(given):
    x, (y, (z,)) = given["x"], given["more"]
    return {"out": x * y + z}


@containers(lambda: [(floats(3), 2, None), (floats(3), 3, None), (floats(3), 2, 1.5)])
def numbers_and_none_as_arguments(x, factor, shift):
    return x * factor if shift is None else x * factor + shift


@exceptions(lambda: [(floats(2, 3), floats(4, 5))])
def sizes_that_do_not_fit(x, y):
    return x @ y


@exceptions(lambda: [(floats(3),), (-floats(3).abs(),)])
def raises_by_itself(x):
    if x.sum() < 0:
        raise ValueError("the sum is negative")
    return x.sqrt()


@exceptions(lambda: [(torch.tensor([7]), floats(4, 3))])
def index_out_of_range(i, x):
    return x[i]


@exceptions(lambda: [(floats(2, 3), floats(2, 4)), (floats(2, 3), floats(2, 3))])
def fails_then_runs(x, y):
    return x + y


PROGRAMS = [*outputs.list, *containers.list, *exceptions.list]
