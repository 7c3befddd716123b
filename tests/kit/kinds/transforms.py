"""Transforms, wrappers and modes between a program and its operators."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: E731

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from kit.kinds.driver import plain, program, t
from kit.kinds.modules import state_of


@program("functionalize")
def _():
    def f(x):
        return torch.func.functionalize(lambda v: v.clone().add_(1))(x)

    return f, [(plain(2, 3),), (plain(2, 3),), (plain(4, 3),)]


@program("forward-mode derivatives by dual numbers")
def _():
    import torch.autograd.forward_ad as forward

    def f(x):
        with forward.dual_level():
            dual = forward.make_dual(x.detach(), torch.ones_like(x))
            value, tangent = forward.unpack_dual(dual.sin())
            return value * 1, tangent * 1

    return f, [(t(2),), (t(2),), (t(3),)]


@program("jvp of a module")
def _():
    lin = nn.Linear(3, 3)

    def f(x):
        return torch.func.jvp(lin, (x,), (torch.ones_like(x),))

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("linearize")
def _():
    def f(x):
        out, push = torch.func.linearize(torch.sin, x)
        return out, push(torch.ones_like(x))

    return f, [(plain(3),), (plain(3),), (plain(4),)]


@program("jacobians of torch.autograd.functional")
def _():
    def f(x):
        return torch.autograd.functional.jacobian(lambda v: v**2, x.detach()) + x

    return f, [(t(3),), (t(3),), (t(4),)]


@program("hessians of torch.autograd.functional")
def _():
    def f(x):
        return torch.autograd.functional.hessian(lambda v: (v**3).sum(), x.detach()), x * 2

    return f, [(t(3),), (t(3),), (t(4),)]


@program("a penalty of gradients inside of the program")
def _():
    def f(x):
        with torch.enable_grad():
            v = x.detach().requires_grad_()
            (g,) = torch.autograd.grad((v**3).sum(), v, create_graph=True)
            (g**2).sum().backward()
        return v.grad + x

    return f, [(t(3),), (t(3),), (t(4),)]


@program("an ensemble of models by stack_module_state and vmap")
def _():
    models = [nn.Linear(3, 2) for _ in range(3)]

    def f(x):
        params, buffers = torch.func.stack_module_state(models)
        call = lambda p, b, v: torch.func.functional_call(models[0], (p, b), (v,))
        return torch.vmap(call, in_dims=(0, 0, None))(params, buffers, x)

    def change(run):
        with torch.no_grad():
            models[1].weight.zero_()

    return f, [(plain(2, 3),), (plain(2, 3),), change, (plain(4, 3),)]


@program("vmap of a branch by torch.cond")
def _():
    def one(v):
        return torch.cond(v.sum() > 0, lambda u: u + 1, lambda u: u - 1, (v,))

    return lambda x: torch.vmap(one)(x), [(plain(2, 3),), (plain(2, 3),), (plain(4, 3),)]


@program("vmap with random numbers and with writes in place")
def _():
    def f(x):
        a = torch.vmap(lambda v: v + torch.rand(3), randomness="different")(x)
        b = torch.vmap(lambda v: v + torch.rand(3), randomness="same")(x)
        return a, b, torch.vmap(lambda v: v.clone().add_(1))(x)

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("vmap that asks for a value")
def _():
    def f(x):
        try:
            return torch.vmap(lambda v: v.sum().item())(x)
        except RuntimeError as error:
            return x * 2, "vmap" in str(error)

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("side effects in functions that are transformed")
def _():
    log = []

    def loss(v):
        log.append(tuple(v.shape))
        return (v**2).sum()

    def f(x):
        return torch.func.grad(loss)(x), torch.vmap(loss)(x), len(log)

    return f, [(plain(2, 3),), (plain(2, 3),), (plain(4, 3),)], lambda: log


@program("flex_attention with a score function and a mask")
def _():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 8, 8, device="cpu")

    def f(q):
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)), flex_attention(
            q, q, q, block_mask=mask
        )

    return f, [(plain(1, 2, 8, 4),), (plain(1, 2, 8, 4),), (plain(2, 2, 8, 4),)]


@program("map of higher order")
def _():
    from torch._higher_order_ops.map import map as map_rows

    def f(x):
        return map_rows(lambda v, k: v * k, x, x.sum())

    return f, [(plain(2, 3),), (plain(2, 3),), (plain(4, 3),)]


@program("scan of higher order")
def _():
    from torch._higher_order_ops.scan import scan

    def f(x):
        return scan(lambda c, v: (c + v, c * v), torch.zeros(3), x)

    return f, [(plain(2, 3),), (plain(2, 3),), (plain(4, 3),)]


class Doubling(torch.Tensor):
    """A wrapper of a tensor that doubles results of operators."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, strides=inner.stride()
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, kinds, args=(), kwargs=None):
        out = func(*[a.inner if isinstance(a, Doubling) else a for a in args], **(kwargs or {}))
        return Doubling(out * 2) if isinstance(out, torch.Tensor) else out


@program("a wrapper subclass that is made in the program")
def _():
    def f(x):
        return (Doubling(x.detach()) + 1).inner

    return f, [(t(2),), (t(2),), (t(3),)]


@program("nested tensors with strides")
def _():
    def f(x):
        n = torch.nested.nested_tensor([x[0].detach(), x[1, :2].detach()])
        return n.to_padded_tensor(0.0), n.is_nested, x * 2

    return f, [(t(2, 3),), (t(2, 3),), (t(3, 4),)]


@program("jagged nested tensors")
def _():
    def f(x):
        n = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 2]))
        return (n * 2).values()

    return f, [(t(2, 3),), (t(2, 3),), (t(2, 4),)]


@program("named tensors")
def _():
    def f(x):
        v = x.detach()
        n = v.rename("a", "b")
        return x * 2, n.sum("b").rename(None), n.names

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("distributions: samples and log probabilities")
def _():
    def f(x):
        d = torch.distributions.Normal(x, 1.0)
        s = d.rsample()
        return (
            s,
            d.log_prob(s),
            torch.distributions.Categorical(logits=x.detach()).sample(),
            torch.distributions.kl_divergence(d, torch.distributions.Normal(0.0, 1.0)),
        )

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("torch.jit.trace in the program")
def _():
    def f(x):
        return torch.jit.trace(lambda v: v * 2, (x.detach(),))(x)

    return f, [(t(2),), (t(2),), (t(3),)]


@program("symbolic_trace, make_fx and export in the program")
def _():
    from torch.fx.experimental.proxy_tensor import make_fx

    lin = nn.Linear(3, 3)

    def f(x):
        v = x.detach()
        return torch.fx.symbolic_trace(lin)(x), make_fx(lambda u: u * 2)(v)(v)

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("fake tensors in the program")
def _():
    from torch._subclasses import FakeTensorMode

    w = torch.ones(3, 4)

    def f(x):
        with FakeTensorMode() as mode:
            shape = tuple((mode.from_tensor(x.detach()) @ mode.from_tensor(w)).shape)
        return x * 2, shape

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("modes that count operators in the program")
def _():
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Count(TorchDispatchMode):
        n = 0

        def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
            self.n += 1
            return func(*args, **(kwargs or {}))

    def f(x):
        with Count() as count:
            y = x * 2 + 1
        with FlopCounterMode(display=False) as flops:
            z = y @ y.t()
        return z, count.n, flops.get_total_flops()

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("questions of torch.overrides")
def _():
    def f(x):
        return (
            x * 2,
            torch.overrides.is_tensor_like(x),
            torch.overrides.has_torch_function((x,)),
            torch.is_storage(x),
        )

    return f, [(t(2),), (t(2),), (t(3),)]


@program("several operators in autocast")
def _():
    lin = nn.Linear(3, 3)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = lin(x)
            z = F.softmax(y, -1)
            return y, z, torch.cat([x, y]), y.relu()

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("autocast with a flag, and around decisions")
def _():
    lin = nn.Linear(3, 3)

    def f(x, flag):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=flag):
            y = lin(x)
            if x.sum() > 0:
                return y, y.sum(), y * 2
            return y, y + x

    one = torch.ones(2, 3)
    return f, [(one, True), (one, False), (-one, True), (one, True), (-one, False)]


@program("autocast of other dtypes, one after the other")
def _():
    w = torch.ones(3, 3)

    def f(x):
        a = x @ w
        with torch.autocast("cpu", dtype=torch.float16):
            b = x @ w
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = x @ w
        return a, b, c, b.float() + c.float(), a.sum()

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("gradients of a function of which only the second result is used")
def _():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x + 1

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 if g is not None else h * 5

    return lambda x: Two.apply(x)[1], [(t(2),), (t(2),), (t(3),)]


@program("a function with a backward that writes to its argument")
def _():
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx, g):
            return g * 3

    def f(x):
        y = x * 1
        return Add.apply(y)

    return f, [(t(2),), (t(2),), (t(3),)]


@program("checkpoints that are reentrant, and of sequences")
def _():
    from torch.utils.checkpoint import checkpoint_sequential

    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))

    def f(x):
        return checkpoint(lambda v: net(v), x, use_reentrant=True), checkpoint_sequential(
            net, 2, x, use_reentrant=False
        )

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)], state_of(net)


@program("in-place shapes, and other memory for a tensor")
def _():
    def f(x):
        y = x.detach().clone()
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_()
        z = x.detach().clone()
        z.data = z.data * 2
        z.set_(torch.ones(4))
        u = x.clone()
        u.detach_()
        return y, z, u + 1, x * 2

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("views of intermediates that are written to, with gradients")
def _():
    def f(x):
        y = x * 1
        v = y[0]
        v.mul_(3)
        a, b = x.unbind(0)
        c = a.clone()
        c += b
        with torch.no_grad():
            z = x.clone()
            z.add_(1)
        return y, v, c, a * b, z * x

    return f, [(t(2, 3),), (t(2, 3),), (t(2, 4),)]


@program("anomaly detection, save_on_cpu and multithreading flags")
def _():
    def f(x):
        with (
            torch.autograd.set_detect_anomaly(True, check_nan=False),
            torch.autograd.graph.save_on_cpu(),
        ):
            y = (x * x).sin()
        with torch.autograd.set_multithreading_enabled(False):
            return y + 1

    return f, [(t(2),), (t(2),), (t(3),)]


@program("dlpack, buffers of bytes and arrays of tensors")
def _():
    def f(x):
        v = x.detach()
        return (
            torch.from_dlpack(v) + 1,
            torch.frombuffer(bytearray(b"\x00\x00\x80?"), dtype=torch.float32) + x,
            v.__array__().shape,
        )

    return f, [(t(2),), (t(2),), (t(3),)]


@program("tensors that are made of tensors and of lists")
def _():
    def f(x):
        v = x.detach()
        return (
            torch.tensor([each.sum() for each in v]),
            torch.tensor([v[0, 0], 2.0]),
            torch.tensor(v.tolist()) + x,
            torch.tensor([[]]).shape,
        )

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),), (t(2, 3),)]


@program("operators of torch.ops.aten, and of lists of tensors")
def _():
    def f(x):
        return (
            torch.ops.aten.add.Tensor(x, 1),
            torch._foreach_add([x, x], 1),
            torch.ops.aten.sin(x),
            torch.ops.aten.native_layer_norm(x, [3], None, None, 1e-5)[0],
        )

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]
