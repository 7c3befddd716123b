"""The npm package, with the WebAssembly module that `make wasm` builds."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def package():
    """The folder of the package."""
    folder = ROOT / "npm"
    if not (folder / "corsac.wasm").exists():
        pytest.skip("npm/corsac.wasm is not built: make wasm")
    return folder
