"""Unification of terms that have variables in them.

Terms are tuples, lists and whatever was registered with :func:`unifiable`; variables are
:class:`Var`. The variables, and the tables that functions are dispatched by, are PyTorch's, so that
terms mean the same to both packages. Source: J. A. Robinson, "A machine-oriented logic based on the
resolution principle", 1965.
"""

from .core import reify, unify
from .more import unifiable
from .variable import Var, isvar, var, variables, vars

__all__ = ["Var", "isvar", "reify", "unifiable", "unify", "var", "variables", "vars"]
