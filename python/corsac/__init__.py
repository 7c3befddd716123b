"""corsac: torch.fx, written in Rust.

``corsac.fx`` mirrors :mod:`torch.fx` and needs torch; ``import corsac`` alone does not.
"""

from corsac._core import __version__

__all__ = ["__version__"]
