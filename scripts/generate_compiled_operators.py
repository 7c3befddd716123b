"""Write results of torch's operator samples in torch.compile(backend="corsac"), forward and backward.

Writes docs/compiled-operators.md, and the counts at the end of docs/operators.md. Takes about ten minutes.
``--limit`` is the number of samples of each operator, ``--check`` exits with 1 if one is wrong, and writes
nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kit.compiled_samples import GRADIENTS, PLACES, Compared, compare  # noqa: E402
from kit.operator_samples import TOLERANCES, entries  # noqa: E402

PAGE = ROOT / "docs" / "compiled-operators.md"
COUNTS = ROOT / "docs" / "operators.md"
#: Heading of the counts, which are the last part of their page.
HEADING = "## Samples through torch.compile\n"


def counts(found: list[Compared], limit: int) -> str:
    """The last part of docs/operators.md."""
    lines = [
        HEADING,
        f"torch's own operator tests (`op_db` of torch {torch.__version__.split('+')[0]}): up to {limit} samples of float32 of",
        'each operator through `torch.compile(backend="corsac")`, each compiled for itself and called twice, with gradients',
        "of all inputs that have some, and compared with eager. `scripts/generate_compiled_operators.py` writes this",
        "part; [a page](compiled-operators.md) lists the operators.",
        "",
        "| graphs run | operators | samples | with gradients | eager's bits | within tolerance |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    right = [own for own in found if not own.failing]
    for place in PLACES:
        row = [own for own in right if own.place == place]
        lines.append(f"| {place} | {len(row)} | {_sums(row)} |")
    wrong = [own for own in found if own.failing]
    lines += [f"| wrong | {len(wrong)} | {_sums(wrong)} |", ""]
    return "\n".join(lines)


def _sums(rows: list[Compared]) -> str:
    names = ("samples", "gradients", "exact", "close")
    return " | ".join(str(sum(getattr(own, name) for own in rows)) for name in names)


def page(found: list[Compared], limit: int) -> str:
    """The text of docs/compiled-operators.md."""
    rtol, atol = GRADIENTS
    lines = [
        "# Operators in torch.compile",
        "",
        f"What becomes of up to {limit} samples of float32 of each of torch's own operator tests in",
        '`torch.compile(backend="corsac", options={"training": "native"})`. An operator is native if the engine runs all',
        "calls of all graphs of all of its samples, forward and backward. [Counts](operators.md#samples-through-torchcompile),",
        "and [what the engine does with more element types](engine-operators.md).",
        "",
        "Values may differ from eager's by the tolerance of their kind, as there:",
        "; ".join(f"{name} {r:g} (and {a:g})" for name, (r, a) in TOLERANCES.items()) + ".",
        f"Gradients may by {rtol:g} of the element and {atol:g} of the largest of their tensor, or of 1. A sample that differs",
        "by more is right if it is no further from what float64 gives than eager is (large numbers that cancel).",
        "",
    ]
    for place in PLACES:
        rows = [own for own in found if own.place == place and not own.failing]
        lines += [f"## {place[0].upper()}{place[1:]}", ""]
        lines += ["| operator | samples | eager's bits | PyTorch runs calls, because |"]
        lines += ["|---|--:|--:|---|"]
        lines += [
            f"| `{own.name}` | {own.samples} | {own.exact} | {_reason(own)} |" for own in rows
        ]
        lines.append("")
    wrong = [f"- `{own.name}`: {own.failing[0]}" for own in found if own.failing]
    return "\n".join([*lines, "## Wrong", "", *(wrong or ["None."]), ""])


def _reason(own: Compared) -> str:
    if not own.reasons:
        return "" if own.place == PLACES[0] else "nothing is computed"
    reason = own.reasons.most_common(1)[0][0]
    reason = reason.split("cannot be compiled: ")[-1].splitlines()[0].replace("|", "/")
    return reason if len(reason) < 90 else reason[:87] + "..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [own for own in (compare(op, options.limit) for op in entries()) if own.samples]
    if not options.check:
        PAGE.write_text(page(found, options.limit))
        before = COUNTS.read_text().split(HEADING)[0].rstrip()
        COUNTS.write_text(f"{before}\n\n{counts(found, options.limit)}")
    for own in found:
        for sample in own.failing:
            print(f"{own.name}: {sample}", file=sys.stderr)
    return int(any(own.failing for own in found))


if __name__ == "__main__":
    sys.exit(main())
