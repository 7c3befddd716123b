"""Headless Chromium, for tests of pages."""

import os
import shutil
from contextlib import contextmanager

import pytest

CANDIDATES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def executable():
    """The path of the browser: ``CORSAC_CHROMIUM``, or the first that is found. None if there is none."""
    return os.environ.get("CORSAC_CHROMIUM") or next(
        filter(None, map(shutil.which, CANDIDATES)), None
    )


@contextmanager
def chromium():
    """A running browser. The test is skipped if there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    found = executable()
    if found is None:
        pytest.skip(f"no Chromium found: looked for {', '.join(CANDIDATES)} and $CORSAC_CHROMIUM")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=found, args=FLAGS)
        yield launched
        launched.close()
