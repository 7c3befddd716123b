"""What is known about the node being made: metadata, stack traces, provenance.

PyTorch's own tracers, its autograd and torch.export keep this state in ``torch.fx.traceback``.
It is shared: what is set through either module is seen by both.
"""

from typing import Any

import torch.fx.traceback as _shared

__all__ = list(_shared.__all__)
globals().update({name: getattr(_shared, name) for name in __all__})


def __getattr__(name: str) -> Any:
    # ``current_meta`` and its like are rebound by torch.fx.traceback: they are read there.
    return getattr(_shared, name)
