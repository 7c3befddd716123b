"""Run a program under two implementations of torch.fx and compare its observations.

A *program* is a function of an ``fx`` module and a :class:`Recorder`, which uses the module and records
observations. :func:`differential` turns it into a test: the program runs under the reference (``torch.fx``)
and under the subject (``corsac.fx``), and every observation has to be the same. Intended differences are
declared with :func:`known_difference` and must be rows of ``docs/compatibility.md``.
"""

from .differential import assert_same, compare, differential
from .implementations import REFERENCE, SELF_CHECK, SUBJECT, Implementation, needs_subject
from .known import known_difference, row
from .observe import observe
from .recorder import Recorder
from .sources import load_source

__all__ = [
    "REFERENCE",
    "SELF_CHECK",
    "SUBJECT",
    "Implementation",
    "Recorder",
    "assert_same",
    "compare",
    "differential",
    "known_difference",
    "load_source",
    "needs_subject",
    "observe",
    "row",
]
