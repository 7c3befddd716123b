"""Writes docs/operators.md: the operators that have rules for types and costs.

python scripts/generate_operators.py            # rewrites the page
python scripts/generate_operators.py --check    # exits with 1 if the page is out of date
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from corsac import _core

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"

HEAD = """\
# Operators with rules

`corsac.analysis.propagate` finds the types of values by rules, `corsac.analysis.cost` counts what
they cost. This page lists the rules; `scripts/generate_operators.py` writes it from the table, and a
test compares. [What the engine runs](engine-operators.md) has a page of its own, and so has [what becomes of
operators in torch.compile](compiled-operators.md).

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


#: Heading of the part that scripts/generate_compiled_operators.py writes, the last one.
SAMPLES = "## Samples through torch.compile\n"


def page() -> str:
    """The text of the page. The part of the other script is kept."""
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
    _, heading, samples = PAGE.read_text().partition(SAMPLES)
    if heading:
        lines.append(heading + samples)
    return "\n".join(lines)


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() == page():
            return 0
        print(f"{PAGE} is out of date: run python {Path(__file__).name}", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
