"""Programs of ``torch.export`` that are read give what ``torch.export.load`` gives."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils._pytree import tree_leaves

import corsac
from corsac.pt2 import Pt2ImportError
from kit.pt2_archives import archive


def loaded(data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(io.BytesIO(data)).module()


def compare(data: bytes, *args: Any, **kwargs: Any) -> corsac.fx.GraphModule:
    """Call both programs with copies of the arguments, and compare results, arguments and buffers."""
    ours, theirs = corsac.from_pt2(data), loaded(data)
    for _ in range(2):
        given, other = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        with torch.no_grad():
            result, expected = ours(*given[0], **given[1]), theirs(*other[0], **other[1])
        assert type(result) is type(expected)
        for own, same in ((result, expected), (given, other)):
            for left, right in zip(tree_leaves(own), tree_leaves(same), strict=True):
                torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)
    state = theirs.state_dict()
    for name, own in ours.state_dict().items():
        assert torch.equal(own, state[name])
    return ours


class Structured(nn.Module):
    def forward(self, pair, last, *others, mask=None, negate=True, factor=3):
        total = pair[0] + pair[1]["z"] + last
        for own in others:
            total = total + own
        if mask is not None:
            total = total * mask
        return {"total": (-total if negate else total) * factor, "rest": [total.sum(), None, 4]}


def test_structured_arguments_and_results():
    one = torch.randn(3)
    args = ([one, {"z": one * 2}], one * 3, one * 4, one * 5)
    data = archive(Structured(), args, {"mask": None, "negate": False})
    module = compare(data, *args, mask=None, negate=False)
    with pytest.raises(ValueError, match="input negate: expected False, got True"):
        module(*args, mask=None, negate=True)
    with pytest.raises(TypeError, match=r"input pair: expected a list of 2"):
        module((one, {"z": one}), one, one, one, mask=None, negate=False)
    with pytest.raises(TypeError, match=r"input pair\[1\]: expected a dictionary of 'z'"):
        module([one, {"y": one}], one, one, one, mask=None, negate=False)


def test_plain_inputs_are_the_tensors_of_structures(tmp_path):
    one = torch.randn(3)
    args = ([one, {"z": one * 2}], one * 3, one * 4, one * 5)
    data = archive(Structured(), args, {"mask": None, "negate": False})
    module = corsac.from_pt2(data, plain_inputs=True)
    names = [node.target for node in module.graph.find_nodes(op="placeholder")]
    assert names == ["pair_0", "pair_1_z", "last", "others_0", "others_1"]
    inputs = [torch.randn(3) for _ in names]
    assert torch.equal(module(*inputs)["total"], sum(inputs[1:], inputs[0]) * 3)
    corsac.save(module, tmp_path / "m.safetensors", tuple(inputs))
    result = corsac.load(tmp_path / "m.safetensors", framework="numpy")(
        *(own.numpy() for own in inputs)
    )
    torch.testing.assert_close(torch.from_numpy(result["total"]), module(*inputs)["total"])


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("scale", torch.ones(2), persistent=False)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        self.count.add_(x.sum(0))
        self.scale.mul_(2)
        return self.norm(x) * self.scale.sum(), self.count, self.count + 1


def test_changed_buffers_are_written_back():
    module = compare(archive(Counting(), (torch.randn(4, 3),)), torch.randn(4, 3))
    assert "scale" not in module.state_dict() and "norm.running_mean" in module.state_dict()
    assert int(module.norm.num_batches_tracked) == 2


class Changing(nn.Module):
    def forward(self, x, y):
        x.add_(1)
        return {"sum": x + y * 2, "x": x}


def test_changed_inputs_are_written_back():
    compare(
        archive(Changing(), (torch.randn(2, 3), torch.ones(3))), torch.randn(2, 3), torch.ones(3)
    )


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embed.weight
        self.turned = nn.Parameter(torch.randn(6, 4).t(), requires_grad=False)
        self.register_buffer("part", torch.arange(20.0)[3:9:2])
        self.constant = torch.tensor([1.0, 2.0])

    def forward(self, ids):
        hidden = self.embed(ids) @ self.turned @ self.turned.t()
        return self.head(hidden) + self.part.sum() * self.constant[1]


def test_weights_keep_their_strides_and_identity():
    ids = torch.arange(6).reshape(2, 3)
    module = compare(archive(Shared(), (ids,), None, ({0: Dim("batch", max=9)},)), ids)
    assert len(list(module.parameters())) == 2
    assert module.turned.stride() == (1, 4) and not module.turned.requires_grad
    assert module.part.stride() == (2,) and module.head.weight.requires_grad


class Numbers(nn.Module):
    def forward(self, x):
        low, high = x.chunk(2, 1)
        largest, places = x.max(1)
        filled = x.masked_fill(x > 0, -float("inf")).softmax(-1)
        return (
            low + high,
            largest,
            places,
            filled,
            x.to(torch.bfloat16),
            x.to(torch.complex64) * (1 + 2j),
        )


def test_several_results_and_numbers_of_all_types():
    compare(archive(Numbers(), (torch.randn(4, 6),)), torch.randn(4, 6))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            kept = self.first(x)
        return self.last(kept)


def test_parts_without_gradients_have_none():
    module = compare(archive(Frozen(), (torch.randn(2, 3),)), torch.randn(2, 3))
    module(torch.randn(2, 3)).sum().backward()
    assert module.first.weight.grad is None and module.last.weight.grad is not None


class Sized(nn.Module):
    def forward(self, x, y):
        if x.shape[0] % 3 == 0 or y.shape[0] == 4:
            return x, y
        return x.new_zeros(x.shape[0] * 2 + 1, x.shape[1]) + x.shape[0], y[: x.shape[0]]


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, y):
        def positive(x, y):
            return torch.cond(
                y.sum() > 9, lambda x, y: (x + y, y + 3), lambda x, y: (x - y, y * 2), (x, y)
            )

        def negative(x, y):
            return self.layer(x), y - 1

        first, second = torch.cond(x.sum() > 0, positive, negative, (x, y))
        return first * 2, torch.cond(second.sum() > 0, torch.cos, torch.sin, (second,))


def test_branches_depend_on_values():
    x, y = torch.ones(2, 3), torch.ones(3)
    data = archive(Branching().eval(), (x, y))
    module = corsac.from_pt2(data)
    assert sorted(name for name, _ in module.named_children()) == [
        "condition_0",
        "condition_1",
        "layer",
    ]
    model = loaded(data)
    for own in ((x, y), (x, y * 4), (-x, y), (-x, -y)):
        with torch.no_grad():
            for left, right in zip(module(*own), model(*own), strict=True):
                torch.testing.assert_close(left, right)


def test_sizes_ranges_and_conditions_are_checked():
    shapes = ({0: Dim.DYNAMIC(max=40), 1: Dim.STATIC}, {0: Dim.DYNAMIC})
    data = archive(Sized(), (torch.randn(5, 6), torch.randn(9)), None, shapes)
    module = compare(data, torch.randn(7, 6), torch.randn(9))
    for x, y, message in (
        (
            torch.randn(41, 6),
            torch.randn(9),
            r"input x, dimension 0: expected s\d+ of \d+ to 40, got 41",
        ),
        (torch.randn(7, 5), torch.randn(9), "input x, dimension 1: expected 6, got 5"),
        (
            torch.randn(7, 6, 1),
            torch.randn(9),
            r"input x: expected 2 dimensions of torch.float32, got 3",
        ),
        (torch.randn(7, 6).double(), torch.randn(9), "got 2 of torch.float64"),
    ):
        with pytest.raises(ValueError, match=message):
            module(x, y)
    with pytest.raises(RuntimeError, match="the program was exported for inputs with"):
        module(torch.randn(6, 6), torch.randn(9))


def test_equal_sizes_have_to_be_equal():
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y

    batch = Dim("batch", max=64)
    data = archive(Sum(), (torch.randn(4, 2), torch.randn(4, 2)), None, ({0: batch}, {0: batch}))
    module = compare(data, torch.randn(5, 2), torch.randn(5, 2))
    with pytest.raises(ValueError, match="input y, dimension 0: expected 5, got 1"):
        module(torch.randn(5, 2), torch.randn(1, 2))


def test_sizes_may_follow_from_others():
    class Shifted(nn.Module):
        def forward(self, x, y):
            return x + y[1::2]

    x, y = Dim("n", min=2, max=30), torch.randn(10)
    data = archive(Shifted(), (torch.randn(5), y), None, ({0: x}, {0: 2 * x}))
    module = compare(data, torch.randn(7), torch.randn(14))
    with pytest.raises(ValueError, match="input y, dimension 0: expected 14, got 16"):
        module(torch.randn(7), torch.randn(16))
    with pytest.raises(ValueError, match=r"input y, dimension 0: 13, which 2\*s\d+ never is"):
        module(torch.randn(7), torch.randn(13))

    class Shorter(nn.Module):
        def forward(self, x, y):
            return x[1:] * y

    data = archive(Shorter(), (torch.randn(5), torch.randn(4)), None, ({0: x}, {0: x - 1}))
    compare(data, torch.randn(7), torch.randn(6))


def test_sizes_of_files_follow_from_the_program(tmp_path):
    batch = Dim("batch", min=2, max=64)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    module = corsac.from_pt2(archive(model, (torch.randn(4, 3),), None, ({0: batch},)))
    path = tmp_path / "m.safetensors"
    corsac.save(module, path, torch.randn(4, 3), dynamic_shapes={0: {0: "rows"}})
    run = corsac.load(path, framework="numpy")
    x = torch.randn(9, 3)
    torch.testing.assert_close(torch.from_numpy(run(x.numpy())), model(x).detach())
    with pytest.raises(ValueError, match="65"):
        run(torch.randn(65, 3).numpy())
    with pytest.raises(corsac.CompileError, match=r"rows is declared to be 1\.\.64"):
        corsac.save(
            module, path, torch.randn(4, 3), dynamic_shapes={0: {0: Dim("rows", min=1, max=64)}}
        )
    with pytest.raises(corsac.CompileError, match=r"dimension 1: torch\.export has fixed it to 3"):
        corsac.save(module, path, torch.randn(4, 3), dynamic_shapes={0: {1: "columns"}})
    with pytest.raises(ValueError, match="expected 3, got 5"):
        corsac.save(module, path, torch.randn(4, 5))


def test_conditions_of_a_program_are_those_of_its_file(tmp_path):
    shapes = ({0: Dim.DYNAMIC(max=40), 1: Dim.STATIC}, {0: Dim.DYNAMIC})
    data = archive(Sized(), (torch.randn(5, 6), torch.randn(9)), None, shapes)
    path, inputs = tmp_path / "m.safetensors", (torch.randn(5, 6), torch.randn(9))
    declared = {0: {0: Dim("a", min=7, max=8)}, 1: {0: Dim("b", min=9, max=20)}}
    corsac.save(
        corsac.from_pt2(data), path, (torch.randn(7, 6), torch.randn(9)), dynamic_shapes=declared
    )
    declared[0][0] = Dim("a", min=4, max=8)
    with pytest.raises(corsac.CompileError, match="does not take all sizes that are declared"):
        corsac.save(corsac.from_pt2(data), path, inputs, dynamic_shapes=declared)


def test_operators_on_bits_and_sizes_are_saved(tmp_path):
    class Masked(nn.Module):
        def forward(self, x):
            return torch.where((x > 0) & (x < 1) | (x == 3), x, x.new_zeros(x.shape[0], 1))

    x, path = torch.randn(4, 3), tmp_path / "m.safetensors"
    program = torch.export.export(Masked(), (x,), dynamic_shapes=({0: Dim("rows", min=2, max=9)},))
    file = io.BytesIO()
    torch.export.save(program, file)
    for model in (program, corsac.from_pt2(file.getvalue())):
        corsac.save(model, path, x, dynamic_shapes={0: {0: "rows"}})
        other = torch.randn(9, 3)
        result = corsac.load(path, framework="numpy")(other.numpy())
        assert torch.equal(torch.from_numpy(result), Masked()(other))


def test_libraries_of_operators_are_named():
    library = torch.library.Library("mine_of_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

    class Twice(nn.Module):
        def forward(self, x):
            return torch.ops.mine_of_tests.twice(x) + 1

    data = archive(Twice(), (torch.ones(2),))
    with pytest.raises(
        Pt2ImportError, match=r"node 'twice' \(.*\): operators of mine_of_tests are not read unless"
    ):
        corsac.from_pt2(data)
    assert corsac.from_pt2(data, libraries=["mine_of_tests"])(torch.ones(2)).tolist() == [3, 3]
    library._destroy()


def test_archives_of_several_programs():
    from torch.export.pt2_archive._package import package_pt2

    file, x = io.BytesIO(), torch.randn(2, 3)
    models = {name: nn.Linear(3, size) for name, size in (("small", 2), ("large", 5))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        programs = {name: torch.export.export(own, (x,)) for name, own in models.items()}
        package_pt2(file, exported_programs=programs)
    for name, own in models.items():
        assert torch.equal(corsac.from_pt2(file.getvalue(), model=name)(x), own(x))
    with pytest.raises(Pt2ImportError, match="give the name of a program as model: large, small"):
        corsac.from_pt2(file.getvalue())
    with pytest.raises(Pt2ImportError, match="there is no program 'other': large, small"):
        corsac.from_pt2(file.getvalue(), model="other")


def test_modules_can_be_copied_and_compiled():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).eval()
    module = corsac.from_pt2(archive(model, (torch.randn(4, 3),), None, ({0: Dim("b", max=8)},)))
    x = torch.randn(5, 3)
    expected = model(x).detach()
    assert torch.equal(copy.deepcopy(module)(x), expected)
    compiled = corsac.compile(module)
    for rows in (5, 5, 7, 7):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x).detach(), model(x).detach())
    with pytest.raises(ValueError, match="got 9"):
        compiled(torch.randn(9, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenet_v3_small", "densenet121", "efficientnet_b0"]
)
def test_networks_of_images(name):
    models = pytest.importorskip("torchvision.models")
    model = getattr(models, name)(weights=None).eval()
    data = archive(model, (torch.randn(2, 3, 64, 64),), None, ({0: Dim("batch", max=16)},))
    compare(data, torch.randn(3, 3, 64, 64))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama", "T5Encoder"])
def test_networks_of_texts(name):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}
    sizes |= {"intermediate_size": 64}
    if name == "GPT2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50}
    if name == "T5Encoder":
        sizes = {
            "d_model": 32,
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 2,
            "vocab_size": 50,
        }
    sizes["use_cache"] = False
    configuration = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**sizes)
    model = getattr(transformers, f"{name}Model")(configuration).eval()
    ids = torch.randint(0, 50, (2, 7))
    shapes = {"input_ids": {0: Dim("batch", min=2, max=9), 1: Dim("length", min=2, max=99)}}
    data = archive(model, (ids,), None, shapes)
    other = torch.randint(0, 50, (3, 11))
    with torch.no_grad():
        results, expected = corsac.from_pt2(data)(other), loaded(data)(other)
    for own, theirs in zip(tree_leaves(results), tree_leaves(expected.to_tuple()), strict=True):
        assert torch.equal(own, theirs)
