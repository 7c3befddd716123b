"""``Graph.parse(text, allow=...)``: names that untrusted text may use."""

import operator
import os

import pytest
import torch
import torch.nn.functional as F

import corsac.fx
from corsac.fx.graph import GraphTextError


def program(target: str, declarations: str = "", more: str = "") -> str:
    return (
        f"graph v1:\n{declarations}"
        "    %x = placeholder[target=x]\n"
        f"    %y = call_function[target={target}](args = (%x,{more}), kwargs = {{}})\n"
        "    %output = output[target=output](args = (%y,), kwargs = {})\n"
    )


def targets(graph: corsac.fx.Graph) -> list:
    return [node.target for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("target", "allow", "function"),
    [
        ("torch.relu", ["torch"], torch.relu),
        ("torch.nn.functional.gelu", ("torch.nn.functional",), F.gelu),
        ("torch.nn.functional.relu", {"torch.nn.functional.relu"}, F.relu),
        ("torch.ops.aten.add.Tensor", ["torch.ops.aten.add"], torch.ops.aten.add.Tensor),
        ("operator.neg", ["operator"], operator.neg),
        ("len", ["builtins.len"], len),
        ("builtins.len", ["builtins.len"], len),
        ("torch.relu", lambda name: name.endswith("relu"), torch.relu),
        ("torch.relu", None, torch.relu),
    ],
)
def test_what_is_allowed_is_found(target, allow, function):
    assert targets(corsac.fx.Graph.parse(program(target), allow=allow)) == [function]
    shown = program(target).replace("graph v1:", "graph():").split("    %output")[0]
    shown = shown.replace(" = placeholder", " : [num_users=1] = placeholder")
    shown = shown.replace("%y =", "%y : [num_users=1] =") + "    return y"
    assert targets(corsac.fx.Graph.parse(shown, allow)) == [function]


@pytest.mark.parametrize(
    ("target", "allow"),
    [
        ("os.system", ["torch", "operator"]),
        ("torchvision.ops.nms", ["torch"]),
        ("torch.relu", []),
        ("torch.load", ["torch.nn", "torch.relu"]),
        ("eval", ["torch", "builtins.len"]),
        ("'os.system'", ["torch"]),
        ("torch.relu", lambda name: False),
    ],
)
def test_what_is_not_allowed_is_an_error_with_its_place(target, allow):
    with pytest.raises(GraphTextError, match="a name that is allowed here") as caught:
        corsac.fx.Graph.parse(program(target), allow=allow)
    assert (caught.value.line, caught.value.column) == (3, 31)


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.sys.exit",
        "torch.serialization.os.system",
        "torch.hub.urlopen",
        "torch.functional.torch.os.system",
    ],
)
def test_nothing_is_reached_through_what_is_allowed(target):
    # Without a rule they are found, or not searched for in modules that are not imported.
    with pytest.raises(GraphTextError, match="must be allowed"):
        corsac.fx.Graph.parse(program(target), allow=["torch"])


def test_a_module_reached_through_another_must_be_allowed_itself():
    text = program("torch.nn.functional.torch.relu")
    assert targets(corsac.fx.Graph.parse(text, ["torch"])) == [torch.relu]
    with pytest.raises(GraphTextError, match="must be allowed"):
        corsac.fx.Graph.parse(text, ["torch.nn.functional"])


def test_types_and_values_must_be_allowed():
    declarations = "    extern @0 = 'dict[str, os.PathLike]'\n"
    text = program("torch.relu", declarations, " @0").replace("%x = ", "%x : @0 = ")
    allow = ["torch", "builtins", "os.PathLike"]
    graph = corsac.fx.Graph.parse(text, allow)
    assert next(iter(graph.nodes)).type == dict[str, os.PathLike]
    for missing in allow:
        with pytest.raises(GraphTextError, match="a name that is allowed here"):
            corsac.fx.Graph.parse(text, [name for name in allow if name != missing])


def test_strings_inputs_methods_and_modules_name_nothing():
    text = (
        "graph v1:\n"
        "    %x = placeholder[target=os.system]\n"
        "    %w = get_attr[target=os.environ]\n"
        "    %m = call_module[target=os.system](args = (%x,), kwargs = {})\n"
        "    %c = call_method[target=system](args = (%m, 'os.system'), kwargs = {})\n"
    )
    assert len(corsac.fx.Graph.parse(text, allow=[]).nodes) == 4


def test_a_predicate_is_asked_once_for_each_name():
    asked = []
    text = program("torch.relu").replace(
        "    %output", "    %z = call_function[target=torch.relu](args = (%x,))\n    %output"
    )
    text = text.replace("(args = (%x,))", "(args = (%x,), kwargs = {})")
    corsac.fx.Graph.parse(text, lambda name: asked.append(name) or True)
    assert asked == ["torch.relu"]


def test_what_a_predicate_raises_comes_through():
    def allow(name):
        raise LookupError(name)

    with pytest.raises(LookupError, match=r"torch\.relu"):
        corsac.fx.Graph.parse(program("torch.relu"), allow)


def test_one_name_is_no_collection():
    with pytest.raises(TypeError, match="write"):
        corsac.fx.Graph.parse(program("torch.relu"), "torch")
    with pytest.raises(TypeError):
        corsac.fx.Graph.parse(program("torch.relu"), 3)
