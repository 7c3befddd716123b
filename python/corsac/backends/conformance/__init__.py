"""The conformance kit for the contract of backends; see docs/backends.md."""

from corsac.backends.conformance._check import PROGRAMS, check
from corsac.backends.conformance._program import Program
from corsac.backends.conformance._report import Report, Row

__all__ = ["PROGRAMS", "Program", "Report", "Row", "check"]
