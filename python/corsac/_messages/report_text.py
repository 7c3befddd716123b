"""Times and long lists as text, for reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Number of items of a list that are written out.
_SHOWN = 4


def duration(seconds: float) -> str:
    """A time with three digits: ``340 ns``, ``12.3 µs``, ``1.23 ms``, ``2.50 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        value = seconds / size
        # A time that would be rounded up to 1,000 of the smaller unit is one of this.
        if value >= 0.9995:
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{digits}f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def shortened(texts: Iterable[str]) -> str:
    """``texts``, separated by commas; of many, the first ones and the number of the others."""
    texts = list(texts)
    if len(texts) <= _SHOWN + 1:
        return ", ".join(texts)
    return f"{', '.join(texts[:_SHOWN])} and {len(texts) - _SHOWN} others"


def with_repeats(texts: Sequence[str]) -> str:
    """``texts``, separated by commas, with repetitions written once: ``x, 12 × (k, v)``."""
    parts = []
    at = 0
    while at < len(texts):
        period, times = 1, 1
        for length in (1, 2, 3, 4):
            unit = texts[at : at + length]
            count = 1
            while texts[at + count * length : at + (count + 1) * length] == unit:
                count += 1
            if count > 1 and count * length > period * times:
                period, times = length, count
        unit = ", ".join(texts[at : at + period])
        if period * times < 3:
            period, times, unit = 1, 1, texts[at]
        parts.append(
            unit if times == 1 else f"{times} × {unit}" if period == 1 else f"{times} × ({unit})"
        )
        at += period * times
    return ", ".join(parts)
