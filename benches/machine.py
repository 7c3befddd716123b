"""The machine of a measurement, and the folder for reports."""

from __future__ import annotations

import os
import platform
from pathlib import Path

#: The folder for reports in the repository, wherever a bench is started.
REPORTS = Path(__file__).resolve().parent.parent / "target" / "bench"


def machine() -> str:
    """The processor's name and its number of cores."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for entry in cpuinfo.read_text().splitlines():
            if entry.startswith("model name"):
                name = entry.split(":", 1)[1].strip()
                break
    return f"{name}, {os.cpu_count()} CPUs"
