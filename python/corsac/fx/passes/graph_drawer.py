"""``FxGraphDrawer``: a graph module as DOT text, as ``torch.fx.passes.graph_drawer`` writes it.

torch.fx needs the ``pydot`` package and, for pictures, Graphviz; this needs neither. For new code,
:func:`corsac.draw` makes better pictures.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from corsac.fx._dot import Cluster, Dot, Edge, Node
from corsac.fx._node_notes import _parse_stack_trace
from corsac.fx.node import map_arg
from corsac.fx.operator_schemas import normalize_function

__all__ = ["FxGraphDrawer"]

_OP_COLORS = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_param": "Yellow2",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
# Colours for calls of functions and methods, chosen by a hash of the target, so that they are stable.
_TARGET_COLORS = (
    "CadetBlue1",
    "Coral",
    "DarkOliveGreen1",
    "DarkSeaGreen1",
    "GhostWhite",
    "Khaki1",
    "LavenderBlush1",
    "LightSkyBlue",
    "MistyRose1",
    "MistyRose2",
    "PaleTurquoise2",
    "PeachPuff1",
    "Salmon",
    "Thistle1",
    "Thistle3",
    "Wheat1",
)
# Longer lists among the arguments are truncated.
_MAX_LIST = 8
_ROW_END = r"\n"


class FxGraphDrawer:
    """Draw a graph module, and the graph modules that it calls, as DOT graphs.

    Example::

        FxGraphDrawer(gm, "resnet18").get_dot_graph().write_svg("resnet18.svg")

    Args:
        graph_module: the module to draw.
        name: the name of its graph; those of inner graph modules are ``name_target``.
        ignore_getattr: omit ``get_attr`` nodes.
        ignore_parameters_and_buffers: omit nodes for the parameters and buffers of called modules.
        skip_node_names_in_args: omit arguments that are nodes from the labels.
        parse_stack_trace: put the file and line from ``node.stack_trace`` into the labels.
        dot_graph_shape: Graphviz's name for the shape of nodes; ``"record"`` if ``None``.
        normalize_args: show arguments of functions by keyword, if their schema is known.
    """

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self.dot_graph_shape = "record" if dot_graph_shape is None else dot_graph_shape
        self.normalize_args = normalize_args
        choices = (
            ignore_getattr,
            ignore_parameters_and_buffers,
            skip_node_names_in_args,
            parse_stack_trace,
        )
        self._dot_graphs = {name: self._to_dot(graph_module, name, *choices)}
        for node in graph_module.graph.nodes:
            if node.op != "call_module":
                continue
            inner = self._get_leaf_node(graph_module, node)
            if hasattr(inner, "graph") and hasattr(inner.graph, "nodes"):
                inner_name = f"{name}_{node.target}"
                self._dot_graphs[inner_name] = self._to_dot(inner, inner_name, *choices)

    def get_dot_graph(self, submod_name: str | None = None) -> Dot:
        """The graph of the module, or of the graph module with the path ``submod_name`` in it."""
        if submod_name is None:
            return self.get_main_dot_graph()
        return self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self) -> Dot:
        """The graph of the module."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Dot:
        """The graph of the graph module with the path ``submod_name``."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Dot]:
        """All graphs, by name."""
        return self._dot_graphs

    # Methods that subclasses override, under torch.fx's names ---------------------------------------

    def _get_node_style(self, node: Any) -> dict[str, str]:
        if node.op in _OP_COLORS:
            color = _OP_COLORS[node.op]
        else:
            target = node._pretty_print_target(node.target)
            digest = hashlib.md5(target.encode(), usedforsecurity=False).hexdigest()
            color = _TARGET_COLORS[int(digest[:8], 16) % len(_TARGET_COLORS)]
        return self._style(color)

    def _style(self, color: str) -> dict[str, str]:
        return {
            "shape": self.dot_graph_shape,
            "fillcolor": color,
            "style": '"filled,rounded"',
            "fontcolor": "#000000",
        }

    def _get_leaf_node(self, module: torch.nn.Module, node: Any) -> torch.nn.Module:
        if not isinstance(node.target, str):
            raise AssertionError(f"Expected str target, got {type(node.target)}")
        found: Any = module
        for part in node.target.split("."):
            if not hasattr(found, part):
                raise RuntimeError(f"{found} does not have attribute {part}!")
            found = getattr(found, part)
        return found

    def _typename(self, target: Any) -> str:
        if isinstance(target, torch.nn.Module):
            name = torch.typename(target)
        elif isinstance(target, str):
            name = target
        else:
            name = torch.fx.node._get_qualified_name(target)
        return _escaped(name)

    def _shorten_file_name(self, full_file_name: str, truncate_to_last_n: int = 2) -> str:
        return "/".join(full_file_name.split("/")[-truncate_to_last_n:])

    def _get_node_label(
        self,
        module: torch.nn.Module,
        node: Any,
        skip_node_names_in_args: bool,
        parse_stack_trace: bool,
    ) -> str:
        label = f"{{name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            called = self._get_leaf_node(module, node)
            constants = getattr(called, "__constants__", ())
            settings = _ROW_END.join(f"{c}: {getattr(called, c)}" for c in constants)
            label += rf"\n{self._typename(called)}\n|{settings}\n"
        else:
            label += rf"|target={self._typename(node.target)}\n"
            args, kwargs = self._arguments(node)
            named = [f"{key}: {_argument(value)}" for key, value in kwargs.items()]
            label += _row("args=(", [_argument(a) for a in args], ")", skip_node_names_in_args)
            label += _row("kwargs={", named, "}", skip_node_names_in_args)
            label += rf"|num_users={len(node.users)}\n"
        label += self._tensor_meta_to_label(node.meta.get("tensor_meta"))
        buffer = node.meta.get("buf_meta")
        if buffer is not None:
            label += rf"|buf={buffer.name}\n|n_origin={buffer.n_origin}\n"
        if parse_stack_trace and node.stack_trace is not None:
            entry = _parse_stack_trace(node.stack_trace)
            if entry is not None:
                label += (
                    rf"|file={self._shorten_file_name(entry.file)}:{entry.lineno} {entry.code}\n"
                )
        return label + "}"

    def _arguments(self, node: Any) -> tuple[Any, Any]:
        if self.normalize_args:
            try:
                normalized = normalize_function(
                    node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True
                )
                return normalized.args, normalized.kwargs  # type: ignore[union-attr]
            except Exception:
                # No schema, several that fit, or arguments that do not fit: shown unchanged.
                pass
        return node.args, node.kwargs

    def _tensor_meta_to_label(self, tm: object) -> str:
        if tm is None:
            return ""
        # A named tuple of torch or of corsac.
        if hasattr(tm, "_fields") and hasattr(tm, "is_quantized"):
            return self._stringify_tensor_meta(tm)
        if isinstance(tm, dict):
            return "".join(self._tensor_meta_to_label(part) for part in tm.values())
        if isinstance(tm, (list, tuple)):
            return "".join(self._tensor_meta_to_label(part) for part in tm)
        raise RuntimeError(f"Unsupported tensor meta type {type(tm)}")

    def _stringify_tensor_meta(self, tm: Any) -> str:
        rows = {
            "dtype": tm.dtype,
            "shape": tuple(tm.shape),
            "requires_grad": tm.requires_grad,
            "stride": tm.stride,
        }
        if tm.is_quantized:
            parameters = tm.qparams
            scheme = parameters["qscheme"]
            if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
                rows["q_scale"] = parameters["scale"]
                rows["q_zero_point"] = parameters["zero_point"]
            elif scheme in (
                torch.per_channel_affine,
                torch.per_channel_symmetric,
                torch.per_channel_affine_float_qparams,
            ):
                rows["q_per_channel_scale"] = parameters["scale"]
                rows["q_per_channel_zero_point"] = parameters["zero_point"]
                rows["q_per_channel_axis"] = parameters["axis"]
            else:
                raise RuntimeError(f"Unsupported qscheme: {scheme}")
            rows["qscheme"] = scheme
        return "".join(rf"|{name}={value}\n" for name, value in rows.items())

    def _get_tensor_label(self, t: torch.Tensor) -> str:
        return rf"{t.dtype}{list(t.shape)}\n"

    def _to_dot(
        self,
        graph_module: Any,
        name: str,
        ignore_getattr: bool,
        ignore_parameters_and_buffers: bool,
        skip_node_names_in_args: bool,
        parse_stack_trace: bool,
    ) -> Dot:
        graph = Dot(name, rankdir="TB")
        buffers: dict[str, Cluster] = {}
        drawn = [n for n in graph_module.graph.nodes if not (ignore_getattr and n.op == "get_attr")]
        for node in drawn:
            label = self._get_node_label(
                graph_module, node, skip_node_names_in_args, parse_stack_trace
            )
            target: Dot | Cluster = graph
            buffer = node.meta.get("buf_meta")
            if buffer is not None and buffer.n_origin > 1:
                cluster = Cluster(buffer.name, label=buffer.name)
                target = buffers.setdefault(buffer.name, cluster)
            dot_node = Node(node.name, label=label, **self._get_node_style(node))
            dot_node.describes = (node.op, self._operator(graph_module, node))
            target.add_node(dot_node)
            if node.op != "call_module" or ignore_parameters_and_buffers:
                continue
            called = self._get_leaf_node(graph_module, node)
            if not (hasattr(called, "graph") and hasattr(called.graph, "nodes")):
                self._add_tensors(graph, node, called)
        for cluster in buffers.values():
            cluster.set("color", "royalblue")
            cluster.set("penwidth", "2")
            graph.add_subgraph(cluster)
        for node in drawn:
            for user in node.users:
                graph.add_edge(Edge(node.name, user.name))
        return graph

    def _operator(self, module: torch.nn.Module, node: Any) -> str:
        """The target of a node, for the colour of its box in a picture."""
        called = self._get_leaf_node(module, node) if node.op == "call_module" else node.target
        return self._typename(called)

    def _add_tensors(self, graph: Dot, node: Any, module: torch.nn.Module) -> None:
        """Add a node for each parameter and buffer of a called module."""
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            own = f"{node.name}.{name}"
            kind = (
                f"{own}|op_code=get_parameter"
                if isinstance(tensor, torch.nn.Parameter)
                else r"buffer\l"
            )
            label = f"{{{kind}{self._get_tensor_label(tensor)}}}"
            style = self._style("Salmon")
            style["shape"] = style.pop("shape")  # last, as torch.fx has it
            graph.add_node(Node(own, label=label, **style))
            graph.add_edge(Edge(own, node.name))


def _escaped(text: str) -> str:
    """Escape braces, which have a meaning in labels of records."""
    return text.replace("{", r"\{").replace("}", r"\}")


class _Named:
    """A node among arguments, for torch.fx's printer, which only handles its own nodes."""

    def __init__(self, node: Any) -> None:
        self.name = node.name

    def _custom_fx_repr_fn(self) -> str:
        return f"%{self.name}"


def _argument(value: Any) -> str:
    return torch.fx.node._format_arg(map_arg(value, _Named), max_list_len=_MAX_LIST)


def _row(start: str, shown: list[str], end: str, skip_node_names: bool) -> str:
    """A part of a label that lists arguments; empty if there are none."""
    if skip_node_names:
        shown = [text for text in shown if "%" not in text]
    if not shown:
        return ""
    if len(shown) == 1:
        # On one line; line breaks within the argument are removed too, as in torch.fx.
        row = f"|{start}{shown[0]},{end}".replace(r"\l", "").replace(r"\n", "")
    else:
        row = rf"|{start}\l" + r",\n".join(shown) + rf",\n{end}\l"
    return _escaped(row)
