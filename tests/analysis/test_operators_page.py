"""docs/operators.md lists the rules of the table."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_operators_is_up_to_date() -> None:
    script = ROOT / "scripts" / "generate_operators.py"
    spec = importlib.util.spec_from_file_location("generate_operators", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "operators.md").read_text() == module.page()
