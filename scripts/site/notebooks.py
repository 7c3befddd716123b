"""Runs tutorials, and writes each as a notebook with its results and as a page with a link to it.

    python scripts/site/notebooks.py FOLDER docs/tutorials/NAME.py …

The sources are Python programs with cells (`# %%`). A cell that raises ends the run.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
SECONDS = 120
CONFIG = Config({"KernelManager": {"transport": "ipc"}})


def main(folder: Path, sources: list[Path]) -> None:
    """Write ``NAME.ipynb`` and ``NAME.md`` of each source to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        notebook = jupytext.read(source)
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", config=CONFIG).execute()
        nbformat.write(notebook, folder / f"{source.stem}.ipynb")
        (folder / f"{source.stem}.md").write_text(_page(notebook, source.stem))
        print(f"corsac: ran {source}")


def _page(notebook: NotebookNode, name: str) -> str:
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        results = "".join(_text(output) for output in cell.outputs).strip("\n")
        if results:
            parts.append(f"```text\n{results}\n```")
    parts.insert(1, f"[This page as a notebook]({name}.ipynb)")
    return "\n\n".join(parts) + "\n"


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        text = output.text
    else:
        text = output.data.get("text/plain", "") + "\n"
    return ESCAPE.sub("", text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]])
