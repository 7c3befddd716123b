"""Nodes of a program as nodes of a graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from corsac._capture.control_flow import control_module
from corsac.fx import Graph, Node
from corsac.fx.graph_module import GraphModule
from corsac.pt2._archive import Pt2ImportError
from corsac.pt2._arguments import Arguments, choice
from corsac.pt2._names import checked_name, described
from corsac.pt2._operators import function_of

_MOST_NODES = 1_000_000
_DEEPEST = 64
#: Types are those of the inputs, which are compared before each call.
_TYPE_CHECK = "torch.ops.aten._assert_tensor_metadata.default"
_GRAD_MODE = "torch.ops.higher_order.wrap_with_set_grad_enabled"
#: By operator: the number of its graphs, and the word for it in messages and names.
_CONTROL_FLOW = {
    "torch.ops.higher_order.cond": (2, "condition"),
    "torch.ops.higher_order.scan": (1, "scan"),
    "torch.ops.higher_order.while_loop": (2, "loop"),
}
_NUMBERS = ("as_sym_int", "as_sym_float", "as_sym_bool")


class Nodes:
    """Makes the nodes of a graph.

    Args:
        graph: the graph.
        root: the module of the graph, which gets the branches of conditions.
        libraries: names of further libraries of operators.
        depth: the number of graphs around it.

    Attributes:
        values: the values so far, by their names in the program.
        arguments: makes arguments of them.
    """

    def __init__(
        self, graph: Graph, root: torch.nn.Module, libraries: frozenset[str], depth: int = 0
    ) -> None:
        self._graph, self._root, self._libraries = graph, root, libraries
        self.values: dict[str, Any] = {}
        self.arguments = Arguments(self.named)
        self._count, self._depth = 0, depth

    def named(self, name: Any) -> Any:
        """The value with a name."""
        if name not in self.values:
            raise Pt2ImportError(f"there is no value {name!r:.100} before it")
        return self.values[name]

    def make(self, source: Any) -> None:
        """Make a node.

        Raises:
            Pt2ImportError: it cannot be read; the message names it.
        """
        self._count += 1
        if self._count > _MOST_NODES:
            raise Pt2ImportError(f"more than {_MOST_NODES} nodes")
        try:
            self._make(source)
        except Pt2ImportError as error:
            raise Pt2ImportError(f"{described(source)}: {error}") from error
        except Exception as error:  # of what is not as PyTorch writes it
            reason = f"{type(error).__name__}: {error}"
            raise Pt2ImportError(f"{described(source)}: it is damaged ({reason:.300})") from error

    def _make(self, source: Any) -> None:
        target = source["target"]
        if target == _TYPE_CHECK:
            return
        if target == _GRAD_MODE:
            self._without_gradients(source)
            return
        if target in _CONTROL_FLOW:
            self._control_flow(source, *_CONTROL_FLOW[target])
            return
        function = function_of(target, self._libraries)
        args, kwargs = self._call(function, source["inputs"])
        node = self._graph.call_function(function, args, kwargs)
        trace = source["metadata"].get("stack_trace")
        # It becomes a comment in code.
        if isinstance(trace, str) and trace.replace("\n", "").isprintable():
            node.meta["stack_trace"] = trace
        self._outputs(node, source["outputs"])

    def _call(self, function: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = [self.arguments.value(own["arg"]) for own in inputs]
        if not isinstance(function, torch._ops.OpOverload):
            return tuple(values), {}
        parameters = [(own.name, own.kwarg_only) for own in function._schema.arguments]
        names = [name for name, _ in parameters]
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for own, value in zip(inputs, values, strict=True):
            name = own["name"]
            if name not in names or name in kwargs:
                raise Pt2ImportError(f"there is no argument {name!r}, or two")
            # By position, as long as none is left out.
            if len(args) < len(names) and parameters[len(args)] == (name, False):
                args.append(value)
            else:
                kwargs[checked_name(name)] = value
        return tuple(args), kwargs

    # -- results -----------------------------------------------------------------------------------

    def _outputs(self, node: Node, outputs: Any) -> None:
        """Give names to the results of a node."""
        several = _several(outputs)
        if several is outputs and len(outputs) == 1:
            self._define(node, *choice(outputs[0]))
        else:
            self._parts(node, several)

    def _parts(self, node: Node, outputs: Sequence[Any]) -> None:
        for at, own in enumerate(outputs):
            kind, value = choice(own)
            if kind == "as_none":
                continue
            part = self._graph.call_function(operator.getitem, (node, at))
            if kind == "as_tensors":
                self._parts(part, _several([own]))
            else:
                self._define(part, kind, value)

    def _define(self, node: Node, kind: str, value: Any) -> None:
        if kind == "as_none":
            return
        name = checked_name(_name_of(kind, value))
        if name in self.values:
            raise Pt2ImportError(f"a second value {name!r}")
        self.values[name] = node
        node._rename(name)

    # -- graphs in arguments -----------------------------------------------------------------------

    def _check_depth(self) -> None:
        if self._depth >= _DEEPEST:
            raise Pt2ImportError(f"graphs inside each other, {_DEEPEST} deep")

    def _control_flow(self, source: Any, count: int, word: str) -> None:
        """Make a call of graphs as elements decide."""
        self._check_depth()
        given = [choice(own["arg"]) for own in source["inputs"]]
        graphs = [own for kind, own in given if kind == "as_graph"]
        if len(graphs) != count:
            raise Pt2ImportError(f"a {word} without its graphs")
        bodies = [self._module(own["graph"]) for own in graphs]
        values = [self.arguments.value({kind: own}) for kind, own in given if kind != "as_graph"]
        operator = source["target"].rpartition(".")[2]
        module, operands = control_module(operator, bodies, values)
        number = 0
        while hasattr(self._root, f"{word}_{number}"):
            number += 1
        path = f"{word}_{number}"
        self._root.add_module(path, module)
        self._parts(self._graph.call_module(path, operands), _several(source["outputs"]))

    def _module(self, body: Any) -> GraphModule:
        """A graph as a module that returns a tuple."""
        graph, root = Graph(), torch.nn.Module()
        nodes = Nodes(graph, root, self._libraries, self._depth + 1)
        for own in body["inputs"]:
            name = checked_name(_name_of(*choice(own)))
            nodes.values[name] = graph.placeholder(name)
        for own in body["nodes"]:
            nodes.make(own)
        graph.output(tuple(nodes.arguments.value(own) for own in body["outputs"]))
        return GraphModule(root, graph, "Branch")

    def _without_gradients(self, source: Any) -> None:
        """Make the nodes of a part in which gradients are switched, whose results have none if they are off."""
        switch, graph, *given = (choice(own["arg"]) for own in source["inputs"])
        if switch[0] != "as_bool" or graph[0] != "as_graph":
            raise Pt2ImportError("a part without gradients that is no graph")
        self._check_depth()
        body, outer = graph[1]["graph"], self.values
        names = [_name_of(*choice(own)) for own in body["inputs"]]
        values = [self.arguments.value({kind: own}) for kind, own in given]
        self.values = dict(zip(names, values, strict=True))
        self._depth += 1
        try:
            for own in body["nodes"]:
                self.make(own)
            results = [self.arguments.value(own) for own in body["outputs"]]
        finally:
            self.values = outer
            self._depth -= 1
        for output, result in zip(_several(source["outputs"]), results, strict=True):
            kind, value = choice(output)
            if kind == "as_none":
                continue
            if kind == "as_tensor" and switch[1] is False:
                result = self._graph.call_function(torch.ops.aten.detach.default, (result,))
            self.values[checked_name(_name_of(kind, value))] = result


def _several(outputs: Sequence[Any]) -> Sequence[Any]:
    """The results of a node that returns several, each as an argument."""
    kind, value = choice(outputs[0]) if len(outputs) == 1 else ("", None)
    return [{"as_tensor": own} for own in value] if kind == "as_tensors" else outputs


def _name_of(kind: str, value: Any) -> Any:
    """The name in an argument that is a value of the program."""
    if kind == "as_tensor":
        return value["name"]
    if kind not in _NUMBERS:
        raise Pt2ImportError(f"a value that is a {kind.removeprefix('as_').replace('_', ' ')}")
    return value["as_name"]


__all__ = ["Nodes"]
