"""Random programs: the same graph, code and numbers, by every way to run them."""

import copy

import torch
from hypothesis import given

from generated.programs import GraphProgram, Holder, programs
from kit import assert_same


def runs(fx, rec, program: GraphProgram):
    rec.reads_back = True
    module = fx.GraphModule(Holder(), program.build(fx))
    inputs = program.inputs()
    with torch.no_grad():
        rec("module", module)
        rec("result", module(*inputs))
        rec("interpreted", fx.Interpreter(module).run(*inputs))
        rec("boxed", fx.Interpreter(module).boxed_run(list(inputs)))


def survives(fx, rec, program: GraphProgram):
    rec.reads_back = True
    module = fx.GraphModule(Holder(), program.build(fx))
    inputs = program.inputs()
    with torch.no_grad():
        retraced = rec("retraced", fx.symbolic_trace(module))
        rec("retraced result", retraced(*inputs))
        transformed = rec("transformed", fx.Transformer(module).transform())
        rec("transformed result", transformed(*inputs))
        rec("copied", copy.deepcopy(module)(*inputs))
        rec("changed", module.graph.eliminate_dead_code())
        module.recompile()
        rec("eliminated", module)
        rec("eliminated result", module(*inputs))


@given(programs)
def test_the_same_graph_code_and_results(program):
    assert_same(runs, program=program)


@given(programs)
def test_the_same_after_every_transformation(program):
    assert_same(survives, program=program)
