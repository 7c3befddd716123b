"""Guarantees of `import corsac` before any model is involved."""

import subprocess
import sys

import corsac


def test_version_is_that_of_the_built_module():
    from corsac import _core

    assert corsac.__version__ == _core.__version__ == "0.1.0"


def test_import_does_not_need_torch():
    program = "import sys; sys.modules['torch'] = None; import corsac; print(corsac.__version__)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "0.1.0\n"
