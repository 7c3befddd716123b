"""A program of ``torch.export``: its inputs, weights and results."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_structure

from corsac._files.dynamic_shapes import NO_LIMIT
from corsac._files.input_check import InputCheck, Leaf
from corsac.fx import Graph, Node
from corsac.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from corsac.fx.graph_module import GraphModule
from corsac.pt2._archive import Archive, Pt2ImportError
from corsac.pt2._arguments import choice
from corsac.pt2._conditions import Conditions
from corsac.pt2._names import checked_name, register
from corsac.pt2._nodes import Nodes
from corsac.pt2._sizes import size_of
from corsac.pt2._structures import leaves_of, structure
from corsac.pt2._weights import DTYPES, Weights

#: The version of the form of programs.
_VERSION = 8
_USER_INPUTS = ("user_input", "constant_input")
_WEIGHTS = ("parameter", "buffer", "tensor_constant")


class Program:
    """A program that is read.

    Args:
        archive: the archive.
        model: the name of the program.
        plain_inputs: whether the leaves of the arguments are inputs of their own, without those with one value.
        libraries: names of further libraries of operators.
    """

    def __init__(
        self, archive: Archive, model: str, plain_inputs: bool, libraries: Collection[str]
    ) -> None:
        program = archive.json(f"models/{model}.json")
        version = program["schema_version"]["major"]
        if version != _VERSION:
            raise Pt2ImportError(f"a program of version {version}, expected {_VERSION}")
        whole = program["graph_module"]
        self._source, self._signature = whole["graph"], whole["signature"]
        calls = whole["module_call_graph"]
        self._call = next(own for own in calls if own["fqn"] == "")["signature"]
        self._texts = program["guards_code"]
        self._ranges = dict(_ranges(program["range_constraints"]))
        self._plain_inputs = plain_inputs
        self._weights = Weights(archive, model)
        self._root, self._graph = torch.nn.Module(), Graph()
        self._nodes = Nodes(self._graph, self._root, frozenset(libraries))
        self._attributes: dict[str, Node] = {}
        self._leaves: list[Leaf] = []
        self._inputs: list[Node] = []

    def graph_module(self) -> GraphModule:
        """The graph of the program, with a check of its inputs."""
        arguments = self._arguments()
        places = dict(_places(arguments))
        conditions = Conditions(self._graph, self._inputs, self._leaves, places)
        for text in self._texts:
            conditions.check(text)
        for own in self._source["nodes"]:
            self._nodes.make(own)
        self._results()
        removed = self._graph.find_nodes(op="get_attr")
        if self._plain_inputs:
            pairs = zip(self._inputs, self._leaves, strict=True)
            removed = [*removed, *(node for node, leaf in pairs if leaf.is_fixed)]
        for node in removed:
            if not node.users:
                self._graph.erase_node(node)
        result = GraphModule(self._root, self._graph, "ExportedProgram")
        check = InputCheck(arguments, self._leaves, self._ranges)
        result.register_forward_pre_hook(check, with_kwargs=True)
        return result.eval()

    # -- inputs ------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        """Make placeholders, and nodes of weights; return the structures of the arguments by their names."""
        pairs = zip(self._signature["input_specs"], self._source["inputs"], strict=True)
        given = [(choice(spec), argument) for spec, argument in pairs]
        users = [own for own in given if own[0][0] in _USER_INPUTS]
        at = iter(range(len(users)))
        args, kwargs = structure(self._call["in_spec"], lambda: next(at, -1), classes=False)
        if next(at, None) is not None or any(own < 0 for _, own in leaves_of((args, kwargs))):
            raise Pt2ImportError("the structure of the inputs does not fit them")
        names = _argument_names(args, kwargs, self._call.get("forward_arg_names"))
        arguments = dict(zip(names, (*args, *kwargs.values()), strict=True))
        is_flat = all(isinstance(own, int) for own in arguments.values())
        for number, ((kind, spec), argument) in enumerate(users):
            self._user_input(kind, spec, argument, names[number] if is_flat else None)
        for (kind, spec), _ in given:
            if kind not in _USER_INPUTS:
                self._weight(kind, spec)
        if self._plain_inputs:
            kept = [at for at, own in enumerate(self._leaves) if not own.is_fixed]
            return {str(self._inputs[at].target): at for at in kept}
        if is_flat:
            self._defaults()
        else:
            info = _PyTreeInfo(names, tree_structure((args, kwargs)), None)
            self._graph.set_codegen(_PyTreeCodeGen(info))
        return arguments

    def _user_input(self, kind: str, spec: Any, argument: Any, parameter: str | None) -> None:
        found, own = choice(argument)
        if kind == "constant_input":
            value = self._nodes.arguments.value(spec["value"])
            leaf = Leaf(spec["name"], value=value, is_fixed=True)
        elif found == "as_tensor":
            leaf = self._tensor(own["name"])
        elif found == "as_sym_int":
            leaf = Leaf(own["as_name"])
        else:
            raise Pt2ImportError(f"an input that is a {found.removeprefix('as_')}")
        name = checked_name(leaf.name)
        node = self._nodes.values[name] = self._graph.placeholder(parameter or name)
        self._leaves.append(leaf)
        self._inputs.append(node)
        if leaf.dtype is not None:
            node.meta["declared_input"] = {
                "dtype": leaf.dtype,
                "shape": tuple(_example(own) for own in self._sizes(name)),
                "sizes": tuple(own if isinstance(own, int) else str(own) for own in leaf.shape),
                "ranges": self._ranges,
            }

    def _tensor(self, name: str) -> Leaf:
        dtype = DTYPES[self._source["tensor_values"][name]["dtype"]]
        return Leaf(name, dtype, tuple(size_of(own) for own in self._sizes(name)))

    def _sizes(self, name: str) -> Any:
        return self._source["tensor_values"][name]["sizes"]

    def _defaults(self) -> None:
        """Give the last parameters default values, where the program has one value for them."""
        for node, leaf in zip(reversed(self._inputs), reversed(self._leaves), strict=True):
            if not leaf.is_fixed:
                break
            node.args = (leaf.value,)

    def _weight(self, kind: str, spec: Any) -> None:
        if kind not in _WEIGHTS:
            raise Pt2ImportError(f"an input that is a {kind.replace('_', ' ')}")
        path, name = spec[f"{kind}_name"], checked_name(spec["arg"]["name"])
        tensor = self._weights.tensor(path, is_parameter=kind == "parameter")
        if path not in self._attributes:
            register(self._root, path, tensor, persistent=spec.get("persistent") is True)
            self._attributes[path] = self._graph.get_attr(path)
        self._nodes.values[name] = self._attributes[path]

    # -- results -----------------------------------------------------------------------------------

    def _results(self) -> None:
        """Write changed buffers and inputs back, and return the results in their structure."""
        results, copies = [], {}
        specs = zip(self._signature["output_specs"], self._source["outputs"], strict=True)
        for spec, argument in specs:
            kind, own = choice(spec)
            value = self._nodes.arguments.value(argument)
            if kind == "user_output":
                results.append(value)
            elif kind in ("buffer_mutation", "parameter_mutation"):
                path = own[f"{kind.removesuffix('_mutation')}_name"]
                copies[value] = self._copy(self._attributes[path], value)
            elif kind == "user_input_mutation":
                copies[value] = self._copy(self._nodes.named(own["user_input_name"]), value)
            else:
                raise Pt2ImportError(f"a result that is a {kind.replace('_', ' ')}")
        leaves = iter([copies.get(own, own) if isinstance(own, Node) else own for own in results])
        returned = structure(self._call["out_spec"], lambda: next(leaves), classes=True)
        if next(leaves, leaves) is not leaves:
            raise Pt2ImportError("the structure of the results does not fit them")
        self._graph.output(returned)

    def _copy(self, target: Node, value: Node) -> Node:
        return self._graph.call_function(torch.ops.aten.copy_.default, (target, value))


def _ranges(constraints: Any) -> Iterator[tuple[str, tuple[int, int | None]]]:
    for name, own in constraints.items():
        least, most = own["min_val"], own["max_val"]
        least = 0 if least is None else max(int(least), 0)
        yield name, (least, None if most is None or most >= NO_LIMIT else int(most))


def _argument_names(args: tuple[Any, ...], kwargs: dict[Any, Any], declared: Any) -> list[str]:
    """The names of the arguments, those that are passed by name at the end."""
    names = list(declared or [])
    if len(names) != len(args) + len(kwargs) or len(set(names)) != len(names):
        names = [f"arg_{at}" for at in range(len(args))]
    names[len(args) :] = kwargs
    return [checked_name(own) for own in names]


def _places(arguments: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The leaves of the arguments as conditions name them."""
    for name, own in arguments.items():
        for path, place in leaves_of(own):
            yield f"L[{name!r}]{path}", place
            yield f"L['flat_args'][{place}]", place
            found = re.fullmatch(r"(.+)_(\d+)", name)
            if found is not None:
                yield f"L[{found[1]!r}][{found[2]}]{path}", place


def _example(size: Any) -> int | None:
    """The size of the inputs that the program was exported with, if it is known."""
    if "as_int" in size:
        return size["as_int"]
    hint = (size["as_expr"].get("hint") or {}).get("as_int")
    return hint if type(hint) is int and 0 <= hint < NO_LIMIT else None


__all__ = ["Program"]
