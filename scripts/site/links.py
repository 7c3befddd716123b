"""Checks that each link within a built site leads to a page, and to an anchor that it has.

    python scripts/site/links.py FOLDER

Pages of rustdoc are checked by rustdoc; links to them are checked here.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Pages that rustdoc has made.
RUST = "doc"


class Page(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@cache
def page(path: Path) -> Page:
    """A page, read once."""
    return Page(path.read_text())


def faults(site: Path) -> list[str]:
    """What is wrong, one line for each link."""
    found = []
    for path in sorted(site.rglob("*.html")):
        own = path.relative_to(site)
        if own.parts[0] == RUST or own.name == "404.html":
            continue
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                found.append(f"{own}: {link}: there is no such page")
            elif (
                parts.fragment
                and target.suffix == ".html"
                and not is_anchor(target, parts.fragment)
            ):
                found.append(f"{own}: {link}: the page has no such anchor")
    return found


def is_anchor(target: Path, fragment: str) -> bool:
    """Whether a page has an anchor."""
    return unquote(fragment) in page(target).anchors


def main() -> int:
    """The number of faults, which are printed."""
    found = faults(Path(sys.argv[1]).resolve())
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
