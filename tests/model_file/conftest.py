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
    command = [cargo, "build", "--release", "--quiet", "--message-format=json"]
    command += [
        "-p",
        "corsac-cli",
        "-p",
        "corsac-engine",
        "--bin",
        "corsac",
        "--example",
        "classify",
    ]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    paths = [message["executable"] for message in messages if message.get("executable")]
    return {Path(path).name: path for path in paths}
