"""Write the parameters of PyTorch's Python functions as a table for corsac-ops.

python scripts/generate_signatures.py
"""

import inspect
from pathlib import Path

import torch
import torch.nn.functional as F
from torch._jit_internal import boolean_dispatched

TARGET = Path(__file__).parent.parent / "crates/corsac-ops/src/signature/python.rs"
HEAD = """//! Parameters of torch {version}'s functions that are written in Python, in the order in which they
//! are given by position; written by `scripts/generate_signatures.py`; do not edit.
//!
//! Sorted by name, for binary search.

#[rustfmt::skip]
pub(super) static TABLE: &[(&str, &str)] = &[
"""


def rows() -> list[tuple[str, str]]:
    """The qualified name of each function, and the names of its positional parameters."""
    found = {}
    for module in (F, torch.functional):
        for name, function in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            function = boolean_dispatched.get(function, {"if_false": function})["if_false"]
            # Functions of `torch.functional` have `torch` as their module.
            if function.__module__ not in (module.__name__, "torch"):
                continue
            parameters = inspect.signature(function).parameters.values()
            if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
                continue
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)
            names = [p.name for p in parameters if p.kind in kinds]
            if names:
                found[f"{module.__name__}.{name}"] = " ".join(names)
    return sorted(found.items())


def main() -> None:
    """Write the table."""
    lines = [f'    ("{name}", "{parameters}"),\n' for name, parameters in rows()]
    version = torch.__version__.split("+")[0]
    TARGET.write_text(HEAD.format(version=version) + "".join(lines) + "];\n")


if __name__ == "__main__":
    main()
