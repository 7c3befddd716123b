"""Imports of the passes outside ``corsac.passes``, so that the registry has them."""

import corsac.fx.experimental._inference
import corsac.optimum._passes  # noqa: F401
