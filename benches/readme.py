"""Writes the ratios of the last `make bench` into the README.

    make bench-readme

Reads target/bench/fx.json; run it on the machine of the measurement, since it writes the machine's name.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from pathlib import Path

import torch

from machine import machine
from side_by_side import OURS, PEER, with_unit

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "target" / "bench" / "fx.json"
README = ROOT / "README.md"
START, END = "<!-- measured -->", "<!-- /measured -->"


def table(report: dict[str, dict[str, float]]) -> str:
    """The report as a Markdown table."""
    lines = ["| bench | nodes | torch.fx | corsac.fx | ratio |", "|---|--:|--:|--:|--:|"]
    for name, row in report.items():
        unit = "B" if name.startswith("memory") else "s"
        per_node = " a node" if unit == "B" else ""
        ratio = row["ratio"]
        digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
        lines.append(
            f"| `{name}` | {row['n']:,} | {with_unit(row[PEER], unit)}{per_node} "
            f"| {with_unit(row[OURS], unit)}{per_node} | {ratio:.{digits}f} |"
        )
    return "\n".join(lines)


def main() -> int:
    if not REPORT.exists():
        print(f"{REPORT} is missing: run make bench first", file=sys.stderr)
        return 2
    report = json.loads(REPORT.read_text())
    text = (
        f"torch.fx time / corsac.fx time, medians of samples taken in turn in one process, after the "
        f"results\nwere found equal. {machine()}; Python {platform.python_version()}, "
        f"torch {torch.__version__}, release build, {time.strftime('%Y-%m-%d')}; `make bench`.\n\n"
        f"{table(report)}\n"
    )
    readme = README.read_text()
    measured = re.compile(f"{START}\n.*?{END}", re.S)
    if not measured.search(readme):
        print(f"{README} has no {START} ... {END}", file=sys.stderr)
        return 2
    README.write_text(measured.sub(lambda _: f"{START}\n{text}{END}", readme))
    print(f"wrote {len(report)} ratios to {README}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
