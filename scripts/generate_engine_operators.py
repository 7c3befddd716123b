"""Write docs/engine-operators.md: results of the engine on the samples of torch's operator tests.

Takes a few minutes. ``--limit`` is the number of samples of each element type.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kit.operator_samples import TOLERANCES, Outcome, entries, kind, run  # noqa: E402

PAGE = ROOT / "docs" / "engine-operators.md"


def page(outcomes: list[Outcome], limit: int) -> str:
    """The text of the page."""
    native = [o for o in outcomes if o.native and not o.host and not o.failing]
    partly = [o for o in outcomes if o.native and o.host and not o.failing]
    failing = [o for o in outcomes if o.failing]
    host = [o for o in outcomes if not o.native and o.host and not o.failing]
    tolerances = "\n".join(
        f"| {name} | {rtol:g} | {atol:g} |" for name, (rtol, atol) in TOLERANCES.items()
    )
    lines = [
        "# Operators of the engine",
        "",
        "What [the engine](engine.md) does with the samples of torch's own operator tests (`op_db` of",
        f"torch {torch.__version__.split('+')[0]}): up to {limit} samples of each of float32, int64 and bool, each",
        "compiled as a program of its own and compared with PyTorch. `scripts/generate_engine_operators.py`",
        "writes this page.",
        "",
        f"{len(native)} operators are native for all samples, {len(partly)} for some, {len(host)} are left to PyTorch,",
        f"{len(failing)} fail. What is left to PyTorch is exact: it runs there. Calls without a tensor (`arange`, `eye`) are",
        "compiled as they are here; in a program they are constants, which PyTorch computes once.",
        "",
        "| tolerance | relative | absolute |",
        "|---|--:|--:|",
        tolerances,
        "",
        "## Native",
        "",
        "| operator | samples | tolerance |",
        "|---|--:|---|",
        *(f"| `{o.name}` | {o.native} | {kind(o.name.split('.')[0])} |" for o in native),
        "",
        "## Native for some samples",
        "",
        "| operator | native | left to PyTorch, because |",
        "|---|--:|---|",
        *(f"| `{o.name}` | {o.native} of {o.samples} | {_reason(o)} |" for o in partly),
        "",
        "## Left to PyTorch",
        "",
        "| operator | because |",
        "|---|---|",
        *(f"| `{o.name}` | {_reason(o)} |" for o in host),
        "",
        "## Failing",
        "",
        *(f"- `{o.name}`: {o.failing[0].replace('|', '/')}" for o in failing),
        *([] if failing else ["None."]),
        "",
    ]
    return "\n".join(lines)


def _reason(outcome: Outcome) -> str:
    reason = max(outcome.host, key=lambda reason: outcome.host[reason])
    return reason.replace("|", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=8)
    limit = parser.parse_args().limit
    torch.set_num_threads(1)
    outcomes = [run(op, limit) for op in entries()]
    PAGE.write_text(page([o for o in outcomes if o.samples], limit))


if __name__ == "__main__":
    main()
