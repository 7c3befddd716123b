"""Files of models in other types than float32: saved, loaded, and run without PyTorch."""

import copy
import subprocess

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map

import corsac
from kit.trained import as_if_trained

HALVES = (torch.bfloat16, torch.float16)
#: Rounding of a result, as a part of it.
STEP = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


class Rows(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(12, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 6))


class Images(nn.Sequential):
    def __init__(self):
        layers = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.SiLU()]
        super().__init__(*layers, nn.Conv2d(6, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 5))


class Words(nn.Module):
    """Its tokens are integers of fewer bits, and its results are of several types."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(40, 16), nn.Linear(16, 7)

    def forward(self, words, shift):
        scores = self.out(self.words(words).cumsum(1)) + shift
        best = scores.argmax(-1)
        return {"scores": scores, "best": (best.int(), best.to(torch.uint8)), "on": scores > 0}


def rows():
    return Rows(), (torch.randn(5, 12),)


def images():
    return Images(), (torch.randn(2, 3, 6, 6),)


def words():
    return Words(), (torch.randint(40, (3, 6), dtype=torch.int32), torch.randn(7))


MODELS = {"rows": rows, "images": images, "words": words}


def made(name, dtype):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    exact = as_if_trained(model)
    model = copy.deepcopy(exact).to(dtype)
    inputs = [own.to(dtype) if own.is_floating_point() else own for own in inputs]
    return model, inputs, [own.double() if own.is_floating_point() else own for own in inputs]


def array(tensor):
    return tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()


def as_near(found, expected, true):
    """Whether results have the types of the expected ones, and numbers that are as near to the true ones."""
    leaves = map(torch.utils._pytree.tree_leaves, (found, expected, true))
    for own, its, exact in zip(*leaves, strict=True):
        assert (own.dtype, own.shape) == (its.dtype, its.shape)
        if not its.is_floating_point():
            assert torch.equal(own, its)
            continue
        step = STEP.get(its.dtype, 1e-6)
        error, its_error = ((each.double() - exact).norm() for each in (own, its))
        assert error <= max(2 * its_error, step * exact.norm()), (error, its_error)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_16_bits(name, dtype, programs, tmp_path):
    model, inputs, exact_inputs = made(name, dtype)
    path = tmp_path / "model.safetensors"
    corsac.save(model, path, tuple(inputs))
    with torch.inference_mode():
        expected, true = model(*inputs), copy.deepcopy(model).double()(*exact_inputs)
        loaded = corsac.load(path)
        found = loaded(*inputs)
    as_near(found, expected, true)
    report = loaded.explain()
    assert not any(words in report for words in ("PyTorch runs", "not compiled", "run by PyTorch"))
    size = sum(own.numel() * own.element_size() for own in model.state_dict().values())
    assert path.stat().st_size < size + 8000

    # As arrays, with the same bits. numpy has no bfloat16.
    arrays = corsac.load(path, framework="numpy")
    again = arrays(*map(array, inputs))
    tree_map(numpy.testing.assert_array_equal, again, tree_map(array, found))
    kinds = tree_map(lambda own: str(own.dtype), again)
    assert kinds == tree_map(lambda own: str(array(own).dtype), found)

    # And by the program, from files.
    files = []
    for own, (name, _, _) in zip(inputs, arrays.inputs, strict=True):
        numpy.save(tmp_path / f"{name}.npy", array(own))
        files += ["--input", f"{name}={tmp_path / name}.npy"]
    for number in range(len(arrays.outputs)):
        files += ["--output", f"{tmp_path / str(number)}.npy"]
    subprocess.run([programs["corsac"], "run", path, *files], check=True, capture_output=True)
    for number, own in enumerate(torch.utils._pytree.tree_leaves(again)):
        result = numpy.load(tmp_path / f"{number}.npy")
        assert result.dtype == own.dtype
        numpy.testing.assert_allclose(
            result.astype(float), own.astype(float), rtol=2 * STEP[dtype], atol=STEP[dtype]
        )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_weights_of_16_bits_are_rounded_nowhere_else(dtype, tmp_path):
    """Numbers that only the type's own range and steps hold."""

    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            numbers = [torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal, -0.0, 1.0, 3.14]
            self.register_buffer("numbers", torch.tensor(numbers, dtype=dtype))

        def forward(self, x):
            return self.numbers * x, self.numbers.flip(0), x.float() + self.numbers.float()

    model, x = Sums().eval(), torch.tensor([1.0, -1.0, 1.0, 1.5, 2.0], dtype=dtype)
    corsac.save(model, tmp_path / "sums", x)
    with torch.inference_mode():
        for own, its in zip(corsac.load(tmp_path / "sums")(x), model(x), strict=True):
            assert own.dtype is its.dtype and torch.equal(own, its)
    arrays = corsac.load(tmp_path / "sums", framework="numpy")
    for own, its in zip(arrays(array(x)), model(x), strict=True):
        numpy.testing.assert_array_equal(own, array(its))


NARROW = (torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_integers_wrap_as_in_pytorch(dtype, programs, tmp_path):
    def wrapped(x, y):
        return x * y, x + 1, (x - y).to(torch.int64), x.float() / 3, x > y

    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = torch.tensor([least, most, 0, 1, most - 1, 7], dtype=dtype)
    y = torch.tensor([most, most, 1, least, 2, 3], dtype=dtype)
    path = tmp_path / "wrapped"
    corsac.save(wrapped, path, (x, y))
    expected = wrapped(x, y)
    for own, its in zip(corsac.load(path)(x, y), expected, strict=True):
        assert own.dtype is its.dtype
        torch.testing.assert_close(own, its, rtol=0, atol=0)
    arrays = corsac.load(path, framework="numpy")
    for own, its in zip(arrays(x.numpy(), y.numpy()), expected, strict=True):
        assert own.dtype == its.numpy().dtype
        numpy.testing.assert_array_equal(own, its.numpy())
    with pytest.raises(TypeError, match="not int64"):
        arrays(x.numpy().astype("int64"), y.numpy())
    numpy.save(tmp_path / "x.npy", x.numpy())
    numpy.save(tmp_path / "y.npy", y.numpy())
    files = ["--input", tmp_path / "x.npy", "--input", tmp_path / "y.npy"]
    files += ["--output", tmp_path / "0.npy", "--output", tmp_path / "1.npy"]
    command = [programs["corsac"], "run", path, *files]
    subprocess.run(command, check=True, capture_output=True)
    for number in range(2):
        result = numpy.load(tmp_path / f"{number}.npy")
        assert result.dtype == expected[number].numpy().dtype
        numpy.testing.assert_array_equal(result, expected[number].numpy())
    numpy.save(tmp_path / "x.npy", x.numpy().astype("float32"))
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 2 and "is needed" in failed.stderr


def test_types_that_do_not_fit_are_errors(programs, tmp_path):
    corsac.save(lambda x: x * 2, tmp_path / "f", torch.ones(3, dtype=torch.bfloat16))
    loaded, arrays = corsac.load(tmp_path / "f"), corsac.load(tmp_path / "f", framework="numpy")
    with pytest.raises(TypeError, match=r"input x is bfloat16\[3\], not float32"):
        loaded(torch.ones(3))
    with pytest.raises(TypeError, match=r"input x is float32\[3\], not float16"):
        arrays(numpy.ones(3, dtype="float16"))
    numpy.save(tmp_path / "x.npy", numpy.ones(3, dtype="float16"))
    command = [programs["corsac"], "run", tmp_path / "f", "--input", tmp_path / "x.npy"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "elements are '<f2', and x: bfloat16[3] is needed, as '<f4'" in failed.stderr
    # Rounded to bfloat16, before and after.
    rounded = torch.tensor([1.001, 2.5, 1e5]).bfloat16() * 2
    found = arrays(numpy.array([1.001, 2.5, 1e5], dtype="float32"))
    numpy.testing.assert_array_equal(found, rounded.float().numpy())
    for dtype in (torch.complex64, torch.uint16):
        with pytest.raises(corsac.CompileError, match=str(dtype)):
            corsac.save(lambda x: x * 2, tmp_path / "g", torch.ones(3, dtype=dtype))


def test_the_program_names_the_types(programs, tmp_path):
    corsac.save(F.silu, tmp_path / "f", torch.ones(3, 2, dtype=torch.float16))
    for command, words in (("bench", ["calls on"]), ("run", ["float16[3, 2] is missing"])):
        done = subprocess.run(
            [programs["corsac"], command, tmp_path / "f"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (0 if command == "bench" else 2)
        assert all(word in done.stdout + done.stderr for word in words), done
