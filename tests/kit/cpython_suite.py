"""Runs files of CPython's own test suite, plain and with each test compiled; prints the outcome of each, one
per line.

``python -m kit.cpython_suite NAME...``, as a separate program: each file runs in a fork of it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
import unittest
import warnings
from typing import Any

import torch

import corsac
from corsac._models.function import module_of

#: Number of runs of each test: one recorded, and two of the recording.
CALLS = 3
#: Time limit of a file, in seconds.
LIMIT = 120
X = torch.ones(2)


def _call(self: Any, method: Any, counts: dict[str, int], *, compiles: bool) -> None:
    """Replaces ``unittest.TestCase._callTestMethod``."""

    def program(x: torch.Tensor) -> torch.Tensor:
        method()
        return x * 2

    run = corsac.compile(program) if compiles else program
    for _ in range(CALLS):
        assert torch.equal(run(X), X * 2)
    if compiles:
        counts["captured"] += bool(module_of(run)._recorded.programs())


def _outcome(name: str, compiles: bool) -> dict[str, Any]:
    counts = {"captured": 0}
    module = importlib.import_module(f"test.{name}")
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TestResult()
    unittest.TestCase._callTestMethod = functools.partialmethod(  # type: ignore[attr-defined]
        _call, counts=counts, compiles=compiles
    )
    suite.run(result)
    failed = [*result.failures, *result.errors]
    return {
        "run": result.testsRun,
        "failed": sorted(str(own) for own, _ in failed),
        "skipped": sorted(str(own) for own, _ in result.skipped),
        "traces": {str(own): trace[-2000:] for own, trace in failed},
        **counts,
    }


def _forked(name: str, compiles: bool) -> dict[str, Any]:
    """Outcomes of the tests of a file in a process of their own."""
    there, here = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(LIMIT)
        for stream in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        warnings.simplefilter("ignore")
        try:
            found = _outcome(name, compiles)
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(here, "w") as to:
            json.dump(found, to)
        os._exit(0)
    os.close(here)
    with os.fdopen(there) as source:
        text = source.read()
    _, status = os.waitpid(process, 0)
    return json.loads(text) if text else {"error": f"the process ended with {status}"}


def main(names: list[str]) -> None:
    """Runs the files."""
    torch.set_num_threads(1)
    for name in names:
        found = {kind: _forked(name, kind == "compiled") for kind in ("plain", "compiled")}
        print(json.dumps({"name": name, **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
