"""Models without a graph are traced, or captured for the given inputs."""

import pytest
import torch
from torch import nn

import corsac
import corsac.analysis
from corsac.fx.proxy import TraceError


class BySize(nn.Module):
    """Control flow depends on the size of the input."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 2)])

    def forward(self, x):
        for layer in self.layers if x.shape[0] > 1 else self.layers[:1]:
            x = layer(x).relu()
        return {"rows": x}


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)

    def forward(self, x):
        return self.inner(x).relu()


class Plain2(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 2)

    def forward(self, x):
        return self.inner(x.relu())


X = torch.ones(3, 4)


def test_summaries_count_by_module():
    rows = {row.path: row for row in corsac.analysis.summary(BySize().eval(), X).rows}
    assert rows[""].kind == "BySize" and rows[""].mult_adds == 3 * (4 * 8 + 8 * 2)
    assert (rows["layers.0"].mult_adds, rows["layers.1"].mult_adds) == (96, 48)
    assert rows["layers.1"].output == "float32[3, 2]"
    rows = {row.path: row for row in corsac.analysis.summary(BySize().eval(), X[:1]).rows}
    assert (rows["layers.0"].mult_adds, rows["layers.1"].mult_adds) == (32, 0)


@pytest.mark.parametrize("model", [BySize().eval(), Plain().eval()], ids=["captured", "traced"])
def test_costs_types_times_and_ranges_are_found(model):
    cost = corsac.analysis.cost(model, X)
    assert cost.macs == corsac.analysis.cost(corsac.capture(model, (X,)), X).macs > 0
    assert "float32[3, 8]" in str(corsac.analysis.propagate(model, X))
    times = corsac.analysis.profile(model, X, repeats=1, warmup=0)
    assert times.seconds > 0 and len(times.rows) >= 2
    ranges = corsac.analysis.ranges(model, X, X * 2)
    assert max(own.max_abs for own in ranges.values()) >= 2


def test_a_tuple_alone_stands_for_all_inputs():
    model = Plain().eval()
    for inputs in ((X,), [X]):
        assert corsac.analysis.cost(model, inputs).macs == 3 * 4 * 8
        assert "float32[3, 8]" in str(corsac.analysis.propagate(model, inputs))
        assert corsac.analysis.profile(model, inputs, repeats=1, warmup=0).seconds > 0
        assert corsac.summary(model, inputs).rows[0].mult_adds == 3 * 4 * 8
    two = corsac.fx.symbolic_trace(lambda x, y: x + y)
    assert "float32[3, 4]" in str(corsac.analysis.propagate(two, (X, X[:1])))


class ByName(nn.Module):
    """Decides by sizes and by what is given by name."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)

    def forward(self, x, mask=None, *, scale=1.0, twice=False):
        x = self.inner(x) * scale
        if x.shape[0] > 1:
            x = x.relu()
        if mask is not None:
            x = x * mask
        return self.inner(x[:, :4]) if twice else x


@pytest.mark.parametrize("decides", [True, False], ids=["captured", "traced"])
def test_inputs_by_name(decides):
    model = ByName().eval()
    if not decides:
        model = nn.Bilinear(4, 8, 3)
    x, mask = X, torch.ones(3, 8)
    args, kwargs = (x,), {"mask": mask, "twice": True}
    if not decides:
        args, kwargs = (), {"input2": mask, "input1": x}
    expected = corsac.analysis.cost(model, x, mask).macs
    expected *= 1 + decides
    assert corsac.analysis.cost(model, *args, kwargs=kwargs).macs == expected > 0
    assert corsac.summary(model, *args, kwargs=kwargs).rows[0].mult_adds == expected
    found = str(corsac.analysis.propagate(model, args, kwargs=kwargs))
    assert "placeholder" in found and "float32[3, 8]" in found
    times = corsac.analysis.profile(model, *args, kwargs=kwargs, repeats=1, warmup=0)
    assert times.seconds > 0


def test_names_that_no_input_has():
    for function in (corsac.analysis.cost, corsac.analysis.propagate, corsac.summary):
        with pytest.raises(TypeError, match="there is no input nothing; there are input"):
            function(nn.Linear(4, 2), X, kwargs={"nothing": 1})
        with pytest.raises(TypeError, match="nothing"):
            function(ByName(), X, kwargs={"nothing": 1})


@pytest.mark.parametrize("way", ["program", "module", "decomposed"])
def test_programs_of_torch_export(way):
    model = nn.Sequential(nn.Linear(4, 8), Plain2()).eval()
    program = torch.export.export(model, (X,))
    target = {
        "program": lambda: program,
        "module": program.module,
        "decomposed": program.run_decompositions,
    }[way]()
    rows = {row.path: row for row in corsac.summary(target, X).rows}
    whole = corsac.summary(model, X)
    assert rows[""].kind == "Sequential" and rows[""].parameters == whole.parameters
    assert rows["1.inner"].kind == "Linear" and rows["1.inner"].output == "float32[3, 2]"
    assert rows["0"].mult_adds == 96 and rows[""].mult_adds == whole.rows[0].mult_adds
    assert not any("guards" in path for path in rows)
    assert corsac.analysis.cost(target, X).macs == 3 * (4 * 8 + 8 * 2)
    assert corsac.analysis.profile(target, X, repeats=1, warmup=0).seconds > 0
    assert "float32[3, 2]" in str(corsac.analysis.propagate(target, X))
    assert max(own.max_abs for own in corsac.analysis.ranges(target, X).values()) >= 1
    if way == "module":
        assert "_guards_fn" in dict(target.named_modules())
        assert torch.equal(target(X), model(X))


def test_programs_with_inputs_by_name():
    model, mask = ByName().eval(), torch.ones(3, 8)
    program = torch.export.export(model, (X,), {"scale": 2.0, "mask": mask})
    for kwargs in ({"scale": 2.0, "mask": mask}, {"mask": mask, "scale": 2.0}):
        assert corsac.analysis.cost(program, X, kwargs=kwargs).macs == 96
        found = str(corsac.analysis.propagate(program, X, kwargs=kwargs))
        assert "mask" in found and "2.0" in found


def test_errors_say_what_to_give():
    for function in (corsac.analysis.summary, corsac.analysis.cost, corsac.analysis.propagate):
        with pytest.raises(TraceError, match="give the tensors that it is called with"):
            function(BySize())
        with pytest.raises(TraceError, match="give the tensors that it is called with"):
            function(BySize(), corsac.analysis.TensorSpec(["n", 4]))


def test_what_values_decide_is_no_graph():
    class ByValue(nn.Module):
        def forward(self, x):
            return x.relu() if x.sum() > 0 else x

    with pytest.raises(TraceError, match="no graph"):
        corsac.analysis.cost(ByValue(), X)


def test_models_of_hugging_face_are_analysed():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
    )
    model = transformers.BertModel(config).eval()
    found = corsac.analysis.summary(model, torch.arange(24).view(2, 12))
    by_layer = [
        row.mult_adds for row in found.rows if row.path in ("encoder.layer.0", "encoder.layer.1")
    ]
    products = 24 * (4 * 32 * 32 + 2 * 32 * 48)
    assert by_layer == [products, products]
    assert found.parameters == sum(p.numel() for p in model.parameters())
