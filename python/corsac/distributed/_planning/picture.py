"""A simulated step as a picture: a row for each rank of the pipeline, a box for each pass of a microbatch."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from corsac._messages.report_text import duration
from corsac.distributed._planning.timeline import Box, Timeline

#: Width of the time, of the names of the rows, and of the margin.
_WIDTH, _NAMES, _MARGIN = 1120.0, 92.0, 24.0
#: Height of a row, of the box of a pass, and of the strip for messages below it.
_ROW, _BOX, _STRIP = 34.0, 22.0, 4.0
#: Height of title and legend.
_HEAD = 74.0
#: Width of a digit in a box, with the space around the text.
_DIGIT, _SPACE = 6.2, 5.0
#: Kinds of boxes with class, and text of the legend.
_KINDS = {
    "F": ("forward", "forward"),
    "B": ("backward", "backward"),
    "I": ("inputs", "gradients of inputs"),
    "W": ("weights", "gradients of weights"),
    "SEND_F": ("send-forward", "results on their way"),
    "SEND_B": ("send-backward", "gradients on their way"),
    "REDUCE": ("reduce", "sum over copies"),
}
#: The colours of pictures of graphs (``corsac-draw/src/palette.rs``), light and dark.
_STYLE = """
svg{--page:#fbfbfc;--ink:#1b212b;--muted:#626b7a;--line:#cbd1da;--row:#f1f3f6}
@media(prefers-color-scheme:dark){svg{--page:#12151a;--ink:#e6e9ee;--muted:#9aa4b2;--line:#3b4350;--row:#1a1f27}}
.page{fill:var(--page)}.row{fill:var(--row)}.tick{stroke:var(--line)}
text{font:11px system-ui,sans-serif;fill:var(--ink)}.title{font-size:17px;font-weight:600}
.muted{fill:var(--muted)}.in{fill:#fff;text-anchor:middle}.middle{text-anchor:middle}.end{text-anchor:end}
.forward,.send-forward{fill:#2f7ae5}.backward,.send-backward{fill:#129c86}.inputs{fill:#639c1c}
.weights{fill:#7b55e8}.reduce{fill:#ec9712}.boxes rect{stroke:var(--page);stroke-width:.5}
"""


def timeline_svg(step: Timeline, title: str, subtitle: str, copies: int) -> str:
    """A step as an SVG document, without scripts, in light and dark.

    Args:
        step: the step.
        title, subtitle: texts above it.
        copies: how many ranks do the same as each row.
    """
    ranks = len(step.busy)
    width = _WIDTH + _NAMES + 2 * _MARGIN
    height = _HEAD + ranks * _ROW + 2 * _MARGIN + 18
    scale = _WIDTH / step.seconds if step.seconds else 0.0
    left, top = _MARGIN + _NAMES, _MARGIN + _HEAD
    bottom = top + ranks * _ROW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(title)}">',
        f"<style>{_STYLE}</style>",
        '<rect class="page" width="100%" height="100%"/>',
        f'<text class="title" x="{_MARGIN:g}" y="{_MARGIN + 14:g}">{html.escape(title)}</text>',
        f'<text class="muted" x="{_MARGIN:g}" y="{_MARGIN + 34:g}">{html.escape(subtitle)}</text>',
    ]
    lines += _legend({own.kind for own in step.boxes})
    for rank in range(ranks):
        y = top + rank * _ROW
        name = f"rank {rank}" if copies == 1 else f"rank {rank} (×{copies})"
        lines.append(
            f'<rect class="row" x="{left:g}" y="{y:g}" width="{_WIDTH:g}" height="{_ROW - 4:g}"/>'
            f'<text class="end" x="{left - 8:g}" y="{y + 16:g}">{name}</text>'
        )
    for at in _ticks(step.seconds):
        x = left + at * scale
        lines.append(
            f'<line class="tick" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
            f'<text class="muted middle" x="{x:.1f}" y="{bottom + 14:g}">{duration(at) if at else "0"}</text>'
        )
    lines.append('<g class="boxes">')
    lines += [_box(own, left, top, scale) for own in step.boxes]
    return "\n".join([*lines, "</g>", "</svg>", ""])


def timeline_html(picture: str, title: str, text: str) -> str:
    """A page with a picture, and text below it."""
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        "<style>body{margin:0;color-scheme:light dark;background:#fbfbfc;color:#1b212b}"
        "@media(prefers-color-scheme:dark){body{background:#12151a;color:#e6e9ee}}"
        "svg{max-width:100%;height:auto}pre{margin:0 24px 24px;font-size:12px;overflow:auto}</style>\n"
        f"{picture}<pre>{html.escape(text)}</pre></html>\n"
    )


def _legend(kinds: set[str]) -> list[str]:
    lines, x, y = [], _MARGIN, _MARGIN + 56
    for kind, (name, text) in _KINDS.items():
        if kind not in kinds:
            continue
        is_strip = kind.startswith("SEND") or kind == "REDUCE"
        height = _STRIP if is_strip else 10
        lines.append(
            f'<rect class="{name}" x="{x:g}" y="{y - 5 - height / 2:g}" width="14" height="{height:g}"/>'
            f'<text class="muted" x="{x + 19:g}" y="{y - 1:g}">{text}</text>'
        )
        x += 42 + 6 * len(text)
    return lines


def _ticks(seconds: float) -> Sequence[float]:
    """Times of about eight ticks, multiples of 1, 2 or 5 of a power of ten."""
    if not seconds:
        return []
    step = 10.0 ** math.floor(math.log10(seconds / 8))
    step *= next(own for own in (1, 2, 5, 10) if step * own >= seconds / 8)
    return [step * number for number in range(int(seconds / step) + 1)]


def _box(own: Box, left: float, top: float, scale: float) -> str:
    name, text = _KINDS[own.kind]
    x, width = left + own.start * scale, max((own.end - own.start) * scale, 0.3)
    y, height = top + own.rank * _ROW + 1, _BOX
    if own.kind.startswith("SEND") or own.kind == "REDUCE":
        y, height = y + _BOX + 1, _STRIP
    whose = "" if own.kind == "REDUCE" else f", microbatch {own.microbatch}"
    hint = f"{text}: stage {own.stage}{whose}, {duration(own.start)} to {duration(own.end)}"
    made = (
        f'<rect class="{name}" x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}">'
        f"<title>{hint}</title></rect>"
    )
    number = str(own.microbatch)
    if height == _BOX and width >= len(number) * _DIGIT + _SPACE:
        made += f'<text class="in" x="{x + width / 2:.1f}" y="{y + 15:g}">{number}</text>'
    return made


__all__ = ["timeline_html", "timeline_svg"]
