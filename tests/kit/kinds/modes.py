"""Modes of PyTorch."""

# Programs are written as users write them: their behaviour matters, not their style.

import torch
from torch import nn

from kit.kinds.driver import plain, program, t


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
