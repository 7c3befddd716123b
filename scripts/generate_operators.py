"""Writes docs/operators.md: operators with rules for types and costs, and samples of PyTorch's operator tests.

python scripts/generate_operators.py            # rewrites the rules
python scripts/generate_operators.py --check    # exits with 1 if the rules are out of date
python scripts/generate_operators.py --samples  # runs the samples too, which takes about 15 minutes;
                                                # exits with 1, and writes nothing, if one is wrong
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from corsac import _core

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from kit.compiled_samples import Compared
    from kit.operator_samples import Outcome

PAGE = ROOT / "docs" / "operators.md"

HEAD = """\
# Operators

`scripts/generate_operators.py` writes this page. [The first part](#elementwise) lists the type rules of the operator
table, by which `corsac.analysis.propagate` finds the types of values and `corsac.analysis.cost` counts what they
cost; a test compares it. [The second](#samples-of-pytorchs-operator-tests) lists what becomes of PyTorch's own
samples on [the engine](engine.md) and in `torch.compile`.

A name alone stands for the function of `torch`, the function of `torch.nn.functional`, the tensor
method and the operator of `torch.ops.aten`, as far as there is one, and for its in-place form where
the type of the argument stays. `F.`, `Tensor.`, `aten.`, `torch.`, `linalg.`, `fft.`, `operator.`,
`builtins.` and `math.` in front restrict it to one of these; `nn.` is a module.

How arithmetic is counted:

| words | what counts |
|---|---|
| none | nothing is computed; where elements have to be copied, memory traffic counts |
| moves elements | memory traffic only |
| per element of the result | a fixed number of operations for each element of the result |
| per element of the input | a fixed number of operations for each element of the first argument |
| products | two operations for each multiplication that is added to a sum |
| counted | by the rule: windows of pooling, products and softmax of attention |
| unknown | not counted, and listed as such |

A bias counts nothing: it is where a sum starts. Fixed numbers: elementwise operators 1, softmax 5,
layer norm 7, group norm 7, batch norm 2 (a factor and an offset).
"""

#: Heading of the last part, which is kept unless samples are run.
SAMPLES = "## Samples of PyTorch's operator tests\n"

SAMPLES_HEAD = """
`op_db` of torch {version}: up to {limit} samples of each operator and element type.

- engine: samples of float32, int64 and bool that are native, each compiled as a program of its own and compared with
  PyTorch. Calls without a tensor (`arange`, `eye`) are compiled as they are; in a program they are constants, which
  PyTorch computes once.
- `torch.compile`: samples of float32 in `torch.compile(backend="corsac", options={{"training": "native"}})`, each
  called twice, with gradients of all inputs that have some. An operator is native if the engine runs all calls of all
  graphs of all of its samples, forward and backward. Bits are samples with exactly eager's results.

What is left to PyTorch is exact: it runs there. Values may differ by the tolerance of the operator's kind, gradients
by {rtol:g} of the element and {atol:g} of the largest of their tensor, or of 1. A sample that differs by more is right
if it is no further from what float64 gives than eager is (large numbers that cancel).

| tolerance | relative | absolute |
|---|--:|--:|
{tolerances}

The engine runs {native} operators for all samples, {partly} for some, and leaves {host} to PyTorch. In
`torch.compile`:

| graphs run | operators | samples | with gradients | eager's bits | within tolerance |
|---|--:|--:|--:|--:|--:|
{places}

| operator | tolerance | engine | left to PyTorch, because | `torch.compile` | bits | PyTorch runs calls, because |
|---|---|--:|---|---|--:|---|
{rows}
"""


def page(samples: str | None = None) -> str:
    """The text of the page; the last part is kept if none is given."""
    rules = _core.shape_rules()
    count = sum(len(names) for _, names, _ in rules)
    lines = [HEAD, f"{len(rules)} rules for {count} names.\n"]
    for family, rows in groupby(rules, key=lambda rule: rule[0]):
        lines.append(f"## {family[0].upper()}{family[1:]}\n")
        lines.append("| names | arithmetic |\n|---|---|")
        lines += [
            f"| {', '.join(f'`{name}`' for name in names)} | {cost} |" for _, names, cost in rows
        ]
        lines.append("")
    kept = PAGE.read_text().partition(SAMPLES)[2]
    lines.append(SAMPLES + (samples or kept))
    return "\n".join(lines)


def samples_part(engine: list[Outcome], compiled: list[Compared], limit: int) -> str:
    """The last part of the page."""
    from kit.compiled_samples import GRADIENTS, PLACES
    from kit.operator_samples import TOLERANCES, kind

    on_engine = {own.name: own for own in engine}
    in_compile = {own.name: own for own in compiled}
    rows = []
    for name in sorted({*on_engine, *in_compile}):
        ran, own = on_engine.get(name), in_compile.get(name)
        cells = [f"`{name}`", kind(name.split(".")[0])]
        cells += [_native(ran), _reason(ran.host)] if ran else ["", ""]
        if own:
            idle = "" if own.place == PLACES[0] else "nothing is computed"
            cells += [f"{own.place}, {own.samples}", str(own.exact), _reason(own.reasons) or idle]
        else:
            cells += ["", "", ""]
        rows.append(f"| {' | '.join(cells)} |")
    by_place = [(place, [own for own in compiled if own.place == place]) for place in PLACES]
    return SAMPLES_HEAD.format(
        version=torch.__version__.split("+")[0],
        limit=limit,
        rtol=GRADIENTS[0],
        atol=GRADIENTS[1],
        tolerances="\n".join(f"| {name} | {r:g} | {a:g} |" for name, (r, a) in TOLERANCES.items()),
        native=sum(1 for own in engine if own.native and not own.host),
        partly=sum(1 for own in engine if own.native and own.host),
        host=sum(1 for own in engine if not own.native),
        places="\n".join(f"| {place} | {len(row)} | {_sums(row)} |" for place, row in by_place),
        rows="\n".join(rows),
    )


def _native(own: Outcome) -> str:
    return str(own.native) if own.native in (0, own.samples) else f"{own.native} of {own.samples}"


def _sums(rows: list[Compared]) -> str:
    names = ("samples", "gradients", "exact", "close")
    return " | ".join(str(sum(getattr(own, name) for own in rows)) for name in names)


def _reason(counts: dict[str, int]) -> str:
    reason = max(counts, key=lambda reason: counts[reason], default="")
    reason = reason.split("cannot be compiled: ")[-1].split("\n")[0].replace("|", "/")
    return reason if len(reason) < 90 else reason[:87] + "..."


def run_samples(limit: int) -> tuple[str, list[str]]:
    """The last part of the page, and the samples that are wrong."""
    from kit import compiled_samples, operator_samples

    torch.set_num_threads(1)
    operators = list(operator_samples.entries())
    engine = [operator_samples.run(op, limit) for op in operators]
    compiled = [compiled_samples.compare(op, limit) for op in operators]
    wrong = [f"{own.name}: {sample}" for own in (*engine, *compiled) for sample in own.failing]
    part = samples_part(
        [own for own in engine if own.samples], [own for own in compiled if own.samples], limit
    )
    return part, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--limit", type=int, default=8)
    options = parser.parse_args()
    if options.check:
        if PAGE.read_text() == page():
            return 0
        print(f"{PAGE} is out of date: run python {Path(__file__).name}", file=sys.stderr)
        return 1
    part, wrong = run_samples(options.limit) if options.samples else (None, [])
    for sample in wrong:
        print(sample, file=sys.stderr)
    if not wrong:
        PAGE.write_text(page(part))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
