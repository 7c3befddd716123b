"""Output for ``--json``."""

from __future__ import annotations

import json
from typing import Any


def print_json(value: Any) -> None:
    """Print ``value`` as JSON."""
    print(json.dumps(value, indent=2))
