"""The cache of compiled programs for other processes: entries are found where they apply, used only if they
are complete, and cannot change a result."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import corsac
from corsac import _core, cache
from corsac._native.race import OFTEN
from corsac._training import _native_part
from corsac.cli import main
from corsac.fx import symbolic_trace
from corsac.fx.experimental.optimization import gen_mkl_autotuner, optimize_for_inference


def start_anew(monkeypatch):
    """This process's measurements and programs are forgotten, as in a new one."""
    monkeypatch.setattr(cache, "_caches", {})
    monkeypatch.setattr(_native_part, "_memory", _native_part._Memory())
    torch._dynamo.reset()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "programs"
    monkeypatch.setenv("CORSAC_CACHE_DIR", str(path))
    start_anew(monkeypatch)
    yield path
    start_anew(monkeypatch)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def found_and_missed() -> tuple[int, int]:
    info = cache.info()
    return info.found, info.missed


def layers(seed: int = 0, width: int = 24) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, 5)).eval()


def called(model: nn.Module, x: torch.Tensor, **options: str) -> torch.Tensor:
    with torch.inference_mode():
        return corsac.compile(model, fullgraph=True, **options)(x)


#: Number of steps after which it is decided for all parts whether native code is faster.
MOST_STEPS = 2 * OFTEN + 10


def gradients(model: nn.Module, x: torch.Tensor, **options: str) -> list[torch.Tensor]:
    return trained(model, x, **options)[0]


def trained(model: nn.Module, x: torch.Tensor, **options: str) -> tuple[list[torch.Tensor], Any]:
    """The gradients of a step, once all parts are decided, and the compiled function."""
    compiled = corsac.compile(model.train(), **options) if options else model.train()
    for at in range(1 if options != MEASURED else MOST_STEPS):
        is_known = at > 0 and "run both ways in turn" not in compiled.explain()
        model.zero_grad()
        compiled(x).square().sum().backward()
        if is_known:
            break
    return [own.grad.clone() for own in model.parameters()], compiled


MEASURED = {"options": {"training": "measured"}}


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    # Steps that PyTorch runs differ in the last bits.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_nothing_is_kept_unless_a_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CORSAC_CACHE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    called(layers(), torch.randn(3, 12))
    gradients(layers(), torch.randn(3, 12), **MEASURED)
    assert cache.info() == cache.CacheInfo()
    assert str(cache.info()).startswith("compiled programs are not kept: CORSAC_CACHE_DIR")
    assert cache.clear() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_program_is_found_by_the_next_one_who_compiles_it(folder, monkeypatch):
    model, x = layers(), torch.randn(3, 12)
    with torch.inference_mode():
        first = corsac.compile(model)
        result = first(x)
        assert found_and_missed() == (0, 1)
        assert re.search(r" compiled in [\d.]+ [mµ]?s$", first.explain())
        start_anew(monkeypatch)
        second = corsac.compile(model)
        assert_equal([second(x)], [result])
    assert found_and_missed() == (1, 0)
    assert re.search(r"[mµ]?s, as in an earlier process$", second.explain())
    (entry,) = entries(folder)
    assert cache.info().entries == 1 and cache.info().bytes == 4096
    if os.name == "posix":
        assert entry.stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("CORSAC_CACHE_DIR")
    assert_equal([called(model, x)], [result])


def test_what_was_measured_of_training_parts_is_not_measured_again(folder, monkeypatch):
    model, x = layers(), torch.randn(3, 12)
    expected = gradients(model, x)
    first = gradients(model, x, **MEASURED)
    torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-6)
    found, missed = found_and_missed()
    assert found == 0 and missed == len(entries(folder)) >= 2
    start_anew(monkeypatch)

    def measures(*_):
        raise AssertionError("a part is measured")

    monkeypatch.setattr(_native_part, "Trial", measures)
    again, compiled = trained(model, x, **MEASURED)
    # The same parts are native, so that all bits are equal.
    assert_equal(again, first)
    assert found_and_missed() == (missed, 0)
    told = re.findall(r"; (\d+) of (\d+) as measured in an earlier process", compiled.explain())
    assert len(told) == 2 and sum(int(kept) for kept, _ in told) == missed


@pytest.mark.parametrize("training", ["native", "host"])
def test_what_is_not_measured_is_not_kept(folder, training):
    gradients(layers(), torch.randn(3, 12), options={"training": training})
    assert found_and_missed() == (0, 0) and entries(folder) == []


def test_other_weights_of_the_same_graph_give_their_own_results(folder):
    x = torch.randn(3, 12)
    for seed in range(3):
        model = layers(seed)
        with torch.no_grad():
            expected = model(x)
        torch.testing.assert_close(called(model, x), expected)
        expected = gradients(model, x)
        torch.testing.assert_close(gradients(model, x, **MEASURED), expected, rtol=1e-5, atol=1e-6)
        torch._dynamo.reset()
    # The programs for inference of the second and the third.
    assert cache.info().found >= 2


def test_other_shapes_types_and_precisions_are_other_entries(folder, monkeypatch):
    model, x = layers(), torch.randn(3, 12)
    cases = [
        lambda: called(model, x),
        lambda: called(model, torch.randn(4, 12)),
        lambda: called(model, x, precision="bf16"),
        lambda: called(layers(width=25), x),
        lambda: called(nn.Sequential(*layers(), nn.ReLU()).eval(), x),
        lambda: called(nn.Flatten(), x),
        lambda: called(nn.Flatten(), x.long()),
    ]
    for number, case in enumerate(cases):
        case()
        assert found_and_missed() == (0, number + 1)
    assert len(entries(folder)) == len(cases)
    for case in cases:
        case()
    assert found_and_missed() == (len(cases), len(cases))


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (torch, "__version__", "2.99.0"),
        (torch.backends.cpu, "get_cpu_capability", lambda: "AVX1024"),
        (torch, "get_num_threads", lambda: 77),
        (torch, "get_float32_matmul_precision", lambda: "medium"),
        (os, "cpu_count", lambda: 99),
        (_core, "__file__", __file__),
    ],
    ids=["torch", "instructions", "threads", "matmul", "processors", "build"],
)
def test_other_surroundings_are_another_entry(folder, monkeypatch, module, name, value):
    model, x = layers(), torch.randn(3, 12)
    called(model, x)
    # The engine otherwise uses PyTorch's number of threads, which is not the subject of this test.
    monkeypatch.setenv("CORSAC_NUM_THREADS", "1")
    called(model, x)
    assert found_and_missed() == (0, 2)
    monkeypatch.setattr(module, name, value)
    called(model, x)
    assert found_and_missed() == (0, 3)


def damage(kind: str, path: Path, other: Path) -> None:
    whole = path.read_bytes()
    if kind == "cut off":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "one bit":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    elif kind == "of another program":
        shutil.copy(other, path)
    elif kind == "a model file":
        corsac.save(layers(), path, (torch.randn(3, 12),))
    elif kind == "huge":
        path.write_bytes(b"\xff" * (3 << 20))
    elif kind == "a link to nothing":
        path.unlink()
        path.symlink_to(path.parent / "nothing")
    else:
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize(
    "kind",
    ["cut off", "empty", "one bit", "of another program", "a model file", "huge",
     "a link to nothing", "a folder"],
)  # fmt: skip
def test_damaged_entries_are_made_anew(folder, monkeypatch, kind):
    model, x = layers(), torch.randn(3, 12)
    called(layers(width=7), x)
    (other,) = entries(folder)
    result = called(model, x)
    (own,) = set(entries(folder)) - {other}
    whole = own.read_bytes()
    damage(kind, own, other)
    start_anew(monkeypatch)
    assert_equal([called(model, x)], [result])
    assert found_and_missed() == (0, 1)
    assert own.read_bytes() == whole
    assert_equal([called(model, x)], [result])
    assert found_and_missed() == (1, 1)


@pytest.mark.parametrize("favoured", ["native", "host", "another program"])
def test_entries_that_somebody_made_up_change_no_results(folder, monkeypatch, favoured):
    """Complete entries with correct digests and false contents change no results."""
    model, x = layers(), torch.randn(3, 12)
    expected = gradients(model, x)
    real = _core.CacheFolder.get
    kept = {}
    monkeypatch.setattr(cache.Cache, "get", lambda own, facts: kept.setdefault(str(facts), None))
    put = []
    monkeypatch.setattr(cache.Cache, "put", lambda own, *args: put.append(args))
    gradients(model, x, **MEASURED)
    assert len(put) >= 2
    monkeypatch.undo()
    monkeypatch.setenv("CORSAC_CACHE_DIR", str(folder))
    start_anew(monkeypatch)
    known = _core.CacheFolder(str(folder))
    for facts, program, _ in put:
        seconds = {"native": 1e-6, "host": 1.0}
        if favoured == "host":
            seconds = {"native": 1.0, "host": 1e-6}
        text = "%0[1] = conv(in7)\n" if favoured == "another program" else program
        known.put(facts, text, seconds)
        assert real(known, facts) == (text, seconds)
    found = gradients(model, x, **MEASURED)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    if favoured == "host":
        assert_equal(found, expected)
    hits, misses = found_and_missed()
    # Times of another program are ignored.
    assert (hits, misses) == ((0, len(put)) if favoured == "another program" else (len(put), 0))


def test_the_folder_stays_within_its_limit(folder, monkeypatch):
    monkeypatch.setenv("CORSAC_CACHE_LIMIT", "48K")
    for rows in range(1, 31):
        called(layers(), torch.randn(rows, 12))
        assert cache.info().bytes <= cache.info().limit_bytes == 48 << 10
    assert cache.info().entries >= 6
    # The last one exists.
    called(layers(), torch.randn(30, 12))
    assert found_and_missed() == (1, 30)


def test_other_limits_are_an_error_that_is_told(folder, monkeypatch):
    monkeypatch.setenv("CORSAC_CACHE_LIMIT", "plenty")
    with pytest.warns(
        cache.CacheWarning, match=r'^compiled programs are not kept: "plenty" is no size'
    ):
        called(layers(), torch.randn(3, 12))


def place(kind: str, tmp_path: Path) -> tuple[Path, str]:
    """A folder that cannot be used, and the reason."""
    path = tmp_path / "place"
    if kind == "in a file":
        path.write_text("")
        return path / "programs", "Not a directory"
    if kind == "a file":
        path.write_text("")
        return path, "File exists"
    path.mkdir()
    path.chmod(0o777)
    return path, r"other users can write to it \(mode 777, not 700\)"


@pytest.mark.skipif(os.name != "posix", reason="permissions")
@pytest.mark.parametrize("kind", ["in a file", "a file", "for all"])
def test_folders_that_cannot_be_used_are_told_once(folder, monkeypatch, tmp_path, kind):
    path, reason = place(kind, tmp_path)
    monkeypatch.setenv("CORSAC_CACHE_DIR", str(path))
    model, x = layers(), torch.randn(3, 12)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for rows in (3, 4, 5):
            x = torch.randn(rows, 12)
            torch.testing.assert_close(called(model, x), model(x))
        gradients(model, x, **MEASURED)
    told = [str(own.message) for own in told if own.category is cache.CacheWarning]
    assert len(told) == 1
    assert re.match(f"compiled programs are not kept: .*{reason}", told[0])
    assert cache.info() == cache.CacheInfo()


def test_a_folder_that_goes_away_is_told_once(folder):
    model = layers()
    called(model, torch.randn(2, 12))
    shutil.rmtree(folder)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for rows in (3, 4, 5):
            x = torch.randn(rows, 12)
            torch.testing.assert_close(called(model, x), model(x))
    assert [own.category for own in told].count(cache.CacheWarning) == 1


def test_programs_with_constants_of_this_process_are_not_kept(folder):
    class Opaque:
        pass

    constant = Opaque()

    def program(x):
        return torch.relu(x)

    graph = symbolic_trace(program).graph
    assert graph.portable_hash() == graph.canonical_hash()
    with graph.inserting_before(graph.output_node()):
        graph.call_function(lambda x, y: x, (next(iter(graph.nodes)), constant))
    assert graph.portable_hash() is None


def test_the_autotuner_of_mkldnn_keeps_its_measurements(folder, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    x = torch.randn(1, 3, 12, 12)

    def tuned():
        rule = gen_mkl_autotuner([x], iters=2)
        with torch.no_grad():
            optimize_for_inference(model, {"mkldnn_layout_optimize": {"heuristic": rule}})
        return rule.measurements

    (first,) = tuned()
    assert not first.reused and found_and_missed() == (0, 1)
    start_anew(monkeypatch)
    (second,) = tuned()
    assert second.reused and found_and_missed() == (1, 0)
    assert (second.first, second.nodes) == (first.first, first.nodes)
    assert second.use_mkldnn == first.use_mkldnn
    assert second.plain_seconds == pytest.approx(first.plain_seconds)


def test_the_command_shows_and_clears(folder, capsys):
    called(layers(), torch.randn(3, 12))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder}: 1 entries, 4,096 of 67,108,864 bytes;")
    (folder / "notes.txt").write_text("mine")
    assert main(["cache", "--clear", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["removed"] == 1 and shown["entries"] == 0 and shown["folder"] == str(folder)
    assert [own.name for own in folder.iterdir()] == ["notes.txt"]


PROGRAM = """
import json, os, sys
import torch
from torch import nn
torch.set_num_threads(1)
import corsac, corsac.cache
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5))
x = torch.randn(3, 12)
with torch.inference_mode():
    result = corsac.compile(model.eval())(x)
gradient = result
if "train" in sys.argv:
    compiled = corsac.compile(model.train())
    for at in range(120):
        is_known = at > 0 and "run both ways in turn" not in compiled.explain()
        model.zero_grad()
        compiled(x).square().sum().backward()
        if is_known:
            break
    gradient = model[0].weight.grad
if "fork" in sys.argv:
    child = os.fork()
    with torch.inference_mode():
        again = corsac.compile(model.eval())(torch.cat([x, x]))
    if child == 0:
        os._exit(0 if torch.equal(again[:3], again[3:]) else 1)
    assert os.waitpid(child, 0)[1] == 0
info = corsac.cache.info()
sums = [own.detach().numpy().tobytes().hex() for own in (result, gradient)]
print(json.dumps([info.found, info.missed, sums]))
"""


def started(*words: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen) -> list:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return json.loads(out)


def test_a_second_process_finds_what_the_first_has_kept(folder):
    found, missed, results = finished(started("train"))
    assert found == 0 and missed == len(entries(folder)) >= 3
    again, others, found = finished(started("train"))
    assert (again, others) == (missed, 0)
    for own, its in zip(found, results, strict=True):
        own, its = (
            torch.frombuffer(bytearray.fromhex(it), dtype=torch.float32) for it in (own, its)
        )
        torch.testing.assert_close(own, its, rtol=1e-4, atol=1e-6)


def test_processes_at_once_leave_whole_entries(folder):
    processes = [started() for _ in range(8)]
    answers = [finished(process) for process in processes]
    assert all(found + missed == 1 for found, missed, _ in answers)
    assert len({str(results) for _, _, results in answers}) == 1
    assert len(list(folder.iterdir())) == len(entries(folder)) == 1
    assert finished(started())[:2] == [1, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_uses_the_cache_of_its_parent(folder):
    found, missed, _ = finished(started("fork"))
    # Both the parent and the child may be first.
    assert found + missed == 2 and len(entries(folder)) == 2
