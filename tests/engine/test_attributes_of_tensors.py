"""Programs that read autograd attributes of tensors in their state: as in PyTorch, whatever changes between calls."""

import pytest
import torch

import corsac


class State:
    def __init__(self):
        self.p = torch.ones(3)
        self.linear = torch.nn.Linear(3, 3)
        self.linear.requires_grad_(False)


def switch(s):
    for own in (s.p, s.linear.weight):
        own.requires_grad_(not own.requires_grad)


def have_grads(s):
    for own in (s.p, s.linear.weight):
        own.grad = torch.ones_like(own) if own.grad is None else None


def write(s):
    with torch.no_grad():
        s.p.add_(0)


def replace(s):
    wants = not s.p.requires_grad
    s.p = torch.ones(3, requires_grad=wants)
    s.linear.weight = torch.nn.Parameter(torch.ones(3, 3), requires_grad=wants)


def hook(s):
    if s.p.requires_grad:
        s.p.register_hook(lambda gradient: gradient)


PROGRAMS = {
    "grad of a tensor": (lambda s, x: x * (2 if s.p.grad is None else 3), have_grads),
    "grad of a weight": (lambda s, x: x * (2 if s.linear.weight.grad is None else 3), have_grads),
    "requires_grad": (lambda s, x: x * (2 if s.p.requires_grad else 3), switch),
    "of a weight": (lambda s, x: x * (2 if s.linear.weight.requires_grad else 3), switch),
    "of parameters": (
        lambda s, x: x * len([own for own in s.linear.parameters() if own.requires_grad]),
        switch,
    ),
    "of another tensor": (lambda s, x: x * (2 if s.p.requires_grad else 3), replace),
    "of another weight": (lambda s, x: x * (2 if s.linear.weight.requires_grad else 3), replace),
    "leaves": (lambda s, x: x * (2 if s.p.is_leaf else 3), switch),
    "version": (lambda s, x: x * s.p._version, write),
    "hooks": (lambda s, x: x * (2 if s.p._backward_hooks is None else 3), hook),
}


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_they_are_asked_anew(name, trains):
    program, change = PROGRAMS[name]

    def results(compile):
        state = State()
        if name == "hooks":
            state.p.requires_grad_()
        run, found = compile(lambda x: program(state, x)), []
        with torch.set_grad_enabled(trains):
            for step in range(4):
                for _ in range(2):
                    x = torch.full((3,), 1.0 + step, requires_grad=trains)
                    found.append(run(x).tolist())
                change(state)
        return found

    assert results(corsac.compile) == results(lambda own: own)


def test_what_is_asked_without_changes_is_native():
    state = State()
    run = corsac.compile(
        lambda x: x * (2 if state.p.grad is None and not state.p.requires_grad else 3)
    )
    with torch.no_grad():
        for _ in range(3):
            assert run(torch.ones(3)).tolist() == [2, 2, 2]
    assert "1 steps" in run.explain() and "PyTorch" not in run.explain(), run.explain()
