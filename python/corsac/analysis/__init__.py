"""Analysis of graphs: types, costs and a model's summary without running it, times by measuring.

::

    gm = corsac.fx.symbolic_trace(model)
    print(corsac.analysis.propagate(gm, TensorSpec(("batch", 3, 224, 224))))
    print(corsac.analysis.cost(gm, torch.empty(1, 3, 224, 224)))
    print(corsac.analysis.profile(gm, x))
    print(corsac.summary(model, x))
"""

from corsac._core import Dim, ShapeInferenceError
from corsac.analysis._cost import CostReport, Lifetime, ModuleCost, NodeCost, cost
from corsac.analysis._machine import Machine, machine
from corsac.analysis._profile import NodeTime, Profile, Range, profile, ranges
from corsac.analysis._propagate import Propagation, Row, Site, propagate
from corsac.analysis._spec import TensorSpec
from corsac.analysis._summary import ModuleRow, Summary, summary

__all__ = [
    "CostReport",
    "Dim",
    "Lifetime",
    "Machine",
    "ModuleCost",
    "ModuleRow",
    "NodeCost",
    "NodeTime",
    "Profile",
    "Propagation",
    "Range",
    "Row",
    "ShapeInferenceError",
    "Site",
    "Summary",
    "TensorSpec",
    "cost",
    "machine",
    "profile",
    "propagate",
    "ranges",
    "summary",
]
