"""Models from configuration files, and configuration files from models.

A configuration lists the modules of a model with the arguments of their constructors, its own parameters, and
its computation. It is data: building a model from one imports nothing and calls only modules of
:mod:`torch.nn`, operators of torch, and functions that the caller allows::

    gm = corsac.build("model.toml")
    print(corsac.describe(gm))

``docs/configuration.md`` describes the notations.
"""

from corsac._core import ConfigError
from corsac.config._build import build
from corsac.config._describe import describe
from corsac.config._limits import Limits

__all__ = ["ConfigError", "Limits", "build", "describe"]
