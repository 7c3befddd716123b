"""Gradual tensor types, shared with PyTorch.

Annotations made for either package have the same meaning in both, so the classes are the same.
"""

from torch.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]
