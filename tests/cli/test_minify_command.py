"""corsac minify: a model, a backend with a fault, and the resulting script."""

import json

import pytest

from corsac.cli import main

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.sin(torch.atan(self.linear(x))) * 2

def mine(module, example_inputs):
    for node in module.graph.nodes:
        if node.target is torch.atan:
            raise NotImplementedError(f"no kernel for {node.name}")
    return module.forward
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    (tmp_path / "faulty_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_fault_becomes_a_script_that_is_a_subject_again(net, capsys):
    model = ["minify", "faulty_net.py:Net", "--input", "2,8", "--backend", "faulty_net.py:mine"]
    assert main([*model, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["signature"] == "NotImplementedError: no kernel for atan"
    assert (found["calls_before"], found["calls"], found["verified"]) == (4, 1, True)
    assert found["script"] == "fault.py"
    assert (net / "fault.graph").read_text().strip() == found["graph"].strip()
    assert main(["minify", "fault.py", "--out", "again.py", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["signature"] == found["signature"] and again["calls_before"] == 1


@pytest.mark.slow
def test_no_fault(net, capsys):
    text = "graph():\n    %x : [num_users=1] = placeholder[target=x]\n"
    text += (
        "    %sin : [num_users=1] = call_function[target=torch.sin](args = (%x,), kwargs = {})\n"
    )
    (net / "sin.graph").write_text(text + "    return sin\n")
    assert main(["minify", "sin.graph", "--input", "3", "--backend", "eager"]) == 1
    assert "no fault of backend eager was found" in capsys.readouterr().out
    assert not (net / "fault.py").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["faulty_net.py:Net", "--input", "2,8"],
            "--backend NAME says which backend has the fault",
        ),
        (["faulty_net.py:Net", "--backend", "engin"], "did you mean engine"),
        (["faulty_net.py:Net", "--backend", "faulty_net.py:its"], "has no 'its'"),
        (["faulty_net.py"], "it does not define module, inputs, fails"),
        (["faulty_net.py:Net", "--backend", "eager", "--out", "x.txt"], "expected a file *.py"),
        (["faulty_net.py:Net", "--input", "2,8", "--backend", "eager", "--options", "{"], "JSON"),
        (
            ["faulty_net.py:Net", "--input", "2,9", "--backend", "eager"],
            "the model does not accept the input: RuntimeError: ",
        ),
    ],
)
def test_requests_that_cannot_be_met(net, capsys, words, message):
    assert main(["minify", *words]) == 2
    assert message in capsys.readouterr().err
