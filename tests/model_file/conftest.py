"""Programs in Rust, built once."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def programs():
    """The paths of the native programs by name: ``corsac``, ``classify``."""
    cargo = shutil.which("cargo", path=f"{os.environ['PATH']}:{Path.home() / '.cargo/bin'}")
    if cargo is None:
        pytest.skip("cargo is not installed")
    # With the same options as `make programs`.
    program = ["rustc", "-p", "corsac-cli", "--bin", "corsac"]
    example = ["build", "-p", "corsac-engine", "--example", "classify"]
    options = ["--release", "--quiet", "--message-format=json"]
    static = ["--", "-C", "target-feature=+crt-static"]
    paths = []
    for command in ([cargo, *program, *options, *static], [cargo, *example, *options]):
        built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        messages = map(json.loads, built.stdout.splitlines())
        paths += [message["executable"] for message in messages if message.get("executable")]
    return {Path(path).name: path for path in paths}
