"""Archives that are damaged or hostile: each is an error that says where, and nothing in them is executed."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import resource
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from corsac.pt2 import Pt2ImportError, from_pt2
from kit.pt2_archives import archive

MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x, pair, scale=2.0):
        self.count.add_(1)
        low, high = self.norm(self.layer(x)).chunk(2, 1)
        return {"low": low * scale, "rest": [high + pair[0], pair[1].max(0)]}


@pytest.fixture(scope="module")
def parts() -> dict[str, bytes]:
    """The parts of an archive."""
    args = (torch.randn(5, 4), (torch.randn(2), torch.randn(3)))
    shapes = ({0: Dim("batch", max=9)}, ({}, {}), None)
    made = io.BytesIO(archive(Small().eval(), args, {"scale": 3.0}, shapes))
    with zipfile.ZipFile(made) as file:
        return {own.partition("/")[2]: file.read(own) for own in file.namelist()}


def packed(parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")
        for name, data in parts.items():
            archive.writestr(f"model/{name}", data)
    return file.getvalue()


def changed(parts: dict[str, bytes], part: str, change: Callable[[Any], Any]) -> bytes:
    """The archive with a change of a part in JSON."""
    value = json.loads(parts[part])
    change(value)
    return packed(parts | {part: json.dumps(value).encode()})


def refused(data: bytes, message: str) -> None:
    with pytest.raises(Pt2ImportError, match=message):
        from_pt2(data)


def nodes(program: Any) -> Any:
    return program["graph_module"]["graph"]["nodes"]


def test_the_archive_itself_is_read(parts):
    x, pair = torch.randn(3, 4), (torch.randn(2), torch.randn(3))
    assert from_pt2(packed(parts))(x, pair, scale=3.0)["low"].shape == (3, 2)


def test_files_that_are_no_archives(tmp_path):
    refused(b"", "this is no archive")
    refused(b"PK\x05\x06" + bytes(18), "this is no archive of torch.export")
    refused(packed({"archive_format": b"other"}), "this is no archive of torch.export")
    refused(packed({"archive_format": b"pt2"}), "give the name of a program as model: none")
    with pytest.raises(FileNotFoundError):
        from_pt2(tmp_path / "missing.pt2")
    with pytest.raises(TypeError, match="a program is a path or bytes, not int"):
        from_pt2(3)


def test_truncated_archives(parts):
    data = packed(parts)
    for size in range(0, len(data), 997):
        with pytest.raises(Pt2ImportError):
            from_pt2(data[:size])


def test_compressed_parts_and_other_byte_orders(parts):
    refused(packed(parts, zipfile.ZIP_DEFLATED), "is compressed or encrypted")
    refused(packed(parts | {"byteorder": b"big"}), "its numbers are not little-endian")
    refused(packed(parts | {MODEL: b"[" * 100_000}), "is no JSON")
    refused(
        packed(parts | {MODEL: b'{"schema_version": {"major": 7}}'}),
        "a program of version 7, expected 8",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path_name": "../../../etc/passwd"}, "is no name of a part"),
        ({"path_name": "/etc/passwd"}, "is no name of a part"),
        ({"path_name": ".."}, r"there is no data/weights/\.\."),
        ({"path_name": "weight_99"}, "there is no data/weights/weight_99"),
        ({"use_pickle": True}, "'layer.weight' is an object of a class, which only pickle reads"),
        ({"tensor_meta": None}, "which only pickle reads"),
    ],
)
def test_weights_in_other_places(parts, change, message):
    refused(
        changed(parts, WEIGHTS, lambda own: own["config"]["layer.weight"].update(change)), message
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": [{"as_int": 2**40}, {"as_int": 4}]}, "64 bytes for a tensor of shape"),
        (
            {"sizes": [{"as_int": 2**31}, {"as_int": 4}], "strides": [{"as_int": 0}] * 2},
            "64 bytes for a tensor",
        ),
        ({"sizes": [{"as_int": -4}, {"as_int": 4}]}, "a tensor with the sizes, strides or offset"),
        ({"sizes": [{"as_int": 4}] * 3}, "with strides"),
        ({"strides": [{"as_int": 2**61}, {"as_int": 1}]}, "64 bytes for a tensor"),
        ({"storage_offset": {"as_int": 1}}, "64 bytes for a tensor"),
        ({"dtype": 8}, "64 bytes for a tensor of shape .* torch.float64"),
        ({"dtype": 99}, "a sparse tensor, or of an unknown type"),
        ({"layout": 1}, "a sparse tensor"),
    ],
)
def test_sizes_of_weights(parts, change, message):
    def update(own: Any) -> None:
        own["config"]["layer.weight"]["tensor_meta"].update(change)

    refused(changed(parts, WEIGHTS, update), message)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("torch.ops.aten.no_such_thing.default", "PyTorch has no operator"),
        ("torch.ops.aten.from_file.default", "is no operator on tensors"),
        ("torch.ops.aten.save.default", "is no operator on tensors"),
        ("torch.ops.aten.linear.__class__", "PyTorch has no operator"),
        ("torch.ops.aten.__class__.default", "PyTorch has no operator"),
        ("torch.ops.c10d.send.default", "operators of c10d are not read"),
        ("torch.ops.load_library", "the function torch.ops.load_library is not read"),
        ("torch.hub.load", "the function torch.hub.load is not read"),
        ("os.system", "the function os.system is not read"),
        ("_operator.attrgetter", "the function _operator.attrgetter is not read"),
        ("torch.ops.higher_order.cond", "a condition without its graphs"),
        ("torch.ops.higher_order.scan", "a scan without its graphs"),
        (None, "it is damaged"),
        (["torch"], "it is damaged"),
    ],
)
def test_functions_that_are_not_read(parts, target, message):
    def update(program: Any) -> None:
        next(own for own in nodes(program) if own["name"] == "linear")["target"] = target

    refused(changed(parts, MODEL, update), rf"node 'linear' \(.*\): .*{message}")


def test_names_do_not_become_code(parts):
    text = parts[MODEL].decode()
    for old in ("linear", "x", "p_layer_weight"):
        for name in ("a): import os #", "a\\nimport os", "class", "self", "\\u00e9", ""):
            data = packed(
                parts | {MODEL: text.replace(f'"name": "{old}"', f'"name": "{name}"').encode()}
            )
            with pytest.raises(Pt2ImportError):
                from_pt2(data)
    data = text.replace('"layer.weight"', '"layer.we ight()"').encode()
    weights = parts[WEIGHTS].replace(b'"layer.weight"', b'"layer.we ight()"')
    refused(packed(parts | {MODEL: data, WEIGHTS: weights}), "is no name of a tensor")

    def trace(program: Any) -> None:
        for own in nodes(program):
            own["metadata"]["stack_trace"] = 'File "x.py", line 1, in f\n  y\rimport os'

    module = from_pt2(changed(parts, MODEL, trace))
    assert not any("stack_trace" in node.meta for node in module.graph.nodes)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch hacked')",
        "Symbol(__import__('os').system('touch hacked'))",
        "Add(Symbol('s0'), Symbol('s1'))",
        "Pow(Symbol('s0'), Integer(2))",
        "Integer(10**10**10)",
        "Symbol('a b')",
        "(" * 5000,
        "",
    ],
)
def test_sizes_are_no_code(parts, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def update(program: Any) -> None:
        program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {
            "as_expr": {"expr_str": text}
        }

    refused(changed(parts, MODEL, update), "a size that cannot be read")
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch hacked')",
        "L['x'].__class__.__bases__",
        "L['x'].size()[9] == 3",
        "L['y'].size()[0] == 3",
        "open('hacked', 'w')",
        "9 ** 9 ** 9 ** 9 == 1",
        "L['x'].size()[0] < 3 < 4",
        "not" * 4000,
        "-" * 3000 + "1 == 1",
    ],
)
def test_conditions_are_no_code(parts, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(
        changed(parts, MODEL, lambda own: own.update(guards_code=[text])),
        "a condition that cannot be read",
    )
    assert not list(Path().iterdir())


def test_pickles_are_not_opened(parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Hacked:
        def __reduce__(self):
            return open, ("hacked", "w")

    pickled = pickle.dumps(Hacked())
    data = parts | {"data/sample_inputs/model.pt": pickled, "data/weights/weight_0": pickled}
    with pytest.raises(Pt2ImportError):
        from_pt2(packed(data))
    assert from_pt2(packed(parts | {"data/sample_inputs/model.pt": pickled})) is not None
    assert not list(Path().iterdir())


def test_inputs_of_classes_and_structures_that_do_not_fit(parts):
    def of_class(program: Any) -> None:
        call = program["graph_module"]["module_call_graph"][0]["signature"]
        call["in_spec"] = call["in_spec"].replace("builtins.tuple", "os.system", 3)

    refused(changed(parts, MODEL, of_class), "an input of the class os.system")

    def fewer(program: Any) -> None:
        call = program["graph_module"]["module_call_graph"][0]["signature"]
        call["in_spec"], call["out_spec"] = call["out_spec"], call["in_spec"]

    with pytest.raises(Pt2ImportError):
        from_pt2(changed(parts, MODEL, fewer))


def places(value: Any) -> list[tuple[Any, Any]]:
    """The places in a value of JSON."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, own in items:
        found.append((value, key))
        if isinstance(own, (dict, list)):
            found += places(own)
    return found


def test_changed_values_are_an_error_or_another_program(parts):
    choose = random.Random(0)
    values = [
        None,
        True,
        -1,
        0,
        3,
        2**63,
        2**200,
        1.5,
        "x",
        "linear",
        "Infinity",
        "as_int",
        [],
        {},
        [None],
        {"as_int": 2**62},
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = 0
    for part, count in (
        (MODEL, 600),
        (WEIGHTS, 150),
        ("data/constants/model_constants_config.json", 20),
    ):
        original = json.loads(parts[part])
        for _ in range(count):
            value = copy.deepcopy(original)
            found = places(value)
            for owner, key in choose.sample(found, min(len(found), choose.choice((1, 1, 2)))):
                if choose.random() < 0.2:
                    if isinstance(owner, dict):
                        owner.pop(key, None)
                else:
                    owner[key] = copy.deepcopy(choose.choice(values))
            try:
                from_pt2(packed(parts | {part: json.dumps(value).encode()}))
                read += 1
            except Pt2ImportError as error:
                assert "\n" not in str(error)
    assert read > 50
    # In KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18


def test_changed_bytes_are_an_error_or_another_program(parts):
    choose = random.Random(1)
    original = packed(parts)
    for _ in range(300):
        data = bytearray(original)
        for _ in range(choose.choice((1, 3, 10))):
            data[choose.randrange(len(data))] = choose.randrange(256)
        try:
            from_pt2(bytes(data))
        except Pt2ImportError:
            continue
