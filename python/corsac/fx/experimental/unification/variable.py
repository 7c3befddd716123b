"""Variables: PyTorch's own, since types of nodes hold them."""

from torch.fx.experimental.unification.variable import Var, isvar, var, variables, vars

__all__ = ["Var", "isvar", "var", "variables", "vars"]
