"""Values and operators of every kind, and other uses of PyTorch and Python."""

# Programs are written as users write them: their behaviour matters, not their style.

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

from kit.kinds.driver import _SETTING, plain, program, t


@program("complex numbers")
def _():
    def f(x):
        c = torch.complex(x, x * 2)
        return (
            c.abs(),
            c.real,
            c * (1 + 2j),
            torch.view_as_real(c),
            c.conj().imag,
            c.is_conj(),
            torch.fft.fft(x).abs(),
        )

    return f, [(t(2),), (t(2),), (t(3),)]


@program("sparse tensors")
def _():
    def f(x):
        s = x.detach().to_sparse()
        return (s @ x.detach().t()).sum(), s.is_sparse, s.to_dense() + x, s.layout

    return f, [(t(2, 3),), (t(2, 3),), (t(3, 3),)]


@program("numbers of every kind as arguments")
def _():
    def f(x, n):
        return x * n, type(n).__name__, n == 1, n

    x = t(2)
    return f, [
        (x, 1),
        (x, 1.0),
        (x, True),
        (x, np.float32(1)),
        (x, 1),
        (x, 2),
        (x, -0.0),
        (x, 0.0),
        (x, math.nan),
    ]


@program("nan, infinity and negative zero that decide")
def _():
    def f(x, v):
        if math.isnan(v):
            return x * 0
        if v == math.inf:
            return x + 1
        return x * math.copysign(1, v)

    x = t(2)
    return f, [(x, math.nan), (x, math.nan), (x, math.inf), (x, 0.0), (x, -0.0), (x, 0.0)]


@program("sizes that decide, are printed and are computed with")
def _():
    def f(x):
        b, n = x.shape
        if b * n > 8 and b % 2 == 0:
            y = x.reshape(b // 2, 2 * n)
        elif n > b:
            y = x.t()
        else:
            y = x[: b - 1]
        return (
            y * 2,
            b + n,
            math.ceil(n / 2),
            [b] * n,
            max(b, n),
            f"{b}x{n}",
            float(b),
            b**2,
            -b,
            (b, n) == (2, 3),
        )

    return f, [(t(2, 3),), (t(4, 3),), (t(6, 3),), (t(3, 2),), (t(5, 2),), (t(1, 1),), (t(0, 3),)]


@program("empty tensors and sizes of one")
def _():
    def f(x):
        return (
            x.sum(0),
            x.mean(),
            torch.cat([x, x]),
            x.unsqueeze(0).squeeze(),
            x.numel() == 0,
            x.max() if x.numel() else None,
        )

    return f, [(t(2, 3),), (t(0, 3),), (t(1, 3),), (t(1, 1),), (t(2, 0),)]


@program("tensors made of arguments")
def _():
    def f(x, n):
        return (
            torch.tensor([n, 2]), torch.full((2,), n), torch.arange(n), torch.zeros(n, 2), x.new_ones(n), torch.eye(n), torch.linspace(0, 1, n), torch.tensor(x.shape), torch.tensor([x.shape[0] * 1.5]), x.new_tensor([1, 2]),
            torch.as_tensor([1.5]), torch.empty(n, 0).shape, torch.full_like(x, n), torch.scalar_tensor(n),
        )  # fmt: skip

    return f, [(t(2), 1), (t(2), 3), (t(3), 2), (t(2), 0)]


@program("stack, split, chunk, unbind and iteration of tensors")
def _():
    def f(x, n):
        parts = x.chunk(n)
        a, *rest = x.split(1)
        total = 0
        for i, row in enumerate(x):
            total = total + row * i
        return (
            torch.cat(parts),
            a,
            len(rest),
            total,
            torch.stack(list(x.unbind(0))),
            [r.sum() for r in reversed(x)],
            sum(x),
            list(map(torch.neg, x)),
        )

    return f, [(t(4, 2), 2), (t(3, 2), 2), (t(6, 2), 3), (t(1, 2), 1)]


@program("einsum, tensordot, broadcast and meshgrid")
def _():
    def f(x, eq):
        a, b = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
        return (
            torch.einsum(eq, x, x),
            torch.tensordot(x, x, dims=([1], [1])),
            torch.broadcast_tensors(x, torch.ones(1, 3))[1],
            a,
            b,
        )

    return f, [
        (t(2, 3), "ij,ij->i"),
        (t(2, 3), "ij,kj->ik"),
        (t(4, 3), "ij,ij->"),
        (t(2, 3), "ij,ij->i"),
    ]


@program("sort, topk, max with indices and where")
def _():
    def f(x, k):
        v, i = x.sort(descending=True)
        top = x.topk(k)
        m = x.max(dim=-1)
        return (
            v,
            i,
            top.values,
            top.indices,
            m.values,
            torch.where(x > 0, x, 0.0),
            m[1],
            type(top).__name__,
            x.argmax(),
        )

    return f, [(t(2, 4), 2), (t(2, 4), 3), (t(3, 4), 1), (t(2, 4), 9)]


@program("torch.set_num_threads, deterministic flags and printing options")
def _():
    def f(x):
        if torch.are_deterministic_algorithms_enabled():
            return x * 2
        return x * 3, torch.get_num_threads()

    def on(run):
        torch.use_deterministic_algorithms(True)
        try:
            return run(t(2))
        finally:
            torch.use_deterministic_algorithms(False)

    return f, [(t(2),), on, (t(2),), on]


@program("default devices and device objects")
def _():
    def f(x, dev):
        y = torch.ones(2, device=dev)
        z = x.to(device=dev, dtype=torch.float64)
        return (
            y + x,
            z,
            torch.device(dev),
            x.device == torch.device("cpu"),
            torch.device("cpu", 0).index,
        )

    x = t(2)

    def meta(run):
        with torch.device("meta"):
            return run(x, "cpu")

    return f, [(x, "cpu"), (x, torch.device("cpu")), meta, (x, "cpu")]


@program("tree_map and pytrees of user classes")
def _():
    from torch.utils import _pytree as pytree

    def f(x, tree):
        flat, spec = pytree.tree_flatten(tree)
        return (
            pytree.tree_map(lambda v: v * 2 if isinstance(v, torch.Tensor) else v, tree),
            len(flat),
            pytree.tree_unflatten(flat[::-1], spec),
        )

    x = t(2)
    return f, [(x, {"a": x, "b": [x, 1]}), (x, (x,)), (x, []), (x, {"a": x, "b": [x, 2]})]


@program("torch.profiler, record_function and timing")
def _():
    import time

    def f(x):
        start = time.perf_counter()
        with torch.profiler.record_function("part"):
            y = x * 2
        took = time.perf_counter() - start
        return y, took >= 0

    return f, [(t(2),), (t(2),), (t(3),)]


@program("os.environ, sys and platform questions")
def _():
    import os

    def f(x):
        flag = os.environ.get("KINDS_FLAG", "0")
        if flag == "1":
            return x * 2, os.getenv("KINDS_FLAG")
        return (
            x * 3,
            sys.version_info >= (3, 9),
            os.path.join("a", "b"),
            sys.platform,
            "torch" in sys.modules,
        )

    def on(run):
        os.environ["KINDS_FLAG"] = "1"

    def off(run):
        os.environ.pop("KINDS_FLAG", None)

    return f, [(t(2),), on, (t(2),), off, (t(2),)]


@program("math functions of numbers and sizes")
def _():
    def f(x, n):
        return (
            x * math.sqrt(x.shape[0]) + math.pi,
            math.floor(n),
            math.prod(x.shape),
            math.isclose(n, 1.0),
            math.log2(8),
            math.gcd(6, x.shape[0]),
            round(n, 1),
            n // 1,
            n % 0.5,
            math.comb(4, 2),
            abs(-n),
            pow(2, 3, 5),
        )

    return f, [(t(2), 1.0), (t(2), 2.55), (t(3), 0.5), (t(4), 1)]


@program("an import in the program")
def _():
    def f(x):
        import fractions
        from math import tau as full

        return x * full, str(fractions.Fraction(1, 3)), full

    return f, [(t(2),), (t(2),), (t(3),)]


@program("a function of torch that is patched between calls")
def _():
    sin = torch.sin

    def f(x):
        return torch.sin(x) + F.relu(x)

    def patched(run):
        torch.sin = lambda x: x * 100
        try:
            return run(t(2))
        finally:
            torch.sin = sin

    return f, [(t(2),), patched, (t(2),), patched]


@program("saved tensor hooks around the program")
def _():
    log = []

    def pack(v):
        log.append("pack")
        return v

    def f(x):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda v: v):
            return (x * x).sin()

    return f, [(t(2),), (t(2),), (t(3),)], lambda: len(log)


@program("retain_grad, grad_fn and leaves")
def _():
    def f(x):
        y = x * 2
        if y.requires_grad:
            y.retain_grad()
        return y + 1, x.is_leaf, y.is_leaf, y.grad_fn is None, type(y.grad_fn).__name__

    return f, [(t(2),), (plain(2),), (t(3),)]


@program("a double backward of the result")
def _():
    def f(x):
        return (x**3).sum()

    def go(run):
        x = plain(2).requires_grad_(_SETTING["grads"])
        y = run(x)
        if not _SETTING["grads"]:
            return y
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return g.detach(), h

    return f, [go, go, go]
