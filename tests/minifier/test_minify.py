"""corsac.minify finds planted faults in graphs of 50 and 500 calls."""

import itertools
import operator
import random
import subprocess
import sys
import time

import pytest
import torch
import torch.fx
from torch import nn

import corsac
from corsac.fx import Graph, GraphModule, Interpreter
from corsac.minifier._fault import find_fault

UNARY = [torch.sin, torch.cos, torch.tanh, torch.relu, torch.sigmoid]
BINARY = [torch.add, torch.sub, torch.maximum]


def random_graph(calls, planted, seed=0, shape=(4, 6), all_results=False):
    """A graph of ``calls`` calls, with calls of ``planted`` at some places among them.

    With ``all_results``, later calls cannot hide what one of them computed.
    """
    choose = random.Random(seed)
    graph = Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    places = dict(
        zip(sorted(choose.sample(range(calls // 3, calls), len(planted))), planted, strict=True)
    )
    for number in range(calls):
        target = places.get(number) or choose.choice(UNARY + BINARY)
        recent = values[-8:]
        count = 2 if target in BINARY or target is torch.fmin else 1
        values.append(
            graph.call_function(target, tuple(choose.choice(recent) for _ in range(count)))
        )
    graph.output(tuple(values[2:]) if all_results else (values[-1], values[-2]))
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(*shape, generator=generator) for _ in range(2)]
    return GraphModule(nn.Module(), graph), inputs


def targets(found):
    return [n.target for n in found.module.graph.nodes if n.op.startswith("call_")]


def raises(module, inputs):
    """A backend without a kernel for atan."""
    for node in module.graph.nodes:
        if node.target is torch.atan:
            raise NotImplementedError(f"no kernel for {node.name} of {len(inputs)} inputs")


class WrongErf(Interpreter):
    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return result * 1.01 if target is torch.erf else result


def differs(module, inputs):
    """A backend that computes erf inaccurately."""
    found, expected = WrongErf(module).run(*inputs), module(*inputs)
    return any(not torch.allclose(a, b, 1e-3) for a, b in zip(found, expected, strict=True))


def needs_both(module, inputs):
    """A fault of two calls together, of enough rows."""
    used = {node.target for node in module.graph.nodes}
    if {torch.atan, torch.erf} <= used and all(own.shape[0] >= 3 for own in inputs):
        return f"two kernels at once in {len(module.graph.nodes)} nodes"
    return None


def has_nan(module, inputs):
    """A logarithm of negative numbers."""
    return any(bool(own.isnan().any()) for own in module(*inputs))


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "calls, fails, planted",
    [
        (50, raises, [torch.atan]),
        (500, needs_both, [torch.atan, torch.erf]),
        slow(50, differs, [torch.erf]),
        slow(50, needs_both, [torch.atan, torch.erf]),
        slow(500, raises, [torch.atan]),
        slow(500, differs, [torch.erf]),
        slow(5000, raises, [torch.atan]),
        slow(5000, needs_both, [torch.atan, torch.erf]),
    ],
)
def test_planted_faults_are_found(calls, fails, planted):
    module, inputs = random_graph(calls, planted, seed=calls, all_results=fails is differs)
    before = str(module.graph)
    # Time depends on the load of the machine; the number of tests does not.
    found = corsac.minify(module, inputs, fails, seconds=600)
    assert found.finished and found.tests < 400 and found.before == calls
    assert sorted(map(str, targets(found))) == sorted(map(str, planted))
    assert found.verified, found.reason
    assert len(found.script.splitlines()) < 90
    rows = 3 if fails is needs_both else 1
    assert all(own.shape == (rows, 1) for own in found.inputs)
    assert str(module.graph) == before
    assert f"{calls} calls became {len(planted)}" in str(found)


def test_nan_is_traced_to_its_call():
    module, inputs = random_graph(120, [torch.log], seed=1, all_results=True)
    (node,) = module.graph.find_nodes(op="call_function", target=torch.log)
    with module.graph.inserting_before(node):
        node.args = (module.graph.call_function(torch.sub, (node.args[0], 9.0)),)
    module.recompile()
    found = corsac.minify(module, inputs, has_nan, verify=False)
    assert targets(found) == [torch.log]
    assert [own.shape for own in found.inputs] == [(1, 1)]


def test_another_fault_is_not_the_same():
    """Smaller graphs that fail otherwise are rejected."""

    def fails(module, inputs):
        used = [node.target for node in module.graph.nodes]
        if torch.atan in used and torch.erf in used:
            raise ValueError("the fault that is looked for, of %12")
        if torch.atan in used or torch.erf in used:
            raise ValueError("another one")

    module, inputs = random_graph(60, [torch.atan, torch.erf])
    found = corsac.minify(module, inputs, fails)
    assert sorted(map(str, targets(found))) == sorted(map(str, [torch.atan, torch.erf]))
    assert found.signature == "ValueError: the fault that is looked for, of …"
    assert found.verified, found.reason


def test_why_there_is_no_script():
    module, inputs = random_graph(20, [torch.atan])
    found = corsac.minify(module, inputs, lambda module, inputs: raises(module, inputs))
    assert found.script is None and not found.verified
    assert found.reason == "<lambda> is no function that is defined by its name"


def test_modules_weights_and_torch_fx():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 3)).eval()
    module = torch.fx.symbolic_trace(model)
    found = corsac.minify(module, [torch.randn(5, 6)], has_layer_norm)
    assert found.calls == 1 and found.verified, found.reason
    assert not found.module.graph.find_nodes(op="get_attr")
    assert model[2].weight.shape == (6,)


def has_layer_norm(module, inputs):
    return any("layer_norm" in str(node.target) for node in module.graph.nodes) or any(
        isinstance(own, nn.LayerNorm) for own in module.modules()
    )


def test_views_with_written_sizes_shrink():
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_method("view", (x, 4, 3, 5))
    z = graph.call_function(torch.atan, (y,))
    graph.output((graph.call_function(operator.getitem, (z, 0)),))
    module = GraphModule(nn.Module(), graph)
    found = corsac.minify(module, [torch.randn(12, 5)], raises, verify=False)
    assert targets(found) == [torch.atan]
    assert [tuple(own.shape) for own in found.inputs] == [(1, 1, 1)]


@pytest.mark.parametrize(
    "program", [lambda x: {"y": torch.atan(x), "rest": [x + 1, None]}, lambda x: torch.atan(x)]
)
def test_results_in_containers(program):
    module = corsac.fx.symbolic_trace(program)
    found = corsac.minify(module, [torch.randn(4, 3)], raises, verify=False)
    assert targets(found) == [torch.atan]
    assert [tuple(own.shape) for own in found.inputs] == [(1, 1)]


def test_the_time_is_bounded():
    def takes_long(module, inputs):
        time.sleep(0.2)
        return any(node.target is torch.atan for node in module.graph.nodes)

    module, inputs = random_graph(300, [torch.atan])
    found = corsac.minify(module, inputs, takes_long, seconds=3.0)
    assert not found.finished and found.tests <= 16
    # On a busy machine there may only have been time for a few tests.
    assert found.calls < 300 or found.tests < 5
    assert find_fault(found.module, found.inputs, takes_long).signature == "it fails"
    assert "when the time was up" in str(found)


def test_progress_is_told(capsys):
    module, inputs = random_graph(50, [torch.atan])
    seen = []

    def seen_by(seen):
        return lambda *own: seen.append(own)

    corsac.minify(module, inputs, raises, progress=seen_by(seen), verify=False)
    stages = [stage for stage, _ in itertools.groupby(stage for stage, _, _ in seen)]
    assert stages[:3] == ["whole", "halves", "sizes"]
    left = [calls for _, calls, _ in seen]
    assert left == sorted(left, reverse=True) and left[-1] == 1
    corsac.minify(module, inputs, raises, progress=True, verify=False)
    assert "1 of 50 calls left" in capsys.readouterr().err


def test_what_cannot_be_minified():
    module, inputs = random_graph(10, [])
    with pytest.raises(ValueError, match=r"fails\(\) finds none in the whole graph"):
        corsac.minify(module, inputs, raises)
    with pytest.raises(ValueError, match="a graph that PyTorch can run"):
        corsac.minify(module, [torch.ones(2), torch.ones(3)], raises)


def test_the_script_is_a_program_of_its_own(tmp_path):
    module, inputs = random_graph(50, [torch.erf], all_results=True)
    found = corsac.minify(module, inputs, differs, verify=False)
    assert not found.verified and found.reason == "not asked for"
    path = tmp_path / "fault.py"
    found.save(path)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (1, ["fault: it fails"]), done.stderr
    path.write_text(found.script.replace("torch.erf](", "torch.sin]("))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["fault: none"]), done.stderr
