"""The graph transformations of Hugging Face optimum (``optimum.fx.optimization``).

A transformation is called with a graph module, changes it in place and returns it; a reversible one can
restore the graph and the weights::

    gm = corsac.fx.symbolic_trace(model)
    transformation = compose(ChangeTrueDivToMulByInverse(), MergeLinears())
    transformation(gm)
    print(transformation.report)
    transformation(gm, reverse=True)

The model that was traced keeps its modules. Places where a transformation would change the computation are
skipped, with the reason in its report.
"""

from corsac.optimum._batch_norms import FuseBatchNorm1dInLinear, FuseBatchNorm2dInConv2d
from corsac.optimum._bias import FuseBiasInLinear
from corsac.optimum._compose import compose
from corsac.optimum._copying import DeepCopy, LintAndRecompile
from corsac.optimum._division import ChangeTrueDivToMulByInverse
from corsac.optimum._merge import MergeLinears
from corsac.optimum._transformation import ReversibleTransformation, Transformation

__all__ = [
    "ChangeTrueDivToMulByInverse",
    "DeepCopy",
    "FuseBatchNorm1dInLinear",
    "FuseBatchNorm2dInConv2d",
    "FuseBiasInLinear",
    "LintAndRecompile",
    "MergeLinears",
    "ReversibleTransformation",
    "Transformation",
    "compose",
]
