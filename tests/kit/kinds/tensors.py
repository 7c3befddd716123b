"""Properties of tensors, views and writes, data-dependent control flow, random numbers and NumPy."""

# Programs are written as users write them: their behaviour matters, not their style.

import math
import random

import numpy as np
import torch
import torch.nn.functional as F

from kit.kinds.driver import plain, program, t


@program("questions about tensors")
def _():
    def f(x):
        return (
            x.shape, x.size(), x.size(0), x.dim(), x.ndim, x.numel(), x.nelement(), x.dtype, x.device, x.layout, x.stride(), x.is_contiguous(),
            x.storage_offset(), x.element_size(), x.itemsize, x.is_floating_point(), x.is_complex(), len(x), x.device.type, x.is_sparse, x.is_cuda, x.T.shape, x.names,
            torch.is_tensor(x), torch.is_floating_point(x), torch.finfo(x.dtype).eps, torch.iinfo(torch.int8).max, x.shape[1:], x.shape.numel(), x.get_device(), x.grad_fn is None, x.is_leaf,
            torch.promote_types(x.dtype, torch.int64), torch.result_type(x, 1), torch.can_cast(x.dtype, torch.int32), x.is_signed(), x.nbytes, x.shape == (2, 3), torch.Size([2]) + x.shape,
        ), x + 1  # fmt: skip

    return f, [(t(2, 3),), (t(3, 2).T,), (t(4, 3)[1:],), (t(2, 3).double(),), (t(2, 3),)]


@program("requires_grad that decides")
def _():
    def f(x):
        if x.requires_grad:
            return x * 2
        return x * 3

    return f, [(t(2),), (plain(2),), (t(2),)]


@program("is_contiguous and memory formats that decide")
def _():
    def f(x):
        if x.is_contiguous():
            return x * 2
        if x.is_contiguous(memory_format=torch.channels_last):
            return x * 3
        return x.contiguous() * 4

    x = t(2, 3, 4, 4)
    return f, [(x,), (x.contiguous(memory_format=torch.channels_last),), (x.transpose(1, 2),), (x,)]


@program("dtypes that decide")
def _():
    def f(x):
        if x.dtype in (torch.float16, torch.bfloat16):
            return x.float() * 2
        if not x.is_floating_point():
            return x + 1
        return x.to(torch.float64) if x.dtype != torch.float64 else x.type(torch.float32)

    return f, [(t(2),), (plain(2).bfloat16(),), (torch.arange(2),), (plain(2).double(),), (t(2),)]


@program("inputs that are written to in place")
def _():
    def f(x, y):
        x.add_(1)
        x[0] = y[1]
        x.mul_(y)
        return x.sum(), x

    return f, [
        lambda run: run(plain(3), plain(3)),
        lambda run: run(plain(3), plain(3)),
        lambda run: run(plain(4), plain(4)),
        lambda run: (lambda v: run(v, v))(plain(3)),
    ]


@program("views of inputs that are written to")
def _():
    def f(x):
        v = x.view(-1)[1:]
        v.zero_()
        w = x.t()
        w[0] += 5
        return v, w, x.sum()

    return f, [
        lambda run: run(plain(2, 3)),
        lambda run: run(plain(2, 3)),
        lambda run: run(plain(4, 2)),
    ]


@program("two inputs that share memory")
def _():
    def f(x, y):
        x.add_(1)
        return y * 2

    def shared(run):
        base = plain(4)
        return run(base[:3], base[1:])

    def apart(run):
        return run(plain(3), plain(3))

    return f, [apart, shared, apart, shared]


@program("results that are views of inputs and of each other")
def _():
    def f(x):
        y = x + 1
        return (
            x,
            x.view(-1),
            x[0],
            y,
            y.t(),
            y[:, 1:],
            (y, y.detach()),
            x.expand(2, *x.shape),
            x.detach(),
        )

    return f, [(t(2, 3),), (t(2, 3),), (t(3, 3),)]


@program("results that are constants, weights and made things")
def _():
    w = torch.ones(3)

    def f(x):
        return x * 1, w, w[1:], torch.zeros(2), 3, None, "s", [w, w], torch.float32, x.shape

    return f, [(t(3),), (t(3),), (t(3),)], lambda: w


@program("a result that is written to by the caller")
def _():
    w = torch.ones(2)

    def f(x):
        y = x * w
        return y, torch.ones(2), torch.arange(2)

    def go(run):
        with torch.no_grad():
            y, one, two = run(plain(2))
            y.add_(100)
            one.add_(100)
            two.add_(100)
        return run(plain(2))

    return f, [go, go, go], lambda: w


@program("out= arguments, resize and set_")
def _():
    def f(x, out):
        torch.add(x, 1, out=out)
        y = torch.empty(0)
        torch.mul(x, 2, out=y)
        return out, y

    return f, [
        lambda run: run(plain(3), torch.empty(3)),
        lambda run: run(plain(3), torch.empty(0)),
        lambda run: run(plain(4), torch.empty(4)),
    ]


@program("slices, masks and ellipses that are assigned")
def _():
    def f(x, i):
        y = x.clone()
        y[i] = 0
        y[..., -1] = 1
        y[:, None, 0] += 2
        y[y > 1] = -1
        y[[0, 1], [1, 0]] = 9
        y[torch.tensor([True, False])] *= 2
        return y

    return f, [(t(2, 3), 0), (t(2, 3), 1), (t(2, 4), -1), (t(2, 3), slice(None))]


@program("values that decide, with state on every way")
def _():
    log = []

    def f(x):
        s = x.sum()
        log.append("start")
        if s > 0:
            log.append("up")
            return x * 2
        if (x == 0).all():
            log.append("zero")
            return x + 1
        log.append("down")
        return -x

    return (
        f,
        [
            (torch.ones(2),),
            (-torch.ones(2),),
            (torch.zeros(2),),
            (torch.ones(3),),
            (-torch.ones(2),),
        ],
        lambda: log,
    )


@program("loops whose end depends on values")
def _():
    def f(x):
        n = 0
        while x.abs().max() > 0.1 and n < 20:
            x = x / 2
            n += 1
        return x, n

    return f, [(torch.ones(2),), (torch.ones(2) * 8,), (torch.ones(3) * 0.01,), (torch.ones(2),)]


@program("item, tolist and int of tensors")
def _():
    def f(x, i):
        n = i.item()
        return (
            x * n,
            x.tolist(),
            int(x[0].round()),
            float(x.sum()),
            bool(i > 1),
            [v.item() for v in i.unsqueeze(0)],
            x[i],
            list(range(n)),
        )

    x = plain(4)
    return f, [
        (x, torch.tensor(1)),
        (x, torch.tensor(2)),
        (x, torch.tensor(3)),
        (plain(4), torch.tensor(1)),
    ]


@program("sizes that depend on values")
def _():
    def f(x):
        i = (x > 0).nonzero()
        y = x[x > 0]
        u, inv = torch.unique((x * 2).long(), return_inverse=True)
        return i, y * 2, y.shape[0], u, inv, torch.masked_select(x, x < 0)

    return f, [(plain(4),), (plain(4),), (torch.ones(3),), (-torch.ones(4),)]


@program("random numbers of every source")
def _():
    def f(x):
        a = torch.rand(2) + torch.randn_like(x) + torch.randint(0, 5, (2,))
        b = random.random() + random.randint(1, 5)
        c = float(np.random.rand())
        return (
            x + a,
            b,
            c,
            torch.randperm(4),
            F.dropout(x, 0.5),
            torch.bernoulli(torch.full((3,), 0.5)),
            torch.normal(0.0, 1.0, (2,)),
        )

    return f, [(t(2),), (t(2),), (t(2),)]


@program("seeds and generators in the program")
def _():
    def f(x, seed):
        torch.manual_seed(seed)
        a = torch.rand(2)
        g = torch.Generator().manual_seed(seed + 1)
        b = torch.rand(2, generator=g)
        random.seed(seed)
        return x + a, b, random.random(), torch.initial_seed()

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("fork_rng, and states of random numbers that are put back")
def _():
    def f(x):
        with torch.random.fork_rng():
            a = torch.rand(2)
        state = torch.get_rng_state()
        b = torch.rand(2)
        torch.set_rng_state(state)
        c = torch.rand(2)
        return x + a, b, c

    return f, [(t(2),), (t(2),), (t(3)[:2],)]


@program("a generator of random numbers as state")
def _():
    g = torch.Generator().manual_seed(7)
    r = random.Random(3)

    def f(x):
        return x + torch.rand(2, generator=g), r.random()

    return f, [(t(2),), (t(2),), (t(2),)], lambda: (g.get_state().sum().item(), hash(r.getstate()))


@program("NumPy arrays from and to tensors")
def _():
    def f(x):
        a = x.detach().numpy()
        b = np.sin(a) + np.arange(a.shape[0])
        return x + torch.from_numpy(b).float(), b.sum().item(), a.shape, a.dtype.name

    return f, [(t(2),), (t(2),), (t(3),)]


@program("NumPy arrays as arguments and results")
def _():
    def f(a, x):
        b = np.concatenate([a, a * 2])
        return b, torch.as_tensor(a) + x, a.mean()

    x = plain(3)
    return f, [
        (np.ones(3, np.float32), x),
        (np.arange(3, dtype=np.float32), x),
        (np.zeros(3, np.float64), x),
    ]


@program("NumPy numbers, dtypes and in-place changes")
def _():
    table = np.array([1.0, 2.0, 3.0])

    def f(x, i):
        table[i] += 1
        n = np.float32(2.5)
        return (
            x * float(table[i]),
            x * np.int64(2),
            np.prod(x.shape),
            n,
            np.sqrt(4.0),
            math.floor(np.float64(2.7)),
        )

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 0)], lambda: table
