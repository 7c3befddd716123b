"""Once installed, corsac is a backend of ``torch.compile`` without being imported."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]

#: Nothing of corsac is imported before ``torch.compile`` looks for the backend.
PROGRAM = """
import sys
import torch

assert "corsac" in torch._dynamo.list_backends()
assert not [name for name in sys.modules if name.split(".")[0] == "corsac"]
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
x = torch.randn(3, 4)
compiled = torch.compile(net, backend="corsac", fullgraph=True)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), net(x))
compiled(x).sum().backward()
found = [own.grad.clone() for own in net.parameters()]
net.zero_grad()
net(x).sum().backward()
torch.testing.assert_close(found, [own.grad for own in net.parameters()])
try:
    torch.compile(net, backend="corsac", options={"level": 3})(x)
except Exception as error:
    assert "corsac has no option 'level'; there are: inference, partition, precision, training" in str(error)
else:
    raise AssertionError("an option that there is not was taken")
import corsac
print(corsac.__file__)
"""


#: The same with corsac imported first.
IMPORTED = """
import torch
torch._dynamo.list_backends()
import corsac
x = torch.randn(3)
assert torch.equal(torch.compile(lambda x: x + 1, backend="corsac")(x), x + 1)
"""


def _run(*command, **environment):
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "CORSAC_CACHE_DIR")
    kept = {key: value for key, value in os.environ.items() if key not in left_out}
    done = subprocess.run(
        list(map(str, command)),
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", [PROGRAM, IMPORTED])
def test_an_entry_point_is_enough(tmp_path, program):
    # Metadata that an installer writes beside the package.
    information = tmp_path / "corsac-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: corsac\nVersion: 0.1.0\n")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in own.items())
        for group, own in points.items()
    ]
    (information / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    _run(sys.executable, "-c", program, PYTHONPATH=path)


@pytest.mark.slow
def test_an_installed_wheel_is_a_backend_without_an_import(tmp_path):
    # With the same options as `make`, so that little is recompiled.
    maturin = [sys.executable, "-m", "maturin", "build", "--release", "--quiet"]
    manifest = ROOT / "crates/corsac-python/Cargo.toml"
    _run(*maturin, "--out", tmp_path / "wheels", "--manifest-path", manifest)
    (wheel,) = (tmp_path / "wheels").glob("corsac-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    _run(*install, "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
    # PyTorch is taken from this interpreter's folders. If corsac is there too, it comes after the wheel.
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    folders = {str(Path(torch.__file__).parents[1]), *filter(_has_packages, sys.path)}
    (packages / "borrowed.pth").write_text("\n".join(sorted(folders)))
    found = _run(python, "-c", PROGRAM, PYTHONDONTWRITEBYTECODE="1")
    assert Path(found.strip()).is_relative_to(tmp_path / "venv")
    _run(python, "-c", IMPORTED, PYTHONDONTWRITEBYTECODE="1")


def _has_packages(folder):
    return folder.endswith(("site-packages", "dist-packages"))
