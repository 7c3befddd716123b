"""Calls in autocast, and programs that enter or leave it, as native programs."""

from __future__ import annotations

import copy
import threading
import warnings

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import corsac
from kit.operator_samples import ORDERING, Call, entries, full_name, samples
from kit.small_models import TransformerBlock

HALVES = (torch.bfloat16, torch.float16)
half = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
#: Largest difference between results, as a part of the largest element.
NEAR = {torch.bfloat16: 0.03, torch.float16: 0.004}


def native(model):
    return corsac.compile(model, options={"inference": "native"})


def near(found, expected, dtype):
    """Whether results have the same types, and are as near as sums of rounded numbers can be expected to be."""
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert (own.dtype, own.shape, own.stride()) == (other.dtype, other.shape, other.stride())
        scale = max(other.double().abs().max().item(), 1e-6)
        assert (own.double() - other.double()).abs().max().item() <= NEAR[dtype] * scale


def check(model, dtype, *inputs, whole=True):
    """Compare calls in autocast, and calls out of it before and after, with PyTorch's."""
    model = model.eval() if isinstance(model, nn.Module) else model
    compiled = native(model)
    with torch.no_grad():
        plain = model(*inputs)
        with torch.autocast("cpu", dtype):
            expected = model(*inputs)
        for _ in range(3):
            near(compiled(*inputs), plain, dtype)
            with torch.autocast("cpu", dtype):
                near(compiled(*inputs), expected, dtype)
    report = compiled.explain()
    assert f"in autocast to {dtype}" in report
    if whole:
        assert "PyTorch" not in report, report
    assert "recompiled" not in report, report
    return compiled


class Block(TransformerBlock):
    def joined(self, keys):
        return torch.cat([keys, keys.float()], 1)


@half
def test_transformers(dtype):
    torch.manual_seed(0)
    check(Block(), dtype, torch.randint(50, (2, 9)), torch.randn(2, 9, 32))


@half
def test_the_fast_paths_of_attention(dtype):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    check(layer, dtype, torch.randn(2, 5, 16), whole=False)
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    check(layer, dtype, *[torch.randn(2, 5, 16)] * 3, whole=False)


@half
def test_convolutions(dtype):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(32)
    norm.running_mean.normal_(0, 0.1)
    norm.running_var.uniform_(0.5, 2)
    head = (nn.Conv2d(32, 48, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), norm, nn.ReLU(), *head)
    check(model, dtype, torch.randn(2, 3, 32, 32))


@half
def test_types_that_join(dtype):
    def program(x, y):
        low = x @ y
        joined = torch.cat([low, x], 1)
        stacked = torch.stack([low, low])
        return joined, stacked, low + x, F.mse_loss(low, x), torch.where(x > 0, low, x)

    torch.manual_seed(0)
    check(program, dtype, torch.randn(6, 6), torch.randn(6, 6))


@half
def test_programs_that_enter_and_leave_it(dtype):
    def program(x, y):
        a = x @ y
        with torch.autocast("cpu", dtype):
            b = a @ y
            with torch.autocast("cpu", enabled=False):
                c = b.float() @ y
            d = c @ y
        return a, b, c, d, d.float() @ y

    torch.manual_seed(0)
    x, y = torch.randn(6, 6), torch.randn(6, 6)
    compiled = native(program)
    with torch.no_grad():
        for around in (None, *HALVES, None):
            with torch.autocast("cpu", around, enabled=around is not None):
                expected = program(x, y)
                for _ in range(3):
                    near(compiled(x, y), expected, torch.bfloat16)
    assert "PyTorch" not in compiled.explain()


class PartlyCast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            low = self.layer(x)
        return self.layer(low.float())


def test_files_hold_the_casts_of_a_program(tmp_path):
    torch.manual_seed(0)
    model, x = PartlyCast().eval(), torch.randn(4, 8)
    corsac.save(model, tmp_path / "model.safetensors", x)
    found = corsac.load(tmp_path / "model.safetensors")(x)
    with torch.no_grad():
        near(found, model(x), torch.bfloat16)
        # They are not those of float32.
        assert (found - model.layer(model.layer(x))).abs().max() > 1e-5
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        corsac.save(model.layer, tmp_path / "other.safetensors", x)
        expected = model.layer(x)
    found = corsac.load(tmp_path / "other.safetensors")(x)
    assert found.dtype is expected.dtype is torch.bfloat16
    near(found, expected, torch.bfloat16)


def test_captured_graphs_have_the_casts():
    torch.manual_seed(0)
    model, x = PartlyCast().eval(), torch.randn(4, 8)
    captured = corsac.capture(model, x)
    with torch.no_grad():
        assert torch.equal(captured(x), model(x))
        with torch.autocast("cpu", torch.bfloat16):
            expected = model.layer(x)
            captured = corsac.capture(model.layer, x)
        assert torch.equal(captured(x), expected)


def test_item_assignment():
    def program(x):
        low = x @ x
        low[1:, ::2] = x[1:, ::2]
        full = x.clone()
        full[0] = low[1]
        return low, full

    torch.manual_seed(0)
    check(program, torch.bfloat16, torch.randn(6, 6))


@pytest.mark.parametrize("name", ["swin_t", "regnet_y_400mf", "densenet121", "mnasnet0_5"])
def test_models_of_torchvision(name):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)().eval()
    x = torch.randn(1, 3, 64, 64)
    compiled = native(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            found, expected = compiled(x), model(x)
            assert found.dtype == expected.dtype
            assert (found - expected).norm() < 0.03 * expected.norm()
    assert "PyTorch" not in compiled.explain()


def test_a_flag_that_switches_it():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed, self.layer = False, nn.Linear(8, 8)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
                return self.layer(x)

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(4, 8)
    compiled = native(model)
    with torch.no_grad():
        for mixed in (False, True, False, True, True):
            model.mixed = mixed
            for _ in range(2):
                near(compiled(x), model(x), torch.bfloat16)


def test_what_the_program_asks_for():
    """Programs that do something else in autocast, as those of language models do."""

    def program(x):
        if torch.is_autocast_enabled("cpu"):
            return (x @ x).to(torch.get_autocast_dtype("cpu")) + 1
        return x @ x

    torch.manual_seed(0)
    x, compiled = torch.randn(5, 5), native(program)
    with torch.no_grad():
        for dtype in (None, *HALVES, None, torch.bfloat16):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                for _ in range(2):
                    near(compiled(x), program(x), torch.bfloat16)


def test_operators_of_pytorch_run_without_it():
    """Parts that PyTorch runs have their casts already, and none in regions without autocast."""

    def program(x):
        low = x @ x
        with torch.autocast("cpu", enabled=False):
            full = torch.linalg.inv(x) @ x
            for _ in range(4):
                full = (full + 1).sin()
            full = torch.linalg.inv(full @ x)
        return low, torch.inverse(low.float()) @ low, full @ full

    torch.manual_seed(0)
    x = torch.randn(6, 6) + torch.eye(6) * 4
    compiled = native(program)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = program(x)
        for _ in range(3):
            found = compiled(x)
            for own, other in zip(found, expected, strict=True):
                assert own.dtype == other.dtype
            torch.testing.assert_close(found[0], expected[0], rtol=0.02, atol=0.05)
            torch.testing.assert_close(found[2], expected[2], rtol=0.1, atol=2.0)
            torch.testing.assert_close(found[1], expected[1], rtol=0.1, atol=0.2)
    assert "PyTorch runs" in compiled.explain()


def test_values_that_decide():
    def program(x):
        y = x @ x
        if y.sum() > 0:
            return y @ x + 1
        return y.float() @ x - 1

    torch.manual_seed(0)
    compiled = native(program)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(4):
            for x in (torch.rand(4, 4), torch.tensor([[0.0, -1.0], [1.0, 0.0]])):
                near(compiled(x), program(x), torch.bfloat16)


def test_gradients_are_those_of_pytorch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    other, x = copy.deepcopy(model), torch.randn(4, 8)
    compiled = corsac.compile(model)
    for _ in range(3):
        for own in (compiled, other):
            with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
                warnings.simplefilter("ignore")
                own(x).float().square().sum().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        # Eager rounds gradients between its operators.
        torch.testing.assert_close(one.grad, two.grad, rtol=2**-7, atol=2**-7)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(3):
            near(compiled(x), other(x), torch.bfloat16)


def test_weights_that_change_are_seen():
    torch.manual_seed(0)
    model, x = nn.Linear(8, 8).eval(), torch.randn(4, 8)
    compiled = native(model)
    with torch.no_grad():
        for change in (
            lambda: None,
            lambda: model.weight.mul_(2),
            lambda: setattr(model, "bias", nn.Parameter(torch.randn(8))),
            lambda: model.half(),
            lambda: model.float(),
        ):
            change()
            # PyTorch keeps casts of weights for as long as it is in autocast, whatever is written to them.
            with torch.autocast("cpu", torch.bfloat16):
                for _ in range(3):
                    near(compiled(x), model(x), torch.bfloat16)


def test_threads_in_different_states():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval(), None
    x = torch.randn(4, 32)
    compiled, failures, expected = native(model), [], {}
    for dtype in (None, *HALVES):
        # PyTorch's threads share casts of weights, whatever their types are.
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype is not None):
            expected[dtype] = model(x)

    def run(dtype):
        try:
            with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype is not None):
                for _ in range(50):
                    near(compiled(x), expected[dtype], torch.bfloat16)
                    assert torch.is_autocast_enabled("cpu") is (dtype is not None)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(own,)) for own in (None, *HALVES, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_hooks_and_copies():
    torch.manual_seed(0)
    model, x, seen = nn.Linear(8, 8).eval(), torch.randn(4, 8), []
    compiled = native(model)
    compiled.register_forward_hook(lambda own, given, result: seen.append(result.dtype))
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
            with torch.autocast("cpu", torch.bfloat16):
                compiled(x)
        assert seen == [torch.float32, torch.bfloat16] * 2
        other = copy.deepcopy(compiled)
        with torch.autocast("cpu", torch.bfloat16):
            near(other(x), model(x), torch.bfloat16)


def test_recurrent_layers():
    """They are composed of operators that are cast, which PyTorch runs."""
    torch.manual_seed(0)
    model, x = nn.LSTM(8, 16, batch_first=True).eval(), torch.randn(2, 5, 8)
    compiled = corsac.compile(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = model(x)
        except RuntimeError as error:
            pytest.skip(f"PyTorch cannot do it on this processor: {error}")
        for _ in range(4):
            near(compiled(x), expected, torch.bfloat16)


@pytest.mark.recording
@pytest.mark.parametrize("most", [1, pytest.param(2, marks=pytest.mark.slow)])
@half
def test_samples_of_operators(dtype, most):
    """The recorded call of each sample is PyTorch's to the bit: the casts are those of autocast."""
    recorded, wrong = 0, []
    for op in entries():
        if op.name in ORDERING or op.name.startswith(("empty", "new_empty", "rand", "normal")):
            continue
        for sample in samples(op, torch.float32, most):
            call = Call(op, sample)
            with torch.no_grad(), warnings.catch_warnings(), torch.autocast("cpu", dtype):
                warnings.simplefilter("ignore")
                try:
                    torch.manual_seed(0)
                    expected = call(*(own.clone() for own in call.tensors))
                except Exception:
                    continue
                compiled = native(call)
                torch.manual_seed(0)
                try:
                    results = [compiled(*(own.clone() for own in call.tensors)) for _ in range(3)]
                except Exception as error:
                    wrong.append(f"{full_name(op)} raises {error}")
                    continue
            for number, found in enumerate(results):
                why = _difference(found, expected, dtype, exact=number == 0)
                if why is not None and not (number and _is_nearer(call, found, expected)):
                    wrong.append(f"{full_name(op)} {sample.args} {sample.kwargs}: {number}: {why}")
                    break
            recorded += "captured" in compiled.explain()
    assert not wrong, "\n".join(wrong)
    assert recorded > (220 if most == 1 else 450)


def _is_nearer(call, found, expected):
    """Whether results are nearer than PyTorch's to those in float64."""
    with torch.no_grad():
        exact = call(*(own.double() for own in call.tensors))
    for one, other, truth in zip(*map(pytree.tree_leaves, (found, expected, exact)), strict=True):
        errors = [(own.double() - truth).abs().max().item() for own in (one, other)]
        if not errors[0] <= errors[1]:
            return False
    return True


def _difference(found, expected, dtype, exact):
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    for one, other in zip(found, expected, strict=True):
        if not isinstance(other, torch.Tensor) or other.layout is not torch.strided:
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype} {list(one.shape)}, not {other.dtype} {list(other.shape)}"
        if exact and not other.is_complex():
            step = 1e-6 if other.dtype == torch.float32 else 0
            if not torch.allclose(one, other, rtol=step, atol=0, equal_nan=True):
                return "the recorded call differs"
        elif other.is_floating_point():
            step = 4 * torch.finfo(dtype).eps
            try:
                torch.testing.assert_close(one, other, rtol=step, atol=step, equal_nan=True)
            except AssertionError as error:
                return str(error).splitlines()[-1]
    return None
