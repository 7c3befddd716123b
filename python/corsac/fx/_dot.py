"""Graphs in the DOT language as objects, without Graphviz: the part of the ``pydot`` package that users of
``FxGraphDrawer`` call."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

from corsac import _core

__all__ = ["Cluster", "Dot", "Edge", "Node"]

_KEYWORDS = frozenset({"graph", "subgraph", "digraph", "node", "edge", "strict"})
# Text that needs no quotes in DOT.
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|-?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)", re.ASCII)
# A value that is already quoted, without an inner quote that would end it.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')
# Separators of the parts of a record's label, and of the lines in a part.
_PART_END = re.compile(r"(?<!\\)\|")
_LINE_END = re.compile(r"\\[nlr]|\n")
_ESCAPE = re.compile(r"\\(.)")

_sequence = itertools.count()


def _quoted(value: Any) -> str:
    """A value as DOT text: an identifier, or in quotes."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if _QUOTED.fullmatch(text):
        return text
    if _IDENTIFIER.fullmatch(text) and text.lower() not in _KEYWORDS:
        return text
    text = _QUOTE.sub(r'\1\\"', text)
    text = text.replace("\r", r"\r").replace("\n", r"\n")
    # A backslash at the end would escape the closing quote.
    if (len(text) - len(text.rstrip("\\"))) % 2:
        text += "\\"
    return f'"{text}"'


def _plain(value: Any) -> str:
    """A value without its quotes, if it has any."""
    text = str(value)
    return text[1:-1] if _QUOTED.fullmatch(text) else text


class _Part:
    """Attributes, the common part of nodes, edges and graphs."""

    def __init__(self, kind: str, attributes: dict[str, Any]) -> None:
        self.obj_dict: dict[str, Any] = {
            "type": kind,
            "attributes": attributes,
            "sequence": next(_sequence),
        }

    def get(self, name: str) -> Any:
        """An attribute; ``None`` if it is not set."""
        return self.obj_dict["attributes"].get(name)

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self.obj_dict["attributes"][name] = value

    def get_attributes(self) -> dict[str, Any]:
        """All attributes."""
        return self.obj_dict["attributes"]

    def __getattr__(self, name: str) -> Any:
        # ``get_label()``, ``set_fillcolor(value)`` and so on.
        action, _, attribute = name.partition("_")
        if action == "get" and attribute:
            return lambda: self.get(attribute)
        if action == "set" and attribute:
            return lambda value: self.set(attribute, value)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _attributes_text(self) -> str:
        parts = [f"{name}={_quoted(value)}" for name, value in self.get_attributes().items()]
        return f" [{', '.join(parts)}]" if parts else ""

    def to_string(self) -> str:
        """The part as DOT text."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.to_string()


class Node(_Part):
    """A node."""

    #: The opcode and target of the FX node that this one describes.
    describes: tuple[str, str] = ("", "")

    def __init__(self, name: str = "", **attributes: Any) -> None:
        super().__init__("node", attributes)
        self.obj_dict["name"] = name

    def get_name(self) -> str:
        """Its name."""
        return self.obj_dict["name"]

    def to_string(self) -> str:
        return f"{_quoted(self.get_name())}{self._attributes_text()};"


class Edge(_Part):
    """An edge between two nodes, by their names."""

    def __init__(self, src: str, dst: str, **attributes: Any) -> None:
        super().__init__("edge", attributes)
        self.obj_dict["points"] = (src, dst)

    def get_source(self) -> str:
        """The name of the node that it comes from."""
        return self.obj_dict["points"][0]

    def get_destination(self) -> str:
        """The name of the node that it goes to."""
        return self.obj_dict["points"][1]

    def to_string(self) -> str:
        source, target = (_quoted(end) for end in self.obj_dict["points"])
        return f"{source} -> {target}{self._attributes_text()};"


class _Graph(_Part):
    """A graph or subgraph."""

    def __init__(self, kind: str, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(kind, attributes)
        self.obj_dict["name"] = name
        self._parts: list[_Part] = []

    def get_name(self) -> str:
        """Its name."""
        return self.obj_dict["name"]

    def add_node(self, graph_node: Node) -> None:
        """Add a node."""
        self._parts.append(graph_node)

    def add_edge(self, graph_edge: Edge) -> None:
        """Add an edge."""
        self._parts.append(graph_edge)

    def add_subgraph(self, sgraph: Cluster) -> None:
        """Add a subgraph."""
        self._parts.append(sgraph)

    def get_node(self, name: str) -> list[Node]:
        """The nodes of this name."""
        return [node for node in self.get_node_list() if node.get_name() == name]

    def get_node_list(self) -> list[Node]:
        """The nodes, without those of subgraphs."""
        return [part for part in self._parts if isinstance(part, Node)]

    def get_nodes(self) -> list[Node]:
        """The nodes, without those of subgraphs."""
        return self.get_node_list()

    def get_edge_list(self) -> list[Edge]:
        """The edges."""
        return [part for part in self._parts if isinstance(part, Edge)]

    def get_edges(self) -> list[Edge]:
        """The edges."""
        return self.get_edge_list()

    def get_subgraph_list(self) -> list[Cluster]:
        """The subgraphs."""
        return [part for part in self._parts if isinstance(part, Cluster)]

    def get_subgraphs(self) -> list[Cluster]:
        """The subgraphs."""
        return self.get_subgraph_list()

    def to_string(self) -> str:
        lines = [f"{self.obj_dict['type']} {_quoted(self.get_name())} {{\n"]
        lines += [f"{name}={_quoted(value)};\n" for name, value in self.get_attributes().items()]
        for part in sorted(self._parts, key=lambda part: part.obj_dict["sequence"]):
            text = part.to_string()
            lines.append(text if isinstance(part, Cluster) else f"{text}\n")
        return "".join([*lines, "}\n"])


class Cluster(_Graph):
    """A subgraph with a frame around it."""

    def __init__(self, graph_name: str, **attributes: Any) -> None:
        super().__init__("subgraph", f"cluster_{graph_name}", attributes)


class Dot(_Graph):
    """A directed graph, to be written as DOT text or as SVG."""

    def __init__(self, graph_name: str = "G", **attributes: Any) -> None:
        super().__init__("digraph", graph_name, attributes)

    def create(self, prog: Any = None, format: str = "svg", encoding: str | None = None) -> bytes:
        """The graph in a format: ``"svg"``, laid out here, or ``"raw"`` or ``"dot"``, the DOT text.

        Raises:
            ValueError: another format, which would need Graphviz.
        """
        if format in ("raw", "dot", "gv"):
            return self.to_string().encode(encoding or "utf-8")
        if format == "svg":
            return self._svg().encode("utf-8")
        raise ValueError(
            f"{format!r} needs Graphviz: write DOT text with write_dot(path) and run dot "
            f"-T{format} on it; 'svg' and 'dot' need nothing"
        )

    def create_svg(self, prog: Any = None, encoding: str | None = None) -> bytes:
        """The graph as SVG."""
        return self.create(prog, "svg", encoding)

    def create_dot(self, prog: Any = None, encoding: str | None = None) -> bytes:
        """The graph as DOT text."""
        return self.create(prog, "dot", encoding)

    def write(
        self,
        path: str | os.PathLike[str],
        prog: Any = None,
        format: str = "raw",
        encoding: str | None = None,
    ) -> bool:
        """Write the graph to a file in one of the formats of :meth:`create`."""
        content = self.create(prog, format, encoding)
        with open(path, "wb") as file:
            file.write(content)
        return True

    def write_raw(self, path: str | os.PathLike[str], **options: Any) -> bool:
        """Write DOT text."""
        return self.write(path, format="raw", **options)

    def write_dot(self, path: str | os.PathLike[str], **options: Any) -> bool:
        """Write DOT text."""
        return self.write(path, format="dot", **options)

    def write_svg(self, path: str | os.PathLike[str], **options: Any) -> bool:
        """Write SVG."""
        return self.write(path, format="svg", **options)

    def __getattr__(self, name: str) -> Any:
        # Methods for other formats raise an error with the reason when called.
        action, _, file_format = name.partition("_")
        if action == "create" and file_format:
            return lambda *_, **__: self.create(format=file_format)
        if action == "write" and file_format:
            return lambda path, *_, **__: self.write(path, format=file_format)
        return super().__getattr__(name)

    def _svg(self) -> str:
        nodes = self.get_node_list()
        for cluster in self.get_subgraph_list():
            nodes += cluster.get_node_list()
        index = {node.get_name(): at for at, node in enumerate(nodes)}
        edges = [
            (index[edge.get_source()], index[edge.get_destination()])
            for edge in self.get_edge_list()
            if edge.get_source() in index and edge.get_destination() in index
        ]
        return _core.draw_records(_clean(self.get_name()), [_record(n) for n in nodes], edges)


def _clean(text: str) -> str:
    """Text without characters that cannot be written to a file."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _record(node: Node) -> tuple[str, list[str], str, str, bool]:
    """The text of a node in a picture: the lines of its label; the first is the name."""
    label = _plain(node.get("label") or node.get_name())
    if label.startswith("{") and label.endswith("}"):
        label = label[1:-1]
    parts = _PART_END.split(label)
    lines = [_ESCAPE.sub(r"\1", line) for part in parts for line in _LINE_END.split(part)]
    lines = [_clean(line.strip()) for line in lines if line.strip()]
    title = lines[0].removeprefix("name=%") if lines else _clean(node.get_name())
    op, operator = node.describes
    marked = _plain(node.get("fillcolor")) == "yellow"
    return title, lines[1:], op, _clean(operator), marked
