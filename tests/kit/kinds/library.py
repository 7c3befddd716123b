"""Custom functions, transforms, compilers and subclasses of tensors."""

# Programs are written as users write them: their behaviour matters, not their style.

import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import corsac
from kit.kinds.driver import plain, program, t
from kit.kinds.modules import state_of


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
