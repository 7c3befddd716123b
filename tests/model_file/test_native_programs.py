"""Saved models in programs without Python or PyTorch, compared with PyTorch."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy
import pytest
import torch
from torch import nn

import corsac
from kit.trained import as_if_trained, with_usual_scores


def run(*command, code=0):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """ResNet-50, and its file."""
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = with_usual_scores(as_if_trained(torchvision.models.resnet50()))
    path = tmp_path_factory.mktemp("resnet") / "resnet50.safetensors"
    corsac.save(model, path, torch.zeros(1, 3, 224, 224))
    return model, path


def picture(width, height):
    """A picture with edges, gradients and noise."""
    rows, columns = numpy.mgrid[0:height, 0:width]
    random = numpy.random.default_rng(0)
    waves = [numpy.sin(columns / 9 + k) * numpy.cos(rows / (7 + k)) for k in range(3)]
    base = 128 + 90 * numpy.stack(waves, -1) + random.normal(0, 12, (height, width, 3))
    base[height // 3 : height // 2, width // 4 : width // 2] = (250, 20, 90)
    return base.clip(0, 255).astype(numpy.uint8)


def test_the_program_needs_no_library(programs):
    headers = subprocess.run(
        ["readelf", "--program-headers", "--dynamic", programs["corsac"]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert headers.returncode == 0, headers.stderr
    assert "INTERP" not in headers.stdout and "NEEDED" not in headers.stdout


@pytest.mark.parametrize(
    ("name", "width", "height"),
    [("a.png", 401, 333), ("b.png", 150, 307), ("c.png", 256, 256), ("d.jpg", 640, 427)],
)
def test_resnet_50_classifies_an_image(resnet, programs, tmp_path, name, width, height):
    pillow = pytest.importorskip("PIL.Image")
    from torchvision.transforms import functional

    model, path = resnet
    file = tmp_path / name
    options = {"quality": 95, "subsampling": 0} if name.endswith("jpg") else {}
    pillow.fromarray(picture(width, height)).save(file, **options)
    image = functional.center_crop(functional.resize(pillow.open(file), 256), 224)
    pixels = functional.to_tensor(image)
    pixels = functional.normalize(pixels, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    with torch.inference_mode():
        best = model(pixels[None]).softmax(1)[0].topk(5)
    lines = run(programs["classify"], path, file).splitlines()
    classes = [int(line.split()[1].rstrip(":")) for line in lines]
    probabilities = [float(line.split()[2]) for line in lines]
    # JPEG decoders may differ by one step in some pixels; PNG decoders do not.
    exact = name.endswith("png")
    torch.testing.assert_close(
        torch.tensor(probabilities), best.values, rtol=1e-3 if exact else 0.1, atol=1e-6
    )
    assert classes[: 5 if exact else 1] == best.indices.tolist()[: 5 if exact else 1]


def test_what_is_no_image_is_an_error(resnet, programs, tmp_path):
    file = tmp_path / "image.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 100)
    assert "classify: error: " in run(programs["classify"], resnet[1], file, code=2)
    assert "safetensors" in run(programs["classify"], file, file, code=2)


def test_the_program_runs_what_pytorch_runs(resnet, programs, tmp_path):
    model, path = resnet
    image = torch.randn(1, 3, 224, 224)
    numpy.save(tmp_path / "x.npy", image.numpy())
    run(
        programs["corsac"],
        "run",
        path,
        "--input",
        tmp_path / "x.npy",
        "--output",
        tmp_path / "y.npy",
    )
    with torch.inference_mode():
        expected = model(image)
    got = torch.from_numpy(numpy.load(tmp_path / "y.npy"))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    report = json.loads(run(programs["corsac"], "ops", path, "--json"))
    assert report["parameters"] == 25_557_032 + 2 * 26_560  # and running statistics
    assert 8.1e9 < report["flops"] < 8.3e9
    assert "def forward(self, x):" in run(programs["corsac"], "show", path, "--format", "code")
    report = json.loads(run(programs["corsac"], "bench", path, "--repeat", "2", "--json"))
    assert 0 < report["min_seconds"] <= report["median_seconds"]


def test_several_inputs_and_results(programs, tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, left, right):
            return {"sum": left + right, "parts": (self.fc(left), right * 2)}

    model = Two().eval()
    left, right = torch.randn(4, 3), torch.randn(4, 3)
    corsac.save(model, tmp_path / "two", (left, right))
    for name, tensor in (("l", left), ("r", right)):
        numpy.save(tmp_path / f"{name}.npy", tensor.numpy().T.copy().T)
    text = run(
        *(programs["corsac"], "run", tmp_path / "two"),
        *("--input", f"right={tmp_path / 'r.npy'}", "--input", tmp_path / "l.npy"),
        *("--output", f"parts.0={tmp_path / 'p.npy'}", "--threads", "1"),
    )
    assert [line.split(":")[0] for line in text.splitlines()] == ["sum", "parts.0", "parts.1"]
    with torch.no_grad():
        expected = model(left, right)["parts"][0]
    torch.testing.assert_close(torch.from_numpy(numpy.load(tmp_path / "p.npy")), expected)


def test_a_save_that_is_killed_leaves_the_old_file(tmp_path):
    path = tmp_path / "model"
    small = nn.Linear(3, 3).eval()
    corsac.save(small, path, torch.zeros(1, 3))
    before = path.read_bytes()
    program = f"""
        import torch, corsac
        from torch import nn
        model = nn.Linear(4000, 4000).eval()
        print("ready", flush=True)
        while True:
            corsac.save(model, {str(path)!r} + ".large", torch.zeros(1, 4000))
    """
    large = tmp_path / "model.large"
    large.write_bytes(before)
    for delay in (0.02, 0.1, 0.25):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        # The old file or the complete new one.
        assert corsac.load(large, framework="numpy").inputs[0][2] in ([1, 3], [1, 4000])
    assert path.read_bytes() == before
    assert all(
        name in ("model", "model.large") or name.startswith(".corsac-")
        for name in os.listdir(tmp_path)
    )
