"""Modules."""

# Programs are written as users write them: their behaviour matters, not their style.
# ruff: noqa: B905

import copy
import io
import pickle
import random

import torch
import torch.nn.functional as F
from torch import nn

from kit.kinds.driver import plain, program, t


def state_of(module):
    """The state of a module, with the gradients of its parameters."""
    return lambda: (dict(module.named_parameters()), dict(module.named_buffers()), module.training)


@program("a module with attributes that change and count")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.steps = 0
            self.scale = 1.0

        def forward(self, x):
            self.steps += 1
            self.last = x.shape
            return self.lin(x) * self.scale + self.steps

    m = M()

    def change(run):
        m.scale = 2.5

    return (
        m,
        [(t(2, 3),), (t(2, 3),), change, (t(4, 3),)],
        lambda: (m.steps, m.scale, m.last, m.lin.weight),
    )


@program("train and eval flips with dropout and batch norm")
def _():
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU())

    def eval_mode(run):
        m.eval()

    def train_mode(run):
        m.train()

    x = t(5, 3)
    return m, [(x,), eval_mode, (x,), train_mode, (x,), eval_mode, (t(2, 3),)], state_of(m)


@program("the train flag of a submodule that is set alone")
def _():
    m = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))
    m.eval()

    def only_dropout(run):
        m[0].training = True

    def off(run):
        m[0].training = False

    x = t(4, 3)
    return m, [(x,), only_dropout, (x,), off, (x,)], state_of(m)


@program("train and eval through the compiled module")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def flip(run):
        run.eval() if m.training else run.train()
        return run.training, m[1].training

    x = t(2, 3)
    return m, [(x,), flip, (x,), flip, (x,)], state_of(m)


@program("hooks before and after forward, with changes of results")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    log = []
    m[0].register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    handle = m[1].register_forward_hook(
        lambda mod, args, out: log.append(tuple(out.shape)) or out + 1
    )

    def remove(run):
        handle.remove()

    def add(run):
        m.register_forward_hook(lambda mod, args, kwargs, out: out * 3, with_kwargs=True)

    x = t(2, 3)
    return m, [(x,), (x,), remove, (x,), add, (x,)], lambda: log


@program("a hook that keeps activations")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    kept = {}
    for name, mod in m.named_modules():
        mod.register_forward_hook(
            lambda mod, args, out, name=name: kept.__setitem__(name, out.detach())
        )
    return m, [(t(2, 3),), (t(2, 3),), (t(4, 3),)], lambda: kept


@program("hooks of all modules, put on and taken off between calls")
def _():
    m = nn.Linear(3, 3)
    log = []
    handle = None

    def on(run):
        nonlocal handle
        handle = torch.nn.modules.module.register_module_forward_hook(
            lambda mod, a, out: log.append(type(mod).__name__)
        )

    def off(run):
        handle.remove()

    def f(x):
        return m(x)

    x = t(2, 3)
    return f, [(x,), on, (x,), off, (x,)], lambda: log


@program("gradient hooks of modules and tensors")
def _():
    m = nn.Linear(3, 3)
    log = []
    m.register_full_backward_hook(lambda mod, gi, go: log.append("module"))

    def f(x):
        y = m(x)
        if y.requires_grad:
            y.register_hook(lambda g: g * 2)
        return y

    return f, [(t(2, 3),), (t(2, 3),), (t(4, 3),)], lambda: (log, state_of(m)())


@program("lists and dictionaries of modules and parameters")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
            self.table = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in range(1, 3)])
            self.named = nn.ParameterDict({"b": nn.Parameter(torch.zeros(3))})

        def forward(self, x, act):
            for i, (layer, s) in enumerate(zip(self.layers, self.scales)):
                x = self.table[act](layer(x)) * s + i
            if "b" in self.named:
                x = x + self.named["b"]
            return x, len(self.layers), list(self.table), self.layers[-1] is self.layers[1]

    m = M()

    def more(run):
        m.layers.append(nn.Linear(3, 3))
        m.scales.append(nn.Parameter(torch.full((3,), 3.0)))

    x = t(2, 3)
    return m, [(x, "relu"), (x, "tanh"), more, (x, "relu"), (x, "none")], state_of(m)


@program("a layer that is replaced between calls")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def other(run):
        m[1] = nn.Tanh()

    def wider(run):
        m[0] = nn.Linear(3, 5)

    x = t(2, 3)
    return m, [(x,), other, (x,), wider, (x,)], state_of(m)


@program("weights that are tied, and untied")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(5, 3)
            self.out = nn.Linear(3, 5, bias=False)
            self.out.weight = self.emb.weight

        def forward(self, i):
            return self.out(self.emb(i)), self.out.weight is self.emb.weight

    m = M()

    def untie(run):
        m.out.weight = nn.Parameter(m.emb.weight.detach().clone() + 1)

    def tie(run):
        m.out.weight = m.emb.weight

    i = torch.tensor([0, 2, 4])
    return m, [(i,), untie, (i,), tie, (i,)], state_of(m)


@program("load_state_dict between calls")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    m.eval()
    first = copy.deepcopy(m.state_dict())
    other = {k: v * 2 + 1 for k, v in first.items()}

    def load(which):
        def go(run):
            return str(run.load_state_dict(which))

        return go

    def assign(run):
        return str(m.load_state_dict(copy.deepcopy(other), assign=True))

    x = t(4, 3)
    return m, [(x,), load(other), (x,), load(first), (x,), assign, (x,)], state_of(m)


@program("the state of the compiled module, its names and attributes")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    m.tag = "tag"

    def ask(run):
        return (
            list(run.state_dict()),
            [n for n, _ in run.named_parameters()],
            run.tag,
            len(list(run.children())),
            run[0] is m[0],
        )

    x = t(2, 3)
    return m, [(x,), lambda run: ask(run)[1:4], (x,)], state_of(m)


@program("deepcopy of the compiled model")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def go(run):
        other = copy.deepcopy(run)
        with torch.no_grad():
            for p in other.parameters():
                p.add_(1)
        x = t(2, 3)
        return run(x), other(x)

    return m, [(t(2, 3),), go, (t(2, 3),)], state_of(m)


class ForPickles(nn.Module):
    """A module that can be pickled."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.n = 0

    def forward(self, x):
        self.n += 1
        return self.lin(x) + self.n


@program("a model that is pickled between calls")
def _():
    m = ForPickles()

    def go(run):
        other = pickle.loads(pickle.dumps(m))
        return other(t(2, 3)), other.n

    return m, [(t(2, 3),), go, (t(2, 3),)], lambda: m.n


@program("a model that is saved with torch.save between calls")
def _():
    m = ForPickles()

    def go(run):
        out = io.BytesIO()
        torch.save(m.state_dict(), out)
        out.seek(0)
        with torch.no_grad():
            m.lin.weight.zero_()
        zero = run(plain(2, 3)).detach()
        m.load_state_dict(torch.load(out))
        return zero, run(plain(2, 3))

    return m, [(t(2, 3),), go, (t(2, 3),)], lambda: m.n


@program("weights that are written to in place")
def _():
    m = nn.Linear(3, 3)

    def scale(run):
        with torch.no_grad():
            m.weight.mul_(2)
            m.bias[0] = 5

    def data(run):
        m.weight.data = torch.ones(3, 3)

    x = t(2, 3)
    return m, [(x,), scale, (x,), data, (x,)], state_of(m)


@program("steps of an optimizer between calls")
def _():
    m = nn.Linear(3, 3)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step(run):
        with torch.enable_grad():
            opt.zero_grad()
            run(t(2, 3)).sum().backward()
            opt.step()

    x = t(2, 3)
    return m, [(x,), step, (x,), step, (x,)], state_of(m)


@program("a step of training that is compiled as a whole")
def _():
    m = nn.Linear(3, 1)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, y):
        with torch.enable_grad():
            opt.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            opt.step()
        return loss.detach()

    return (
        step,
        [(plain(4, 3), plain(4, 1)), (plain(4, 3), plain(4, 1)), (plain(2, 3), plain(2, 1))],
        state_of(m),
    )


@program("a model whose dtype is moved between calls")
def _():
    m = nn.Linear(3, 3)

    def double(run):
        m.double()

    def single(run):
        m.float()

    def in_double(run):
        return run(t(2, 3).double())

    x = t(2, 3)
    return m, [
        (x,),
        double,
        in_double,
        (x,),
        single,
        (x,),
        lambda run: run.to(torch.bfloat16) and None,
        lambda run: run(x.bfloat16()),
        single,
    ]


@program("requires_grad_ flips of parameters")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def freeze(run):
        m[0].requires_grad_(False)

    def thaw(run):
        m[0].requires_grad_(True)

    x = plain(2, 3)
    return m, [(x,), freeze, (x,), thaw, (x,)], state_of(m)


@program("buffers that are registered, replaced and written to")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(3), persistent=False)
            self.register_buffer("none", None)

        def forward(self, x):
            self.count += 1
            self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
            if self.none is None:
                x = x * 2
            return x - self.mean + self.count

    m = M()

    def fill(run):
        m.none = torch.ones(1)

    def clear(run):
        m.none = None

    return m, [(t(2, 3),), (t(2, 3),), fill, (t(4, 3),), clear], state_of(m)


@program("a buffer that is registered in the first call")
def _():
    class M(nn.Module):
        def forward(self, x):
            if not hasattr(self, "mask"):
                self.register_buffer("mask", torch.tril(torch.ones(x.shape[1], x.shape[1])))
            return x @ self.mask

    m = M()
    return m, [(t(2, 3),), (t(2, 3),), (t(4, 3),), (t(2, 4),)], state_of(m)


@program("a parameter that is made in the first call")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = None

        def forward(self, x):
            if self.w is None:
                self.w = nn.Parameter(torch.ones(x.shape[-1]))
            return x * self.w

    m = M()
    return m, [(t(2, 3),), (t(2, 3),), (t(4, 3),)], state_of(m)


@program("lazy modules")
def _():
    m = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d())
    return m, [(t(2, 3),), (t(2, 3),), (t(5, 3),)], lambda: type(m[0]).__name__


@program("parametrizations and weight norm")
def _():
    class Double(nn.Module):
        def forward(self, w):
            return w * 2

    m = nn.Linear(3, 3)
    torch.nn.utils.parametrize.register_parametrization(m, "weight", Double())
    n = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))

    def f(x):
        return n(m(x))

    def remove(run):
        if torch.nn.utils.parametrize.is_parametrized(m):
            torch.nn.utils.parametrize.remove_parametrizations(m, "weight")

    def cached(run):
        with torch.nn.utils.parametrize.cached():
            return run(t(2, 3))

    return (
        f,
        [(t(2, 3),), (t(2, 3),), cached, remove, (t(2, 3),)],
        lambda: (dict(m.named_parameters()), dict(n.named_parameters())),
    )


@program("spectral norm, which writes to buffers in training")
def _():
    m = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))

    def flip(run):
        m.train(not m.training)

    return m, [(t(2, 3),), (t(2, 3),), flip, (t(2, 3),)], state_of(m)


@program("pruned weights")
def _():
    from torch.nn.utils import prune

    m = nn.Linear(4, 4)
    prune.l1_unstructured(m, "weight", amount=0.5)
    return m, [(t(2, 4),), (t(2, 4),), (t(3, 4),)], state_of(m)


@program("functional_call with other weights")
def _():
    m = nn.Linear(3, 3)

    def f(x, weights):
        return torch.func.functional_call(m, weights, (x,))

    x = t(2, 3)
    return f, [
        (x, {"weight": t(3, 3), "bias": t(3)}),
        (x, {"weight": t(3, 3)}),
        (x, {}),
        (x, {"weight": t(3, 3), "bias": t(3)}),
    ]


@program("modules that are made in the program")
def _():
    def f(x):
        torch.manual_seed(3)
        lin = nn.Linear(x.shape[-1], 2)
        return lin(x), nn.ReLU()(x), nn.functional.softmax(x, -1)

    return f, [(t(2, 3),), (t(2, 3),), (t(2, 4),)]


@program("inherited forward, super().forward and unbound forward")
def _():
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            return self.lin(x)

        def helper(self, x):
            return x + 1

    class Child(Base):
        def forward(self, x):
            y = super().forward(x)
            return Base.forward(self, y) + self.helper(x) + nn.Module.__call__(self.lin, x)

        def helper(self, x):
            return super().helper(x) * 2

    m = Child()
    return m, [(t(2, 3),), (t(2, 3),), (t(4, 3),)], state_of(m)


@program("a module with __getattr__ and properties")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.extra = {"k": 2}

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                extra = self.__dict__.get("extra", {})
                if name in extra:
                    return extra[name]
                return getattr(super().__getattr__("inner"), name)

        @property
        def width(self):
            return self.weight.shape[0]

        def forward(self, x):
            return self.inner(x) * self.k + self.width + self.bias

    m = M()

    def change(run):
        m.extra["k"] = 3

    return m, [(t(2, 3),), (t(2, 3),), change, (t(2, 3),)]


@program("a module with its own __call__")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def __call__(self, x, *rest):
            self.calls += 1
            return super().__call__(x * 2, *rest)

        def forward(self, x, k=1):
            return x + k

    m = M()
    return m, [(t(2),), (t(2), 3), (t(3),)], lambda: m.calls


@program("a module whose forward is replaced")
def _():
    m = nn.Linear(3, 3)
    plain_forward = m.forward

    def patch(run):
        m.forward = lambda x: plain_forward(x) * 2

    def back(run):
        m.__dict__.pop("forward", None)

    def f(x):
        return m(x)

    x = t(2, 3)
    return f, [(x,), patch, (x,), back, (x,)]


@program("iteration over modules, children, parameters and buffers")
def _():
    m = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3)))
    m.eval()

    def f(x):
        names = [n for n, _ in m.named_modules()] + [n for n, _ in m.named_parameters(recurse=True)]
        total = sum(p.sum() for p in m.parameters())
        kinds = [type(c).__name__ for c in m.children()]
        for layer in m.modules():
            if isinstance(layer, nn.Linear):
                x = layer(x)
        return (
            x + total,
            names,
            kinds,
            sum(p.numel() for p in m.parameters()),
            len(list(m.buffers())),
            m.get_submodule("1.0") is m[1][0],
        )

    def change(run):
        m.register_parameter("more", nn.Parameter(torch.ones(1)))

    x = t(2, 3)
    return f, [(x,), (x,), change, (x,)]


@program("nested containers of modules in plain lists and dictionaries")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [nn.Linear(3, 3), {"a": nn.Linear(3, 3)}]
            self.fns = (torch.sin, F.relu, lambda v: v * 3)

        def forward(self, x, which):
            x = self.hidden[1]["a"](self.hidden[0](x))
            return self.fns[which](x)

    m = M()

    def change(run):
        m.hidden[1]["a"] = nn.Identity()

    x = t(2, 3)
    return m, [(x, 0), (x, 2), change, (x, 1), (x, 5)]


@program("recurrent modules with a hidden state that is kept")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(3, 4)
            self.h = None

        def forward(self, x):
            if self.h is None or self.h.shape[0] != x.shape[0]:
                self.h = torch.zeros(x.shape[0], 4)
            self.h = self.cell(x, self.h.detach())
            return self.h * 1

    m = M()

    def reset(run):
        m.h = None

    return m, [(t(2, 3),), (t(2, 3),), (t(3, 3),), reset, (t(2, 3),)], lambda: m.h


@program("an LSTM with and without states")
def _():
    m = nn.LSTM(3, 4, batch_first=True)

    def f(x, state=None):
        out, (h, c) = m(x, state)
        return out[:, -1], h, c

    x = t(2, 5, 3)
    return f, [(x,), (x, (t(1, 2, 4), t(1, 2, 4))), (t(3, 2, 3),), (x,)]


@program("attention with masks and weights")
def _():
    m = nn.MultiheadAttention(4, 2, batch_first=True)
    m.eval()

    def f(x, mask, need):
        return m(x, x, x, attn_mask=mask, need_weights=need)

    x = t(2, 3, 4)
    mask = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    return f, [(x, None, False), (x, mask, False), (x, mask, True), (x, None, False)]


@program("transformer encoder layers with padding masks")
def _():
    m = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0),
        1,
        enable_nested_tensor=False,
    )
    m.eval()

    def f(x, pad):
        return m(x, src_key_padding_mask=pad)

    x = t(2, 3, 4)
    pad = torch.tensor([[False, False, True], [False, False, False]])
    return f, [(x, None), (x, pad), (x, ~pad & False), (t(1, 3, 4), None)]


@program("a convolutional network with skipped blocks")
def _():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(2, 2, 3, padding=1) for _ in range(3))
            self.skip = {1}

        def forward(self, x):
            for i, conv in enumerate(self.convs):
                if i in self.skip:
                    continue
                x = conv(x).relu() + x
            return F.adaptive_avg_pool2d(x, 1).flatten(1)

    m = M()

    def change(run):
        m.skip = {0, 2}

    return m, [(t(1, 2, 4, 4),), (t(2, 2, 5, 4),), change, (t(1, 2, 4, 4),)]


@program("stochastic depth by Python's random numbers")
def _():
    m = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def f(x):
        for layer in m:
            if random.random() < 0.5:
                x = layer(x)
        return x * random.choice([1, 2])

    return f, [(t(2, 3),), (t(2, 3),), (t(2, 3),), (t(2, 3),)]


@program("a scripted part and a traced part in a program")
def _():
    @torch.jit.script
    def scripted(x, n: int):
        if n > 1:
            return x * n
        return x - 1

    def f(x, n):
        return scripted(x, n) + 1

    return f, [(t(2), 1), (t(2), 2), (t(3), 1)]


@program("zero_grad, grad and backward in the program")
def _():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        with torch.enable_grad():
            loss = (x.detach() * w).pow(2).sum()
            loss.backward()
        g = w.grad.clone()
        w.grad = None
        return x * g

    return f, [(t(3),), (t(3),), (t(3),)], lambda: w


@program("torch.autograd.grad in the program, also of second order")
def _():
    def f(x):
        with torch.enable_grad():
            v = x.detach().requires_grad_()
            y = (v**3).sum()
            (g,) = torch.autograd.grad(y, v, create_graph=True)
            (h,) = torch.autograd.grad(g.sum(), v)
        return x + g.detach(), h

    return f, [(t(3),), (t(3),), (t(4),)]
