"""``corsac diff``."""

from __future__ import annotations

import argparse

from corsac.cli.colour import GREEN, RED, YELLOW, coloured
from corsac.cli.json_output import print_json
from corsac.cli.rows import row
from corsac.cli.subject import captured

COLOURS = {"-": RED, "+": GREEN, "~": YELLOW, "!": YELLOW}


def run(options: argparse.Namespace) -> bool:
    """Print the differences; return whether there are none."""
    before = captured(options.before, options)
    after = captured(options.after, options)
    difference = before.graph.diff(after.graph)
    if options.json:
        print_json(
            {
                "added": [row(node) for node in difference.added],
                "removed": [row(node) for node in difference.removed],
                "changed": [
                    {"before": row(old), "after": row(new), "aspects": aspects}
                    for old, new, aspects in difference.changed
                ],
                "moved": [node.name for node in difference.moved],
            }
        )
    else:
        for line in str(difference).splitlines():
            colour = COLOURS.get(line[:1])
            print(coloured(line, colour) if colour else line)
    return not difference
