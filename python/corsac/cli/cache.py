"""``corsac cache``."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from corsac import cache
from corsac.cli.failure import Failure
from corsac.cli.json_output import print_json


def run(options: argparse.Namespace) -> bool:
    """Report the cache of compiled programs, or clear it."""
    try:
        removed = cache.clear() if options.clear else None
        info = cache.info()
    except OSError as error:
        raise Failure(str(error)) from error
    if options.json:
        print_json({**asdict(info), "removed": removed})
        return True
    if removed is not None:
        print(f"{removed:,} entries removed")
    print(info)
    return True
