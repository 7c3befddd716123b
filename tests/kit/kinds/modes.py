"""Modes, autograd, and what is of PyTorch."""

# Programs are written the way users write them: what they do matters, not how they say it.

import contextlib
import math
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import corsac
from kit.kinds.driver import _SETTING, plain, program, t
from kit.kinds.modules import state_of


@program("no_grad, enable_grad and inference_mode as blocks")
def _():
    def f(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
            flags = [torch.is_grad_enabled()]
        with torch.inference_mode():
            c = x.detach() * 4
        return (
            a,
            b,
            c.is_inference(),
            flags,
            torch.is_grad_enabled(),
            a.requires_grad,
            b.requires_grad,
        )

    return f, [(t(2),), (t(2),), (t(3),)]


@program("no_grad and inference_mode as decorators")
def _():
    @torch.no_grad()
    def g(x):
        return x * 2

    @torch.inference_mode()
    def h(x):
        return x.clone() * 3

    @torch.enable_grad()
    def k(x):
        return x * 4

    def f(x):
        return g(x), k(x), h(x.detach()).sum().item(), torch.is_grad_enabled()

    return f, [(t(2),), (t(2),), (t(3),)]


@program("a compiled function under no_grad as a decorator")
def _():
    @torch.no_grad()
    def f(x):
        return x * 2, torch.is_grad_enabled()

    return f, [(t(2),), (t(2),), (t(3),)]


@program("set_grad_enabled that outlives the call")
def _():
    def f(x, on):
        torch.set_grad_enabled(on)
        return x * 2

    def go(on):
        def call(run):
            before = torch.is_grad_enabled()
            try:
                y = run(t(2), on)
                return y, torch.is_grad_enabled()
            finally:
                torch.set_grad_enabled(before)

        return call

    return f, [go(True), go(False), go(True), go(False)]


@program("set_grad_enabled with a computed flag")
def _():
    def f(x, flag):
        with torch.set_grad_enabled(flag and x.shape[0] > 2):
            y = x * 2
        return y, y.requires_grad

    return f, [(t(2), True), (t(3), True), (t(3), False), (t(2), True)]


@program("calls in other modes of gradients")
def _():
    def f(x):
        return x * 2, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def no(run):
        with torch.no_grad():
            return run(t(2))

    def inference(run):
        with torch.inference_mode():
            return run(t(2))

    def yes(run):
        with torch.enable_grad():
            return run(t(2))

    return f, [(t(2),), no, inference, yes, (t(2),)]


@program("inputs that were made in inference mode")
def _():
    def f(x):
        return x * 2 + 1

    def inference(run):
        with torch.inference_mode():
            x = torch.ones(2)
        with torch.no_grad():
            return run(x)

    return f, [(t(2),), inference, (t(2),), inference]


@program("autocast in the program and around it")
def _():
    lin = nn.Linear(3, 3)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = lin(x)
            with torch.autocast("cpu", enabled=False):
                z = lin(x)
        return y, z, y.dtype, torch.is_autocast_enabled("cpu")

    def around(run):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run(t(2, 3))

    def g(x):
        return f(x), lin(x)

    return g, [(t(2, 3),), around, (t(2, 3),), (t(4, 3),)]


@program("autocast as a decorator")
def _():
    lin = nn.Linear(3, 3)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def f(x):
        return lin(x), torch.get_autocast_dtype("cpu")

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("the default dtype, which changes between calls")
def _():
    def f(x):
        return (
            x + torch.ones(2, dtype=x.dtype),
            torch.tensor([1.5]),
            torch.zeros(1).dtype,
            torch.arange(3) / 2,
        )

    def in_double(run):
        torch.set_default_dtype(torch.float64)
        try:
            return run(plain(2))
        finally:
            torch.set_default_dtype(torch.float32)

    return f, [(t(2),), in_double, (t(2),), in_double]


@program("the default dtype, which the program changes")
def _():
    def f(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)
        torch.set_default_dtype(torch.float32)
        return x * 2, y, torch.get_default_dtype()

    return f, [(t(2),), (t(2),), (t(3),)]


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


@program("a custom autograd function")
def _():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.k * 2 + x * 0, None

    def f(x, k):
        return Scale.apply(x, k) + 1

    x = t(2)
    return f, [(x, 2), (x, 3.5), (t(3), 2), (x, 2)]


@program("a custom autograd function with setup_context and many results")
def _():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(x, y):
            return x * y, x + y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx, g, _):
            x, y = ctx.saved_tensors
            return g * y, g * x * 3

    def f(x, y):
        a, b = Two.apply(x, y)
        return a, b

    return f, [(t(2), t(2)), (t(2), t(2)), (t(3), t(3))]


@program("checkpoints")
def _():
    lin = nn.Linear(3, 3)

    def part(x, k):
        return torch.sin(lin(x)) * k

    def f(x):
        y = checkpoint(part, x, 2, use_reentrant=False)
        return y + 1

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)], state_of(lin)


@program("checkpoints with dropout")
def _():
    def part(x):
        return F.dropout(x, 0.5) * 2

    def f(x):
        return checkpoint(part, x, use_reentrant=False)

    return f, [(t(4),), (t(4),), (t(5),)]


@program("torch.func.grad, vmap, jacrev and vjp")
def _():
    def loss(w, x):
        return (w * x).pow(2).sum()

    def f(w, x):
        g = torch.func.grad(loss)(w, x)
        per = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, torch.stack([x, x * 2]))
        j = torch.func.jacrev(lambda v: v**2)(x)
        out, back = torch.func.vjp(torch.sin, x)
        v, aux = torch.func.grad_and_value(loss)(w, x)
        return g, per, j, out, back(torch.ones_like(x))[0], v, aux

    return f, [(plain(2), plain(2)), (plain(2), plain(2)), (plain(3), plain(3))]


@program("vmap with in_dims, out_dims, random numbers and nesting")
def _():
    def f(x, y):
        a = torch.vmap(lambda v: v * 2)(x)
        b = torch.vmap(lambda v, w: v @ w, in_dims=(0, None))(x, y)
        c = torch.vmap(lambda v: v.sum(), in_dims=1)(x)
        d = torch.vmap(torch.vmap(torch.sin))(x)
        e = torch.vmap(lambda v: (v, v + 1), out_dims=(0, 1))(x)
        return a, b, c, d, e

    return f, [(t(2, 3), t(3)), (t(2, 3), t(3)), (t(4, 3), t(3))]


@program("torch.func.jvp and hessian")
def _():
    def f(x):
        out, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
        h = torch.func.hessian(lambda v: (v**3).sum())(x)
        return out, tangent, h

    return f, [(plain(2),), (plain(2),), (plain(3),)]


@program("torch.cond on a flag and on a value")
def _():
    def f(x):
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))

    return f, [(torch.ones(2),), (-torch.ones(2),), (torch.ones(2),), (torch.ones(3),)]


@program("while_loop and scan of higher order")
def _():
    from torch._higher_order_ops.while_loop import while_loop

    def f(x):
        n = torch.zeros((), dtype=torch.int64)
        n, y = while_loop(lambda n, v: n < 3, lambda n, v: (n + 1, v * 2), (n, x))
        return n, y

    return f, [(plain(2),), (plain(2),), (plain(3),)]


@program("flex_attention, and scaled_dot_product_attention with a backend")
def _():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            a = F.scaled_dot_product_attention(q, q, q)
        return a, F.scaled_dot_product_attention(q, q, q, is_causal=True)

    return f, [(t(1, 2, 3, 4),), (t(1, 2, 3, 4),), (t(1, 2, 5, 4),)]


@program("nested compiled functions")
def _():
    n = 0

    @torch.compile(backend="eager")
    def inner(x):
        nonlocal n
        n += 1
        return x * 2

    def f(x):
        return inner(x) + 1

    return f, [(t(2),), (t(2),), (t(3),)], lambda: n


@program("functions that corsac compiles, in one that it compiles")
def _():
    log = []

    def make(k):
        def g(x):
            log.append(k)
            return x * k

        return corsac.compile(g)

    gs = [make(2), make(3)]

    def f(x):
        for g in gs:
            x = g(x)
        return x

    return f, [(t(2),), (t(2),), (t(3),)], lambda: log


@program("torch.compiler.disable and graph breaks in odd places")
def _():
    log = []

    @torch.compiler.disable
    def off(x):
        log.append("off")
        return x.sin()

    def f(x):
        xs = []
        for i in range(2):
            with contextlib.nullcontext():
                xs.append(off(x) * i)
        try:
            torch._dynamo.graph_break()
            y = off(x)
        finally:
            log.append("finally")
        return xs, {k: off(y) for k in "ab"}, [off(v) for v in xs]

    return f, [(t(2),), (t(2),), (t(3),)], lambda: log


@program("graph breaks in generators, comprehensions and lambdas")
def _():
    def gen(x):
        yield x
        torch._dynamo.graph_break()
        yield x * 2

    def f(x):
        a = sum(gen(x))
        b = sorted([1, 2], key=lambda n: torch._dynamo.graph_break() or -n)
        c = [torch._dynamo.graph_break() or v for v in x]
        return a, b, c

    return f, [(t(2),), (t(2),), (t(3),)]


@program("is_compiling, and questions about the compiler")
def _():
    def f(x):
        return (
            x + 1,
            torch.jit.is_scripting(),
            torch.jit.is_tracing(),
            torch._C._get_tracing_state() is None,
        )

    return f, [(t(2),), (t(2),), (t(3),)]


@program("allow_in_graph and assume_constant_result")
def _():
    @torch.compiler.assume_constant_result
    def const():
        return 3

    def g(x):
        return x * 2

    torch.compiler.allow_in_graph(g)

    def f(x):
        return g(x) + const()

    return f, [(t(2),), (t(2),), (t(3),)]


@program("a subclass of Tensor")
def _():
    class Mine(torch.Tensor):
        tag = "mine"

        def doubled(self):
            return self * 2

    def f(x):
        m = x.as_subclass(Mine)
        y = m.doubled() + 1
        return type(y).__name__, y.as_subclass(torch.Tensor), isinstance(m, Mine), m.tag

    return f, [(t(2),), (t(2),), (t(3),)]


@program("__torch_function__ of a subclass and of an object")
def _():
    log = []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, kinds, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, kinds, args, kwargs or {})

    class Like:
        def __init__(self, v):
            self.v = v

        @classmethod
        def __torch_function__(cls, func, kinds, args=(), kwargs=None):
            return func(*[a.v if isinstance(a, Like) else a for a in args], **(kwargs or {}))

    def f(x):
        m = x.detach().as_subclass(Mine)
        return torch.add(Like(x), 1), (m * 2).as_subclass(torch.Tensor)

    return f, [(t(2),), (t(2),), (t(3),)], lambda: log


@program("a TorchFunctionMode in the program and around it")
def _():
    class Doubled(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, kinds, args=(), kwargs=None):
            if func is torch.sin:
                return func(*args) * 2
            return func(*args, **(kwargs or {}))

    def f(x):
        with Doubled():
            y = torch.sin(x)
        return y, torch.sin(x)

    def around(run):
        with Doubled():
            return run(t(2))

    return f, [(t(2),), around, (t(2),), around]


@program("attributes of tensors")
def _():
    def f(x):
        x.tag = getattr(x, "tag", 0) + 1
        y = x * 2
        y.info = {"k": 1}
        return y, x.tag

    x = t(2)
    return f, [(x,), (x,), lambda run: run(t(2)), (x,)]


@program("parameters, requires_grad_ and detach of intermediates")
def _():
    def f(x):
        p = nn.Parameter(torch.ones(2))
        y = x.detach().requires_grad_()
        z = (x * 2).detach()
        return x + p, y, z, p, y.requires_grad, isinstance(p, nn.Parameter), p.is_leaf

    return f, [(t(2),), (t(2),), (t(2),)]


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
