"""The two implementations to be compared, chosen in this one place.

``CORSAC_FX_UNDER_TEST`` names the module under test; the default is ``corsac.fx``. Setting it to
``torch.fx`` runs the reference against itself, which checks the programs and the kit.
"""

import importlib
import os
from dataclasses import dataclass
from types import ModuleType

import pytest

SUBMODULES = (
    "graph",
    "node",
    "proxy",
    "_symbolic_trace",
    "graph_module",
    "interpreter",
    "subgraph_rewriter",
    "traceback",
    "immutable_collections",
)


@dataclass(frozen=True)
class Implementation:
    """A module with torch.fx's interface, and its import name."""

    name: str
    fx: ModuleType

    @classmethod
    def load(cls, name: str) -> "Implementation":
        """Import the module and those of its submodules that exist."""
        fx = importlib.import_module(name)
        for submodule in SUBMODULES:
            # A missing submodule is reported by the public-surface test, once.
            if importlib.util.find_spec(f"{name}.{submodule}") is not None:
                importlib.import_module(f"{name}.{submodule}")
        return cls(name, fx)

    def normalise(self, text: str) -> str:
        """Replace this implementation's own module path by the reference's."""
        if self.name == "torch.fx":
            return text
        return text.replace(self.name, "torch.fx").replace(self.name.replace(".", "_"), "torch_fx")


REFERENCE = Implementation.load("torch.fx")
SUBJECT = Implementation.load(os.environ.get("CORSAC_FX_UNDER_TEST", "corsac.fx"))
SELF_CHECK = SUBJECT.name == REFERENCE.name

needs_subject = pytest.mark.skipif(SELF_CHECK, reason="checks what only the subject promises")
