"""State of the node being made: metadata, stack traces, provenance.

PyTorch's own tracers, its autograd and torch.export keep this state in ``torch.fx.traceback``. It is shared:
values set through either module are visible in both.
"""

from typing import Any

import torch.fx.traceback as _shared

__all__ = list(_shared.__all__)
globals().update({name: getattr(_shared, name) for name in __all__})


def __getattr__(name: str) -> Any:
    # ``current_meta`` and similar names are rebound by torch.fx.traceback, so they are read from it.
    return getattr(_shared, name)
