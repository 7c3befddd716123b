"""Pages of the site that are not in docs/: made from other files of the repository when mkdocs builds it.

- README, CONTRIBUTING and CHANGELOG;
- each file outside docs/ to which a page links, such as examples;
- tutorials, executed by scripts/site/notebooks.py;
- figures of the last benchmarks, from target/bench;
- references of Python modules, which mkdocstrings reads from the sources, and of crates, if cargo has made them.

Links to files of the repository become links to these pages.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from figures import measured

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
TUTORIALS = ROOT / "target/tutorials"

#: Pages of the repository with a place of their own.
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
EXAMPLES = "examples.md"

LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
CELL_PIPE = re.compile(r"`[^`\n]*`")
LANGUAGES = {".py": "python", ".rs": "rust", ".c": "c", ".h": "c", ".toml": "toml", ".txt": "cmake"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""

    def add(place: str, content: str | bytes) -> None:
        files.append(File.generated(config, place, content=content))

    linked: set[str] = set()
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    pages |= {source: (ROOT / source).read_text() for source in MOVED}
    for source, text in pages.items():
        linked |= _links(source, text)
    for source, place in MOVED.items():
        add(place, pages[source])
    examples = sorted((ROOT / "examples").glob("*.*"))
    add(EXAMPLES, _list_of_examples(examples))
    linked |= {str(path.relative_to(ROOT)) for path in examples}
    for path in sorted(linked - {*MOVED, "examples"}):
        add(place_of(path), _source(ROOT / path))
    for path in sorted(TUTORIALS.glob("*.*")):
        add(
            f"tutorials/{path.name}",
            path.read_bytes() if path.suffix == ".ipynb" else path.read_text(),
        )
    add("measured.md", measured(ROOT / "target/bench"))
    for module in _modules(config.nav):
        add(f"api/{module}.md", _reference(module))
    add("api/rust.md", _crates())
    for folder, _, names in os.walk(TARGET / "doc"):
        for name in names:
            own = str((Path(folder) / name).relative_to(TARGET))
            if not name.startswith("."):
                files.append(File(own, str(TARGET), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository, and pipes in code of tables, as mkdocs understands them."""
    own = page.file.src_uri
    source = next((path for path, place in MOVED.items() if place == own), f"docs/{own}")

    def link(found: re.Match[str]) -> str:
        path, _, anchor = found[1].partition("#")
        target = _resolved(source, path)
        if target is None:
            return found[0]
        relative = os.path.relpath(place_of(target), PurePosixPath(own).parent)
        return f"]({relative}{'#' + anchor if anchor else ''})"

    def prose(text: str) -> str:
        lines = LINK.sub(link, text).split("\n")
        return "\n".join(
            CELL_PIPE.sub(lambda code: code[0].replace(r"\|", "|"), line)
            if line.startswith("|")
            else line
            for line in lines
        )

    # Text and blocks of code, alternately.
    parts = CODE.split(markdown)
    parts[::2] = _with_one_title([prose(text) for text in parts[::2]])
    return "".join(parts)


def _with_one_title(texts: list[str]) -> list[str]:
    """The texts of a page, whose chapters become sections if it has several: the theme lists those of one title."""
    if sum(len(re.findall(r"^# ", text, re.M)) for text in texts) < 2:
        return texts
    title, line, rest = texts[0].partition("\n")
    rest, *others = (re.sub(r"^#", "##", text, flags=re.M) for text in (rest, *texts[1:]))
    return [title + line + rest, *others]


def place_of(path: str) -> str:
    """The page for a file of the repository."""
    if path in MOVED:
        return MOVED[path]
    if path == "examples":
        return EXAMPLES
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def _resolved(source: str, link: str) -> str | None:
    """The file of the repository to which a page links; None for other links."""
    if not link or "://" in link or link.startswith("mailto:"):
        return None
    path = os.path.normpath(PurePosixPath(source).parent / link)
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def _links(source: str, text: str) -> set[str]:
    found = (_resolved(source, link.partition("#")[0]) for link in LINK.findall(CODE.sub("", text)))
    return {path for path in found if path is not None and not path.startswith("docs/")}


def _source(path: Path) -> str:
    """A page with a file of the repository, or with those of a folder."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        parts = [f"# {name}"]
        for own in sorted(path.iterdir()):
            parts.append(f"## {own.name}\n\n{_fenced(own)}")
        return "\n\n".join(parts)
    return f"# {name}\n\n{_fenced(path)}"


def _fenced(path: Path) -> str:
    return f"````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````\n"


def _list_of_examples(paths: list[Path]) -> str:
    lines = ["# Examples", "", "| program | |", "|---|---|"]
    for path in paths:
        text = path.read_text()
        if path.suffix == ".py":
            words = ast.get_docstring(ast.parse(text)) or ""
        else:
            words = " ".join(re.findall(r"^//! ?(.*)$", text, re.M))
        summary = words.split("\n\n")[0].split(". ")[0].replace("\n", " ").rstrip(".:")
        lines.append(f"| [{path.name}](source/examples/{path.name}.md) | {summary} |")
    return "\n".join(lines) + "\n"


def _modules(nav: object) -> list[str]:
    """The Python modules of which the navigation has pages."""
    if isinstance(nav, str):
        return [nav[4:-3]] if nav.startswith("api/corsac") else []
    items = nav.values() if isinstance(nav, dict) else nav or []
    return [module for item in items for module in _modules(item)]


def _reference(module: str) -> str:
    """The page of a module: what it has, or else what its modules have."""
    parts = [f"---\ntitle: {module}\n---\n", _directive(module, 1)]
    folder = ROOT / "python" / module.replace(".", "/")
    if folder.is_dir() and not _lists_names(folder / "__init__.py"):
        own = sorted(
            path.stem
            for path in folder.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").exists()
        )
        parts += [_directive(f"{module}.{name}", 2) for name in own if not name.startswith("_")]
    return "\n".join(parts)


def _lists_names(source: Path) -> bool:
    """Whether a module has a list `__all__` that can be read without running it."""
    statements = ast.parse(source.read_text()).body
    lists = [
        own for own in statements if isinstance(own, ast.Assign) and isinstance(own.value, ast.List)
    ]
    return any(ast.unparse(own.targets[0]) == "__all__" for own in lists)


def _directive(module: str, level: int) -> str:
    options = f"show_root_heading: true, show_root_toc_entry: true, show_root_full_path: true, heading_level: {level}"
    return f"::: {module}\n    options: {{{options}}}\n"


def _crates() -> str:
    lines = ["# Rust", "", "| crate | |", "|---|---|"]
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        contents = tomllib.loads(manifest.read_text())
        package = contents["package"]
        name = contents.get("lib", {}).get("name", package["name"]).replace("-", "_")
        page = TARGET / "doc" / name / "index.html"
        shown = f"`{package['name']}`"
        if page.exists():
            shown = f"[{shown}](../doc/{name}/index.html)"
        lines.append(f"| {shown} | {package['description']} |")
    return "\n".join(lines) + "\n"
