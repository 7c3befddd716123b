"""Checks an installed package: without PyTorch the engine, files and the program, with PyTorch the rest, too.

    python scripts/smoke.py [FILE]

With PyTorch it writes a model file to FILE; without, it runs the one that is there. NumPy is needed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json.decoder
import subprocess
import sys
import sysconfig
import tokenize
from importlib import metadata
from pathlib import Path

import numpy as np

import corsac


def program(*words: object) -> str:
    """What the installed program prints."""
    script = Path(sysconfig.get_path("scripts"), "corsac")
    command = [str(script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check_import() -> float:
    """What an import takes, in seconds; it loads neither PyTorch nor NumPy."""
    lines = """
import sys, time
start = time.perf_counter()
import corsac
print(time.perf_counter() - start, *{"torch", "numpy"} & {*sys.modules})
"""
    command = [sys.executable, "-c", lines]
    runs = [subprocess.check_output(command, text=True).split() for _ in range(3)]
    assert all(len(words) == 1 for words in runs), runs
    return min(float(seconds) for (seconds,) in runs)


def check_code_objects() -> None:
    """Take functions of this CPython's library apart, and put the same ones together."""
    from corsac.bytecode import CodeBuilder

    for module in (dataclasses, inspect, json.decoder, tokenize):
        functions = [it for it in vars(module).values() if inspect.isfunction(it)]
        assert functions
        for function in functions:
            assert CodeBuilder.from_code(function.__code__).to_code() == function.__code__


def write(file: Path) -> None:
    """Compile, transform and save a model, and compare each with PyTorch."""
    import torch

    from corsac import fx
    from corsac.passes import fuse_conv_bn

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()
    ).eval()
    x = torch.ones(1, 3, 5, 5)
    traced = fx.symbolic_trace(model)
    fuse_conv_bn(traced)
    assert [node.target for node in traced.graph.find_nodes(op="call_module")] == ["0", "2", "3"]
    compiled = corsac.compile(model)
    with torch.inference_mode():
        expected = model(x)
        torch.testing.assert_close(traced(x), expected, rtol=1e-5, atol=1e-5)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)
    corsac.save(model, file, (x,))
    np.save(file.with_suffix(".npy"), expected.numpy())


def main() -> None:
    """Run the checks; the first that fails raises."""
    assert metadata.version("corsac") == corsac.__version__
    assert program("--version").split() == ["corsac", corsac.__version__]
    assert "generate" in program("--help")
    seconds = check_import()
    check_code_objects()
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "smoke.safetensors").resolve()
    has_torch = importlib.util.find_spec("torch") is not None
    if has_torch:
        write(file)
    elif not file.exists():
        try:
            _ = corsac.fx
        except ModuleNotFoundError as error:
            assert "pip install 'corsac[fx]'" in str(error)
    if file.exists():
        expected = np.load(file.with_suffix(".npy"))
        inputs = np.ones((1, 3, 5, 5), np.float32)
        result = corsac.load(file, framework="numpy")(inputs)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        np.save(file.with_name("smoke_input.npy"), inputs)
        output = file.with_name("smoke_output.npy")
        program("run", file, "--input", file.with_name("smoke_input.npy"), "--output", output)
        np.testing.assert_allclose(np.load(output), expected, rtol=1e-5, atol=1e-5)
        assert "conv2d" in program("ops", file)
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"corsac {corsac.__version__} works on {sys.platform}, CPython {version}, torch: {has_torch}; "
        f"imported in {seconds * 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()
