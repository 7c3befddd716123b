"""The meshes for a model, as a table, a picture and files."""

from __future__ import annotations

import os
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corsac._messages.report_text import duration, shortened
from corsac._messages.table import table
from corsac.analysis._cost import short
from corsac.analysis._machine import Machine
from corsac.distributed._errors import DistributedError
from corsac.distributed._planning.mesh_plan import MeshPlan
from corsac.distributed._planning.meshes import Mesh, MeshCosts, Refusal
from corsac.distributed._planning.network import Network
from corsac.distributed._planning.picture import timeline_html, timeline_svg
from corsac.distributed._planning.planner import Planner
from corsac.distributed._planning.timeline import Timeline


@dataclass(slots=True)
class MeshPlans:
    """Meshes for a model, with what a training step costs on each.

    Attributes:
        batch: the size of the batch of a step.
        found: the meshes that can be used: those of fewer ranks first, and of these the fastest.
        refused: the others, with the reason.
        machine: the speed of a rank.
        network: the connections between ranks.
    """

    batch: int
    found: list[MeshCosts]
    refused: dict[Mesh, Refusal]
    machine: Machine
    network: Network
    _planner: Planner

    def best(self, ranks: int | None = None) -> MeshCosts:
        """The fastest mesh, of this number of ranks or any.

        Raises:
            DistributedError: there is none.
        """
        own = [one for one in self.found if ranks in (None, one.mesh.ranks)]
        if not own:
            reasons = [f"{mesh}: {reason}" for mesh, reason in self.refused.items()]
            raise DistributedError(f"no mesh can be used: {shortened(reasons)}")
        return min(own, key=lambda one: one.seconds)

    def plan(self, costs: MeshCosts | None = None) -> MeshPlan:
        """The plan for one of the meshes, by default the fastest, for :meth:`MeshPlan.save`.

        Raises:
            DistributedError: stages cannot be cut or run as they are planned.
        """
        own = self.best() if costs is None else costs
        stages = self._planner.checked_pipeline(own)
        return MeshPlan(own, self.batch, stages, self._planner.sequence_parallel)

    def timeline(self, costs: MeshCosts | None = None) -> Timeline:
        """The simulated step on one of the meshes, by default the fastest."""
        own = self.best() if costs is None else costs
        return self._planner.timeline(own.mesh, own.schedule, own.microbatches)

    def draw(
        self,
        path: str | os.PathLike[str],
        costs: MeshCosts | None = None,
        name: str = "training step",
    ) -> None:
        """Draw the simulated step on one of the meshes, by default the fastest, as a file ``*.svg`` or ``*.html``, which has
        the table, too.

        Raises:
            ValueError: the file is none of these.
        """
        own = self.best() if costs is None else costs
        target = Path(path)
        if target.suffix not in (".svg", ".html"):
            raise ValueError(f"a picture is .svg or .html, not {target.suffix or target.name!r}")
        step = self.timeline(own)
        title = f"{name} on {own.mesh.ranks} ranks"
        subtitle = (
            f"{own.mesh} (pipeline × tensor × data), {own.schedule} with {own.microbatches} microbatches of "
            f"{own.items:g}: {duration(own.seconds)}, bubble {own.bubble:.1%}"
        )
        copies = own.mesh.tensor * own.mesh.data
        picture = timeline_svg(step, title, subtitle, copies)
        if target.suffix == ".html":
            picture = timeline_html(picture, title, str(self))
        target.write_text(picture, encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "batch": self.batch,
            "machine": asdict(self.machine),
            "network": asdict(self.network),
            "found": [asdict(own) for own in self.found],
            "refused": [
                {"mesh": asdict(mesh), "reason": str(reason)}
                for mesh, reason in self.refused.items()
            ],
        }

    def text(self, shown: int = 3) -> str:
        """A table, with the ``shown`` fastest meshes of each number of ranks."""
        head = ("ranks", "pipeline × tensor × data", "schedule", "microbatches", "time", "speed-up")
        cells = [(*head, "bubble", "sent", "memory")]
        by_ranks: dict[int, list[MeshCosts]] = {}
        for own in self.found:
            by_ranks.setdefault(own.mesh.ranks, []).append(own)

        fewest = min(by_ranks, default=1)
        base = by_ranks[fewest][0].seconds if by_ranks else 0.0
        for group in by_ranks.values():
            for own in group[:shown]:
                cells.append(
                    (
                        str(own.mesh.ranks),
                        str(own.mesh),
                        own.schedule,
                        f"{own.microbatches} of {own.items:g}",
                        duration(own.seconds),
                        f"{base / own.seconds:.2f}",
                        f"{own.bubble:.1%}",
                        f"{short(round(own.sent_bytes))}B",
                        f"{short(round(own.memory_bytes))}B",
                    )
                )
        lines = table(cells, left=(2,))
        hidden = len(self.found) - len(cells) + 1
        if hidden:
            lines.append(f"and {hidden} slower ones")
        if self.refused:
            lines += ["", "not possible:"]
        kinds: dict[str, list[str]] = {}
        for mesh, reason in self.refused.items():
            size = reason.memory_bytes
            needed = f" ({short(round(size))}B)" if size else ""
            # A mesh stays on one line.
            kinds.setdefault(reason.text, []).append(f"{mesh}{needed}".replace(" ", "\u00a0"))
        for text, meshes in kinds.items():
            listed = f"{text}: {', '.join(meshes)}"
            wrapped = textwrap.wrap(
                listed, 116, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
            lines += [line.replace("\u00a0", " ") for line in wrapped]
        lines += [
            "",
            f"a batch of {self.batch}; ranks of {short(round(self.machine.gflops * 1e9))}FLOP/s and "
            f"{short(round(self.machine.gbytes * 1e9))}B/s of memory, connected with "
            f"{short(round(self.network.bandwidth))}B/s and {duration(self.network.latency)}",
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


__all__ = ["MeshPlans"]
