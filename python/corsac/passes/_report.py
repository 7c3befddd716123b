"""Reports of passes."""

from __future__ import annotations

from dataclasses import dataclass

from corsac._messages.table import table


@dataclass(frozen=True, slots=True)
class Site:
    """A place that a pass changed, or might have changed.

    Attributes:
        node: the name of the node.
        target: the target of the node.
        other: the node or module that took its place, if there is one.
        reason: why nothing was changed; None if something was.
    """

    node: str
    target: str
    other: str | None
    reason: str | None

    @property
    def applied(self) -> bool:
        """Whether the pass made a change here."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Report:
    """Changes of a pass, and candidates that it left alone, with the reason. True if the graph has changed.

    Attributes:
        name: the pass.
        sites: every candidate that the pass considered.
        nodes_before: number of nodes before the pass.
        nodes_after: number of nodes after it.
    """

    name: str
    sites: tuple[Site, ...]
    nodes_before: int
    nodes_after: int

    @property
    def changed(self) -> bool:
        """Whether the graph has changed."""
        return any(site.applied for site in self.sites)

    @property
    def count(self) -> int:
        """Number of sites that were changed."""
        return sum(site.applied for site in self.sites)

    @property
    def applied(self) -> tuple[Site, ...]:
        """The sites that were changed."""
        return tuple(site for site in self.sites if site.applied)

    @property
    def kept(self) -> tuple[Site, ...]:
        """The sites that were left alone, each with its reason."""
        return tuple(site for site in self.sites if not site.applied)

    def __bool__(self) -> bool:
        return self.changed

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.count} of {len(self.sites)} sites, "
            f"{self.nodes_before} -> {self.nodes_after} nodes"
        )
        lines = table(self._cells(), left=range(3))
        return "\n".join([head, *(f"  {line}" for line in lines)])

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (site.node, f"kept: {site.reason}" if site.reason else f"done{_other(site)}")
            for site in self.sites
        ]


def _other(site: Site) -> str:
    return f", {site.other} takes its place" if site.other else ""
