"""Random programs that read values, write to memory, count and use random numbers, as Python code."""

import random

import pytest
import torch
from torch import nn

#: Expressions for tensors, from two others and a number.
OPERATIONS = [
    "{a} + {b}.sum(0)",
    "{a} - {b}.sum(0)",
    "{a} * 0.5",
    "{a}.relu()",
    "{a}.tanh()",
    "self.layer({a})",
    "{a}.t().t()",
    "{a}[:1]",
    "{a}.clone()",
    "torch.cat([{a}, {b}])",
    "{a} * {n}",
    "{a} / (abs({n}) + 1)",
    "{a} + {n}",
    "({a} > {n}).float()",
]
STEPS = 12
#: Kinds of steps that write to memory, count, keep values, or make tensors of data-dependent size.
CHANGES = (6, 7, 8, 9)


class Program(nn.Module):
    """A program of random steps, written as Python code, with state of its own."""

    def __init__(self, seed, steps=STEPS, changes=True):
        super().__init__()
        self.count, self.mean, self.kept, self.last = 0, 0.0, [], None
        self.layer = nn.Linear(3, 3)
        self.register_buffer("table", torch.arange(12.0).reshape(4, 3) / 6 - 1)
        torch.manual_seed(seed)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(3, 3))
            self.layer.bias.copy_(torch.randn(3))
        random_ = random.Random(seed)
        self.source = _source(random_, steps, changes)
        names = {"torch": torch}
        exec(compile(self.source, f"<program {seed}>", "exec"), names)
        self.function = names["program"]

    def forward(self, x, y):
        return self.function(self, x, y)


def _source(random_, steps, changes):
    """The code of a program: values are tensors of three columns, numbers are Python's."""
    lines, depth = [], 1
    tensors, numbers, own = ["x", "y", "self.table"], ["1.5", "2"], []
    if random_.random() < 0.5:
        own += random_.choice([["x"], ["self.table"], ["x", "y", "self.table"]])

    def add(text):
        lines.append("    " * depth + text)

    def tensor():
        return random_.choice(tensors)

    def number():
        return random_.choice(numbers)

    def condition():
        return random_.choice(
            [
                f"{tensor()}.sum() > {random_.choice([-3, 0, 3])}",
                f"({tensor()} > 0).any()",
                f"torch.equal({tensor()}, {tensor()})",
                f"{number()} > {random_.choice([0, 1, 4])}",
                f"{number()} <= {number()}",
                "self.count % 3 == 0",
                f"{tensor()}.shape[0] > 2",
            ]
        )

    def step(level):
        nonlocal depth
        name = f"t{len(lines)}"
        kind = random_.randrange(16 if level < 3 else 12)
        while not changes and kind in CHANGES:
            kind = random_.randrange(12)
        if kind < 4:
            text = random_.choice(OPERATIONS).format(a=tensor(), b=tensor(), n=number())
            add(f"{name} = ({text}).reshape(-1, 3)[:4]")
            tensors.append(name)
            own.append(name)
        elif kind == 4:
            add(f"{name} = {tensor()}.{random_.choice(['max', 'sum', 'mean'])}().item()")
            numbers.append(name)
        elif kind == 5:
            add(f"{name} = {number()} {random_.choice(['+', '-', '*'])} {number()}")
            numbers.append(name)
        elif kind == 6 and own:
            target = random_.choice(own)
            add(
                random_.choice(
                    [
                        f"{target}.mul_(0.5)",
                        f"{target}[0] = {number()}",
                        f"{target}.add_(1)",
                        f"{target}[:2].copy_({tensor()}.mean(0))",
                    ]
                )
            )
        elif kind == 7:
            add(random_.choice(["self.count += 1", f"self.mean = 0.5 * self.mean + {number()}"]))
        elif kind == 8:
            add(random_.choice([f"self.kept.append({number()})", f"self.last = {tensor()} * 1"]))
        elif kind == 9:
            add(f"{name} = {tensor()}")
            add(f"{name} = {name}[{name}[:, 0] > 0]")
            tensors.append(name)
        elif kind == 10 and random_.random() < 0.3:
            add(f"{name} = torch.rand(1, 3)")
            tensors.append(name)
            own.append(name)
        elif kind == 11:
            add(f"{name} = float(self.count)")
            numbers.append(name)
        elif kind in (12, 13):
            add(f"if {condition()}:")
            before = (list(tensors), list(numbers), list(own))
            for branch in range(random_.choice([1, 2])):
                if branch:
                    add("else:")
                depth += 1
                add("pass")
                for _ in range(random_.randrange(1, 4)):
                    step(level + 1)
                target = random_.choice(before[0][3:] or ["x"])
                add(f"{target} = {tensor()} + 0")
                depth -= 1
                # Values made only in a branch do not exist after it.
                tensors[:], numbers[:], own[:] = (list(kept) for kept in before)
                if target in own:
                    own.remove(target)
        elif kind == 14:
            name = f"n{len(lines)}"
            target = f"w{len(lines)}"
            add(f"{name}, {target} = 0, {tensor()}.abs() + 0.5")
            add(f"while {target}.sum() < 9 and {name} < 5 and {target}.numel():")
            depth += 1
            doubles = [f"{target} = {target} * 2"]
            add(random_.choice([*doubles, f"{target}.mul_(2)"] if changes else doubles))
            add(f"{name} += 1")
            depth -= 1
            tensors.append(target)
            numbers.append(name)
        else:
            add("try:")
            depth += 1
            add(f"if {condition()}: raise KeyError(1)")
            add(f"{name} = {tensor()} * 2")
            depth -= 1
            add("except KeyError:")
            depth += 1
            add(f"{name} = {tensor()} - 1")
            depth -= 1
            tensors.append(name)

    for _ in range(steps):
        step(0)
    add(
        f"return [{', '.join(tensors)}], ({', '.join(numbers)},), self.count, self.mean, len(self.kept)"
    )
    return "\n".join(["def program(self, x, y):", *lines])


def same(found, expected, where):
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor) and found.dtype is expected.dtype, where
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True, msg=where)
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected) and len(found) == len(expected), where
        for own, eager in zip(found, expected, strict=True):
            same(own, eager, where)
    elif isinstance(expected, float):
        assert type(found) is float and found == pytest.approx(
            expected, rel=1e-3, abs=1e-3, nan_ok=True
        ), where
    else:
        assert type(found) is type(expected) and found == expected, where
