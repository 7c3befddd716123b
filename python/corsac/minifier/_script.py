"""A case as a Python program of its own."""

from __future__ import annotations

import base64
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from corsac import _core
from corsac.backends import _repro_switch
from corsac.fx import GraphModule
from corsac.minifier._backend_fails import BackendFails
from corsac.minifier._case import Case, copies
from corsac.minifier._child import listen
from corsac.minifier._fault import Fails, Fault, crashed, find_fault, hung
from corsac.minifier._simplify import SEED, seeded
from corsac.minifier._source import Source

#: Tensors of more elements are not written out.
LARGEST = 200_000
#: Tensors of more elements are written as compressed bytes.
READABLE = 64
#: Seconds that a program may take to import PyTorch.
_START = 120.0
#: Prefix of lines that programs print before steps that may end the process.
_PHASE = "being "

_SCRIPT = '''\
"""{title}
{said}
{about}
Run it: its status is 0 once the fault is gone. `corsac minify {name}` tries to make it smaller.
"""

{imports}

{source}GRAPH = r"""
{graph}
"""

root = torch.nn.Module()
{attributes}module = GraphModule(root, Graph.parse(GRAPH))
inputs = [
{inputs}]
{fails}
if __name__ == "__main__":
    sys.exit(show(module, inputs, fails))
'''


def show(module: GraphModule, inputs: list[Any], fails: Fails) -> int:
    """Print the fault of a graph; return 1 if it has one, else 0. Scripts of the minifier call it last."""

    def say(phase: str) -> None:
        print(f"{_PHASE}{phase} ...", flush=True)

    def shown(module: GraphModule, inputs: list[Any]) -> Any:
        try:
            return fails(module, inputs)
        except Exception:
            import traceback

            traceback.print_exc()
            raise

    if isinstance(fails, BackendFails):
        fails.prepare()
    print(f"torch {torch.__version__}, corsac {_core.__version__}", flush=True)
    listen(say)
    try:
        found = find_fault(module, copies(inputs), shown)
    finally:
        listen(None)
    print("fault:", "none" if found is None else found.signature)
    if found is not None and found.text != found.signature:
        print(found.text)
    return 0 if found is None else 1


def script_of(case: Case, fails: Fails, fault: Fault, before: int, name: str = "fault.py") -> str:
    """A program that shows the fault of ``case``; it ends with status 1 if the fault is there.

    Raises:
        ValueError: a part of it cannot be written as source code, and which.
    """
    graph = case.module.graph
    if graph.find_nodes(op="call_module"):
        names = ", ".join(str(node.target) for node in graph.find_nodes(op="call_module"))
        raise ValueError(f"the graph calls modules: {names}")
    attributes = {}
    for node in graph.find_nodes(op="get_attr"):
        target = str(node.target)
        if not target.isidentifier():
            raise ValueError(f"the graph reads {target} of a module")
        own = getattr(case.module, target)
        written = _written(own, target)
        if isinstance(own, torch.nn.Parameter):
            plain = written.removesuffix(_WANTS)
            written = f"torch.nn.Parameter({plain}, requires_grad={own.requires_grad})"
        attributes[target] = written
    given = [_written(own, f"input {number}") for number, own in enumerate(case.inputs)]
    source = Source()
    expression = source.expression(fails)
    definitions = [*source.definitions.values()]
    values = "".join(f"    {text},\n" for text in given)
    about = (
        f"{before} calls became {len(case.calls)}. corsac {_core.__version__}, torch "
        f"{torch.__version__}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}."
    )
    return _SCRIPT.format(
        title=_quoted(fault.signature),
        said=_said(fault),
        about=textwrap.fill(about, 100),
        name=name,
        imports=_imports(source, values + "".join(attributes.values())),
        source="".join(f"\n{own}\n\n" for own in definitions) + "\n" * bool(definitions),
        graph=str(graph).strip(),
        attributes="".join(f"root.{name} = {text}\n" for name, text in attributes.items()),
        inputs=values,
        fails="" if expression == "fails" else f"fails = {expression}\n",
    )


def run_script(script: str, signature: str, seconds: float) -> str | None:
    """Run a program of :func:`script_of` in a process of its own; None if it shows the fault.

    Args:
        script: the program.
        signature: the expected signature of the fault.
        seconds: limit for its first step, and for each next one that it announces.
    """
    found = _outcome(script, seconds)
    if isinstance(found, Fault) and found.signature == signature:
        return None
    said = found.text if isinstance(found, Fault) else found
    return f"expected {signature!r}, got {said!r}"


def _outcome(script: str, seconds: float) -> Fault | str:
    """The fault that a program shows, or its last output."""
    with tempfile.TemporaryDirectory() as folder:
        path, out, err = (Path(folder) / name for name in ("fault.py", "out", "err"))
        path.write_text(script)
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=_repro_switch.environment_without(),
                start_new_session=True,
            )
            in_time = _wait(process, lambda: out.read_text(errors="replace"), seconds)
        said = out.read_text(errors="replace").splitlines()
        phases = [own.removeprefix(_PHASE)[:-4] for own in said if own.startswith(_PHASE)]
        phase = phases[-1] if phases else ""
        faults = [own.removeprefix("fault: ") for own in said if own.startswith("fault: ")]
        if faults and faults[0] != "none":
            return Fault(faults[0], "\n".join(said[said.index(f"fault: {faults[0]}") :]))
        errors = err.read_text(errors="replace")
        if not in_time:
            return hung(phase, seconds)
        # It announced a step and printed no result.
        if not faults and (phases or process.returncode < 0):
            return crashed(process.returncode, phase, errors)
        return (errors.strip() or "\n".join(said).strip() or "nothing").splitlines()[-1]


def _wait(process: subprocess.Popen[bytes], said: Callable[[], str], seconds: float) -> bool:
    """Whether a program ends in time; it is killed if not."""
    before, deadline = "", time.monotonic() + _START
    while process.poll() is None:
        now = said()
        if now != before:
            # Its imports are done once it prints something.
            before, deadline = now, time.monotonic() + seconds
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            return False
        time.sleep(0.02)
    return True


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''").rstrip('"')


def _said(fault: Fault) -> str:
    """The message of the fault, if it is more than its signature."""
    lines = [line.rstrip() for line in fault.text.strip().splitlines() if line.strip()][:6]
    if not lines or lines == [fault.signature]:
        return ""
    shown = "\n".join(line if len(line) <= 160 else line[:157] + "..." for line in lines)
    return f"\n{_quoted(shown)}\n"


def _imports(source: Source, values: str) -> str:
    """Import statements, grouped: the standard library, other packages, corsac."""
    wanted = dict.fromkeys(["import sys", "import torch", *source.imports])
    wanted["from corsac.fx import Graph, GraphModule"] = None
    wanted["from corsac.minifier import show"] = None
    if re.search(r"\bb64decode\b", values):
        wanted |= dict.fromkeys(["import base64", "import zlib"])
    if re.search(r"\b(inf|nan)\b", values):
        wanted["from math import inf, nan"] = None
    both = "from corsac.minifier import BackendFails"
    if both in wanted:
        del wanted[both], wanted["from corsac.minifier import show"]
        wanted["from corsac.minifier import BackendFails, show"] = None
    paths = [own for own in wanted if own.startswith("sys.path")]
    groups: list[list[str]] = [[], [], []]
    for own in wanted:
        if own in paths:
            continue
        package = own.split()[1].partition(".")[0]
        kind = 0 if package in sys.stdlib_module_names else 2 if package == "corsac" else 1
        groups[kind].append(own)
    ordered = [sorted(group, key=lambda own: (own.startswith("from"), own)) for group in groups]
    first, *rest = ["\n".join(group) for group in ordered if group]
    return "\n\n".join([first, *["\n".join(paths)] * bool(paths), *rest])


_WANTS = ".requires_grad_()"


def _written(value: Any, place: str) -> str:
    """``value`` as an expression."""
    if not isinstance(value, torch.Tensor):
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        raise ValueError(f"{place} is a {type(value).__name__}")
    if value.device.type != "cpu" or value.layout is not torch.strided:
        raise ValueError(f"{place} is a tensor on {value.device}, {value.layout}")
    return _of_values(value.detach(), place) + (_WANTS if value.requires_grad else "")


def _of_values(own: torch.Tensor, place: str) -> str:
    shape, dtype = tuple(own.shape), own.dtype
    kind = "" if dtype == torch.float32 else f", dtype={dtype}"
    if own.numel() and bool((own == 1).all()):
        return f"torch.ones({shape}{kind})"
    if bool((own == 0).all()):
        return f"torch.zeros({shape}{kind})"
    if own.numel() <= READABLE and own.numel() != 0:
        return f"torch.tensor({own.tolist()}, dtype={dtype})"
    if own.is_floating_point() and torch.equal(own, seeded(own)):
        cast = f".to({dtype})" if kind else ""
        return f"torch.randn({shape}, generator=torch.Generator().manual_seed({SEED})){cast}"
    if not own.is_complex() and torch.equal(
        own, torch.arange(own.numel()).reshape(shape).to(dtype)
    ):
        return f"torch.arange({own.numel()}).reshape({shape}).to({dtype})"
    if own.numel() > LARGEST:
        raise ValueError(f"{place} is a tensor of {own.numel()} elements")
    data = own.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    unpacked = f'bytearray(zlib.decompress(base64.b64decode("{text}")))'
    return f"torch.frombuffer({unpacked}, dtype={dtype}).reshape({shape})"
