"""A progress message on stderr for work that takes over a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds before anything is shown, and between updates on a terminal.
PATIENCE, INTERVAL = 1.0, 0.5


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show ``what`` while the block runs, after its first second.

    On a terminal it is one line that counts seconds and is erased at the end; elsewhere it is printed once.
    """
    done = threading.Event()
    shown = threading.Event()
    terminal = sys.stderr.isatty()
    start = time.monotonic()

    def show() -> None:
        wait = PATIENCE
        while not done.wait(wait):
            if not terminal:
                print(f"corsac: {what} ...", file=sys.stderr, flush=True)
                return
            shown.set()
            print(
                f"\r\x1b[Kcorsac: {what} ... {time.monotonic() - start:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
            wait = INTERVAL

    thread = threading.Thread(target=show, name="corsac-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if shown.is_set():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
