"""What a measurement was made on, and where its report goes."""

from __future__ import annotations

import os
import platform
from pathlib import Path

#: In the repository, wherever a bench is started.
REPORTS = Path(__file__).resolve().parent.parent / "target" / "bench"


def machine() -> str:
    """The processor's name and number."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for entry in cpuinfo.read_text().splitlines():
            if entry.startswith("model name"):
                name = entry.split(":", 1)[1].strip()
                break
    return f"{name}, {os.cpu_count()} CPUs"
