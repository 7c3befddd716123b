"""corsac.compile: state, fallbacks, threads, models."""

import copy
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn

import corsac
import corsac.lowering
from kit.trained import as_if_trained


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.drop(self.norm(self.conv(x)).relu().mean((2, 3))))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return as_if_trained(Net())


IMAGE = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def runs_natively(compiled, model, x=IMAGE):
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("error", corsac.HostWarning)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)


def test_one_program_for_each_shape(model):
    compiled = corsac.compile(model)
    for shape in ((1, 3, 6, 6), (2, 3, 6, 6), (1, 3, 6, 6), (2, 3, 5, 9)):
        runs_natively(compiled, model, torch.randn(shape))
    assert len(compiled.native_programs()) == 3
    assert compiled.explain().count("captured and compiled") == 3
    for size in range(1, 40):
        runs_natively(compiled, model, torch.randn(1, 3, size, 2))
    assert len(compiled.native_programs()) == 16


def test_weights_that_change_are_seen(model):
    compiled = corsac.compile(model)
    runs_natively(compiled, model)
    with torch.no_grad():
        model.fc.weight.mul_(2)
        runs_natively(compiled, model)
        model.norm.running_mean.add_(1)
        runs_natively(compiled, model)
    model.load_state_dict(as_if_trained(Net(), 0.7).state_dict())
    runs_natively(compiled, model)
    model.fc = nn.Linear(4, 5)
    runs_natively(compiled, model)
    compiled.load_state_dict(copy.deepcopy(model.state_dict()))
    runs_natively(compiled, model)
    model.conv.weight = nn.Parameter(torch.ones(4, 3, 3, 3))
    runs_natively(compiled, model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(IMAGE).sum().backward()
    optimizer.step()
    runs_natively(compiled, model)


def test_the_program_used_last_is_kept(model):
    compiled = corsac.compile(model)
    runs_natively(compiled, model)
    (first,) = compiled.native_programs()
    for size in range(1, 30):
        # The second time, the size has been seen before.
        runs_natively(compiled, model, torch.randn(1, 3, size, 2))
        runs_natively(compiled, model, torch.randn(1, 3, size, 2))
        runs_natively(compiled, model)
    assert any(own is first for own in compiled.native_programs())


def test_a_model_made_in_inference_mode():
    torch.manual_seed(0)
    with torch.inference_mode():
        made = Net().eval()
        compiled = corsac.compile(made)
        runs_natively(compiled, made)
        # This write does not increment a version counter.
        made.norm.weight.mul_(2)
        torch.testing.assert_close(compiled(IMAGE), made(IMAGE))
        made.norm.bias = nn.Parameter(made.norm.bias + 1, requires_grad=False)
        torch.testing.assert_close(compiled(IMAGE), made(IMAGE))


def test_training_mode_is_seen(model):
    compiled = corsac.compile(model)
    runs_natively(compiled, model)
    compiled.train()
    assert model.training
    assert model.norm.training
    before = model.norm.running_mean.clone()
    with torch.no_grad():
        compiled(IMAGE)
    assert not torch.equal(model.norm.running_mean, before)
    compiled.eval()
    runs_natively(compiled, model)
    model.drop.train()
    with torch.no_grad():
        results = {tuple(compiled(IMAGE).flatten().tolist()) for _ in range(20)}
    assert len(results) > 1


def test_autograd_records_calls(model):
    compiled, other = corsac.compile(model), copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        for _ in range(2):
            compiled(IMAGE).sum().backward()
            other(IMAGE).sum().backward()
        torch.testing.assert_close(model.fc.weight.grad, other.fc.weight.grad)
        assert "backward: " in compiled.explain()
        model.requires_grad_(False)
        runs_natively(compiled, model)


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (
            IMAGE.to(torch.complex64),
            "torch.complex64, not torch.float32, torch.float64, torch.int64, torch.bool",
        ),
        (IMAGE.to("meta"), "on meta"),
        (IMAGE.to_sparse(), "torch.sparse_coo"),
    ],
)
def test_other_inputs_are_not_run(x, reason):
    compiled = corsac.compile(lambda x: x + 1, fullgraph=True)
    with torch.no_grad(), pytest.raises(corsac.CompileError, match=reason):
        compiled(x)


def test_autocast_is_a_program_of_its_own(model):
    compiled = corsac.compile(model)
    with torch.no_grad():
        plain = compiled(IMAGE)
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(2):
                found = compiled(IMAGE)
                assert found.dtype is torch.bfloat16
                torch.testing.assert_close(found, model(IMAGE), rtol=0.05, atol=0.05)
        torch.testing.assert_close(compiled(IMAGE), plain)
    assert "in autocast to torch.bfloat16" in compiled.explain()


def test_a_model_that_cannot_be_recorded_is_captured_by_dynamo():
    def forward(x):
        first = x[:1]
        if x.sum() > 0:
            first.add_(0)
            return x + 1
        return x - 1

    compiled = corsac.compile(forward)
    with torch.no_grad():
        assert compiled(torch.ones(2)).tolist() == [2, 2]
        assert compiled(-torch.ones(2)).tolist() == [-2, -2]
    assert "of Dynamo" in compiled.explain()


def test_what_is_not_known_is_a_fallback_subgraph():
    def forward(x, y):
        a = (x.relu() + y).sigmoid() * 2
        values, places = torch.mode(a, dim=0, keepdim=True)
        b = (values * y - 1).relu().sum(1) + 1
        return {"b": b, "places": places, "c": torch.fft.fft(a * a + a - 3)}

    x, y = torch.randn(5, 4), torch.randn(4)
    compiled = corsac.compile(forward)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("error")
        for _ in range(2):
            torch.testing.assert_close(compiled(x, y), forward(x, y))
    text = compiled.explain()
    assert "2 native parts" in text
    assert "mode (torch.mode): " in text
    with torch.inference_mode(), pytest.raises(corsac.CompileError, match="mode"):
        corsac.compile(forward, fullgraph=True)(x, y)


def test_the_engine_is_a_backend_of_lowering(model):
    assert corsac.lowering.backends()["corsac"] is None
    lowered = corsac.lower(model, "corsac", IMAGE, strict=True)
    torch.testing.assert_close(lowered(IMAGE), model(IMAGE), rtol=1e-5, atol=1e-6)
    assert len(lowered.meta["lowering"].parts) == 1


def test_an_operator_that_is_not_known_is_named():
    compiled = corsac.compile(lambda x: torch.fft.rfft(x).abs(), fullgraph=True)
    with torch.no_grad(), pytest.raises(corsac.CompileError, match=r"node .*rfft"):
        compiled(torch.ones(4))


def test_a_call_that_fails_raises_what_pytorch_raises(model):
    compiled = corsac.compile(model)
    for _ in range(3):
        with torch.no_grad(), pytest.raises(RuntimeError, match="expected input"):
            compiled(torch.ones(1, 5, 6, 6))


def test_hooks_are_run(model):
    compiled = corsac.compile(model)
    runs_natively(compiled, model)
    calls = []
    handle = model.conv.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        for number in range(1, 5):
            compiled(IMAGE)
            assert calls == [1] * number
    handle.remove()
    handle = model.conv.register_forward_hook(lambda module, args, out: out * 2)
    runs_natively(compiled, model)
    handle.remove()
    runs_natively(compiled, model)
    assert calls == [1] * 4


def test_it_is_a_module(model):
    compiled = corsac.compile(model)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    restored = pickle.loads(pickle.dumps(compiled))
    runs_natively(restored, model)
    compiled.to(torch.float64)
    assert model.fc.weight.dtype is torch.float64


def test_keywords_and_defaults():
    class Scaled(nn.Module):
        def forward(self, x, y, scale=2.0):
            return x * scale + y

    model = Scaled().eval()
    compiled = corsac.compile(model, fullgraph=True)
    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(compiled(y=y, x=x), model(x, y))


def test_many_threads_call_one_model(model):
    compiled = corsac.compile(model)
    runs_natively(compiled, model)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(2, 3, 6, 6, generator=generator)
            with torch.inference_mode():
                if not torch.allclose(compiled(x), model(x), rtol=1e-5, atol=1e-6):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


MODELS = ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5"]
#: Models of tens of gigabytes, or that take minutes, covered by smaller ones.
TOO_LARGE = ("regnet_y_128gf", "vit_h_14", "vit_l_16", "vit_l_32", "convnext_large")
#: Models with functions that are leaves of tracing, and read sizes.
NOT_YET = ("swin", "maxvit", "mvit")


def check_model(name):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = as_if_trained(torchvision.models.get_model(name, weights=None, **options))
    size = 299 if name == "inception_v3" else 224
    image = torch.randn(1, 3, size, size)
    compiled = corsac.compile(model, fullgraph=True)
    with torch.inference_mode():
        expected, found = model(image), compiled(image)
    scale = expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * max(scale, 1e-3))


@pytest.mark.parametrize("name", MODELS)
def test_models_of_torchvision(name):
    check_model(name)


@pytest.mark.slow
def test_all_models_of_torchvision():
    torchvision = pytest.importorskip("torchvision")
    names = torchvision.models.list_models(module=torchvision.models)
    done = [n for n in names if n not in TOO_LARGE and not n.startswith(NOT_YET)]
    for name in done:
        check_model(name)
    assert len(done) >= 60


def test_what_is_alike_is_explained_once():
    def forward(x):
        for _ in range(7):
            x = torch.fft.fft(x * 2 + 1).real + 1
        return x

    compiled = corsac.compile(forward)
    with torch.inference_mode():
        compiled(torch.randn(3, 4))
    text = compiled.explain()
    assert "  7 × torch._C._fft.fft_fft (" in text and " and 3 others): " in text


@pytest.mark.filterwarnings("ignore::corsac.HostWarning", "ignore:Lazy modules:UserWarning")
def test_lazy_modules_get_their_weights_in_the_first_call():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU()).eval()
    compiled, x = corsac.compile(model), torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
    assert type(model[0]) is nn.Linear and model[0].weight.shape == (4, 3)
    assert "1 steps" in compiled.explain() or "native" in compiled.explain(), compiled.explain()
