"""Reads programs of ``torch.export`` as graphs."""

from __future__ import annotations

import keyword
import operator
import os
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_structure

from corsac._files.input_check import InputCheck, Leaf
from corsac.fx import Graph, Node
from corsac.fx.graph import _PyTreeCodeGen, _PyTreeInfo
from corsac.fx.graph_module import GraphModule
from corsac.pt2._archive import Archive, Pt2ImportError
from corsac.pt2._arguments import Arguments, choice
from corsac.pt2._conditions import Conditions
from corsac.pt2._operators import function_of
from corsac.pt2._sizes import size_of
from corsac.pt2._structures import leaves_of, structure
from corsac.pt2._weights import DTYPES, Weights

#: The version of the form of programs.
_VERSION = 8
_NO_LIMIT = 2**31
_MOST_NODES = 1_000_000
_TYPE_CHECK = "torch.ops.aten._assert_tensor_metadata.default"
_GRAD_MODE = "torch.ops.higher_order.wrap_with_set_grad_enabled"


def from_pt2(
    program: str | os.PathLike[str] | bytes, *, model: str | None = None
) -> GraphModule:
    """Read a program that ``torch.export.save`` or ``torch.export.pt2_archive`` wrote, without running what is in it.

    The parameters and buffers of the result have their names in the program, its inputs and results the structure that
    they have there; instances of classes among the results are tuples. Before each call, inputs are compared with the
    sizes, ranges and conditions of the program. Tensors are on the CPU.

    Args:
        program: a path, or the bytes of a file.
        model: the name of the program in an archive of several.

    Raises:
        Pt2ImportError: (a ``ValueError``) the archive is damaged, or holds something that is not read, such as pickled
            objects; the message names the node.
        OSError: the file cannot be read.
    """
    from corsac.quantization import _operators  # registers operators of corsac

    assert _operators
    with Archive(program) as archive:
        name = _chosen(archive, model)
        try:
            return _Program(archive, name).graph_module()
        except Pt2ImportError as error:
            if str(error).startswith(archive.name):
                raise
            raise Pt2ImportError(f"{archive.name}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Pt2ImportError(f"{archive.name}: the program is damaged ({reason:.300})") from error


def _chosen(archive: Archive, model: str | None) -> str:
    models = archive.models()
    if model is None and len(models) == 1:
        return models[0]
    known = ", ".join(models) or "none"
    if model is None:
        raise Pt2ImportError(f"{archive.name}: give the name of a program as model: {known}")
    if model not in models:
        raise Pt2ImportError(f"{archive.name}: there is no program {model!r}: {known}")
    return model


class _Program:
    """A program that is read."""

    def __init__(self, archive: Archive, model: str) -> None:
        self.program = archive.json(f"models/{model}.json")
        version = self.program["schema_version"]["major"]
        if version != _VERSION:
            raise Pt2ImportError(f"a program of version {version}, expected {_VERSION}")
        whole = self.program["graph_module"]
        self.source, self.signature = whole["graph"], whole["signature"]
        self.call = next(own for own in whole["module_call_graph"] if own["fqn"] == "")["signature"]
        self.weights = Weights(archive, model)
        self.root, self.graph = torch.nn.Module(), Graph()
        self.nodes: dict[str, Node] = {}
        self.arguments = Arguments(self._named)
        self.attributes: dict[str, Node] = {}
        self.leaves: list[Leaf] = []
        self.count = 0

    def graph_module(self) -> GraphModule:
        ranges = dict(self._ranges())
        arguments = self._inputs(ranges)
        self._conditions(arguments)
        for own in self.source["nodes"]:
            self._node(own)
        self._results()
        for node in self.graph.find_nodes(op="get_attr"):
            if not node.users:
                self.graph.erase_node(node)
        result = GraphModule(self.root, self.graph, "ExportedProgram")
        check = InputCheck(arguments, self.leaves, ranges)
        result.register_forward_pre_hook(check, with_kwargs=True)
        return result.eval()

    def _named(self, name: Any) -> Node:
        if name not in self.nodes:
            raise Pt2ImportError(f"there is no value {name!r:.100} before it")
        return self.nodes[name]

    # -- inputs ------------------------------------------------------------------------------------

    def _ranges(self) -> Iterator[tuple[str, tuple[int, int | None]]]:
        for name, own in self.program["range_constraints"].items():
            least, most = own["min_val"], own["max_val"]
            least = 0 if least is None else max(int(least), 0)
            yield name, (least, None if most is None or most >= _NO_LIMIT else int(most))

    def _inputs(self, ranges: dict[str, tuple[int, int | None]]) -> dict[str, Any]:
        """Make placeholders, and nodes of weights; return the structures of the arguments by their names."""
        count = sum(choice(own)[0] in ("user_input", "constant_input") for own in self.signature["input_specs"])
        at = iter(range(count))
        args, kwargs = structure(self.call["in_spec"], lambda: next(at), classes=False)
        if sum(1 for _ in leaves_of((args, kwargs))) != count:
            raise Pt2ImportError("the structure of the inputs does not fit them")
        names = _argument_names(args, kwargs, self.call.get("forward_arg_names"))
        arguments = dict(zip(names, (*args, *kwargs.values()), strict=True))
        is_flat = all(isinstance(own, int) for own in arguments.values())
        parameters = iter(names if is_flat else [None] * count)
        given = zip(self.signature["input_specs"], self.source["inputs"], strict=True)
        users = [(choice(spec), argument) for spec, argument in given]
        for (kind, spec), argument in users:
            if kind in ("user_input", "constant_input"):
                self._user_input(kind, spec, argument, next(parameters), ranges)
        for (kind, spec), _ in users:
            if kind not in ("user_input", "constant_input"):
                self._weight(kind, spec)
        if is_flat:
            self._defaults()
        else:
            spec = tree_structure((args, kwargs))
            self.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, spec, None)))
        return arguments

    def _user_input(
        self, kind: str, spec: Any, argument: Any, parameter: str | None, ranges: dict[str, Any]
    ) -> None:
        if kind == "constant_input":
            name, value = spec["name"], self.arguments.value(spec["value"])
            leaf = Leaf(name, value=value, is_fixed=True)
        else:
            found, own = choice(argument)
            if found not in ("as_tensor", "as_sym_int"):
                raise Pt2ImportError(f"an input that is a {found.removeprefix('as_')}")
            name = own["name"] if found == "as_tensor" else own["as_name"]
            leaf = self._tensor(name) if found == "as_tensor" else Leaf(name)
        _check_name(name)
        self.leaves.append(leaf)
        node = self.nodes[name] = self.graph.placeholder(parameter or name)
        if leaf.dtype is not None:
            node.meta["declared_input"] = {
                "dtype": leaf.dtype,
                "shape": tuple(own if isinstance(own, int) else None for own in leaf.shape),
                "sizes": leaf.shape,
                "ranges": ranges,
            }

    def _tensor(self, name: str) -> Leaf:
        type_ = self.source["tensor_values"][name]
        return Leaf(name, DTYPES[type_["dtype"]], tuple(size_of(own) for own in type_["sizes"]))

    def _conditions(self, arguments: dict[str, Any]) -> None:
        inputs = self.graph.find_nodes(op="placeholder")
        conditions = Conditions(self.graph, inputs, self.leaves, dict(self._places(arguments)))
        for text in self.program["guards_code"]:
            conditions.check(text)

    def _defaults(self) -> None:
        """Give the last parameters default values, where the program has one value for them."""
        placeholders = self.graph.find_nodes(op="placeholder")
        for node, leaf in zip(reversed(placeholders), reversed(self.leaves), strict=True):
            if not leaf.is_fixed:
                break
            node.args = (leaf.value,)

    def _places(self, arguments: dict[str, Any]) -> Iterator[tuple[str, int]]:
        """The leaves as conditions name them."""
        for name, own in arguments.items():
            for path, place in leaves_of(own):
                yield f"L[{name!r}]{path}", place
                yield f"L['flat_args'][{place}]", place
                found = re.fullmatch(r"(.+)_(\d+)", name)
                if found is not None:
                    yield f"L[{found[1]!r}][{found[2]}]{path}", place

    def _weight(self, kind: str, spec: Any) -> None:
        if kind not in ("parameter", "buffer", "tensor_constant"):
            raise Pt2ImportError(f"an input that is a {kind.replace('_', ' ')}")
        path, name = spec[f"{kind}_name"], spec["arg"]["name"]
        _check_name(name)
        tensor = self.weights.tensor(path, is_parameter=kind == "parameter")
        if path not in self.attributes:
            _register(self.root, path, tensor, spec.get("persistent", False))
            self.attributes[path] = self.graph.get_attr(path)
        self.nodes[name] = self.attributes[path]

    # -- nodes -------------------------------------------------------------------------------------

    def _node(self, source: Any) -> None:
        self.count += 1
        if self.count > _MOST_NODES:
            raise Pt2ImportError(f"more than {_MOST_NODES} nodes")
        try:
            self._translate(source)
        except Pt2ImportError as error:
            raise Pt2ImportError(f"{_described(source)}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Pt2ImportError(f"{_described(source)}: it is damaged ({reason:.300})") from error

    def _translate(self, source: Any) -> None:
        target = source["target"]
        if target == _GRAD_MODE:
            return self._grad_mode(source)
        if target == _TYPE_CHECK:
            return None  # Types are those of the inputs, which are compared before each call.
        function = function_of(target)
        args, kwargs = self._call(function, source["inputs"])
        node = self.graph.call_function(function, args, kwargs)
        trace = source["metadata"].get("stack_trace")
        if isinstance(trace, str) and trace.replace("\n", "").isprintable():
            node.meta["stack_trace"] = trace
        self._outputs(node, source["outputs"])

    def _call(self, function: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = [self.arguments.value(own["arg"]) for own in inputs]
        if not isinstance(function, torch._ops.OpOverload):
            return tuple(values), {}
        schema = {own.name: own for own in function._schema.arguments}
        args, kwargs = [], {}
        names = list(schema)
        for own, value in zip(inputs, values, strict=True):
            name = own["name"]
            if name not in schema:
                raise Pt2ImportError(f"there is no argument {name!r}")
            # By position, as long as none is left out.
            if not schema[name].kwarg_only and len(args) < len(names) and names[len(args)] == name:
                args.append(value)
            else:
                _check_name(name)
                kwargs[name] = value
        return tuple(args), kwargs

    def _outputs(self, node: Node, outputs: Any) -> None:
        """Give names to the results of a node."""
        if len(outputs) == 1:
            kind, value = choice(outputs[0])
            if kind == "as_tensors":
                return self._parts(node, [{"as_tensor": own} for own in value])
            return self._define(node, kind, value)
        return self._parts(node, outputs)

    def _parts(self, node: Node, outputs: Any) -> None:
        for at, own in enumerate(outputs):
            kind, value = choice(own)
            if kind != "as_none":
                part = self.graph.call_function(operator.getitem, (node, at))
                if kind == "as_tensors":
                    self._parts(part, [{"as_tensor": inner} for inner in value])
                else:
                    self._define(part, kind, value)

    def _define(self, node: Node, kind: str, value: Any) -> None:
        if kind == "as_none":
            return
        if kind not in ("as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"):
            raise Pt2ImportError(f"a result that is a {kind.removeprefix('as_')}")
        name = value["name"] if kind == "as_tensor" else value["as_name"]
        _check_name(name)
        if name in self.nodes:
            raise Pt2ImportError(f"a second value {name!r}")
        self.nodes[name] = node
        node._rename(name)

    def _grad_mode(self, source: Any) -> None:
        """A part without gradients, in place: its results have none."""
        enabled, graph, *given = (choice(own["arg"]) for own in source["inputs"])
        if enabled[0] != "as_bool" or graph[0] != "as_graph":
            raise Pt2ImportError("a part without gradients that is no graph")
        body = graph[1]["graph"]
        outer = self.nodes
        values = [self.arguments.value(dict([own])) for own in given]
        names = [self._input_name(own) for own in body["inputs"]]
        self.nodes = dict(zip(names, values, strict=True))
        try:
            for own in body["nodes"]:
                self._node(own)
            results = [self.arguments.value(own) for own in body["outputs"]]
        finally:
            self.nodes = outer
        outputs = source["outputs"]
        if len(outputs) == 1 and choice(outputs[0])[0] == "as_tensors":
            outputs = [{"as_tensor": own} for own in choice(outputs[0])[1]]
        for own, result in zip(outputs, results, strict=True):
            kind, value = choice(own)
            if kind == "as_tensor" and enabled[1] is False:
                result = self.graph.call_function(torch.ops.aten.detach.default, (result,))
            if kind == "as_tensor" and isinstance(result, Node):
                _check_name(value["name"])
                self.nodes[value["name"]] = result
            elif kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
                self.nodes[value["as_name"]] = result

    @staticmethod
    def _input_name(argument: Any) -> str:
        kind, value = choice(argument)
        return value["name"] if kind == "as_tensor" else value["as_name"]

    # -- results -----------------------------------------------------------------------------------

    def _results(self) -> None:
        """Write changed buffers and inputs back, and return the results in their structure."""
        results, copies = [], {}
        specs = zip(self.signature["output_specs"], self.source["outputs"], strict=True)
        for spec, argument in specs:
            kind, own = choice(spec)
            value = self.arguments.value(argument)
            if kind == "user_output":
                results.append(value)
            elif kind in ("buffer_mutation", "parameter_mutation"):
                path = own[f"{kind.removesuffix('_mutation')}_name"]
                copies[value] = self._copy(self.attributes[path], value)
            elif kind == "user_input_mutation":
                copies[value] = self._copy(self._named(own["user_input_name"]), value)
            else:
                raise Pt2ImportError(f"a result that is a {kind.replace('_', ' ')}")
        leaves = iter([copies.get(own, own) if isinstance(own, Node) else own for own in results])
        returned = structure(self.call["out_spec"], lambda: next(leaves), classes=True)
        if next(leaves, leaves) is not leaves:
            raise Pt2ImportError("the structure of the results does not fit them")
        self.graph.output(returned)

    def _copy(self, target: Node, value: Node) -> Node:
        return self.graph.call_function(torch.ops.aten.copy_.default, (target, value))


def _argument_names(args: tuple[Any, ...], kwargs: dict[Any, Any], declared: Any) -> list[str]:
    """The names of the arguments, those that are passed by name at the end."""
    names = list(declared or [])
    if len(names) != len(args) + len(kwargs) or len(set(names)) != len(names):
        names = [f"arg_{at}" for at in range(len(args))]
    names[len(args) :] = kwargs
    for name in names:
        _check_name(name)
    return names


def _check_name(name: Any) -> None:
    is_name = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not is_name or keyword.iskeyword(name):
        raise Pt2ImportError(f"{name!r:.100} is no name of a value")


def _register(root: torch.nn.Module, path: Any, tensor: torch.Tensor, persistent: bool) -> None:
    """Make a tensor a parameter or buffer of a module inside ``root``."""
    *owners, name = path.split(".")
    owner = root
    for part in (*owners, name):
        if re.fullmatch(r"\w+", part, re.ASCII) is None:
            raise Pt2ImportError(f"{path!r:.100} is no name of a tensor")
    for part in owners:
        if part not in owner._modules:
            owner.add_module(part, torch.nn.Module())
        owner = owner._modules[part]
    if isinstance(tensor, torch.nn.Parameter):
        owner.register_parameter(name, tensor)
    else:
        owner.register_buffer(name, tensor, persistent=bool(persistent))


def _described(source: Any) -> str:
    """A node for messages."""
    name = source.get("name") if isinstance(source, dict) else None
    if not name:
        return f"node {source!r:.60}"
    return f"node {name!r:.100} ({source.get('target')!s:.100})"


__all__ = ["from_pt2"]
