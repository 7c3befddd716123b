"""Calls of compiled models: properties of input tensors, and other circumstances that a call depends on."""

import os
import signal
import threading
import time
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import corsac
from corsac import _core
from corsac._models.function import module_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(x).relu() + 1


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Net().eval().requires_grad_(False)


@pytest.fixture
def compiled(model):
    compiled = corsac.compile(model)
    compiled(torch.randn(3, 6))
    return compiled


def is_quick(compiled, *inputs):
    """Whether a call takes the fast path."""
    return module_of(compiled)._runner.run(inputs) is not NotImplemented


BASE = torch.randn(7, 12, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "x",
    [
        BASE[:3, :6],
        BASE[:3, ::2],
        BASE.t()[:6, :3].t(),
        BASE[0, :6].expand(3, 6),
        BASE.as_strided((3, 6), (2, 1)),
        BASE.flatten()[1:19].view(3, 6),
        torch._neg_view(BASE[:3, :6].contiguous()),
        torch.frombuffer(bytearray(b"\0" + BASE[:3, :6].numpy().tobytes()), dtype=torch.uint8)[1:]
        .view(torch.uint8)
        .clone()
        .view(torch.float32)
        .view(3, 6),
    ],
    ids=["slice", "steps", "transposed", "expanded", "overlapping", "offset", "negated", "bytes"],
)
def test_layouts(compiled, model, x):
    before = x.clone()
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
    assert torch.equal(x, before)


def test_strides_of_dimensions_of_one_element_are_those_of_eager_calls():
    """Later operators may go by them: in the order of channels last, for example."""
    shapes = [(2, 1, 6, 6), (1, 1, 6, 6), (2, 3, 6, 6), (2, 1, 7, 5)]
    for function in (lambda x: F.max_pool2d(x, 2), lambda x: (F.avg_pool2d(x, 3, 2), x + 1)):
        compiled = corsac.compile(function)
        for shape in (*shapes, *shapes):
            for order in (torch.contiguous_format, torch.channels_last):
                x = torch.randn(shape).to(memory_format=order)
                for _ in range(3):
                    pairs = zip(tree_leaves(compiled(x)), tree_leaves(function(x)), strict=True)
                    for found, expected in pairs:
                        assert found.stride() == expected.stride()
                        torch.testing.assert_close(found, expected)
                        # An ordinary tensor.
                        assert not found._is_view()
                        found.resize_(500).fill_(1.0)


def test_tensors_without_elements(compiled, model):
    for shape in ((0, 6), (2, 0, 6)):
        x = torch.empty(shape)
        for _ in range(2):
            assert compiled(x).shape == model(x).shape


@pytest.mark.recording
def test_results_share_memory_where_eagers_do():
    def forward(x, y):
        return x, x.view(-1), y.relu(), y.relu()

    compiled = corsac.compile(forward)
    x, y = torch.randn(2, 3), torch.randn(4)
    for _ in range(3):
        same, flat, first, second = compiled(x, y)
        assert same is x and flat.data_ptr() == x.data_ptr() and flat.shape == (6,)
        pointers = {own.data_ptr() for own in (x, y, first, second)}
        assert len(pointers) == 4
    # Ordinary tensors: they can be written to, resized, and require gradients.
    second.resize_(50)
    first.requires_grad_()
    (first * 2).sum().backward()
    assert first.grad.tolist() == [2.0] * 4


def test_containers_are_new_each_time():
    compiled = corsac.compile(lambda x: {"a": [x + 1, (x * 2, None)], "b": x - 1})
    x = torch.randn(3)
    first, second = compiled(x), compiled(x)
    first["a"].append(1)
    assert len(second["a"]) == 2
    assert second["a"][1][1] is None
    assert torch.equal(compiled(x)["a"][1][0], x * 2)


def test_truth_values_that_are_other_bytes():
    compiled = corsac.compile(lambda x, y: (x & y, x.logical_not()))
    x = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)
    y = torch.ones(4, dtype=torch.bool)
    for _ in range(2):
        both, neither = compiled(x, y)
        assert both.tolist() == [False, True, True, True]
        assert neither.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: ~x,
        lambda x, y, z: torch.where(x, y, z),
        lambda x, y, z: y.masked_fill(x, 2.0),
        lambda x, y, z: torch.where(x, y.sin(), z.cos() * 2),
        lambda x, y, z: (~x, x | ~x, x),
        lambda x, y, z: (torch.where(x, x, ~x), torch.where(x, y, z)),
        lambda x, y, z: (x.float() * y, x.long(), x.any(), x.sum()),
    ],
)
@pytest.mark.parametrize("count", [1, 100])
def test_truth_values_that_are_other_bytes_are_true(function, count):
    x = torch.tensor([0, 1, 2, 255, 128] * count, dtype=torch.uint8).view(torch.bool)
    # The same with booleans in normal representation.
    usual = x.view(torch.uint8).ne(0)
    y, z = torch.randn(5 * count), torch.randn(5 * count)
    compiled = corsac.compile(function)
    for _ in range(3):
        found, expected = compiled(x, y, z), function(usual, y, z)
        for own, other in zip(
            *([r] if torch.is_tensor(r) else r for r in (found, expected)), strict=True
        ):
            if own.dtype is torch.bool:
                own = own.view(torch.uint8).ne(0)
            torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-6)


def test_structures_and_functions_of_pytorch_are_known():
    assert _core.knows_tensor_layout()
    assert _core.knows_switches()
    assert _core.makes_tensors_directly()


@pytest.mark.parametrize("shape", [(3, 6), (6,), (), (2, 0, 6), (1, 1, 6), (1, 2, 1, 2, 1, 2, 6)])
@pytest.mark.parametrize("inference", [True, False])
def test_results_are_tensors_as_operators_make_them(shape, inference):
    functions = [lambda x: x + 1, lambda x: (x * 2).long(), lambda x: x > 0]
    compiled = corsac.compile(lambda x: tuple(f(x) for f in functions))
    with torch.inference_mode(inference):
        x = torch.randn(shape)
        compiled(x)
        for own, f in zip(compiled(x), functions, strict=True):
            expected = f(x)
            assert type(own) is torch.Tensor
            assert torch.equal(own, expected)
            for ask in (
                lambda t: (t.dtype, t.device, t.layout, t.shape, t.stride(), t.storage_offset()),
                lambda t: (t.is_inference(), t.requires_grad, t.is_leaf, t.grad_fn),
                lambda t: (t.untyped_storage().nbytes(), t.untyped_storage().resizable()),
                lambda t: None if t.is_inference() else t._version,
                lambda t: (t.is_contiguous(), t.numel(), t.is_conj(), t.is_neg()),
            ):
                assert ask(own) == ask(expected)
            own.resize_(100).zero_()
            assert own.untyped_storage().nbytes() >= 100
    if not inference:
        leaf = compiled(torch.randn(shape))[0].requires_grad_()
        leaf.sum().backward()
        assert torch.equal(leaf.grad, torch.ones(shape))


@pytest.mark.unverified
def test_results_go_with_their_last_name(compiled):
    freed = []
    result = compiled(torch.randn(3, 6))
    weakref.finalize(result, freed.append, True)
    view = result[0]
    del result
    assert view.shape == (4,)
    del view
    assert freed == [True]


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.unverified
@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        TorchDispatchMode,
        Passing,
    ],
)
def test_modes_of_this_thread_are_seen(compiled, mode):
    x = torch.randn(3, 6)
    assert is_quick(compiled, x)
    with mode():
        assert not is_quick(compiled, x)
        quick = []
        thread = threading.Thread(target=lambda: quick.append(is_quick(compiled, x)))
        thread.start()
        thread.join()
        assert quick == [True]
    assert is_quick(compiled, x)


@pytest.mark.unverified
def test_transforms_and_traces_are_seen(compiled, model):
    x = torch.randn(2, 3, 6)
    assert is_quick(compiled, x[0])
    torch.testing.assert_close(torch.vmap(compiled)(x), torch.stack([model(x[0]), model(x[1])]))
    quick = []

    def program(x):
        quick.append(is_quick(compiled, x))
        return x * 2

    torch.vmap(program)(x)
    torch.jit.trace(program, x[0], check_trace=False)
    assert quick == [False, False]
    program(x[0])
    assert quick[-1]
    assert is_quick(compiled, x[0])


def test_elements_that_are_shared_until_they_are_written_to():
    x = torch.randn(3, 6)
    lazy = torch._lazy_clone(x)
    compiled = corsac.compile(lambda x: x * 2 + 1)
    for _ in range(2):
        torch.testing.assert_close(compiled(lazy), x * 2 + 1)
    before = x.clone()

    @torch.compile(backend="corsac")
    def writes(x):
        x.add_(1)
        return x * 2

    for _ in range(3):
        with torch.no_grad():
            writes(lazy)
    assert torch.equal(x, before)
    torch.testing.assert_close(lazy, before + 3)


@pytest.mark.unverified
def test_other_inputs_are_not_taken_for_known_ones(compiled, model):
    x = torch.randn(3, 6)
    assert is_quick(compiled, x)
    for other in (x.double(), x.to("meta"), x.to_sparse(), x[:2], x[0], x.int()):
        assert not is_quick(compiled, other)
    assert not is_quick(compiled, x, x)
    assert not is_quick(compiled)
    assert not is_quick(compiled, [x])
    assert not is_quick(compiled, x.as_subclass(type("Own", (torch.Tensor,), {})))
    # Programs may test the type.
    assert not is_quick(compiled, nn.Parameter(x, requires_grad=False))
    torch.testing.assert_close(compiled(nn.Parameter(x, requires_grad=False)), compiled(x))
    with pytest.raises(RuntimeError):
        compiled(x[:, :5])
    with pytest.raises(TypeError):
        compiled(x, x)
    assert torch.equal(compiled(x), compiled(x))


@pytest.mark.unverified
def test_what_changes_in_the_model_is_seen(compiled, model):
    x = torch.randn(3, 6)

    def check():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)

    check()
    model.fc.weight.mul_(2)
    assert not is_quick(compiled, x)
    check()
    assert is_quick(compiled, x)
    model.fc.bias = nn.Parameter(torch.ones(4), requires_grad=False)
    assert not is_quick(compiled, x)
    check()
    model.fc = nn.Linear(6, 4).requires_grad_(False).eval()
    assert not is_quick(compiled, x)
    check()
    model.fc.weight.data = torch.zeros(4, 6)
    model.fc.weight.mul_(1)
    check()
    model.fc.train()
    check()
    model.fc.eval()
    check()
    del model.fc
    with pytest.raises((AttributeError, RuntimeError)):
        compiled(x)


@pytest.mark.unverified
def test_hooks_of_all_kinds_are_run(compiled, model):
    x, calls = torch.randn(3, 6), []

    def note(*_):
        calls.append(1)

    for register in (
        model.fc.register_forward_hook,
        model.fc.register_forward_pre_hook,
        compiled.register_forward_hook,
        compiled.register_forward_pre_hook,
        torch.nn.modules.module.register_module_forward_hook,
        torch.nn.modules.module.register_module_forward_pre_hook,
    ):
        compiled(x)
        assert is_quick(compiled, x)
        calls.clear()
        handle = register(note)
        assert not is_quick(compiled, x)
        compiled(x)
        handle.remove()
        assert calls, register


@pytest.mark.unverified
def test_modes_are_seen(compiled, model):
    x = torch.randn(3, 6)
    assert is_quick(compiled, x)
    model.requires_grad_(True)
    assert not is_quick(compiled, x)
    with torch.no_grad():
        assert is_quick(compiled, x)
    model.requires_grad_(False)
    assert not is_quick(compiled, x.clone().requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_quick(compiled, x)

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    names = []
    with Seen(), pytest.warns(corsac.HostWarning, match="mode"):
        found = compiled(x)
    assert any("relu" in name for name in names)
    torch.testing.assert_close(found, model(x))


def test_transforms_of_functions(compiled, model):
    x, direction = torch.randn(5, 3, 6), torch.randn(3, 6)
    with pytest.warns(corsac.HostWarning, match=r"torch\.func"):
        found = torch.vmap(compiled)(x)
    torch.testing.assert_close(found, torch.vmap(model)(x))
    with forward_ad.dual_level(), pytest.warns(corsac.HostWarning, match="forward-mode"):
        found = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x[0], direction)))
        expected = forward_ad.unpack_dual(model(forward_ad.make_dual(x[0], direction)))
        torch.testing.assert_close(found.tangent, expected.tangent)


def test_a_call_that_fails_leaves_the_program_as_it_was():
    table = nn.Embedding(5, 3).requires_grad_(False).eval()
    compiled = corsac.compile(table)
    right = torch.tensor([0, 4, 2])
    expected = table(right)
    assert torch.equal(compiled(right), expected)
    for _ in range(3):
        with pytest.raises((IndexError, ValueError), match="out of range"):
            compiled(torch.tensor([0, 5, 2]))
        assert torch.equal(compiled(right), expected)


def test_an_operator_that_fails_in_a_fallback_subgraph(model):
    def check(x):
        if x.isnan().any():
            raise ValueError("there is a NaN")
        return x

    class WithFallback(nn.Module):
        def forward(self, x):
            y = (x * 2 + 1).relu() - 3
            y = torch.ops.corsac_tests.checked(y)
            return (y * y - 1).sigmoid() + x

    library = torch.library.Library("corsac_tests", "FRAGMENT")
    library.define("checked(Tensor x) -> Tensor")
    library.impl("checked", lambda x: check(x).clone(), "CPU")
    model = WithFallback().eval()
    compiled = corsac.compile(model)
    x = torch.randn(4, 5)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))
        with pytest.raises(ValueError, match="there is a NaN"):
            compiled(torch.full((4, 5), torch.nan))
    assert "checked" in compiled.explain()


def call_from_threads(threads, seconds):
    """Calls one compiled model from many threads, with results checked; returns the number of correct calls."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(2), nn.Linear(64, 5)
    ).eval()  # fmt: skip
    compiled = corsac.compile(model)
    images = [torch.randn(1 + at % 3, 3, 10, 10) for at in range(6)]
    with torch.inference_mode():
        expected = [model(image) for image in images]
    wrong, right = [], []
    stop = threading.Event()

    def work(seed):
        at = seed
        with torch.inference_mode():
            while not stop.is_set():
                at = (at * 5 + 1) % len(images)
                found = compiled(images[at])
                if not torch.allclose(found, expected[at], rtol=1e-4, atol=1e-5):
                    wrong.append(at)
                right.append(1)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    stop.wait(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    assert wrong == []
    return len(right)


def test_sixteen_threads_call_one_model():
    assert call_from_threads(16, 2) > 16


@pytest.mark.slow
def test_sixteen_threads_call_one_model_for_a_minute():
    assert call_from_threads(16, 60) > 1000


def test_weights_that_call_the_model_when_they_are_looked_at():
    class Watching(nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if inner and func == torch.Tensor._version.__get__:
                with torch._C.DisableTorchFunctionSubclass():
                    inner.pop()
                    seen.append(compiled(x))
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    seen, inner = [], []
    model = Net().eval().requires_grad_(False)
    model.fc.bias = Watching(torch.ones(4), requires_grad=False)
    compiled = corsac.compile(model)
    x = torch.randn(3, 6)
    expected = model(x)
    for _ in range(3):
        inner[:] = [True]
        torch.testing.assert_close(compiled(x), expected)
    for own in seen:
        torch.testing.assert_close(own, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        # Large enough for the pool's threads, which also pack the weights.
        (lambda: [nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)], (4, 8, 40, 40)),
        (lambda: [nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)], (128, 512)),
    ],
    ids=["convolutions", "linear layers"],
)
def test_a_forked_process_compiles_and_calls_the_model(layers, shape):
    torch.manual_seed(0)
    model = nn.Sequential(*layers()).eval().requires_grad_(False)
    compiled = corsac.compile(model)
    x = torch.randn(shape)
    compiled(x)
    expected = compiled(x)
    # The test is about forking a process with threads: nothing else runs in the child.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        agrees = torch.equal(compiled(x), expected)
        anew = corsac.compile(model)
        anew(x)
        os._exit(0 if agrees and torch.equal(anew(x), expected) else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child does not answer")
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.unverified
def test_results_are_tensors_like_those_of_pytorch():
    compiled = corsac.compile(
        lambda x: (x + 1, x > 0, x.argmax(-1)), options={"inference": "native"}
    )
    x = torch.randn(3, 6)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            first, second = compiled(x), compiled(x)
            assert is_quick(compiled, x)
            for own, other, dtype in zip(
                first, second, (torch.float32, torch.bool, torch.int64), strict=True
            ):
                assert (own.dtype, own.device, own.requires_grad) == (dtype, x.device, False)
                assert own.is_contiguous() and own.data_ptr() != other.data_ptr()
                assert own.is_inference() == (mode is torch.inference_mode)
                assert own.untyped_storage().nbytes() == own.nbytes
                # They have memory of their own, which may be enlarged.
                own.resize_(5, 7).fill_(0)


@pytest.mark.unverified
@pytest.mark.parametrize("name", ["max", "min", "sort"])
def test_results_with_names_are_quick(name):
    def function(x):
        return getattr(x, name)(-1)

    compiled = corsac.compile(function, options={"inference": "native"})
    x = torch.randn(3, 6)
    with torch.no_grad():
        compiled(x)
        for own in (x, torch.randn(3, 6)):
            got, expected = compiled(own), function(own)
            assert type(got) is type(expected)
            assert torch.equal(got.values, expected.values)
            assert torch.equal(got.indices, expected.indices)
        assert is_quick(compiled, x)
