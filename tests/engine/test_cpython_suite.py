"""CPython's own tests have the same outcome when they are recorded, and when the recording is called."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Tests of the language that are fast.
FILES = [
    f"test_{name}"
    for name in (
        *(
            "augassign",
            "bdb",
            "class",
            "code",
            "collections",
            "contextlib",
            "decorators",
            "defaultdict",
        ),
        *(
            "enum",
            "genexps",
            "int",
            "iter",
            "keywordonlyarg",
            "listcomps",
            "named_expressions",
        ),
        *(
            "operator",
            "patma",
            "positional_only_arg",
            "property",
            "raise",
            "scope",
            "slice",
            "sort",
        ),
        *("super", "sys_settrace", "types", "typing", "unpack", "with", "yield_from"),
    )
]
#: Tests that are slow, need a network or a terminal, or count objects of the process.
LEFT_OUT = {
    # Specialisation of code shows that it was traced.
    "test_dis",
    *("test_asyncio", "test_gc", "test_gdb", "test_idle", "test_multiprocessing_fork"),
    *("test_multiprocessing_forkserver", "test_multiprocessing_spawn", "test_socket", "test_ssl"),
    *("test_tk", "test_ttk_guionly", "test_urllib2net", "test_urllibnet", "test_xmlrpc_net"),
}


def missing():
    found = importlib.util.find_spec("test")
    return found is None or importlib.util.find_spec("test.test_scope") is None


def run(names, seconds):
    """Outcomes of the tests of files, plain and compiled, by name."""
    done = subprocess.run(
        [sys.executable, "-m", "kit.cpython_suite", *names],
        cwd=ROOT / "tests",
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {own["name"]: (own["plain"], own["compiled"]) for own in lines}


def differing(found):
    """Tests with another outcome when compiled, with their tracebacks."""
    wrong = {}
    for name, (plain, compiled) in found.items():
        if "error" in plain:
            continue
        same = ("run", "failed", "skipped")
        if "error" in compiled or any(plain[key] != compiled[key] for key in same):
            more = set(compiled.get("failed", ())) - set(plain["failed"])
            traces = {own: compiled["traces"][own] for own in sorted(more)}
            wrong[name] = traces or compiled
    return wrong


@pytest.mark.skipif(missing(), reason="Python is without its tests")
def test_files_of_the_language():
    found = run(FILES, 500)
    assert set(found) == set(FILES)
    assert differing(found) == {}
    # Most have nothing to capture: they call functions with unknown effects.
    assert sum(compiled["captured"] for _, compiled in found.values()) > 300


@pytest.mark.slow
@pytest.mark.skipif(missing(), reason="Python is without its tests")
def test_all_files():
    folder = Path(importlib.util.find_spec("test.test_scope").origin).parent
    names = sorted(path.stem for path in folder.glob("test_*.py"))
    found = run([own for own in names if own not in LEFT_OUT], 7200)
    assert differing(found) == {}
