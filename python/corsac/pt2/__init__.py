"""Programs of ``torch.export`` in files (``*.pt2``), read without running anything in them.

::

    torch.export.save(torch.export.export(model, (x,)), "model.pt2")
    gm = corsac.from_pt2("model.pt2")
"""

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac.pt2._archive import Pt2ImportError
    from corsac.pt2._import import from_pt2

__all__ = ["Pt2ImportError", "from_pt2"]

__getattr__, __dir__ = lazy_names(
    __name__, {"_archive": ("Pt2ImportError",), "_import": ("from_pt2",)}
)
