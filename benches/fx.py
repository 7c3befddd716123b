"""torch.fx and corsac.fx side by side in one process.

    make bench                                     everything, about fifteen minutes
    python benches/fx.py --quick --only trace      some of it, few samples

Prints ratios (torch.fx time / corsac time; over 1 means corsac is faster) and writes them to
target/bench/fx.json. The exit code is 1 when the engines' results differ; a target that is not met
is reported and is no error.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import importlib
import operator
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.fx
import torch.fx.experimental.optimization
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata, _extract_tensor_metadata

import corsac.analysis
import corsac.fx
import corsac.fx.experimental.optimization
import corsac.passes
from machine import REPORTS, machine
from side_by_side import Bench, Difference, Outcome, Work, heading, progress, row, run, write_json

REPORT = REPORTS / "fx.json"
ENGINES = {"torch_fx": torch.fx, "corsac": corsac.fx}
MODELS = ("resnet50", "densenet121", "efficientnet_b0", "vit_b_16", "swin_t", "convnext_tiny")
TYPED = ("resnet50", "efficientnet_b0", "convnext_tiny")
LARGE = 100_000
#: Benches that take minutes, each with its smaller replacement for short runs.
LONG = {"patterns/100 rules on 20k nodes": "patterns/100 rules on 2k nodes"}


def model(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return torchvision.models.get_model(name, weights=None).eval()


# -- graphs ------------------------------------------------------------------------------------


def build(fx: ModuleType, nodes: int) -> Any:
    """A graph of ``nodes`` nodes in which every value is used and few live long."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    call, add, relu = graph.call_function, operator.add, torch.relu
    y = x
    for _ in range((nodes - 2) // 2):
        z = call(relu, (y,))
        y = call(add, (z, y))
    graph.output(y)
    return graph


def build_half_dead(fx: ModuleType, nodes: int) -> Any:
    """As :func:`build`, but every other node is unused."""
    graph = fx.Graph()
    y = graph.placeholder("x")
    for _ in range((nodes - 2) // 2):
        graph.call_function(torch.sigmoid, (y,))
        y = graph.call_function(torch.relu, (y,))
    graph.output(y)
    return graph


def build_matches(fx: ModuleType, nodes: int, matches: int) -> Any:
    """A module of ``nodes`` nodes in which ``relu(neg(x))`` occurs ``matches`` times."""
    graph = fx.Graph()
    y = graph.placeholder("x")
    between = (nodes - 2 * matches) // matches
    for _ in range(matches):
        y = graph.call_function(torch.relu, (graph.call_function(torch.neg, (y,)),))
        for _ in range(between):
            y = graph.call_function(torch.sigmoid, (y,))
    graph.output(y)
    return fx.GraphModule(torch.nn.Module(), graph)


def negative_part(x):
    return torch.relu(torch.neg(x))


def clamped(x):
    return torch.neg(torch.clamp(x, max=0.0))


class Block(torch.nn.Module):
    """Ten parameters, of which ``forward`` reads two."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("scale", "shift", *(f"unused_{number}" for number in range(8))):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(1)))

    def forward(self, x):
        return x * self.scale + self.shift


class ManyParameters(torch.nn.Module):
    """10,000 parameters in 1,000 blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(1000))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


# -- operations that both engines perform --------------------------------------------------------


def sides(work: Callable[[ModuleType], Work]) -> dict[str, Work]:
    return {"peer": work(torch.fx), "ours": work(corsac.fx)}


def text(graph_module: Any) -> str:
    return str(graph_module.graph) + graph_module.code


def trace(name: str, root: torch.nn.Module, at_least: float, aim: float) -> Bench:
    nodes = len(torch.fx.symbolic_trace(root).graph.nodes)
    return Bench(
        name,
        nodes,
        **sides(lambda fx: Work(lambda _: fx.symbolic_trace(root), shows=text)),
        at_least=at_least,
        aim=aim,
    )


def transform(name: str) -> Bench:
    root = model(name)

    def work(fx: ModuleType) -> Work:
        traced = fx.symbolic_trace(root)
        return Work(lambda _: fx.Transformer(traced).transform(), shows=text)

    nodes = len(torch.fx.symbolic_trace(root).graph.nodes)
    return Bench(f"transform/{name}", nodes, **sides(work), at_least=5, aim=15)


def on_graph(
    name: str,
    timed: Callable[[ModuleType, Any], Any],
    shows: Callable[[Any], Any],
    at_least: float,
    aim: float,
    calls: int = 1,
) -> Bench:
    """A bench on one prepared graph, which it does not change."""

    def work(fx: ModuleType) -> Work:
        graph = build(fx, LARGE)
        return Work(lambda _: timed(fx, graph), shows=shows)

    return Bench(f"{name}/100k", LARGE, **sides(work), at_least=at_least, aim=aim, calls=calls)


def graph_copy(fx: ModuleType, graph: Any) -> Any:
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph, {}))
    return copied


def dce() -> Bench:
    def work(fx: ModuleType) -> Work:
        graph = build_half_dead(fx, LARGE)

        def eliminate(graph: Any) -> Any:
            graph.eliminate_dead_code()
            return graph

        return Work(eliminate, before=lambda: copy.deepcopy(graph), shows=str)

    return Bench("dce/100k", LARGE, **sides(work), at_least=15, aim=50)


def replace_pattern(matches: int, at_least: float, aim: float) -> Bench:
    nodes = 20_000

    def work(fx: ModuleType) -> Work:
        def replace(module: Any) -> Any:
            found = fx.replace_pattern(module, negative_part, clamped)
            return module, len(found)

        return Work(
            replace,
            before=lambda: build_matches(fx, nodes, matches),
            shows=lambda result: f"{text(result[0])}\n{result[1]} matches",
        )

    return Bench(f"replace_pattern/20k/{matches}", nodes, **sides(work), at_least=at_least, aim=aim)


#: The functions of 100 patterns, ``outer(inner(x))``, and of their replacements.
INNER = (torch.neg, torch.abs, torch.sin, torch.cos, torch.tan, torch.exp, torch.floor, torch.ceil,
         torch.erf, torch.sign)  # fmt: skip
OUTER = (torch.relu, torch.tanh, torch.sigmoid, torch.log1p, torch.square, torch.atan, torch.sinh,
         torch.asinh, torch.expm1, torch.frac)  # fmt: skip


def patterns(nodes: int) -> Bench:
    """100 rewrite rules: in one traversal, and with ``replace_pattern``, which applies one rule at a time.
    One node in three lies between two matches; matches cycle through all rules."""
    pairs = [(outer, inner) for outer in OUTER for inner in INNER]

    def rule(place: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
        outer, inner = pairs[place]
        return lambda x: outer(inner(x)), lambda x: torch.mul(torch.cosh(x), place + 2)

    def program(fx: ModuleType) -> Any:
        graph = fx.Graph()
        y = graph.placeholder("x")
        for turn in range((nodes - 2) // 3):
            outer, inner = pairs[turn % len(pairs)]
            for function in (inner, outer, torch.trunc):
                y = graph.call_function(function, (y,))
        graph.output(y)
        return fx.GraphModule(torch.nn.Module(), graph)

    def shows(module: Any) -> list[Any]:
        """Compare without names, which rules and ``replace_pattern`` assign in different orders."""
        place = {node: at for at, node in enumerate(module.graph.nodes)}
        return [
            (str(node.target), [place.get(arg, arg) for arg in node.args])
            for node in module.graph.nodes
        ]

    def theirs(module: Any) -> Any:
        for place in range(len(pairs)):
            torch.fx.replace_pattern(module, *rule(place))
        return module

    def ours(module: Any) -> Any:
        rules = [corsac.passes.Rule(*rule(place)) for place in range(len(pairs))]
        corsac.passes.rewrite(module, rules)
        return module

    return Bench(
        f"patterns/100 rules on {nodes // 1000}k nodes",
        nodes,
        peer=Work(theirs, before=lambda: program(torch.fx), shows=shows),
        ours=Work(ours, before=lambda: program(corsac.fx), shows=shows),
        at_least=10,
        aim=100,
        most_rounds=2 if nodes >= 20_000 else 200,
    )


def fuse(name: str) -> Bench:
    root = model(name)
    nodes = len(torch.fx.symbolic_trace(root).graph.nodes)
    return Bench(
        f"fuse/{name}",
        nodes,
        peer=Work(lambda _: torch.fx.experimental.optimization.fuse(root), shows=text),
        ours=Work(lambda _: corsac.fx.experimental.optimization.fuse(root), shows=text),
        at_least=5,
        aim=10,
    )


def build_half_constant(fx: ModuleType, nodes: int) -> Any:
    """A module in which every other node depends on an attribute only."""
    root = torch.nn.Module()
    root.w = torch.nn.Parameter(torch.ones(4))
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.get_attr("w")
    for _ in range((nodes - 3) // 2):
        w = graph.call_function(torch.relu, (w,))
        x = graph.call_function(torch.relu, (x,))
    graph.output(graph.call_function(operator.add, (x, w)))
    return fx.GraphModule(root, graph)


def const_fold() -> Bench:
    nodes = 2_000

    def work(fx: ModuleType) -> Work:
        split = importlib.import_module(f"{fx.__name__}.experimental.const_fold")

        def fold(module: Any) -> Any:
            return split.split_const_subgraphs(module)

        def shows(folded: Any) -> Any:
            calls = [str(n.target) for n in folded.graph.nodes if n.op == "call_function"]
            return calls, folded(torch.ones(4)).tolist()

        module = build_half_constant(fx, nodes)
        return Work(fold, before=lambda: copy.deepcopy(module), shows=shows)

    return Bench("const_fold/2k", nodes, **sides(work), at_least=10, aim=30)


def cse() -> Bench:
    """Common subexpressions of 10,000 nodes, half of them repeated, compared with functorch's."""
    from torch._functorch.compile_utils import fx_graph_cse

    nodes = 10_000

    def build_pairs(fx: ModuleType) -> Any:
        graph = fx.Graph()
        y = graph.placeholder("x")
        for _ in range((nodes - 2) // 4):
            a, b = (graph.call_function(torch.ops.aten.cos.default, (y,)) for _ in range(2))
            y = graph.call_function(torch.ops.aten.add.Tensor, (a, b))
        graph.output(y)
        return graph

    def ours(graph: Any) -> Any:
        corsac.passes.common_subexpressions(graph)
        return graph

    def shows(graph: Any) -> Any:
        return [str(node.target) for node in graph.nodes]

    theirs = build_pairs(torch.fx)
    mine = build_pairs(corsac.fx)
    return Bench(
        "cse/10k",
        nodes,
        peer=Work(lambda _: fx_graph_cse(theirs), shows=shows),
        ours=Work(ours, before=lambda: copy.deepcopy(mine), shows=shows),
        at_least=10,
        aim=30,
    )


def split(name: str, parts: int) -> Bench:
    """``split_module`` into partitions of about the same number of nodes, in graph order."""
    root = model(name)

    def work(fx: ModuleType) -> Work:
        split_module = importlib.import_module(f"{fx.__name__}.passes.split_module").split_module
        traced = fx.symbolic_trace(root)
        calls = [n for n in traced.graph.nodes if n.op.startswith("call_")]
        part_of = {node: place * parts // len(calls) for place, node in enumerate(calls)}

        def shows(whole: Any) -> str:
            inner = [m for m in whole.children() if hasattr(m, "graph")]
            return "\n".join(text(m) for m in (whole, *inner))

        return Work(lambda _: split_module(traced, root, part_of.__getitem__), shows=shows)

    nodes = len(torch.fx.symbolic_trace(root).graph.nodes)
    return Bench(f"split/{name} into {parts}", nodes, **sides(work), at_least=10, aim=20)


def reading() -> Iterator[Callable[[], Bench]]:
    """Attribute access and iteration over 100k nodes, held in a list by the caller."""

    def read(attribute: str) -> Callable[[], Bench]:
        program = f"def timed(nodes):\n    for node in nodes:\n        node.{attribute}\n"

        def work(fx: ModuleType) -> Work:
            namespace: dict[str, Any] = {}
            exec(program, namespace)
            # The list keeps the graph alive through its nodes' own reference to it.
            nodes = list(build(fx, LARGE).nodes)
            return Work(lambda _: namespace["timed"](nodes))

        return lambda: Bench(f"read/{attribute}", LARGE, **sides(work), at_least=1, aim=2)

    for attribute in ("op", "target", "args", "users"):
        yield read(attribute)

    def iterate(_: ModuleType, graph: Any) -> int:
        count = 0
        for _node in graph.nodes:
            count += 1
        return count

    yield lambda: on_graph("read/iterate", iterate, lambda count: count, 1, 2)


def running() -> Bench:
    root = model("resnet50")
    image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))

    def work(fx: ModuleType) -> Work:
        traced = fx.symbolic_trace(root)

        def call(_: Any) -> torch.Tensor:
            with torch.inference_mode():
                return traced(image)

        return Work(call, shows=lambda output: output.numpy().tobytes())

    nodes = len(torch.fx.symbolic_trace(root).graph.nodes)
    return Bench("run/resnet50", nodes, **sides(work), at_least=0.98, aim=1)


def inference() -> Bench:
    """The two optimised models; rounded results are compared, since they sum in different orders."""
    root = model("resnet50")
    image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))

    def work(fx: ModuleType) -> Work:
        with warnings.catch_warnings():
            # torch.fx uses script modules, which are deprecated.
            warnings.simplefilter("ignore")
            fast = fx.experimental.optimization.optimize_for_inference(root)

        def call(_: Any) -> torch.Tensor:
            with torch.no_grad():
                return fast(image)

        with torch.no_grad():
            expected = root(image)

        def is_close(output: torch.Tensor) -> bool:
            return torch.allclose(
                output, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())
            )

        return Work(call, shows=is_close)

    nodes = len(torch.fx.symbolic_trace(root).graph.nodes)
    return Bench("optimize_for_inference/resnet50", nodes, **sides(work), at_least=1, aim=1.2)


def from_torch() -> Bench:
    """Conversion from a torch.fx graph, compared with torch.fx's time to copy that graph."""
    module = torch.fx.GraphModule(torch.nn.Module(), build(torch.fx, LARGE))
    return Bench(
        "from_torch/100k",
        LARGE,
        peer=Work(lambda _: graph_copy(torch.fx, module.graph), shows=str),
        ours=Work(lambda _: corsac.fx.from_torch(module), shows=lambda result: str(result.graph)),
        at_least=1,
        aim=10,
    )


def shapes_of(traced: Any) -> list[Any]:
    """The shapes that propagation wrote to the nodes."""

    def shape(meta: Any) -> Any:
        if isinstance(meta, TensorMetadata):
            return tuple(meta.shape), str(meta.dtype)
        return [shape(item) for item in meta] if isinstance(meta, (tuple, list)) else None

    return [(node.name, shape(node.meta.get("tensor_meta"))) for node in traced.graph.nodes]


def shape_prop(name: str, fake: bool) -> Bench:
    """Types of all values: by running the model, or by running it on fake tensors, and by rules."""
    root = model(name)
    image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    theirs, ours = torch.fx.symbolic_trace(root), corsac.fx.symbolic_trace(root)

    def run_it(_: Any) -> Any:
        with torch.no_grad():
            ShapeProp(theirs).propagate(image)
        return theirs

    def fake_it(_: Any) -> Any:
        with torch.no_grad():
            # Parameters stay real: only values become fake tensors.
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            FakeTensorProp(theirs, mode).propagate(image)
        return theirs

    def propagate(_: Any) -> Any:
        with torch.no_grad():
            corsac.analysis.propagate(ours, image)
        return ours

    def of_fakes(traced: Any) -> list[Any]:
        # FakeTensorProp stores the values themselves.
        for node in traced.graph.nodes:
            if isinstance(node.meta.get("val"), torch.Tensor):
                node.meta["tensor_meta"] = _extract_tensor_metadata(node.meta["val"])
        return shapes_of(traced)

    return Bench(
        f"{'fake_tensor_prop' if fake else 'shape_prop'}/{name}",
        len(theirs.graph.nodes),
        peer=Work(fake_it, shows=of_fakes) if fake else Work(run_it, shows=shapes_of),
        ours=Work(propagate, shows=shapes_of),
        at_least=10,
        aim=50,
    )


def many_parameters() -> Bench:
    return trace("trace/10k_parameters", ManyParameters(), 10, 100)


BENCHES: dict[str, Callable[[], Bench]] = {
    **{f"trace/{name}": (lambda name=name: trace(f"trace/{name}", model(name), 10, 30)) for name in MODELS},
    "trace/10k_parameters": many_parameters,
    "build/100k": lambda: Bench(
        "build/100k",
        LARGE,
        **sides(lambda fx: Work(lambda _: build(fx, LARGE), shows=str)),
        at_least=10,
        aim=20,
    ),
    "graph_copy/100k": lambda: on_graph("graph_copy", graph_copy, str, 30, 100),
    "deepcopy/100k": lambda: on_graph("deepcopy", lambda _, graph: copy.deepcopy(graph), str, 30, 100),
    "python_code/100k": lambda: on_graph(
        "python_code", lambda _, graph: graph.python_code("self").src, str, 15, 40
    ),
    "str/100k": lambda: on_graph("str", lambda _, graph: str(graph), str, 15, 50),
    "lint/100k": lambda: on_graph("lint", lambda _, graph: graph.lint(), str, 15, 50),
    "dce/100k": dce,
    **{f"transform/{name}": (lambda name=name: transform(name)) for name in MODELS},
    "replace_pattern/20k/1000": lambda: replace_pattern(1_000, 20, 100),
    "replace_pattern/20k/10000": lambda: replace_pattern(10_000, 200, 1_000),
    "patterns/100 rules on 20k nodes": lambda: patterns(20_000),
    "patterns/100 rules on 2k nodes": lambda: patterns(2_000),
    **{f"fuse/{name}": (lambda name=name: fuse(name)) for name in ("resnet50", "densenet121")},
    "const_fold/2k": const_fold,
    "cse/10k": cse,
    "split/vit_b_16 into 100": lambda: split("vit_b_16", 100),
    **dict(
        zip(
            ("read/op", "read/target", "read/args", "read/users", "read/iterate/100k"),
            reading(),
            strict=True,
        )
    ),
    "from_torch/100k": from_torch,
    **{f"shape_prop/{name}": (lambda name=name: shape_prop(name, False)) for name in TYPED},
    **{f"fake_tensor_prop/{name}": (lambda name=name: shape_prop(name, True)) for name in TYPED},
    "run/resnet50": running,
    "optimize_for_inference/resnet50": inference,
}  # fmt: skip


# -- memory: in a process of its own, so that nothing measured before is counted -----------------


def peak_memory(engine: str) -> int:
    """Bytes per node by which building a graph raised this process's peak."""

    def peak_bytes() -> int:
        status = Path("/proc/self/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    fx = ENGINES[engine]
    build(fx, 1000)
    before = peak_bytes()
    graph = build(fx, LARGE)
    after = peak_bytes()
    del graph
    return (after - before) // LARGE


def memory() -> Outcome:
    outcome = Outcome("memory/100k", LARGE, at_least=2, aim=4, unit="B")
    for engine, samples in (("torch_fx", outcome.peer), ("corsac", outcome.ours)):
        answer = subprocess.run(
            [sys.executable, __file__, "--memory-of", engine],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        samples.append(float(answer.stdout))
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="PATTERN", help="benches like 'trace/*'")
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--memory-of", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(peak_memory(options.memory_of))
        return 0
    wanted = options.only or ["*"]
    # `cse` selects all benches of that group.
    wanted = [*wanted, *(f"{pattern}/*" for pattern in wanted)]
    chosen = {
        name: make
        for name, make in BENCHES.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
        and name not in (LONG if options.quick else LONG.values())
    }
    with_memory = any(fnmatch.fnmatch("memory/100k", pattern) for pattern in wanted)
    if not chosen and not with_memory:
        parser.error(
            f"no bench is called {' or '.join(options.only)}: {', '.join(BENCHES)}, memory/100k"
        )

    # One thread, so that running a model measures the generated code and not the machine's load.
    torch.set_num_threads(1)
    seconds, least_rounds = (1.0, 2) if options.quick else (6.0, 5)
    print(f"{machine()}; Python {platform.python_version()}, torch {torch.__version__},", end=" ")
    print(f"corsac {corsac.__version__}; {time.strftime('%Y-%m-%d')}; medians, seconds per call\n")
    print(heading(), flush=True)
    outcomes: list[Outcome] = []
    failures: list[str] = []
    for name, make in chosen.items():
        progress(f"{name} ...")
        try:
            outcome = run(make(), seconds, least_rounds)
        except Exception as error:
            # The other benches can still be useful; the exit code reports the failure.
            said = f"{name}: {error if isinstance(error, Difference) else repr(error)}"
            failures.append(said)
            progress("")
            print(f"FAILED {said}", flush=True)
            continue
        outcomes.append(outcome)
        progress("")
        print(row(outcome), flush=True)
    if with_memory:
        progress("memory/100k ...")
        outcomes.append(memory())
        progress("")
        print(row(outcomes[-1]))
    write_json(outcomes, REPORT)
    missed = [outcome.bench for outcome in outcomes if outcome.met == "NO"]
    print(f"\n{len(outcomes) - len(missed)} of {len(outcomes)} reach their target; in {REPORT}")
    if missed:
        print(f"below target: {', '.join(missed)}")
    if failures:
        print(f"error: {len(failures)} failed (see above)", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
