"""Programs that new interpreters run."""

from __future__ import annotations

import subprocess
import sys

#: The beginning of programs that find no PyTorch.
BLOCKED = "import sys; sys.modules['torch'] = None\n"


def printed(program: str, *words: object) -> str:
    """What a program prints, which ends without an error."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


__all__ = ["BLOCKED", "printed"]
