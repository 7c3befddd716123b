"""corsac.save and corsac.load: the saved model runs as the original, with PyTorch and without."""

import json
import os
import pickle
import subprocess
import sys
import textwrap

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
import corsac.fx
from kit.trained import as_if_trained


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(4, 2)
        self.shift = nn.Parameter(torch.randn(2))
        self.register_buffer("scale", torch.randn(2))

    def forward(self, x):
        y = self.fc(self.drop(self.norm(self.conv(x)).relu().mean((2, 3))))
        return y * (self.scale * 2) + self.shift


IMAGE = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return as_if_trained(Net())


def saved(model, path, *inputs):
    """Save, load in both ways, and compare with PyTorch."""
    corsac.save(model, path, inputs)
    loaded, arrays = corsac.load(path, framework="torch"), corsac.load(path, framework="numpy")
    with torch.inference_mode():
        expected = model(*inputs)
        torch.testing.assert_close(loaded(*inputs), expected, rtol=1e-4, atol=1e-5)
    got = arrays(*(tensor.numpy() for tensor in inputs))
    torch.testing.assert_close(
        torch.utils._pytree.tree_map(torch.from_numpy, got), expected, rtol=1e-4, atol=1e-5
    )
    return loaded


def test_a_model_comes_back(model, tmp_path):
    path = tmp_path / "net.safetensors"
    loaded = saved(model, path, IMAGE)
    assert "captured and compiled" in loaded.explain()
    wanted = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name not in ("norm.num_batches_tracked", "scale")
    }
    state = loaded.state_dict()
    assert {name: state[name].tolist() for name in wanted} == {
        name: tensor.tolist() for name, tensor in wanted.items()
    }
    assert len(state) == len(wanted) + 1  # a value computed from `scale` alone
    for text in (str(path), os.fspath(path)):
        assert isinstance(corsac.load(text, framework="numpy"), corsac.NumpyModel)


def test_what_is_loaded_is_a_module(model, tmp_path):
    path = tmp_path / "net.safetensors"
    loaded = saved(model, path, IMAGE)
    state = {name: tensor * 2 for name, tensor in loaded.state_dict().items()}
    loaded.load_state_dict(state)
    with torch.no_grad():
        for tensor in (model.shift, model.fc.bias, model.fc.weight, model.conv.weight, model.scale):
            tensor.mul_(2)
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(model.norm, name).mul_(2)
        model.conv.bias.mul_(2)
        torch.testing.assert_close(loaded(IMAGE), model(IMAGE), rtol=1e-4, atol=1e-5)
        # Sizes may be constants of the graph.
        with pytest.raises(TypeError, match=r"input x is float32\[2, 3, 6, 6\], not float32\[3, 3"):
            loaded(torch.randn(3, 3, 5, 7))
        again = pickle.loads(pickle.dumps(loaded))
        torch.testing.assert_close(again(IMAGE), model(IMAGE), rtol=1e-4, atol=1e-5)
    assert not list(p for p in loaded.parameters() if p.requires_grad)


def test_everything_that_can_be_compiled_can_be_saved(model, tmp_path):
    path = tmp_path / "net.safetensors"
    for program in (corsac.compile(model), corsac.fx.symbolic_trace(model)):
        corsac.save(program, path, IMAGE)
        with torch.no_grad():
            torch.testing.assert_close(corsac.load(path)(IMAGE), model(IMAGE), rtol=1e-4, atol=1e-5)
    saved(lambda x, y: {"sum": x + y, "both": (x * 2, [y])}, path, IMAGE, IMAGE)
    saved(lambda x: x.flatten(1) @ torch.ones(108, 1), path, IMAGE)


def test_the_model_stays_as_it_is(model, tmp_path):
    names = [name for name, _ in model.named_modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    traced = corsac.fx.symbolic_trace(model)
    code = traced.code
    corsac.save(traced, tmp_path / "a.safetensors", IMAGE)
    corsac.save(model, tmp_path / "b.safetensors", IMAGE)
    assert traced.code == code
    assert [name for name, _ in model.named_modules()] == names
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_the_same_model_makes_the_same_file(model, tmp_path):
    files = [tmp_path / name for name in ("a", "b")]
    for path in files:
        corsac.save(model, path, IMAGE)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert b"test_model_file" not in files[0].read_bytes()


def test_a_tied_weight_is_saved_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(40, 40), nn.Linear(40, 40)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x).relu())

    path = tmp_path / "tied.safetensors"
    loaded = saved(Tied().eval(), path, torch.randn(2, 40))
    assert list(loaded.state_dict()) == ["a.weight", "a.bias", "b.bias"]
    assert path.stat().st_size < 40 * 40 * 4 + 3000


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_attention(batch_first, bias, tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first)

        def forward(self, x):
            mixed, _ = self.attention(x, x, x, need_weights=False)
            return x + mixed

    torch.manual_seed(0)
    saved(as_if_trained(Block()), tmp_path / "block", torch.randn(3, 5, 8))


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (lambda m, x: m(x, x, x)[0], {}),
        (lambda m, x: m(x, x, x), {}),
        (lambda m, x: m(x, x + 1, x, need_weights=False)[0], {}),
        (lambda m, x: m(x, x, x, need_weights=False)[0], {"add_zero_attn": True}),
        (lambda m, x: m(x[0], x[0], x[0], need_weights=False)[0], {}),
        (lambda m, x: m(x, x, x, attn_mask=x[0] @ x[0].T, need_weights=False)[0], {}),
    ],
)
def test_attention_of_all_kinds(call, options, tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, **options)

        def forward(self, x):
            return call(self.attention, x)

    saved(as_if_trained(Block()), tmp_path / "block", torch.randn(5, 5, 8))


def test_hooks_and_what_decides_in_python_are_in_the_file(tmp_path):
    """Hooks and Python control flow are saved as they are when the file is written."""
    model = nn.Linear(3, 3).eval()
    model.register_forward_hook(lambda module, args, result: result * 2)
    saved(model, tmp_path / "hooked", torch.randn(2, 3))
    saved(
        lambda x: x * 2 if isinstance(x, torch.Tensor) and type(x.shape[0]) is int else x * 3,
        tmp_path / "decides",
        torch.ones(3),
    )

    def writes(x):
        y = x * 2
        y.zero_()
        return y + 1

    saved(writes, tmp_path / "writes", torch.ones(3))


def test_example_inputs_are_taken_each_by_itself(tmp_path):
    x = torch.randn(3, 4).T
    corsac.save(lambda x, y: x * 2 - y, tmp_path / "two", (x, x))
    one, other = torch.randn(4, 3), torch.randn(4, 3)
    assert torch.equal(corsac.load(tmp_path / "two")(one, other), one * 2 - other)


def test_programs_of_torch_export(tmp_path):
    model = as_if_trained(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout()))
    x = torch.randn(2, 3)
    program = torch.export.export(model, (x,))
    for own in (program, program.module()):
        corsac.save(own, tmp_path / "exported", x)
        with torch.no_grad():
            torch.testing.assert_close(corsac.load(tmp_path / "exported")(x), model(x))


def test_programs_of_torch_export_after_decompositions(tmp_path):
    """What PyTorch makes of functions gives more than the program uses."""
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.GroupNorm(2, 4)]
    layers += [nn.InstanceNorm2d(4, affine=True), nn.Upsample(scale_factor=2, mode="bilinear")]
    model = as_if_trained(nn.Sequential(*layers, nn.Dropout()))
    program = torch.export.export(model, (IMAGE,)).run_decompositions()
    for own in (program, program.module()):
        corsac.save(own, tmp_path / "exported", IMAGE)
        loaded = corsac.load(tmp_path / "exported")
        with torch.no_grad():
            torch.testing.assert_close(loaded(IMAGE), model(IMAGE), rtol=1e-4, atol=1e-5)


def test_where_nothing_can_be_watched(tmp_path):
    """Under a debugger, or on another CPython, PyTorch exports the model."""
    model = as_if_trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    sys.settrace(lambda *_: None)
    try:
        saved(model, tmp_path / "debugged", IMAGE)
    finally:
        sys.settrace(None)


def test_what_cannot_run_on_the_engine_is_refused(model, tmp_path):
    path = tmp_path / "net"
    corsac.save(model, path, IMAGE)
    before = path.read_bytes()
    with pytest.raises(corsac.CompileError, match=r"the engine cannot run \w+ \(\S*fft_rfft\): "):
        corsac.save(lambda x: torch.fft.rfft(x.relu()).abs() + 1, path, IMAGE)
    with pytest.raises(corsac.CompileError, match="training mode"):
        corsac.save(model.train(), path, IMAGE)
    with pytest.raises(corsac.CompileError, match=r"engine cannot run \w+ \(\S*linalg_inv\): "):
        corsac.save(lambda x: torch.linalg.inv(x[0, :, :3, :3]) + 1, path, IMAGE)
    with pytest.raises(TypeError, match="example input 1 is a int"):
        corsac.save(lambda x, n: x * n, path, (IMAGE, 2))
    with pytest.raises(corsac.CompileError, match=r"decides|values"):
        corsac.save(lambda x: x * 2 if x.sum() > 0 else x, path, IMAGE)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        corsac.save(lambda x: x * 2, path, (IMAGE, IMAGE))
    with pytest.raises(corsac.CompileError, match="complex64"):
        corsac.save(lambda x: x * 2 + 1, path, IMAGE.to(torch.complex64))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net"]
    with pytest.raises(FileNotFoundError):
        corsac.save(lambda x: x * 2, tmp_path / "no" / "such", IMAGE)


def edited(path, **changes):
    """The file with other metadata."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for key, change in changes.items():
        metadata = header["__metadata__"]
        metadata[f"corsac.{key}"] = change(metadata[f"corsac.{key}"])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def test_damaged_files_are_errors(model, tmp_path):
    path, bad = tmp_path / "net", tmp_path / "bad"
    corsac.save(model, path, IMAGE)
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:100], whole + b"x", b"\x80\x04N.", pickle.dumps([1] * 50)):
        bad.write_bytes(data)
        with pytest.raises(corsac.ModelFileError):
            corsac.load(bad)
    bad.write_bytes(edited(path, format=lambda _: "7"))
    with pytest.raises(corsac.ModelFileError, match="version 7 of the format"):
        corsac.load(bad)
    with pytest.raises(FileNotFoundError, match="nothing"):
        corsac.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="framework"):
        corsac.load(path, framework="jax")


@pytest.mark.parametrize(
    "name",
    ["os.system", "torch.load", "torch.hub.load", "builtins.eval", "torch.os.system", "exec"],
)
def test_a_file_calls_nothing_but_operators(name, tmp_path):
    path = tmp_path / "evil"
    corsac.save(lambda x: x.relu() * 2 + 1, path, IMAGE)
    call = f"call_function[target={name}](args = ('touch {tmp_path}/touched',), kwargs = {{}})"
    line = f"\n    %evil = {call}\n    %output"
    path.write_bytes(edited(path, graph=lambda text: text.replace("\n    %output", line)))
    for framework in ("torch", "numpy"):
        with pytest.raises(corsac.CompileError, match=f"evil \\({name}\\)"):
            corsac.load(path, framework=framework)
    assert not (tmp_path / "touched").exists()


def test_arrays_that_do_not_fit_are_errors(model, tmp_path):
    corsac.save(model, tmp_path / "net", IMAGE)
    loaded = corsac.load(tmp_path / "net", framework="numpy")
    assert repr(loaded) == "NumpyModel(x: float32[2, 3, 6, 6] -> output: float32[2, 2])"
    image = IMAGE.numpy()
    swapped = numpy.ascontiguousarray(image.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    numpy.testing.assert_array_equal(loaded(swapped), loaded(image))
    for wrong in (image[:1], image.astype(numpy.float64), image.reshape(-1)):
        with pytest.raises(TypeError, match=r"input x is float32\[2, 3, 6, 6\], not"):
            loaded(wrong)
    with pytest.raises(TypeError, match="takes 1 arrays, not 2"):
        loaded(image, image)


def test_it_runs_without_pytorch(model, tmp_path):
    path = tmp_path / "net"
    corsac.save(model, path, IMAGE)
    numpy.save(tmp_path / "x.npy", IMAGE.numpy())
    program = f"""
        import sys
        sys.modules["torch"] = None
        import importlib.util, numpy, corsac
        importlib.util.find_spec = lambda name, *_: None
        model = corsac.load({str(path)!r})
        numpy.save({str(tmp_path / "y.npy")!r}, model(numpy.load({str(tmp_path / "x.npy")!r})))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
    with torch.no_grad():
        expected = model(IMAGE)
    got = torch.from_numpy(numpy.load(tmp_path / "y.npy"))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_other_programs_read_the_weights(model, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    corsac.save(model, tmp_path / "net", IMAGE)
    state = safetensors.load_file(tmp_path / "net")
    assert torch.equal(state["conv.weight"], model.conv.weight)


@pytest.mark.parametrize(
    "name", ["mobilenet_v3_small", "resnet18", "densenet121", "shufflenet_v2_x0_5", "convnext_tiny"]
)
def test_models_of_torchvision(name, tmp_path):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = as_if_trained(getattr(torchvision.models, name)())
    saved(model, tmp_path / name, torch.randn(1, 3, 64, 64))


def test_a_transformer_of_torchvision(tmp_path):
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    model = models.VisionTransformer(32, 8, 2, 2, 16, 32).eval()
    saved(as_if_trained(model), tmp_path / "vit", torch.randn(2, 3, 32, 32))


def test_functions(tmp_path):
    weight = torch.randn(5, 6)
    saved(lambda x: F.gelu(F.linear(x, weight)).softmax(-1), tmp_path / "f", torch.randn(3, 6))


def test_integers_and_truth_values(tmp_path):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 3)
            self.register_buffer("places", torch.arange(5))

        def forward(self, words, mask):
            x = self.words(words + self.places % 2).masked_fill(mask[..., None], 0.0)
            y = self.out(x).relu()
            return y, y.argmax(-1), y > 0.5

    torch.manual_seed(0)
    words, mask = torch.randint(0, 8, (2, 5)), torch.rand(2, 5) > 0.5
    loaded = saved(as_if_trained(Words()), tmp_path / "words", words, mask)
    assert loaded.state_dict()["words.weight"].shape == (9, 4)
    arrays = corsac.load(tmp_path / "words", framework="numpy")
    assert [dtype for _, dtype, _ in arrays.outputs] == ["float32", "int64", "bool"]
    with pytest.raises(TypeError, match=r"input words is int64\[2, 5\], not int32"):
        arrays(words.int().numpy(), mask.numpy())
    with pytest.raises(ValueError, match="out of range"):
        arrays(words.numpy() + 100, mask.numpy())
