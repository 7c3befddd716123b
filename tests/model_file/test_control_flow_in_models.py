"""Models that call ``torch.cond``, ``while_loop``, ``scan`` or ``map`` themselves, in files, compared with the models."""

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import corsac


def check(path, model, *inputs, others=(), rtol=1e-5):
    """The file of a model gives what the model gives, for ``inputs`` and ``others``."""
    model.eval()
    corsac.save(model, path, inputs)
    native, module = corsac.load(path, framework="numpy"), corsac.load(path)
    for given in (inputs, *others):
        with torch.no_grad():
            expected = model(*given)
            compare(native(*(own.numpy() for own in given)), expected, rtol)
            compare(module(*given), expected, rtol)


def compare(found, expected, rtol):
    if isinstance(expected, torch.Tensor):
        own = found.numpy() if isinstance(found, torch.Tensor) else found
        np.testing.assert_allclose(own, expected.numpy(), rtol=rtol, atol=rtol / 10)
        assert own.dtype == expected.numpy().dtype
        return
    assert type(found) is type(expected) and len(found) == len(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = found.values(), expected.values()
    for own, other in zip(found, expected, strict=True):
        compare(own, other, rtol)


class Branches(nn.Module):
    """Branches that read weights, a buffer and a value of the model around them."""

    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x):
        shifted = x * 2
        y = torch.cond(
            x.sum() > 0,
            lambda x: self.layer(x).relu() + shifted,
            lambda x: self.other(x) * self.scale - shifted,
            (x,),
        )
        return y + 1, shifted


def test_branches_read_weights_and_values_around_them(tmp_path):
    torch.manual_seed(0)
    x = torch.rand(2, 4)
    check(tmp_path / "m", Branches(), x, others=[(-x,), (x * 3,)])


def test_the_model_is_as_before_and_has_the_weights_of_the_file(tmp_path):
    model = Branches().eval()
    corsac.save(model, tmp_path / "m", torch.rand(2, 4))
    names = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    assert names == set(dict(corsac.load(tmp_path / "m").state_dict()))
    assert not any("called" in name for name, _ in model.named_modules())


class Doubling(nn.Module):
    def forward(self, x, limit):
        count = torch.zeros((), dtype=torch.int64)
        n, y = while_loop(lambda n, x: x.sum() < limit, lambda n, x: (n + 1, x * 2), (count, x))
        return {"count": n, "value": y}


def test_loops_stop_where_values_say(tmp_path):
    x = torch.rand(3)
    others = [(x * 10, torch.tensor(5.0)), (x, torch.tensor(0.0)), (x, torch.tensor(1e6))]
    check(tmp_path / "m", Doubling(), x, torch.tensor(100.0), others=others)


class Recurrence(nn.Module):
    def __init__(self, dim=0, reverse=False):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(4, 3)
        self.dim, self.reverse = dim, reverse

    def forward(self, xs):
        def step(state, x):
            new = torch.tanh(self.inner(state) + self.outer(x))
            return new, new * 2

        begin = torch.zeros(2, 3, dtype=xs.dtype)
        return scan(step, begin, xs, dim=self.dim, reverse=self.reverse)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_scans_go_along_any_dimension_in_both_directions(tmp_path, dim, reverse):
    torch.manual_seed(0)
    xs = torch.randn((5, 2, 4) if dim == 0 else (2, 5, 4))
    check(tmp_path / "m", Recurrence(dim, reverse), xs, others=[(xs * 2,)])


@pytest.mark.parametrize("exported", [False, True])
def test_scans_of_half_precision(tmp_path, exported):
    class Sums(nn.Module):
        def forward(self, xs):
            def step(total, x):
                return (total.float() + x.float()).to(total.dtype), total * x

            begin = torch.zeros(4, dtype=torch.float16)
            total, rows = scan(step, begin, xs.float().half())
            return total, rows.float().sum(-1)

    model, xs = Sums().eval(), torch.randn(3, 4).half()
    own = torch.export.export(model, (xs,)) if exported else model
    corsac.save(own, tmp_path / "m", (xs,))
    found = corsac.load(tmp_path / "m", framework="numpy")(xs.numpy())
    compare(found, model(xs), 1e-2)


class Rows(nn.Module):
    """A layer for each row; ``factors`` are arguments of the function that are no tensors."""

    def __init__(self, *factors):
        super().__init__()
        self.layer, self.factors = nn.Linear(4, 3), factors

    def forward(self, xs, shift):
        def row(x, *others):
            result = x.sum()
            for own in others[1:]:
                result = result * own
            return {"layer": self.layer(x) + others[0], "sum": result}

        found = map_rows(row, xs, shift, *self.factors)
        return found["layer"], found["sum"]


@pytest.mark.parametrize("length", [1, 5])
def test_map_is_a_scan_that_carries_nothing(tmp_path, length):
    torch.manual_seed(0)
    xs, shift = torch.randn(length, 2, 4), torch.randn(3)
    check(tmp_path / "m", Rows(), xs, shift, others=[(xs + 1, -shift)])
    check(tmp_path / "m", Rows(2, 0.5, 3), xs, shift, others=[(xs + 1, -shift)])


def test_map_of_exported_programs(tmp_path):
    model, given = Rows().eval(), (torch.randn(5, 2, 4), torch.randn(3))
    corsac.save(torch.export.export(model, given), tmp_path / "m", given)
    found = corsac.load(tmp_path / "m", framework="numpy")(*(own.numpy() for own in given))
    with torch.no_grad():
        compare(found, model(*given), 1e-5)


class Nested(nn.Module):
    def forward(self, xs):
        def step(total, x):
            grown = torch.cond(x.sum() > 0, lambda t: t + x, lambda t: t * 0.5, (total,))
            return grown, grown * 2

        return scan(step, torch.zeros(3), xs)[1]


def test_branches_in_scans(tmp_path):
    torch.manual_seed(0)
    xs = torch.randn(6, 3)
    check(tmp_path / "m", Nested(), xs, others=[(-xs,)])


def test_conditions_that_python_knows_are_no_branches(tmp_path):
    class Known(nn.Module):
        def forward(self, x):
            return torch.cond(x.shape[0] > 1, torch.sin, torch.cos, (x,))

    x = torch.rand(2, 3)
    check(tmp_path / "m", Known(), x)
    assert "cond" not in str(corsac.load(tmp_path / "m").graph)


def test_functions_and_compiled_models_with_branches(tmp_path):
    def function(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    x = torch.rand(3)
    for own in (function, corsac.compile(function)):
        corsac.save(own, tmp_path / "m", x)
        native = corsac.load(tmp_path / "m", framework="numpy")
        for given in (x, -x):
            compare(native(given.numpy()), function(given), 1e-5)


def test_capture_has_the_operators():
    graph = corsac.capture(Branches().eval(), torch.rand(2, 4)).graph
    assert "torch.ops.higher_order.cond" in str(graph) or "cond" in [
        getattr(node.target, "__name__", "") for node in graph.nodes
    ]


def test_branches_that_read_values_are_refused(tmp_path):
    class Reads(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x * x.sum().item(), lambda x: x, (x,))

    with pytest.raises(corsac.CompileError, match="reads a value"):
        corsac.save(Reads().eval(), tmp_path / "m", torch.rand(3))


def test_what_pytorch_refuses_in_a_branch_is_raised(tmp_path):
    class Appends(nn.Module):
        def __init__(self):
            super().__init__()
            self.found = []

        def forward(self, x):
            def found(x):
                self.found.append(x)
                return x + 1

            return torch.cond(x.sum() > 0, found, lambda x: x, (x,))

    with pytest.raises(Exception, match=r"(?i)mutat|side effect|cond"):
        corsac.save(Appends().eval(), tmp_path / "m", torch.rand(3))


def test_branches_with_symbolic_sizes_are_refused_by_name(tmp_path):
    sizes = {"x": {0: torch.export.Dim("n", min=1, max=8)}}
    with pytest.raises(corsac.CompileError, match="cond in a graph whose sizes differ"):
        corsac.save(Branches().eval(), tmp_path / "m", torch.rand(2, 4), dynamic_shapes=sizes)


def test_compiled_models_call_branches_in_pytorch():
    model = Branches().eval()
    fast = corsac.compile(model)
    with torch.no_grad():
        for x in (torch.rand(2, 4), -torch.rand(2, 4)):
            for own, expected in zip(fast(x), model(x), strict=True):
                torch.testing.assert_close(own, expected)
