"""Unification of terms with variables.

Terms are tuples, lists and objects of classes registered with :func:`unifiable`; variables are :class:`Var`.
The variables and the dispatch tables are PyTorch's, so that terms have the same meaning in both packages.
Source: J. A. Robinson, "A machine-oriented logic based on the resolution principle", 1965.
"""

from .core import reify, unify
from .more import unifiable
from .variable import Var, isvar, var, variables, vars

__all__ = ["Var", "isvar", "reify", "unifiable", "unify", "var", "variables", "vars"]
