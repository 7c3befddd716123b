"""Imports made by compiling a model, and names that are imported on first use."""

import pytest

import corsac
import corsac.backends
import corsac.distributed
import corsac.lowering
import corsac.onnx
from kit.new_process import printed


def test_compiling_a_model_imports_no_other_compiler() -> None:
    program = """
import sys
import torch
import corsac

with torch.inference_mode():
    result = corsac.compile(torch.nn.ReLU().eval())(torch.tensor([-1.0, 2.0]))
assert result.tolist() == [0.0, 2.0]
print([name for name in sys.modules if name.partition(".")[0] in ("functorch", "networkx", "onnx")])
print([name for name in sys.modules if name.startswith(("corsac.minifier", "corsac.onnx", "corsac.lowering._lower"))])
"""
    assert printed(program) == "[]\n[]\n"


@pytest.mark.parametrize(
    "package", [corsac, corsac.backends, corsac.distributed, corsac.lowering, corsac.onnx]
)
def test_all_names_are_there(package: object) -> None:
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)
    missing = "no_such_name"
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        getattr(package, missing)


def test_packages_are_there_without_being_imported() -> None:
    """``import corsac`` is enough for ``corsac.passes.simplify``."""
    program = """
import corsac
packages = "analysis backends cache config distributed fx lowering minifier onnx optimum passes quantization".split()
print([name for name in packages if getattr(corsac, name).__name__ != f"corsac.{name}"])
"""
    assert printed(program) == "[]\n"


def test_a_table_of_operators_is_full_from_the_start() -> None:
    program = "import corsac.onnx; print(len(corsac.onnx.operators()) > 100)"
    assert printed(program) == "True\n"
