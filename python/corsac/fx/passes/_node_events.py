"""Records a splitter's decisions about nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from torch._logging import trace_structured

from ..node import Node

TRACKER_DUMP_PATH = "_fx_net_tracker"
NODES_SUFFIX = "_nodes.txt"
ALL_SUFFIX = "_all.txt"

ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE = "FX_NET_ACC_SPLITTER_TRACKER_MODE"
ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH = "FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH"
ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES = "FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES"

DUMP_PREFIX = os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH, TRACKER_DUMP_PATH)

TRACKER_MODE: Literal["0", "1", "2", "3"] = os.environ.get(  # type: ignore[assignment]
    ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE, "0"
)
"""Events to write to files: ``0`` none, ``1`` all, ``2`` also those that led to the nodes named in
``FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES``, ``3`` also those that led to all nodes with several events.
"""


class NodeEvent:
    """An event of a node.

    Args:
        source: the node.
        desc: the description.
        dep: the node that was the reason, if there was one.
    """

    def __init__(self, source: Node, desc: str, dep: Node | None = None) -> None:
        self.source = source
        self.desc = desc
        self.dep = dep

    def to_str(self) -> str:
        """The event as a line; ``#`` means no reason."""
        return f"{self.source.name}: {self.desc} {self.dep.name if self.dep else '#'}"


class NodeEventTracker:
    """Collects events.

    Args:
        tracker_mode: selects the output of :meth:`dump` to files, see :data:`TRACKER_MODE`.
        dump_prefix: prefix of the files' names.
    """

    def __init__(self, tracker_mode: int, dump_prefix: str) -> None:
        self.tracker_mode = tracker_mode
        self.dump_prefix = dump_prefix
        self.events: list[NodeEvent] = []
        self.node_events: dict[str, list[int]] = {}
        """Indices in ``events`` by names of nodes."""
        self.writer: Callable[[str], object] = print

    def add(self, node: Node, desc: str, dep: Node | None = None) -> None:
        """Record an event of ``node``; ``dep`` is its reason."""
        self.node_events.setdefault(node.name, []).append(len(self.events))
        self.events.append(NodeEvent(node, desc, dep))

    def _events_of(self, name: str) -> list[NodeEvent]:
        return [self.events[place] for place in self.node_events.get(name, ())]

    def print_node(
        self,
        node_name: str,
        recursive: bool = False,
        tab: str = "",
        writer: Callable[[str], object] | None = None,
    ) -> None:
        """Write the events of a node, one per line.

        Args:
            node_name: the node.
            recursive: also those of the nodes that were the reasons, indented.
            tab: prefix of the lines.
            writer: called with each line; by default lines are printed.
        """
        write = writer or self.writer
        for event in self._events_of(node_name):
            write(tab + event.to_str())
            if recursive and event.dep is not None:
                self.print_node(event.dep.name, recursive=True, tab=f"| {tab}", writer=write)

    def to_dict(self) -> dict[str, list[str]]:
        """The events of each node, as lines."""
        return {
            name: [event.to_str() for event in self._events_of(name)] for name in self.node_events
        }

    def print_all(self, writer: Callable[[str], object] | None = None) -> None:
        """Write the events of every node."""
        write = writer or self.writer
        for name in self.node_events:
            write(f"Node: {name}:")
            self.print_node(name, recursive=False, tab="  ", writer=write)

    def dump(self) -> None:
        """Log the events as a structured trace, and write them to files according to the mode."""
        trace_structured(
            "artifact",
            metadata_fn=lambda: {"name": "fx_net_acc_splitter_finder_events", "encoding": "json"},
            payload_fn=lambda: json.dumps(self.to_dict()),
        )
        if self.tracker_mode >= 1:
            lines: list[str] = []
            self.print_all(lines.append)
            self._write(ALL_SUFFIX, lines)
        if self.tracker_mode in (2, 3):
            lines = []
            for name in self._tracked():
                lines.append(f"===== Tracking node {name} =====")
                self.print_node(name, recursive=True, tab="|-", writer=lines.append)
                lines.append(f"===== End of tracking node {name} =====")
            self._write(NODES_SUFFIX, lines)

    def _tracked(self) -> list[str]:
        if self.tracker_mode == 2:
            return os.environ.get(ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES, "").split(",")
        return [name for name, events in self.node_events.items() if len(events) > 1]

    def _write(self, suffix: str, lines: list[str]) -> None:
        Path(self.dump_prefix + suffix).write_text("".join(f"{line}\n" for line in lines))
