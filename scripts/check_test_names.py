"""Checks that no two test files have the same name.

Pytest imports a test file of a folder without ``__init__.py`` under the file's own name: a second file of
that name, in any folder, is an error at the collection of all tests.

    python scripts/check_test_names.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"


def namesakes(folder: Path) -> list[list[Path]]:
    """The test files below ``folder`` that share a name, by name."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        by_name[path.name].append(path.relative_to(folder))
    return [paths for _, paths in sorted(by_name.items()) if len(paths) > 1]


def main(arguments: list[str]) -> int:
    """Print the files that share a name; return 1 if there are any."""
    found = namesakes(Path(arguments[0]) if arguments else TESTS)
    for paths in found:
        print(f"{' and '.join(map(str, paths))}: pytest can import one of them; rename the others")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
