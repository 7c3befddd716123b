"""Models from configurations, and configurations from models."""

import operator
import re
import resource
from pathlib import Path

import pytest
import torch
from torch import nn

import corsac
import corsac.fx as fx
from corsac.config import ConfigError, Limits
from models.zoo import create

TOML = """
name = "Small"
graph = '''
h = torch.relu(features.0(x)) * scale
h = features.norm(h)
return head(h.mean((2, 3)))
'''
[modules]
"features.0" = { class = "Conv2d", args = [3, 4, 3], padding = 1 }
features.norm = { class = "BatchNorm2d", args = [4] }
head = { class = "Linear", in_features = 4, out_features = 2 }
[parameters]
scale = { shape = [4, 1, 1], init = "ones" }
[inputs]
x = [1, 3, 8, 8]
"""


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1))
        self.features.add_module("norm", nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x):
        h = torch.relu(self.features[0](x)) * self.scale
        return self.head(self.features.norm(h).mean((2, 3)))


def test_a_file_becomes_the_module_that_one_would_write(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(TOML)
    torch.manual_seed(3)
    built = corsac.build(file).eval()
    torch.manual_seed(3)
    written = Small().eval()
    assert type(built).__name__ == "Small"
    assert list(built.state_dict()) == list(written.state_dict())
    built.load_state_dict(written.state_dict())
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(built(x), written(x), rtol=0, atol=0)
    assert isinstance(built.scale, nn.Parameter)
    placeholder = next(iter(built.graph.nodes))
    assert placeholder.meta["declared_input"] == {"dtype": torch.float32, "shape": (1, 3, 8, 8)}
    built.graph.lint()


@pytest.mark.parametrize("notation", ["graph", "toml", "json"])
def test_describing_and_building_gives_the_same_model(notation, tmp_path):
    model = Small().eval()
    traced = fx.symbolic_trace(model)
    file = tmp_path / f"model.{notation}"
    text = corsac.describe(traced, file)
    assert file.read_text() == text
    built = corsac.build(file).eval()
    assert str(built.graph) == str(traced.graph)
    assert built.code == traced.code
    built.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(built(x), model(x))
    assert corsac.describe(built, format=notation) == text


@pytest.mark.parametrize(
    "source",
    [
        "torchvision:resnet18",
        "torchvision:mobilenet_v3_small",
        "torchvision:squeezenet1_0",
        "torchvision:densenet121",
        "torchvision:vit_b_32",
    ],
)
def test_real_models_are_described(source):
    model = create(source)
    traced = fx.symbolic_trace(model)
    text = corsac.describe(traced)
    built = corsac.build("model", text=text, format="graph").eval()
    # Type annotations are not part of a configuration.
    assert str(built.graph) == str(traced.graph).replace(" : torch.Tensor [", " : [")
    missing = built.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert missing == []
    with torch.no_grad():
        x = torch.randn(1, 3, 224, 224)
        assert torch.equal(built(x), model(x))


def test_what_the_caller_allows_can_be_named():
    class Twice(nn.Module):
        def __init__(self, factor=2):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    def shift(x, by):
        return x + by

    text = """
        module twice = my.Twice(factor=3)
        input x
        graph:
            return my.shift(twice(x), by=1)
    """
    allow = {"my.Twice": Twice, "my.shift": shift}
    built = corsac.build("text", text=text, format="graph", allow=allow)
    assert built(torch.tensor(2)).item() == 7
    with pytest.raises(ConfigError, match=r"line 2, column \d+: my.Twice is neither a module"):
        corsac.build("text", text=text, format="graph")
    with pytest.raises(ConfigError, match=r"line 5, column \d+: my.shift is no function"):
        corsac.build("text", text=text, format="graph", allow={"my.Twice": Twice})


@pytest.mark.parametrize(
    "lines",
    [
        "os.system('touch {}')",
        "builtins.eval('1')",
        "builtins.exec('1')",
        "builtins.__import__('os')",
        "torch.load('{}')",
        "torch.hub.load('{}', 'x')",
        "torch.ops.load_library('{}')",
        "torch.from_file('{}', size=1)",
        "x.__class__.__subclasses__()",
        "x.apply_(1)",
        "x.numpy()",
        "torch._dynamo.config.patch()",
        "torch.utils.data.os.system('touch {}')",
        "operator.attrgetter('__class__')(x)",
        "operator.methodcaller('__class__')",
        "corsac.build('{}')",
    ],
)
def test_a_configuration_is_data(lines, tmp_path):
    file = tmp_path / "touched"
    text = f"input x\ngraph:\n  y = {lines.format(file)}\n  return y"
    with pytest.raises(ConfigError, match=r"^evil.graph, line 3, column \d+: "):
        corsac.build("evil.graph", text=text)
    assert not file.exists()


@pytest.mark.parametrize(
    "name", ["Module.register_forward_hook", "utils.prune", "_reduction", "os"]
)
def test_only_modules_are_constructed(name):
    text = f"module a = torch.nn.{name}()\ninput x\ngraph:\n  return a(x)"
    with pytest.raises(ConfigError, match="line 1"):
        corsac.build("evil.graph", text=text)


def test_errors_name_file_and_line(tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text(TOML.replace("padding = 1", "pudding = 1"))
    with pytest.raises(ConfigError) as raised:
        corsac.build(file)
    assert str(raised.value).startswith(f"{file}, line 9: module features.0: Conv2d: ")
    assert "pudding" in str(raised.value)
    assert (raised.value.line, raised.value.column) == (9, 1)
    file.write_text(TOML.replace("head(h", "tail(h"))
    with pytest.raises(ConfigError) as raised:
        corsac.build(file)
    assert str(raised.value).startswith(f"{file}, line 6, column 8: tail is no module declared")
    file.write_text(TOML.replace("head =", "scale ="))
    with pytest.raises(ConfigError, match="scale is declared twice"):
        corsac.build(file)
    with pytest.raises(ValueError, match=r"expected a file \*\.graph"):
        corsac.build(tmp_path / "model.yaml")
    with pytest.raises(OSError):
        corsac.build(tmp_path / "missing.toml")


#: Short configurations that ask for large models, and their errors.
HOSTILE = {
    "Linear(10**9, 10**9)": "the tensors of the model take 3.469 EiB up to here, and may take 16 GiB",
    "Linear(10**8, 10**4, device='cpu')": "the tensors of the model take 3.638 TiB",
    "Linear(10**10, 10**10)": "overflow",
    "Bilinear(10**5, 10**5, 10**5)": "the tensors of the model take 3.553 PiB",
    "Embedding(10**12, 64, padding_idx=3)": "the tensors of the model take 232.8 TiB",
    "LSTM(1, 1, num_layers=10**9)": "it has more than 10,000 tensors",
    "Transformer(1, 1, 10**9, 1, 1)": "it has more than 10,000 tensors",
    "AdaptiveLogSoftmaxWithLoss(10**6, 10**8, (10, 1000))": "the tensors of the model take 931.4 GiB",
    "LayerNorm((10**5, 10**5, 100))": "the tensors of the model take 3.638 TiB",
    "BatchNorm1d(10**11, dtype=torch.float64)": "the tensors of the model take 745.1 GiB",
}


@pytest.mark.parametrize("module", HOSTILE)
def test_memory_is_bounded(module):
    written = re.sub(r"10\*\*(\d+)", lambda found: str(10 ** int(found[1])), module)
    text = f"input x\nmodule a = {written}\ngraph:\n  return a(x)"
    before = peak_memory()
    with pytest.raises(ConfigError, match=re.escape(HOSTILE[module])) as raised:
        corsac.build("evil.graph", text=text)
    assert str(raised.value).startswith("evil.graph, line 2: module a: ")
    assert (raised.value.line, raised.value.column) == (2, 1)
    assert peak_memory() - before < 500 * 2**20


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_tensors_and_the_whole_are_bounded():
    text = "parameter a = float32[1000000000, 1000000000] ones\ngraph:\n  return a"
    with pytest.raises(ConfigError, match=r"^m.graph, line 1: a: the tensors of the model take 3"):
        corsac.build("m.graph", text=text)
    lines = [f"module a{i} = Linear(20000, 20000)" for i in range(20)]
    text = "\n".join([*lines, "input x", "graph:", "  return a1(x)"])
    with pytest.raises(ConfigError, match=r"^m.graph, line 11: module a10: Linear: .* 16.39 GiB"):
        corsac.build("m.graph", text=text)


class Big(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))


class NeedsElements(nn.Module):
    """Cannot be constructed on the meta device."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.largest = self.weight.max().item()


def test_limits_can_be_set():
    text = "module a = Linear(4, 4)\nmodule b = Transformer(4, 2)\ninput x\ngraph:\n  return a(x)"
    for limits, line, message in [
        (
            Limits(size_bytes=100),
            2,
            "the tensors of the model take 272 bytes up to here, and may take 100 bytes",
        ),
        (Limits(tensors=3), 2, "the model has more than 3 tensors"),
        (Limits(tensors_per_module=3), 2, "it has more than 3 tensors"),
        (Limits(modules=4), 2, "the model has more than 4 modules"),
        (Limits(nodes=2), 5, "the graph has more than 2 nodes"),
    ]:
        with pytest.raises(ConfigError, match=f"line {line}.*: {re.escape(message)}"):
            corsac.build("m.graph", text=text, limits=limits)
    text = "module a = Own(1000)\ninput x\ngraph:\n  return a(x)"
    small = Limits(size_bytes=100)
    with pytest.raises(
        ConfigError, match=r"line 1: module a: Own: the tensors of the model take 3.9"
    ):
        corsac.build("m.graph", text=text, limits=small, allow={"Own": Big})
    # Allowed classes that cannot be counted are the caller's responsibility.
    gm = corsac.build("m.graph", text=text, allow={"Own": NeedsElements})
    assert gm.a.weight.numel() == 1000


def test_weights_are_those_of_new_modules():
    text = "module a = Linear(4, 4)\nmodule b = LSTM(4, 4)\ninput x\ngraph:\n  return b(a(x))"
    torch.manual_seed(0)
    gm = corsac.build("m.graph", text=text)
    torch.manual_seed(0)
    a, b = nn.Linear(4, 4), nn.LSTM(4, 4)
    for built, made in ((gm.a, a), (gm.b, b)):
        for (name, left), (_, right) in zip(
            built.named_parameters(), made.named_parameters(), strict=True
        ):
            assert torch.equal(left, right) and left.device == right.device, name


def test_names_may_not_collide():
    text = (
        "module a = Linear(2, 2)\nparameter a.weight = float32[2] ones\ngraph:\n  return a.weight"
    )
    with pytest.raises(ConfigError, match=r"line 2: a.weight is the name of something else"):
        corsac.build("m.graph", text=text)
    text = "module forward = ReLU()\ninput x\ngraph:\n  return forward(x)"
    with pytest.raises(ConfigError, match=r"line 1: forward is the name of something else"):
        corsac.build("m.graph", text=text)


def test_what_cannot_be_described_is_refused():
    class Keeps(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x):
            return x * self.weight

    class Leaves(fx.Tracer):
        def is_leaf_module(self, module, name):
            return True

    model = nn.Sequential(Keeps(3))
    with pytest.raises(ConfigError, match=r"module 0: the attributes of this .*Keeps"):
        corsac.describe(fx.GraphModule(model, Leaves().trace(model)))
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.add, (x, object())))
    with pytest.raises(ConfigError, match="node add: a value that only the host understands"):
        corsac.describe(fx.GraphModule({}, graph))


def test_defaults_stars_and_keywords_survive(tmp_path):
    def function(input, *rest, flag=False, size=(1, 2), **options):
        return torch.where(input > 0, -input, input[..., :1]), [rest, size], {"k": 1e-30}

    traced = fx.symbolic_trace(function)
    text = corsac.describe(traced)
    built = corsac.build("f", text=text, format="graph")
    x = torch.tensor([[1.0, -2.0]])
    assert str(built.graph) == str(traced.graph)
    assert built.code == traced.code
    assert torch.equal(built(x)[0], traced(x)[0])


def test_the_examples_of_the_documentation_are_read(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    found = 0
    for block in page.read_text().split("```")[1::2]:
        language, _, text = block.partition("\n")
        if language in ("toml", "json", "graph"):
            gm = corsac.build("example", text=text, format=language)
            assert gm(torch.randn(2, 3, 32, 32)).shape == (2, 10)
            found += 1
    assert found == 3
