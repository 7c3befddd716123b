"""Tables of the reports that benches have written to target/bench."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NONE = """# Measured here

This site was built without figures: `make bench` and `make bench-engine` write them, and `make docs` shows them here.
[Benchmarks](benchmarks.md) has those of known machines.
"""
HEAD = """# Measured here

The figures of the last runs on the machine that built this site. [Benchmarks](benchmarks.md) says what each one measures.
"""


def measured(folder: Path) -> str:
    """The page with all reports in a folder."""
    reports = sorted(folder.glob("*.json"))
    if not reports:
        return NONE
    return HEAD + "".join(_section(path.stem, json.loads(path.read_text())) for path in reports)


def _section(name: str, report: Mapping[str, Any]) -> str:
    rows = list(_rows(report))
    if not rows:
        return ""
    said = ", ".join(
        f"{report[key]}{unit}"
        for key, unit in (("machine", ""), ("threads", " threads"))
        if key in report
    )
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    lines = [
        f"\n## `benches/{name}.py`\n",
        f"{said}. Milliseconds, minima.\n" if said else "Milliseconds, medians.\n",
        "| | " + " | ".join(columns) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for title, row in rows:
        lines.append(
            f"| {title} | " + " | ".join(_number(row.get(column)) for column in columns) + " |"
        )
    return "\n".join(lines) + "\n"


def _rows(
    report: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, dict[str, float]]]:
    """Times in milliseconds by peer, of each part of a report that has them."""
    for key, own in report.items():
        if not isinstance(own, Mapping):
            continue
        title = (*path, key)
        if isinstance(own.get("steady"), Mapping):
            yield (
                ", ".join(title),
                {peer: 1e3 * s for peer, s in own["steady"].items() if s is not None},
            )
        elif "torch_fx" in own and not key.startswith("memory"):
            yield key, {"torch.fx": 1e3 * own["torch_fx"], "corsac.fx": 1e3 * own["corsac"]}
        else:
            yield from _rows(own, () if key in ("models", "programs", "operators") else title)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
