"""Error messages for a failing line of generated code."""

import pytest
import torch

import corsac.fx as fx


def mismatched(x):
    y = torch.relu(x)
    return torch.mm(y, x)


def test_the_generated_line_is_shown(capsys):
    gm = fx.symbolic_trace(mismatched)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        gm(torch.randn(3, 4))
    shown = capsys.readouterr().err
    assert (
        "Call using an FX-traced Module, line 6 of the traced Module's generated forward function:"
    ) in shown
    assert "mm = torch.mm(relu, x);  relu = x = None\n\n~~~~~~~~~~~~~" in shown
    assert "~~~ <--- HERE\n    return mm" in shown


def test_the_line_of_the_user_is_shown(capsys):
    gm = fx.symbolic_trace(mismatched)
    with pytest.raises(RuntimeError):
        gm(torch.randn(3, 4))
    shown = capsys.readouterr().err
    assert "This line was traced from:" in shown
    origin = shown[shown.index("This line was traced from:") :]
    assert 'test_errors.py", line 11, in mismatched' in origin
    assert "return torch.mm(y, x)" in origin


def test_a_stale_line_map_names_no_wrong_node(capsys):
    gm = fx.symbolic_trace(mismatched)
    gm.code  # noqa: B018
    (mm,) = [n for n in gm.graph.nodes if n.target is torch.mm]
    with gm.graph.inserting_before(mm):
        gm.graph.call_function(torch.neg, (mm.args[0],))
    with pytest.raises(RuntimeError):
        gm(torch.randn(3, 4))
    assert "line 12" not in capsys.readouterr().err


def test_errors_from_called_functions_are_left_alone(capsys):
    def fails(x):
        raise ValueError("from inside")

    graph = fx.Graph()
    graph.output(graph.call_function(fails, (graph.placeholder("x"),)))
    with pytest.raises(ValueError, match="from inside") as raised:
        fx.GraphModule({}, graph)(1)
    assert capsys.readouterr().err == ""
    assert raised.traceback[-1].name == "fails"


def test_hooks_must_be_callable():
    gm = fx.symbolic_trace(mismatched)
    with pytest.raises(AssertionError, match="create_node hook must be a callable"):
        gm._register_create_node_hook("hook")
    with pytest.raises(AssertionError, match="deepcopy hook must be a callable"):
        gm._register_deepcopy_hook(3)


def test_node_hooks_are_called():
    gm = fx.symbolic_trace(mismatched)
    created, erased, replaced = [], [], []
    (relu,) = [n for n in gm.graph.nodes if n.target is torch.relu]
    gm._register_erase_node_hook(erased.append)
    with (
        gm._set_create_node_hook(created.append),
        gm._set_replace_hook(lambda old, new, user: replaced.append((old, new, user))),
    ):
        with gm.graph.inserting_after(relu):
            neg = gm.graph.call_function(torch.neg, relu.args)
        users = list(relu.users)
        relu.replace_all_uses_with(neg)
        gm.graph.erase_node(relu)
    gm.graph.call_function(torch.neg, (neg,))
    assert created == [neg]
    assert erased == [relu]
    assert replaced == [(relu, "neg", user) for user in users]
    gm._unregister_erase_node_hook(erased.append)
    assert gm._create_node_hooks == [] and gm._replace_hooks == []
