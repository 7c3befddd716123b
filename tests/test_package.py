"""Guarantees of `import corsac` before any model is involved."""

import numpy as np
import torch

import corsac
from kit.new_process import BLOCKED, printed

#: Names of the package that work without PyTorch.
WITHOUT_TORCH = {
    "CompileError",
    "EngineError",
    "ModelFileError",
    "NumpyModel",
    "Session",
    "SessionModel",
    "__version__",
    "allow_in_graph",
    "assume_constant",
    "backends",
    "bytecode",
    "cache",
    "disable",
    "distributed",
    "generation",
    "graph_break",
    "load",
    "lowering",
    "onnx",
    "pt2",
}


def test_version_is_that_of_the_built_module():
    from corsac import _core

    assert corsac.__version__ == _core.__version__ == "0.1.0"


def test_import_does_not_need_torch():
    assert printed(f"{BLOCKED}import corsac; print(corsac.__version__)") == "0.1.0\n"


def test_import_loads_little_and_takes_less_than_sixty_milliseconds():
    program = """
import sys, time
start = time.process_time()
import corsac
print(time.process_time() - start, not {"torch", "numpy", "pathlib", "subprocess"} & {*sys.modules})
"""
    runs = [printed(program).split() for _ in range(3)]
    assert min(float(seconds) for seconds, _ in runs) < 0.06
    assert all(few == "True" for _, few in runs)


def test_names_that_need_torch_say_how_to_install_it():
    program = f"""{BLOCKED}
import corsac
for name in corsac.__all__:
    try:
        getattr(corsac, name)
        print(name)
    except ModuleNotFoundError as error:
        what, _, advice = str(error).partition(" needs PyTorch, 2.6 or later: ")
        assert what.startswith("corsac.") and what.endswith(f".{{name}}"), error
        assert advice == "pip install 'corsac[fx]'", error
        assert error.name == "torch"
"""
    assert {*printed(program).split()} == WITHOUT_TORCH


def test_files_and_the_program_work_without_torch(tmp_path):
    file = tmp_path / "model.safetensors"
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).eval()
    x = torch.ones(1, 3)
    corsac.save(model, file, (x,))
    program = f"""{BLOCKED}
import numpy, corsac
from corsac.cli import main
numpy.save(sys.argv[2], corsac.load(sys.argv[1])(numpy.ones((1, 3), numpy.float32)))
assert main(["ops", sys.argv[1]]) == 0
assert main(["optimize", "model.py:Net"]) == 2
"""
    assert "linear" in printed(program, file, tmp_path / "y.npy")
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-6)
