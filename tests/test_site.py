"""The documentation site has all pages, and the tutorials are short enough to read."""

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import corsac

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCES = sorted(DOCS.glob("tutorials/*.py"))
#: Pages that scripts/site/pages.py makes.
MADE = {"index.md", "contributing.md", "changelog.md", "examples.md", "measured.md", "api/rust.md"}


def navigation():
    """The pages of the navigation."""
    return set(re.findall(r"^ +- (?:[\w ]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))


def test_each_page_is_in_the_navigation_and_each_of_its_pages_is_there():
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    tutorials = {f"tutorials/{path.stem}.md" for path in SOURCES}
    references = {name for name in navigation() if name.startswith("api/corsac")}
    assert navigation() == pages | tutorials | references | MADE


def test_each_public_module_has_a_reference():
    modules = {
        path.stem
        for path in (ROOT / "python/corsac").iterdir()
        if path.stem in corsac.__all__ and path.suffix in ("", ".py")
    }
    assert {f"api/corsac.{name}.md" for name in modules} <= navigation()
    for name in navigation():
        if name.startswith("api/corsac"):
            source = ROOT / "python" / name[4:-3].replace(".", "/")
            assert (source / "__init__.py").exists() or source.with_suffix(".py").exists(), name


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_tutorial_has_a_title_and_words_before_its_first_program(source):
    text = source.read_text()
    ast.parse(text)
    assert re.match(r"# %% \[markdown\]\n# # .+\n#\n# .+\n", text)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_tutorial_runs(source):
    # By itself: it sets the number of threads.
    done = subprocess.run([sys.executable, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 10


def test_reports_of_benches_become_tables(tmp_path):
    module = runpy.run_path(str(ROOT / "scripts/site/figures.py"))
    assert "make bench" in module["measured"](tmp_path)
    steady = {"steady": {"eager": 0.002, "corsac": 0.0015}, "median": {}}
    reports = {
        "calls": {"machine": "A", "programs": {"one": steady}},
        "operators": {"machine": "A", "operators": {"add": {"64": steady}}},
        "fx": {
            "trace": {"torch_fx": 1.5, "corsac": 0.25},
            "memory/1k": {"torch_fx": 9, "corsac": 3},
        },
    }
    for name, report in reports.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    page = module["measured"](tmp_path)
    assert "A. Milliseconds, minima." in page
    assert "| one | 2 | 1.5 |" in page
    assert "| add, 64 | 2 | 1.5 |" in page
    assert "| trace | 1500 | 250 |" in page
    assert "memory" not in page
