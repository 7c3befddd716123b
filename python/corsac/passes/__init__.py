"""Passes: transforms that keep what a program computes.

Each takes a :class:`corsac.fx.GraphModule` or its graph, changes it in place (a module is
recompiled) and returns a :class:`Report`: the sites that it changed, and those that it kept, with
the reason::

    gm = corsac.fx.symbolic_trace(model.eval())
    print(corsac.passes.fuse_conv_bn(gm))
    corsac.passes.remove_dropout(gm)
    corsac.passes.common_subexpressions(gm)
    corsac.passes.eliminate_dead_code(gm)

They take account of in-place writes and of shared storage, so that they are sound on programs with
in-place operations, views, random numbers and side effects. An unknown function or module is
assumed to do anything: :func:`pure` and ``_is_impure = False`` on a module declare that it only
computes its result.
"""

from corsac._lazy import lazy_names
from corsac.passes._autocast import autocast
from corsac.passes._budget import Budget, rewrite_budget
from corsac.passes._cleaning import (
    canonicalize,
    common_subexpressions,
    eliminate_dead_code,
    pure,
    remove_no_ops,
)
from corsac.passes._constants import fold_constants
from corsac.passes._conversion import functions_to_modules, modules_to_functions
from corsac.passes._decompose import decompose
from corsac.passes._dropout import remove_dropout
from corsac.passes._effects import Effects, effects
from corsac.passes._extract import extract_subgraph
from corsac.passes._fusion import fuse_conv_bn
from corsac.passes._invert import NotInvertible, invert
from corsac.passes._manager import Culprit, Outcome, PassManager, Step, VerificationError
from corsac.passes._normal_form import functions_to_operators, keyword_arguments
from corsac.passes._products import merge_matmul
from corsac.passes._reinplace import reinplace
from corsac.passes._replace_op import replace_op
from corsac.passes._report import Report, Site
from corsac.passes._rules import Match, RewriteReport, Rule, Rules, rewrite, simplify
from corsac.passes._saturate import CallTypes, SaturationReport, ValueType, saturate

__all__ = [
    "BalanceError",
    "BalanceReport",
    "Budget",
    "CallTypes",
    "Culprit",
    "Effects",
    "Match",
    "NotInvertible",
    "Outcome",
    "PartCost",
    "PassManager",
    "Report",
    "RewriteReport",
    "Rule",
    "Rules",
    "SaturationReport",
    "Site",
    "Step",
    "ValueType",
    "VerificationError",
    "autocast",
    "canonicalize",
    "common_subexpressions",
    "decompose",
    "effects",
    "eliminate_dead_code",
    "extract_subgraph",
    "fold_constants",
    "functions_to_modules",
    "functions_to_operators",
    "fuse_conv_bn",
    "invert",
    "keyword_arguments",
    "merge_matmul",
    "modules_to_functions",
    "pure",
    "reinplace",
    "remove_dropout",
    "remove_no_ops",
    "replace_op",
    "rewrite",
    "rewrite_budget",
    "saturate",
    "simplify",
    "split_balanced",
]

# It needs costs and the splitter, which need this package.
__getattr__, __dir__ = lazy_names(
    __name__,
    {"corsac._splitting": ("BalanceError", "BalanceReport", "PartCost", "split_balanced")},
)
