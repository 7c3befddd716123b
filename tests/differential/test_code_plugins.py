"""Changing the generated code: transformers, own code generators, boxed calls, verbose forms."""

import os

import torch
from torch import nn

from kit import differential


def traced(fx):
    return fx.symbolic_trace(lambda x, y: torch.relu(x) + y * 2)


@differential
def test_on_generate_code(fx, rec):
    module = traced(fx)
    seen = []

    def insert_comment(body):
        seen.append(list(body))
        return ["# first\n", *body]

    module.graph.on_generate_code(lambda current: insert_comment)
    module.recompile()
    rec("code", module.code)
    rec("body", seen)
    rec.call("result", module, torch.ones(2), torch.ones(2))


@differential
def test_on_generate_code_chains_and_restores(fx, rec):
    module = traced(fx)

    def with_line(line):
        def make(current):
            return lambda body: [line, *(current(body) if current else body)]

        return make

    with module.graph.on_generate_code(with_line("# one\n")):
        with module.graph.on_generate_code(with_line("# two\n")):
            rec("both", module.graph.python_code("self").src)
        rec("one", module.graph.python_code("self").src)
    rec("none", module.graph.python_code("self").src)
    rec("lines", module.graph.python_code("self")._lineno_map)


@differential
def test_own_code_generator(fx, rec):
    class ListCodeGen(fx.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return (
                f"def forward(self, args_list: List){maybe_return_annotation}:\n"
                f"    {', '.join(free_vars)} = args_list"
            )

        def additional_globals(self):
            return [("List", list)]

        def process_inputs(self, *inputs):
            assert len(inputs) == 1
            return inputs[0]

        def process_outputs(self, outputs):
            return {"value": outputs}

        def generate_output(self, output_args):
            return f"return {{'value': {output_args!r}}}"

    module = traced(fx)
    module.graph.set_codegen(ListCodeGen())
    module.recompile()
    rec("code", module.code)
    rec.call("result", module, [torch.ones(2), torch.ones(2)])
    rec.call("interpreter", fx.Interpreter(module).run, [torch.ones(2), torch.ones(2)])
    rec("globals", sorted(module.graph.python_code("self").globals))
    changed = fx.Transformer(module).transform()
    rec("transformed", changed.code)


@differential
def test_code_generator_defaults(fx, rec):
    codegen = fx.CodeGen()
    rec("definition", codegen.gen_fn_def(["a", "b"], ""))
    rec("with self", codegen.gen_fn_def(["self", "b"], " -> int"))
    rec("expanded", codegen.gen_fn_def(["a", "b  # note"], "", expanded_def=True))
    rec("output", codegen.generate_output((1, [2])))
    rec("described", codegen.generate_output((1, 2), descs=["one", "two"]))
    rec("inputs", codegen.process_inputs(1, 2))
    rec("outputs", codegen.process_outputs([1]))
    rec("globals", codegen.additional_globals())


@differential
def test_changing_the_function_name(fx, rec):
    module = traced(fx)
    module.graph._codegen._func_name = "compute"
    rec("code", module.graph.python_code("self").src)


@differential
def test_boxed_calls(fx, rec):
    module = traced(fx)
    module.graph.set_codegen(fx.graph._BoxedCodeGen())
    module.recompile()
    rec("code", module.code)
    args = [torch.ones(2), torch.ones(2)]
    rec.call("result", module, args)
    rec("cleared", args)
    rec("flag", module._boxed_call)
    rec("plain flag", traced(fx)._boxed_call)


@differential
def test_boxed_arguments_of_a_call(fx, rec):
    def takes_a_list(values, other):
        result = values[0] + other
        values.clear()
        return result

    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.neg, (x,))
    call = graph.call_function(takes_a_list, ([a, x], y))
    call.meta["boxed_arg_indices"] = (0,)
    graph.output(call)
    rec("source", graph.python_code("self").src)


class Child(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


@differential
def test_print_readable(fx, rec):
    module = fx.symbolic_trace(nn.Sequential(Child(), nn.Linear(2, 2)))
    rec("text", module.print_readable(print_output=False))
    rec.prints("printed", module.print_readable)
    rec("coloured", module.print_readable(print_output=False, colored=True))
    rec("expanded", module.print_readable(print_output=False, expanded_def=True))


@differential
def test_print_readable_with_values(fx, rec):
    module = fx.symbolic_trace(lambda x: torch.relu(x).view(-1) + x.size(0))
    values = {"x": torch.ones(2, 3), "relu": torch.ones(2, 3), "view": torch.ones(6), "size": 2}
    for node in module.graph.nodes:
        if node.name in values:
            node.meta["val"] = values[node.name]
    rec("plain", module.print_readable(print_output=False))
    rec("strides", module.print_readable(print_output=False, include_stride=True))
    rec("devices", module.print_readable(print_output=False, include_device=True))
    both = {"include_stride": True, "include_device": True, "colored": True}
    rec("all", module.print_readable(print_output=False, **both))
    rec("nodes", [n.format_node(include_tensor_metadata=True) for n in module.graph.nodes])


@differential
def test_print_readable_with_traces_and_annotations(fx, rec):
    module = fx.symbolic_trace(lambda x: torch.relu(x).neg().abs() + 1)
    for index, node in enumerate(module.graph.nodes):
        node.meta["seq_nr"] = index // 2
        if node.name in ("relu", "neg"):
            node.stack_trace = 'File "model.py", line 3, in forward\n    y = relu(x)'
        if node.name == "abs":
            node.meta["custom"] = {"stage": "a" * 60, "n": 1}
    rec("verbose", module.print_readable(print_output=False))
    rec("more", module.print_readable(print_output=False, additional_meta=["seq_nr", "absent"]))
    rec("code", module.graph.python_code("self", verbose=True).src)


@differential
def test_print_readable_of_nested_graph_modules(fx, rec):
    inner = fx.symbolic_trace(Child())
    outer = fx.GraphModule({"inner": inner}, calls_inner(fx))
    rec("text", outer.print_readable(print_output=False))


def calls_inner(fx):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("inner", (x,)))
    return graph


@differential
def test_descriptions_in_the_expanded_form(fx, rec):
    module = fx.symbolic_trace(lambda x, y: (x + y, y))
    for node in module.graph.nodes:
        if node.op == "placeholder":
            node.meta["desc"] = f"input {node.name}"
        if node.op == "output":
            node.meta["desc"] = ["the sum", "the second"]
    rec("text", module.print_readable(print_output=False, expanded_def=True))


@differential
def test_profiling_marks(fx, rec):
    module = traced(fx)
    rec("code", module.graph.python_code("self", record_func=True).src)


@differential
def test_environment_switches(fx, rec):
    module = traced(fx)
    for node in module.graph.nodes:
        node.meta["val"] = torch.ones(2, 3)
        node.meta["note"] = "text"
    switches = ("FX_GRAPH_SHOW_STRIDE", "FX_GRAPH_SHOW_DEVICE", "FX_GRAPH_SHOW_META")
    for switch in switches:
        os.environ[switch] = "1"
        try:
            rec(switch, module.graph.python_code("self", verbose=True).src)
        finally:
            del os.environ[switch]
