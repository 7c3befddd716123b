"""Equal expressions, numeric arguments, user-defined operators."""

# Programs are written as users write them: their behaviour matters, not their style.

import collections
import copy
import functools
import operator
import types

import torch
import torch.nn.functional as F
from torch import nn

import corsac
from kit.kinds.driver import plain, program, t
from kit.kinds.modules import state_of


@program("equal expressions that are objects of their own")
def _():
    def f(x):
        a, b = x + 1, x + 1
        c, d = torch.zeros(2), torch.zeros(2)
        e, g = x.clone(), x.clone()
        return a, b, c, d, e, g, x.view(-1), x.view(-1), torch.rand(2), torch.rand(2)

    return f, [(t(2),), (t(2),), (t(3),)]


@program("equal expressions, one of which is written to")
def _():
    def f(x):
        a = x * 2
        b = x * 2
        a.add_(1)
        c = torch.ones(2)
        c[0] = 5
        return a, b, c, torch.ones(2), x * 2

    return f, [(t(2),), (t(2),), (t(2),)]


@program("equal expressions with and without gradients")
def _():
    def f(x):
        with torch.no_grad():
            a = x.sin()
        b = x.sin()
        with torch.no_grad():
            c = x.sin()
        return a, b, c, a.requires_grad, b.requires_grad, b.detach()

    return f, [(t(2),), (t(2),), (t(3),)]


@program("equal expressions in and out of autocast")
def _():
    w = torch.ones(3, 3)

    def f(x):
        a = x @ w
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = x @ w
            with torch.autocast("cpu", enabled=False):
                c = x @ w
            d = x @ w
        return a, b, c, d, x @ w

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)]


@program("equal expressions around a change of the input")
def _():
    def f(x):
        a = x.sum()
        x.add_(1)
        b = x.sum()
        x.mul_(2)
        return a, b, x.sum()

    return f, [lambda run: run(plain(2)), lambda run: run(plain(2)), lambda run: run(plain(3))]


@program("equal expressions of random numbers under a seed")
def _():
    def f(x):
        torch.manual_seed(3)
        a = torch.rand(2)
        torch.manual_seed(3)
        b = torch.rand(2)
        return x + a, b, F.dropout(x, 0.5), F.dropout(x, 0.5)

    return f, [(t(2),), (t(2),), (t(2),)]


@program("integers among the arguments of operators")
def _():
    i = torch.arange(4)

    def f(x, n):
        return (
            x * n, x + n, n - x, x / n, x // n, x % n, x**n, n**x.detach().abs(), i * n, i / n, i // n, i % n, i + n, torch.where(x > 0, n, 0), torch.where(x > 0, x, n),
            torch.clamp(x, max=n), torch.clamp(i, 0, n), x > n, i == n, x.masked_fill(x > 0, n), torch.full((2,), n), torch.full((2,), n, dtype=torch.float64), x.new_full((2,), n),
            torch.tensor(n), torch.tensor([n, n + 1]), torch.tensor([n, 0.5]), torch.as_tensor(n), torch.arange(n), torch.arange(0, 2 * n, n), i.clone().fill_(n), torch.add(x, x, alpha=n), torch.pow(n, i), torch.fmod(i, n), torch.remainder(n, i + 1),
            i << n, i & n, i.to(torch.int8) * n, torch.ones(2, dtype=torch.int32) + n, torch.ones(2, dtype=torch.bool) * n, x.double() * n, x.bfloat16() * n, i.clamp_min(n), torch.maximum(i, torch.tensor(n)),
        )  # fmt: skip

    x = t(4)
    return f, [(x, 1), (x, 3), (x, 2), (x, 5)]


@program("sizes among the arguments of operators")
def _():
    i = torch.arange(4)

    def f(x):
        n = x.shape[0]
        return (
            x * n, n - x, x / n, x.sum() / n, i * n, i / n, i // n, torch.full((2,), n), torch.full((2,), n / 2), torch.tensor(n), torch.tensor([n, 0.5]), torch.arange(n), torch.ones(2, dtype=torch.int32) + n, torch.where(x > 0, n, 0),
            torch.full((n,), 1), x.new_full((2,), n), i.clone().fill_(n), torch.zeros(n, dtype=torch.long), i == n, x.masked_fill(x > 0, n), i.to(torch.int8) * n, torch.pow(i, n), torch.tensor(n).dtype, x.shape[0] * torch.ones(()),
        )  # fmt: skip

    return f, [(t(4),), (t(3),), (t(5),), (t(6),)]


@program("numbers of tensors among the arguments of operators")
def _():
    i = torch.arange(4)

    def f(x, v):
        n = v.item()
        return (
            x * n, n - x, i * n, i / n, torch.full((2,), n), torch.tensor(n), torch.where(x > 0, n, 0), torch.ones(2, dtype=torch.int32) + n, i == n, x.masked_fill(x > 0, n), x.new_full((2,), n), torch.clamp(x, max=n),
            i.to(torch.int8) * n, torch.tensor([n, 1]), torch.add(x, x, alpha=2), x.double() * n, n, type(n).__name__, -n, n * 2, n > 1, n / 2,
        )  # fmt: skip

    x = t(4)
    return f, [
        (x, torch.tensor(1)),
        (x, torch.tensor(3)),
        (x, torch.tensor(2)),
        (x, torch.tensor(1.5)),
        (x, torch.tensor(2.5)),
        (x, torch.tensor(7.0)),
    ]


@program("scalar_tensor of an integer that changes")
def _():
    return lambda x, n: (x * n, torch.scalar_tensor(n)), [(plain(2), n) for n in (1, 3, 2, 5)]


@program("floats that change, among arguments and attributes")
def _():
    a = types.SimpleNamespace(lr=0.1)
    i = torch.arange(3)

    def f(x, s):
        a.lr = a.lr * 0.5
        return (
            x * s + a.lr,
            i * s,
            torch.tensor(s),
            torch.full((2,), s),
            s * 2,
            int(s),
            s == 1.0,
            f"{s:.2f}",
        )

    x = t(3)
    return f, [(x, 1.0), (x, 2.5), (x, 3.5), (x, 1.0)], lambda: a.lr


@program("a counter of steps that is an attribute, with a schedule")
def _():
    class Sched:
        def __init__(self):
            self.step, self.lr = 0, 1.0

    s = Sched()

    def f(x):
        s.step += 1
        if s.step % 3 == 0:
            s.lr *= 0.1
        return x * s.lr + s.step, s.step

    return f, [(t(2),), (t(2),), (t(2),), (t(2),), (t(2),)], lambda: s


@torch.library.custom_op("kinds::scaled", mutates_args=())
def scaled_by(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k


@scaled_by.register_fake
def _(x, k):
    return torch.empty_like(x)


scaled_by.register_autograd(
    lambda ctx, g: (g * ctx.k, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]),
)


@torch.library.custom_op("kinds::write_to", mutates_args=("out",))
def write_to(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x * 3)


@program("an operator of the user")
def _():
    def f(x, k):
        return scaled_by(x, k) + torch.ops.kinds.scaled(x, 2.0)

    return f, [(t(2), 2.0), (t(2), 3.0), (t(3), 2.0)]


@program("an operator of the user that writes to its argument")
def _():
    def f(x, out):
        write_to(x, out)
        y = torch.zeros(2)
        write_to(x, y)
        return out + 1, y

    return f, [
        lambda run: run(plain(2), plain(2)),
        lambda run: run(plain(2), plain(2)),
        lambda run: run(plain(2), plain(2)),
    ]


@program("map and associative_scan of higher order")
def _():
    from torch._higher_order_ops import associative_scan

    def f(x):
        return associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")

    return f, [(plain(3),), (plain(3),), (plain(4),)]


@program("torch.cond in a module, on a flag of Python and on a size")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            return torch.cond(x.shape[0] > 2, lambda v: self.lin(v), lambda v: v * 2, (x,))

    return M(), [(t(2, 3),), (t(3, 3),), (t(2, 3),)]


@program("assertions of PyTorch, and torch._check")
def _():
    def f(x):
        torch._check(x.shape[0] > 1)
        torch._assert(x.dim() == 1, "one dimension")
        torch._assert_async((x == x).all())
        return x * 2

    return f, [(t(2),), (t(3),), (t(1),), (t(2, 2),), (t(2),)]


@program("packed sequences and padding")
def _():
    from torch.nn.utils import rnn

    gru = nn.GRU(3, 4, batch_first=True)

    def f(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, h = gru(packed)
        padded, n = rnn.pad_packed_sequence(out, batch_first=True)
        return padded, h, n, rnn.pad_sequence([x[0], x[1, :1]])

    x = t(2, 4, 3)
    return f, [(x, [4, 2]), (x, [3, 4]), (x, [4, 2]), (x, [1, 1])]


@program("embeddings, bags and one-hot numbers")
def _():
    emb, bag = nn.Embedding(5, 3, padding_idx=0), nn.EmbeddingBag(5, 3, mode="sum")

    def f(i):
        return emb(i), bag(i), F.one_hot(i, 5), F.embedding(i, emb.weight)[..., 0], i.max() < 5

    return f, [
        (torch.tensor([[1, 0]]),),
        (torch.tensor([[2, 4]]),),
        (torch.tensor([[2, 4, 1]]),),
        (torch.tensor([[7]]),),
    ]


@program("losses with reductions, weights and ignored classes")
def _():
    ce = nn.CrossEntropyLoss(
        weight=torch.tensor([1.0, 2.0, 3.0]), ignore_index=0, label_smoothing=0.1
    )

    def f(x, y, reduction):
        return (
            ce(x, y),
            F.nll_loss(x.log_softmax(1), y, reduction=reduction),
            F.smooth_l1_loss(x, torch.zeros(2, 3), reduction="none"),
        )

    x = t(2, 3)
    return f, [
        (x, torch.tensor([1, 2]), "mean"),
        (x, torch.tensor([0, 2]), "sum"),
        (x, torch.tensor([1, 1]), "none"),
        (x, torch.tensor([5, 1]), "sum"),
    ]


@program("interpolation, padding and unfolding with computed sizes")
def _():
    def f(x, s):
        h = int(x.shape[-1] * s)
        y = F.interpolate(x, size=(h, h), mode="bilinear", align_corners=False)
        z = F.pad(x, (1, h - x.shape[-1] if h > x.shape[-1] else 0), value=s)
        return y, z, x.unfold(-1, 2, 1), F.interpolate(x, scale_factor=s, mode="nearest")

    return f, [(t(1, 1, 4, 4), 2), (t(1, 1, 4, 4), 1.5), (t(1, 1, 6, 6), 2), (t(1, 1, 4, 4), 2)]


@program("gradients that are clipped, accumulated and zeroed")
def _():
    m = nn.Linear(3, 3)

    def go(run):
        with torch.enable_grad():
            for _ in range(2):
                run(t(2, 3)).pow(2).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        grads = [p.grad.clone() for p in m.parameters()]
        m.zero_grad()
        return norm, grads

    return m, [go, (t(2, 3),), go], state_of(m)


@program("results of which only some want gradients")
def _():
    w = torch.ones(3, requires_grad=True)

    def f(x, y):
        return x * w, y * 2, (x > 0), x.detach() + 1, y.argmax(), w * 1, x.sum().item() > 100

    return f, [(t(3), plain(3)), (plain(3), t(3)), (plain(3), plain(3))], lambda: w


@program("hooks on inputs and on parameters")
def _():
    log = []
    w = nn.Parameter(torch.ones(2))
    w.register_hook(lambda g: log.append("w") or g * 2)

    def f(x):
        return x * w

    def hooked(run):
        x = t(2)
        if x.requires_grad:
            x.register_hook(lambda g: log.append("x"))
        return run(x)

    return f, [(t(2),), hooked, hooked, (t(2),)], lambda: (log, w)


@program("module state that is changed by one of two copies")
def _():
    a = nn.Linear(2, 2)
    b = copy.deepcopy(a)

    def f(x, which):
        m = a if which else b
        return m(x)

    def change(run):
        with torch.no_grad():
            b.weight.mul_(3)

    x = t(2, 2)
    return f, [(x, True), (x, False), change, (x, False), (x, True)]


@program("a program that is compiled twice, with state in common")
def _():
    log = []

    def f(x):
        log.append(len(log))
        return x * len(log)

    other = None

    def go(run):
        nonlocal other
        if other is None:
            other = type(run)(run) if False else (corsac.compile(f) if run is not f else f)
        return other(t(2))

    return f, [(t(2),), go, (t(2),), go], lambda: log


@program("a compiled method of many objects")
def _():
    class A:
        def __init__(self, k):
            self.k = k
            self.n = 0

        def go(self, x):
            self.n += 1
            return x * self.k + self.n

    things = [A(k) for k in range(3)]

    def f(x, i):
        return things[i].go(x)

    x = t(2)
    return f, [(x, 0), (x, 1), (x, 2), (x, 0), (x, 1)], lambda: things


@program("objects as arguments, of which each call has another one")
def _():
    class Box:
        def __init__(self, x, n):
            self.x, self.n, self.seen = x, n, []

    def f(box):
        box.seen.append(box.n)
        box.out = box.x * box.n
        box.n += 1
        return box.out, box

    return f, [
        lambda run: run(Box(t(2), 1)),
        lambda run: run(Box(t(2), 1)),
        lambda run: run(Box(t(2), 5)),
        lambda run: run(Box(t(3), 5)),
    ]


@program("dictionaries as arguments with other keys and orders")
def _():
    def f(d):
        out = {}
        for k, v in d.items():
            out[k.upper()] = v * 2 if isinstance(v, torch.Tensor) else v
        d["done"] = True
        return out, list(d)

    x, y = t(2), t(2)
    return f, [
        lambda run: run({"a": x, "b": y}),
        lambda run: run({"b": y, "a": x}),
        lambda run: run({"a": x, "n": 3}),
        lambda run: run({"a": x, "b": x}),
        lambda run: run({}),
    ]


@program("nested tuples and lists with None, of other lengths")
def _():
    def f(x, tree):
        total, depth = x, 0
        stack = [(tree, 0)]
        while stack:
            node, level = stack.pop()
            depth = max(depth, level)
            if node is None:
                continue
            if isinstance(node, (list, tuple)):
                stack.extend((child, level + 1) for child in node)
            else:
                total = total + node
        return total, depth

    x = t(2)
    return f, [(x, [1, (2, [x])]), (x, None), (x, [None, [None, [3]]]), (x, x), (x, (1, [2, (x,)]))]


@program("the same tensor as two arguments, and then not")
def _():
    def f(x, y):
        z = x * 2
        if x is y:
            return z
        return z + y

    x, y = t(2), t(2)
    return f, [(x, x), (x, y), (y, y), (y, x)]


@program("the same tensor twice, written to through one of them")
def _():
    def f(x, y):
        x.add_(1)
        return y * 2

    def same(run):
        x = plain(2)
        return run(x, x)

    return f, [lambda run: run(plain(2), plain(2)), same, lambda run: run(plain(2), plain(2)), same]


@program("an input that is a parameter or a weight of the program")
def _():
    w = nn.Parameter(torch.ones(2))

    def f(x):
        return x * w + (5 if x is w else 0)

    return f, [(t(2),), (w,), (t(2),), (w,)], lambda: w


@program("an input that the program keeps and compares with the next")
def _():
    last = None

    def f(x):
        nonlocal last
        same = last is x
        before = last
        last = x
        return x * 2 + (1 if same else 0), before

    x, y = t(2), t(2)
    return f, [(x,), (x,), (y,), (x,), (x,)], lambda: last


@program("caches of keys and values that grow by torch.cat")
def _():
    cache = {}

    def f(x, layer):
        if layer in cache:
            cache[layer] = torch.cat([cache[layer], x.detach()])
        else:
            cache[layer] = x.detach()
        return cache[layer].sum(0) + x.sum(0), cache[layer].shape[0]

    def clear(run):
        cache.clear()

    return (
        f,
        [(t(1, 2), 0), (t(1, 2), 0), (t(1, 2), 1), (t(1, 2), 0), clear, (t(1, 2), 0)],
        lambda: cache,
    )


@program("a static cache that is written to at a position")
def _():
    class Cache:
        def __init__(self):
            self.k = torch.zeros(4, 2)
            self.at = 0

    c = Cache()

    def f(x):
        c.k[c.at : c.at + x.shape[0]] = x.detach()
        c.at = (c.at + x.shape[0]) % 3
        return c.k[: c.at + 1].sum(0) + x.sum(0)

    return f, [(t(1, 2),), (t(1, 2),), (t(1, 2),), (t(1, 2),)], lambda: c


@program("index_copy_, scatter_, index_add_ and masked writes")
def _():
    def f(x, i):
        y = torch.zeros(4)
        y.scatter_(0, i, x)
        y.index_add_(0, i, x)
        y.index_copy_(0, i[:1], x[:1])
        y.masked_fill_(y > 1, -1)
        y[i] = x
        return y, torch.gather(y, 0, i), y.scatter_add(0, i, x), x.index_select(0, i.clamp(max=1))

    return f, [
        (plain(2), torch.tensor([0, 1])),
        (plain(2), torch.tensor([3, 1])),
        (plain(2), torch.tensor([2, 2])),
        (plain(2), torch.tensor([9, 1])),
    ]


@program("typed storage questions, data_ptr and untyped storages")
def _():
    def f(x):
        y = x.view(-1)
        return (
            x.data_ptr() == y.data_ptr(),
            x.untyped_storage().nbytes(),
            y.storage_offset(),
            y._base is x,
            x._version,
            y * 1,
        )

    return f, [(plain(2),), (plain(2),), (plain(3),)]


@program("__bool__ and __len__ of tensors, in conditions of Python")
def _():
    def f(x):
        out = []
        if len(x):
            out.append("long")
        try:
            if x:
                out.append("true")
        except RuntimeError as error:
            out.append(str(error))
        if x.sum() and x.any():
            out.append("some")
        if not x.all() or x.shape[0] > 2:
            out.append("not all")
        return out, x * len(out)

    return f, [(plain(2),), (torch.zeros(1),), (torch.ones(1),), (torch.zeros(0),), (plain(2),)]


@program("in, index, count and == of tensors in lists")
def _():
    def f(x, y):
        xs = [x]
        return (
            x in xs,
            x == y,
            xs == [x],
            xs.index(x),
            [id(v) == id(x) for v in xs],
            bool((x == y).all()),
        )

    x, y = t(1), t(1)
    return f, [(x, y), (x, x), (y, x)]


@program("a while loop over a queue of work with state")
def _():
    done = []

    def f(x, work):
        queue = collections.deque(work)
        while queue:
            item = queue.popleft()
            if isinstance(item, list):
                queue.extendleft(reversed(item))
                continue
            done.append(item)
            x = x * item if item % 2 else x + item
        return x

    x = t(2)
    return f, [(x, [1, [2, 3]]), (x, [[4], 5]), (x, []), (x, [1, [2, 3]])], lambda: done


@program("a registry of functions by decorator, extended between calls")
def _():
    registry = {}

    def register(fn):
        registry[fn.__name__] = fn
        return fn

    @register
    def double(x):
        return x * 2

    def f(x, names):
        for n in names:
            x = registry[n](x)
        return x, sorted(registry)

    def more(run):
        @register
        def negate(x):
            return -x

    x = t(2)
    return f, [
        (x, ["double"]),
        (x, ["double", "double"]),
        more,
        (x, ["negate", "double"]),
        (x, ["missing"]),
    ]


@program("composition of functions by reduce")
def _():
    def compose(*fns):
        return functools.reduce(lambda f, g: lambda x: g(f(x)), fns)

    def f(x, way):
        fns = [torch.sin, lambda v: v + 1, F.relu, operator.neg]
        return compose(*fns[:way])(x)

    x = t(2)
    return f, [(x, 1), (x, 3), (x, 4), (x, 0)]


@program("global state of a module of Python that is changed")
def _():
    mod = types.ModuleType("kinds_settings")
    mod.SCALE = 2
    exec(
        "def scaled(x):\n    global CALLS\n    CALLS = globals().get('CALLS', 0) + 1\n    return x * SCALE",
        mod.__dict__,
    )

    def f(x):
        return mod.scaled(x) + mod.CALLS

    def change(run):
        mod.SCALE = 5

    return f, [(t(2),), (t(2),), change, (t(3),)], lambda: mod.CALLS


@program("timeouts, dates and identifiers, which are others in each call")
def _():
    import datetime
    import time
    import uuid

    def f(x):
        a, b = time.time(), time.monotonic()
        return x * 2, a > 0, len(str(uuid.uuid4())), datetime.datetime.now().year > 2000, b > 0

    return f, [(t(2),), (t(2),), (t(3),)]


@program("struct, hashlib, base64 and bytes")
def _():
    import base64
    import hashlib
    import struct

    def f(x, s):
        return (
            x * len(s),
            struct.pack("<i", len(s)),
            hashlib.md5(s.encode()).hexdigest(),
            base64.b64encode(s.encode()),
            bytearray(s.encode())[0],
            memoryview(b"ab")[1],
            bytes([1, 2]).hex(),
            int.from_bytes(b"\x01\x02", "big"),
        )

    x = t(2)
    return f, [(x, "a"), (x, "bc"), (x, "a")]


@program("integers with methods, big ones and bits")
def _():
    def f(x, n):
        return (
            x * n,
            n.bit_length(),
            2**100 + n,
            ~n,
            n << 3,
            n ^ 5,
            n & 3 | 8,
            bin(n),
            hex(n),
            (n).to_bytes(2, "big"),
            divmod(n, 3),
            -n // 2,
            -n % 3,
            int("12", 5),
            float("1e3"),
            n.real,
            (1.5).is_integer(),
            (0.75).as_integer_ratio(),
            complex(n, 1),
            round(n / 3, 2),
        )

    x = t(2)
    return f, [(x, 1), (x, 7), (x, 12), (x, 255)]


@program("fractions, decimals and statistics")
def _():
    import decimal
    import fractions
    import statistics

    def f(x, n):
        return (
            x * float(fractions.Fraction(n, 3)),
            decimal.Decimal(n) / 4,
            statistics.mean([1, n]),
            str(fractions.Fraction(n, 6)),
        )

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 3)]


@program("async functions that are run in the program")
def _():
    import asyncio

    async def part(x, n):
        await asyncio.sleep(0)
        return x * n

    def f(x, n):
        coroutine = part(x, n)
        return asyncio.run(coroutine)

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]


@program("a coroutine that is driven by hand")
def _():
    class Wait:
        def __await__(self):
            got = yield 1
            return got

    async def part(x):
        return x * await Wait()

    def f(x, n):
        c = part(x)
        first = c.send(None)
        try:
            c.send(n)
        except StopIteration as stop:
            return first, stop.value

    x = t(2)
    return f, [(x, 1), (x, 2), (x, 1)]
